//! Audits over HTTP: checks of whether the actors' states are consistent with each other and with the operating system.

use crate::call::Call;
use crate::problem::Problem;
use crate::route::{Json, Route, RouteDocs};
use crate::scope::Scope;
use schemars::JsonSchema;
use serde::Serialize;
use sexton::handle::{Audit, AuditError, Disagreement};
use sexton::refusal::Reason;

pub(crate) fn routes() -> Vec<Route> {
    let refusals = [Reason::Waits, Reason::Failed];
    let look = Route::get(
        "/v1/audit",
        Scope::Read,
        look,
        RouteDocs {
            id: "audit",
            summary: "Check that tasks, processes, locks, servers and claims agree",
            more: "Compares the states of the actors with each other and with the processes of the operating system, and changes nothing. The answer takes milliseconds if everything agrees. Otherwise the check is repeated for up to 4 s, and only disagreements found every time are reported.",
            answer: "The disagreements; usually none.",
        },
        &refusals,
    );
    let fix = Route::post(
        "/v1/audit/fix",
        Scope::Run,
        fix,
        RouteDocs {
            id: "fix_by_audit",
            summary: "Audit, and fix the disagreements",
            more: "For each disagreement that can be fixed automatically, does what a lost event would have done: repeats a request or a notification between actors, requests or releases a lock, or stops a process whose task attempt is over. Then audits again.",
            answer: "The disagreements, whether and how each was fixed, and how many are left.",
        },
        &refusals,
    );
    vec![look, fix]
}

/// The result of an audit.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Audit")]
pub(crate) struct Audited {
    /// The disagreements found.
    found: Vec<DisagreementView>,
    /// The number of disagreements that remain; all of them if the audit only checks.
    left: u64,
    /// The number of tasks examined: those that are in progress or have unanswered requests to other actors.
    tasks: u64,
    /// The number of processes recorded as alive that were examined.
    processes: u64,
    /// Whether the counts of used threads and of tasks per group were compared. False if more than 100,000 tasks are under way.
    whole: bool,
}

/// A disagreement between two actors, or between an actor and the operating system.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Disagreement")]
pub(crate) struct DisagreementView {
    /// The kind: `status`, `late`, `unlocked`, `unlaunched`, `unended`, `no-server`, `lock-missing`, `lock-left`, `unattended`, `threads`,
    /// `group`, `work-twice`, `gone`, `stranger` or `bound`.
    kind: &'static str,
    /// A description for users.
    words: String,
    /// The task concerned; null if there is none.
    task: Option<u64>,
    /// The fencing token of the attempt concerned; null if there is none.
    attempt: Option<u64>,
    /// The id of the process concerned; null if there is none.
    process: Option<String>,
    /// How `POST /v1/audit/fix` fixes the disagreement; null if it cannot be fixed automatically.
    fix: Option<&'static str>,
    /// Whether the disagreement was fixed: a fix was applied, and the audit after it did not find the disagreement again.
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
            fix: found.fix(),
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

async fn fix(call: &Call, (): ()) -> Result<Json<Audited>, Problem> {
    let audit = call.wait(call.node.audit_and_fix()).await??;
    Ok(Json(audit.into()))
}
