//! Locks over HTTP: requests into calls of [`Locks`], and what came of them into answers. The fields are those of
//! `docs/protocols/http.md`, "Locks".
//!
//! Never here: who may do what with a lock. That is the machine's.

use crate::actors::lock::{Listed, LockMachine, Name, Query, Refused, Reply, Selection, Standing};
use crate::clock::Timestamp;
use crate::handle::{Entry, LockError, Terms};
use crate::ids::{Slot, Token};
use crate::protocols::http::caller::Asked;
use crate::protocols::http::field::{Fields, member, wrong};
use crate::protocols::http::listing::Listing;
use crate::protocols::http::problem::Problem;
use crate::protocols::http::repetition::Said;
use crate::protocols::http::route::json;
use crate::spine::host::Item;
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::timeout;

/// The longest wait, in seconds: whoever wants to wait for longer asks again.
const WAIT_SECONDS_MAX: u64 = 3600;

/// Entries in an answer, unless more or less are asked for; and at most.
const LISTED: u32 = 100;
const LISTED_MAX: u64 = 1000;

type Answer = Result<HttpResponse, Problem>;

/// Acquires a lock, waiting for it if asked to.
pub(crate) async fn acquire(asked: Asked) -> Answer {
    json(&asked.once(acquire_now).await?)
}

async fn acquire_now(asked: &Asked) -> Said {
    let mut fields = asked.body()?;
    let entry = entry(&mut fields)?;
    let usual = Terms::default();
    let terms = Terms {
        ttl: fields.number("ttl", 1..=65_535)?.unwrap_or(usual.ttl),
        wait: fields
            .number("wait", 0..=WAIT_SECONDS_MAX)?
            .unwrap_or(usual.wait),
        priority: fields
            .number("priority", 0..=255)?
            .unwrap_or(usual.priority),
    };
    fields.end()?;
    let locks = asked.node.locks();
    let acquired = if terms.wait == 0 {
        locks.acquire(&entry, terms).await
    } else {
        asked.wait(locks.acquire(&entry, terms)).await?
    };
    match acquired {
        Ok(token) => {
            let mut answer = named(&entry);
            answer.insert("place".to_owned(), 1.into());
            answer.insert("token".to_owned(), json!(token));
            Ok(Value::Object(answer))
        }
        Err(LockError::Held { place }) => {
            let holder = locks.owner(&entry.key, &entry.index).await;
            // It may have gone since; it was held all the same.
            let holder = holder.ok().flatten();
            let place = [("place".to_owned(), place.into())];
            Err(
                Problem::new(StatusCode::CONFLICT, "somebody else holds the lock")
                    .because("held")
                    .tell(place)
                    .tell(holder.map(|owner| member("owner", &owner))),
            )
        }
        Err(error) => Err(refusal(asked, &error)),
    }
}

/// Begins the span of an entry again.
pub(crate) async fn renew(asked: Asked) -> Answer {
    json(&asked.once(renew_now).await?)
}

async fn renew_now(asked: &Asked) -> Said {
    let (entry, token) = target(asked)?;
    let renewed = asked.node.locks().renew(&entry, token).await;
    Ok(standing(renewed.map_err(|error| refusal(asked, &error))?))
}

/// Ends an entry.
pub(crate) async fn release(asked: Asked) -> Answer {
    json(&asked.once(release_now).await?)
}

async fn release_now(asked: &Asked) -> Said {
    let (entry, token) = target(asked)?;
    let released = asked.node.locks().release(&entry, token).await;
    released.map_err(|error| refusal(asked, &error))?;
    Ok(json!({ "ended": 1 }))
}

/// Ends every entry of an owner.
pub(crate) async fn release_all(asked: Asked) -> Answer {
    json(&asked.once(release_all_now).await?)
}

async fn release_all_now(asked: &Asked) -> Said {
    let mut fields = asked.body()?;
    let owner = fields.needed_name("owner")?;
    fields.end()?;
    let ended = asked.node.locks().release_all(&owner).await;
    let ended = ended.map_err(|error| refusal(asked, &error))?;
    Ok(json!({ "ended": ended }))
}

/// Waits until an entry no longer owns its lock.
pub(crate) async fn watch(asked: Asked) -> Answer {
    let mut fields = asked.body()?;
    let entry = entry(&mut fields)?;
    let token = fields.number("token", 0..=u64::MAX)?.map(Token);
    let token = token.ok_or_else(|| wrong("token", "is missing"))?;
    let wait = fields.number("wait", 0..=WAIT_SECONDS_MAX)?.unwrap_or(60);
    fields.end()?;
    let locks = asked.node.locks();
    let lost = timeout(Duration::from_secs(wait), locks.lost(&entry, token));
    match asked.wait(lost).await? {
        Err(_) => json(&json!({ "lost": false })),
        Ok(Ok(())) => json(&json!({ "lost": true })),
        Ok(Err(error)) => Err(refusal(&asked, &error)),
    }
}

/// Who holds a lock.
pub(crate) async fn owner(asked: Asked) -> Answer {
    let mut fields = asked.query()?;
    let (key, index) = lock(&mut fields)?;
    fields.end()?;
    let owner = asked.node.locks().owner(&key, &index).await;
    let owner = owner.map_err(|error| refusal(&asked, &error))?;
    let owner = owner.ok_or_else(|| absent("nobody holds the lock"))?;
    json(&named(&Entry { key, index, owner }))
}

/// Where an entry stands.
pub(crate) async fn place(asked: Asked) -> Answer {
    let mut fields = asked.query()?;
    let entry = entry(&mut fields)?;
    fields.end()?;
    let found = asked.node.locks().place(&entry).await;
    json(&standing(found.map_err(|error| refusal(&asked, &error))?))
}

/// Entries, as many as are asked for, and where to go on.
pub(crate) async fn list(asked: Asked) -> Answer {
    let mut fields = asked.query()?;
    let from = Slot(fields.number("after", 0..=u32::MAX.into())?.unwrap_or(0));
    let most = fields.number("limit", 1..=LISTED_MAX)?.unwrap_or(LISTED);
    let wanted = Selection {
        key: fields.name("key")?,
        index: fields.name("index")?,
        owner: fields.name("owner")?,
        from,
        entries_max: most,
    };
    fields.end()?;
    let locks = asked.node.locks();
    let page = async |from, entries_max| {
        let selection = Selection {
            from,
            entries_max,
            ..wanted.clone()
        };
        let page = locks.select(selection).await;
        page.map_err(|error| refusal(&asked, &error))
    };
    let now = asked.node.now();
    let tell = |entry: &Listed| listed(entry, now);
    let listing = Listing::gather(&asked, (from, most), page, tell).await?;
    let in_order = |it: &Listed| (it.key.clone(), it.index.clone(), it.place);
    Ok(listing.sort_by_key(in_order).answer("locks"))
}

/// Takes no new locks from now on; says how many are left, at once or when none is.
pub(crate) async fn drain(asked: Asked) -> Answer {
    let mut fields = asked.query()?;
    let wait = fields.number("wait", 0..=WAIT_SECONDS_MAX)?.unwrap_or(0);
    fields.end()?;
    let node = &asked.node;
    let stopped = |_| refusal(&asked, &LockError::Stopped(crate::spine::runtime::Stopped));
    let begun = node.begin_drain().await;
    begun.map_err(|error| refusal(&asked, &error))?;
    if wait > 0 {
        let drained = timeout(Duration::from_secs(wait), node.drained());
        // When the wait is over it says how many are left.
        if let Ok(drained) = asked.wait(drained).await? {
            drained.map_err(stopped)?;
        }
    }
    let counts: Vec<Item<LockMachine>> = vec![Item::Query(Query::Counts)];
    let counts = node.locks().batch(counts).await.map_err(stopped)?;
    let left = match counts.first() {
        Some(Ok(Reply::Counts { owners, contenders })) => {
            u64::from(*owners) + u64::from(*contenders)
        }
        Some(_) | None => {
            return Err(refusal(
                &asked,
                &LockError::Failed(crate::spine::host::Failed),
            ));
        }
    };
    json(&json!({ "draining": true, "locks": left }))
}

fn lock(fields: &mut Fields) -> Result<(Name, Name), Problem> {
    let key = fields.needed_name("key")?;
    Ok((key, fields.name("index")?.unwrap_or_default()))
}

fn entry(fields: &mut Fields) -> Result<Entry, Problem> {
    let (key, index) = lock(fields)?;
    let owner = fields.needed_name("owner")?;
    Ok(Entry { key, index, owner })
}

/// An entry, and the token that it must have if one is given.
fn target(asked: &Asked) -> Result<(Entry, Option<Token>), Problem> {
    let mut fields = asked.body()?;
    let entry = entry(&mut fields)?;
    let token = fields.number("token", 0..=u64::MAX)?.map(Token);
    fields.end()?;
    Ok((entry, token))
}

fn named(entry: &Entry) -> Map<String, Value> {
    let Entry { key, index, owner } = entry;
    [("key", key), ("index", index), ("owner", owner)]
        .map(|(field, name)| member(field, name))
        .into_iter()
        .collect()
}

fn standing(standing: Standing) -> Value {
    let Standing { place, token } = standing;
    json!({ "place": place, "token": token })
}

fn listed(listed: &Listed, now: Timestamp) -> Value {
    let Listed {
        key,
        index,
        owner,
        place,
        ttl,
        ttw,
        priority,
        deadline,
        token,
    } = listed;
    let mut object: Map<String, Value> = [("key", key), ("index", index), ("owner", owner)]
        .map(|(field, name)| member(field, name))
        .into_iter()
        .collect();
    let rest = [
        ("place", json!(place)),
        ("token", json!(token)),
        ("priority", json!(priority)),
        ("ttl", json!(ttl)),
        ("wait", json!(ttw)),
        ("remaining_ms", json!(deadline.0.saturating_sub(now.0))),
    ];
    object.extend(rest.map(|(field, value)| (field.to_owned(), value)));
    Value::Object(object)
}

fn absent(words: impl Into<String>) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, words).because("absent")
}

/// Why something was not done, as a status, a word for programs and a sentence for people.
fn refusal(asked: &Asked, error: &LockError) -> Problem {
    let words = error.to_string();
    let (status, reason) = match error {
        LockError::Held { .. } => (StatusCode::CONFLICT, "held"),
        LockError::Absent => return absent(words),
        LockError::Refused(Refused::StaleToken) => (StatusCode::CONFLICT, "stale"),
        LockError::Refused(Refused::NoOwner) => return wrong("owner", "must not be empty"),
        LockError::Refused(Refused::Reserved) => (StatusCode::FORBIDDEN, "reserved"),
        LockError::Refused(Refused::Draining) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        LockError::Refused(Refused::Full) => (StatusCode::SERVICE_UNAVAILABLE, "full"),
        LockError::Refused(Refused::DiskFull) => (StatusCode::INSUFFICIENT_STORAGE, "disk-full"),
        LockError::Failed(_) => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
        LockError::Stopped(_) => {
            let words = asked.node.halt_words().unwrap_or(words);
            return Problem::new(StatusCode::SERVICE_UNAVAILABLE, words).because("stopped");
        }
    };
    Problem::new(status, words).because(reason)
}
