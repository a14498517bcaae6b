//! The part of a process's output that is stored in its record. Stored: see the change rule in `persist/format.rs`.

use crate::bytes::{self, Bytes};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;

/// The output that a process wrote to a file: its size, and its first and last bytes.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Stored")]
pub struct Output {
    /// The number of bytes written.
    pub bytes: u64,
    /// The first bytes (the head), followed by the last (the tail), in one allocation.
    shown: Box<[u8]>,
    /// The length of the head.
    head: u32,
}

/// The stored form of [`Output`].
#[derive(Default, Deserialize)]
#[serde(default, rename = "Output")]
struct Stored {
    bytes: u64,
    head: Bytes,
    tail: Bytes,
}

impl Output {
    /// The maximum length of head and tail together, in bytes, which is a size class of common allocators. An output that is not longer is
    /// shown as a whole, as its head.
    pub const SHOWN_BYTES: usize = 224;
    /// The length of the tail of a longer output, in bytes. The rest of [`Self::SHOWN_BYTES`] is the head.
    pub const TAIL_BYTES: usize = 160;

    /// Creates the summary of an output of `bytes` bytes with this head and tail.
    pub fn new(bytes: u64, head: &[u8], tail: &[u8]) -> Self {
        Self {
            bytes,
            shown: [head, tail].concat().into(),
            head: u32::try_from(head.len()).expect("the head should be short"),
        }
    }

    /// Returns the first bytes.
    pub fn head(&self) -> &[u8] {
        self.parts().0
    }

    /// Returns the last bytes after the head; empty if the head is the whole output.
    pub fn tail(&self) -> &[u8] {
        self.parts().1
    }

    fn parts(&self) -> (&[u8], &[u8]) {
        self.shown.split_at(self.head as usize)
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (head, tail) = (self.head().len(), self.tail().len());
        write!(f, "{} bytes, the first {head} and the last {tail} shown", self.bytes)
    }
}

impl From<Stored> for Output {
    fn from(stored: Stored) -> Self {
        Self::new(stored.bytes, stored.head.as_bytes(), stored.tail.as_bytes())
    }
}

impl Serialize for Output {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut output = serializer.serialize_struct("Output", 3)?;
        output.serialize_field("bytes", &self.bytes)?;
        output.serialize_field("head", &bytes::Slice(self.head()))?;
        output.serialize_field("tail", &bytes::Slice(self.tail()))?;
        output.end()
    }
}
