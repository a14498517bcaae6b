//! A replacement for beanstalkd with the same command line. It runs as `sexton beanstalkd`, or if the program is called as `beanstalkd`.
//!
//! | file | holds |
//! |---|---|
//! | `flag.rs` | beanstalkd's flags, parsed as beanstalkd does |
//! | `command.rs` | the server: listens, changes user, serves, and handles signals |
//! | `user.rs` | changing the user that the process runs as |

mod command;
mod flag;
mod user;

pub(crate) use command::{Beanstalkd, invoked_as_beanstalkd, run};
