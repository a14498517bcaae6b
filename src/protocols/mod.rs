//! The listeners: they turn bytes into messages and replies into bytes, and decide nothing about locks or jobs.
//!
//! | file | holds |
//! |---|---|
//! | `session.rs` | the interface between a protocol and a connection |
//! | `connection.rs` | moves bytes from socket to session and back, with bounds |
//! | `listener.rs` | accepts connections, or refuses them |
//! | `bounds.rs` | bounds on what all connections of a listener may hold together, and their turns |
//! | `file.rs` | reads files named in the configuration: hosts lists, tokens, certificates |
//! | `lockserver/` | LockServer 0.9b: codec, session, hosts list, counters |
//! | `beanstalk/` | beanstalkd's protocol: codec, session, statistics |

pub mod beanstalk;
pub mod bounds;
pub mod connection;
pub mod file;
pub mod listener;
pub mod lockserver;
pub mod session;
