//! The journal: every message that changed something, with what was decided about it, in one order.
//!
//! | file | holds |
//! |---|---|
//! | `segment.rs` | names, sizes and preparation of the zero-filled files that make up the log |
//! | `writer.rs` | the one writer: where the next byte goes, sealing, rolling, room left |
//! | `filler.rs` | who prepares the next segment: a thread of its own, or the caller |
//! | `extent.rs` | how far the log was synced, beside it |
//! | `reader.rs` | from bytes back to records; tells a torn tail from damage |
//! | `judgement.rs` | what is made of bytes that do not read |
//! | `window.rs` | a file of which a piece at a time is in memory |
//! | `salvage.rs` | all that reads of a damaged log |
//! | `survey.rs` | segment by segment, for people |
//! | `thread.rs` | group commit: one write and one sync for every command that waits |

pub mod extent;
pub mod filler;
mod judgement;
pub mod reader;
pub mod salvage;
pub mod segment;
pub mod survey;
pub mod thread;
pub mod window;
pub mod writer;

pub use filler::{Filler, InlineFiller, ThreadFiller};
pub use reader::{Begin, Cut, Passed, Reader, Record, Tail};
pub use segment::Sizes;
pub use survey::{Survey, Surveyed, survey};
pub use thread::{Fsync, Journal, JournalCounts, JournalThread};
pub use writer::{Room, Writer};
