//! Reading from the middle of a log with a gap is refused. The error names the missing part, and no record is skipped.

use crate::journal::begin::{behind, long_log, small_log};
use crate::journal::disk::MemoryDisk;
use crate::journal::log::{
    self, SMALL, SYNCED, after, first, needed_from, read_after, records, segment, used, writer,
};
use sexton::ids::Seq;
use sexton::persist::PersistError;
use sexton::persist::journal::segment::{self, Opening};
use sexton::persist::journal::{Begin, Reader};
use sexton::persist::retention::trim;

/// Damage to a log: its description, and the function that causes it.
type Tear<'a> = (&'a str, &'a dyn Fn(&MemoryDisk));

#[test]
fn a_log_that_begins_too_late_names_what_is_gone() {
    for (disk, all, last) in [small_log(), long_log()] {
        for gone in 1..last {
            disk.delete(&segment(gone));
            let begins = first(&disk, gone + 1).expect("it is in use");
            let mut refused = 0;
            for begin in 0..=begins + 1 {
                match read_after(&disk, after(begin)) {
                    Ok((found, _)) => {
                        assert!(begin >= begins, "after {begin}, from {begins}");
                        assert!(found == behind(&all, begin), "after {begin}");
                    }
                    Err(PersistError::Gone { file, first, after }) => {
                        refused += 1;
                        assert!(begin < begins, "after {begin}, from {begins}");
                        let said = (file, first, after);
                        assert_eq!(said, (segment(gone + 1), Some(Seq(begins)), Seq(begin)));
                    }
                    Err(other) => panic!("after {begin}: {other}"),
                }
            }
            assert_eq!(refused, begins, "every begin before it is refused");
        }
    }
}

#[test]
fn the_words_of_a_refusal_say_what_is_gone_and_where() {
    let (disk, _, last) = small_log();
    disk.delete(&segment(1));
    let begins = first(&disk, 2).expect("it is in use");
    let words = |begin| read_after(&disk, begin).expect_err("refused").to_string();
    assert_eq!(
        words(after(3)),
        format!(
            "read journal/00000002.seg: the journal begins here at sequence number {begins}, \
             and the records before it, from 4 on, are gone"
        )
    );
    let begin = Begin { reaches: Seq(77), ..after(begins) };
    assert_eq!(
        words(begin),
        format!(
            "read {}: the journal ends at sequence number 54, but a snapshot shows that it reached 77",
            segment(last)
        )
    );
    (2..=last).for_each(|ordinal| disk.delete(&segment(ordinal)));
    assert_eq!(
        words(after(3)),
        format!(
            "read {}: the journal begins here without a record, and the records before it, from 4 on, are gone",
            segment(last + 1)
        )
    );
}

#[test]
fn a_segment_missing_in_the_middle_is_damage_wherever_reading_begins() {
    let (disk, all, last) = small_log();
    disk.delete(&segment(1));
    let begins = first(&disk, 2).expect("it is in use");
    for missing in 3..=last {
        let disk = disk.copy();
        disk.delete(&segment(missing));
        for begin in begins..=all.last().expect("there are records").0 {
            match read_after(&disk, after(begin)) {
                Err(PersistError::Missing { file, .. }) => assert_eq!(file, segment(missing)),
                other => panic!("after {begin} without {missing}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_first_segment_that_cannot_be_trusted_is_no_begin() {
    let (disk, _, last) = small_log();
    disk.delete(SYNCED);
    (1..last).for_each(|ordinal| disk.delete(&segment(ordinal)));
    let everything = after(1000);
    for at in 0..used(&disk, last).min(100) {
        let disk = disk.copy();
        disk.edit(&segment(last), |bytes| bytes[at] ^= 0x10);
        match read_after(&disk, everything) {
            Err(PersistError::Corrupt { file, .. }) => {
                assert_eq!(file, segment(last), "byte {at}");
            }
            Ok((found, tail)) if !tail.passed.is_empty() => assert!(found.is_empty()),
            Ok((found, tail)) => {
                let opening = segment::opening(&disk, last).expect("a read");
                assert!(matches!(opening, Opening::Record(_)), "byte {at}");
                assert!(found.is_empty() && tail.cut.is_some(), "byte {at}");
            }
            Err(other) => panic!("byte {at}: {other}"),
        }
    }
    disk.edit(&segment(last), |bytes| bytes[32..].fill(0));
    match read_after(&disk, everything) {
        Err(PersistError::Gone { file, first, after }) => {
            assert_eq!((file, first, after), (segment(last), None, Seq(1000)));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_log_that_ends_too_early_is_refused() {
    let (disk, _, last) = small_log();
    disk.delete(SYNCED);
    let until = |begin, reaches| Begin { reaches: Seq(reaches), ..after(begin) };
    for begin in [0, 20, 54, 60] {
        read_after(&disk, until(begin, 54)).expect("it is complete");
        match read_after(&disk, until(begin, 55)) {
            Err(PersistError::Short { file, last: found, reaches }) => {
                assert_eq!((file, found, reaches), (segment(last), Seq(54), Seq(55)));
            }
            other => panic!("{other:?}"),
        }
    }
    match read_after(&MemoryDisk::default(), until(3, 9)) {
        Err(PersistError::Short { file, last, .. }) => {
            assert_eq!((file.as_str(), last), (segment::FOLDER, Seq(0)));
        }
        other => panic!("{other:?}"),
    }
    let prepared = MemoryDisk::default();
    drop(writer(&prepared, SMALL).expect("the log opens"));
    assert!(matches!(read_after(&prepared, until(3, 9)), Err(PersistError::Short { .. })));
    // A flip in the last batch cuts off a record that a snapshot contains, so the cut is an error.
    let end = used(&disk, last);
    disk.edit(&segment(last), |bytes| bytes[end - 1] ^= 1);
    let (_, tail) = read_after(&disk, after(20)).expect("it may be a torn tail");
    assert_eq!((tail.last, tail.cut.is_some()), (Seq(53), true));
    assert!(matches!(
        read_after(&disk, until(20, 54)),
        Err(PersistError::Short { last: Seq(53), .. })
    ));
}

/// `reaches` is the last record that a snapshot contains. With it, not even the last batch can be lost silently.
#[test]
fn a_flip_in_what_is_read_is_found_wherever_reading_begins() {
    let (disk, all, last) = small_log();
    disk.delete(SYNCED);
    let (mut cuts, mut errors, mut passed) = (0, 0, 0);
    for begin in [14, 30, 54] {
        let start = needed_from(&disk, last, begin);
        assert!(start > 1, "reading begins in the middle");
        let trimmed = disk.copy();
        (1..start).for_each(|unread| trimmed.delete(&segment(unread)));
        for (disk, ordinal) in [&disk, &trimmed]
            .into_iter()
            .flat_map(|disk| (start..=last).map(move |ordinal| (disk, ordinal)))
        {
            let name = segment(ordinal);
            for at in 0..used(disk, ordinal) {
                let disk = disk.copy();
                disk.edit(&name, |bytes| bytes[at] ^= 0x11);
                let place = format!("after {begin}, {name} byte {at}");
                let mut refused = true;
                match read_after(&disk, after(begin)) {
                    Ok((found, tail)) if !tail.passed.is_empty() => {
                        passed += 1;
                        refused = false;
                        assert_eq!(found, behind(&all, begin), "{place}");
                        assert_eq!(tail.passed[0].file, name, "{place}");
                    }
                    Ok((found, tail)) => {
                        cuts += 1;
                        assert_eq!(found, behind(&all, begin)[..found.len()], "{place}");
                        assert!(tail.last >= Seq(50), "{place}: only the last batch may go");
                        assert_eq!(tail.cut.expect("the cut is reported").file, name, "{place}");
                    }
                    Err(PersistError::Corrupt { file, .. }) => {
                        errors += 1;
                        assert_eq!(file, name, "{place}");
                    }
                    Err(other) => panic!("{place}: {other}"),
                }
                let begin = Begin { reaches: Seq(54), ..after(begin) };
                assert_eq!(read_after(&disk, begin).is_err(), refused, "{place}");
            }
        }
    }
    assert!(
        errors > 1000 && cuts > 100 && passed > 300,
        "{errors} errors, {cuts} cuts, {passed} passed over"
    );
}

/// A frame with a wrong checksum is passed over if no record in it or after it in the same segment is needed.
#[test]
fn damage_before_what_is_wanted_is_passed_over_and_told() {
    for (disk, all, last) in [small_log(), long_log()] {
        let begin = all[all.len() - 2].0;
        let start = needed_from(&disk, last, begin);
        let name = segment(start);
        let bytes = disk.bytes(&name);
        let (mut passed, mut offset) = (0, 32);
        while offset < used(&disk, start) {
            let size = u32::from_le_bytes(*bytes[offset..].first_chunk().expect("a frame"));
            let disk = disk.copy();
            disk.edit(&name, |bytes| bytes[offset + 33] ^= 1);
            if let Ok((found, tail)) = read_after(&disk, after(begin)) {
                assert!(found == behind(&all, begin), "offset {offset}");
                let [told] = tail.passed.as_slice() else { panic!("offset {offset}: {tail:?}") };
                assert_eq!((&told.file, told.offset), (&name, offset as u64));
                passed += 1;
            }
            offset += usize::try_from(size).expect("a frame is small");
        }
        assert!(passed > 0, "some of it is not needed");
    }
}

#[test]
fn a_record_that_began_before_must_end() {
    let (disk, _, last) = long_log();
    // Record 20 has three parts, each in a separate segment. Records 21 and 22 follow.
    let opens_with = |part| {
        (1..=last).find(|ordinal| {
            let bytes = disk.bytes(&segment(*ordinal));
            first(&disk, *ordinal) == Some(20) && bytes[62] == part
        })
    };
    let (middle, end) = (opens_with(2), opens_with(3));
    let middle = middle.expect("its second part opens a segment");
    assert_eq!(end, Some(middle + 1), "and its last the next");
    (1..middle).for_each(|unread| disk.delete(&segment(unread)));
    let (found, _) = read_after(&disk, after(20)).expect("an intact log");
    assert_eq!(found, records(21..=22, 10));
    assert!(matches!(read_after(&disk, after(19)), Err(PersistError::Gone { .. })));
    let size = u32::from_le_bytes(
        *disk.bytes(&segment(middle))[32..].first_chunk().expect("it is in use"),
    );
    let behind = 32 + usize::try_from(size).expect("a part is small");
    disk.delete(&segment(middle + 2));
    let name = segment(middle + 1);
    let torn: [Tear<'_>; 4] = [
        ("no end behind the second part", &|disk| {
            disk.edit(&segment(middle), |bytes| bytes[behind..].fill(0));
            disk.delete(&name);
        }),
        ("a last part that does not check", &|disk| {
            disk.edit(&name, |bytes| bytes[100] ^= 1);
        }),
        ("no last part", &|disk| {
            disk.edit(&name, |bytes| bytes[32..].fill(0));
        }),
        ("no last part and no header", &|disk| {
            disk.edit(&name, |bytes| bytes.fill(0));
        }),
    ];
    for (what, tear) in torn {
        let disk = disk.copy();
        tear(&disk);
        match read_after(&disk, after(20)) {
            Err(PersistError::Corrupt { offset: 32, .. }) => {}
            other => panic!("{what}: {other:?}"),
        }
    }
}

/// The next segment is written and removed again while the reader is at the end of the records that it has seen.
#[test]
fn a_slow_reader_never_jumps_over_what_was_removed() {
    let (disk, all, last) = small_log();
    disk.delete(&segment(last + 1));
    let mut reader = Reader::open(&disk).expect("the log can be read");
    let mut open = writer(&disk, SMALL).expect("the log opens");
    open.write(&mut log::batch(&records(100..=160, 40))).expect("a write");
    open.sync().expect("a sync");
    let mut found = Vec::new();
    let verdict = loop {
        match reader.next() {
            Ok(Some(record)) => found.push((record.seq.0, record.payload.to_vec())),
            Ok(None) => panic!("the end was never reached"),
            Err(error) => break error,
        }
        if found.len() == all.len() {
            trim(&disk, Seq(150)).expect("a removal");
        }
    };
    assert!(found.len() < all.len() + 8, "only the rest of its segment");
    let PersistError::Missing { file, .. } = &verdict else {
        panic!("{verdict}");
    };
    assert_eq!(file, &segment(last + 1));
}
