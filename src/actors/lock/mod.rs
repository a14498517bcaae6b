//! The LockActor: owns every lock of the server, whichever protocol is used to request it.
//!
//! Follows LockServer 0.9b (2000) as interpreted in `docs/protocols/lockserver.md`, and adds fencing tokens.
//!
//! | file | holds |
//! |---|---|
//! | `message.rs` | messages, outcomes, queries and replies |
//! | `entry.rs` | an entry: one owner of a lock or one contender for it |
//! | `state.rs` | entries and their indexes; adding, removing and promoting an entry |
//! | `event.rs` | the events that an outcome causes, for subscribers |
//! | `waiting.rs` `waking.rs` | requests that wait for a lock to change state; answering them |
//! | `pages.rs` `load.rs` | pages of durable state; rebuilding the indexes from them |
//! | `machine.rs` | the rules: which client gets a lock, when, and for how long |
//! | `limited.rs` | what a client that may neither start nor end processes may not do |
//! | `line.rs` `rank.rs` | the contenders for one lock, in order, and which of them are away; those of one priority |
//! | `part.rs` `parts.rs` | requests that end all entries of an owner, in parts |
//! | `bound.rs` | entries that end with a process |
//! | `hold.rs` | locks that other actors hold for their own use |
//! | `look.rs` `observable.rs` `contended.rs` | listings; the view, gauges and events; the most contended locks |
//! | `invariants.rs` `model.rs` `steps.rs` `tests.rs` | invariant checks; tests that compare the machine with a simple model |

mod bound;
mod contended;
mod entry;
mod event;
mod hold;
#[cfg(test)]
mod invariants;
mod limited;
mod line;
mod load;
mod look;
mod machine;
mod message;
mod observable;
mod of_process;
mod pages;
mod part;
mod parts;
mod rank;
mod state;
mod waiting;
mod waking;

pub use entry::Entry;
pub use machine::LockMachine;
pub use message::{
    Contended, EntryView, Hold, LOCKS, LinePosition, LockState, Message, Name, NameTooLong,
    Outcome, Query, Ranking, Refused, Removal, Reply, Rules, Selection, Tie, ToHolder, View, Watch,
};
pub use pages::Page;
pub use part::{EndMore, Part};

/// The actor that owns every lock.
///
/// A lock is a `(key, index)` with one owner and a line of contenders, ordered by priority and then by the order of
/// their requests. Ownership ends when the lock is released or taken away by force, when the TTL expires without a
/// renewal, when the process to which the owner is tied ends, or when the actor to which it is tied yields the lock. The
/// lock then passes to the first contender. An owner whose TTL expires can instead be fenced: its process tree is killed
/// first, and the lock passes on once the whole tree has ended. Each grant carries a [`crate::ids::Token`] that is larger
/// than that of any earlier grant.
pub type LockActor = crate::spine::Host<LockMachine>;

#[cfg(test)]
mod model;
#[cfg(test)]
mod steps;
#[cfg(test)]
mod tests;
