//! Identifies the process at the other end of a Unix socket by more than its PID, which may have been reused by the time it is read.

#![expect(unsafe_code, reason = "there is no safe call for `SO_PEERPIDFD`")]

use crate::kernel::host;
use crate::kernel::pidfd::Pidfd;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

/// `SO_PEERPIDFD` of `asm-generic/socket.h` (Linux 6.5).
const SO_PEERPIDFD: libc::c_int = 77;

/// The kernel's answer about the process that connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The inode of its pidfd, which distinguishes it from every other process of this boot.
    Inode(u64),
    /// It has ended and been reaped.
    Gone,
    /// Unknown: the kernel is too old to report it, or the query failed.
    Unavailable,
}

/// Identifies the process at the other end of `socket`, which was accepted from a listener.
pub fn of(socket: impl AsFd) -> Peer {
    if !host::abilities().inodes {
        return Peer::Unavailable;
    }
    match descriptor(socket) {
        Ok(pidfd) => pidfd.inode().map_or(Peer::Unavailable, Peer::Inode),
        Err(error) => match error.raw_os_error() {
            Some(libc::ESRCH | libc::EINVAL) => Peer::Gone,
            _ => Peer::Unavailable,
        },
    }
}

fn descriptor(socket: impl AsFd) -> io::Result<Pidfd> {
    let mut fd: libc::c_int = -1;
    let mut length =
        libc::socklen_t::try_from(size_of::<libc::c_int>()).expect("the size of an integer fits");
    let (socket, place) = (socket.as_fd().as_raw_fd(), (&raw mut fd).cast());
    // SAFETY: `place` points at a live integer, and `length` is its size.
    let asked = unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            place,
            &raw mut length,
        )
    };
    if asked != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, so it is open and nothing else owns it.
    Ok(Pidfd::from_fd(unsafe { OwnedFd::from_raw_fd(fd) }))
}

#[cfg(test)]
mod tests {
    use super::{Peer, of};
    use crate::kernel::host::abilities;
    use crate::kernel::identity::identify;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn who_connects_is_known_by_its_inode() {
        let folder = tempfile::tempdir().expect("a directory can be made");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("the socket is bound");
        let _client = UnixStream::connect(&path).expect("the client connects");
        let (stream, _) = listener.accept().expect("a client is connecting");
        let own = identify(std::process::id())
            .expect("the process can be identified")
            .expect("the process is alive");
        let expected = match own.1.inode {
            0 => Peer::Unavailable,
            inode => Peer::Inode(inode),
        };
        assert_eq!(of(&stream), expected);
        assert_eq!(abilities().inodes, own.1.inode != 0);
    }
}
