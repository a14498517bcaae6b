//! Dispatch: tasks that run in bursts on servers, as in Acquia's Wip, and recover by themselves.
//!
//! A ready task is given a free thread of a server, and its command is launched for one burst. However that ends, the task continues from
//! what it saved, or fails with a reason. Wip detects a broken burst by a signal that may be lost, or by a periodic sweep; here every end
//! is reported by the actor that observed it, and `resume` asks for whatever was not reported. What the text of Wip leaves open is settled
//! in `docs/tasks.md`.
//!
//! An attempt is a chain of steps, each of which is an entry and is stated again by `resume` until the next one follows: claimed (a thread
//! of a server is taken), locked (the execute lock is granted), launched, and ended, when nothing of its tree is alive. The thread is freed
//! by the entry that ends the task's processing, and by no other.
//!
//! | file | holds |
//! |---|---|
//! | `message.rs` `outcome.rs` | messages, queries and replies; the outcomes of messages |
//! | `task.rs` `server.rs` | durable state of tasks and attempts, of servers and groups |
//! | `decide.rs` `ending.rs` | the rules; among them, what happens when an attempt has ended |
//! | `remote.rs` | attempts that run on another machine |
//! | `launching.rs` | the processes launched for an attempt, and its names and messages |
//! | `commit.rs` `state.rs` | committing outcomes; all tasks, and their indexes |
//! | `ready.rs` | the choice of the next task, and of its server |
//! | `machine.rs` | the host's interface |
//! | `view.rs` `look.rs` `event.rs` | views; events for subscribers |
//! | `standing.rs` | everything that is under way, for an audit |

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
