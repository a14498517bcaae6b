//! The model tests.

use super::pair::Pair;
use super::step::any_step;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use std::collections::BTreeMap;

/// The cases that the model test must encounter: messages with their outcomes, refusals, and other events.
const MET: &[&str] = &[
    "Launch Launched",
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
    "Settle Emptied",
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

/// Checks that the model test exercises every rule.
#[test]
fn the_model_test_meets_every_rule() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = BTreeMap::<String, u32>::new();
    for _ in 0..100 {
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
