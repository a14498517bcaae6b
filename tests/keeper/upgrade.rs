//! A keeper that is upgraded: it executes another program in its process.

use crate::parcels::hand_over;
use crate::wire::{Kept, PROGRAM, attempt, bytes, path_bytes};
use sexton::keeper::protocol::{Launch, Parcel, Report, Request};
use sexton::kernel::pidfd::Pidfd;
use std::collections::BTreeMap;
use std::os::fd::AsFd as _;

#[test]
fn children_and_their_statuses_outlive_an_upgrade() {
    let kept = Kept::new();
    let (mut peer, _) = kept.hello();
    let script = "trap 'exit 3' TERM; while :; do sleep 1000 & wait $!; done";
    let mut alive = BTreeMap::new();
    for number in 0..20 {
        alive.insert(number, peer.run(attempt(number), kept.shell(script)));
    }
    peer.launch(attempt(50), kept.shell("exit 9"));
    let exited = peer.exit(attempt(50));
    let null = std::fs::File::open("/dev/null").expect("the file exists");
    let mut caller = kept.connect();
    let parcel = Parcel { env: vec![bytes("PATH=/usr/bin:/bin")], ..Parcel::default() };
    hand_over(&mut caller, 7, parcel, &[null.as_fd(); 3]);

    // A keeper that executes this file already is left alone.
    let program = bytes(PROGRAM);
    peer.send(&Request::Upgrade { program });
    assert_eq!(peer.ask(attempt(50)), Report::Exited(exited));
    let newer = kept.path("sexton");
    std::fs::copy(PROGRAM, &newer).expect("the disk has space");
    let program = path_bytes(&newer);
    peer.send(&Request::Upgrade { program });
    // The keeper closes the connection when it executes the program. Before that, it may report exits once more.
    while let Some(report) = peer.try_next() {
        assert_eq!(report, Report::Exited(exited));
    }
    let (mut peer, told) = kept.hello();
    assert!(matches!(told[0], Report::Welcome { pid, .. } if pid == kept.pid()));
    let mut wanted: Vec<Report> = alive.values().copied().map(Report::Started).collect();
    wanted.push(Report::Exited(exited));
    assert_eq!(told[1..], wanted);
    assert_eq!(kept.read("keeper.lock").trim().parse(), Ok(kept.pid()));
    kept.try_start().expect_err("the lock is held on");

    for (number, started) in &alive {
        let pidfd = Pidfd::open(started.pid).expect("it can be").expect("a live process");
        let signal = if number % 2 == 0 { 9 } else { 15 };
        pidfd.signal(signal).expect("a permitted signal");
    }
    let mut statuses = BTreeMap::new();
    while statuses.len() < alive.len() {
        if let Report::Exited(exited) = peer.next() {
            statuses.insert(exited.started.attempt, exited.status);
        }
    }
    for number in alive.keys() {
        // A shell that has not set its trap yet is killed by the signal.
        let wanted: &[u32] = if number % 2 == 0 { &[9] } else { &[0x300, 15] };
        assert!(wanted.contains(&statuses[&attempt(*number)]), "{statuses:?}");
    }
    let launch = Launch { parcel: Some(7), ..kept.shell("exit 8") };
    assert_eq!(peer.run_through(attempt(60), launch), 0x800, "the parcel has arrived");
    let script = "ls /proc/self/fd";
    peer.run_through(attempt(61), kept.writing(script, "log"));
    assert_eq!(kept.read("log"), "0\n1\n2\n3\n");
}

#[test]
fn what_cannot_be_executed_changes_nothing() {
    let kept = Kept::new();
    let (mut peer, _) = kept.hello();
    let started = peer.run(attempt(1), kept.launch(&["sleep", "1000"]));
    let program = bytes("/no/such/program");
    peer.send(&Request::Upgrade { program });
    assert!(
        matches!(peer.next(), Report::Refused { reason } if reason.contains("/no/such/program"))
    );
    assert_eq!(peer.ask(attempt(1)), Report::Started(started));
    peer.run_through(attempt(2), kept.writing("ls /proc/self/fd", "log"));
    assert_eq!(kept.read("log"), "0\n1\n2\n3\n");
    drop(peer);
    assert_eq!(kept.hello().1.len(), 3);
}
