//! Replays the past: a journal, or a log of JSON lines that was exported, cut down or written by hand.
//!
//! A recorded log is committed as it was decided. The lines of a hand-written one, which have no outcome, are decided
//! during the replay, along with everything that falls due in between. The same code serves `sexton replay` and the tests
//! of programs that embed a node. It only reads.
//!
//! | file | holds |
//! |---|---|
//! | `replayed.rs` | a machine behind JSON, whatever its types |
//! | `replayed.rs` | a machine whatever its types |
//! | `story.rs` | what happened to one item |
//! | `run.rs` | records and lines in order; verifying |
//! | `advance.rs` | records without lines, for long journals |
//! | `timeline.rs` | the state after any entry of a journal, and what happened around it |
//! | `waypoint.rs` | states on the way, from which a replay can begin |

mod advance;
mod line;
mod replayed;
mod run;
mod story;
mod timeline;
mod waypoint;

pub use line::{HEADER, Kind, Line, LineError, header_after};
pub use replayed::{DecodedEntry, Replayed};
pub use run::{Differing, Mismatch, Replay, ReplayError};
pub use story::{Before, Followed, StoryEvent};
pub use timeline::{
    AROUND, ActorAt, Bounds, SAMPLE, STORY_MAX, StateAt, Story, Timeline, TimelineError, Watch,
};
