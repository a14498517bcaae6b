//! `sexton beanstalkd`, and the program when called as `beanstalkd`: a replacement with beanstalkd's command line.
//!
//! | file | holds |
//! |---|---|
//! | `flag.rs` | beanstalkd's flags, parsed as beanstalkd does |
//! | `command.rs` | the server: listens, changes user, serves, and handles signals |
//! | `user.rs` | the change of user |

mod command;
mod flag;
mod user;

pub(crate) use command::{Beanstalkd, called_so, run};
