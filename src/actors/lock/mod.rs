//! The LockActor: every lock of the coordinator, whichever door asks.
//!
//! Follows LockServer 0.9b (2000) as `docs/protocols/lockserver.md` reads it, and adds fencing tokens.
//!
//! | file | holds |
//! |---|---|
//! | `message.rs` | what can be asked, what can come of it, what is answered |
//! | `entry.rs` | one owner or contender |
//! | `state.rs` | entries and their indexes; moving an entry in, out and up |
//! | `event.rs` | what an entry of the journal came to, for whoever listens |
//! | `waiting.rs` `waking.rs` | who waits for something about locks, and is told |
//! | `pages.rs` `load.rs` | durable state as pages; indexes built again from them |
//! | `machine.rs` | the rules: who gets a lock, when, and for how long |
//! | `hold.rs` | locks that another actor has for itself |
//! | `look.rs` `shown.rs` `contended.rs` | answers to questions; what people and programs are shown; which locks are waited for most |
//! | `invariants.rs` `model.rs` `tests.rs` | the machine compared with a plain model, its state walked |

mod contended;
mod entry;
mod event;
mod hold;
#[cfg(test)]
mod invariants;
mod load;
mod look;
mod machine;
mod message;
mod pages;
mod shown;
mod state;
mod waiting;
mod waking;

pub use entry::Entry;
pub use machine::LockMachine;
pub use message::{
    Contended, Gone, Held, Hold, LOCKS, Listed, Message, Name, Outcome, Query, Ranking, Refused,
    Reply, Rules, Selection, Standing, Tie, ToHolder, View, Watch,
};
pub use pages::Page;

/// The actor that owns every lock.
///
/// A lock is a `(key, index)` with one owner and contenders behind it, who stand by priority and then by the order
/// in which they came. Ownership ends by release or when its time to live runs out without a renewal, and passes to
/// the first contender in the same instant. Each grant carries a [`crate::ids::Token`] that only grows.
pub type LockActor = crate::spine::Host<LockMachine>;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
