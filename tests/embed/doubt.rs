//! When the wall clock is far ahead of the last time on record, nothing is pruned until the clock is confirmed, or has not stepped for an
//! hour.

use crate::patience::until;
use sexton::actors::queue::{Body, Counts, Put, QueueName, TypeRules};
use sexton::clock::{ManualClock, Timestamp};
use sexton::node::Queues;
use sexton::{Config, Node, block_on};
use std::path::Path;
use std::time::Duration;

const BEGAN: Timestamp = Timestamp(1_000_000_000_000);
const DAY_MS: u64 = 86_400_000;

fn once() -> QueueName {
    "once".try_into().expect("a valid name")
}

/// Opens a node whose wall clock is this many days ahead of the time at which the test begins.
fn open(data: &Path, days: u64) -> (Node, ManualClock) {
    let clock = ManualClock::at(BEGAN.plus_ms(days * DAY_MS));
    let mut config = Config::at(data);
    config.clock = Some(clock.clone());
    let rules = TypeRules { max_tries: 1, ..TypeRules::default() };
    config.rules.queue.types.insert("once".to_owned(), rules);
    (Node::open(config).expect("the directory opens"), clock)
}

/// Adds a job that is abandoned, and so is pruned after a week, and a job that becomes ready in an hour.
fn abandon(queues: &Queues) {
    block_on(async {
        let put = Put::new(once(), Body::new(b"fails".as_slice()));
        queues.put(put).await.expect("the job is added");
        let claim = queues.pop(&[once()]).await.expect("a request arrives");
        let claim = claim.expect("there is a job");
        let given = queues.release(claim.id, claim.token, (0, None)).await;
        given.expect("it is abandoned");
        let later = Put { delay_ms: 3_600_000, ..Put::new(once(), Body::new(b"later".as_slice())) };
        queues.put(later).await.expect("the job is added");
    });
}

fn counts(node: &Node) -> Counts {
    block_on(node.handle().queues().counts(&once())).expect("the node answers")
}

fn ahead(node: &Node) -> Option<u64> {
    let status = block_on(node.handle().status());
    status.expect("the node answers").clock_ahead_ms
}

#[test]
fn a_start_far_ahead_prunes_nothing_until_it_is_confirmed() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let (node, _) = open(files.path(), 0);
    abandon(&node.handle().queues());
    assert_eq!(ahead(&node), None);
    node.stop().expect("the node stops");
    let (node, _) = open(files.path(), 30);
    assert_eq!(ahead(&node), Some(30 * DAY_MS));
    let found = counts(&node);
    assert_eq!((found.ready, found.abandoned), (1, 1), "a delay is over, nothing is pruned");
    node.stop().expect("the node stops");
    // A clock that is only one day ahead of the previous run is also in doubt, because that run's clock was never confirmed.
    let (node, clock) = open(files.path(), 31);
    assert_eq!(counts(&node).abandoned, 1);
    assert_eq!(ahead(&node), Some(31 * DAY_MS));
    clock.advance(Duration::from_mins(30));
    assert_eq!(counts(&node).abandoned, 1);
    assert_eq!(block_on(node.handle().confirm_clock()), Ok(true));
    until("the old job is pruned", || (counts(&node).abandoned == 0).then_some(()));
    assert_eq!(ahead(&node), None);
    assert_eq!(block_on(node.handle().confirm_clock()), Ok(false));
    node.stop().expect("the node stops");
}

#[test]
fn a_clock_that_is_set_right_again_has_removed_nothing() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let (node, _) = open(files.path(), 0);
    abandon(&node.handle().queues());
    node.stop().expect("the node stops");
    let (node, clock) = open(files.path(), 3000);
    assert_eq!(counts(&node).abandoned, 1);
    clock.set_offset_ms(-i64::try_from(2999 * DAY_MS).expect("a small number"));
    until("the step is noticed", || ahead(&node).is_none().then_some(()));
    assert_eq!(counts(&node).abandoned, 1, "its week is not over");
    node.stop().expect("the node stops");
}

#[test]
fn an_hour_without_a_step_confirms_a_clock_also_one_that_stepped_while_it_ran() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let (node, clock) = open(files.path(), 0);
    abandon(&node.handle().queues());
    let days = |days: u64| i64::try_from(days * DAY_MS).expect("a small number");
    clock.set_offset_ms(days(1));
    until("the step is noticed", || (counts(&node).ready == 1).then_some(()));
    assert_eq!(ahead(&node), None, "a day may be a mistake of a zone");
    clock.set_offset_ms(days(30));
    until("the step is noticed", || ahead(&node));
    assert_eq!(counts(&node).abandoned, 1);
    clock.advance(Duration::from_secs(3590));
    clock.set_offset_ms(days(31));
    until("the next step is noticed", || (ahead(&node) == Some(30 * DAY_MS)).then_some(()));
    clock.advance(Duration::from_secs(3590));
    assert_eq!(counts(&node).abandoned, 1, "it has stepped within the hour");
    clock.advance(Duration::from_secs(10));
    until("the clock is believed", || (counts(&node).abandoned == 0).then_some(()));
    node.stop().expect("the node stops");
}
