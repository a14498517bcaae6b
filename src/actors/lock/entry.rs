//! One owner or contender of one lock: what is kept of it.
//!
//! Change rule: the fields but for the rings are durable, see `message.rs`.

use crate::actors::binding::Binding;
use crate::actors::lock::message::{Message, Name, Tie};
use crate::clock::Timestamp;
use crate::ids::{Seq, Slot, Token};
use crate::spine::machine::{About, Stamp};

/// One owner or contender of one lock. Sized for millions: 64 bytes, and one allocation for the three names.
#[derive(Debug)]
pub struct Entry {
    /// Key, index and owner, one behind the other.
    pub(super) names: Box<[u8]>,
    /// When its span began: granted, queued or renewed. A start of the coordinator begins it again, see `State`.
    pub(super) since: Timestamp,
    /// The entry of the journal that made this one: its place among equals.
    pub(super) seq: Seq,
    /// What only few entries have.
    pub(super) rare: Option<Box<Rare>>,
    pub(super) of_owner: Ring,
    pub(super) of_key: Ring,
    pub(super) ttl: u16,
    pub(super) ttw: u16,
    pub(super) priority: u8,
    pub(super) key_len: u8,
    pub(super) index_len: u8,
}

/// What is kept of few entries: of those that found their lock taken, of which `seq` does not tell the rest, and of those
/// that are tied to something.
#[derive(Debug)]
pub(super) struct Rare {
    token: Token,
    first: Seq,
    tie: Tie,
    /// Its time has run out, and its tree is being killed.
    fencing: bool,
}

impl Rare {
    /// Nothing, if both are `seq` and it is tied to nothing.
    pub(super) fn unless_plain(
        seq: Seq,
        (token, first): (Token, Seq),
        (tie, fencing): (Tie, bool),
    ) -> Option<Box<Self>> {
        let found_free = first == seq && token == seq.into();
        let rare = Self {
            token,
            first,
            tie,
            fencing,
        };
        (!found_free || tie != Tie::None).then(|| Box::new(rare))
    }
}

/// Neighbours in a ring of entries. An entry outside the ring stands alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    pub(super) previous: Slot,
    pub(super) next: Slot,
}

impl Ring {
    /// The ring of an entry that has no neighbours.
    pub(super) const fn alone(slot: Slot) -> Self {
        Self {
            previous: slot,
            next: slot,
        }
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) ttl: u16,
    pub(super) ttw: u16,
    pub(super) priority: u8,
    pub(super) tie: Tie,
}

/// What a request asks for, and for which entry; nothing of another message.
pub(super) fn requested(message: &Message) -> Option<((&Name, &Name, &Name), Terms)> {
    if let Message::Hold(hold) = message {
        let terms = Terms {
            ttl: u16::MAX,
            ttw: u16::MAX,
            priority: 0,
            tie: Tie::Actor(hold.by),
        };
        return Some(((&hold.key, &hold.index, &hold.owner), terms));
    }
    let (Message::Request {
        key,
        index,
        owner,
        ttl,
        ttw,
        priority,
    }
    | Message::Acquire {
        key,
        index,
        owner,
        ttl,
        ttw,
        priority,
        ..
    }) = message
    else {
        return None;
    };
    let terms = Terms {
        ttl: *ttl,
        ttw: *ttw,
        priority: *priority,
        tie: if let Message::Acquire { tie, .. } = message {
            *tie
        } else {
            Tie::None
        },
    };
    Some(((key, index, owner), terms))
}

impl Entry {
    /// The key.
    pub fn key(&self) -> &[u8] {
        self.part(0, self.key_len as usize)
    }

    /// The index.
    pub fn index(&self) -> &[u8] {
        self.part(self.key_len as usize, self.index_len as usize)
    }

    /// Who owns it or waits for it.
    pub fn owner(&self) -> &[u8] {
        self.names
            .get(self.key_len as usize + self.index_len as usize..)
            .unwrap_or(&[])
    }

    /// Whether it owns its lock.
    pub fn is_owner(&self) -> bool {
        self.token() != Token(0)
    }

    /// The journal entry that granted the lock; zero for a contender.
    pub fn token(&self) -> Token {
        self.rare
            .as_ref()
            .map_or_else(|| self.seq.into(), |rare| rare.token)
    }

    /// The journal entry of the first request since the lock was last free: the order of a listing.
    pub fn first(&self) -> Seq {
        self.rare.as_ref().map_or(self.seq, |rare| rare.first)
    }

    /// What it ends with beside its spans.
    pub(super) fn tie(&self) -> Tie {
        self.rare.as_ref().map_or(Tie::None, |rare| rare.tie)
    }

    /// The process that it is bound to.
    pub fn bound(&self) -> Option<Binding> {
        self.tie().binding()
    }

    /// Whether its time has run out, and its tree is being killed.
    pub fn is_fencing(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.fencing)
    }

    /// Says what it ends with. Only a place in line ends with a connection.
    pub(super) fn set_tie(&mut self, tie: Tie) {
        let tie = match tie {
            Tie::Connection if self.is_owner() => Tie::None,
            Tie::None | Tie::Connection | Tie::Process(_) | Tie::Actor(_) => tie,
        };
        let standing = (self.token(), self.first());
        self.rare = Rare::unless_plain(self.seq, standing, (tie, false));
    }

    /// Its time has run out, and its tree is to be killed.
    pub(super) fn fence(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.fencing = true;
        }
    }

    /// Makes an owner of a contender.
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

    /// When its span ends, if spans began again at `epoch`. What is bound to a process may have one without an end, and
    /// what is being fenced ends with its tree alone.
    pub(super) fn ends(&self, epoch: Timestamp) -> Option<Timestamp> {
        let span = if self.is_owner() { self.ttl } else { self.ttw };
        let is_tied = self.bound().is_some() || self.tie().actor().is_some();
        let is_endless = self.is_fencing() || span == u16::MAX && is_tied;
        (!is_endless).then(|| self.since.max(epoch).plus_seconds(span.into()))
    }

    /// Its names, as people read them.
    pub(super) fn about(&self, slot: Slot) -> About {
        let names = [
            ("key", self.key()),
            ("index", self.index()),
            ("owner", self.owner()),
        ];
        let text = |bytes: &[u8]| Name::new(bytes).map_or_else(String::new, |name| name.to_text());
        let named = names.map(|(called, bytes)| (called.to_owned(), text(bytes)));
        About {
            slot,
            names: named.into(),
        }
    }
}

// Every entry is one of perhaps millions: whoever makes it larger should mean to.
const _: () = assert!(size_of::<usize>() != 8 || size_of::<Option<Entry>>() == 64);
