//! Damage to both slots. If the journal is complete, everything is rebuilt from it. If its first segments were removed,
//! startup is refused with a message about the loss and its cause, and no byte changes.

use crate::chance::Chance;
use crate::daemon::{serve, text};
use crate::snapshots::directory::{
    self, LARGE, SMALL, bytes, checkpoint, open, sealed, settings, start, take, timeless,
};
use crate::snapshots::harm::Harm;
use sexton::Node;
use sexton::node::NodeError;
use sexton::persist::PersistError;
use sexton::persist::snapshots::{BySlot, SlotId};
use sexton::spine::machine::{Observable as _, Paged as _};
use sexton::spine::recovery::RecoveryError;
use std::collections::BTreeMap;
use std::path::Path;

const LOCKS: usize = 4000;
/// The number of pairs of positions that are tried.
const PAIRS: usize = 40;

/// Damages both slots.
fn harm_both(data: &Path, files: &BTreeMap<String, Vec<u8>>, chance: &mut Chance) -> [Harm; 2] {
    SlotId::ALL.map(|slot| {
        let harm = Harm::choose(chance, files, slot);
        harm.happen(data);
        harm
    })
}

#[test]
fn with_the_journal_whole_everything_is_made_again() {
    let made = directory::make(LARGE, LOCKS);
    let data = made.path();
    let files = bytes(data);
    let (whole, _) = start(data).unwrap();
    let mut chance = Chance::new(4);
    for pair in 0..PAIRS {
        let harms = harm_both(data, &files, &mut chance);
        let (locks, past) = start(data).unwrap_or_else(|error| panic!("{harms:?}: {error}"));
        assert_eq!(past.mended.len(), 2, "{harms:?}: {:?}", past.mended);
        assert_eq!(past.sealed, BySlot::default(), "{harms:?}");
        assert_eq!(locks.digest(), whole.digest(), "{harms:?}");
        assert!(locks.view().entries == whole.view().entries, "{harms:?}");
        if pair % 10 == 0 {
            let copy = tempfile::tempdir().unwrap();
            directory::copy(data, copy.path());
            let node = open(copy.path(), LARGE);
            checkpoint(&node);
            checkpoint(&node);
            node.stop().unwrap();
            assert_eq!(sealed(copy.path()), [true; 2], "{harms:?}");
            let (healed, past) = start(copy.path()).unwrap();
            assert_eq!(past.mended, Vec::<String>::new(), "{harms:?}");
            let [healed, whole] = [&healed, &whole].map(|it| timeless(it.view().entries));
            assert!(healed == whole, "{harms:?}");
        }
        for harm in &harms {
            harm.undo(data, &files);
        }
    }
}

#[test]
fn with_its_beginning_gone_the_start_is_refused_and_names_the_loss() {
    let made = directory::make(SMALL, LOCKS);
    let data = made.path();
    let files = bytes(data);
    assert!(!files.contains_key("journal/00000001.seg"), "it was removed");
    let (whole, _) = start(data).unwrap();
    let mut chance = Chance::new(5);
    for pair in 0..PAIRS {
        let harms = harm_both(data, &files, &mut chance);
        let damaged = bytes(data);
        let Err(error) = start(data) else {
            panic!("{harms:?}: everything that was in both slots is lost");
        };
        assert!(
            matches!(&error, RecoveryError::Lost { error: PersistError::Gone { .. }, .. }),
            "{harms:?}: {error:?}"
        );
        let words = error.to_string();
        for slot in SlotId::ALL {
            assert!(words.contains(&format!("snapshot {slot}")), "{harms:?}: {words}");
        }
        assert!(words.contains("the journal begins here"), "{words}");
        if pair % 10 == 0 {
            let refused = Node::open(settings(data, SMALL)).err();
            assert!(
                matches!(refused, Some(NodeError::Recovery(RecoveryError::Lost { .. }))),
                "{harms:?}: {refused:?}"
            );
            let ended = serve(&["--data", text(data)]).output().unwrap();
            let said = String::from_utf8(ended.stderr).unwrap();
            assert_eq!(ended.status.code(), Some(3), "{said}");
            assert!(ended.stdout.is_empty(), "it is not ready");
            assert!(said.contains("the journal begins here"), "{said}");
        }
        assert!(bytes(data) == damaged, "{harms:?}: a byte was changed");
        for harm in &harms {
            harm.undo(data, &files);
        }
    }
    let (locks, past) = start(data).unwrap();
    assert_eq!(past.mended, Vec::<String>::new(), "restored, nothing is wrong");
    assert_eq!(locks.digest(), whole.digest());
}

/// A journal restored from an older copy lacks records that were in it when a snapshot was taken.
#[test]
fn a_journal_older_than_a_snapshot_is_refused() {
    let files = tempfile::tempdir().unwrap();
    let data = files.path().join("data");
    let node = open(&data, LARGE);
    take(&node, 0..500);
    checkpoint(&node);
    let before = bytes(&data);
    take(&node, 500..1000);
    checkpoint(&node);
    node.stop().unwrap();
    let segment = "journal/00000001.seg";
    std::fs::write(data.join(segment), &before[segment]).unwrap();
    let older = bytes(&data);
    // The newer snapshot shows the loss, even if it is damaged and startup would use the other one.
    for damaged in [false, true] {
        if damaged {
            let db = data.join("snapshots/a/db");
            let mut bytes = std::fs::read(&db).unwrap();
            bytes[100] ^= 1;
            std::fs::write(db, bytes).unwrap();
        }
        let before = bytes(&data);
        let refused = start(&data).err();
        let short = match &refused {
            Some(RecoveryError::Persist(error) | RecoveryError::Lost { error, .. }) => {
                matches!(error, PersistError::Short { .. })
            }
            _ => false,
        };
        assert!(short, "{refused:?}");
        assert!(bytes(&data) == before, "a byte was changed");
        assert!(damaged || before == older);
    }
}

/// The journal's length in a seal counts even if the snapshot's own files are damaged.
#[test]
fn a_lost_journal_is_seen_though_no_snapshot_is_whole() {
    let made = directory::make(SMALL, LOCKS);
    let data = made.path();
    for slot in ["a", "b"] {
        let db = data.join(format!("snapshots/{slot}/db"));
        let mut bytes = std::fs::read(&db).unwrap();
        bytes[100] ^= 1;
        std::fs::write(db, bytes).unwrap();
    }
    std::fs::remove_dir_all(data.join("journal")).unwrap();
    let before = bytes(data);
    let refused = start(data).err();
    let short = match &refused {
        Some(RecoveryError::Lost { error, .. }) => matches!(error, PersistError::Short { .. }),
        _ => false,
    };
    assert!(short, "{refused:?}");
    assert!(bytes(data) == before, "a byte was changed");
}
