//! Leases: named rights to run one background pass (one run of a command) at a time, modelled on Fossil's backoffice.
//!
//! A lease guarantees three things: two of its passes never run at the same time; two of its passes never start less than one period apart;
//! and every request that may wait is followed by a whole pass (one that is not killed before its end), even if a process that runs a pass
//! is killed.
//! `docs/leases.md` settles what Fossil's documentation leaves open.
//!
//! | file | holds |
//! |---|---|
//! | `message.rs` `outcome.rs` | messages, queries, replies and actions; outcomes |
//! | `item.rs` | the durable state of a lease |
//! | `decide.rs` | the rules |
//! | `limited.rs` | what a client that may neither start nor end processes may not do |
//! | `commit.rs` `state.rs` | applying an outcome; all leases and their indexes |
//! | `machine.rs` | the interface to the host |
//! | `view.rs` `look.rs` `event.rs` | views and queries; the events that an outcome causes |
//! | `fossil.rs` | the four numbers in which Fossil stores a lease |

mod commit;
mod decide;
mod event;
pub mod fossil;
mod item;
mod limited;
mod look;
mod machine;
mod message;
mod outcome;
mod state;
#[cfg(test)]
mod tests;
mod view;

pub use fossil::FossilLease;
pub use item::{
    ClockReading, Command, Current, End, Extra, Holder, Lease, Missed, NextRequest, Progress,
    Setting, Settings, Totals,
};
pub use machine::LeaseMachine;
pub use message::{
    Action, Claim, Imported, LogEvent, Message, PassRequest, Query, Reply, Rules, Watch,
};
pub use outcome::{Outcome, Refused, Source, Step, Turn};
pub use view::{LeaseView, Listing};
