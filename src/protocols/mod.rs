//! Doors: bytes into messages, replies into bytes. They decide nothing about locks or jobs.
//!
//! | file | holds |
//! |---|---|
//! | `session.rs` | what a protocol is to a connection |
//! | `connection.rs` | from socket to session and back, with its bounds |
//! | `listener.rs` | who is let in |
//! | `bounds.rs` | what all connections of a listener may hold together |
//! | `file.rs` | files that a door is told to read |
//! | `lockserver/` | LockServer 0.9b: codec, session, hosts list, counters |
//! | `beanstalk/` | beanstalkd's protocol: codec |
//! | `http/` | HTTP/JSON on TCP and on the Unix socket |

pub mod beanstalk;
mod bounds;
pub mod connection;
pub mod file;
#[cfg(feature = "http")]
pub mod http;
pub mod listener;
pub mod lockserver;
pub mod session;
