//! Queues over HTTP, what changes something: requests into calls of [`Queues`](crate::handle::Queues), and what came of
//! them into answers. The fields are those of `docs/protocols/http.md`, "Queues".
//!
//! Never here: who may do what with a job. That is the machine's.

use crate::actors::queue::{Body, Claim, DedupKey, JobView, Put, QueueName, Refused, Root};
use crate::clock::Timestamp;
use crate::handle::{Added, QueueError, Queues};
use crate::ids::Token;
use crate::protocols::http::caller::{Asked, Undoing};
use crate::protocols::http::field::{Fields, bytes_member};
use crate::protocols::http::problem::Problem;
use crate::protocols::http::repetition::Said;
use crate::protocols::http::route::json;
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::timeout;

/// Where jobs are added: what is sent there may be longer than other requests.
pub(crate) const PUSH: &str = "/v1/queues/push";
pub(crate) const PUSH_ALL: &str = "/v1/queues/push-all";

/// The longest wait, in seconds: whoever wants to wait for longer asks again.
const WAIT_SECONDS_MAX: u64 = 3600;

/// The longest span, in milliseconds: that of 2^32 seconds.
const SPAN_MS_MAX: u64 = u32::MAX as u64 * 1000;

/// How urgent a job is that says nothing of it: there is room before it.
const PRIORITY: u32 = 1024;

/// Jobs that are added by one request at most.
const PUSHED_MAX: usize = 1000;

/// Jobs that are claimed by one request at most, and the queues that they may be of.
const CLAIMED_MAX: u64 = 100;
const QUEUES_MAX: usize = 1000;

/// Jobs that are kicked by one request at most.
const KICKED_MAX: u64 = 100_000;

pub(super) type Answer = Result<HttpResponse, Problem>;

/// Adds a job.
pub(crate) async fn push(asked: Asked) -> Answer {
    json(&asked.once(push_now).await?)
}

async fn push_now(asked: &Asked) -> Said {
    let job = job(asked.body()?)?;
    let added = asked.node.queues().put(job).await;
    Ok(added_told(added.map_err(|error| refusal(asked, &error))?))
}

/// Adds several jobs as one.
pub(crate) async fn push_all(asked: Asked) -> Answer {
    json(&asked.once(push_all_now).await?)
}

async fn push_all_now(asked: &Asked) -> Said {
    let mut fields = asked.body()?;
    let jobs = fields.needed_objects("jobs", PUSHED_MAX)?;
    fields.end()?;
    let jobs = jobs.into_iter().map(job).collect::<Result<_, _>>()?;
    let added = asked.node.queues().put_all(jobs).await;
    let added = added.map_err(|error| refusal(asked, &error))?;
    let added: Vec<Value> = added.into_iter().map(added_told).collect();
    Ok(json!({ "jobs": added }))
}

/// One job to be added.
fn job(mut fields: Fields) -> Result<Put, Problem> {
    let queue = fields.needed_queue("queue")?;
    let dedup = fields.text("dedup")?;
    let root = fields.object("root")?;
    let root = root.map(|root| root_of(&queue, root)).transpose()?;
    let is_root = fields.flag("is_root")?.unwrap_or(false);
    if is_root && root.is_none() {
        return Err(fields.wrong("root", "is missing, and is_root is true"));
    }
    let job = Put {
        priority: priority(&mut fields)?.unwrap_or(PRIORITY),
        delay_ms: span(&mut fields, "delay_ms")?.unwrap_or(0),
        ttr_ms: span(&mut fields, "ttr_ms")?.unwrap_or(0),
        dedup: dedup.map(|key| DedupKey::of(key.as_bytes())),
        retries: fields.flag("retries")?.unwrap_or(true),
        root,
        is_root,
        body: Body::new(fields.needed_bytes("body")?),
        queue,
    };
    fields.end()?;
    Ok(job)
}

/// A root job: its signature, which is a matter of its queue, and its time.
fn root_of(queue: &QueueName, mut fields: Fields) -> Result<Root, Problem> {
    let signature = fields.text("signature")?;
    let signature = signature.ok_or_else(|| fields.wrong("signature", "is missing"))?;
    let at = fields.needed_number("at", 0..=u64::MAX)?;
    fields.end()?;
    Ok(Root::of(queue, &signature, at))
}

fn added_told(added: Added) -> Value {
    json!({ "id": added.id, "new": added.new })
}

/// Makes jobs that come from an older root job superfluous.
pub(crate) async fn register(asked: Asked) -> Answer {
    json(&asked.once(register_now).await?)
}

async fn register_now(asked: &Asked) -> Said {
    let mut fields = asked.body()?;
    let queue = fields.needed_queue("queue")?;
    let root = root_of(&queue, fields)?;
    let registered = asked.node.queues().register(root).await;
    let registered = registered.map_err(|error| refusal(asked, &error))?;
    Ok(json!({ "registered": registered }))
}

/// Claims jobs, waiting for one if asked to.
pub(crate) async fn pop(asked: Asked) -> Answer {
    let mut undoing = None;
    let said = asked
        .once(async |asked| {
            let claims = pop_now(asked).await?;
            let now = asked.node.now();
            let jobs: Vec<Value> = claims.iter().map(|claim| claimed(claim, now)).collect();
            // Whoever may ask again is told again; for anybody else they would be lost until their claims end.
            if !asked.is_remembered() {
                undoing = Some(give_back(asked.node.queues(), claims));
            }
            Ok(json!({ "jobs": jobs }))
        })
        .await?;
    let mut answer = json(&said)?;
    if let Some(undoing) = undoing {
        answer.extensions_mut().insert(undoing);
    }
    Ok(answer)
}

async fn pop_now(asked: &Asked) -> Result<Vec<Claim>, Problem> {
    let mut fields = asked.body()?;
    let names = fields.needed_queues("queues", QUEUES_MAX)?;
    let weights = fields.numbers("weights", names.len(), 1..=u32::MAX)?;
    let count = fields.number("count", 1..=CLAIMED_MAX)?.unwrap_or(1);
    let wait = fields.number("wait", 0..=WAIT_SECONDS_MAX)?.unwrap_or(0);
    fields.end()?;
    let queues = asked.node.queues().weighted(&weights.unwrap_or_default());
    let claims = if wait == 0 {
        queues.pop_some(&names, count).await
    } else {
        let wait = Duration::from_secs(wait);
        asked
            .wait(pop_within(&queues, (&names, count), wait))
            .await?
    };
    claims.map_err(|error| refusal(asked, &error))
}

/// Claims what is ready, or the first job that is so in time.
async fn pop_within(
    queues: &Queues,
    (names, count): (&[QueueName], usize),
    wait: Duration,
) -> Result<Vec<Claim>, QueueError> {
    let claims = queues.pop_some(names, count).await?;
    if !claims.is_empty() {
        return Ok(claims);
    }
    let mut waiting = queues.wait_for_job(names);
    match timeout(wait, waiting.claim()).await {
        Ok(claim) => claim.map(|claim| vec![claim]),
        Err(_) => waiting.withdraw().await.map(Vec::from_iter),
    }
}

/// What is done if whoever claimed these does not hear of it.
fn give_back(queues: Queues, claims: Vec<Claim>) -> Undoing {
    Undoing::new(move || {
        // A part of the answer may have been read: what is to be run at most once stays where it is.
        for claim in claims.into_iter().filter(|claim| claim.retries) {
            queues.give_back(claim.id, claim.token);
        }
    })
}

/// Ends a claimed job: it is done.
pub(crate) async fn ack(asked: Asked) -> Answer {
    json(&asked.once(ack_now).await?)
}

async fn ack_now(asked: &Asked) -> Said {
    let mut fields = asked.body()?;
    let (id, token) = claim_of(&mut fields)?;
    fields.end()?;
    let acked = asked.node.queues().ack(id, token).await;
    acked.map_err(|error| refusal(asked, &error))?;
    Ok(json!({ "deleted": 1 }))
}

/// Says that a claimed job failed.
pub(crate) async fn fail(asked: Asked) -> Answer {
    json(&asked.once(fail_now).await?)
}

async fn fail_now(asked: &Asked) -> Said {
    let mut fields = asked.body()?;
    let (id, token) = claim_of(&mut fields)?;
    let retry_after_ms = span(&mut fields, "retry_after_ms")?;
    fields.end()?;
    let failed = asked.node.queues().fail(id, token, retry_after_ms).await;
    let view = failed.map_err(|error| refusal(asked, &error))?;
    Ok(view.map_or_else(
        || json!({ "id": id, "phase": null, "attempts": null, "remaining_ms": null }),
        |view| changed(asked, &view),
    ))
}

/// Begins the span of a claim again.
pub(crate) async fn touch(asked: Asked) -> Answer {
    json(&asked.once(touch_now).await?)
}

async fn touch_now(asked: &Asked) -> Said {
    let mut fields = asked.body()?;
    let (id, token) = claim_of(&mut fields)?;
    fields.end()?;
    stays(asked, asked.node.queues().touch(id, token).await)
}

/// Gives a claimed job back.
pub(crate) async fn release(asked: Asked) -> Answer {
    json(&asked.once(release_now).await?)
}

async fn release_now(asked: &Asked) -> Said {
    let mut fields = asked.body()?;
    let (id, token) = claim_of(&mut fields)?;
    let delay_ms = span(&mut fields, "delay_ms")?.unwrap_or(0);
    let terms = (delay_ms, priority(&mut fields)?);
    fields.end()?;
    stays(asked, asked.node.queues().release(id, token, terms).await)
}

/// Puts a claimed job aside.
pub(crate) async fn bury(asked: Asked) -> Answer {
    json(&asked.once(bury_now).await?)
}

async fn bury_now(asked: &Asked) -> Said {
    let mut fields = asked.body()?;
    let (id, token) = claim_of(&mut fields)?;
    let priority = priority(&mut fields)?;
    fields.end()?;
    stays(asked, asked.node.queues().bury(id, token, priority).await)
}

/// Ends a job that nobody has claimed.
pub(crate) async fn delete(asked: Asked) -> Answer {
    json(&asked.once(delete_now).await?)
}

async fn delete_now(asked: &Asked) -> Said {
    let mut fields = asked.body()?;
    let id = fields.needed_number("id", 0..=u64::MAX)?;
    fields.end()?;
    let queues = asked.node.queues();
    match queues.delete(id).await {
        Ok(()) => Ok(json!({ "deleted": 1 })),
        Err(QueueError::Absent) if queues.job(id).await.is_ok() => {
            let words = "somebody has claimed the job: it ends with its token";
            Err(Problem::new(StatusCode::CONFLICT, words).because("claimed"))
        }
        Err(error) => Err(refusal(asked, &error)),
    }
}

/// Makes buried or delayed jobs ready.
pub(crate) async fn kick(asked: Asked) -> Answer {
    json(&asked.once(kick_now).await?)
}

async fn kick_now(asked: &Asked) -> Said {
    let mut fields = asked.body()?;
    let queue = fields.needed_queue("queue")?;
    let count = fields.number("count", 1..=KICKED_MAX)?.unwrap_or(1);
    fields.end()?;
    let kicked = asked.node.queues().kick(&queue, count).await;
    let kicked = kicked.map_err(|error| refusal(asked, &error))?;
    Ok(json!({ "kicked": kicked }))
}

/// Makes one job ready that is buried, abandoned or delayed.
pub(crate) async fn kick_job(asked: Asked) -> Answer {
    json(&asked.once(kick_job_now).await?)
}

async fn kick_job_now(asked: &Asked) -> Said {
    let mut fields = asked.body()?;
    let id = fields.needed_number("id", 0..=u64::MAX)?;
    fields.end()?;
    let kicked = asked.node.queues().kick_job(id).await;
    kicked.map_err(|error| refusal(asked, &error))?;
    Ok(json!({ "kicked": 1 }))
}

/// Makes the abandoned jobs of a queue ready.
pub(crate) async fn repush(asked: Asked) -> Answer {
    json(&asked.once(repush_now).await?)
}

async fn repush_now(asked: &Asked) -> Said {
    let queue = only_queue(asked)?;
    let repushed = asked.node.queues().repush(&queue).await;
    let repushed = repushed.map_err(|error| refusal(asked, &error))?;
    Ok(json!({ "repushed": repushed }))
}

/// Ends every job of a queue.
pub(crate) async fn flush(asked: Asked) -> Answer {
    json(&asked.once(flush_now).await?)
}

async fn flush_now(asked: &Asked) -> Said {
    let queue = only_queue(asked)?;
    let flushed = asked.node.queues().flush(&queue).await;
    let flushed = flushed.map_err(|error| refusal(asked, &error))?;
    Ok(json!({ "flushed": flushed }))
}

/// Lets nothing be claimed from a queue for a while.
pub(crate) async fn pause(asked: Asked) -> Answer {
    json(&asked.once(pause_now).await?)
}

async fn pause_now(asked: &Asked) -> Said {
    let mut fields = asked.body()?;
    let queue = fields.needed_queue("queue")?;
    let ms = fields.needed_number("ms", 0..=SPAN_MS_MAX)?;
    fields.end()?;
    let paused = asked.node.queues().pause(&queue, ms).await;
    paused.map_err(|error| refusal(asked, &error))?;
    Ok(json!({ "queue": queue, "paused_ms": ms }))
}

fn only_queue(asked: &Asked) -> Result<QueueName, Problem> {
    let mut fields = asked.body()?;
    let queue = fields.needed_queue("queue")?;
    fields.end()?;
    Ok(queue)
}

/// Which job, and the token with which it is claimed.
fn claim_of(fields: &mut Fields) -> Result<(u64, Token), Problem> {
    let id = fields.needed_number("id", 0..=u64::MAX)?;
    let token = fields.needed_number("token", 0..=u64::MAX)?;
    Ok((id, Token(token)))
}

fn priority(fields: &mut Fields) -> Result<Option<u32>, Problem> {
    fields.number("priority", 0..=u32::MAX.into())
}

fn span(fields: &mut Fields, field: &str) -> Result<Option<u64>, Problem> {
    fields.number(field, 0..=SPAN_MS_MAX)
}

/// A job that somebody has now.
fn claimed(claim: &Claim, now: Timestamp) -> Value {
    let Claim {
        id,
        token,
        queue,
        attempts,
        until,
        retries,
        duplicate,
        body,
    } = claim;
    let rest = [
        ("id", json!(id)),
        ("token", json!(token)),
        ("queue", json!(queue)),
        ("attempts", json!(attempts)),
        ("remaining_ms", json!(until.0.saturating_sub(now.0))),
        ("retries", json!(retries)),
        ("duplicate", json!(duplicate)),
    ];
    let mut object: Map<String, Value> = rest
        .map(|(field, value)| (field.to_owned(), value))
        .into_iter()
        .collect();
    object.extend([bytes_member("body", body.as_bytes())]);
    Value::Object(object)
}

/// What became of a job that is there after all.
fn stays(asked: &Asked, view: Result<JobView, QueueError>) -> Said {
    let view = view.map_err(|error| refusal(asked, &error))?;
    Ok(changed(asked, &view))
}

fn changed(asked: &Asked, view: &JobView) -> Value {
    let now = asked.node.now();
    let remaining_ms = view.until.map(|until| until.0.saturating_sub(now.0));
    json!({
        "id": view.id,
        "phase": view.phase,
        "attempts": view.attempts,
        "remaining_ms": remaining_ms,
    })
}

/// Why something was not done, as a status, a word for programs and a sentence for people.
pub(super) fn refusal(asked: &Asked, error: &QueueError) -> Problem {
    let words = error.to_string();
    let (status, reason) = match error {
        QueueError::Absent => (StatusCode::NOT_FOUND, "absent"),
        QueueError::Refused(Refused::StaleToken) => (StatusCode::CONFLICT, "stale"),
        QueueError::Refused(Refused::ReadOnly) => (StatusCode::FORBIDDEN, "read-only"),
        QueueError::Refused(Refused::TooBig) => (StatusCode::PAYLOAD_TOO_LARGE, "too-big"),
        QueueError::Refused(Refused::Draining) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        QueueError::Refused(Refused::Full | Refused::QueuesFull | Refused::RootsFull) => {
            (StatusCode::SERVICE_UNAVAILABLE, "full")
        }
        QueueError::Refused(Refused::DiskFull) => (StatusCode::INSUFFICIENT_STORAGE, "disk-full"),
        QueueError::Failed(_) => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
        QueueError::Stopped(_) => {
            let words = asked.node.halt_words().unwrap_or(words);
            return Problem::new(StatusCode::SERVICE_UNAVAILABLE, words).because("stopped");
        }
    };
    Problem::new(status, words).because(reason)
}
