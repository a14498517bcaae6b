//! Processes over HTTP: converts requests to calls of [`Processes`](sexton::handle::Processes), and records to answers. The JSON
//! fields are documented in `docs/protocols/http.md`, "Processes".
//!
//! Every route requires the scope `run`; `access.rs` decides which clients have it.

use crate::call::Call;
use crate::problem::Problem;
use crate::process_look::{id, which};
use crate::process_shown::Process;
use crate::route::{Body, Docs, Json, Route};
use crate::scope::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::actors::process::{Launching, Parentage, Phase, Refused, Spec, Tags};
use sexton::bytes::Bytes;
use sexton::clock::Date;
use sexton::handle::{ProcessError, Processes, Stopping};
use sexton::refusal::Reason;
use sexton_api::process::Launch;
use sexton_api::value::Number;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// The path that launches processes. Its requests may be longer than those of most paths, because they contain arguments.
pub(crate) const LAUNCH: &str = "/v1/processes/launch";

/// A span in milliseconds, of less than 2^32 seconds.
type Span = Number<u64, 0, { u32::MAX as u64 * 1000 }>;

#[expect(clippy::too_many_lines, reason = "a table of routes")]
pub(crate) fn routes() -> Vec<Route> {
    use Reason::{
        Absent, DiskFull, Draining, Ended, Failed, Full, NoKeeper, NotDeferred, NotStarted, Unsent,
        Waits,
    };
    vec![
        Route::post_once(
            LAUNCH,
            Scope::Run,
            launch,
            Docs {
                id: "launch_process",
                summary: "Launch a process",
                more: "Answers when the process is running or has ended, or when it could not be started; in the last case, `failure` has the reason. With `deferred`, only its record is made, and answered at once. The process continues to run if the connection closes or the coordinator stops.",
                answer: "The record of the process.",
            },
            &[Full, Draining, DiskFull, NoKeeper, Waits, Failed],
        ),
        Route::post_once(
            "/v1/processes/start",
            Scope::Run,
            start,
            Docs {
                id: "start_process",
                summary: "Launch a process whose launch was deferred",
                more: "Answers as a launch does. `/v1/processes/stop` cancels such a process instead.",
                answer: "The record of the process.",
            },
            &[Absent, Ended, NotDeferred, Draining, DiskFull, Waits, Failed],
        ),
        Route::post(
            "/v1/processes/register",
            Scope::Run,
            register,
            Docs {
                id: "register_process",
                summary: "Create a record for a running process",
                more: "A process has one record, however often it is registered. Its end is detected, but how it ended is known only if the kernel reports it or `finish` is called.",
                answer: "The record, and whether it existed before.",
            },
            &[Absent, Full, Draining, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/processes/finish",
            Scope::Run,
            finish,
            Docs {
                id: "finish_process",
                summary: "Report how a registered process has ended",
                more: "Not needed for processes that the coordinator launched.",
                answer: "The record of the process.",
            },
            &[Absent, Ended, Reason::Launched, Failed],
        ),
        Route::post_once(
            "/v1/processes/stop",
            Scope::Run,
            stop,
            Docs {
                id: "stop_process",
                summary: "Stop a process: a signal, a grace period, then SIGKILL",
                more: "With `tree`, also stops everything that it has started. Launched descendants with records of their own are stopped in the same way, each through its own record. The process is `stopping` until everything else that it started is confirmed to have exited. A process whose launch is deferred is cancelled: it is `exited`, with a `failure` of the step `cancelled`.",
                answer: "The record of the process.",
            },
            &[Absent, Ended, Waits, Failed, Reason::Interrupted],
        ),
        Route::post_once(
            "/v1/processes/signal",
            Scope::Run,
            signal,
            Docs {
                id: "signal_process",
                summary: "Send a signal to a process",
                more: "The signal is sent through a descriptor of the process (pidfd), so another process that has reused its PID is never signalled.",
                answer: "The record of the process, after the signal was sent.",
            },
            &[Absent, Ended, NotStarted, Unsent, Full, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/processes/settle",
            Scope::Run,
            settle,
            Docs {
                id: "settle_process",
                summary: "Declare that nothing of a process's tree is alive",
                more: "For a tree of which the coordinator cannot tell whether it is empty. Refused unless the process has ended, its tree has been killed, and only `unknown` processes are left.",
                answer: "The record of the process.",
            },
            &[Absent, Ended, Reason::NotUnknown, Failed],
        ),
        Route::post(
            "/v1/processes/wait",
            Scope::Run,
            wait,
            Docs {
                id: "wait_for_process",
                summary: "Wait until a process has ended",
                more: "If its tree is being stopped, or a lock, claim or pass is bound to it, waits for the whole tree, including launched descendants with records of their own. Answers immediately if the process has already ended. Also answers when the wait times out: see `timed_out`.",
                answer: "The record of the process.",
            },
            &[Absent, Waits, Failed],
        ),
        Route::post(
            "/v1/processes/prune",
            Scope::Run,
            prune,
            Docs {
                id: "prune_processes",
                summary: "Remove records of processes that have ended",
                more: "Records with live descendants are kept.",
                answer: "The number of records removed.",
            },
            &[Failed],
        ),
        Route::post(
            "/v1/processes/keeper",
            Scope::Run,
            keeper,
            Docs {
                id: "keeper",
                summary: "Start the keeper if it is not running, and get its socket",
                more: "Clients can pass their own streams and environment to the keeper over that socket: see docs/protocols/keeper.md.",
                answer: "The path of the socket.",
            },
            &[NoKeeper],
        ),
    ]
}

fn bytes(text: String) -> Bytes {
    Bytes::new(text.into_bytes())
}

/// Converts the request, or refuses it. The process has no parent unless the request names one.
pub(crate) fn launching(asked: Launch) -> Result<Launching, Problem> {
    let ticket = asked.parcel.map(|ticket| u128::from_str_radix(&ticket, 16));
    let parcel = ticket.transpose();
    let parcel =
        parcel.map_err(|_| Problem::field("parcel", "must be at most 32 hexadecimal digits"))?;
    let argv = asked.command.0.into_iter().map(bytes).collect();
    let env = asked.env.into_iter();
    let spec = Spec {
        argv,
        dir: asked.dir.map(bytes).unwrap_or_default(),
        env: env.map(|(name, value)| (name, bytes(value))).collect(),
        secrets: asked.secrets,
        env_file: asked.env_file.map(bytes),
        parcel,
        timeout_ms: asked.timeout_ms.0,
        grace_ms: asked.grace_ms.0,
        stop_signal: asked.stop_signal.0,
        run_dir: asked.run_dir.map(bytes),
        makes_dirs: asked.mkdir,
        appends: asked.append,
        is_hook: asked.records,
        output_bytes_max: asked.output_bytes_max.0,
        output_kept: asked.output_kept.0,
        ..Spec::default()
    };
    if !asked.allow_secrets && spec.has_secret() {
        return Err(Problem::field(
            "command",
            "looks like it contains a secret, and every process can read arguments: pass it through `env_file` or `secrets`, or set `allow_secrets`",
        ));
    }
    let tags = Tags {
        kind: asked.r#type.unwrap_or_else(|| "binary".to_owned()),
        url: asked.url,
        labels: asked.labels.into_iter().collect(),
    };
    let parentage = Parentage {
        named: id(asked.parent.as_deref(), "parent")?,
        line: Vec::new(),
        bound: asked.bound,
    };
    Ok(Launching { spec, tags, parentage, deferred: asked.deferred })
}

/// Launches a process, and waits until it is running or has failed to start, unless the launch is deferred.
async fn launch(call: &Call, Body(launch): Body<Launch>) -> Result<Json<Process>, Problem> {
    let mut launching = launching(launch)?;
    launching.parentage.line = call.requester().map(Processes::line_of).unwrap_or_default();
    let processes = call.processes();
    // What is refused for the lack of a slot has not been launched.
    let place = (!launching.deferred).then(|| call.place()).transpose()?;
    let record = processes.launch(launching).await?;
    if record.deferred.is_some() {
        return Ok(Json(Process::of(call, record)));
    }
    let started = call.wait_in(place, processes.started(record.id)).await??;
    Ok(Json(Process::of(call, started)))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Start {
    /// The id of the process, or at least its first eight digits.
    id: String,
}

/// Launches a process whose launch was deferred, and waits until it is running or has failed to start.
async fn start(call: &Call, Body(asked): Body<Start>) -> Result<Json<Process>, Problem> {
    let id = which(call, &asked.id).await?;
    let processes = call.processes();
    let place = call.place()?;
    processes.start(id).await?;
    let started = call.wait_in(Some(place), processes.started(id)).await??;
    Ok(Json(Process::of(call, started)))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Register {
    /// The PID. If left out, it is that of the caller, which is known only if the request came over the Unix socket.
    pid: Option<Number<u32, 1, { u32::MAX as u64 }>>,
    /// The type of the process: `cli`, `supervisord`, `orchestrator`, `worker`, `hook`, `binary`, or any other word. If left out, it is
    /// derived from the arguments of the process.
    r#type: Option<String>,
    /// A URL associated with the process.
    url: Option<String>,
    /// Arbitrary labels.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// The id of the parent, usually from `SEXTON_PROCESS_ID`. If left out, the parent is the nearest ancestor with a record.
    parent: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Registered {
    /// Whether the record existed before.
    known: bool,
    #[serde(flatten)]
    process: Process,
}

/// Creates a record for a running process.
async fn register(call: &Call, Body(asked): Body<Register>) -> Result<Json<Registered>, Problem> {
    let named = id(asked.parent.as_deref(), "parent")?;
    let asking = asked.pid.map(|pid| pid.0.into());
    let process = asking.or_else(|| call.requester());
    let process = process.ok_or_else(|| {
        Problem::field("pid", "is required, since the calling process is unknown")
    })?;
    let tags = Tags {
        kind: asked.r#type.unwrap_or_default(),
        url: asked.url,
        labels: asked.labels.into_iter().collect(),
    };
    let registered = call.processes().register_pid(process, tags, named).await;
    let (record, known) = registered.map_err(|error| Problem::from(error).naming("pid"))?;
    let process = Process::of(call, record);
    Ok(Json(Registered { known, process }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Finish {
    /// The id of the process, or at least its first eight digits.
    id: String,
    /// The exit code.
    code: Number<u8, 0, 255>,
    /// The error to store with the record.
    error: Option<String>,
}

async fn finish(call: &Call, Body(asked): Body<Finish>) -> Result<Json<Process>, Problem> {
    let id = which(call, &asked.id).await?;
    let processes = call.processes();
    processes.finish(id, asked.code.0, asked.error).await?;
    Ok(Json(Process::of(call, call.node.processes().get(id).await?)))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Stop {
    /// The id of the process, or at least its first eight digits.
    id: String,
    /// The first signal. If left out, it is the one set when the process was launched.
    signal: Option<Number<u8, 1, { Spec::SIGNAL_MAX as u64 }>>,
    /// Milliseconds from the first signal to SIGKILL; 0 to send SIGKILL immediately. If left out, it is the time set when the process was
    /// launched.
    grace_ms: Option<Number<u32, 0, { Spec::GRACE_MS_MAX as u64 }>>,
    /// Whether to also stop everything that the process has started.
    #[serde(default)]
    tree: bool,
}

async fn stop(call: &Call, Body(asked): Body<Stop>) -> Result<Json<Process>, Problem> {
    let id = which(call, &asked.id).await?;
    let how = Stopping {
        signal: asked.signal.map(|it| it.0),
        grace_ms: asked.grace_ms.map(|it| it.0),
        tree: asked.tree,
    };
    let processes = call.processes();
    let mut record = processes.stop(id, how).await?;
    if record.deferred.is_some()
        && let Ok(place) = call.place()
    {
        // Nothing runs, so it is cancelled at once.
        record = call.wait_in(Some(place), processes.leader_ended(id)).await??;
    }
    Ok(Json(Process::of(call, record)))
}

#[expect(clippy::struct_field_names, reason = "these are the names in JSON")]
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Signal {
    /// The id of the process, or at least its first eight digits.
    id: String,
    /// The signal.
    signal: Number<u8, 1, { Spec::SIGNAL_MAX as u64 }>,
    /// Whether to signal the whole process group of the process.
    #[serde(default)]
    group: bool,
}

async fn signal(call: &Call, Body(asked): Body<Signal>) -> Result<Json<Process>, Problem> {
    let id = which(call, &asked.id).await?;
    call.processes().signal(id, asked.signal.0, asked.group).await?;
    Ok(Json(Process::of(call, call.node.processes().get(id).await?)))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Awaited {
    /// The id of the process, or at least its first eight digits.
    id: String,
    /// The maximum time to wait, in seconds.
    #[serde(default)]
    wait: Number<u64, 0, 3600>,
    /// Whether to wait only for the process itself, even if its tree is being stopped or a lock, claim or pass is bound to it.
    #[serde(default)]
    leader: bool,
}

async fn wait(call: &Call, Body(asked): Body<Awaited>) -> Result<Json<Process>, Problem> {
    let id = which(call, &asked.id).await?;
    let processes = call.processes();
    if asked.wait.0 > 0 {
        let ended = async {
            if asked.leader { processes.leader_ended(id).await } else { processes.ended(id).await }
        };
        let ended = timeout(Duration::from_secs(asked.wait.0), ended);
        if let Ok(ended) = call.wait(ended).await? {
            return Ok(Json(Process::of(call, ended?).waited(true)));
        }
    }
    let record = processes.get(id).await?;
    let has_ended = record.phase == Phase::Exited;
    Ok(Json(Process::of(call, record).waited(has_ended)))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Settle {
    /// The id of the process, or at least its first eight digits.
    id: String,
}

async fn settle(call: &Call, Body(asked): Body<Settle>) -> Result<Json<Process>, Problem> {
    let id = which(call, &asked.id).await?;
    call.processes().settle(id).await?;
    Ok(Json(Process::of(call, call.node.processes().get(id).await?)))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Prune {
    /// How long ago a process must have ended for its record to be removed, in milliseconds.
    #[serde(default)]
    older_than_ms: Span,
    /// The number of records to keep regardless of their age: those of the processes that ended last.
    #[serde(default)]
    keep: Number<u32, 0, { u32::MAX as u64 }>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Pruned {
    /// The number of records removed.
    pruned: u64,
}

async fn prune(call: &Call, Body(asked): Body<Prune>) -> Result<Json<Pruned>, Problem> {
    // Without an age, what ended in this very millisecond is removed as well.
    let ms = Some(asked.older_than_ms.0).filter(|ms| *ms > 0);
    let before = ms.map(|ms| Date(call.node.date().0.saturating_sub(ms)));
    let pruned = call.processes().prune(before, asked.keep.0).await?;
    Ok(Json(Pruned { pruned }))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Keeper {
    /// The path of the keeper's Unix socket.
    socket: String,
}

async fn keeper(call: &Call, (): ()) -> Result<Json<Keeper>, Problem> {
    let socket = call.node.processes().keeper().await?;
    let socket = socket.display().to_string();
    Ok(Json(Keeper { socket }))
}

impl From<ProcessError> for Problem {
    fn from(error: ProcessError) -> Self {
        let field = match &error {
            ProcessError::Refused(Refused::Unknown) | ProcessError::Ambiguous(_) => Some("id"),
            ProcessError::Refused(Refused::NoService) => Some("name"),
            ProcessError::Refused(_)
            | ProcessError::Unsent(_)
            | ProcessError::NoKeeper(_)
            | ProcessError::Failed(_)
            | ProcessError::Stopped(_) => None,
        };
        let problem = Self::new(error.reason(), error.to_string());
        match field {
            Some(field) => problem.naming(field),
            None => problem,
        }
    }
}
