//! Tasks over HTTP: converts requests into calls to [`Tasks`](sexton::handle::Tasks), and results into answers. The JSON fields are
//! documented in `docs/protocols/http.md`, "Tasks".
//!
//! A burst is one run of a task's command, and an attempt is one try at a burst. The machine decides which task is next. Commands
//! report on their own bursts over another socket, see `report.rs`.

use crate::call::Call;
use crate::problem::Problem;
use crate::process::launching;
use crate::route::{Body, Docs, Json, Route};
use crate::scope::Scope;
use crate::task_look::Task;
use crate::task_server::{Confirmation, TaskPause};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::actors::dispatch::{Act, NewTask, Pause, Priority, Terms as Kept};
use sexton::actors::lock::Name;
use sexton::clock::Date;
use sexton::handle::Fault;
use sexton::refusal::Reason;
use sexton_api::process::Launch;
use sexton_api::value::Number;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The path for adding tasks. Its requests may be longer than those to most paths, since they contain the arguments of commands.
pub(crate) const ADD: &str = "/v1/tasks/add";

pub(crate) fn routes() -> Vec<Route> {
    use Reason::{Absent, DiskFull, Draining, Ended, Failed, Full, NoFaults, Running, Waits};
    vec![
        Route::post_once(
            ADD,
            Scope::Run,
            add,
            Docs {
                id: "add_task",
                summary: "Add a task",
                more: "The task's command is launched for each burst, as soon as it is the task's turn and a thread of a server is free. If there has never been a server, adding the first task creates the server `local`.",
                answer: "The task.",
            },
            &[Draining, Full, DiskFull, NoFaults, Failed],
        ),
        Route::post_once(
            "/v1/tasks/act",
            Scope::Run,
            act,
            Docs {
                id: "act_on_task",
                summary: "Mark a task as ready, or pause, resume, wake, terminate or restart it",
                more: "Terminating a task with `now` stops the processes of its running attempt.",
                answer: "The task.",
            },
            &[Absent, Ended, Running, Failed],
        ),
        Route::post(
            "/v1/tasks/wait",
            Scope::Read,
            wait,
            Docs {
                id: "wait_for_task",
                summary: "Wait until a task is over",
                more: "The answer is sent when the task is over, immediately if it already is, or when the wait times out: `status` shows whether the task is over.",
                answer: "The task.",
            },
            &[Absent, Waits, Failed],
        ),
        Route::post(
            "/v1/tasks/pause",
            Scope::Run,
            pause,
            Docs {
                id: "pause_tasks",
                summary: "Pause the tasks of a group, or all tasks",
                more: "With `soft`, no task is started, but tasks under way continue. With `hard`, no burst is started. `off` ends either pause. A burst that has begun is not interrupted.",
                answer: "The pause has been set or ended.",
            },
            &[Full, DiskFull, Failed],
        ),
        Route::post(
            "/v1/tasks/prune",
            Scope::Run,
            prune,
            Docs {
                id: "prune_tasks",
                summary: "Remove tasks that are over",
                more: "",
                answer: "The number of tasks removed.",
            },
            &[Failed],
        ),
    ]
}

/// The priority of a task.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "TaskPriority")]
pub(crate) enum Urgency {
    /// The highest priority.
    Critical,
    /// Above the default.
    High,
    /// The default.
    #[default]
    Medium,
    /// The lowest priority.
    Low,
}

impl From<Urgency> for Priority {
    fn from(urgency: Urgency) -> Self {
        match urgency {
            Urgency::Critical => Self::Critical,
            Urgency::High => Self::High,
            Urgency::Medium => Self::Medium,
            Urgency::Low => Self::Low,
        }
    }
}

/// The length of a burst or a time limit of a task, in milliseconds.
type Span = Number<u64, 1, { Kept::SPAN_MS_MAX }>;

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "AddTask")]
pub(crate) struct Add {
    /// The command launched for each burst. Its process has a parent only if `parent` in it names one.
    launch: Launch,
    /// The cleanup command, launched after each attempt. It occupies no thread, and nothing waits for it.
    cleanup: Option<Launch>,
    /// The task's display name.
    #[serde(default)]
    name: Name,
    /// The task's group; `default` if left out.
    #[serde(default)]
    group: Name,
    /// The work id: no two tasks with the same work id are under way at the same time. If it is left out, the task has none.
    #[serde(default)]
    work: Name,
    /// The priority.
    #[serde(default)]
    priority: Urgency,
    /// The intended length of a burst in milliseconds, passed to the command but not enforced. The defaults for `burst_ms`,
    /// `fail_after_ms`, `progress_ms`, `abort_on_failure` and `report_required` are those in the configuration.
    burst_ms: Option<Span>,
    /// The maximum duration of an attempt, in milliseconds. An attempt that exceeds it is stopped, and the task fails.
    fail_after_ms: Option<Span>,
    /// The maximum time between two heartbeats, in milliseconds. It applies once the attempt has sent a heartbeat. An attempt that
    /// exceeds it is stopped, and the task fails.
    progress_ms: Option<Span>,
    /// Whether the task fails if its command dies before it has saved anything. If false, the command is run again.
    abort_on_failure: Option<bool>,
    /// Whether the command must report how its burst ended. If true, its exit status does not count as the result of the burst.
    report_required: Option<bool>,
    /// Whether the task waits for the action `ready` before it starts.
    #[serde(default)]
    not_ready: bool,
    /// Whether the task is initially paused.
    #[serde(default)]
    paused: bool,
    /// A fault that the coordinator injects into the first attempt, to test how the task recovers. Refused unless the
    /// configuration has `[tasks] allow_fault_injection = true`.
    inject: Option<Inject>,
}

/// A fault that the coordinator injects.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "TaskFault")]
enum Inject {
    /// The process cannot be created.
    BeforeParent,
    /// The keeper is killed when it is about to launch the process.
    #[serde(rename = "before-parent:kill")]
    KeeperKilled,
    /// The process is created, but cannot execute the program.
    WithinParent,
    /// The program does not exist.
    BeforeChild,
    /// The program of the cleanup command does not exist.
    BeforeCleanup,
    /// The dispatch actor panics while it decides how the task continues after the attempt.
    BeforeThreadCleanup,
    /// The dispatch actor panics while it commits the end of the attempt.
    WithinThreadCleanup,
    /// The lock actor panics while the lock `wip-pool-lock-execute` of the attempt is released.
    AfterThreadCleanup,
    /// The keeper is killed after it has reported the exit.
    AfterParent,
    /// The report of the exit is dropped.
    DropSignal,
}

impl From<Inject> for Fault {
    fn from(inject: Inject) -> Self {
        match inject {
            Inject::BeforeParent => Self::BeforeParent,
            Inject::KeeperKilled => Self::KeeperKilled,
            Inject::WithinParent => Self::WithinParent,
            Inject::BeforeChild => Self::BeforeChild,
            Inject::BeforeCleanup => Self::BeforeCleanup,
            Inject::BeforeThreadCleanup => Self::BeforeThreadCleanup,
            Inject::WithinThreadCleanup => Self::WithinThreadCleanup,
            Inject::AfterThreadCleanup => Self::AfterThreadCleanup,
            Inject::AfterParent => Self::AfterParent,
            Inject::DropSignal => Self::DropSignal,
        }
    }
}

impl Add {
    /// Returns the terms of the task, with those left out taken from the configuration, or `None` if all are left out.
    async fn terms(&self, call: &Call) -> Result<Option<Kept>, Problem> {
        let says_something = self.burst_ms.is_some()
            || self.fail_after_ms.is_some()
            || self.progress_ms.is_some()
            || self.abort_on_failure.is_some()
            || self.report_required.is_some();
        if !says_something {
            return Ok(None);
        }
        let usual = call.node.tasks().terms().await?;
        let ms = |span: &Option<Span>, usual| span.as_ref().map_or(usual, |it| it.0);
        Ok(Some(Kept {
            burst_ms: ms(&self.burst_ms, usual.burst_ms),
            fail_after_ms: ms(&self.fail_after_ms, usual.fail_after_ms),
            progress_ms: ms(&self.progress_ms, usual.progress_ms),
            abort_on_failure: self.abort_on_failure.unwrap_or(usual.abort_on_failure),
            report_required: self.report_required.unwrap_or(usual.report_required),
        }))
    }
}

async fn add(call: &Call, Body(asked): Body<Add>) -> Result<Json<Task>, Problem> {
    let terms = asked.terms(call).await?;
    let cleanup = asked.cleanup.map(launching).transpose()?;
    let adding = NewTask {
        work: asked.work,
        group: asked.group,
        name: asked.name,
        priority: asked.priority.into(),
        command: Arc::new(launching(asked.launch)?),
        cleanup: cleanup.map(Arc::new),
        terms,
        not_ready: asked.not_ready,
        paused: asked.paused,
    };
    let added = match asked.inject {
        Some(fault) => call.tasks().add_with_fault(adding, fault.into()).await?,
        None => call.tasks().add(adding).await?,
    };
    Ok(Json(Task::of(call, &added)))
}

/// An action on a task.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "TaskAct")]
enum TaskAct {
    /// A task that was added with `not_ready` may start.
    Ready,
    /// No further burst begins.
    Pause,
    /// Bursts may begin again.
    Resume,
    /// The task's wait ends: its next burst begins as soon as possible.
    Wake,
    /// The task ends after one more burst, or immediately if it has not started.
    Terminate,
    /// The task, which must be over, runs again from its saved state.
    Restart,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ActOnTask")]
pub(crate) struct Acting {
    /// The task's id.
    id: u64,
    /// The action.
    act: TaskAct,
    /// With `terminate`: whether to skip the last burst and stop a running attempt.
    #[serde(default)]
    now: bool,
}

async fn act(call: &Call, Body(asked): Body<Acting>) -> Result<Json<Task>, Problem> {
    let act = match asked.act {
        TaskAct::Ready => Act::Ready,
        TaskAct::Pause => Act::Pause,
        TaskAct::Resume => Act::Resume,
        TaskAct::Wake => Act::Wake,
        TaskAct::Terminate => Act::Terminate { now: asked.now },
        TaskAct::Restart => Act::Restart,
    };
    let task = call.tasks().act(asked.id, act).await?;
    Ok(Json(Task::of(call, &task)))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "WaitForTask")]
pub(crate) struct Awaited {
    /// The task's id.
    id: u64,
    /// The maximum time to wait, in seconds.
    #[serde(default)]
    wait: Number<u64, 0, 3600, 60>,
}

async fn wait(call: &Call, Body(asked): Body<Awaited>) -> Result<Json<Task>, Problem> {
    let tasks = call.node.tasks();
    let place = call.place_for(asked.wait.0)?;
    let over = timeout(Duration::from_secs(asked.wait.0), tasks.over(asked.id));
    let task = match call.wait_in(place, over).await? {
        Ok(over) => over?,
        Err(_) => tasks.get(asked.id).await?,
    };
    Ok(Json(Task::of(call, &task)))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "PauseTasks")]
pub(crate) struct Pausing {
    /// The group whose tasks are paused; all tasks if left out.
    group: Option<Name>,
    /// What to hold back: nothing, tasks that have not started, or every burst.
    pause: TaskPause,
}

async fn pause(call: &Call, Body(asked): Body<Pausing>) -> Result<Json<Confirmation>, Problem> {
    let pause = match asked.pause {
        TaskPause::Off => Pause::Off,
        TaskPause::Soft => Pause::Soft,
        TaskPause::Hard => Pause::Hard,
    };
    call.tasks().pause(asked.group, pause).await?;
    Ok(Confirmation::done())
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "PruneTasks")]
pub(crate) struct Pruning {
    /// Only tasks that ended before this time, in milliseconds since 1970. Without `before` and `older_than_ms`, all tasks that
    /// are over are removed.
    before: Option<u64>,
    /// Only tasks that have been over for more than this many milliseconds; an alternative to `before`.
    older_than_ms: Option<u64>,
    /// How many of the tasks that ended last are kept, however long ago they ended.
    #[serde(default)]
    keep: Number<u32, 0, { u32::MAX as u64 }>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PrunedTasks")]
pub(crate) struct Pruned {
    /// The number of tasks removed.
    pruned: u64,
}

async fn prune(call: &Call, Body(asked): Body<Pruning>) -> Result<Json<Pruned>, Problem> {
    let tasks = call.node.tasks();
    if asked.before.is_some() && asked.older_than_ms.is_some() {
        return Err(Problem::field("older_than_ms", "cannot be combined with `before`"));
    }
    let ago = |ms| Date(call.node.date().0.saturating_sub(ms));
    let before = asked.before.map(Date).or(asked.older_than_ms.map(ago));
    let pruned = tasks.prune(before, asked.keep.0).await?;
    Ok(Json(Pruned { pruned }))
}
