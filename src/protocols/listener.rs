//! Who is let in, and how many at a time.

use crate::address::BACKLOG;
use rustix::process::{Resource, getrlimit};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::unix::UCred;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

/// How long accepting rests when the process has no descriptor left.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(50);

/// Descriptors that connections leave to the journal, to snapshots and to the rest of the process; unless so many are a
/// larger part of all than a quarter. The command line may have the half of them: it comes by a Unix socket.
const KEPT_DESCRIPTORS: u64 = 64;

/// Connections that a door has now, bounded.
#[derive(Debug)]
pub(crate) struct Places {
    taken: AtomicU32,
    max: u32,
}

/// A connection's place; free again when dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Places>);

impl Places {
    pub(crate) fn new(max: u32) -> Arc<Self> {
        Arc::new(Self {
            taken: AtomicU32::new(0),
            max,
        })
    }

    /// A place, unless all are taken.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Place> {
        let more = |taken: u32| (taken < self.max).then_some(taken + 1);
        let taken = self
            .taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.ok().map(|_| Place(Arc::clone(self)))
    }

    /// Places taken now.
    pub(crate) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Acquire)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Listens on what is open already, else on an address.
pub(crate) fn listen_on(
    open: Option<&Arc<std::net::TcpListener>>,
    address: SocketAddr,
) -> io::Result<TcpListener> {
    let Some(open) = open else {
        return listen(address);
    };
    let listener = open.try_clone()?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Listens on an address.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The next connection, whatever goes wrong with others.
pub(crate) async fn accept(listener: &TcpListener) -> (TcpStream, IpAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if is_kept(&stream, KEPT_DESCRIPTORS) {
                    turned_away(&"as many descriptors are taken as connections may have");
                    continue;
                }
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "a connection ended before it was accepted");
                    continue;
                }
                return (stream, peer.ip().to_canonical());
            }
            Err(error) => {
                turned_away(&error);
                pause(OUT_OF_DESCRIPTORS).await;
            }
        }
    }
}

/// Whether a connection has a descriptor that is none of connections. The lowest free number is given, so that a number
/// says how many are taken.
fn is_kept(stream: &impl AsRawFd, kept: u64) -> bool {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let number = u64::try_from(stream.as_raw_fd()).unwrap_or(0);
    number >= most.saturating_sub(kept.min(most / 4))
}

/// Logs a refusal, of so many for the same reason: the first, the second, the fourth, the eighth and so on.
pub(crate) fn refused(peer: &dyn std::fmt::Display, so_far: u64, why: &str) {
    if so_far.is_power_of_two() {
        tracing::info!(%peer, so_far, "refused: {why}");
    }
}

/// Says that a connection was not accepted: of the first, the second, the fourth, the eighth and so on, since whoever
/// comes by the thousand shall not fill the log.
fn turned_away(why: &dyn std::fmt::Display) {
    static SO_FAR: AtomicU64 = AtomicU64::new(0);
    let so_far = SO_FAR.fetch_add(1, Ordering::Relaxed) + 1;
    if so_far.is_power_of_two() {
        tracing::warn!(error = %why, so_far, "a connection was not accepted");
    }
}

/// The next connection to a Unix socket, and the user and process it came from.
pub(crate) async fn accept_unix(listener: &UnixListener) -> (UnixStream, UCred) {
    loop {
        let accepted = listener.accept().await;
        match accepted.and_then(|(stream, _)| Ok((stream.peer_cred()?, stream))) {
            Ok((_, stream)) if is_kept(&stream, KEPT_DESCRIPTORS / 2) => {
                turned_away(&"as many descriptors are taken as connections may have");
            }
            Ok((from, stream)) => return (stream, from),
            Err(error) => {
                turned_away(&error);
                pause(OUT_OF_DESCRIPTORS).await;
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "there is no event for a descriptor becoming free"
)]
async fn pause(span: Duration) {
    tokio::time::sleep(span).await;
}
