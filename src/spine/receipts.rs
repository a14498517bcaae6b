//! Receipts: what was done under each idempotency key, so that a repeated message gets the same answer, and nothing is done twice.
//!
//! A receipt is kept for each committed message that came with a [`RequestKey`]. It holds the outcome but not the message, which the
//! repetition contains again. Receipts are durable state. The entry contains the key, so a replay produces the same receipts; they are
//! stored on pages of a separate kind, tracked with those of the machine.
//!
//! Guarantees: a receipt is kept for its time. At the limits on number and bytes, messages with a new key are refused instead
//! ([`Receipts::has_room`]). Callers that are not trusted may use at most half of either together, and a quarter each, so that nobody's keys
//! displace those of others, and trusted callers ([`RequestKey::TRUSTED`]) always have room that no others can take. When a receipt is forgotten depends only on the entries with a key. How a repetition is answered is up to the machine.

use crate::clock::Timestamp;
use crate::decode;
use crate::ids::{Digest, PageId, RequestKey, Seq};
use crate::lookup::pages::Pages;
use crate::spine::machine::Stamp;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{HashMap, VecDeque};

/// How long a repetition is recognized, in seconds of node time.
pub const SECONDS: u64 = 600;
/// The maximum number of receipts that an actor keeps.
pub const RECEIPTS_MAX: u32 = 262_144;
/// The maximum total size of an actor's receipts, in bytes. The newest is kept whatever its size.
pub const BYTES_MAX: usize = 64 << 20;

/// The part of [`BYTES_MAX`] that is left for the outcome of a message that is admitted, because its size is not known before.
const OUTCOME_BYTES: usize = 4 << 20;
/// The number of slots in the ring of earlier versions of the program.
const FORMER_RING: u32 = 16_384;
const FORMER_LAST: u32 = FORMER_RING - 1;

/// The approximate size of a receipt without its outcome, in bytes.
const RECEIPT_BYTES: usize = 96;
/// The number of slots on a page: as many as fill about two kilobytes with short outcomes.
const SLOTS: u32 = 16;

/// The receipts of one actor. Their slots form a ring, so that receipts of about the same time share a page, and the slot of a new
/// receipt follows from the existing ones.
#[derive(Debug, Default)]
pub struct Receipts {
    /// The receipts, oldest first, in consecutive slots.
    held: VecDeque<Receipt>,
    /// The slot of the oldest receipt.
    first: u32,
    /// The number of slots in the ring. It is [`RECEIPTS_MAX`], except while receipts wrap around the end of an earlier version's ring.
    ring: Ring,
    slots: HashMap<u128, u32>,
    bytes: usize,
    /// The number and the bytes of the receipts of each caller.
    callers: HashMap<u32, Share>,
    digest: Digest,
}

/// A number of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ring(u32);

impl Default for Ring {
    fn default() -> Self {
        Self(RECEIPTS_MAX)
    }
}

/// The number and the bytes of some receipts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    receipts: usize,
    bytes: usize,
}

impl Share {
    const fn minus(self, other: Self) -> Self {
        Self { receipts: self.receipts - other.receipts, bytes: self.bytes - other.bytes }
    }

    /// Returns whether there is room for one more among `receipts_max` and `bytes_max`.
    const fn has_room(self, receipts_max: usize, bytes_max: usize) -> bool {
        self.receipts < receipts_max && self.bytes < bytes_max
    }
}

/// What is used by all callers, by those that are trusted, and by one of them.
#[derive(Clone, Copy, Debug)]
struct Used {
    all: Share,
    trusted: Share,
    of_caller: Share,
}

impl Used {
    /// Returns whether the one caller, with this number, may use more, when all messages that have begun have used theirs.
    fn have_room(self, ring: Ring, (caller, promised): (u32, usize)) -> bool {
        let (receipts_max, bytes_max) = (ring.0 as usize, BYTES_MAX - OUTCOME_BYTES);
        let has_room = |share: Share, part: usize| {
            let share = Share { receipts: share.receipts + promised, ..share };
            share.has_room(receipts_max / part, bytes_max / part)
        };
        let others = self.all.minus(self.trusted);
        has_room(self.all, 1)
            && (caller == RequestKey::TRUSTED || has_room(others, 2) && has_room(self.of_caller, 4))
    }
}

/// What was done under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The key.
    pub key: RequestKey,
    /// The number and time of the entry.
    pub entry: Stamp,
    /// The outcome, encoded as in the journal.
    pub outcome: Box<[u8]>,
}

/// Receipts decoded from one or more pages, with their slots.
pub type Loaded = Vec<(u32, Receipt)>;

impl Receipt {
    fn bytes(&self) -> usize {
        RECEIPT_BYTES + self.outcome.len()
    }

    fn is_over(&self, at: Timestamp) -> bool {
        self.entry.at.plus_seconds(SECONDS) <= at
    }

    /// Returns the bytes over which the digest is computed.
    fn canonical(&self) -> Vec<u8> {
        let (seq, at) = (self.entry.seq.0.to_le_bytes(), self.entry.at.0.to_le_bytes());
        [&self.key.to_bytes()[..], &seq, &at, &self.outcome].concat()
    }
}

impl Receipts {
    /// Returns the receipt for the id of this key, even if its fingerprint differs; `None` if there is none, or it has expired.
    pub fn find(&self, key: &RequestKey, at: Timestamp) -> Option<&Receipt> {
        let slot = self.slots.get(&key.id)?;
        let receipt = self.held.get(self.place_of(*slot))?;
        Some(receipt).filter(|receipt| !receipt.is_over(at))
    }

    /// Returns whether a message of this caller with a new key may be carried out at `at`: whether its receipt will displace none that is not
    /// expired, and whether neither the caller nor the callers that are not trusted have used their share. `promised` receipts are still to
    /// come, of messages that are being carried out in parts.
    pub fn has_room(&self, (caller, promised): (u32, usize), at: Timestamp) -> bool {
        let share = |caller| self.callers.get(&caller).copied().unwrap_or_default();
        let mut used = Used {
            all: Share { receipts: self.held.len(), bytes: self.bytes },
            trusted: share(RequestKey::TRUSTED),
            of_caller: share(caller),
        };
        if used.have_room(self.ring, (caller, promised)) {
            return true;
        }
        // Expired receipts are forgotten before the next one is added.
        for receipt in self.held.iter().take_while(|receipt| receipt.is_over(at)) {
            let one = Share { receipts: 1, bytes: receipt.bytes() };
            used.all = used.all.minus(one);
            if receipt.key.caller() == RequestKey::TRUSTED {
                used.trusted = used.trusted.minus(one);
            }
            if receipt.key.caller() == caller {
                used.of_caller = used.of_caller.minus(one);
            }
        }
        used.have_room(self.ring, (caller, promised))
    }

    /// Adds a receipt of what the entry `entry` did under a key. Forgets expired receipts first, and the oldest ones if a limit would be
    /// exceeded.
    pub fn note<O: Serialize>(
        &mut self,
        pages: &mut Pages,
        entry: Stamp,
        (key, outcome): (RequestKey, &O),
    ) {
        let outcome = rmp_serde::to_vec(outcome).expect("outcomes should always encode");
        let receipt = Receipt { key, entry, outcome: outcome.into() };
        while self.held.front().is_some_and(|oldest| {
            oldest.is_over(entry.at)
                || self.held.len() >= self.ring.0 as usize
                || self.bytes + receipt.bytes() > BYTES_MAX
        }) {
            self.forget(pages, entry.seq);
        }
        self.touch(pages, self.slot_at(self.held.len()), entry.seq);
        self.put(receipt);
    }

    /// Forgets the oldest receipt, as part of this entry.
    fn forget(&mut self, pages: &mut Pages, entry: Seq) {
        self.touch(pages, self.first, entry);
        let Some(receipt) = self.held.pop_front() else {
            return;
        };
        self.bytes -= receipt.bytes();
        let caller = receipt.key.caller();
        if let Some(share) = self.callers.get_mut(&caller) {
            let one = Share { receipts: 1, bytes: receipt.bytes() };
            *share = share.minus(one);
            if share.receipts == 0 {
                self.callers.remove(&caller);
            }
        }
        self.digest.remove(&receipt.canonical());
        // In a log written by a version of the program that forgot receipts sooner, a newer receipt may have the same id.
        if self.slots.get(&receipt.key.id) == Some(&self.first) {
            self.slots.remove(&receipt.key.id);
        }
        self.first = self.slot_at(1);
        if self.first == 0 {
            // The receipts no longer wrap around.
            self.ring = Ring::default();
        }
    }

    /// Adds a receipt after all others.
    fn put(&mut self, receipt: Receipt) {
        self.slots.insert(receipt.key.id, self.slot_at(self.held.len()));
        self.bytes += receipt.bytes();
        let share = self.callers.entry(receipt.key.caller()).or_default();
        share.receipts += 1;
        share.bytes += receipt.bytes();
        self.digest.add(&receipt.canonical());
        self.held.push_back(receipt);
    }

    /// Returns the slot that is `place` slots after the oldest receipt's.
    fn slot_at(&self, place: usize) -> u32 {
        let place = u32::try_from(place).expect("the number of receipts should be bounded");
        (self.first + place) % self.ring.0
    }

    fn place_of(&self, slot: u32) -> usize {
        ((slot + self.ring.0 - self.first) % self.ring.0) as usize
    }

    /// Notes that the page of a slot is about to change.
    fn touch(&self, pages: &mut Pages, slot: u32, entry: Seq) {
        let page = PageId::new(PageId::RECEIPTS, slot / SLOTS);
        pages.touch(page, entry, |content| self.encode(page, content));
    }

    /// Returns the digest of all receipts; the default if there are none.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the number of receipts, including expired ones that are not forgotten yet.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns whether there are no receipts.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Writes a page; nothing if it has no content.
    pub fn encode(&self, page: PageId, content: &mut Vec<u8>) {
        let first = page.index() * SLOTS;
        let stored: Vec<Stored<'_>> = (first..first + SLOTS)
            .filter_map(|slot| {
                let receipt = self.held.get(self.place_of(slot))?;
                let place = u8::try_from(slot - first).expect("a page should have few slots");
                let Stamp { seq, at } = receipt.entry;
                Some(Stored(place, receipt.key, seq, at, Bytes(&receipt.outcome)))
            })
            .collect();
        if !stored.is_empty() {
            rmp_serde::encode::write(content, &stored).expect("writing to memory should not fail");
        }
    }

    /// Decodes a page.
    ///
    /// # Errors
    /// Returns a description of what is wrong if `content` is not a page of receipts.
    pub fn decode(page: PageId, content: &[u8]) -> Result<Loaded, String> {
        let stored: Vec<Stored<'_>> =
            decode::from_slice(content).map_err(|error| error.to_string())?;
        let receipts = stored.into_iter().map(|Stored(place, key, seq, at, outcome)| {
            let slot = page.index() * SLOTS + u32::from(place);
            if u32::from(place) >= SLOTS || slot >= RECEIPTS_MAX {
                return Err(format!("place {place} is out of range for this page of receipts"));
            }
            let receipt = Receipt { key, entry: Stamp { seq, at }, outcome: outcome.0.into() };
            Ok((slot, receipt))
        });
        receipts.collect()
    }

    /// Builds the receipts of an actor from those of all its pages.
    ///
    /// # Errors
    /// Returns an error if the receipts are not in consecutive slots.
    pub fn load(mut loaded: Loaded) -> Result<Self, String> {
        loaded.sort_by_key(|(_, receipt)| receipt.entry.seq);
        // An earlier version of the program may have left receipts that wrap around the end of its shorter ring.
        let wraps = loaded.windows(2).any(|pair| matches!(pair, [(FORMER_LAST, _), (0, _)]));
        let mut receipts = Self {
            ring: if wraps { Ring(FORMER_RING) } else { Ring::default() },
            first: loaded.first().map_or(0, |(slot, _)| *slot),
            ..Self::default()
        };
        for (slot, receipt) in loaded {
            if slot != receipts.slot_at(receipts.held.len()) {
                let seq = receipt.entry.seq;
                return Err(format!(
                    "the receipt of entry {seq} is not in the slot after the previous receipt"
                ));
            }
            receipts.put(receipt);
        }
        Ok(receipts)
    }
}

/// A receipt as stored on its page: its place on the page, its key, the number and time of its entry, and its outcome. See the change rule
/// in `persist/format.rs`.
#[derive(Serialize, Deserialize)]
struct Stored<'a>(u8, RequestKey, Seq, Timestamp, #[serde(borrow)] Bytes<'a>);

#[derive(Deserialize)]
struct Bytes<'a>(#[serde(borrow)] &'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, RECEIPTS_MAX, Receipts, SECONDS};
    use crate::clock::Timestamp;
    use crate::ids::{PageId, RequestKey, Seq};
    use crate::lookup::pages::Pages;
    use crate::spine::machine::Stamp;

    const NOW: Timestamp = Timestamp(1_000_000);

    #[derive(Default)]
    struct Actor {
        receipts: Receipts,
        pages: Pages,
        seq: u64,
    }

    impl Actor {
        fn note(&mut self, id: u128, at: Timestamp, outcome: &str) {
            self.note_of(0, id, at, outcome);
        }

        fn note_of(&mut self, caller: u32, id: u128, at: Timestamp, outcome: &str) {
            self.seq += 1;
            let (seq, fingerprint) = (Seq(self.seq), 7);
            let key = RequestKey { id, fingerprint }.of_caller(caller);
            let entry = Stamp { seq, at };
            self.receipts.note(&mut self.pages, entry, (key, &outcome.to_owned()));
        }

        fn knows(&self, id: u128, at: Timestamp) -> bool {
            let fingerprint = 7;
            self.receipts.find(&RequestKey { id, fingerprint }, at).is_some()
        }

        /// Reads the receipts back from their pages.
        fn again(&mut self) -> Result<Receipts, String> {
            self.pages.begin(Seq(0), Seq(self.seq));
            let mut loaded = Vec::new();
            while let Some((page, _)) = self.pages.next_wanted() {
                let mut content = Vec::new();
                self.receipts.encode(page, &mut content);
                if !content.is_empty() {
                    loaded.extend(Receipts::decode(page, &content)?);
                }
            }
            Receipts::load(loaded)
        }
    }

    #[test]
    fn a_receipt_is_known_for_its_time() {
        let mut actor = Actor::default();
        actor.note(1, NOW, "done");
        let end = NOW.plus_seconds(SECONDS);
        assert!(actor.knows(1, Timestamp(end.0 - 1)));
        assert!(!actor.knows(1, end));
        assert!(!actor.knows(2, NOW), "nothing was done under this key");
        assert_eq!(actor.receipts.len(), 1, "only an entry removes receipts");
        actor.note(2, end, "done");
        assert_eq!(actor.receipts.len(), 1);
        assert!(actor.knows(2, end) && !actor.knows(1, NOW));
    }

    #[test]
    fn only_so_many_receipts_are_kept_and_the_oldest_go_first() {
        let mut actor = Actor::default();
        for id in 0..=u128::from(RECEIPTS_MAX) {
            actor.note(id, NOW, "done");
        }
        assert!(!actor.knows(0, NOW));
        assert!(actor.knows(1, NOW) && actor.knows(RECEIPTS_MAX.into(), NOW));
        assert_eq!(actor.receipts.len(), RECEIPTS_MAX as usize);
        let again = actor.again().expect("a ring that has wrapped around decodes");
        assert_eq!(again.held, actor.receipts.held);
        assert_eq!(again.first, actor.receipts.first);
    }

    #[test]
    fn only_so_many_bytes_are_kept() {
        let mut actor = Actor::default();
        let half = "x".repeat(BYTES_MAX / 2 - 200);
        actor.note(1, NOW, &half);
        actor.note(2, NOW, &half);
        assert!(actor.knows(1, NOW) && actor.knows(2, NOW));
        actor.note(3, NOW, &"x".repeat(500));
        assert!(!actor.knows(1, NOW) && actor.knows(2, NOW) && actor.knows(3, NOW));
        actor.note(4, NOW, &"x".repeat(BYTES_MAX));
        assert!(actor.knows(4, NOW), "the newest is kept whatever its size");
        assert_eq!(actor.receipts.len(), 1);
    }

    #[test]
    fn others_have_half_of_the_room_and_each_a_quarter_and_nobody_is_displaced() {
        let mut actor = Actor::default();
        actor.note_of(RequestKey::TRUSTED, 1, NOW, "done");
        let mut id = 2;
        for caller in [2, 3] {
            let first = id;
            while actor.receipts.has_room((caller, 0), NOW) {
                actor.note_of(caller, id, NOW.plus_seconds(1), "done");
                id += 1;
            }
            assert_eq!(id - first, u128::from(RECEIPTS_MAX / 4), "a quarter of the number");
            assert!(actor.knows(1, NOW) && actor.receipts.has_room((RequestKey::TRUSTED, 0), NOW));
        }
        assert!(!actor.receipts.has_room((4, 0), NOW), "two callers have taken half of it");
        while actor.receipts.has_room((RequestKey::TRUSTED, 0), NOW) {
            actor.note_of(RequestKey::TRUSTED, id, NOW.plus_seconds(1), "done");
            id += 1;
        }
        assert_eq!(actor.receipts.len(), RECEIPTS_MAX as usize, "all room is used");
        assert!(actor.knows(1, NOW));
        // The receipts of a caller are the same after a restart.
        let again = actor.again().expect("the pages decode");
        assert_eq!(again.callers, actor.receipts.callers);
        let later = NOW.plus_seconds(SECONDS + 1);
        for caller in [RequestKey::TRUSTED, 2, 4] {
            assert!(actor.receipts.has_room((caller, 0), later), "{caller}");
        }
        actor.note_of(2, id, later, "done");
        assert_eq!(actor.receipts.len(), 1, "all others have expired");
        assert_eq!(actor.receipts.callers.len(), 1);
    }

    #[test]
    fn others_have_half_of_the_bytes_and_each_a_quarter() {
        let mut actor = Actor::default();
        let outcome = "x".repeat(1 << 20);
        let mut noted = 0;
        for (caller, all) in [(2, 14..=15), (3, 29..=30), (RequestKey::TRUSTED, 59..=60)] {
            while actor.receipts.has_room((caller, 0), NOW) {
                actor.note_of(caller, noted, NOW, &outcome);
                noted += 1;
            }
            assert!(all.contains(&noted), "{noted} of a mebibyte each");
            assert!(!actor.receipts.has_room((4, 0), NOW) || noted < 20);
        }
        assert_eq!(actor.receipts.len() as u128, noted, "none was displaced");
    }

    #[test]
    fn receipts_that_wrap_around_a_shorter_ring_are_read_and_leave_it() {
        let mut actor = Actor::default();
        // As a version of the program with a shorter ring left them.
        actor.receipts.ring = super::Ring(super::FORMER_RING);
        actor.receipts.first = super::FORMER_LAST;
        for id in 0..3 {
            actor.note(id, NOW, "done");
        }
        let again = actor.again().expect("the pages decode");
        assert_eq!((again.first, again.ring), (super::FORMER_LAST, actor.receipts.ring));
        assert_eq!(again.held, actor.receipts.held);
        let later = NOW.plus_seconds(SECONDS);
        actor.note(3, later, "done");
        assert_eq!(actor.receipts.ring, super::Ring::default());
        let again = actor.again().expect("the pages decode");
        assert_eq!(again.held, actor.receipts.held);
        assert_eq!(again.ring, super::Ring::default());
    }

    #[test]
    fn what_is_noted_comes_back_from_pages() {
        let mut actor = Actor::default();
        assert!(actor.again().expect("an empty set of pages decodes").is_empty());
        for (id, later) in [(1, 0), (2, 1), (3, 599), (4, 600), (5, 601)] {
            actor.note(id, NOW.plus_seconds(later), "done");
        }
        let again = actor.again().expect("the page decodes");
        assert_eq!(again.held, actor.receipts.held);
        assert_eq!(again.slots, actor.receipts.slots);
        assert_eq!(again.digest(), actor.receipts.digest());
        assert_eq!((again.bytes, again.len()), (actor.receipts.bytes, 3));
    }

    #[test]
    fn a_checkpoint_has_receipts_as_they_were_when_it_began() {
        let mut actor = Actor::default();
        actor.note(1, NOW, "done");
        let page = PageId::new(PageId::RECEIPTS, 0);
        let mut before = Vec::new();
        actor.receipts.encode(page, &mut before);
        actor.pages.begin(Seq(0), Seq(1));
        actor.note(2, NOW, "done");
        let early = actor.pages.take_early();
        assert_eq!(early.len(), 1);
        assert_eq!((early[0].page, &early[0].content), (page, &before));
    }

    #[test]
    fn pages_that_contradict_each_other_are_refused() {
        let mut actor = Actor::default();
        for id in 0..3 {
            actor.note(id, NOW, "done");
        }
        let page = PageId::new(PageId::RECEIPTS, 0);
        let mut content = Vec::new();
        actor.receipts.encode(page, &mut content);
        let mut loaded = Receipts::decode(page, &content).expect("the page decodes");
        loaded.remove(1);
        assert!(Receipts::load(loaded).is_err(), "a receipt is missing");
        assert!(Receipts::decode(page, b"?").is_err());
        let beyond = PageId::new(PageId::RECEIPTS, RECEIPTS_MAX / 16);
        assert!(Receipts::decode(beyond, &content).is_err());
    }
}
