//! The history of a task over HTTP: its last attempts, each with its server, the times of its phases, and the output of its
//! command. The last eight attempts that ended are stored with the task. The times at which a process started and ended, and its output,
//! come from the process record, and are missing once that record has been removed. Older attempts are only in the journal and in events.

use crate::call::Call;
use crate::problem::Problem;
use crate::process_shown::Stream;
use crate::route::{Docs, Json, Query, Route};
use crate::scope::Scope;
use crate::task_look::{Finished, TaskQuery};
use schemars::JsonSchema;
use serde::Serialize;
use sexton::actors::dispatch::{Attempt, Past, Stage, Task, TaskView, Trace};
use sexton::actors::lock::Name;
use sexton::actors::process::RecordView;
use sexton::clock::Timestamp;
use sexton::handle::failure_words;
use sexton::ids::{ProcessId, Token};
use sexton::refusal::Reason;
use sexton_api::name::TaskNames;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get(
        "/v1/tasks/transcript",
        Scope::Read,
        transcript,
        Docs {
            id: "task_transcript",
            summary: "Get the history of a task",
            more: "Includes the last eight attempts that ended and the running one, if any, each with its phases and their times, how it ended, the output of its command (with the scope `run`), and why the dispatcher chose its server.",
            answer: "The history of the task.",
        },
        &[Reason::Absent, Reason::Failed],
    )]
}

/// The history of a task.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TaskTranscript")]
pub(crate) struct Transcript {
    /// The task's id.
    pub(crate) id: u64,
    #[serde(flatten)]
    pub(crate) names: TaskNames,
    /// `not-ready`, `not-started`, `waiting`, `processing`, `complete` or `restarted`.
    pub(crate) status: &'static str,
    /// `not-finished`, `warning`, `system-error`, `terminated`, `completed` or `user-error`.
    pub(crate) exit: &'static str,
    /// A message about how the task ended; empty if there is none.
    pub(crate) message: String,
    /// The time the task was added, in milliseconds since 1970.
    pub(crate) created_at: Timestamp,
    /// The number of attempts, including those that are no longer stored.
    pub(crate) attempts: u64,
    /// The last eight attempts that ended, oldest first, then the running one, if any.
    pub(crate) stories: Vec<AttemptHistory>,
}

/// The history of an attempt.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TaskAttemptStory")]
pub(crate) struct AttemptHistory {
    /// The fencing token.
    pub(crate) token: Token,
    /// The server that the attempt ran on.
    pub(crate) server: String,
    /// The id of the process; null if none was launched.
    pub(crate) process: Option<String>,
    /// `ended`, `waits`, `reset` or `failed`; null if the attempt is running.
    pub(crate) outcome: Option<&'static str>,
    /// With `ended`, the `exit` of the task. If the attempt failed, the reason. Null otherwise.
    pub(crate) cause: Option<&'static str>,
    /// The exit code of the process; null if there is none.
    pub(crate) code: Option<u8>,
    /// The signal that ended the process; null if no signal did.
    pub(crate) signal: Option<u8>,
    /// The step at which the launch failed, and why; null if it did not fail, or if the process record has been removed.
    pub(crate) failure: Option<String>,
    /// The steps of the attempt, in order.
    pub(crate) phases: Vec<Phase>,
    /// How the attempt was dispatched.
    pub(crate) dispatch: Dispatch,
    /// The directory with the output files, `stdout.log` and `stderr.log`; null if the process record has been removed.
    pub(crate) dir: Option<String>,
    /// The standard output; null if the attempt has not ended, if its process record has been removed, or without the scope `run`.
    pub(crate) stdout: Option<Stream>,
    /// The standard error; null in the same cases as the standard output.
    pub(crate) stderr: Option<Stream>,
}

/// A step of an attempt.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TaskPhase")]
pub(crate) struct Phase {
    /// `dispatched`: the attempt got a thread; `locked`: it got the lock `wip-pool-lock-execute`; `launched`: its launch was accepted;
    /// `started`: its process started; `saved`: it saved the task's state for the first time; `ended`: its process exited; `released`: its
    /// whole process tree had exited, and its thread was freed; `cleaned`: its cleanup command exited.
    pub(crate) phase: &'static str,
    /// The time, in milliseconds since 1970.
    pub(crate) at: Timestamp,
}

/// How an attempt was dispatched: how busy its server was, how long it had waited, and whether it holds its locks.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TaskDispatch")]
pub(crate) struct Dispatch {
    /// The number of the server's threads that were in use when it was chosen. The server with the lowest percentage of its threads in
    /// use is chosen.
    pub(crate) used: u32,
    /// The number of threads that the server had when it was chosen.
    pub(crate) threads: u32,
    /// The time from which the task could have run, in milliseconds since 1970: before its first burst, when it was added; before later
    /// bursts, its wake time.
    pub(crate) since: Timestamp,
    /// The time from `since` until the attempt got a thread, in milliseconds.
    pub(crate) waited_ms: u64,
    /// Whether the attempt holds its locks: `wip-pool-lock-execute` and `wip-pool-lock-update`, with the task's id as the index.
    pub(crate) locks: bool,
}

async fn transcript(
    call: &Call,
    Query(asked): Query<TaskQuery>,
) -> Result<Json<Transcript>, Problem> {
    let found = call.node.tasks().get(asked.id).await?;
    let mut told = of(call, &found).await?;
    if !call.may_run() {
        // Showing output requires the scope `run`.
        for story in &mut told.stories {
            (story.stdout, story.stderr) = (None, None);
        }
    }
    Ok(Json(told))
}

/// Returns the history of a task.
pub(crate) async fn of(call: &Call, found: &TaskView) -> Result<Transcript, Problem> {
    let task = &found.task;
    let live = task.attempt.as_ref();
    let ids = task.past.iter().filter_map(|it| it.process);
    let ids: Vec<ProcessId> = ids.chain(live.map(|it| it.process)).collect();
    let records = call.node.processes().each(&ids).await?;
    let telling = TranscriptSources { call, records, task };
    let past = task.past.iter().map(|it| telling.past(it));
    let server = found.server.as_ref().map(Name::to_text);
    let live = live.map(|it| telling.live(it, server.unwrap_or_default()));
    Ok(Transcript {
        id: task.id,
        names: TaskNames {
            name: task.name.clone(),
            group: task.group.clone(),
            work: task.work.clone(),
        },
        status: task.status.name(),
        exit: task.exit.name(),
        message: task.words.clone(),
        created_at: telling.date(task.created),
        attempts: task.attempts,
        stories: past.chain(live).collect(),
    })
}

/// The task of which a transcript is built, and the records of its processes.
struct TranscriptSources<'t> {
    call: &'t Call,
    records: Vec<RecordView>,
    task: &'t Task,
}

impl TranscriptSources<'_> {
    fn date(&self, at: Timestamp) -> Timestamp {
        Timestamp(self.call.node.offset().date(at).0)
    }

    fn past(&self, past: &Past) -> AttemptHistory {
        let shown = Finished::of(past, |at| self.date(at));
        let times = [
            ("dispatched", Some(past.claimed)),
            ("launched", past.launched),
            ("released", Some(past.ended)),
            ("cleaned", past.trace.cleaned),
        ];
        let (outcome, cause, code, signal) = shown.outcome_parts();
        AttemptHistory {
            outcome: Some(outcome),
            cause,
            code,
            signal,
            ..self.story((past.token, past.process), &times, (past.claimed, past.trace))
        }
        .on(past.server.to_text())
    }

    fn live(&self, attempt: &Attempt, server: String) -> AttemptHistory {
        let times = [("dispatched", Some(attempt.claimed)), ("launched", attempt.launched)];
        let process = attempt.launched.map(|_| attempt.process);
        let mut story =
            self.story((attempt.token, process), &times, (attempt.claimed, attempt.trace));
        story.dispatch.locks = attempt.stage != Stage::Claimed;
        story.on(server)
    }

    /// Builds a story with the fields that running and past attempts have in common; the callers fill in the other fields.
    fn story(
        &self,
        (token, process): (Token, Option<ProcessId>),
        times: &[(&'static str, Option<Timestamp>)],
        (claimed, trace): (Timestamp, Trace),
    ) -> AttemptHistory {
        let record = self.records.iter().find(|it| Some(it.id) == process);
        let of_node = [("locked", trace.locked), ("saved", trace.saved)];
        let of_node = times.iter().copied().chain(of_node);
        let of_node = of_node.filter_map(|(phase, at)| Some((phase, self.date(at?))));
        let of_record = record.into_iter().flat_map(|it| {
            let times = [("started", it.started), ("ended", it.ended)];
            times.map(|(phase, at)| at.map(|at| (phase, Timestamp(at.0))))
        });
        let phases = of_node.chain(of_record.flatten());
        let phases = in_order(phases.map(|(phase, at)| Phase { phase, at }).collect());
        let since = match trace.wake {
            Some(wake) => Timestamp(wake.0),
            None => self.date(self.task.created),
        };
        let failure = record.and_then(|it| it.failure.as_ref());
        let remains = record.and_then(|it| it.remains.clone());
        let dir = record.and_then(|it| self.call.node.processes().run_dir(it));
        AttemptHistory {
            token,
            server: String::new(),
            process: process.map(|it| it.to_string()),
            outcome: None,
            cause: None,
            code: None,
            signal: None,
            failure: failure.map(|it| format!("{}: {}", it.step.name(), failure_words(it))),
            phases,
            dispatch: Dispatch {
                used: trace.used,
                threads: trace.threads,
                since,
                waited_ms: self.date(claimed).0.saturating_sub(since.0),
                locks: false,
            },
            dir: dir.map(|it| it.display().to_string()),
            stdout: remains.as_deref().map(|it| (&it.stdout).into()),
            stderr: remains.as_deref().map(|it| (&it.stderr).into()),
        }
    }
}

/// Sorts phases into their logical order. They cannot be sorted by time: the times of the process and of the node are taken at
/// different moments by different clocks, so a phase may appear a millisecond before the one that precedes it.
fn in_order(mut phases: Vec<Phase>) -> Vec<Phase> {
    phases.sort_by_key(|it| ORDER.iter().position(|word| *word == it.phase));
    phases
}

/// The order of the phases of an attempt.
const ORDER: [&str; 8] =
    ["dispatched", "locked", "launched", "started", "saved", "ended", "released", "cleaned"];

impl AttemptHistory {
    fn on(self, server: String) -> Self {
        Self { server, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::{Phase, Timestamp, in_order};

    #[test]
    fn phases_follow_each_other_whatever_their_times() {
        let phases = [("released", 99), ("dispatched", 90), ("ended", 100), ("started", 95)];
        let phases = phases.map(|(phase, at)| Phase { phase, at: Timestamp(at) });
        let order: Vec<&str> = in_order(phases.into()).iter().map(|it| it.phase).collect();
        assert_eq!(order, ["dispatched", "started", "ended", "released"]);
    }
}
