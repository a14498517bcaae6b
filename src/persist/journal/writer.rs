//! The only writer of the log: tracks where the next byte goes, what is synced, and when a segment is full.
//!
//! Guarantees: each frame contains the number of bytes before it that were not synced when it was written; nothing is written to a segment
//! before everything in the previous one is synced; after a failed write or sync, nothing is ever written again.

use crate::clock::Timestamp;
use crate::ids::{ActorId, Seq};
use crate::persist::disk::{Disk, DiskFile};
use crate::persist::error::PersistError;
use crate::persist::format::{
    About, Batch, FORMAT_VERSION, FRAME_HEADER_BYTES, Kind, SEGMENT_HEADER_BYTES,
};
use crate::persist::journal::extent::{self, Extent};
use crate::persist::journal::filler::Filler;
use crate::persist::journal::reader::Tail;
use crate::persist::journal::segment::{self, Header, Prepared, Sizes};
use crate::persist::journal::window::{each_piece, last_used};
use std::sync::Arc;

/// How much the log can still accept before it needs space that the disk may not have. The reserve is the part of the prepared space that
/// is kept for releases and ticks (entries for what becomes due as time passes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// Everything can be accepted.
    Ample,
    /// The disk is full and the reserve is in use: accept nothing that adds state.
    Low,
    /// More than half of the reserve is used up: accept only what frees space.
    Scant,
}

/// The space that is left, and the space that is needed, while the disk has no room for the next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The number of bytes that can still be written to the prepared space.
    pub left: u64,
    /// The number of bytes that must be free on the disk for the next segment.
    pub needed: u64,
}

/// The log, open for appending.
pub struct Writer {
    disk: Arc<dyn Disk>,
    sizes: Sizes,
    ordinal: u64,
    file: Box<dyn DiskFile>,
    salt: u32,
    size: u64,
    /// The offset of the next frame.
    offset: u64,
    /// Everything before this offset is synced.
    synced: u64,
    next: Option<Prepared>,
    filler: Box<dyn Filler>,
    /// Whether the last attempt to prepare a segment failed.
    lacks_space: bool,
    last: Seq,
    extent: extent::ExtentFile,
    failed: bool,
}

impl Writer {
    /// Opens the log for appending at its end, `tail`, after removing everything that follows this end. Creates the log if there is none.
    pub fn open(
        disk: Arc<dyn Disk>,
        sizes: Sizes,
        mut filler: Box<dyn Filler>,
        tail: &Tail,
    ) -> Result<Self, PersistError> {
        disk.create_folder(segment::FOLDER).map_err(PersistError::io("create", segment::FOLDER))?;
        // If the folder's own name is not durable, a power cut may lose everything in it.
        disk.sync_folder("").map_err(PersistError::io("sync", segment::FOLDER))?;
        let (ordinal, file, size, offset) = match tail.place {
            Some((ordinal, offset)) => {
                let (file, size) = cut(disk.as_ref(), (ordinal, offset), tail.synced)?;
                (ordinal, file, size, offset)
            }
            None => {
                clear(disk.as_ref(), &[])?;
                filler.ask(1, sizes);
                let Prepared { file, size } = filler.wait()?;
                (1, file, size, SEGMENT_HEADER_BYTES as u64)
            }
        };
        let header = segment::writable(file.as_ref(), ordinal)?;
        filler.ask(ordinal + 1, sizes);
        let extent = extent::ExtentFile::open(disk.as_ref());
        let mut writer = Self {
            disk,
            sizes,
            ordinal,
            file,
            salt: header.salt,
            size,
            offset,
            synced: offset,
            next: None,
            filler,
            lacks_space: false,
            last: tail.last,
            extent,
            failed: false,
        };
        if header.version < FORMAT_VERSION || !tail.passed.is_empty() {
            // An older program could read a segment of an older version, but would not understand records written to it from here on. A
            // damaged segment is closed so that it can be removed after the next snapshots.
            writer.roll()?;
        }
        Ok(writer)
    }

    /// Writes the batch, to several segments if it does not fit into one. Syncs only the segments that become full.
    pub fn write(&mut self, batch: &mut Batch) -> Result<(), PersistError> {
        assert!(!self.failed, "nothing is written after a failed write");
        let written = self.write_frames(batch);
        self.failed = written.is_err();
        written
    }

    fn write_frames(&mut self, batch: &mut Batch) -> Result<(), PersistError> {
        self.refill();
        let mut start = 0;
        while start < batch.len() {
            let mut end = start;
            while let Some(size) = batch.frame_size_at(end)
                && self.fits((end - start + size) as u64)
            {
                let offset = self.offset + (end - start) as u64;
                batch.seal_frame(end, distance(self.synced, offset), self.salt);
                end += size;
            }
            if end == start {
                let size = batch.frame_size_at(start).map_or(0, |size| size as u64);
                assert!(
                    size + (SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES) as u64
                        <= self.sizes.max_bytes,
                    "a frame fits into the largest segment"
                );
                self.roll()?;
                continue;
            }
            let bytes = batch
                .bytes_from(start)
                .get(..end - start)
                .expect("the batch should contain whole frames");
            self.put(bytes)?;
            start = end;
        }
        self.last = self.last.max(batch.last());
        Ok(())
    }

    /// Makes everything written durable, and records how far the log is synced.
    pub fn sync(&mut self) -> Result<(), PersistError> {
        self.sync_segment()?;
        self.extent.note(Extent { place: (self.ordinal, self.offset), last: self.last });
        Ok(())
    }

    fn sync_segment(&mut self) -> Result<(), PersistError> {
        assert!(!self.failed, "nothing is synced after a failed write");
        let synced = self.file.sync().map_err(PersistError::io("sync", &self.name()));
        self.failed = synced.is_err();
        synced?;
        self.synced = self.offset;
        Ok(())
    }

    /// Returns whether something was written that is not yet synced.
    pub fn is_dirty(&self) -> bool {
        self.synced < self.offset
    }

    /// Returns the last sequence number written.
    pub fn last(&self) -> Seq {
        self.last
    }

    /// Takes the next segment from the filler if it is ready. Waits for the filler only if the reserve is in use.
    pub fn refill(&mut self) {
        if self.next.is_some() {
            return;
        }
        // Once the reserve is in use, this waits to find out whether the disk has more space: additions are refused only if it does not.
        let verdict = if !self.lacks_space && self.size - self.offset < self.reserve() {
            Some(self.filler.wait())
        } else {
            self.filler.poll()
        };
        match verdict {
            Some(Ok(prepared)) => {
                if self.lacks_space {
                    tracing::info!("the next journal segment is prepared: there is room again");
                }
                self.next = Some(prepared);
                self.lacks_space = false;
            }
            Some(Err(error)) => {
                if !self.lacks_space {
                    tracing::warn!(%error, "the next journal segment cannot be prepared; using the reserve");
                }
                self.lacks_space = true;
            }
            None => {}
        }
    }

    /// Returns the number of bytes that can be written without more space on the disk.
    fn prepared(&self) -> u64 {
        let next = self.next.as_ref().map_or(0, |next| next.size);
        self.size - self.offset + next
    }

    /// Returns the number of bytes left in the prepared space, and the number needed for the next segment.
    pub fn shortage(&self) -> Shortage {
        Shortage { left: self.prepared(), needed: segment::needed(self.ordinal + 1, self.sizes) }
    }

    /// Returns the number of bytes that can be written before the reserve is touched.
    pub fn space(&self) -> u64 {
        self.prepared().saturating_sub(self.reserve())
    }

    /// Returns how much can still be accepted when `waiting` bytes have been handed over but not yet written.
    pub fn room(&self, waiting: u64) -> Room {
        let prepared = self.prepared().saturating_sub(waiting);
        let reserve = self.reserve();
        match () {
            () if !self.lacks_space || prepared >= reserve => Room::Ample,
            () if prepared >= reserve / 2 => Room::Low,
            () => Room::Scant,
        }
    }

    /// Returns the number of bytes reserved for releases and ticks when the disk is full.
    fn reserve(&self) -> u64 {
        (self.size / 4).clamp(4 * FRAME_HEADER_BYTES as u64, 16 << 20)
    }

    /// Returns whether `bytes` fit into this segment, with room for the end mark after them.
    fn fits(&self, bytes: u64) -> bool {
        self.offset + bytes + FRAME_HEADER_BYTES as u64 <= self.size
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), PersistError> {
        self.file.write_at(bytes, self.offset).map_err(PersistError::io("write", &self.name()))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Ends this segment and continues in the next.
    fn roll(&mut self) -> Result<(), PersistError> {
        let Prepared { file, size } = match self.next.take() {
            Some(prepared) => prepared,
            None => self.filler.wait()?,
        };
        self.lacks_space = false;
        let Header { salt, .. } = segment::writable(file.as_ref(), self.ordinal + 1)?;
        let mut end = Batch::default();
        end.push(
            About { seq: self.last, at: Timestamp(0), actor: ActorId::NODE, kind: Kind::End },
            |_| {},
        );
        end.seal_frame(0, distance(self.synced, self.offset), self.salt);
        self.put(end.bytes_from(0))?;
        // This sync is not recorded in the extent: if the segment ends within a record and the rest of the record is lost, the log ends
        // where that record began, and an extent beyond that position would make this look like damage.
        self.sync_segment()?;
        self.ordinal += 1;
        self.size = size;
        self.file = file;
        self.salt = salt;
        self.offset = SEGMENT_HEADER_BYTES as u64;
        self.synced = SEGMENT_HEADER_BYTES as u64;
        self.filler.ask(self.ordinal + 1, self.sizes);
        Ok(())
    }

    fn name(&self) -> String {
        segment::name(self.ordinal)
    }

    /// Returns the disk that the log is on.
    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk)
    }
}

fn distance(synced: u64, offset: u64) -> u32 {
    u32::try_from(offset - synced).unwrap_or(u32::MAX)
}

/// Ends the log at `offset` of a segment, so that only zeros and no later segment follow. Returns the segment's file and its size in bytes.
///
/// If the previous process was killed, the bytes after `synced` may still be only in memory; and if its last sync failed, the operating
/// system may have marked them as clean without writing them. The writer counts these bytes as synced, so they are written again and synced
/// here. The order of the steps matters: a crash in between must leave a log that ends in the same position. So a later segment that
/// contains parts of the record being cut off is zeroed before the end mark of this segment, which leads to it, and is removed only after
/// that.
pub(crate) fn cut(
    disk: &dyn Disk,
    (ordinal, offset): (u64, u64),
    synced: (u64, u64),
) -> Result<(Box<dyn DiskFile>, u64), PersistError> {
    let later: Vec<u64> =
        segment::ordinals(disk)?.into_iter().rev().take_while(|later| *later > ordinal).collect();
    for later in &later {
        zero_from(disk, *later, SEGMENT_HEADER_BYTES as u64)?;
    }
    let (mut unsynced, mut from) = synced;
    while unsynced < ordinal && unsynced > 0 {
        write_again(disk, unsynced, from, u64::MAX)?;
        (unsynced, from) = (unsynced + 1, SEGMENT_HEADER_BYTES as u64);
    }
    write_again(disk, ordinal, from, offset)?;
    let file = zero_from(disk, ordinal, offset)?;
    clear(disk, &later)?;
    Ok(file)
}

/// Writes the bytes of a segment from `from` to `to` again, unchanged, and syncs the segment.
fn write_again(disk: &dyn Disk, ordinal: u64, from: u64, to: u64) -> Result<(), PersistError> {
    let name = segment::name(ordinal);
    let again = || {
        let file = disk.open(&name, true)?;
        let part = from..to.min(file.len()?);
        each_piece(file.as_ref(), part, |offset, piece| file.write_at(piece, offset))?;
        file.sync()
    };
    again().map_err(PersistError::io("write again", &name))
}

/// Zeroes a segment from `offset` on, where it is not zero already, and syncs all of it. Returns its file and its size in bytes.
fn zero_from(
    disk: &dyn Disk,
    ordinal: u64,
    offset: u64,
) -> Result<(Box<dyn DiskFile>, u64), PersistError> {
    let name = segment::name(ordinal);
    let file = disk.open(&name, true).map_err(PersistError::io("open", &name))?;
    let size = file.len().map_err(PersistError::io("read", &name))?;
    each_piece(file.as_ref(), offset..size, |offset, piece| match last_used(piece) {
        Some(last) => file.write_at(&vec![0; last + 1], offset),
        None => Ok(()),
    })
    .map_err(PersistError::io("write", &name))?;
    file.sync().map_err(PersistError::io("sync", &name))?;
    Ok((file, size))
}

/// Removes segments in the given order, which must be newest first, and then any half-prepared ones.
///
/// Each removal is synced before the next: otherwise, a power cut could undo some of them and leave a gap.
fn clear(disk: &dyn Disk, segments: &[u64]) -> Result<(), PersistError> {
    let files = disk.list(segment::FOLDER).map_err(PersistError::io("list", segment::FOLDER))?;
    let unfinished = files
        .iter()
        .filter(|(file, _)| segment::is_unfinished(file))
        .map(|(file, _)| format!("{}/{file}", segment::FOLDER));
    let segments = segments.iter().map(|ordinal| segment::name(*ordinal));
    for name in segments.chain(unfinished) {
        disk.remove(&name).map_err(PersistError::io("remove", &name))?;
        sync_names(disk)?;
    }
    // The name of the last segment itself may not be durable yet.
    sync_names(disk)
}

fn sync_names(disk: &dyn Disk) -> Result<(), PersistError> {
    disk.sync_folder(segment::FOLDER).map_err(PersistError::io("sync", segment::FOLDER))
}

#[cfg(test)]
mod tests {
    use super::{Room, Writer};
    use crate::clock::Timestamp;
    use crate::ids::{ActorId, Seq};
    use crate::persist::disk::{Disk as _, RealDisk};
    use crate::persist::error::PersistError;
    use crate::persist::format::{About, Batch, Kind};
    use crate::persist::journal::filler::{Filled, Filler};
    use crate::persist::journal::{Sizes, Tail, segment};
    use std::io::ErrorKind;
    use std::sync::Arc;

    /// A filler whose disk is full after the first segment. It reports this only to a caller that waits.
    struct Slow {
        first: Option<Filled>,
    }

    impl Filler for Slow {
        fn ask(&mut self, _: u64, _: Sizes) {}

        fn poll(&mut self) -> Option<Filled> {
            None
        }

        fn wait(&mut self) -> Filled {
            let full =
                || Err(PersistError::io("prepare", "a segment")(ErrorKind::StorageFull.into()));
            self.first.take().unwrap_or_else(full)
        }
    }

    #[test]
    fn a_full_disk_is_known_before_the_reserve_is_gone_however_slowly_it_says_so() {
        let files = tempfile::tempdir().unwrap();
        let sizes = Sizes { first_bytes: 8192, max_bytes: 8192 };
        let disk = Arc::new(RealDisk::new(files.path()));
        disk.create_folder(segment::FOLDER).unwrap();
        let first = Some(segment::prepare(disk.as_ref(), 1, sizes, 0));
        let filler = Box::new(Slow { first });
        let mut writer = Writer::open(disk, sizes, filler, &Tail::default()).unwrap();
        let mut written = 0;
        while writer.room(0) == Room::Ample {
            written += 1;
            let mut batch = Batch::default();
            let about = About {
                seq: Seq(written),
                at: Timestamp(0),
                actor: ActorId::LOCK,
                kind: Kind::Entry,
            };
            batch.push(about, |bytes| bytes.extend([1; 64]));
            writer.write(&mut batch).expect("the writer reported room");
        }
        assert!(written > 8192 / 96 / 2, "half of the segment is used before anything is refused");
    }
}
