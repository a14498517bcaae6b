//! Tests the text and level of every kind of problem, with made-up statuses.

use super::*;
use crate::actors::binding::Exit;
use crate::actors::dispatch::Pause;
use crate::actors::lease::{self, Current, Holder, Lease, Progress};
use crate::actors::process::{InstanceView, Last, Policy};
use crate::actors::queue::{Counts, Totals};
use crate::actors::supervisor::{self, Cause};
use crate::ids::{ProcessId, Seq, Token};
use crate::persist::journal::JournalCounts;
use crate::spine::checkpoint::SnapshotStatus;
use crate::spine::delivery::{Report, Stage};
use crate::spine::runtime::ActorStatus;
use crate::status::{HostStatus, JournalStatus, ProcessStatus, Recovered, Reloaded};

const NOW: Now = at(Timestamp(100_000));

/// Returns the time `at` on a node whose wall clock equals node time.
const fn at(at: Timestamp) -> Now {
    let offset = Offset(0);
    Now { at, offset }
}

/// Formats problems with level and title.
fn said(troubles: impl IntoIterator<Item = Trouble>) -> Vec<String> {
    let said = |it: Trouble| format!("{} {}: {it}", it.kind.level().name(), it.kind.title());
    troubles.into_iter().map(said).collect()
}

/// Returns all problems that follow from a status alone.
fn of(status: &NodeStatus) -> Vec<String> {
    said(of_status(status, &Rules::default(), NOW))
}

fn actor(quarantined: usize, panics: supervisor::Record) -> NodeStatus {
    let report = Report {
        actor: "lock",
        stage: Stage::Tick,
        seq: Seq(7),
        at: Timestamp(1),
        offset: Offset::default(),
        cause: String::new(),
        item: Some(1),
    };
    let status = ActorStatus {
        name: "lock",
        last: Seq(9),
        digest: None,
        gauges: Vec::new(),
        quarantined: vec![report; quarantined],
    };
    NodeStatus { actors: vec![ActorReport { status, panics }], ..NodeStatus::default() }
}

fn queues(change: impl FnOnce(&mut Totals)) -> NodeStatus {
    let mut status = NodeStatus::default();
    change(&mut status.queues);
    status
}

#[test]
fn nothing_is_said_of_what_is_well() {
    assert_eq!(of(&NodeStatus::default()), Vec::<String>::new());
    assert!(of_tasks(&dispatch::Totals::default()).is_empty());
    assert!(more_stuck(&process::Totals::default(), 0).is_none());
    assert!(of_lease(&lease(0, None), NOW).is_none());
    for status in [Status::Running, Status::Stopped, Status::Finished] {
        assert!(of_service(&service(status, 0), NOW).is_none());
    }
}

#[test]
fn a_node_says_what_its_start_and_its_clock_found() {
    let recovered = |cut: Option<&str>, mended: &[&str]| NodeStatus {
        recovered: Recovered {
            cut: cut.map(str::to_owned),
            mended: mended.iter().map(|&it| it.to_owned()).collect(),
            ..Recovered::default()
        },
        ..NodeStatus::default()
    };
    let draining = NodeStatus {
        draining: true,
        draining_what: vec!["locks", "jobs"],
        ..NodeStatus::default()
    };
    let clock = NodeStatus { clock_ahead_ms: Some(86_400_000), ..NodeStatus::default() };
    let reloaded = NodeStatus {
        reloaded: Some(Reloaded { count: 2, problems: vec!["fsync: only at a start".to_owned()] }),
        ..NodeStatus::default()
    };
    for (status, expected) in [
        (
            draining,
            "warn Draining: New locks, jobs are refused until the coordinator restarts. It stops once nothing is held.",
        ),
        (
            clock,
            "warn Clock in doubt: The wall clock is 1 d 0 h ahead of the expected time. Nothing is pruned until you run `sexton confirm-clock`, or an hour passes without a step of the clock.",
        ),
        (
            reloaded,
            "warn Configuration: The last reload could not apply a setting: fsync: only at a start",
        ),
        (
            recovered(Some("at byte 7"), &[]),
            "warn Journal was cut: Incomplete data at the end of the journal was cut off at startup: at byte 7",
        ),
        (recovered(None, &["slot a"]), "warn Snapshot mended: slot a"),
    ] {
        assert_eq!(of(&status), [expected]);
    }
}

#[test]
fn an_actor_says_that_it_panicked() {
    let cause = Cause {
        stage: Stage::Decide,
        seq: Seq(7),
        at: Timestamp(40_000),
        cause: "planted".to_owned(),
        item: None,
    };
    let panicked = supervisor::Record { restarts: 1, rebuilds: 1, causes: [cause].into() };
    assert_eq!(
        of(&actor(0, panicked)),
        [
            "warn Restarted: The lock actor panicked, and was restarted 2 times; the last panic was 1 min 0 s ago, at entry 7: planted"
        ]
    );
    assert_eq!(
        of(&actor(2, supervisor::Record::default())),
        ["bad Quarantined: Timers of 2 items of the lock actor caused panics, and no longer run."]
    );
}

#[test]
fn disk_and_machine_say_what_runs_short() {
    let journal = JournalStatus { released: Seq(1), counts: JournalCounts::default(), room: "low" };
    let disk = NodeStatus { journal: Some(journal), ..NodeStatus::default() };
    let snapshots = NodeStatus {
        snapshots: Some(SnapshotStatus {
            last_failure: Some("no space".to_owned()),
            ..SnapshotStatus::default()
        }),
        ..NodeStatus::default()
    };
    let memory = |available: u64| NodeStatus {
        host: HostStatus {
            memory_bytes: Some(1 << 30),
            memory_available_bytes: Some(available),
            ..HostStatus::default()
        },
        ..NodeStatus::default()
    };
    let descriptors = NodeStatus {
        process: ProcessStatus {
            descriptors: Some(900),
            descriptors_max: Some(1000),
            ..ProcessStatus::default()
        },
        ..NodeStatus::default()
    };
    for (status, expected) in [
        (
            disk,
            "bad Disk is filling up: Disk space for the journal is low: requests that add something are refused until space is freed.",
        ),
        (
            snapshots,
            "bad No snapshots: The last checkpoint failed: no space. The journal grows until one succeeds.",
        ),
        (memory(1 << 20), "warn Memory: 99 % of the machine's memory is in use; 1.0 MiB left."),
        (descriptors, "warn Descriptors: 90 % of the limit of 1,000 file descriptors is in use."),
    ] {
        assert_eq!(of(&status), [expected]);
    }
    assert!(of(&memory(1 << 29)).is_empty(), "half of the memory is left");
}

#[test]
fn queues_say_what_fails_and_what_fills_up() {
    let phase = |jobs| queues(|it| it.jobs = jobs);
    let none = Counts::default;
    let rules = Rules::default();
    let jobs = rules.jobs_max / 10 * 9;
    for (status, expected) in [
        (
            phase(Counts { abandoned: 1, ..none() }),
            "bad Jobs failed: 1 job failed permanently, and can be retried or discarded.",
        ),
        (
            phase(Counts { quarantined: 2, ..none() }),
            "bad Jobs crashed: 2 jobs crashed too often; they wait until they are retried or discarded.",
        ),
        (
            phase(Counts { buried: 2, ..none() }),
            "warn Jobs buried: 2 jobs, set aside by clients, cannot be claimed until kicked.",
        ),
        (
            phase(Counts { retrying: 2, ..none() }),
            "warn Jobs failing: 2 jobs failed, and will be retried.",
        ),
    ] {
        assert_eq!(of(&status), [expected]);
    }
    let full = Counts { ready: jobs, ..none() };
    for (status, used, percent) in [
        (phase(full), format!("{} jobs", text::grouped(jobs.into())), 90),
        (
            queues(|it| it.bytes = rules.bytes_max),
            format!("{} bytes of jobs", text::grouped(rules.bytes_max)),
            100,
        ),
        (
            queues(|it| it.queues = rules.queues_max),
            format!("{} queues", text::grouped(rules.queues_max.into())),
            100,
        ),
    ] {
        let expected = format!(
            "bad Filling up: {used}: {percent} % of the limit. Requests that would exceed the limit are refused."
        );
        assert_eq!(of(&status), [expected]);
    }
}

fn lease(broken: u32, current: Option<Current>) -> LeaseView {
    let lease =
        Lease { name: "sync".try_into().expect("a name"), broken, current, ..Lease::default() };
    LeaseView { lease, due: None, wanted: false }
}

/// Returns a pass that began a minute ago.
fn pass(end: Option<lease::End>, warnings: u32) -> Current {
    Current {
        token: Token(1),
        place: Token(0),
        holder: Holder::Nobody,
        pid: 0,
        since: Timestamp(40_000),
        until: Timestamp(90_000),
        end,
        stopping: false,
        warnings,
        log: None,
        progress: Progress::default(),
    }
}

fn service(status: Status, restarts: usize) -> ServiceView {
    let instance = InstanceView {
        number: 1,
        status,
        process: None,
        pid: None,
        started: None,
        said: None,
        restarts,
        next: None,
        last: None,
        run_dir: String::new(),
    };
    ServiceView {
        name: "web".to_owned(),
        status,
        wanted: true,
        listed: true,
        argv: Vec::new(),
        restart: Policy::Never,
        intensity: None,
        after: Vec::new(),
        waits_for: vec!["database".to_owned()],
        instances: vec![instance],
    }
}

#[test]
fn tasks_processes_leases_and_services_say_what_does_not_go_on() {
    let failed = dispatch::Totals { failed: 2, ..dispatch::Totals::default() };
    let paused = dispatch::Totals { pause: Pause::Hard, ..dispatch::Totals::default() };
    let stuck = process::Totals { stuck: 1, ..process::Totals::default() };
    let overruns = pass(None, 1);
    let lease = |broken, current| said(of_lease(&lease(broken, current), NOW));
    let service = |status, restarts| said(of_service(&service(status, restarts), NOW));
    for (found, expected) in [
        (said(of_tasks(&failed)), "bad Tasks failed: 2 tasks ended without completing the work."),
        (said(of_tasks(&paused)), "warn Tasks paused: All tasks are paused (hard)."),
        (said(more_stuck(&stuck, 0)), "bad Processes stuck: 1 process did not exit after SIGKILL."),
        (
            lease(0, Some(overruns)),
            "warn Lease overruns: The pass of sync has been running for 1 min 0 s, longer than its period.",
        ),
        (lease(3, None), "bad Lease fails: The last 3 passes of sync did not run to completion."),
        (
            service(Status::Failed, 0),
            "bad Service failed: web failed, and will not be restarted automatically.",
        ),
        (
            service(Status::Backoff, 4),
            "bad Service restarts: web is not running, and will be restarted after a delay. Recent restarts: 4.",
        ),
        (service(Status::Waiting, 0), "warn Service waits: web is waiting for database."),
        (service(Status::Running, 1), "warn Service restarted: web was restarted 1 time recently."),
    ] {
        assert_eq!(found, [expected]);
    }
}

/// A pass that runs on a schedule, or in the background, has nobody who sees its exit status.
#[test]
fn a_pass_that_failed_is_a_problem_until_another_does_not() {
    let ended = |broken, exit, whole| {
        let at = Timestamp(70_000);
        let pass = pass(Some(lease::End { at, exit, whole }), 0);
        said(of_lease(&lease(broken, Some(pass)), NOW))
    };
    for (found, expected) in [
        (
            ended(0, Some(Exit::Code(3)), true),
            "bad Lease failed: The last pass of sync failed 30 s ago (exit 3): see `sexton lease show sync`.",
        ),
        (
            ended(0, Some(Exit::Signal(15)), true),
            "bad Lease failed: The last pass of sync failed 30 s ago (signal 15): see `sexton lease show sync`.",
        ),
        (
            ended(3, Some(Exit::Failed), false),
            "bad Lease failed: The last pass of sync failed 30 s ago (failed to start), like the 2 before it: see `sexton lease show sync`.",
        ),
    ] {
        assert_eq!(found, [expected]);
    }
    assert!(ended(0, Some(Exit::Code(0)), true).is_empty());
    assert!(ended(0, None, true).is_empty(), "an imported pass");
}

#[test]
fn what_fills_up_is_spoken_of_from_four_fifths_on() {
    assert_eq!(filled(79, 100), None);
    assert_eq!(filled(80, 100), Some(80));
    assert_eq!(filled(u64::MAX, u64::MAX), Some(100));
    assert_eq!(filled(0, 0), None);
}

/// A worker whose command does not exist is launched again and again, and looks as if it were running.
#[test]
fn a_command_that_could_not_be_launched_is_a_problem_for_an_hour() {
    let ended = |status, code, at| {
        let mut service = service(status, 0);
        let last = Last {
            process: ProcessId(1),
            at: Date(at),
            end: Some(End::Code(code)),
            failure: None,
            stopped_by: None,
        };
        service.instances[0].last = Some(last);
        service
    };
    let now = at(Timestamp(RECENT_MS + 10_000));
    let found = |status, code, at| said(of_service(&ended(status, code, at), now));
    let words = "Command not run: web exited 1 h 0 min ago with status 127, because a command could not be launched: see `sexton service logs web --stderr`.";
    assert_eq!(found(Status::Running, 127, 10_000), [format!("warn {words}")]);
    assert_eq!(found(Status::Backoff, 127, 10_000), [format!("bad {words}")]);
    assert!(found(Status::Running, 127, 9_999).is_empty());
    assert!(found(Status::Running, 1, 10_000).is_empty());
}

/// A command that is copied into a shell runs nothing that a client put into a name.
#[test]
fn only_a_plain_name_is_part_of_a_command() {
    for name in ["sync", "tenant/a:b@c_d.e-f"] {
        assert_eq!(pasted(name), name);
    }
    for name in ["", "$(rm x)", "a b", "--data=x", "a;b", "a\nb", "\u{e4}"] {
        assert_eq!(pasted(name), "NAME");
    }
}
