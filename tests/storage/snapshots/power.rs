//! Power cuts at every step of a series of checkpoints, each of which trims the journal. A sealed slot is complete, an
//! unsealed one is recognised as such, and the recovered state is that of the whole journal.

use crate::chance::Chance;
use crate::snapshots::directory::{SMALL, let_go, open, slots, start, take};
use crate::snapshots::storage::Storage;
use sexton::actors::lock::{LockMachine, Rules};
use sexton::ids::{Digest, Seq};
use sexton::persist::PersistError;
use sexton::persist::disk::RealDisk;
use sexton::persist::format::Kind;
use sexton::persist::journal::Reader;
use sexton::persist::mark::{Mark, Marked, Watermark};
use sexton::persist::retention::trim;
use sexton::persist::snapshots::{
    Manifest, Page, SledStores, SlotId, SlotStatus, Slots, Store, Stores, Visit,
};
use sexton::spine::machine::{Machine as _, Paged as _, Stamp, Start};
use sexton::spine::pages::slice;
use sexton::spine::receipts::Receipts;
use sexton::spine::recovery::{Recovering as _, Replica, decode_mark};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

const LOCKS: usize = 3000;
/// The number of entries between two checkpoints.
const EVERY: u64 = 500;

/// The power cuts of a run, and their results.
struct Cuts {
    chance: Chance,
    /// The power is cut at one in this number of possible steps, on average.
    one_in: u64,
    /// The digest of the state that each recovery must give.
    digest: Digest,
    count: u64,
    /// The number of cuts that left a slot incomplete. `whole` counts those that left both slots complete, and `trimmed`
    /// those with the first segment of the journal removed.
    amid: u64,
    whole: u64,
    trimmed: u64,
    /// The violations.
    wrong: Vec<String>,
}

impl Cuts {
    /// Cuts the power with a probability of one in `one_in`, and checks what is left.
    fn cut(&mut self, storage: &Storage) {
        if self.chance.below(self.one_in) > 0 {
            return;
        }
        let left = tempfile::tempdir().expect("a temporary directory");
        storage.leave(left.path(), &mut self.chance);
        self.count += 1;
        if let Err(wrong) = self.judge(left.path()) {
            self.wrong.push(format!("cut {}: {wrong}", self.count));
        }
    }

    fn judge(&mut self, left: &Path) -> Result<(), String> {
        let found = SlotId::ALL.map(|slot| slots(left).look(slot).expect("no newer program"));
        let sealed = found.iter().filter(|found| matches!(found, SlotStatus::Sealed(_))).count();
        if let Some(SlotStatus::Damaged(how)) =
            found.iter().find(|it| matches!(it, SlotStatus::Damaged(_)))
        {
            return Err(format!("sealed before it was synced: {how}"));
        }
        let (locks, past) = start(left).map_err(|error| error.to_string())?;
        if locks.digest() != self.digest {
            return Err(format!("another state: {past:?}"));
        }
        let reads = SlotId::ALL.iter().filter(|slot| past.sealed[**slot].is_some());
        if reads.count() != sealed {
            return Err(format!("sealed, and does not read: {past:?}"));
        }
        self.amid += u64::from(!past.mended.is_empty());
        self.whole += u64::from(sealed == 2);
        self.trimmed += u64::from(!left.join("journal/00000001.seg").exists());
        Ok(())
    }
}

/// sled's stores, with the power cut while they are open.
struct CutStores {
    stores: SledStores,
    storage: Storage,
}

struct CutStore {
    store: Box<dyn Store>,
    storage: Storage,
}

impl Stores for CutStores {
    fn open(&self, folder: &str) -> Result<Box<dyn Store>, PersistError> {
        self.storage.may_be_cut();
        let (store, storage) = (self.stores.open(folder)?, self.storage.clone());
        storage.may_be_cut();
        Ok(Box::new(CutStore { store, storage }))
    }
}

impl Store for CutStore {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), PersistError> {
        self.storage.may_be_cut();
        self.store.put(key, value)
    }

    fn each(&mut self, visit: Visit<'_>) -> Result<(), PersistError> {
        self.storage.may_be_cut();
        self.store.each(visit)
    }

    fn close(self: Box<Self>) -> Result<(), PersistError> {
        self.storage.may_be_cut();
        self.store.close()?;
        self.storage.may_be_cut();
        Ok(())
    }
}

/// Makes a directory with a journal and no snapshots. Returns the digest of its state.
fn journal(data: &Path) -> Digest {
    let node = open(data, SMALL);
    for first in (0..LOCKS).step_by(500) {
        take(&node, first..first + 500);
        let_go(&node, (first..first + 500).step_by(5));
    }
    node.stop().expect("a clean stop");
    std::fs::remove_dir_all(data.join("snapshots")).expect("the stop left one");
    let (locks, _) = start(data).expect("the journal is intact");
    locks.digest()
}

/// Takes a checkpoint of the replica in the same way as the node. The journal already contains its records.
fn checkpoint(
    storage: &Storage,
    slots: &Slots,
    slot: SlotId,
    replica: &mut Replica<LockMachine>,
    (manifest, older): (Manifest, Seq),
) {
    let mut writer = slots.write(slot).expect("the slot opens");
    let before = writer.before().and_then(|before| before.state(LockMachine::ID));
    let since = before.map_or(Seq(0), |state| state.upto);
    let machine = replica.machine_mut();
    machine.pages().begin(since, manifest.begun);
    loop {
        let (pages, done) = slice(machine, &Receipts::default(), 16 << 10);
        for copied in pages {
            let page = Page {
                actor: LockMachine::ID,
                page: copied.page,
                changed: copied.changed,
                content: copied.content,
            };
            writer.put(&page).expect("the page is written");
        }
        if done {
            break;
        }
    }
    let closed = writer.close(&manifest).expect("the slot closes");
    slots.seal(closed, manifest.begun).expect("the slot is sealed");
    storage.may_be_cut();
    trim(storage, manifest.begun.min(older)).expect("the journal is released");
    storage.may_be_cut();
}

/// Takes checkpoints of a journal from its first entry to its last, with power cuts at any step.
fn checkpoints(data: &Path, lies: bool, one_in: u64) -> Cuts {
    let digest = journal(data);
    // Read the records from a copy, because the checkpoints trim the original.
    let copy = tempfile::tempdir().expect("a temporary directory");
    crate::snapshots::directory::copy(data, copy.path());
    let cuts = Arc::new(Mutex::new(Cuts {
        chance: Chance::new(8),
        one_in,
        digest,
        count: 0,
        amid: 0,
        whole: 0,
        trimmed: 0,
        wrong: Vec::new(),
    }));
    let cutting = Arc::clone(&cuts);
    let cut = move |storage: &Storage| {
        let mut cuts = cutting.lock().unwrap_or_else(PoisonError::into_inner);
        cuts.cut(storage);
    };
    let storage = Storage::new(data, lies, Arc::new(cut));
    let stores = CutStores { stores: SledStores::new(data), storage: storage.clone() };
    let slots = Slots::new(Arc::new(storage.clone()), Arc::new(stores));
    repeat(copy.path(), &storage, &slots);
    drop((storage, slots));
    let cuts = Arc::into_inner(cuts).expect("no thread cuts any more");
    cuts.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Replays a journal, and takes a checkpoint after every `EVERY` entries.
fn repeat(journal: &Path, storage: &Storage, slots: &Slots) {
    let disk = RealDisk::new(journal);
    let mut reader = Reader::open(&disk).expect("the journal opens");
    let mut replica = Replica::<LockMachine>::new(Rules::default());
    let (mut slot, mut older, mut entries) = (SlotId::A, Seq(0), 0_u64);
    while let Some(record) = reader.next().expect("the journal reads") {
        let stamp = Stamp { seq: record.seq, at: record.at };
        match record.kind {
            Kind::Entry => {
                replica.apply(&record).expect("the outcome can be applied again");
                entries += 1;
            }
            Kind::Mark => match decode_mark(&record) {
                Ok(Mark::Start { skipped, .. }) => replica.start(Start { stamp, skipped }),
                Ok(_) | Err(_) => continue,
            },
            Kind::Poisoned | Kind::End => continue,
        }
        if entries > 0 && entries.is_multiple_of(EVERY) {
            let manifest = Manifest {
                begun: stamp.seq,
                states: vec![Watermark {
                    actor: LockMachine::ID,
                    upto: stamp.seq,
                    digest: replica.digest(),
                }],
                at: stamp.at,
                marked: Marked::default(),
                reserved: reader.tail().reserved,
            };
            checkpoint(storage, slots, slot, &mut replica, (manifest, older));
            (older, slot) = (stamp.seq, slot.other());
        }
    }
}

#[test]
fn a_power_cut_at_any_step_of_a_checkpoint_loses_nothing() {
    let files = tempfile::tempdir().unwrap();
    let cuts = checkpoints(files.path(), false, 2);
    println!(
        "{} cuts: {} left a slot half written, {} both whole, {} with the journal's beginning gone",
        cuts.count, cuts.amid, cuts.whole, cuts.trimmed
    );
    assert_eq!(cuts.wrong, Vec::<String>::new());
    assert!(cuts.count >= 150 && cuts.amid >= 50 && cuts.whole >= 10 && cuts.trimmed >= 50);
}

/// Shows that the test above can fail: on a disk that does not really sync, slots are damaged.
#[test]
fn a_disk_that_lies_about_its_syncs_is_found_out() {
    let files = tempfile::tempdir().unwrap();
    let cuts = checkpoints(files.path(), true, 8);
    let early = |wrong: &&String| wrong.contains("sealed before it was synced");
    assert!(cuts.wrong.iter().filter(early).count() >= 3, "{:?}", cuts.wrong);
}
