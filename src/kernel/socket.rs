//! Unix stream sockets between processes of this machine: who is at the other end, and connecting within a time limit.
//!
//! Every listener passes each connection to [`Peers::admit`] before it does anything else with it, so that a connection of another user
//! takes no slot, thread or buffer. Every client connects with [`connect`] or [`connect_to_own`]: connecting without a limit would wait
//! for ever for a process that was stopped, once its queue of connections is full.

use crate::kernel::peer;
use rustix::event::{Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// The pause before another attempt to connect to a socket whose queue of connections is full: no event reports that it has space.
const FULL: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
/// The same in milliseconds.
const FULL_MS: u64 = 5;

/// The pause before accepting again after an error, which usually means that the process has run out of descriptors.
const OUT_OF_DESCRIPTORS: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The users whose connections a listener accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peers {
    /// The user that this process runs as, and root.
    Own,
    /// Every user that the mode of the socket's file lets connect. Only for listeners that are meant to be shared.
    OfFile,
}

impl Peers {
    /// Returns the socket of a connection with the user at its other end, or `None` if connections of this user are not accepted or the
    /// user is unknown; the connection is then closed, without an answer.
    pub fn admit<S: AsFd>(self, socket: S) -> Option<(S, u32)> {
        let user = user(&socket).ok()?;
        self.admits(user).then_some((socket, user))
    }

    /// Returns whether connections of this user are accepted.
    pub fn admits(self, user: u32) -> bool {
        self == Self::OfFile || is_own(user)
    }
}

/// Returns whether this is the user that this process runs as, or root, who has every right of that user.
pub fn is_own(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// Returns the user at the other end: of an accepted connection, the user that connected; of a connection of ours, the user that began to
/// listen.
///
/// # Errors
/// Returns the error of `getsockopt`.
pub fn user(socket: impl AsFd) -> io::Result<u32> {
    Ok(peer::credentials(socket)?.0)
}

/// Returns the PID of the process that connected or began to listen, as [`user`] does; `None` if it is outside our PID namespace. It may
/// have been reused since.
pub fn process(socket: impl AsFd) -> Option<u32> {
    peer::credentials(socket).ok()?.1
}

/// Yields the connections to a listener of our own user, without an end. Those of other users are closed.
pub fn incoming(listener: &UnixListener) -> impl Iterator<Item = UnixStream> + '_ {
    std::iter::repeat_with(|| match listener.accept() {
        Ok((stream, _)) => Peers::Own.admit(stream).map(|(stream, _)| stream),
        Err(_) => {
            let _nothing = poll(&mut [], Some(&OUT_OF_DESCRIPTORS));
            None
        }
    })
    .flatten()
}

/// Connects to a socket by the path of its file.
///
/// # Errors
/// Returns the error of `connect`, or one of the kind [`TimedOut`](io::ErrorKind::TimedOut) if the socket's queue of connections is full
/// for `limit`.
pub fn connect(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    connect_to(&SocketAddrUnix::new(path)?, limit)
}

/// Connects like [`connect`], but only if the process that listens belongs to our own user or to root. Otherwise nothing is sent to it.
///
/// # Errors
/// Returns the errors of [`connect`], or one of the kind [`PermissionDenied`](io::ErrorKind::PermissionDenied) that names the user.
pub fn connect_to_own(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    own(connect(path, limit)?)
}

/// Connects to a socket of our own user by its name in the abstract namespace.
///
/// # Errors
/// The same as for [`connect_to_own`].
pub fn connect_to_own_name(name: &[u8], limit: Duration) -> io::Result<UnixStream> {
    own(connect_to(&SocketAddrUnix::new_abstract_name(name)?, limit)?)
}

fn own(stream: UnixStream) -> io::Result<UnixStream> {
    let user = user(&stream)?;
    if is_own(user) {
        return Ok(stream);
    }
    let words = format!("user {user} listens there, not the user of this process");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, words))
}

fn connect_to(address: &SocketAddrUnix, limit: Duration) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let mut left = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    loop {
        match rustix::net::connect(&socket, address) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if left > 0 => {
                left = left.saturating_sub(FULL_MS);
                let _nothing = poll(&mut [], Some(&FULL));
            }
            Err(Errno::AGAIN) => {
                let words = "its queue of connections is full: the process that listens there is stopped or overloaded";
                return Err(io::Error::new(io::ErrorKind::TimedOut, words));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::{Peers, connect, connect_to_own, incoming, is_own, user};
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    #[test]
    fn both_ends_see_the_user_of_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut client = connect_to_own(&path, Duration::ZERO).unwrap();
        let mut server = incoming(&listener).next().unwrap();
        let own = rustix::process::geteuid().as_raw();
        assert_eq!((user(&client).unwrap(), user(&server).unwrap()), (own, own));
        client.write_all(b"hi").unwrap();
        let mut read = [0; 2];
        server.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"hi");
    }

    #[test]
    fn only_root_and_our_own_user_are_ours() {
        let own = rustix::process::geteuid().as_raw();
        assert!(is_own(0) && is_own(own));
        assert!(!Peers::Own.admits(own + 1) && Peers::OfFile.admits(own + 1));
    }

    #[test]
    fn a_full_queue_is_waited_for_only_within_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let _first = connect(&path, Duration::ZERO).unwrap();
        for limit in [0, 20] {
            let refused = connect(&path, Duration::from_millis(limit)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::TimedOut);
        }
        let missing = connect(&dir.path().join("none"), Duration::ZERO).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }
}
