//! Connections to a coordinator, and a pool of idle ones. Idle connections are reused, because opening a connection takes as long as many
//! requests.

use crate::client::ask::instant;
use rustix::net::{RecvFlags, recv};
use sexton::kernel::socket;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_rustls::rustls::{ClientConnection, StreamOwned};

/// How long a connection may be idle and still be reused. This is much shorter than the 30 s after which the coordinator closes an idle
/// connection, because a request sent at that moment might or might not be carried out.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// The maximum number of idle connections.
const KEPT_MAX: usize = 64;

/// A connection to a coordinator: a Unix socket, or TCP with or without TLS.
pub(super) trait Connection: Read + Write + Send {
    /// Returns whether the connection can be used for another request: the other end is open and has sent nothing.
    fn is_quiet(&self) -> bool;

    /// Sets the timeout of each read and each write.
    fn wait_at_most(&self, patience: Duration) -> io::Result<()>;

    /// Returns the user that listens at the other end, if that is known: only on a Unix socket.
    fn user(&self) -> Option<u32> {
        None
    }
}

impl Connection for UnixStream {
    fn is_quiet(&self) -> bool {
        is_quiet(self)
    }

    fn wait_at_most(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }

    fn user(&self) -> Option<u32> {
        socket::user(self).ok()
    }
}

impl Connection for TcpStream {
    fn is_quiet(&self) -> bool {
        is_quiet(self)
    }

    fn wait_at_most(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }
}

/// Under TLS, a closing alert cannot be distinguished from an answer without reading it, so a TLS connection is never reused.
impl Connection for StreamOwned<ClientConnection, TcpStream> {
    fn is_quiet(&self) -> bool {
        false
    }

    fn wait_at_most(&self, patience: Duration) -> io::Result<()> {
        self.sock.wait_at_most(patience)
    }
}

fn is_quiet(socket: impl AsFd) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(recv(socket, &mut [0_u8; 1], flags), Err(rustix::io::Errno::AGAIN))
}

/// A pool of idle connections.
#[derive(Clone, Default)]
pub(super) struct Idle(Arc<Mutex<Vec<Kept>>>);

/// An idle connection, the timeout of its reads and writes, and when it became idle.
type Kept = (Box<dyn Connection>, Duration, Instant);

impl Idle {
    /// Takes a connection that is still usable, with the timeout of its reads and writes. Returns `None` if there is none.
    pub(super) fn take(&self) -> Option<(Box<dyn Connection>, Duration)> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((connection, patience, since)) = kept.pop() {
            if since.elapsed() < IDLE_MAX && connection.is_quiet() {
                return Some((connection, patience));
            }
        }
        None
    }

    pub(super) fn keep(&self, connection: Box<dyn Connection>, patience: Duration) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            kept.push((connection, patience, instant()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Idle;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[test]
    fn one_is_asked_on_again_as_long_as_it_stands_and_is_silent() {
        let idle = Idle::default();
        let (ours, theirs) = UnixStream::pair().expect("there are descriptors");
        let second = Duration::from_secs(1);
        idle.keep(Box::new(ours), second);
        let (again, patience) = idle.take().expect("the connection is open");
        assert_eq!(patience, second, "the pool remembers the timeout");
        assert!(idle.take().is_none(), "a connection is taken only once");
        idle.keep(again, second);
        drop(theirs);
        assert!(idle.take().is_none(), "the other end was closed");

        let (ours, mut theirs) = UnixStream::pair().expect("there are descriptors");
        idle.keep(Box::new(ours), second);
        theirs.write_all(b"HTTP/1.1 408").expect("there is room");
        assert!(idle.take().is_none(), "unsolicited data makes a connection unusable");
    }
}
