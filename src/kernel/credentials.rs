//! Datagrams with the credentials of their sender, as verified by the kernel.

#![expect(
    unsafe_code,
    reason = "the safe call cannot represent a sender without a PID, that is, one outside our PID namespace"
)]

use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr;

/// The size in bytes of the credentials that the kernel passes along.
const SENDER_BYTES: libc::c_uint = 12;

const _: () = assert!(size_of::<libc::ucred>() == SENDER_BYTES as usize);

/// The sender of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The PID it had when it sent the datagram, in our PID namespace.
    pub pid: u32,
    /// The sender's user id.
    pub user: u32,
}

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The number of bytes that were read.
    pub bytes: usize,
    /// The sender; `None` if it is not visible from our PID namespace.
    pub sender: Option<Sender>,
}

/// A non-blocking Unix datagram socket for receiving.
#[derive(Debug)]
pub struct Receiver(OwnedFd);

impl Receiver {
    /// Creates a socket and binds it to `address`.
    ///
    /// # Errors
    /// Returns the error of `socket`, `setsockopt` or `bind`.
    pub fn bind(address: &SocketAddrUnix) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        // Enabled before any process can send: a datagram received earlier would carry no credentials.
        set_socket_passcred(&socket, true)?;
        bind(&socket, address)?;
        Ok(Self(socket))
    }

    /// Returns the next datagram, or `None` if none has arrived. A datagram that does not fit into the buffer is truncated. Descriptors
    /// passed with any datagram are closed.
    ///
    /// # Errors
    /// Returns the error of `recvmsg`.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Datagram>> {
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // The buffer is limited to one control message. The kernel puts the credentials first, and drops all further messages, such as
        // passed descriptors.
        let mut control = [0_u64; 8];
        // SAFETY: a plain C struct of integers and pointers for which all zeroes is a valid value.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: the function only computes a length from a length.
        let space = unsafe { libc::CMSG_SPACE(SENDER_BYTES) };
        // The integer type of this field differs between C libraries.
        message.msg_controllen = space as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: `message` refers to live buffers and states their lengths; the control buffer is aligned for the messages it receives.
        let count = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, flags) };
        let Ok(bytes) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            let is_none = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
            return if is_none.contains(&error.kind()) { Ok(None) } else { Err(error) };
        };
        let sender = sender(&message);
        Ok(Some(Datagram { bytes, sender }))
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn sender(message: &libc::msghdr) -> Option<Sender> {
    // SAFETY: the kernel has just filled in `message`; the result is its first control message, or null if it has none.
    let first = unsafe { libc::CMSG_FIRSTHDR(message) };
    if first.is_null() {
        return None;
    }
    // SAFETY: the pointer is not null, so it points at a whole header.
    let header = unsafe { *first };
    // SAFETY: the function only computes a length from a length.
    let whole = unsafe { libc::CMSG_LEN(SENDER_BYTES) };
    let is_about_sender =
        header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_CREDENTIALS;
    if !is_about_sender || (header.cmsg_len as u64) < u64::from(whole) {
        return None;
    }
    // SAFETY: according to its length, the header is followed by at least a whole `ucred`.
    let sender: libc::ucred = unsafe { ptr::read_unaligned(libc::CMSG_DATA(first).cast()) };
    let pid = u32::try_from(sender.pid).ok().filter(|pid| *pid != 0)?;
    let user = sender.uid;
    Some(Sender { pid, user })
}

#[cfg(test)]
mod tests {
    use super::{Receiver, Sender};
    use rustix::net::SocketAddrUnix;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn a_datagram_comes_with_who_sent_it_and_is_cut_where_it_is_too_long() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("socket");
        let address = SocketAddrUnix::new(&path).expect("the path is short");
        let receiver = Receiver::bind(&address).expect("the socket is bound");
        let mut buffer = [0; 4];
        assert_eq!(receiver.receive(&mut buffer).expect("the socket is open"), None);
        let sender = UnixDatagram::unbound().expect("a socket");
        sender.send_to(b"READY=1", &path).expect("the datagram is sent");
        let datagram = receiver.receive(&mut buffer).expect("the socket is open");
        let datagram = datagram.expect("a datagram has arrived");
        assert_eq!((datagram.bytes, &buffer), (4, b"READ"));
        let own = Sender { pid: std::process::id(), user: rustix::process::getuid().as_raw() };
        assert_eq!(datagram.sender, Some(own));
    }
}
