//! The journal's bytes: segment headers, record frames, checksums, and the batch that gathers records for one write.
//!
//! Byte layouts are told in `docs/formats.md`. All integers are little-endian.
//! Change rule: any change of layout raises [`FORMAT_VERSION`], adds a golden directory and a CHANGELOG line under
//! "Formats".

use crate::clock::Timestamp;
use crate::ids::{ActorId, Seq};

/// The version this program writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 2;
/// The first bytes of every segment.
pub const SEGMENT_MAGIC: [u8; 8] = *b"SEXTONJ\0";
/// Bytes before the first record of a segment.
pub const SEGMENT_HEADER_BYTES: usize = 32;
/// Bytes before a record's payload.
pub const FRAME_HEADER_BYTES: usize = 32;
/// The largest payload of one frame; longer ones go in parts.
pub const PART_BYTES_MAX: usize = 512 * 1024;
/// The most bytes of a frame.
pub const FRAME_BYTES_MAX: usize = FRAME_HEADER_BYTES + PART_BYTES_MAX;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message and what was decided about it.
    Entry,
    /// A message whose decision or commit panicked: history, never applied.
    Poisoned,
    /// Something of the node itself, see [`Mark`](crate::persist::mark::Mark).
    Mark,
    /// The end of a full segment: the log goes on in the next one.
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

/// Which part of a record a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// The first of several.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several.
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

/// A frame header, read or to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of header and payload together.
    pub size: u32,
    /// The checksum as it stands in the file.
    pub crc: u32,
    /// Sequence number of the record.
    pub seq: Seq,
    /// Node time of the record.
    pub at: Timestamp,
    /// How many bytes before this frame were not yet synced when it was written.
    pub unsynced: u32,
    /// Whose record it is.
    pub actor: ActorId,
    /// What it is.
    pub kind: Kind,
    /// Which part of it.
    pub part: Part,
}

impl FrameHeader {
    /// Lays the header out.
    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        put(&mut bytes, 0, &self.size.to_le_bytes());
        put(&mut bytes, 4, &self.crc.to_le_bytes());
        put(&mut bytes, 8, &self.seq.0.to_le_bytes());
        put(&mut bytes, 16, &self.at.0.to_le_bytes());
        put(&mut bytes, 24, &self.unsynced.to_le_bytes());
        put(
            &mut bytes,
            28,
            &[self.actor.0, self.kind.byte(), self.part.byte(), 0],
        );
        bytes
    }

    /// Reads a header, if these bytes can be one. Says nothing about the checksum.
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

/// The whole frame at the start of `bytes`, if its checksum holds: its header and payload.
///
/// The checksum begins with the segment's salt, so that nobody who chooses a payload can put a frame of his own into
/// it: behind a torn tail such a frame could vouch for what was never synced.
pub fn frame(bytes: &[u8], salt: u32) -> Option<(FrameHeader, &[u8])> {
    let header = FrameHeader::decode(bytes)?;
    let whole = bytes.get(..header.size as usize)?;
    if frame_crc(whole, salt) != header.crc {
        return None;
    }
    Some((header, whole.get(FRAME_HEADER_BYTES..)?))
}

/// The checksum of a frame: over everything but the four bytes in which it stands.
fn frame_crc(whole: &[u8], salt: u32) -> u32 {
    let (head, tail) = whole.split_at_checked(8).unwrap_or((whole, &[]));
    let head = crc32c::crc32c_append(salt, head.get(..4).unwrap_or(&[]));
    crc32c::crc32c_append(head, tail)
}

/// Lays out a segment header.
pub fn segment_header(ordinal: u64, size: u64, salt: u32) -> [u8; 32] {
    header_of(FORMAT_VERSION, ordinal, size, salt)
}

fn header_of(version: u32, ordinal: u64, size: u64, salt: u32) -> [u8; 32] {
    let size = u32::try_from(size).expect("a segment has less than 4 GiB");
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

/// What a segment header says, or why it cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentHeader {
    /// A header of a version that can be read.
    Good {
        /// The place of the segment among all.
        ordinal: u64,
        /// Its length in bytes.
        size: u64,
        /// What the checksums of its frames begin with.
        salt: u32,
        /// The format that it is written in.
        version: u32,
    },
    /// A header of a version that cannot.
    TooNew(u32),
    /// Not a header, or a damaged one.
    Bad,
}

impl SegmentHeader {
    /// Judges the first bytes of a segment.
    pub fn decode(bytes: &[u8]) -> Self {
        let read = || {
            let whole = bytes.get(..32)?;
            let checks = u32_at(bytes, 12)? == header_crc(whole);
            if !checks || whole.get(..8)? != SEGMENT_MAGIC {
                return None;
            }
            let version = u32_at(bytes, 8)?;
            // Every later format keeps these 32 bytes and their checksum: a version that was damaged is not a newer one.
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

    /// The header that a damaged one was, if that is beyond doubt. `bytes` are the first of the segment, with a frame if
    /// it has one. All but the salt is known from the file; a salt of which one byte at most is wrong is found again,
    /// since the checksum of the header or of the first frame must agree with it.
    pub fn mend(bytes: &[u8], ordinal: u64, size: u64) -> Option<Self> {
        u32::try_from(size).ok()?;
        let (said, salt) = (u32_at(bytes, 12)?, u32_at(bytes, 28)?);
        let flips = (0..4).flat_map(|byte| (1..=255_u32).map(move |flip| flip << (8 * byte)));
        std::iter::once(0).chain(flips).find_map(|flip| {
            let salt = salt ^ flip;
            let frame_agrees = bytes
                .get(SEGMENT_HEADER_BYTES..)
                .is_some_and(|rest| frame(rest, salt).is_some());
            let mut versions = (1..=FORMAT_VERSION).rev();
            let agreeing = |version: &u32| {
                let header = header_of(*version, ordinal, size, salt);
                u32_at(&header, 12) == Some(said)
            };
            let version = versions.find(agreeing);
            let version = version.or(frame_agrees.then_some(FORMAT_VERSION))?;
            Some(Self::Good {
                ordinal,
                size,
                salt,
                version,
            })
        })
    }
}

fn header_crc(bytes: &[u8]) -> u32 {
    let head = bytes.get(..12).unwrap_or(&[]);
    crc32c::crc32c_append(crc32c::crc32c(head), bytes.get(16..).unwrap_or(&[]))
}

/// Records gathered for one write, in order.
///
/// Checksums and the `unsynced` distance are filled in by [`Batch::seal_frame`] when the place of the frame in its
/// segment is known, so that they cost the core nothing.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    last: Seq,
    urgent: bool,
    awaited: bool,
}

impl Batch {
    /// Appends a record that an answer waits for; `payload` writes its payload behind what the buffer holds already.
    pub fn push(&mut self, about: About, payload: impl FnOnce(&mut Vec<u8>)) {
        self.push_passing(about, payload);
        self.awaited = true;
    }

    /// Appends a record that no answer waits for.
    pub fn push_passing(&mut self, about: About, payload: impl FnOnce(&mut Vec<u8>)) {
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

    /// Lays a long record out again, in parts.
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
            let header = FrameHeader {
                size: frame_size(part.len()),
                part: kind,
                ..header
            };
            self.bytes.extend_from_slice(&header.encode());
            self.bytes.extend_from_slice(part);
        }
    }

    /// Asks that this batch be synced whatever the policy says.
    pub fn make_urgent(&mut self) {
        self.urgent = true;
    }

    /// Whether it must be synced whatever the policy says.
    pub fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Whether any answer waits for it.
    pub fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// Puts the records of `later` behind these.
    pub fn merge(&mut self, later: &Self) {
        self.bytes.extend_from_slice(&later.bytes);
        self.last = self.last.max(later.last);
        self.urgent |= later.urgent;
        self.awaited |= later.awaited;
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes to write.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The last sequence number in it.
    pub fn last(&self) -> Seq {
        self.last
    }

    /// The bytes from `start` on.
    pub fn bytes_from(&self, start: usize) -> &[u8] {
        self.bytes.get(start..).unwrap_or(&[])
    }

    /// The size of the frame at `start`, or `None` at the end.
    pub fn frame_size_at(&self, start: usize) -> Option<usize> {
        u32_at(&self.bytes, start).map(|size| size as usize)
    }

    /// Fills in what depends on the frame's place: the distance to the last synced byte, and the checksum.
    pub fn seal_frame(&mut self, start: usize, unsynced: u32, salt: u32) {
        let size = self
            .frame_size_at(start)
            .expect("a frame begins where sealing was asked for");
        put(&mut self.bytes, start + 24, &unsynced.to_le_bytes());
        let whole = self
            .bytes
            .get(start..start + size)
            .expect("a frame is whole in its batch");
        let crc = frame_crc(whole, salt);
        put(&mut self.bytes, start + 4, &crc.to_le_bytes());
    }

    /// Empties it, keeping its memory for the next.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.last = Seq::default();
        self.urgent = false;
        self.awaited = false;
    }
}

/// What every record says of itself.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its sequence number.
    pub seq: Seq,
    /// Its time.
    pub at: Timestamp,
    /// Whose it is.
    pub actor: ActorId,
    /// What it is.
    pub kind: Kind,
}

fn frame_size(payload: usize) -> u32 {
    u32::try_from(FRAME_HEADER_BYTES + payload).expect("parts are at most PART_BYTES_MAX")
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes
        .get_mut(at..at + value.len())
        .expect("a field lies inside its header")
        .copy_from_slice(value);
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
