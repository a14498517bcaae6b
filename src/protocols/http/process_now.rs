//! What processes use, and whether they are still there, over HTTP. The members are those of `docs/protocols/http.md`, "Processes".
//!
//! Never here: a look that nobody asked for.

use crate::handle::{ProcessError, Usage};
use crate::ids::ProcessId;
use crate::protocols::http::access::Scope;
use crate::protocols::http::call::Call;
use crate::protocols::http::problem::Problem;
use crate::protocols::http::route::{Body, Json, Route, Words};
use crate::protocols::http::schema::List;
use crate::refusal::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::timeout;

/// The most processes that are asked about at once.
const IDS_MAX: usize = 256;

/// How long it may take until the records of those that are gone say how they ended.
const SETTLED: Duration = Duration::from_secs(5);

pub(crate) fn routes() -> Vec<Route> {
    let route = Route::post(
        "/v1/processes/usage",
        Scope::Run,
        usage,
        Words {
            id: "usage_of_processes",
            summary: "What processes use now",
            more: "It is read when it is asked for, and never otherwise.",
            answer: "What can be read, in the order of the ids.",
        },
        &[Reason::Failed],
    );
    let reconcile = Route::post(
        "/v1/processes/reconcile",
        Scope::Run,
        reconcile,
        Words {
            id: "reconcile_processes",
            summary: "Look again for every process that is said to live",
            more: "That is seen by itself, too; who does not trust it asks here. Answers when the records of those that are gone say how they ended, at most 5 s later.",
            answer: "How many were looked for, and how many records changed.",
        },
        &[Reason::Failed],
    );
    let all = vec![route, reconcile];
    all.into_iter()
        .map(|route| route.with_scope(Scope::Run))
        .collect()
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Reconciled {
    /// How many were said to live.
    asked: u64,
    /// Of how many the record says by now that they have ended.
    changed: u64,
    /// Of those, the processes.
    processes: Vec<String>,
    /// How many are gone without anybody knowing yet how they ended.
    open: u64,
}

async fn reconcile(call: &Call, (): ()) -> Result<Json<Reconciled>, Problem> {
    let processes = call.node.processes();
    let found = processes.reconcile().await?;
    let ends = async {
        for id in &found.gone {
            // One that is no longer there has ended, too; of the others it is looked at below.
            drop(processes.ended(*id).await);
        }
    };
    // The keeper may have something to say of them yet.
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
pub(crate) struct UsageAsked {
    /// Ids of records.
    ids: List<String, IDS_MAX>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct OfEach {
    usage: Vec<OfOne>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct OfOne {
    /// The record.
    id: String,
    #[serde(flatten)]
    usage: ProcessUsage,
}

/// What a process uses now.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ProcessUsage {
    /// Milliseconds of processor time since it began.
    cpu_ms: u64,
    /// Bytes of memory.
    memory_bytes: u64,
    /// Whose: `process`, of that alone, or `group`, of all in its control group.
    of: &'static str,
}

impl From<Usage> for ProcessUsage {
    fn from(usage: Usage) -> Self {
        Self {
            cpu_ms: usage.cpu_ms,
            memory_bytes: usage.memory_bytes,
            of: if usage.is_of_group {
                "group"
            } else {
                "process"
            },
        }
    }
}

async fn usage(call: &Call, Body(asked): Body<UsageAsked>) -> Result<Json<OfEach>, Problem> {
    let ids = asked.ids.0.iter().map(|text| text.parse());
    let ids: Result<Vec<ProcessId>, _> = ids.collect();
    let ids = ids.map_err(|words| Problem::field("ids", words))?;
    let processes = call.node.processes();
    let records = processes.each(&ids).await?;
    let read = processes.usage(&records).await?;
    let each = records.into_iter().zip(read);
    let usage = each.filter_map(|(record, usage)| {
        Some(OfOne {
            id: record.id.to_string(),
            usage: usage?.into(),
        })
    });
    let usage = usage.collect();
    Ok(Json(OfEach { usage }))
}
