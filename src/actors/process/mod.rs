//! The `ProcessActor`: one record for every process, in one tree, from the command line down to the last binary.
//!
//! The contents of a record follow `ArchiveBox`'s process hierarchy. In addition, exits are observed rather than guessed, and identities
//! survive the reuse of PIDs. `docs/processes.md` describes records and their life cycle.
//!
//! | file | holds |
//! |---|---|
//! | `identity.rs` | identities of processes, which a reused PID does not share |
//! | `spec.rs` `secret.rs` | what to run, and how; recognition of secrets |
//! | `message.rs` `output.rs` `outcome.rs` `insertion.rs` | messages and actions; the outcomes of messages |
//! | `reply.rs` | queries, watches and replies |
//! | `rules.rs` | configuration |
//! | `record.rs` `stored.rs` | one record; its stored form |
//! | `state.rs` `index.rs` | all records, and how they change; their indexes |
//! | `waiting.rs` | clients waiting for a condition of a record |
//! | `pages.rs` `profiles.rs` | durable state as pages; sharing of equal profiles |
//! | `machine.rs` | the host's interface, and deadlines |
//! | `decide.rs` `adding.rs` `commit.rs` | the rules for changes and for new records; committing them |
//! | `hook.rs` | the same for reports of hooks |
//! | `behalf.rs` | the same for launches requested by other actors |
//! | `look.rs` | answers to queries, in parts if they visit many records |
//! | `event.rs` | events for subscribers |
//! | `service/` | processes that run as long as the configuration contains them |
//! | `invariants.rs` `model/` `tests/` | invariants, and comparison of the machine with a simple model |

mod adding;
mod behalf;
mod commit;
mod decide;
mod event;
mod hook;
mod identity;
mod index;
mod insertion;
#[cfg(test)]
mod invariants;
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

pub use identity::Identity;
pub use insertion::Insertion;
pub use machine::ProcessMachine;
pub use message::{
    Action, Bound, Child, End, Failure, Holder, HookOutput, LAUNCHES, LaunchAs, Launching, Leak,
    Lost, Message, Notice, Reach, Registering, Remains, Step, Warning,
};
pub use outcome::{Outcome, Refused, Turn};
pub use output::Output;
pub use pages::Page;
pub use record::{
    Announced, Cause, Phase, Profile, Rare, RareFields, Record, Sending, Sent, Stop, Stuck,
};
pub use reply::{Query, RecordView, Reply, Selection, Totals, View, Watch};
pub use rules::Rules;
pub use secret::{MASK, has_secret, is_secret_name, masked};
pub use service::{
    Consequence, Definition, Fault, Instance, InstanceView, Last, Message as ServiceMessage,
    Policy, Service, ServiceView, Status, Step as ServiceStep, Verdict,
};
pub use spec::{Expectation, Flaw, Parentage, Ready, Spec, Tags, kind_of};

/// The actor: a host around the machine.
pub type ProcessActor = crate::spine::Host<ProcessMachine>;
