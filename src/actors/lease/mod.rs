//! Leases: named rights to run one background pass, as Fossil's backoffice has them.
//!
//! A lease does three things at once. Never do two passes run at a time; never do two start less than one period apart; and
//! every request is followed by a whole pass, also when whatever runs is killed. What the text of Fossil leaves open is
//! settled in `docs/leases.md`.
//!
//! | file | holds |
//! |---|---|
//! | `message.rs` `outcome.rs` | what is asked and told, and what comes of it |
//! | `item.rs` | what is known of a lease, durable |
//! | `decide.rs` | the rules |
//! | `commit.rs` `state.rs` | making it so; all leases, and where they are found |
//! | `machine.rs` | what the host asks of the rules |
//! | `view.rs` `look.rs` `event.rs` | what is shown, and what subscribers are told |
//! | `fossil.rs` | the four numbers in which Fossil writes a lease |

mod commit;
mod decide;
mod event;
pub mod fossil;
mod item;
mod look;
mod machine;
mod message;
mod outcome;
mod state;
#[cfg(test)]
mod tests;
mod view;

pub use fossil::Four;
pub use item::{Command, Current, End, Holder, Lease, Place, Setting, Settings, Totals};
pub use machine::LeaseMachine;
pub use message::{
    Action, Claim, Imported, Message, Noted, Query, Reply, Requesting, Rules, Watch,
};
pub use outcome::{Outcome, Refused, Source, Step, Turn};
pub use view::{LeaseView, Listing};
