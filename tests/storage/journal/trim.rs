//! The removal of old segments: the oldest first, and none that is still needed.

use crate::journal::disk::MemoryDisk;
use crate::journal::log::{
    self, SMALL, Written, after, needed_from, read, read_after, records, segment, write, writer,
    writer_at,
};
use sexton::clock::Timestamp;
use sexton::ids::Seq;
use sexton::persist::PersistError;
use sexton::persist::disk::{Disk, DiskFile};
use sexton::persist::journal::{Sizes, segment as segments};
use sexton::persist::retention::{Kept, Trimmed, history, trim, trim_but};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

fn small_log() -> (MemoryDisk, Vec<Written>, u64) {
    log_of(SMALL, &(0..14).map(|n| records(n * 4 + 1..=n * 4 + 2, 41)).collect::<Vec<_>>())
}

fn log_of(sizes: Sizes, batches: &[Vec<Written>]) -> (MemoryDisk, Vec<Written>, u64) {
    let disk = MemoryDisk::default();
    write(&disk, sizes, batches);
    let (last, _) = read(&disk).expect("an intact log").1.place.expect("the log has entries");
    (disk, batches.concat(), last)
}

/// Returns the numbers of the existing segments.
fn there(disk: &MemoryDisk, last: u64) -> Vec<u64> {
    let names = disk.names();
    (1..=last + 1).filter(|ordinal| names.contains(&segment(*ordinal))).collect()
}

fn trim_at_every_number((disk, all, last): (MemoryDisk, Vec<Written>, u64), sizes: Sizes) {
    let end = all.last().expect("there are records").0;
    let present = there(&disk, last);
    for upto in (0..=end + 1).chain([u64::MAX]) {
        let disk = disk.copy();
        let needed = needed_from(&disk, last, upto);
        let trimmed = trim(&disk, Seq(upto)).expect("a removal");
        let expected = Trimmed { segments: needed - 1, bytes: (needed - 1) * sizes.first_bytes };
        assert_eq!(trimmed, expected, "up to {upto}");
        let mut kept = present.clone();
        kept.retain(|ordinal| *ordinal >= needed);
        assert_eq!(there(&disk, last), kept, "up to {upto}");
        for begin in upto..=end {
            let (found, _) = read_after(&disk, after(begin)).expect("everything needed is present");
            assert!(found.iter().eq(all.iter().filter(|(seq, _)| *seq > begin)), "{begin}");
        }
        let again = trim(&disk, Seq(upto)).expect("a removal");
        assert_eq!(again, Trimmed::default(), "up to {upto}");
        let (_, tail) = read_after(&disk, after(upto)).expect("an intact log");
        let more = records(end + 10..=end + 12, 40);
        let mut open = writer_at(&disk, sizes, &tail).expect("the log opens");
        open.write(&mut log::batch(&more)).expect("a write");
        let (found, _) = read_after(&disk, after(end)).expect("an intact log");
        assert_eq!(found, more, "up to {upto}");
    }
}

#[test]
fn what_is_needed_stays_and_all_else_goes() {
    trim_at_every_number(small_log(), SMALL);
}

#[test]
fn what_is_needed_of_a_log_with_parts_stays_and_all_else_goes() {
    let sizes = Sizes { first_bytes: 600 << 10, max_bytes: 600 << 10 };
    let batches = [
        records(1..=2, 100),
        records(3..=4, 1_300_000),
        records(6..=6, 50),
        records(7..=8, 300_000),
    ];
    trim_at_every_number(log_of(sizes, &batches), sizes);
}

#[test]
fn history_is_kept_by_age_and_by_size_and_does_not_delay_a_start() {
    let (disk, all, last) = small_log();
    let end = all.last().expect("there are records").0;
    let needed = needed_from(&disk, last, end);
    assert!(needed > 4, "there are many segments");
    let bytes = SMALL.first_bytes;
    let begins =
        |ordinal| segments::opened_at(&disk, ordinal).expect("readable").expect("a record");
    let everything = needed - 1;
    for (since, bytes_max, left) in [
        (Timestamp(0), u64::MAX, everything),
        (Timestamp(0), 2 * bytes, 2),
        (Timestamp(0), 2 * bytes - 1, 1),
        (Timestamp(0), 0, 0),
        (Timestamp(begins(needed).0 + 1), u64::MAX, 0),
        (begins(needed), u64::MAX, 1),
        (begins(3), u64::MAX, needed - 2),
    ] {
        let disk = disk.copy();
        let kept = Kept { since, bytes_max };
        let trimmed = trim_but(&disk, Seq(end), kept).expect("a removal");
        assert_eq!(trimmed.segments, everything - left, "{kept:?}");
        let history = history(&disk, Seq(end)).expect("readable");
        assert_eq!(history.bytes, left * bytes, "{kept:?}");
        assert_eq!(history.since, Some(begins(needed - left)), "{kept:?}");
        // What recovery reads begins where it would begin without the history.
        let (found, _) = read_after(&disk, after(end)).expect("an intact log");
        assert!(found.is_empty(), "{kept:?}");
    }
}

#[test]
fn a_log_that_is_not_there_has_nothing_to_trim() {
    let disk = MemoryDisk::default();
    let trimmed = trim(&disk, Seq(9)).expect("no file has to be removed");
    assert_eq!(trimmed, Trimmed::default());
    drop(writer(&disk, SMALL).expect("the log opens"));
    let trimmed = trim(&disk, Seq(u64::MAX)).expect("no file has to be removed");
    assert_eq!(trimmed, Trimmed::default());
}

/// A damaged segment does not prove that the segment before it is unneeded.
#[test]
fn a_damaged_segment_lets_nothing_go() {
    let (disk, _, last) = small_log();
    let everything = Seq(u64::MAX);
    let mut damages: Vec<_> = [34, 41, 60, 64].map(Damage::Flip).into();
    damages.push(Damage::Header);
    damages.extend([0, 31, 40, 300, 513].map(Damage::Length));
    for damage in damages {
        let disk = disk.copy();
        disk.edit(&segment(last), |bytes| match damage {
            Damage::Header => bytes[12..32].fill(7),
            Damage::Flip(at) => bytes[at] ^= 1,
            Damage::Length(len) => bytes.resize(len, 0),
        });
        trim(&disk, everything).expect("a removal");
        assert_eq!(there(&disk, last), [last - 1, last, last + 1], "{damage:?}");
        (1..last).for_each(|ordinal| disk.delete(&segment(ordinal)));
        trim(&disk, everything).expect("no file has to be removed");
        assert_eq!(there(&disk, last), [last, last + 1], "{damage:?}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    /// A header with more damage than can be corrected.
    Header,
    Flip(usize),
    Length(usize),
}

#[test]
fn foreign_and_unfinished_files_are_left_alone() {
    let (disk, _, last) = small_log();
    let foreign = ["journal/1.seg", "journal/00000001.seg.bak", "journal/00000001.tmp"];
    for name in foreign {
        disk.put(name, b"not ours".to_vec());
    }
    trim(&disk, Seq(u64::MAX)).expect("a removal");
    assert_eq!(there(&disk, last), [last, last + 1]);
    for name in foreign {
        assert_eq!(disk.bytes(name), b"not ours");
    }
}

#[test]
fn a_power_cut_while_trimming_leaves_a_log_without_a_hole() {
    let (disk, all, last) = small_log();
    let upto = 40;
    let gone = needed_from(&disk, last, upto) - 1;
    assert!(gone > 2, "several segments are removed");
    for changes in 0..=usize::try_from(gone).expect("a small log") {
        let disk = disk.copy();
        disk.cut_power_after(changes);
        let whole = trim(&disk, Seq(upto)).is_ok();
        assert_eq!(whole, changes as u64 == gone, "after {changes}");
        let disk = disk.copy();
        let kept: Vec<u64> = (changes as u64 + 1..=last + 1).collect();
        assert_eq!(there(&disk, last), kept);
        let (found, _) = read_after(&disk, after(upto)).expect("an intact log");
        assert!(found.iter().eq(all.iter().filter(|(seq, _)| *seq > upto)));
        let rest = trim(&disk, Seq(upto)).expect("a removal");
        assert_eq!(rest.segments, gone - changes as u64);
    }
}

/// A disk that records removals and syncs in their order.
struct Noting {
    disk: MemoryDisk,
    noted: Mutex<Vec<String>>,
}

impl Noting {
    fn note(&self, what: String) {
        self.noted.lock().expect("not poisoned").push(what);
    }
}

impl Disk for Noting {
    fn list(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        self.disk.list(folder)
    }

    fn create_folder(&self, folder: &str) -> io::Result<()> {
        panic!("{folder} is created");
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        panic!("{name} is created");
    }

    fn open(&self, name: &str, write: bool) -> io::Result<Box<dyn DiskFile>> {
        assert!(!write, "{name} is opened for writing");
        self.disk.open(name, write)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        panic!("{from} becomes {to}");
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.note(format!("remove {name}"));
        self.disk.remove(name)
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.note(format!("sync {folder}"));
        self.disk.sync_folder(folder)
    }
}

/// A power cut may keep any of several unsynced removals. So there is never more than one, and a cut leaves no gap.
#[test]
fn each_removal_is_synced_before_the_next_and_the_oldest_goes_first() {
    let (disk, _, last) = small_log();
    let gone = needed_from(&disk, last, 40) - 1;
    let disk = Noting { disk, noted: Mutex::default() };
    trim(&disk, Seq(40)).expect("a removal");
    let expected: Vec<String> = (1..=gone)
        .flat_map(|ordinal| [format!("remove {}", segment(ordinal)), "sync journal".to_owned()])
        .collect();
    assert_eq!(disk.noted.into_inner().expect("nothing panicked"), expected);
}

#[test]
fn a_disk_that_removes_nothing_says_so() {
    let (disk, _, _) = small_log();
    disk.cut_power_after(0);
    match trim(&disk, Seq(40)) {
        Err(PersistError::Io { action, file, .. }) => {
            assert_eq!((action, file), ("remove", segment(1)));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn trimming_beside_a_writer_takes_nothing_from_it() {
    let disk = MemoryDisk::default();
    let durable = AtomicU64::new(0);
    let last = 3000;
    let trimmed = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut open = writer(&disk, SMALL).expect("the log opens");
            for seq in 1..=last {
                open.write(&mut log::batch(&records(seq..=seq, 30))).expect("a write");
                open.sync().expect("a sync");
                durable.store(seq, Ordering::Release);
            }
        });
        let mut trimmed = 0;
        loop {
            let upto = durable.load(Ordering::Acquire);
            trimmed += trim(&disk, Seq(upto)).expect("a removal").segments;
            if upto == last {
                break trimmed;
            }
        }
    });
    let (found, tail) = read_after(&disk, after(last - 3)).expect("an intact log");
    assert_eq!(found, records(last - 2..=last, 30));
    let (ordinal, _) = tail.place.expect("the log has entries");
    assert_eq!(trimmed, ordinal - 1, "all but the one in use are removed");
}
