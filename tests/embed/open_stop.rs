//! A node reports its progress while it opens, and a stop in the middle of a checkpoint leaves a directory that the next process can open.

use crate::directory::{self, request, settings};
use crate::node::wait;
use crate::patience::until;
use sexton::persist::disk::RealDisk;
use sexton::persist::snapshots::{SledStores, SlotId, SlotStatus, Slots};
use sexton::spine::progress::Step;
use sexton::{Config, Node};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn a_stop_waits_for_the_checkpoint_that_is_under_way() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path();
    let node = Node::open(settings(data)).expect("the directory opens");
    let handle = node.handle();
    request(&handle, 0..2000);
    wait(handle.checkpoint()).expect("the lock is granted");
    // Nothing changes after this checkpoint, so the stop does not take one of its own.
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| wait(handle.checkpoint()));
        until("the checkpoint begins", || handle.snapshots().running.then_some(()));
        node.stop().expect("the node stops");
        let slots = Slots::new(Arc::new(RealDisk::new(data)), Arc::new(SledStores::new(data)));
        for slot in SlotId::ALL {
            let found = slots.look(slot).expect("the slot is readable");
            assert!(matches!(found, SlotStatus::Sealed(_)), "{slot}: {found:?}");
        }
        drop(asked.join().expect("no panic"));
    });
}

#[test]
fn nobody_writes_to_the_directory_after_a_stop_though_a_handle_is_kept() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let journal = files.path().join("journal");
    let mut config = settings(files.path());
    // Large enough that the stop happens while the next segment is being filled.
    config.segments.first_bytes = 16 << 20;
    config.segments.max_bytes = 32 << 20;
    let node = Node::open(config).expect("the directory opens");
    let handle = node.handle();
    node.stop().expect("the node stops");
    let unfinished = std::fs::read_dir(&journal)
        .expect("there is a journal")
        .map(|entry| entry.expect("the directory is readable").file_name())
        .find(|name| name.to_string_lossy().ends_with(".tmp"));
    assert_eq!(unfinished, None, "a checkpoint is still running");
    drop(handle);
}

#[test]
fn whoever_gave_a_call_is_called_behind_each_checkpoint() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let calls = || CALLS.load(Ordering::SeqCst);
    let files = tempfile::tempdir().expect("a temporary directory");
    let node = Node::open(Config {
        after_checkpoint: Some(|| {
            CALLS.fetch_add(1, Ordering::SeqCst);
        }),
        ..settings(files.path())
    });
    let node = node.expect("the directory opens");
    request(&node.handle(), 0..10);
    assert_eq!(calls(), 0);
    for taken in 1..3 {
        wait(node.handle().checkpoint()).expect("the lock is granted");
        assert_eq!(calls(), taken, "before the caller is notified");
    }
    node.stop().expect("the node stops");
}

#[test]
fn a_start_shows_how_far_it_has_come() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let open = || {
        let config = settings(files.path());
        let progress = config.progress.clone();
        (Node::open(config).expect("the directory opens"), progress.get())
    };
    let (node, step) = open();
    assert_eq!(step, Step::Reading, "there was nothing to replay");
    request(&node.handle(), 0..100);
    // Two nodes cannot share a directory, so the second opens a copy of the files that the first has written so far.
    let copied = tempfile::tempdir().expect("a temporary directory");
    directory::copy(files.path(), copied.path());
    let config = settings(copied.path());
    let progress = config.progress.clone();
    let copy = Node::open(config).expect("the directory opens");
    // The journal has the mark of the start, the rules of each actor, the entries, and the mark that reserves more numbers.
    let upto = sexton::ids::Seq(1 + sexton::actors::names().len() as u64 + 100 + 1);
    assert_eq!(progress.get(), Step::Replaying { records: 100, upto });
    copy.stop().expect("the node stops");
    node.stop().expect("the node stops");
    let (node, step) = open();
    assert!(matches!(step, Step::Building { pages: 4.. }), "{step:?}");
    node.stop().expect("the node stops");
}
