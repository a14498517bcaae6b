//! Requests to a running coordinator, over the Unix socket of its data directory or to the address of `--url`.
//!
//! | file | holds |
//! |---|---|
//! | `target.rs` | the flags that select a coordinator, and how to connect to it |
//! | `connection.rs` | connections, and the pool of idle ones |
//! | `answer.rs` | the fields of a request, and the coordinator's answer |
//! | `ask.rs` | requests, streams, and requests that are repeated after a restart |
//! | `typed.rs` | requests by their types |
//! | `list.rs` | lists that are answered page by page |
//! | `returning.rs` | waiting for a coordinator that is down |

mod answer;
mod ask;
mod connection;
mod list;
mod returning;
mod target;
mod typed;

pub(crate) use answer::unreadable;
pub(crate) use answer::{Answer, Fields, fields, with_query};
pub(crate) use ask::{
    Outage, change, drawn, follow, get, instant, look, rest, send, send_once, send_within,
};
pub(crate) use list::{Item, Part, all, written};
pub(crate) use target::{Target, Where, resolved};
pub(crate) use typed::{Answered, Reply, ask, post, request, wait};
