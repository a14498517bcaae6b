//! Everything that is written is read back: over batches, segments, records in parts and restarts.

use crate::journal::disk::MemoryDisk;
use crate::journal::log::{self, SMALL, mark, read, records, segment, used, write, writer};
use sexton::ids::Seq;
use sexton::persist::disk::RealDisk;
use sexton::persist::format::PART_BYTES_MAX;
use sexton::persist::journal::{InlineFiller, Reader, Sizes, Writer};
use sexton::persist::mark::Mark;
use std::sync::Arc;

#[test]
fn batches_come_back_over_many_segments() {
    let disk = MemoryDisk::default();
    let batches: Vec<_> = (0..40u64)
        .zip((0..).step_by(2))
        .map(|(n, len)| records(n * 3 + 1..=n * 3 + 3, len))
        .collect();
    write(&disk, SMALL, &batches);
    let (found, tail) = read(&disk).expect("an intact log");
    assert_eq!(found, batches.concat());
    assert_eq!((tail.last, tail.records, tail.cut), (Seq(120), 120, None));
    assert!(disk.names().len() > 10, "several segments were filled");
}

#[test]
fn a_batch_larger_than_a_segment_is_spread_over_several() {
    let disk = MemoryDisk::default();
    let batch = records(1..=60, 40);
    write(&disk, SMALL, std::slice::from_ref(&batch));
    assert_eq!(read(&disk).expect("an intact log").0, batch);
}

#[test]
fn every_start_goes_on_behind_the_one_before() {
    let disk = MemoryDisk::default();
    let mut all = Vec::new();
    for start in 0..30u64 {
        let batch = records(start * 2 + 1..=start * 2 + 2, 50);
        write(&disk, SMALL, std::slice::from_ref(&batch));
        all.extend(batch);
        let (found, tail) = read(&disk).expect("an intact log");
        assert_eq!((found, tail.cut), (all.clone(), None));
    }
}

#[test]
fn a_long_record_comes_back_from_its_parts_over_the_end_of_a_segment() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let disk = Arc::new(RealDisk::new(folder.path()));
    let filler = Box::new(InlineFiller::new(Arc::clone(&disk) as _));
    let (_, tail) = read(disk.as_ref()).expect("there is no log yet");
    let mut writer = Writer::open(Arc::clone(&disk) as _, Sizes::default(), filler, &tail)
        .expect("the log opens");
    let all = [
        records(1..=1, 300_000),
        records(2..=2, PART_BYTES_MAX * 2 + 12_345),
        records(3..=3, PART_BYTES_MAX),
        records(4..=4, PART_BYTES_MAX + 1),
        records(5..=5, 10),
    ]
    .concat();
    writer.write(&mut log::batch(&all)).expect("a write");
    writer.sync().expect("a sync");
    drop(writer);
    let (found, tail) = read(disk.as_ref()).expect("an intact log");
    assert!(found == all, "long records come back");
    assert_eq!((tail.last, tail.cut), (Seq(5), None));
    assert!(tail.place.is_some_and(|(ordinal, _)| ordinal >= 2), "a segment was filled");
}

#[test]
fn after_a_clean_stop_numbers_go_on_and_after_a_crash_at_the_bound() {
    let disk = MemoryDisk::default();
    let mut open = writer(&disk, SMALL).expect("the log opens");
    let mut note = |batch: &mut _| {
        open.write(batch).expect("a write");
        open.sync().expect("a sync");
    };
    assert_eq!(read(&disk).expect("an intact log").1.next(), Seq(1));
    note(&mut mark(1, &Mark::Reserve { bound: Seq(1000) }));
    note(&mut log::batch(&records(2..=4, 5)));
    assert_eq!(read(&disk).expect("an intact log").1.next(), Seq(1000));
    note(&mut mark(5, &Mark::Stop));
    assert_eq!(read(&disk).expect("an intact log").1.next(), Seq(6));
    note(&mut log::batch(&records(6..=6, 5)));
    assert_eq!(read(&disk).expect("an intact log").1.next(), Seq(1000));
    // A number above the reserved bound, as after a stop: the bound must not lower the next number.
    note(&mut log::batch(&records(2000..=2000, 5)));
    assert_eq!(read(&disk).expect("an intact log").1.next(), Seq(2001));
}

#[test]
fn a_stop_counts_only_if_nothing_was_cut_behind_it() {
    let disk = MemoryDisk::default();
    let mut open = writer(&disk, SMALL).expect("the log opens");
    open.write(&mut mark(1, &Mark::Reserve { bound: Seq(1000) })).expect("a write");
    open.write(&mut mark(2, &Mark::Stop)).expect("a write");
    open.sync().expect("a sync");
    assert!(read(&disk).expect("an intact log").1.clean);
    let end = used(&disk, 1);
    disk.edit(&segment(1), |bytes| bytes[end + 3] = 9);
    let (_, tail) = read(&disk).expect("a torn tail is no damage");
    assert_eq!((tail.clean, tail.next()), (false, Seq(1000)));
}

#[test]
fn a_checkpoint_mark_comes_back_from_bytes_and_from_an_export() {
    use sexton::ids::{ActorId, Digest};
    use sexton::persist::mark::Watermark;
    let digest = Digest(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
    let checkpoint = Mark::Checkpoint {
        slot: 1,
        states: vec![Watermark { actor: ActorId::LOCK, upto: Seq(41), digest }],
    };
    let bytes = rmp_serde::to_vec(&checkpoint).expect("a mark encodes");
    assert_eq!(rmp_serde::from_slice::<Mark>(&bytes).expect("it decodes"), checkpoint);
    let text = serde_json::to_string(&checkpoint).expect("a mark encodes");
    assert_eq!(
        text,
        r#"{"checkpoint":{"slot":1,"states":[{"actor":1,"upto":41,"digest":"00112233445566778899aabbccddeeff"}]}}"#
    );
    assert_eq!(serde_json::from_str::<Mark>(&text).expect("it decodes"), checkpoint);
    for bad in [
        "",
        "00112233445566778899aabbccddeef",
        "+0112233445566778899aabbccddeeff",
        "00112233445566778899aabbccddeefg",
    ] {
        let bad = format!("\"{bad}\"");
        assert!(serde_json::from_str::<Digest>(&bad).is_err(), "{bad}");
    }
}

#[test]
fn a_checkpoint_mark_changes_nothing_of_the_tail_but_its_place() {
    let disk = MemoryDisk::default();
    let mut open = writer(&disk, SMALL).expect("the log opens");
    let checkpoint = Mark::Checkpoint { slot: 0, states: Vec::new() };
    for batch in [
        &mut mark(1, &Mark::Reserve { bound: Seq(1000) }),
        &mut mark(2, &Mark::Stop),
        &mut mark(3, &checkpoint),
    ] {
        open.write(batch).expect("a write");
    }
    open.sync().expect("a sync");
    let (_, tail) = read(&disk).expect("an intact log");
    assert_eq!((tail.last, tail.reserved), (Seq(3), Seq(1000)));
    assert!(!tail.clean, "the stop is no longer the last record");
}

/// Reads from a running coordinator's journal. Segments are added while it reads.
#[test]
fn a_reader_sees_segments_that_were_made_after_it_began() {
    let disk = MemoryDisk::default();
    let first = records(1..=2, 100);
    let mut open = writer(&disk, SMALL).expect("the log opens");
    open.write(&mut log::batch(&first)).expect("a write");
    let mut reader = Reader::open(&disk).expect("the log can be read");
    let more = records(3..=40, 100);
    for record in &more {
        open.write(&mut log::batch(std::slice::from_ref(record))).expect("a write");
        open.sync().expect("a sync");
    }
    let mut found = Vec::new();
    while let Some(record) = reader.next().expect("nothing is damaged") {
        found.push((record.seq.0, record.payload.to_vec()));
    }
    assert_eq!(found, [first, more].concat());
}
