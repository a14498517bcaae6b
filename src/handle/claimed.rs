//! Operations on a claimed job by the holder of its claim token: ack, release, bury, touch, fail, defer and report.

use crate::actors::queue::{Command, ErrorText, JobView, Message, Progress, Right};
use crate::handle::job_wait::interruption;
use crate::handle::queue_error::QueueError;
use crate::handle::queues::Queues;
use crate::ids::Token;

impl Queues {
    /// Completes a claimed job and removes it.
    pub async fn ack(&self, id: u64, token: Token) -> Result<(), QueueError> {
        let by = Right::Token(token);
        self.done(Message::Delete { id, by }).await
    }

    /// Puts a claimed job back into its queue, where it is ready again after `delay_ms` milliseconds, with a new `priority` if one is
    /// given. If this was its last try, the job is abandoned instead. Returns the job's state afterwards; `None` if this repeats an earlier
    /// request and the job has ended since.
    pub async fn release(
        &self,
        id: u64,
        token: Token,
        (delay_ms, priority): (u64, Option<u32>),
    ) -> Result<Option<JobView>, QueueError> {
        let by = Right::Token(token);
        let release = Message::Release { id, by, priority, delay_ms };
        self.change(id, release).await
    }

    /// Buries a claimed job: it is set aside until it is kicked. Returns the job's state afterwards, as [`Queues::release`] does.
    pub async fn bury(
        &self,
        id: u64,
        token: Token,
        priority: Option<u32>,
    ) -> Result<Option<JobView>, QueueError> {
        let by = Right::Token(token);
        self.change(id, Message::Bury { id, by, priority }).await
    }

    /// Restarts the claim's time limit. A handle from [`Queues::bound`] also binds the claim to its process. Returns the job's state
    /// afterwards, as [`Queues::release`] does.
    pub async fn touch(&self, id: u64, token: Token) -> Result<Option<JobView>, QueueError> {
        let by = Right::Token(token);
        let touch = match self.bound {
            Some(to) => Message::Bind { id, by, to },
            None => Message::Touch { id, by },
        };
        self.change(id, touch).await
    }

    /// Reports that a claimed job failed. The job is tried again after `retry_after_ms` milliseconds. If that is `None`, it is tried again
    /// after the backoff of its type or, if its type has none, when the claim would have ended. After its last try, it is abandoned.
    /// Returns the job's state afterwards; `None` if the job was to run at most once and has been removed. `error` is shown with the job
    /// until it fails again.
    pub async fn fail(
        &self,
        id: u64,
        token: Token,
        (retry_after_ms, error): (Option<u64>, Option<ErrorText>),
    ) -> Result<Option<JobView>, QueueError> {
        let by = Right::Token(token);
        let fail = Message::Fail { id, by, retry_after_ms, error, crashed: false };
        self.change(id, fail).await
    }

    /// Reports that the work on a claimed job ended with a crash. The job is tried again after the backoff of its type, which grows with
    /// each crash; after [`crash_tries`](crate::actors::queue::TypeRules::crash_tries) crashes in a row it is quarantined. Returns the job's
    /// state afterwards, as [`Queues::fail`] does.
    pub async fn crash(
        &self,
        id: u64,
        token: Token,
        (retry_after_ms, error): (Option<u64>, Option<ErrorText>),
    ) -> Result<Option<JobView>, QueueError> {
        let by = Right::Token(token);
        let crash = Message::Fail { id, by, retry_after_ms, error, crashed: true };
        self.change(id, crash).await
    }

    /// Names the process that works on a claimed job on behalf of the process that its claim is bound to. When that one is gone, the claim
    /// lasts as long as the tree of `command`. If `claim_ms` is not 0, that tree is stopped, and the job has failed, unless the claim is
    /// touched at least that often. Returns the job's state afterwards, as [`Queues::release`] does.
    pub async fn attach(
        &self,
        id: u64,
        token: Token,
        (command, claim_ms): (Command, u64),
    ) -> Result<Option<JobView>, QueueError> {
        let attach = Message::Attach { id, by: Right::Token(token), command, ttr_ms: claim_ms };
        self.change(id, attach).await
    }

    /// Reports that a claimed job cannot be tried now. It is unavailable for `retry_after_ms` milliseconds or, if that is `None`, for a
    /// delay that grows each time it is released or deferred. The claim does not count as a try. If the job is more than a day old or has
    /// been cancelled, this counts as a failure. Returns the job's state afterwards, as [`Queues::release`] does.
    pub async fn defer(
        &self,
        id: u64,
        token: Token,
        (retry_after_ms, error): (Option<u64>, Option<ErrorText>),
    ) -> Result<Option<JobView>, QueueError> {
        let by = Right::Token(token);
        let defer = Message::Defer { id, by, error, retry_after_ms, interrupted: false };
        self.change(id, defer).await
    }

    /// Gives a claimed job back because its worker was interrupted: it is ready again immediately, however old it is, and the claim does
    /// not count as a try. If the job has been cancelled, it is abandoned. Returns the job's state afterwards, as [`Queues::release`] does.
    pub async fn interrupt(
        &self,
        id: u64,
        token: Token,
        error: Option<ErrorText>,
    ) -> Result<Option<JobView>, QueueError> {
        self.change(id, interruption(id, token, error)).await
    }

    /// Records the progress of a claimed job, to be shown with the job. Returns the job's state afterwards, as [`Queues::release`] does.
    /// Does not wait until the record is durable.
    pub async fn report(
        &self,
        id: u64,
        token: Token,
        progress: Progress,
    ) -> Result<Option<JobView>, QueueError> {
        let by = Right::Token(token);
        self.change(id, Message::Report { id, by, progress }).await
    }
}
