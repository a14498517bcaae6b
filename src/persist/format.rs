//! The byte layout of the journal: segment headers, record frames, checksums, and the batch that gathers records for one write.
//!
//! Byte layouts are described in `docs/formats.md`. All integers are little-endian.
//! Change rule: any change to a layout must increment [`FORMAT_VERSION`], and add a directory to `snapshots/golden` and a line to
//! `CHANGELOG.md`, under "Formats and protocols".

use crate::clock::Timestamp;
use crate::ids::{ActorId, Seq};

/// The format version that this program writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 2;
/// The first bytes of every segment.
pub const SEGMENT_MAGIC: [u8; 8] = *b"SEXTONJ\0";
/// The size of a segment's header, in bytes.
pub const SEGMENT_HEADER_BYTES: usize = 32;
/// The size of a frame's header, in bytes.
pub const FRAME_HEADER_BYTES: usize = 32;
/// The maximum size of the payload of one frame, in bytes; a longer payload is split into parts, one per frame.
pub const PART_BYTES_MAX: usize = 512 * 1024;
/// The maximum size of a frame, in bytes.
pub const FRAME_BYTES_MAX: usize = FRAME_HEADER_BYTES + PART_BYTES_MAX;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message and its outcome.
    Entry,
    /// A message whose decision or commit panicked: kept as history, never applied.
    Poisoned,
    /// A record about the node itself; see [`Mark`](crate::persist::mark::Mark).
    Mark,
    /// The end of a segment: the log continues in the next one.
    End,
}

impl Kind {
    const fn byte(self) -> u8 {
        match self {
            Self::Entry => 1,
            Self::Poisoned => 2,
            Self::Mark => 3,
            Self::End => 4,
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Entry),
            2 => Some(Self::Poisoned),
            3 => Some(Self::Mark),
            4 => Some(Self::End),
            _ => None,
        }
    }
}

/// The part of a record that a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The whole record.
    Whole,
    /// The first of several parts.
    First,
    /// A part between the first and the last.
    Middle,
    /// The last of several parts.
    Last,
}

impl Part {
    const fn byte(self) -> u8 {
        match self {
            Self::Whole => 0,
            Self::First => 1,
            Self::Middle => 2,
            Self::Last => 3,
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Whole),
            1 => Some(Self::First),
            2 => Some(Self::Middle),
            3 => Some(Self::Last),
            _ => None,
        }
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The size of the header and the payload together, in bytes.
    pub size: u32,
    /// The checksum as stored in the file.
    pub crc: u32,
    /// The sequence number of the record.
    pub seq: Seq,
    /// The node time of the record.
    pub at: Timestamp,
    /// The number of bytes before this frame, in the same segment, that were not yet synced when it was written.
    pub unsynced: u32,
    /// The actor that the record belongs to.
    pub actor: ActorId,
    /// The kind of the record.
    pub kind: Kind,
    /// The part of the record that this frame carries.
    pub part: Part,
}

impl FrameHeader {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        put(&mut bytes, 0, &self.size.to_le_bytes());
        put(&mut bytes, 4, &self.crc.to_le_bytes());
        put(&mut bytes, 8, &self.seq.0.to_le_bytes());
        put(&mut bytes, 16, &self.at.0.to_le_bytes());
        put(&mut bytes, 24, &self.unsynced.to_le_bytes());
        put(&mut bytes, 28, &[self.actor.0, self.kind.byte(), self.part.byte(), 0]);
        bytes
    }

    /// Decodes a header without verifying the checksum. Returns `None` if the bytes cannot be a header.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let size = u32_at(bytes, 0)?;
        let in_bounds = (FRAME_HEADER_BYTES..=FRAME_HEADER_BYTES + PART_BYTES_MAX)
            .contains(&usize::try_from(size).ok()?);
        let header = Self {
            size,
            crc: u32_at(bytes, 4)?,
            seq: Seq(u64_at(bytes, 8)?),
            at: Timestamp(u64_at(bytes, 16)?),
            unsynced: u32_at(bytes, 24)?,
            actor: ActorId(*bytes.get(28)?),
            kind: Kind::from_byte(*bytes.get(29)?)?,
            part: Part::from_byte(*bytes.get(30)?)?,
        };
        (in_bounds && *bytes.get(31)? == 0).then_some(header)
    }
}

/// Returns the header and payload of the frame at the start of `bytes`, if it is complete and its checksum matches.
///
/// The checksum is seeded with the segment's salt, so a client that chooses a payload cannot forge a frame inside it. In a torn tail, a
/// forged frame could falsely show that the bytes before it had been synced.
pub fn frame(bytes: &[u8], salt: u32) -> Option<(FrameHeader, &[u8])> {
    let header = FrameHeader::decode(bytes)?;
    let whole = bytes.get(..header.size as usize)?;
    if frame_crc(whole, salt) != header.crc {
        return None;
    }
    Some((header, whole.get(FRAME_HEADER_BYTES..)?))
}

/// Computes the checksum of a whole frame, seeded with `salt`. It covers everything except the four bytes of the stored checksum.
fn frame_crc(whole: &[u8], salt: u32) -> u32 {
    let (head, tail) = whole.split_at_checked(8).unwrap_or((whole, &[]));
    let head = crc32c::crc32c_append(salt, head.get(..4).unwrap_or(&[]));
    crc32c::crc32c_append(head, tail)
}

/// Encodes a segment header.
pub fn segment_header(ordinal: u64, size: u64, salt: u32) -> [u8; 32] {
    header_of(FORMAT_VERSION, ordinal, size, salt)
}

fn header_of(version: u32, ordinal: u64, size: u64, salt: u32) -> [u8; 32] {
    let size = u32::try_from(size).expect("a segment should be smaller than 4 GiB");
    let mut bytes = [0; 32];
    put(&mut bytes, 0, &SEGMENT_MAGIC);
    put(&mut bytes, 8, &version.to_le_bytes());
    put(&mut bytes, 16, &ordinal.to_le_bytes());
    put(&mut bytes, 24, &size.to_le_bytes());
    put(&mut bytes, 28, &salt.to_le_bytes());
    let crc = header_crc(&bytes);
    put(&mut bytes, 12, &crc.to_le_bytes());
    bytes
}

/// A decoded segment header, or the reason why it cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentHeader {
    /// A header of a supported version.
    Good {
        /// The number of the segment, from 1.
        ordinal: u64,
        /// The length of the segment in bytes.
        size: u64,
        /// The salt of its frames' checksums.
        salt: u32,
        /// The format version of the segment.
        version: u32,
    },
    /// A valid header whose format version, given here, is newer than [`FORMAT_VERSION`].
    TooNew(u32),
    /// Not a header, or a damaged one.
    Bad,
}

impl SegmentHeader {
    /// Decodes the first bytes of a segment.
    pub fn decode(bytes: &[u8]) -> Self {
        let read = || {
            let whole = bytes.get(..32)?;
            let checks = u32_at(bytes, 12)? == header_crc(whole);
            if !checks || whole.get(..8)? != SEGMENT_MAGIC {
                return None;
            }
            let version = u32_at(bytes, 8)?;
            // Every later format must keep the positions of these fields and the checksum of these 32 bytes. The checksum was verified
            // above, so a damaged version number is not mistaken for a newer one.
            if version > FORMAT_VERSION {
                return Some(Self::TooNew(version));
            }
            Some(Self::Good {
                ordinal: u64_at(bytes, 16)?,
                size: u32_at(bytes, 24)?.into(),
                salt: u32_at(bytes, 28)?,
                version,
            })
        };
        read().unwrap_or(Self::Bad)
    }

    /// Reconstructs a damaged header from `bytes`, the first bytes of the segment, which include the first frame if there is one. `ordinal`
    /// and `size` come from the name and length of the file. The version, and one byte of the salt if it is wrong, are found by trial: with
    /// the right values, the stored checksum of the header or of the first frame matches. If only that of the frame does, the version is
    /// assumed to be [`FORMAT_VERSION`]. Returns `None` if no values match.
    pub fn mend(bytes: &[u8], ordinal: u64, size: u64) -> Option<Self> {
        u32::try_from(size).ok()?;
        let (said, salt) = (u32_at(bytes, 12)?, u32_at(bytes, 28)?);
        let flips = (0..4).flat_map(|byte| (1..=255_u32).map(move |flip| flip << (8 * byte)));
        std::iter::once(0).chain(flips).find_map(|flip| {
            let salt = salt ^ flip;
            let frame_agrees =
                bytes.get(SEGMENT_HEADER_BYTES..).is_some_and(|rest| frame(rest, salt).is_some());
            let mut versions = (1..=FORMAT_VERSION).rev();
            let agreeing = |version: &u32| {
                let header = header_of(*version, ordinal, size, salt);
                u32_at(&header, 12) == Some(said)
            };
            let version = versions.find(agreeing);
            let version = version.or(frame_agrees.then_some(FORMAT_VERSION))?;
            Some(Self::Good { ordinal, size, salt, version })
        })
    }
}

fn header_crc(bytes: &[u8]) -> u32 {
    let head = bytes.get(..12).unwrap_or(&[]);
    crc32c::crc32c_append(crc32c::crc32c(head), bytes.get(16..).unwrap_or(&[]))
}

/// Records gathered for one write, in order.
///
/// The checksum and the `unsynced` field of a frame are filled in by [`Batch::seal_frame`] once the frame's position in its segment is
/// known. If the journal thread writes the batch, the core (the thread that runs the actors) therefore spends no time on them.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    last: Seq,
    urgent: bool,
    awaited: bool,
}

impl Batch {
    /// Appends a record that an answer waits for. Calls `payload` to append the record's payload to the buffer.
    pub fn push(&mut self, about: About, payload: impl FnOnce(&mut Vec<u8>)) {
        self.push_transient(about, payload);
        self.awaited = true;
    }

    /// Appends a record that no answer waits for. Calls `payload` to append the record's payload to the buffer.
    pub fn push_transient(&mut self, about: About, payload: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        let header = FrameHeader {
            size: 0,
            crc: 0,
            seq: about.seq,
            at: about.at,
            unsynced: 0,
            actor: about.actor,
            kind: about.kind,
            part: Part::Whole,
        };
        self.bytes.extend_from_slice(&header.encode());
        payload(&mut self.bytes);
        self.last = about.seq;
        let body = self.bytes.len() - start - FRAME_HEADER_BYTES;
        if body <= PART_BYTES_MAX {
            let size = frame_size(body);
            put(&mut self.bytes, start, &size.to_le_bytes());
        } else {
            self.split(start, header);
        }
    }

    /// Encodes the record at `start`, whose payload is too long for one frame, again as several parts.
    fn split(&mut self, start: usize, header: FrameHeader) {
        let payload = self.bytes.split_off(start + FRAME_HEADER_BYTES);
        self.bytes.truncate(start);
        let parts = payload.chunks(PART_BYTES_MAX);
        let count = parts.len();
        for (i, part) in parts.enumerate() {
            let kind = match i {
                0 => Part::First,
                _ if i + 1 == count => Part::Last,
                _ => Part::Middle,
            };
            let header = FrameHeader { size: frame_size(part.len()), part: kind, ..header };
            self.bytes.extend_from_slice(&header.encode());
            self.bytes.extend_from_slice(part);
        }
    }

    /// Requires this batch to be synced, regardless of the durability policy.
    pub fn make_urgent(&mut self) {
        self.urgent = true;
    }

    /// Returns whether the batch must be synced regardless of the durability policy.
    pub fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Returns whether any answer waits for the batch.
    pub fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// Appends the records of `later`.
    pub fn merge(&mut self, later: &Self) {
        self.bytes.extend_from_slice(&later.bytes);
        self.last = self.last.max(later.last);
        self.urgent |= later.urgent;
        self.awaited |= later.awaited;
    }

    /// Returns whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the number of bytes to write.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the last sequence number in the batch, or zero if the batch is empty.
    pub fn last(&self) -> Seq {
        self.last
    }

    /// Returns the bytes from `start` on.
    pub fn bytes_from(&self, start: usize) -> &[u8] {
        self.bytes.get(start..).unwrap_or(&[])
    }

    /// Returns the size of the frame at `start` in bytes, or `None` at the end of the batch.
    pub fn frame_size_at(&self, start: usize) -> Option<usize> {
        u32_at(&self.bytes, start).map(|size| size as usize)
    }

    /// Fills in the fields of the frame at `start` that depend on its position in the segment: the number of unsynced bytes before it, and
    /// the checksum.
    pub fn seal_frame(&mut self, start: usize, unsynced: u32, salt: u32) {
        let size = self.frame_size_at(start).expect("a frame should begin at the given offset");
        put(&mut self.bytes, start + 24, &unsynced.to_le_bytes());
        let whole =
            self.bytes.get(start..start + size).expect("the batch should contain the whole frame");
        let crc = frame_crc(whole, salt);
        put(&mut self.bytes, start + 4, &crc.to_le_bytes());
    }

    /// Empties the batch, but keeps its allocated memory for reuse.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.last = Seq::default();
        self.urgent = false;
        self.awaited = false;
    }
}

/// The properties common to all records.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The sequence number.
    pub seq: Seq,
    /// The node time.
    pub at: Timestamp,
    /// The actor that the record belongs to.
    pub actor: ActorId,
    /// The kind of the record.
    pub kind: Kind,
}

fn frame_size(payload: usize) -> u32 {
    u32::try_from(FRAME_HEADER_BYTES + payload)
        .expect("a part should have at most PART_BYTES_MAX bytes")
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes
        .get_mut(at..at + value.len())
        .expect("a field should be inside its header")
        .copy_from_slice(value);
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
