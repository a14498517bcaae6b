//! The life of a slot: unsealed, written, closed, settled, read back, synced, sealed.
//!
//! Guarantees: a sealed slot was read back completely and is on disk; an unsealed slot is neither trusted nor opened, but rewritten from
//! scratch; recovery reads a sealed slot without changing a byte of it. sled tidies up a store when opening it, so a slot is *settled*
//! before it is sealed: its store is reopened until this no longer changes anything.

use crate::ids::{ActorId, Seq};
use crate::persist::disk::Disk;
use crate::persist::error::PersistError;
use crate::persist::format::FORMAT_VERSION;
use crate::persist::snapshots::page::{Assembly, Manifest, Page};
use crate::persist::snapshots::seal::{self, FileCheck, FileSum, Seal, SealRead};
use crate::persist::snapshots::{FOLDER, SlotId, Store, Stores};
use std::io;
use std::sync::Arc;

/// The maximum number of times that a closed store is reopened to settle it. sled needs two.
const SETTLE_MAX: u32 = 8;
/// The number of bytes by which a slot may exceed three times the size of its content before it is rewritten from scratch.
const SLACK_BYTES: u64 = 64 << 20;

/// The state in which a slot was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotStatus {
    /// The slot is empty.
    Absent,
    /// Files without a seal: a checkpoint is writing them, or was interrupted.
    Unsealed,
    /// A complete, sealed snapshot.
    Sealed(Seal),
    /// The slot cannot be read, its seal is invalid, or its files do not match the seal; the reason is given.
    Damaged(String),
}

/// The state of a slot, with details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotDetails {
    /// The state in which it was found.
    pub found: SlotStatus,
    /// The slot's seal, even if the files do not match it; `None` if there is no valid seal.
    pub seal: Option<Seal>,
    /// Its files.
    pub files: Vec<FileCheck>,
}

impl From<SlotStatus> for SlotDetails {
    fn from(found: SlotStatus) -> Self {
        Self { found, seal: None, files: Vec::new() }
    }
}

impl SlotDetails {
    /// Returns the same details with a different state.
    fn but(self, found: SlotStatus) -> Self {
        Self { found, ..self }
    }
}

/// A summary of a slot's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The manifest.
    pub manifest: Manifest,
    /// The number of pages, not counting the manifest.
    pub pages: u64,
    /// The total size of these pages' content, in bytes.
    pub bytes: u64,
}

/// The two slots of a data directory.
#[derive(Clone)]
pub struct Slots {
    disk: Arc<dyn Disk>,
    stores: Arc<dyn Stores>,
}

impl Slots {
    /// Returns a handle to the slots on `disk`. `stores` must open stores on the same disk.
    pub fn new(disk: Arc<dyn Disk>, stores: Arc<dyn Stores>) -> Self {
        Self { disk, stores }
    }

    /// Examines a slot, and compares every file with the seal. Reads the whole of every file, but does not open the store.
    ///
    /// # Errors
    /// Returns an error if the slot was written by a newer program. An unreadable slot is not an error: it is reported as damaged.
    pub fn look(&self, slot: SlotId) -> Result<SlotStatus, PersistError> {
        Ok(self.check_details(slot)?.found)
    }

    /// Like [`look`](Self::look), with details on every file that exists or should exist.
    pub fn check_details(&self, slot: SlotId) -> Result<SlotDetails, PersistError> {
        let seal = match seal::read(self.disk.as_ref(), &slot.seal()) {
            Ok(None) => return Ok(self.check_unsealed(slot)),
            Ok(Some(SealRead::Good(seal))) => seal,
            Ok(Some(SealRead::Bad)) => {
                let found = SlotStatus::Damaged("its seal is invalid".to_owned());
                return Ok(self.check_unsealed(slot).but(found));
            }
            Ok(Some(SealRead::TooNew(found))) => {
                return Err(PersistError::VersionTooNew {
                    file: slot.seal(),
                    found,
                    supported: FORMAT_VERSION,
                });
            }
            Err(error) => return Ok(SlotDetails::from(SlotStatus::Damaged(error.to_string()))),
        };
        let look = match seal::sum_sealed(self.disk.as_ref(), &slot.folder(), &seal.files) {
            Ok(files) => {
                let files = seal::check_files(&seal.files, &files);
                let wrong = files.iter().find_map(|file| file.wrong.clone());
                SlotDetails {
                    found: wrong
                        .map_or_else(|| SlotStatus::Sealed(seal.clone()), SlotStatus::Damaged),
                    seal: Some(seal),
                    files,
                }
            }
            Err(error) => SlotDetails {
                seal: Some(seal),
                ..SlotDetails::from(SlotStatus::Damaged(error.to_string()))
            },
        };
        Ok(look)
    }

    fn check_unsealed(&self, slot: SlotId) -> SlotDetails {
        let mut files = match self.disk.tree(&slot.folder()) {
            Ok(files) if files.is_empty() => return SlotDetails::from(SlotStatus::Absent),
            Ok(files) => files,
            Err(error) => return SlotDetails::from(SlotStatus::Damaged(error.to_string())),
        };
        files.sort();
        let check = |(name, len)| FileCheck { name, len: Some(len), wrong: None };
        SlotDetails {
            files: files.into_iter().map(check).collect(),
            ..SlotDetails::from(SlotStatus::Unsealed)
        }
    }

    /// Reads a slot whose files match `seal`, and passes each page to `take`.
    ///
    /// # Errors
    /// Returns an error if the slot is nevertheless unreadable, if its content differs from the seal, or if `take` returns an error.
    pub fn read(
        &self,
        slot: SlotId,
        seal: &Seal,
        take: &mut dyn FnMut(Page) -> Result<(), PersistError>,
    ) -> Result<(), PersistError> {
        let found = read_all(self.stores.as_ref(), &slot.folder(), take)?;
        let sealed =
            Contents { manifest: seal.manifest.clone(), pages: seal.pages, bytes: seal.bytes };
        if found == sealed {
            Ok(())
        } else {
            let differs = format!("it holds {found:?}, but was sealed with {sealed:?}");
            Err(unreadable(&slot.folder())(differs))
        }
    }

    /// Removes a slot's seal and opens the slot for writing. A slot that is incomplete, or larger than three times its content plus 64 MiB,
    /// is rewritten from scratch.
    pub fn write(&self, slot: SlotId) -> Result<SlotWriter, PersistError> {
        let keeps = |seal: &Seal| {
            seal.file_bytes() <= seal.bytes.saturating_mul(3).saturating_add(SLACK_BYTES)
        };
        let before = match self.look(slot)? {
            SlotStatus::Sealed(seal) if keeps(&seal) => {
                self.unseal(slot)?;
                Some(seal.manifest)
            }
            SlotStatus::Absent
            | SlotStatus::Unsealed
            | SlotStatus::Sealed(_)
            | SlotStatus::Damaged(_) => {
                self.discard(slot)?;
                None
            }
        };
        let folder = slot.folder();
        // The folder is created here, because the store would make it readable by other users.
        self.disk.create_folder(&folder).map_err(PersistError::io("create", &folder))?;
        Ok(SlotWriter { slots: self.clone(), slot, before, store: self.stores.open(&folder)? })
    }

    /// Seals a closed slot. `mark`, the journal record that announces the snapshot, must be on disk.
    pub fn seal(&self, closed: Closed, mark: Seq) -> Result<Seal, PersistError> {
        let Closed { slot, seal } = closed;
        let seal = Seal { mark, ..seal };
        let (name, temporary) = (slot.seal(), format!("{}.tmp", slot.seal()));
        let write = || -> io::Result<()> {
            remove_if_there(self.disk.as_ref(), &temporary)?;
            let file = self.disk.create(&temporary)?;
            file.write_at(&seal.encode(), 0)?;
            file.sync()?;
            self.disk.rename(&temporary, &name)?;
            self.disk.sync_folder(FOLDER)
        };
        write().map_err(PersistError::io("write", &name))?;
        Ok(seal)
    }

    /// Removes everything in a slot.
    pub fn discard(&self, slot: SlotId) -> Result<(), PersistError> {
        self.unseal(slot)?;
        self.disk.remove_tree(&slot.folder()).map_err(PersistError::io("remove", &slot.folder()))
    }

    /// Removes the seal durably: an old seal must not vouch for content written from now on.
    fn unseal(&self, slot: SlotId) -> Result<(), PersistError> {
        let remove = || -> io::Result<()> {
            self.disk.create_folder(FOLDER)?;
            self.disk.sync_folder("")?;
            remove_if_there(self.disk.as_ref(), &slot.seal())?;
            self.disk.sync_folder(FOLDER)
        };
        remove().map_err(PersistError::io("remove", &slot.seal()))
    }

    /// Reopens a closed store, and reads all of it, until this no longer changes any file. Returns an error if the files still change after
    /// [`SETTLE_MAX`] attempts.
    fn settle(&self, slot: SlotId) -> Result<(Contents, Vec<FileSum>), PersistError> {
        let folder = slot.folder();
        let mut before = seal::sum_files(self.disk.as_ref(), &folder)?;
        for _ in 0..SETTLE_MAX {
            let contents = read_all(self.stores.as_ref(), &folder, &mut |_| Ok(()))?;
            let after = seal::sum_files(self.disk.as_ref(), &folder)?;
            if before == after {
                return Ok((contents, after));
            }
            before = after;
        }
        Err(unreadable(&folder)("its files change every time it is opened".to_owned()))
    }
}

/// A slot that is being written.
pub struct SlotWriter {
    slots: Slots,
    slot: SlotId,
    before: Option<Manifest>,
    store: Box<dyn Store>,
}

/// A slot that is written, closed and synced, but not yet sealed.
#[derive(Debug)]
pub struct Closed {
    slot: SlotId,
    seal: Seal,
}

impl SlotWriter {
    /// Returns the slot's previous manifest, or `None` if the slot is being rewritten from scratch.
    pub fn before(&self) -> Option<&Manifest> {
        self.before.as_ref()
    }

    /// Returns the slot being written.
    pub fn slot(&self) -> SlotId {
        self.slot
    }

    /// Writes a page.
    pub fn put(&mut self, page: &Page) -> Result<(), PersistError> {
        let store = &mut self.store;
        page.each_item(|key, value| store.put(key, value))
    }

    /// Writes the manifest, closes the store, reads it back and makes it durable.
    pub fn close(mut self, manifest: &Manifest) -> Result<Closed, PersistError> {
        self.put(&manifest.to_page())?;
        self.store.close()?;
        let (contents, files) = self.slots.settle(self.slot)?;
        let folder = self.slot.folder();
        if contents.manifest != *manifest {
            return Err(unreadable(&folder)(
                "it does not contain the manifest just written".to_owned(),
            ));
        }
        let disk = &self.slots.disk;
        let sync = || {
            disk.sync_tree(&folder)?;
            disk.sync_folder(FOLDER)
        };
        sync().map_err(PersistError::io("sync", &folder))?;
        Ok(Closed {
            slot: self.slot,
            seal: Seal {
                manifest: contents.manifest,
                mark: Seq(0),
                pages: contents.pages,
                bytes: contents.bytes,
                files,
            },
        })
    }

    /// Abandons the write, and removes everything in the slot.
    pub fn abandon(self) -> Result<(), PersistError> {
        let closed = self.store.close();
        self.slots.discard(self.slot)?;
        closed
    }
}

/// Passes every page of a store to `take`, except the manifest. Returns the manifest, the number of pages, and the size of their content.
pub fn read_all(
    stores: &dyn Stores,
    folder: &str,
    take: &mut dyn FnMut(Page) -> Result<(), PersistError>,
) -> Result<Contents, PersistError> {
    let mut store = stores.open(folder)?;
    let mut assembly = Assembly::default();
    let mut contents = Contents::default();
    let mut manifest = None;
    let read = store.each(&mut |key, value| {
        let Some(page) = assembly.take(key, value).map_err(unreadable(folder))? else {
            return Ok(());
        };
        if page.actor == ActorId::NODE {
            manifest = Some(Manifest::from_page(&page).map_err(unreadable(folder))?);
            return Ok(());
        }
        contents.pages += 1;
        contents.bytes += page.content.len() as u64;
        take(page)
    });
    store.close()?;
    read?;
    assembly.end().map_err(unreadable(folder))?;
    contents.manifest =
        manifest.ok_or_else(|| unreadable(folder)("it has no manifest".to_owned()))?;
    Ok(contents)
}

fn unreadable(folder: &str) -> impl Fn(String) -> PersistError {
    move |cause| PersistError::Store { action: "read", folder: folder.to_owned(), cause }
}

fn remove_if_there(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
