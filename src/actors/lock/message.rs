//! Messages of the LockActor, their outcomes, and its queries and replies.
//!
//! Change rule: `Message` and `Outcome` are stored in the journal. A change that an older reader would not understand, or that makes an
//! older log unreadable, requires a higher `FORMAT_VERSION`, a new directory in `snapshots/golden/`, and a line under "Formats" in
//! `CHANGELOG.md`.

use crate::actors::binding::{self, Binding};
use crate::actors::lock::part::{EndMore, Part};
use crate::clock::Timestamp;
use crate::ids::{ActorId, Slot, Token};
use crate::spine::effect::To;
use crate::spine::machine::Refusal;
use serde::{Deserialize, Serialize};
pub use sexton_api::name::{Name, NameTooLong};

/// The usual number of items in a part of a request: less than a millisecond of work.
const PART: u32 = 512;

const fn whole() -> u32 {
    u32::MAX
}

/// The configuration of the LockActor. Stored in the journal: see the change rule above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// Whether a numerically larger priority goes first.
    pub high_first: bool,
    /// The maximum number of entries, counting both owners and contenders.
    pub entries_max: u32,
    /// The maximum number of entries that one part of a request examines and ends. Earlier versions had no parts, and their logs do
    /// not have this field.
    #[serde(default = "whole")]
    pub part: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self { high_first: true, entries_max: 4_000_000, part: PART }
    }
}

/// A request to change locks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Message {
    /// Acquire the lock `(key, index)` or wait for it. If the owner already has an entry for this lock, renew that entry and keep
    /// its terms.
    Request {
        key: Name,
        index: Name,
        /// The name of the requesting client.
        owner: Name,
        /// How long the entry stays an owner without a renewal, in seconds.
        ttl: u16,
        /// How long the entry stays a contender without a renewal, in seconds.
        ttw: u16,
        /// Priority among contenders, see [`Rules::high_first`].
        priority: u8,
    },
    /// Like `Request`, but an existing entry adopts the new terms: its TTL becomes `ttl`, and its TTW is raised to
    /// `ttw` if it is shorter. A tie to a process replaces any other tie. Priority and position in line do not change.
    Acquire {
        key: Name,
        index: Name,
        /// The name of the requesting client.
        owner: Name,
        /// How long the entry stays an owner without a renewal, in seconds.
        ttl: u16,
        /// How long the entry stays a contender without a renewal, in seconds.
        ttw: u16,
        /// Priority among contenders, see [`Rules::high_first`].
        priority: u8,
        /// What can end the entry besides a client's request or a timeout. Earlier versions left it out if it was `None`.
        #[serde(default)]
        tie: Tie,
        /// Whether the client waits for the lock over a connection, although the entry stays in line without it. A restart of the server
        /// cuts such a client off: the lock then passes it over, as long as others wait that are there, until it sends anything about the
        /// entry. Earlier versions did not record this.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        waits: bool,
    },
    /// Restart the timeout of an entry.
    Renew {
        key: Name,
        index: Name,
        /// The owner of the entry. An empty owner together with a token means the current holder of the lock.
        owner: Name,
        /// If given, the token that the entry must have.
        #[serde(default)]
        token: Option<Token>,
    },
    /// Give up one entry or, without an index, all entries of this owner under the key.
    Release {
        key: Name,
        /// The index; `None` for all indexes of the key.
        index: Option<Name>,
        /// The owner of the entries. An empty owner together with an index and a token means the current holder of the lock.
        owner: Name,
        /// If given, the token that each of these entries must have.
        #[serde(default)]
        token: Option<Token>,
    },
    /// Give up the entry that owns a lock with this token, because the process that it is bound to is about to end. If
    /// there are no contenders, the answer does not wait for the disk: if a crash loses this message, the entry ends
    /// with its process anyway.
    Leave {
        key: Name,
        index: Name,
        /// The token that the entry must have.
        token: Token,
    },
    /// End the entry that owns a lock, regardless of its owner and whether or not its process is still alive.
    Force { key: Name, index: Name },
    /// From the `ProcessActor`: a process that entries may be bound to, or its whole tree, has ended.
    Gone(binding::EndNotice),
    /// Give up every entry of this owner, whether it owns its lock or waits for it.
    ReleaseAll {
        /// The owner of the entries.
        owner: Name,
    },
    /// Tick: the entry in this slot has timed out. It ends or, if it is an owner bound with `fence`, its process tree is killed first.
    Expire {
        /// The slot of the entry.
        slot: Slot,
    },
    /// Refuse new entries until the server restarts.
    Drain,
    /// From another actor: acquire a lock under a key that clients cannot lock, or wait for it, and hold it until it is
    /// yielded. Answered with [`ToHolder::Held`] immediately, and again when a waiting entry is granted its lock. An
    /// upsert: it may be sent repeatedly.
    Hold(Hold),
    /// From another actor: give up a lock requested with `Hold`, or stop waiting for it.
    Yield(Hold),
    /// The rest of a `ReleaseAll` or `Release` that is carried out in parts.
    EndMore(Box<EndMore>),
}

/// A lock that another actor holds or requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The requesting actor.
    pub by: ActorId,
    /// The key.
    pub key: Name,
    /// The index.
    pub index: Name,
    /// The owner of the entry: a name that identifies what the actor holds the lock for.
    pub owner: Name,
}

/// The address to which other actors send [`Message::Hold`] and [`Message::Yield`].
pub const LOCKS: To<Message> = To::new(ActorId::LOCK);

/// A notification from the `LockActor` to an actor that requested a lock. The receiver decodes it as its own `Message`, which has a
/// variant of the same name and content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToHolder {
    /// The state of a requested lock.
    Held(LockState),
}

/// The state of a lock that another actor requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockState {
    /// The key.
    pub key: Name,
    /// The index.
    pub index: Name,
    /// The owner of the entry.
    pub owner: Name,
    /// Whether the entry owns its lock; otherwise it waits in line.
    pub granted: bool,
}

/// What can end an entry besides a client's request or a timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tie {
    /// Nothing. An `Acquire` without a tie does not untie an entry that is tied to a process or an actor.
    #[default]
    None,
    /// The entry ends with the connection that requested it, as long as it is a contender: only that connection can
    /// receive the grant. A server restart therefore removes it. An owner has no such tie.
    Connection,
    /// The entry ends with a process, both as a contender and as an owner. A TTL or TTW of 65,535 seconds means no timeout.
    Process(Binding),
    /// The entry ends when this actor yields it.
    Actor(ActorId),
}

impl Tie {
    pub(super) const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Returns the entry's binding to a process; `None` if it is not bound to one.
    pub const fn binding(&self) -> Option<Binding> {
        match self {
            Self::Process(binding) => Some(*binding),
            Self::None | Self::Connection | Self::Actor(_) => None,
        }
    }

    /// Returns the actor that ends the entry; `None` for any other tie.
    pub const fn actor(self) -> Option<ActorId> {
        match self {
            Self::Actor(actor) => Some(actor),
            Self::None | Self::Connection | Self::Process(_) => None,
        }
    }
}

/// The decision about a message. Entries are identified by their slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A new entry owns the lock.
    Granted {
        /// The slot of the new entry.
        slot: Slot,
    },
    /// A new entry waits for the lock.
    Queued {
        /// The slot of the new entry.
        slot: Slot,
        /// The position in line; 2 for the first contender.
        place: u32,
    },
    /// An entry's timeout is restarted and, after an `Acquire`, its terms are updated.
    Renewed {
        /// The slot of the entry.
        slot: Slot,
        /// The position in line; 1 for the owner.
        place: u32,
        /// The token; zero for a contender.
        token: Token,
    },
    /// Entries end, in this order.
    Ended {
        /// The entries, each with the new owner of its lock, if there is one.
        gone: Vec<Removal>,
    },
    /// A part of the entries that a request ends. The fields of `part` but `next` are as before it.
    EndedPart {
        /// The entries, each with the new owner of its lock, if there is one.
        gone: Vec<Removal>,
        /// How far the request has come.
        part: Part,
    },
    /// The owner has timed out: its process tree is killed, and the lock passes on when the whole tree has ended.
    Fenced {
        /// The slot of the owner.
        slot: Slot,
    },
    /// New entries are refused from now on.
    Draining,
    /// The entry does not exist, or there is nothing to do. Changes nothing.
    Absent,
    /// The message was refused. Changes nothing.
    Refused(Refused),
}

impl Outcome {
    /// Returns the entries that end, in order.
    pub fn gone(&self) -> &[Removal] {
        match self {
            Self::Ended { gone } | Self::EndedPart { gone, .. } => gone,
            Self::Granted { .. }
            | Self::Queued { .. }
            | Self::Renewed { .. }
            | Self::Fenced { .. }
            | Self::Draining
            | Self::Absent
            | Self::Refused(_) => &[],
        }
    }
}

/// An entry that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// The slot of the entry.
    pub slot: Slot,
    /// The contender that becomes the owner, if the entry owned its lock and a contender was waiting.
    pub heir: Option<Slot>,
}

/// Why a message was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// The server is draining and accepts no new entries.
    Draining,
    /// The owner is empty.
    NoOwner,
    /// The key is reserved for the server itself.
    Reserved,
    /// The entry has a different token: the lock has passed on in the meantime.
    StaleToken,
    /// The owner has timed out, and its process tree is being killed.
    Fencing,
    /// The configured maximum number of entries is reached.
    Full,
    /// The disk is full.
    DiskFull,
    /// The idempotency key was already used for a different request.
    KeyReused,
    /// The limit on idempotency keys is reached.
    ReceiptsFull,
    /// It would start or end a process, or change what a process depends on, which the sender may not do.
    Forbidden,
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.into())
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::DiskFull => Self::DiskFull,
            Refusal::KeyReused => Self::KeyReused,
            Refusal::ReceiptsFull => Self::ReceiptsFull,
            Refusal::Forbidden => Self::Forbidden,
        }
    }
}

/// A query about locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// The owner of `(key, index)`.
    Owner { key: Name, index: Name },
    /// The position of `owner` in the line for `(key, index)`.
    Place {
        key: Name,
        index: Name,
        /// The owner whose position is returned.
        owner: Name,
    },
    /// All entries of one key, or of all keys.
    List {
        /// The key; `None` for all keys.
        key: Option<Name>,
        /// The maximum number of entries to return.
        entries_max: u32,
    },
    /// One page of the entries that match a filter.
    Select(Selection),
    /// The highest-ranking contended locks.
    Contended {
        /// The maximum number of locks to return.
        most: u32,
        /// How the locks are ranked.
        by: Ranking,
    },
    /// The numbers of owners and contenders.
    Counts,
}

/// The order of contended locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranking {
    /// By the number of contenders, highest first.
    Waiting,
    /// By the longest wait, longest first.
    Longest,
}

/// A contended lock and its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contended {
    /// The key.
    pub key: Name,
    /// The index.
    pub index: Name,
    /// The holder of the lock.
    pub owner: Name,
    /// The number of contenders.
    pub waiting: u32,
    /// When the contender that has waited longest was queued, or last renewed.
    pub since: Timestamp,
    /// When the holder times out unless it renews; `None` if its entry only ends with a process or at an actor's request.
    pub deadline: Option<Timestamp>,
}

/// A filter over entries and a page size. A field that is `None` matches every entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Match entries with this key.
    pub key: Option<Name>,
    /// Match entries with this index.
    pub index: Option<Name>,
    /// Match entries with this owner.
    pub owner: Option<Name>,
    /// The slot to begin at, inclusive.
    pub from: Slot,
    /// The maximum number of entries to return.
    pub entries_max: u32,
}

/// A condition about locks that a request can wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watch {
    /// No entry is left. Answered with `Due`.
    Empty,
    /// The entry owns its lock (answered with `LinePosition`), or no longer exists (answered with `Absent`).
    Granted {
        key: Name,
        index: Name,
        /// The owner of the entry.
        owner: Name,
    },
    /// The entry no longer owns its lock with this token, or it is being fenced. Answered with `Absent`.
    Lost {
        key: Name,
        index: Name,
        /// The owner of the entry; empty for the current holder of the lock.
        owner: Name,
        /// The token with which the lock was granted.
        token: Token,
    },
}

/// A reply of the LockActor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The entry's position in line and, if it owns the lock, its token.
    LinePosition(LinePosition),
    /// The number of entries that ended.
    Ended(u32),
    /// The entry does not exist, or there is nothing to do.
    Absent,
    /// The message was refused.
    Refused(Refused),
    /// New entries are refused from now on.
    Draining,
    /// The owner of the lock; `None` if it is free.
    Owner(Option<Name>),
    /// Entries ordered by key, then by the first request for their lock, then by position in line.
    List(Vec<EntryView>),
    /// One page of matching entries, in the order of their slots.
    Page {
        /// The entries. The list may be empty although more follow.
        entries: Vec<EntryView>,
        /// The slot at which the next page begins; `None` after the last page.
        next: Option<Slot>,
    },
    /// Contended locks, in the requested order.
    Contended {
        locks: Vec<Contended>,
        /// The total number of contended locks.
        all: u32,
    },
    /// The numbers of owners and contenders.
    Counts {
        /// Entries that own a lock.
        owners: u32,
        /// Entries that wait for a lock.
        contenders: u32,
    },
    /// The awaited condition holds.
    Due,
}

/// The position of an entry in line, and its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinePosition {
    /// Position in line: 1 for the owner, 2 for the first contender.
    pub place: u32,
    /// The token; `None` for a contender.
    pub token: Option<Token>,
    /// Whether the entry is a contender whose client is away, see [`EntryView::away`].
    pub away: bool,
}

/// An entry in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntryView {
    /// The key.
    pub key: Name,
    /// The index.
    pub index: Name,
    /// The owner of the entry.
    pub owner: Name,
    /// Position in line; 1 for the owner.
    pub place: u32,
    /// How long the entry stays an owner without a renewal, in seconds.
    pub ttl: u16,
    /// How long the entry stays a contender without a renewal, in seconds.
    pub ttw: u16,
    /// Priority among contenders, see [`Rules::high_first`].
    pub priority: u8,
    /// When the entry was queued, granted its lock or last renewed, whichever happened last.
    #[serde(skip)]
    pub since: Timestamp,
    /// When the entry times out unless it is renewed; `None` if it only ends with a process or at an actor's request.
    pub deadline: Option<Timestamp>,
    /// The token; `None` for a contender.
    pub token: Option<Token>,
    /// The entry's binding to a process; `None` if it is not bound to one.
    pub bound: Option<Binding>,
    /// Whether the owner has timed out and its process tree is being killed.
    pub fencing: bool,
    /// Whether the client of a contender waited for an answer when the server restarted, and has not been heard of since. The lock passes
    /// it over as long as others wait that are not away.
    pub away: bool,
}

/// The lock state, for `inspect` and `replay`.
#[derive(Debug, Serialize)]
pub struct View {
    /// The number of owners.
    pub owners: u32,
    /// The number of contenders.
    pub contenders: u32,
    /// Whether new entries are refused.
    pub draining: bool,
    /// The entries, ordered as in [`Reply::List`]; only the first ones if the number of entries is limited.
    pub entries: Vec<EntryView>,
}
