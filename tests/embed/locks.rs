//! The typed locks of an embedded node: waiting, withdrawal and loss, from plain threads and from a runtime.

use crate::patience::until;
use sexton::actors::lock::{Name, Refused};
use sexton::ids::{RequestKey, Token};
use sexton::node::{Drain, Entry, Handle, LockError, Locks, Terms};
use sexton::{Config, Node, block_on};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

const WAITERS: u32 = 10_000;

fn opened() -> (Node, Handle, Locks) {
    let node = Node::open(Config::in_memory()).expect("a node in memory opens");
    let handle = node.handle();
    let locks = handle.locks();
    (node, handle, locks)
}

fn entry(key: &str, owner: &str) -> Entry {
    Entry::new(key, owner).expect("short names")
}

fn waiting(seconds: u16) -> Terms {
    Terms { wait: seconds, ..Terms::default() }
}

/// Returns the number of holders and waiters.
fn count(locks: &Locks) -> usize {
    block_on(locks.list(None, u32::MAX)).expect("the node runs").len()
}

/// Polls a future once, which sends its request, and does not wait for the answer.
fn begin<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_lock_is_held_by_one_and_passes_on_to_who_waits() {
    let (_node, _, locks) = opened();
    let (alice, bob) = (entry("k", "alice"), entry("k", "bob"));
    let first = block_on(locks.acquire(&alice, Terms::default())).unwrap();
    assert_eq!(block_on(locks.acquire(&bob, Terms::default())), Err(LockError::Held { place: 2 }));
    assert_eq!(count(&locks), 1, "a request that does not wait leaves nothing");
    // The token is enough; no owner is needed.
    let holder = entry("k", "");
    assert_eq!(block_on(locks.renew(&holder, Some(first))).unwrap().place, 1);
    assert_eq!(block_on(locks.renew(&holder, None)), Err(LockError::Absent));
    let second = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| block_on(locks.acquire(&bob, waiting(600))));
        while count(&locks) < 2 {}
        assert_eq!(block_on(locks.place(&bob)).unwrap().place, 2);
        block_on(locks.release(&alice, Some(first))).unwrap();
        waiter.join().unwrap().unwrap()
    });
    assert!(second > first, "tokens only increase");
    assert_eq!(
        block_on(locks.owner(&bob.key, &bob.index)),
        Ok(Some(Name::try_from("bob").unwrap()))
    );
    let stale = block_on(locks.renew(&bob, Some(first)));
    assert_eq!(stale, Err(LockError::Refused(Refused::StaleToken)));
    assert_eq!(block_on(locks.renew(&bob, Some(second))).unwrap().place, 1);
    assert_eq!(block_on(locks.release_all(&bob.owner)), Ok(1));
    assert_eq!(block_on(locks.release_all(&bob.owner)), Ok(0));
    assert_eq!(block_on(locks.release(&bob, None)), Err(LockError::Absent));
}

#[test]
fn who_waits_is_told_when_the_wait_is_over() {
    let (_node, _, locks) = opened();
    block_on(locks.acquire(&entry("k", "alice"), Terms::default())).unwrap();
    let bob = entry("k", "bob");
    assert_eq!(block_on(locks.acquire(&bob, waiting(1))), Err(LockError::Held { place: 2 }));
    assert_eq!(block_on(locks.place(&bob)), Err(LockError::Absent));
}

#[test]
fn a_waiter_that_goes_away_is_withdrawn() {
    let (_node, _, locks) = opened();
    let alice = entry("k", "alice");
    let token = block_on(locks.acquire(&alice, Terms::default())).unwrap();
    let bob = entry("k", "bob");
    {
        let mut acquire = pin!(locks.acquire(&bob, waiting(600)));
        while count(&locks) < 2 {
            assert!(begin(acquire.as_mut()).is_pending());
        }
    }
    while count(&locks) > 1 {}
    block_on(locks.release(&alice, Some(token))).unwrap();
    assert_eq!(count(&locks), 0, "no waiter is left to inherit the lock");
}

#[test]
fn a_holder_is_told_of_its_loss() {
    let (_node, _, locks) = opened();
    let alice = entry("k", "alice");
    let token = block_on(locks.acquire(&alice, Terms::default())).unwrap();
    {
        let mut lost = pin!(locks.lost(&alice, token));
        for _ in 0..100 {
            assert!(begin(lost.as_mut()).is_pending());
        }
        block_on(locks.renew(&alice, Some(token))).unwrap();
        assert!(begin(lost.as_mut()).is_pending(), "a renewal is not a loss");
        block_on(locks.release(&alice, None)).unwrap();
        block_on(lost).unwrap();
    }
    // The loss is also reported when the lock is already lost, and when it expires.
    block_on(locks.lost(&alice, token)).unwrap();
    let short = Terms { ttl: 1, ..Terms::default() };
    let token = block_on(locks.acquire(&alice, short)).unwrap();
    block_on(locks.lost(&alice, token)).unwrap();
    assert_eq!(count(&locks), 0);
}

/// Makes many tasks wait for one lock in one runtime, each releasing it immediately; returns their tokens.
fn wait_in_line(locks: &Locks) -> Vec<Token> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime can be created");
    runtime.block_on(async {
        let waiters: Vec<_> = (0..WAITERS)
            .map(|number| {
                let locks = locks.clone();
                runtime.spawn(async move {
                    let own = entry("k", &number.to_string());
                    let token = locks.acquire(&own, waiting(600)).await?;
                    locks.release(&own, Some(token)).await?;
                    Ok::<_, LockError>(token)
                })
            })
            .collect();
        let mut tokens = Vec::new();
        for waiter in waiters {
            let token = waiter.await.expect("no panic");
            tokens.push(token.expect("its turn comes"));
        }
        tokens
    })
}

#[test]
fn many_wait_for_one_lock_and_get_it_in_turn() {
    let (_node, _, locks) = opened();
    let first = entry("k", "first");
    let held = block_on(locks.acquire(&first, Terms::default())).unwrap();
    let mut tokens = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| wait_in_line(&locks));
        while count(&locks) <= WAITERS as usize {}
        block_on(locks.release(&first, Some(held))).unwrap();
        waiting.join().unwrap()
    });
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), WAITERS as usize, "each had it once");
    assert_eq!(count(&locks), 0);
}

#[test]
fn a_drain_refuses_what_is_new_and_ends_with_the_last() {
    let (_node, handle, locks) = opened();
    let alice = entry("k", "alice");
    let token = block_on(locks.acquire(&alice, Terms::default())).unwrap();
    std::thread::scope(|scope| {
        let drained = scope.spawn(|| block_on(handle.drain(Drain::All)));
        let bob = entry("other", "bob");
        let refused = loop {
            match block_on(locks.acquire(&bob, Terms::default())) {
                Ok(token) => block_on(locks.release(&bob, Some(token))).unwrap(),
                Err(error) => break error,
            }
        };
        assert_eq!(refused, LockError::Refused(Refused::Draining));
        block_on(locks.release(&alice, Some(token))).unwrap();
        drained.join().unwrap().unwrap();
    });
}

#[test]
fn a_stopped_node_says_so() {
    let (node, _, locks) = opened();
    node.stop().unwrap();
    let refused = block_on(locks.acquire(&entry("k", "alice"), Terms::default()));
    assert!(matches!(refused, Err(LockError::Stopped(_))), "{refused:?}");
}

/// A request that is repeated with its key is answered without being carried out, but shows that its client is back.
#[test]
fn a_waiter_with_a_key_is_passed_over_after_a_restart_until_its_request_is_repeated() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let [ann, ben, cal] = ["ann", "ben", "cal"].map(|owner| entry("k", owner));
    let key = |id: u128| RequestKey { id, fingerprint: id };
    let node = Node::open(Config::at(files.path())).expect("the directory opens");
    let locks = node.handle().locks();
    let long = Terms { ttl: 60_000, ..Terms::default() };
    block_on(locks.acquire(&ann, long)).expect("nobody holds it");
    for (number, waiter) in [(1, &ben), (2, &cal)] {
        let keyed = locks.once(key(number));
        let wait = pin!(keyed.acquire(waiter, waiting(60_000)));
        assert!(begin(wait).is_pending());
        until("it is in line", || block_on(locks.place(waiter)).ok());
    }
    node.stop().expect("it stops");
    let node = Node::open(Config::at(files.path())).expect("the directory opens again");
    let locks = node.handle().locks();
    let away = |waiter: &Entry| block_on(locks.place(waiter)).expect("it is in line").away;
    assert!(away(&ben) && away(&cal) && !away(&ann));
    let back = |number, waiter: &Entry, holder: &Entry| {
        let keyed = locks.once(key(number));
        std::thread::scope(|scope| {
            let granted = scope.spawn(|| block_on(keyed.acquire(waiter, waiting(60_000))));
            until("it is back", || (!away(waiter)).then_some(()));
            block_on(locks.release(holder, None)).expect("it holds the lock");
            granted.join().expect("no panic").expect("it is its turn");
        });
    };
    back(2, &cal, &ann);
    assert!(away(&ben), "it keeps its place");
    back(1, &ben, &cal);
}
