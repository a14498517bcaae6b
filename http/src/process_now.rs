//! Resource usage of processes over HTTP, and reconciliation, which checks whether processes recorded as alive still exist. The JSON
//! fields are documented in `docs/protocols/http.md`, "Processes".
//!
//! Usage and existence are read from the kernel on request.

use crate::call::Call;
use crate::problem::Problem;
use crate::route::{Body, Docs, Json, Route};
use crate::scope::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::handle::{Left, ProcessError, Usage};
use sexton::ids::ProcessId;
use sexton::refusal::Reason;
use sexton_api::value::List;
use std::time::Duration;
use tokio::time::timeout;

/// The maximum number of ids in a request.
const IDS_MAX: usize = 256;

/// The maximum time that a reconciliation waits for the records of exited processes to show how these ended.
const SETTLED: Duration = Duration::from_secs(5);

pub(crate) fn routes() -> Vec<Route> {
    let route = Route::post(
        "/v1/processes/usage",
        Scope::Run,
        usage,
        Docs {
            id: "usage_of_processes",
            summary: "Get the current resource usage of processes",
            more: "The usage is read at the time of the request.",
            answer: "The usage of each process for which it can be read, in the order of the ids.",
        },
        &[Reason::Failed],
    );
    let reconcile = Route::post(
        "/v1/processes/reconcile",
        Scope::Run,
        reconcile,
        Docs {
            id: "reconcile_processes",
            summary: "Check every process recorded as alive",
            more: "Normally not needed, since exits are detected automatically. Answers when the records of processes that have exited show how they ended, or after 5 s.",
            answer: "The number of processes checked, and the number of records changed.",
        },
        &[Reason::Failed],
    );
    vec![route, reconcile]
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Reconciled {
    /// The number of processes recorded as alive, all of which were checked.
    asked: u64,
    /// The number of records that now show an end, or were removed in the meantime.
    changed: u64,
    /// The ids of the processes whose records changed.
    processes: Vec<String>,
    /// The number of processes that have exited but whose end is not recorded yet.
    open: u64,
}

async fn reconcile(call: &Call, (): ()) -> Result<Json<Reconciled>, Problem> {
    let processes = call.node.processes();
    let found = processes.reconcile().await?;
    let ends = async {
        for id in &found.gone {
            // The result is not needed: the loop below reads every record, and handles one that was removed.
            drop(processes.ended(*id).await);
        }
    };
    // The keeper may be about to report how these processes ended. Those not reported in time are counted as `open`.
    let _ = timeout(SETTLED, ends).await;
    let mut changed = Vec::new();
    let mut open = 0;
    for id in found.gone {
        match processes.get(id).await {
            Ok(record) if record.end.is_none() => open += 1,
            Ok(_) | Err(ProcessError::Refused(_)) => changed.push(id.to_string()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Json(Reconciled {
        asked: found.asked,
        changed: changed.len() as u64,
        processes: changed,
        open,
    }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct UsageQuery {
    /// The ids of the processes, at most 256.
    ids: List<String, IDS_MAX>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct OfEach {
    usage: Vec<OfOne>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct OfOne {
    /// The id of the record.
    id: String,
    #[serde(flatten)]
    usage: ProcessUsage,
}

/// The current resource usage of a process.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ProcessUsage {
    /// Processor time used so far, in milliseconds.
    cpu_ms: u64,
    /// That time as a percentage of the time since the process started: 100 is one processor, all the time.
    cpu_percent: f64,
    /// Memory in use, in bytes.
    memory_bytes: u64,
    /// Virtual memory of the process alone, in bytes; null if it cannot be read.
    virtual_bytes: Option<u64>,
    /// The extent of the values: `process` for the process alone, or `group` for its control group.
    of: &'static str,
}

impl From<Usage> for ProcessUsage {
    fn from(usage: Usage) -> Self {
        Self {
            cpu_ms: usage.cpu_ms,
            cpu_percent: usage.cpu_percent(),
            memory_bytes: usage.memory_bytes,
            virtual_bytes: usage.virtual_bytes,
            of: if usage.is_of_group { "group" } else { "process" },
        }
    }
}

async fn usage(call: &Call, Body(asked): Body<UsageQuery>) -> Result<Json<OfEach>, Problem> {
    let ids = asked.ids.0.iter().map(|text| text.parse());
    let ids: Result<Vec<ProcessId>, _> = ids.collect();
    let ids = ids.map_err(|words| Problem::field("ids", words))?;
    let processes = call.node.processes();
    let records = processes.each(&ids).await?;
    let read = processes.usage(&records).await?;
    let each = records.into_iter().zip(read);
    let usage = each.filter_map(|(record, usage)| {
        Some(OfOne { id: record.id.to_string(), usage: usage?.into() })
    });
    let usage = usage.collect();
    Ok(Json(OfEach { usage }))
}

/// A process that is alive after the one that it descends from has ended.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Remaining {
    /// Its PID when it was found.
    pid: u32,
    /// Its command line, with secrets masked.
    command: String,
}

impl Remaining {
    pub(super) fn of_each(left: Vec<Left>) -> Vec<Self> {
        let each = left.into_iter();
        each.map(|Left { pid, command }| Self { pid, command }).collect()
    }
}
