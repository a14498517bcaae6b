//! Ends of logs that were being written when the power was cut: they are cut off, reported, counted, and never read
//! again.

use crate::journal::disk::MemoryDisk;
use crate::journal::log::{
    self, SMALL, SYNCED, Written, read, records, segment, used, write, writer,
};
use sexton::ids::Seq;
use sexton::persist::PersistError;
use sexton::persist::disk::Disk;
use sexton::persist::journal::{Sizes, ThreadFiller, Writer};
use std::sync::Arc;

const ROOMY: Sizes = Sizes { first_bytes: 64 << 10, max_bytes: 64 << 10 };

/// Writes a log with synced batches, and one unsynced batch at the end. Returns the log, and the offsets at which that
/// batch begins and ends.
fn with_unsynced(synced: &[Vec<Written>], unsynced: &[Written]) -> (MemoryDisk, usize, usize) {
    let disk = MemoryDisk::default();
    let mut open = writer(&disk, ROOMY).expect("the log opens");
    for records in synced {
        open.write(&mut log::batch(records)).expect("a write");
        open.sync().expect("a sync");
    }
    let begin = used(&disk, 1);
    open.write(&mut log::batch(unsynced)).expect("a write");
    let end = used(&disk, 1);
    (disk, begin, end)
}

/// Appends records after a cut, and checks that the kept records are still there and that the cut ones stay lost.
fn append_and_read(disk: &MemoryDisk, sizes: Sizes, kept: &[Written]) {
    let (_, tail) = read(disk).expect("the log can be read");
    let more = records(tail.next().0 + 5000..=tail.next().0 + 5002, 3);
    write(disk, sizes, std::slice::from_ref(&more));
    let (found, tail) = read(disk).expect("the log is intact again");
    assert_eq!(found, [kept, &more].concat());
    assert_eq!(tail.cut, None, "what was cut does not come back");
}

#[test]
fn a_batch_torn_at_any_byte_is_cut_there() {
    let synced = [records(1..=2, 20), records(3..=4, 30)];
    let torn = records(5..=8, 25);
    let (disk, begin, end) = with_unsynced(&synced, &torn);
    let frame = (end - begin) / torn.len();
    for tear in begin..end {
        let disk = disk.copy();
        disk.edit(&segment(1), |bytes| bytes[tear..end].fill(0));
        let (found, tail) = read(&disk).expect("a torn tail is no damage");
        let whole = (tear - begin) / frame;
        let kept = [&synced.concat()[..], &torn[..whole]].concat();
        assert_eq!(found, kept, "torn at {tear}");
        let left = (begin..tear).skip(whole * frame).filter(|at| disk.bytes(&segment(1))[*at] != 0);
        match (left.max(), tail.cut) {
            (None, cut) => assert_eq!(cut, None, "torn at {tear}"),
            (Some(last), cut) => {
                let cut = cut.expect("the cut is reported");
                let at = begin + whole * frame;
                assert_eq!((cut.file, cut.offset), (segment(1), at as u64));
                assert_eq!(cut.bytes, (last + 1 - at) as u64);
                assert_eq!(cut.seqs, [], "nothing after a tear is readable");
            }
        }
        append_and_read(&disk, ROOMY, &kept);
    }
}

#[test]
fn a_page_lost_in_an_unsynced_batch_cuts_it_there_and_names_what_is_behind() {
    let synced = [records(1..=3, 100)];
    let batch = records(4..=20, 400);
    let (disk, begin, end) = with_unsynced(&synced, &batch);
    let frame = (end - begin) / batch.len();
    for page in begin / 512..end / 512 {
        let (from, to) = ((page * 512).max(begin), (page + 1) * 512);
        let disk = disk.copy();
        disk.edit(&segment(1), |bytes| bytes[from..to].fill(0));
        let (found, tail) = read(&disk).expect("what was never synced may be lost");
        let whole = (from - begin) / frame;
        let kept = [&synced.concat()[..], &batch[..whole]].concat();
        assert_eq!(found, kept);
        let cut = tail.cut.expect("the cut is reported");
        let behind = (to - begin).div_ceil(frame);
        let seqs: Vec<Seq> = batch[behind..].iter().map(|(seq, _)| Seq(*seq)).collect();
        assert_eq!(cut.seqs, seqs, "page {page}");
        assert_eq!(cut.bytes, (end - begin - whole * frame) as u64);
        append_and_read(&disk, ROOMY, &kept);
    }
}

#[test]
fn a_page_lost_in_a_synced_batch_is_damage() {
    let lost = records(4..=20, 400);
    let (disk, begin, end) = with_unsynced(&[records(1..=3, 100)], &lost);
    let mut open = writer(&disk, ROOMY).expect("the log opens");
    open.sync().expect("a sync");
    open.write(&mut log::batch(&records(21..=21, 10))).expect("a write");
    let frame = (end - begin) / lost.len();
    for page in begin / 512..end / 512 {
        let (from, to) = ((page * 512).max(begin), (page + 1) * 512);
        let disk = disk.copy();
        disk.edit(&segment(1), |bytes| bytes[from..to].fill(0));
        let whole = (from - begin) / frame;
        match read(&disk) {
            Err(PersistError::Corrupt { file, offset, after, .. }) => {
                assert_eq!(file, segment(1));
                assert_eq!(offset, (begin + whole * frame) as u64);
                assert_eq!(after, Seq(3 + whole as u64));
            }
            other => panic!("page {page}: {other:?}"),
        }
    }
}

/// Writes a log whose last record is in parts over three segments, with the last part torn off.
fn with_torn_parts() -> (MemoryDisk, Vec<Written>, Sizes) {
    let sizes = Sizes { first_bytes: 600 << 10, max_bytes: 600 << 10 };
    let disk = MemoryDisk::default();
    let kept = records(1..=3, 100);
    write(&disk, sizes, std::slice::from_ref(&kept));
    let mut open = writer(&disk, sizes).expect("the log opens");
    open.write(&mut log::batch(&records(4..=5, 1_300_000))).expect("a write");
    drop(open);
    // Record 4 ends in segment 3, and record 5 in segment 6.
    let end = used(&disk, 6);
    disk.edit(&segment(6), |bytes| {
        bytes.iter_mut().skip(end - 10).for_each(|byte| *byte = 0);
    });
    let four = records(4..=4, 1_300_000);
    (disk, [kept, four].concat(), sizes)
}

#[test]
fn a_record_whose_last_part_is_torn_is_cut_whole() {
    let (disk, kept, sizes) = with_torn_parts();
    let (found, tail) = read(&disk).expect("a torn tail is no damage");
    assert!(found == kept, "complete records are kept");
    let cut = tail.cut.expect("the cut is reported");
    let first_part_in = tail.place.expect("the log has entries").0;
    assert_eq!(cut.file, segment(first_part_in));
    assert!(first_part_in < 6, "the record began in an earlier segment");
    assert!(cut.bytes > 1_200_000, "all of its parts are counted: {}", cut.bytes);
    append_and_read(&disk, sizes, &kept);
}

#[test]
fn a_crash_at_any_point_of_cutting_leaves_a_log_that_can_be_cut_again() {
    let (disk, kept, sizes) = with_torn_parts();
    for changes in 0.. {
        let disk = disk.copy();
        disk.cut_power_after(changes);
        let survived = writer(&disk, sizes).is_ok();
        let disk = disk.copy();
        let (found, _) = read(&disk).unwrap_or_else(|error| panic!("after {changes}: {error}"));
        assert!(found == kept, "after {changes} changes nothing else is lost");
        append_and_read(&disk, sizes, &kept);
        if survived {
            assert!(changes > 4, "cutting took several steps");
            return;
        }
    }
}

#[test]
fn what_stood_behind_a_cut_is_zero_when_the_log_is_open_again() {
    let (disk, begin, end) = with_unsynced(&[records(1..=2, 20)], &records(3..=30, 25));
    disk.edit(&segment(1), |bytes| bytes[begin + 60..begin + 70].fill(0));
    drop(writer(&disk, ROOMY).expect("the log opens"));
    let bytes = disk.bytes(&segment(1));
    assert!(bytes[begin + 57..end].iter().all(|byte| *byte == 0));
}

#[test]
fn a_segment_that_was_just_begun_is_where_the_log_goes_on() {
    let disk = MemoryDisk::default();
    let batches: Vec<_> = (1..=9).map(|seq| records(seq..=seq, 120)).collect();
    write(&disk, SMALL, &batches);
    let (last, _) = read(&disk).expect("an intact log").1.place.expect("the log has entries");
    assert!(last >= 3 && used(&disk, last) > 32, "several segments are in use");
    // As after a power cut between the end mark and the first write to the new segment.
    disk.edit(&segment(last), |bytes| bytes[32..].fill(0));
    disk.delete(SYNCED);
    let (found, tail) = read(&disk).expect("an intact log");
    assert_eq!((tail.place, tail.cut), (Some((last, 32)), None));
    append_and_read(&disk, SMALL, &found);
}

/// Clients choose the bytes of names, so a payload may contain a whole frame that claims that everything before it is
/// synced.
#[test]
fn a_frame_inside_a_payload_vouches_for_nothing() {
    let disk = MemoryDisk::default();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let salt = 0x5eed_cafe;
    let filler = ThreadFiller::start(Arc::clone(&shared), salt).expect("a new thread");
    let tail = read(&disk).expect("there is no log yet").1;
    let mut open = Writer::open(shared, ROOMY, Box::new(filler), &tail).expect("the log opens");
    open.write(&mut log::batch(&records(1..=2, 20))).expect("a write");
    open.sync().expect("a sync");
    let begin = used(&disk, 1);
    let mut forged = log::batch(&records(900..=900, 8));
    forged.seal_frame(0, 0, 0);
    let hostile = (4, forged.bytes_from(0).to_vec());
    open.write(&mut log::batch(&[records(3..=3, 20).remove(0), hostile])).expect("a write");
    disk.edit(&segment(1), |bytes| bytes[begin] ^= 1);
    let (found, tail) = read(&disk).expect("a torn tail is no damage");
    assert_eq!(found, records(1..=2, 20));
    let cut = tail.cut.expect("the unsynced batch is cut");
    assert_eq!(cut.seqs, [Seq(4)], "the forged frame is no record");
}
