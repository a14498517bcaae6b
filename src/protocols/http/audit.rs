//! An audit over HTTP: whether what the actors hold agrees, and with what the machine shows.

use crate::handle::{Audit, AuditError, Disagreement};
use crate::protocols::http::access::Scope;
use crate::protocols::http::call::Call;
use crate::protocols::http::problem::Problem;
use crate::protocols::http::route::{Json, Route, Words};
use crate::refusal::Reason;
use schemars::JsonSchema;
use serde::Serialize;

pub(crate) fn routes() -> Vec<Route> {
    let refusals = [Reason::Waits, Reason::Failed];
    let look = Route::get(
        "/v1/audit",
        look,
        Words {
            id: "audit",
            summary: "Whether tasks, processes, locks, servers and claims agree",
            more: "Compares what the actors hold with each other and with what the machine shows, and changes nothing. Where all agrees it answers in milliseconds. What does not agree is looked at again for up to 4 s, and told if it is so each time.",
            answer: "What does not agree; usually nothing.",
        },
        &refusals,
    );
    let mend = Route::post(
        "/v1/audit/fix",
        Scope::Run,
        mend,
        Words {
            id: "fix_by_audit",
            summary: "The same, and do what an event would have done",
            more: "An actor is told an end again, a lock is given back, a process that nobody knows of is stopped. Then it is looked once more.",
            answer: "What did not agree, what was done about it, and what is left.",
        },
        &refusals,
    );
    vec![look, mend.with_scope(Scope::Run)]
}

/// What came of an audit.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Audit")]
pub(crate) struct Audited {
    /// What did not agree.
    found: Vec<Found>,
    /// How much does not agree now.
    left: u64,
    /// Tasks under way that were looked at.
    tasks: u64,
    /// Processes that were looked for, since they are said to live.
    processes: u64,
    /// Whether counts could be compared: they are not where more than 100,000 tasks are under way.
    whole: bool,
}

/// Something that does not agree.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Disagreement")]
pub(crate) struct Found {
    /// `status`, `late`, `unlocked`, `unlaunched`, `unended`, `no-server`, `lock-missing`, `lock-left`, `unattended`, `threads`, `group`, `work-twice`, `gone`, `stranger` or `bound`.
    kind: &'static str,
    /// What it is, in words.
    words: String,
    /// The task that it is about, if it is about one.
    task: Option<u64>,
    /// The fencing token of its attempt.
    attempt: Option<u64>,
    /// The process that it is about.
    process: Option<String>,
    /// What `POST /v1/audit/fix` does about it, in words; null if nothing.
    fix: Option<&'static str>,
    /// Whether that was done.
    fixed: bool,
}

impl Found {
    fn of((found, fixed): &(Disagreement, bool)) -> Self {
        let (task, attempt, process) = found.about();
        Self {
            kind: found.kind(),
            words: found.to_string(),
            task,
            attempt: attempt.map(|it| it.0),
            process: process.map(|it| it.to_string()),
            fix: found.mend(),
            fixed: *fixed,
        }
    }
}

impl From<Audit> for Audited {
    fn from(audit: Audit) -> Self {
        Self {
            found: audit.found.iter().map(Found::of).collect(),
            left: audit.left.len() as u64,
            tasks: audit.tasks,
            processes: audit.processes,
            whole: audit.whole,
        }
    }
}

impl From<AuditError> for Problem {
    fn from(error: AuditError) -> Self {
        Self::new(error.reason(), error.to_string())
    }
}

async fn look(call: &Call, (): ()) -> Result<Json<Audited>, Problem> {
    let audit = call.wait(call.node.audit()).await??;
    Ok(Json(audit.into()))
}

async fn mend(call: &Call, (): ()) -> Result<Json<Audited>, Problem> {
    let audit = call.wait(call.node.audit_and_mend()).await??;
    Ok(Json(audit.into()))
}
