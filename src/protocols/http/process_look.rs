//! Processes over HTTP, what only looks: which there are and were, their tree, and records as answers. The members are those of
//! `docs/protocols/http.md`, "Processes".
//!
//! Never here: a walk over all there is in one turn of the actor. Long answers are put together of shares.

use crate::actors::process::{
    Bound, End, Failure, Found, Leak, Output, Phase, Query as Asked, RecordView, Selection,
};
use crate::bytes::Bytes;
use crate::clock::{Date, Timestamp};
use crate::handle::{Usage, failure_words};
use crate::ids::ProcessId;
use crate::protocols::http::access::Scope;
use crate::protocols::http::call::Call;
use crate::protocols::http::listing::{Listing, Written};
use crate::protocols::http::problem::Problem;
use crate::protocols::http::process_now::ProcessUsage;
use crate::protocols::http::route::{Json, Large, Query, Route, Words};
use crate::protocols::http::schema::Number;
use crate::refusal::Reason;
use crate::text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub(crate) fn routes() -> Vec<Route> {
    use Reason::{Absent, Failed};
    let all = vec![
        Route::get(
            "/v1/processes",
            list,
            Words {
                id: "list_processes",
                summary: "Which processes there are, and were",
                more: "Many are walked page by page, and are no picture of one moment. Arguments that look like secrets are masked. What processes use is read only if it is asked for.",
                answer: "Records, by id, which is by when they were made.",
            },
            &[Failed, Reason::Large],
        ),
        Route::get(
            "/v1/processes/count",
            count,
            Words {
                id: "count_processes",
                summary: "How many processes there are, and were",
                more: "Takes what `/v1/processes` takes, but for `limit` and `after`.",
                answer: "How many.",
            },
            &[Failed],
        ),
        Route::get(
            "/v1/processes/process",
            process,
            Words {
                id: "process",
                summary: "One process",
                more: "By its id, or the first eight or more digits of it.",
                answer: "Its record.",
            },
            &[Absent, Failed],
        ),
        Route::get(
            "/v1/processes/ancestors",
            ancestors,
            Words {
                id: "ancestors",
                summary: "What stands above a process",
                more: "Its parent first, its root last.",
                answer: "Records.",
            },
            &[Absent, Failed, Reason::Large],
        ),
        Route::get(
            "/v1/processes/descendants",
            descendants,
            Words {
                id: "descendants",
                summary: "What stands below a process",
                more: "Many are walked page by page.",
                answer: "Records, by id.",
            },
            &[Absent, Failed, Reason::Large],
        ),
    ];
    all.into_iter()
        .map(|route| route.with_scope(Scope::Run))
        .collect()
}

/// The id that a field has, if it has one.
pub(crate) fn id(text: Option<&str>, field: &str) -> Result<Option<ProcessId>, Problem> {
    let id = text.filter(|text| !text.is_empty()).map(str::parse);
    id.transpose()
        .map_err(|words| Problem::field(field, format!("is no id: {words}")))
}

/// The process of an id, or of the beginning of one.
pub(crate) async fn which(call: &Call, text: &str) -> Result<ProcessId, Problem> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    Ok(call.node.processes().find(text).await?.id)
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct One {
    /// Its id, or the first eight or more digits of it.
    id: String,
}

async fn process(call: &Call, Query(asked): Query<One>) -> Result<Json<Process>, Problem> {
    let id = which(call, &asked.id).await?;
    Ok(Json(Process::of(
        call,
        call.node.processes().get(id).await?,
    )))
}

async fn ancestors(call: &Call, Query(asked): Query<One>) -> Result<Large<Records>, Problem> {
    let id = which(call, &asked.id).await?;
    let page =
        async |_: Option<ProcessId>, _| Ok((call.node.processes().ancestors(id).await?, None));
    Records::gather(call, (None, Asked::MOST), false, page).await
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Below {
    /// Its id, or the first eight or more digits of it.
    id: String,
    /// The most records to answer.
    #[serde(default)]
    limit: Number<u32, 1, { Asked::MOST as u64 }, 1000>,
    /// Where to go on: `next` of the answer before.
    after: Option<String>,
}

async fn descendants(call: &Call, Query(asked): Query<Below>) -> Result<Large<Records>, Problem> {
    let of = which(call, &asked.id).await?;
    let from = id(asked.after.as_deref(), "after")?;
    let page = async |after, most| {
        let (records, next) = call.node.processes().descendants(of, after, most).await?;
        Ok((records, next.map(Some)))
    };
    Records::gather(call, (from, asked.limit.0), false, page).await
}

/// Which records are meant.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Filter {
    /// Only of this type.
    r#type: Option<String>,
    /// Only in these phases, with commas between them: `queued`, `running`, `stopping`, `exited`.
    status: Option<String>,
    /// Only children of this one.
    parent: Option<String>,
    /// Only of the tree of this root.
    root: Option<String>,
    /// Only with this text in arguments, URL, labels or type.
    search: Option<String>,
    /// Only with this label: `NAME`, or `NAME=VALUE`.
    label: Option<String>,
    /// Whether the newest come first.
    #[serde(default)]
    newest_first: Truth,
    /// Whether to read what those that run use now.
    #[serde(default)]
    usage: Truth,
    /// The most records to answer.
    #[serde(default)]
    limit: Number<u32, 1, { Asked::MOST as u64 }, 1000>,
    /// Where to go on: `next` of the answer before.
    after: Option<String>,
}

/// A truth in a query.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Truth {
    True,
    #[default]
    False,
}

impl Filter {
    fn selection(self) -> Result<Selection, Problem> {
        let words = self.status.unwrap_or_default();
        let phase = |word: &str| {
            let found = Phase::ALL.into_iter().find(|phase| phase.name() == word);
            found.ok_or_else(|| {
                Problem::field("status", "is none of queued, running, stopping, exited")
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
            machine: None,
            label,
            newest_first: self.newest_first == Truth::True,
            after: id(self.after.as_deref(), "after")?,
            most: self.limit.0,
        })
    }
}

/// Some records.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Records {
    processes: Vec<Written<Process>>,
    /// What `after` of the next request is, with the same filter; null after the last.
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
            Ok((records.into_iter().zip(usage).collect(), next))
        };
        let show = |(record, usage): &(RecordView, Option<Usage>)| Process {
            usage: usage.map(ProcessUsage::from),
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
    let selection = filter.selection()?;
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
    /// How many.
    count: u64,
}

async fn count(call: &Call, Query(filter): Query<Filter>) -> Result<Json<Counted>, Problem> {
    let count = call.node.processes().count(filter.selection()?).await?;
    Ok(Json(Counted { count }))
}

/// A process, as its record has it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Process {
    /// Its id, a UUID of version 7.
    id: String,
    /// Its parent; null if it has none, or none any more.
    parent: Option<String>,
    /// The topmost above it; itself if it has no parent.
    root: String,
    /// How many were above it.
    depth: u16,
    r#type: String,
    /// Its number among those of its type.
    number: u64,
    /// `queued`, `running`, `stopping` or `exited`.
    status: &'static str,
    /// Its PID; null if it never ran.
    pid: Option<u32>,
    /// The program and its arguments. What looks like a secret is masked.
    command: Vec<String>,
    dir: String,
    /// Names of what its environment has beside that of the coordinator.
    env: Vec<String>,
    url: Option<String>,
    labels: BTreeMap<String, String>,
    /// Where its files are; null if it was not launched here.
    run_dir: Option<String>,
    /// Milliseconds that it may run; 0 for ever.
    timeout_ms: u64,
    /// Whether it was launched here; else it was registered.
    launched: bool,
    /// Whether it has a control group of its own.
    contained: bool,
    queued_at: Timestamp,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    /// Its exit code, or 128 and the signal; null if it has not ended, or nobody can know how.
    code: Option<u8>,
    /// The signal that ended it.
    signal: Option<u8>,
    core_dumped: bool,
    /// Why nobody can know how it ended: `rebooted`, `keeper-gone`, `not-ours` or `unknown`.
    lost: Option<&'static str>,
    /// Why it could not be started.
    failure: Option<Failed>,
    /// What it said of its end.
    error: Option<String>,
    /// What it says that it does (`STATUS=`).
    said: Option<String>,
    /// Why it is being stopped, or was: `request`, `timeout`, `not-ready` or `watchdog`.
    stopped_by: Option<&'static str>,
    /// Processes that SIGKILL did not end.
    unkillable: u32,
    /// Processes of which nobody can say whether they belong to it.
    unknown: u32,
    /// Processes that it started and that outlived it.
    alive: u32,
    /// Milliseconds of processor time.
    cpu_ms: Option<u64>,
    /// The most memory at once.
    memory_max: Option<u64>,
    /// Once it has ended, how the memory of its tree was bounded; null if at most that of each process was.
    memory_limit: Option<MemoryLimit>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    /// Who had its output open when it had ended: a leak. Null if nobody had; empty if it is not known who.
    output_held_by: Option<Vec<Holder>>,
    /// Of a hook, what is in its output, once it has been read.
    hook: Option<Hook>,
    /// What it uses now; only there if that was asked for, and of one that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<ProcessUsage>,
}

/// How the memory of all in a control group was bounded.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MemoryLimit {
    /// The most that they could have together.
    bytes: u64,
    /// Whether they reached it, and were killed.
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

/// What is in the output of a hook. The processes in it are its children.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Hook {
    /// How many processes.
    processes: u32,
    /// How many records of other types.
    records_count: u32,
    /// The first of those, as far as there is room.
    records: Vec<serde_json::Map<String, serde_json::Value>>,
    /// How many lines should be records and are none.
    broken: u32,
    /// The first of those.
    warnings: Vec<Broken>,
}

/// A line that should be a record and is none.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Broken {
    /// Which, from 1; 0 if it is about no line.
    line: u32,
    /// What is wrong with it.
    words: String,
}

impl Hook {
    fn of(found: Found) -> Self {
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

/// A process that has output of another open.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Holder {
    /// Its PID then.
    pid: u32,
    /// The name of its program.
    name: String,
}

/// Why a process could not be started.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Failed {
    /// Where: `keeper`, `files`, `output`, `environment`, `parcel`, `fork`, `group`, `directory`, `user`, `limits`, `exec` or `abandoned`.
    step: &'static str,
    /// The error of the kernel; 0 if it was none of its.
    errno: i32,
    /// The same in words.
    words: String,
}

/// A stream of output.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Stream {
    /// Bytes written.
    pub(crate) bytes: u64,
    /// The first of them; what is no UTF-8 is replaced by U+FFFD.
    pub(crate) head: String,
    /// The last of them, if there are more.
    pub(crate) tail: String,
}

impl From<Output> for Stream {
    fn from(output: Output) -> Self {
        let shown = |bytes: &Bytes| String::from_utf8_lossy(bytes.as_bytes()).into_owned();
        Self {
            bytes: output.bytes,
            head: shown(&output.head),
            tail: shown(&output.tail),
        }
    }
}

impl Process {
    /// A record, as it is shown.
    pub(crate) fn of(call: &Call, record: RecordView) -> Self {
        let at = |date: Date| Timestamp(date.0);
        let shown = |bytes: &Bytes| text::escaped(bytes.as_bytes());
        let run_dir = call.node.processes().run_dir(&record);
        let run_dir = run_dir.map(|dir| dir.display().to_string());
        let failure = record.failure.map(Failed::from);
        let (signal, core_dumped) = signal(record.end);
        let remains = record.remains.filter(|_| record.launched);
        let remains = remains.map(|it| *it);
        Self {
            id: record.id.to_string(),
            parent: record.parent.map(|id| id.to_string()),
            root: record.root.to_string(),
            depth: record.depth,
            r#type: record.kind,
            number: record.number,
            status: record.phase.name(),
            pid: record.identity.map(|it| it.pid),
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
            alive: remains.as_ref().map_or(0, |it| it.alive),
            cpu_ms: remains.as_ref().map(|it| it.cpu_ms),
            memory_max: remains.as_ref().map(|it| it.memory_max),
            memory_limit: remains.as_ref().and_then(|it| it.bound).map(Into::into),
            stdout: remains.clone().map(|it| it.stdout.into()),
            stderr: remains.clone().map(|it| it.stderr.into()),
            hook: record.found.map(|it| Hook::of(*it)),
            output_held_by: remains.and_then(|it| it.leak).map(held),
            usage: None,
        }
    }
}

fn held(leak: Leak) -> Vec<Holder> {
    let holders = leak.holders.into_iter();
    let each = holders.map(|it| Holder {
        pid: it.pid,
        name: it.name,
    });
    each.collect()
}

/// The signal that ended a process, and whether its memory was written to a file.
pub(crate) const fn signal(end: Option<End>) -> (Option<u8>, bool) {
    match end {
        Some(End::Signal { signal, dumped }) => (Some(signal), dumped),
        Some(End::Code(_) | End::Lost(_)) | None => (None, false),
    }
}

/// Why nobody can know how a process ended.
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
