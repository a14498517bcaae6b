//! The `ProcessActor`: keeps a record of every process that was launched or registered, or that a hook reported. Each record refers to its
//! parent, so the records form trees.
//!
//! The fields of a record are modelled on `ArchiveBox`'s process hierarchy. Exits are observed rather than guessed, and a process is never
//! confused with a later one that has the same PID. `docs/processes.md` describes records and their life cycle.
//!
//! | file | holds |
//! |---|---|
//! | `identity.rs` | identities of processes, which stay unique when a PID is reused |
//! | `spec.rs` `secret/` | what to run, and how; recognition of secrets |
//! | `message.rs` `output.rs` `failure.rs` | messages and actions; the output of a process; why it could not be started |
//! | `outcome.rs` `insertion.rs` | the outcomes of messages; the fields of a new record |
//! | `reply.rs` | queries, watches and replies |
//! | `rules.rs` | configuration |
//! | `record.rs` `stored.rs` | one record; its stored form |
//! | `state.rs` `index.rs` | all records, and how they change; their indexes |
//! | `waiting.rs` | clients waiting for a condition of a record |
//! | `pages.rs` `profiles.rs` | durable state as pages; sharing of equal profiles, the immutable parts of records |
//! | `machine.rs` | the interface to the host, and deadlines |
//! | `decide.rs` `adding.rs` `commit.rs` | the rules for changes and for new records; committing them |
//! | `deferred.rs` | launches that clients defer |
//! | `hook.rs` | deciding and committing what hooks report |
//! | `launch_as.rs` | deciding and committing launches requested by other actors |
//! | `look.rs` | answers to queries, in pages if many records are visited |
//! | `event.rs` | events for subscribers |
//! | `service/` | services: processes that run as long as the configuration contains them |
//! | `invariants.rs` `model/` `tests/` | invariants, and comparison of the machine with a simple model |

mod adding;
mod commit;
mod decide;
mod deferred;
mod event;
mod failure;
mod hook;
mod identity;
mod index;
mod insertion;
#[cfg(test)]
mod invariants;
mod launch_as;
mod look;
mod machine;
mod message;
#[cfg(test)]
mod model;
mod outcome;
mod output;
mod pages;
mod profiles;
mod record;
mod reply;
mod rules;
mod secret;
mod service;
mod spec;
mod state;
mod stored;
#[cfg(test)]
mod tests;
mod waiting;

pub use failure::{Failure, Step};
pub use identity::Identity;
pub use insertion::Insertion;
pub use machine::ProcessMachine;
pub use message::{
    Action, Bound, Child, End, Holder, HookOutput, LAUNCHES, LaunchAs, Launching, Leak, Lost,
    Message, Notice, Reach, Registering, Remains, Warning,
};
pub use outcome::{Outcome, Refused, Turn};
pub use output::Output;
pub use pages::Page;
pub use record::{
    Announced, Cause, Deferral, Phase, Profile, Rare, RareFields, Record, Sending, Sent, Stop,
    Stuck,
};
pub use reply::{Query, RecordView, Reply, Selection, Totals, View, Watch};
pub use rules::Rules;
pub use secret::{MASK, has_secret, is_secret_name, masked, masked_url};
pub use service::{
    Consequence, Definition, Fault, Instance, InstanceView, Last, Message as ServiceMessage,
    Policy, Service, ServiceView, Status, Step as ServiceStep, Verdict,
};
pub use spec::{Expectation, Flaw, Parentage, Ready, Spec, Tags, kind_of};

/// The process actor: the host around the process machine.
pub type ProcessActor = crate::spine::Host<ProcessMachine>;
