//! The list of problems.

use crate::call::Call;
use crate::operate;
use crate::problem::Problem;
use crate::route::Route;
use sexton::handle::TroubleError;
use sexton::status::NodeStatus;
use sexton::trouble::Trouble;
use sexton_api::trouble::{self as api, ListTroubles, Troubles};

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::of(list)]
}

fn shown(trouble: &Trouble) -> api::Trouble {
    api::Trouble {
        kind: trouble.kind.name().into(),
        level: trouble.kind.level(),
        title: trouble.kind.title().into(),
        words: trouble.to_string(),
        subject: trouble.subject().and_then(|it| Some(it.name()?.into_owned())),
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

async fn list(call: &Call, _: ListTroubles) -> Result<Troubles, Problem> {
    let status = operate::ask(&call.node).await?;
    let troubles = all(call, &status).await?;
    let troubles = troubles.iter().map(shown).collect();
    Ok(Troubles { troubles, processes_hidden: !call.may_run() })
}
