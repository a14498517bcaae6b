//! beanstalkd's protocol as bytes: what each line means, however it was cut, and what each reply looks like. What
//! beanstalkd itself says to the same lines is asked where it is installed.

mod decode;
mod encode;
mod peer;
mod row;
