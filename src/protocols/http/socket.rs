//! The Unix socket's file. Nobody but its user can connect: it is closed to others before it listens.
//!
//! Removes what a coordinator that was killed left behind, and at the end its own file; never a file that is no
//! socket, and never a socket that somebody listens on.

use crate::address;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// What an address of a Unix socket holds, less the zero at its end.
const PATH_BYTES_MAX: usize = 107;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// A socket's file, removed when dropped if it is still the same.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// Listens at a path. The listener does not block.
pub(crate) fn listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let bytes = path.as_os_str().len();
    if bytes > PATH_BYTES_MAX {
        let words = format!(
            "the path has {bytes} bytes, and the address of a Unix socket holds {PATH_BYTES_MAX}: \
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
        device: metadata.dev(),
        inode: metadata.ino(),
    };
    // Before it listens every attempt to connect is refused, so nobody slips in before the mode is right.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((UnixListener::from(socket), file))
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
            tracing::warn!(%error, path = %self.path.display(), "the socket's file stays behind");
        }
    }
}
