//! Flipped bytes, missing files and foreign files: reading reports an error or a cut, and never loses records silently or
//! panics.

use crate::journal::disk::MemoryDisk;
use crate::journal::log::{
    self, SMALL, SYNCED, Written, of_format, read, records, segment, used, write, writer,
};
use sexton::ids::Seq;
use sexton::persist::PersistError;
use sexton::persist::format::FORMAT_VERSION;

const FLIPS: [u8; 4] = [0x01, 0x10, 0x80, 0xff];

/// Writes twelve synced batches over several segments. Returns the log, its batches, and the number of the segment in
/// which it ends.
fn small_log() -> (MemoryDisk, Vec<Vec<Written>>, u64) {
    let disk = MemoryDisk::default();
    let batches: Vec<_> = (0..12).map(|n| records(n * 2 + 1..=n * 2 + 2, 11)).collect();
    write(&disk, SMALL, &batches);
    let (_, tail) = read(&disk).expect("an intact log");
    let (last, _) = tail.place.expect("the log has entries");
    assert!(last >= 3, "the log takes several segments");
    (disk, batches, last)
}

#[test]
fn a_flip_in_any_used_byte_is_an_error_that_names_the_place_or_a_cut_of_the_last_batch() {
    let (noted, batches, last) = small_log();
    let unnoted = noted.copy();
    unnoted.delete(SYNCED);
    let all = batches.concat();
    let synced = all.len() - batches.last().map_or(0, Vec::len);
    let (mut errors, mut cuts) = (0, 0);
    for (is_noted, ordinal) in (1..=last).flat_map(|it| [(false, it), (true, it)]) {
        let disk = if is_noted { &noted } else { &unnoted };
        for (at, flip) in (32..used(disk, ordinal)).flat_map(|at| FLIPS.map(|flip| (at, flip))) {
            let name = segment(ordinal);
            let disk = disk.copy();
            disk.edit(&name, |bytes| bytes[at] ^= flip);
            let place = format!("{name} byte {at} flip {flip:02x}");
            match read(&disk) {
                Ok((found, tail)) => {
                    cuts += 1;
                    assert!(!is_noted, "{place}: it was synced, and the log shows it");
                    assert_eq!(found, all[..found.len()], "{place}");
                    assert!(found.len() >= synced, "{place}: only the last batch may go");
                    assert!(found.len() < all.len(), "{place}: a flip was ignored");
                    let cut = tail.cut.expect("the cut is reported");
                    assert_eq!(cut.file, name, "{place}");
                    assert!((cut.offset..cut.offset + cut.bytes).contains(&(at as u64)), "{place}");
                }
                Err(PersistError::Corrupt { file, offset, after, .. }) => {
                    errors += 1;
                    assert_eq!(file, name, "{place}");
                    assert!(offset <= at as u64 && at as u64 - offset < 64, "{place}: {offset}");
                    assert!(after < Seq(all.len() as u64), "{place}: {after}");
                }
                Err(other) => panic!("{place}: {other}"),
            }
        }
    }
    assert!(errors > 2000 && cuts > 100, "{errors} errors, {cuts} cuts");
}

/// Everything in a header except the salt can be computed, and only the right salt matches the checksums of the frames.
#[test]
fn a_flip_in_a_header_costs_nothing_and_is_told() {
    let (disk, batches, last) = small_log();
    for (ordinal, at) in (1..=last).flat_map(|ordinal| (0..32).map(move |at| (ordinal, at))) {
        for flip in FLIPS {
            let name = segment(ordinal);
            let disk = disk.copy();
            disk.edit(&name, |bytes| bytes[at] ^= flip);
            let place = format!("{name} byte {at} flip {flip:02x}");
            let (found, tail) = read(&disk).unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!(found, batches.concat(), "{place}");
            let [passed] = tail.passed.as_slice() else { panic!("{place}: {tail:?}") };
            assert_eq!((passed.file.as_str(), passed.offset), (&name[..], 0), "{place}");
            let more = records(100..=103, 40);
            write(&disk, SMALL, std::slice::from_ref(&more));
            let (found, _) = read(&disk).expect("the journal continues in another segment");
            assert_eq!(found, [batches.concat(), more].concat(), "{place}");
        }
    }
    // Without checksum and salt the header cannot be recognised.
    disk.edit(&segment(2), |bytes| bytes[12..32].fill(7));
    let verdict = read(&disk);
    assert!(matches!(verdict, Err(PersistError::Corrupt { offset: 0, .. })), "{verdict:?}");
}

#[test]
fn a_log_whose_last_frames_became_zeros_is_damaged_as_far_as_it_was_synced() {
    let (disk, batches, last) = small_log();
    let all = batches.concat();
    let end = used(&disk, last);
    for from in 32..end {
        let disk = disk.copy();
        disk.edit(&segment(last), |bytes| bytes[from..].fill(0));
        match read(&disk) {
            Err(PersistError::Corrupt { file, after, .. }) => {
                assert_eq!(file, segment(last), "from {from}");
                assert!(after < Seq(all.len() as u64), "from {from}: {after}");
            }
            other => panic!("zeros from {from}: {other:?}"),
        }
    }
    // An unsynced batch may be lost, and so may the file that records how far the log was synced.
    let mut open = writer(&disk, SMALL).expect("the log opens");
    open.write(&mut log::batch(&records(100..=100, 9))).expect("a write");
    for (at, flip) in [(end, 0), (end - 1, 1)] {
        let disk = disk.copy();
        disk.edit(&segment(last), |bytes| bytes[at..].fill(0));
        if flip > 0 {
            disk.edit(SYNCED, |bytes| bytes[20] ^= flip);
        }
        read(&disk).unwrap_or_else(|error| panic!("zeros from {at}: {error}"));
    }
}

#[test]
fn a_flip_in_the_zeros_does_no_harm() {
    let (disk, batches, last) = small_log();
    let all = batches.concat();
    let mut tried = 0;
    for ordinal in 1..=last + 1 {
        let name = segment(ordinal);
        for at in used(&disk, ordinal)..512 {
            for flip in FLIPS {
                let disk = disk.copy();
                disk.edit(&name, |bytes| bytes[at] ^= flip);
                let (found, _) = read(&disk).unwrap_or_else(|error| panic!("{name} {at}: {error}"));
                assert_eq!(found, all, "{name} byte {at}");
                let more = records(100..=103, 40);
                write(&disk, SMALL, std::slice::from_ref(&more));
                let (found, tail) = read(&disk).expect("an intact log");
                assert_eq!(found, [&all[..], &more].concat(), "{name} byte {at}");
                assert_eq!(tail.cut, None, "{name} byte {at}");
                tried += 1;
            }
        }
    }
    assert!(tried > 1000, "{tried} flips");
}

#[test]
fn a_segment_that_is_shorter_or_longer_than_it_says_is_damage() {
    let (disk, _, last) = small_log();
    for ordinal in 1..=last {
        for len in [0, 1, 31, 32, 33, 300, 511, 513] {
            let disk = disk.copy();
            disk.edit(&segment(ordinal), |bytes| bytes.resize(len, 0));
            match read(&disk) {
                Err(PersistError::Corrupt { file, offset, .. }) => {
                    assert_eq!(file, segment(ordinal), "{len} bytes");
                    assert!(offset <= len as u64, "{offset} of {len} bytes");
                }
                other => panic!("segment {ordinal} with {len} bytes: {other:?}"),
            }
        }
    }
}

#[test]
fn a_missing_segment_is_damage_wherever_it_stood() {
    let (disk, batches, last) = small_log();
    for ordinal in 1..=last {
        let disk = disk.copy();
        disk.delete(&segment(ordinal));
        match read(&disk) {
            Err(PersistError::Missing { file, next }) => {
                assert_eq!((file, next), (segment(ordinal), segment(ordinal + 1)));
            }
            Err(PersistError::Gone { file, after, .. }) => {
                assert_eq!((ordinal, file, after), (1, segment(2), Seq(0)));
            }
            other => panic!("without segment {ordinal}: {other:?}"),
        }
        // The same holds if the prepared segment after it is missing.
        disk.delete(&segment(last + 1));
        assert!(read(&disk).is_err(), "without {ordinal}");
    }
    disk.delete(&segment(last + 1));
    assert_eq!(read(&disk).expect("a prepared segment is no loss").0, batches.concat());
}

#[test]
fn other_files_in_the_folder_are_left_alone() {
    let (disk, batches, last) = small_log();
    let foreign = [
        "1.seg",
        "+1.seg",
        "000000001.seg",
        "99999999999999999999999.seg",
        "00000001.seg.bak",
        "0.seg",
        ".seg",
        "x.seg",
        "seg",
        "tmp",
        "0.tmp.old",
        "README",
        "00000003",
        "\u{fc}.seg",
    ];
    for name in foreign {
        disk.put(&format!("journal/{name}"), b"not ours".to_vec());
    }
    let all = batches.concat();
    assert_eq!(read(&disk).expect("an intact log").0, all);
    let more = records(100..=110, 40);
    write(&disk, SMALL, std::slice::from_ref(&more));
    assert_eq!(read(&disk).expect("an intact log").0, [all, more].concat());
    for name in foreign {
        assert_eq!(disk.bytes(&format!("journal/{name}")), b"not ours", "{name} after {last}");
    }
}

#[test]
fn half_prepared_segments_are_swept_away() {
    let (disk, batches, last) = small_log();
    let next = format!("journal/{:08}.tmp", last + 1);
    disk.put(&next, vec![0; 100]);
    disk.put("journal/00000099.tmp", vec![7; 100]);
    assert_eq!(read(&disk).expect("an intact log").0, batches.concat());
    write(&disk, SMALL, &[records(100..=110, 40)]);
    assert!(disk.names().iter().all(|name| !name.contains(".tmp")), "{:?}", disk.names());
}

#[test]
fn a_newer_format_is_its_own_error_and_nothing_is_touched() {
    let (disk, _, _) = small_log();
    disk.edit(&segment(2), |bytes| of_format(7, bytes));
    let before = disk.bytes(&segment(2));
    match read(&disk) {
        Err(PersistError::VersionTooNew { file, found, supported }) => {
            assert_eq!((file, found, supported), (segment(2), 7, FORMAT_VERSION));
        }
        other => panic!("{other:?}"),
    }
    assert!(writer(&disk, SMALL).is_err());
    assert_eq!(disk.bytes(&segment(2)), before);
}

#[test]
fn a_damaged_header_of_an_unused_segment_is_no_loss() {
    let (disk, batches, last) = small_log();
    let all = batches.concat();
    for at in 0..32 {
        let disk = disk.copy();
        disk.edit(&segment(last + 1), |bytes| bytes[at] ^= 0x40);
        assert_eq!(read(&disk).expect("nothing was in it").0, all);
        let more = records(100..=120, 40);
        write(&disk, SMALL, std::slice::from_ref(&more));
        assert_eq!(read(&disk).expect("an intact log").0, [&all[..], &more].concat());
    }
}

#[test]
fn time_that_goes_back_in_the_log_is_damage() {
    let disk = MemoryDisk::default();
    write(&disk, SMALL, &[records(1..=2, 10)]);
    let mut open = writer(&disk, SMALL).expect("the log opens");
    let mut batch = sexton::persist::format::Batch::default();
    let about = sexton::persist::format::About {
        seq: Seq(3),
        at: sexton::clock::Timestamp(999),
        actor: sexton::ids::ActorId::LOCK,
        kind: sexton::persist::format::Kind::Entry,
    };
    batch.push(about, |_| {});
    open.write(&mut batch).expect("a write");
    match read(&disk) {
        Err(PersistError::Corrupt { after, found, .. }) => {
            assert_eq!(after, Seq(2));
            assert!(found.contains("time goes back"), "{found}");
        }
        other => panic!("{other:?}"),
    }
}
