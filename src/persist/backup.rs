//! A copy of a data directory that a coordinator may be writing to: the newest snapshot and the journal behind it.
//!
//! Promises: what was copied is one moment of the directory, or an error says that it changed meanwhile; the seal comes
//! last, so that a copy which was interrupted is refused by a start, unless the journal alone has everything. What the
//! newest snapshot holds is in it. It reads where it copies from, and never writes there.

use crate::ids::Seq;
use crate::persist::disk::{Disk, copy_file};
use crate::persist::error::PersistError;
use crate::persist::journal::segment::{self, Opening};
use crate::persist::journal::{Begin, Reader, Tail, writer};
use crate::persist::snapshots::seal::{self, Seal, SealRead};
use crate::persist::snapshots::{FOLDER, SlotId};
use std::io;

/// What was copied.
#[derive(Debug)]
pub struct Copied {
    /// The snapshot.
    pub slot: SlotId,
    /// Its seal.
    pub seal: Seal,
    /// Where the copied journal ends.
    pub tail: Tail,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Copies the newest sealed snapshot and the journal that a start needs behind it, to a disk with nothing on it yet.
/// `copied` is told bytes as they go.
///
/// # Errors
/// If anything of it changes or goes while it is copied: remove the copy, and try again.
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
    // The journal first: a part of it is refused by a start, while a snapshot without a seal and a journal is passed over.
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
    Ok(Copied {
        slot,
        seal,
        tail,
        bytes,
    })
}

/// The newest sealed snapshot, by its seal alone.
fn newest(disk: &dyn Disk) -> Result<Option<(SlotId, Seal)>, PersistError> {
    let mut newest: Option<(SlotId, Seal)> = None;
    for slot in SlotId::ALL {
        if let Some(SealRead::Good(seal)) = seal::read(disk, &slot.seal())? {
            let begun = |found: &(SlotId, Seal)| found.1.manifest.begun;
            if newest
                .as_ref()
                .is_none_or(|found| begun(found) < seal.manifest.begun)
            {
                newest = Some((slot, seal));
            }
        }
    }
    Ok(newest)
}

/// Copies the files that a seal names, and compares the copies with it.
pub(crate) fn copy_slot(
    from: &dyn Disk,
    to: &dyn Disk,
    (slot, seal): (SlotId, &Seal),
    copied: &mut dyn FnMut(u64),
) -> Result<(), PersistError> {
    let folder = slot.folder();
    let files = from
        .tree(&folder)
        .map_err(PersistError::io("list", &folder))?;
    to.create_folder(&folder)
        .map_err(PersistError::io("create a copy of", &folder))?;
    // Only names that are there are copied: a seal that was made up could name anything. What is missing is seen below.
    for (name, _) in &files {
        if seal.files.iter().any(|file| file.name == *name) {
            let path = format!("{folder}/{name}");
            let above = path.rsplit_once('/').map_or("", |(above, _)| above);
            to.create_folder(above)
                .map_err(PersistError::io("create a copy of", above))?;
            copy_file(from, to, &path, copied)?;
        }
    }
    let copies = seal::sum_files(to, &folder)?;
    let wrong = seal::check_files(&seal.files, &copies);
    match wrong.into_iter().find_map(|file| file.wrong) {
        None => Ok(()),
        Some(cause) => Err(PersistError::Store {
            action: "copy",
            folder,
            cause,
        }),
    }
}

/// Copies the segments that are needed behind a snapshot, and cuts what does not read at their end.
///
/// Newest first: a segment that is copied later is at least as new, so that the copy of an older segment never lacks
/// what the copy of a newer one builds on.
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
    // One that is only prepared is made anew by a start. If it is used by the time that the one before it is copied, that
    // copy says that it goes on there, and the whole is not taken for right.
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
    /// Every entry up to here is in it.
    pub fn upto(&self) -> Seq {
        self.tail.last
    }
}
