//! `Idempotency-Key`: a request that comes again, because its answer was lost, is answered as it was the first time,
//! and nothing is done twice.
//!
//! Bounded in time and number: the oldest answers are forgotten first. In memory alone: after a restart every request
//! is a first one. Never here: what a request does.

use crate::clock::Timestamp;
use crate::protocols::http::access::Peer;
use crate::protocols::http::problem::Problem;
use crate::refusal::Reason;
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

/// The body of an answer, or why there is none.
type Answer = Result<Value, Problem>;

/// What makes a request one with its cache: the key that the client chose, among those of its caller, and what it
/// asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdempotencyKey {
    id: ScopedKey,
    /// Of path and body.
    fingerprint: u128,
}

/// A key, and whose it is. On TCP there is one token, so all of its clients are one caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ScopedKey {
    user: Option<u32>,
    key: String,
}

impl IdempotencyKey {
    /// That of a request, if it has one.
    pub(crate) fn of(
        headers: &HeaderMap,
        peer: Peer,
        (path, body): (&str, &[u8]),
    ) -> Result<Option<Self>, Problem> {
        let mut given = headers.get_all(HEADER);
        let Some(key) = given.next() else {
            return Ok(None);
        };
        let text = key.to_str().unwrap_or("");
        let is_good = (1..=KEY_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic())
            && given.next().is_none();
        if !is_good {
            let words =
                format!("must be there once, with 1 to {KEY_BYTES_MAX} visible ASCII characters");
            return Err(Problem::field("Idempotency-Key", words));
        }
        let user = match peer {
            Peer::Tcp(_) => None,
            Peer::Socket { uid } => Some(uid),
        };
        let key = text.to_owned();
        Ok(Some(Self {
            id: ScopedKey { user, key },
            fingerprint: xxh3_128(&[path.as_bytes(), b"\0", body].concat()),
        }))
    }
}

/// Requests with a key: those being answered, and the answers of a while.
#[derive(Default)]
pub(crate) struct IdempotencyCache {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    records: HashMap<ScopedKey, Record>,
    /// Answered ones, oldest first.
    answered: VecDeque<Answered>,
    /// What they say, all together.
    bytes: usize,
}

struct Answered {
    at: Timestamp,
    id: ScopedKey,
    bytes: usize,
}

struct Record {
    fingerprint: u128,
    /// None while it is being answered.
    answer: Option<Answer>,
}

/// What a request with a key is.
pub(crate) enum Attempt<'r> {
    /// One that is to be carried out.
    First(Claim<'r>),
    /// One that was answered before.
    Again(Answer),
}

/// The right to answer a request; given up when dropped.
pub(crate) struct Claim<'r> {
    cache: &'r IdempotencyCache,
    id: ScopedKey,
}

impl IdempotencyCache {
    /// What a request with this key is.
    pub(crate) fn begin(&self, key: &IdempotencyKey, now: Timestamp) -> Attempt<'_> {
        let IdempotencyKey { id, fingerprint } = key.clone();
        let mut known = self.known();
        known.forget(now);
        match known.records.get(&id) {
            None => {
                let answer = None;
                let record = Record {
                    fingerprint,
                    answer,
                };
                known.records.insert(id.clone(), record);
                Attempt::First(Claim { cache: self, id })
            }
            Some(record) if record.fingerprint != fingerprint => {
                let words = "this Idempotency-Key came before, with another request";
                Attempt::Again(Err(Problem::new(Reason::KeyReused, words)))
            }
            Some(record) => Attempt::Again(record.answer.clone().unwrap_or_else(|| {
                let words = "a request with this Idempotency-Key is being answered";
                Err(Problem::new(Reason::Running, words))
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
            if let Some(Answered { id, bytes, .. }) = self.answered.pop_front() {
                self.records.remove(&id);
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
    /// Remembers an answer, if it would be given again: one as asked, or a refusal by the actors themselves.
    pub(crate) fn answered(self, answer: &Answer, now: Timestamp) {
        if answer.as_ref().is_err_and(|problem| !problem.is_final()) {
            return;
        }
        let mut known = self.cache.known();
        if let Some(record) = known.records.get_mut(&self.id) {
            record.answer = Some(answer.clone());
            let bytes = answer.as_ref().map_or(0, bytes_of);
            known.answered.push_back(Answered {
                at: now,
                id: self.id.clone(),
                bytes,
            });
            known.bytes += bytes;
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut known = self.cache.known();
        let record = known.records.get(&self.id);
        if record.is_some_and(|record| record.answer.is_none()) {
            known.records.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Attempt, IdempotencyCache, IdempotencyKey, REMEMBERED_BYTES_MAX, REMEMBERED_MAX,
        REMEMBERED_SECONDS, ScopedKey,
    };
    use crate::clock::Timestamp;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn of(key: &str) -> IdempotencyKey {
        let (user, key) = (None, key.to_owned());
        IdempotencyKey {
            id: ScopedKey { user, key },
            fingerprint: 0,
        }
    }

    fn answer(cache: &IdempotencyCache, key: &str, now: Timestamp) {
        let Attempt::First(claim) = cache.begin(&of(key), now) else {
            panic!("{key} is new");
        };
        claim.answered(&Ok(1.into()), now);
    }

    fn is_first(cache: &IdempotencyCache, key: &str, now: Timestamp) -> bool {
        let request = cache.begin(&of(key), now);
        matches!(request, Attempt::First(_))
    }

    #[test]
    fn an_answer_is_remembered_for_its_time() {
        let cache = IdempotencyCache::default();
        answer(&cache, "k", NOW);
        let end = NOW.plus_seconds(REMEMBERED_SECONDS);
        assert!(!is_first(&cache, "k", Timestamp(end.0 - 1)));
        assert!(is_first(&cache, "k", end));
    }

    #[test]
    fn a_key_is_that_of_its_caller() {
        let cache = IdempotencyCache::default();
        answer(&cache, "k", NOW);
        let mut other = of("k");
        other.id.user = Some(1000);
        assert!(matches!(cache.begin(&other, NOW), Attempt::First(_)));
    }

    #[test]
    fn a_request_that_was_given_up_is_none() {
        let cache = IdempotencyCache::default();
        assert!(is_first(&cache, "k", NOW));
        assert!(is_first(&cache, "k", NOW), "the claim was dropped");
    }

    #[test]
    fn only_so_much_is_remembered() {
        let cache = IdempotencyCache::default();
        let remember = |key: &str, bytes: usize| {
            let Attempt::First(claim) = cache.begin(&of(key), NOW) else {
                panic!("{key} is new");
            };
            let body = "x".repeat(bytes);
            claim.answered(&Ok(serde_json::json!({"jobs": [{"body": body}]})), NOW);
        };
        remember("old", REMEMBERED_BYTES_MAX / 2);
        remember("new", REMEMBERED_BYTES_MAX / 2);
        assert!(!is_first(&cache, "old", NOW));
        remember("newest", 1);
        assert!(is_first(&cache, "old", NOW));
        assert!(!is_first(&cache, "new", NOW));
    }

    #[test]
    fn only_so_many_answers_are_remembered() {
        let cache = IdempotencyCache::default();
        for number in 0..=REMEMBERED_MAX {
            answer(&cache, &number.to_string(), NOW);
        }
        assert!(is_first(&cache, "0", NOW));
        assert!(!is_first(&cache, "1", NOW));
        assert!(cache.known().records.len() <= REMEMBERED_MAX + 1);
    }
}
