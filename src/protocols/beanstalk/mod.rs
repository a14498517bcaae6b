//! beanstalkd's protocol, as `docs/protocols/beanstalk.md` has it: that of 1.13, and a few words more.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | what a client may ask, and what it is counted as |
//! | `line.rs` | a command line into a command: prefixes, numbers, names |
//! | `codec.rs` | bytes into commands: line limit, bodies, what is swallowed |
//! | `reply.rs` | replies into bytes |
//! | `stats.rs` | the statistics of a job, a tube and the server, as YAML |
//! | `client.rs` | what is asked of the QueueActor for a client |
//! | `asked.rs` `show.rs` | commands and statistics, from and into what the QueueActor speaks |
//! | `session.rs` | one client: commands into messages for the QueueActor, in order |
//! | `door.rs` | who is let in, how many at a time, what is counted |

mod asked;
mod client;
pub mod codec;
pub mod command;
mod door;
mod line;
pub mod reply;
mod session;
mod show;
pub mod stats;

pub use codec::Decoder;
pub use command::{Command, Counted, Dedup, Put, Refusal, ReserveMode, TubeName};
pub use door::{Door, Stats};
pub use reply::{Job, JobState, Reply, encode};
pub use stats::{JobStats, ServerStats, TubeStats};

/// The beanstalkd whose words these are: clients ask for it before they use what older ones lack.
pub const VERSION: &str = "1.13";

/// Where `-d` finds the commands and replies of this protocol in the log.
pub const DEBUG_TARGET: &str = "sexton::beanstalk::wire";
