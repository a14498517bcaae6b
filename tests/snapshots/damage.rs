//! One slot is damaged, somewhere. The start has everything all the same, says what was wrong, changes nothing while it
//! looks, and repeats no more than the other slot leaves; a checkpoint then makes the slot whole again, unasked.

use crate::chance::Chance;
use crate::daemon::Daemon;
use crate::directory::{self, LARGE, SMALL, bytes, open, sealed, start, timeless};
use crate::harm::Harm;
use crate::node;
use crate::patience::until;
use sexton::actors::lock::Listed;
use sexton::actors::machine::Machine as _;
use sexton::ids::Seq;
use sexton::persist::snapshots::SlotId;
use std::path::Path;

/// How many places are tried, by the recovery alone, by a node, by the program.
const PLACES: usize = 300;
const NODES: usize = 16;
const PROGRAMS: usize = 6;
const LOCKS: usize = 4000;

#[test]
fn a_start_with_one_slot_damaged_anywhere_is_whole() {
    let made = directory::make(SMALL, LOCKS);
    let data = made.path();
    let files = bytes(data);
    let (whole, past) = start(data).unwrap();
    let both = past.sealed;
    assert!(SlotId::ALL.iter().all(|slot| both[*slot].is_some()));
    let mut chance = Chance::new(1);
    let mut unsealed = 0;
    for place in 0..PLACES {
        let slot = SlotId::ALL[place % 2];
        let harm = Harm::choose(&mut chance, &files, slot);
        harm.happen(data);
        let damaged = bytes(data);
        let (locks, past) = start(data).unwrap_or_else(|error| panic!("{harm:?}: {error}"));
        assert_eq!(locks.digest(), whole.digest(), "{harm:?}");
        assert!(locks.view().entries == whole.view().entries, "{harm:?}");
        let [said] = past.mended.as_slice() else {
            panic!("{harm:?}: {:?}", past.mended)
        };
        assert!(
            said.contains(&format!("snapshot {slot}")),
            "{harm:?}: {said}"
        );
        unsealed += usize::from(said.contains("was being written"));
        let mut expected = both;
        expected[slot] = None;
        assert_eq!(past.sealed, expected, "{harm:?}");
        let other = both[slot.other()].unwrap();
        // Numbers of records have no gaps here but at starts.
        let Seq(behind) = Seq(past.tail.last.0 - other.0);
        assert!(past.tail.records <= behind, "{harm:?}: {past:?}");
        assert!(
            bytes(data) == damaged,
            "{harm:?}: looking changed something"
        );
        harm.undo(data, &files);
    }
    println!("{PLACES} places, {unsealed} of them a seal that was gone");
    let (locks, past) = start(data).unwrap();
    assert_eq!(past.mended, Vec::<String>::new());
    assert_eq!(locks.digest(), whole.digest());
}

/// What a directory comes to now, with both slots whole.
fn healed(data: &Path, whole: &[Listed], harm: &Harm) {
    assert_eq!(sealed(data), [true; 2], "{harm:?}: both are whole again");
    let (locks, past) = start(data).expect("both are whole");
    assert_eq!(past.mended, Vec::<String>::new(), "{harm:?}");
    assert!(timeless(locks.view().entries) == whole, "{harm:?}");
}

#[test]
fn a_node_makes_a_damaged_slot_whole_by_itself() {
    let made = directory::make(SMALL, LOCKS);
    let files = bytes(made.path());
    let (whole, _) = start(made.path()).unwrap();
    let whole = timeless(whole.view().entries);
    let mut chance = Chance::new(2);
    for place in 0..NODES {
        let slot = SlotId::ALL[place % 2];
        let harm = Harm::choose(&mut chance, &files, slot);
        let copy = tempfile::tempdir().unwrap();
        directory::copy(made.path(), copy.path());
        harm.happen(copy.path());
        let node = open(copy.path(), SMALL);
        let handle = node.handle();
        let [said] = handle.recovered().mended.as_slice() else {
            panic!("{harm:?}: {:?}", handle.recovered())
        };
        assert!(
            said.contains(&format!("snapshot {slot}")),
            "{harm:?}: {said}"
        );
        let taken = until("the node mends by itself", || handle.snapshots().last);
        assert_eq!(taken.slot, slot.to_string(), "{harm:?}: the damaged one");
        assert_eq!(sealed(copy.path()), [true; 2], "{harm:?}");
        assert!(timeless(node::entries(&node.handle())) == whole, "{harm:?}");
        node.stop().unwrap();
        healed(copy.path(), &whole, &harm);
    }
}

#[test]
fn the_program_says_what_it_mended() {
    let made = directory::make(LARGE, LOCKS);
    let files = bytes(made.path());
    let (whole, _) = start(made.path()).unwrap();
    let whole = timeless(whole.view().entries);
    let mut chance = Chance::new(3);
    for place in 0..PROGRAMS {
        let slot = SlotId::ALL[place % 2];
        let harm = Harm::choose(&mut chance, &files, slot);
        let copy = tempfile::tempdir().unwrap();
        directory::copy(made.path(), copy.path());
        harm.happen(copy.path());
        let data = copy.path().to_str().unwrap();
        let daemon = Daemon::serve(&["--data", data]);
        daemon.until_logged("it will be written anew");
        let status = std::process::Command::new(env!("CARGO_BIN_EXE_sexton"))
            .args(["status", "--data", data, "--json"])
            .output()
            .unwrap();
        let status = String::from_utf8(status.stdout).unwrap();
        let said = format!("snapshot {slot}");
        assert!(daemon.log().contains(&said), "{harm:?}: {}", daemon.log());
        assert!(
            status.contains("\"mended\":[\"snapshot") || status.contains(&said),
            "{harm:?}: {status}"
        );
        daemon.until_logged("took a snapshot");
        daemon.kill();
        healed(copy.path(), &whole, &harm);
    }
}
