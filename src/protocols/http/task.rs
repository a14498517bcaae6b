//! Tasks over HTTP: requests into calls of [`Tasks`](crate::handle::Tasks), and what came of them into answers. The members are
//! those of `docs/protocols/http.md`, "Tasks".
//!
//! Never here: which task is next. That is the machine's. What a command says of its own burst comes by another socket, see
//! `report.rs`.

use crate::actors::dispatch::{Act, Adding, DispatchMachine, Pause, Priority, Terms as Kept};
use crate::actors::lock::Name;
use crate::clock::Date;
use crate::handle::Fault;
use crate::protocols::http::access::Scope;
use crate::protocols::http::call::Call;
use crate::protocols::http::problem::Problem;
use crate::protocols::http::process::Launch;
use crate::protocols::http::route::{Body, Json, Route, Routed, Words};
use crate::protocols::http::schema::Number;
use crate::protocols::http::task_look::{self, Task};
use crate::protocols::http::task_server::{self, Done, Held};
use crate::protocols::http::task_transcript;
use crate::refusal::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Where a task is added: arguments may be longer than other requests.
pub(crate) const ADD: &str = "/v1/tasks/add";

impl Routed for DispatchMachine {
    const ROUTES: &'static [fn() -> Vec<Route>] = &[
        routes,
        task_look::routes,
        task_server::routes,
        task_transcript::routes,
    ];
}

fn routes() -> Vec<Route> {
    use Reason::{
        Absent, DiskFull, Draining, Ended, Failed, Full, NoFaults, OutOfScope, Running, Waits,
    };
    vec![
        Route::post_once(
            ADD,
            add,
            Words {
                id: "add_task",
                summary: "Add a task",
                more: "Its command is launched for each burst, as soon as its turn comes and a thread of a server is free. With the first task the server `local` is made, if there never was one.",
                answer: "The task.",
            },
            &[Draining, Full, DiskFull, NoFaults, Failed],
        )
        .with_scope(Scope::Run),
        Route::post(
            "/v1/tasks/act",
            Scope::Operate,
            act,
            Words {
                id: "act_on_task",
                summary: "Pause, resume, wake, terminate or restart a task",
                more: "To terminate an attempt that is under way `now` stops its processes, and needs the scope `run`.",
                answer: "The task.",
            },
            &[Absent, Ended, Running, Failed, OutOfScope],
        ),
        Route::post(
            "/v1/tasks/wait",
            Scope::Read,
            wait,
            Words {
                id: "wait_for_task",
                summary: "Wait until a task is over",
                more: "Answers at once if it is, and when the wait is over: `status` says which.",
                answer: "The task.",
            },
            &[Absent, Waits, Failed],
        ),
        Route::post(
            "/v1/tasks/pause",
            Scope::Operate,
            pause,
            Words {
                id: "pause_tasks",
                summary: "Hold tasks back: of a group, or all",
                more: "`soft` starts no task, and lets those that are under way go on; `hard` begins no burst at all; `off` ends both. A burst that has begun comes to its end.",
                answer: "It is so.",
            },
            &[Full, DiskFull, Failed],
        ),
        Route::post(
            "/v1/tasks/prune",
            Scope::Operate,
            prune,
            Words {
                id: "prune_tasks",
                summary: "Forget tasks that are over",
                more: "",
                answer: "How many.",
            },
            &[Failed],
        ),
    ]
}

/// How urgent a task is.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "TaskPriority")]
pub(crate) enum Urgency {
    /// Before all others.
    Critical,
    /// Before most.
    High,
    /// As most are.
    #[default]
    Medium,
    /// After most.
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

/// Milliseconds of a span of a task.
type Span = Number<u64, 1, { Kept::SPAN_MS_MAX }>;

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "AddTask")]
pub(crate) struct Add {
    /// What is launched for each burst. It has no parent.
    launch: Launch,
    /// What is launched after each attempt, apart from it: it holds no thread, and nothing waits for it.
    cleanup: Option<Launch>,
    /// What people call it.
    #[serde(default)]
    name: Name,
    /// Its group; `default` if left out.
    #[serde(default)]
    group: Name,
    /// What it works on: no two tasks of one work id are under way at a time.
    #[serde(default)]
    work: Name,
    /// How urgent it is.
    #[serde(default)]
    priority: Urgency,
    /// Milliseconds that a burst is to take: the command is told, and not held to it. This and the next four are as the configuration says, if left out.
    burst_ms: Option<Span>,
    /// Milliseconds after which an attempt is stopped, and the task failed.
    fail_after_ms: Option<Span>,
    /// Milliseconds between two heartbeats at most, once there has been one.
    progress_ms: Option<Span>,
    /// Whether the task is failed if its command dies before it has saved anything; if not, it is run again.
    abort_on_failure: Option<bool>,
    /// Whether the command must say how its burst ended: its exit status means nothing then.
    report_required: Option<bool>,
    /// Whether it waits for `ready` before it starts.
    #[serde(default)]
    not_ready: bool,
    /// Whether it is paused from the beginning.
    #[serde(default)]
    paused: bool,
    /// A fault that the coordinator makes in the first attempt, for trying out how the task recovers. Refused unless the
    /// configuration has `[tasks] allow_fault_injection = true`.
    inject: Option<Inject>,
}

/// A fault that the coordinator makes.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "TaskFault")]
enum Inject {
    /// The process cannot be made.
    BeforeParent,
    /// The keeper is killed when it is to launch.
    #[serde(rename = "before-parent:kill")]
    KeeperKilled,
    /// The process is made, and cannot execute.
    WithinParent,
    /// The program does not exist.
    BeforeChild,
    /// The program of the cleanup does not exist.
    BeforeCleanup,
    /// The actor panics when it decides about the end.
    BeforeThreadCleanup,
    /// The actor panics when it commits the end.
    WithinThreadCleanup,
    /// The actor of locks panics when it is given the execute lock back.
    AfterThreadCleanup,
    /// The keeper is killed when it has reported the exit.
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
    /// How it is run: what is left out is as the configuration says.
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
    let cleanup = asked.cleanup.map(Launch::launching).transpose()?;
    let adding = Adding {
        work: asked.work,
        group: asked.group,
        name: asked.name,
        priority: asked.priority.into(),
        command: Arc::new(asked.launch.launching()?),
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

/// What is to become of a task.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "TaskAct")]
enum What {
    /// It may be started.
    Ready,
    /// No burst of it begins.
    Pause,
    /// Bursts begin again.
    Resume,
    /// It waits no longer.
    Wake,
    /// It ends with one more burst; at once, if it has not started.
    Terminate,
    /// It is over, and runs again from what it saved.
    Restart,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ActOnTask")]
pub(crate) struct Acting {
    /// The number of the task.
    id: u64,
    /// What.
    act: What,
    /// With `terminate`: whether it ends without another burst, and an attempt that is under way is stopped.
    #[serde(default)]
    now: bool,
}

async fn act(call: &Call, Body(asked): Body<Acting>) -> Result<Json<Task>, Problem> {
    let act = match asked.act {
        What::Ready => Act::Ready,
        What::Pause => Act::Pause,
        What::Resume => Act::Resume,
        What::Wake => Act::Wake,
        What::Terminate => Act::Terminate { now: asked.now },
        What::Restart => Act::Restart,
    };
    if asked.now {
        call.check_run()?;
    }
    let task = call.tasks().act(asked.id, act).await?;
    Ok(Json(Task::of(call, &task)))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "WaitForTask")]
pub(crate) struct Awaited {
    /// The number of the task.
    id: u64,
    /// Seconds to wait at most.
    #[serde(default)]
    wait: Number<u64, 0, 3600, 60>,
}

async fn wait(call: &Call, Body(asked): Body<Awaited>) -> Result<Json<Task>, Problem> {
    let tasks = call.node.tasks();
    let wait = Duration::from_secs(asked.wait.0);
    let task = match call.wait(timeout(wait, tasks.over(asked.id))).await? {
        Ok(over) => over?,
        Err(_) => tasks.get(asked.id).await?,
    };
    Ok(Json(Task::of(call, &task)))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "PauseTasks")]
pub(crate) struct Pausing {
    /// The group; all tasks, if left out.
    group: Option<Name>,
    /// How much is held back.
    pause: Held,
}

async fn pause(call: &Call, Body(asked): Body<Pausing>) -> Result<Json<Done>, Problem> {
    let pause = match asked.pause {
        Held::Off => Pause::Off,
        Held::Soft => Pause::Soft,
        Held::Hard => Pause::Hard,
    };
    call.tasks().pause(asked.group, pause).await?;
    Ok(Done::so())
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "PruneTasks")]
pub(crate) struct Pruning {
    /// Those that were over before this, in milliseconds since 1970; all, if left out.
    before: Option<u64>,
    /// Those that have been over for so many milliseconds, in place of `before`.
    older_than_ms: Option<u64>,
    /// The newest that stay, however old.
    #[serde(default)]
    keep: Number<u32, 0, { u32::MAX as u64 }>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PrunedTasks")]
pub(crate) struct Pruned {
    /// How many were forgotten.
    pruned: u64,
}

async fn prune(call: &Call, Body(asked): Body<Pruning>) -> Result<Json<Pruned>, Problem> {
    let tasks = call.node.tasks();
    if asked.before.is_some() && asked.older_than_ms.is_some() {
        return Err(Problem::field(
            "older_than_ms",
            "cannot be there beside before",
        ));
    }
    let ago = |ms| Date(call.node.date().0.saturating_sub(ms));
    let before = asked.before.map(Date).or(asked.older_than_ms.map(ago));
    let pruned = tasks.prune(before, asked.keep.0).await?;
    Ok(Json(Pruned { pruned }))
}
