//! Follows a path part by part, and determines whether another user can decide where it leads: by writing to a directory on the way, or by
//! having made a symbolic link.
//!
//! A link is followed only where nobody who is not trusted could have put it. What was found is held by a descriptor, so that nothing can be
//! exchanged between the check and the use.

use crate::kernel::socket;
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

/// The maximum number of symbolic links in a path, as the kernel has it.
const LINKS_MAX: u32 = 40;

/// The mode bit with which only the owner of a file can replace it, in a directory to which all may write.
const STICKY: u32 = 0o1000;

/// The users and groups of the machine.
const GROUPS: &str = "/etc/group";

/// Why a path may lead to something that another user has put there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "another user can put something else there, since {why}: choose a path on which only root and the own user may write"
)]
pub struct Exposed {
    /// Whose directory or link it is, or the mode of the directory.
    pub why: String,
}

impl From<Exposed> for io::Error {
    fn from(exposed: Exposed) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, exposed)
    }
}

/// Returns why other users can decide where a path leads, if that is what this error says.
pub fn exposed(error: &io::Error) -> Option<&Exposed> {
    error.get_ref()?.downcast_ref()
}

/// What becomes of a path on which somebody else can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// It is refused.
    Refused,
    /// It is followed, but from there on no links are.
    NoLinks,
}

/// Whose directories and links are trusted.
pub type Trusts<'a> = &'a dyn Fn(u32) -> bool;

/// Opens what is at an absolute path as a place only (`O_PATH`).
///
/// # Errors
/// Returns an error if there is nothing, or [`Exposed`].
pub fn follow(path: &Path, trusts: Trusts<'_>, others: Others) -> io::Result<OwnedFd> {
    let mut walk = Walk::begin(Path::new("/"), trusts, others)?;
    walk.along(&std::path::absolute(path)?, None)?;
    walk.passed.pop().ok_or_else(|| Errno::NOENT.into())
}

/// Returns why a user who is not trusted can decide what is at a path, whether or not there is anything yet; `None` if nobody can.
pub fn exposure(path: &Path, trusts: Trusts<'_>) -> Option<String> {
    let followed = follow(path, trusts, Others::Refused);
    Some(exposed(followed.as_ref().err()?)?.why.clone())
}

/// Makes a directory of ours, and those above it that are missing. Below `base`, which is trusted, only what follows it is checked.
///
/// # Errors
/// Returns an error if it cannot be made, or [`Exposed`] if another user than root and the own one can put another in its place or write to
/// it.
pub fn own_directory(base: &Path, path: &Path, mode: Mode) -> io::Result<()> {
    let below = path.strip_prefix(base).ok();
    let below = below.filter(|it| it.components().all(|part| part != Component::ParentDir));
    let (base, rest) = match below {
        Some(rest) => (base, rest.to_owned()),
        None => (Path::new("/"), std::path::absolute(path)?),
    };
    let mut walk = Walk::begin(base, &socket::is_own, Others::Refused)?;
    walk.along(&rest, Some(mode))?;
    walk.enter()
}

/// Makes a directory, and those above it that are missing. Those of other users are passed through, but no link that they may have made is
/// followed: it would have us make directories where they may not.
///
/// # Errors
/// Returns an error if it cannot be made, or [`Exposed`].
pub fn directory(path: &Path, mode: Mode) -> io::Result<()> {
    // Nothing is made if everything is there, whatever leads to it.
    if path.is_dir() {
        return Ok(());
    }
    let mut walk = Walk::begin(Path::new("/"), &socket::is_own, Others::NoLinks)?;
    walk.along(&std::path::absolute(path)?, Some(mode))
}

/// Returns whether others than its owner and root may write to a file or directory, according to its mode. The group of a user alone, which
/// many systems give to each, is not somebody else.
pub fn is_open_to_others(found: &Stat) -> bool {
    let is_private = || is_private(found.st_uid, found.st_gid, || std::fs::read(GROUPS));
    found.st_mode & 0o002 != 0 || found.st_mode & 0o020 != 0 && !is_private()
}

/// Returns whether a group has the number of this user, as private groups have, and lists no members. Group 0 is none, since systems have
/// users in it.
fn is_private(user: u32, group: u32, groups: impl FnOnce() -> io::Result<Vec<u8>>) -> bool {
    if group == 0 || group != user {
        return false;
    }
    let groups = groups().unwrap_or_default();
    let mut lines = String::from_utf8_lossy(&groups)
        .lines()
        .map(|line| line.split(':').map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| line.get(2).is_some_and(|it| it.parse() == Ok(group)))
        .collect::<Vec<_>>()
        .into_iter();
    let members = lines.next().and_then(|line| line.get(3).cloned());
    members.is_some_and(|members| members.is_empty()) && lines.next().is_none()
}

/// A walk along a path.
struct Walk<'a> {
    trusts: Trusts<'a>,
    others: Others,
    /// What was passed, the present place last: directories, and at last perhaps a file. The first is never left.
    passed: Vec<OwnedFd>,
    links: u32,
    exposed: Option<Exposed>,
}

impl<'a> Walk<'a> {
    fn begin(base: &Path, trusts: Trusts<'a>, others: Others) -> io::Result<Self> {
        Ok(Self { trusts, others, passed: vec![opened(base)?], links: 0, exposed: None })
    }

    /// Walks along a path from the present place. With `make`, directories that are missing are made with this mode.
    fn along(&mut self, path: &Path, make: Option<Mode>) -> io::Result<()> {
        let mut rest = Vec::new();
        push(path, &mut rest);
        while let Some(part) = rest.pop() {
            if part == ".." {
                self.passed.truncate(self.passed.len().max(2) - 1);
                continue;
            }
            self.enter()?;
            let found = part_of(self.present()?, &part, make)?;
            let kind = FileType::from_raw_mode(fstat(&found)?.st_mode);
            if kind == FileType::Symlink {
                self.link(&found, &mut rest)?;
            } else if kind == FileType::Directory || rest.is_empty() {
                self.passed.push(found);
            } else {
                return Err(Errno::NOTDIR.into());
            }
        }
        let is_other = make.is_some()
            && FileType::from_raw_mode(fstat(self.present()?)?.st_mode) != FileType::Directory;
        if is_other { Err(Errno::NOTDIR.into()) } else { Ok(()) }
    }

    fn present(&self) -> io::Result<&OwnedFd> {
        self.passed.last().ok_or_else(|| Errno::NOENT.into())
    }

    /// Determines whether a user who is not trusted could have replaced what is in the present directory.
    fn enter(&mut self) -> io::Result<()> {
        if self.exposed.is_some() {
            return Ok(());
        }
        let here = self.present()?;
        let found = fstat(here)?;
        let (owner, mode) = (found.st_uid, found.st_mode & 0o7777);
        let why = if !(self.trusts)(owner) {
            format!("{} belongs to user {owner}", shown(here))
        } else if mode & STICKY == 0 && is_open_to_others(&found) {
            format!("{} has mode {mode:04o}", shown(here))
        } else {
            return Ok(());
        };
        let exposed = Exposed { why };
        if self.others == Others::Refused {
            return Err(exposed.into());
        }
        self.exposed = Some(exposed);
        Ok(())
    }

    /// Continues with what a link leads to.
    fn link(&mut self, link: &OwnedFd, rest: &mut Vec<OsString>) -> io::Result<()> {
        let (owner, shown) = (fstat(link)?.st_uid, shown(link));
        if let Some(Exposed { why }) = &self.exposed {
            let why = format!("{shown} is a symbolic link, and {why}");
            return Err(Exposed { why }.into());
        }
        if !(self.trusts)(owner) {
            let why = format!("{shown} is a symbolic link of user {owner}");
            return Err(Exposed { why }.into());
        }
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let target = readlinkat(link, "", Vec::new())?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if target.is_absolute() {
            self.passed = vec![opened(Path::new("/"))?];
        }
        push(&target, rest);
        Ok(())
    }
}

fn opened(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, directory, flags, Mode::empty())?)
}

/// Opens what has this name in a directory, without following a link. With `make`, a directory is made if there is nothing.
fn part_of(directory: &OwnedFd, name: &OsStr, make: Option<Mode>) -> io::Result<OwnedFd> {
    let place = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // With this flag first, a file system that is mounted when it is used is mounted.
    let open = || match openat(directory, name, place | OFlags::DIRECTORY, Mode::empty()) {
        Err(Errno::NOTDIR) => openat(directory, name, place, Mode::empty()),
        other => other,
    };
    match (open(), make) {
        (Err(Errno::NOENT), Some(mode)) => match mkdirat(directory, name, mode) {
            // If somebody else was faster, what they made is looked at like everything else.
            Ok(()) | Err(Errno::EXIST) => Ok(open()?),
            Err(error) => Err(error.into()),
        },
        (found, _) => Ok(found?),
    }
}

/// Puts the parts of a path on top of those that follow it, the first one on top.
fn push(path: &Path, rest: &mut Vec<OsString>) {
    let parts = path.components().rev().filter_map(|part| match part {
        Component::Normal(part) => Some(part.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    rest.extend(parts);
}

/// Returns the path of what is open, for messages.
fn shown(place: &OwnedFd) -> String {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", place.as_raw_fd()));
    path.map_or_else(|_| "a directory".to_owned(), |it| it.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::{Others, directory, exposed, exposure, follow, is_private, own_directory};
    use crate::kernel::socket::is_own;
    use rustix::fs::Mode;
    use std::fs::{Permissions, create_dir, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
    use std::path::Path;
    use tempfile::TempDir;

    const STRANGER: u32 = 65_534;

    fn open_to_all(path: &Path, mode: u32) {
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// Returns a directory with `ours/file` in it, `shared`, to which all may write, and `shared/link`, which leads to `ours`.
    fn shared() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        create_dir(path("ours")).unwrap();
        write(path("ours/file"), "a").unwrap();
        create_dir(path("shared")).unwrap();
        open_to_all(&path("shared"), 0o777);
        symlink(path("ours"), path("shared/link")).unwrap();
        folder
    }

    #[test]
    fn a_directory_of_ours_is_made_where_nobody_else_can_write() {
        let folder = shared();
        let path = |name: &str| folder.path().join(name);
        let root = Path::new("/");
        let mode = Mode::RWXU;
        for name in ["ours/a/b", "ours/a/../c", "a/b/c"] {
            own_directory(root, &path(name), mode).unwrap();
            assert!(path(name).is_dir());
            own_directory(root, &path(name), mode).unwrap();
        }
        for name in ["shared/a", "shared/link/a", "shared/a/b", "shared"] {
            let refused = own_directory(root, &path(name), mode).unwrap_err();
            let why = &exposed(&refused).unwrap().why;
            assert!(why.ends_with("shared has mode 0777"), "{name}: {why}");
        }
        assert!(!path("shared/a").exists() && !path("ours/a/a").exists());
        let refused = own_directory(root, &path("ours/file"), mode).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(20));
        // A link of ours in a directory of ours leads where it says; what is above the base is not looked at.
        symlink(path("ours"), path("link")).unwrap();
        own_directory(root, &path("link/d"), mode).unwrap();
        assert!(path("ours/d").is_dir());
        create_dir(path("shared/base")).unwrap();
        let base = path("shared/base");
        own_directory(&base, &base.join("run/a"), mode).unwrap();
        symlink(path("ours"), base.join("out")).unwrap();
        own_directory(&base, &base.join("out/e"), mode).unwrap();
        assert!(path("ours/e").is_dir());
        own_directory(&base, &base.join("../../a"), mode).unwrap_err();
    }

    #[test]
    fn directories_are_made_through_no_link_of_somebody_else() {
        let folder = shared();
        let path = |name: &str| folder.path().join(name);
        directory(&path("shared/a/b"), Mode::RWXU).unwrap();
        assert!(path("shared/a/b").is_dir());
        let refused = directory(&path("shared/link/a"), Mode::RWXU).unwrap_err();
        let why = &exposed(&refused).unwrap().why;
        assert!(why.contains("shared/link is a symbolic link, and "), "{why}");
        assert!(!path("ours/a").exists());
        // What is there need not be made.
        directory(&path("shared/link"), Mode::RWXU).unwrap();
    }

    #[test]
    fn a_path_is_exposed_by_what_others_own_on_it() {
        let folder = shared();
        let path = |name: &str| folder.path().join(name);
        assert_eq!(exposure(&path("ours/file"), &is_own), None);
        assert_eq!(exposure(&path("ours/none/at/all"), &is_own), None);
        open_to_all(&path("shared"), 0o1777);
        assert_eq!(exposure(&path("shared/link/file"), &is_own), None);
        open_to_all(&path("shared"), 0o777);
        let why = exposure(&path("shared/none"), &is_own).unwrap();
        assert!(why.ends_with("shared has mode 0777"), "{why}");
        follow(&path("ours/file"), &is_own, Others::NoLinks).unwrap();
        follow(&path("shared/link/file"), &is_own, Others::NoLinks).unwrap_err();
        symlink(path("loop"), path("loop")).unwrap();
        let refused = follow(&path("loop"), &is_own, Others::NoLinks).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(40));
        if rustix::process::geteuid().is_root() {
            open_to_all(&path("shared"), 0o1777);
            lchown(path("shared/link"), Some(STRANGER), None).unwrap();
            let why = exposure(&path("shared/link/file"), &is_own).unwrap();
            assert!(why.ends_with("link of user 65534"), "{why}");
            let trusts = |user| is_own(user) || user == STRANGER;
            assert_eq!(exposure(&path("shared/link/file"), &trusts), None);
            chown(path("ours"), Some(STRANGER), None).unwrap();
            let why = exposure(&path("ours/file"), &is_own).unwrap();
            assert!(why.ends_with("ours belongs to user 65534"), "{why}");
        }
    }

    #[test]
    fn a_group_of_one_user_alone_is_not_somebody_else() {
        let groups = || Ok(b"root:x:0:\nsvc:x:7:\nstaff:x:8:svc\ntwo:x:9:\nagain:x:9:\n".to_vec());
        for (user, group, expected) in [
            (0, 0, false),
            (7, 7, true),
            (6, 7, false),
            (8, 8, false),
            (9, 9, false),
            (10, 10, false),
        ] {
            assert_eq!(is_private(user, group, groups), expected, "{user}:{group}");
        }
    }
}
