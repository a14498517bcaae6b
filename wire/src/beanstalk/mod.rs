//! beanstalkd's protocol, version 1.13 with a few extensions, as specified in `docs/protocols/beanstalk.md`.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the commands of a client, and what each is counted as |
//! | `line.rs` | parses a command line: prefixes, numbers, names |
//! | `codec.rs` | decodes commands from bytes: line limit, bodies, what is skipped |
//! | `reply.rs` | encodes replies |
//! | `stats.rs` | the statistics of a job, a tube and the server, as YAML |
//! | `decimal.rs` | writes numbers in decimal |
//! | `request.rs` | a client's commands as the requests that a session queues |
//! | `client.rs` | converts these requests to messages and queries for the QueueActor |
//! | `show.rs` | converts the QueueActor's replies to beanstalkd's |
//! | `session.rs` | one client: carries out its requests in order, and returns the replies |
//! | `shared.rs` `counters.rs` | the state that the connections of a listener share; what is counted |
//! | `listener.rs` | which connections are admitted, and how many at a time |

mod client;
pub mod codec;
pub mod command;
mod counters;
mod decimal;
mod line;
mod listener;
pub mod reply;
mod request;
mod session;
mod shared;
mod show;
pub mod stats;

pub use codec::Decoder;
pub use command::{Command, Counted, Dedup, Put, Refusal, ReserveMode, TubeName};
pub use counters::Stats;
#[doc(hidden)]
pub use line::verbs;
pub use listener::Listener;
pub use reply::{Job, Reply, encode};
pub use stats::{JobState, JobStats, ServerStats, TubeStats};

/// The version of beanstalkd reported to clients, which check it before they use newer commands.
pub const VERSION: &str = "1.13";

/// The log target of this protocol's commands and replies, enabled by `-d`.
pub const DEBUG_TARGET: &str = "sexton::beanstalk::wire";
