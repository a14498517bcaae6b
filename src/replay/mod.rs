//! Replays a journal, or a log of JSON lines that was exported, shortened or written by hand.
//!
//! Recorded entries are committed with their recorded outcomes. Lines written by hand have no outcome: they are decided during the replay,
//! along with everything that becomes due in between. The same code serves `sexton replay` and the tests of programs that embed a node. A
//! replay only reads.
//!
//! | file | holds |
//! |---|---|
//! | `replayed.rs` | the JSON interface to a machine of any type |
//! | `masked.rs` | records and states without the secrets in commands |
//! | `history.rs` | what happened to one item |
//! | `run.rs` | records and lines, replayed in order; verification |
//! | `advance.rs` | records replayed without producing lines, for long journals |
//! | `timeline.rs` | the state after any entry of a journal, and what happened around it |
//! | `waypoint.rs` | intermediate states, from which a replay can begin |

mod advance;
mod history;
mod line;
mod masked;
mod replayed;
mod run;
mod timeline;
mod waypoint;

pub use history::{Before, FollowedItem, HistoryEvent};
pub use line::{HEADER, Kind, Line, LineError, header_after};
pub use masked::mask;
pub use replayed::{DecodedEntry, Replayed};
pub use run::{Differing, Mismatch, Replay, ReplayError};
pub use timeline::{
    AROUND, ActorAt, Bounds, History, SAMPLE, STORY_MAX, StateAt, Timeline, TimelineError, Watch,
};
