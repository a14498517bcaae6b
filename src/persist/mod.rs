//! Persistence: the journal and the snapshots. Handles bytes, sequence numbers and disks, and does not depend on any actor.
//!
//! | file | holds |
//! |---|---|
//! | `format.rs` | the layout of segments and records, checksums, the batch of records for one write |
//! | `mark.rs` | marks, which are the node's records about itself, and the state that results from them |
//! | `disk.rs` | the `Disk` trait, and the only implementation that touches `std::fs` |
//! | `error.rs` | errors, with the file in which they occurred |
//! | `journal/` | the writer with its group commit, the reader with its judgement of damage |
//! | `backup.rs` | copying a directory that a coordinator may be writing to |
//! | `retention.rs` | removal of segments that are no longer needed |
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
