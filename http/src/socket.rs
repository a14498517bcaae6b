//! The file of the Unix socket. Only its owner, and users admitted by its permissions, can connect: the permissions are set
//! before the socket listens.
//!
//! A socket left behind by a killed coordinator is removed, and a coordinator removes its own when it stops. Files that are
//! not sockets, and sockets in use, are never removed. If somebody removes the file of a socket in use, it is created again.

use sexton::address;
use sexton::config::HttpConfig;
use sexton::kernel::socket::Peers;
use sexton::protocols::listener;
use std::cell::RefCell;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::timeout;

/// The maximum length of a path in a Unix socket address, without the terminating zero, in bytes.
const PATH_BYTES_MAX: usize = 107;

/// The maximum number of connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// How often it is checked whether the file of a socket still exists.
const LOOK: Duration = Duration::from_secs(1);

/// The answer to a user that the settings do not admit.
pub(crate) const FOREIGN: &str = "this socket serves only the coordinator's own user: use TCP with a token, or open the socket to a group with --socket-group";

/// The file of a socket, removed on drop if it is still the same file.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    rights: Rights,
    device: u64,
    inode: u64,
    /// Device and inode of the directory that it is in.
    directory: Option<(u64, u64)>,
}

/// The mode and group of the file, which determine who may connect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights {
    pub(crate) mode: u32,
    /// The group; unchanged if `None`.
    pub(crate) group: Option<u32>,
}

impl Rights {
    pub(crate) const fn of(config: &HttpConfig) -> Self {
        Self { mode: config.socket_mode, group: config.socket_group }
    }

    /// Returns whether users other than the owner may connect, which requires write permission.
    pub(crate) const fn are_shared(self) -> bool {
        self.mode & 0o022 != 0
    }

    /// Sets this mode and group on an existing file. The error states the mode and group that the file has.
    pub(crate) fn apply(self, path: &Path) -> io::Result<()> {
        let metadata = std::fs::symlink_metadata(path)?;
        let (mode, group) = (metadata.mode() & 0o7777, metadata.gid());
        let give = || {
            if self.group.is_some_and(|wanted| wanted != group) {
                std::os::unix::fs::chown(path, None, self.group)?;
            }
            if mode != self.mode {
                std::fs::set_permissions(path, Permissions::from_mode(self.mode))?;
            }
            Ok(())
        };
        give().map_err(|error: io::Error| {
            let wanted = self.group.map_or(String::new(), |group| format!(" and group {group}"));
            let words = format!(
                "it has mode {mode:04o} and group {group}, and cannot be given mode {:04o}{wanted}: {error}",
                self.mode
            );
            io::Error::new(error.kind(), words)
        })
    }

    /// Lets the admitted users traverse a directory that only its owner can access. They can neither list nor change it. Does nothing if
    /// the directory belongs to another user, if others already have access to it, or if only the owner is admitted.
    fn allow_traversal(self, directory: &Path) -> io::Result<()> {
        let metadata = std::fs::metadata(directory)?;
        let (ours, mode) = (rustix::process::geteuid().as_raw(), metadata.mode() & 0o7777);
        if !self.are_shared() || metadata.uid() != ours || mode & 0o077 != 0 {
            return Ok(());
        }
        let pass = if self.mode & 0o002 == 0 { 0o010 } else { 0o011 };
        let mode = mode | pass;
        Self { mode, ..self }.apply(directory)
    }
}

/// Listens at a path, and returns the non-blocking listener and its file.
pub(crate) fn listen(path: &Path, rights: Rights) -> io::Result<(UnixListener, SocketFile)> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let bytes = path.as_os_str().len();
    if bytes > PATH_BYTES_MAX {
        let words = format!(
            "the path has {bytes} bytes, but the path of a Unix socket may have at most {PATH_BYTES_MAX}: \
             use a shorter data directory"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
    }
    address::remove_stale(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    let metadata = std::fs::symlink_metadata(path)?;
    let file = SocketFile {
        path: path.to_owned(),
        rights,
        device: metadata.dev(),
        inode: metadata.ino(),
        directory: directory_of(path),
    };
    // Until the socket listens, every connection attempt is refused, so no client can connect before the mode is set.
    rights.apply(path)?;
    path.parent().map_or(Ok(()), |directory| rights.allow_traversal(directory))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((UnixListener::from(socket), file))
}

fn directory_of(path: &Path) -> Option<(u64, u64)> {
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty())?;
    let metadata = std::fs::metadata(parent).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

impl SocketFile {
    /// Returns whether the file was removed, and nothing else: the directory that it was in is still there.
    fn is_removed(&self) -> bool {
        let found = std::fs::symlink_metadata(&self.path);
        let is_absent = found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        is_absent && directory_of(&self.path) == self.directory
    }
}

/// A socket that accepts connections, and that listens at its path again after its file was removed.
pub(crate) struct Socket {
    listener: watch::Sender<Rc<tokio::net::UnixListener>>,
    /// Its file; `None` if the socket was passed by another program, which looks after the file.
    file: RefCell<Option<SocketFile>>,
}

impl Socket {
    /// Takes over a non-blocking listener. Called on a thread with a runtime.
    pub(crate) fn new((listener, file): (UnixListener, Option<SocketFile>)) -> io::Result<Self> {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        Ok(Self { listener: watch::Sender::new(Rc::new(listener)), file: RefCell::new(file) })
    }

    /// Returns the next connection, with the client's user, as [`listener::accept_unix`] does.
    pub(crate) async fn accept(&self, peers: Peers) -> (UnixStream, u32) {
        let mut current = self.listener.subscribe();
        loop {
            let listener = Rc::clone(&current.borrow_and_update());
            tokio::select! {
                accepted = listener::accept_unix(&listener, peers) => return accepted,
                _ = current.changed() => {}
            }
        }
    }

    /// Creates the file again whenever it was removed, until the listener closes.
    pub(crate) async fn keep(&self, mut closing: watch::Receiver<bool>) {
        let mut told: Option<String> = None;
        while timeout(LOOK, closing.wait_for(|closing| *closing)).await.is_err() {
            told = self.look(told.as_deref());
        }
    }

    /// Creates the file again if it was removed. Returns the error that keeps it from doing so, which is reported if it is not `told`.
    fn look(&self, told: Option<&str>) -> Option<String> {
        let mut file = self.file.borrow_mut();
        let removed = file.as_ref().filter(|it| it.is_removed())?;
        let (path, rights) = (removed.path.clone(), removed.rights);
        let listened = listen(&path, rights)
            .and_then(|(listener, new)| Ok((tokio::net::UnixListener::from_std(listener)?, new)));
        match listened {
            Ok((listener, new)) => {
                // The new file may have the inode that the old one had, which must not remove it. No file has the number 0.
                if let Some(old) = file.as_mut() {
                    old.inode = 0;
                }
                file.replace(new);
                self.listener.send_replace(Rc::new(listener));
                let path = path.display();
                tracing::warn!(%path, "the file of the socket was removed, and was created again");
                None
            }
            Err(error) => {
                let error = error.to_string();
                if told != Some(error.as_str()) {
                    let path = path.display();
                    tracing::warn!(%error, %path, "the file of the socket was removed, and cannot be created again");
                }
                Some(error)
            }
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let Ok(metadata) = std::fs::symlink_metadata(&self.path) else {
            return;
        };
        if (metadata.dev(), metadata.ino()) != (self.device, self.inode) {
            return;
        }
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "could not remove the socket's file");
        }
    }
}
