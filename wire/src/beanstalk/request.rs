//! The requests that a session queues: a client's commands as owned values, with tube names converted to the QueueActor's queue names.

use crate::beanstalk::command::{Command, Put as Sent, Refusal, ReserveMode, TubeName};
use sexton::actors::queue::{Body, DedupKey, QueueName};

/// A command in the queue of a session.
#[derive(Debug)]
pub(crate) enum Request {
    Put(Put),
    /// A `put` whose line has arrived but whose body has not. It only updates the statistics; the `put` itself follows once its body has
    /// arrived. `fits` is whether the body is within the limit.
    PutBegun {
        fits: bool,
    },
    /// A `put` whose body was not terminated correctly. It is refused, but nevertheless uses up a job id.
    Spoiled,
    /// Reserves a job, waiting at most `patience` seconds, or indefinitely if that is `None`.
    Reserve {
        patience: Option<u32>,
    },
    ReserveJob(u64),
    ReserveBatch(u32),
    Delete(u64),
    DeleteBatch(Vec<u64>),
    Release {
        id: u64,
        priority: u32,
        delay: u32,
    },
    Bury {
        id: u64,
        priority: u32,
    },
    Touch(u64),
    Kick(u32),
    KickJob(u64),
    /// Looks up the tube; if it exists, `PauseFound` follows.
    Pause {
        tube: QueueName,
        seconds: u32,
    },
    /// Pauses a tube that was found to exist.
    PauseFound {
        tube: QueueName,
        seconds: u32,
    },
    Flush(QueueName),
    Peek(u64),
    PeekReady,
    PeekDelayed,
    PeekBuried,
    Stats,
    StatsJob(u64),
    StatsTube(QueueName),
    ListTubes,
    Use(QueueName),
    Watch(QueueName, Option<u32>),
    Ignore(QueueName),
    ListTubeUsed,
    ListTubesWatched,
    /// Sets how `reserve` chooses among the watched tubes.
    Mode(ReserveMode),
    Quit,
    /// An HTTP request or a TLS handshake, which ends the connection.
    Http,
    Refused(Refusal),
}

/// A job to add.
#[derive(Debug)]
pub(crate) struct Put {
    pub(crate) priority: u32,
    pub(crate) delay: u32,
    pub(crate) ttr: u32,
    pub(crate) dedup: Option<DedupKey>,
    pub(crate) body: Body,
}

impl Request {
    pub(crate) const fn is_put(&self) -> bool {
        matches!(self, Self::Put(_) | Self::Spoiled | Self::PutBegun { fits: true })
    }

    /// Returns the number of answers that the QueueActor gives to this request.
    pub(crate) fn items(&self) -> usize {
        if let Self::ReserveBatch(count) = self {
            *count as usize
        } else if let Self::DeleteBatch(ids) = self {
            ids.len()
        } else {
            1
        }
    }

    /// Returns whether the answers to the request form a single reply.
    pub(crate) const fn is_batch(&self) -> bool {
        matches!(self, Self::ReserveBatch(_) | Self::DeleteBatch(_))
    }

    /// Returns whether the answer to the request may be a claim.
    pub(crate) const fn may_claim(&self) -> bool {
        self.is_reserve() || matches!(self, Self::ReserveJob(_))
    }

    /// Returns whether the client counts as a worker once it has made the request, whatever the answer.
    pub(crate) const fn is_reserve(&self) -> bool {
        matches!(self, Self::Reserve { .. } | Self::ReserveBatch(_))
    }
}

impl From<Command<'_>> for Request {
    fn from(command: Command<'_>) -> Self {
        match command {
            Command::Put(put) => Self::Put(put.into()),
            Command::Use(tube) => Self::Use(queue(tube)),
            Command::Reserve => Self::Reserve { patience: None },
            Command::ReserveWithTimeout(seconds) => Self::Reserve { patience: Some(seconds) },
            Command::ReserveJob(id) => Self::ReserveJob(id),
            Command::Delete(id) => Self::Delete(id),
            Command::Release { id, priority, delay } => Self::Release { id, priority, delay },
            Command::Bury { id, priority } => Self::Bury { id, priority },
            Command::Touch(id) => Self::Touch(id),
            Command::Watch { tube, weight } => Self::Watch(queue(tube), weight),
            Command::Ignore(tube) => Self::Ignore(queue(tube)),
            Command::Peek(id) => Self::Peek(id),
            Command::PeekReady => Self::PeekReady,
            Command::PeekDelayed => Self::PeekDelayed,
            Command::PeekBuried => Self::PeekBuried,
            Command::Kick(count) => Self::Kick(count),
            Command::KickJob(id) => Self::KickJob(id),
            Command::PauseTube { tube, seconds } => Self::Pause { tube: queue(tube), seconds },
            Command::FlushTube(tube) => Self::Flush(queue(tube)),
            Command::Stats => Self::Stats,
            Command::StatsJob(id) => Self::StatsJob(id),
            Command::StatsTube(tube) => Self::StatsTube(queue(tube)),
            Command::ListTubes => Self::ListTubes,
            Command::ListTubesWatched => Self::ListTubesWatched,
            Command::ListTubeUsed => Self::ListTubeUsed,
            Command::Quit => Self::Quit,
            Command::Http => Self::Http,
            Command::Refused { refusal: Refusal::ExpectedCrlf, .. } => Self::Spoiled,
            Command::Refused { refusal, .. } => Self::Refused(refusal),
            Command::ReserveBatch(count) => Self::ReserveBatch(count),
            Command::DeleteBatch(ids) => Self::DeleteBatch(ids),
            Command::ReserveMode(mode) => Self::Mode(mode),
        }
    }
}

impl From<Sent<'_>> for Put {
    fn from(sent: Sent<'_>) -> Self {
        Self {
            priority: sent.priority,
            delay: sent.delay,
            ttr: sent.ttr,
            dedup: sent.dedup.map(|dedup| DedupKey::of(&dedup.key)),
            body: Body::new(sent.body.as_ref()),
        }
    }
}

/// Returns the tube's queue in the default tenant.
pub(crate) fn queue(tube: TubeName<'_>) -> QueueName {
    QueueName::new(tube.as_bytes()).expect("every tube name should be a valid queue name")
}
