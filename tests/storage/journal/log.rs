//! Functions that write and read small logs.

use crate::journal::disk::MemoryDisk;
use sexton::clock::Timestamp;
use sexton::ids::{ActorId, Seq};
use sexton::persist::PersistError;
use sexton::persist::disk::Disk;
use sexton::persist::format::{About, Batch, Kind};
use sexton::persist::journal::{Begin, InlineFiller, Reader, Sizes, Tail, Writer};
use sexton::persist::mark::Mark;
use std::sync::Arc;

/// Segments so small that each test fills several of them.
pub(crate) const SMALL: Sizes = Sizes { first_bytes: 512, max_bytes: 512 };

/// The sequence number and the payload of a record.
pub(crate) type Written = (u64, Vec<u8>);

/// Returns a batch of entries.
pub(crate) fn batch(records: &[Written]) -> Batch {
    let mut batch = Batch::default();
    for (seq, payload) in records {
        push(&mut batch, *seq, Kind::Entry, payload);
    }
    batch
}

/// Returns a batch with one mark.
pub(crate) fn mark(seq: u64, mark: &Mark) -> Batch {
    let mut batch = Batch::default();
    push(&mut batch, seq, Kind::Mark, &rmp_serde::to_vec(mark).expect("a mark encodes"));
    batch
}

fn push(batch: &mut Batch, seq: u64, kind: Kind, payload: &[u8]) {
    let about = About { seq: Seq(seq), at: Timestamp(1_000_000 + seq), actor: ActorId::LOCK, kind };
    batch.push(about, |bytes| bytes.extend_from_slice(payload));
}

/// Returns records with these sequence numbers. Their payloads differ, and have `len` bytes, none of which is zero.
pub(crate) fn records(seqs: std::ops::RangeInclusive<u64>, len: usize) -> Vec<Written> {
    let byte = |seq: u64, i: usize| u8::try_from((seq * 31 + i as u64 * 7) % 255 + 1).unwrap_or(1);
    seqs.map(|seq| (seq, (0..len).map(|i| byte(seq, i)).collect())).collect()
}

/// Opens the log for writing at its end.
pub(crate) fn writer(disk: &MemoryDisk, sizes: Sizes) -> Result<Writer, PersistError> {
    let (_, tail) = read(disk)?;
    writer_at(disk, sizes, &tail)
}

/// Opens the log for writing at this end.
pub(crate) fn writer_at(
    disk: &MemoryDisk,
    sizes: Sizes,
    tail: &Tail,
) -> Result<Writer, PersistError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Writer::open(Arc::clone(&disk), sizes, Box::new(InlineFiller::new(disk)), tail)
}

/// Writes each batch, and syncs it.
pub(crate) fn write(disk: &MemoryDisk, sizes: Sizes, batches: &[Vec<Written>]) {
    let mut writer = writer(disk, sizes).expect("the log opens");
    for records in batches {
        writer.write(&mut batch(records)).expect("a write");
        writer.sync().expect("a sync");
    }
}

/// Returns all records of the log, and its end.
pub(crate) fn read(disk: &dyn Disk) -> Result<(Vec<Written>, Tail), PersistError> {
    read_after(disk, Begin::default())
}

/// Returns the position after the record with this number.
pub(crate) fn after(seq: u64) -> Begin {
    Begin { after: Seq(seq), ..Begin::default() }
}

/// Returns all records of the log after a position, and its end.
pub(crate) fn read_after(
    disk: &dyn Disk,
    begin: Begin,
) -> Result<(Vec<Written>, Tail), PersistError> {
    all_of(Reader::open_after(disk, begin)?)
}

/// Returns all records in the remaining segments of a log, and its end.
pub(crate) fn read_present(disk: &dyn Disk) -> Result<(Vec<Written>, Tail), PersistError> {
    all_of(Reader::open_present(disk)?)
}

fn all_of(mut reader: Reader<'_>) -> Result<(Vec<Written>, Tail), PersistError> {
    let mut records = Vec::new();
    while let Some(record) = reader.next()? {
        records.push((record.seq.0, record.payload.to_vec()));
    }
    Ok((records, reader.tail().clone()))
}

/// Returns the name of a segment.
pub(crate) fn segment(ordinal: u64) -> String {
    sexton::persist::journal::segment::name(ordinal)
}

/// The file that records how far the log was synced.
pub(crate) const SYNCED: &str = "journal/synced";

/// Sets the format version in a header, and corrects its checksum.
#[expect(clippy::indexing_slicing, reason = "a header has its bytes")]
pub(crate) fn of_format(version: u32, bytes: &mut [u8]) {
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..32]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
}

/// Returns the number of a segment's first record, from its bytes; `None` if the segment is empty or begins with its end
/// mark.
pub(crate) fn first(disk: &MemoryDisk, ordinal: u64) -> Option<u64> {
    let bytes = disk.bytes(&segment(ordinal));
    let seq = bytes.get(40..48)?.first_chunk().copied()?;
    let kind = *bytes.get(61)?;
    (kind != 0 && kind != 4).then_some(u64::from_le_bytes(seq))
}

/// Returns the first segment that a reader needs for the records after a number, by the documented rule.
pub(crate) fn needed_from(disk: &MemoryDisk, last: u64, after: u64) -> u64 {
    (1..=last)
        .rev()
        .find(|ordinal| first(disk, *ordinal).is_some_and(|seq| seq <= after))
        .unwrap_or(1)
}

/// Returns the number of used bytes of a segment. Relies on payloads, end marks and headers that end with a nonzero byte.
pub(crate) fn used(disk: &MemoryDisk, ordinal: u64) -> usize {
    let bytes = disk.bytes(&segment(ordinal));
    let last = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    let end_mark = last > 32 && bytes.get(last) == Some(&4);
    if end_mark { last + 3 } else { (last + 1).max(32) }
}
