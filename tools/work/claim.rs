//! Claims jobs and reports their results. Claims are bound to the tree of this process, which includes every command: no matter
//! which process is killed, a job is not claimed again while a process of its command is alive.
//!
//! If the coordinator is stopped, a run waits until it is started again, so a restart ends neither a waiting run nor a job.

use crate::client::{self, Fields, Outage, Reply, Target, fields, instant, rest};
use crate::process::attached;
use crate::report::Failure;
use crate::work::attempt::CommandResult;
use crate::work::tally::Verdict;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use sexton::clock::{Clock as _, SystemClock, Timestamp};
use sexton_api::bytes::Bytes;
use sexton_api::ids::Token;
use sexton_api::job::{
    self, Ack, AnyQueue, Changed, Claims, Defer, Fail, JobClaim, KeepResult, Pop,
};
use sexton_api::queue::{self, Phase, Queue, QueueName, Queues, Withdraw};
use sexton_api::refusal::Reason;
use sexton_api::request::Request;
use sexton_api::value::{List, Number};
use std::collections::BTreeMap;
use std::time::Duration;

/// The pause before a coordinator that cannot be reached is tried again.
pub(super) const PAUSE: Duration = Duration::from_millis(500);

/// How long a run without --wait waits for a coordinator that is unavailable.
pub(super) const RETURN_MAX: Duration = Duration::from_secs(30);

/// The field of a request about a command whose exit status is the result of its job.
pub(super) const COMPLETES: &str = "completes";

/// The queues from which jobs are claimed.
pub(super) enum Source {
    /// These queues.
    Queues(Vec<QueueName>),
    /// The queues of `Jobs::types`, of whichever tenant's turn it is.
    AnyTenant,
}

/// The answer to a request for a job.
pub(super) enum ClaimAnswer {
    Claim(Box<Claim>),
    /// No job is ready.
    Nothing,
    /// The coordinator is draining: it gives out no jobs until it is restarted.
    Draining,
    /// The coordinator accepts no changes, because its disk is full.
    ReadOnly,
}

/// The result of reporting a job as done, and the answer to the request for the next job; `None` if that answer is unknown.
pub(super) type Exchanged = (Result<(), Failure>, Option<ClaimAnswer>);

/// Identifies a claim, by the job's id and the claim's token.
pub(super) type Key = (u64, u64);

/// A claimed job.
pub(super) struct Claim {
    pub(super) id: u64,
    pub(super) token: u64,
    pub(super) queue: QueueName,
    pub(super) attempts: u32,
    /// Whether a newer root job has made the job superfluous: it counts as done without being run.
    pub(super) is_duplicate: bool,
    pub(super) body: Vec<u8>,
}

/// A client for requests about jobs to the coordinator.
pub(super) struct Jobs {
    pub(super) target: Target,
    pub(super) types: Vec<String>,
    pub(super) source: Source,
    /// The id of the coordinator's record of this process.
    pub(super) own: String,
}

impl Jobs {
    /// Claims a job, waiting for one at most `wait` seconds. Uses an idempotency key: if the answer is lost, a repetition returns
    /// the same claim, so that no claim is leaked.
    pub(super) fn claim(&self, wait: u64) -> Result<ClaimAnswer, Failure> {
        let target = self.target.under(&chance()?);
        let asked = self.asked();
        let pop = || client::wait(&target, &asked, wait);
        let reply = retry_until_answered(pop, (wait == 0).then_some(RETURN_MAX))?;
        match reply.refusal().and_then(ClaimAnswer::refused) {
            Some(found) => Ok(found),
            None => Ok(ClaimAnswer::of(reply.success(refused)?.value.jobs.into_iter().next())),
        }
    }

    /// Returns the request for a job.
    fn asked(&self) -> Pop {
        let asked = Pop { process: Some(self.own.clone()), ..Pop::default() };
        match &self.source {
            Source::Queues(queues) => Pop { queues: Some(List(queues.clone())), ..asked },
            Source::AnyTenant => {
                // What is not a type is refused before the run begins.
                let types = self.types.iter().filter_map(|kind| QueueName::new(kind.as_bytes()));
                let types = Some(List(types.collect()));
                Pop { any: Some(AnyQueue { types, ..AnyQueue::default() }), ..asked }
            }
        }
    }

    /// Reports jobs as done and claims up to as many new ones, retrying until the coordinator answers. Returns for each reported job
    /// whether the report was accepted, which requires that its claim was still valid, and the answer to the request for its next job;
    /// `None` if that answer is unknown.
    pub(super) fn exchange(&self, done: &[Key]) -> Vec<Exchanged> {
        let exchanged = || {
            let keys = done.iter().map(|(id, token)| JobClaim { id: *id, token: Token(*token) });
            let count = Number(u32::try_from(done.len()).unwrap_or(u32::MAX));
            let asked = Pop { done: Some(List(keys.collect())), count, ..self.asked() };
            let target = self.target.under(&chance()?);
            let pop = || client::wait(&target, &asked, 0);
            retry_until_answered(pop, None)?.success(refused)
        };
        match exchanged() {
            Ok(answer) => exchanged_of(done, answer.value),
            Err(failure) => done.iter().map(|_| (Err(failure.clone()), None)).collect(),
        }
    }

    /// Reports the result of a job, retrying until the coordinator answers. Returns `true` if the job will not be tried again. Fails if the
    /// claim is no longer valid.
    pub(super) fn settle(&self, claim: &Claim, verdict: &Verdict) -> Result<bool, Failure> {
        let (id, token) = (claim.id, Token(claim.token));
        let (error, retry) = verdict.reason();
        let error = error.filter(|it| !it.is_empty()).map(str::to_owned);
        let retry_after_ms = retry.map(Number);
        match verdict {
            Verdict::Done => self.once(&Ack { id, token })?.success(refused).map(|_| true),
            Verdict::Failed(..) | Verdict::Crashed(_) => {
                let crashed = matches!(verdict, Verdict::Crashed(_));
                let reply = self.once(&Fail { id, token, retry_after_ms, error, crashed })?;
                // A missing job was cancelled or deleted while it ran: it is not tried again.
                if reply.is_refused_as(Reason::Absent) {
                    return Ok(true);
                }
                reply.success(refused).map(|it| is_over(&it.value))
            }
            Verdict::Later(..) | Verdict::Interrupted(_) => {
                let interrupted = matches!(verdict, Verdict::Interrupted(_));
                let asked = Defer { id, token, error, retry_after_ms, interrupted };
                self.once(&asked)?.success(refused).map(|it| is_over(&it.value))
            }
        }
    }

    /// Sends a request that is carried out once, retrying until the coordinator answers.
    fn once<R: Request>(&self, asked: &R) -> Result<Reply<R::Answer>, Failure> {
        let target = self.target.under(&chance()?);
        retry_until_answered(|| client::wait(&target, asked, 0), None)
    }

    /// Stores the result of a claimed job, retrying until the coordinator answers. `keep_ms` is how long the coordinator is to keep the
    /// result, and `took_ms` is how long the job took.
    pub(super) fn keep_result(
        &self,
        claim: &Claim,
        (verdict, left): (&Verdict, &CommandResult),
        (keep_ms, took_ms): (u64, u64),
    ) -> Result<(), Failure> {
        let (error, _) = verdict.reason();
        let asked = KeepResult {
            id: claim.id,
            token: Token(claim.token),
            keep_ms: Number(keep_ms),
            done: *verdict == Verdict::Done,
            exit: left.exit.map(|exit| Number(exit.into())),
            error: error.filter(|it| !it.is_empty()).map(str::to_owned),
            output: Bytes::new(left.output.clone()),
            took_ms,
        };
        self.once(&asked)?.success(refused).map(drop)
    }

    /// Sends the request `what` about a claimed job, with the further fields `more`; does not retry.
    pub(super) fn tell(
        target: &Target,
        (id, token): (u64, u64),
        what: &str,
        more: Fields,
    ) -> Result<(), Failure> {
        let mut asked = fields([("id", id.into()), ("token", token.into())]);
        asked.extend(more);
        let answer = client::send(target, &format!("/v1/queues/{what}"), asked, 0)?;
        answer.success(&[]).map(drop)
    }

    /// Ends the requests of this process that wait for a job: those that the coordinator has received are answered without one.
    pub(super) fn withdraw(&self) -> Result<(), Failure> {
        let asked = Withdraw { process: self.own.clone() };
        client::wait(&self.target, &asked, 0)?.success(refused).map(drop)
    }

    /// Returns the number of ready jobs in all queues of the source; `None` if it cannot be read.
    pub(super) fn ready(&self) -> Option<u64> {
        let Some(queues) = self.queues() else {
            return self.types.iter().map(|kind| self.ready_of(kind)).sum();
        };
        let ready = |queue| self.queue(queue).map(|it| it.map_or(0, |it| u64::from(it.ready)));
        queues.iter().map(ready).sum::<Result<u64, Failure>>().ok()
    }

    /// Returns the number of ready jobs of a type across all tenants; `None` if the request fails, or if one answer cannot list all queues
    /// of the type.
    fn ready_of(&self, kind: &str) -> Option<u64> {
        let listed = self.of_type(kind, 1000).ok()?;
        let ready = listed.queues.iter().map(|queue| u64::from(queue.ready)).sum();
        Some(ready).filter(|_| listed.next.is_none())
    }

    /// Returns at most `limit` queues of a type.
    fn of_type(&self, kind: &str, limit: u32) -> Result<Queues, Failure> {
        let limit = Number(limit);
        let asked = queue::List { r#type: Some(kind.to_owned()), limit, ..queue::List::default() };
        client::ask(&self.target, &asked)?.success(refused).map(|it| it.value)
    }

    /// Returns the types whose queues are closed by their throttles, which means that no job can be claimed, each with the time at which
    /// its queue reopens, in seconds since 1970. Empty for [`Source::AnyTenant`].
    pub(super) fn backoffs(&self) -> Map<String, Value> {
        let mut backoffs = Map::new();
        for queue in self.queues().into_iter().flatten() {
            let ms = self.queue(queue).ok().flatten().and_then(|it| it.throttled_ms);
            if let Some(ms) = ms.filter(|ms| *ms > 0) {
                let at = now().0.saturating_add(ms);
                let seconds = Duration::from_millis(at).as_secs_f64();
                let kind = String::from_utf8_lossy(queue.kind()).into_owned();
                backoffs.insert(kind, seconds.into());
            }
        }
        backoffs
    }

    /// Returns whether at least one of the types is known: the configuration has a table for it, or a queue of it exists.
    pub(super) fn are_known(&self) -> Result<bool, Failure> {
        for kind in &self.types {
            let named = fields([("type", kind.as_str().into())]);
            let path = client::with_query("/v1/queues/config", &named);
            let config = client::get(&self.target, &path)?.success(&[])?;
            let entry = config.pointer("/types/0/from").and_then(Value::as_str);
            if entry == Some(kind) {
                return Ok(true);
            }
            if !self.of_type(kind, 1)?.queues.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn queues(&self) -> Option<&[QueueName]> {
        match &self.source {
            Source::Queues(queues) => Some(queues),
            Source::AnyTenant => None,
        }
    }

    /// Returns the state of a queue; `None` if the queue does not exist.
    fn queue(&self, name: &QueueName) -> Result<Option<Queue>, Failure> {
        let reply = client::ask(&self.target, &queue::Get { queue: name.clone() })?;
        if reply.is_refused_as(Reason::Absent) {
            return Ok(None);
        }
        reply.success(refused).map(|it| Some(it.value))
    }
}

fn refused(said: &Value) -> Failure {
    Failure::refused(said, &[])
}

/// Returns whether a job is not tried again.
fn is_over(changed: &Changed) -> bool {
    changed.phase.is_none_or(|phase| matches!(phase, Phase::Abandoned | Phase::Quarantined))
}

/// Splits an answer into one part for each finished job: whether it was accepted as done, and the new job for its worker.
fn exchanged_of(done: &[Key], said: Claims) -> Vec<Exchanged> {
    let not_done = said.not_done.unwrap_or_default();
    let mut jobs = said.jobs.into_iter();
    let refused = said.refused.as_ref().and_then(|it| Reason::parse(&it.reason));
    let each = done.iter().map(|(id, _)| {
        let told = match not_done.iter().find(|it| it.id == *id) {
            None => Ok(()),
            Some(it) => Err(Failure::refused(&json!(it.refused), &[])),
        };
        let found = match (jobs.next(), refused) {
            (None, Some(reason)) => ClaimAnswer::refused(reason),
            (job, _) => Some(ClaimAnswer::of(job)),
        };
        (told, found)
    });
    each.collect()
}

/// Sends a request, and repeats it until it is answered, for at most `most` if given. Fails at once if the coordinator has halted.
pub(super) fn retry_until_answered<A: DeserializeOwned>(
    ask: impl Fn() -> Result<Reply<A>, Failure>,
    most: Option<Duration>,
) -> Result<Reply<A>, Failure> {
    let began = instant();
    let mut outage: Option<Outage> = None;
    loop {
        match ask() {
            Ok(reply) if !reply.is_refused_as(Reason::Stopped) => return Ok(reply),
            Err(failure) if failure.is_halt() || most.is_some_and(|it| began.elapsed() > it) => {
                return Err(failure);
            }
            Ok(_) | Err(_) => {
                outage.get_or_insert_with(|| Outage::begin(&waiting(most)));
            }
        }
        rest(PAUSE);
    }
}

/// Returns the note about an outage, which ends the run after `most`.
fn waiting(most: Option<Duration>) -> String {
    let limit = most.map_or_else(String::new, |it| format!(" for up to {} s", it.as_secs()));
    format!("the coordinator cannot be reached; waiting{limit} for it to come back")
}

/// Returns a random 128-bit number as 32 hexadecimal digits.
pub(super) fn chance() -> Result<String, Failure> {
    let failed = |error| Failure::unreachable(format!("failed to create a random number: {error}"));
    let drawn = attached::drawn().map_err(failed)?;
    Ok(format!("{drawn:032x}"))
}

impl ClaimAnswer {
    /// Converts a refusal that is an expected answer to a claim; `None` for all other refusals, which are errors.
    fn refused(reason: Reason) -> Option<Self> {
        if reason == Reason::Draining {
            Some(Self::Draining)
        } else if reason == Reason::DiskFull {
            Some(Self::ReadOnly)
        } else {
            // `Stale`: the claim was granted, but the answer was lost, and the claim has expired since.
            (reason == Reason::Stale).then_some(Self::Nothing)
        }
    }

    /// Returns the answer for the first claimed job.
    fn of(job: Option<job::Claim>) -> Self {
        job.map_or(Self::Nothing, |job| Self::Claim(Box::new(job.into())))
    }
}

impl From<job::Claim> for Claim {
    fn from(job: job::Claim) -> Self {
        Self {
            id: job.id,
            token: job.token.0,
            queue: job.queue,
            attempts: job.attempts,
            is_duplicate: job.duplicate,
            body: job.text.body.as_bytes().to_vec(),
        }
    }
}

impl Claim {
    pub(super) const fn key(&self) -> Key {
        (self.id, self.token)
    }

    /// Returns the type of the job.
    pub(super) fn kind(&self) -> String {
        String::from_utf8_lossy(self.queue.kind()).into_owned()
    }

    /// Returns the tenant of the job; empty for the default one.
    pub(super) fn tenant(&self) -> String {
        String::from_utf8_lossy(self.queue.tenant()).into_owned()
    }

    /// Returns the environment variables for the command.
    pub(super) fn env(&self) -> BTreeMap<String, String> {
        let set = [
            ("SEXTON_JOB_ID", self.id.to_string()),
            ("SEXTON_JOB_QUEUE", self.queue.as_str().to_owned()),
            ("SEXTON_JOB_TYPE", self.kind()),
            ("SEXTON_JOB_TENANT", self.tenant()),
            ("SEXTON_JOB_ATTEMPT", self.attempts.to_string()),
            // Tokens only increase, so a resource can refuse a token that is older than one it has seen.
            ("SEXTON_JOB_FENCE", self.token.to_string()),
        ];
        set.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

/// Returns the wall-clock time.
pub(super) fn now() -> Timestamp {
    SystemClock::starting_at(Timestamp(0)).wall()
}

#[cfg(test)]
mod tests {
    use super::{ClaimAnswer, exchanged_of};
    use serde_json::json;

    #[test]
    fn each_that_is_done_hears_of_itself_and_is_given_what_there_is() {
        let done = [(7, 70), (8, 80), (9, 90)];
        let job = json!({
            "id": 10, "token": 100, "queue": "q", "attempts": 1, "remaining_ms": null, "retries": true, "duplicate": false, "body": "x",
        });
        let read = |said| serde_json::from_value(said).expect("it should be an answer");
        let stale = json!({"id": 8, "reason": "stale", "detail": "the claim is over"});
        let said = json!({"jobs": [job], "not_done": [stale]});
        let told = exchanged_of(&done, read(said));
        let is_told: Vec<bool> = told.iter().map(|(told, _)| told.is_ok()).collect();
        assert_eq!(is_told, [true, false, true]);
        let is_given = told
            .iter()
            .map(|(_, found)| matches!(found, Some(ClaimAnswer::Claim(claim)) if claim.id == 10));
        assert_eq!(is_given.collect::<Vec<_>>(), [true, false, false]);
        let is_none =
            |(_, found): &(_, Option<ClaimAnswer>)| matches!(found, Some(ClaimAnswer::Nothing));
        assert!(told.iter().skip(1).all(is_none), "the other workers get no job");

        let refused = json!({"reason": "draining", "detail": "it drains"});
        let said = json!({"jobs": [], "not_done": [], "refused": refused});
        let told = exchanged_of(&done, read(said));
        let drains = |(told, found): &(Result<(), _>, Option<ClaimAnswer>)| {
            told.is_ok() && matches!(found, Some(ClaimAnswer::Draining))
        };
        assert!(told.iter().all(drains), "each job still counts as done");
    }
}
