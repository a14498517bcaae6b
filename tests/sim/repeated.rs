//! Requests that clients repeat through kills, power cuts, snapshots and rebuilds. Each of them must be applied once.
//!
//! No time passes here, because the witness cannot see when the host forgets a request key.

use crate::actor::Ask;
use crate::chance::Chance;
use crate::counter::{CounterMessage, LEFT};
use crate::killed::calm;
use crate::run::Run;
use crate::setting::Power;
use crate::violation::Violation;
use sexton::ids::{ActorId, RequestKey, Slot};
use sexton::spine::delivery::Stage;
use sexton::spine::items::Itemized as _;

const STEPS: u32 = 150;
const SEEDS: u64 = 60;
/// The span of counters, in milliseconds: the time for which request keys are remembered.
const SPAN_MS: u32 = 3_600_000;

/// Returns request number `number`, which is always the same addition with the same request key.
fn request(number: u32) -> Ask<crate::counters::Counters<LEFT>> {
    let (id, fingerprint) = (number.into(), u128::MAX - u128::from(number));
    let addition = CounterMessage::Add(1 + number, SPAN_MS, format!("request {number}"));
    Ask::Keyed((Slot(number), addition), RequestKey { id, fingerprint })
}

/// Runs a seed. Returns how often a request was answered, and how often the process was killed.
fn repeated(seed: u64, power: Power) -> Result<(usize, u32), Violation> {
    let setting = calm(seed, power);
    let mut run = Run::new(&setting, false);
    let mut chance = Chance::of(seed);
    let (mut answered, mut kills) = (0, 0);
    run.start()?;
    for _ in 0..STEPS {
        match chance.below(16) {
            0 => {
                answered += answers(&run);
                kills += 1;
                run.down();
                if chance.per_mille(500) {
                    run.cut_power();
                }
                run.start()?;
            }
            1 => run.take_whole_snapshot()?,
            2 => {
                if let Some(node) = &run.node {
                    node.actors.left.trap.set(Stage::Commit);
                }
            }
            3..9 => {
                let number = u32::try_from(chance.below(4)).expect("a small number");
                if let Some(node) = &mut run.node {
                    node.actors.left.post(vec![request(number)]);
                    node.turn(ActorId(LEFT), &mut run.coverage);
                    node.hand(&mut run.tap)?;
                }
            }
            _ => {
                if let Some(node) = &mut run.node {
                    node.turn(ActorId(LEFT), &mut run.coverage);
                    node.hand(&mut run.tap)?;
                    node.log.drain().expect("no fault is injected");
                }
                run.release()?;
            }
        }
    }
    answered += answers(&run);
    if let Some(node) = &run.node
        && !node.actors.left.host.is_spent()
    {
        for (slot, counter) in node.actors.left.host.machine().items().iter() {
            assert_eq!(counter.value, u64::from(slot.0) + 1, "it was added once");
        }
    }
    run.finish()?;
    Ok((answered, kills))
}

fn answers(run: &Run<'_>) -> usize {
    let calls = run.node.iter().flat_map(|node| &node.actors.left.calls);
    calls.filter(|call| call.answers.is_some()).count()
}

#[test]
fn what_is_asked_for_again_and_again_is_done_once() {
    crate::campaign::hush();
    for power in [Power::Stays, Power::TakesAll, Power::ByChance] {
        let (mut answered, mut kills) = (0, 0);
        for seed in 0..SEEDS {
            let met = repeated(seed, power);
            let met = met.unwrap_or_else(|violation| panic!("seed {seed}, {power:?}: {violation}"));
            answered += met.0;
            kills += met.1;
        }
        assert!(answered > 500 && kills > 200, "{power:?}: {answered}, {kills}");
    }
}
