//! Tasks over HTTP, read-only: which tasks exist, their state, and why a task is not running. The JSON fields are
//! documented in `docs/protocols/http.md`, "Tasks". Each status is also shown as the number that Acquia's Wip has for it (see
//! `docs/tasks.md`).

use crate::call::Call;
use crate::listing::{Listing, Written};
use crate::problem::Problem;
use crate::route::{Docs, Json, Large, Query, Route};
use crate::scope::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::actors::binding::Exit;
use sexton::actors::dispatch::{
    Attempt, BurstReport, Cause, Past, RunStatus, TaskFilter, TaskView, Verdict,
};
use sexton::actors::lock::Name;
use sexton::actors::process;
use sexton::clock::Timestamp;
use sexton::handle::failure_words;
use sexton::ids::{ProcessId, Token};
use sexton::refusal::Reason;
use sexton::text;
use sexton_api::list::Limit;
use sexton_api::name::TaskNames;

pub(crate) fn routes() -> Vec<Route> {
    use Reason::{Absent, Failed};
    vec![
        Route::get(
            "/v1/tasks",
            Scope::Read,
            list,
            Docs {
                id: "list_tasks",
                summary: "List tasks",
                more: "Sorted by id. Long lists are returned in pages, which are not a consistent snapshot. A page may be empty and still be followed by others.",
                answer: "Tasks.",
            },
            &[Failed, Reason::Large],
        ),
        Route::get(
            "/v1/tasks/task",
            Scope::Read,
            task,
            Docs {
                id: "task",
                summary: "Get a task",
                more: "Includes the task's attempts and, if it is not running, the reason.",
                answer: "The task.",
            },
            &[Absent, Failed],
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct TaskQuery {
    /// The task's id.
    pub(crate) id: u64,
}

async fn task(call: &Call, Query(asked): Query<TaskQuery>) -> Result<Json<Task>, Problem> {
    let found = call.node.tasks().get(asked.id).await?;
    let mut task = Task::of(call, &found);
    let ids: Vec<ProcessId> = found.task.past.iter().filter_map(|it| it.process).collect();
    if !ids.is_empty() {
        let records = call.node.processes().each(&ids).await?;
        for (shown, past) in task.past.iter_mut().zip(&found.task.past) {
            let record = records.iter().find(|it| Some(it.id) == past.process);
            shown.failure = record.and_then(|it| it.failure.as_ref()).map(|it| {
                let words = failure_words(it);
                format!("{}: {words}", it.step.name())
            });
        }
    }
    Ok(Json(task))
}

/// The run status of a task. Each description begins with the number that Wip has for the status.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "TaskStatus")]
enum Status {
    /// 99: the task must not start yet.
    NotReady,
    /// 0: the task has never run.
    NotStarted,
    /// 1: the task is waiting for its next burst.
    Waiting,
    /// 2: an attempt is running.
    Processing,
    /// 3: the task is over.
    Complete,
    /// 4: the task was over, and will run again.
    Restarted,
}

impl From<Status> for RunStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::NotReady => Self::NotReady,
            Status::NotStarted => Self::NotStarted,
            Status::Waiting => Self::Waiting,
            Status::Processing => Self::Processing,
            Status::Complete => Self::Complete,
            Status::Restarted => Self::Restarted,
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "TaskFilter")]
pub(crate) struct Filter {
    /// Only tasks with this run status.
    status: Option<Status>,
    /// Only tasks of this group.
    group: Option<Name>,
    /// Only tasks with this work id.
    work: Option<Name>,
    /// The maximum number of tasks to return.
    #[serde(default)]
    limit: Limit,
    /// The `next` of the previous page; only tasks after it are returned. If left out, the list starts with the first task.
    after: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Tasks {
    tasks: Vec<Written<Task>>,
    /// The value of `after` with which a request with the same filter gets the next page; null on the last page. Any page may have fewer
    /// than `limit` items.
    next: Option<u64>,
}

async fn list(call: &Call, Query(asked): Query<Filter>) -> Result<Large<Tasks>, Problem> {
    let tasks = call.node.tasks();
    let filter =
        TaskFilter { status: asked.status.map(Into::into), group: asked.group, work: asked.work };
    let page = async |after: Option<u64>, most| {
        let found = tasks.list(filter.clone(), after, most).await?;
        Ok((found.tasks, found.next.map(Some)))
    };
    let show = |found: &TaskView| Task::of(call, found);
    let gathered = Listing::gather(call, (asked.after, asked.limit.0), page, show).await?;
    let (tasks, next, place) = gathered.in_order();
    let next = next.flatten();
    Ok(Large(Tasks { tasks, next }, place))
}

/// A task.
#[derive(Serialize, JsonSchema)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each bool is a separate field of the JSON answer"
)]
pub(crate) struct Task {
    /// The task's id.
    id: u64,
    #[serde(flatten)]
    names: TaskNames,
    /// `critical`, `high`, `medium` or `low`.
    priority: &'static str,
    /// `not-ready`, `not-started`, `waiting`, `processing`, `complete` or `restarted`.
    status: &'static str,
    /// The number that Wip has for `status`: 99 for `not-ready`, and 0 to 4 for the other values, in the order in which they are listed.
    run_status: u8,
    /// `not-finished`, `warning`, `system-error`, `terminated`, `completed` or `user-error`.
    exit: &'static str,
    /// The number that Wip has for `exit`: 0 to 5, in the order in which the values are listed.
    exit_status: u8,
    /// A message about how the task ended; empty if there is none.
    message: String,
    /// Why the next burst does not begin; null if nothing prevents it.
    why: Option<String>,
    /// The arguments of the command that is launched for each burst, with secrets masked.
    command: Vec<String>,
    /// The time the task was added. All times are in milliseconds since 1970.
    created_at: Timestamp,
    /// The time the first attempt got a thread; null if there has been none.
    started_at: Option<Timestamp>,
    /// The time the task ended; null if it has not.
    ended_at: Option<Timestamp>,
    /// The time from which the next burst may begin; null if the task is not waiting, or if this time has come.
    wake_at: Option<Timestamp>,
    /// Whether an operator has paused the task.
    paused: bool,
    /// Whether the task is being terminated: its next burst is the last, or the running one if that began after the request.
    terminating: bool,
    /// The intended length of a burst, in milliseconds.
    burst_ms: u64,
    /// The maximum duration of an attempt, in milliseconds. An attempt that exceeds it is stopped, and the task fails.
    fail_after_ms: u64,
    /// The maximum time between two heartbeats, in milliseconds. It applies once an attempt has sent a heartbeat. An attempt that exceeds
    /// it is stopped, and the task fails.
    progress_ms: u64,
    /// Whether the task fails if its command dies before the attempt has saved anything. If false, the task is run again.
    abort_on_failure: bool,
    /// Whether the command must report how its burst ended.
    report_required: bool,
    /// The number of times the task has saved its state.
    revision: u64,
    /// The size of the last saved state, in bytes; null if none was saved.
    saved_bytes: Option<u64>,
    /// The number of attempts so far.
    attempts: u64,
    /// The number of consecutive attempts, up to the latest, that failed without having saved anything.
    setbacks: u32,
    /// The running attempt; null if there is none.
    attempt: Option<Live>,
    /// The attempts that have ended, at most the last eight, oldest first.
    past: Vec<Finished>,
    /// The coordinator's wall clock, in milliseconds since 1970.
    now: Timestamp,
}

/// A running attempt.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TaskAttempt")]
pub(crate) struct Live {
    /// The fencing token. It is larger than that of every earlier attempt.
    token: Token,
    /// The server that the attempt runs on.
    server: String,
    /// The id of the process; null until it is launched.
    process: Option<String>,
    /// `claimed`: the attempt has a thread, and requests the lock `wip-pool-lock-execute`; `locked`: it has the lock, and is being
    /// launched; `launched`: its process was launched.
    stage: &'static str,
    /// The time the attempt got a thread.
    claimed_at: Timestamp,
    /// The time the process was launched; null until then.
    launched_at: Option<Timestamp>,
    /// The time of the last heartbeat; null if there has been none.
    heartbeat_at: Option<Timestamp>,
    /// How the burst ended according to the command's latest report: `done`, `warning`, `wait` or `fail`; null if it has not reported.
    said: Option<&'static str>,
    /// Why the attempt is being stopped, as a `cause` of past attempts; null if it is not being stopped.
    stopping: Option<&'static str>,
}

/// An attempt that has ended.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PastAttempt")]
pub(crate) struct Finished {
    /// The fencing token.
    token: Token,
    /// The server that the attempt ran on.
    server: String,
    /// The id of the process; null if none was launched.
    process: Option<String>,
    /// The time the attempt got a thread.
    claimed_at: Timestamp,
    /// The time the process was launched; null if none was.
    launched_at: Option<Timestamp>,
    /// The time the attempt ended.
    ended_at: Timestamp,
    /// `ended`: the task is over; `waits`: the task waits for its next burst; `reset`: the attempt failed, and the task
    /// continues from its saved state; `failed`: the attempt failed, and the task is over.
    outcome: &'static str,
    /// With `ended`, the `exit` of the task. With `reset` and `failed`, why the attempt failed: `not-launched`, `execute-lock`,
    /// `update-lock`, `died`, `unreported`, `overdue`, `silent`, `terminated`, `server-gone` or `server-lost`. Null with `waits`.
    cause: Option<&'static str>,
    /// The exit code of the process; null if it has none, for example because a signal ended it.
    code: Option<u8>,
    /// The signal that ended the process; null if no signal did.
    signal: Option<u8>,
    /// The step at which the launch failed, and why. Null if it did not fail, in lists, and if the process record has been removed.
    failure: Option<String>,
    /// Whether the attempt saved the task's state.
    saved: bool,
    /// The exit code of the cleanup command; null if there is none, or if it has not ended or was ended by a signal.
    cleanup_code: Option<u8>,
    /// The signal that ended the cleanup command; null if no signal did.
    cleanup_signal: Option<u8>,
}

impl Task {
    /// Converts a task to its form in an API response.
    pub(crate) fn of(call: &Call, view: &TaskView) -> Self {
        let now = call.node.now();
        let offset = call.node.offset();
        let date = |at: Timestamp| Timestamp(offset.date(at).0);
        let task = &view.task;
        let waits = task.status == RunStatus::Waiting && !task.is_due;
        let argv = process::masked(&task.command.spec.argv).into_iter();
        let server = view.server.as_ref().map_or_else(String::new, Name::to_text);
        Self {
            id: task.id,
            names: TaskNames {
                name: task.name.clone(),
                group: task.group.clone(),
                work: task.work.clone(),
            },
            priority: task.priority.name(),
            status: task.status.name(),
            run_status: task.status.number(),
            exit: task.exit.name(),
            exit_status: task.exit.number(),
            message: task.words.clone(),
            why: view.obstacle.as_ref().map(ToString::to_string),
            command: argv.map(|it| text::escaped(it.as_bytes())).collect(),
            created_at: date(task.created),
            started_at: task.started.map(date),
            ended_at: task.ended.map(date),
            wake_at: waits.then_some(Timestamp(task.wake.0)),
            paused: task.paused,
            terminating: task.terminating,
            burst_ms: task.terms.burst_ms,
            fail_after_ms: task.terms.fail_after_ms,
            progress_ms: task.terms.progress_ms,
            abort_on_failure: task.terms.abort_on_failure,
            report_required: task.terms.report_required,
            revision: task.revision,
            saved_bytes: task.saved.as_ref().map(|it| it.body.as_bytes().len() as u64),
            attempts: task.attempts,
            setbacks: task.setbacks,
            attempt: task.attempt.as_ref().map(|it| Live::of(it, server, date)),
            past: task.past.iter().map(|it| Finished::of(it, date)).collect(),
            now: date(now),
        }
    }
}

impl Live {
    fn of(attempt: &Attempt, server: String, date: impl Fn(Timestamp) -> Timestamp) -> Self {
        Self {
            token: attempt.token,
            server,
            process: attempt.launched.map(|_| attempt.process.to_string()),
            stage: attempt.stage.name(),
            claimed_at: date(attempt.claimed),
            launched_at: attempt.launched.map(&date),
            heartbeat_at: attempt.beat.map(&date),
            said: attempt.said.as_ref().map(|said| match said {
                BurstReport::Done { warning: false, .. } => "done",
                BurstReport::Done { warning: true, .. } => "warning",
                BurstReport::Wait { .. } => "wait",
                BurstReport::Fail { .. } => "fail",
            }),
            stopping: attempt.stopping.map(Cause::name),
        }
    }
}

impl Finished {
    /// Returns the outcome, the cause, and the exit code and signal of the process.
    pub(crate) const fn outcome_parts(
        &self,
    ) -> (&'static str, Option<&'static str>, Option<u8>, Option<u8>) {
        (self.outcome, self.cause, self.code, self.signal)
    }

    pub(crate) fn of(past: &Past, date: impl Fn(Timestamp) -> Timestamp) -> Self {
        let (outcome, cause) = match past.verdict {
            Verdict::Ended(exit) => ("ended", Some(exit.name())),
            Verdict::Waits => ("waits", None),
            Verdict::Reset(cause) => ("reset", Some(cause.name())),
            Verdict::FailedOut(cause) => ("failed", Some(cause.name())),
        };
        Self {
            token: past.token,
            server: past.server.to_text(),
            process: past.process.map(|it| it.to_string()),
            claimed_at: date(past.claimed),
            launched_at: past.launched.map(&date),
            ended_at: date(past.ended),
            outcome,
            cause,
            code: code(past.exit),
            signal: signal(past.exit),
            failure: None,
            saved: past.saved,
            cleanup_code: code(past.cleanup),
            cleanup_signal: signal(past.cleanup),
        }
    }
}

const fn code(exit: Option<Exit>) -> Option<u8> {
    match exit {
        Some(Exit::Code(code)) => Some(code),
        Some(Exit::Signal(_) | Exit::Lost | Exit::Failed) | None => None,
    }
}

const fn signal(exit: Option<Exit>) -> Option<u8> {
    match exit {
        Some(Exit::Signal(signal)) => Some(signal),
        Some(Exit::Code(_) | Exit::Lost | Exit::Failed) | None => None,
    }
}
