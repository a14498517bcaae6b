//! Records how far the log was synced, in a file next to the log, so that an end of the log that was lost can be distinguished from one
//! that was never written.
//!
//! Each frame shows how much of the log before it had been synced, but nothing in the log shows that the last frames were. The file
//! `synced` does: it is written after each sync, except one that only closes a segment, and is not synced itself. So it is exact if the
//! process was killed, but may show an earlier sync after a power cut. It never claims more than was synced, and is ignored if its checksum
//! does not match.

use crate::ids::Seq;
use crate::persist::disk::{Disk, DiskFile};
use crate::persist::format::FORMAT_VERSION;
use crate::persist::journal::segment;
use std::io;

/// The name of the file in the journal's folder.
pub const FILE: &str = "synced";
const MAGIC: [u8; 8] = *b"SEXTONE\0";
const BYTES: usize = 40;

/// A position in the log up to which everything is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The ordinal of the segment, and the offset in it.
    pub place: (u64, u64),
    /// The last sequence number before that position.
    pub last: Seq,
}

impl Extent {
    fn encode(self) -> [u8; BYTES] {
        let (ordinal, offset) = self.place;
        let fields = [ordinal, offset, self.last.0].map(u64::to_le_bytes);
        let version = FORMAT_VERSION.to_le_bytes();
        let sum = crc(&version, fields.as_flattened()).to_le_bytes();
        let mut bytes = [0; BYTES];
        let parts = [&MAGIC[..], &version, &sum, fields.as_flattened()];
        bytes.copy_from_slice(&parts.concat());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (version, rest) = rest.split_first_chunk::<4>()?;
        let (sum, rest) = rest.split_first_chunk::<4>()?;
        let fields = rest.first_chunk::<24>()?;
        let checks = *magic == MAGIC
            && u32::from_le_bytes(*version) <= FORMAT_VERSION
            && *sum == crc(version, fields).to_le_bytes();
        let (words, _) = fields.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
        let place = (words.next()?, words.next()?);
        let last = Seq(words.next()?);
        checks.then_some(Self { place, last })
    }
}

fn crc(version: &[u8], fields: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(version), fields)
}

fn name() -> String {
    format!("{}/{FILE}", segment::FOLDER)
}

/// Reads how far the log is known to have been synced; `None` if the file is missing, unreadable or invalid.
pub fn read(disk: &dyn Disk) -> Option<Extent> {
    let file = disk.open(&name(), false).ok()?;
    let mut bytes = [0; BYTES];
    let read = file.read_at(&mut bytes, 0).ok()?;
    Extent::decode(bytes.get(..read)?)
}

/// The extent file, kept up to date until a write to it fails.
pub(super) struct ExtentFile(Option<Box<dyn DiskFile>>);

impl ExtentFile {
    pub(super) fn open(disk: &dyn Disk) -> Self {
        let opened = match disk.open(&name(), true) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(&name()),
            opened => opened,
        };
        if let Err(error) = &opened {
            tracing::warn!(%error, "failed to record how far the journal is synced");
        }
        Self(opened.ok())
    }

    /// Records a sync. The log works without this file, so a failed write is only logged, and nothing more is recorded.
    pub(super) fn note(&mut self, extent: Extent) {
        let Some(file) = &self.0 else { return };
        if let Err(error) = file.write_at(&extent.encode(), 0) {
            tracing::warn!(%error, "no longer recording how far the journal is synced");
            self.0 = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Extent;
    use crate::ids::Seq;

    #[test]
    fn it_comes_back_and_every_flip_is_found() {
        let extent = Extent { place: (3, 700), last: Seq(9) };
        let bytes = extent.encode();
        assert_eq!(Extent::decode(&bytes), Some(extent));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Extent::decode(&flipped), None, "bit {bit}");
        }
        assert_eq!(Extent::decode(&bytes[..39]), None);
    }
}
