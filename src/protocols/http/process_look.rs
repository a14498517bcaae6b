//! Processes over HTTP, read-only: current and past processes, their tree, and the conversion of records to answers. The JSON
//! fields are documented in `docs/protocols/http.md`, "Processes".
//!
//! A long answer is assembled from several queries to the actor, so that other requests are served in between.

use crate::actors::process::{
    Bound, End, Failure, HookOutput, Leak, Output, Phase, Query as ProcessQuery, RecordView,
    Selection,
};
use crate::bytes::Bytes;
use crate::clock::{Date, Timestamp};
use crate::handle::{Left, Usage, failure_words};
use crate::ids::ProcessId;
use crate::protocols::http::call::Call;
use crate::protocols::http::listing::{Listing, Written};
use crate::protocols::http::problem::Problem;
use crate::protocols::http::process_now::{ProcessUsage, Remaining};
use crate::protocols::http::route::{Json, Large, Query, Route, RouteDocs};
use crate::protocols::http::schema::Number;
use crate::protocols::http::scope::Scope;
use crate::refusal::Reason;
use crate::text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub(crate) fn routes() -> Vec<Route> {
    use Reason::{Absent, Failed};
    vec![
        Route::get(
            "/v1/processes",
            Scope::Run,
            list,
            RouteDocs {
                id: "list_processes",
                summary: "List processes, including past ones",
                more: "Long lists are returned in pages, which are not a consistent snapshot. Arguments that look like secrets are masked. Current resource usage is included only with `usage`.",
                answer: "Records, in the order of their ids, which is the order of their creation; with `newest_first`, in reverse order.",
            },
            &[Failed, Reason::Large],
        ),
        Route::get(
            "/v1/processes/count",
            Scope::Run,
            count,
            RouteDocs {
                id: "count_processes",
                summary: "Count processes, including past ones",
                more: "Takes the parameters of `/v1/processes`, except `limit` and `after`.",
                answer: "The number of records.",
            },
            &[Failed],
        ),
        Route::get(
            "/v1/processes/process",
            Scope::Run,
            process,
            RouteDocs {
                id: "process",
                summary: "Get a process",
                more: "The process is identified by its id, or by at least the first eight digits of its id.",
                answer: "The record of the process.",
            },
            &[Absent, Failed],
        ),
        Route::get(
            "/v1/processes/ancestors",
            Scope::Run,
            ancestors,
            RouteDocs {
                id: "ancestors",
                summary: "List the ancestors of a process",
                more: "The parent comes first, the root last.",
                answer: "Records.",
            },
            &[Absent, Failed, Reason::Large],
        ),
        Route::get(
            "/v1/processes/descendants",
            Scope::Run,
            descendants,
            RouteDocs {
                id: "descendants",
                summary: "List the descendants of a process",
                more: "Long lists are returned in pages.",
                answer: "Records, by id.",
            },
            &[Absent, Failed, Reason::Large],
        ),
    ]
}

/// Parses the id in a field; returns `None` if the field is missing or empty.
pub(crate) fn id(text: Option<&str>, field: &str) -> Result<Option<ProcessId>, Problem> {
    let id = text.filter(|text| !text.is_empty()).map(str::parse);
    id.transpose()
        .map_err(|words| Problem::field(field, format!("is not an id: {words}")))
}

/// Returns the id of the process that `text` identifies: a complete id, which is not looked up, or a prefix of the id of one record.
pub(crate) async fn which(call: &Call, text: &str) -> Result<ProcessId, Problem> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    Ok(call.node.processes().find(text).await?.id)
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct One {
    /// The id, or at least its first eight digits.
    id: String,
}

async fn process(call: &Call, Query(asked): Query<One>) -> Result<Json<Process>, Problem> {
    let id = which(call, &asked.id).await?;
    let processes = call.node.processes();
    let record = processes.get(id).await?;
    let only = std::slice::from_ref(&record);
    let left = processes.left(only).await?;
    let left = left.into_iter().next().unwrap_or_default();
    let usage = processes.usage(only).await?.into_iter().next().flatten();
    let below = processes.below(&record).await?;
    Ok(Json(Process {
        left: Remaining::of_each(left),
        children: Remaining::of_each(below),
        usage: usage.map(ProcessUsage::from),
        ..Process::of(call, record)
    }))
}

async fn ancestors(call: &Call, Query(asked): Query<One>) -> Result<Large<Records>, Problem> {
    let id = which(call, &asked.id).await?;
    let page =
        async |_: Option<ProcessId>, _| Ok((call.node.processes().ancestors(id).await?, None));
    Records::gather(call, (None, ProcessQuery::MOST), false, page).await
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct DescendantsQuery {
    /// The id, or at least its first eight digits.
    id: String,
    /// The maximum number of records to return.
    #[serde(default)]
    limit: Number<u32, 1, { ProcessQuery::MOST as u64 }, 1000>,
    /// The `next` of the previous answer, to continue after it.
    after: Option<String>,
}

async fn descendants(
    call: &Call,
    Query(asked): Query<DescendantsQuery>,
) -> Result<Large<Records>, Problem> {
    let of = which(call, &asked.id).await?;
    let from = id(asked.after.as_deref(), "after")?;
    let page = async |after, most| {
        let (records, next) = call.node.processes().descendants(of, after, most).await?;
        Ok((records, next.map(Some)))
    };
    Records::gather(call, (from, asked.limit.0), false, page).await
}

/// The parameters of a list or a count of processes: the filter and, for a list, its order, contents and page.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Filter {
    /// Only processes of this type.
    r#type: Option<String>,
    /// Only processes in these phases, separated by commas: `queued`, `running`, `stopping`, `exited`.
    status: Option<String>,
    /// Only children of this process.
    parent: Option<String>,
    /// Only processes in the tree with this root.
    root: Option<String>,
    /// Only processes with this text in their arguments, URL, labels or type, or in the beginning or end of their output that the record
    /// has. Case is ignored.
    search: Option<String>,
    /// Only processes that have or had this PID. Creates no record.
    pid: Option<Number<u32, 1, { u32::MAX as u64 }>>,
    /// Only processes on one machine: `this` for the coordinator's machine, or the `machine` of a record. Processes that have not started
    /// match every machine.
    machine: Option<String>,
    /// Only processes with this label: `NAME`, or `NAME=VALUE`.
    label: Option<String>,
    /// Whether to list the most recent records first.
    #[serde(default)]
    newest_first: Truth,
    /// Whether to read the current resource usage of running processes.
    #[serde(default)]
    usage: Truth,
    /// The maximum number of records to return.
    #[serde(default)]
    limit: Number<u32, 1, { ProcessQuery::MOST as u64 }, 1000>,
    /// The `next` of the previous answer, to continue after it.
    after: Option<String>,
}

/// A boolean in a query.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Truth {
    True,
    #[default]
    False,
}

impl Filter {
    fn selection(self, call: &Call) -> Result<Selection, Problem> {
        let words = self.status.unwrap_or_default();
        let phase = |word: &str| {
            let found = Phase::ALL.into_iter().find(|phase| phase.name() == word);
            found.ok_or_else(|| {
                Problem::field("status", "must be one of queued, running, stopping, exited")
            })
        };
        let phases = words.split(',').filter(|word| !word.is_empty()).map(phase);
        let label = self.label.map(|label| match label.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (label, None),
        });
        Ok(Selection {
            kind: self.r#type,
            phases: phases.collect::<Result<_, _>>()?,
            parent: id(self.parent.as_deref(), "parent")?,
            root: id(self.root.as_deref(), "root")?,
            text: self.search,
            pid: self.pid.map(|pid| pid.0),
            machine: machine(call, self.machine.as_deref())?,
            label,
            newest_first: self.newest_first == Truth::True,
            after: id(self.after.as_deref(), "after")?,
            most: self.limit.0,
        })
    }
}

/// Parses the machine of a filter; returns `None` if the filter names none.
pub(crate) fn machine(call: &Call, text: Option<&str>) -> Result<Option<u128>, Problem> {
    match text {
        None | Some("") => Ok(None),
        Some("this") => Ok(Some(call.node.processes().machine())),
        Some(digits) => u128::from_str_radix(digits, 16)
            .map(Some)
            .map_err(|_| Problem::field("machine", "must be `this`, or the `machine` of a record")),
    }
}

/// A page of records.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Records {
    processes: Vec<Written<Process>>,
    /// The `after` for the next request, with the same filter; null on the last page.
    next: Option<String>,
}

impl Records {
    async fn gather(
        call: &Call,
        from: (Option<ProcessId>, u32),
        is_used: bool,
        page: impl AsyncFn(
            Option<ProcessId>,
            u32,
        ) -> Result<(Vec<RecordView>, Option<Option<ProcessId>>), Problem>,
    ) -> Result<Large<Self>, Problem> {
        let page = async |after, most| {
            let (records, next) = page(after, most).await?;
            let mut usage = Vec::new();
            if is_used {
                usage = call.node.processes().usage(&records).await?;
            }
            usage.resize(records.len(), None);
            let left = call.node.processes().left(&records).await?;
            let usage = usage.into_iter().zip(left);
            Ok((records.into_iter().zip(usage).collect(), next))
        };
        let show = |(record, (usage, left)): &(RecordView, (Option<Usage>, Vec<Left>))| Process {
            usage: usage.map(ProcessUsage::from),
            left: Remaining::of_each(left.clone()),
            ..Process::of(call, record.clone())
        };
        let listing = Listing::gather(call, from, page, show).await?;
        let (processes, next, place) = listing.in_order();
        let next = next.flatten().map(|id| id.to_string());
        Ok(Large(Self { processes, next }, place))
    }
}

async fn list(call: &Call, Query(filter): Query<Filter>) -> Result<Large<Records>, Problem> {
    let is_used = filter.usage == Truth::True;
    let selection = filter.selection(call)?;
    let from = (selection.after, selection.most);
    let page = async |after, most| {
        let selection = Selection {
            after,
            most,
            ..selection.clone()
        };
        let (records, next) = call.node.processes().list(selection).await?;
        Ok((records, next.map(Some)))
    };
    Records::gather(call, from, is_used, page).await
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Counted {
    /// The number of records.
    count: u64,
}

async fn count(call: &Call, Query(filter): Query<Filter>) -> Result<Json<Counted>, Problem> {
    let selection = filter.selection(call)?;
    let count = call.node.processes().count(selection).await?;
    Ok(Json(Counted { count }))
}

/// The record of a process.
#[derive(Serialize, JsonSchema)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a separate JSON member"
)]
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
        Self {
            bytes: bound.bytes,
            reached: bound.reached,
        }
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
            records: kept
                .filter_map(|it| serde_json::from_slice(it.as_bytes()).ok())
                .collect(),
            broken: found.broken,
            warnings: warnings
                .map(|it| Broken {
                    line: it.line,
                    words: it.words,
                })
                .collect(),
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

/// Why a process could not be started.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Failed {
    /// The step that failed: `keeper`, `files`, `output`, `environment`, `parcel`, `fork`, `group`, `directory`, `user`,
    /// `limits`, `exec`, `abandoned` or `cancelled` (it was stopped while its launch was deferred).
    step: &'static str,
    /// The kernel's error number; 0 if the error is not the kernel's.
    errno: i32,
    /// A description for users.
    words: String,
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
        Self {
            bytes: output.bytes,
            head: shown(output.head()),
            tail: shown(output.tail()),
        }
    }
}

impl Process {
    /// Converts a record to its form in an API response.
    pub(crate) fn of(call: &Call, record: RecordView) -> Self {
        let at = |date: Date| Timestamp(date.0);
        let shown = |bytes: &Bytes| text::escaped(bytes.as_bytes());
        let run_dir = call.node.processes().run_dir(&record);
        let run_dir = run_dir.map(|dir| dir.display().to_string());
        let failure = record.failure.map(Failed::from);
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

    /// The answer to a wait, with whether what was waited for has happened.
    pub(super) fn waited(self, is_over: bool) -> Self {
        let timed_out = Some(!is_over);
        Self { timed_out, ..self }
    }
}

fn held(leak: &Leak) -> Vec<Holder> {
    let each = leak.holders.iter().map(|it| Holder {
        pid: it.pid,
        name: it.name.clone(),
    });
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

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self {
            step: failure.step.name(),
            errno: failure.errno,
            words: failure_words(&failure),
        }
    }
}
