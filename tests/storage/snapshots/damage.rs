//! Damage to one slot, at any position. A startup still recovers everything, reports the damage, changes nothing while it
//! reads, and replays only what the other slot requires. The next checkpoint then repairs the slot.

use crate::chance::Chance;
use crate::daemon::Daemon;
use crate::node;
use crate::patience::until;
use crate::snapshots::directory::{self, LARGE, SMALL, bytes, open, sealed, start, timeless};
use crate::snapshots::harm::Harm;
use sexton::actors::lock::EntryView;
use sexton::ids::Seq;
use sexton::persist::snapshots::{BySlot, SlotId};
use sexton::spine::machine::{Observable as _, Paged as _};
use sexton::spine::recovery::RecoveryError;
use std::path::Path;

/// The number of positions that are tried: by recovery alone, by a node, and by the program.
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
        let [said] = past.mended.as_slice() else { panic!("{harm:?}: {:?}", past.mended) };
        assert!(said.contains(&format!("snapshot {slot}")), "{harm:?}: {said}");
        unsealed += usize::from(said.contains("was being written"));
        let mut expected = both;
        expected[slot] = None;
        assert_eq!(past.sealed, expected, "{harm:?}");
        let other = both[slot.other()].unwrap();
        // Sequence numbers have no gaps here except at startups, so this is the maximum number of records after the
        // snapshot.
        let Seq(behind) = Seq(past.tail.last.0 - other.0);
        assert!(past.tail.records <= behind, "{harm:?}: {past:?}");
        assert!(bytes(data) == damaged, "{harm:?}: looking changed something");
        harm.undo(data, &files);
    }
    println!("{PLACES} places, {unsealed} of them a seal that was gone");
    let (locks, past) = start(data).unwrap();
    assert_eq!(past.mended, Vec::<String>::new());
    assert_eq!(locks.digest(), whole.digest());
}

/// Returns the state of a directory once both slots are intact again.
fn healed(data: &Path, whole: &[EntryView], harm: &Harm) {
    assert_eq!(sealed(data), [true; 2], "{harm:?}: both are intact again");
    let (locks, past) = start(data).expect("both are intact");
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
        assert!(said.contains(&format!("snapshot {slot}")), "{harm:?}: {said}");
        let taken = until("the node repairs it", || handle.snapshots().last);
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
        daemon.until_logged("taking a snapshot now");
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

/// Two directories have the same history except for the names of their locks. Intact files of one must not be used in the
/// other, even if their sequence numbers fit.
#[test]
fn a_snapshot_of_another_directory_is_left_alone() {
    let files = tempfile::tempdir().unwrap();
    let [one, other] = [0, 1].map(|which| {
        let data = files.path().join(which.to_string());
        let node = open(&data, LARGE);
        for turn in 0..2 {
            let first = (which * 2 + turn) * 500;
            directory::take(&node, first..first + 500);
            directory::checkpoint(&node);
        }
        directory::take(&node, 5000..5100);
        let left = files.path().join(format!("left-{which}"));
        directory::copy(&data, &left);
        node.stop().unwrap();
        left
    });
    // The snapshots of the first directory are older than the end of the other journal, so their times fit too.
    let (whole, _) = start(&other).unwrap();
    for slot in SlotId::ALL {
        let snapshots = other.join("snapshots");
        std::fs::remove_dir_all(snapshots.join(slot.to_string())).unwrap();
    }
    directory::copy(&one.join("snapshots"), &other.join("snapshots"));
    let refused = start(&other).err().unwrap();
    let RecoveryError::OtherLog { wrong } = &refused else {
        panic!("{refused}");
    };
    let is_it = |said: &String| said.contains("belongs to another log");
    assert!(wrong.len() == 2 && wrong.iter().all(is_it), "{wrong:?}");
    // Nothing was changed: without the snapshots, the journal is complete.
    std::fs::remove_dir_all(other.join("snapshots")).unwrap();
    let (locks, past) = start(&other).unwrap();
    assert_eq!((past.mended, past.sealed), (Vec::<String>::new(), BySlot::default()));
    assert_eq!(locks.digest(), whole.digest());
}

/// Puts something in place of a file or directory.
type Plant<'p> = &'p dyn Fn(&Path);

/// Puts a pipe, a directory or a file in place of something else. Nothing may block on it, and the next checkpoint
/// replaces it.
#[test]
fn what_is_no_file_or_no_folder_is_damage_like_any_other() {
    let made = directory::make(SMALL, LOCKS / 10);
    let (whole, _) = start(made.path()).unwrap();
    let whole = timeless(whole.view().entries);
    let pipe = |path: &Path| {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
    };
    let plant: [(&str, Plant<'_>); 5] = [
        ("a.seal", &pipe),
        ("a.seal", &|path| {
            std::fs::create_dir_all(path.join("deep")).unwrap();
        }),
        ("a", &|path| std::fs::write(path, "x").unwrap()),
        ("a", &pipe),
        ("a/db", &pipe),
    ];
    for (place, plant) in plant {
        let copy = tempfile::tempdir().unwrap();
        directory::copy(made.path(), copy.path());
        // A named pipe here must not block a client that opens the directory, either.
        pipe(&copy.path().join("lock.tmp"));
        let path = copy.path().join("snapshots").join(place);
        if path.is_dir() {
            std::fs::remove_dir_all(&path).unwrap();
        } else {
            std::fs::remove_file(&path).unwrap();
        }
        plant(&path);
        let node = open(copy.path(), SMALL);
        let mended = node.handle().recovered().mended.clone();
        assert_eq!(mended.len(), 1, "{place}: {mended:?}");
        until("the node repairs it", || node.handle().snapshots().last);
        node.stop().unwrap();
        assert_eq!(sealed(copy.path()), [true; 2], "{place}");
        let (locks, past) = start(copy.path()).unwrap();
        assert_eq!(past.mended, Vec::<String>::new(), "{place}");
        assert!(timeless(locks.view().entries) == whole, "{place}");
    }
}
