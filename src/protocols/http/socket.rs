//! The Unix socket's file. Nobody but its user can connect: it is closed to others before it listens.
//!
//! Removes what a coordinator that was killed left behind, and at the end its own file; never a file that is no
//! socket, and never a socket that somebody listens on.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
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
    remove_stale(path)?;
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

fn remove_stale(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_socket() {
        let words = "a file that is no socket stands there";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, words));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) => Err(error),
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
            tracing::warn!(%error, path = %self.path.display(), "the socket's file stays behind");
        }
    }
}
