//! Converts the QueueActor's replies, and its views of jobs and queues, to beanstalkd's terms.

use crate::beanstalk::reply::Reply;
use crate::beanstalk::request::Request;
use crate::beanstalk::stats::{JobCounts, JobState, JobStats, TubeStats};
use sexton::actors::queue::{Counts, JobView, Phase, QueueView, Refused, Reply as ActorReply};
use sexton::clock::Timestamp;

/// Returns a job's statistics for `stats-job`. A job that waits for a retry counts as delayed, since beanstalkd has no such state.
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

/// Returns a queue's statistics for `stats-tube`.
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
        pause_time_left: queue.paused_until.map_or(0, |until| seconds_left(until, now)),
    }
}

/// Returns the number of jobs in each of beanstalkd's states. Jobs that wait for a retry count as delayed, and abandoned and quarantined jobs as
/// buried, since a kick makes them ready.
pub(crate) fn counts(counts: &Counts) -> JobCounts {
    JobCounts {
        urgent: counts.urgent.into(),
        ready: counts.ready.into(),
        reserved: counts.claimed.into(),
        delayed: (counts.delayed + counts.retrying).into(),
        buried: (counts.buried + counts.abandoned + counts.quarantined).into(),
    }
}

/// Returns the state that corresponds to a phase.
pub(crate) const fn state(phase: Phase) -> JobState {
    match phase {
        Phase::Ready => JobState::Ready,
        Phase::Delayed | Phase::Retrying => JobState::Delayed,
        Phase::Claimed => JobState::Reserved,
        Phase::Buried | Phase::Abandoned | Phase::Quarantined => JobState::Buried,
    }
}

/// Converts an answer of the actor to a single-line reply.
pub(crate) fn plain(asked: &Request, told: &ActorReply) -> Reply<'static> {
    match (asked, told) {
        (Request::Put(_), ActorReply::Put { id, duplicate }) => match duplicate {
            None => Reply::Inserted(*id),
            Some(phase) => Reply::InsertedBefore { id: *id, state: state(*phase), priority: None },
        },
        (Request::Put(_), ActorReply::Remembered { id, .. }) => Reply::Inserted(*id),
        (Request::Spoiled, _) => Reply::ExpectedCrlf,
        (_, ActorReply::Refused(Refused::Draining) | ActorReply::ReadOnly(_)) => Reply::Draining,
        (_, ActorReply::Refused(Refused::TooBig)) => Reply::JobTooBig,
        (_, ActorReply::Refused(Refused::Full | Refused::QueuesFull | Refused::DiskFull)) => {
            Reply::OutOfMemory
        }
        (Request::Delete(_), ActorReply::Done) => Reply::Deleted,
        (Request::Release { .. }, ActorReply::Done) => Reply::Released,
        (Request::Bury { .. }, ActorReply::Done)
        | (Request::Release { .. }, ActorReply::Abandoned) => Reply::Buried,
        (Request::Touch(_), ActorReply::Done) => Reply::Touched,
        (Request::KickJob(_), ActorReply::Done) => Reply::JobKicked,
        (Request::PauseFound { .. }, ActorReply::Done) => Reply::Paused,
        (Request::Kick(_), ActorReply::Count(count)) => Reply::Kicked((*count).into()),
        (Request::Flush(_), ActorReply::Count(count)) => Reply::Flushed((*count).into()),
        (_, ActorReply::Absent | ActorReply::Refused(Refused::StaleToken | Refused::Forbidden)) => {
            Reply::NotFound
        }
        (asked, told) => unreachable!("{told:?} is not an answer to {asked:?}"),
    }
}

/// Returns the time until `until`, less one millisecond, in whole seconds. In beanstalkd, which counts nanoseconds, some time has always
/// passed when a client requests the value, so a span of 10 s shows as 9 from the start.
fn seconds_left(until: Timestamp, now: Timestamp) -> u64 {
    until.0.saturating_sub(now.0).saturating_sub(1) / 1000
}
