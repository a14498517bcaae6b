//! Locks over HTTP: converts requests to calls of [`Locks`](sexton::handle::Locks), and results to answers. The JSON fields are
//! documented in `docs/protocols/http.md`, "Locks". [`LockMachine`] decides which client may do what with a lock.

use crate::binding::Bound;
use crate::call::Call;
use crate::listing::{self, Listing, Written};
use crate::problem::Problem;
use crate::route::{InPlaceOf, Large, Route};
use sexton::actors::lock::{EntryView, Refused, Selection};
use sexton::clock::{Now, Timestamp};
use sexton::handle::{Entry, LockError, Terms};
use sexton::ids::Token;
use sexton::refusal::Reason;
use sexton_api::lock::{
    Acquire, EndedEntries, Force, Granted, Holder, List, Lock, LockOwner, Locks, Lost, Place,
    Release, ReleaseAll, Renew, Standing, WaiterPlace, Watch,
};
use sexton_api::name::{EntryNames, Name};
use std::time::Duration;
use tokio::time::timeout;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::of_large::<List, _>(list),
        Route::of(owner),
        Route::of(place),
        Route::of(acquire),
        Route::of(renew),
        Route::of(release),
        Route::of(force),
        Route::of(release_all),
        Route::of(watch),
    ]
}

/// Acquires a lock, waiting for it if requested.
async fn acquire(call: &Call, wanted: Acquire) -> Result<Granted, Problem> {
    let entry = Entry {
        owner: wanted.owner.map_or_else(|| own_name(call), Ok)?,
        key: wanted.key,
        index: wanted.index,
    };
    let bound = Bound {
        process: wanted.process,
        release: wanted.release,
        kill_before_grant: wanted.kill_before_grant,
    };
    let bound = bound.binding(call).await?;
    let locks = match bound {
        None => call.locks(),
        Some(binding) => call.locks().bound(binding),
    };
    let default = match bound {
        None => Terms::default().ttl,
        Some(_) => u16::MAX,
    };
    let terms = Terms {
        ttl: wanted.ttl.map_or(default, |ttl| ttl.0),
        wait: wanted.wait.0,
        priority: wanted.priority,
    };
    let acquired = match (bound, terms.wait) {
        (_, 0) => locks.acquire(&entry, terms).await,
        (None, _) => call.wait(locks.acquire(&entry, terms)).await?,
        // An entry bound to a process stays in line when the wait times out, and a repeated request resumes the wait.
        (Some(_), wait) => {
            let place = Terms { wait: u16::MAX, ..terms };
            let acquired = timeout(Duration::from_secs(wait.into()), locks.acquire(&entry, place));
            match call.wait(acquired).await? {
                Ok(acquired) => acquired,
                Err(_) => {
                    let standing = locks.place(&entry).await?;
                    match standing.token {
                        Some(token) => Ok(token),
                        None => Err(LockError::Held { place: standing.place }),
                    }
                }
            }
        }
    };
    match acquired {
        Ok(token) => {
            let Entry { key, index, owner } = entry;
            Ok(Granted { names: EntryNames { key, index, owner }, place: 1, token })
        }
        Err(error @ LockError::Held { place }) => {
            let holder = locks.owner(&entry.key, &entry.index).await;
            // The lock was held when requested. Its holder may have released it since, so the answer may lack an owner.
            Err(Problem::from(error).held(place, holder.ok().flatten()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns a unique owner name. It is derived from the idempotency key if there is one, so that a repeated request gets the
/// same answer.
fn own_name(call: &Call) -> Result<Name, Problem> {
    let chance =
        || Some(u128::from(getrandom::u64().ok()?) << 64 | u128::from(getrandom::u64().ok()?));
    let number = call.key.get().map(|key| key.id).or_else(chance);
    let number = number
        .ok_or_else(|| Problem::new(Reason::Failed, "the system cannot provide random numbers"))?;
    Ok(Name::new(format!("{number:032x}").into_bytes()).expect("32 digits should be a valid name"))
}

/// Restarts the time to live or the time to wait of an entry.
async fn renew(
    call: &Call,
    Renew { key, index, owner, token }: Renew,
) -> Result<Standing, Problem> {
    let renewed = call.locks().renew(&target(key, index, owner, token)?, token).await?;
    Ok(Standing { place: renewed.place, token: renewed.token })
}

async fn release(call: &Call, asked: Release) -> Result<EndedEntries, Problem> {
    let Release { key, index, owner, token, leaves } = asked;
    let locks = call.locks();
    if leaves {
        let token = token.ok_or_else(|| Problem::field("token", "is required with leaves"))?;
        locks.leave(&key, &index, token).await?;
    } else {
        locks.release(&target(key, index, owner, token)?, token).await?;
    }
    Ok(EndedEntries { ended: 1 })
}

/// Ends the entry that holds a lock.
async fn force(call: &Call, Force { key, index }: Force) -> Result<EndedEntries, Problem> {
    call.locks().force(&key, &index).await?;
    Ok(EndedEntries { ended: 1 })
}

/// Ends every entry of an owner.
async fn release_all(
    call: &Call,
    ReleaseAll { owner }: ReleaseAll,
) -> Result<EndedEntries, Problem> {
    let ended = call.locks().release_all(&owner).await?;
    Ok(EndedEntries { ended })
}

/// Waits until an entry no longer holds its lock, and returns whether that happened before the wait timed out.
async fn watch(call: &Call, watched: Watch) -> Result<Lost, Problem> {
    let Watch { key, index, owner, token, wait } = watched;
    let (locks, entry) = (call.locks(), target(key, index, owner, Some(token))?);
    let place = call.place_for(wait.0)?;
    let lost = timeout(Duration::from_secs(wait.0), locks.lost(&entry, token));
    match call.wait_in(place, lost).await? {
        Err(_) => Ok(Lost { lost: false }),
        Ok(lost) => Ok(lost.map(|()| Lost { lost: true })?),
    }
}

/// Returns the owner that holds a lock.
async fn owner(call: &Call, Holder { key, index }: Holder) -> Result<LockOwner, Problem> {
    let owner = call.locks().owner(&key, &index).await?;
    let owner = owner.ok_or_else(|| Problem::absent("key", "nobody holds the lock"))?;
    Ok(LockOwner { names: EntryNames { key, index, owner } })
}

/// Returns an entry's position in line.
async fn place(call: &Call, Place { key, index, owner }: Place) -> Result<WaiterPlace, Problem> {
    let found = call.locks().place(&Entry { key, index, owner }).await?;
    let standing = Standing { place: found.place, token: found.token };
    Ok(WaiterPlace { standing, away: found.away })
}

impl InPlaceOf<Locks> for Locks<Written<Lock>> {}

/// Returns up to `limit` entries, and where to continue.
async fn list(call: &Call, filter: List) -> Result<Large<Locks<Written<Lock>>>, Problem> {
    let locks = call.locks();
    let page = async |from, entries_max| {
        let selection = Selection {
            key: filter.key.clone(),
            index: filter.index.clone(),
            owner: filter.owner.clone(),
            from,
            entries_max,
        };
        Ok(locks.select(selection).await?)
    };
    let now = Now { at: call.node.now(), offset: call.node.offset() };
    let show = |entry: &EntryView| shown(entry, now);
    let listing =
        Listing::gather(call, (listing::slot(filter.after), filter.limit.0), page, show).await?;
    let in_order = |it: &EntryView| (it.key.clone(), it.index.clone(), it.place);
    let (locks, next, place) = listing.sorted_by_key(in_order);
    let next = listing::shown(next);
    Ok(Large(Locks { locks, next }, place))
}

fn shown(listed: &EntryView, now: Now) -> Lock {
    let EntryView {
        key,
        index,
        owner,
        place,
        ttl,
        ttw,
        priority,
        since,
        deadline,
        token,
        bound,
        fencing,
        away,
    } = listed.clone();
    Lock {
        names: EntryNames { key, index, owner },
        standing: Standing { place, token },
        priority,
        ttl,
        wait: ttw,
        since_at: Timestamp(now.offset.date(since).0),
        remaining_ms: deadline.map(|it| it.0.saturating_sub(now.at.0)),
        process: bound.map(|it| it.process.to_string()),
        release: bound.map(|it| it.until.into()),
        kill_before_grant: bound.is_some_and(|it| it.fence),
        fencing,
        away,
    }
}

/// Returns the names of the entry that a request is about. If the request has only a token, the owner among them is empty, and the entry must
/// be found by the token. Refuses a request with an empty owner, or with neither an owner nor a token.
fn target(
    key: Name,
    index: Name,
    owner: Option<Name>,
    token: Option<Token>,
) -> Result<Entry, Problem> {
    let owner = match (owner, token) {
        (Some(owner), _) if owner.as_bytes().is_empty() => {
            return Err(LockError::Refused(Refused::NoOwner).into());
        }
        (Some(owner), _) => owner,
        (None, Some(_)) => Name::default(),
        (None, None) => return Err(Problem::field("owner", "is required unless token is given")),
    };
    Ok(Entry { key, index, owner })
}
