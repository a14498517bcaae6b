//! Processes over HTTP: requests into calls of [`Processes`](crate::handle::Processes), and records into answers. The members
//! are those of `docs/protocols/http.md`, "Processes".
//!
//! Never here: who may be launched or signalled. Whatever is asked here needs the scope `run`, see `access.rs`.

use crate::actors::process::{Launching, Parentage, ProcessMachine, Spec, Tags};
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::handle::{ProcessError, Processes, Stopping};
use crate::protocols::http::access::Scope;
use crate::protocols::http::call::Call;
use crate::protocols::http::problem::Problem;
use crate::protocols::http::process_look::{self, Process, id, which};
use crate::protocols::http::process_now;
use crate::protocols::http::route::{Body, Json, Route, Routed, Words};
use crate::protocols::http::schema::{List, Number};
use crate::protocols::http::service;
use crate::refusal::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// Where processes are launched: their arguments may be longer than other requests.
pub(crate) const LAUNCH: &str = "/v1/processes/launch";

/// Milliseconds: at most 2^32 seconds.
type Span = Number<u64, 0, { u32::MAX as u64 * 1000 }>;

impl Routed for ProcessMachine {
    const ROUTES: &'static [fn() -> Vec<Route>] = &[
        acting,
        process_look::routes,
        process_now::routes,
        service::routes,
    ];
}

#[expect(clippy::too_many_lines, reason = "a table, route after route")]
fn acting() -> Vec<Route> {
    use Reason::{
        Absent, DiskFull, Draining, Ended, Failed, Full, NoKeeper, NotStarted, Unsent, Waits,
    };
    let all = vec![
        Route::post_once(
            LAUNCH,
            launch,
            Words {
                id: "launch_process",
                summary: "Launch a process",
                more: "The answer comes when it runs, or could not be started: `failure` says why. It runs on when the connection, or the coordinator, ends.",
                answer: "Its record.",
            },
            &[Full, Draining, DiskFull, NoKeeper, Waits, Failed],
        ),
        Route::post(
            "/v1/processes/register",
            Scope::Run,
            register,
            Words {
                id: "register_process",
                summary: "Give a process that runs already a record",
                more: "The same process has one record, however often it is registered. Its end is seen, but how it ended only if the kernel or `finish` says so.",
                answer: "Its record, and whether it was there.",
            },
            &[Absent, Full, Draining, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/processes/finish",
            finish,
            Words {
                id: "finish_process",
                summary: "Say how a process that was registered has ended",
                more: "Of what was launched here it is seen.",
                answer: "Its record.",
            },
            &[Absent, Ended, Reason::Launched, Failed],
        ),
        Route::post_once(
            "/v1/processes/stop",
            stop,
            Words {
                id: "stop_process",
                summary: "Stop a process: a signal, a span of grace, then SIGKILL",
                more: "With `tree`, all that it started, too: it is `stopping` until nothing of that lives, which is proved and not supposed.",
                answer: "Its record.",
            },
            &[Absent, Ended, Failed],
        ),
        Route::post_once(
            "/v1/processes/signal",
            signal,
            Words {
                id: "signal_process",
                summary: "Send a signal to a process",
                more: "By a descriptor of that process: one that has its PID now is never touched.",
                answer: "Its record, after the signal was sent.",
            },
            &[Absent, Ended, NotStarted, Unsent, Full, DiskFull, Failed],
        ),
        Route::post(
            "/v1/processes/wait",
            Scope::Run,
            wait,
            Words {
                id: "wait_for_process",
                summary: "Wait until a process has ended",
                more: "And all of its tree, if that is being stopped. Answers at once if it has ended, and when the wait is over: `phase` tells which.",
                answer: "Its record.",
            },
            &[Absent, Waits, Failed],
        ),
        Route::post(
            "/v1/processes/prune",
            Scope::Run,
            prune,
            Words {
                id: "prune_processes",
                summary: "Forget processes that have ended",
                more: "Those with descendants that live stay.",
                answer: "How many were forgotten.",
            },
            &[Failed],
        ),
        Route::post(
            "/v1/processes/keeper",
            Scope::Run,
            keeper,
            Words {
                id: "keeper",
                summary: "Have the keeper run, and say where it listens",
                more: "Whoever hands over its own streams and environment does so there, see docs/protocols/keeper.md.",
                answer: "Its socket.",
            },
            &[NoKeeper],
        ),
    ];
    all.into_iter()
        .map(|route| route.with_scope(Scope::Run))
        .collect()
}

/// A process to be launched.
#[derive(Deserialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each is a member of its own")]
pub(crate) struct Launch {
    /// The program, looked for in `PATH` if it has no slash, and its arguments.
    command: List<String, { Spec::ARGV_MAX }>,
    /// The directory that it runs in; that of the keeper if left out.
    dir: Option<String>,
    /// What its environment has beside that of the coordinator. Names with `TOKEN`, `SECRET`, `PASSWORD` or `KEY` in them are refused: those go into `secrets`.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Names whose values are in `env_file`, the parcel, or the coordinator's own environment, and are stored nowhere.
    #[serde(default)]
    secrets: Vec<String>,
    /// A file of `NAME=VALUE` lines, read when it is launched.
    env_file: Option<String>,
    /// The ticket of what was handed to the keeper: 32 hexadecimal digits.
    parcel: Option<String>,
    /// Milliseconds after which its tree is stopped; 0 for never.
    #[serde(default)]
    timeout_ms: Span,
    /// Milliseconds between the first signal of a stop and SIGKILL.
    #[serde(default)]
    grace_ms: Number<u32, 0, { Spec::GRACE_MS_MAX as u64 }, 10_000>,
    /// The first signal of a stop; 15 is SIGTERM.
    #[serde(default)]
    stop_signal: Number<u8, 1, { Spec::SIGNAL_MAX as u64 }, 15>,
    /// Where its files are; `run/ID` in the data directory if left out.
    run_dir: Option<String>,
    /// Whether its directory is made if it is missing.
    #[serde(default)]
    mkdir: bool,
    /// Whether its output goes behind what is in its files.
    #[serde(default)]
    append: bool,
    /// Whether it is a hook: its standard output is read for records when it has ended.
    #[serde(default)]
    records: bool,
    /// How many bytes each file of its output may have before it is rotated; 0 for as many as it likes.
    #[serde(default)]
    output_bytes_max: Number<u64, 0, { 1 << 50 }>,
    /// How many files that were rotated are kept of each.
    #[serde(default)]
    output_kept: Number<u8, 0, { Spec::OUTPUT_KEPT_MAX as u64 }, 5>,
    /// `cli`, `supervisord`, `orchestrator`, `worker`, `hook`, `binary`, or any other word; `binary` if left out.
    r#type: Option<String>,
    /// A URL that it is about.
    url: Option<String>,
    /// Free labels.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// Whose child it is, unless the kernel says otherwise: `SEXTON_PROCESS_ID` of whoever asks.
    parent: Option<String>,
    /// Whether it is launched only while `parent` lives: what it does rests on a right of that one.
    #[serde(default)]
    bound: bool,
}

fn bytes(text: String) -> Bytes {
    Bytes::new(text.into_bytes())
}

impl Launch {
    /// What is to be launched. It has no parent unless the request names one.
    pub(crate) fn launching(self) -> Result<Launching, Problem> {
        let ticket = self.parcel.map(|ticket| u128::from_str_radix(&ticket, 16));
        let parcel = ticket.transpose();
        let parcel =
            parcel.map_err(|_| Problem::field("parcel", "has up to 32 hexadecimal digits"))?;
        let env = self.env.into_iter();
        let spec = Spec {
            argv: self.command.0.into_iter().map(bytes).collect(),
            dir: self.dir.map(bytes).unwrap_or_default(),
            env: env.map(|(name, value)| (name, bytes(value))).collect(),
            secrets: self.secrets,
            env_file: self.env_file.map(bytes),
            parcel,
            timeout_ms: self.timeout_ms.0,
            grace_ms: self.grace_ms.0,
            stop_signal: self.stop_signal.0,
            run_dir: self.run_dir.map(bytes),
            makes_dirs: self.mkdir,
            appends: self.append,
            is_hook: self.records,
            output_bytes_max: self.output_bytes_max.0,
            output_kept: self.output_kept.0,
            ..Spec::default()
        };
        let tags = Tags {
            kind: self.r#type.unwrap_or_else(|| "binary".to_owned()),
            url: self.url,
            labels: self.labels.into_iter().collect(),
        };
        let parentage = Parentage {
            named: id(self.parent.as_deref(), "parent")?,
            line: Vec::new(),
            bound: self.bound,
        };
        Ok(Launching {
            spec,
            tags,
            parentage,
        })
    }
}

/// Launches a process, and waits until it runs.
async fn launch(call: &Call, Body(launch): Body<Launch>) -> Result<Json<Process>, Problem> {
    let mut launching = launch.launching()?;
    launching.parentage.line = call.requester().map(Processes::line_of).unwrap_or_default();
    let processes = call.processes();
    let record = processes.launch(launching).await?;
    let started = call.wait(processes.started(record.id)).await??;
    Ok(Json(Process::of(call, started)))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Register {
    /// Which; whoever asks, if left out, where that is asked on the Unix socket.
    pid: Option<Number<u32, 1, { u32::MAX as u64 }>>,
    /// `cli`, `supervisord`, `orchestrator`, `worker`, `hook`, `binary`, or any other word; found from its arguments if left out.
    r#type: Option<String>,
    /// A URL that it is about.
    url: Option<String>,
    /// Free labels.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// Whose child it is, unless the kernel says otherwise: its `SEXTON_PROCESS_ID`.
    parent: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Registered {
    /// Whether the record was there.
    known: bool,
    #[serde(flatten)]
    process: Process,
}

/// Gives a process a record.
async fn register(call: &Call, Body(asked): Body<Register>) -> Result<Json<Registered>, Problem> {
    let named = id(asked.parent.as_deref(), "parent")?;
    let asking = asked.pid.map(|pid| pid.0.into());
    let process = asking.or_else(|| call.requester());
    let process =
        process.ok_or_else(|| Problem::field("pid", "is missing, and nobody is known to ask"))?;
    let tags = Tags {
        kind: asked.r#type.unwrap_or_default(),
        url: asked.url,
        labels: asked.labels.into_iter().collect(),
    };
    let (record, known) = call.processes().register_pid(process, tags, named).await?;
    let process = Process::of(call, record);
    Ok(Json(Registered { known, process }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Finish {
    /// Which.
    id: String,
    /// Its exit code.
    code: Number<u8, 0, 255>,
    /// What it says of it.
    error: Option<String>,
}

async fn finish(call: &Call, Body(asked): Body<Finish>) -> Result<Json<Process>, Problem> {
    let id = which(call, &asked.id).await?;
    let processes = call.processes();
    processes.finish(id, asked.code.0, asked.error).await?;
    Ok(Json(Process::of(
        call,
        call.node.processes().get(id).await?,
    )))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Stop {
    /// Which.
    id: String,
    /// The first signal; as it was launched, if left out.
    signal: Option<Number<u8, 1, { Spec::SIGNAL_MAX as u64 }>>,
    /// Milliseconds until SIGKILL; as it was launched, if left out; 0 kills at once.
    grace_ms: Option<Number<u32, 0, { Spec::GRACE_MS_MAX as u64 }>>,
    /// Whether all that it started is to end, too.
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
    Ok(Json(Process::of(
        call,
        call.processes().stop(id, how).await?,
    )))
}

#[expect(clippy::struct_field_names, reason = "as it is on the wire")]
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Signal {
    /// Which.
    id: String,
    /// The signal.
    signal: Number<u8, 1, { Spec::SIGNAL_MAX as u64 }>,
    /// Whether to its process group.
    #[serde(default)]
    group: bool,
}

async fn signal(call: &Call, Body(asked): Body<Signal>) -> Result<Json<Process>, Problem> {
    let id = which(call, &asked.id).await?;
    call.processes()
        .signal(id, asked.signal.0, asked.group)
        .await?;
    Ok(Json(Process::of(
        call,
        call.node.processes().get(id).await?,
    )))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Awaited {
    /// Which.
    id: String,
    /// Seconds to wait at most.
    #[serde(default)]
    wait: Number<u64, 0, 3600>,
    /// Whether only for the process itself, where its tree is being stopped, or a right is bound to it.
    #[serde(default)]
    leader: bool,
}

async fn wait(call: &Call, Body(asked): Body<Awaited>) -> Result<Json<Process>, Problem> {
    let id = which(call, &asked.id).await?;
    let processes = call.processes();
    if asked.wait.0 > 0 {
        let ended = async {
            if asked.leader {
                processes.leader_ended(id).await
            } else {
                processes.ended(id).await
            }
        };
        let ended = timeout(Duration::from_secs(asked.wait.0), ended);
        if let Ok(ended) = call.wait(ended).await? {
            return Ok(Json(Process::of(call, ended?)));
        }
    }
    Ok(Json(Process::of(call, processes.get(id).await?)))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Prune {
    /// Only those that ended so many milliseconds ago.
    #[serde(default)]
    older_than_ms: Span,
    /// The newest that stay, however old.
    #[serde(default)]
    keep: Number<u32, 0, { u32::MAX as u64 }>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Pruned {
    /// How many were forgotten.
    pruned: u64,
}

async fn prune(call: &Call, Body(asked): Body<Prune>) -> Result<Json<Pruned>, Problem> {
    let before = call.node.date().0.saturating_sub(asked.older_than_ms.0);
    let pruned = call
        .processes()
        .prune(Some(Date(before)), asked.keep.0)
        .await?;
    Ok(Json(Pruned { pruned }))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Keeper {
    /// Its Unix socket.
    socket: String,
}

async fn keeper(call: &Call, (): ()) -> Result<Json<Keeper>, Problem> {
    let socket = call.node.processes().keeper().await?;
    let socket = socket.display().to_string();
    Ok(Json(Keeper { socket }))
}

impl From<ProcessError> for Problem {
    fn from(error: ProcessError) -> Self {
        Self::new(error.reason(), error.to_string())
    }
}
