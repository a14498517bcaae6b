//! A node inside another program: time that is advanced manually, halting, and what it does not touch in the process.

use sexton::clock::ManualClock;
use sexton::node::{Entry, LockError, Locks, Terms};
use sexton::spine::delivery::Stage;
use sexton::spine::shared::Halt;
use sexton::{Config, Node, block_on};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const MINUTE: Duration = Duration::from_mins(1);

fn opened() -> (ManualClock, Node, Locks) {
    let clock = ManualClock::default();
    let node = Node::open(Config::manual(&clock)).expect("a node in memory opens");
    let locks = node.handle().locks();
    (clock, node, locks)
}

fn entry(owner: &str) -> Entry {
    Entry::new("k", owner).expect("short names")
}

/// Polls a future once, which sends its request, and does not wait for the answer.
fn begin<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn waiting(seconds: u16) -> Terms {
    Terms { wait: seconds, ..Terms::default() }
}

#[test]
fn a_lock_lasts_until_the_clock_is_moved_past_it() {
    let (clock, _node, locks) = opened();
    let alice = entry("alice");
    let token = block_on(locks.acquire(&alice, Terms::default())).unwrap();
    clock.advance(Duration::from_millis(59_999));
    assert_eq!(block_on(locks.place(&alice)).unwrap().token, Some(token));
    clock.advance(Duration::from_millis(1));
    assert_eq!(block_on(locks.place(&alice)), Err(LockError::Absent));
}

#[test]
fn moving_the_clock_tells_those_who_wait() {
    let (clock, _node, locks) = opened();
    let (alice, bob, carol) = (entry("alice"), entry("bob"), entry("carol"));
    let token = block_on(locks.acquire(&alice, Terms::default())).unwrap();
    let mut lost = pin!(locks.lost(&alice, token));
    let mut bobs = pin!(locks.acquire(&bob, waiting(600)));
    let mut carols = pin!(locks.acquire(&carol, waiting(30)));
    assert!(begin(lost.as_mut()).is_pending());
    assert!(begin(bobs.as_mut()).is_pending());
    assert!(begin(carols.as_mut()).is_pending());
    // A query is handled after the requests that were sent before it.
    assert_eq!(block_on(locks.place(&carol)).unwrap().place, 3);
    clock.advance(MINUTE);
    block_on(lost).unwrap();
    let next = block_on(bobs).unwrap();
    assert!(next > token, "tokens only increase");
    assert_eq!(block_on(carols), Err(LockError::Held { place: 3 }));
}

/// Only the clock can end these waits in time: the node receives no requests meanwhile, and without the clock it checks the time at most
/// once a second.
#[test]
fn moving_the_clock_is_enough() {
    let (clock, _node, locks) = opened();
    let alice = entry("alice");
    for _ in 0..100 {
        let token = block_on(locks.acquire(&alice, Terms::default())).unwrap();
        std::thread::scope(|scope| {
            let lost = scope.spawn(|| block_on(locks.lost(&alice, token)));
            clock.advance(MINUTE);
            lost.join().unwrap().unwrap();
        });
    }
}

#[test]
fn one_clock_moves_several_nodes_and_outlives_them() {
    let (clock, first, locks) = opened();
    let second = Node::open(Config::manual(&clock)).unwrap();
    let others = second.handle().locks();
    let alice = entry("alice");
    block_on(locks.acquire(&alice, Terms::default())).unwrap();
    block_on(others.acquire(&alice, Terms::default())).unwrap();
    clock.advance(MINUTE);
    assert_eq!(block_on(locks.place(&alice)), Err(LockError::Absent));
    assert_eq!(block_on(others.place(&alice)), Err(LockError::Absent));
    first.stop().unwrap();
    clock.advance(MINUTE);
    assert_eq!(second.handle().now().0, 120_000);
}

/// Every span begins again when the node is opened again, at the current time of the clock.
#[test]
fn a_restart_goes_on_at_the_time_of_the_clock() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let clock = ManualClock::default();
    let config = || Config { clock: Some(clock.clone()), ..Config::at(files.path()) };
    let alice = entry("alice");
    let node = Node::open(config()).unwrap();
    let token = block_on(node.handle().locks().acquire(&alice, Terms::default())).unwrap();
    clock.advance(MINUTE / 2);
    node.stop().unwrap();
    let node = Node::open(config()).unwrap();
    let locks = node.handle().locks();
    clock.advance(MINUTE / 2);
    assert_eq!(block_on(locks.place(&alice)).unwrap().token, Some(token));
    clock.advance(MINUTE / 2);
    assert_eq!(block_on(locks.place(&alice)), Err(LockError::Absent));
}

#[test]
fn whoever_embeds_a_node_is_told_that_it_halted_and_goes_on() {
    let (_clock, node, locks) = opened();
    let handle = node.handle();
    handle.actors().lock.inject_panics(Box::new(|stage, _| {
        assert!(stage != Stage::Commit, "planted");
    }));
    std::thread::scope(|scope| {
        let told = scope.spawn(|| block_on(handle.halted()));
        let refused = block_on(locks.acquire(&entry("alice"), Terms::default()));
        assert!(matches!(refused, Err(LockError::Stopped(_))), "{refused:?}");
        let halt = told.join().unwrap();
        assert!(matches!(halt, Halt::Spent(_)), "{halt}");
    });
    assert!(matches!(block_on(node.halted()), Halt::Spent(_)));
    assert!(matches!(node.stop(), Err(Halt::Spent(_))));
}

/// Returns the signals that this process catches, as reported by the kernel.
fn caught() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has this file");
    let line = status.lines().find(|line| line.starts_with("SigCgt"));
    line.expect("the shell reports signals").to_owned()
}

#[test]
fn a_node_catches_no_signals() {
    let before = caught();
    let (_clock, node, locks) = opened();
    block_on(locks.acquire(&entry("alice"), Terms::default())).unwrap();
    assert_eq!(caught(), before, "while the node runs");
    node.stop().unwrap();
    assert_eq!(caught(), before, "after it");
}
