//! `sexton beanstalkd`, and the program under a link of that name: in beanstalkd's place, with its command line.
//!
//! | file | holds |
//! |---|---|
//! | `flag.rs` | beanstalkd's flags, read as it reads them |
//! | `command.rs` | the server: listens, becomes another user, serves, and what signals do |
//! | `user.rs` | becoming another user |

mod command;
mod flag;
mod user;

pub(crate) use command::{Beanstalkd, called_so, run};
