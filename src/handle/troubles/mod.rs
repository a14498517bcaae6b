//! Finds the problems of a node. Finding all problems of one kind takes at most one query to an actor, however many items there are.

use crate::actors::dispatch;
use crate::actors::lease::LeaseView;
use crate::actors::process::{self, End, Phase, RecordView, Selection, ServiceView, Status};
use crate::actors::queue::Rules;
use crate::clock::{Date, Offset, Timestamp};
use crate::handle::{Handle, LeaseError, ProcessError};
use crate::refusal::Reason;
use crate::spine::runtime::Stopped;
use crate::status::{ActorReport, NodeStatus};
use crate::text;
use crate::trouble::{Kind, Subject, Trouble};
use std::ops::RangeInclusive;

/// The percentage of a limit at which its usage is reported as a problem.
const FULL: u64 = 80;

/// The percentage of the machine's memory at which its usage is reported as a problem.
const MEMORY_FULL: u64 = 90;

/// The exit statuses with which `sexton work` and shells report that a command could not be launched.
const NOT_LAUNCHED: RangeInclusive<u8> = 125..=127;

/// How long an exit with a status in [`NOT_LAUNCHED`] is reported, in milliseconds, even if the service is running again: a worker may wait
/// up to an hour before it retries the job and fails again.
const RECENT_MS: u64 = 3_600_000;

/// The maximum number of leases, and of stopping process trees, that are examined one by one.
const EXAMINED: u32 = 50;

/// Why the problems could not be determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TroubleError {
    /// The leases could not be queried.
    #[error(transparent)]
    Leases(#[from] LeaseError),
    /// The processes could not be queried.
    #[error(transparent)]
    Processes(#[from] ProcessError),
    /// The node has stopped, or halted.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl TroubleError {
    /// Returns the machine-readable reason.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Leases(error) => error.reason(),
            Self::Processes(error) => error.reason(),
            Self::Stopped(_) => Reason::Stopped,
        }
    }
}

/// The current time, for spans since an earlier one.
#[derive(Clone, Copy, Debug)]
struct Now {
    at: Timestamp,
    offset: Offset,
}

impl Now {
    fn since(self, at: Timestamp) -> String {
        text::span(self.ms_since(at))
    }

    const fn ms_since(self, at: Timestamp) -> u64 {
        self.at.0.saturating_sub(at.0)
    }

    /// Returns the node time that corresponds to a date.
    fn time(self, date: Date) -> Timestamp {
        self.offset.time(date)
    }
}

impl Handle {
    /// Returns everything that is wrong with the node, the worst first. Empty if all is well.
    ///
    /// # Errors
    ///
    /// If an actor cannot answer.
    pub async fn troubles(&self) -> Result<Vec<Trouble>, TroubleError> {
        let status = self.status().await?;
        self.troubles_of(&status, true).await
    }

    /// Does the same, with a status that was read before. The problems of processes and services are left out unless `processes` is set:
    /// their commands and names are not for everybody.
    pub async fn troubles_of(
        &self,
        status: &NodeStatus,
        processes: bool,
    ) -> Result<Vec<Trouble>, TroubleError> {
        let (at, offset) = (self.now(), self.offset());
        let now = Now { at, offset };
        let mut all = of_status(status, self.queue_rules(), now);
        all.extend(self.of_leases(now).await?);
        if processes {
            all.extend(self.of_processes().await?);
            let services = self.services().list(None).await?;
            all.extend(services.iter().filter_map(|it| of_service(it, now)));
        }
        all.sort_by_key(|trouble| (trouble.kind.level(), trouble.kind.is_of_plain_clients()));
        Ok(all)
    }

    /// Returns the problems of leases: the latest passes that failed, whether or not the lease is still active, and what is wrong with the
    /// active leases.
    async fn of_leases(&self, now: Now) -> Result<Vec<Trouble>, LeaseError> {
        let failed = self.leases().failed(EXAMINED).await?;
        let unwell = self.leases().unwell(EXAMINED).await?;
        // The latest pass may have failed in between.
        let others = unwell.leases.iter().filter(|it| it.lease.failure().is_none());
        let leases = failed.leases.iter().chain(others);
        let mut all: Vec<Trouble> = leases.filter_map(|it| of_lease(it, now)).collect();
        if failed.more {
            // Those whose pass any client may have claimed follow all others.
            let last = failed.leases.last();
            let is_plain = last.is_some_and(|it| it.lease.is_of_plain_client());
            let more = Trouble::new(if is_plain { Kind::ClaimFailed } else { Kind::LeaseFailed });
            let more = more.text("The last passes of further leases failed: see ");
            all.push(more.command("sexton lease list").text("."));
        }
        Ok(all)
    }

    /// Returns the process trees that are being stopped and are stuck, one by one if they are few.
    async fn of_processes(&self) -> Result<Vec<Trouble>, ProcessError> {
        let totals = self.processes().totals().await?;
        if totals.stuck == 0 {
            return Ok(Vec::new());
        }
        let selection =
            Selection { phases: vec![Phase::Stopping], most: EXAMINED, ..Selection::default() };
        let (records, _) = self.processes().list(selection).await?;
        let mut all: Vec<Trouble> = records.iter().filter_map(of_stuck).collect();
        all.extend(more_stuck(&totals, all.len()));
        Ok(all)
    }
}

/// Returns the problems that follow from a status alone.
fn of_status(status: &NodeStatus, rules: &Rules, now: Now) -> Vec<Trouble> {
    let mut all = of_node(status);
    all.extend(status.actors.iter().flat_map(|it| of_actor(it, now)));
    all.extend(of_disk(status, now));
    all.extend(of_machine(status));
    all.extend(of_queues(status, rules));
    all.extend(of_tasks(&status.tasks));
    all
}

fn of_node(status: &NodeStatus) -> Vec<Trouble> {
    let mut all = Vec::new();
    if status.draining {
        let what = status.draining_what.join(", ");
        all.push(Trouble::new(Kind::Draining).text(format!(
            "New {what} are refused until the coordinator restarts. It stops once nothing is held."
        )));
    }
    if let Some(ahead) = status.clock_ahead_ms {
        let ahead = text::span(ahead);
        let trouble = Trouble::new(Kind::ClockInDoubt)
            .text(format!("The wall clock is {ahead} ahead of the expected time. Nothing is pruned until you run "))
            .command("sexton confirm-clock")
            .text(", or an hour passes without a step of the clock.");
        all.push(trouble);
    }
    let problems = status.reloaded.iter().flat_map(|it| &it.problems);
    all.extend(problems.map(|problem| {
        let trouble = Trouble::new(Kind::Configuration);
        let trouble = trouble.text("The last reload could not apply a setting: ");
        trouble.quoted(problem)
    }));
    if let Some(cut) = &status.recovered.cut {
        let trouble = Trouble::new(Kind::JournalCut);
        let trouble =
            trouble.text("Incomplete data at the end of the journal was cut off at startup: ");
        all.push(trouble.quoted(cut));
    }
    let mended = status.recovered.mended.iter();
    all.extend(mended.map(|mended| Trouble::new(Kind::SnapshotMended).quoted(mended)));
    if status.following.unknown > 0 {
        let processes = text::count(status.following.unknown.into(), "process");
        let trouble = Trouble::new(Kind::ProcessesUnknown).text(format!(
            "The state of {processes} is unknown, because looking them up failed; it is tried again. What they hold is kept until then."
        ));
        all.push(trouble);
    }
    all
}

fn of_actor(actor: &ActorReport, now: Now) -> Vec<Trouble> {
    let mut all = Vec::new();
    let ActorReport { status, panics } = actor;
    if !status.quarantined.is_empty() {
        let items = text::count(status.quarantined.len() as u64, "item");
        let name = status.name;
        all.push(Trouble::new(Kind::ActorQuarantined).text(format!(
            "Timers of {items} of the {name} actor caused panics, and no longer run."
        )));
    }
    let restarts = panics.restarts + panics.rebuilds;
    if restarts > 0 {
        let (name, times) = (status.name, text::count(restarts, "time"));
        let mut trouble = Trouble::new(Kind::ActorRestarted)
            .text(format!("The {name} actor panicked, and was restarted {times}"));
        if let Some(newest) = panics.causes.back() {
            let (ago, entry) = (now.since(newest.at), newest.seq.0);
            trouble = trouble
                .text(format!("; the last panic was {ago} ago, at entry {entry}: "))
                .quoted(&newest.cause);
        }
        all.push(trouble);
    }
    all
}

fn of_disk(status: &NodeStatus, now: Now) -> Vec<Trouble> {
    let mut all = Vec::new();
    let room = status.journal.map_or("ample", |it| it.room);
    if room != "ample" {
        all.push(Trouble::new(Kind::DiskFilling).text(format!(
            "Disk space for the journal is {room}: requests that add something are refused until space is freed."
        )));
    }
    let Some(snapshots) = &status.snapshots else {
        return all;
    };
    if let Some(failure) = &snapshots.last_failure {
        let trouble = Trouble::new(Kind::SnapshotsFailing);
        let mut trouble = trouble.text("The last checkpoint failed: ").quoted(failure);
        if let Some(last) = &snapshots.last {
            let ago = now.since(last.at);
            trouble = trouble.text(format!("; the last successful one was {ago} ago"));
        }
        all.push(trouble.text(". The journal grows until one succeeds."));
    }
    all
}

/// Returns the percentage of a limit that is used, or `None` if it is below [`FULL`].
fn filled(used: u64, most: u64) -> Option<u64> {
    let percent = u128::from(used) * 100 / u128::from(most.max(1));
    u64::try_from(percent).ok().filter(|percent| *percent >= FULL)
}

fn of_machine(status: &NodeStatus) -> Vec<Trouble> {
    let (host, process) = (&status.host, &status.process);
    let mut all = Vec::new();
    if let (Some(all_of_it), Some(left)) = (host.memory_bytes, host.memory_available_bytes)
        && let Some(percent) =
            filled(all_of_it.saturating_sub(left), all_of_it).filter(|it| *it >= MEMORY_FULL)
    {
        let left = text::bytes(left);
        all.push(
            Trouble::new(Kind::Memory)
                .text(format!("{percent} % of the machine's memory is in use; {left} left.")),
        );
    }
    if let (Some(open), Some(most)) = (process.descriptors, process.descriptors_max)
        && let Some(percent) = filled(open, most)
    {
        let most = text::grouped(most);
        all.push(
            Trouble::new(Kind::Descriptors)
                .text(format!("{percent} % of the limit of {most} file descriptors is in use.")),
        );
    }
    all
}

fn of_queues(status: &NodeStatus, rules: &Rules) -> Vec<Trouble> {
    let totals = &status.queues;
    let jobs = totals.jobs;
    let phases = [
        (
            Kind::JobsAbandoned,
            jobs.abandoned,
            "abandoned",
            " failed permanently, and can be retried or discarded.",
        ),
        (
            Kind::JobsQuarantined,
            jobs.quarantined,
            "quarantined",
            " crashed too often; they wait until they are retried or discarded.",
        ),
        (
            Kind::JobsBuried,
            jobs.buried,
            "buried",
            ", set aside by clients, cannot be claimed until kicked.",
        ),
        (Kind::JobsRetrying, jobs.retrying, "retrying", " failed, and will be retried."),
    ];
    let phases = phases.into_iter().filter(|(_, number, ..)| *number > 0);
    let mut all: Vec<Trouble> = phases
        .map(|(kind, number, phase, what)| {
            let subject = Subject::Jobs(number.into(), phase);
            Trouble::new(kind).about(subject).text(what)
        })
        .collect();
    let in_all: u64 = [
        jobs.ready,
        jobs.delayed,
        jobs.claimed,
        jobs.buried,
        jobs.abandoned,
        jobs.retrying,
        jobs.quarantined,
    ]
    .into_iter()
    .map(u64::from)
    .sum();
    for (what, used, most) in [
        ("jobs", in_all, u64::from(rules.jobs_max)),
        ("bytes of jobs", totals.bytes, rules.bytes_max),
        ("queues", totals.queues.into(), rules.queues_max.into()),
    ] {
        if let Some(percent) = filled(used, most) {
            let used = text::grouped(used);
            all.push(Trouble::new(Kind::QueuesFilling).text(format!(
                "{used} {what}: {percent} % of the limit. Requests that would exceed the limit are refused."
            )));
        }
    }
    all
}

fn of_tasks(tasks: &dispatch::Totals) -> Vec<Trouble> {
    let mut all = Vec::new();
    if tasks.failed > 0 {
        let trouble = Trouble::new(Kind::TasksFailed).about(Subject::Tasks(tasks.failed));
        all.push(trouble.text(" ended without completing the work."));
    }
    if tasks.pause != dispatch::Pause::Off {
        let how = tasks.pause.name();
        let trouble = Trouble::new(Kind::TasksPaused);
        all.push(trouble.text(format!("All tasks are paused ({how}).")));
    }
    all
}

/// Returns a problem if the record is of a process tree that is being stopped and is stuck: some of its processes survive SIGKILL, or it is
/// unknown whether some processes belong to it.
fn of_stuck(record: &RecordView) -> Option<Trouble> {
    let stuck = record.stuck?;
    let why = match (stuck.unkillable, stuck.unknown) {
        (0, 0) => return None,
        (0, unknown) => {
            let processes = text::count(unknown.into(), "process");
            format!(": {processes} may or may not belong to its tree.")
        }
        (unkillable, _) => {
            let processes = text::count(unkillable.into(), "process");
            format!(": {processes} of its tree did not exit after SIGKILL.")
        }
    };
    let pid = record.identity.as_ref().map(|it| it.pid.to_string());
    let pid = pid.unwrap_or_else(|| "-".to_owned());
    Some(
        Trouble::new(Kind::ProcessStuck)
            .text(format!("Process {pid}, "))
            .about(Subject::Process(record.id.to_string()))
            .text(", ")
            .quoted(&record.kind)
            .text(why),
    )
}

/// Returns a problem if more processes are stuck than the `listed` ones.
fn more_stuck(totals: &process::Totals, listed: usize) -> Option<Trouble> {
    let more = u64::from(totals.stuck).saturating_sub(listed as u64);
    (more > 0).then(|| {
        let trouble = Trouble::new(Kind::ProcessStuck).about(Subject::Processes(more));
        trouble.text(" did not exit after SIGKILL.")
    })
}

fn of_lease(view: &LeaseView, now: Now) -> Option<Trouble> {
    let lease = &view.lease;
    let name = lease.name.to_text();
    let subject = Subject::Lease(lease.name.clone());
    let current = lease.current.as_ref();
    let is_plain = lease.is_of_plain_client();
    let kind = |ours, theirs| Trouble::new(if is_plain { theirs } else { ours });
    if let Some(current) = current.filter(|it| it.runs() && it.warnings > 0) {
        let since = now.since(current.since);
        let trouble = kind(Kind::LeaseOverruns, Kind::ClaimOverruns).text("The pass of ");
        let trouble = trouble.about(subject);
        return Some(
            trouble.text(format!(" has been running for {since}, longer than its period.")),
        );
    }
    if let Some(end) = lease.failure() {
        let mut how = format!(" failed {} ago", now.since(end.at));
        if let Some(exit) = end.exit {
            how = format!("{how} ({exit})");
        }
        if lease.broken > 1 {
            how = format!("{how}, like the {} before it", lease.broken - 1);
        }
        let trouble = kind(Kind::LeaseFailed, Kind::ClaimFailed).text("The last pass of ");
        let trouble = trouble.about(subject).text(format!("{how}: see "));
        let trouble = trouble.command(format!("sexton lease show {}", pasted(&name)));
        return Some(trouble.text("."));
    }
    (lease.broken > 0).then(|| {
        let passes = text::count(lease.broken.into(), "pass");
        let trouble = kind(Kind::LeaseIncomplete, Kind::ClaimIncomplete);
        let trouble = trouble.text(format!("The last {passes} of "));
        trouble.about(subject).text(" did not run to completion.")
    })
}

/// Returns a name that stands for itself in a command that somebody may paste into a shell, or else a placeholder: clients choose names.
fn pasted(name: &str) -> &str {
    let stands_for_itself = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b'/' | b'@')
    };
    if name.bytes().all(stands_for_itself) && !name.starts_with('-') && !name.is_empty() {
        name
    } else {
        "NAME"
    }
}

/// Returns a problem if a process of the service exited within the last `RECENT_MS` because a command could not be launched: the service's
/// own command or, if the service is a worker, the command for its jobs. Such a worker is restarted, and seems to run normally until it
/// tries the job again. Otherwise, returns `None`.
fn unlaunched(service: &ServiceView, now: Now) -> Option<Trouble> {
    let ends = service.instances.iter().filter_map(|it| {
        let last = it.last.as_ref()?;
        let code = last.end.and_then(End::code)?;
        let at = now.time(last.at);
        (NOT_LAUNCHED.contains(&code) && now.ms_since(at) <= RECENT_MS).then_some((at, code))
    });
    let (at, code) = ends.max()?;
    let kind = if service.status == Status::Backoff {
        Kind::CommandNotRun
    } else {
        Kind::CommandNotRunBefore
    };
    let ago = now.since(at);
    let trouble = Trouble::new(kind).about(Subject::Service(service.name.clone()));
    let trouble = trouble.text(format!(
        " exited {ago} ago with status {code}, because a command could not be launched: see "
    ));
    let logs = format!("sexton service logs {} --stderr", service.name);
    Some(trouble.command(logs).text("."))
}

fn of_service(service: &ServiceView, now: Now) -> Option<Trouble> {
    let restarts: usize = service.instances.iter().map(|it| it.restarts).sum();
    let about = |kind: Kind| Trouble::new(kind).about(Subject::Service(service.name.clone()));
    match service.status {
        Status::Failed => Some(
            about(Kind::ServiceFailed).text(" failed, and will not be restarted automatically."),
        ),
        Status::Backoff => unlaunched(service, now).or_else(|| {
            Some(about(Kind::ServiceBackoff).text(format!(
                " is not running, and will be restarted after a delay. Recent restarts: {restarts}."
            )))
        }),
        Status::Waiting => {
            let trouble = about(Kind::ServiceWaiting).text(" is waiting for ");
            Some(trouble.quoted(service.waits_for.join(", ")).text("."))
        }
        Status::Stopped
        | Status::Finished
        | Status::Running
        | Status::Starting
        | Status::Stopping => unlaunched(service, now).or_else(|| {
            (restarts > 0).then(|| {
                let times = text::count(restarts as u64, "time");
                let trouble = about(Kind::ServiceRestarted);
                trouble.text(format!(" was restarted {times} recently."))
            })
        }),
    }
}

#[cfg(test)]
mod tests;
