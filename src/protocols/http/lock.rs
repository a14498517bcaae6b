//! Locks over HTTP: requests into calls of [`Locks`](crate::handle::Locks), and what came of them into answers. The
//! members are those of `docs/protocols/http.md`, "Locks".
//!
//! Never here: who may do what with a lock. That is the machine's.

use crate::actors::lock::{Listed, LockMachine, Name, Refused, Selection, Standing as Place};
use crate::clock::Timestamp;
use crate::handle::{Entry, LockError, Terms};
use crate::ids::Token;
use crate::protocols::http::access::Scope;
use crate::protocols::http::binding::{Bound, Extent};
use crate::protocols::http::call::Call;
use crate::protocols::http::listing::{self, After, Limit, Listing, Written};
use crate::protocols::http::problem::Problem;
use crate::protocols::http::route::{Body, Json, Large, Query, Route, Routed, Words};
use crate::protocols::http::schema::{EntryNames, Number};
use crate::refusal::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::timeout;

impl Routed for LockMachine {
    const ROUTES: &'static [fn() -> Vec<Route>] = &[routes];
}

#[expect(clippy::too_many_lines, reason = "a table, route after route")]
fn routes() -> Vec<Route> {
    use Reason::{
        Absent, DiskFull, Draining, Ended as HasEnded, Failed, Fencing, Full, Held, Large,
        OutOfScope, Reserved, Stale, Waits,
    };
    vec![
        Route::get(
            "/v1/locks",
            list,
            Words {
                id: "list_locks",
                summary: "Who holds locks, and who waits",
                more: "A long table is walked page by page and is no picture of one moment: an entry that stays is listed once. Entries of an answer are sorted by key, index and place.",
                answer: "Entries.",
            },
            &[Failed, Large],
        ),
        Route::get(
            "/v1/locks/owner",
            owner,
            Words {
                id: "lock_owner",
                summary: "Who holds a lock",
                more: "",
                answer: "Its holder.",
            },
            &[Absent, Failed],
        ),
        Route::get(
            "/v1/locks/place",
            place,
            Words {
                id: "lock_place",
                summary: "Where an entry stands",
                more: "",
                answer: "Its place in line.",
            },
            &[Absent, Failed],
        ),
        Route::post_once(
            "/v1/locks/acquire",
            acquire,
            Words {
                id: "acquire_lock",
                summary: "Acquire a lock",
                more: "Without an owner it is one of its own, which the answer names. What the owner has there already is renewed, with the new `ttl`. With `wait`, answers when the lock is granted or the wait ends; a client that closes the connection stands in line no longer.",
                answer: "The lock is held.",
            },
            &[
                Held, Reserved, Draining, Full, Waits, DiskFull, Failed, Fencing, Absent, HasEnded,
                OutOfScope,
            ],
        ),
        Route::post_once(
            "/v1/locks/renew",
            renew,
            Words {
                id: "renew_lock",
                summary: "Begin the span of an entry again",
                more: "The time to live of an owner, the time to wait of a contender. The owner or the token says whose; if both are there, both must fit.",
                answer: "Where it stands.",
            },
            &[Absent, Stale, Fencing, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/locks/release",
            release,
            Words {
                id: "release_lock",
                summary: "End an entry",
                more: "Held or waiting. The lock passes on in the same instant. The owner or the token says whose; if both are there, both must fit.",
                answer: "It has ended.",
            },
            &[Absent, Stale, Fencing, Failed],
        ),
        Route::post_once(
            "/v1/locks/force",
            force,
            Words {
                id: "force_lock",
                summary: "End the entry that holds a lock",
                more: "Regardless of its owner, and of what still lives of the process that it is bound to: for a lock whose process cannot be killed.",
                answer: "It has ended.",
            },
            &[Absent, Reserved, Failed],
        ),
        Route::post_once(
            "/v1/locks/release-all",
            release_all,
            Words {
                id: "release_all_locks",
                summary: "End every entry of an owner",
                more: "Held and waiting, under every key.",
                answer: "How many there were, which may be none.",
            },
            &[Failed],
        ),
        Route::post(
            "/v1/locks/watch",
            Scope::Use,
            watch,
            Words {
                id: "watch_lock",
                summary: "Wait until a lock is lost",
                more: "Answers at once if the entry does not hold the lock with this token.",
                answer: "Whether it is lost, or else the wait is over.",
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
    /// Who wants the lock; one name for each that does. One that nobody else has, if it is left out.
    #[schemars(extend("minLength" = 1))]
    owner: Option<Name>,
    /// Seconds until the lock passes on, unless it is renewed; a minute if left out, and as long as its process lives if it has one.
    ttl: Option<Number<u16, 1, 65_535>>,
    /// Seconds to wait for it at most.
    #[serde(default)]
    wait: Number<u16, 0, 3600>,
    /// Standing among those who wait; the larger goes first, unless the node is set otherwise.
    #[serde(default)]
    priority: u8,
    /// The process that it ends with, by its id or the first eight or more digits of it. Only for the coordinator's own user on its Unix socket.
    process: Option<String>,
    /// How much of the process has to end.
    #[serde(default)]
    release: Extent,
    /// Whether the tree is killed, and proved gone, before somebody else has the lock when its time runs out. Only of what the coordinator launched.
    #[serde(default)]
    kill_before_grant: bool,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Granted {
    #[serde(flatten)]
    names: EntryNames,
    #[schemars(extend("const" = 1))]
    place: u32,
    /// Only ever grows: to be shown to whatever the lock guards.
    token: Token,
}

/// Acquires a lock, waiting for it if asked to.
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
        // A place in line that is bound stays when the wait is over: asked for again, it goes on.
        (Some(_), wait) => {
            let place = Terms {
                wait: u16::MAX,
                ..terms
            };
            let acquired = timeout(
                Duration::from_secs(wait.into()),
                locks.acquire(&entry, place),
            );
            match call.wait(acquired).await? {
                Ok(acquired) => acquired,
                Err(_) => {
                    let standing = locks.place(&entry).await?;
                    match standing.token {
                        Some(token) => Ok(token),
                        None => Err(LockError::Held {
                            place: standing.place,
                        }),
                    }
                }
            }
        }
    };
    match acquired {
        Ok(token) => Ok(Json(Granted {
            names: entry.into(),
            place: 1,
            token,
        })),
        Err(error @ LockError::Held { place }) => {
            let holder = locks.owner(&entry.key, &entry.index).await;
            // It may have gone since; it was held all the same.
            Err(Problem::from(error).held(place, holder.ok().flatten()))
        }
        Err(error) => Err(error.into()),
    }
}

/// A name that nobody else has. Under a key it is always the same, so that the answer given again is, too.
fn own_name(call: &Call) -> Result<Name, Problem> {
    let chance =
        || Some(u128::from(getrandom::u64().ok()?) << 64 | u128::from(getrandom::u64().ok()?));
    let number = call.key.map(|key| key.id).or_else(chance);
    let number =
        number.ok_or_else(|| Problem::new(Reason::Failed, "the system has no chance to give"))?;
    Ok(Name::new(format!("{number:032x}").into_bytes()).expect("32 digits are a name"))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Target {
    /// The key of the lock.
    key: Name,
    /// The index below the key; empty if left out.
    #[serde(default)]
    index: Name,
    /// Who holds or wants the lock; needed without a token.
    #[schemars(extend("minLength" = 1))]
    owner: Option<Name>,
    /// Only if the entry has this token.
    token: Option<Token>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Standing {
    /// 1 holds the lock.
    #[schemars(range(min = 1))]
    place: u32,
    /// That of the grant; null while it waits.
    token: Option<Token>,
}

/// Begins the span of an entry again.
async fn renew(call: &Call, Body(target): Body<Target>) -> Result<Json<Standing>, Problem> {
    let locks = call.locks();
    let renewed = locks.renew(&target.entry()?, target.token).await?;
    Ok(Json(renewed.into()))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Ended {
    /// Entries that ended.
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
    /// Who holds or wants the lock; needed without a token.
    #[schemars(extend("minLength" = 1))]
    owner: Option<Name>,
    /// Only if the entry has this token.
    token: Option<Token>,
    /// Whether the process that it is bound to ends now, and the lock with it in any case. Then the answer does not wait for the disk, unless somebody waits for the lock. Needs the token.
    #[serde(default)]
    leaves: bool,
}

/// Ends an entry.
async fn release(call: &Call, Body(asked): Body<Release>) -> Result<Json<Ended>, Problem> {
    let locks = call.locks();
    if asked.leaves {
        let token = asked.token;
        let token = token.ok_or_else(|| Problem::field("token", "must be there with leaves"))?;
        locks.leave(&asked.key, &asked.index, token).await?;
        return Ok(Json(Ended { ended: 1 }));
    }
    let target = Target {
        key: asked.key,
        index: asked.index,
        owner: asked.owner,
        token: asked.token,
    };
    locks.release(&target.entry()?, target.token).await?;
    Ok(Json(Ended { ended: 1 }))
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
async fn force(call: &Call, Body(lock): Body<Forced>) -> Result<Json<Ended>, Problem> {
    call.locks().force(&lock.key, &lock.index).await?;
    Ok(Json(Ended { ended: 1 }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Owner {
    /// Who holds or wants the locks.
    owner: Name,
}

/// Ends every entry of an owner.
async fn release_all(call: &Call, Body(of): Body<Owner>) -> Result<Json<Ended>, Problem> {
    let ended = call.locks().release_all(&of.owner).await?;
    Ok(Json(Ended { ended }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Watch {
    /// The key of the lock.
    key: Name,
    /// The index below the key; empty if left out.
    #[serde(default)]
    index: Name,
    /// Who holds the lock.
    #[schemars(extend("minLength" = 1))]
    owner: Option<Name>,
    /// The token of the grant.
    token: Token,
    /// Seconds to wait at most.
    #[serde(default)]
    wait: Number<u64, 0, 3600, 60>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Lost {
    lost: bool,
}

/// Waits until an entry no longer owns its lock.
async fn watch(call: &Call, Body(watched): Body<Watch>) -> Result<Json<Lost>, Problem> {
    let Watch {
        key,
        index,
        owner,
        token,
        wait,
    } = watched;
    let target = Target {
        key,
        index,
        owner,
        token: Some(token),
    };
    let (locks, entry) = (call.locks(), target.entry()?);
    let wait = Duration::from_secs(wait.0);
    let lost = timeout(wait, locks.lost(&entry, token));
    match call.wait(lost).await? {
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
pub(crate) struct Held {
    #[serde(flatten)]
    names: EntryNames,
}

/// Who holds a lock.
async fn owner(
    call: &Call,
    Query(Lock { key, index }): Query<Lock>,
) -> Result<Json<Held>, Problem> {
    let owner = call.locks().owner(&key, &index).await?;
    let owner = owner.ok_or_else(|| Problem::new(Reason::Absent, "nobody holds the lock"))?;
    let names = EntryNames { key, index, owner };
    Ok(Json(Held { names }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Waiter {
    /// The key of the lock.
    key: Name,
    /// The index below the key; empty if left out.
    #[serde(default)]
    index: Name,
    /// Who holds or wants the lock; one name for each that does.
    owner: Name,
}

/// Where an entry stands.
async fn place(call: &Call, Query(of): Query<Waiter>) -> Result<Json<Standing>, Problem> {
    let Waiter { key, index, owner } = of;
    let entry = Entry { key, index, owner };
    Ok(Json(call.locks().place(&entry).await?.into()))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Filter {
    /// The key of the lock.
    key: Option<Name>,
    /// The index below the key.
    index: Option<Name>,
    /// Who holds or wants the lock; one name for each that does.
    owner: Option<Name>,
    /// The most entries to answer.
    #[serde(default)]
    limit: Limit,
    /// Where to go on: `next` of the answer before.
    #[schemars(with = "Option<String>", regex(pattern = "^[0-9]{1,10}$"))]
    after: Option<After>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Lock")]
pub(crate) struct Shown {
    #[serde(flatten)]
    names: EntryNames,
    #[serde(flatten)]
    standing: Standing,
    priority: u8,
    /// Seconds to live as owner.
    ttl: u16,
    /// Seconds to wait as contender.
    wait: u16,
    /// Milliseconds until the entry ends, if nobody renews it; null if only with its process.
    remaining_ms: Option<u64>,
    /// The process that it ends with; null if with none.
    process: Option<String>,
    /// How much of the process has to end.
    release: Option<Extent>,
    /// Whether the tree is killed before somebody else has the lock.
    kill_before_grant: bool,
    /// Whether its time has run out and its process is being killed.
    fencing: bool,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Locks {
    locks: Vec<Written<Shown>>,
    /// What `after` of the next request is, with the same filter; null after the last. An answer may end early, with fewer than `limit`.
    next: Option<String>,
}

/// Entries, as many as are asked for, and where to go on.
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
    let now = call.node.now();
    let show = |entry: &Listed| shown(entry, now);
    let listing = Listing::gather(
        call,
        (listing::slot(filter.after), filter.limit.0),
        page,
        show,
    )
    .await?;
    let in_order = |it: &Listed| (it.key.clone(), it.index.clone(), it.place);
    let (locks, next, place) = listing.sorted_by_key(in_order);
    let next = listing::shown(next);
    Ok(Large(Locks { locks, next }, place))
}

fn shown(listed: &Listed, now: Timestamp) -> Shown {
    let Listed {
        key,
        index,
        owner,
        place,
        ttl,
        ttw,
        priority,
        since: _,
        deadline,
        token,
        bound,
        fencing,
    } = listed.clone();
    Shown {
        names: EntryNames { key, index, owner },
        standing: Standing { place, token },
        priority,
        ttl,
        wait: ttw,
        remaining_ms: deadline.map(|it| it.0.saturating_sub(now.0)),
        process: bound.map(|it| it.process.to_string()),
        release: bound.map(|it| it.until.into()),
        kill_before_grant: bound.is_some_and(|it| it.fence),
        fencing,
    }
}

impl Target {
    /// The entry that is meant: this owner's, or that of whoever holds the lock with the token.
    fn entry(&self) -> Result<Entry, Problem> {
        let owner = match (&self.owner, self.token) {
            (Some(owner), _) if owner.as_bytes().is_empty() => {
                return Err(LockError::Refused(Refused::NoOwner).into());
            }
            (Some(owner), _) => owner.clone(),
            (None, Some(_)) => Name::default(),
            (None, None) => {
                return Err(Problem::field("owner", "must be there, unless token is"));
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
    fn from(Place { place, token }: Place) -> Self {
        Self { place, token }
    }
}
