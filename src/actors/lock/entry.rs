//! One owner or contender of one lock: what is kept of it, and what the digest is made of.
//!
//! Change rule: the fields but for the rings are durable, see `message.rs`.

use crate::clock::Timestamp;
use crate::ids::{Seq, Slot, Token};

/// One owner or contender of one lock. Sized for millions: 72 bytes, and one allocation for the three names.
#[derive(Debug)]
pub struct Entry {
    /// Key, index and owner, one behind the other.
    pub(super) names: Box<[u8]>,
    pub(super) deadline: Timestamp,
    /// The entry of the journal that made this one: its place among equals.
    pub(super) seq: Seq,
    /// The journal entry that granted the lock; zero for a contender.
    pub(super) token: Token,
    /// The journal entry of the first request since the lock was last free: the order of a listing.
    pub(super) first: Seq,
    pub(super) of_owner: Ring,
    pub(super) of_key: Ring,
    pub(super) ttl: u16,
    pub(super) ttw: u16,
    pub(super) priority: u8,
    pub(super) key_len: u8,
    pub(super) index_len: u8,
}

/// Neighbours in a ring of entries. An entry outside the ring stands alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    pub(super) previous: Slot,
    pub(super) next: Slot,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) ttl: u16,
    pub(super) ttw: u16,
    pub(super) priority: u8,
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
        self.token != Token(0)
    }

    fn part(&self, start: usize, len: usize) -> &[u8] {
        self.names.get(start..start + len).unwrap_or(&[])
    }

    pub(super) fn lock(&self) -> (&[u8], &[u8]) {
        (self.key(), self.index())
    }

    /// What the digest is made of.
    pub(super) fn canonical(&self) -> ([u8; 40], &[u8]) {
        let mut fixed = [0; 40];
        let words = [self.deadline.0, self.seq.0, self.token.0, self.first.0];
        for (place, word) in fixed.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let [ttl, ttw] = [self.ttl.to_le_bytes(), self.ttw.to_le_bytes()];
        let small = [
            ttl[0],
            ttl[1],
            ttw[0],
            ttw[1],
            self.priority,
            self.key_len,
            self.index_len,
            0,
        ];
        if let Some(place) = fixed.last_chunk_mut() {
            *place = small;
        }
        (fixed, &self.names)
    }
}
