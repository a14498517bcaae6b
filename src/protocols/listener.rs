//! Who is let in, and how many at a time.

use rustix::process::{Resource, getrlimit};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;

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

/// Listeners that are open already, such as those of a service manager. Each takes the place of an address.
#[derive(Clone, Debug, Default)]
pub struct Listeners {
    /// That of the LockServer door.
    pub lockserver: Option<Arc<std::net::TcpListener>>,
    /// That of the beanstalkd door.
    pub beanstalk: Option<Opened>,
    /// That of the HTTP door on TCP.
    pub http: Option<Arc<std::net::TcpListener>>,
    /// That of the HTTP door as a Unix socket; its file stays when the node stops.
    pub socket: Option<Arc<std::os::unix::net::UnixListener>>,
}

/// Where a door listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address and a port; port 0 picks one.
    Tcp(SocketAddr),
    /// The file of a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Whether only this machine can reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("unix: wants a path behind it".to_owned()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| {
                format!(
                    "{text} is neither an address and port such as 127.0.0.1:11300 nor unix:PATH"
                )
            }),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl serde::Serialize for Address {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A listener that is open, of either kind.
#[derive(Clone, Debug)]
pub enum Opened {
    /// On an address.
    Tcp(Arc<std::net::TcpListener>),
    /// On a Unix socket; its file stays when the node stops.
    Unix(Arc<std::os::unix::net::UnixListener>),
}

impl Opened {
    /// Listens. A socket's file that nobody listens on any more is replaced; another file never is.
    pub fn at(address: &Address) -> io::Result<Self> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
        let family = match address {
            Address::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Address::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            Address::Unix(_) => AddressFamily::UNIX,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        match address {
            Address::Tcp(address) => {
                sockopt::set_socket_reuseaddr(&socket, true)?;
                rustix::net::bind(&socket, address)?;
            }
            Address::Unix(path) => {
                remove_stale(path)?;
                rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(path)?)?;
            }
        }
        rustix::net::listen(&socket, BACKLOG.cast_signed())?;
        Ok(match address {
            Address::Tcp(_) => Self::Tcp(Arc::new(socket.into())),
            Address::Unix(_) => Self::Unix(Arc::new(socket.into())),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Self::Unix(listener) => {
                let address = listener.local_addr()?;
                let path = address.as_pathname().unwrap_or(Path::new(""));
                Ok(Address::Unix(path.to_owned()))
            }
        }
    }
}

/// Removes the file of a socket that nobody listens on.
fn remove_stale(path: &Path) -> io::Result<()> {
    use rustix::fs::FileType;
    let found = match rustix::fs::lstat(path) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        found => found?,
    };
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        let words = "a file that is no socket stands there";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, words));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Ok(rustix::fs::unlink(path)?)
        }
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) => Err(error),
    }
}

/// Addresses that begin alike: `ADDRESS/BITS`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Whether an address is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        fn alike(one: u128, other: u128, width: u32, bits: u8) -> bool {
            let rest = width - u32::from(bits);
            one.checked_shr(rest).unwrap_or(0) == other.checked_shr(rest).unwrap_or(0)
        }
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => alike(
                u32::from(ours).into(),
                u32::from(theirs).into(),
                32,
                self.bits,
            ),
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                alike(ours.into(), theirs.into(), 128, self.bits)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl std::str::FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is no network: ADDRESS/BITS, such as 10.0.0.0/8");
        let (address, bits) = text.split_once('/').unzip();
        let address: IpAddr = address.unwrap_or(text).parse().map_err(|_| wrong())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(width), str::parse).map_err(|_| wrong())?;
        if bits > width {
            return Err(wrong());
        }
        Ok(Self { address, bits })
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

/// Says that a connection was not accepted: of the first, the second, the fourth, the eighth and so on, since whoever
/// comes by the thousand shall not fill the log.
fn turned_away(why: &dyn std::fmt::Display) {
    static SO_FAR: AtomicU64 = AtomicU64::new(0);
    let so_far = SO_FAR.fetch_add(1, Ordering::Relaxed) + 1;
    if so_far.is_power_of_two() {
        tracing::warn!(error = %why, so_far, "a connection was not accepted");
    }
}

/// The next connection to a Unix socket, and the user it came from.
pub(crate) async fn accept_unix(listener: &UnixListener) -> (UnixStream, u32) {
    loop {
        let accepted = listener.accept().await;
        match accepted.and_then(|(stream, _)| Ok((stream.peer_cred()?.uid(), stream))) {
            Ok((_, stream)) if is_kept(&stream, KEPT_DESCRIPTORS / 2) => {
                turned_away(&"as many descriptors are taken as connections may have");
            }
            Ok((uid, stream)) => return (stream, uid),
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
