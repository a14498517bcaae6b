//! The `QueueActor`: owns all queues of the server, for all protocols.
//!
//! Jobs are modelled on MediaWiki's `JobQueue`, and the operations on them on beanstalkd's protocol. In addition, claims
//! are fenced by a token, and timeouts take effect exactly when they are due.
//!
//! | file | holds |
//! |---|---|
//! | `message.rs` `outcome.rs` `refused.rs` `right.rs` | messages that change queues, and their outcomes |
//! | `reply.rs` | queries, watches and replies |
//! | `rules.rs` | configuration: for all queues, and for each type of job |
//! | `job.rs` `job_digest.rs` `report.rs` `phase.rs` `queue.rs` | one job, and what its digest covers; what its worker reports about it; the phases of a job; one queue |
//! | `ready.rs` `claimed.rs` | the ready jobs of a queue, in order; its claimed jobs |
//! | `state.rs` `index.rs` `by_id.rs` | jobs and queues, and moving a job from phase to phase; the indexes over them |
//! | `bound.rs` | claims that are bound to processes |
//! | `roots.rs` | root jobs, and the jobs that they make obsolete |
//! | `turns.rs` `ready_queues.rs` | which tenant's turn it is, and which of its queues provides the job |
//! | `uniques.rs` | deduplication keys that are remembered for a given time |
//! | `results.rs` | results of finished jobs |
//! | `throttle.rs` `closing.rs` | queues that are temporarily closed after a claim, to limit their rate |
//! | `waiting.rs` | clients that wait for a job, and clients that use or watch a queue |
//! | `pages.rs` `load.rs` | durable state as pages; rebuilding the indexes from them |
//! | `machine.rs` | the interface to the host, and the order in which items are due |
//! | `canonical.rs` | a canonical form of bodies, for deduplication |
//! | `part.rs` `parts.rs` | requests about many jobs, which are carried out in parts |
//! | `decide.rs` `adding.rs` `commit.rs` | the rules: claiming jobs, and ending claims; adding jobs; applying an outcome |
//! | `look.rs` `select.rs` `busiest.rs` | queries; `select.rs` and `busiest.rs` have those that visit many items, in bounded steps |
//! | `event.rs` | the events that an outcome causes, for subscribers |
//! | `invariants.rs` `model/` `compared.rs` `selected.rs` `steps.rs` `tests.rs` `fair.rs` | invariant checks; tests against a model |

mod adding;
mod bound;
mod busiest;
mod by_id;
mod canonical;
mod claimed;
mod closing;
mod commit;
#[cfg(test)]
mod compared;
mod decide;
mod event;
#[cfg(test)]
mod fair;
mod index;
#[cfg(test)]
mod invariants;
mod job;
mod job_digest;
mod load;
mod look;
mod machine;
mod message;
#[cfg(test)]
mod model;
mod outcome;
mod pages;
mod part;
mod parts;
mod phase;
#[expect(
    clippy::module_inception,
    reason = "the file holds a single queue, and the folder the whole actor"
)]
mod queue;
mod ready;
mod ready_queues;
mod refused;
mod reply;
mod report;
mod results;
mod right;
mod roots;
mod rules;
mod select;
#[cfg(test)]
mod selected;
mod state;
#[cfg(test)]
mod steps;
#[cfg(test)]
mod tests;
mod throttle;
mod turns;
mod uniques;
mod waiting;

pub use crate::bytes::Bytes as Body;
pub use job::Job;
pub use machine::QueueMachine;
pub use message::{AnyType, DedupKey, Message, Pop, Put, Root};
pub use outcome::{ClaimEnd, NewJob, Outcome, Placed};
pub use pages::Page;
pub use part::{FlushMore, FlushPart, KickMore, KickPart};
pub use phase::Counts;
pub use refused::Refused;
pub use reply::{
    Choice, Claim, JobSelection, JobView, Query, QueueSelection, QueueView, Reply, Totals, View,
    Watch,
};
pub use report::{ErrorText, JobEnd, KeepResult, OutputTail, Progress};
pub use results::JobResult;
pub use right::{Claimant, Command, Right, Worker};
pub use rules::{Backoff, Class, Order, ResultRules, Rules, SharedRules, TenantRules, TypeRules};
pub use sexton_api::queue::{NoQueueName, Phase, QueueName};
pub use uniques::KnownKey;
