//! What can be asked of the tally, what can come of it, and what is answered. Messages, outcomes and counters are stored:
//! see the change rule in `persist/format.rs`.

use crate::clock::{Deadline, Timestamp};
use crate::ids::Slot;
use crate::lookup::kept::Plain;
use crate::spine::machine::Refusal;
use serde::{Deserialize, Serialize};

/// What the configuration says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Counters at most. Each message looks through all of them.
    pub counters_max: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self { counters_max: 1000 }
    }
}

/// The name of a counter: text of 1 to 100 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Name(String);

impl Name {
    /// The longest name.
    pub const BYTES_MAX: usize = 100;

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = &'static str;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        if (1..=Self::BYTES_MAX).contains(&name.len()) {
            Ok(Self(name))
        } else {
            Err("must be text of 1 to 100 bytes")
        }
    }
}

/// A counter. At zero it is as good as none, and another may have its slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// What it is called.
    pub name: Name,
    /// How far it has come.
    pub value: u64,
    /// When it was last added to; the newest start, if that is later.
    pub since: Timestamp,
    /// Milliseconds from then until it is forgotten; 0 for never.
    pub ttl_ms: u32,
}

impl Plain for Counter {
    const KIND: u8 = 0;

    fn deadline(&self, _epoch: Timestamp) -> Option<Deadline> {
        let ends = self.since.plus_ms(self.ttl_ms.into());
        (self.value > 0 && self.ttl_ms > 0).then_some(Deadline::Time(ends))
    }
}

/// What may change a counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// Adds to a counter, which begins at zero, and begins its span again.
    Add {
        /// Which.
        name: Name,
        /// How much; 0 adds nothing.
        by: u32,
        /// See [`Counter::ttl_ms`].
        ttl_ms: u32,
    },
    /// Time forgets a counter.
    Lapse {
        /// Where it is.
        slot: Slot,
    },
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The counter in this slot comes to this.
    Counted {
        /// Where it is.
        slot: Slot,
        /// How far it comes.
        value: u64,
    },
    /// The counter is forgotten.
    Lapsed,
    /// Nothing changes.
    Refused(Refused),
}

/// Why nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// There are as many counters as there may be.
    Full,
    /// Nothing was added.
    Nothing,
    /// The disk is full.
    DiskFull,
    /// The key came before, with another request.
    KeyReused,
}

/// A question that changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// How far a counter has come.
    Read(Name),
}

/// An answer of the tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A counter was added to, and comes to this.
    Counted(u64),
    /// Time has forgotten a counter.
    Lapsed,
    /// A counter stands at this; at zero if it is not there.
    Value(u64),
    /// Not done, and why.
    Refused(Refused),
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(match refusal {
            Refusal::DiskFull => Refused::DiskFull,
            Refusal::KeyReused => Refused::KeyReused,
        })
    }
}
