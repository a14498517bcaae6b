//! The HTTP API of sexton as types: what a request contains, where it is sent, what it requires, how it is answered, and why it may be
//! refused. The server, the command line and the published description are built from these types, so they cannot disagree.
//!
//! Nothing here depends on the rest of sexton: a client needs only this package. The library uses its types in place of its own wherever an
//! answer shows something as it is.
//!
//! | module | holds |
//! |---|---|
//! | [`request`] | the contract of a request |
//! | [`refusal`] | the reasons for a refusal |
//! | [`ids`] | sequence numbers, tokens, moments |
//! | [`value`] | values with bounds |
//! | [`name`], [`bytes`], [`member`], [`text`] | names; shared bytes; bytes as members of JSON objects, and as text for users |
//! | [`list`] | lists that are answered page by page |
//! | [`binding`] | with what a right that is bound to a process ends |
//! | [`fields`] (feature `client`) | writes a request as JSON |
//! | [`lock`] | locks |
//! | [`queue`], [`job`] | queues and the state of their jobs; adding, claiming and completing jobs |
//! | [`lease`] | leases |
//! | [`process`] | processes to launch |
//! | [`audit`] | whether the parts of a coordinator agree |
//! | [`operate`] | snapshots, the clock, draining |
//! | [`trouble`] | the list of problems |
//!
//! ```
//! use sexton_api::operate::{DrainWhat, StartDrain};
//! use sexton_api::request::{Method, Request, Scope};
//! use sexton_api::value::Number;
//!
//! let request = StartDrain { what: DrainWhat::Locks, wait: Number(60) };
//! assert_eq!(StartDrain::ROUTE.path, "/v1/drain");
//! assert!(matches!((StartDrain::ROUTE.method, StartDrain::ROUTE.scope), (Method::Post, Scope::Run)));
//! assert_eq!(request.wait.0, 60);
//! ```

#![warn(missing_docs)]

pub mod audit;
pub mod binding;
pub mod bytes;
#[cfg(feature = "client")]
pub mod fields;
pub mod ids;
pub mod job;
pub mod lease;
pub mod list;
pub mod lock;
pub mod member;
pub mod name;
pub mod operate;
pub mod process;
pub mod queue;
mod queue_name;
pub mod refusal;
pub mod request;
pub mod text;
pub mod trouble;
pub mod value;
