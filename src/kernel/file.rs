//! Opens files at paths where somebody else may have put something else: a pipe or a leased file, which would block whoever opens it; a
//! device or a terminal; a link to a file of ours; a file of their own, to read or choose what is in it.

use crate::kernel::path::{self, Others};
use crate::kernel::socket;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Why what was found at a path is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It is a pipe, a device, a directory or a socket.
    #[error("it is not a regular file")]
    Irregular,
    /// It has another name, which may be that of a file of ours.
    #[error("it has more than one name (hard link)")]
    Linked,
    /// Its last part is a symbolic link.
    #[error("it is a symbolic link")]
    Symbolic,
    /// It belongs to somebody else.
    #[error("it belongs to user {0}: it must belong to root or to the user of this process")]
    Foreign(u32),
    /// It belongs to somebody else than the user for whom it is read.
    #[error(
        "it belongs to user {0}: it must belong to root, to the user of the coordinator or to the user of the process"
    )]
    Unrelated(u32),
    /// It was reached through a link that the user for whom it is read may have made.
    #[error(
        "a symbolic link leads to it that the user of the process may have made, but it is not a file of theirs: name the file itself"
    )]
    Led,
    /// Others than its owner may write to it.
    #[error(
        "it has mode {0:04o}, so that other users may write to it: remove that, with chmod go-w"
    )]
    Writable(u32),
}

impl Unfit {
    const fn errno(self) -> Errno {
        match self {
            Self::Irregular => Errno::INVAL,
            Self::Linked => Errno::MLINK,
            Self::Symbolic => Errno::LOOP,
            Self::Foreign(_) | Self::Unrelated(_) | Self::Led | Self::Writable(_) => Errno::PERM,
        }
    }
}

impl From<Unfit> for io::Error {
    fn from(unfit: Unfit) -> Self {
        Self::new(io::ErrorKind::InvalidInput, unfit)
    }
}

/// Returns why what was found is not used, if that is what this error says.
pub fn unfit(error: &io::Error) -> Option<Unfit> {
    error.get_ref()?.downcast_ref().copied()
}

/// Returns the kernel's number for an error of this file, or 0 if there is none.
pub fn errno(error: &io::Error) -> i32 {
    let unfit = unfit(error).map(Unfit::errno);
    let found = unfit.or_else(|| path::exposed(error).map(|_| Errno::PERM));
    let found = found.map(Errno::raw_os_error);
    error.raw_os_error().or(found).unwrap_or(0)
}

/// Opens a regular file, whoever it belongs to, without blocking. A link is followed unless `flags` contains `NOFOLLOW`. A file that is
/// created is for the own user alone.
///
/// # Errors
/// Returns an error if it cannot be opened, or [`Unfit`].
pub fn regular(path: &Path, flags: OFlags) -> io::Result<File> {
    open(path, flags, Mode::RUSR | Mode::WUSR).map(|(file, _)| file)
}

/// Opens a regular file of the own user or of root, with a single name, without blocking and never through a link. A file that is created
/// gets this mode.
///
/// # Errors
/// Returns an error if it cannot be opened, or [`Unfit`].
pub fn own(path: &Path, flags: OFlags, mode: Mode) -> io::Result<File> {
    let (file, found) = open(path, flags | OFlags::NOFOLLOW, mode)?;
    if !socket::is_own(found.st_uid) {
        return Err(Unfit::Foreign(found.st_uid).into());
    }
    if found.st_nlink > 1 {
        return Err(Unfit::Linked.into());
    }
    Ok(file)
}

/// Opens a regular file that decides what is run as this user: what is in it is passed to a process of theirs, or says which programs to run.
/// Only root, the own user and this user may write to it, or put another in its place. And somebody else must not get to read more than
/// was meant for them: a file that is not theirs must be ours, and no link leads to it that they may have made.
///
/// # Errors
/// Returns an error if it cannot be opened, [`Unfit`], or [`Exposed`](path::Exposed).
pub fn of_user(path: &Path, user: u32) -> io::Result<File> {
    let trusts = |it: u32| socket::is_own(it) || it == user;
    let place = path::follow(path, &trusts, Others::Refused)?;
    let found = examined(&place)?;
    if !trusts(found.st_uid) {
        let unfit = if socket::is_own(user) { Unfit::Foreign } else { Unfit::Unrelated };
        return Err(unfit(found.st_uid).into());
    }
    if path::is_open_to_others(&found) {
        return Err(Unfit::Writable(found.st_mode & 0o7777).into());
    }
    if socket::is_own(user) || found.st_uid == user {
        return reopened(&place, OFlags::RDONLY);
    }
    // What their links lead to is left alone, so this is another file if there are any.
    let place = path::follow(path, &socket::is_own, Others::NoLinks);
    let place = place.map_err(|error| match path::exposed(&error) {
        Some(_) => Unfit::Led.into(),
        None => error,
    })?;
    let found = examined(&place)?;
    if !socket::is_own(found.st_uid) {
        return Err(Unfit::Led.into());
    }
    if found.st_nlink > 1 {
        return Err(Unfit::Linked.into());
    }
    reopened(&place, OFlags::RDONLY)
}

/// A name in a directory that is held open, so that nothing on the way to it can be exchanged.
pub struct Place {
    directory: OwnedFd,
    name: OsString,
}

impl Place {
    /// Follows a path up to its last part. Directories of other users are passed through, but no link that they may have made is followed.
    ///
    /// # Errors
    /// Returns an error if there is no such directory, or [`Exposed`](path::Exposed).
    pub fn of(path: &Path) -> io::Result<Self> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Unfit::Irregular.into());
        };
        let directory = path::follow(directory, &socket::is_own, Others::NoLinks)?;
        Ok(Self { directory, name: name.to_owned() })
    }

    /// Returns the path of what has this name there, with a suffix. No other process can change where it leads; it is valid as long as this
    /// value.
    pub fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.name.clone();
        name.push(suffix);
        Path::new(&by_descriptor(&self.directory)).join(name)
    }

    /// Returns the path of what has this name there, as [`beside`](Self::beside) does.
    pub fn path(&self) -> PathBuf {
        self.beside("")
    }

    /// Creates a file in place of what has this name. A link is replaced, not followed.
    ///
    /// # Errors
    /// Returns an error if what is there cannot be replaced.
    pub fn replace(&self, mode: Mode) -> io::Result<File> {
        match rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.directory, &self.name, flags, mode)?.into())
    }
}

fn open(path: &Path, flags: OFlags, mode: Mode) -> io::Result<(File, Stat)> {
    let all = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let follow = flags & OFlags::NOFOLLOW;
    if flags.contains(OFlags::CREATE) {
        let opened = rustix::fs::open(path, all, mode);
        let file = opened.map_err(|error| refusal(error, follow))?;
        let found = examined(&file)?;
        return Ok((file.into(), found));
    }
    // To open a device may already have an effect, so what is at the path is examined before.
    let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | follow, mode)?;
    let found = examined(&place)?;
    Ok((reopened(&place, flags - follow)?, found))
}

/// Opens for use what was opened as a place only.
fn reopened(place: &OwnedFd, flags: OFlags) -> io::Result<File> {
    let all = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(by_descriptor(place), all, Mode::empty())?;
    Ok(file.into())
}

/// Returns what the kernel says of a file, which must be a regular one.
fn examined(file: &impl AsFd) -> io::Result<Stat> {
    let found = rustix::fs::fstat(file)?;
    let kind = FileType::from_raw_mode(found.st_mode);
    if kind == FileType::RegularFile {
        Ok(found)
    } else if kind == FileType::Symlink {
        Err(Unfit::Symbolic.into())
    } else {
        Err(Unfit::Irregular.into())
    }
}

/// Converts the kernel's refusal to open, for writing, what is no regular file.
fn refusal(error: Errno, follow: OFlags) -> io::Error {
    match error {
        Errno::LOOP if !follow.is_empty() => Unfit::Symbolic.into(),
        // A directory that is opened for writing, or a pipe without a reader.
        Errno::ISDIR | Errno::NXIO => Unfit::Irregular.into(),
        other => other.into(),
    }
}

/// Returns the path of what is open in this process, which no other process can change.
fn by_descriptor(file: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::{Unfit, errno, of_user, own, regular};
    use crate::kernel::path::exposed;
    use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
    use std::fs::Permissions;
    use std::io;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
    use std::path::Path;

    const STRANGER: u32 = 65_534;

    fn unfit<T>(opened: io::Result<T>) -> Unfit {
        let error = opened.err().expect("it is refused");
        super::unfit(&error).unwrap_or_else(|| panic!("{error}"))
    }

    fn own_of(path: &Path, flags: OFlags) -> io::Result<std::fs::File> {
        own(path, flags, Mode::RUSR | Mode::WUSR)
    }

    #[test]
    fn what_is_no_file_is_neither_waited_for_nor_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, link) = (folder.path().join("pipe"), folder.path().join("link"));
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        symlink(&pipe, &link).unwrap();
        let appended = OFlags::WRONLY | OFlags::APPEND;
        for path in [&pipe, &link, folder.path(), Path::new("/dev/zero")] {
            for flags in [OFlags::RDONLY, appended, appended | OFlags::CREATE] {
                assert_eq!(unfit(regular(path, flags)), Unfit::Irregular, "{path:?}");
            }
        }
        assert_eq!(unfit(own_of(&pipe, appended | OFlags::CREATE)), Unfit::Irregular);
    }

    #[test]
    fn a_file_of_ours_has_one_name_and_is_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for flags in [OFlags::RDONLY, OFlags::WRONLY | OFlags::CREATE] {
            std::fs::write(path("file"), "a").unwrap();
            own_of(&path("file"), flags).unwrap();
            symlink(path("file"), path("link")).unwrap();
            let refused = own_of(&path("link"), flags).unwrap_err();
            assert_eq!(errno(&refused), 40, "ELOOP");
            regular(&path("link"), flags).unwrap();
            std::fs::hard_link(path("file"), path("other")).unwrap();
            assert_eq!(unfit(own_of(&path("file"), flags)), Unfit::Linked);
            std::fs::remove_file(path("other")).unwrap();
            std::fs::remove_file(path("link")).unwrap();
        }
        assert_eq!(errno(&own_of(&path("none"), OFlags::RDONLY).unwrap_err()), 2);
        if rustix::process::geteuid().is_root() {
            chown(path("file"), Some(STRANGER), None).unwrap();
            let refused = unfit(own_of(&path("file"), OFlags::WRONLY));
            assert_eq!(refused, Unfit::Foreign(STRANGER));
        }
    }

    /// No second user is needed: one that does not exist will do as the reader.
    #[test]
    fn another_user_is_not_read_a_file_of_ours_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let path = |name: &str| folder.join(name);
        for name in ["ours", "home"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        std::fs::write(path("ours/env"), "A=1").unwrap();
        symlink(path("ours/env"), path("link")).unwrap();
        symlink(path("ours/env"), path("home/link")).unwrap();
        symlink(path("ours"), path("home/theirs")).unwrap();
        let own = rustix::process::geteuid().as_raw();
        for place in ["ours/env", "link", "home/link", "ours/../ours/env"] {
            of_user(&path(place), own).unwrap();
            of_user(&path(place), STRANGER).unwrap();
        }
        if rustix::process::geteuid().is_root() {
            chown(path("home"), Some(STRANGER), None).unwrap();
            std::fs::write(path("home/env"), "A=1").unwrap();
            for place in ["home/link", "home/theirs/env"] {
                assert_eq!(unfit(of_user(&path(place), STRANGER)), Unfit::Led);
                let refused = of_user(&path(place), own).unwrap_err();
                let why = &exposed(&refused).unwrap().why;
                assert!(why.ends_with("home belongs to user 65534"), "{why}");
            }
            of_user(&path("home/env"), STRANGER).unwrap();
            // A file of the reader may be reached in any way; one of a third user is refused.
            chown(path("ours/env"), Some(STRANGER), None).unwrap();
            of_user(&path("home/theirs/env"), STRANGER).unwrap();
            let refused = unfit(of_user(&path("ours/env"), STRANGER - 1));
            assert_eq!(refused, Unfit::Unrelated(STRANGER));
            let refused = unfit(of_user(&path("ours/env"), own));
            assert_eq!(refused, Unfit::Foreign(STRANGER));
            chown(path("ours/env"), Some(0), None).unwrap();
        }
        std::fs::hard_link(path("ours/env"), path("ours/more")).unwrap();
        assert_eq!(unfit(of_user(&path("ours/more"), STRANGER)), Unfit::Linked);
    }

    #[test]
    fn a_file_that_others_may_write_to_or_replace_decides_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "A=1").unwrap();
        symlink(&file, &link).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        for reader in [own, STRANGER] {
            for mode in [0o666, 0o622, 0o602] {
                set(&file, mode);
                assert_eq!(unfit(of_user(&file, reader)), Unfit::Writable(mode));
            }
            set(&file, 0o644);
            set(folder.path(), 0o777);
            for path in [&file, &link] {
                let refused = of_user(path, reader).unwrap_err();
                assert!(exposed(&refused).is_some(), "{refused}");
                assert_eq!(errno(&refused), 1, "EPERM");
            }
            set(folder.path(), 0o755);
            of_user(&file, reader).unwrap();
        }
    }
}
