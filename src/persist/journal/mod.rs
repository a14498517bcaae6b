//! The journal: every message that changed something, with its outcome, in a single order.
//!
//! | file | holds |
//! |---|---|
//! | `segment.rs` | names, sizes and preparation of the zero-filled files that make up the log |
//! | `writer.rs` | the only writer: appends records, moves on to the next segment when one is full, tracks the space left |
//! | `filler.rs` | preparation of the next segment, on its own thread or the caller's |
//! | `extent.rs` | how far the log was synced, in a file next to it |
//! | `reader.rs` | from bytes back to records; distinguishes a torn tail from damage |
//! | `judgement.rs` | decides whether unreadable bytes are the end of the log or damage |
//! | `window.rs` | a view of a file that keeps one piece at a time in memory |
//! | `salvage.rs` | everything readable in a damaged log |
//! | `survey.rs` | a report on each segment |
//! | `thread.rs` | group commit: one write and one sync for all waiting commands |

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
pub use writer::{Room, Shortage, Writer};
