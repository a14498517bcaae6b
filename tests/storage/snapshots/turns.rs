//! Slots are written alternately, sealed when they are closed, and not changed afterwards.

use crate::patience::until;
use crate::snapshots::directory::{
    self, LARGE, SMALL, bytes, checkpoint, open, slots, start, take,
};
use sexton::Node;
use sexton::actors;
use sexton::persist::snapshots::{SlotId, SlotStatus};
use sexton::spine::machine::{Observable as _, Paged as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

#[test]
fn slots_are_written_in_turn_and_the_other_is_not_touched() {
    let files = tempfile::tempdir().unwrap();
    let node = open(files.path(), SMALL);
    let mut before = bytes(files.path());
    for round in 0..6 {
        take(&node, round * 500..(round + 1) * 500);
        let taken = checkpoint(&node);
        let slot = SlotId::ALL[round % 2];
        assert_eq!(taken.slot, slot.to_string());
        let other = format!("{}/{}", sexton::persist::snapshots::FOLDER, slot.other());
        let after = bytes(files.path());
        let of_other = |name: &&String| name.starts_with(&other);
        assert!(after.keys().filter(of_other).eq(before.keys().filter(of_other)));
        for name in after.keys().filter(of_other) {
            assert!(after[name] == before[name], "{name} was changed");
        }
        let Ok(SlotStatus::Sealed(seal)) = slots(files.path()).look(slot) else {
            panic!("{slot} is not sealed");
        };
        assert_eq!(seal.manifest.begun, taken.upto);
        assert!(seal.mark > seal.manifest.begun, "its mark comes after it");
        let live = crate::node::wait(node.handle().status()).unwrap();
        let live = live.actors.iter().map(|it| (it.status.name, it.status.digest));
        let sealed = seal.manifest.states.iter().map(|state| {
            let name = actors::name_of(state.actor).expect("an actor of the node");
            (name, Some(state.digest))
        });
        assert!(live.eq(sealed), "of every actor");
        before = after;
    }
    node.stop().unwrap();
}

#[test]
fn a_sealed_slot_is_read_without_changing_a_byte() {
    let made = directory::make(LARGE, 4000);
    let before = bytes(made.path());
    for slot in SlotId::ALL {
        let slots = slots(made.path());
        let Ok(SlotStatus::Sealed(seal)) = slots.look(slot) else {
            panic!("{slot} is not sealed");
        };
        for _ in 0..3 {
            let mut pages = 0;
            let read = slots.read(slot, &seal, &mut |_| {
                pages += 1;
                Ok(())
            });
            read.unwrap();
            assert_eq!(pages, seal.pages);
            assert!(bytes(made.path()) == before, "a read of {slot} changed it");
        }
    }
    let (first, _) = start(made.path()).unwrap();
    let (second, past) = start(made.path()).unwrap();
    assert_eq!(first.digest(), second.digest());
    assert_eq!(past.mended, Vec::<String>::new());
    assert!(bytes(made.path()) == before, "a start's reading changed it");
}

/// Either slot, with the journal after it, gives the same state as the journal alone.
#[test]
fn either_slot_and_the_journal_alone_come_to_the_same() {
    let made = directory::make(LARGE, 4000);
    let (newest, past) = start(made.path()).unwrap();
    let (slot, _) = past.snapshot.expect("both are sealed");
    slots(made.path()).discard(slot).unwrap();
    let (older, past) = start(made.path()).unwrap();
    assert_eq!(past.snapshot.expect("one is sealed").0, slot.other());
    slots(made.path()).discard(slot.other()).unwrap();
    let (none, past) = start(made.path()).unwrap();
    assert_eq!(past.snapshot, None);
    assert_eq!(newest.digest(), none.digest());
    assert_eq!(older.digest(), none.digest());
    assert_eq!(newest.view().entries, none.view().entries);
    assert_eq!(older.view().entries, none.view().entries);
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("the file exists").permissions().mode() & 0o777
}

#[test]
fn nobody_else_may_read_them() {
    let files = tempfile::tempdir().unwrap();
    let data = files.path().join("data");
    let node = open(&data, LARGE);
    take(&node, 0..1000);
    checkpoint(&node);
    checkpoint(&node);
    for folder in ["", "journal", "snapshots", "snapshots/a", "snapshots/b"] {
        assert_eq!(mode(&data.join(folder)), 0o700, "{folder:?}");
    }
    for file in ["snapshots/a.seal", "snapshots/b.seal", "journal/00000001.seg"] {
        assert_eq!(mode(&data.join(file)), 0o600, "{file}");
    }
    node.stop().unwrap();
}

/// A checkpoint is due once a startup would have to read enough, even if the records are from several lives of the
/// program.
#[test]
fn lives_that_are_too_short_for_a_checkpoint_come_to_one_together() {
    let files = tempfile::tempdir().unwrap();
    let lives: [_; 2] = std::array::from_fn(|life| files.path().join(life.to_string()));
    let node = open(&lives[0], SMALL);
    take(&node, 0..1000);
    directory::copy(&lives[0], &lives[1]);
    node.stop().unwrap();
    let (_, past) = start(&lives[1]).unwrap();
    assert_eq!(past.snapshot, None, "it was killed before there was one");
    let mut config = directory::settings(&lives[1], SMALL);
    config.checkpoints.bytes = past.tail.bytes * 3 / 2;
    let node = Node::open(config).unwrap();
    take(&node, 1000..2000);
    until("a checkpoint is due", || node.handle().snapshots().last);
    node.stop().unwrap();
}
