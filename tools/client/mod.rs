//! Requests to a running coordinator, over the Unix socket of its data directory or to the address of `--url`.
//!
//! | file | holds |
//! |---|---|
//! | `target.rs` | the flags that select a coordinator, and how to connect to it |
//! | `connection.rs` | connections, and the pool of idle ones |
//! | `ask.rs` | requests, answers, streams, and requests that are repeated after a restart |

mod ask;
mod connection;
mod target;

pub(crate) use ask::{
    Answer, Fields, Outage, bytes, bytes_of, fields, follow, get, instant, post, rest, send,
    send_once, send_within, with_query,
};
pub(crate) use target::{Target, Where};
