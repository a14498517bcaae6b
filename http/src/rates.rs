//! The recent activity of the listeners, the actors and the journal. Their counters are read every five seconds, and the readings
//! are kept for ten minutes, so that a newly opened page has data to show. Reading the counters does not query any actor.

use sexton::clock::Timestamp;
use sexton::handle::Handle;
use sexton::ids::ActorId;
use sexton::status::LockserverStats;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

/// The interval between two readings.
const EVERY: Duration = Duration::from_secs(5);

/// The number of readings kept: the first and the last of them are ten minutes apart.
pub(crate) const KEPT: usize = 121;

/// The kinds of activity that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// LockServer commands.
    Lockserver,
    /// beanstalkd commands.
    Beanstalk,
    /// HTTP requests.
    Http,
    /// Changes to locks.
    Locks,
    /// Changes to jobs and queues.
    Jobs,
    /// Changes to tasks.
    Tasks,
    /// Journal entries.
    Entries,
    /// Journal syncs.
    Syncs,
}

impl Counted {
    pub(crate) const ALL: [Self; 8] = [
        Self::Lockserver,
        Self::Beanstalk,
        Self::Http,
        Self::Locks,
        Self::Jobs,
        Self::Tasks,
        Self::Entries,
        Self::Syncs,
    ];
}

/// The counters at one moment, by kind of activity. A counter is `None` if its listener is not open or if there is no journal.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    at: Timestamp,
    counts: [Option<u64>; Counted::ALL.len()],
}

/// The readings of the last ten minutes, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<VecDeque<Reading>>);

impl Rates {
    /// Reads the counters.
    pub(crate) fn read(&self, node: &Handle) {
        self.keep(Reading::of(node));
    }

    /// Reads the counters periodically until the listener closes. The first reading is taken before the listener serves, by [`Self::read`],
    /// so that the first page has it.
    pub(crate) async fn sample(&self, node: &Handle, mut closing: watch::Receiver<bool>) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await; // the first tick, which is immediate
        loop {
            tokio::select! {
                biased;
                _ = closing.wait_for(|closing| *closing) => return,
                _ = ticks.tick() => self.read(node),
            }
        }
    }

    fn keep(&self, reading: Reading) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(reading);
    }

    /// Returns the rates between successive readings, per second, oldest first. Returns `None` if there are no readings, or if the counter
    /// is `None` in one of them.
    pub(crate) fn of(&self, counted: Counted) -> Option<Vec<f64>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |reading: &Reading| reading.counts.get(counted as usize).copied().flatten();
        let counts: Option<Vec<(Timestamp, u64)>> =
            kept.iter().map(|reading| Some((reading.at, count(reading)?))).collect();
        let counts = counts.filter(|counts| !counts.is_empty())?;
        let pairs = counts.iter().zip(counts.iter().skip(1));
        let rate = |(before, after): (&(Timestamp, u64), &(Timestamp, u64))| {
            let seconds = after.0.since(before.0).as_secs_f64();
            // LockServer's counters wrap at 2^32. A rate across a wrap is 0.
            let more = u32::try_from(after.1.saturating_sub(before.1)).unwrap_or(u32::MAX);
            if seconds > 0.0 { f64::from(more) / seconds } else { 0.0 }
        };
        Some(pairs.map(rate).collect())
    }
}

impl Reading {
    fn of(node: &Handle) -> Self {
        let (listening, journal) = node.counted();
        let beanstalk = listening.beanstalk.as_ref();
        Self {
            at: node.now(),
            counts: [
                listening.lockserver.as_ref().map(commands),
                beanstalk.map(|it| it.commands.values().sum()),
                listening.http.map(|it| it.answered + it.refused + it.failed),
                Some(node.entries_of(ActorId::LOCK)),
                Some(node.entries_of(ActorId::QUEUE)),
                Some(node.entries_of(ActorId::DISPATCH)),
                journal.map(|it| it.released.0),
                journal.map(|it| it.counts.syncs),
            ],
        }
    }
}

fn commands(stats: &LockserverStats) -> u64 {
    let counters = [
        stats.requests,
        stats.owner_lookups,
        stats.contender_lookups,
        stats.renewals,
        stats.releases,
        stats.release_alls,
        stats.dumps,
        stats.statistics,
    ];
    counters.into_iter().map(u64::from).sum()
}

#[cfg(test)]
mod tests {
    use super::{Counted, KEPT, Rates, Reading};
    use sexton::clock::Timestamp;

    #[test]
    fn rates_are_what_was_added_between_readings() {
        let rates = Rates::default();
        assert_eq!(rates.of(Counted::Http), None, "there are no readings yet");
        for (at, http) in [(1000, 10), (6000, 20), (11_000, 20), (11_000, 30)] {
            let mut reading = Reading { at: Timestamp(at), ..Reading::default() };
            reading.counts[Counted::Http as usize] = Some(http);
            rates.keep(reading);
        }
        assert_eq!(rates.of(Counted::Http), Some(vec![2.0, 0.0, 0.0]));
        assert_eq!(rates.of(Counted::Syncs), None, "there is no journal");
        for _ in 0..2 * KEPT {
            rates.keep(Reading::default());
        }
        assert_eq!(rates.of(Counted::Http), None);
        assert_eq!(rates.0.lock().unwrap().len(), KEPT);
    }
}
