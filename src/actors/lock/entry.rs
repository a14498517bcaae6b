//! One owner of a lock, or one contender for it, as stored in memory.
//!
//! Change rule: all fields except the rings are durable, so a change to them must be carried over to `pages.rs`.

use crate::actors::binding::Binding;
use crate::actors::lock::line::Standing;
use crate::actors::lock::message::{Message, Name, Tie};
use crate::clock::Timestamp;
use crate::ids::{Seq, Slot, Token};
use crate::spine::machine::{About, Stamp};
use serde::{Deserialize, Serialize};

/// One owner of a lock, or one contender for it. There may be millions, so an entry is small: 64 bytes, and one
/// allocation for the three names.
#[derive(Debug)]
pub struct Entry {
    /// Key, index and owner, concatenated.
    pub(super) names: Box<[u8]>,
    /// When the timeout began: when the entry was granted its lock, queued or last renewed. A server restart also restarts
    /// the timeout, but does not change this field, see `state.rs`.
    pub(super) since: Timestamp,
    /// The sequence number of the journal entry that added this lock entry. It orders contenders of equal priority.
    pub(super) seq: Seq,
    /// Fields that only a few entries need.
    pub(super) rare: Option<Box<Rare>>,
    pub(super) of_owner: Ring,
    pub(super) of_key: Ring,
    pub(super) ttl: u16,
    pub(super) ttw: u16,
    pub(super) priority: u8,
    pub(super) key_len: u8,
    pub(super) index_len: u8,
}

/// Fields that only a few entries need: entries whose lock was taken when they were added, so that `token` and `first`
/// differ from `seq`, and entries that have a tie.
#[derive(Debug)]
pub(super) struct Rare {
    token: Token,
    first: Seq,
    tie: Tie,
    /// Whether the owner has timed out and its process tree is being killed.
    fencing: bool,
    client: Client,
}

/// Whether the client of a contender is there to take the lock. An owner is always [`Client::Polls`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Client {
    /// It asks for its place from time to time, or it is another actor: a restart of the server changes nothing.
    #[default]
    Polls,
    /// It waits for an answer.
    Waits,
    /// It waited for an answer, which a restart of the server cut off, and nothing has been heard of it since.
    Away,
}

impl Client {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn polls(&self) -> bool {
        *self == Self::Polls
    }
}

impl Rare {
    /// Returns the rarely needed fields of an entry; `None` if the entry does not need them, because `token` and `first` both
    /// equal `seq` and there is no tie.
    pub(super) fn unless_plain(
        seq: Seq,
        (token, first): (Token, Seq),
        (tie, fencing): (Tie, bool),
    ) -> Option<Box<Self>> {
        let found_free = first == seq && token == seq.into();
        let rare = Self { token, first, tie, fencing, client: Client::Polls };
        (!found_free || tie != Tie::None).then(|| Box::new(rare))
    }
}

/// Links to the neighbours in a ring, a circular list of entries: those of one owner, or those that own the locks of one
/// key. An entry that is alone links to itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    pub(super) previous: Slot,
    pub(super) next: Slot,
}

impl Ring {
    /// Returns the links of an entry that is alone in its ring.
    pub(super) const fn alone(slot: Slot) -> Self {
        Self { previous: slot, next: slot }
    }
}

/// The timeouts (in seconds), the priority and the tie of a request, and whether its client waits for the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) ttl: u16,
    pub(super) ttw: u16,
    pub(super) priority: u8,
    pub(super) tie: Tie,
    pub(super) waits: bool,
}

impl Terms {
    pub(super) const fn client(&self) -> Client {
        if self.waits { Client::Waits } else { Client::Polls }
    }
}

/// Returns the names (key, index and owner) and the terms of a request for a lock; `None` for any other message.
pub(super) fn requested(message: &Message) -> Option<((&Name, &Name, &Name), Terms)> {
    if let Message::Hold(hold) = message {
        let tie = Tie::Actor(hold.by);
        let terms = Terms { ttl: u16::MAX, ttw: u16::MAX, priority: 0, tie, waits: false };
        return Some(((&hold.key, &hold.index, &hold.owner), terms));
    }
    let (Message::Request { key, index, owner, ttl, ttw, priority }
    | Message::Acquire { key, index, owner, ttl, ttw, priority, .. }) = message
    else {
        return None;
    };
    let (tie, waits) = if let Message::Acquire { tie, waits, .. } = message {
        (*tie, *waits)
    } else {
        (Tie::None, false)
    };
    let terms = Terms { ttl: *ttl, ttw: *ttw, priority: *priority, tie, waits };
    Some(((key, index, owner), terms))
}

impl Entry {
    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        self.part(0, self.key_len as usize)
    }

    /// Returns the index.
    pub fn index(&self) -> &[u8] {
        self.part(self.key_len as usize, self.index_len as usize)
    }

    /// Returns the name of the client that owns the lock or waits for it.
    pub fn owner(&self) -> &[u8] {
        self.names.get(self.key_len as usize + self.index_len as usize..).unwrap_or(&[])
    }

    /// Returns whether the entry owns its lock.
    pub fn is_owner(&self) -> bool {
        self.token() != Token(0)
    }

    /// Returns the fencing token: the sequence number of the journal entry that granted the lock, or zero for a contender.
    pub fn token(&self) -> Token {
        self.rare.as_ref().map_or_else(|| self.seq.into(), |rare| rare.token)
    }

    /// Returns the sequence number of the first request since the lock was last free. The locks of a key are listed in this order.
    pub fn first(&self) -> Seq {
        self.rare.as_ref().map_or(self.seq, |rare| rare.first)
    }

    /// Returns what can end the entry besides a client's request or a timeout.
    pub(super) fn tie(&self) -> Tie {
        self.rare.as_ref().map_or(Tie::None, |rare| rare.tie)
    }

    /// Returns the entry's binding to a process; `None` if it is not bound to one.
    pub fn bound(&self) -> Option<Binding> {
        self.tie().binding()
    }

    /// Returns whether the owner has timed out and its process tree is being killed.
    pub fn is_fencing(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.fencing)
    }

    /// Returns whether the client of a contender is there to take the lock.
    pub(super) fn client(&self) -> Client {
        self.rare.as_ref().map_or(Client::Polls, |rare| rare.client)
    }

    /// Returns whether the entry is a contender whose client is away.
    pub fn is_away(&self) -> bool {
        self.client() == Client::Away
    }

    /// Sets whether the client of a contender is there to take the lock. Does nothing to an owner.
    pub(super) fn set_client(&mut self, client: Client) {
        let is_owner = self.is_owner();
        if let Some(rare) = self.rare.as_mut().filter(|_| !is_owner) {
            rare.client = client;
        }
    }

    /// Returns the place of a contender in its line.
    pub(super) const fn standing(&self, slot: Slot) -> Standing {
        Standing { priority: self.priority, seq: self.seq, slot }
    }

    /// Sets what can end the entry besides a client's request or a timeout. For an owner, [`Tie::Connection`] is replaced by
    /// [`Tie::None`], because ownership outlives the connection.
    pub(super) fn set_tie(&mut self, tie: Tie) {
        let tie = match tie {
            Tie::Connection if self.is_owner() => Tie::None,
            Tie::None | Tie::Connection | Tie::Process(_) | Tie::Actor(_) => tie,
        };
        let (standing, client) = ((self.token(), self.first()), self.client());
        self.rare = Rare::unless_plain(self.seq, standing, (tie, false));
        self.set_client(client);
    }

    /// Records that the owner has timed out and its process tree is being killed.
    pub(super) fn fence(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.fencing = true;
        }
    }

    /// Makes a contender the owner of its lock, with the sequence number of the journal entry as its token. Its TTL
    /// begins, and it is no longer tied to a connection.
    pub(super) fn grant(&mut self, entry: Stamp) {
        let tie = match self.tie() {
            Tie::None | Tie::Connection => Tie::None,
            tie @ (Tie::Process(_) | Tie::Actor(_)) => tie,
        };
        let standing = (entry.seq.into(), self.first());
        self.rare = Rare::unless_plain(self.seq, standing, (tie, false));
        self.since = entry.at;
    }

    fn part(&self, start: usize, len: usize) -> &[u8] {
        self.names.get(start..start + len).unwrap_or(&[])
    }

    pub(super) fn lock(&self) -> (&[u8], &[u8]) {
        (self.key(), self.index())
    }

    /// Returns when the entry times out. `epoch` is the time of the latest server start, which restarted all timeouts.
    /// Returns `None` if the entry is being fenced, because it then ends only with its process tree, or if it is tied to a
    /// process or an actor and its timeout is 65,535 seconds, which means no timeout.
    pub(super) fn ends(&self, epoch: Timestamp) -> Option<Timestamp> {
        let span = if self.is_owner() { self.ttl } else { self.ttw };
        let is_tied = self.bound().is_some() || self.tie().actor().is_some();
        let is_endless = self.is_fencing() || span == u16::MAX && is_tied;
        (!is_endless).then(|| self.since.max(epoch).plus_seconds(span.into()))
    }

    /// Returns the slot and the entry's names as text, for users who read the journal.
    pub(super) fn about(&self, slot: Slot) -> About {
        let names = [("key", self.key()), ("index", self.index()), ("owner", self.owner())];
        let text = |bytes: &[u8]| Name::new(bytes).map_or_else(String::new, |name| name.to_text());
        let named = names.map(|(called, bytes)| (called.to_owned(), text(bytes)));
        About { slot, names: named.into() }
    }
}

// There may be millions of entries: a change that makes them larger should be deliberate.
const _: () = assert!(size_of::<usize>() != 8 || size_of::<Option<Entry>>() == 64);
