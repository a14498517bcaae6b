//! Marks, which are the node's records about itself in the journal, and the state that results from them.
//!
//! Change rule: see `persist/format.rs`.

use crate::ids::{ActorId, Chance, Digest, Seq};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A record in the journal about the node itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// The coordinator started: every span (a length of time, such as a TTL) begins again, and every earlier connection has ended.
    Start {
        /// The random bytes from which ids and random choices are derived until the next startup.
        chance: Chance,
        /// The wall clock minus node time, in milliseconds.
        offset_ms: i64,
        /// The version of the program.
        program: String,
        /// The number of sequence numbers that were skipped because the previous run did not stop cleanly.
        #[serde(default)]
        skipped: u64,
        /// See [`Marked::believed`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        believed: Option<i64>,
    },
    /// The coordinator stopped cleanly; everything before this is on disk.
    Stop,
    /// The wall clock stepped, or is trusted again after it was in doubt.
    Clock {
        /// The wall clock minus node time from here on, in milliseconds.
        offset_ms: i64,
        /// See [`Marked::believed`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        believed: Option<i64>,
    },
    /// Sequence numbers below the bound may be handed out once this is durable.
    Reserve {
        /// The first number that must not be handed out yet.
        bound: Seq,
    },
    /// From here on, an actor decides by these rules, the settings that affect its decisions.
    Rules {
        actor: ActorId,
        /// The rules, as encoded by rmp-serde; shown as hexadecimal digits in exports.
        #[serde(with = "hex")]
        rules: Vec<u8>,
    },
    /// An actor refuses some or all new work until the next startup.
    Drain {
        actor: ActorId,
        /// The kinds of work that it refuses.
        draining: Draining,
    },
    /// A snapshot is complete on disk and is about to be sealed. Recovery from it does not need the records that it covers.
    Checkpoint {
        /// The slot that contains the snapshot: 0 for `a`, 1 for `b`.
        slot: u8,
        /// How far the snapshot covers the state of each actor.
        states: Vec<Watermark>,
    },
}

/// The kinds of work that an actor refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Draining {
    /// None: the actor is not draining.
    #[default]
    No,
    /// Nothing is added, but what exists is still handed out.
    Additions,
    /// Nothing is added or handed out; work already held may finish.
    All,
}

impl Draining {
    /// Returns whether additions are refused.
    pub fn has_begun(self) -> bool {
        self != Self::No
    }
}

/// How far a snapshot covers the state of an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watermark {
    /// The actor.
    pub actor: ActorId,
    /// The last entry that the actor's state in the snapshot reflects.
    pub upto: Seq,
    /// The digest of that state.
    pub digest: Digest,
}

/// The state of the node itself: the result of applying the marks of a log in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marked {
    /// The random bytes of the last startup.
    pub chance: Chance,
    /// The wall clock minus node time, in milliseconds.
    pub offset_ms: i64,
    /// The kinds of work that each draining actor refuses.
    pub draining: BTreeMap<ActorId, Draining>,
    /// The rules of each actor, as encoded by rmp-serde.
    pub rules: BTreeMap<ActorId, Vec<u8>>,
    /// The expected wall-clock time minus node time, in milliseconds, while the wall clock is more than a day ahead of the expected time
    /// and therefore in doubt; otherwise `None`. While the clock is in doubt, nothing is removed merely because its
    /// date has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub believed: Option<i64>,
}

impl Marked {
    /// Returns the kinds of work that this actor refuses.
    pub fn draining(&self, actor: ActorId) -> Draining {
        self.draining.get(&actor).copied().unwrap_or_default()
    }

    /// Applies a mark.
    pub fn apply(&mut self, mark: &Mark) {
        match mark {
            Mark::Start { chance, offset_ms, believed, .. } => {
                self.chance = *chance;
                (self.offset_ms, self.believed) = (*offset_ms, *believed);
                self.draining.clear();
            }
            Mark::Clock { offset_ms, believed } => {
                (self.offset_ms, self.believed) = (*offset_ms, *believed);
            }
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

/// Serializes bytes as hexadecimal digits in human-readable formats, and unchanged in others.
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
            let digits = std::str::from_utf8(pair).ok().filter(|digits| digits.len() == 2)?;
            u8::from_str_radix(digits, 16).ok()
        };
        let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
        bytes.ok_or_else(|| de::Error::custom("expected pairs of hexadecimal digits"))
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
