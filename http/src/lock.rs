//! Locks over HTTP: converts requests to calls of [`Locks`](sexton::handle::Locks), and results to answers. The JSON fields are
//! documented in `docs/protocols/http.md`, "Locks". [`LockMachine`] decides which client may do what with a lock.

use crate::binding::{Bound, Extent};
use crate::call::Call;
use crate::listing::{self, After, Limit, Listing, Written};
use crate::problem::Problem;
use crate::route::{Body, Docs, Json, Large, Query, Route};
use crate::schema::{EntryNames, Number};
use crate::scope::{OrRun as _, Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::actors::lock::{EntryView, LinePosition as Place, Name, Refused, Selection};
use sexton::clock::{Now, Timestamp};
use sexton::handle::{Entry, LockError, Terms};
use sexton::ids::Token;
use sexton::refusal::Reason;
use std::time::Duration;
use tokio::time::timeout;

#[expect(clippy::too_many_lines, reason = "a table of routes")]
pub(crate) fn routes() -> Vec<Route> {
    use Reason::{
        Absent, DiskFull, Draining, Ended as Over, Failed, Fencing, Full, Held, Interrupted, Large,
        Reserved, Stale, Waits,
    };
    vec![
        Route::get(
            "/v1/locks",
            Scope::Read,
            list,
            Docs {
                id: "list_locks",
                summary: "List the holders and waiters of locks",
                more: "Long lists are returned in pages, which are not a consistent snapshot, but an entry that exists throughout is listed exactly once. The entries of a page are sorted by key, index and position in line.",
                answer: "Entries.",
            },
            &[Failed, Large],
        ),
        Route::get(
            "/v1/locks/owner",
            Scope::Read,
            owner,
            Docs {
                id: "lock_owner",
                summary: "Get the holder of a lock",
                more: "",
                answer: "The holder.",
            },
            &[Absent, Failed],
        ),
        Route::get(
            "/v1/locks/place",
            Scope::Read,
            place,
            Docs {
                id: "lock_place",
                summary: "Get the position of an entry",
                more: "",
                answer: "The position in line, the token if the entry holds the lock, and whether its client is away.",
            },
            &[Absent, Failed],
        ),
        Route::post_once(
            "/v1/locks/acquire",
            Scope::Use.or_run(
                "`process` is set, or the owner has an entry that is bound to a process",
                |Body(it): &Body<Acquire>| it.process.is_some(),
            ),
            acquire,
            Docs {
                id: "acquire_lock",
                summary: "Acquire a lock",
                more: "If `owner` is left out, a unique name is generated and returned. If the owner already has an entry, that entry is renewed with the new `ttl`. With `wait`, the answer is sent when the lock is granted or the wait times out. A client that closes the connection while it waits loses its position in line, unless the request has an `Idempotency-Key` or a `process`.",
                answer: "The owner now holds the lock.",
            },
            &[Held, Reserved, Draining, Full, Waits, DiskFull, Failed, Fencing, Absent, Over],
        ),
        Route::post_once(
            "/v1/locks/renew",
            Scope::Use.or_run_by_state("the entry is bound to a process"),
            renew,
            Docs {
                id: "renew_lock",
                summary: "Renew an entry",
                more: "Restarts the time to live of an entry that holds the lock, or the time to wait of an entry that is in line. The entry is identified by the owner or the token; if both are given, both must match.",
                answer: "The position in line, and the token if the entry holds the lock.",
            },
            &[Absent, Stale, Fencing, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/locks/release",
            Scope::Use.or_run_by_state("the entry is bound to a process"),
            release,
            Docs {
                id: "release_lock",
                summary: "Release a lock, or withdraw a request for it",
                more: "The entry may hold the lock or wait for it. When the holder's entry ends, the lock is granted to the next waiter immediately. The entry is identified by the owner or the token; if both are given, both must match.",
                answer: "The entry has ended.",
            },
            &[Absent, Stale, Fencing, Failed, Interrupted],
        ),
        Route::post_once(
            "/v1/locks/force",
            Scope::Operate.or_run_by_state("the entry is bound to a process"),
            force,
            Docs {
                id: "force_lock",
                summary: "Break a lock",
                more: "Ends the entry that holds the lock, regardless of its owner and of any bound process that is still alive. Meant for a lock whose process cannot be killed.",
                answer: "The entry has ended.",
            },
            &[Absent, Reserved, Failed],
        ),
        Route::post_once(
            "/v1/locks/release-all",
            Scope::Use.or_run_by_state("an entry of the owner is bound to a process"),
            release_all,
            Docs {
                id: "release_all_locks",
                summary: "End every entry of an owner",
                more: "Ends the entries that hold locks and those that wait for locks, under every key.",
                answer: "The number of entries ended, which may be 0.",
            },
            &[Failed, Interrupted],
        ),
        Route::post(
            "/v1/locks/watch",
            Scope::Use,
            watch,
            Docs {
                id: "watch_lock",
                summary: "Wait until a lock is no longer held",
                more: "Answers immediately if the entry does not hold the lock with this token.",
                answer: "Whether the lock is lost; if not, the wait timed out.",
            },
            &[Waits],
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Acquire {
    /// The key of the lock.
    key: Name,
    /// The index below the key; empty if left out.
    #[serde(default)]
    index: Name,
    /// The owner that requests the lock. Each owner needs a unique name; if left out, one is generated.
    #[schemars(extend("minLength" = 1))]
    owner: Option<Name>,
    /// Seconds until the lock expires unless it is renewed. Defaults to 60, or with `process` to the lifetime of the process.
    ttl: Option<Number<u16, 1, 65_535>>,
    /// The maximum time to wait for the lock, in seconds.
    #[serde(default)]
    wait: Number<u16, 0, 3600>,
    /// The priority among waiting owners; the highest goes first, unless the node is configured otherwise.
    #[serde(default)]
    priority: u8,
    /// The process with which the lock ends, given by its id or at least the first eight digits of it.
    process: Option<String>,
    /// Whether the lock ends once the process itself has ended, or only once its whole tree has.
    #[serde(default)]
    release: Extent,
    /// Whether, once the lock has expired, the process tree is killed and its end confirmed before the lock is granted to the next owner.
    /// Only for processes that the coordinator launched.
    #[serde(default)]
    kill_before_grant: bool,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Granted {
    #[serde(flatten)]
    names: EntryNames,
    #[schemars(extend("const" = 1))]
    place: u32,
    /// The fencing token of the grant, to present to the resource that the lock guards. Tokens only increase.
    token: Token,
}

/// Acquires a lock, waiting for it if requested.
async fn acquire(call: &Call, Body(wanted): Body<Acquire>) -> Result<Json<Granted>, Problem> {
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
        Ok(token) => Ok(Json(Granted { names: entry.into(), place: 1, token })),
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

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Target {
    /// The key of the lock.
    key: Name,
    /// The index below the key; empty if left out.
    #[serde(default)]
    index: Name,
    /// The owner that holds or waits for the lock; required without a token.
    #[schemars(extend("minLength" = 1))]
    owner: Option<Name>,
    /// If given, the entry must have this token.
    token: Option<Token>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Standing {
    /// The position in line; the entry at position 1 holds the lock.
    #[schemars(range(min = 1))]
    place: u32,
    /// The token of the grant; null while the entry waits.
    token: Option<Token>,
}

/// Restarts the time to live or the time to wait of an entry.
async fn renew(call: &Call, Body(target): Body<Target>) -> Result<Json<Standing>, Problem> {
    let locks = call.locks();
    let renewed = locks.renew(&target.entry()?, target.token).await?;
    Ok(Json(renewed.into()))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct EndedEntries {
    /// The number of entries that were ended.
    ended: u32,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "LockRelease")]
pub(crate) struct Release {
    /// The key of the lock.
    key: Name,
    /// The index below the key; empty if left out.
    #[serde(default)]
    index: Name,
    /// The owner that holds or waits for the lock; required without a token.
    #[schemars(extend("minLength" = 1))]
    owner: Option<Name>,
    /// If given, the entry must have this token.
    token: Option<Token>,
    /// Whether the process that the lock is bound to is about to exit, which would end the lock anyway. The answer is then
    /// sent without waiting for the disk, unless another owner waits for the lock. Requires `token`.
    #[serde(default)]
    leaves: bool,
}

async fn release(call: &Call, Body(asked): Body<Release>) -> Result<Json<EndedEntries>, Problem> {
    let locks = call.locks();
    if asked.leaves {
        let token = asked.token;
        let token = token.ok_or_else(|| Problem::field("token", "is required with leaves"))?;
        locks.leave(&asked.key, &asked.index, token).await?;
        return Ok(Json(EndedEntries { ended: 1 }));
    }
    let target =
        Target { key: asked.key, index: asked.index, owner: asked.owner, token: asked.token };
    locks.release(&target.entry()?, target.token).await?;
    Ok(Json(EndedEntries { ended: 1 }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Forced {
    /// The key of the lock.
    key: Name,
    /// The index below the key; empty if left out.
    #[serde(default)]
    index: Name,
}

/// Ends the entry that holds a lock.
async fn force(call: &Call, Body(lock): Body<Forced>) -> Result<Json<EndedEntries>, Problem> {
    call.locks().force(&lock.key, &lock.index).await?;
    Ok(Json(EndedEntries { ended: 1 }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Owner {
    /// The owner whose entries are to be ended.
    owner: Name,
}

/// Ends every entry of an owner.
async fn release_all(call: &Call, Body(of): Body<Owner>) -> Result<Json<EndedEntries>, Problem> {
    let ended = call.locks().release_all(&of.owner).await?;
    Ok(Json(EndedEntries { ended }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Watch {
    /// The key of the lock.
    key: Name,
    /// The index below the key; empty if left out.
    #[serde(default)]
    index: Name,
    /// The owner that holds the lock; if left out, `token` identifies the entry.
    #[schemars(extend("minLength" = 1))]
    owner: Option<Name>,
    /// The token of the grant.
    token: Token,
    /// The maximum time to wait, in seconds.
    #[serde(default)]
    wait: Number<u64, 0, 3600, 60>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Lost {
    /// Whether the entry no longer holds the lock with this token; false if the wait timed out.
    lost: bool,
}

/// Waits until an entry no longer holds its lock, and returns whether that happened before the wait timed out.
async fn watch(call: &Call, Body(watched): Body<Watch>) -> Result<Json<Lost>, Problem> {
    let Watch { key, index, owner, token, wait } = watched;
    let target = Target { key, index, owner, token: Some(token) };
    let (locks, entry) = (call.locks(), target.entry()?);
    let place = call.place_for(wait.0)?;
    let lost = timeout(Duration::from_secs(wait.0), locks.lost(&entry, token));
    match call.wait_in(place, lost).await? {
        Err(_) => Ok(Json(Lost { lost: false })),
        Ok(lost) => Ok(lost.map(|()| Json(Lost { lost: true }))?),
    }
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Lock {
    /// The key of the lock.
    key: Name,
    /// The index below the key; empty if left out.
    #[serde(default)]
    index: Name,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct LockOwner {
    #[serde(flatten)]
    names: EntryNames,
}

/// Returns the owner that holds a lock.
async fn owner(
    call: &Call,
    Query(Lock { key, index }): Query<Lock>,
) -> Result<Json<LockOwner>, Problem> {
    let owner = call.locks().owner(&key, &index).await?;
    let owner = owner.ok_or_else(|| Problem::absent("key", "nobody holds the lock"))?;
    let names = EntryNames { key, index, owner };
    Ok(Json(LockOwner { names }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Waiter {
    /// The key of the lock.
    key: Name,
    /// The index below the key; empty if left out.
    #[serde(default)]
    index: Name,
    /// The owner that holds or waits for the lock.
    owner: Name,
}

/// Returns an entry's position in line.
async fn place(call: &Call, Query(of): Query<Waiter>) -> Result<Json<WaiterPlace>, Problem> {
    let Waiter { key, index, owner } = of;
    let entry = Entry { key, index, owner };
    let found = call.locks().place(&entry).await?;
    Ok(Json(WaiterPlace { standing: found.into(), away: found.away }))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct WaiterPlace {
    #[serde(flatten)]
    standing: Standing,
    /// Whether the client waited for an answer when the coordinator restarted, and has sent nothing about the entry since.
    away: bool,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Filter {
    /// The key of the locks to list; all keys if left out.
    key: Option<Name>,
    /// The index of the locks to list; all indexes if left out.
    index: Option<Name>,
    /// The owner of the entries to list, holding or waiting; all owners if left out.
    owner: Option<Name>,
    /// The maximum number of entries to return.
    #[serde(default)]
    limit: Limit,
    /// The `next` of the previous answer, to continue after it.
    #[schemars(with = "Option<String>", regex(pattern = "^[0-9]{1,10}$"))]
    after: Option<After>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Lock")]
pub(crate) struct LockView {
    #[serde(flatten)]
    names: EntryNames,
    #[serde(flatten)]
    standing: Standing,
    priority: u8,
    /// The time to live of the entry while it holds the lock, in seconds.
    ttl: u16,
    /// The maximum time that the entry waits in line, in seconds.
    wait: u16,
    /// The time at which the entry joined the line, was granted the lock, or was renewed, whichever happened last, in milliseconds since
    /// 1970.
    since_at: Timestamp,
    /// Milliseconds until the entry ends unless it is renewed; null if it ends only with its process.
    remaining_ms: Option<u64>,
    /// The id of the process with which the entry ends; null if the entry is not bound to a process.
    process: Option<String>,
    /// Whether the entry ends once the process itself has ended, or only once its whole tree has; null if the entry is not bound to a
    /// process.
    release: Option<Extent>,
    /// Whether, once the entry has expired, the process tree is killed before the lock is granted to the next owner.
    kill_before_grant: bool,
    /// Whether the entry has expired and its process is being killed.
    fencing: bool,
    /// Whether the client waited for an answer when the coordinator restarted, and has sent nothing about the entry since. The lock passes
    /// the entry over as long as others wait that are not away.
    away: bool,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Locks {
    locks: Vec<Written<LockView>>,
    /// The `after` for the next request, with the same filter; null after the last page. A page may have fewer than `limit` items.
    next: Option<String>,
}

/// Returns up to `limit` entries, and where to continue.
async fn list(call: &Call, Query(filter): Query<Filter>) -> Result<Large<Locks>, Problem> {
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

fn shown(listed: &EntryView, now: Now) -> LockView {
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
    LockView {
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

impl Target {
    /// Returns the names of the targeted entry. If the request has only a token, the owner among them is empty, and the entry must be found
    /// by the token. Refuses a request with an empty owner, or with neither an owner nor a token.
    fn entry(&self) -> Result<Entry, Problem> {
        let owner = match (&self.owner, self.token) {
            (Some(owner), _) if owner.as_bytes().is_empty() => {
                return Err(LockError::Refused(Refused::NoOwner).into());
            }
            (Some(owner), _) => owner.clone(),
            (None, Some(_)) => Name::default(),
            (None, None) => {
                return Err(Problem::field("owner", "is required unless token is given"));
            }
        };
        let (key, index) = (self.key.clone(), self.index.clone());
        Ok(Entry { key, index, owner })
    }
}

impl From<Entry> for EntryNames {
    fn from(Entry { key, index, owner }: Entry) -> Self {
        Self { key, index, owner }
    }
}

impl From<Place> for Standing {
    fn from(Place { place, token, .. }: Place) -> Self {
        Self { place, token }
    }
}
