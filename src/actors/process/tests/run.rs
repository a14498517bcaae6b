//! The model tests.

use super::pair::Pair;
use super::step::{BEGIN, Step, any_step, identity};
use crate::actors::process::{End, Launching, Message, Spec};
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::ids::ProcessId;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use std::collections::BTreeMap;

/// The cases that the model test must encounter: messages with their outcomes, refusals, and other events.
const MET: &[&str] = &[
    "Launch Launched",
    "Begin Begun",
    "Lapse Cancelled",
    "NotDeferred",
    "Invalid(Deferred)",
    "Register Registered",
    "Register Known",
    "Started Started",
    "Started Contradicted",
    "Started Unchanged",
    "Failed Failed",
    "Failed Contradicted",
    "Ended Ended",
    "Ended Unchanged",
    "Empty Emptied",
    "emptied of survivors",
    "Empty Unchanged",
    "Finish Ended",
    "Stop Stopping",
    "Stop Unchanged",
    "Signal Signalling",
    "NotUnknown",
    "Signalled Signalled",
    "Signalled Unchanged",
    "Stuck Stuck",
    "Stuck Unchanged",
    "Child Child",
    "Child Declined",
    "Child Unchanged",
    "Found Found",
    "Found Unchanged",
    "Prune Pruned",
    "Watch Watched",
    "Watch Gone",
    "Watch Unchanged",
    "Fence Fenced",
    "Fence Unchanged",
    "LaunchAs Launched",
    "LaunchAs Taken",
    "LaunchAs Declined",
    "told",
    "Service Service",
    "Service Unchanged",
    "service Added",
    "service Changed",
    "service Removed",
    "service Dropped",
    "service Released",
    "service Started",
    "service Stopped",
    "service Restarted",
    "service Held",
    "service Launched",
    "service Deferred",
    "service Ended",
    "NoService",
    "Lapse Stopping",
    "Stop StoppingTree",
    "Stop StoppingPart",
    "Lapse Killing",
    "Lapse Pruned",
    "Unknown",
    "Ended",
    "Queued",
    "Launched",
    "Full",
    "Invalid(Argv)",
    "woken",
    "reload",
    "taken",
    "early",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn the_machine_is_like_its_model(steps in prop::collection::vec(any_step(), 1..150)) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
        }
        pair.replay();
    }
}

/// Few of the random histories get this far.
#[test]
fn a_tree_that_was_killed_and_is_in_doubt_is_settled_on_request() {
    let id = ProcessId::default();
    let stuck = |unkillable, unknown| Message::Stuck { id, unkillable, unknown };
    let stop = Message::Stop { id, signal: None, grace_ms: Some(0), tree: true };
    let started =
        Message::Started { id, identity: identity(0), at: Date(BEGIN.0), contained: false };
    let ended = Message::Ended { id, end: End::Code(0), at: Date(BEGIN.0), left: Box::default() };
    let settle = Message::Settle { id };
    let spec = Spec { argv: vec![Bytes::new(&b"true"[..])], ..Spec::default() };
    let launching = Launching { spec, ..Launching::default() };
    let mut pair = Pair::new();
    pair.step(Step::Launch(3, 0, launching));
    let refused = [
        started,
        settle.clone(),
        ended,
        settle.clone(),
        stuck(0, 1),
        settle.clone(),
        stop,
        stuck(1, 1),
        settle.clone(),
        stuck(0, 1),
    ];
    for message in refused {
        pair.step(Step::Send(0, message));
    }
    assert_eq!(pair.seen.get("NotUnknown"), Some(&4), "{:?}", pair.seen);
    pair.step(Step::Send(0, settle));
    assert_eq!(pair.seen.get("Settle Emptied"), Some(&1), "{:?}", pair.seen);
    pair.replay();
}

/// Checks that the model test exercises every rule.
#[test]
fn the_model_test_meets_every_rule() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = BTreeMap::<String, u32>::new();
    for _ in 0..120 {
        let steps = prop::collection::vec(any_step(), 150..151);
        let steps = steps.new_tree(&mut runner).expect("steps are drawn");
        let mut pair = Pair::new();
        for step in steps.current() {
            pair.step(step);
        }
        for (what, count) in pair.seen {
            *seen.entry(what).or_default() += count;
        }
        *seen.entry("taken".to_owned()).or_default() += pair.shelf.taken;
        *seen.entry("early".to_owned()).or_default() += pair.shelf.early;
    }
    for what in MET {
        let count = seen.get(*what).copied().unwrap_or(0);
        assert!(count >= 5, "{what}: {seen:?}");
    }
}
