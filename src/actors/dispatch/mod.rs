//! Dispatch: tasks that run in bursts on servers, as in Acquia's Wip, and recover automatically.
//!
//! A ready task is given a free thread of a server, and its command is launched for one burst. However the burst ends, the task continues
//! from its saved state or fails with a reason. Wip detects a broken burst by a signal that may be lost, or by a periodic sweep. Here the
//! actor that observes an end reports it, and `resume` requests any reports that are missing. `docs/tasks.md` settles what Wip's
//! documentation leaves open.
//!
//! An attempt is a chain of steps: claimed (a thread of a server is taken), locked (the execute lock is granted), launched, and ended (no
//! process of its tree is alive). Each step is a journal entry, and `resume` repeats its requests until the next step follows. Only the
//! entry that ends the task's processing frees the thread.
//!
//! | file | holds |
//! |---|---|
//! | `message.rs` `outcome.rs` | messages, queries and replies; the outcomes of messages |
//! | `task.rs` `server.rs` | durable state of tasks and attempts, of servers and groups |
//! | `decide.rs` `ending.rs` | the rules, including what happens when an attempt has ended |
//! | `remote.rs` | attempts that run on another machine |
//! | `launching.rs` | the processes launched for an attempt, the names of its locks, and its messages |
//! | `commit.rs` `state.rs` | committing outcomes; all tasks, and their indexes |
//! | `ready.rs` | the choice of the next task, and of its server |
//! | `machine.rs` | the host's interface |
//! | `view.rs` `look.rs` `event.rs` | views; events for subscribers |
//! | `standing.rs` | all work in progress, for an audit |

mod commit;
mod decide;
mod ending;
mod event;
mod launching;
mod look;
mod machine;
mod message;
mod outcome;
mod ready;
mod remote;
mod server;
mod standing;
mod state;
mod task;
mod view;

pub use decide::{EXECUTE, UPDATE};
pub use machine::DispatchMachine;
pub use message::{
    Act, Adding, Host, Message, Query, Reply, Report, Rules, ServerChange, TaskFilter, Watch,
};
pub use outcome::{Outcome, Refused, Step, TaskStep};
pub use remote::{FarEnd, Reach, Remote};
pub use server::{Group, Pause, Server};
pub use task::{
    Attempt, BurstReport, Cause, Cleaning, ExitStatus, Past, Priority, RunStatus, Saved, Stage,
    Task, Terms, Trace, Verdict,
};
pub use view::{GroupView, Obstacle, ServerView, Standing, TaskView, Tasks, Totals, UnderWay};

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
