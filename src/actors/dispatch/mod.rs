//! Dispatch: tasks that run in bursts on servers, as Acquia's Wip has them, and recover by themselves.
//!
//! A task that is ready is given a free thread of a server, and its command is launched for one burst. However that ends, the
//! task goes on from what it saved, or is failed with a reason. Wip finds a broken burst by a signal that may be lost, or by a
//! sweep; here every end is told by the actor that saw it, and `resume` asks for what was not told. What the text of Wip leaves
//! open is settled in `docs/tasks.md`.
//!
//! An attempt is a chain of steps, each of which is an entry and is stated again by `resume` until the next has come: claimed
//! (a thread of a server is taken), locked (the execute lock is granted), launched, and ended, when nothing of its tree lives.
//! The thread is given back by the entry that takes the task out of processing, and by no other.
//!
//! | file | holds |
//! |---|---|
//! | `message.rs` `outcome.rs` | what is asked and told, and what comes of it |
//! | `task.rs` `server.rs` | what is known of a task and its attempts; of servers and groups. Durable |
//! | `decide.rs` `ending.rs` | the rules; of them, what becomes of a task whose attempt has ended |
//! | `remote.rs` | attempts that run on another machine |
//! | `launching.rs` | what is launched for an attempt, and other names and words of it |
//! | `commit.rs` `state.rs` | making it so; all tasks, and where they are found |
//! | `ready.rs` | which task is next, and where it runs |
//! | `machine.rs` | what the host asks of the rules |
//! | `view.rs` `look.rs` `event.rs` | what is shown, and what subscribers are told |
//! | `standing.rs` | all that is under way, for an audit |

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
    Attempt, Cause, Cleaning, ExitStatus, Past, Priority, RunStatus, Said, Saved, Stage, Task,
    Terms, Trace, Verdict,
};
pub use view::{GroupView, Obstacle, ServerView, Standing, TaskView, Tasks, Totals, UnderWay};

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
