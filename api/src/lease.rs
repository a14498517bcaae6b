//! Leases: named rights to run one pass at a time, at most once per period. A *pass* is one run of a lease's command, by the coordinator or by
//! a client.

use crate::binding::Extent;
use crate::ids::{Timestamp, Token};
use crate::list::Limit;
use crate::name::{LeaseName, Name};
use crate::process::{Failed, Launch};
use crate::refusal::Reason::{
    Absent, Disabled, DiskFull, Draining, Ended, Failed as NotDone, Full, Large, Running, Stale,
    Waits,
};
use crate::request::{Docs, Input, Request, Route, Scope, is_default};
use crate::value::Number;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The maximum length of a span in milliseconds: 366 days.
pub const SPAN_MS_MAX: u64 = 366 * 24 * 3_600_000;

/// The period of a lease that has none of its own, in milliseconds.
pub const PERIOD_MS: u64 = 60_000;

/// The period of a lease, or the time within which a pass must be renewed, in milliseconds.
pub type Span = Number<u64, 1, SPAN_MS_MAX, PERIOD_MS>;

/// The time after which a pass is stopped, in milliseconds; 0 for never.
pub type RunLimit = Number<u64, 0, SPAN_MS_MAX>;

/// Lists leases.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct List {
    /// Only leases whose names begin with this prefix; all leases if it is empty.
    #[serde(default, skip_serializing_if = "is_default")]
    pub prefix: Name,
    /// The maximum number of leases to return.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limit: Limit,
    /// The `next` of the previous answer, to get the following page.
    pub after: Option<String>,
}

impl Request for List {
    type Answer = Leases;

    const ROUTE: Route = Route::get(
        "/v1/leases",
        Scope::Read,
        Docs {
            id: "list_leases",
            summary: "List leases",
            more: "Sorted by name. Long lists are returned in pages, which are not a consistent snapshot.",
            answer: "Leases.",
        },
        &[NotDone, Large],
    )
    .with(Input::Query);
}

/// A page of a list of leases.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "Leases"))]
pub struct Leases<L = Lease> {
    /// The leases.
    pub leases: Vec<L>,
    /// The `after` for the next request, with the same prefix; null after the last page. A page may have fewer than `limit` items.
    pub next: Option<String>,
}

/// Gets a lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Get {
    /// The name of the lease.
    pub name: Name,
}

impl Request for Get {
    type Answer = Lease;

    const ROUTE: Route = Route::get(
        "/v1/leases/lease",
        Scope::Read,
        Docs { id: "lease", summary: "Get a lease", more: "", answer: "The lease." },
        &[Absent, NotDone],
    )
    .with(Input::Query);
}

/// Checks whether a request for a pass would have an effect.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Check {
    /// The name of the lease.
    pub name: Name,
}

impl Request for Check {
    type Answer = Checked;

    const ROUTE: Route = Route::get(
        "/v1/leases/check",
        Scope::Read,
        Docs {
            id: "check_lease",
            summary: "Check whether a request for a pass would have an effect",
            more: "A request has no effect if the lease is disabled, or if another request is already next, since the pass of that request serves all others too. If the lease does not exist, a request has an effect, because it creates the lease.",
            answer: "Whether a request would have an effect.",
        },
        &[NotDone],
    )
    .with(Input::Query);
}

/// The answer to [`Check`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Checked {
    /// Whether a request for a pass would have an effect.
    pub wanted: bool,
    /// Whether the lease exists.
    pub exists: bool,
}

/// A lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate JSON member")]
pub struct Lease {
    /// The name.
    #[serde(flatten)]
    pub name: LeaseName,
    /// The minimum time between the starts of two passes, in milliseconds.
    pub period_ms: u64,
    /// Whether requests never wait for their turn.
    pub no_delay: bool,
    /// Whether requests are refused.
    pub disabled: bool,
    /// Milliseconds after which a pass is stopped; 0 for never.
    pub max_run_ms: u64,
    /// The command to launch on schedule and for requests without a command; null if there is none.
    pub command: Option<Vec<String>>,
    /// The schedule, as a cron expression; null if there is none.
    pub schedule: Option<String>,
    /// The time zone of the schedule; null if there is no schedule.
    pub zone: Option<String>,
    /// Whether a single pass makes up for scheduled dates that were missed.
    pub catch_up: bool,
    /// The path of the file to which a line is appended when a pass begins and another when it ends; null if there is none.
    pub logfile: Option<String>,
    /// The next scheduled date, in milliseconds since 1970; null if there is no schedule.
    pub due_at: Option<Timestamp>,
    /// The dates of the schedule that were missed last; null if there were none.
    pub missed: Option<MissedDates>,
    /// The number of the last pass that began; 0 if there was none. Passes are numbered from 1.
    pub begun: u64,
    /// The number of the last pass that ran to completion, or was stopped because it ran too long; 0 if there is none.
    pub whole: u64,
    /// Whether a pass is owed: there is a request after which no pass has both begun and run to completion.
    pub owed: bool,
    /// Whether a request would have an effect: the lease is enabled, and no request is next.
    pub wanted: bool,
    /// The running pass or, if none is running, the last one; null if there was none.
    pub current: Option<Pass>,
    /// The request whose pass is next; null if there is none.
    pub next: Option<Next>,
    /// The lease as four numbers, in the format of Fossil's `backoffice` lease: the PID of the current pass's holder and the pass's
    /// `until_at` in seconds since 1970, and the same two numbers for the next request; 0 where there is none.
    pub text: String,
    /// The current time by the coordinator's wall clock, in milliseconds since 1970.
    pub now: Timestamp,
}

/// Dates of a schedule that came and went without a pass.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "LeaseMissed"))]
pub struct MissedDates {
    /// The first of them, in milliseconds since 1970.
    pub first_at: Timestamp,
    /// When this was noticed, in milliseconds since 1970. Later dates are not missed.
    pub noticed_at: Timestamp,
    /// `down`: the coordinator was down; `clock`: the wall clock was set forward, or the machine was suspended.
    pub cause: Cow<'static, str>,
}

/// A pass.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "LeasePass"))]
pub struct Pass {
    /// The fencing token. It is larger than that of every earlier pass.
    pub token: Token,
    /// The token of the request that the pass is for; 0 if there is none.
    pub place: Token,
    /// `launched`: a command launched by the coordinator; `process`: a client identified by its process; `client`: a client
    /// that renews its pass; `nobody`: an imported pass that had already ended.
    pub holder: Cow<'static, str>,
    /// The PID of the holder; 0 if unknown.
    pub pid: u64,
    /// The id of the process that the pass depends on; null if there is none.
    pub process: Option<String>,
    /// The command that was launched; null if none was, because a client runs the pass itself or the pass was imported.
    pub command: Option<Vec<String>>,
    /// The state of the process: `queued`, `running`, `stopping` or `exited`; null if there is no process, or if it has no record.
    pub status: Option<Cow<'static, str>>,
    /// The time the pass began, in milliseconds since 1970: when it was granted or, once its command has started, when that was reported.
    pub since_at: Timestamp,
    /// The end of the pass's period, in milliseconds since 1970. No other pass begins until after this time.
    pub until_at: Timestamp,
    /// Whether the pass is running.
    pub running: bool,
    /// Whether the pass is being stopped, because it ran too long or the lease is being reset.
    pub stopping: bool,
    /// The number of warnings issued because the pass overran its period.
    pub warnings: u32,
    /// Milliseconds after which this pass is stopped, 0 for never, if its request named a limit; null if the lease's `max_run_ms` applies.
    pub max_run_ms: Option<u64>,
    /// The time the pass ended, in milliseconds since 1970; null while it is running.
    pub ended_at: Option<Timestamp>,
    /// The exit code of the process, or the one that the client reported; null if there is none.
    pub code: Option<u8>,
    /// The signal that ended the process; null if there is none.
    pub signal: Option<u8>,
    /// How the pass ended if it has neither exit code nor signal: `failed`: the command could not be started; `lost`: it is not known how
    /// it ended. Null otherwise.
    pub exit: Option<Cow<'static, str>>,
    /// Why the command could not be started; null if it was started, if its record was removed, or if the caller may not see processes.
    pub failure: Option<Failed>,
    /// Whether the pass ran to completion, or was stopped because it ran too long; null while it is running.
    pub whole: Option<bool>,
}

/// The request whose pass is next.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "LeaseNext"))]
pub struct Next {
    /// The token of the request.
    pub place: Token,
    /// The command to launch; null if a client runs the pass itself.
    pub command: Option<Vec<String>>,
    /// The id of the client's process; null if there is none.
    pub process: Option<String>,
    /// The PID of the client; the coordinator's PID if the client's is unknown, or if the coordinator launches the command.
    pub pid: u64,
    /// When a claim that does not wait expires unless it is repeated, in milliseconds since 1970. Meaningless for other requests.
    pub until_at: Timestamp,
    /// Whether the request still counts; false if its client does not wait and has not repeated it by `until_at`.
    pub live: bool,
}

/// Requests a pass that the client runs itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "ClaimLease"))]
pub struct Claim {
    /// The lease, which is created if it does not exist.
    #[cfg_attr(feature = "schemas", schemars(extend("minLength" = 1)))]
    pub name: Name,
    /// The minimum time from the start of this pass to that of the next, in milliseconds; the lease's setting if left out.
    pub period_ms: Option<Span>,
    /// Whether the request is dropped unless its turn comes immediately.
    #[serde(default, skip_serializing_if = "is_default")]
    pub no_delay: bool,
    /// The maximum time to wait for the request's turn, in seconds. With 0, a claim bound to a process stays in line until the lease's
    /// `next.until_at`, and must be repeated by then to take its turn; any other claim gets its turn immediately or not at all.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wait: Number<u64, 0, 3600>,
    /// The maximum time between two renewals of the pass, in milliseconds, if the pass is not bound to a process.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ttl_ms: Span,
    /// The process that the pass depends on, given by its id or at least the first eight digits of its id.
    pub process: Option<String>,
    /// How much of the process must have ended before the pass ends.
    #[serde(default, skip_serializing_if = "is_default")]
    pub release: Extent,
}

impl Request for Claim {
    type Answer = Claimed;

    const ROUTE: Route = Route::post(
        "/v1/leases/claim",
        Scope::Use,
        Docs {
            id: "claim_lease",
            summary: "Request a pass that the client runs itself",
            more: "With `wait`, answers when the request's turn has come or the wait times out. A client that closes the connection loses its position in line. If `turn` is `not-needed`, another pass serves the request: its number is `pass`, and `/v1/leases/wait` waits for it.",
            answer: "The result of the request.",
        },
        &[Disabled, Draining, Full, Waits, DiskFull, NotDone, Absent, Ended],
    )
    .with(Input::Body)
    .once()
    .run_if("`process` is set, or the lease launches commands");

    fn needs_run(&self) -> bool {
        self.process.is_some()
    }
}

/// The answer to [`Claim`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Claimed {
    /// `current`: the request's pass has begun; `next`: the request is next, but its pass has not begun; `not-needed`: another request is
    /// next, and its pass serves this request too; `no-delay`: the pass cannot begin immediately, and the request does not wait.
    pub turn: Cow<'static, str>,
    /// The fencing token of the pass, to present to the resource that the lease guards; null unless `turn` is `current`. Tokens only
    /// increase.
    pub token: Option<Token>,
    /// The number of the pass that serves the request, for `/v1/leases/wait`; for `no-delay`, that of the next pass.
    pub pass: u64,
    /// The lease.
    pub lease: Lease,
}

/// Reports that a pass is still running.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "RenewLease"))]
pub struct Renew {
    /// The name of the lease.
    #[cfg_attr(feature = "schemas", schemars(extend("minLength" = 1)))]
    pub name: Name,
    /// The token of the pass.
    pub token: Token,
    /// The process that the pass depends on from now on; unchanged if left out.
    pub process: Option<String>,
    /// How much of the process must have ended before the pass ends.
    #[serde(default, skip_serializing_if = "is_default")]
    pub release: Extent,
}

impl Request for Renew {
    type Answer = Lease;

    const ROUTE: Route = Route::post(
        "/v1/leases/renew",
        Scope::Use,
        Docs {
            id: "renew_lease",
            summary: "Report that a pass is still running",
            more: "The pass ends if its client has not renewed it within `ttl_ms`. With `process`, the pass depends on that process from now on instead.",
            answer: "The lease.",
        },
        &[Absent, Stale, DiskFull, NotDone, Ended],
    )
    .with(Input::Body)
    .once()
    .run_if("`process` is set, the pass is bound to one, or the lease launches commands");

    fn needs_run(&self) -> bool {
        self.process.is_some()
    }
}

/// Reports that a pass has run to completion.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "FinishLease"))]
pub struct Finish {
    /// The name of the lease.
    #[cfg_attr(feature = "schemas", schemars(extend("minLength" = 1)))]
    pub name: Name,
    /// The token of the pass.
    pub token: Token,
    /// The exit code of the pass.
    #[serde(default, skip_serializing_if = "is_default")]
    pub code: Number<u8, 0, 255>,
}

impl Request for Finish {
    type Answer = Lease;

    const ROUTE: Route = Route::post(
        "/v1/leases/finish",
        Scope::Use,
        Docs {
            id: "finish_lease",
            summary: "Report that a pass has run to completion",
            more: "Not needed for commands that the coordinator launched.",
            answer: "The lease.",
        },
        &[Stale, NotDone],
    )
    .with(Input::Body)
    .run_if("the pass is bound to a process, or the lease launches commands");
}

/// Withdraws a request that waits for its turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schemas",
    derive(schemars::JsonSchema),
    schemars(rename = "WithdrawFromLease")
)]
pub struct Withdraw {
    /// The name of the lease.
    #[cfg_attr(feature = "schemas", schemars(extend("minLength" = 1)))]
    pub name: Name,
    /// The token of the request: the `place` in its answer.
    pub place: Token,
}

impl Request for Withdraw {
    type Answer = Withdrawn;

    const ROUTE: Route = Route::post(
        "/v1/leases/withdraw",
        Scope::Run,
        Docs {
            id: "withdraw_from_lease",
            summary: "Withdraw a request that waits for its turn",
            more: "If other requests rely on this request's pass, the coordinator still launches the command when the turn comes. Otherwise, the pass is dropped. If the pass has already begun, it ends if the client was to run it itself; a launched command continues, and the answer is `absent`.",
            answer: "The request has been withdrawn.",
        },
        &[Absent, NotDone],
    )
    .with(Input::Body);
}

/// The answer to [`Withdraw`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "LeaseWithdrawal"))]
pub struct Withdrawn {
    /// Whether other requests still rely on the pass, so that its command is launched when its turn comes.
    pub follows: bool,
    /// The lease.
    pub lease: Lease,
}

/// Waits for a pass to begin or to end.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "WaitForLease"))]
pub struct Wait {
    /// The name of the lease.
    #[cfg_attr(feature = "schemas", schemars(extend("minLength" = 1)))]
    pub name: Name,
    /// The number of a pass: wait until it or a later one has begun.
    pub begun: Option<u64>,
    /// The number of a pass: wait until it or a later one has run to completion.
    pub whole: Option<u64>,
    /// The token of a pass: wait until it has ended.
    pub ended: Option<Token>,
    /// The maximum time to wait, in seconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wait: Number<u64, 0, 3600, 60>,
}

impl Request for Wait {
    type Answer = Lease;

    const ROUTE: Route = Route::post(
        "/v1/leases/wait",
        Scope::Read,
        Docs {
            id: "wait_for_lease",
            summary: "Wait for a pass to begin or to end",
            more: "Answers immediately if the pass has already begun or ended, or if none is pending. Also answers when the wait times out: `begun`, `whole` and `current` of the lease show whether the pass has begun or ended.",
            answer: "The lease.",
        },
        &[Absent, Waits, NotDone],
    )
    .with(Input::Body);
}

/// Changes the settings of a lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "SetLease"))]
pub struct Set {
    /// The name of the lease. A lease that does not exist is created.
    #[cfg_attr(feature = "schemas", schemars(extend("minLength" = 1)))]
    pub name: Name,
    /// The minimum time between the starts of two passes, in milliseconds.
    pub period_ms: Option<Span>,
    /// Whether a request whose pass cannot begin immediately is dropped instead of waiting for its turn.
    pub no_delay: Option<bool>,
    /// Whether new requests are refused. Disabling a lease also drops its waiting request; a running pass continues.
    pub disabled: Option<bool>,
    /// Milliseconds after which a pass is stopped; 0 for never.
    pub max_run_ms: Option<RunLimit>,
    /// The command to launch on schedule and for requests without a command.
    pub launch: Option<Launch>,
    /// The schedule: a cron expression of five fields; empty for none.
    pub schedule: Option<String>,
    /// The time zone of the schedule, such as `Europe/Berlin`; UTC if left out. Requires `schedule`.
    pub zone: Option<String>,
    /// Whether a single pass makes up for all scheduled dates that were missed while the coordinator was down. If false, it does so only if
    /// the latest of them was at most a minute ago.
    pub catch_up: Option<bool>,
    /// The file on the coordinator's machine that gets a line when a pass begins and another when it ends; empty for none.
    pub logfile: Option<String>,
    /// Whether to remove the command. Refused while the lease has a schedule; an empty `schedule` in the same request removes that first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub no_launch: bool,
}

impl Set {
    /// Returns the request that changes no setting of this lease.
    pub const fn of(name: Name) -> Self {
        Self {
            name,
            period_ms: None,
            no_delay: None,
            disabled: None,
            max_run_ms: None,
            launch: None,
            schedule: None,
            zone: None,
            catch_up: None,
            logfile: None,
            no_launch: false,
        }
    }
}

impl Request for Set {
    type Answer = Lease;

    const ROUTE: Route = Route::post(
        "/v1/leases/set",
        Scope::Run,
        Docs {
            id: "set_lease",
            summary: "Change the settings of a lease",
            more: "Creates the lease if it does not exist. Settings that are left out are unchanged.",
            answer: "The lease.",
        },
        &[Full, DiskFull, NotDone],
    )
    .with(Input::Body);
}

/// Imports a lease from Fossil.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "ImportLease"))]
pub struct Import {
    /// The name of the lease. A lease that does not exist is created.
    #[cfg_attr(feature = "schemas", schemars(extend("minLength" = 1)))]
    pub name: Name,
    /// Four numbers separated by spaces, in the format of Fossil's setting `backoffice`: the PID of the process that holds the current pass
    /// and the end of its period, in seconds since 1970, then the same two numbers for the next request. Parsing stops at the first
    /// character that is neither a digit nor a space, and missing numbers count as 0.
    pub text: String,
}

impl Request for Import {
    type Answer = Lease;

    const ROUTE: Route = Route::post(
        "/v1/leases/import",
        Scope::Run,
        Docs {
            id: "import_lease",
            summary: "Import a lease from Fossil",
            more: "Refused while a pass is running. `text` consists of four numbers: the PID of the process that holds the current pass and the end of its period, in seconds since 1970, then the same two numbers for the next request. Those of the two processes that are still alive are registered.",
            answer: "The lease.",
        },
        &[Running, Full, DiskFull, NotDone],
    )
    .with(Input::Body);
}

/// Deletes a lease and its settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "ResetLease"))]
pub struct Reset {
    /// The name of the lease.
    #[cfg_attr(feature = "schemas", schemars(extend("minLength" = 1)))]
    pub name: Name,
    /// Whether to stop a running pass.
    #[serde(default, skip_serializing_if = "is_default")]
    pub force: bool,
    /// The maximum time to wait for all processes of the pass to exit, in seconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wait: Number<u64, 0, 3600, 60>,
}

impl Request for Reset {
    type Answer = WasReset;

    const ROUTE: Route = Route::post(
        "/v1/leases/reset",
        Scope::Operate,
        Docs {
            id: "reset_lease",
            summary: "Delete a lease and its settings",
            more: "Refused while a pass is running. With `force`, the pass is stopped first, and the answer is sent when its processes have exited or the wait times out.",
            answer: "Whether the lease has been deleted.",
        },
        &[Absent, Running, Waits, NotDone],
    )
    .with(Input::Body)
    .run_if("`force` is set, or the lease has settings or launches commands");

    fn needs_run(&self) -> bool {
        self.force
    }
}

/// The answer to [`Reset`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "LeaseReset"))]
pub struct WasReset {
    /// Whether the lease has been deleted; false if its pass is still being stopped.
    pub gone: bool,
}
