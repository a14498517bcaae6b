//! The `QueueActor`: every queue that the coordinator keeps, whichever door asks.
//!
//! Follows MediaWiki's `JobQueue` for what a job is, and beanstalkd's protocol for what can be done with one; adds claims
//! that are fenced by a token, and time that acts when it should.
//!
//! | file | holds |
//! |---|---|
//! | `message.rs` `refused.rs` `right.rs` `name.rs` | what may change a queue, and what can come of it |
//! | `reply.rs` | what can be asked and waited for, and what is answered |
//! | `rules.rs` | configuration: what holds for all queues, and for each type |
//! | `job.rs` `said.rs` `phase.rs` `queue.rs` | one job; what is said of it; what can be the matter with it; one queue |
//! | `ready.rs` `held.rs` | the jobs of a queue that can be claimed, in order; those that are claimed |
//! | `state.rs` `index.rs` `by_id.rs` | jobs and queues, moving a job from phase to phase; the indexes over them |
//! | `bound.rs` | claims that are bound to processes |
//! | `roots.rs` | root jobs, and which jobs they have made superfluous |
//! | `turns.rs` `turning.rs` | whose turn it is among tenants, and which of its queues gives a job |
//! | `uniques.rs` | deduplication keys that are remembered for a time |
//! | `results.rs` | how jobs ended that are over |
//! | `throttle.rs` `closing.rs` | queues that are closed for a while because something was claimed |
//! | `waiting.rs` | who waits for a job, who has to do with a queue |
//! | `pages.rs` `load.rs` | durable state as pages; indexes built again from them |
//! | `machine.rs` | what the host asks, and what is due when |
//! | `canonical.rs` | one form for all bodies that say the same |
//! | `decide.rs` `adding.rs` `commit.rs` | the rules: which job goes to whom, and what becomes of it; what is added; and making it so |
//! | `look.rs` `select.rs` `busiest.rs` | answers to questions; to those that walk far, in shares |
//! | `event.rs` | what is told to whoever listens |
//! | `invariants.rs` `model/` `compared.rs` `selected.rs` `steps.rs` `tests.rs` `fair.rs` | the machine compared with a plain model, its state walked |

mod adding;
mod bound;
mod busiest;
mod by_id;
mod canonical;
mod closing;
mod commit;
#[cfg(test)]
mod compared;
mod decide;
mod event;
#[cfg(test)]
mod fair;
mod held;
mod index;
#[cfg(test)]
mod invariants;
mod job;
mod load;
mod look;
mod machine;
mod message;
#[cfg(test)]
mod model;
mod name;
mod pages;
mod phase;
#[expect(
    clippy::module_inception,
    reason = "one queue, among all that the actor keeps"
)]
mod queue;
mod ready;
mod refused;
mod reply;
mod results;
mod right;
mod roots;
mod rules;
mod said;
mod select;
#[cfg(test)]
mod selected;
mod state;
#[cfg(test)]
mod steps;
#[cfg(test)]
mod tests;
mod throttle;
mod turning;
mod turns;
mod uniques;
mod waiting;

pub use crate::bytes::Bytes as Body;
pub use job::Job;
pub use machine::QueueMachine;
pub use message::{AnyType, DedupKey, Message, NewJob, Outcome, Placed, Pop, Put, Root};
pub use name::QueueName;
pub use pages::Page;
pub use phase::{Counts, Phase};
pub use refused::Refused;
pub use reply::{
    Choice, Claim, JobSelection, JobView, Query, QueueSelection, QueueView, Reply, Totals, View,
    Watch,
};
pub use results::JobResult;
pub use right::{Claimant, Right, Worker};
pub use rules::{Across, Backoff, Class, Order, ResultRules, Rules, TenantRules, TypeRules};
pub use said::{ErrorText, JobEnd, KeepResult, OutputTail, Progress};
pub use uniques::KnownKey;
