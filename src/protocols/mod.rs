//! The listeners: bytes into messages, replies into bytes. They decide nothing about locks or jobs. One is called a *door*
//! in this code.
//!
//! | file | holds |
//! |---|---|
//! | `session.rs` | what a protocol is to a connection |
//! | `connection.rs` | from socket to session and back, with its bounds |
//! | `listener.rs` | accepting connections, and which are refused |
//! | `bounds.rs` | what all connections of a listener may hold together |
//! | `file.rs` | files that a listener is configured with: hosts lists, tokens, certificates |
//! | `lockserver/` | LockServer 0.9b: codec, session, hosts list, counters |
//! | `beanstalk/` | beanstalkd's protocol: codec, session, statistics |
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
