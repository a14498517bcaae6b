//! The list of problems of a coordinator, which the page, the metric `sexton_troubles`, `sexton status` and `sexton top` show as well.

use crate::refusal::Reason;
use crate::request::{Docs, Request, Route, Scope};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Lists everything that is wrong.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ListTroubles {}

impl Request for ListTroubles {
    type Answer = Troubles;

    const ROUTE: Route = Route::get(
        "/v1/trouble",
        Scope::Read,
        Docs {
            id: "list_troubles",
            summary: "List everything that is wrong",
            more: "The same problems as on the page, in `sexton status` and in `sexton top`. Items are listed one by one up to a number, and counted beyond it, so the list stays short however many there are. Problems of processes and services are included only for callers with the scope `run`.",
            answer: "The problems, the worst first.",
        },
        &[Reason::Busy, Reason::Failed],
    );
}

/// The problems of a coordinator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Troubles {
    /// The problems, the worst first; empty if all is well.
    pub troubles: Vec<Trouble>,
    /// Whether problems of processes and services are left out, because the caller does not have the scope `run`.
    pub processes_hidden: bool,
}

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Trouble {
    /// The kind, for programs. Kinds may be added, but none is renamed.
    pub kind: Cow<'static, str>,
    /// `bad` if something does not work; `warn` if it works but needs attention.
    #[cfg_attr(feature = "schemas", schemars(with = "String"))]
    pub level: Level,
    /// A title of a few words.
    pub title: Cow<'static, str>,
    /// A description for users, which says what to do where that is known.
    pub words: String,
    /// The name of the lease or service, or the id of the process, that the problem is about; null if it is about none or several.
    pub subject: Option<String>,
}

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Something does not work.
    Bad,
    /// Something works, but needs attention: it failed before, may fail soon, or is held up.
    Warn,
}

impl Level {
    /// Returns the name of the level, as in an answer.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bad => "bad",
            Self::Warn => "warn",
        }
    }
}
