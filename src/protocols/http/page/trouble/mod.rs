//! The list of problems. Each states what is wrong, and where to look or what to do. Finding all problems of one kind takes at most one
//! query to an actor, however many items there are.

use crate::actors::dispatch;
use crate::actors::lease::LeaseView;
use crate::actors::process::{self, End, ServiceView, Status};
use crate::actors::queue::Rules;
use crate::protocols::http::call::Call;
use crate::protocols::http::page::render::{Link, PageClock, count, name, words};
use crate::protocols::http::problem::Problem;
use crate::status::{ActorReport, NodeStatus};
use crate::text;
use maud::{Markup, html};
use std::ops::RangeInclusive;

/// The percentage of a limit at which its usage is reported as a problem.
const FULL: u64 = 80;

/// The exit statuses with which `sexton work` and shells report that a command could not be launched.
const NOT_LAUNCHED: RangeInclusive<u8> = 125..=127;

/// How long an exit with a status in [`NOT_LAUNCHED`] is reported, in milliseconds, even if the service is running again: a worker may wait
/// up to an hour before it retries the job and fails again.
const RECENT_MS: u64 = 3_600_000;

/// The maximum number of leases whose failed passes are listed one by one.
const LEASES: u32 = 50;

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Something does not work.
    Bad,
    /// Something works, but needs attention: it failed before, may fail soon, or is held up.
    Warn,
}

impl Level {
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Bad => "bad",
            Self::Warn => "warn",
        }
    }
}

/// A problem.
pub(crate) struct Trouble {
    pub(crate) level: Level,
    /// A title of a few words.
    pub(crate) what: &'static str,
    pub(crate) words: Markup,
}

impl Trouble {
    const fn bad(what: &'static str, words: Markup) -> Self {
        let level = Level::Bad;
        Self { level, what, words }
    }

    const fn warn(what: &'static str, words: Markup) -> Self {
        let level = Level::Warn;
        Self { level, what, words }
    }
}

/// The totals that [`NodeStatus`] does not contain. `processes` is `None` unless the user may run commands.
pub(crate) struct Others {
    pub(crate) tasks: dispatch::Totals,
    pub(crate) processes: Option<process::Totals>,
}

impl Others {
    pub(crate) async fn of(call: &Call) -> Result<Self, Problem> {
        let tasks = call.node.tasks().totals().await?;
        let processes = if call.may_run() {
            Some(call.node.processes().totals().await?)
        } else {
            None
        };
        Ok(Self { tasks, processes })
    }
}

/// Returns all problems, the worst first. `active` are the leases whose running passes are examined.
pub(crate) async fn all(
    call: &Call,
    status: &NodeStatus,
    active: &[LeaseView],
    Others { tasks, processes }: &Others,
) -> Result<Vec<Trouble>, Problem> {
    let here = PageClock::of(&call.node);
    let mut all = of_node(status);
    all.extend(status.actors.iter().flat_map(|it| of_actor(it, here)));
    all.extend(of_disk(status, here));
    all.extend(of_machine(status));
    all.extend(of_queues(status, call.node.queue_rules()));
    all.extend(of_leases(call, active).await?);
    all.extend(of_tasks(tasks));
    if let Some(processes) = processes {
        all.extend(of_processes(processes));
        let services = call.node.services().list(None).await?;
        all.extend(services.iter().filter_map(|it| of_service(it, here)));
    }
    all.sort_by_key(|trouble| trouble.level);
    Ok(all)
}

fn of_node(status: &NodeStatus) -> Vec<Trouble> {
    let mut all = Vec::new();
    if status.draining {
        let what = status.draining_what.join(", ");
        all.push(Trouble::warn(
            "Draining",
            html! { "New " (what) " are refused until the coordinator restarts. It stops once nothing is held." },
        ));
    }
    if let Some(ahead) = status.clock_ahead_ms {
        all.push(Trouble::warn(
            "Clock in doubt",
            html! { "The wall clock is " (text::span(ahead)) " ahead of the expected time. Nothing is pruned until you run " code { "sexton confirm-clock" } ", or an hour passes without a step of the clock." },
        ));
    }
    let problems = status.reloaded.iter().flat_map(|it| &it.problems);
    all.extend(problems.map(|problem| {
        Trouble::warn(
            "Configuration",
            html! { "The last reload could not apply a setting: " (words(problem)) },
        )
    }));
    if let Some(cut) = &status.recovered.cut {
        all.push(Trouble::warn(
            "Journal was cut",
            html! { "Incomplete data at the end of the journal was cut off at startup: " (words(cut)) },
        ));
    }
    all.extend(
        status
            .recovered
            .mended
            .iter()
            .map(|mended| Trouble::warn("Snapshot mended", html! { (words(mended)) })),
    );
    all
}

fn of_actor(actor: &ActorReport, here: PageClock) -> Vec<Trouble> {
    let mut all = Vec::new();
    let ActorReport { status, panics } = actor;
    if !status.quarantined.is_empty() {
        let items = text::count(status.quarantined.len() as u64, "item");
        all.push(Trouble::bad(
            "Quarantined",
            html! { "Timers of " (items) " of the " (status.name) " actor caused panics, and no longer run." },
        ));
    }
    let restarts = panics.restarts + panics.rebuilds;
    if restarts > 0 {
        all.push(Trouble::warn(
            "Restarted",
            html! {
                "The " (status.name) " actor panicked, and was restarted " (text::count(restarts, "time"))
                @if let Some(newest) = panics.causes.back() {
                    "; the last panic was " (here.since(newest.at)) " ago, at entry " (newest.seq.0) ": " (words(&newest.cause))
                }
            },
        ));
    }
    all
}

fn of_disk(status: &NodeStatus, here: PageClock) -> Vec<Trouble> {
    let mut all = Vec::new();
    let room = status.journal.map_or("ample", |it| it.room);
    if room != "ample" {
        all.push(Trouble::bad(
            "Disk is filling up",
            html! { "Disk space for the journal is " (room) ": requests that add something are refused until space is freed." },
        ));
    }
    let Some(snapshots) = &status.snapshots else {
        return all;
    };
    if let Some(failure) = &snapshots.last_failure {
        let last = snapshots.last.as_ref().map(|it| here.since(it.at));
        all.push(Trouble::bad(
            "No snapshots",
            html! {
                "The last checkpoint failed: " (words(failure))
                @if let Some(last) = last { "; the last successful one was " (last) " ago" }
                ". The journal grows until one succeeds."
            },
        ));
    }
    all
}

/// Returns the percentage of a limit that is used, or `None` if it is below [`FULL`].
fn filled(used: u64, most: u64) -> Option<u64> {
    let percent = u128::from(used) * 100 / u128::from(most.max(1));
    u64::try_from(percent)
        .ok()
        .filter(|percent| *percent >= FULL)
}

fn of_machine(status: &NodeStatus) -> Vec<Trouble> {
    let (host, process) = (&status.host, &status.process);
    let mut all = Vec::new();
    if let (Some(all_of_it), Some(left)) = (host.memory_bytes, host.memory_available_bytes)
        && let Some(percent) =
            filled(all_of_it.saturating_sub(left), all_of_it).filter(|it| *it >= 90)
    {
        all.push(Trouble::warn(
            "Memory",
            html! { (percent) " % of the machine's memory is in use; " (text::bytes(left)) " left." },
        ));
    }
    if let (Some(open), Some(most)) = (process.descriptors, process.descriptors_max)
        && let Some(percent) = filled(open, most)
    {
        all.push(Trouble::warn(
            "Descriptors",
            html! { (percent) " % of the limit of " (count(most)) " file descriptors is in use." },
        ));
    }
    all
}

fn of_queues(status: &NodeStatus, rules: &Rules) -> Vec<Trouble> {
    let totals = &status.queues;
    let mut all = Vec::new();
    let jobs = |number: u32, phase: &str| {
        let link = Link::to("/page/jobs").with("phase", phase.as_bytes());
        html! { a href=(link) { (text::count(number.into(), "job")) } }
    };
    if totals.jobs.abandoned > 0 {
        let jobs = jobs(totals.jobs.abandoned, "abandoned");
        all.push(Trouble::bad(
            "Jobs failed",
            html! { (jobs) " failed permanently, and can be retried or discarded." },
        ));
    }
    if totals.jobs.quarantined > 0 {
        let jobs = jobs(totals.jobs.quarantined, "quarantined");
        all.push(Trouble::bad(
            "Jobs crashed",
            html! { (jobs) " crashed too often; they wait until they are retried or discarded." },
        ));
    }
    if totals.jobs.buried > 0 {
        let jobs = jobs(totals.jobs.buried, "buried");
        all.push(Trouble::warn(
            "Jobs buried",
            html! { (jobs) ", set aside by clients, cannot be claimed until kicked." },
        ));
    }
    if totals.jobs.retrying > 0 {
        let jobs = jobs(totals.jobs.retrying, "retrying");
        all.push(Trouble::warn(
            "Jobs failing",
            html! { (jobs) " failed, and will be retried." },
        ));
    }
    let in_all: u64 = [
        totals.jobs.ready,
        totals.jobs.delayed,
        totals.jobs.claimed,
        totals.jobs.buried,
        totals.jobs.abandoned,
        totals.jobs.retrying,
        totals.jobs.quarantined,
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
            all.push(Trouble::bad(
                "Filling up",
                html! { (count(used)) " " (what) ": " (percent) " % of the limit. Requests that would exceed the limit are refused." },
            ));
        }
    }
    all
}

fn of_tasks(tasks: &dispatch::Totals) -> Vec<Trouble> {
    let mut all = Vec::new();
    if tasks.failed > 0 {
        all.push(Trouble::bad(
            "Tasks failed",
            html! { a href="/page/tasks?status=complete" { (text::count(tasks.failed, "task")) } " ended without completing the work." },
        ));
    }
    if tasks.pause != dispatch::Pause::Off {
        let how = tasks.pause.name();
        all.push(Trouble::warn(
            "Tasks paused",
            html! { "All tasks are paused (" (how) ")." },
        ));
    }
    all
}

fn of_processes(totals: &process::Totals) -> Option<Trouble> {
    (totals.stuck > 0).then(|| {
        Trouble::bad(
            "Processes stuck",
            html! { a href="/page/processes?status=stopping" { (text::count(totals.stuck.into(), "process")) } " did not exit after SIGKILL." },
        )
    })
}

/// Returns the problems of leases: the latest passes that failed, whether or not the lease is still active, and what is wrong with the active
/// leases.
async fn of_leases(call: &Call, active: &[LeaseView]) -> Result<Vec<Trouble>, Problem> {
    let here = PageClock::of(&call.node);
    let failed = call.node.leases().failed(LEASES).await?;
    let others = active.iter().filter(|it| it.lease.failure().is_none());
    let leases = failed.leases.iter().chain(others);
    let mut all: Vec<Trouble> = leases.filter_map(|it| of_lease(it, here)).collect();
    if failed.more {
        all.push(Trouble::bad(
            "Leases failed",
            html! { "The last passes of further leases failed: see " code { "sexton lease list" } "." },
        ));
    }
    Ok(all)
}

fn of_lease(view: &LeaseView, here: PageClock) -> Option<Trouble> {
    let lease = &view.lease;
    let link = Link::to("/page/lease").with("name", lease.name.as_bytes());
    let link = html! { a href=(link) { (name(lease.name.as_bytes())) } };
    let current = lease.current.as_ref();
    if let Some(current) = current.filter(|it| it.runs() && it.warnings > 0) {
        let since = here.since(current.since);
        return Some(Trouble::warn(
            "Lease overruns",
            html! { "The pass of " (link) " has been running for " (since) ", longer than its period." },
        ));
    }
    if let Some(end) = lease.failure() {
        let shows = format!("sexton lease show {}", lease.name.to_text());
        return Some(Trouble::bad(
            "Lease failed",
            html! {
                "The last pass of " (link) " failed " (here.since(end.at)) " ago"
                @if let Some(exit) = end.exit { " (" (exit.to_string()) ")" }
                @if lease.broken > 1 { ", like the " (lease.broken - 1) " before it" }
                ": see " code { (words(&shows)) } "."
            },
        ));
    }
    (lease.broken > 0).then(|| {
        let passes = text::count(lease.broken.into(), "pass");
        Trouble::bad(
            "Lease fails",
            html! { "The last " (passes) " of " (link) " did not run to completion." },
        )
    })
}

/// Returns a problem if a process of the service exited within the last `RECENT_MS` because a command could not be launched: the service's
/// own command or, if the service is a worker, the command for its jobs. Such a worker is restarted, and seems to run normally until it
/// tries the job again. Otherwise, returns `None`.
fn unlaunched(service: &ServiceView, here: PageClock) -> Option<Trouble> {
    let ends = service.instances.iter().filter_map(|it| {
        let last = it.last.as_ref()?;
        let code = last.end.and_then(End::code)?;
        (NOT_LAUNCHED.contains(&code) && here.is_within(last.at, RECENT_MS))
            .then_some((last.at, code))
    });
    let (at, code) = ends.max()?;
    let logs = format!("sexton service logs {} --stderr", service.name);
    let link = html! { a href="/page/processes" { (name(service.name.as_bytes())) } };
    let words = html! {
        (link) " exited " (here.since_date(at)) " ago with status " (code) ", because a command could not be launched: see " code { (words(&logs)) } "."
    };
    let what = "Command not run";
    Some(if service.status == Status::Backoff {
        Trouble::bad(what, words)
    } else {
        Trouble::warn(what, words)
    })
}

fn of_service(service: &ServiceView, here: PageClock) -> Option<Trouble> {
    let restarts: usize = service.instances.iter().map(|it| it.restarts).sum();
    let link = html! { a href="/page/processes" { (name(service.name.as_bytes())) } };
    match service.status {
        Status::Failed => Some(Trouble::bad(
            "Service failed",
            html! { (link) " failed, and will not be restarted automatically." },
        )),
        Status::Backoff => unlaunched(service, here).or_else(|| Some(Trouble::bad(
            "Service restarts",
            html! { (link) " is not running, and will be restarted after a delay. Recent restarts: " (restarts) "." },
        ))),
        Status::Waiting => Some(Trouble::warn(
            "Service waits",
            html! { (link) " is waiting for " (words(&service.waits_for.join(", "))) "." },
        )),
        Status::Stopped
        | Status::Finished
        | Status::Running
        | Status::Starting
        | Status::Stopping => unlaunched(service, here).or_else(|| (restarts > 0).then(|| {
            Trouble::warn(
                "Service restarted",
                html! { (link) " was restarted " (text::count(restarts as u64, "time")) " recently." },
            )
        })),
    }
}

#[cfg(test)]
mod tests;
