//! What the LockActor can be asked, what can come of it, and what it answers.
//!
//! Change rule: `Message` and `Outcome` are stored in the journal. A change that an old reader or an old log would
//! not understand raises `FORMAT_VERSION`, with a golden directory and a CHANGELOG line under "Formats".

use crate::actors::binding::{self, Binding};
use crate::clock::Timestamp;
use crate::ids::{ActorId, Slot, Token};
use crate::spine::effect::To;
use crate::spine::machine::Refusal;
use crate::text;
use serde::de::{Error as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A key, an index or an owner: 0 to 255 bytes of any value.
///
/// In the journal it is bytes. In exports it is a string where it is UTF-8, else `{"b64": "…"}`-like: see
/// [`Name::to_text`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Name(Box<[u8]>);

impl Name {
    /// The most bytes a name can have: its length travels in one byte.
    pub const BYTES_MAX: usize = 255;

    /// A name of these bytes; `None` if they are too many.
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Option<Self> {
        let bytes = bytes.into();
        (bytes.len() <= Self::BYTES_MAX).then_some(Self(bytes))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name as text: itself where it is printable UTF-8 without a backslash, else with `\xNN` escapes, which
    /// [`Name::from_text`] reads back.
    pub fn to_text(&self) -> String {
        text::escaped(&self.0)
    }

    /// Reads what [`Name::to_text`] wrote; `None` for a broken escape or too many bytes.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::new(text::unescaped(text)?)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&self.to_text())
        } else {
            serializer.serialize_bytes(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl Visitor<'_> for Names {
            type Value = Name;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name of at most 255 bytes")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Name, E> {
                Name::from_text(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Name, E> {
                Name::new(bytes).ok_or_else(|| E::invalid_length(bytes.len(), &self))
            }
        }
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(Names)
        } else {
            deserializer.deserialize_bytes(Names)
        }
    }
}

impl TryFrom<&str> for Name {
    type Error = serde::de::value::Error;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        Self::new(text.as_bytes())
            .ok_or_else(|| Self::Error::custom("a name has at most 255 bytes"))
    }
}

/// Configuration of the LockActor. Noted in the journal: see the change rule above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// Whether a numerically larger priority goes first.
    pub high_first: bool,
    /// The most entries, owners and contenders together.
    pub entries_max: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            high_first: true,
            entries_max: 4_000_000,
        }
    }
}

/// What may change a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Message {
    /// Own `(key, index)` or wait for it; renews what this owner has there already, keeping its old terms.
    Request {
        /// The key.
        key: Name,
        /// The index.
        index: Name,
        /// Who asks.
        owner: Name,
        /// Seconds to live as owner without a renewal.
        ttl: u16,
        /// Seconds to wait as contender without a renewal.
        ttw: u16,
        /// Standing among contenders.
        priority: u8,
    },
    /// The same, but terms are never dropped: the TTL of what this owner has there already is this one from now on, and
    /// a wait is never shorter than this one. Priority and place stay.
    Acquire {
        /// The key.
        key: Name,
        /// The index.
        index: Name,
        /// Who asks.
        owner: Name,
        /// Seconds to live as owner without a renewal.
        ttl: u16,
        /// Seconds to wait as contender without a renewal.
        ttw: u16,
        /// Standing among contenders.
        priority: u8,
        /// What the entry ends with beside its spans.
        #[serde(default, skip_serializing_if = "Tie::is_none")]
        tie: Tie,
    },
    /// Begin the span of an entry again.
    Renew {
        /// The key.
        key: Name,
        /// The index.
        index: Name,
        /// Whose entry. Empty with a token: that of the lock's holder, whoever it is.
        owner: Name,
        /// If given, the token that the entry must have.
        #[serde(default)]
        token: Option<Token>,
    },
    /// Give up one entry, or with no index all entries of this owner under the key.
    Release {
        /// The key.
        key: Name,
        /// The index, or all of them.
        index: Option<Name>,
        /// Whose entries. Empty with an index and a token: that of the lock's holder, whoever it is.
        owner: Name,
        /// If given, the token that the entry must have.
        #[serde(default)]
        token: Option<Token>,
    },
    /// Give up the entry that owns a lock with this token, since the process that it is bound to ends now. Where nobody waits for
    /// the lock the answer does not wait for the disk: after a crash, the entry ends with its process.
    Leave {
        /// The key.
        key: Name,
        /// The index.
        index: Name,
        /// The token that the entry must have.
        token: Token,
    },
    /// End the entry that owns a lock, regardless of its owner and of what lives of its process.
    Force {
        /// The key.
        key: Name,
        /// The index.
        index: Name,
    },
    /// The `ProcessActor`: a process is gone to which entries may be bound.
    Gone(binding::Gone),
    /// Give up every entry of this owner, owned and contended.
    ReleaseAll {
        /// Whose entries.
        owner: Name,
    },
    /// Let time act on the entry in this slot.
    Expire {
        /// The slot.
        slot: Slot,
    },
    /// Take no new entries from now on, until the next start.
    Drain,
    /// Another actor: own a lock that no client can have, or wait for it, until it is yielded. Answered by [`ToHolder::Held`],
    /// and once more when a wait is over. An upsert.
    Hold(Hold),
    /// Another actor: give such a lock up, or the wait for it.
    Yield(Hold),
}

/// A lock that an actor has, or is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Which actor.
    pub by: ActorId,
    /// The key.
    pub key: Name,
    /// The index.
    pub index: Name,
    /// For whom: the owner of the entry.
    pub owner: Name,
}

/// Where another actor sends a [`Message::Hold`] or [`Message::Yield`].
pub const LOCKS: To<Message> = To::new(ActorId::LOCK);

/// What the `LockActor` says to an actor that asked for a lock: a variant of that actor's message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToHolder {
    /// How it stands.
    Held(Held),
}

/// How an actor stands with a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The key.
    pub key: Name,
    /// The index.
    pub index: Name,
    /// The owner of the entry.
    pub owner: Name,
    /// Whether the entry owns its lock; it waits in line if not.
    pub granted: bool,
}

/// What an entry ends with, beside its spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tie {
    /// Nothing else. What is bound to a process stays so.
    #[default]
    None,
    /// A place in line ends with the connection that asked for it, and so with every start of the server: somebody waits
    /// for the answer, and nobody will come back for it.
    Connection,
    /// A place in line, and what comes of it, ends with a process. A span of 65,535 seconds has no end.
    Process(Binding),
    /// It ends when this actor says so.
    Actor(ActorId),
}

impl Tie {
    pub(super) const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The process that it is bound to.
    pub const fn binding(&self) -> Option<Binding> {
        match self {
            Self::Process(binding) => Some(*binding),
            Self::None | Self::Connection | Self::Actor(_) => None,
        }
    }

    /// The actor that says when it ends.
    pub const fn actor(self) -> Option<ActorId> {
        match self {
            Self::Actor(actor) => Some(actor),
            Self::None | Self::Connection | Self::Process(_) => None,
        }
    }
}

/// What was decided. Entries are named by their slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A new entry owns the lock.
    Granted {
        /// Where it stands.
        slot: Slot,
    },
    /// A new entry waits for the lock.
    Queued {
        /// Where it stands.
        slot: Slot,
        /// Its place in line, 2 for the first contender.
        place: u32,
    },
    /// An entry's span begins again.
    Renewed {
        /// Which.
        slot: Slot,
        /// Its place in line, 1 for the owner.
        place: u32,
        /// Its token, zero for a contender.
        token: Token,
    },
    /// Entries end, in this order.
    Ended {
        /// Which, and who owns the lock then.
        gone: Vec<Gone>,
    },
    /// The owner's time has run out: its tree is killed, and the lock passes on when that is gone.
    Fenced {
        /// Which.
        slot: Slot,
    },
    /// No new entries from now on.
    Draining,
    /// Nothing of the kind is there. Changes nothing.
    Absent,
    /// Not done, and why. Changes nothing.
    Refused(Refused),
}

/// An entry that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// Where it stood.
    pub slot: Slot,
    /// The contender that owns the lock from now on, if this was its owner and one was waiting.
    pub heir: Option<Slot>,
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// No new entries: the coordinator drains.
    Draining,
    /// The owner is empty.
    NoOwner,
    /// The key is kept for the coordinator itself.
    Reserved,
    /// The entry has another token: the right has passed on.
    StaleToken,
    /// The owner's time has run out, and its tree is being killed.
    Fencing,
    /// There are as many entries as are allowed.
    Full,
    /// The disk is full.
    DiskFull,
    /// The key came before, with another request.
    KeyReused,
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
        }
    }
}

/// A question about locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Who owns `(key, index)`.
    Owner {
        /// The key.
        key: Name,
        /// The index.
        index: Name,
    },
    /// Where `owner` stands in line for `(key, index)`.
    Place {
        /// The key.
        key: Name,
        /// The index.
        index: Name,
        /// Whose place.
        owner: Name,
    },
    /// All entries of a key, or of all keys.
    List {
        /// The key, or all of them.
        key: Option<Name>,
        /// The most entries to tell.
        entries_max: u32,
    },
    /// Some of the entries that a filter lets through.
    Select(Selection),
    /// Locks that are waited for.
    Contended {
        /// The most locks to tell.
        most: u32,
        /// Which of them come first.
        by: Ranking,
    },
    /// How many owners and contenders there are.
    Counts,
}

/// Which locks come first among those that are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranking {
    /// Those with the most contenders.
    Waiting,
    /// Those that a contender has waited for longest.
    Longest,
}

/// A lock that is waited for, and who holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contended {
    /// The key.
    pub key: Name,
    /// The index.
    pub index: Name,
    /// Who holds it.
    pub owner: Name,
    /// How many wait for it.
    pub waiting: u32,
    /// When the one that has waited longest began to wait, or last renewed that.
    pub since: Timestamp,
    /// When it passes on, if nobody renews it; `None` if only with its process.
    pub deadline: Option<Timestamp>,
}

/// Which entries are asked for, and how many of them. What is left out lets all through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Those of this key.
    pub key: Option<Name>,
    /// Those of this index.
    pub index: Option<Name>,
    /// Those of this owner.
    pub owner: Option<Name>,
    /// Those in this slot and behind it.
    pub from: Slot,
    /// The most entries to tell.
    pub entries_max: u32,
}

/// Something about locks that can be waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watch {
    /// No entry is left.
    Empty,
    /// The entry owns its lock, which is answered with its standing; or it is gone, which is answered with `Absent`.
    Granted {
        /// The key.
        key: Name,
        /// The index.
        index: Name,
        /// Whose entry.
        owner: Name,
    },
    /// The entry no longer owns its lock with this token, which is answered with `Absent`.
    Lost {
        /// The key.
        key: Name,
        /// The index.
        index: Name,
        /// Whose entry; empty for whoever holds the lock.
        owner: Name,
        /// The token of its grant.
        token: Token,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The entry's place in line, 1 for the owner, and its token if it is the owner's.
    Standing(Standing),
    /// So many entries ended.
    Ended(u32),
    /// No such entry.
    Absent,
    /// Not done, and why.
    Refused(Refused),
    /// No new entries from now on.
    Draining,
    /// The owner, if there is one.
    Owner(Option<Name>),
    /// Entries: by key, then by index in order of its first request, then in line.
    List(Vec<Listed>),
    /// Entries in the order of their slots, and the slot to go on from; none behind the last.
    Page {
        /// The entries. There may be none, and more behind.
        entries: Vec<Listed>,
        /// Where to go on.
        next: Option<Slot>,
    },
    /// Locks that are waited for, in the order that was asked for.
    Contended {
        /// Them.
        locks: Vec<Contended>,
        /// How many are waited for.
        all: u32,
    },
    /// Live entries.
    Counts {
        /// Owners.
        owners: u32,
        /// Contenders.
        contenders: u32,
    },
    /// What was waited for is so.
    Due,
}

/// Where an entry stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// 1 for the owner, 2 for the first contender.
    pub place: u32,
    /// The owner's token.
    pub token: Option<Token>,
}

/// An entry in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// The key.
    pub key: Name,
    /// The index.
    pub index: Name,
    /// Who.
    pub owner: Name,
    /// 1 for the owner.
    pub place: u32,
    /// Seconds to live as owner.
    pub ttl: u16,
    /// Seconds to wait as contender.
    pub ttw: u16,
    /// Standing among contenders.
    pub priority: u8,
    /// When it was granted or queued, or last renewed.
    #[serde(skip)]
    pub since: Timestamp,
    /// When it ends if nobody renews it; `None` if only with its process.
    pub deadline: Option<Timestamp>,
    /// The owner's token.
    pub token: Option<Token>,
    /// The process that it is bound to.
    pub bound: Option<Binding>,
    /// Whether its time has run out and its tree is being killed.
    pub fencing: bool,
}

/// The state of locks, to look at.
#[derive(Debug, Serialize)]
pub struct View {
    /// Owners.
    pub owners: u32,
    /// Contenders.
    pub contenders: u32,
    /// Whether new entries are refused.
    pub draining: bool,
    /// All of them, as a listing gives them.
    pub entries: Vec<Listed>,
}
