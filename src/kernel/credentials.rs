//! Datagrams with who sent them, as the kernel vouches for it.

#![expect(
    unsafe_code,
    reason = "a sender outside our PID namespace has no PID, for which the safe call has no value"
)]

use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr;

/// How long the kernel's word about a sender is.
const SENDER_BYTES: libc::c_uint = 12;

const _: () = assert!(size_of::<libc::ucred>() == SENDER_BYTES as usize);

/// Who sent a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The PID that it had then, as it is seen from here.
    pub pid: u32,
    /// Its user.
    pub user: u32,
}

/// A datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// How many bytes of it were read.
    pub bytes: usize,
    /// Who sent it; `None` if that cannot be seen from here.
    pub sender: Option<Sender>,
}

/// A Unix socket that takes datagrams, and never blocks.
#[derive(Debug)]
pub struct Receiver(OwnedFd);

impl Receiver {
    /// Bound to this address.
    ///
    /// # Errors
    /// Those of `socket` and `bind`.
    pub fn bind(address: &SocketAddrUnix) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        // Before anybody can send: what came earlier would say nothing of its sender.
        set_socket_passcred(&socket, true)?;
        bind(&socket, address)?;
        Ok(Self(socket))
    }

    /// The next datagram, if one has come. What is too long is cut off, and descriptors that came with it are closed.
    ///
    /// # Errors
    /// Those of `recvmsg`.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Datagram>> {
        let mut part = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        // Room for one message about the sender, which comes first, and for nothing else: the kernel drops what does not fit.
        let mut control = [0_u64; 8];
        // SAFETY: plain numbers and pointers, of which zero is one.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: a length in, a length out.
        let space = unsafe { libc::CMSG_SPACE(SENDER_BYTES) };
        // Which type of number it is differs from one C library to the next.
        message.msg_controllen = space as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: buffers that are there, with their lengths; the one for control is aligned as its messages are.
        let count = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, flags) };
        let Ok(bytes) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            let is_none = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];
            return if is_none.contains(&error.kind()) {
                Ok(None)
            } else {
                Err(error)
            };
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
    // SAFETY: what the kernel has just filled: the first message, if there is room for one in it.
    let first = unsafe { libc::CMSG_FIRSTHDR(message) };
    if first.is_null() {
        return None;
    }
    // SAFETY: it is not null, so it points at a whole header.
    let header = unsafe { *first };
    // SAFETY: a length in, a length out.
    let whole = unsafe { libc::CMSG_LEN(SENDER_BYTES) };
    let is_about_sender =
        header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_CREDENTIALS;
    if !is_about_sender || (header.cmsg_len as u64) < u64::from(whole) {
        return None;
    }
    // SAFETY: the header says that so many bytes follow it.
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
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("socket");
        let address = SocketAddrUnix::new(&path).expect("it is short");
        let receiver = Receiver::bind(&address).expect("it is bound");
        let mut buffer = [0; 4];
        assert_eq!(receiver.receive(&mut buffer).expect("it is open"), None);
        let sender = UnixDatagram::unbound().expect("a socket");
        sender.send_to(b"READY=1", &path).expect("it is sent");
        let datagram = receiver.receive(&mut buffer).expect("it is open");
        let datagram = datagram.expect("one has come");
        assert_eq!((datagram.bytes, &buffer), (4, b"READ"));
        let own = Sender {
            pid: std::process::id(),
            user: rustix::process::getuid().as_raw(),
        };
        assert_eq!(datagram.sender, Some(own));
    }
}
