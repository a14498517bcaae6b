//! Audits over HTTP: whether the actors agree with each other and with the machine.

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
            more: "Compares what the actors hold with each other and with what the machine shows, and changes nothing. If all agree, it answers in milliseconds. Otherwise it checks again for up to 4 s, and reports what disagrees every time.",
            answer: "The disagreements; usually none.",
        },
        &refusals,
    );
    let mend = Route::post(
        "/v1/audit/fix",
        Scope::Run,
        mend,
        Words {
            id: "fix_by_audit",
            summary: "Audit, and fix what disagrees",
            more: "Does what a lost event would have done: notifies an actor of an end again, releases a lock, stops a process without a record. Then audits once more.",
            answer: "The disagreements, what was done about them, and how many are left.",
        },
        &refusals,
    );
    vec![look, mend.with_scope(Scope::Run)]
}

/// The result of an audit.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Audit")]
pub(crate) struct Audited {
    /// The disagreements found.
    found: Vec<DisagreementView>,
    /// The number of disagreements left.
    left: u64,
    /// The number of tasks under way that were examined.
    tasks: u64,
    /// The number of processes recorded as alive that were looked for.
    processes: u64,
    /// Whether counts could be compared, which they are not if more than 100,000 tasks are under way.
    whole: bool,
}

/// A disagreement.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Disagreement")]
pub(crate) struct DisagreementView {
    /// `status`, `late`, `unlocked`, `unlaunched`, `unended`, `no-server`, `lock-missing`, `lock-left`, `unattended`, `threads`, `group`, `work-twice`, `gone`, `stranger` or `bound`.
    kind: &'static str,
    /// A description for users.
    words: String,
    /// The task concerned, if there is one.
    task: Option<u64>,
    /// The fencing token of the attempt concerned.
    attempt: Option<u64>,
    /// The process concerned.
    process: Option<String>,
    /// What `POST /v1/audit/fix` does about it; null if nothing.
    fix: Option<&'static str>,
    /// Whether it has been fixed: something was done about it, and the audit after that did not find it again.
    fixed: bool,
}

impl DisagreementView {
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
            found: audit.found.iter().map(DisagreementView::of).collect(),
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
