//! Compares sexton with beanstalkd itself: both get the same random commands, on up to four connections, and every reply
//! is compared. `reply.rs` masks the necessary differences. Documented differences (`docs/protocols/beanstalk.md`) are
//! not tested.
//!
//! `BEANSTALKD_PATH` names another beanstalkd than the installed one, `SEXTON_PEER_SEEDS` the number of sequences, and
//! `SEXTON_PEER_SEED` a single one. Where beanstalkd is not installed, the comparison is reported as skipped.

mod coverage;
mod pair;
mod reply;
mod step;

use crate::beanstalkd;
use crate::chance::Chance;
use crate::left_out::left_out;
use coverage::Coverage;
use pair::{Pair, SIDE_BY_SIDE, Spans, Verdict};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use step::Step;

/// The number of steps in a sequence: few enough that no span of a second ends during it.
const STEPS: u64 = 80;

/// The number of steps after each pause in a sequence in which spans end. `BEATS` is the number of pauses.
const STEPS_OF_A_BEAT: u64 = 15;
const BEATS: u64 = 5;

/// Reads a number from the environment. Returns `None` if the variable is not set.
#[expect(clippy::disallowed_methods, reason = "the caller of the tests sets the number")]
fn set(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| {
        let number = number.parse();
        number.expect("it is a number")
    })
}

fn seeds(usual: u64) -> Vec<u64> {
    match set("SEXTON_PEER_SEED") {
        Some(seed) => vec![seed],
        None => (0..set("SEXTON_PEER_SEEDS").unwrap_or(usual)).collect(),
    }
}

/// Returns whether beanstalkd is installed. Reports a skipped test if it is not.
#[expect(clippy::print_stdout, reason = "skipped tests are reported")]
fn is_there() -> bool {
    match beanstalkd::Server::beanstalkd() {
        Ok((_, version)) => {
            println!("beside {version}");
            true
        }
        Err(words) => {
            left_out(format!("comparing with beanstalkd, {words}"));
            false
        }
    }
}

/// The maximum number of times that a sequence is repeated because the machine was so busy that spans ended during it.
const TRIES: u32 = 20;

/// Runs sequences on a few threads, and repeats each until it is completed in time. Returns the sum of their coverage.
/// `run` returns `None` for a sequence that was not completed in time.
#[expect(clippy::print_stdout, reason = "figures are printed")]
fn compare(
    seeds: &[u64],
    threads: usize,
    run: impl Fn(u64) -> Option<Coverage> + Sync,
) -> Coverage {
    let late = AtomicU32::new(0);
    let whole = |seed: &u64| {
        for _ in 0..TRIES {
            if let Some(coverage) = run(*seed) {
                return coverage;
            }
            late.fetch_add(1, Ordering::Relaxed);
        }
        panic!("sequence {seed} cannot be completed: the machine is busy");
    };
    let coverage: Coverage = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let own = seeds.iter().skip(thread).step_by(threads);
                scope.spawn(|| own.map(whole).sum::<Coverage>())
            })
            .collect();
        let coverage = running.into_iter();
        coverage.map(|thread| thread.join().expect("the replies are the same")).sum()
    });
    println!(
        "{} sequences compared, {} started again: the machine was busy, and spans ended; {coverage}",
        seeds.len(),
        late.into_inner(),
    );
    coverage
}

/// Fails the test if one of these counts is 0, unless the environment sets the seeds.
fn require(counts: &[(&str, u64)]) {
    let missing = counts.iter().find(|(_, count)| *count == 0);
    let is_chosen = ["SEXTON_PEER_SEED", "SEXTON_PEER_SEEDS"].map(set) != [None, None];
    assert!(is_chosen || missing.is_none(), "never occurred: {missing:?}");
}

/// Takes this number of random steps, unless the sequence takes too long.
fn take(pair: &mut Pair, chance: &mut Chance, steps: u64) -> Verdict {
    for _ in 0..steps {
        pair.look();
        let step = Step::any(chance, pair);
        if pair.take(&step) == Verdict::Late {
            return Verdict::Late;
        }
    }
    Verdict::Same
}

/// Takes these steps, unless the sequence takes too long.
fn take_all(pair: &mut Pair, steps: impl IntoIterator<Item = Step>) -> Verdict {
    let mut steps = steps.into_iter();
    let is_late = steps.any(|step| pair.take(&step) == Verdict::Late);
    if is_late { Verdict::Late } else { Verdict::Same }
}

/// Makes two connections wait for the same tube, in either order, which rarely happens at random. If there is one
/// connection, it waits alone.
fn wait_in_line(pair: &mut Pair, chance: &mut Chance, mut two: [usize; 2]) -> Verdict {
    if chance.below(2) == 0 {
        two.reverse();
    }
    let there = two.into_iter().filter(|it| *it < pair.connections());
    let waits = there.map(|it| Step::wait(it, chance, pair));
    let waits: Vec<Step> = waits.collect();
    take_all(pair, waits)
}

/// Begins a sequence: with nothing, with two waiting connections, or with a reserved job for which two others wait.
fn begin(pair: &mut Pair, chance: &mut Chance) -> Verdict {
    match (pair.spans(), chance.below(3)) {
        (_, 0) => Verdict::Same,
        (Spans::Reservations, _) => match take_all(pair, Step::reserve_first(0, chance)) {
            Verdict::Same => wait_in_line(pair, chance, [1, 2]),
            Verdict::Late => Verdict::Late,
        },
        (Spans::Last | Spans::End, _) => wait_in_line(pair, chance, [0, 1]),
    }
}

/// Runs sequences concurrently. Spans of this kind end during the pauses in them.
fn compare_with_pauses(seeds: &[u64], spans: Spans) -> Coverage {
    let threads = usize::try_from(SIDE_BY_SIDE).expect("a small number");
    let first = pair::now();
    compare(seeds, threads, |seed| with_pauses(seed, spans, first))
}

/// Runs one sequence with pauses. `first` is the earliest time at which any sequence could begin.
fn with_pauses(seed: u64, spans: Spans, first: Instant) -> Option<Coverage> {
    let mut chance = Chance::new(seed);
    let connections = 1 + chance.below(4);
    let mut pair = Pair::start(seed, connections, spans);
    pair.begin_beats(first);
    if begin(&mut pair, &mut chance) == Verdict::Late {
        return None;
    }
    for beat in 1..=BEATS {
        if pair.until_beat(beat) == Verdict::Late
            || take(&mut pair, &mut chance, STEPS_OF_A_BEAT) == Verdict::Late
        {
            return None;
        }
    }
    Some(pair.coverage())
}

#[test]
fn replies_are_those_of_beanstalkd() {
    if !is_there() {
        return;
    }
    let coverage = compare(&seeds(150), 1, |seed| {
        let mut chance = Chance::new(seed);
        let connections = 1 + chance.below(4);
        let mut pair = Pair::start(seed, connections, Spans::Last);
        let is_late = begin(&mut pair, &mut chance) == Verdict::Late
            || take(&mut pair, &mut chance, STEPS) == Verdict::Late;
        (!is_late).then(|| pair.coverage())
    });
    require(&[
        ("two connections wait for one tube", coverage.pairs),
        ("one of the two is served", coverage.served),
        ("a waiting connection is closed", coverage.closed),
    ]);
}

#[test]
fn replies_are_those_of_beanstalkd_while_spans_end() {
    if !is_there() {
        return;
    }
    let coverage = compare_with_pauses(&seeds(24), Spans::End);
    require(&[("two connections wait for one tube", coverage.pairs)]);
}

#[test]
fn replies_are_those_of_beanstalkd_while_reservations_expire() {
    if !is_there() {
        return;
    }
    let coverage = compare_with_pauses(&seeds(16), Spans::Reservations);
    require(&[
        ("two connections wait for one tube", coverage.pairs),
        ("a reservation expires", coverage.expired),
        ("a reservation expires while another connection waits", coverage.handed_on),
    ]);
}
