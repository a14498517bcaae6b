//! The record of a process in answers: its fields in JSON, and the conversion from the actor's view of it. The fields are documented in
//! `docs/protocols/http.md`, "Processes".

use crate::call::Call;
use crate::process_now::{ProcessUsage, Remaining};
use schemars::JsonSchema;
use serde::Serialize;
use sexton::actors::process::{Bound, End, Failure, HookOutput, Leak, Output, RecordView};
use sexton::bytes::Bytes;
use sexton::clock::{Date, Timestamp};
use sexton::handle::{Left, Usage, failure_words};
use sexton::text;
use sexton_api::process::Failed;
use std::collections::BTreeMap;

/// The record of a process.
#[derive(Serialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate JSON member")]
pub(crate) struct Process {
    /// The id of the process, a UUID of version 7.
    id: String,
    /// The parent's id; null if there is no parent or its record was removed.
    parent: Option<String>,
    /// The id of the topmost ancestor, or the process's own id if it has no parent.
    root: String,
    /// The number of ancestors.
    depth: u16,
    r#type: String,
    /// The sequence number of the process among those of its type.
    number: u64,
    /// `queued`, `running`, `stopping` or `exited`.
    status: &'static str,
    /// Whether the process is queued until `/v1/processes/start` launches it.
    deferred: bool,
    /// The PID; null if the process has not started.
    pid: Option<u32>,
    /// The id of the machine on which the process runs or ran, in hexadecimal; null if it has not started.
    machine: Option<String>,
    /// The boot id of that machine, in hexadecimal; null if the process has not started.
    boot: Option<String>,
    /// The program and its arguments. Anything that looks like a secret is masked.
    command: Vec<String>,
    dir: String,
    /// The names of the environment variables that were added to those of the coordinator.
    env: Vec<String>,
    url: Option<String>,
    labels: BTreeMap<String, String>,
    /// The directory of the process's files; null if the coordinator did not launch it.
    run_dir: Option<String>,
    /// The maximum run time in milliseconds; 0 for no limit.
    timeout_ms: u64,
    /// Whether the coordinator launched the process; if not, a client registered it or a hook reported it.
    launched: bool,
    /// Whether the process has its own control group.
    contained: bool,
    queued_at: Timestamp,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    /// The exit code, or 128 plus the signal; null if the process has not ended or could not be started, or if its exit status is unknown.
    code: Option<u8>,
    /// The signal that ended the process; null if no signal did.
    signal: Option<u8>,
    core_dumped: bool,
    /// Why the exit status is unknown: `rebooted`, `keeper-gone`, `not-ours`, `another-machine` or `unknown`; null if it is
    /// known.
    lost: Option<&'static str>,
    /// Why the process could not be started; null unless an attempt to start it failed.
    failure: Option<Failed>,
    /// The error that was reported when the process ended; null if there was none.
    error: Option<String>,
    /// The last status text that the process sent (`STATUS=`); null if it sent none.
    said: Option<String>,
    /// Why the process was or is being stopped: `request`, `timeout`, `not-ready` or `watchdog`; null if it was not.
    stopped_by: Option<&'static str>,
    /// The number of processes in its tree that SIGKILL did not end.
    unkillable: u32,
    /// The number of processes for which it is unknown whether they belong to its tree.
    unknown: u32,
    /// The number of processes of its tree that were still alive after its end.
    alive: u32,
    /// Processor time used by the process and the children it waited for, in milliseconds; null until the process has ended, or if it was
    /// registered.
    cpu_ms: Option<u64>,
    /// Peak memory in bytes; null until the process has ended, or if it was registered.
    memory_max: Option<u64>,
    /// The limit on the memory of the whole process tree; null until the process has ended, or if there was no such limit.
    memory_limit: Option<MemoryLimit>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    /// The processes that still had the output of this process open after it had ended, which is a leak: at most 8 of them. Null if there
    /// were none; empty if there were some, but they could not be identified.
    output_held_by: Option<Vec<Holder>>,
    /// The processes of its tree that are alive although the process itself has ended: at most 16 of them. Only in lists, and where a single
    /// record is read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left: Vec<Remaining>,
    /// Whether the time to wait passed before what was waited for. Only in the answer to a wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    timed_out: Option<bool>,
    /// While it runs: at most 16 of the processes that the kernel shows below it. Only where a single record is read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<Remaining>,
    /// The parsed output of a hook; null until it has been read, or if the process is not a hook.
    hook: Option<Hook>,
    /// Current resource usage; in lists only if requested, and only for a running process.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<ProcessUsage>,
}

/// The limit on the memory of a control group.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MemoryLimit {
    /// The limit in bytes.
    bytes: u64,
    /// Whether the limit was reached, so that processes were killed.
    reached: bool,
}

impl From<Bound> for MemoryLimit {
    fn from(bound: Bound) -> Self {
        Self { bytes: bound.bytes, reached: bound.reached }
    }
}

/// The parsed output of a hook. The processes that it reports become children of the hook.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Hook {
    /// The number of records of type `Process`, each of which reports a process.
    processes: u32,
    /// The number of records of types other than `Process`.
    records_count: u32,
    /// The first records of types other than `Process`: at most 64, and at most 16 KiB in total.
    records: Vec<serde_json::Map<String, serde_json::Value>>,
    /// The number of lines that are not valid records.
    broken: u32,
    /// The first invalid lines, at most 16.
    warnings: Vec<Broken>,
}

/// A line that is not a valid record.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Broken {
    /// The line number, from 1; 0 if the warning is not about a single line.
    line: u32,
    /// What is wrong with the line.
    words: String,
}

impl Hook {
    fn of(found: HookOutput) -> Self {
        let kept = found.kept.iter();
        let warnings = found.warnings.into_iter();
        Self {
            processes: found.children,
            records_count: found.records,
            records: kept.filter_map(|it| serde_json::from_slice(it.as_bytes()).ok()).collect(),
            broken: found.broken,
            warnings: warnings.map(|it| Broken { line: it.line, words: it.words }).collect(),
        }
    }
}

/// A process that has the output of another process open.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Holder {
    /// Its PID when it was found.
    pid: u32,
    /// The name of its program.
    name: String,
}

/// An output stream.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Stream {
    /// The number of bytes written.
    pub(crate) bytes: u64,
    /// The whole output if it has at most 224 bytes, otherwise its first 64 bytes; invalid UTF-8 is replaced by U+FFFD.
    pub(crate) head: String,
    /// The last 160 bytes; empty if `head` is the whole output.
    pub(crate) tail: String,
}

impl From<&Output> for Stream {
    fn from(output: &Output) -> Self {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { bytes: output.bytes, head: shown(output.head()), tail: shown(output.tail()) }
    }
}

impl Process {
    /// Converts a record to its form in an API response.
    pub(crate) fn of(call: &Call, record: RecordView) -> Self {
        let at = |date: Date| Timestamp(date.0);
        let shown = |bytes: &Bytes| text::escaped(bytes.as_bytes());
        let run_dir = call.node.processes().run_dir(&record);
        let run_dir = run_dir.map(|dir| dir.display().to_string());
        let failure = record.failure.as_ref().map(failed);
        let (signal, core_dumped) = signal(record.end);
        let remains = record.remains.filter(|_| record.launched);
        let remains = remains.as_deref();
        Self {
            id: record.id.to_string(),
            parent: record.parent.map(|id| id.to_string()),
            root: record.root.to_string(),
            depth: record.depth,
            r#type: record.kind,
            number: record.number,
            status: record.phase.name(),
            deferred: record.deferred.is_some(),
            pid: record.identity.map(|it| it.pid),
            machine: record.identity.map(|it| format!("{:032x}", it.machine)),
            boot: record.identity.map(|it| format!("{:032x}", it.boot)),
            command: record.argv.iter().map(shown).collect(),
            dir: shown(&record.dir),
            env: record.env,
            url: record.url,
            labels: record.labels.into_iter().collect(),
            run_dir,
            timeout_ms: record.timeout_ms,
            launched: record.launched,
            contained: record.contained,
            queued_at: at(record.queued),
            started_at: record.started.map(at),
            ended_at: record.ended.map(at),
            code: record.end.and_then(End::code),
            signal,
            core_dumped,
            lost: lost(record.end),
            failure,
            error: record.error,
            said: record.said,
            stopped_by: record.stop.map(|stop| stop.cause.name()),
            unkillable: record.stuck.map_or(0, |it| it.unkillable),
            unknown: record.stuck.map_or(0, |it| it.unknown),
            alive: remains.map_or(0, |it| it.alive),
            cpu_ms: remains.map(|it| it.cpu_ms),
            memory_max: remains.map(|it| it.memory_max),
            memory_limit: remains.and_then(|it| it.bound).map(Into::into),
            stdout: remains.map(|it| (&it.stdout).into()),
            stderr: remains.map(|it| (&it.stderr).into()),
            hook: record.found.map(|it| Hook::of(*it)),
            output_held_by: remains.and_then(|it| it.leak.as_deref()).map(held),
            left: Vec::new(),
            timed_out: None,
            children: Vec::new(),
            usage: None,
        }
    }

    /// Adds what the process uses, and what it left alive.
    pub(super) fn with(self, usage: Option<Usage>, left: Vec<Left>) -> Self {
        Self { left: Remaining::of_each(left), usage: usage.map(ProcessUsage::from), ..self }
    }

    /// Adds the processes that the kernel shows below it.
    pub(super) fn with_children(self, below: Vec<Left>) -> Self {
        let children = Remaining::of_each(below);
        Self { children, ..self }
    }

    /// The answer to a wait, with whether what was waited for has happened.
    pub(super) fn waited(self, is_over: bool) -> Self {
        let timed_out = Some(!is_over);
        Self { timed_out, ..self }
    }
}

fn held(leak: &Leak) -> Vec<Holder> {
    let each = leak.holders.iter().map(|it| Holder { pid: it.pid, name: it.name.clone() });
    each.collect()
}

/// Returns the signal that ended a process, and whether it dumped core.
pub(crate) const fn signal(end: Option<End>) -> (Option<u8>, bool) {
    match end {
        Some(End::Signal { signal, dumped }) => (Some(signal), dumped),
        Some(End::Code(_) | End::Lost(_)) | None => (None, false),
    }
}

/// Returns why it is unknown how a process ended, or `None` if it is known or the process has not ended.
pub(crate) const fn lost(end: Option<End>) -> Option<&'static str> {
    match end {
        Some(End::Lost(lost)) => Some(lost.name()),
        Some(End::Code(_) | End::Signal { .. }) | None => None,
    }
}

/// Converts the reason why a process could not be started.
pub(crate) fn failed(failure: &Failure) -> Failed {
    Failed { step: failure.step.name().into(), errno: failure.errno, words: failure_words(failure) }
}
