//! Coordinators and keepers that are killed, and the reports that the next coordinator receives.

use crate::may_look::may_look;
use crate::patience::until;
use crate::wire::{Kept, attempt, until_reaped};
use sexton::keeper::protocol::{Report, Request};
use sexton::kernel::pidfd::Pidfd;
use sexton::kernel::proc;
use std::collections::BTreeMap;

#[test]
fn a_coordinator_that_comes_again_is_told_all() {
    let kept = Kept::new();
    let (mut peer, _) = kept.hello();
    kept.make_fifo();
    let alive = peer.run(attempt(1), kept.launch(&["sleep", "1000"]));
    let exited = {
        peer.launch(attempt(2), kept.shell("exit 5"));
        peer.exit(attempt(2))
    };
    let waits = peer.run(attempt(3), kept.shell("read x < fifo; exit 6"));
    peer.launch(attempt(4), kept.launch(&["no-such-program"]));
    peer.next();
    drop(peer);
    let pidfd = Pidfd::open(waits.pid).expect("it can be").expect("a live process");
    pidfd.signal(15).expect("a permitted signal");
    until_reaped(waits.pid);
    let (_, told) = kept.hello();
    let told: BTreeMap<u64, &Report> = (0..).zip(&told).collect();
    assert!(matches!(told[&0], Report::Welcome { .. }));
    assert_eq!(told[&1], &Report::Started(alive));
    assert_eq!(told[&2], &Report::Exited(exited));
    assert!(matches!(told[&3], Report::Exited(exited) if exited.status == 15));
    assert!(matches!(told[&4], Report::Failed { step: 9, errno: 2, .. }));
    assert_eq!(told.len(), 5);
}

#[test]
fn the_newest_coordinator_is_the_one() {
    let kept = Kept::new();
    let (mut first, _) = kept.hello();
    let (mut second, _) = kept.hello();
    assert_eq!(first.try_next(), None);
    assert_eq!(second.run_through(attempt(1), kept.shell("exit 1")), 0x100);
}

#[test]
fn what_had_ended_is_told_by_the_keeper_after_the_one_that_was_killed() {
    let mut kept = Kept::new();
    let (mut peer, _) = kept.hello();
    let alive = peer.run(attempt(1), kept.launch(&["sleep", "1000"]));
    peer.launch(attempt(2), kept.shell("exit 5"));
    let exited = peer.exit(attempt(2));
    peer.launch(attempt(3), kept.shell("exit 6"));
    peer.exit(attempt(3));
    let attempts = vec![attempt(3)];
    peer.send(&Request::Forget { attempts });
    peer.launch(attempt(4), kept.launch(&["no-such-program"]));
    let failed = peer.next();
    kept.kill();
    assert_eq!(peer.try_next(), None);

    kept.start();
    let (mut peer, told) = kept.hello();
    let wanted = [Report::Orphaned(alive), Report::Exited(exited), failed];
    assert_eq!(told[1..], wanted);
    peer.launch(attempt(1), kept.writing("echo twice", "log"));
    assert_eq!(peer.next(), Report::Orphaned(alive), "it is not spawned again");
    assert_eq!(kept.read("log"), "");
    let pidfd = Pidfd::open(alive.pid).expect("it can be").expect("a live process");
    pidfd.signal(9).expect("a permitted signal");
    until("it has ended", || {
        pidfd.has_ended().expect("the descriptor can be polled").then_some(())
    });
    assert_eq!(peer.ask(attempt(1)), Report::Orphaned(alive), "no end is guessed");
    let attempts = vec![attempt(1), attempt(2), attempt(4)];
    peer.send(&Request::Forget { attempts });
    let absent = |number| Report::Absent { attempt: attempt(number) };
    assert_eq!(peer.ask(attempt(1)), absent(1));
    assert_eq!(peer.ask(attempt(2)), absent(2));
}

#[test]
fn a_directory_has_one_keeper_which_leaves_when_it_holds_nothing() {
    let mut kept = Kept::new();
    let words = kept.try_start().expect_err("a keeper is already running");
    assert!(words.contains("already has a keeper"), "{words}");
    let lock = kept.read("keeper.lock");
    assert_eq!(lock.trim().parse(), Ok(kept.pid()));
    let (mut peer, _) = kept.hello();
    peer.run_through(attempt(1), kept.shell("true"));
    drop(peer);
    let (mut peer, told) = kept.hello();
    assert_eq!(told.len(), 2, "it stays while attempts are not forgotten");
    let attempts = vec![attempt(1)];
    peer.send(&Request::Forget { attempts });
    drop(peer);
    let status = until("it leaves", || kept.ended());
    assert!(status.success());
    assert!(!kept.path("keeper.sock").exists());
    kept.start();
    assert_eq!(kept.hello().1.len(), 1);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a process that waits for a lock does not report it")]
fn a_keeper_that_is_on_its_way_out_is_waited_for() {
    let mut kept = Kept::unkept();
    let lock = std::fs::File::create(kept.path("keeper.lock")).expect("the disk has space");
    lock.lock().expect("no client has it");
    let words = kept.try_start().expect_err("it is locked for too long");
    assert!(words.contains("already has a keeper"), "{words}");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            drop(lock);
        });
        kept.start();
    });
    assert_eq!(kept.hello().1.len(), 1);
}

#[test]
fn an_end_that_is_asked_for_waits_for_children() {
    let mut kept = Kept::new();
    let (mut peer, _) = kept.hello();
    let started = peer.run(attempt(1), kept.launch(&["sleep", "1000"]));
    let keeper = Pidfd::open(kept.pid()).expect("it can be").expect("a live process");
    for signal in [1, 2, 13, 15] {
        keeper.signal(signal).expect("a permitted signal");
    }
    assert_eq!(peer.ask(attempt(1)), Report::Started(started));
    assert!(kept.ended().is_none());
    let pidfd = Pidfd::open(started.pid).expect("it can be").expect("a live process");
    pidfd.signal(9).expect("a permitted signal");
    peer.exit(attempt(1));
    keeper.signal(15).expect("a permitted signal");
    let status = until("it leaves", || kept.ended());
    assert!(status.success());
    kept.start();
    let (_, told) = kept.hello();
    assert!(matches!(told[1..], [Report::Exited(exited)] if exited.status == 9));
}

#[test]
fn a_keeper_that_nobody_can_find_any_more_leaves_when_nothing_lives() {
    let mut kept = Kept::new();
    let (mut peer, _) = kept.hello();
    let started = peer.run(attempt(1), kept.launch(&["sleep", "1000"]));
    peer.run_through(attempt(2), kept.shell("true"));
    drop(peer);
    for name in ["keeper.lock", "keeper.sock", "keeper.log"] {
        std::fs::remove_file(kept.path(name)).expect("the file exists");
    }
    let mut other = kept.try_start().expect("the directory is free");
    let pidfd = Pidfd::open(started.pid).expect("it can be").expect("a live process");
    assert!(kept.ended().is_none(), "its child lives");
    pidfd.signal(9).expect("a permitted signal");
    let status = until("it leaves", || kept.ended());
    assert!(status.success());
    assert!(kept.path("keeper.sock").exists(), "it belongs to the other keeper");
    other.kill().expect("a live process");
    other.wait().expect("our child");
}

#[test]
fn the_keeper_is_a_session_of_its_own_and_small() {
    let kept = Kept::new();
    kept.hello();
    let stat = proc::stat(kept.pid()).expect("a live process").expect("a live process");
    assert_eq!(stat.session, kept.pid());
    let task = format!("/proc/{}/task", kept.pid());
    assert_eq!(std::fs::read_dir(task).expect("a live process").count(), 1);
    if may_look("the directory of the keeper") {
        let cwd = proc::cwd(kept.pid()).expect("a live process").expect("a live process");
        assert_eq!(cwd.as_bytes(), b"/");
    }
}
