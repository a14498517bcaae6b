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
//! | `route.rs` | what a route is |
//! | `routes.rs` | the table of routes |
//! | `openapi.rs` `schemas.rs` | the description of the table, and of the types in it |
//! | `shared.rs` | what connections share |
//! | `schema.rs` | what requests and answers are made of: numbers in bounds, names, bytes |
//! | `input.rs` | queries and bodies into the types of requests |
//! | `operate.rs` | the node: routes, types, calls |
//! | `audit.rs` | whether all that is held agrees |
//! | `lock.rs` | locks, the same way |
//! | `job.rs` `pop.rs` `queue.rs` `queue_bulk.rs` `queue_look.rs` `result.rs` | queues, the same way: work with jobs, operation on one and on many, what only looks, and how jobs ended |
//! | `process.rs` `process_look.rs` `process_now.rs` | processes, the same way |
//! | `service.rs` | services, the same way |
//! | `task.rs` `task_server.rs` `task_look.rs` `task_transcript.rs` | tasks, the same way |
//! | `lease.rs` `lease_set.rs` `lease_look.rs` | leases, the same way: passes, operation, and what only looks |
//! | `event.rs` `stream.rs` | what happens, as server-sent events; streams as bodies of answers |
//! | `page/` | the page: the same for people, in HTML |
//! | `busiest.rs` | what has the most to do, for those who look at the whole |
//! | `listing.rs` | lists and other large answers, with their bounds |
//! | `queue_rates.rs` | how fast jobs are added and done, of the queues that the page shows |
//! | `rates.rs` | how much listeners and journal did, every five seconds of the last ten minutes |
//! | `room.rs` | how much of what a listener has to give |
//! | `call.rs` | a request in the hands of its route; waiting for as long as the client does |
//! | `metric.rs` | a status as metrics |
//! | `problem.rs` | refusals, as `application/problem+json` |
//! | `idempotency.rs` | requests that come again, with an `Idempotency-Key` |
//! | `counters.rs` | the door's statistics |

mod access;
mod audit;
mod binding;
mod busiest;
mod call;
mod counters;
mod door;
mod event;
mod idempotency;
mod input;
mod job;
mod lease;
mod lease_look;
mod lease_set;
mod listing;
mod lock;
mod metric;
mod openapi;
mod operate;
mod page;
mod pop;
mod problem;
mod process;
mod process_look;
mod process_now;
mod queue;
mod queue_bulk;
mod queue_look;
mod queue_rates;
mod rates;
mod report;
mod result;
mod room;
mod route;
mod routes;
mod schema;
mod schemas;
mod service;
mod session;
mod shared;
mod socket;
mod stream;
mod task;
mod task_look;
mod task_server;
mod task_transcript;
mod tls;
mod token;

pub use counters::Stats;
pub use door::{Door, OpenError};
pub use routes::description;
pub use tls::TlsError;
pub use token::TokenError;
