//! Stores that open a copy of a slot and never the slot itself: for whoever looks at a data directory that is not his.
//!
//! sled writes to what it opens, if only a little. So a slot is copied first, its copy is compared with the seal, and
//! what does not match is not opened: it is damaged, or a running coordinator is writing it. Nothing is ever written
//! where the slot stands.

use crate::persist::disk::{Disk, copy_file};
use crate::persist::error::PersistError;
use crate::persist::snapshots::seal::{self, Seal, SealRead, check_files, sum_files};
use crate::persist::snapshots::{Store, Stores};
use std::sync::Arc;

/// Stores that open copies.
#[derive(Clone)]
pub struct CopiedStores {
    from: Arc<dyn Disk>,
    to: Arc<dyn Disk>,
    stores: Arc<dyn Stores>,
}

impl CopiedStores {
    /// Slots on `from` are copied to `to`, where `stores` are; they stay there until others are needed in their place.
    pub fn new(from: Arc<dyn Disk>, to: Arc<dyn Disk>, stores: Arc<dyn Stores>) -> Self {
        Self { from, to, stores }
    }

    fn copy(&self, folder: &str, seal: &Seal) -> Result<(), PersistError> {
        if sum_files(self.to.as_ref(), folder)? == seal.files {
            return Ok(());
        }
        self.to
            .remove_tree(folder)
            .map_err(PersistError::io("remove a copy of", folder))?;
        let files = self
            .from
            .tree(folder)
            .map_err(PersistError::io("list", folder))?;
        // What the seal does not name need not be copied, and what is not there is seen below.
        for (name, _) in &files {
            if seal.files.iter().any(|file| file.name == *name) {
                let path = format!("{folder}/{name}");
                let above = path.rsplit_once('/').map_or("", |(above, _)| above);
                self.to
                    .create_folder(above)
                    .map_err(PersistError::io("create a copy of", above))?;
                copy_file(self.from.as_ref(), self.to.as_ref(), &path, &mut |_| {})?;
            }
        }
        let copied = sum_files(self.to.as_ref(), folder)?;
        let wrong = check_files(&seal.files, &copied);
        match wrong.into_iter().find_map(|file| file.wrong) {
            None => Ok(()),
            Some(wrong) => Err(refused(folder, wrong)),
        }
    }
}

impl Stores for CopiedStores {
    fn open(&self, folder: &str) -> Result<Box<dyn Store>, PersistError> {
        match seal::read(self.from.as_ref(), &format!("{folder}.seal"))? {
            Some(SealRead::Good(seal)) => self.copy(folder, &seal)?,
            Some(SealRead::Bad | SealRead::TooNew(_)) | None => {
                return Err(refused(folder, "it is not sealed".to_owned()));
            }
        }
        self.stores.open(folder)
    }
}

fn refused(folder: &str, cause: String) -> PersistError {
    PersistError::Store {
        action: "copy",
        folder: folder.to_owned(),
        cause,
    }
}
