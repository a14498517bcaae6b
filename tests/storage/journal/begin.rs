//! Reading from a position in the middle of the log: the reader returns exactly the records after it, or names what is
//! missing.

use crate::journal::disk::MemoryDisk;
use crate::journal::log::{
    self, SMALL, SYNCED, Written, after, first, mark, needed_from, read, read_after, read_present,
    records, segment, used, write, writer, writer_at,
};
use sexton::clock::Timestamp;
use sexton::ids::Seq;
use sexton::persist::PersistError;
use sexton::persist::journal::segment::{self, Opening, SegmentFile};
use sexton::persist::journal::{Begin, Sizes};
use sexton::persist::mark::Mark;
use sexton::persist::retention::trim;

/// Segments into which one part of a long record just fits.
const LONG: Sizes = Sizes { first_bytes: 600 << 10, max_bytes: 600 << 10 };

/// Makes a log of batches over several segments, with gaps between the sequence numbers. The last segment is only
/// prepared. Returns the log, its records, and the number of the segment in which it ends.
pub(crate) fn small_log() -> (MemoryDisk, Vec<Written>, u64) {
    let disk = MemoryDisk::default();
    let batches: Vec<_> = (0..14).map(|n| records(n * 4 + 1..=n * 4 + 2, 41)).collect();
    write(&disk, SMALL, &batches);
    let last = ends_in(&disk);
    assert!(last >= 4, "the log takes several segments");
    (disk, batches.concat(), last)
}

/// Makes a log with long records, some of them in parts over three segments. Returns the same as `small_log`.
pub(crate) fn long_log() -> (MemoryDisk, Vec<Written>, u64) {
    let disk = MemoryDisk::default();
    let batches = [
        records(1..=3, 100),
        records(4..=5, 1_300_000),
        records(6..=8, 50),
        records(10..=10, 700_000),
        records(11..=13, 200_000),
        records(20..=20, 1_300_000),
        records(21..=22, 10),
    ];
    write(&disk, LONG, &batches);
    let last = ends_in(&disk);
    let inside = |ordinal: &u64| matches!(disk.bytes(&segment(*ordinal)).get(62), Some(2 | 3));
    assert!((1..=last).filter(inside).count() >= 4, "several segments open with parts");
    (disk, batches.concat(), last)
}

fn ends_in(disk: &MemoryDisk) -> u64 {
    read(disk).expect("an intact log").1.place.expect("the log has entries").0
}

pub(crate) fn behind(all: &[Written], after: u64) -> Vec<Written> {
    let wanted = all.iter().filter(|(seq, _)| *seq > after);
    wanted.cloned().collect()
}

/// Reads the records after each possible sequence number, with all earlier segments unreadable.
fn every_begin_point((disk, all, last): (MemoryDisk, Vec<Written>, u64)) {
    let (_, whole) = read(&disk).expect("an intact log");
    let mut starts = Vec::new();
    for begin in 0..=whole.last.0 + 2 {
        let start = needed_from(&disk, last, begin);
        starts.push(start);
        let spoilt = disk.copy();
        for unread in 1..start {
            spoilt.edit(&segment(unread), |bytes| bytes.fill(0xff));
        }
        let trimmed = disk.copy();
        (1..start).for_each(|unread| trimmed.delete(&segment(unread)));
        for disk in [&disk, &spoilt, &trimmed] {
            let (found, tail) = read_after(disk, after(begin))
                .unwrap_or_else(|error| panic!("after {begin}: {error}"));
            let wanted = behind(&all, begin);
            assert!(found == wanted, "after {begin}");
            assert_eq!(tail.records, wanted.len() as u64, "after {begin}");
            assert_eq!(
                (tail.last, tail.last_at, tail.place, tail.synced, tail.cut),
                (whole.last, whole.last_at, whole.place, whole.synced, None),
                "after {begin}"
            );
        }
    }
    starts.dedup();
    assert!(starts.len() > 3, "reading began in several segments: {starts:?}");
}

#[test]
fn every_begin_point_gives_exactly_what_comes_after() {
    every_begin_point(small_log());
}

#[test]
fn every_begin_point_of_a_log_with_parts_gives_exactly_what_comes_after() {
    every_begin_point(long_log());
}

#[test]
fn all_that_is_left_is_read_wherever_it_begins() {
    for (disk, all, last) in [small_log(), long_log()] {
        for removed in 0..last {
            if removed > 0 {
                disk.delete(&segment(removed));
            }
            let mut left = removed + 1..=last;
            let opens = left.find_map(|ordinal| {
                let goes_on = matches!(disk.bytes(&segment(ordinal))[62], 2 | 3);
                first(&disk, ordinal).map(|seq| seq - u64::from(!goes_on))
            });
            let wanted = behind(&all, opens.expect("records are left"));
            let (found, tail) = read_present(&disk).expect("it is intact");
            assert!(found == wanted, "without {removed}");
            assert_eq!(tail.records, wanted.len() as u64, "without {removed}");
        }
    }
}

/// The mark that ends a segment may have a lower number than the record before it.
#[test]
fn a_segment_that_opens_with_its_end_is_no_begin() {
    let disk = MemoryDisk::default();
    let growing = Sizes { first_bytes: 512, max_bytes: 4096 };
    let mixed = [records(3..=3, 20), records(4..=4, 1500)].concat();
    write(&disk, growing, &[records(1..=2, 20), mixed.clone()]);
    let opening = |ordinal| segment::opening(&disk, ordinal).expect("a read");
    assert_eq!(
        [1, 2, 3].map(opening),
        [Opening::Record(Seq(1)), Opening::End, Opening::Record(Seq(4)),]
    );
    let (found, _) = read_after(&disk, after(2)).expect("an intact log");
    assert_eq!(found, mixed);
}

#[test]
fn what_is_known_already_is_never_taken_back() {
    let disk = MemoryDisk::default();
    let mut open = writer(&disk, SMALL).expect("the log opens");
    for batch in
        [&mut mark(1, &Mark::Reserve { bound: Seq(1000) }), &mut log::batch(&records(2..=9, 10))]
    {
        open.write(batch).expect("a write");
    }
    open.sync().expect("a sync");
    assert_eq!(needed_from(&disk, 1, 9), 1, "the mark is read again");
    let begin =
        Begin { after: Seq(9), at: Timestamp(5_000_000), reserved: Seq(2000), reaches: Seq(9) };
    let (found, tail) = read_after(&disk, begin).expect("an intact log");
    assert_eq!(found, []);
    assert_eq!((tail.last, tail.records), (Seq(9), 0));
    assert_eq!((tail.last_at, tail.next()), (Timestamp(5_000_000), Seq(2000)));
    // The next record is older than the time that the reader starts with.
    let begin = Begin { after: Seq(8), ..begin };
    match read_after(&disk, begin) {
        Err(PersistError::Corrupt { after, found, .. }) => {
            assert_eq!(after, Seq(8));
            assert!(found.contains("time goes back"), "{found}");
        }
        other => panic!("{other:?}"),
    }
    let mut reserve = mark(10, &Mark::Reserve { bound: Seq(3000) });
    open.write(&mut reserve).expect("a write");
    let begin = Begin { at: Timestamp(0), ..begin };
    let (_, tail) = read_after(&disk, begin).expect("an intact log");
    assert_eq!(tail.next(), Seq(3000), "a later reserve counts");
}

#[test]
fn a_stop_that_nobody_wants_to_read_again_is_still_a_clean_end() {
    let (disk, all, _) = small_log();
    let mut open = writer(&disk, SMALL).expect("the log opens");
    open.write(&mut mark(100, &Mark::Stop)).expect("a write");
    for begin in [99, 100] {
        let (_, tail) = read_after(&disk, after(begin)).expect("an intact log");
        assert!(tail.clean && tail.next() == Seq(101), "after {begin}");
    }
    assert!(all.iter().all(|(seq, _)| *seq < 100));
}

#[test]
fn a_cut_tail_is_gone_on_from_when_reading_began_in_the_middle() {
    let (disk, all, last) = small_log();
    for begin in [20, 40, 54] {
        let disk = disk.copy();
        trim(&disk, Seq(begin)).expect("a removal");
        let end = used(&disk, last);
        disk.edit(&segment(last), |bytes| bytes[end + 7] = 9);
        let (found, tail) = read_after(&disk, after(begin)).expect("a torn tail is no damage");
        assert_eq!(found, behind(&all, begin));
        assert!(tail.cut.is_some(), "after {begin}");
        let more = records(100..=120, 40);
        let mut open = writer_at(&disk, SMALL, &tail).expect("the log opens");
        open.write(&mut log::batch(&more)).expect("a write");
        open.sync().expect("a sync");
        let (found, tail) = read_after(&disk, after(begin)).expect("an intact log");
        assert_eq!(found, [behind(&all, begin), more].concat());
        assert_eq!(tail.cut, None);
    }
}

#[test]
fn a_segment_that_was_just_begun_is_where_a_log_read_from_the_middle_goes_on() {
    let disk = MemoryDisk::default();
    let batches: Vec<_> = (1..=9).map(|seq| records(seq..=seq, 120)).collect();
    write(&disk, SMALL, &batches);
    let last = ends_in(&disk);
    let begins = first(&disk, last).expect("it is in use");
    disk.edit(&segment(last), |bytes| bytes[32..].fill(0));
    disk.delete(SYNCED);
    for begin in [begins - 1, begins, 50] {
        let (found, tail) = read_after(&disk, after(begin)).expect("an intact log");
        assert_eq!((found, tail.last), (Vec::new(), Seq(begins - 1)));
        assert_eq!((tail.place, tail.cut), (Some((last, 32)), None));
    }
}

#[test]
fn segments_are_listed_with_what_they_open_with() {
    let (disk, _, last) = small_log();
    let present = segment::present(&disk).expect("a listing");
    let expected: Vec<_> =
        (1..=last + 1).map(|ordinal| SegmentFile { ordinal, bytes: 512 }).collect();
    assert_eq!(present, expected);
    for SegmentFile { ordinal, .. } in present {
        let opening = segment::opening(&disk, ordinal).expect("a read");
        let expected =
            first(&disk, ordinal).map_or(Opening::Blank, |seq| Opening::Record(Seq(seq)));
        assert_eq!(opening, expected, "segment {ordinal}");
    }
    disk.edit(&segment(2), |bytes| bytes[200] ^= 1);
    disk.edit(&segment(3), |bytes| bytes[40] ^= 1);
    disk.edit(&segment(4), |bytes| bytes[12..32].fill(7));
    let opening = |ordinal| segment::opening(&disk, ordinal).expect("a read");
    assert!(matches!(opening(2), Opening::Record(_)));
    assert_eq!([opening(3), opening(4)], [Opening::Damaged, Opening::Unreadable]);
}
