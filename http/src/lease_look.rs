//! Leases over HTTP, read-only: which leases exist, their state, and whether a request would have an effect. The JSON fields are
//! documented in `docs/protocols/http.md`, "Leases".

use crate::call::Call;
use crate::listing::{Limit, Listing, Written};
use crate::problem::Problem;
use crate::process_shown::Failed;
use crate::route::{Docs, Json, Large, Query, Route};
use crate::schema::LeaseName;
use crate::scope::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::actors::binding::Exit;
use sexton::actors::lease::{self, Current, FossilLease, Holder, LeaseView};
use sexton::actors::lock::Name;
use sexton::actors::process::{self, RecordView};
use sexton::clock::{Offset, Timestamp};
use sexton::ids::{ProcessId, Token};
use sexton::refusal::Reason;
use sexton::text;
use std::collections::BTreeMap;

pub(crate) fn routes() -> Vec<Route> {
    use Reason::{Absent, Failed};
    vec![
        Route::get(
            "/v1/leases",
            Scope::Read,
            list,
            Docs {
                id: "list_leases",
                summary: "List leases",
                more: "Sorted by name. Long lists are returned in pages, which are not a consistent snapshot.",
                answer: "Leases.",
            },
            &[Failed, Reason::Large],
        ),
        Route::get(
            "/v1/leases/lease",
            Scope::Read,
            lease,
            Docs { id: "lease", summary: "Get a lease", more: "", answer: "The lease." },
            &[Absent, Failed],
        ),
        Route::get(
            "/v1/leases/check",
            Scope::Read,
            check,
            Docs {
                id: "check_lease",
                summary: "Check whether a request for a pass would have an effect",
                more: "A request has no effect if the lease is disabled, or if another request is already next, since the pass of that request serves all others too. If the lease does not exist, a request has an effect, because it creates the lease.",
                answer: "Whether a request would have an effect.",
            },
            &[Failed],
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct LeaseQuery {
    /// The name of the lease.
    name: Name,
}

async fn lease(call: &Call, Query(asked): Query<LeaseQuery>) -> Result<Json<Lease>, Problem> {
    let found = call.node.leases().get(&asked.name).await?;
    Ok(Json(Lease::of(call, found).await?))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Checked {
    /// Whether a request for a pass would have an effect.
    wanted: bool,
    /// Whether the lease exists.
    exists: bool,
}

async fn check(call: &Call, Query(asked): Query<LeaseQuery>) -> Result<Json<Checked>, Problem> {
    let (wanted, exists) = match call.node.leases().get(&asked.name).await {
        Ok(lease) => (lease.is_useful(call.node.now()), true),
        Err(sexton::handle::LeaseError::Absent) => (true, false),
        Err(error) => return Err(error.into()),
    };
    Ok(Json(Checked { wanted, exists }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Filter {
    /// Only leases whose names begin with this prefix; all leases if it is empty.
    #[serde(default)]
    prefix: Name,
    /// The maximum number of leases to return.
    #[serde(default)]
    limit: Limit,
    /// The `next` of the previous answer, to get the following page.
    after: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Leases {
    leases: Vec<Written<Lease>>,
    /// The `after` for the next request, with the same prefix; null after the last page. A page may have fewer than `limit` items.
    next: Option<String>,
}

/// A lease with the records of its processes.
struct LeaseDetails {
    lease: LeaseView,
    records: BTreeMap<ProcessId, RecordView>,
}

async fn list(call: &Call, Query(asked): Query<Filter>) -> Result<Large<Leases>, Problem> {
    let after = asked.after.as_deref().map(|text| {
        let name = Name::from_text(text);
        name.ok_or_else(|| Problem::field("after", "must be the `next` of the previous answer"))
    });
    let leases = call.node.leases();
    let page = async |after: Option<Name>, most| {
        let found = leases.list(&asked.prefix, after.as_ref(), most).await?;
        let last = found.leases.last().map(|it| it.lease.name.clone());
        let next = last.filter(|_| found.more).map(Some);
        let mut page = Vec::with_capacity(found.leases.len());
        let ids: Vec<ProcessId> = found.leases.iter().flat_map(processes).collect();
        let records = records(call, &ids).await?;
        for lease in found.leases {
            let its = processes(&lease).filter_map(|id| Some((id, records.get(&id)?.clone())));
            let records = its.collect();
            page.push(LeaseDetails { lease, records });
        }
        Ok((page, next))
    };
    let now = Viewpoint::of(call);
    let show = |found: &LeaseDetails| Lease::shown(&found.lease, &found.records, now);
    let gathered = Listing::gather(call, (after.transpose()?, asked.limit.0), page, show).await?;
    let (leases, next, place) = gathered.in_order();
    let next = next.flatten().map(|name| name.to_text());
    Ok(Large(Leases { leases, next }, place))
}

/// Returns the processes that the latest pass and the next request of a lease depend on.
fn processes(lease: &LeaseView) -> impl Iterator<Item = ProcessId> + use<> {
    let current = lease.lease.current.as_ref();
    let current = current.and_then(|it| it.holder.process());
    let next = lease.lease.next.as_ref().and_then(|it| it.process);
    [current, next.map(|it| it.process)].into_iter().flatten()
}

async fn records(
    call: &Call,
    ids: &[ProcessId],
) -> Result<BTreeMap<ProcessId, RecordView>, Problem> {
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let records = call.node.processes().each(ids).await?;
    Ok(records.into_iter().map(|it| (it.id, it)).collect())
}

/// The current time, the offset that converts it to a date, and the PID of the coordinator, which is shown for a command that has no
/// process yet; and whether the caller may see the details of processes.
#[derive(Clone, Copy)]
struct Viewpoint {
    now: Timestamp,
    offset: Offset,
    pid: u32,
    sees_processes: bool,
}

impl Viewpoint {
    fn of(call: &Call) -> Self {
        let now = call.node.now();
        let offset = call.node.offset();
        let pid = call.node.pid();
        Self { now, offset, pid, sees_processes: call.may_run() }
    }

    fn date(self, at: Timestamp) -> Timestamp {
        Timestamp(self.offset.date(at).0)
    }
}

/// A lease.
#[derive(Serialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate JSON member")]
pub(crate) struct Lease {
    #[serde(flatten)]
    name: LeaseName,
    /// The minimum time between the starts of two passes, in milliseconds.
    period_ms: u64,
    /// Whether requests never wait for their turn.
    no_delay: bool,
    /// Whether requests are refused.
    disabled: bool,
    /// Milliseconds after which a pass is stopped; 0 for never.
    max_run_ms: u64,
    /// The command to launch on schedule and for requests without a command; null if there is none.
    command: Option<Vec<String>>,
    /// The schedule, as a cron expression; null if there is none.
    schedule: Option<String>,
    /// The time zone of the schedule; null if there is no schedule.
    zone: Option<String>,
    /// Whether a single pass makes up for scheduled dates that were missed.
    catch_up: bool,
    /// The path of the file to which a line is appended when a pass begins and another when it ends; null if there is none.
    logfile: Option<String>,
    /// The next scheduled date, in milliseconds since 1970; null if there is no schedule.
    due_at: Option<Timestamp>,
    /// The dates of the schedule that were missed last; null if there were none.
    missed: Option<MissedDates>,
    /// The number of the last pass that began; 0 if there was none. Passes are numbered from 1.
    begun: u64,
    /// The number of the last pass that ran to completion, or was stopped because it ran too long; 0 if there is none.
    whole: u64,
    /// Whether a pass is owed: there is a request after which no pass has both begun and run to completion.
    owed: bool,
    /// Whether a request would have an effect: the lease is enabled, and no request is next.
    wanted: bool,
    /// The running pass or, if none is running, the last one; null if there was none.
    current: Option<Pass>,
    /// The request whose pass is next; null if there is none.
    next: Option<Next>,
    /// The lease as four numbers, in the format of Fossil's `backoffice` lease: the PID of the current pass's holder and the pass's
    /// `until_at` in seconds since 1970, and the same two numbers for the next request; 0 where there is none.
    text: String,
    /// The current time by the coordinator's wall clock, in milliseconds since 1970.
    now: Timestamp,
}

/// Dates of a schedule that came and went without a pass.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LeaseMissed")]
pub(crate) struct MissedDates {
    /// The first of them, in milliseconds since 1970.
    first_at: Timestamp,
    /// When this was noticed, in milliseconds since 1970. Later dates are not missed.
    noticed_at: Timestamp,
    /// `down`: the coordinator was down; `clock`: the wall clock was set forward, or the machine was suspended.
    cause: &'static str,
}

/// A pass.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LeasePass")]
pub(crate) struct Pass {
    /// The fencing token. It is larger than that of every earlier pass.
    token: Token,
    /// The token of the request that the pass is for; 0 if there is none.
    place: Token,
    /// `launched`: a command launched by the coordinator; `process`: a client identified by its process; `client`: a client
    /// that renews its pass; `nobody`: an imported pass that had already ended.
    holder: &'static str,
    /// The PID of the holder; 0 if unknown.
    pid: u64,
    /// The id of the process that the pass depends on; null if there is none.
    process: Option<String>,
    /// The command that was launched; null if none was, because a client runs the pass itself or the pass was imported.
    command: Option<Vec<String>>,
    /// The state of the process: `queued`, `running`, `stopping` or `exited`; null if there is no process, or if it has no record.
    status: Option<&'static str>,
    /// The time the pass began, in milliseconds since 1970: when it was granted or, once its command has started, when that was reported.
    since_at: Timestamp,
    /// The end of the pass's period, in milliseconds since 1970. No other pass begins until after this time.
    until_at: Timestamp,
    /// Whether the pass is running.
    running: bool,
    /// Whether the pass is being stopped, because it ran too long or the lease is being reset.
    stopping: bool,
    /// The number of warnings issued because the pass overran its period.
    warnings: u32,
    /// Milliseconds after which this pass is stopped, 0 for never, if its request named a limit; null if the lease's `max_run_ms` applies.
    max_run_ms: Option<u64>,
    /// The time the pass ended, in milliseconds since 1970; null while it is running.
    ended_at: Option<Timestamp>,
    /// The exit code of the process, or the one that the client reported; null if there is none.
    code: Option<u8>,
    /// The signal that ended the process; null if there is none.
    signal: Option<u8>,
    /// How the pass ended if it has neither exit code nor signal: `failed`: the command could not be started; `lost`: it is not known how
    /// it ended. Null otherwise.
    exit: Option<&'static str>,
    /// Why the command could not be started; null if it was started, if its record was removed, or if the caller may not see processes.
    failure: Option<Failed>,
    /// Whether the pass ran to completion, or was stopped because it ran too long; null while it is running.
    whole: Option<bool>,
}

/// The request whose pass is next.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LeaseNext")]
pub(crate) struct Next {
    /// The token of the request.
    place: Token,
    /// The command to launch; null if a client runs the pass itself.
    command: Option<Vec<String>>,
    /// The id of the client's process; null if there is none.
    process: Option<String>,
    /// The PID of the client; the coordinator's PID if the client's is unknown, or if the coordinator launches the command.
    pid: u64,
    /// When a claim that does not wait expires unless it is repeated, in milliseconds since 1970. Meaningless for other requests.
    until_at: Timestamp,
    /// Whether the request still counts; false if its client does not wait and has not repeated it by `until_at`.
    live: bool,
}

impl Lease {
    /// Converts a lease to its form in an API response.
    pub(crate) async fn of(call: &Call, lease: LeaseView) -> Result<Self, Problem> {
        let ids: Vec<ProcessId> = processes(&lease).collect();
        let records = records(call, &ids).await?;
        Ok(Self::shown(&lease, &records, Viewpoint::of(call)))
    }

    /// Converts leases to their form in an API response.
    pub(crate) async fn of_all(call: &Call, leases: Vec<LeaseView>) -> Result<Vec<Self>, Problem> {
        let ids: Vec<ProcessId> = leases.iter().flat_map(processes).collect();
        let records = records(call, &ids).await?;
        let here = Viewpoint::of(call);
        let leases = leases.iter();
        Ok(leases.map(|it| Self::shown(it, &records, here)).collect())
    }

    fn shown(view: &LeaseView, records: &BTreeMap<ProcessId, RecordView>, here: Viewpoint) -> Self {
        let lease::Lease { name, settings, begun, whole, current, next, schedule, extra, .. } =
            &view.lease;
        let current = current.as_ref().map(|it| Pass::shown(it, records, here));
        let next = next.as_ref().map(|it| Next::shown(it, records, here));
        // Clock slewing moves dates by a millisecond now and then. Without the 10 ms, a date on a full second could move below it, and the
        // number of seconds would change.
        let of = |pid: u64, until: Timestamp| (pid, (until.0 + 10) / 1000);
        let has = current.as_ref().map_or((0, 0), |it| of(it.pid, it.until_at));
        let waits = next.as_ref().map_or((0, 0), |it| of(it.pid, it.until_at));
        Self {
            name: LeaseName { name: name.clone() },
            period_ms: settings.period_ms,
            no_delay: settings.no_delay,
            disabled: settings.disabled,
            max_run_ms: settings.max_run_ms,
            command: settings.command.as_ref().map(command),
            schedule: schedule.as_ref().map(|it| it.expression().to_owned()),
            zone: schedule.as_ref().map(|it| it.zone().to_owned()),
            catch_up: settings.catches_up,
            logfile: settings.log.clone(),
            due_at: view.due.map(|it| Timestamp(it.0)),
            missed: extra.missed.map(|it| MissedDates {
                first_at: Timestamp(it.first.0),
                noticed_at: Timestamp(it.noticed.0),
                cause: it.cause(),
            }),
            begun: *begun,
            whole: *whole,
            owed: view.wanted,
            wanted: view.is_useful(here.now),
            text: FossilLease([has.0, has.1, waits.0, waits.1]).to_string(),
            current,
            next,
            now: here.date(here.now),
        }
    }
}

/// Returns a command's arguments as text, with secrets masked.
fn command(command: &lease::Command) -> Vec<String> {
    let shown = process::masked(&command.spec.argv).into_iter();
    shown.map(|it| text::escaped(it.as_bytes())).collect()
}

impl Pass {
    fn shown(it: &Current, records: &BTreeMap<ProcessId, RecordView>, here: Viewpoint) -> Self {
        let id = it.holder.process();
        let record = id.and_then(|id| records.get(&id));
        let pid = record.and_then(|it| it.identity).map(|it| it.pid.into());
        let exit = it.end.and_then(|end| end.exit);
        let seen = record.filter(|_| here.sees_processes);
        let failure = seen.and_then(|it| it.failure.clone());
        Self {
            token: it.token,
            place: it.place,
            holder: match &it.holder {
                Holder::Launched { .. } => "launched",
                Holder::Process(_) => "process",
                Holder::Timed { .. } => "client",
                Holder::Nobody => "nobody",
            },
            pid: pid.unwrap_or(it.pid),
            process: id.map(|id| id.to_string()),
            command: match &it.holder {
                Holder::Launched { command: its, .. } => Some(command(its)),
                Holder::Process(_) | Holder::Timed { .. } | Holder::Nobody => None,
            },
            status: record.map(|it| it.phase.name()),
            since_at: here.date(it.since),
            until_at: here.date(it.until),
            running: it.runs(),
            stopping: it.stopping,
            warnings: it.warnings,
            max_run_ms: it.progress.max_run_ms,
            ended_at: it.end.map(|end| here.date(end.at)),
            code: match exit {
                Some(Exit::Code(code)) => Some(code),
                _ => None,
            },
            signal: match exit {
                Some(Exit::Signal(signal)) => Some(signal),
                _ => None,
            },
            exit: match exit {
                Some(Exit::Failed) => Some("failed"),
                Some(Exit::Lost) => Some("lost"),
                Some(Exit::Code(_) | Exit::Signal(_)) | None => None,
            },
            failure: failure.map(Failed::from),
            whole: it.end.map(|end| end.whole),
        }
    }
}

impl Next {
    fn shown(
        it: &lease::NextRequest,
        records: &BTreeMap<ProcessId, RecordView>,
        here: Viewpoint,
    ) -> Self {
        let record = it.process.and_then(|of| records.get(&of.process));
        let pid = record.and_then(|it| it.identity).map(|it| it.pid.into());
        let own = Some(it.pid).filter(|pid| *pid > 0);
        Self {
            place: it.token,
            command: it.command.as_ref().map(command),
            process: it.process.map(|it| it.process.to_string()),
            pid: pid.or(own).unwrap_or(here.pid.into()),
            until_at: here.date(it.until),
            live: it.is_live(here.now),
        }
    }
}
