//! Durable lock state as pages, and back: ranges of entries by slot, and what there is but once.
//!
//! Indexes are no part of a page: they are built again from the entries. Change rule: the layout is part of the
//! on-disk format, see `persist/format.rs`.

use crate::actors::lock::entry::{Entry, Ring, Waited};
use crate::clock::Timestamp;
use crate::ids::{Digest, PageId, Seq, Slot, Token};
use crate::lookup::slab::Slab;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Slots to a page: about two kilobytes with names of everyday length. Few in tests, so that a small state has several.
const SLOTS: u32 = if cfg!(test) { 2 } else { 32 };

/// A page, decoded.
#[derive(Debug)]
pub enum Page {
    /// What there is but once.
    Head(Head),
    /// Entries by slot, and their part of the digest.
    Entries(Vec<(Slot, Entry)>, Digest),
}

/// What there is but once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// When spans began again last: the coordinator's newest start.
    pub epoch: Timestamp,
    /// Whether new entries are refused.
    pub draining: bool,
}

impl Head {
    /// What the digest is made of.
    pub(super) fn canonical(self) -> [u8; 9] {
        let mut bytes = [0; 9];
        let (epoch, rest) = bytes.split_at_mut(8);
        epoch.copy_from_slice(&self.epoch.0.to_le_bytes());
        rest.fill(u8::from(self.draining));
        bytes
    }
}

/// An entry as a page holds it.
#[derive(Serialize, Deserialize)]
struct Kept<'a> {
    /// Slot within the page.
    place: u8,
    key_len: u8,
    index_len: u8,
    #[serde(borrow)]
    names: Bytes<'a>,
    since: Timestamp,
    seq: Seq,
    token: Token,
    first: Seq,
    ttl: u16,
    ttw: u16,
    priority: u8,
}

/// The page that a slot belongs to.
pub(super) const fn page_of(slot: Slot) -> PageId {
    PageId(slot.0 / SLOTS + 1)
}

/// The first slot of a page of entries.
const fn first_slot(page: PageId) -> u32 {
    (page.0 - 1) * SLOTS
}

/// Writes a page; nothing if it has no content.
pub(super) fn encode(page: PageId, head: Head, entries: &Slab<Entry>, content: &mut Vec<u8>) {
    let written = if page == PageId::HEAD {
        rmp_serde::encode::write(content, &head)
    } else {
        let first = first_slot(page);
        let kept: Vec<Kept<'_>> = (0..u8::try_from(SLOTS).unwrap_or(u8::MAX))
            .filter_map(|place| Some((place, entries.get(Slot(first + u32::from(place)))?)))
            .map(|(place, entry)| Kept {
                place,
                key_len: entry.key_len,
                index_len: entry.index_len,
                names: Bytes(&entry.names),
                since: entry.since,
                seq: entry.seq,
                token: entry.token(),
                first: entry.first(),
                ttl: entry.ttl,
                ttw: entry.ttw,
                priority: entry.priority,
            })
            .collect();
        if kept.is_empty() {
            return;
        }
        rmp_serde::encode::write(content, &kept)
    };
    written.expect("writing to memory does not fail");
}

/// Reads a page.
pub(super) fn decode(page: PageId, content: &[u8]) -> Result<Page, String> {
    if page == PageId::HEAD {
        let head = rmp_serde::from_slice(content).map_err(|error| error.to_string())?;
        return Ok(Page::Head(head));
    }
    let kept: Vec<Kept<'_>> = rmp_serde::from_slice(content).map_err(|error| error.to_string())?;
    let mut digest = Digest::default();
    let mut scratch = Vec::new();
    let entries = kept.into_iter().map(|kept| {
        let slot = Slot(first_slot(page) + u32::from(kept.place));
        let lens = usize::from(kept.key_len) + usize::from(kept.index_len);
        let alone = Ring {
            previous: slot,
            next: slot,
        };
        if u32::from(kept.place) >= SLOTS || lens > kept.names.0.len() {
            return Err(format!("the entry of slot {slot:?} is impossible"));
        }
        let entry = Entry {
            names: kept.names.0.into(),
            since: kept.since,
            seq: kept.seq,
            waited: Waited::unless_free(kept.seq, kept.token, kept.first),
            of_owner: alone,
            of_key: alone,
            ttl: kept.ttl,
            ttw: kept.ttw,
            priority: kept.priority,
            key_len: kept.key_len,
            index_len: kept.index_len,
        };
        entry.canonical(&mut scratch);
        digest.add(&scratch);
        Ok((slot, entry))
    });
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    Ok(Page::Entries(entries, digest))
}

/// Bytes, written as such and read without a copy.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Bytes<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowed;
        impl<'de> Visitor<'de> for Borrowed {
            type Value = Bytes<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_borrowed_bytes<E: serde::de::Error>(
                self,
                bytes: &'de [u8],
            ) -> Result<Bytes<'de>, E> {
                Ok(Bytes(bytes))
            }
        }
        deserializer
            .deserialize_bytes(Borrowed)
            .map_err(D::Error::custom)
    }
}
