//! The identifiers that cross module borders, each a type of its own so that none can stand for another.
//!
//! Promises: a [`Seq`] or [`Token`] is handed out once in the life of a data directory.
//! Never here: any rule about who may use them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A sequence number: the place of an entry in the journal, and the order of everything.
///
/// Numbers only grow within a data directory; gaps are legal. Zero stands before the first entry.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A fencing token: the sequence number of the entry that granted something.
///
/// A later grant has a larger token, whatever was lost in between, so a resource that remembers the largest
/// token it has seen can turn away a holder whose right has passed on.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Token(pub u64);

impl From<Seq> for Token {
    fn from(seq: Seq) -> Self {
        Self(seq.0)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One actor of the node, as journal records name it. Zero is the node itself; 200 and above are for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ActorId(pub u8);

impl ActorId {
    /// The node: the actor of marks.
    pub const NODE: Self = Self(0);
    /// The LockActor.
    pub const LOCK: Self = Self(1);
    /// The `QueueActor`.
    pub const QUEUE: Self = Self(2);
    /// The `SupervisorActor`.
    pub const SUPERVISOR: Self = Self(3);
}

impl fmt::Display for ActorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One open request that waits for something to become true. Means something only to the process that gave it: in the
/// journal it says that somebody waited, no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ticket(pub u64);

/// The place of an item in an actor's slab, at most `u32::MAX - 1`.
///
/// Slots are part of durable state: a decision names the slots it speaks of, so a replay need not search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(pub u32);

impl Slot {
    /// Stands for "no slot" inside intrusive lists.
    pub const NONE: Self = Self(u32::MAX);

    /// The slot as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One page of an actor's durable state. Page 0 holds what the actor has but once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageId(pub u32);

impl PageId {
    /// The page of what an actor has but once.
    pub const HEAD: Self = Self(0);
    /// The bits above this say which kind of page it is, for machines that have several.
    pub const AREA_SHIFT: u32 = 30;

    /// Its kind.
    pub const fn area(self) -> usize {
        (self.0 >> Self::AREA_SHIFT) as usize
    }

    /// Its place among those of its kind.
    pub const fn in_area(self) -> usize {
        (self.0 & ((1 << Self::AREA_SHIFT) - 1)) as usize
    }

    /// The number of the first page of the next kind, whether or not there is one.
    pub const fn next_area(self) -> u64 {
        (self.0 as u64 >> Self::AREA_SHIFT).wrapping_add(1) << Self::AREA_SHIFT
    }
}

/// A sum of item hashes, equal for equal durable state whatever its layout in memory.
///
/// Each item is hashed with XXH3 (128 bits, seed 0) and the hashes are added modulo 2^128, so items may come and go
/// in any order.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Digest(pub u128);

impl Digest {
    /// Adds the item whose canonical bytes these are.
    pub fn add(&mut self, item: &[u8]) {
        self.0 = self.0.wrapping_add(xxhash_rust::xxh3::xxh3_128(item));
    }

    /// Adds the items of another sum.
    pub fn merge(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }

    /// Takes out the item whose canonical bytes these are.
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

/// Hexadecimal digits where a human reads, 16 little-endian bytes elsewhere.
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
            .ok_or_else(|| serde::de::Error::custom("a digest is 32 hexadecimal digits"))
    }
}

/// 32 random bytes, from which all that looks random to a machine derives. Bytes in the journal, hexadecimal digits in exports.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Chance(pub [u8; 32]);

impl fmt::Debug for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
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
        let text = String::deserialize(deserializer)?;
        let mut chance = [0; 32];
        let bad = || serde::de::Error::custom("chance is 64 hexadecimal digits");
        if text.len() != 64 || !text.is_ascii() {
            return Err(bad());
        }
        for (place, digits) in chance.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| bad())?;
            *place = u8::from_str_radix(digits, 16).map_err(|_| bad())?;
        }
        Ok(Self(chance))
    }
}
