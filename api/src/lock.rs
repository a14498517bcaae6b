//! Locks: taking, keeping and releasing them, and who holds which.
//!
//! A lock is named by a key and an index below it. It has one holder, and a line of owners that wait for it; each of them has an *entry*.

use crate::binding::Extent;
use crate::ids::{Timestamp, Token};
use crate::list::{After, Limit};
use crate::name::{EntryNames, Name};
use crate::refusal::Reason::{
    Absent, DiskFull, Draining, Ended as Over, Failed, Fencing, Full, Held, Interrupted, Large,
    Reserved, Stale, Waits,
};
use crate::request::{Docs, Input, Request, Route, Scope, is_default};
use crate::value::Number;
use serde::{Deserialize, Serialize};

/// The condition under which a change of an entry requires [`Scope::Run`].
const IF_BOUND: &str = "the entry is bound to a process";

/// Lists entries.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct List {
    /// The key of the locks to list; all keys if left out.
    pub key: Option<Name>,
    /// The index of the locks to list; all indexes if left out.
    pub index: Option<Name>,
    /// The owner of the entries to list, holding or waiting; all owners if left out.
    pub owner: Option<Name>,
    /// The maximum number of entries to return.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limit: Limit,
    /// The `next` of the previous answer, to continue after it.
    pub after: Option<After>,
}

impl Request for List {
    type Answer = Locks;

    const ROUTE: Route = Route::get(
        "/v1/locks",
        Scope::Read,
        Docs {
            id: "list_locks",
            summary: "List the holders and waiters of locks",
            more: "Long lists are returned in pages, which are not a consistent snapshot, but an entry that exists throughout is listed exactly once. The entries of a page are sorted by key, index and position in line.",
            answer: "Entries.",
        },
        &[Failed, Large],
    )
    .with(Input::Query);
}

/// A page of a list of entries.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "Locks"))]
pub struct Locks<L = Lock> {
    /// The entries.
    pub locks: Vec<L>,
    /// The `after` for the next request, with the same filter; null after the last page. A page may have fewer than `limit` items.
    pub next: Option<After>,
}

/// An entry: the holder of a lock, or an owner that waits for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Lock {
    /// Key, index and owner.
    #[serde(flatten)]
    pub names: EntryNames,
    /// The position in line.
    #[serde(flatten)]
    pub standing: Standing,
    /// The priority among waiting owners.
    pub priority: u8,
    /// The time to live of the entry while it holds the lock, in seconds.
    pub ttl: u16,
    /// The maximum time that the entry waits in line, in seconds.
    pub wait: u16,
    /// The time at which the entry joined the line, was granted the lock, or was renewed, whichever happened last, in milliseconds since
    /// 1970.
    pub since_at: Timestamp,
    /// Milliseconds until the entry ends unless it is renewed; null if it ends only with its process.
    pub remaining_ms: Option<u64>,
    /// The id of the process with which the entry ends; null if the entry is not bound to a process.
    pub process: Option<String>,
    /// Whether the entry ends once the process itself has ended, or only once its whole tree has; null if the entry is not bound to a
    /// process.
    pub release: Option<Extent>,
    /// Whether, once the entry has expired, the process tree is killed before the lock is granted to the next owner.
    pub kill_before_grant: bool,
    /// Whether the entry has expired and its process is being killed.
    pub fencing: bool,
    /// Whether the client waited for an answer when the coordinator restarted, and has sent nothing about the entry since. The lock passes
    /// the entry over as long as others wait that are not away.
    pub away: bool,
}

/// The position of an entry in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Standing {
    /// The position in line; the entry at position 1 holds the lock.
    #[cfg_attr(feature = "schemas", schemars(range(min = 1)))]
    pub place: u32,
    /// The token of the grant; null while the entry waits.
    pub token: Option<Token>,
}

/// Gets the holder of a lock.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Holder {
    /// The key of the lock.
    pub key: Name,
    /// The index below the key; empty if left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub index: Name,
}

impl Request for Holder {
    type Answer = LockOwner;

    const ROUTE: Route = Route::get(
        "/v1/locks/owner",
        Scope::Read,
        Docs {
            id: "lock_owner",
            summary: "Get the holder of a lock",
            more: "",
            answer: "The holder.",
        },
        &[Absent, Failed],
    )
    .with(Input::Query);
}

/// The answer to [`Holder`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct LockOwner {
    /// The lock, and its holder.
    #[serde(flatten)]
    pub names: EntryNames,
}

/// Gets the position of an entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Place {
    /// The key of the lock.
    pub key: Name,
    /// The index below the key; empty if left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub index: Name,
    /// The owner that holds or waits for the lock.
    pub owner: Name,
}

impl Request for Place {
    type Answer = WaiterPlace;

    const ROUTE: Route = Route::get(
        "/v1/locks/place",
        Scope::Read,
        Docs {
            id: "lock_place",
            summary: "Get the position of an entry",
            more: "",
            answer: "The position in line, the token if the entry holds the lock, and whether its client is away.",
        },
        &[Absent, Failed],
    )
    .with(Input::Query);
}

/// The answer to [`Place`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct WaiterPlace {
    /// The position in line.
    #[serde(flatten)]
    pub standing: Standing,
    /// Whether the client waited for an answer when the coordinator restarted, and has sent nothing about the entry since.
    pub away: bool,
}

/// Acquires a lock, waiting for it if requested.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Acquire {
    /// The key of the lock.
    pub key: Name,
    /// The index below the key; empty if left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub index: Name,
    /// The owner that requests the lock. Each owner needs a unique name; if left out, one is generated.
    #[cfg_attr(feature = "schemas", schemars(extend("minLength" = 1)))]
    pub owner: Option<Name>,
    /// Seconds until the lock expires unless it is renewed. Defaults to 60, or with `process` to the lifetime of the process.
    pub ttl: Option<Number<u16, 1, 65_535>>,
    /// The maximum time to wait for the lock, in seconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wait: Number<u16, 0, 3600>,
    /// The priority among waiting owners; the highest goes first, unless the node is configured otherwise.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: u8,
    /// The process with which the lock ends, given by its id or at least the first eight digits of it.
    pub process: Option<String>,
    /// Whether the lock ends once the process itself has ended, or only once its whole tree has.
    #[serde(default, skip_serializing_if = "is_default")]
    pub release: Extent,
    /// Whether, once the lock has expired, the process tree is killed and its end confirmed before the lock is granted to the next owner.
    /// Only for processes that the coordinator launched.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kill_before_grant: bool,
}

impl Request for Acquire {
    type Answer = Granted;

    const ROUTE: Route = Route::post(
        "/v1/locks/acquire",
        Scope::Use,
        Docs {
            id: "acquire_lock",
            summary: "Acquire a lock",
            more: "If `owner` is left out, a unique name is generated and returned. If the owner already has an entry, that entry is renewed with the new `ttl`. With `wait`, the answer is sent when the lock is granted or the wait times out. A client that closes the connection while it waits loses its position in line, unless the request has an `Idempotency-Key` or a `process`.",
            answer: "The owner now holds the lock.",
        },
        &[Held, Reserved, Draining, Full, Waits, DiskFull, Failed, Fencing, Absent, Over],
    )
    .with(Input::Body)
    .once()
    .run_if("`process` is set, or the owner has an entry that is bound to a process");

    fn needs_run(&self) -> bool {
        self.process.is_some()
    }
}

/// The answer to [`Acquire`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Granted {
    /// The lock, and its holder.
    #[serde(flatten)]
    pub names: EntryNames,
    /// Always 1: the holder's position in line.
    #[cfg_attr(feature = "schemas", schemars(extend("const" = 1)))]
    pub place: u32,
    /// The fencing token of the grant, to present to the resource that the lock guards. Tokens only increase.
    pub token: Token,
}

/// Restarts the time to live or the time to wait of an entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "Target"))]
pub struct Renew {
    /// The key of the lock.
    pub key: Name,
    /// The index below the key; empty if left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub index: Name,
    /// The owner that holds or waits for the lock; required without a token.
    #[cfg_attr(feature = "schemas", schemars(extend("minLength" = 1)))]
    pub owner: Option<Name>,
    /// If given, the entry must have this token.
    pub token: Option<Token>,
}

impl Request for Renew {
    type Answer = Standing;

    const ROUTE: Route = Route::post(
        "/v1/locks/renew",
        Scope::Use,
        Docs {
            id: "renew_lock",
            summary: "Renew an entry",
            more: "Restarts the time to live of an entry that holds the lock, or the time to wait of an entry that is in line. The entry is identified by the owner or the token; if both are given, both must match.",
            answer: "The position in line, and the token if the entry holds the lock.",
        },
        &[Absent, Stale, Fencing, DiskFull, Failed],
    )
    .with(Input::Body)
    .once()
    .run_if(IF_BOUND);
}

/// Releases a lock, or withdraws a request for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "LockRelease"))]
pub struct Release {
    /// The key of the lock.
    pub key: Name,
    /// The index below the key; empty if left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub index: Name,
    /// The owner that holds or waits for the lock; required without a token.
    #[cfg_attr(feature = "schemas", schemars(extend("minLength" = 1)))]
    pub owner: Option<Name>,
    /// If given, the entry must have this token.
    pub token: Option<Token>,
    /// Whether the process that the lock is bound to is about to exit, which would end the lock anyway. The answer is then
    /// sent without waiting for the disk, unless another owner waits for the lock. Requires `token`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub leaves: bool,
}

impl Request for Release {
    type Answer = EndedEntries;

    const ROUTE: Route = Route::post(
        "/v1/locks/release",
        Scope::Use,
        Docs {
            id: "release_lock",
            summary: "Release a lock, or withdraw a request for it",
            more: "The entry may hold the lock or wait for it. When the holder's entry ends, the lock is granted to the next waiter immediately. The entry is identified by the owner or the token; if both are given, both must match.",
            answer: "The entry has ended.",
        },
        &[Absent, Stale, Fencing, Failed, Interrupted],
    )
    .with(Input::Body)
    .once()
    .run_if(IF_BOUND);
}

/// The number of entries that a request ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct EndedEntries {
    /// The number of entries that were ended.
    pub ended: u32,
}

/// Breaks a lock: ends the entry that holds it, regardless of its owner.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "Forced"))]
pub struct Force {
    /// The key of the lock.
    pub key: Name,
    /// The index below the key; empty if left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub index: Name,
}

impl Request for Force {
    type Answer = EndedEntries;

    const ROUTE: Route = Route::post(
        "/v1/locks/force",
        Scope::Operate,
        Docs {
            id: "force_lock",
            summary: "Break a lock",
            more: "Ends the entry that holds the lock, regardless of its owner and of any bound process that is still alive. Meant for a lock whose process cannot be killed.",
            answer: "The entry has ended.",
        },
        &[Absent, Reserved, Failed],
    )
    .with(Input::Body)
    .once()
    .run_if(IF_BOUND);
}

/// Ends every entry of an owner.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "Owner"))]
pub struct ReleaseAll {
    /// The owner whose entries are to be ended.
    pub owner: Name,
}

impl Request for ReleaseAll {
    type Answer = EndedEntries;

    const ROUTE: Route = Route::post(
        "/v1/locks/release-all",
        Scope::Use,
        Docs {
            id: "release_all_locks",
            summary: "End every entry of an owner",
            more: "Ends the entries that hold locks and those that wait for locks, under every key.",
            answer: "The number of entries ended, which may be 0.",
        },
        &[Failed, Interrupted],
    )
    .with(Input::Body)
    .once()
    .run_if("an entry of the owner is bound to a process");
}

/// Waits until an entry no longer holds its lock, and returns whether that happened before the wait timed out.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Watch {
    /// The key of the lock.
    pub key: Name,
    /// The index below the key; empty if left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub index: Name,
    /// The owner that holds the lock; if left out, `token` identifies the entry.
    #[cfg_attr(feature = "schemas", schemars(extend("minLength" = 1)))]
    pub owner: Option<Name>,
    /// The token of the grant.
    pub token: Token,
    /// The maximum time to wait, in seconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wait: Number<u64, 0, 3600, 60>,
}

impl Request for Watch {
    type Answer = Lost;

    const ROUTE: Route = Route::post(
        "/v1/locks/watch",
        Scope::Use,
        Docs {
            id: "watch_lock",
            summary: "Wait until a lock is no longer held",
            more: "Answers immediately if the entry does not hold the lock with this token.",
            answer: "Whether the lock is lost; if not, the wait timed out.",
        },
        &[Waits],
    )
    .with(Input::Body);
}

/// The answer to [`Watch`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Lost {
    /// Whether the entry no longer holds the lock with this token; false if the wait timed out.
    pub lost: bool,
}
