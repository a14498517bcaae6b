//! The list of problems.

use crate::call::Call;
use crate::operate;
use crate::problem::Problem;
use crate::route::{Json, Route, RouteDocs};
use crate::scope::Scope;
use schemars::JsonSchema;
use serde::Serialize;
use sexton::handle::TroubleError;
use sexton::refusal::Reason;
use sexton::status::NodeStatus;
use sexton::trouble::Trouble;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get(
        "/v1/trouble",
        Scope::Read,
        list,
        RouteDocs {
            id: "list_troubles",
            summary: "List everything that is wrong",
            more: "The same problems as on the page, in `sexton status` and in `sexton top`. Items are listed one by one up to a number, and counted beyond it, so the list stays short however many there are. Problems of processes and services are included only for callers with the scope `run`.",
            answer: "The problems, the worst first.",
        },
        &[Reason::Busy, Reason::Failed],
    )]
}

/// The problems of the coordinator.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Troubles {
    /// The problems, the worst first; empty if all is well.
    troubles: Vec<TroubleView>,
    /// Whether problems of processes and services are left out, because the caller does not have the scope `run`.
    processes_hidden: bool,
}

/// A problem.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Trouble")]
pub(crate) struct TroubleView {
    /// The kind, for programs. Kinds may be added, but none is renamed.
    kind: &'static str,
    /// `bad` if something does not work; `warn` if it works but needs attention.
    level: &'static str,
    /// A title of a few words.
    title: &'static str,
    /// A description for users, which says what to do where that is known.
    words: String,
    /// The name of the lease or service, or the id of the process, that the problem is about; null if it is about none or several.
    subject: Option<String>,
}

impl TroubleView {
    fn of(trouble: &Trouble) -> Self {
        let name = trouble.subject().and_then(|it| Some(it.name()?.into_owned()));
        Self {
            kind: trouble.kind.name(),
            level: trouble.kind.level().name(),
            title: trouble.kind.title(),
            words: trouble.to_string(),
            subject: name,
        }
    }
}

impl From<TroubleError> for Problem {
    fn from(error: TroubleError) -> Self {
        Self::new(error.reason(), error.to_string())
    }
}

/// Returns the problems that the caller may see.
pub(crate) async fn all(call: &Call, status: &NodeStatus) -> Result<Vec<Trouble>, Problem> {
    Ok(call.node.troubles_of(status, call.may_run()).await?)
}

async fn list(call: &Call, (): ()) -> Result<Json<Troubles>, Problem> {
    let status = operate::ask(&call.node).await?;
    let troubles = all(call, &status).await?;
    Ok(Json(Troubles {
        troubles: troubles.iter().map(TroubleView::of).collect(),
        processes_hidden: !call.may_run(),
    }))
}
