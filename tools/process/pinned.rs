//! Opens files through a path that other users cannot redirect, for commands that act, perhaps as root, on what a file says.
//!
//! Symbolic links in the path are followed only if root or the user of this process made them; the file itself must not be one, and must
//! have no other name. The caller decides which owners of the file and its directory are acceptable.

use rustix::fs::{FileType, Mode, OFlags, fstat, openat, readlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The maximum number of symbolic links in a path, as in the kernel.
const LINKS_MAX: u32 = 40;

/// The mode bit with which only the owner of a file can replace it, in a directory to which all may write.
const STICKY: u32 = 0o1000;

/// The directory of a file.
pub(super) struct Directory(OwnedFd);

impl Directory {
    /// Opens the directory of `path`. Fails if its path contains a symbolic link of another user, or if every user may replace files in it.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let parent = path.parent().unwrap_or(Path::new(""));
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = rustix::fs::open(".", flags | OFlags::DIRECTORY, Mode::empty())?;
        let mut rest = names(parent);
        let mut links = 0;
        while let Some(name) = rest.pop() {
            let found = openat(&at, &name, flags, Mode::empty())?;
            let stat = fstat(&found)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(io::Error::other("its path has too many symbolic links"));
                    }
                    if !sexton::kernel::socket::is_own(stat.st_uid) {
                        let words = format!(
                            "its path contains {}, a symbolic link of user {}, which is not followed",
                            Path::new(&name).display(),
                            stat.st_uid
                        );
                        return Err(io::Error::other(words));
                    }
                    let target = readlinkat(&found, "", Vec::new())?;
                    let target = OsString::from_vec(target.into_bytes());
                    rest.extend(names(Path::new(&target)));
                }
                FileType::Directory => at = found,
                FileType::RegularFile
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => return Err(io::ErrorKind::NotADirectory.into()),
            }
        }
        let mode = fstat(&at)?.st_mode;
        if mode & 0o002 != 0 && mode & STICKY == 0 {
            return Err(io::Error::other(
                "every user can replace files in its directory: `chmod o-w` it",
            ));
        }
        Ok(Self(at))
    }

    /// Returns the user id of the directory's owner.
    pub(super) fn owner(&self) -> io::Result<u32> {
        Ok(fstat(&self.0)?.st_uid)
    }

    /// Reads a file in the directory as text, with the metadata of the opened file. Fails unless it is a regular file with one name, of at
    /// most `bytes_max` bytes in UTF-8.
    pub(super) fn read(&self, name: &OsStr, bytes_max: u64) -> io::Result<(String, Metadata)> {
        // Without `NONBLOCK`, opening a pipe that has no writer would block forever.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&self.0, name, flags, Mode::empty());
        let mut file = File::from(opened.map_err(|error| match error {
            rustix::io::Errno::LOOP => {
                io::Error::other("it is a symbolic link, which is not followed")
            }
            error => error.into(),
        })?);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        if metadata.nlink() > 1 {
            return Err(io::Error::other(
                "it has another name (a hard link), so it may not be what it seems",
            ));
        }
        let mut bytes = Vec::new();
        file.by_ref().take(bytes_max + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > bytes_max {
            let words = format!("it has more than {bytes_max} bytes");
            return Err(io::Error::other(words));
        }
        let text = String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))?;
        Ok((text, metadata))
    }
}

/// Returns the names in a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().map(|it| it.as_os_str().to_owned());
    names.rev().collect()
}
