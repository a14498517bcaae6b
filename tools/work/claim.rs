//! Claims jobs and reports their results. Claims are bound to the tree of this process, which includes every command: no matter
//! which process is killed, a job is not claimed again while a process of its command is alive.
//!
//! If the coordinator is stopped, a run waits until it is started again, so a restart ends neither a waiting run nor a job.

use crate::client::{self, Answer, Fields, Outage, Target, fields, instant, rest};
use crate::figure::Figure;
use crate::process::attached;
use crate::report::{Failure, reason_of};
use crate::text::{number, words};
use crate::work::attempt::CommandResult;
use crate::work::tally::Verdict;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use sexton::actors::queue::QueueName;
use sexton::clock::{Clock as _, SystemClock, Timestamp};
use sexton::refusal::Reason;
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
    pub(super) attempts: u64,
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
        let pop = || client::send(&target, "/v1/queues/pop", asked.clone(), wait);
        let answer = retry_until_answered(pop, (wait == 0).then_some(RETURN_MAX))?;
        match answer.refusal().and_then(ClaimAnswer::refused) {
            Some(found) => Ok(found),
            None => ClaimAnswer::read(&answer.success(&[])?),
        }
    }

    /// Returns the fields of a claim request.
    fn asked(&self) -> Fields {
        let from = match &self.source {
            Source::Queues(queues) => ("queues", json!(queues)),
            Source::AnyTenant => ("any", json!({ "types": self.types })),
        };
        fields([from, ("process", self.own.as_str().into())])
    }

    /// Reports jobs as done and claims up to as many new ones, retrying until the coordinator answers. Returns for each reported job
    /// whether the report was accepted, which requires that its claim was still valid, and the answer to the request for its next job;
    /// `None` if that answer is unknown.
    pub(super) fn exchange(&self, done: &[Key]) -> Vec<Exchanged> {
        let exchanged = || {
            let keys = done.iter();
            let keys = keys.map(|(id, token)| json!({ "id": id, "token": token }));
            let mut asked = self.asked();
            asked.extend(fields([
                ("done", keys.collect::<Vec<_>>().into()),
                ("count", done.len().into()),
            ]));
            let target = self.target.under(&chance()?);
            let pop = || client::send(&target, "/v1/queues/pop", asked.clone(), 0);
            retry_until_answered(pop, None)?.success(&[])
        };
        match exchanged() {
            Ok(said) => exchanged_of(done, &said),
            Err(failure) => done.iter().map(|_| (Err(failure.clone()), None)).collect(),
        }
    }

    /// Reports the result of a job, retrying until the coordinator answers. Returns `true` if the job will not be tried again. Fails if the
    /// claim is no longer valid.
    pub(super) fn settle(&self, claim: &Claim, verdict: &Verdict) -> Result<bool, Failure> {
        let path = format!("/v1/queues/{}", verdict.request());
        let (error, retry) = verdict.reason();
        let asked = fields([
            ("id", claim.id.into()),
            ("token", claim.token.into()),
            ("error", error.filter(|it| !it.is_empty()).into()),
            ("retry_after_ms", retry.into()),
            ("crashed", is(matches!(verdict, Verdict::Crashed(_)))),
            ("interrupted", is(matches!(verdict, Verdict::Interrupted(_)))),
        ]);
        let target = self.target.under(&chance()?);
        let settle = || client::send(&target, &path, asked.clone(), 0);
        let answer = retry_until_answered(settle, None)?;
        // A missing job was cancelled or deleted while it ran: it is not tried again.
        if verdict.is_failure() && answer.is_refused_as(Reason::Absent) {
            return Ok(true);
        }
        let said = answer.success(&[])?;
        let phase = said.pointer("/phase").and_then(Value::as_str);
        Ok(phase.is_none_or(|phase| ["abandoned", "quarantined"].contains(&phase)))
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
        let mut asked = fields([
            ("id", claim.id.into()),
            ("token", claim.token.into()),
            ("keep_ms", keep_ms.into()),
            ("took_ms", took_ms.into()),
            ("done", (*verdict == Verdict::Done).into()),
            ("exit", left.exit.into()),
            ("error", error.filter(|it| !it.is_empty()).into()),
        ]);
        asked.extend(client::bytes("output", left.output.clone()));
        let target = self.target.under(&chance()?);
        let path = "/v1/queues/keep-result";
        let keep = || client::send(&target, path, asked.clone(), 0);
        retry_until_answered(keep, None)?.success(&[]).map(drop)
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
        let asked = fields([("process", self.own.as_str().into())]);
        let answer = client::send(&self.target, "/v1/queues/withdraw", asked, 0)?;
        answer.success(&[]).map(drop)
    }

    /// Returns the number of ready jobs in all queues of the source; `None` if it cannot be read.
    pub(super) fn ready(&self) -> Option<u64> {
        let Some(queues) = self.queues() else {
            return self.types.iter().map(|kind| self.ready_of(kind)).sum();
        };
        let each = queues.iter().map(|queue| {
            let view = self.queue(queue)?;
            number(&view, "/ready").known()
        });
        each.sum()
    }

    /// Returns the number of ready jobs of a type across all tenants; `None` if the request fails, or if one answer cannot list all queues
    /// of the type.
    fn ready_of(&self, kind: &str) -> Option<u64> {
        let query = fields([("type", kind.into()), ("limit", "1000".into())]);
        let path = client::with_query("/v1/queues", &query);
        let answer = client::get(&self.target, &path).ok()?.success(&[]).ok()?;
        let is_all = answer.pointer("/next").is_none_or(Value::is_null);
        let queues = answer.pointer("/queues").and_then(Value::as_array)?;
        let ready = queues.iter().map(|queue| number(queue, "/ready")).sum::<Figure>();
        ready.known().filter(|_| is_all)
    }

    /// Returns the types whose queues are closed by their throttles, which means that no job can be claimed, each with the time at which
    /// its queue reopens, in seconds since 1970. Empty for [`Source::AnyTenant`].
    pub(super) fn backoffs(&self) -> Map<String, Value> {
        let mut backoffs = Map::new();
        for queue in self.queues().into_iter().flatten() {
            let view = self.queue(queue).unwrap_or_default();
            let ms = view.pointer("/throttled_ms").and_then(Value::as_u64);
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
            let listed = fields([("type", kind.as_str().into()), ("limit", "1".into())]);
            let path = client::with_query("/v1/queues", &listed);
            let queues = client::get(&self.target, &path)?.success(&[])?;
            if queues.pointer("/queues/0").is_some() {
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

    /// Returns the state of a queue, null if the queue does not exist; `None` if the state cannot be read.
    fn queue(&self, name: &QueueName) -> Option<Value> {
        let query = fields([("queue", name.as_str().into())]);
        let path = client::with_query("/v1/queues/queue", &query);
        let answer = client::get(&self.target, &path).ok()?;
        if answer.is_refused_as(Reason::Absent) {
            return Some(Value::Null);
        }
        answer.success(&[]).ok()
    }
}

/// Splits an answer into one part for each finished job: whether it was accepted as done, and the new job for its worker.
fn exchanged_of(done: &[Key], said: &Value) -> Vec<Exchanged> {
    let list = |place: &str| said.pointer(place).and_then(Value::as_array);
    let not_done = list("/not_done").map_or(&[][..], Vec::as_slice);
    let mut jobs = list("/jobs").into_iter().flatten();
    let refused = said.pointer("/refused").and_then(reason_of);
    let each = done.iter().map(|(id, _)| {
        let of = |refused: &&Value| refused.pointer("/id").and_then(Value::as_u64) == Some(*id);
        let told = match not_done.iter().find(of) {
            None => Ok(()),
            Some(refused) => Err(Failure::refused(refused, &[])),
        };
        let found = match (jobs.next(), refused) {
            (Some(job), _) => Claim::read(job).ok().map(Box::new).map(ClaimAnswer::Claim),
            (None, Some(reason)) => ClaimAnswer::refused(reason),
            (None, None) => Some(ClaimAnswer::Nothing),
        };
        (told, found)
    });
    each.collect()
}

/// Sends a request, and repeats it until it is answered, for at most `most` if given. Fails at once if the coordinator has halted.
pub(super) fn retry_until_answered(
    ask: impl Fn() -> Result<Answer, Failure>,
    most: Option<Duration>,
) -> Result<Answer, Failure> {
    let began = instant();
    let mut outage: Option<Outage> = None;
    loop {
        match ask() {
            Ok(answer) if !answer.is_refused_as(Reason::Stopped) => return Ok(answer),
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

/// Returns a field of a request that is left out unless it is true.
fn is(flag: bool) -> Value {
    flag.then_some(true).into()
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

    fn read(said: &Value) -> Result<Self, Failure> {
        said.pointer("/jobs/0")
            .map_or(Ok(Self::Nothing), |job| Ok(Self::Claim(Box::new(Claim::read(job)?))))
    }
}

impl Claim {
    fn read(job: &Value) -> Result<Self, Failure> {
        let number = |path| job.pointer(path).and_then(Value::as_u64);
        let numbers = (number("/id"), number("/token"), number("/attempts"));
        let (Some(id), Some(token), Some(attempts)) = numbers else {
            return Err(unread());
        };
        let text = job.pointer("/body").and_then(Value::as_str);
        let encoded = job.pointer("/body_b64").and_then(Value::as_str);
        let body = match (text, encoded) {
            (Some(text), _) => text.as_bytes().to_vec(),
            (None, Some(encoded)) => STANDARD.decode(encoded).map_err(|_| unread())?,
            (None, None) => Vec::new(),
        };
        let queue = QueueName::try_from(words(job, "/queue").as_str());
        Ok(Self {
            id,
            token,
            queue: queue.map_err(|_| unread())?,
            attempts,
            is_duplicate: job.pointer("/duplicate") == Some(&true.into()),
            body,
        })
    }

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

fn unread() -> Failure {
    Failure::unreachable("failed to read the coordinator's answer: it is not a job")
}

#[cfg(test)]
mod tests {
    use super::{Claim, ClaimAnswer, exchanged_of};
    use serde_json::json;

    #[test]
    fn a_job_without_its_numbers_is_not_worked_on() {
        let job = json!({"id": 10, "token": 100, "queue": "q", "attempts": 1, "body": "x"});
        assert!(Claim::read(&job).is_ok());
        for number in ["id", "token", "attempts"] {
            let mut other = job.clone();
            other[number] = (-1).into();
            assert!(Claim::read(&other).is_err(), "{number}");
        }
    }

    #[test]
    fn each_that_is_done_hears_of_itself_and_is_given_what_there_is() {
        let done = [(7, 70), (8, 80), (9, 90)];
        let job = json!({"id": 10, "token": 100, "queue": "q", "attempts": 1, "body": "x"});
        let stale = json!({"id": 8, "reason": "stale", "detail": "the claim is over"});
        let said = json!({"jobs": [job], "not_done": [stale]});
        let told = exchanged_of(&done, &said);
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
        let told = exchanged_of(&done, &said);
        let drains = |(told, found): &(Result<(), _>, Option<ClaimAnswer>)| {
            told.is_ok() && matches!(found, Some(ClaimAnswer::Draining))
        };
        assert!(told.iter().all(drains), "each job still counts as done");
    }
}
