//! Keepers that are killed, alone and with their coordinator, and a machine that is rebooted. An end that can be known is
//! recorded as it was. One that cannot be known is recorded as lost, with the reason, and never has an exit code.

use crate::chance::Chance;
use crate::daemon::Daemon;
use crate::left_out::left_out;
use crate::lives;
use crate::patience::until;
use crate::processes::children::{Children, Last, Recorded, by_number, recorded};
use crate::processes::host::{Host, is_taken};
use serde_json::{Value, json};
use sexton::kernel::pidfd::Pidfd;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// How many keepers are killed in one directory: after more within ten seconds, a coordinator gives up.
const KILLS: u64 = 4;
/// A long campaign kills [`KILLS`] keepers for every this many of `SEXTON_CRASH_KILLS`.
const ALL_KILLS: u64 = 20;

const KEEPER_GONE: &str = "keeper-gone";

fn launch(host: &Host, children: &Children, numbers: Range<u64>) {
    for number in numbers {
        host.well("/v1/processes/launch", &children.held(number));
    }
}

/// Waits until none of these children is alive, and returns the records.
fn ended(host: &Host, numbers: &[u64]) -> BTreeMap<u64, Value> {
    until("all have ended", || {
        let records = by_number(host.records());
        let is_over =
            |number| records.get(number).is_some_and(|it| recorded(it) != Recorded::Alive);
        numbers.iter().all(is_over).then_some(records)
    })
}

/// Returns the end of a child that ran, as the child itself wrote it.
fn truth(children: &Children, number: u64) -> Recorded {
    let wrote = children.wrote(number);
    Recorded::Ended(wrote.expect("it wrote how it ends"))
}

/// Returns whether the child's end is known; fails if the recorded end is wrong.
fn is_known(children: &Children, number: u64, record: &Value) -> bool {
    assert!(children.starts(number) <= 1, "it ran twice: {record}");
    match recorded(record) {
        Recorded::Lost(reason) => {
            assert_eq!(reason, KEEPER_GONE, "{record}");
            false
        }
        // The keeper was killed before it released the child.
        Recorded::Ended(Last::Signal(9)) if children.starts(number) == 0 => false,
        found @ (Recorded::Alive | Recorded::Ended(_) | Recorded::Failed(_)) => {
            assert_eq!(found, truth(children, number), "{record}");
            true
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the moments of kills are random")]
fn keepers(seed: u64, kills: u64) -> [u64; 2] {
    let host = Host::new();
    let children = Children::of(&host);
    let mut chance = Chance::new(seed);
    let daemon = host.start();
    let each = 12;
    launch(&host, &children, 0..each);
    let mut launched = each;
    for _ in 0..kills {
        // Some children end before the keeper does, some at the same time, some after it.
        let (first, second) = (launched - each..launched - 8, launched - 8..launched - 4);
        first.for_each(|number| children.let_go(number));
        std::thread::sleep(Duration::from_millis(chance.below(40)));
        second.clone().for_each(|number| children.let_go(number));
        host.kill_keeper();
        launch(&host, &children, launched..launched + each);
        assert!(host.keeper().is_some(), "another keeper was started");
        launched += each;
    }
    (0..launched).for_each(|number| children.let_go(number));
    let all: Vec<u64> = (0..launched).collect();
    let records = ended(&host, &all);
    let known = all.iter().filter(|number| {
        let record = records.get(number).expect("it was launched");
        is_known(&children, **number, record)
    });
    let known = known.count() as u64;
    daemon.kill();
    [known, launched - known]
}

#[test]
fn keepers_are_killed_and_their_children_are_followed_to_their_ends() {
    let kills = lives::kills(KILLS, ALL_KILLS);
    let mut seed = lives::seed();
    let mut left = kills;
    let mut sum = [0; 2];
    while left > 0 {
        let some = left.min(KILLS);
        let found = keepers(seed, some);
        sum = [sum[0] + found[0], sum[1] + found[1]];
        (left, seed) = (left - some, seed + 1);
    }
    let [known, lost] = sum;
    println!("keepers: {kills} kills, {known} ends known, {lost} lost");
    assert!(known > 0);
}

#[test]
fn what_ends_while_nobody_is_there_is_lost_and_what_had_ended_before_is_not() {
    let host = Host::new();
    let children = Children::of(&host);
    let daemon = host.start();
    launch(&host, &children, 0..30);
    let pids = pids(&host);
    daemon.kill();
    // Only the keeper sees these children end, and its log outlives it.
    let seen: Vec<u64> = (0..10).collect();
    let unseen: Vec<u64> = (10..20).collect();
    let alive: Vec<u64> = (20..30).collect();
    let go = |numbers: &[u64]| {
        for number in numbers {
            children.let_go(*number);
        }
        for number in numbers {
            until("it is gone", || (!is_taken(pids[number])).then_some(()));
        }
    };
    go(&seen);
    host.kill_keeper();
    go(&unseen);

    let daemon = host.start();
    let gone = [seen.as_slice(), &unseen].concat();
    let records = ended(&host, &gone);
    for number in &seen {
        let found = recorded(&records[number]);
        assert_eq!(found, truth(&children, *number), "{number}");
    }
    let lost = Recorded::Lost(KEEPER_GONE.to_owned());
    for number in &unseen {
        assert_eq!(recorded(&records[number]), lost, "{number}");
    }
    for number in &alive {
        assert_eq!(recorded(&records[number]), Recorded::Alive, "{number}");
    }
    go(&alive);
    let records = ended(&host, &alive);
    let known = alive.iter().filter(|number| is_known(&children, **number, &records[*number]));
    println!("followed by their own descriptors: {} of {} ends known", known.count(), alive.len());
    daemon.kill();
}

fn pids(host: &Host) -> BTreeMap<u64, u32> {
    let records = by_number(host.records()).into_iter();
    let pid = |record: &Value| u32::try_from(record["pid"].as_u64().expect("it has started"));
    records.map(|(number, record)| (number, pid(&record).expect("a small number"))).collect()
}

#[test]
fn after_another_boot_all_is_lost_and_what_has_the_pids_is_not_touched() {
    if !rustix::process::geteuid().is_root() {
        return left_out("another boot: only root can give this one another name");
    }
    let host = Host::new();
    let children = Children::of(&host);
    let daemon = host.start();
    launch(&host, &children, 0..10);
    let pids = pids(&host);
    let strangers: Vec<Pidfd> = pids.values().map(|pid| opened(*pid)).collect();
    // Five of the children are also being stopped when the machine reboots.
    children.begun(0..10);
    for record in by_number(host.records()).values().take(5) {
        let stop = json!({"id": record["id"], "tree": true, "grace_ms": 600_000});
        host.well("/v1/processes/stop", &stop);
    }
    daemon.kill();
    host.kill_keeper();

    let daemon = Daemon::start(host.rebooted());
    let all: Vec<u64> = (0..10).collect();
    let records = ended(&host, &all);
    for (number, record) in &records {
        let lost = Recorded::Lost("rebooted".to_owned());
        assert_eq!(recorded(record), lost, "{number}");
        for path in ["/v1/processes/stop", "/v1/processes/signal"] {
            let body = json!({"id": record["id"], "signal": 9});
            assert_ne!(host.try_post(path, &body), 200, "{path}");
        }
    }
    // New launches work after the reboot.
    launch(&host, &children, 10..12);
    children.let_go(10);
    let records = ended(&host, &[10]);
    assert_eq!(recorded(&records[&10]), truth(&children, 10));
    assert_eq!(recorded(&records[&11]), Recorded::Alive);
    for stranger in &strangers {
        assert!(!stranger.has_ended().expect("the descriptor can be polled"), "it was touched");
    }
    daemon.kill();
}

fn opened(pid: u32) -> Pidfd {
    let pidfd = Pidfd::open(pid).expect("descriptors are left");
    pidfd.expect("a live process")
}
