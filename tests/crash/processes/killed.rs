//! Coordinators are killed again and again while children are launched, run and end. Each requested child has one record and
//! ran once, and its recorded end is the one that it wrote itself.

use crate::chance::Chance;
use crate::lives;
use crate::patience::{PATIENCE, until};
use crate::processes::children::{Children, Recorded, by_number, recorded};
use crate::processes::host::Host;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// The number of kills in `cargo test`; the number of `SEXTON_CRASH_KILLS` that gives as many; and the number of children.
const KILLS: u64 = 20;
const ALL_KILLS: u64 = 20;
const CHILDREN: u64 = 1000;

/// The time after a restart of the coordinator within which all records should be correct.
const RIGHT_WITHIN: Duration = Duration::from_secs(1);

/// The number of concurrent launchers.
const LAUNCHERS: usize = 6;

/// One directory under kills.
struct Campaign {
    host: Host,
    children: Children,
    next: AtomicU64,
    all: u64,
    /// Whether launchers must end, because no coordinator will answer.
    is_over: AtomicBool,
    /// Determines the lifetime of each child, together with its number.
    seed: u64,
}

impl Campaign {
    fn new(seed: u64, all: u64) -> Self {
        let host = Host::new();
        let children = Children::of(&host);
        Self { host, children, next: AtomicU64::new(0), all, is_over: AtomicBool::new(false), seed }
    }

    /// Launches children until all are launched. A launch that was not answered because of a kill is requested again, with the same key.
    #[expect(clippy::disallowed_methods, reason = "the kill of a coordinator is not an event here")]
    fn launch(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.all {
                return;
            }
            // Most children end while no coordinator is running, or while the next one is starting.
            let ms = Chance::new(self.seed ^ number << 20).below(1500);
            let body = self.children.launch(number, ms);
            let key = format!("child-{number}");
            loop {
                match self.host.post("/v1/processes/launch", &key, &body) {
                    Ok((200, _)) => break,
                    // The coordinator is starting or stopping.
                    Ok((status, answer)) => assert!(status >= 500 || status == 409, "{answer}"),
                    Err(_) => {}
                }
                if self.is_over.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// Waits until every child that has ended before this call is recorded correctly, and returns how long that took.
    #[expect(clippy::disallowed_methods, reason = "how long it takes is printed")]
    fn settle(&self) -> Duration {
        let begun = Instant::now();
        let asked = self.next.load(Ordering::Relaxed).min(self.all);
        let ended: Vec<_> =
            (0..asked).filter_map(|number| Some((number, self.children.wrote(number)?))).collect();
        until("all that has ended is recorded", || {
            let records = by_number(self.host.records());
            // A launch without an answer is requested again, and recorded then.
            let known =
                ended.iter().filter_map(|(number, last)| Some((records.get(number)?, last)));
            let mut open = 0;
            for (record, last) in known {
                match recorded(record) {
                    Recorded::Ended(found) => assert_eq!(found, *last, "{record}"),
                    Recorded::Alive => open += 1,
                    other @ (Recorded::Lost(_) | Recorded::Failed(_)) => {
                        panic!("{other:?}: {record}")
                    }
                }
            }
            (open == 0).then_some(())
        });
        begun.elapsed()
    }

    /// Waits until all children have ended, and checks that each has one record, ran once, and has the end that it wrote.
    fn judge(&self) {
        until("all have ended", || (self.host.ended() == self.all).then_some(()));
        let records = by_number(self.host.records());
        assert_eq!(records.len() as u64, self.all);
        for (number, record) in records {
            assert_eq!(self.children.starts(number), 1, "{record}");
            let wrote = self.children.wrote(number);
            let wrote = wrote.map(Recorded::Ended);
            assert_eq!(Some(recorded(&record)), wrote, "{record}");
            let pid = record.get("pid").and_then(Value::as_u64);
            assert!(pid.is_some(), "{record}");
        }
    }
}

/// Launches children while their coordinator is killed, and returns how long it took after each restart until all records were correct.
#[expect(clippy::disallowed_methods, reason = "the moments of kills are random")]
fn live(seed: u64, kills: u64, all: u64) -> Vec<Duration> {
    let campaign = Campaign::new(seed, all);
    let mut chance = Chance::new(seed);
    let mut spans = Vec::new();
    let daemon = std::thread::scope(|scope| {
        let mut daemon = campaign.host.start();
        let launchers: Vec<_> = (0..LAUNCHERS).map(|_| scope.spawn(|| campaign.launch())).collect();
        let stopper = Stopper(&campaign.is_over);
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(20 + chance.below(250)));
            daemon.kill();
            // Sometimes children end while no coordinator is running.
            std::thread::sleep(Duration::from_millis(chance.below(3) * 100));
            daemon = campaign.host.start();
            spans.push(campaign.settle());
        }
        until("all are launched", || {
            launchers.iter().all(ScopedJoinHandle::is_finished).then_some(())
        });
        drop(stopper);
        daemon
    });
    campaign.judge();
    daemon.kill();
    spans
}

/// Ends the launchers when dropped, even if the test fails.
struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn coordinators_are_killed_and_no_child_is_lost_or_guessed_or_run_twice() {
    let kills = lives::kills(KILLS, ALL_KILLS);
    let mut seed = lives::seed();
    let mut left = kills;
    while left > 0 {
        let some = left.min(KILLS);
        println!("processes: seed {seed}, {some} kills");
        let mut spans = live(seed, some, CHILDREN);
        spans.sort();
        let (median, longest) = (spans.get(spans.len() / 2), spans.last());
        let (median, longest) = median.zip(longest).expect("there was a start");
        let late = spans.iter().filter(|it| **it > RIGHT_WITHIN).count();
        println!(
            "  after a start all is right within {median:?} at the median, {longest:?} at most; \
             {late} of {} starts took over {RIGHT_WITHIN:?}",
            spans.len()
        );
        // This bound only shows that nothing waited for a timer.
        assert!(*longest < PATIENCE, "{spans:?}");
        (left, seed) = (left - some, seed + 1);
    }
}
