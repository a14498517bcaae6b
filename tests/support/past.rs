//! The history of one actor, read through the library from a data directory that no coordinator uses, or from a copy: the
//! whole journal and, separately, the result of the node's own recovery.

use sexton::ids::Seq;
use sexton::persist::disk::RealDisk;
use sexton::persist::format::Kind;
use sexton::persist::journal::{Begin, Reader, Record, Tail};
use sexton::persist::mark::Mark;
use sexton::persist::snapshots::{SledStores, Slots};
use sexton::spine::machine::{Actor, Machine, Stamp, Start};
use sexton::spine::recovery::{self, Recovering, Replica, Scope, decode_mark, recover};
use std::path::Path;
use std::sync::Arc;

/// A message that changed the state, with its outcome.
#[derive(Debug)]
pub(crate) struct Entry<M: Machine> {
    pub(crate) seq: Seq,
    pub(crate) message: M::Message,
}

/// The log of a directory, as much as has been read so far.
pub(crate) struct Past<M: Machine> {
    pub(crate) entries: Vec<Entry<M>>,
    /// The sequence number of each record.
    pub(crate) numbers: Vec<Seq>,
    /// The number of checkpoints whose mark is in the journal.
    pub(crate) checkpoints: u64,
    pub(crate) tail: Tail,
    replica: Replica<M>,
}

/// Reads a journal from its first record, and applies each entry.
pub(crate) fn read<M: Actor>(files: &Path) -> Past<M> {
    let mut past = Past::default();
    past.read_on(files);
    past
}

impl<M: Actor> Default for Past<M> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            numbers: Vec::new(),
            checkpoints: 0,
            tail: Tail::default(),
            replica: Replica::new(M::Rules::default()),
        }
    }
}

impl<M: Actor> Past<M> {
    /// Returns the machine after the last entry.
    pub(crate) fn machine(&self) -> &M {
        self.replica.machine()
    }

    /// Reads the records that were added since the last call.
    pub(crate) fn read_on(&mut self, files: &Path) {
        let disk = RealDisk::new(files);
        let begin = Begin {
            after: self.tail.last,
            at: self.tail.last_at,
            reserved: self.tail.reserved,
            reaches: self.tail.last,
        };
        let mut reader = Reader::open_after(&disk, begin).expect("the journal opens");
        while let Some(record) = reader.next().expect("the journal reads") {
            self.take(&record);
        }
        self.tail = reader.tail().clone();
    }

    fn take(&mut self, record: &Record<'_>) {
        let stamp = Stamp { seq: record.seq, at: record.at };
        self.numbers.push(record.seq);
        match record.kind {
            Kind::Entry if record.actor == M::ID => {
                let decoded = Replica::<M>::decode(record).expect("it decodes");
                self.replica
                    .commit(stamp, &decoded)
                    .expect("a recorded outcome can be applied again");
                self.entries.push(Entry { seq: record.seq, message: decoded.message });
            }
            Kind::Mark => {
                let mark = decode_mark(record).expect("marks decode");
                if let Mark::Start { skipped, .. } = mark {
                    self.replica.start(Start { stamp, skipped });
                }
                self.checkpoints += u64::from(matches!(mark, Mark::Checkpoint { .. }));
            }
            Kind::Entry | Kind::Poisoned | Kind::End => {}
        }
    }
}

/// Returns the machine that the node's own recovery gives from snapshots and journal, and what the recovery found.
pub(crate) fn recovered<M: Actor>(files: &Path) -> (M, recovery::Past) {
    let mut replica = Replica::<M>::new(M::Rules::default());
    let replicas: &mut [&mut dyn Recovering] = &mut [&mut replica];
    let disk = Arc::new(RealDisk::new(files));
    let slots = Slots::new(Arc::<RealDisk>::clone(&disk), Arc::new(SledStores::new(files)));
    let found =
        recover(disk.as_ref(), Some(&slots), replicas, Scope { partial: true, ..Scope::default() });
    (replica.into_parts().machine, found.expect("the recovery succeeds"))
}
