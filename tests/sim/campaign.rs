//! Runs many seeds, and checks that the coverage reaches its minimum counts.
//!
//! `SEXTON_SIM_SEED=n` runs one seed and prints its trace. `SEXTON_SIM_SEEDS=from..to` (or a count) and
//! `SEXTON_SIM_STEPS=n` make the campaign longer.

use crate::coverage::Coverage;
use crate::run;
use crate::setting::Setting;
use crate::violation::Violation;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};

const SEEDS: u64 = 2000;
const STEPS: u64 = 1200;
const THREADS: usize = 2;

/// The options of the campaign, from the environment.
struct CampaignOptions {
    seeds: Range<u64>,
    steps: u64,
    single: bool,
}

#[expect(clippy::disallowed_methods, reason = "a campaign is set by its command line")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str) -> Option<u64> {
    variable(name).map(|value| value.parse().expect("the variable is a number"))
}

fn wish() -> CampaignOptions {
    let steps = number("SEXTON_SIM_STEPS").unwrap_or(STEPS);
    if let Some(seed) = number("SEXTON_SIM_SEED") {
        return CampaignOptions { seeds: seed..seed + 1, steps, single: true };
    }
    let seeds = variable("SEXTON_SIM_SEEDS").map_or(0..SEEDS, |value| {
        let parse = |text: &str| text.parse().expect("SEXTON_SIM_SEEDS is from..to or a count");
        match value.split_once("..") {
            Some((from, to)) => parse(from)..parse(to),
            None => 0..parse(&value),
        }
    });
    CampaignOptions { seeds, steps, single: false }
}

/// Keeps planted panics from printing their messages.
pub(crate) fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !panic.payload_as_str().is_some_and(run::is_planted) {
                before(panic);
            }
        }));
    });
}

fn again(seed: u64, steps: u64) -> String {
    let steps = if steps == STEPS { String::new() } else { format!("SEXTON_SIM_STEPS={steps} ") };
    format!("SEXTON_SIM_SEED={seed} {steps}cargo test --test sim campaign -- --nocapture")
}

#[test]
fn campaign() {
    hush();
    let wish = wish();
    let next = AtomicU64::new(wish.seeds.start);
    let coverage = Mutex::new(Coverage::default());
    let failures: Mutex<Vec<(u64, Violation)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let failed = lock(&failures).len();
                    if !wish.seeds.contains(&seed) || failed >= 10 {
                        return;
                    }
                    let setting = Setting::of(seed, wish.steps);
                    let (met, verdict) = run::run(&setting, wish.single);
                    lock(&coverage).add(&met);
                    if let Err(violation) = verdict {
                        crate::print(&format!(
                            "seed {seed}: {violation}\n    {}",
                            again(seed, wish.steps)
                        ));
                        lock(&failures).push((seed, violation));
                    }
                }
            });
        }
    });
    let coverage = lock(&coverage);
    crate::print(&coverage.to_string());
    let failures = lock(&failures);
    if let Some((seed, violation)) = failures.first() {
        panic!("seed {seed}: {violation}\n    {}", again(*seed, wish.steps));
    }
    let seeds = wish.seeds.end - wish.seeds.start;
    if seeds >= SEEDS {
        let below = coverage.below_floor(seeds);
        assert!(below.is_empty(), "too rare: {below:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    hush();
    for seed in [3, 7, 9, 11] {
        let setting = Setting::of(seed, 400);
        let [first, second] = [0, 1].map(|_| run::run(&setting, false).0.to_string());
        assert_eq!(first, second);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
