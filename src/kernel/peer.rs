//! Who is at the other end of a Unix socket: its user, and its process, which is identified by more than its PID, because that may have been
//! reused by the time it is read.

#![expect(
    unsafe_code,
    reason = "there is no safe call for `SO_PEERPIDFD`, nor for `SO_PEERCRED` of a process outside our PID namespace"
)]

use crate::kernel::host;
use crate::kernel::pidfd::Pidfd;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

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

/// Returns the user and the PID of the process at the other end: of an accepted connection, the one that connected; of a connection of
/// ours, the one that began to listen. The PID is `None` if the process is outside this process's PID namespace; such a PID reads as 0,
/// which the type of rustix cannot hold.
///
/// # Errors
/// Returns the error of `getsockopt`.
pub fn credentials(socket: impl AsFd) -> io::Result<(u32, Option<u32>)> {
    let unknown = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let found = option(socket.as_fd(), libc::SO_PEERCRED, unknown)?;
    let pid = u32::try_from(found.pid).ok().filter(|pid| *pid > 0);
    Ok((found.uid, pid))
}

fn descriptor(socket: impl AsFd) -> io::Result<Pidfd> {
    let fd: libc::c_int = option(socket.as_fd(), SO_PEERPIDFD, -1)?;
    // SAFETY: the kernel has just returned this descriptor, so it is open and nothing else owns it.
    Ok(Pidfd::from_fd(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Reads an option of the level `SOL_SOCKET` into `value`. `T` must be the type that the kernel writes
/// for it, and any content of it valid.
fn option<T: Copy>(socket: BorrowedFd<'_>, name: libc::c_int, mut value: T) -> io::Result<T> {
    let mut length =
        libc::socklen_t::try_from(size_of::<T>()).expect("the size of an option should fit");
    let place = (&raw mut value).cast();
    // SAFETY: `place` points at a live value, and `length` is its size.
    let asked = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, place, &raw mut length)
    };
    match asked {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
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
