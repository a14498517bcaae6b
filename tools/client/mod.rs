//! Asks a running coordinator, over the Unix socket of its data directory or wherever `--url` says.
//!
//! | file | holds |
//! |---|---|
//! | `target.rs` | the flags that say which coordinator, and the way to it |
//! | `connection.rs` | connections, and those that are asked on again |
//! | `ask.rs` | requests, answers, streams, and waits that outlast a restart |

mod ask;
mod connection;
mod target;

pub(crate) use ask::{
    Answer, Fields, bytes, bytes_of, fields, follow, get, instant, post, rest, send, send_once,
    send_within, with_query,
};
pub(crate) use target::{Target, Where};
