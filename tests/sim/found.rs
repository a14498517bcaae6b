//! Faults in the journal that the campaign found, each in its shortest form, and a test that the simulated disk loses
//! unsynced data.

use crate::chance::Chance;
use crate::disk::SimDisk;
use crate::storage::{Fate, Unsynced};
use sexton::clock::Timestamp;
use sexton::ids::{ActorId, Seq};
use sexton::persist::PersistError;
use sexton::persist::disk::Disk as _;
use sexton::persist::format::{About, Batch, Kind};
use sexton::persist::journal::{InlineFiller, Reader, Sizes, Tail, Writer};
use std::sync::Arc;

const SIZES: Sizes = Sizes { first_bytes: 4096, max_bytes: 4096 };
const LONG: Sizes = Sizes { first_bytes: 600 << 10, max_bytes: 600 << 10 };

fn disk() -> SimDisk {
    SimDisk::new(Chance::of(1), 512)
}

fn batch(seq: u64, bytes: usize) -> Batch {
    filled(seq, bytes, 0xAB)
}

fn filled(seq: u64, bytes: usize, byte: u8) -> Batch {
    let mut batch = Batch::default();
    let about = About { seq: Seq(seq), at: Timestamp(seq), actor: ActorId(200), kind: Kind::Entry };
    batch.push(about, |payload| payload.resize(payload.len() + bytes, byte));
    batch
}

/// Reads the log. Returns its sequence numbers and its end.
fn read(disk: &SimDisk) -> Result<(Vec<u64>, Tail), PersistError> {
    let mut reader = Reader::open(disk)?;
    let mut seqs = Vec::new();
    while let Some(record) = reader.next()? {
        seqs.push(record.seq.0);
    }
    Ok((seqs, reader.tail().clone()))
}

fn open(disk: &SimDisk, sizes: Sizes) -> Result<Writer, PersistError> {
    let (_, tail) = read(disk)?;
    let filler = InlineFiller::new(Arc::new(disk.clone()));
    Writer::open(Arc::new(disk.clone()), sizes, Box::new(filler), &tail)
}

fn write(writer: &mut Writer, seq: u64, bytes: usize) {
    writer.write(&mut batch(seq, bytes)).expect("a write");
}

fn numbers(disk: &SimDisk) -> Vec<u64> {
    read(disk).expect("an intact log").0
}

#[test]
fn the_disk_forgets_what_was_not_synced_and_nothing_else() {
    let disk = disk();
    let file = disk.create("kept").expect("nothing is there yet");
    file.write_at(&[1; 1024], 0).expect("there is space");
    file.sync().expect("no fault is injected");
    disk.sync_folder("").expect("no fault is injected");
    file.write_at(&[2; 1024], 0).expect("there is space");
    drop(disk.create("lost").expect("nothing is there yet"));
    disk.cut_power_by(|unsynced| match unsynced {
        Unsynced::Page(1) => Fate::Torn(10),
        Unsynced::Name | Unsynced::Page(_) => Fate::Lost,
    });
    let mut expected = vec![1; 1024];
    expected[512..522].fill(2);
    assert_eq!(disk.bytes("kept"), expected);
    assert_eq!(disk.list("").expect("the directory is readable"), [("kept".to_owned(), 1024)]);
}

#[test]
fn a_killed_process_leaves_what_it_wrote() {
    let disk = disk();
    let file = disk.create("file").expect("nothing is there yet");
    file.write_at(b"written", 0).expect("there is space");
    disk.die_after(0);
    assert!(file.write_at(b"more", 7).is_err());
    assert!(disk.is_dead());
    disk.kill();
    assert!(disk.bytes("file").starts_with(b"written"));
}

#[test]
fn the_folder_of_the_journal_is_durable_with_its_first_entry() {
    let disk = disk();
    let mut writer = open(&disk, SIZES).expect("no fault is injected");
    write(&mut writer, 1, 10);
    writer.sync().expect("no fault is injected");
    disk.cut_power_by(|_| Fate::Lost);
    assert_eq!(numbers(&disk), [1]);
}

#[test]
fn what_a_killed_process_had_not_synced_is_synced_before_anything_follows_it() {
    let disk = disk();
    let mut writer = open(&disk, SIZES).expect("no fault is injected");
    write(&mut writer, 1, 1000);
    drop(writer);
    disk.kill();
    let mut writer = open(&disk, SIZES).expect("no fault is injected");
    write(&mut writer, 2, 1000);
    // Lose all unsynced pages of the first record, and keep those of the second. Both records must survive: a record
    // implies that everything before it was synced, so the second process must sync the first record when it opens the
    // log.
    disk.cut_power_by(|unsynced| match unsynced {
        Unsynced::Page(page) if page < 2 => Fate::Lost,
        Unsynced::Name | Unsynced::Page(_) => Fate::Kept,
    });
    assert_eq!(numbers(&disk), [1, 2]);
}

#[test]
fn the_end_of_a_segment_that_failed_to_sync_is_synced_at_the_next_start() {
    let disk = disk();
    let mut writer = open(&disk, SIZES).expect("no fault is injected");
    write(&mut writer, 1, 3000);
    disk.fail_sync();
    // The second entry does not fit into this segment.
    assert!(writer.write(&mut batch(2, 3000)).is_err());
    drop(writer);
    disk.kill();
    let mut writer = open(&disk, SIZES).expect("no fault is injected");
    write(&mut writer, 3, 10);
    writer.sync().expect("no fault is injected");
    disk.cut_power_by(|unsynced| match unsynced {
        Unsynced::Page(_) => Fate::Lost,
        Unsynced::Name => Fate::Kept,
    });
    assert_eq!(numbers(&disk), [1, 3]);
}

#[test]
fn a_record_cut_over_two_segments_is_cut_wherever_that_is_cut_short() {
    for power in [false, true] {
        for calls in 0.. {
            let disk = disk();
            let mut writer = open(&disk, LONG).expect("no fault is injected");
            write(&mut writer, 1, 10);
            writer.sync().expect("no fault is injected");
            // The record has two parts. The first part fits here; the second belongs to the next segment and is never
            // written.
            write(&mut writer, 2, 1_000_000);
            drop(writer);
            disk.cut_power_by(|unsynced| match unsynced {
                Unsynced::Page(page) if page < 100 => Fate::Lost,
                Unsynced::Name | Unsynced::Page(_) => Fate::Kept,
            });
            disk.die_after(calls);
            let died = open(&disk, LONG).is_err();
            disk.kill();
            if power {
                disk.cut_power();
            }
            drop(open(&disk, LONG).expect("the log opens, whatever was cut short"));
            assert_eq!(numbers(&disk), [1], "killed in call {calls}");
            if !died {
                break;
            }
        }
    }
}

#[test]
fn damage_is_not_taken_for_a_torn_tail_because_the_last_record_ends_in_zeros() {
    let disk = disk();
    let mut writer = open(&disk, SIZES).expect("no fault is injected");
    for seq in [1, 2] {
        let mut batch = filled(seq, 100, 0);
        writer.write(&mut batch).expect("a write");
        writer.sync().expect("no fault is injected");
    }
    disk.flip("journal/00000001.seg", 70, 0);
    let verdict = read(&disk);
    assert!(matches!(verdict, Err(PersistError::Corrupt { offset: 32, .. })), "{verdict:?}");
}
