//! Carries out a plan: writes a journal of the kept records next to the damaged one, and exchanges the two.
//!
//! After an interruption, startup on the directory is either refused as before or succeeds, and every replaced file still exists.

use crate::recover::plan::Plan;
use crate::report::Failure;
use crate::text;
use sexton::clock::{Clock as _, SystemClock, Timestamp};
use sexton::ids::{ActorId, Seq};
use sexton::persist::PersistError;
use sexton::persist::disk::{Disk, RealDisk};
use sexton::persist::format::{About, Batch, Kind, SEGMENT_HEADER_BYTES};
use sexton::persist::journal::salvage::{Piece, salvage};
use sexton::persist::journal::{Sizes, Tail, ThreadFiller, Writer, segment};
use sexton::persist::mark::Mark;
use sexton::persist::snapshots::SlotId;
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// The folder in which the new journal is built.
const MADE: &str = "recovering";
/// The size of a batch of records, in bytes, above which it is written to the new journal.
const BATCH_BYTES: usize = 1 << 20;

/// Carries out the plan, and returns the name of the folder with the replaced files.
pub(super) fn apply(disk: &RealDisk, plan: &Plan) -> Result<String, Failure> {
    let aside = new_name(disk)?;
    disk.remove_tree(MADE).map_err(PersistError::io("remove", MADE))?;
    disk.create_folder(MADE).map_err(PersistError::io("create", MADE))?;
    write_journal(disk, plan)?;
    let kept = plan.base.as_ref().map(|(slot, _)| *slot);
    let done = || -> io::Result<()> {
        disk.create_folder(&format!("{aside}/snapshots"))?;
        for slot in SlotId::ALL.into_iter().filter(|slot| Some(*slot) != kept) {
            for name in [slot.seal(), slot.folder()] {
                if_there(disk.rename(&name, &format!("{aside}/{name}")))?;
            }
        }
        disk.create_folder(segment::FOLDER)?;
        disk.exchange(segment::FOLDER, &format!("{MADE}/{}", segment::FOLDER))?;
        disk.rename(
            &format!("{MADE}/{}", segment::FOLDER),
            &format!("{aside}/{}", segment::FOLDER),
        )?;
        disk.remove_tree(MADE)?;
        for folder in [&aside, ""] {
            disk.sync_folder(folder)?;
        }
        if_there(disk.sync_folder("snapshots"))
    };
    done().map_err(PersistError::io("move the contents of", MADE))?;
    Ok(aside)
}

fn if_there(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Returns a name with the current time for the folder of the replaced files. Fails if that folder exists.
fn new_name(disk: &RealDisk) -> Result<String, Failure> {
    let now = text::time(SystemClock::starting_at(Timestamp(0)).wall());
    let time: String = now.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = format!("damaged-{time}");
    if disk.root().join(&name).exists() {
        return Err(Failure::unreachable(format!("failed to recover: {name} already exists")));
    }
    Ok(name)
}

/// Writes a new journal of the kept records. Marks (the node's own records) connect it to the snapshot, and reserve the sequence numbers
/// that may have been used.
fn write_journal(from: &RealDisk, plan: &Plan) -> Result<(), Failure> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(from.root().join(MADE)));
    let sizes = Sizes::default();
    let mut salt = [0; 4];
    getrandom::fill(&mut salt)
        .map_err(|error| Failure::unreachable(format!("failed to recover: {error}")))?;
    let salt = u32::from_le_bytes(salt);
    disk.create_folder(segment::FOLDER).map_err(PersistError::io("create", segment::FOLDER))?;
    let first = plan.first_segment;
    drop(segment::prepare(disk.as_ref(), first, sizes, salt)?);
    let begins = (first, SEGMENT_HEADER_BYTES as u64);
    let tail = Tail { place: Some(begins), synced: begins, ..Tail::default() };
    let filler = Box::new(ThreadFiller::start(Arc::clone(&disk), salt)?);
    let mut writer = Writer::open(disk, sizes, filler, &tail)?;
    let mut batch = Batch::default();
    let reserve = Mark::Reserve { bound: plan.bound };
    if let Some((_, seal)) = &plan.base {
        // A reader that has loaded the snapshot requires a record at or before the snapshot's sequence number: it shows that the journal
        // continues from the snapshot.
        put(&mut batch, seal.manifest.begun, seal.manifest.at, &reserve);
    }
    salvage(from, &mut |piece| {
        let Piece::Record(record) = piece else {
            return Ok(());
        };
        if plan.keeps(record.seq) {
            let about =
                About { seq: record.seq, at: record.at, actor: record.actor, kind: record.kind };
            batch.push(about, |bytes| bytes.extend_from_slice(&record.payload));
            if batch.len() > BATCH_BYTES {
                writer.write(&mut batch)?;
                batch.clear();
            }
        }
        Ok::<_, PersistError>(())
    })?;
    let mut last = plan.last;
    if let Some((slot, seal)) = plan.base.as_ref().filter(|(_, seal)| seal.mark > last) {
        // Without this mark, startup would treat the snapshot as one of another journal.
        let mark = Mark::Checkpoint { slot: slot.number(), states: seal.manifest.states.clone() };
        put(&mut batch, seal.mark, plan.at, &mark);
        last = seal.mark;
    }
    // The next startup skips the sequence numbers up to the bound, as after any crash.
    put(&mut batch, Seq(last.0 + 1), plan.at, &reserve);
    writer.write(&mut batch)?;
    writer.sync()?;
    Ok(())
}

fn put(batch: &mut Batch, seq: Seq, at: Timestamp, mark: &Mark) {
    let about = About { seq, at, actor: ActorId::NODE, kind: Kind::Mark };
    let content = rmp_serde::to_vec(mark).expect("marks should always encode");
    batch.push(about, |bytes| bytes.extend_from_slice(&content));
}
