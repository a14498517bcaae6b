//! sexton beside beanstalkd itself: the same commands at random to both, on up to four connections, and every reply
//! compared. What must differ is masked in `reply.rs`; what `docs/protocols/beanstalk.md` says to differ is not asked.
//!
//! `BEANSTALKD_PATH` names another beanstalkd than that of this machine, `SEXTON_PEER_SEEDS` how many sequences there
//! are, `SEXTON_PEER_SEED` a single one. Where beanstalkd is not installed, all of it is left out, which is said.

mod pair;
mod reply;
mod step;

use crate::beanstalkd;
use crate::chance::Chance;
use crate::left_out::left_out;
use pair::{Pair, Verdict};
use step::Step;

/// Steps of a sequence, so few that no span of a second ends meanwhile.
const STEPS: u64 = 80;

/// Steps between two pauses of a sequence in which spans do end, and how many pauses it has.
const STEPS_OF_A_BEAT: u64 = 12;
const BEATS: u64 = 6;

/// Who runs the tests may set this.
#[expect(
    clippy::disallowed_methods,
    reason = "who runs the tests says how many"
)]
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

/// Whether there is somebody to compare with; says so if not.
#[expect(clippy::print_stdout, reason = "what is left out is said")]
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

/// How often a sequence is begun that was broken off, since the machine was busy and spans ended meanwhile.
const TRIES: u32 = 20;

/// Runs sequences on some threads, each until it comes to its end in time.
#[expect(clippy::print_stdout, reason = "so are figures")]
fn compare(seeds: &[u64], threads: usize, run: impl Fn(u64) -> Verdict + Sync) {
    let late: u32 = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let run = &run;
                let own = seeds.iter().skip(thread).step_by(threads);
                let whole = move |seed: &u64| {
                    let late = (0..TRIES).take_while(|_| run(*seed) == Verdict::Late);
                    let late = u32::try_from(late.count()).expect("there are few");
                    assert!(
                        late < TRIES,
                        "sequence {seed} comes to no end: the machine is busy"
                    );
                    late
                };
                scope.spawn(move || own.map(whole).sum::<u32>())
            })
            .collect();
        let late = running.into_iter();
        late.map(|thread| thread.join().expect("the replies are the same"))
            .sum()
    });
    println!(
        "{} sequences compared, {late} begun anew: the machine was busy, and spans ended",
        seeds.len()
    );
}

/// Takes so many steps, unless it becomes too late for that.
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

#[test]
fn replies_are_those_of_beanstalkd() {
    if !is_there() {
        return;
    }
    compare(&seeds(150), 1, |seed| {
        let mut chance = Chance::new(seed);
        let connections = 1 + chance.below(4);
        let mut pair = Pair::start(seed, connections, pair::BEFORE_ANY_SPAN);
        take(&mut pair, &mut chance, STEPS)
    });
}

#[test]
fn replies_are_those_of_beanstalkd_while_spans_end() {
    if !is_there() {
        return;
    }
    let seeds: Vec<u64> = seeds(24);
    compare(&seeds, 12, |seed| {
        let mut chance = Chance::new(seed);
        let connections = 1 + chance.below(4);
        let mut pair = Pair::start(seed, connections, pair::BEFORE_THE_NEXT_SPAN);
        for beat in 0..BEATS {
            let verdict = pair.until_beat(beat);
            if verdict == Verdict::Late
                || take(&mut pair, &mut chance, STEPS_OF_A_BEAT) == Verdict::Late
            {
                return Verdict::Late;
            }
        }
        Verdict::Same
    });
}
