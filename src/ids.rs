//! Identifiers used across modules, each a distinct type, so that one cannot be passed in place of another.
//!
//! Each [`Seq`] and each [`Token`] is issued only once in the life of a data directory. Whether a token is still valid is decided by the
//! state machine whose entry issued it.

use serde::{Deserialize, Serialize};
use std::fmt;

pub use sexton_api::ids::{Seq, Token};

/// The number that identifies an actor in journal records. Zero is the node itself; 200 and above are for tests. Each machine defines its
/// number (`Machine::ID`); the numbers that other code refers to are listed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ActorId(pub u8);

impl ActorId {
    /// The node itself, in its own journal records (marks), such as those of a start or a stop.
    pub const NODE: Self = Self(0);
    /// The `LockActor`.
    pub const LOCK: Self = Self(1);
    /// The `QueueActor`.
    pub const QUEUE: Self = Self(2);
    /// The `SupervisorActor`.
    pub const SUPERVISOR: Self = Self(3);
    /// The `ProcessActor`. Number 4 belonged to a demonstration actor and is not reused.
    pub const PROCESS: Self = Self(5);
    /// The `LeaseActor`.
    pub const LEASE: Self = Self(6);
    /// The `DispatchActor`.
    pub const DISPATCH: Self = Self(7);
}

impl fmt::Display for ActorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of an open request that waits for a condition. It is meaningful only to the process that issued it; in the journal it merely
/// records that a client waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ticket(pub u64);

/// The index of an item in an actor's slab, at most `u32::MAX - 1`.
///
/// Slots are part of durable state: a decision names the slots it affects, so a replay need not search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(pub u32);

impl Slot {
    /// Means "no slot" inside intrusive lists.
    pub const NONE: Self = Self(u32::MAX);

    /// Returns the slot as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of one page of an actor's durable state, as stored on disk: its kind, and its index among the pages of that kind. Page 0
/// holds the actor's singleton state.
///
/// Kinds 0 to 2 have a quarter of the numbers each, and kind 3 the lower half of the last quarter. The upper half is divided equally
/// among kinds 4 to 19. So numbers ascend by kind, then by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageId(pub u32);

impl PageId {
    /// The page of an actor's singleton state.
    pub const HEAD: Self = Self(0);
    /// The number of page kinds.
    pub const KINDS: usize = 20;
    /// The kind reserved for the spine's receipts; no machine uses it.
    pub const RECEIPTS: u8 = 19;

    const LARGE: u8 = 4;
    const LARGE_BITS: u32 = 30;
    const SMALL_BITS: u32 = 25;
    const FIRST_SMALL: u32 = u32::MAX << 29;

    /// Returns the page of this `kind` and `index`.
    ///
    /// # Panics
    /// Panics unless `kind` is below [`KINDS`](Self::KINDS) and `index` is below [`len(kind)`](Self::len).
    pub const fn new(kind: u8, index: u32) -> Self {
        assert!(
            (kind as usize) < Self::KINDS && index < Self::len(kind),
            "the kind exists and has a page with this index"
        );
        if kind < Self::LARGE {
            Self((kind as u32) << Self::LARGE_BITS | index)
        } else {
            let small = (kind - Self::LARGE) as u32;
            Self(Self::FIRST_SMALL | small << Self::SMALL_BITS | index)
        }
    }

    /// Returns the maximum number of pages of a kind.
    pub const fn len(kind: u8) -> u32 {
        match kind {
            0..3 => 1 << Self::LARGE_BITS,
            3 => 1 << (Self::LARGE_BITS - 1),
            _ => 1 << Self::SMALL_BITS,
        }
    }

    /// Returns the page's kind.
    pub const fn kind(self) -> u8 {
        let kind = if self.0 < Self::FIRST_SMALL {
            self.0 >> Self::LARGE_BITS
        } else {
            ((self.0 - Self::FIRST_SMALL) >> Self::SMALL_BITS) + Self::LARGE as u32
        };
        kind.to_le_bytes()[0]
    }

    /// Returns the page's index among the pages of its kind.
    pub const fn index(self) -> u32 {
        self.0 & (Self::len(self.kind()) - 1)
    }
}

/// A sum of item hashes: equal for equal durable state, whatever its layout in memory.
///
/// Each item is hashed with XXH3 (128 bits, seed 0) and the hashes are added modulo 2^128, so the order in which items are added and
/// removed does not matter.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Digest(pub u128);

impl Digest {
    /// Adds the item whose canonical bytes are `item`.
    pub fn add(&mut self, item: &[u8]) {
        self.0 = self.0.wrapping_add(xxhash_rust::xxh3::xxh3_128(item));
    }

    /// Adds the items of another digest.
    pub fn merge(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }

    /// Replaces the items of one digest by those of another.
    pub fn exchange(&mut self, before: Self, after: Self) {
        self.0 = self.0.wrapping_sub(before.0).wrapping_add(after.0);
    }

    /// Removes the item whose canonical bytes are `item`.
    pub fn remove(&mut self, item: &[u8]) {
        self.0 = self.0.wrapping_sub(xxhash_rust::xxh3::xxh3_128(item));
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Serialized as hexadecimal digits in human-readable formats, and as 16 little-endian bytes in others.
impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.to_le_bytes().serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return <[u8; 16]>::deserialize(deserializer)
                .map(|bytes| Self(u128::from_le_bytes(bytes)));
        }
        let text = String::deserialize(deserializer)?;
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u128::from_str_radix(&text, 16)
            .ok()
            .filter(|_| digits)
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom("expected a digest of 32 hexadecimal digits"))
    }
}

/// Serializes 128-bit numbers: as hexadecimal digits in human-readable formats, because many JSON parsers do not support numbers that wide,
/// and as numbers in other formats. To be used with `#[serde(with = "crate::ids::wide")]`.
pub(crate) mod wide {
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(&format_args!("{value:032x}"))
        } else {
            serializer.serialize_u128(*value)
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        if !from.is_human_readable() {
            return u128::deserialize(from);
        }
        let text = String::deserialize(from)?;
        u128::from_str_radix(&text, 16).map_err(serde::de::Error::custom)
    }
}

/// Like [`wide`], for an optional number.
pub(crate) mod wide_option {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Wide(#[serde(with = "super::wide")] u128);

    #[expect(clippy::ref_option, reason = "serde passes a reference")]
    pub(crate) fn serialize<S: Serializer>(
        value: &Option<u128>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(Wide).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<u128>, D::Error> {
        let found = Option::<Wide>::deserialize(from)?;
        Ok(found.map(|Wide(value)| value))
    }
}

/// 32 random bytes, from which a machine derives its pseudo-random values. Serialized as bytes in the journal and as hexadecimal digits in
/// exports.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Chance(pub [u8; 32]);

impl fmt::Debug for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_digits(&self.0, f)
    }
}

impl Serialize for Chance {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(&format_args!("{self:?}"))
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Chance {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return <[u8; 32]>::deserialize(deserializer).map(Self);
        }
        read_digits(&String::deserialize(deserializer)?)
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom("expected 64 hexadecimal digits"))
    }
}
/// The idempotency key of a message; a repetition of the message carries the same key. It identifies the client and the request by digests
/// alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestKey {
    /// A single digest of three things: the client, the key that it chose, and the position of this message in the request.
    pub id: u128,
    /// The number of the caller, in the upper 32 bits, and a digest of the request's content in the others. If the same key arrives with a
    /// different digest, it was reused for a different request.
    pub fingerprint: u128,
}

impl RequestKey {
    /// The part of a fingerprint that is a digest.
    const DIGEST: u128 = u128::MAX >> 32;

    /// Returns the key of message number `message` of a request, counting from 0. Ids are effectively random, so they do not collide
    /// with those of other requests.
    #[must_use]
    pub const fn nth(self, message: u64) -> Self {
        Self { id: self.id.wrapping_add(message as u128), ..self }
    }

    /// The number of all callers that may run commands on the machine, such as the coordinator's own user. It was that of root alone.
    pub const TRUSTED: u32 = 1;

    /// Returns this key as one of the caller with this number. It is stored in the upper 32 bits of the fingerprint.
    #[must_use]
    pub const fn of_caller(self, caller: u32) -> Self {
        let digest = self.fingerprint & Self::DIGEST;
        Self { fingerprint: (caller as u128) << 96 | digest, ..self }
    }

    /// Returns the number of the caller. Keys that an older version of the program stored have random ones.
    pub const fn caller(self) -> u32 {
        (self.fingerprint >> 96) as u32
    }

    /// Returns whether both keys were used for requests with the same content.
    pub const fn has_content_of(self, other: Self) -> bool {
        (self.fingerprint ^ other.fingerprint) & Self::DIGEST == 0
    }

    /// Returns the id, then the fingerprint, both little-endian.
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        let (id, fingerprint) = bytes.split_at_mut(16);
        id.copy_from_slice(&self.id.to_le_bytes());
        fingerprint.copy_from_slice(&self.fingerprint.to_le_bytes());
        bytes
    }

    /// Reads a key as [`to_bytes`](Self::to_bytes) writes it; `None` unless `bytes` is 32 bytes long.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (id, fingerprint) = bytes.split_first_chunk()?;
        Some(Self {
            id: u128::from_le_bytes(*id),
            fingerprint: u128::from_le_bytes(fingerprint.try_into().ok()?),
        })
    }
}

impl fmt::Debug for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_digits(&self.to_bytes(), f)
    }
}

/// Serialized as hexadecimal digits in human-readable formats, and as bytes in others.
impl Serialize for RequestKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(&format_args!("{self:?}"))
        } else {
            serializer.serialize_bytes(&self.to_bytes())
        }
    }
}

impl<'de> Deserialize<'de> for RequestKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let bytes: [u8; 32] = read_digits(&String::deserialize(deserializer)?)
                .ok_or_else(|| serde::de::Error::custom("expected 64 hexadecimal digits"))?;
            return Self::from_bytes(&bytes)
                .ok_or_else(|| serde::de::Error::custom("expected a request key of 32 bytes"));
        }
        deserializer.deserialize_bytes(RequestKeyBytes)
    }
}

struct RequestKeyBytes;

impl serde::de::Visitor<'_> for RequestKeyBytes {
    type Value = RequestKey;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request key of 32 bytes")
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<RequestKey, E> {
        RequestKey::from_bytes(bytes).ok_or_else(|| E::invalid_length(bytes.len(), &self))
    }
}

fn write_digits(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Decodes 64 hexadecimal digits; `None` if `text` is anything else.
fn read_digits(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; 32];
    for (place, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digits = std::str::from_utf8(digits).ok()?;
        *place = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::PageId;

    #[test]
    fn every_number_is_a_page_of_one_kind() {
        let mut next = 0;
        for kind in 0..PageId::KINDS {
            let kind = u8::try_from(kind).expect("a kind fits into a byte");
            let last = PageId::len(kind) - 1;
            for index in [0, 1, last / 3, last] {
                let page = PageId::new(kind, index);
                assert_eq!(u64::from(page.0), next + u64::from(index));
                assert_eq!((page.kind(), page.index()), (kind, index));
            }
            next += u64::from(PageId::len(kind));
        }
        assert_eq!(next, 1 << 32, "every page number belongs to a kind");
    }

    #[test]
    fn the_kinds_of_format_1_are_where_they_were() {
        for kind in 0..4 {
            let page = PageId::new(kind, 5);
            assert_eq!(page, PageId(u32::from(kind) << 30 | 5));
        }
    }
}

/// The id of a process record: a UUID of version 7, never reused. A command that runs again gets a new record and a new id.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u128);

impl ProcessId {
    /// Creates an id from the wall clock, in milliseconds since 1970, and from random bits, of which 74 are used (RFC 9562, 5.7).
    pub const fn new(wall_ms: u64, chance: u128) -> Self {
        const VERSION: u128 = 7 << 76;
        const VARIANT: u128 = 2 << 62;
        let time = (wall_ms as u128 & 0xffff_ffff_ffff) << 80;
        let high = (chance >> 62 & 0xfff) << 64;
        let low = chance & 0x3fff_ffff_ffff_ffff;
        Self(time | VERSION | high | VARIANT | low)
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let mut rest = digits.as_str();
        for length in [8, 4, 4, 4] {
            let (part, after) = rest.split_at(length);
            write!(f, "{part}-")?;
            rest = after;
        }
        f.write_str(rest)
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for ProcessId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong =
            "a process id has 32 hexadecimal digits, as in 0192f5e0-7a4b-7c11-9d2e-5f6a7b8c9d0e";
        let parts: Vec<&str> = text.split('-').collect();
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        let digits = parts.concat();
        if !matches!(lengths.as_slice(), [32] | [8, 4, 4, 4, 12])
            || !digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        {
            return Err(wrong);
        }
        u128::from_str_radix(&digits, 16).map(Self).map_err(|_| wrong)
    }
}

impl Serialize for ProcessId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.to_be_bytes().serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for ProcessId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return <[u8; 16]>::deserialize(deserializer)
                .map(|bytes| Self(u128::from_be_bytes(bytes)));
        }
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Ids have the layout of RFC 9562. They parse with or without hyphens, and any other text is rejected.
#[test]
fn process_ids_are_uuids_of_version_7() {
    let id = ProcessId::new(0x0192_f5e0_7a4b, u128::MAX);
    let text = "0192f5e0-7a4b-7fff-bfff-ffffffffffff";
    assert_eq!(id.to_string(), text);
    assert_eq!(text.parse(), Ok(id));
    assert_eq!(text.replace('-', "").parse(), Ok(id));
    for wrong in ["", "x", "0192f5e07a4b-7fff-bfff-ffffffffffff", &text[1..]] {
        assert!(wrong.parse::<ProcessId>().is_err(), "{wrong}");
    }
    assert!(ProcessId::new(1, 0) < ProcessId::new(2, 0), "ids sort by creation time");
}
