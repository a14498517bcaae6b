//! Leases over HTTP, read-only: which leases exist, their state, and whether a request would have an effect. The JSON fields are
//! documented in `docs/protocols/http.md`, "Leases".

use crate::call::Call;
use crate::listing::{Listing, Written};
use crate::problem::Problem;
use crate::process_shown::failed;
use crate::route::{InPlaceOf, Large, Route};
use sexton::actors::binding::Exit;
use sexton::actors::lease::{self, Current, FossilLease, Holder, LeaseView};
use sexton::actors::lock::Name;
use sexton::actors::process::{self, RecordView};
use sexton::clock::{Offset, Timestamp};
use sexton::ids::ProcessId;
use sexton::text;
use sexton_api::lease::{Check, Checked, Get, Lease, Leases, List, MissedDates, Next, Pass};
use sexton_api::name::LeaseName;
use std::collections::BTreeMap;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::of_large::<List, _>(list), Route::of(lease), Route::of(check)]
}

async fn lease(call: &Call, asked: Get) -> Result<Lease, Problem> {
    let found = call.node.leases().get(&asked.name).await?;
    shown(call, found).await
}

async fn check(call: &Call, asked: Check) -> Result<Checked, Problem> {
    let (wanted, exists) = match call.node.leases().get(&asked.name).await {
        Ok(lease) => (lease.is_useful(call.node.now()), true),
        Err(sexton::handle::LeaseError::Absent) => (true, false),
        Err(error) => return Err(error.into()),
    };
    Ok(Checked { wanted, exists })
}

/// A lease with the records of its processes.
struct LeaseDetails {
    lease: LeaseView,
    records: BTreeMap<ProcessId, RecordView>,
}

impl InPlaceOf<Leases> for Leases<Written<Lease>> {}

async fn list(call: &Call, asked: List) -> Result<Large<Leases<Written<Lease>>>, Problem> {
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
    let show = |found: &LeaseDetails| shown_at(&found.lease, &found.records, now);
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

/// Converts a lease to its form in an API response.
pub(crate) async fn shown(call: &Call, lease: LeaseView) -> Result<Lease, Problem> {
    let ids: Vec<ProcessId> = processes(&lease).collect();
    let records = records(call, &ids).await?;
    Ok(shown_at(&lease, &records, Viewpoint::of(call)))
}

/// Converts leases to their form in an API response.
pub(crate) async fn shown_all(call: &Call, leases: Vec<LeaseView>) -> Result<Vec<Lease>, Problem> {
    let ids: Vec<ProcessId> = leases.iter().flat_map(processes).collect();
    let records = records(call, &ids).await?;
    let here = Viewpoint::of(call);
    let leases = leases.iter();
    Ok(leases.map(|it| shown_at(it, &records, here)).collect())
}

fn shown_at(view: &LeaseView, records: &BTreeMap<ProcessId, RecordView>, here: Viewpoint) -> Lease {
    let lease::Lease { name, settings, begun, whole, current, next, schedule, extra, .. } =
        &view.lease;
    let current = current.as_ref().map(|it| pass(it, records, here));
    let next = next.as_ref().map(|it| next_pass(it, records, here));
    // Clock slewing moves dates by a millisecond now and then. Without the 10 ms, a date on a full second could move below it, and the
    // number of seconds would change.
    let of = |pid: u64, until: Timestamp| (pid, (until.0 + 10) / 1000);
    let has = current.as_ref().map_or((0, 0), |it| of(it.pid, it.until_at));
    let waits = next.as_ref().map_or((0, 0), |it| of(it.pid, it.until_at));
    Lease {
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
            cause: it.cause().into(),
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

/// Returns a command's arguments as text, with secrets masked.
fn command(command: &lease::Command) -> Vec<String> {
    let shown = process::masked(&command.spec.argv).into_iter();
    shown.map(|it| text::escaped(it.as_bytes())).collect()
}

fn pass(it: &Current, records: &BTreeMap<ProcessId, RecordView>, here: Viewpoint) -> Pass {
    let id = it.holder.process();
    let record = id.and_then(|id| records.get(&id));
    let pid = record.and_then(|it| it.identity).map(|it| it.pid.into());
    let exit = it.end.and_then(|end| end.exit);
    let seen = record.filter(|_| here.sees_processes);
    let failure = seen.and_then(|it| it.failure.clone());
    Pass {
        token: it.token,
        place: it.place,
        holder: holder(&it.holder).into(),
        pid: pid.unwrap_or(it.pid),
        process: id.map(|id| id.to_string()),
        command: match &it.holder {
            Holder::Launched { command: its, .. } => Some(command(its)),
            Holder::Process(_) | Holder::Timed { .. } | Holder::Nobody => None,
        },
        status: record.map(|it| it.phase.name().into()),
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
            Some(Exit::Failed) => Some("failed".into()),
            Some(Exit::Lost) => Some("lost".into()),
            Some(Exit::Code(_) | Exit::Signal(_)) | None => None,
        },
        failure: failure.as_ref().map(failed),
        whole: it.end.map(|end| end.whole),
    }
}

/// Returns who runs a pass, in one word.
const fn holder(holder: &Holder) -> &'static str {
    match holder {
        Holder::Launched { .. } => "launched",
        Holder::Process(_) => "process",
        Holder::Timed { .. } => "client",
        Holder::Nobody => "nobody",
    }
}

fn next_pass(
    it: &lease::NextRequest,
    records: &BTreeMap<ProcessId, RecordView>,
    here: Viewpoint,
) -> Next {
    let record = it.process.and_then(|of| records.get(&of.process));
    let pid = record.and_then(|it| it.identity).map(|it| it.pid.into());
    let own = Some(it.pid).filter(|pid| *pid > 0);
    Next {
        place: it.token,
        command: it.command.as_ref().map(command),
        process: it.process.map(|it| it.process.to_string()),
        pid: pid.or(own).unwrap_or(here.pid.into()),
        until_at: here.date(it.until),
        live: it.is_live(here.now),
    }
}
