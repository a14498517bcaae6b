//! `Idempotency-Key`: a request that comes again, because its answer was lost, is answered as it was the first time,
//! and nothing is done twice.
//!
//! Bounded in time and number: the oldest answers are forgotten first. In memory alone: after a restart every request
//! is a first one. Never here: what a request does.

use crate::clock::Timestamp;
use crate::protocols::http::problem::Problem;
use actix_web::http::StatusCode;
use actix_web::http::header::HeaderMap;
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use xxhash_rust::xxh3::xxh3_128;

/// How long an answer is remembered.
const REMEMBERED_SECONDS: u64 = 600;

/// Answers that are remembered at most, and what they say at most: jobs may be long.
const REMEMBERED_MAX: usize = 16_384;
const REMEMBERED_BYTES_MAX: usize = 64 << 20;

const HEADER: &str = "idempotency-key";
const KEY_BYTES_MAX: usize = 128;

/// What a route says: the body of an answer, or why there is none.
pub(crate) type Said = Result<Value, Problem>;

/// Requests with a key: those being answered, and the answers of a while.
#[derive(Default)]
pub(crate) struct Repetitions {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    records: HashMap<String, Record>,
    /// Answered ones, oldest first.
    answered: VecDeque<Answered>,
    /// What they say, all together.
    bytes: usize,
}

struct Answered {
    at: Timestamp,
    key: String,
    bytes: usize,
}

struct Record {
    fingerprint: u128,
    /// None while it is being answered.
    said: Option<Said>,
}

/// What a request with a key is.
pub(crate) enum Request<'r> {
    /// One that is to be carried out.
    First(Claim<'r>),
    /// One that was answered before.
    Again(Said),
}

/// The right to answer a request; given up when dropped.
pub(crate) struct Claim<'r> {
    repetitions: &'r Repetitions,
    key: String,
}

impl Repetitions {
    /// What a request with this key, to this path and with this body, is.
    pub(crate) fn begin(
        &self,
        key: String,
        (path, body): (&str, &[u8]),
        now: Timestamp,
    ) -> Request<'_> {
        let fingerprint = xxh3_128(&[path.as_bytes(), b"\0", body].concat());
        let mut known = self.known();
        known.forget(now);
        match known.records.get(&key) {
            None => {
                let said = None;
                let record = Record { fingerprint, said };
                known.records.insert(key.clone(), record);
                Request::First(Claim {
                    repetitions: self,
                    key,
                })
            }
            Some(record) if record.fingerprint != fingerprint => Request::Again(Err(Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "this Idempotency-Key came before, with another request",
            )
            .because("key-reused"))),
            Some(record) => Request::Again(record.said.clone().unwrap_or_else(|| {
                let words = "a request with this Idempotency-Key is being answered";
                Err(Problem::new(StatusCode::CONFLICT, words).because("running"))
            })),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn forget(&mut self, now: Timestamp) {
        let is_old = |it: &Answered| it.at.plus_seconds(REMEMBERED_SECONDS) <= now;
        while self.answered.len() > REMEMBERED_MAX
            || self.bytes > REMEMBERED_BYTES_MAX
            || self.answered.front().is_some_and(is_old)
        {
            if let Some(Answered { key, bytes, .. }) = self.answered.pop_front() {
                self.records.remove(&key);
                self.bytes -= bytes;
            }
        }
    }
}

/// The bytes of what is said: of its text, which may be long; the rest is little.
fn bytes_of(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(bytes_of).sum(),
        Value::Object(members) => members.values().map(bytes_of).sum(),
    }
}

impl Claim<'_> {
    /// Remembers what was said, if it would be said again: an answer, or a refusal by the locks themselves.
    pub(crate) fn said(self, said: &Said, now: Timestamp) {
        let is_final = match said {
            Ok(_) => true,
            Err(problem) => problem.is_final(),
        };
        if !is_final {
            return;
        }
        let mut known = self.repetitions.known();
        if let Some(record) = known.records.get_mut(&self.key) {
            record.said = Some(said.clone());
            let bytes = said.as_ref().map_or(0, bytes_of);
            known.answered.push_back(Answered {
                at: now,
                key: self.key.clone(),
                bytes,
            });
            known.bytes += bytes;
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut known = self.repetitions.known();
        if known
            .records
            .get(&self.key)
            .is_some_and(|record| record.said.is_none())
        {
            known.records.remove(&self.key);
        }
    }
}

/// The key of a request, if it has one.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut given = headers.get_all(HEADER);
    let Some(key) = given.next() else {
        return Ok(None);
    };
    let text = key.to_str().unwrap_or("");
    let is_good = (1..=KEY_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic())
        && given.next().is_none();
    if is_good {
        return Ok(Some(text.to_owned()));
    }
    Err(crate::protocols::http::field::wrong(
        "Idempotency-Key",
        format!("must be there once, with 1 to {KEY_BYTES_MAX} visible ASCII characters"),
    ))
}

#[cfg(test)]
mod tests {
    use super::{REMEMBERED_BYTES_MAX, REMEMBERED_MAX, REMEMBERED_SECONDS, Repetitions, Request};
    use crate::clock::Timestamp;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn answer(repetitions: &Repetitions, key: &str, now: Timestamp) {
        let Request::First(claim) = repetitions.begin(key.to_owned(), ("/", b""), now) else {
            panic!("{key} is new");
        };
        claim.said(&Ok(1.into()), now);
    }

    fn is_first(repetitions: &Repetitions, key: &str, now: Timestamp) -> bool {
        let request = repetitions.begin(key.to_owned(), ("/", b""), now);
        matches!(request, Request::First(_))
    }

    #[test]
    fn an_answer_is_remembered_for_its_time() {
        let repetitions = Repetitions::default();
        answer(&repetitions, "k", NOW);
        let end = NOW.plus_seconds(REMEMBERED_SECONDS);
        assert!(!is_first(&repetitions, "k", Timestamp(end.0 - 1)));
        assert!(is_first(&repetitions, "k", end));
    }

    #[test]
    fn a_request_that_was_given_up_is_none() {
        let repetitions = Repetitions::default();
        assert!(is_first(&repetitions, "k", NOW));
        assert!(is_first(&repetitions, "k", NOW), "the claim was dropped");
    }

    #[test]
    fn only_so_much_is_remembered() {
        let repetitions = Repetitions::default();
        let remember = |key: &str, bytes: usize| {
            let Request::First(claim) = repetitions.begin(key.to_owned(), ("/", b""), NOW) else {
                panic!("{key} is new");
            };
            let body = "x".repeat(bytes);
            claim.said(&Ok(serde_json::json!({"jobs": [{"body": body}]})), NOW);
        };
        remember("old", REMEMBERED_BYTES_MAX / 2);
        remember("new", REMEMBERED_BYTES_MAX / 2);
        assert!(!is_first(&repetitions, "old", NOW));
        remember("newest", 1);
        assert!(is_first(&repetitions, "old", NOW));
        assert!(!is_first(&repetitions, "new", NOW));
    }

    #[test]
    fn only_so_many_answers_are_remembered() {
        let repetitions = Repetitions::default();
        for number in 0..=REMEMBERED_MAX {
            answer(&repetitions, &number.to_string(), NOW);
        }
        assert!(is_first(&repetitions, "0", NOW));
        assert!(!is_first(&repetitions, "1", NOW));
        assert!(repetitions.known().records.len() <= REMEMBERED_MAX + 1);
    }
}
