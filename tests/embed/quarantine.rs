//! An item whose tick panicked is in quarantine, that is, has no further ticks, until it changes. It is still in quarantine after its
//! machine is rebuilt.

use crate::patience::until;
use sexton::actors::queue::{Body, Put, QueueName};
use sexton::clock::{ManualClock, Timestamp};
use sexton::spine::delivery::Stage;
use sexton::{Config, Node, block_on};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn queue() -> QueueName {
    "q".try_into().expect("a valid name")
}

#[test]
fn an_item_that_changed_and_kept_its_deadline_is_not_quarantined_again() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let clock = ManualClock::at(Timestamp(1_000_000_000_000));
    let mut config = Config::at(files.path());
    config.clock = Some(clock.clone());
    let node = Node::open(config).expect("the directory opens");
    let handle = node.handle();
    let queues = handle.queues();
    let plants =
        [Stage::Tick, Stage::Commit].map(|stage| (stage, Arc::new(AtomicBool::new(false))));
    let [(_, tick), (_, commit)] = plants.clone();
    handle.actors().queue.inject_panics(Box::new(move |at, _| {
        let mut ours = plants.iter().filter(|(stage, _)| *stage == at);
        let planted = ours.any(|(_, planted)| planted.swap(false, Ordering::SeqCst));
        assert!(!planted, "planted in {at:?}");
    }));
    let status = || block_on(handle.status()).expect("the node answers");
    let quarantined = || {
        let of_queue = |actor: &&sexton::status::ActorReport| actor.status.name == "queue";
        let status = status();
        let queue = status.actors.iter().find(of_queue).expect("the status lists the actor");
        queue.status.quarantined.len()
    };
    let written = || status().journal.map(|journal| journal.released);

    block_on(queues.put(Put::new(queue(), Body::new(b"a".as_slice())))).expect("the job is added");
    block_on(queues.pause(&queue(), 10_000)).expect("it is paused");
    tick.store(true, Ordering::SeqCst);
    clock.advance(Duration::from_secs(10));
    until("the end of the pause panics", || (quarantined() == 1).then_some(()));
    // The clock is set back, so that the next pause ends at the same time as the first.
    let before = written();
    clock.set_offset_ms(-10_000);
    until("the step is noticed", || (written() > before).then_some(()));
    block_on(queues.pause(&queue(), 10_000)).expect("it is paused");
    commit.store(true, Ordering::SeqCst);
    let failed = block_on(queues.put(Put::new(queue(), Body::new(b"b".as_slice()))));
    assert!(failed.is_err(), "its commit panicked, and the machine is rebuilt");
    clock.advance(Duration::from_secs(10));
    until("the pause ends", || block_on(queues.pop(&[queue()])).expect("the node answers"));
    assert_eq!(quarantined(), 0);
    node.stop().expect("the node stops");
}
