//! beanstalkd's protocol as bytes: the meaning of each line, even if it arrives in parts, and the form of each reply.
//! Where beanstalkd is installed, its replies to the same lines are compared.

mod decode;
mod encode;
mod peer;
mod row;
