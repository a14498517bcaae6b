//! The `ProcessActor`: one record for every process, in one tree, from the command line down to the last binary.
//!
//! Follows `ArchiveBox`'s process hierarchy for what a record is; adds exits that are seen and not guessed, and identities
//! that no reused PID has. `docs/processes.md` says what a record is and what becomes of it.
//!
//! | file | holds |
//! |---|---|
//! | `identity.rs` | which process is meant, so that a reused PID is never taken for it |
//! | `spec.rs` `secret.rs` | what is to be run, and how; what looks like a secret |
//! | `message.rs` `outcome.rs` `insertion.rs` | what is asked, what the kernel tells, what is to be done; what can come of a message |
//! | `reply.rs` | what can be asked and waited for, and what is answered |
//! | `rules.rs` | configuration |
//! | `record.rs` `state.rs` `index.rs` | one record; all of them, and how they change; where they are found |
//! | `waiting.rs` | who waits for something of a record |
//! | `pages.rs` `profiles.rs` | durable state as pages; what several records have in common |
//! | `machine.rs` | what the host asks, and what is due when |
//! | `decide.rs` `adding.rs` `commit.rs` | the rules: what becomes of a process; what is added; and making it so |
//! | `hook.rs` | the same of what a hook says that it did |
//! | `behalf.rs` | the same of launches that other actors ask for |
//! | `look.rs` | answers to questions, in shares where they walk far |
//! | `event.rs` | what is told to subscribers |
//! | `service/` | what is to run as long as the configuration has it |
//! | `invariants.rs` `model/` `tests/` | the machine compared with a plain model, its state walked |

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
mod pages;
mod profiles;
mod record;
mod reply;
mod rules;
mod secret;
mod service;
mod spec;
mod state;
#[cfg(test)]
mod tests;
mod waiting;

pub use identity::Identity;
pub use insertion::Insertion;
pub use machine::ProcessMachine;
pub use message::{
    Action, Bound, Child, End, Failure, Found, Holder, LAUNCHES, LaunchAs, Launching, Leak, Lost,
    Message, Notice, Output, Reach, Registering, Remains, Step, Warning,
};
pub use outcome::{Outcome, Refused, Turn};
pub use pages::Page;
pub use record::{Announced, Cause, Phase, Profile, Record, Sending, Sent, Stop, Stuck};
pub use reply::{Query, RecordView, Reply, Selection, Totals, View, Watch};
pub use rules::Rules;
pub use secret::{MASK, has_secret, is_secret_name, masked};
pub use service::{
    Definition, Fault, Instance, InstanceView, Last, Message as ServiceMessage, Policy, Service,
    ServiceView, Status, Step as ServiceStep, Then, Verdict,
};
pub use spec::{Expectation, Flaw, Parentage, Ready, Spec, Tags, kind_of};

/// The actor around the records.
pub type ProcessActor = crate::spine::Host<ProcessMachine>;
