//! What the node remembers, and how: the journal and the snapshots. Knows bytes, sequence numbers and disks; never an actor.
//!
//! | file | holds |
//! |---|---|
//! | `format.rs` | the layout of segments and records, checksums, the batch that is being gathered |
//! | `mark.rs` | what the node notes about itself, and what that comes to |
//! | `disk.rs` | the `Disk` trait, and the one implementation that touches `std::fs` |
//! | `error.rs` | what can go wrong, with the place where it did |
//! | `journal/` | the writer with its group commit, the reader with its judgement of damage |
//! | `backup.rs` | a copy of a directory that a coordinator is writing to |
//! | `retention.rs` | which segments may go |
//! | `snapshots/` | two sealed slots of pages, written in turn |

pub mod backup;
pub mod disk;
pub mod error;
pub mod format;
pub mod journal;
pub mod mark;
pub mod retention;
pub mod snapshots;

pub use error::PersistError;
