//! One owner or contender of one lock: what is kept of it.
//!
//! Change rule: the fields but for the rings are durable, see `message.rs`.

use crate::actors::lock::message::{Message, Name};
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
    /// Only for who found the lock taken.
    pub(super) waited: Option<Box<Waited>>,
    pub(super) of_owner: Ring,
    pub(super) of_key: Ring,
    pub(super) ttl: u16,
    pub(super) ttw: u16,
    pub(super) priority: u8,
    pub(super) key_len: u8,
    pub(super) index_len: u8,
}

/// What `seq` tells of who found its lock free, which is nearly everyone: kept for the others alone.
#[derive(Debug)]
pub(super) struct Waited {
    token: Token,
    first: Seq,
    /// A contender whose place belongs to a connection.
    attended: bool,
}

impl Waited {
    /// Nothing, if both are `seq`.
    pub(super) fn unless_free(seq: Seq, token: Token, first: Seq) -> Option<Box<Self>> {
        let found_free = first == seq && token == seq.into();
        let waited = Self {
            token,
            first,
            attended: false,
        };
        (!found_free).then(|| Box::new(waited))
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
    pub(super) attended: bool,
}

/// What a request asks for, and for which entry; nothing of another message.
pub(super) fn requested(message: &Message) -> Option<((&Name, &Name, &Name), Terms)> {
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
        attended: matches!(message, Message::Acquire { attended: true, .. }),
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
        self.waited
            .as_ref()
            .map_or_else(|| self.seq.into(), |waited| waited.token)
    }

    /// The journal entry of the first request since the lock was last free: the order of a listing.
    pub fn first(&self) -> Seq {
        self.waited.as_ref().map_or(self.seq, |waited| waited.first)
    }

    /// Whether it waits, and its place belongs to a connection.
    pub(super) fn is_attended(&self) -> bool {
        self.waited.as_ref().is_some_and(|waited| waited.attended)
    }

    /// Says so of a contender.
    pub(super) fn set_attended(&mut self, attended: bool) {
        if let Some(waited) = self.waited.as_mut().filter(|it| it.token == Token(0)) {
            waited.attended = attended;
        }
    }

    /// Makes an owner of a contender.
    pub(super) fn grant(&mut self, entry: Stamp) {
        self.waited = Waited::unless_free(self.seq, entry.seq.into(), self.first());
        self.since = entry.at;
    }

    fn part(&self, start: usize, len: usize) -> &[u8] {
        self.names.get(start..start + len).unwrap_or(&[])
    }

    pub(super) fn lock(&self) -> (&[u8], &[u8]) {
        (self.key(), self.index())
    }

    /// When its span ends, if spans began again at `epoch`.
    pub(super) fn ends(&self, epoch: Timestamp) -> Timestamp {
        let span = if self.is_owner() { self.ttl } else { self.ttw };
        self.since.max(epoch).plus_seconds(span.into())
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
