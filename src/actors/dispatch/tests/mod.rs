//! Compares the machine with the model: in any history, they must agree on replies, messages and state.
//!
//! | file | holds |
//! |---|---|
//! | `pair.rs` | the machine, its model, and the log of committed entries |
//! | `steps.rs` | the steps of a history |
//! | `coverage.rs` | the cases that the histories have covered |

mod coverage;
mod pair;
mod steps;

use coverage::Coverage;
use pair::Pair;
use proptest::prelude::*;
use steps::steps;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn tasks_are_as_plain_lists_have_them(steps in steps()) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
        }
        pair.replay();
    }
}

#[test]
fn the_model_meets_every_verdict_cause_obstacle_and_refusal_it_is_there_for() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut met = Coverage::default();
    for _ in 0..2000 {
        let steps = steps().new_tree(&mut runner);
        let mut pair = Pair::new();
        for step in steps.expect("steps can be drawn").current() {
            pair.step(step);
        }
        met.add(&pair.met);
    }
    let rare = met.rare();
    assert!(
        rare.is_empty(),
        "encountered too rarely, or unknown: {rare:?}; all that were encountered: {met:?}"
    );
}
