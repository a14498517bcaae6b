//! Connections to a coordinator, and those that are asked on again: making one, and having it served, costs as much as many a
//! question.

use crate::client::ask::instant;
use rustix::net::{RecvFlags, recv};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_rustls::rustls::{ClientConnection, StreamOwned};

/// How long a connection is kept between two questions. The coordinator closes it itself after half a minute: none may be
/// asked on at that moment, since nobody could say whether what was asked then was done.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// The most that are kept.
const KEPT_MAX: usize = 64;

/// A connection, of whatever kind.
pub(super) trait Connection: Read + Write + Send {
    /// Whether it may be asked on again: the other end is there, and has nothing more to say.
    fn is_quiet(&self) -> bool;

    /// Lets a read or a write take so long.
    fn wait_at_most(&self, patience: Duration) -> io::Result<()>;
}

impl Connection for UnixStream {
    fn is_quiet(&self) -> bool {
        is_quiet(self)
    }

    fn wait_at_most(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
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

/// Under TLS what the other end has to say at its end cannot be told from an answer without reading it.
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
    matches!(
        recv(socket, &mut [0_u8; 1], flags),
        Err(rustix::io::Errno::AGAIN)
    )
}

/// Connections on which all was answered, for whoever asks next.
#[derive(Clone, Default)]
pub(super) struct Idle(Arc<Mutex<Vec<Kept>>>);

/// A connection, and since when nothing is asked on it.
type Kept = (Box<dyn Connection>, Instant);

impl Idle {
    /// One that still stands.
    pub(super) fn take(&self) -> Option<Box<dyn Connection>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((connection, since)) = kept.pop() {
            if since.elapsed() < IDLE_MAX && connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    pub(super) fn keep(&self, connection: Box<dyn Connection>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            kept.push((connection, instant()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Idle;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn one_is_asked_on_again_as_long_as_it_stands_and_is_silent() {
        let idle = Idle::default();
        let (ours, theirs) = UnixStream::pair().expect("there are descriptors");
        idle.keep(Box::new(ours));
        let again = idle.take().expect("it stands");
        assert!(idle.take().is_none(), "nobody else has it");
        idle.keep(again);
        drop(theirs);
        assert!(idle.take().is_none(), "its other end is gone");

        let (ours, mut theirs) = UnixStream::pair().expect("there are descriptors");
        idle.keep(Box::new(ours));
        theirs.write_all(b"HTTP/1.1 408").expect("there is room");
        assert!(
            idle.take().is_none(),
            "what it says is no answer to anything"
        );
    }
}
