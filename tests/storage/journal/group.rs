//! The journal thread: records keep their order, waiting batches share a sync, a batch is written directly only if no
//! other waits, and the end of the thread is reported.

use crate::journal::disk::MemoryDisk;
use crate::journal::log::{batch, read, records, writer};
use sexton::ids::Seq;
use sexton::persist::journal::{Fsync, Journal, JournalThread, Sizes};
use sexton::persist::mark::Mark;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

const SIZES: Sizes = Sizes { first_bytes: 1 << 20, max_bytes: 1 << 20 };

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn start(disk: &MemoryDisk, fsync: Fsync) -> (Journal, JournalThread) {
    let mut writer = writer(disk, SIZES).expect("the log opens");
    // Prepare the next segment first, so that its syncs are not counted.
    writer.refill();
    Journal::start(writer, fsync).expect("a new thread")
}

/// Waits until a condition holds. The journal wakes this thread when its state changes.
fn until(journal: &Journal, so: impl Fn(&Journal) -> bool) {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        journal.register(&waker);
        if so(journal) {
            return;
        }
        std::thread::park_timeout(Duration::from_secs(20));
    }
}

#[test]
fn batches_are_written_in_the_order_in_which_they_were_handed_over() {
    let disk = MemoryDisk::default();
    let (journal, thread) = start(&disk, Fsync::Always);
    let all = records(1..=500, 30);
    for record in &all {
        journal.submit(batch(std::slice::from_ref(record)));
    }
    until(&journal, |journal| journal.released() == Seq(500));
    thread.stop().expect("a clean stop");
    assert_eq!(read(&disk).expect("an intact log").0, all);
    let counts = journal.counts();
    assert_eq!(counts.writes, counts.syncs, "each write is synced before its answer");
}

#[test]
fn one_sync_serves_all_that_came_while_the_last_one_ran() {
    let disk = MemoryDisk::default();
    let (journal, thread) = start(&disk, Fsync::Always);
    disk.hold_syncs(true);
    journal.submit(batch(&records(1..=1, 30)));
    disk.until_a_sync_waits();
    let before = disk.syncs();
    for seq in 2..=100 {
        journal.submit(batch(&records(seq..=seq, 30)));
        assert!(!journal.write_inline(&mut batch(&records(900..=900, 1))), "the thread has work");
    }
    assert_eq!(journal.released(), Seq(0), "nothing is released before its sync");
    disk.hold_syncs(false);
    until(&journal, |journal| journal.released() == Seq(100));
    assert_eq!(disk.syncs() - before, 2);
    thread.stop().expect("a clean stop");
    assert_eq!(read(&disk).expect("an intact log").0, records(1..=100, 30));
}

#[test]
fn with_nothing_on_its_way_a_batch_is_written_and_synced_in_place() {
    let disk = MemoryDisk::default();
    let (journal, thread) = start(&disk, Fsync::Always);
    let before = disk.syncs();
    assert!(journal.write_inline(&mut batch(&records(1..=3, 30))));
    assert_eq!((journal.released(), disk.syncs() - before), (Seq(3), 1));
    thread.stop().expect("a clean stop");
    assert_eq!(read(&disk).expect("an intact log").0, records(1..=3, 30));
}

#[test]
fn a_stop_writes_and_syncs_what_was_handed_over() {
    for fsync in [Fsync::Always, Fsync::Interval(Duration::MAX), Fsync::Never] {
        let disk = MemoryDisk::default();
        let (journal, thread) = start(&disk, fsync);
        let before = disk.syncs();
        for seq in 1..=50 {
            journal.submit(batch(&records(seq..=seq, 30)));
        }
        thread.stop().expect("a clean stop");
        assert_eq!(read(&disk).expect("an intact log").0, records(1..=50, 30), "{fsync:?}");
        assert!(disk.syncs() > before, "{fsync:?}");
        assert_eq!(journal.released(), Seq(50), "{fsync:?}");
    }
}

#[test]
fn what_reserves_numbers_is_synced_whatever_the_policy_says() {
    let disk = MemoryDisk::default();
    let (journal, thread) = start(&disk, Fsync::Never);
    let before = disk.syncs();
    assert!(journal.write_inline(&mut batch(&records(1..=1, 30))));
    assert_eq!(disk.syncs(), before);
    let mut reserve = crate::journal::log::mark(2, &Mark::Reserve { bound: Seq(1000) });
    reserve.make_urgent();
    assert!(journal.write_inline(&mut reserve));
    assert_eq!(disk.syncs(), before + 1);
    thread.stop().expect("a clean stop");
}

#[test]
fn after_a_failed_sync_nothing_is_released_any_more() {
    let disk = MemoryDisk::default();
    let (journal, thread) = start(&disk, Fsync::Always);
    assert!(journal.write_inline(&mut batch(&records(1..=1, 30))));
    disk.hold_syncs(true);
    journal.submit(batch(&records(2..=2, 30)));
    disk.until_a_sync_waits();
    journal.submit(batch(&records(3..=3, 30)));
    disk.fail_syncs();
    disk.hold_syncs(false);
    until(&journal, |journal| journal.failure().is_some());
    journal.write_inline(&mut batch(&records(4..=4, 30)));
    journal.submit(batch(&records(5..=5, 30)));
    let error = thread.stop().expect_err("the failure is reported");
    assert!(error.to_string().contains("sync journal/00000001.seg"), "{error}");
    assert_eq!(journal.released(), Seq(1));
    let found = read(&disk).expect("an intact log").0;
    assert_eq!(found, records(1..=2, 30), "nothing is written after a failure");
}
