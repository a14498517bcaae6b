//! Copies a data directory that a coordinator may be writing to: the newest snapshot and the journal after it.
//!
//! Guarantees: the copy shows the directory at a single moment, or an error reports that it changed meanwhile. The seal is written last, so
//! a coordinator refuses to start with a copy that was interrupted, unless the copied journal is complete without a snapshot. The copy
//! contains everything in the newest snapshot. The source is only read, never written to.

use crate::ids::Seq;
use crate::persist::disk::{Disk, copy_file};
use crate::persist::error::PersistError;
use crate::persist::journal::segment::{self, Opening};
use crate::persist::journal::{Begin, Reader, Tail, writer};
use crate::persist::snapshots::seal::{self, Seal, SealRead};
use crate::persist::snapshots::{FOLDER, SlotId};
use std::io;

/// The result of a copy.
#[derive(Debug)]
pub struct Copied {
    /// The snapshot's slot.
    pub slot: SlotId,
    /// The snapshot's seal.
    pub seal: Seal,
    /// The end of the copied journal.
    pub tail: Tail,
    /// The size of all copied files, in bytes.
    pub bytes: u64,
}

/// Copies the newest sealed snapshot, and the part of the journal that recovery needs after it, to an empty disk. Calls `copied` after each
/// piece, with the number of bytes in it.
///
/// # Errors
/// Returns an error if anything that is copied changes or disappears meanwhile: remove the copy, and try again.
pub fn copy(
    from: &dyn Disk,
    to: &dyn Disk,
    copied: &mut dyn FnMut(u64),
) -> Result<Copied, PersistError> {
    let (slot, seal) = newest(from)?.ok_or_else(|| PersistError::Store {
        action: "copy",
        folder: FOLDER.to_owned(),
        cause: "neither snapshot is sealed".to_owned(),
    })?;
    let mut bytes = 0;
    let mut count = |more| {
        bytes += more;
        copied(more);
    };
    // The journal is copied first. If the copy is interrupted, a coordinator refuses to start with an incomplete journal, whereas it would
    // ignore a snapshot that has neither seal nor journal, and start empty.
    let tail = copy_journal(from, to, &seal, &mut count)?;
    copy_slot(from, to, (slot, &seal), &mut count)?;
    let sync = || -> io::Result<()> {
        to.sync_tree(segment::FOLDER)?;
        to.sync_tree(&slot.folder())?;
        to.sync_folder(FOLDER)?;
        to.sync_folder("")
    };
    sync().map_err(PersistError::io("sync", "the copy"))?;
    let write = || -> io::Result<()> {
        let file = to.create(&slot.seal())?;
        file.write_at(&seal.encode(), 0)?;
        file.sync()?;
        to.sync_folder(FOLDER)
    };
    write().map_err(PersistError::io("write", &slot.seal()))?;
    Ok(Copied { slot, seal, tail, bytes })
}

/// Returns the newest sealed snapshot, based on the seals alone; `None` if no slot has a valid seal.
fn newest(disk: &dyn Disk) -> Result<Option<(SlotId, Seal)>, PersistError> {
    let mut newest: Option<(SlotId, Seal)> = None;
    for slot in SlotId::ALL {
        if let Some(SealRead::Good(seal)) = seal::read(disk, &slot.seal())? {
            let begun = |found: &(SlotId, Seal)| found.1.manifest.begun;
            if newest.as_ref().is_none_or(|found| begun(found) < seal.manifest.begun) {
                newest = Some((slot, seal));
            }
        }
    }
    Ok(newest)
}

/// Copies a snapshot's files that its seal names, and checks the copies against the seal. Does not copy the seal itself.
pub(crate) fn copy_slot(
    from: &dyn Disk,
    to: &dyn Disk,
    (slot, seal): (SlotId, &Seal),
    copied: &mut dyn FnMut(u64),
) -> Result<(), PersistError> {
    let folder = slot.folder();
    let files = from.tree(&folder).map_err(PersistError::io("list", &folder))?;
    to.create_folder(&folder).map_err(PersistError::io("create a copy of", &folder))?;
    // Only files that exist are copied, because a forged seal could name any file. Missing files are detected below.
    for (name, _) in &files {
        if seal.files.iter().any(|file| file.name == *name) {
            let path = format!("{folder}/{name}");
            let above = path.rsplit_once('/').map_or("", |(above, _)| above);
            to.create_folder(above).map_err(PersistError::io("create a copy of", above))?;
            copy_file(from, to, &path, copied)?;
        }
    }
    let copies = seal::sum_files(to, &folder)?;
    let wrong = seal::check_files(&seal.files, &copies);
    match wrong.into_iter().find_map(|file| file.wrong) {
        None => Ok(()),
        Some(cause) => Err(PersistError::Store { action: "copy", folder, cause }),
    }
}

/// Copies the segments needed after a snapshot, and cuts off unreadable bytes at the end of the copy.
///
/// The newest segment is copied first: the copy of an older segment then shows a later moment, so it never lacks records that the copy of
/// a newer segment depends on.
fn copy_journal(
    from: &dyn Disk,
    to: &dyn Disk,
    seal: &Seal,
    copied: &mut dyn FnMut(u64),
) -> Result<Tail, PersistError> {
    let begin = Begin {
        after: seal.manifest.begun,
        at: seal.manifest.at,
        reserved: seal.manifest.reserved,
        reaches: seal.mark,
    };
    to.create_folder(segment::FOLDER)
        .map_err(PersistError::io("create a copy of", segment::FOLDER))?;
    let ordinals = segment::ordinals(from)?;
    let needed_from = segment::first_needed(from, &ordinals, begin.after)?.unwrap_or(1);
    let mut needed = ordinals;
    needed.retain(|ordinal| *ordinal >= needed_from);
    // A segment that was only prepared need not be copied, because the writer creates it again. If it comes into use before its predecessor
    // is copied, the copied predecessor ends with a mark that points to it, and the copy as a whole is rejected.
    if let Some(last) = needed.last()
        && needed.len() > 1
        && segment::opening(from, *last)? == Opening::Blank
    {
        needed.pop();
    }
    for ordinal in needed.iter().rev() {
        copy_file(from, to, &segment::name(*ordinal), copied)?;
    }
    let mut reader = Reader::open_after(to, begin)?;
    while reader.next()?.is_some() {}
    let mut tail = reader.tail().clone();
    if let (Some(_), Some(place)) = (tail.cut.take(), tail.place) {
        writer::cut(to, place, tail.synced)?;
    }
    Ok(tail)
}

impl Copied {
    /// Returns the last sequence number in the copy.
    pub fn upto(&self) -> Seq {
        self.tail.last
    }
}
