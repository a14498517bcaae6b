//! Requests that operate a coordinator: snapshots, the clock, draining.

use crate::ids::{Seq, Timestamp};
use crate::refusal::Reason;
use crate::request::{Docs, Input, Request, Route, Scope, is_default};
use crate::value::Number;
use serde::{Deserialize, Serialize};

/// Takes a snapshot. It is answered when the snapshot is on disk, which may take minutes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct TakeCheckpoint {}

impl Request for TakeCheckpoint {
    type Answer = Checkpoint;

    const ROUTE: Route = Route::post(
        "/v1/checkpoint",
        Scope::Operate,
        Docs {
            id: "checkpoint",
            summary: "Take a snapshot",
            more: "Answers when the snapshot is on disk. Only one snapshot is taken at a time; further requests wait for their turn.",
            answer: "The snapshot taken.",
        },
        &[Reason::NoFiles, Reason::Failed, Reason::Busy],
    );
}

/// A completed checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schemas",
    derive(schemars::JsonSchema),
    schemars(extend("x-open" = true))
)]
pub struct Checkpoint {
    /// The slot that was written.
    pub slot: String,
    /// The last sequence number in the snapshot: the snapshot includes the effects of every entry up to this one.
    pub upto: Seq,
    /// The number of pages in the slot.
    pub pages: u64,
    /// The size of the pages' content, in bytes.
    pub bytes: u64,
    /// The size of the slot's files, in bytes.
    pub file_bytes: u64,
    /// The node time at which the slot was sealed.
    pub at: Timestamp,
    /// How long the checkpoint took, in milliseconds.
    pub ms: u64,
    /// The number of journal segments removed afterwards.
    pub segments_dropped: u64,
}

/// Trusts a wall clock that is far ahead, so that removal by date resumes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ConfirmClock {}

impl Request for ConfirmClock {
    type Answer = ClockConfirmed;

    const ROUTE: Route = Route::post(
        "/v1/clock/confirm",
        Scope::Operate,
        Docs {
            id: "confirm_clock",
            summary: "Trust a wall clock that is far ahead",
            more: "Until the clock is trusted, or an hour has passed without a step of the clock, nothing is removed because of its date.",
            answer: "The clock is now trusted; reports whether it was in doubt.",
        },
        &[],
    );
}

/// The answer to [`ConfirmClock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ClockConfirmed {
    /// Whether the clock was in doubt.
    pub doubted: bool,
}

/// Starts a drain: some kinds of new work are refused, and the coordinator stops once nothing is held.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct StartDrain {
    /// What to drain: `locks`, `queues` (jobs and their claims), `leases` (passes), `tasks` (and their bursts), or `all`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub what: DrainWhat,
    /// The maximum time to wait until no lock, claim, pass or task attempt is left, in seconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wait: Number<u64, 0, 3600>,
}

impl Request for StartDrain {
    type Answer = Draining;

    const ROUTE: Route = Route::post(
        "/v1/drain",
        Scope::Run,
        Docs {
            id: "drain",
            summary: "Refuse new work, and stop once nothing is held",
            more: "Depending on `what`, refuses new locks, new jobs and claims, new lease passes, new tasks and bursts, or all of these. Renewals and releases are still accepted, and existing claims, passes and bursts may finish. The coordinator stops when no lock, claim, pass or task attempt is left. Answers when draining has begun; with `wait`, when nothing is left or the wait times out. Anything that is already draining continues to drain.",
            answer: "Draining has begun; the counts show what is left.",
        },
        &[Reason::Failed, Reason::Draining, Reason::Waits],
    ).with(Input::Query);
}

/// A part of the work to drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DrainWhat {
    /// No new locks. Renewals and releases continue, and locks are still granted to those who wait already.
    Locks,
    /// No new jobs and no new claims. Claimed jobs may be touched and completed.
    Queues,
    /// No new lease passes. Running passes finish; requests that wait for their turn are kept until the node is restarted.
    Leases,
    /// No new tasks, and no new bursts of existing tasks. Attempts under way finish.
    Tasks,
    /// All of the above.
    #[default]
    All,
}

/// A drain that has begun, and how much work is in progress for which it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "Drain"))]
pub struct Draining {
    /// Always true.
    #[cfg_attr(feature = "schemas", schemars(extend("const" = true)))]
    pub draining: bool,
    /// The number of lock entries left, both holders and waiters.
    pub locks: u64,
    /// The number of claims of jobs left.
    pub claims: u64,
    /// The number of running lease passes.
    pub passes: u64,
    /// The number of tasks with a running attempt.
    pub tasks: u64,
}
