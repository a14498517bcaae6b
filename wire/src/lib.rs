//! The two protocols without tokens: LockServer 0.9b, as specified in `docs/protocols/lockserver.md`, and beanstalkd's, as specified in
//! `docs/protocols/beanstalk.md`. They turn bytes into messages and replies into bytes, and decide nothing about locks or jobs.
//!
//! ```
//! use sexton::Config;
//! use sexton::config::{Address, BeanstalkConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let address = Address::Tcp("127.0.0.1:0".parse()?);
//! let beanstalk = BeanstalkConfig { address, ..BeanstalkConfig::default() };
//! let node = sexton_wire::open(Config { beanstalk: Some(beanstalk), ..Config::in_memory() })?;
//! let address = node.handle().listeners().beanstalk;
//! println!("beanstalkd clients may connect to {}", address.expect("it listens"));
//! node.stop()?;
//! # Ok(())
//! # }
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `node.rs` | both as protocols of a node; opens nodes that serve them |
//! | `session.rs` | the interface between a protocol and a connection |
//! | `connection.rs` | moves bytes from socket to session and back, with bounds |
//! | `bounds.rs` | bounds on what all connections of a listener may hold together, and their turns |
//! | `lockserver/` | LockServer 0.9b: codec, session, hosts list, counters |
//! | `beanstalk/` | beanstalkd's protocol: codec, session, statistics |

pub mod beanstalk;
mod bounds;
mod connection;
pub mod lockserver;
mod node;
mod session;

pub use node::{open, protocols};
