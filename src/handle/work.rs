//! Jobs in Rust: what a type of jobs does, and workers of this process that do it.
//!
//! Promises what queues do: **at least once, in any order**. A job whose worker ended without a word is given out again, so write
//! jobs that may run twice. A panic is a failure. Never here: which job is next, nor when one is tried again.

use crate::actors::queue::{Body, Claim, Progress, Put, QueueName, Refused};
use crate::handle::{Handle, QueueError, Queues};
use crate::ids::Token;
use crate::spine::guard::panic_words;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::fmt::Display;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::interval;

/// How soon a worker looks again when the node refuses to give out jobs, such as while its disk is full.
const PAUSE: Duration = Duration::from_secs(1);

/// The priority of a job that says nothing of its own: that of `sexton queue push`.
const PRIORITY: u32 = 1024;

/// A type of jobs: its members are what a job says, in JSON, so that other programs can push and read them.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use sexton::node::{Attempt, Job, JobError};
///
/// #[derive(Serialize, Deserialize)]
/// struct Mail {
///     to: String,
/// }
///
/// impl Job for Mail {
///     const TYPE: &str = "mails";
///
///     async fn run(self, attempt: Attempt) -> Result<(), JobError> {
///         attempt.progress(50, "connected").await?;
///         if self.to.is_empty() {
///             return Err(JobError::failed("nobody to send it to"));
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// The type, which is the queue of the default tenant: 1 to 200 letters, digits and `-+/;.$_()`, the first no `-`.
    const TYPE: &'static str;

    /// Does the work. It runs on a thread of its worker, in a tokio runtime of that, and may run twice for one job: see the module.
    /// `Ok` ends the job. Dropped halfway when the claim is lost: the job was ended, or its queue flushed.
    ///
    /// # Errors
    /// [`JobError`] says whether the job failed, or is to come back later. A panic is a failure, too.
    fn run(self, attempt: Attempt) -> impl Future<Output = Result<(), JobError>> + Send;
}

/// Why a job is not done. Any error is a failure (`?`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobError {
    reason: String,
    after: Option<Duration>,
    is_failure: bool,
}

impl JobError {
    /// It failed for this reason, which is shown with the job, and is tried again as its type says.
    pub fn failed(reason: impl Display) -> Self {
        Self {
            reason: reason.to_string(),
            after: None,
            is_failure: true,
        }
    }

    /// It was not tried, for this reason, and comes back after this time. That counts as no try, unless the job is a day old.
    pub fn snooze(after: Duration, reason: impl Display) -> Self {
        Self {
            reason: reason.to_string(),
            after: Some(after),
            is_failure: false,
        }
    }

    /// The same, tried again after this time.
    #[must_use]
    pub fn retry_after(self, after: Duration) -> Self {
        Self {
            after: Some(after),
            ..self
        }
    }
}

impl<E: std::error::Error> From<E> for JobError {
    fn from(error: E) -> Self {
        Self::failed(error)
    }
}

/// One attempt at a job, while it lasts.
#[derive(Clone)]
pub struct Attempt {
    queues: Queues,
    id: u64,
    token: Token,
    attempts: u32,
    stopping: watch::Receiver<bool>,
}

impl Attempt {
    /// The number of the job.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Which try it is; the first is 1.
    pub const fn number(&self) -> u32 {
        self.attempts
    }

    /// The token of the claim. It only ever grows: what it guards can tell an older attempt.
    pub const fn fence(&self) -> Token {
        self.token
    }

    /// Whether the workers are to end: a long job may stop early, and fail or snooze.
    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Reports how far it is, to be shown with the job: in percent, at most 100, and what is being done.
    ///
    /// # Errors
    /// If the claim is lost, or the node has stopped.
    pub async fn progress(&self, percent: u8, text: &str) -> Result<(), QueueError> {
        let text = Some(text).filter(|text| !text.is_empty());
        let progress = Progress {
            percent: Some(percent.min(100)),
            text: text.map(|text| text.to_owned().into()),
        };
        self.queues.report(self.id, self.token, progress).await?;
        Ok(())
    }
}

/// Why a job was not pushed.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// [`Job::TYPE`] is no type.
    #[error("{0:?} is no type of jobs")]
    Type(&'static str),
    /// The job cannot be written in JSON.
    #[error("the job cannot be written: {0}")]
    Body(#[from] serde_json::Error),
    /// It was refused.
    #[error(transparent)]
    Refused(#[from] QueueError),
}

/// Why there are no workers.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// [`Job::TYPE`] is no type.
    #[error("{0:?} is no type of jobs")]
    Type(&'static str),
    /// A thread or its runtime cannot be had.
    #[error("failed to begin a worker: {0}")]
    Thread(#[from] std::io::Error),
}

/// Workers of one type of jobs. Dropped, they take on no more, and nobody waits for them.
pub struct Workers {
    stop: watch::Sender<bool>,
    /// Each worker holds the other end.
    alive: mpsc::Receiver<Infallible>,
}

impl Workers {
    /// Takes on no further job, and resolves when those that run have come to their end.
    pub async fn end(mut self) {
        self.stop.send_replace(true);
        while self.alive.recv().await.is_some() {}
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

impl Queues {
    /// Adds a job of a type, to be run at once by the next free worker; its number.
    ///
    /// # Errors
    /// If it cannot be written, or is refused, as [`Queues::put`] has it.
    pub async fn push<J: Job>(&self, job: &J) -> Result<u64, PushError> {
        Ok(self.put(put_of(job)?).await?.id)
    }
}

/// A job of a type as [`Queues::put`] takes it, to be given a delay, a priority or a deduplication key first.
///
/// # Errors
/// If [`Job::TYPE`] is none, or the job cannot be written.
pub fn put_of<J: Job>(job: &J) -> Result<Put, PushError> {
    let queue = QueueName::new(J::TYPE.as_bytes()).ok_or(PushError::Type(J::TYPE))?;
    Ok(Put {
        priority: PRIORITY,
        ..Put::new(queue, Body::new(serde_json::to_vec(job)?))
    })
}

impl Handle {
    /// Begins to work on jobs of a type, on so many threads, each with one job at a time.
    ///
    /// # Errors
    /// If [`Job::TYPE`] is none, or a thread cannot be had: then there are no workers.
    pub fn work<J: Job>(&self, threads: u16) -> Result<Workers, WorkError> {
        let queue = QueueName::new(J::TYPE.as_bytes()).ok_or(WorkError::Type(J::TYPE))?;
        let (stop, stopping) = watch::channel(false);
        let (living, alive) = mpsc::channel(1);
        let workers = Workers { stop, alive };
        for nth in 0..threads {
            let worker = Worker {
                handle: self.clone(),
                queues: self.queues(),
                queue: queue.clone(),
                stopping: stopping.clone(),
                living: living.clone(),
            };
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let thread = std::thread::Builder::new().name(format!("{} {nth}", J::TYPE));
            thread.spawn(move || runtime.block_on(worker.work::<J>()))?;
        }
        Ok(workers)
    }
}

/// One of the workers.
struct Worker {
    handle: Handle,
    queues: Queues,
    queue: QueueName,
    stopping: watch::Receiver<bool>,
    #[expect(dead_code, reason = "held as long as the worker lives")]
    living: mpsc::Sender<Infallible>,
}

impl Worker {
    /// Until it is to stop, or the node does.
    async fn work<J: Job>(mut self) {
        loop {
            let mut waiting = self.queues.wait_for_job(std::slice::from_ref(&self.queue));
            let claimed = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stops| *stops) => {
                    // What was claimed in this moment is not tried.
                    if let Ok(Some(claim)) = waiting.withdraw().await {
                        self.queues.give_back(claim.id, claim.token);
                    }
                    return;
                }
                claimed = waiting.claim() => claimed,
            };
            match claimed {
                Ok(claim) => self.attempt::<J>(claim).await,
                Err(QueueError::Stopped(_) | QueueError::Refused(Refused::Draining)) => return,
                Err(_) => self.rest().await,
            }
        }
    }

    async fn rest(&mut self) {
        let mut pause = interval(PAUSE);
        // The first comes at once.
        pause.tick().await;
        tokio::select! {
            _ = self.stopping.wait_for(|stops| *stops) => {}
            _ = pause.tick() => {}
        }
    }

    /// Runs a job, and says what came of it.
    async fn attempt<J: Job>(&self, claim: Claim) {
        let (id, token) = (claim.id, claim.token);
        let done = if claim.duplicate {
            Some(Ok(()))
        } else {
            self.run::<J>(&claim).await
        };
        // If the claim is lost, or the node stops, the job is given out again, or was ended: there is nothing more to say.
        match done {
            None => {}
            Some(Ok(())) => drop(self.queues.ack(id, token).await),
            Some(Err(error)) => {
                let after = error.after.map(|after| after.as_millis());
                let after = after.and_then(|ms| u64::try_from(ms).ok());
                let said = (after, Some(error.reason.into()));
                if error.is_failure {
                    drop(self.queues.fail(id, token, said).await);
                } else {
                    drop(self.queues.defer(id, token, said).await);
                }
            }
        }
    }

    /// What came of a job; nothing if the claim was lost before.
    async fn run<J: Job>(&self, claim: &Claim) -> Option<Result<(), JobError>> {
        let job = match serde_json::from_slice::<J>(claim.body.as_bytes()) {
            Ok(job) => job,
            Err(error) => {
                let words = format!("the body is no job of the type {}: {error}", J::TYPE);
                return Some(Err(JobError::failed(words)));
            }
        };
        let attempt = Attempt {
            queues: self.queues.clone(),
            id: claim.id,
            token: claim.token,
            attempts: claim.attempts,
            stopping: self.stopping.clone(),
        };
        let mut running = pin!(async move { job.run(attempt).await });
        let caught = std::future::poll_fn(move |context| {
            let poll = || running.as_mut().poll(context);
            catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|payload| {
                let words = panic_words(payload.as_ref());
                Poll::Ready(Err(JobError::failed(format!("it panicked: {words}"))))
            })
        });
        tokio::select! {
            done = caught => Some(done),
            () = self.keep(claim) => None,
        }
    }

    /// Keeps a claim for as long as it is there: well before each of its spans is over, it is touched.
    async fn keep(&self, claim: &Claim) {
        let Some(ends) = claim.ends() else {
            return std::future::pending().await;
        };
        let span = ends.0.saturating_sub(self.handle.now().0);
        let third = Duration::from_millis((span / 3).max(1));
        let mut ticks = interval(third);
        // The first comes at once.
        ticks.tick().await;
        loop {
            ticks.tick().await;
            if self.queues.touch(claim.id, claim.token).await.is_err() {
                return;
            }
        }
    }
}
