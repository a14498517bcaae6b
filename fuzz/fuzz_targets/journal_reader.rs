//! Reads arbitrary bytes as the segments of a journal. The reader never panics, and a journal that it can read can be continued.
//!
//! The first byte of the input selects what is corrected beforehand, so that the reader gets past the first checksum: nothing, the segment
//! headers, or these and the checksum of everything that looks like a frame.
#![no_main]

#[path = "../../tests/storage/journal/disk.rs"]
#[expect(dead_code, reason = "not every fault of that disk is needed here")]
mod disk;

use disk::MemoryDisk;
use libfuzzer_sys::fuzz_target;
use sexton::clock::Timestamp;
use sexton::ids::{ActorId, Seq};
use sexton::persist::PersistError;
use sexton::persist::disk::Disk;
use sexton::persist::format::{About, Batch, FRAME_HEADER_BYTES, Kind, segment_header};
use sexton::persist::journal::{InlineFiller, Reader, Sizes, Tail, Writer, segment};
use std::sync::Arc;

const SIZES: Sizes = Sizes { first_bytes: 1024, max_bytes: 1024 };

fuzz_target!(|data: &[u8]| {
    let Some((mode, data)) = data.split_first() else {
        return;
    };
    let disk = MemoryDisk::default();
    for (ordinal, bytes) in (1..).zip(data.chunks(1024)) {
        let mut bytes = bytes.to_vec();
        if mode % 3 > 0 && bytes.len() >= 32 {
            bytes.resize(1024, 0);
            bytes[..32].copy_from_slice(&segment_header(ordinal, 1024, 0));
        }
        if mode % 3 > 1 {
            seal(&mut bytes);
        }
        disk.put(&segment::name(ordinal), bytes);
    }
    let Ok((before, tail)) = read(&disk) else {
        return;
    };
    // Such large sequence numbers and times occur only in fuzzed logs, and could overflow when the log is continued.
    if tail.last.0 > u64::MAX / 2 || tail.reserved.0 > u64::MAX / 2 || tail.last_at.0 > u64::MAX / 2
    {
        return;
    }
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let filler = Box::new(InlineFiller::new(Arc::clone(&shared)));
    let mut writer =
        Writer::open(shared, SIZES, filler, &tail).expect("a journal that was read can be opened");
    let mut batch = Batch::default();
    let about =
        About { seq: tail.next(), at: tail.last_at, actor: ActorId::LOCK, kind: Kind::Entry };
    batch.push(about, |bytes| bytes.extend_from_slice(b"more"));
    writer.write(&mut batch).expect("a write to memory succeeds");
    let (after, tail) = read(&disk).expect("the continued journal can be read");
    assert!(tail.cut.is_none(), "the continued journal has no end that is cut off");
    let (last, rest) = after.split_last().expect("a record was written");
    assert_eq!(rest, before, "earlier records are unchanged");
    assert_eq!((last.0, last.2.as_slice()), (about.seq, &b"more"[..]));
});

/// The sequence number, time and payload of each record, and where the log ends.
type Read = (Vec<(Seq, Timestamp, Vec<u8>)>, Tail);

fn read(disk: &MemoryDisk) -> Result<Read, PersistError> {
    let mut reader = Reader::open(disk)?;
    let mut records = Vec::new();
    while let Some(record) = reader.next()? {
        records.push((record.seq, record.at, record.payload.to_vec()));
    }
    Ok((records, reader.tail().clone()))
}

/// Sets the correct checksum in everything that looks like a frame.
fn seal(bytes: &mut [u8]) {
    let mut at = 32;
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| rest.len() >= FRAME_HEADER_BYTES) {
        let size = rest.first_chunk().map_or(0, |size| u32::from_le_bytes(*size) as usize);
        let Some(frame) = rest.get_mut(..size).filter(|frame| frame.len() >= FRAME_HEADER_BYTES)
        else {
            return;
        };
        let crc = crc32c::crc32c_append(crc32c::crc32c(&frame[..4]), &frame[8..]);
        frame[4..8].copy_from_slice(&crc.to_le_bytes());
        at += size;
    }
}
