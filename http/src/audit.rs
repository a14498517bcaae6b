//! Audits over HTTP: checks of whether the actors' states are consistent with each other and with the operating system.

use crate::call::Call;
use crate::problem::Problem;
use crate::route::Route;
use sexton::handle::{Audit, AuditError, Disagreement};
use sexton_api::audit::{self as api, Fix, Look};

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::of(look), Route::of(fix)]
}

async fn look(call: &Call, _: Look) -> Result<api::Audit, Problem> {
    Ok(shown(&call.wait(call.node.audit()).await??))
}

async fn fix(call: &Call, _: Fix) -> Result<api::Audit, Problem> {
    Ok(shown(&call.wait(call.node.audit_and_fix()).await??))
}

fn shown(audit: &Audit) -> api::Audit {
    api::Audit {
        found: audit.found.iter().map(disagreement).collect(),
        left: audit.left.len() as u64,
        tasks: audit.tasks,
        processes: audit.processes,
        whole: audit.whole,
    }
}

fn disagreement((found, fixed): &(Disagreement, bool)) -> api::Disagreement {
    let (task, attempt, process) = found.about();
    api::Disagreement {
        kind: found.kind().into(),
        words: found.to_string(),
        task,
        attempt: attempt.map(|it| it.0),
        process: process.map(|it| it.to_string()),
        fix: found.fix().map(Into::into),
        fixed: *fixed,
    }
}

impl From<AuditError> for Problem {
    fn from(error: AuditError) -> Self {
        Self::new(error.reason(), error.to_string())
    }
}
