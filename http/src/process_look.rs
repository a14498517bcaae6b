//! Processes over HTTP, read-only: current and past processes, and their tree.
//!
//! A long answer is assembled from several queries to the actor, so that other requests are served in between.

use crate::call::Call;
use crate::listing::{Listing, Written};
use crate::problem::Problem;
use crate::process_shown::Process;
use crate::route::{Docs, Json, Large, Query, Route};
use crate::scope::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::actors::process::{Phase, Query as ProcessQuery, RecordView, Selection};
use sexton::handle::{Left, Usage};
use sexton::ids::ProcessId;
use sexton::refusal::Reason;
use sexton_api::value::Number;

pub(crate) fn routes() -> Vec<Route> {
    use Reason::{Absent, Failed};
    vec![
        Route::get(
            "/v1/processes",
            Scope::Run,
            list,
            Docs {
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
            Docs {
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
            Docs {
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
            Docs {
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
            Docs {
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
    id.transpose().map_err(|words| Problem::field(field, format!("is not an id: {words}")))
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
    let process = Process::of(call, record).with(usage, left);
    Ok(Json(process.with_children(below)))
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
        let show = |(record, (usage, left)): &(RecordView, (Option<Usage>, Vec<Left>))| {
            Process::of(call, record.clone()).with(*usage, left.clone())
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
        let selection = Selection { after, most, ..selection.clone() };
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
