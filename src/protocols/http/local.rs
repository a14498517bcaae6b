//! A connection to the Unix socket. The runtime's own stream always watches for both data to read and room to write: on a Unix socket,
//! the thread would be woken each time a client has read an answer. This one watches for room only while its buffer is full.

use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// A connection to the Unix socket.
pub(crate) struct LocalStream {
    /// The socket, treated as an end of a pipe: the runtime watches that in one direction only, but reads and writes it like a socket.
    socket: pipe::Receiver,
    /// The same socket, while its buffer is full.
    full: Option<pipe::Sender>,
}

impl LocalStream {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        let socket = OwnedFd::from(stream.into_std()?);
        Ok(Self {
            socket: pipe::Receiver::from_owned_fd_unchecked(socket)?,
            full: None,
        })
    }
}

impl AsyncRead for LocalStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, bytes)
    }
}

impl AsyncWrite for LocalStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.full.is_none() {
            match send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Err(Errno::AGAIN) => {
                    let same = self.socket.as_fd().try_clone_to_owned()?;
                    self.full = Some(pipe::Sender::from_owned_fd_unchecked(same)?);
                }
                sent => return Poll::Ready(sent.map_err(io::Error::from)),
            }
        }
        let full = self.full.as_mut().expect("it was just set");
        let written = ready!(Pin::new(full).poll_write(context, bytes));
        self.full = None;
        Poll::Ready(written)
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(shutdown(&self.socket, Shutdown::Write).map_err(io::Error::from))
    }
}
