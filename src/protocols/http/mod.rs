//! HTTP/JSON on TCP, and on a Unix socket for the command line. `docs/protocols/http.md` is the text this answers to.
//!
//! actix-web routes, and its codec reads and writes; the connections are ours, because every head, body and write
//! has its own bound here, and every refusal is a problem document.
//!
//! | file | holds |
//! |---|---|
//! | `door.rs` | listeners, limits, the thread that serves, opening and closing |
//! | `session.rs` | one client: requests into answers, with their bounds |
//! | `access.rs` | whose requests are heard: `Host`, `Origin`, token, peer |
//! | `tls.rs` | the certificate, its key, and the handshake |
//! | `token.rs` | the bearer token and its file |
//! | `socket.rs` | the Unix socket's file |
//! | `route.rs` | what is served |
//! | `lock.rs` | locks: requests into calls, and what came of them into answers |
//! | `queue.rs` `queue_look.rs` | queues, the same way: what changes something, and what only looks |
//! | `listing.rs` | lists and other large answers, with their bounds |
//! | `event.rs` | what happens, as server-sent events |
//! | `field.rs` | the fields of a request, from its query or its body, and names in JSON |
//! | `room.rs` | how much of what a listener has to give |
//! | `caller.rs` | waiting for as long as the client does |
//! | `metric.rs` | a status as metrics |
//! | `problem.rs` | refusals, as `application/problem+json` |
//! | `repetition.rs` | requests that come again, with an `Idempotency-Key` |
//! | `counters.rs` | the door's statistics |

mod access;
mod caller;
mod counters;
mod door;
mod event;
mod field;
mod listing;
mod lock;
mod metric;
mod problem;
mod queue;
mod queue_look;
mod repetition;
mod room;
mod route;
mod session;
mod socket;
mod tls;
mod token;

pub use counters::Stats;
pub use door::{Door, OpenError};
pub use tls::TlsError;
pub use token::TokenError;
