//! Dispatch: tasks that run in bursts (one run of the task's command each) on servers, and recover automatically. The design follows Wip,
//! Acquia's task system; `docs/tasks.md` describes it and settles what Wip's documentation leaves open.
//!
//! A ready task is given a free thread of a server (a server runs one attempt per thread at a time), and its command is launched for one
//! burst. When the burst has ended, in whatever way, the task is over, waits for its next burst, or continues from its saved state. Wip
//! learns of a broken burst from a signal, which may be lost, or from a periodic sweep. Here, the `ProcessActor` reports the end of every
//! process, and `Machine::resume`, which runs after every startup, requests the reports that are missing.
//!
//! An attempt at a burst has four steps: claimed (a thread of a server is taken), locked (the execute lock is granted, which only one
//! attempt of a task can hold), launched, and ended (no process of its tree is alive). Each step is a journal entry, and until the next
//! step follows, `resume` repeats the requests of the last step. The thread is freed only by the entry that ends the attempt.
//!
//! | file | holds |
//! |---|---|
//! | `message.rs` `outcome.rs` | messages, queries and replies; the outcomes of messages |
//! | `task.rs` `server.rs` | durable state of tasks and attempts, of servers and groups |
//! | `decide.rs` `ending.rs` | the rules, including what happens when an attempt has ended |
//! | `remote.rs` | attempts that run on another machine |
//! | `launching.rs` | the processes launched for an attempt, the names of its locks, and the message about its result |
//! | `commit.rs` `state.rs` | committing outcomes; all tasks, servers and groups, and their indexes |
//! | `ready.rs` | the choice of the next task, and of its server |
//! | `machine.rs` | the interface to the host, which runs the machine |
//! | `view.rs` `look.rs` `event.rs` | views of tasks, servers and groups; events for subscribers |
//! | `work_in_progress.rs` | all work in progress, for an audit |

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
mod state;
mod task;
mod view;
mod work_in_progress;

pub use decide::{EXECUTE, UPDATE};
pub use machine::DispatchMachine;
pub use message::{
    Act, Host, Message, NewTask, Query, Reply, Report, Rules, ServerChange, TaskFilter, Watch,
};
pub use outcome::{Outcome, Refused, Step, TaskStep};
pub use remote::{Remote, RemoteAttempt, RemoteEnd};
pub use server::{Group, Outage, Pause, Server};
pub use task::{
    Attempt, BurstReport, Cause, Cleaning, ExitStatus, Past, Priority, RunStatus, Saved, Stage,
    Task, Terms, Trace, Verdict,
};
pub use view::{
    GroupView, Obstacle, ServerView, TaskView, Tasks, Totals, UnderWay, WorkInProgress,
};

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
