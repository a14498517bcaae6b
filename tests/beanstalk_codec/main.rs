//! beanstalkd's protocol as bytes: what each line means, however it was cut, and what each reply looks like. What
//! beanstalkd itself says to the same lines is asked where it is installed.

#[path = "../support/beanstalkd.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod beanstalkd;
#[path = "../support/chance.rs"]
mod chance;
mod decode;
mod encode;
#[path = "../support/patience.rs"]
mod patience;
mod peer;
mod row;
