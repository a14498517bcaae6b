//! The PID files of running processes. Files of ended processes are reused for new ones. For minutes after an inode has been freed, ext4
//! examines it again whenever another inode is allocated, so removing a file for each process would make launches slower and slower.

use crate::kernel::file;
use crate::ports::process::files::RUN;
use rustix::fs::OFlags;
use std::fs::{DirBuilder, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The name of the PID file in the directory of a process. The file exists while the process is running, and was last modified when the
/// process started.
const NAME: &str = "process.pid";

/// The maximum number of spare files, kept for later processes.
const SPARE_MAX: usize = 64;

/// The PID files that this coordinator writes and removes.
pub(super) struct PidFiles {
    /// The directory of the spare files, if there is a data directory.
    run: Option<PathBuf>,
    /// The numbers of the spare files that exist.
    spare: Vec<usize>,
    /// The numbers below [`SPARE_MAX`] that no spare file has.
    free: Vec<usize>,
}

impl PidFiles {
    /// Finds the spare files that an earlier coordinator left.
    pub(super) fn open(data: Option<&Path>) -> Self {
        let run = data.map(|data| data.join(RUN));
        let exists = |number: &usize| {
            let run = run.as_ref();
            run.is_some_and(|run| spare(run, *number).symlink_metadata().is_ok())
        };
        let (spare, free) = (0..SPARE_MAX).partition(exists);
        Self { run, spare, free }
    }

    /// Writes the PID file of a process that has just started.
    pub(super) fn write(&mut self, dir: &Path, pid: u32) -> io::Result<()> {
        let (path, content) = (dir.join(NAME), format!("{pid}\n"));
        while let Some((run, number)) = self.run.as_ref().zip(self.spare.pop()) {
            let spare = spare(run, number);
            self.free.push(number);
            if rewrite(&spare, content.as_bytes()).is_ok() && std::fs::rename(&spare, &path).is_ok()
            {
                return Ok(());
            }
            // The spare file was tampered with, or `dir` is on another file system.
            drop(std::fs::remove_file(&spare));
        }
        remove(&path)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(&path)?.write_all(content.as_bytes())
    }

    /// Removes the PID file of a process, or makes it a spare file.
    pub(super) fn remove(&mut self, dir: &Path) {
        let path = dir.join(NAME);
        // In a directory of another user, the file may have been replaced by anything.
        let is_ours = path.symlink_metadata().is_ok_and(|found| is_own(&found));
        let number = if is_ours { self.free.pop() } else { None };
        if let Some((run, number)) = self.run.as_ref().zip(number) {
            // The directory does not exist if all processes so far have their directories elsewhere.
            drop(DirBuilder::new().recursive(true).mode(0o700).create(run));
            if std::fs::rename(&path, spare(run, number)).is_ok() {
                return self.spare.push(number);
            }
            self.free.push(number);
        }
        // The file may never have been written, or its directory may have been removed.
        drop(remove(&path));
    }
}

/// Returns the path of a spare file. Its name is neither that of a process nor that of a PID file.
fn spare(run: &Path, number: usize) -> PathBuf {
    run.join(format!(".spare-{number}"))
}

/// Replaces the content of a file. Returns an error unless [`is_own`] holds.
fn rewrite(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = file::regular(path, OFlags::WRONLY | OFlags::NOFOLLOW)?;
    let metadata = file.metadata()?;
    if !is_own(&metadata) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    file.write_all(content)?;
    let length = u64::try_from(content.len()).unwrap_or(u64::MAX);
    if metadata.size() != length {
        file.set_len(length)?;
    }
    Ok(())
}

/// Returns whether a file may become the PID file of another process: it is a regular file of our user, with a single link and mode 0600, so
/// that no other user can have it open. The process whose PID file it was, or the user of its directory, may have changed any of that.
fn is_own(found: &Metadata) -> bool {
    let is_ours = found.uid() == rustix::process::geteuid().as_raw();
    is_ours && found.is_file() && found.nlink() == 1 && found.mode() & 0o7777 == 0o600
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{NAME, PidFiles, SPARE_MAX};
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::{Path, PathBuf};

    fn dirs(data: &Path, count: usize) -> Vec<PathBuf> {
        let dirs = (0..count).map(|number| data.join(format!("services/{number}")));
        dirs.inspect(|dir| fs::create_dir_all(dir).expect("a directory can be created")).collect()
    }

    fn read(dir: &Path) -> String {
        fs::read_to_string(dir.join(NAME)).expect("the file exists")
    }

    fn inode(dir: &Path) -> u64 {
        let found = fs::symlink_metadata(dir.join(NAME)).expect("the file exists");
        assert!(found.is_file(), "{found:?}");
        found.ino()
    }

    #[test]
    fn the_file_of_an_ended_process_becomes_that_of_another() {
        let data = tempfile::tempdir().expect("a directory can be created");
        let dirs = dirs(data.path(), 2);
        let mut files = PidFiles::open(Some(data.path()));
        files.write(&dirs[0], 123_456).expect("the file can be written");
        let first = inode(&dirs[0]);
        files.remove(&dirs[0]);
        assert!(!dirs[0].join(NAME).exists());
        // Files that an earlier coordinator kept are reused too.
        let mut files = PidFiles::open(Some(data.path()));
        files.write(&dirs[1], 7).expect("the file can be written");
        assert_eq!((read(&dirs[1]).as_str(), inode(&dirs[1])), ("7\n", first));
        // An existing PID file is replaced.
        files.write(&dirs[0], 1).expect("the file can be written");
        files.remove(&dirs[0]);
        files.write(&dirs[1], 8).expect("the file can be written");
        assert_eq!(read(&dirs[1]), "8\n");
        files.remove(&dirs[0]);
        assert!(dirs[1].join(NAME).exists(), "the PID file of the other process is not removed");
    }

    #[test]
    fn what_a_process_made_of_its_file_is_not_written_to() {
        let data = tempfile::tempdir().expect("a directory can be created");
        let dirs = dirs(data.path(), 1);
        let (path, other) = (dirs[0].join(NAME), data.path().join("other"));
        let mut files = PidFiles::open(Some(data.path()));
        for link in [fs::hard_link::<&Path, &Path>, |to, from| std::os::unix::fs::symlink(to, from)]
        {
            fs::write(&other, "important").expect("the file can be written");
            link(&other, &path).expect("the file can be linked");
            files.remove(&dirs[0]);
            files.write(&dirs[0], 9).expect("the file can be written");
            assert_eq!(read(&dirs[0]), "9\n");
            assert_eq!(fs::read_to_string(&other).expect("the file exists"), "important");
            files.remove(&dirs[0]);
        }
    }

    #[test]
    fn what_is_not_the_file_that_was_written_is_not_kept() {
        let data = tempfile::tempdir().expect("a directory can be created");
        let dirs = dirs(data.path(), 2);
        let path = dirs[0].join(NAME);
        let mut files = PidFiles::open(Some(data.path()));
        let spare = || fs::read_dir(data.path().join("run")).map_or(0, Iterator::count);
        // A directory in its place would make the place of a spare file useless.
        fs::create_dir(&path).expect("the directory can be created");
        files.remove(&dirs[0]);
        assert_eq!(spare(), 0);
        fs::remove_dir(&path).expect("the directory exists");
        fs::write(&path, "1\n").expect("the file can be written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        fs::set_permissions(&path, mode).expect("the file is ours");
        files.remove(&dirs[0]);
        assert_eq!((spare(), path.exists()), (0, false));
        if rustix::process::geteuid().is_root() {
            files.write(&dirs[0], 1).expect("the file can be written");
            std::os::unix::fs::chown(&path, Some(12_345), None).expect("we are root");
            files.remove(&dirs[0]);
            assert_eq!((spare(), path.exists()), (0, false));
        }
        files.write(&dirs[1], 7).expect("the file can be written");
        files.remove(&dirs[1]);
        assert_eq!(spare(), 1);
    }

    #[test]
    fn no_more_are_kept_than_are_of_use() {
        let data = tempfile::tempdir().expect("a directory can be created");
        let dirs = dirs(data.path(), SPARE_MAX + 2);
        let mut files = PidFiles::open(Some(data.path()));
        for dir in &dirs {
            files.write(dir, 1).expect("the file can be written");
        }
        for dir in &dirs {
            files.remove(dir);
            assert!(!dir.join(NAME).exists());
        }
        let kept = fs::read_dir(data.path().join("run")).expect("the directory exists");
        assert_eq!(kept.count(), SPARE_MAX);
        let mut nowhere = PidFiles::open(None);
        nowhere.write(&dirs[0], 1).expect("the file can be written");
        nowhere.remove(&dirs[0]);
        assert!(!dirs[0].join(NAME).exists());
    }
}
