//! The whole journal of a data directory, including segments that the coordinator has removed: each segment gets a second
//! name (a hard link) outside the directory. So the state from a snapshot and the remaining journal can be compared with
//! a replay of the whole journal.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A directory, and its journal from the first segment on.
pub(crate) struct Kept {
    data: PathBuf,
    files: PathBuf,
}

impl Kept {
    /// Starts to keep the journal of `data`, in a directory next to it.
    pub(crate) fn beside(data: &Path) -> Self {
        Self { data: data.to_owned(), files: data.with_extension("kept") }
    }

    /// Keeps the current segments, and returns the directory that contains `journal`. Must be called so often that no
    /// segment is created, filled and removed between two calls.
    pub(crate) fn keep(&self) -> &Path {
        let (from, to) = (self.data.join("journal"), self.files.join("journal"));
        std::fs::create_dir_all(&to).expect("a new directory");
        let Ok(present) = std::fs::read_dir(from) else {
            return &self.files;
        };
        for file in present {
            let name = file.expect("the directory is readable").file_name();
            if Path::new(&name).extension().is_some_and(|it| it == "seg") {
                keep(
                    &self.data.join("journal").join(&name),
                    &self.files.join("journal").join(&name),
                );
            }
        }
        &self.files
    }
}

fn keep(from: &Path, to: &Path) {
    let inode = |path| std::fs::metadata(path).map(|file| file.ino()).ok();
    if inode(from).is_some() && inode(from) == inode(to) {
        return;
    }
    // The segment may replace an earlier prepared one of the same name, so the link is renamed over the old one.
    match std::fs::hard_link(from, to.with_extension("new")) {
        Ok(()) => std::fs::rename(to.with_extension("new"), to).expect("it is renamed"),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            assert!(to.exists(), "{} was removed before it was kept", from.display());
        }
        Err(error) => panic!("{} cannot be kept: {error}", from.display()),
    }
}
