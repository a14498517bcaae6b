//! The disk, reduced to what the node needs: named files in folders, positioned reads and writes, and syncs. `RealDisk` is the only user of
//! `std::fs` in the library; the simulation has its own disk.

use crate::persist::error::PersistError;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The reason given when a symbolic link is refused.
const LINK: &str =
    "it is a symbolic link, and links are not followed here: replace it with its target";
const NOT_A_FILE: &str = "it is not a file: find out who put it there, then remove it";

/// The files, folders and sockets in a data directory that only the coordinator's own user or root may own.
const OWNED: &[&str] = &[
    "journal",
    "keeper.lock",
    "keeper.log",
    "keeper.sock",
    "lock",
    "notify",
    "notify.sock",
    "report.key",
    "report.sock",
    "run",
    "services",
    "sexton.sock",
    "snapshots",
];

/// Those that must be regular files: opening a pipe could block.
const FILES: &[&str] = &["keeper.lock", "keeper.log", "lock", "report.key"];

/// The number of bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// A root folder, with files and folders in it. Names are paths relative to the root, with `/` between the parts.
pub trait Disk: Send + Sync {
    /// Lists the files of a folder with their lengths, in no particular order; empty if the folder does not exist.
    fn list(&self, folder: &str) -> io::Result<Vec<(String, u64)>>;
    /// Creates a folder and its missing parents.
    fn create_folder(&self, folder: &str) -> io::Result<()>;
    /// Creates a file that must not exist.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file for reading, and for writing if requested.
    fn open(&self, name: &str, write: bool) -> io::Result<Box<dyn DiskFile>>;
    /// Renames a file; a file that exists at `to` is replaced.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. If the name belongs to a folder instead, removes the folder with everything in it.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals in a folder survive a power cut.
    fn sync_folder(&self, folder: &str) -> io::Result<()>;

    /// Lists the files in a folder and in all folders below it, with their lengths in bytes. The names are relative to `folder`. The list
    /// is empty if the folder does not exist.
    fn tree(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        self.list(folder)
    }

    /// Removes a folder with everything in it, or a file of that name. Does nothing if neither exists.
    fn remove_tree(&self, folder: &str) -> io::Result<()> {
        for (file, _) in self.list(folder)? {
            self.remove(&format!("{folder}/{file}"))?;
        }
        Ok(())
    }

    /// Makes a folder with everything in it survive a power cut.
    fn sync_tree(&self, folder: &str) -> io::Result<()> {
        for (file, _) in self.tree(folder)? {
            self.open(&format!("{folder}/{file}"), true)?.sync()?;
        }
        self.sync_folder(folder)
    }
}

/// An open file.
#[expect(clippy::len_without_is_empty, reason = "no caller needs to know whether a file is empty")]
pub trait DiskFile: Send {
    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes everything written survive a power cut (`fdatasync`).
    fn sync(&self) -> io::Result<()>;
    /// Returns the length in bytes.
    fn len(&self) -> io::Result<u64>;
}

/// A folder in the operating system's file system.
#[derive(Clone, Debug)]
pub struct RealDisk {
    root: PathBuf,
}

impl RealDisk {
    /// Returns the disk below `root`, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the root folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Lists the immediate subfolders of a folder; empty if it does not exist.
    fn folders(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(self.path(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut folders = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(folders)
    }

    /// Checks that `lock` is a file, that `journal` and `snapshots` are folders, and that there are no symbolic links in them. Any of the
    /// three may be missing. Must be called before anything is read: a symbolic link may point to any file, and reading a pipe may block.
    ///
    /// # Errors
    /// Returns an error if a check fails, or if the operating system reports an error.
    pub fn check(&self) -> Result<(), PersistError> {
        let wrong = |name: &str, words: &str| {
            let shown = self.path(name).to_string_lossy().into_owned();
            Err(PersistError::io("use", &shown)(io::Error::other(words.to_owned())))
        };
        for (name, is_folder) in [("lock", false), ("journal", true), ("snapshots", true)] {
            let found = match std::fs::symlink_metadata(self.path(name)) {
                Ok(found) => found.file_type(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(PersistError::io("look at", name)(error)),
            };
            if found.is_symlink() {
                return wrong(name, LINK);
            }
            if is_folder && !found.is_dir() {
                return wrong(name, "it is not a directory");
            }
            if !is_folder && !found.is_file() {
                return wrong(name, NOT_A_FILE);
            }
            let link = if is_folder { self.link_in(name) } else { Ok(None) };
            if let Some(link) = link.map_err(PersistError::io("look into", name))? {
                return wrong(&link, LINK);
            }
        }
        Ok(())
    }

    /// Returns the name of a symbolic link in a folder or below it, if there is one.
    fn link_in(&self, folder: &str) -> io::Result<Option<String>> {
        let entries = match std::fs::read_dir(self.path(folder)) {
            Ok(entries) => entries,
            // A running coordinator has removed the folder in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let (kind, name) = (entry.file_type()?, entry.file_name());
            let name = format!("{folder}/{}", name.to_string_lossy());
            if kind.is_symlink() {
                return Ok(Some(name));
            }
            if kind.is_dir()
                && let Some(link) = self.link_in(&name)?
            {
                return Ok(Some(link));
            }
        }
        Ok(None)
    }

    /// Checks that the directory, and every file in it that a coordinator uses, belongs to the user of this process or to root. Another
    /// user could replace the files, read what is written to them, or listen on the sockets, to which environments are sent.
    ///
    /// # Errors
    /// Returns an error that names the file and its owner.
    fn check_owners(&self, directory: &File) -> Result<(), PersistError> {
        use std::os::unix::fs::MetadataExt as _;
        let own = rustix::process::geteuid().as_raw();
        let refuse = |path: &Path, words: String| {
            Err(PersistError::io("use", &path.to_string_lossy())(io::Error::other(words)))
        };
        let foreign = |owner: u32| owner != own && owner != 0;
        let of_root = directory
            .metadata()
            .map_err(PersistError::io("look at", &self.root.to_string_lossy()))?;
        if foreign(of_root.uid()) {
            let (owner, path) = (of_root.uid(), self.root.display());
            let words = format!(
                "it belongs to user {owner}, who can read and replace everything in it, but this process runs as user {own}: choose another directory, or `chown {own} {path}`"
            );
            return refuse(&self.root, words);
        }
        for name in OWNED {
            let path = self.path(name);
            let found = match std::fs::symlink_metadata(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                found => found.map_err(PersistError::io("look at", &path.to_string_lossy()))?,
            };
            if foreign(found.uid()) {
                let owner = found.uid();
                let words = format!(
                    "it belongs to user {owner}, but this process runs as user {own}: find out who put it there, then remove it or choose another directory"
                );
                return refuse(&path, words);
            }
            if FILES.contains(name) && !found.is_file() {
                let words = if found.is_symlink() { LINK } else { NOT_A_FILE };
                return refuse(&path, words.to_owned());
            }
        }
        Ok(())
    }

    /// Locks the directory until the returned lock is dropped or the process exits. Creates the directory if it does not exist, runs
    /// [`check`](Self::check) on it, and writes the id of this process to the lock file.
    ///
    /// # Errors
    /// Returns [`PersistError::Held`] if another coordinator has the lock, or an error if the directory cannot be used, for example because
    /// it or a file in it belongs to another user.
    pub fn lock(&self) -> Result<DirLock, PersistError> {
        let shown = self.root.to_string_lossy().into_owned();
        let made = self.create_folder("").map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                io::Error::other("it is a file, not a directory")
            } else {
                error
            }
        });
        made.map_err(PersistError::io("create", &shown))?;
        let directory = File::open(&self.root).map_err(PersistError::io("open", &shown))?;
        let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        match rustix::fs::flock(&directory, lock) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let holder = match self.lock_words().trim() {
                    "" => "its process id is not recorded yet".to_owned(),
                    holder => holder.to_owned(),
                };
                return Err(PersistError::Held { dir: shown, holder });
            }
            Err(error) => {
                return Err(PersistError::Io { action: "lock", file: shown, source: error.into() });
            }
        }
        self.check_owners(&directory)?;
        self.check()?;
        self.replace("lock", format!("process {}\n", std::process::id()).as_bytes())?;
        let found = std::fs::symlink_metadata(self.path("lock"));
        let found = found.map_err(PersistError::io("look at", "lock"))?;
        Ok(DirLock {
            _directory: directory,
            path: self.path("lock"),
            file: (found.dev(), found.ino()),
        })
    }

    /// Returns the first 64 bytes of the lock file, which is more than a coordinator writes; empty if the file cannot be read.
    fn lock_words(&self) -> String {
        let mut words = [0; 64];
        let read = self.open("lock", false).and_then(|file| file.read_at(&mut words, 0));
        let words = words.get(..read.unwrap_or(0)).unwrap_or(&[]);
        String::from_utf8_lossy(words).into_owned()
    }

    /// Returns the PID of the process that holds the directory's lock, or 0 if its PID cannot be read; `None` if the lock is free. Never
    /// takes the lock, not even briefly, because a coordinator that starts at that moment would be refused.
    pub fn holder(&self) -> io::Result<Option<u32>> {
        let root = std::fs::metadata(&self.root)?;
        let locks = std::fs::read_to_string("/proc/locks")?;
        let mut holders = flock_holders(&locks, root.ino());
        Ok(holders.find(|process| has_open(*process, (root.dev(), root.ino())) != Some(false)))
    }

    /// Swaps the names of two folders atomically.
    pub fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        let (one, other) = (self.path(one), self.path(other));
        Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
    }

    /// Replaces a file atomically: a reader sees either the old content or the new content, never a mixture.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), PersistError> {
        let temporary = format!("{name}.tmp");
        let write = || -> io::Result<()> {
            match self.remove(&temporary) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(self.path(&temporary))?;
            file.write_all(bytes)?;
            file.sync_data()?;
            self.rename(&temporary, name)
        };
        write().map_err(PersistError::io("write", &self.path(name).to_string_lossy()))
    }
}

/// Returns the PIDs of the processes that hold exclusive locks on files with this inode, according to the text of `/proc/locks`; 0 if a
/// process is not visible here. A line looks like `1: FLOCK  ADVISORY  WRITE 4711 fd:00:1234 0 EOF`. Its device is ignored, because for
/// some file systems it differs from the one in the metadata; so the file may be on another device.
fn flock_holders(locks: &str, inode: u64) -> impl Iterator<Item = u32> {
    locks.lines().filter_map(move |line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", process, place, ..] = words.as_slice() else {
            return None;
        };
        let is_it = place.rsplit(':').next()?.parse() == Ok(inode);
        is_it.then(|| process.parse().unwrap_or(0))
    })
}

/// Returns whether a process has the file with this device and inode open; `None` if its descriptors cannot be listed.
fn has_open(process: u32, file: (u64, u64)) -> Option<bool> {
    let mut descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    Some(descriptors.any(|descriptor| {
        let opened = descriptor.and_then(|it| std::fs::metadata(it.path()));
        opened.is_ok_and(|it| (it.dev(), it.ino()) == file)
    }))
}

/// The lock on a data directory: there is one coordinator per directory.
#[derive(Debug)]
pub struct DirLock {
    /// The open directory, which carries the lock. A lock on a file in it would be lost if the file were removed and created again.
    _directory: File,
    /// The lock file, and its device and inode when the lock was taken.
    path: PathBuf,
    file: (u64, u64),
}

impl DirLock {
    /// Checks that the directory is still where it was when it was locked, by its lock file. If it was removed, files that are written to it
    /// are lost when they are closed.
    ///
    /// # Errors
    /// Returns an error if the lock file is gone, or another file is in its place. An error of the operating system that does not show this
    /// counts as success.
    pub fn check(&self) -> Result<(), PersistError> {
        use io::ErrorKind::{NotADirectory, NotFound};
        let gone = match std::fs::symlink_metadata(&self.path) {
            Ok(found) => (found.dev(), found.ino()) != self.file,
            Err(error) => matches!(error.kind(), NotFound | NotADirectory),
        };
        if !gone {
            return Ok(());
        }
        let words = "the data directory was removed, moved or replaced while it was in use";
        let error = io::Error::other(words);
        Err(PersistError::io("find", &self.path.to_string_lossy())(error))
    }
}

impl Disk for RealDisk {
    fn list(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        let entries = match std::fs::read_dir(self.path(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // The file was renamed or removed after the folder was read, such as a segment that was being prepared.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            if metadata.is_file() {
                files.push((entry.file_name().to_string_lossy().into_owned(), metadata.len()));
            }
        }
        Ok(files)
    }

    fn create_folder(&self, folder: &str) -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(self.path(folder))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.path(name))?;
        Ok(Box::new(file))
    }

    fn open(&self, name: &str, write: bool) -> io::Result<Box<dyn DiskFile>> {
        // Without these flags, opening a pipe would block forever, and a link could point anywhere.
        let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let opened = OpenOptions::new()
            .read(true)
            .write(write)
            .custom_flags(flags.bits().cast_signed())
            .open(self.path(name));
        let file = opened.map_err(|error| match rustix::io::Errno::from_io_error(&error) {
            Some(rustix::io::Errno::LOOP) => io::Error::other(LINK),
            Some(_) | None => error,
        })?;
        if file.metadata()?.is_file() {
            Ok(Box::new(file))
        } else {
            Err(io::Error::other("it is not a file"))
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match std::fs::remove_file(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => self.remove_tree(name),
            done => done,
        }
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        File::open(self.path(folder))?.sync_all()
    }

    fn tree(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        let mut files = self.list(folder)?;
        for below in self.folders(folder)? {
            let deeper = self.tree(&format!("{folder}/{below}"))?;
            files.extend(deeper.into_iter().map(|(file, len)| (format!("{below}/{file}"), len)));
        }
        Ok(files)
    }

    fn remove_tree(&self, folder: &str) -> io::Result<()> {
        match std::fs::remove_dir_all(self.path(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                std::fs::remove_file(self.path(folder))
            }
            done => done,
        }
    }

    fn sync_tree(&self, folder: &str) -> io::Result<()> {
        for (file, _) in self.list(folder)? {
            // Unlike the journal's files, these change in length, so their metadata is synced as well.
            File::open(self.path(&format!("{folder}/{file}")))?.sync_all()?;
        }
        for below in self.folders(folder)? {
            self.sync_tree(&format!("{folder}/{below}"))?;
        }
        self.sync_folder(folder)
    }
}

impl DiskFile for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match std::os::unix::fs::FileExt::read_at(self, rest, offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

/// Copies a file to another disk, where it must not exist, and returns its length in bytes. Calls `copied` after each piece, with the
/// number of bytes in it.
pub fn copy_file(
    from: &dyn Disk,
    to: &dyn Disk,
    name: &str,
    copied: &mut dyn FnMut(u64),
) -> Result<u64, PersistError> {
    let mut buffer = vec![0; COPY_BYTES];
    let source = from.open(name, false).map_err(PersistError::io("read", name))?;
    let target = to.create(name).map_err(PersistError::io("create a copy of", name))?;
    let mut len = 0;
    loop {
        let read = source.read_at(&mut buffer, len).map_err(PersistError::io("read", name))?;
        let bytes = buffer.get(..read).unwrap_or(&[]);
        if bytes.is_empty() {
            return Ok(len);
        }
        target.write_at(bytes, len).map_err(PersistError::io("write a copy of", name))?;
        len += read as u64;
        copied(read as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::{RealDisk, flock_holders, has_open};
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn the_holder_of_a_directory_is_the_process_that_has_it_open() {
        let files = tempfile::tempdir().unwrap();
        let disk = RealDisk::new(files.path());
        assert_eq!(disk.holder().unwrap(), None);
        let lock = disk.lock().unwrap();
        let own = std::process::id();
        assert_eq!(disk.holder().unwrap(), Some(own));
        // A directory on another device may have the same inode.
        let root = std::fs::metadata(files.path()).unwrap();
        assert_eq!(has_open(own, (root.dev(), root.ino())), Some(true));
        assert_eq!(has_open(own, (root.dev() + 1, root.ino())), Some(false));
        assert_eq!(has_open(0, (root.dev(), root.ino())), None);
        drop(lock);
        assert_eq!(disk.holder().unwrap(), None);
    }

    #[test]
    fn locks_are_found_by_inode() {
        let locks = "1: FLOCK  ADVISORY  WRITE 4711 fd:00:1234 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 4712 fd:00:1234 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 4713 fd:00:1234 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 4714 00:2a:1234 0 EOF\n\
                     5: FLOCK  ADVISORY  WRITE 4715 00:2a:12345 0 EOF\n";
        assert_eq!(flock_holders(locks, 1234).collect::<Vec<_>>(), [4711, 4714]);
    }
}
