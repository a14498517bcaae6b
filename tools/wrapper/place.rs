//! The directory of an attempt on the machine that it runs on. The directory exists from before the attempt can run until the end of the
//! attempt is acknowledged, so repeated requests begin an attempt only once, and its result can be requested later.

use crate::wrapper::protocol::Exit;
use rustix::fs::{FlockOperation, Mode, flock};
use serde::{Deserialize, Serialize};
use sexton::kernel::{host, path};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The maximum length of a socket's path that all systems accept, in bytes.
const SOCKET_BYTES_MAX: usize = 100;

/// The space that is reserved for the end of an attempt before it begins, in bytes: it can be stored even if the disk is full by then.
const END_BYTES: usize = 4096;

/// How long the directory of an attempt is kept if its end is never acknowledged.
pub(super) const KEPT: Duration = Duration::from_hours(7 * 24);

/// How an attempt ended, with an explanation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) exit: Exit,
    pub(super) words: String,
}

/// The directory of an attempt.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) dir: PathBuf,
}

/// Returns the directory of all attempts, after creating it if necessary. Fails if other users can put another in its place.
pub(super) fn base(state: Option<PathBuf>) -> io::Result<PathBuf> {
    let of_variable = |name, rest: &str| {
        let value = std::env::var_os(name).filter(|it| !it.is_empty())?;
        Some(PathBuf::from(value).join(rest))
    };
    let base = state
        .or_else(|| of_variable("XDG_STATE_HOME", "sexton/wrapper"))
        .or_else(|| of_variable("HOME", ".local/state/sexton/wrapper"));
    let missing =
        "neither HOME nor XDG_STATE_HOME is set: name the directory of attempts with --state";
    let base = base.ok_or_else(|| io::Error::other(missing))?;
    path::own_directory(Path::new("/"), &base, Mode::RWXU)?;
    fs::canonicalize(base)
}

/// Writes a file that only this user can read.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

impl Place {
    /// Returns the directory of the attempt with this name. Fails if the name is invalid or the path is too long for a socket.
    pub(super) fn of(base: &Path, attempt: &str) -> io::Result<Self> {
        let is_plain = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
        if attempt.is_empty() || attempt.len() > 64 || !attempt.bytes().all(is_plain) {
            return Err(io::Error::other("this is not a valid name for an attempt"));
        }
        let dir = base.join(attempt);
        if dir.as_os_str().len() + "/control".len() > SOCKET_BYTES_MAX {
            let words = "the path of the state directory is too long for a socket: choose another with --state";
            return Err(io::Error::other(words));
        }
        Ok(Self { dir })
    }

    pub(super) fn is_there(&self) -> bool {
        self.dir.exists()
    }

    /// Creates a draft of this directory: one with another name, to be renamed when it is complete.
    pub(super) fn draft(&self) -> io::Result<Self> {
        let pid = std::process::id();
        let dir = self.dir.with_extension(format!("{pid}"));
        DirBuilder::new().mode(0o700).create(&dir)?;
        let draft = Self { dir };
        let reserved = [b' '; END_BYTES];
        write(&draft.dir.join("boot"), host::boot().to_string().as_bytes())
            .and_then(|()| write(&draft.dir.join("end.new"), &reserved))
            .inspect_err(|_| draft.remove())?;
        Ok(draft)
    }

    /// Renames a draft to this directory and returns `true`. If this directory already exists, removes the draft and returns `false`.
    pub(super) fn become_of(&self, draft: &Self) -> io::Result<bool> {
        match fs::rename(&draft.dir, &self.dir) {
            Ok(()) => File::open(self.dir.parent().unwrap_or(&self.dir))?.sync_all().map(|()| true),
            Err(error) => {
                draft.remove();
                let is_there = matches!(
                    error.kind(),
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
                );
                if is_there { Ok(false) } else { Err(error) }
            }
        }
    }

    /// Locks the attempt; `None` if another process has it locked.
    pub(super) fn lock(&self) -> io::Result<Option<File>> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.dir.join("lock"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the directory was created during another boot, or the boot is unknown.
    pub(super) fn is_of_another_boot(&self) -> bool {
        let its = fs::read_to_string(self.dir.join("boot"));
        its.map_or(true, |its| its != host::boot().to_string())
    }

    /// Returns how the attempt ended, if that is known.
    pub(super) fn end(&self) -> Option<End> {
        let text = fs::read(self.dir.join("end")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Stores durably how the attempt ended.
    pub(super) fn set_end(&self, end: &End) -> io::Result<()> {
        let text = serde_json::to_vec(end)?;
        // The file is not truncated first, since its space is what was reserved.
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.dir.join("end.new"))?;
        file.write_all(&text)?;
        file.set_len(text.len() as u64)?;
        file.sync_all()?;
        fs::rename(self.dir.join("end.new"), self.dir.join("end"))?;
        File::open(&self.dir)?.sync_all()
    }

    /// Removes the directory.
    pub(super) fn remove(&self) {
        // A directory that cannot be removed now is removed later by `clean`.
        drop(fs::remove_dir_all(&self.dir));
    }
}

/// Removes the directories of attempts that have not changed for [`KEPT`] and that no process has locked.
#[expect(clippy::disallowed_methods, reason = "the age of a file is measured by the system clock")]
pub(super) fn clean(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    for entry in entries.flatten() {
        let is_old = || {
            let changed = entry.metadata().and_then(|it| it.modified()).ok()?;
            Some(SystemTime::now().duration_since(changed).ok()? > KEPT)
        };
        let place = Place { dir: entry.path() };
        let is_held = || place.lock().map_or(true, |lock| lock.is_none());
        if is_old() == Some(true) && !is_held() {
            place.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::base;
    use std::fs::{Permissions, create_dir, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn attempts_are_kept_where_nobody_else_can_write() {
        let files = tempfile::tempdir().expect("a directory");
        let shared = files.path().join("shared");
        create_dir(&shared).expect("a new directory");
        set_permissions(&shared, Permissions::from_mode(0o777)).expect("it is ours");
        let refused = base(Some(shared.join("state"))).expect_err("others may write there");
        assert!(refused.to_string().contains("has mode 0777"), "{refused}");
        assert!(!shared.join("state").exists());
        let made = base(Some(files.path().join("a/b"))).expect("it is made");
        let mode = made.metadata().expect("it exists").permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
    }
}
