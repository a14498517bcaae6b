//! What the QueueActor knows of jobs and queues, in beanstalkd's words.

use crate::actors::queue::{Counts, JobView, Phase, QueueView, Refused, Reply as Told};
use crate::clock::Timestamp;
use crate::protocols::beanstalk::asked::Asked;
use crate::protocols::beanstalk::reply::{JobState, Reply};
use crate::protocols::beanstalk::stats::{JobCounts, JobStats, TubeStats};

/// A job for `stats-job`. One that failed is delayed, as far as beanstalkd has words for it.
pub(crate) fn job(job: &JobView, now: Timestamp) -> JobStats<'_> {
    let left = matches!(job.phase, Phase::Claimed | Phase::Delayed | Phase::Retrying)
        .then_some(job.until)
        .flatten();
    JobStats {
        id: job.id,
        tube: job.queue.as_bytes(),
        state: state(job.phase),
        priority: job.priority,
        age: now.since(job.created).as_secs(),
        delay: job.delay_ms / 1000,
        ttr: job.ttr_ms / 1000,
        time_left: left.map_or(0, |until| seconds_left(until, now)),
        file: 0,
        reserves: job.reserves.into(),
        timeouts: job.timeouts.into(),
        releases: job.releases.into(),
        buries: job.buries.into(),
        kicks: job.kicks.into(),
    }
}

/// A queue for `stats-tube`.
pub(crate) fn tube(queue: &QueueView, now: Timestamp) -> TubeStats<'_> {
    TubeStats {
        name: queue.name.as_bytes(),
        jobs: counts(&queue.jobs),
        total_jobs: queue.total,
        using: queue.using.into(),
        watching: queue.watching.into(),
        waiting: queue.waiting.into(),
        deletes: queue.deletes,
        pauses: queue.pauses,
        pause: queue.pause_ms / 1000,
        pause_time_left: queue
            .paused_until
            .map_or(0, |until| seconds_left(until, now)),
    }
}

/// Jobs by state. Abandoned ones are as good as buried: a kick makes them ready.
pub(crate) fn counts(counts: &Counts) -> JobCounts {
    JobCounts {
        urgent: counts.urgent.into(),
        ready: counts.ready.into(),
        reserved: counts.claimed.into(),
        delayed: (counts.delayed + counts.retrying).into(),
        buried: (counts.buried + counts.abandoned).into(),
    }
}

/// A phase as a state.
pub(crate) const fn state(phase: Phase) -> JobState {
    match phase {
        Phase::Ready => JobState::Ready,
        Phase::Delayed | Phase::Retrying => JobState::Delayed,
        Phase::Claimed => JobState::Reserved,
        Phase::Buried | Phase::Abandoned => JobState::Buried,
    }
}

/// Replies that need no more than a word.
pub(crate) fn plain(asked: &Asked, told: &Told) -> Reply<'static> {
    match (asked, told) {
        (Asked::Put(_), Told::Put { id, duplicate }) => match duplicate {
            None => Reply::Inserted(*id),
            Some(phase) => Reply::InsertedBefore {
                id: *id,
                state: state(*phase),
                priority: None,
            },
        },
        (Asked::Put(_), Told::Remembered { id }) => Reply::Inserted(*id),
        (Asked::Spoiled, _) => Reply::ExpectedCrlf,
        (_, Told::Refused(Refused::Draining | Refused::ReadOnly)) => Reply::Draining,
        (_, Told::Refused(Refused::TooBig)) => Reply::JobTooBig,
        (_, Told::Refused(Refused::Full | Refused::QueuesFull | Refused::DiskFull)) => {
            Reply::OutOfMemory
        }
        (Asked::Delete(_), Told::Done) => Reply::Deleted,
        (Asked::Release { .. }, Told::Done) => Reply::Released,
        (Asked::Bury { .. }, Told::Done) | (Asked::Release { .. }, Told::Abandoned) => {
            Reply::Buried
        }
        (Asked::Touch(_), Told::Done) => Reply::Touched,
        (Asked::KickJob(_), Told::Done) => Reply::JobKicked,
        (Asked::PauseFound { .. }, Told::Done) => Reply::Paused,
        (Asked::Kick(_), Told::Count(count)) => Reply::Kicked((*count).into()),
        (Asked::Flush(_), Told::Count(count)) => Reply::Flushed((*count).into()),
        (_, Told::Absent | Told::Refused(Refused::StaleToken)) => Reply::NotFound,
        (asked, told) => unreachable!("{asked:?} is not answered with {told:?}"),
    }
}

/// Whole seconds until then. beanstalkd counts nanoseconds, of which some are over whenever anybody asks: of a span that
/// has only just begun, its last second is never whole.
fn seconds_left(until: Timestamp, now: Timestamp) -> u64 {
    until.0.saturating_sub(now.0).saturating_sub(1) / 1000
}
