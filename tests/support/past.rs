//! What a data directory tells, read through the library while no coordinator has it, or from a copy.

use sexton::actors::lock::{LockMachine, Message, Rules};
use sexton::actors::machine::{Machine as _, Stamp};
use sexton::actors::recovery::{Recovering, Replica, Scope, decode_mark, recover};
use sexton::ids::{Digest, Seq};
use sexton::persist::disk::RealDisk;
use sexton::persist::format::{Kind, Mark};
use sexton::persist::journal::{Reader, Tail};
use std::path::Path;

/// A message that changed locks.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) seq: Seq,
    pub(crate) message: Message,
}

/// The whole log of a directory.
pub(crate) struct Past {
    pub(crate) entries: Vec<Entry>,
    /// The number of every record.
    pub(crate) numbers: Vec<Seq>,
    pub(crate) tail: Tail,
    /// The locks as they stand at its end.
    pub(crate) locks: LockMachine,
}

/// Reads a directory from its beginning, committing entry by entry as it goes.
pub(crate) fn read(files: &Path) -> Past {
    let disk = RealDisk::new(files);
    let mut reader = Reader::open(&disk).expect("the journal opens");
    let mut replica = Replica::<LockMachine>::new(Rules::default());
    let (mut entries, mut numbers) = (Vec::new(), Vec::new());
    while let Some(record) = reader.next().expect("the journal reads") {
        let stamp = Stamp {
            seq: record.seq,
            at: record.at,
        };
        numbers.push(record.seq);
        match record.kind {
            Kind::Entry => {
                let (message, outcome) =
                    Replica::<LockMachine>::decode(&record).expect("it decodes");
                replica
                    .commit(stamp, &message, &outcome)
                    .expect("what happened can happen again");
                entries.push(Entry {
                    seq: record.seq,
                    message,
                });
            }
            Kind::Mark => {
                let mark = decode_mark(&record).expect("marks decode");
                if matches!(mark, Mark::Start { .. }) {
                    replica.start(stamp);
                }
            }
            Kind::Poisoned | Kind::End => {}
        }
    }
    Past {
        entries,
        numbers,
        tail: reader.tail().clone(),
        locks: replica.into_parts().0,
    }
}

/// The digest that the node's own recovery comes to.
pub(crate) fn recovered_digest(files: &Path) -> Digest {
    let mut replica = Replica::<LockMachine>::new(Rules::default());
    let replicas: &mut [&mut dyn Recovering] = &mut [&mut replica];
    recover(&RealDisk::new(files), None, replicas, Scope::default()).expect("the journal replays");
    replica.machine().digest()
}
