//! The typed leases of an embedded node: a program that runs its own passes.

use sexton::actors::lease::{Claim, PassRequest, Refused, Setting, Turn};
use sexton::actors::lock::Name;
use sexton::ids::RequestKey;
use sexton::node::{Drain, Handle, LeaseError, Leases};
use sexton::{Config, Node, block_on};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

fn name() -> Name {
    "k".try_into().expect("a short name")
}

/// Opens a node with a lease whose period is 1 ms, which is over by the time of the next request.
fn opened() -> (Node, Handle, Leases) {
    let node = Node::open(Config::in_memory()).expect("a node in memory opens");
    let handle = node.handle();
    let leases = handle.leases();
    block_on(leases.set(&name(), Setting::Period(1))).expect("the node accepts the setting");
    (node, handle, leases)
}

fn claim(waits: bool) -> PassRequest {
    let claim = Claim { waits, ttl_ms: 600_000, ..Claim::default() };
    PassRequest { name: name(), claim: Some(claim), ..PassRequest::default() }
}

/// Polls a future once, which sends its request, and does not wait for the answer.
fn begin<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_pass_is_had_by_one_and_passes_on_to_who_waits() {
    let (_node, _, leases) = opened();
    let (first, requested) = block_on(leases.claim(claim(true))).expect("the lock is free");
    let first = first.expect("its turn has come");
    assert_eq!((requested.turn, requested.pass), (Turn::Current, 1));
    let second = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| block_on(leases.claim(claim(true))));
        while block_on(leases.totals()).expect("the node answers").waiting == 0 {
            std::thread::yield_now();
        }
        let (none, third) = block_on(leases.claim(claim(true))).expect("the request is answered");
        assert_eq!((none, third.turn), (None, Turn::NotNeeded));
        let finished = block_on(leases.finish(&name(), first, 0)).expect("it is its pass");
        assert_eq!(finished.lease.whole, 1);
        waiter.join().expect("no panic")
    });
    let (second, _) = second.expect("the request is answered");
    let second = second.expect("its turn has come");
    assert!(second > first, "tokens only increase");
    let stale = block_on(leases.finish(&name(), first, 0));
    assert_eq!(stale, Err(LeaseError::Refused(Refused::StaleToken)));
    let its_name = name();
    let whole = leases.whole(&its_name, 2);
    block_on(leases.finish(&name(), second, 0)).expect("it is its pass");
    assert_eq!(block_on(whole).expect("the node answers").lease.whole, 2);
}

/// The answer to a repeated request shows the lease as it is by then, but no pass that is yet to come serves the request.
#[test]
fn a_request_that_is_repeated_after_its_pass_waits_for_no_later_one() {
    let (_node, _, leases) = opened();
    let keyed = leases.once(RequestKey { id: 1, fingerprint: 1 });
    let claimed = || block_on(leases.claim(claim(true))).expect("it is its turn").0;
    let finish = |token| block_on(leases.finish(&name(), token, 0)).expect("it is its pass");
    let first = claimed().expect("the lease is free");
    let requested = block_on(keyed.request(claim(true))).expect("the request is answered");
    assert_eq!((requested.turn, requested.pass), (Turn::Next, 2));
    finish(first);
    let second = block_on(leases.turn(&name(), &requested)).expect("its turn comes");
    let begun = block_on(keyed.request(claim(true))).expect("the request is answered");
    assert_eq!((begun.place, begun.pass), (requested.place, 2));
    finish(second);
    let third = claimed().expect("the lease is free");
    let late = block_on(keyed.request(claim(true))).expect("the request is answered");
    assert_eq!((late.place, late.pass), (requested.place, 3));
    finish(third);
}

#[test]
fn a_place_goes_with_the_future_that_waits_for_its_turn() {
    let (_node, _, leases) = opened();
    block_on(leases.claim(claim(true))).expect("the lock is free");
    let next = || block_on(leases.totals()).expect("the node answers").waiting;
    {
        let requested = block_on(leases.request(claim(true))).expect("the request is answered");
        assert_eq!((requested.turn, next()), (Turn::Next, 1));
        let name = name();
        let mut turn = pin!(leases.turn(&name, &requested));
        assert!(begin(turn.as_mut()).is_pending());
        assert_eq!(next(), 1);
    }
    while next() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_drain_begins_no_pass_and_waits_for_the_one_that_runs() {
    let (_node, handle, leases) = opened();
    let (token, _) = block_on(leases.claim(claim(true))).expect("the lock is free");
    block_on(handle.begin_drain(Drain::Leases)).expect("the node answers");
    assert_eq!(handle.draining().names(), ["passes"]);
    let refused = block_on(leases.claim(claim(true))).map(|(token, _)| token);
    assert_eq!(refused, Err(LeaseError::Refused(Refused::Draining)));
    let mut drained = pin!(handle.drained());
    assert!(begin(drained.as_mut()).is_pending());
    assert_eq!(block_on(handle.left()).expect("the node answers").passes, 1);
    let token = token.expect("its turn has come");
    block_on(leases.finish(&name(), token, 0)).expect("it is its pass");
    block_on(drained).expect("nothing is left");
}
