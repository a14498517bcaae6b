//! Accepts connections, and limits how many are open at a time.

use crate::kernel::socket::{Peers, is_own};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// The pause before accepting again after an error, which usually means that the process has run out of descriptors.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(50);

/// The number of descriptors that a new connection must leave to the journal and snapshots, but at most a quarter of the limit on
/// descriptors. Connections of the coordinator's own user and root on a Unix socket, as the command line uses, leave half of this number, with
/// the same maximum.
const KEPT_DESCRIPTORS: u64 = 64;

/// All connections together leave a quarter of the limit on descriptors to processes, each of which is followed through one, and at
/// least this number; but at most half of the limit. Connections of the coordinator's own user and root on a Unix socket may take those, too.
const FURTHER_DESCRIPTORS: u64 = 64;

/// The number of open connections of all listeners of this process.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// The slots for a listener's open connections, or for something else that is open or waits, which limit the number.
#[derive(Debug)]
pub struct Places {
    taken: AtomicU32,
    max: u32,
    /// Whether each slot is for a connection.
    are_connections: bool,
}

/// A slot; dropping it frees the slot.
#[derive(Debug)]
pub struct Place(Arc<Places>);

impl Places {
    pub fn new(max: u32) -> Arc<Self> {
        Arc::new(Self { taken: AtomicU32::new(0), max, are_connections: false })
    }

    /// Creates slots for connections.
    pub fn of_connections(max: u32) -> Arc<Self> {
        Arc::new(Self { taken: AtomicU32::new(0), max, are_connections: true })
    }

    /// Takes a slot; `None` if all are taken.
    pub fn take(self: &Arc<Self>) -> Option<Place> {
        let more = |taken: u32| (taken < self.max).then_some(taken + 1);
        let taken = self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.ok()?;
        OPEN.fetch_add(self.are_connections.into(), Ordering::AcqRel);
        Some(Place(Arc::clone(self)))
    }

    /// Returns the number of slots taken.
    pub fn taken(&self) -> u32 {
        self.taken.load(Ordering::Acquire)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
        OPEN.fetch_sub(self.0.are_connections.into(), Ordering::AcqRel);
    }
}

/// Returns a non-blocking listener on an open socket.
pub fn share(open: &std::net::TcpListener) -> io::Result<std::net::TcpListener> {
    let listener = open.try_clone()?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Returns an asynchronous listener on an open socket.
pub fn listen_on(open: &std::net::TcpListener) -> io::Result<TcpListener> {
    TcpListener::from_std(share(open)?)
}

/// Returns the next connection and the client's address. Skips connections that fail or would take a reserved descriptor.
pub async fn accept(listener: &TcpListener) -> (TcpStream, IpAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                if are_all_taken() || is_kept(&stream, KEPT_DESCRIPTORS) {
                    turned_away(&"all file descriptors that connections may use are in use");
                    continue;
                }
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "a connection closed before it was accepted");
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

/// Returns whether the connections have all descriptors that they may take.
fn are_all_taken() -> bool {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    OPEN.load(Ordering::Acquire) >= for_connections(most)
}

/// Returns how many of `most` descriptors connections may take.
fn for_connections(most: u64) -> u64 {
    most - (most / 4).max(FURTHER_DESCRIPTORS).min(most / 2)
}

/// Returns whether a connection's descriptor is one of the `kept` descriptors that are reserved for other uses. The kernel assigns the
/// lowest free number, so the number shows how many descriptors are in use.
fn is_kept(stream: &impl AsRawFd, kept: u64) -> bool {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let number = u64::try_from(stream.as_raw_fd()).unwrap_or(0);
    number >= most.saturating_sub(kept.min(most / 4))
}

/// Logs a refused connection if `so_far`, the number refused for the same reason, is a power of two.
pub fn refused(peer: &dyn std::fmt::Display, so_far: u64, why: &str) {
    if so_far.is_power_of_two() {
        tracing::info!(%peer, so_far, "refused: {why}");
    }
}

/// Logs that a connection was not accepted. Only the first, second, fourth, eighth and so on are logged, so that a flood of
/// connections does not fill the log.
fn turned_away(why: &dyn std::fmt::Display) {
    static SO_FAR: AtomicU64 = AtomicU64::new(0);
    let so_far = SO_FAR.fetch_add(1, Ordering::Relaxed) + 1;
    if so_far.is_power_of_two() {
        tracing::warn!(error = %why, so_far, "a connection was not accepted");
    }
}

/// Returns the next connection to a Unix socket, with the client's user. Skips connections of users other than `peers`, and those that
/// [`accept`] would skip; connections of the coordinator's own user and root only if fewer than half of `KEPT_DESCRIPTORS` are left.
pub async fn accept_unix(listener: &UnixListener, peers: Peers) -> (UnixStream, u32) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Some((stream, user)) = peers.admit(stream) else {
                    turned_away(&"it came from another user");
                    continue;
                };
                let is_taken = if is_own(user) {
                    is_kept(&stream, KEPT_DESCRIPTORS / 2)
                } else {
                    are_all_taken() || is_kept(&stream, KEPT_DESCRIPTORS)
                };
                if is_taken {
                    turned_away(&"all file descriptors that connections may use are in use");
                    continue;
                }
                return (stream, user);
            }
            Err(error) => {
                turned_away(&error);
                pause(OUT_OF_DESCRIPTORS).await;
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "there is no event for a descriptor becoming free")]
async fn pause(span: Duration) {
    tokio::time::sleep(span).await;
}

#[cfg(test)]
mod tests {
    use super::for_connections;

    #[test]
    fn connections_leave_a_quarter_of_the_descriptors_and_at_least_64() {
        let shares = [20_000, 1024, 256, 200, 100, 1].map(for_connections);
        assert_eq!(shares, [15_000, 768, 192, 136, 50, 1]);
        assert!(for_connections(u64::MAX) > u64::MAX / 2);
    }
}
