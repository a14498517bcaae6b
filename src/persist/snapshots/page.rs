//! Converts pages to items of a store, and back. Change rule: see `persist/format.rs`.
//!
//! The key of an item consists of actor, page and part. Its value is a part of the page's frame, which consists of a checksum, the length
//! of the content, the entry that changed the page last, and the content. If a page becomes shorter, its unused parts remain in the store
//! and are ignored.

use crate::clock::Timestamp;
use crate::decode;
use crate::ids::{ActorId, PageId, Seq};
use crate::persist::error::PersistError;
use crate::persist::mark::{Marked, Watermark};
use serde::{Deserialize, Serialize};

/// The maximum length of an item's value, in bytes. sled puts longer values into separate files, which it may leave behind.
const VALUE_BYTES_MAX: usize = 4000;
/// The number of bytes before the content in a page's frame.
const HEADER_BYTES: usize = 16;
/// The size of an item's key, in bytes: actor, page, part.
const KEY_BYTES: usize = 7;
/// The maximum length of a page's content, in bytes: as many parts as an item's key can count. A header that claims more is invalid.
const CONTENT_BYTES_MAX: usize = (1 << 16) * VALUE_BYTES_MAX - HEADER_BYTES;

/// A page of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The actor whose state the page belongs to.
    pub actor: ActorId,
    /// The page's id.
    pub page: PageId,
    /// The journal entry that changed it last.
    pub changed: Seq,
    /// Its content; empty if the page was removed.
    pub content: Vec<u8>,
}

/// The description of a snapshot's content, stored in the snapshot as the page of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The last entry when the snapshot was begun: the snapshot covers every entry up to this one, of every actor.
    pub begun: Seq,
    /// The state of each actor, which may include later entries: actors are copied one after another.
    pub states: Vec<Watermark>,
    /// The node time at which the snapshot was begun.
    pub at: Timestamp,
    /// The first sequence number that was not reserved at that time.
    pub reserved: Seq,
    /// The state that results from the marks up to `begun`. Manifests of format 1 do not contain it.
    #[serde(default)]
    pub marked: Marked,
}

impl Manifest {
    /// Returns how far the snapshot covers an actor's state, if it does.
    pub fn state(&self, actor: ActorId) -> Option<&Watermark> {
        self.states.iter().find(|state| state.actor == actor)
    }

    /// Returns the manifest as a page.
    pub fn to_page(&self) -> Page {
        Page {
            actor: ActorId::NODE,
            page: PageId::HEAD,
            changed: self.begun,
            content: rmp_serde::to_vec(self).expect("manifests should always encode"),
        }
    }

    /// Decodes the manifest from the node's page.
    pub fn from_page(page: &Page) -> Result<Self, String> {
        decode::from_slice(&page.content)
            .map_err(|error| format!("its manifest cannot be decoded: {error}"))
    }
}

impl Page {
    /// Calls `item` with the key and value of each item that the page consists of.
    pub fn each_item(
        &self,
        mut item: impl FnMut(&[u8], &[u8]) -> Result<(), PersistError>,
    ) -> Result<(), PersistError> {
        assert!(self.content.len() <= CONTENT_BYTES_MAX, "no item is longer than a page can be");
        let len = u32::try_from(self.content.len()).expect("a page should be smaller than 4 GiB");
        let mut frame = Vec::with_capacity(HEADER_BYTES + self.content.len());
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(&len.to_le_bytes());
        frame.extend_from_slice(&self.changed.0.to_le_bytes());
        frame.extend_from_slice(&self.content);
        let crc = checksum(self.actor, self.page, &frame);
        if let Some(place) = frame.first_chunk_mut() {
            *place = crc.to_le_bytes();
        }
        for (part, value) in (0..=u16::MAX).zip(frame.chunks(VALUE_BYTES_MAX)) {
            item(&key(self.actor, self.page, part), value)?;
        }
        Ok(())
    }
}

fn key(actor: ActorId, page: PageId, part: u16) -> [u8; KEY_BYTES] {
    let mut key = [actor.0; KEY_BYTES];
    key[1..5].copy_from_slice(&page.0.to_be_bytes());
    key[5..].copy_from_slice(&part.to_be_bytes());
    key
}

fn parse_key(key: &[u8]) -> Option<(ActorId, PageId, u16)> {
    let (actor, rest) = key.split_first()?;
    let (page, part) = rest.split_first_chunk()?;
    let page = PageId(u32::from_be_bytes(*page));
    let part = u16::from_be_bytes(part.try_into().ok()?);
    Some((ActorId(*actor), page, part))
}

/// Computes the checksum over the key of the page's first item and everything in the frame except the checksum itself.
fn checksum(actor: ActorId, page: PageId, frame: &[u8]) -> u32 {
    let name = crc32c::crc32c(&key(actor, page, 0));
    crc32c::crc32c_append(name, frame.get(4..).unwrap_or(&[]))
}

/// Reassembles pages from the items of a store, which must be passed in the order of their keys.
#[derive(Default)]
pub struct Assembly {
    current: Option<Partial>,
}

struct Partial {
    actor: ActorId,
    page: PageId,
    /// The number of the next part; one more than a key can hold after the last part of the longest page.
    next: u32,
    frame: Vec<u8>,
    len: usize,
}

impl Assembly {
    /// Takes the next item, and returns a page if the item completes it.
    pub fn take(&mut self, key: &[u8], value: &[u8]) -> Result<Option<Page>, String> {
        let Some((actor, page, part)) = parse_key(key) else {
            return Err(format!("an item has a key of {} bytes instead of {KEY_BYTES}", key.len()));
        };
        if part == 0 {
            self.end()?;
            let len = value.get(4..8).and_then(|len| len.first_chunk());
            let len = len.map_or(usize::MAX, |len| u32::from_le_bytes(*len) as usize);
            if len > CONTENT_BYTES_MAX {
                return Err(format!("page {} of actor {actor} has an invalid header", page.0));
            }
            self.current = Some(Partial {
                actor,
                page,
                next: 0,
                frame: Vec::with_capacity(HEADER_BYTES + len),
                len: HEADER_BYTES + len,
            });
        }
        let Some(partial) = &mut self.current else {
            // The item remains from a longer version of a page that is already complete.
            return Ok(None);
        };
        if (partial.actor, partial.page, partial.next) != (actor, page, u32::from(part)) {
            return Err(format!(
                "part {part} of page {} of actor {actor} was found where another part was expected",
                page.0
            ));
        }
        partial.frame.extend_from_slice(value);
        partial.next += 1;
        if partial.frame.len() < partial.len {
            return Ok(None);
        }
        self.current.take().map(Partial::into_page).transpose()
    }

    /// Ends the current page; returns an error if some of its items are missing.
    pub fn end(&mut self) -> Result<(), String> {
        match self.current.take() {
            None => Ok(()),
            Some(partial) => {
                Err(format!("page {} of actor {} is incomplete", partial.page.0, partial.actor))
            }
        }
    }
}

impl Partial {
    fn into_page(self) -> Result<Page, String> {
        let (actor, page) = (self.actor, self.page);
        let mut frame = self.frame;
        let said = frame.first_chunk().map(|crc| u32::from_le_bytes(*crc));
        let changed = frame.get(8..HEADER_BYTES).and_then(|seq| seq.first_chunk());
        match changed {
            Some(changed)
                if frame.len() == self.len && said == Some(checksum(actor, page, &frame)) =>
            {
                let changed = Seq(u64::from_le_bytes(*changed));
                frame.drain(..HEADER_BYTES);
                Ok(Page { actor, page, changed, content: frame })
            }
            Some(_) | None => Err(format!("page {} of actor {actor} is invalid", page.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Assembly, Page};
    use crate::ids::{ActorId, PageId, Seq};
    use std::collections::BTreeMap;

    fn page(page: u32, len: usize) -> Page {
        Page {
            actor: ActorId(7),
            page: PageId(page),
            changed: Seq(u64::from(page) + 5),
            content: (0..251).cycle().step_by(31).take(len).collect(),
        }
    }

    fn put(store: &mut BTreeMap<Vec<u8>, Vec<u8>>, page: &Page) {
        let put = |key: &[u8], value: &[u8]| {
            store.insert(key.to_vec(), value.to_vec());
            Ok(())
        };
        page.each_item(put).unwrap();
    }

    #[test]
    fn the_longest_page_is_read_as_it_was_written() {
        let page = page(3, super::CONTENT_BYTES_MAX);
        let (mut assembly, mut parts, mut last) = (Assembly::default(), 0, None);
        page.each_item(|key, value| {
            parts += 1;
            last = assembly.take(key, value).unwrap();
            Ok(())
        })
        .unwrap();
        assert_eq!(parts, 1 << 16);
        assert!(last == Some(page), "it differs");
    }

    fn read(store: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<Vec<Page>, String> {
        let mut assembly = Assembly::default();
        let mut pages = Vec::new();
        for (key, value) in store {
            pages.extend(assembly.take(key, value)?);
        }
        assembly.end()?;
        Ok(pages)
    }

    #[test]
    fn pages_of_every_length_come_back_and_shorter_ones_replace_longer() {
        let mut store = BTreeMap::new();
        for len in [0, 1, 3983, 3984, 3985, 20_000] {
            put(&mut store, &page(1, 20_000));
            put(&mut store, &page(1, len));
            put(&mut store, &page(2, 10));
            assert_eq!(read(&store), Ok(vec![page(1, len), page(2, 10)]));
        }
    }

    #[test]
    fn whatever_is_flipped_or_missing_is_found() {
        let mut store = BTreeMap::new();
        put(&mut store, &page(1, 9000));
        put(&mut store, &page(2, 10));
        let whole = read(&store).unwrap();
        for key in store.keys().cloned().collect::<Vec<_>>() {
            let mut without = store.clone();
            without.remove(&key);
            assert_ne!(read(&without).as_ref(), Ok(&whole), "{key:?} is missing");
            for at in (0..store[&key].len()).step_by(7) {
                let mut flipped = store.clone();
                flipped.get_mut(&key).unwrap()[at] ^= 4;
                assert!(read(&flipped).is_err(), "{key:?} is flipped at {at}");
            }
        }
    }
}
