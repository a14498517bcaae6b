//! The whole journal of a data directory, with what the coordinator has let go of since: each segment gets a second
//! name outside. What a snapshot and the rest of the journal come to can so be compared with a replay from the beginning.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A folder with a journal from its beginning.
pub(crate) struct Kept {
    data: PathBuf,
    files: PathBuf,
}

impl Kept {
    /// Keeps the journal of `data`, beside it.
    pub(crate) fn beside(data: &Path) -> Self {
        Self {
            data: data.to_owned(),
            files: data.with_extension("kept"),
        }
    }

    /// Keeps what is there now, and says where. To be called so often that no segment is made, filled and let go between
    /// two calls.
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
    // A prepared segment may have been made anew.
    match std::fs::hard_link(from, to.with_extension("new")) {
        Ok(()) => std::fs::rename(to.with_extension("new"), to).expect("it is renamed"),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            assert!(to.exists(), "{} went before it was kept", from.display());
        }
        Err(error) => panic!("{} cannot be kept: {error}", from.display()),
    }
}
