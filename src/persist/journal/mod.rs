//! The journal: every message that changed something, with its outcome, in a single order.
//!
//! | file | holds |
//! |---|---|
//! | `segment.rs` | names, sizes and preparation of the zero-filled files that make up the log |
//! | `writer.rs` | the only writer, which appends records, moves on to the next segment when one is full, and tracks the space left |
//! | `filler.rs` | preparation of the next segment, on a separate thread or the caller's |
//! | `extent.rs` | the file next to the log that shows how far the log was synced |
//! | `reader.rs` | the reader, which turns bytes back into records and distinguishes a torn tail from damage |
//! | `judgement.rs` | the decision whether unreadable bytes are the end of the log or damage |
//! | `window.rs` | a view of a file that keeps one piece at a time in memory |
//! | `salvage.rs` | extraction of everything readable from a damaged log |
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
pub use reader::{Begin, Cut, Reader, Record, SkippedBytes, Tail};
pub use segment::Sizes;
pub use survey::{Survey, Surveyed, survey};
pub use thread::{Fsync, Journal, JournalCounts, JournalThread};
pub use writer::{Room, Shortage, Writer};
