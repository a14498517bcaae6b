//! Decides again a log that the real runtime wrote: the same random numbers and clock must give the same outcomes.

use crate::counter::CounterMachine;
use sexton::clock::Offset;
use sexton::persist::disk::RealDisk;
use sexton::persist::format::Kind;
use sexton::persist::journal::{Begin, Reader};
use sexton::persist::mark::{Mark, Marked};
use sexton::spine::machine::{Machine as _, Moment, Now, Stamp, Start};
use sexton::spine::recovery::{Recovering as _, Replica, decode_mark};
use std::path::Path;

/// Decides each entry again, in its moment (number, time and randomness) as changed by `bend`. Returns the number of entries, or a
/// description of the first outcome that differs.
pub(super) fn other<const ID: u8>(files: &Path, bend: fn(&mut Moment)) -> Result<u64, String> {
    let disk = RealDisk::new(files);
    let mut reader = Reader::open_after(&disk, Begin::default()).expect("the journal opens");
    let mut replica = Replica::<CounterMachine<ID>>::new(());
    let mut marked = Marked::default();
    let mut decided = 0;
    while let Some(record) = reader.next().expect("the journal reads") {
        let (seq, at) = (record.seq, record.at);
        let stamp = Stamp { seq, at };
        match record.kind {
            Kind::Mark => {
                let mark = decode_mark(&record).expect("marks decode");
                marked.apply(&mark);
                if let Mark::Start { skipped, .. } = mark {
                    replica.start(Start { stamp, skipped });
                }
            }
            Kind::Entry if record.actor == CounterMachine::<ID>::ID => {
                let entry = Replica::<CounterMachine<ID>>::decode(&record).expect("it decodes");
                let offset = Offset(marked.offset_ms);
                let mut moment = Moment {
                    seq,
                    now: Now { at, offset },
                    chance: marked.chance,
                    draining: marked.draining(record.actor),
                };
                bend(&mut moment);
                let again = replica.machine().decide(&moment, &entry.message);
                if again != entry.outcome {
                    let was = (&entry.message, &entry.outcome);
                    return Err(format!("{seq} is decided differently: {was:?}, {again:?}"));
                }
                let committed = replica.commit(stamp, &entry);
                committed.expect("a recorded outcome can be applied again");
                decided += 1;
            }
            Kind::Entry | Kind::Poisoned | Kind::End => {}
        }
    }
    Ok(decided)
}
