//! Jobs as Rust types: a trait that a job type implements, and workers that run its jobs in this process.
//!
//! Unless the rules of its type say otherwise, a job runs **at least once**, and jobs run **in any order**. If a worker exits without
//! reporting a result, its job is given out again, so write jobs that can safely run more than once. A panic counts as a failure. Which
//! job is next, and when a job is retried, is decided by the queue actor, not by this module.

use crate::actors::queue::{Body, Claim, ErrorText, Progress, Put, QueueName, Refused};
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
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::interval;

/// The delay before a worker requests a job again after the node refused to give out jobs, for example because its disk is full.
const PAUSE: Duration = Duration::from_secs(1);

/// The default priority of a job, the same as that of `sexton queue push`.
const PRIORITY: u32 = 1024;

/// A job type. A job is serialized as JSON to become its body, so programs in other languages can push and read jobs of this type, too.
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
    /// The name of the type, and of its queue in the default tenant: 1 to 200 letters, digits and `-+/;.$_()`, not beginning with `-`.
    const TYPE: &'static str;

    /// Does the work. Runs on the worker's thread, in that thread's tokio runtime, and may run more than once for one job. Returning `Ok`
    /// completes the job. It may block its thread: the claim is renewed on another one. The future is dropped at its next `await` if the
    /// claim is lost, because the job was deleted or cancelled, or its queue flushed, and for no other reason.
    ///
    /// # Errors
    /// Returns a [`JobError`] if the job failed or is to be retried later. A panic counts as a failure.
    fn run(self, attempt: Attempt) -> impl Future<Output = Result<(), JobError>> + Send;
}

/// Why a job was not completed. Any other error converts to a failure with `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobError {
    reason: String,
    after: Option<Duration>,
    is_failure: bool,
}

impl JobError {
    /// Creates a failure; `reason` is shown with the job. The job is retried according to the rules of its type.
    pub fn failed(reason: impl Display) -> Self {
        Self { reason: reason.to_string(), after: None, is_failure: true }
    }

    /// Postpones the job: it is retried after `after`, and `reason` is shown with it. The current run does not count as a try, unless the
    /// job is more than a day old or has been cancelled: it then counts as a failure.
    pub fn snooze(after: Duration, reason: impl Display) -> Self {
        Self { reason: reason.to_string(), after: Some(after), is_failure: false }
    }

    /// Sets the delay after which the job is retried, in place of the back-off of its type or the delay given to [`snooze`](Self::snooze).
    #[must_use]
    pub fn retry_after(self, after: Duration) -> Self {
        Self { after: Some(after), ..self }
    }
}

impl<E: std::error::Error> From<E> for JobError {
    fn from(error: E) -> Self {
        Self::failed(error)
    }
}

/// One attempt at a job, valid while the claim lasts.
#[derive(Clone)]
pub struct Attempt {
    queues: Queues,
    id: u64,
    token: Token,
    attempts: u32,
    stopping: watch::Receiver<bool>,
}

impl Attempt {
    /// Returns the id of the job.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Returns the number of this try, counted from 1 since the job was added or kicked. Tries that ended with a snooze are not counted.
    pub const fn number(&self) -> u32 {
        self.attempts
    }

    /// Returns the token of the claim. Tokens only ever grow, so a resource that compares them can reject an older attempt.
    pub const fn fence(&self) -> Token {
        self.token
    }

    /// Returns whether the workers are stopping: a long job may then stop early by failing or snoozing.
    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Reports the progress, to be shown with the job: `percent`, where values above 100 count as 100, and `text`, which describes the
    /// current step; if it is empty, none is shown.
    ///
    /// # Errors
    /// Returns an error if the claim is lost or the node has stopped.
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
    /// [`Job::TYPE`] is not a valid type.
    #[error("{0:?} is not a valid job type")]
    Type(&'static str),
    /// The job cannot be serialized to JSON.
    #[error("failed to serialize the job: {0}")]
    Body(#[from] serde_json::Error),
    /// The node refused the job, or has stopped.
    #[error(transparent)]
    Refused(#[from] QueueError),
}

/// Why workers could not be started.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// [`Job::TYPE`] is not a valid type.
    #[error("{0:?} is not a valid job type")]
    Type(&'static str),
    /// A thread or its runtime could not be created.
    #[error("failed to start a worker: {0}")]
    Thread(#[from] std::io::Error),
}

/// The workers of one job type. When this value is dropped, they stop claiming jobs; running jobs are not waited for.
pub struct Workers {
    stop: watch::Sender<bool>,
    /// Every worker holds a sender; the channel closes when all workers have exited.
    alive: mpsc::Receiver<Infallible>,
}

impl Workers {
    /// Stops claiming jobs, and resolves when the running ones have finished.
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
    /// Adds a job to the queue of its type, and returns its id, or the id of the earlier job that it duplicates.
    ///
    /// # Errors
    /// Returns an error if [`Job::TYPE`] is not a valid type, if the job cannot be serialized, or if [`Queues::put`] refuses it.
    pub async fn push<J: Job>(&self, job: &J) -> Result<u64, PushError> {
        Ok(self.put(put_of(job)?).await?.id)
    }
}

/// Converts a job for [`Queues::put`], so that a delay, a priority or a deduplication key can be set first.
///
/// # Errors
/// Returns an error if [`Job::TYPE`] is not a valid type or the job cannot be serialized.
pub fn put_of<J: Job>(job: &J) -> Result<Put, PushError> {
    let queue = QueueName::new(J::TYPE.as_bytes()).ok_or(PushError::Type(J::TYPE))?;
    Ok(Put { priority: PRIORITY, ..Put::new(queue, Body::new(serde_json::to_vec(job)?)) })
}

impl Handle {
    /// Starts workers for the job type `J` on `threads` new threads, each running one job at a time.
    ///
    /// # Errors
    /// Returns an error if [`Job::TYPE`] is not a valid type or a thread could not be created. Workers that were started before the error
    /// stop claiming jobs.
    pub fn work<J: Job>(&self, threads: u16) -> Result<Workers, WorkError> {
        let queue = QueueName::new(J::TYPE.as_bytes()).ok_or(WorkError::Type(J::TYPE))?;
        let (stop, stopping) = watch::channel(false);
        let (living, alive) = mpsc::channel(1);
        let workers = Workers { stop, alive };
        let (beats, heart) = heart(J::TYPE)?;
        for nth in 0..threads {
            let worker = Worker {
                handle: self.clone(),
                queues: self.queues(),
                queue: queue.clone(),
                stopping: stopping.clone(),
                living: living.clone(),
                heart: heart.clone(),
                beats: beats.clone(),
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let thread = std::thread::Builder::new().name(format!("{} {nth}", J::TYPE));
            thread.spawn(move || runtime.block_on(worker.work::<J>()))?;
        }
        Ok(workers)
    }
}

/// Starts the thread on which the claims of all workers are renewed, so that a job that blocks its own thread keeps its claim. Returns the
/// sender that keeps the thread running, and its runtime.
fn heart(kind: &str) -> std::io::Result<(mpsc::Sender<Infallible>, tokio::runtime::Handle)> {
    let (beats, mut beating) = mpsc::channel(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let handle = runtime.handle().clone();
    let thread = std::thread::Builder::new().name(format!("{kind} claims"));
    thread.spawn(move || runtime.block_on(async { while beating.recv().await.is_some() {} }))?;
    Ok((beats, handle))
}

/// A single worker.
struct Worker {
    handle: Handle,
    queues: Queues,
    queue: QueueName,
    stopping: watch::Receiver<bool>,
    #[expect(dead_code, reason = "dropping it shows that the worker has exited")]
    living: mpsc::Sender<Infallible>,
    /// The runtime on which claims are renewed.
    heart: tokio::runtime::Handle,
    #[expect(dead_code, reason = "keeps the thread running on which claims are renewed")]
    beats: mpsc::Sender<Infallible>,
}

impl Worker {
    /// Runs one job after another until the workers are stopped, or the node drains or stops.
    async fn work<J: Job>(mut self) {
        // Checked before each wait, because a wait that begins during a drain may still be given a job.
        while !self.handle.draining().claims {
            let mut waiting = self.queues.wait_for_job(std::slice::from_ref(&self.queue));
            let claimed = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stops| *stops) => {
                    // A job claimed in the meantime is given back untried.
                    if let Ok(Some(claim)) = waiting.withdraw().await {
                        drop(self.queues.interrupt(claim.id, claim.token, None).await);
                    }
                    return;
                }
                claimed = waiting.claim() => claimed,
            };
            match claimed {
                Ok(Some(claim)) => self.attempt::<J>(claim).await,
                Ok(None) => {}
                Err(QueueError::Stopped(_) | QueueError::Refused(Refused::Draining)) => return,
                Err(_) => self.pause().await,
            }
        }
    }

    async fn pause(&mut self) {
        let mut pause = interval(PAUSE);
        // The first tick completes immediately.
        pause.tick().await;
        tokio::select! {
            _ = self.stopping.wait_for(|stops| *stops) => {}
            _ = pause.tick() => {}
        }
    }

    /// Runs a claimed job and reports the result. A job that a newer root job has made obsolete is acknowledged without being run.
    async fn attempt<J: Job>(&self, claim: Claim) {
        let (id, token) = (claim.id, claim.token);
        let done = if claim.duplicate { Some(Ok(())) } else { self.run::<J>(&claim).await };
        // Errors are ignored: if the claim is lost or the node stops, the job has ended or will be given out again.
        match done {
            None => {}
            Some(Ok(())) => drop(self.queues.ack(id, token).await),
            Some(Err(error)) => {
                let after = error.after.map(|after| after.as_millis());
                let after = after.and_then(|ms| u64::try_from(ms).ok());
                let said = (after, Some(ErrorText::excerpt(&error.reason)));
                if error.is_failure {
                    drop(self.queues.fail(id, token, said).await);
                } else {
                    drop(self.queues.defer(id, token, said).await);
                }
            }
        }
    }

    /// Runs a job and returns its result; `None` if the claim was lost before the job finished.
    async fn run<J: Job>(&self, claim: &Claim) -> Option<Result<(), JobError>> {
        let job = match serde_json::from_slice::<J>(claim.body.as_bytes()) {
            Ok(job) => job,
            Err(error) => {
                let words = format!("the body is not a job of type {}: {error}", J::TYPE);
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
        let (lost, is_lost) = oneshot::channel();
        let heartbeat = claim.ends().map(|ends| {
            let span = ends.0.saturating_sub(self.handle.now().0);
            let third = Duration::from_millis((span / 3).max(1));
            let (queues, id, token) = (self.queues.clone(), claim.id, claim.token);
            self.heart.spawn(async move {
                keep(&queues, (id, token), third).await;
                // The job may have ended meanwhile.
                let _ = lost.send(());
            })
        });
        let done = tokio::select! {
            biased;
            done = caught => Some(done),
            Ok(()) = is_lost => None,
        };
        if let Some(heartbeat) = heartbeat {
            heartbeat.abort();
        }
        done
    }
}

/// Touches a claim each time a third of its time limit has passed, so that it does not time out. Returns when the claim is lost: the job
/// is gone, or the token is stale. Any other error, such as a full disk, passes, or ends the node; meanwhile the job goes on.
async fn keep(queues: &Queues, (id, token): (u64, Token), third: Duration) {
    let mut ticks = interval(third);
    // The first tick completes immediately.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let told = queues.touch(id, token).await;
        if let Err(QueueError::Absent | QueueError::Refused(Refused::StaleToken)) = told {
            return;
        }
    }
}
