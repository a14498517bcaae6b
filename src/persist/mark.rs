//! What the node notes about itself in the journal, and what that comes to.
//!
//! Change rule: see `persist/format.rs`.

use crate::ids::{ActorId, Chance, Digest, Seq};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the node notes about itself in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// The coordinator started: every span begins again, every connection of before has ended.
    Start {
        /// The chance from which ids and random choices derive until the next start.
        chance: Chance,
        /// Wall clock less node time, in milliseconds.
        offset_ms: i64,
        /// Version of the program.
        program: String,
        /// Sequence numbers passed over since the stop before was no clean one.
        #[serde(default)]
        skipped: u64,
        /// See [`Marked::believed`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        believed: Option<i64>,
    },
    /// The coordinator stopped in good order; everything before this is on disk.
    Stop,
    /// The wall clock stepped: the new difference from node time, in milliseconds.
    Clock {
        /// Wall clock less node time.
        offset_ms: i64,
        /// See [`Marked::believed`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        believed: Option<i64>,
    },
    /// Sequence numbers below the bound may be handed out from when this is durable.
    Reserve {
        /// The first number that may not.
        bound: Seq,
    },
    /// An actor goes by other rules from here on.
    Rules {
        /// Which actor.
        actor: ActorId,
        /// Its rules, as rmp-serde writes them: hexadecimal digits in exports.
        #[serde(with = "hex")]
        rules: Vec<u8>,
    },
    /// An actor takes nothing new on until the next start.
    Drain {
        /// Which actor.
        actor: ActorId,
        /// What it takes on no more.
        draining: Draining,
    },
    /// A snapshot is whole on disk: what came before it is no longer needed from here.
    Checkpoint {
        /// Where the snapshot stands.
        slot: u8,
        /// What it holds, actor by actor.
        states: Vec<Watermark>,
    },
}

/// What an actor takes on no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Draining {
    /// It drains not: it takes on everything.
    #[default]
    No,
    /// Nothing is added; what is there is still handed out.
    Additions,
    /// Nothing is added, and nothing handed out: what is held comes to its end.
    All,
}

impl Draining {
    /// Whether nothing is added.
    pub fn has_begun(self) -> bool {
        self != Self::No
    }
}

/// Up to where a snapshot holds the state of an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watermark {
    /// Whose state.
    pub actor: ActorId,
    /// The last entry that it rests on.
    pub upto: Seq,
    /// What the state sums up to.
    pub digest: Digest,
}

/// What the marks of a log come to: the state of the node itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marked {
    /// The chance of the newest start.
    pub chance: Chance,
    /// Wall clock less node time, in milliseconds.
    pub offset_ms: i64,
    /// The actors that take nothing new on.
    pub draining: BTreeMap<ActorId, Draining>,
    /// The rules that each actor goes by, as rmp-serde writes them.
    pub rules: BTreeMap<ActorId, Vec<u8>>,
    /// While the wall clock is in doubt, being far ahead of what was expected: what it was expected to show, less node
    /// time, in milliseconds. No date removes anything then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub believed: Option<i64>,
}

impl Marked {
    /// What this actor takes on no more.
    pub fn draining(&self, actor: ActorId) -> Draining {
        self.draining.get(&actor).copied().unwrap_or_default()
    }

    /// Follows a mark.
    pub fn apply(&mut self, mark: &Mark) {
        match mark {
            Mark::Start {
                chance,
                offset_ms,
                believed,
                ..
            } => {
                self.chance = *chance;
                (self.offset_ms, self.believed) = (*offset_ms, *believed);
                self.draining.clear();
            }
            Mark::Clock {
                offset_ms,
                believed,
            } => (self.offset_ms, self.believed) = (*offset_ms, *believed),
            Mark::Rules { actor, rules } => {
                self.rules.insert(*actor, rules.clone());
            }
            Mark::Drain { actor, draining } => {
                self.draining.insert(*actor, *draining);
            }
            Mark::Stop | Mark::Reserve { .. } | Mark::Checkpoint { .. } => {}
        }
    }
}

/// Bytes where a program reads, hexadecimal digits where a human does.
mod hex {
    use serde::{Deserialize as _, Deserializer, Serializer, de};
    use std::fmt::Write as _;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            let mut digits = String::with_capacity(2 * bytes.len());
            for byte in bytes {
                let _ = write!(digits, "{byte:02x}");
            }
            serializer.serialize_str(&digits)
        } else {
            serializer.serialize_bytes(bytes)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        if !deserializer.is_human_readable() {
            return serde_bytes(deserializer);
        }
        let digits = String::deserialize(deserializer)?;
        let pairs = digits.as_bytes().chunks(2);
        let byte = |pair: &[u8]| {
            let digits = std::str::from_utf8(pair)
                .ok()
                .filter(|digits| digits.len() == 2)?;
            u8::from_str_radix(digits, 16).ok()
        };
        let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
        bytes.ok_or_else(|| de::Error::custom("bytes are pairs of hexadecimal digits"))
    }

    fn serde_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        struct Bytes;

        impl de::Visitor<'_> for Bytes {
            type Value = Vec<u8>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }
        }

        deserializer.deserialize_byte_buf(Bytes)
    }
}
