//! Audits: checks of whether the parts of a coordinator agree with each other and with the operating system.

use crate::refusal::Reason;
use crate::request::{Docs, Request, Route, Scope};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Checks, and changes nothing.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Look {}

impl Request for Look {
    type Answer = Audit;

    const ROUTE: Route = Route::get(
        "/v1/audit",
        Scope::Read,
        Docs {
            id: "audit",
            summary: "Check that tasks, processes, locks, servers and claims agree",
            more: "Compares the states of the actors with each other and with the processes of the operating system, and changes nothing. The answer takes milliseconds if everything agrees. Otherwise the check is repeated for up to 4 s, and only disagreements found every time are reported.",
            answer: "The disagreements; usually none.",
        },
        &[Reason::Waits, Reason::Failed],
    );
}

/// Checks, fixes what can be fixed, and checks again.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Fix {}

impl Request for Fix {
    type Answer = Audit;

    const ROUTE: Route = Route::post(
        "/v1/audit/fix",
        Scope::Run,
        Docs {
            id: "fix_by_audit",
            summary: "Audit, and fix the disagreements",
            more: "For each disagreement that can be fixed automatically, does what a lost event would have done: repeats a request or a notification between actors, requests or releases a lock, or stops a process whose task attempt is over. Then audits again.",
            answer: "The disagreements, whether and how each was fixed, and how many are left.",
        },
        &[Reason::Waits, Reason::Failed],
    );
}

/// The result of an audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Audit {
    /// The disagreements found.
    pub found: Vec<Disagreement>,
    /// The number of disagreements that remain; all of them if the audit only checks.
    pub left: u64,
    /// The number of tasks examined: those that are in progress or have unanswered requests to other actors.
    pub tasks: u64,
    /// The number of processes recorded as alive that were examined.
    pub processes: u64,
    /// Whether the counts of used threads and of tasks per group were compared. False if more than 100,000 tasks are under way.
    pub whole: bool,
}

/// A disagreement between two actors, or between an actor and the operating system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Disagreement {
    /// The kind: `status`, `late`, `unlocked`, `unlaunched`, `unended`, `no-server`, `lock-missing`, `lock-left`, `unattended`, `threads`,
    /// `group`, `work-twice`, `gone`, `stranger` or `bound`.
    pub kind: Cow<'static, str>,
    /// A description for users.
    pub words: String,
    /// The task concerned; null if there is none.
    pub task: Option<u64>,
    /// The fencing token of the attempt concerned; null if there is none.
    pub attempt: Option<u64>,
    /// The id of the process concerned; null if there is none.
    pub process: Option<String>,
    /// How `POST /v1/audit/fix` fixes the disagreement; null if it cannot be fixed automatically.
    pub fix: Option<Cow<'static, str>>,
    /// Whether the disagreement was fixed: a fix was applied, and the audit after it did not find the disagreement again.
    pub fixed: bool,
}
