//! HTTP/JSON on TCP, and on a Unix socket for the command line, as specified in `docs/protocols/http.md`.
//!
//! actix-web does the routing, and its codec parses and writes messages. Connections are handled here rather than by actix-web, so that
//! every head, body and write is bounded, and every refusal is a problem document.
//!
//! ```
//! use sexton::Config;
//! use sexton::config::HttpConfig;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let http = HttpConfig { tcp: Some("127.0.0.1:0".parse()?), ..HttpConfig::default() };
//! let node = sexton_http::open(Config { http: Some(http), ..Config::in_memory() })?;
//! let address = sexton_http::listener(&node).and_then(sexton_http::Listener::address);
//! println!("http://{}/v1/status", address.expect("it should listen on TCP"));
//! node.stop()?;
//! # Ok(())
//! # }
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `listener.rs` | sockets, limits, the serving thread, opening and closing |
//! | `session.rs` | one client: its requests and answers, with their bounds |
//! | `access.rs` `origin.rs` | which requests are accepted: `Host`, token, peer; what says which page sent them |
//! | `scope.rs` | what a route requires, and what a caller has |
//! | `tls.rs` | the certificate, its key, and the handshake |
//! | `token.rs` | the bearer token and its file |
//! | `guesses.rs` | the bounds on wrong tokens |
//! | `revocation.rs` | the end of waits and streams whose token was removed or whose login expired |
//! | `socket.rs` | the Unix socket's file |
//! | `route.rs` | the definition of a route |
//! | `node.rs` | opens nodes that serve HTTP |
//! | `routes.rs` | the table of routes |
//! | `openapi.rs` `schemas.rs` | the `OpenAPI` description of the routes and their types |
//! | `shared.rs` | the state that connections share |
//! | `input.rs` | the conversion of queries and bodies to the types of requests |
//! | `operate.rs` | the node: its status, metrics and health, checkpoints, and draining |
//! | `audit.rs` | audits of the actors' state |
//! | `lock.rs` | locks |
//! | `job.rs` `pop.rs` `queue.rs` `queue_bulk.rs` `queue_look.rs` `result.rs` | queues: work on jobs, claims, administration, read-only routes, results |
//! | `process.rs` `process_look.rs` `process_now.rs` `process_shown.rs` | processes |
//! | `service.rs` | services |
//! | `task.rs` `task_server.rs` `task_look.rs` `task_transcript.rs` | tasks |
//! | `lease.rs` `lease_set.rs` `lease_look.rs` | leases: passes, administration, read-only routes |
//! | `event.rs` `stream.rs` | server-sent events; answer bodies that are streams |
//! | `page/` | the same information in HTML, for a browser |
//! | `binding.rs` | bindings of locks, claims and passes to processes |
//! | `busiest.rs` | the busiest queues, locks, leases and tasks |
//! | `listing.rs` | lists and other large answers, with their bounds |
//! | `report.rs` | the socket on which task commands report |
//! | `queue_rates.rs` | for the page: the rates at which jobs are added to and removed from each queue |
//! | `rates.rs` | the activity of listeners, actors and journal in the last ten minutes, sampled every five seconds |
//! | `capacity.rs` | the capacity limits of a listener |
//! | `call.rs` | a request as seen by its route; waits that end with the client's connection |
//! | `metric.rs` | the status as metrics |
//! | `trouble.rs` | the list of problems |
//! | `problem.rs` | refusals, as `application/problem+json` |
//! | `idempotency.rs` | the `Idempotency-Key` of a request that may be repeated |
//! | `counters.rs` | the listener's statistics |

mod access;
mod audit;
mod binding;
mod busiest;
mod call;
mod capacity;
mod counters;
mod event;
mod guesses;
mod idempotency;
mod input;
mod job;
mod job_shown;
mod lease;
mod lease_look;
mod lease_set;
mod listener;
mod listing;
mod lock;
mod metric;
mod node;
mod openapi;
mod operate;
mod origin;
mod page;
mod pop;
mod problem;
mod process;
mod process_look;
mod process_now;
mod process_shown;
mod queue;
mod queue_bulk;
mod queue_look;
mod queue_rates;
mod rates;
mod report;
mod result;
mod revocation;
mod route;
mod routes;
mod schemas;
mod scope;
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
mod trouble;

pub use counters::Stats;
pub use listener::{Listener, OpenError};
pub use node::{listener, open, protocols};
pub use routes::{RouteScope, description, scopes};
pub use tls::TlsError;
pub use token::TokenError;
