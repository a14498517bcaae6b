//! Tasks over HTTP, what only looks: which there are, how each stands, and why it does not run. The members are those of
//! `docs/protocols/http.md`, "Tasks".

use crate::actors::binding::Exit;
use crate::actors::dispatch::{
    Attempt, Cause, Past, RunStatus, Said, TaskFilter, TaskView, Verdict,
};
use crate::actors::lock::Name;
use crate::actors::process;
use crate::clock::Timestamp;
use crate::handle::failure_words;
use crate::ids::{ProcessId, Token};
use crate::protocols::http::call::Call;
use crate::protocols::http::listing::{Limit, Listing, Written};
use crate::protocols::http::problem::Problem;
use crate::protocols::http::route::{Json, Large, Query, Route, Words};
use crate::protocols::http::schema::TaskNames;
use crate::refusal::Reason;
use crate::text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) fn routes() -> Vec<Route> {
    use Reason::{Absent, Failed};
    vec![
        Route::get(
            "/v1/tasks",
            list,
            Words {
                id: "list_tasks",
                summary: "Which tasks there are",
                more: "By number. Many are walked page by page, and are no picture of one moment. A page may be empty and have a next.",
                answer: "Tasks.",
            },
            &[Failed, Reason::Large],
        ),
        Route::get(
            "/v1/tasks/task",
            task,
            Words {
                id: "task",
                summary: "One task",
                more: "With its attempts, and why it does not run.",
                answer: "The task.",
            },
            &[Absent, Failed],
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct WhichTask {
    /// The number of the task.
    pub(crate) id: u64,
}

async fn task(call: &Call, Query(asked): Query<WhichTask>) -> Result<Json<Task>, Problem> {
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

/// Where a task is between its bursts.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "TaskStatus")]
enum Status {
    /// 99
    NotReady,
    /// 0
    NotStarted,
    /// 1
    Waiting,
    /// 2
    Processing,
    /// 3
    Complete,
    /// 4
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
    /// Only those with this run status.
    status: Option<Status>,
    /// Only those of this group.
    group: Option<Name>,
    /// Only those of this work id.
    work: Option<Name>,
    /// The most tasks to answer.
    #[serde(default)]
    limit: Limit,
    /// Where to go on: `next` of the answer before.
    after: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Tasks {
    tasks: Vec<Written<Task>>,
    /// What `after` of the next request is, with the same filter; null after the last. An answer may end early, with fewer than `limit`.
    next: Option<u64>,
}

async fn list(call: &Call, Query(asked): Query<Filter>) -> Result<Large<Tasks>, Problem> {
    let tasks = call.node.tasks();
    let filter = TaskFilter {
        status: asked.status.map(Into::into),
        group: asked.group,
        work: asked.work,
    };
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
#[expect(clippy::struct_excessive_bools, reason = "each is a member of its own")]
pub(crate) struct Task {
    /// Its number.
    id: u64,
    #[serde(flatten)]
    names: TaskNames,
    /// `critical`, `high`, `medium` or `low`.
    priority: &'static str,
    /// `not-ready`, `not-started`, `waiting`, `processing`, `complete` or `restarted`.
    status: &'static str,
    /// The number that Wip has for that: 99, 0, 1, 2, 3 or 4.
    run_status: u8,
    /// `not-finished`, `warning`, `system-error`, `terminated`, `completed` or `user-error`.
    exit: &'static str,
    /// The number that Wip has for that: 0 to 5.
    exit_status: u8,
    /// What there is to say of how it ended.
    message: String,
    /// Why its next burst does not begin, in words; null if nothing keeps it from that.
    why: Option<String>,
    /// What is launched for each burst.
    command: Vec<String>,
    /// When it was added, in milliseconds since 1970.
    created_at: Timestamp,
    /// When its first attempt was claimed.
    started_at: Option<Timestamp>,
    /// When it was over.
    ended_at: Option<Timestamp>,
    /// When its next burst may begin; null if it does not wait.
    wake_at: Option<Timestamp>,
    /// Whether an operator holds it back.
    paused: bool,
    /// Whether its next burst is its last.
    terminating: bool,
    /// Milliseconds that a burst is to take.
    burst_ms: u64,
    /// Milliseconds after which an attempt is stopped, and the task failed.
    fail_after_ms: u64,
    /// Milliseconds between two heartbeats at most, once there has been one.
    progress_ms: u64,
    /// Whether it is failed if its command dies before it has saved anything.
    abort_on_failure: bool,
    /// Whether the command must say how its burst ended.
    report_required: bool,
    /// How often it has saved something.
    revision: u64,
    /// The bytes of the newest of that.
    saved_bytes: Option<u64>,
    /// How many attempts there were.
    attempts: u64,
    /// Attempts in a row that brought nothing.
    setbacks: u32,
    /// The attempt that is under way.
    attempt: Option<Live>,
    /// The newest attempts that have ended, the oldest of them first.
    past: Vec<Finished>,
    /// What the wall clock of the coordinator shows, in milliseconds since 1970.
    now: Timestamp,
}

/// An attempt that is under way.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TaskAttempt")]
pub(crate) struct Live {
    /// Its fencing token: only ever grows.
    token: Token,
    /// The server that it runs on.
    server: String,
    /// The record of its process, once it is launched.
    process: Option<String>,
    /// `claimed`: it has a thread, and asks for the execute lock; `locked`: it has that, and is being launched; `launched`.
    stage: &'static str,
    /// When it was claimed.
    claimed_at: Timestamp,
    /// When it was launched.
    launched_at: Option<Timestamp>,
    /// Its newest heartbeat.
    heartbeat_at: Option<Timestamp>,
    /// How its command says that the burst ended: `done`, `warning`, `wait` or `fail`.
    said: Option<&'static str>,
    /// Why it is being stopped.
    stopping: Option<&'static str>,
}

/// An attempt that has ended.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PastAttempt")]
pub(crate) struct Finished {
    /// Its fencing token.
    token: Token,
    /// The server that it ran on.
    server: String,
    /// The record of its process.
    process: Option<String>,
    /// When it was claimed.
    claimed_at: Timestamp,
    /// When it was launched.
    launched_at: Option<Timestamp>,
    /// When it ended.
    ended_at: Timestamp,
    /// `ended`: by its own account the task is over; `waits`: another burst is to come; `reset`: it came to nothing, and the task goes on from what it saved; `failed`: it came to nothing, and the task is over.
    outcome: &'static str,
    /// How the task ended, or by what the attempt came to nothing: `not-launched`, `execute-lock`, `update-lock`, `died`, `unreported`, `overdue`, `silent`, `terminated` or `server-gone`.
    cause: Option<&'static str>,
    /// The exit code of its process.
    code: Option<u8>,
    /// The signal that ended its process.
    signal: Option<u8>,
    /// Where and why it could not be launched. Null in lists, and where the record of its process is gone.
    failure: Option<String>,
    /// Whether it saved something.
    saved: bool,
    /// How what cleaned up after it ended: its exit code; null if it did not, or not yet, or not by itself.
    cleanup_code: Option<u8>,
    /// The signal that ended what cleaned up after it.
    cleanup_signal: Option<u8>,
}

impl Task {
    /// A task, as it is shown.
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
            saved_bytes: task
                .saved
                .as_ref()
                .map(|it| it.body.as_bytes().len() as u64),
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
                Said::Done { warning: false, .. } => "done",
                Said::Done { warning: true, .. } => "warning",
                Said::Wait { .. } => "wait",
                Said::Fail { .. } => "fail",
            }),
            stopping: attempt.stopping.map(Cause::name),
        }
    }
}

impl Finished {
    /// What it came to, by what, and how its process ended.
    pub(crate) const fn came_to(
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
