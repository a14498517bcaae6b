//! The machine against the model: whatever is asked and told, in whatever order, they answer, tell and keep the same.
//!
//! | file | holds |
//! |---|---|
//! | `pair.rs` | the two beside each other, and the log of what was committed |
//! | `steps.rs` | what may happen |
//! | `met.rs` | what has been met by then |

mod met;
mod pair;
mod steps;

use met::Met;
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
    let mut met = Met::default();
    for _ in 0..1600 {
        let steps = steps().new_tree(&mut runner);
        let mut pair = Pair::new();
        for step in steps.expect("steps can be drawn").current() {
            pair.step(step);
        }
        met.add(&pair.met);
    }
    let rare = met.rare();
    assert!(rare.is_empty(), "hardly ever met: {rare:?} of {met:?}");
}
