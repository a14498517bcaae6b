//! Where a coordinator listens: addresses, networks allowed to connect, and listeners that are open already.

use crate::kernel::socket;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of connections that may wait to be accepted.
pub(crate) const BACKLOG: u32 = 4096;

/// Listeners that are open already, such as those passed by a service manager. Each replaces the configured address of its protocol.
#[derive(Clone, Debug, Default)]
pub struct Listeners {
    /// The LockServer listener.
    pub lockserver: Option<Arc<std::net::TcpListener>>,
    /// The beanstalkd listener.
    pub beanstalk: Option<Opened>,
    /// The HTTP listener on TCP.
    pub http: Option<Arc<std::net::TcpListener>>,
    /// The HTTP listener on a Unix socket; the socket's file remains when the node stops.
    pub socket: Option<Arc<std::os::unix::net::UnixListener>>,
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address and a port; port 0 picks a free port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Returns whether only this machine can reach the address.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

/// Parses an address and a port; `None` if `text` is anything else. `localhost` means 127.0.0.1 alone, because a listener has a single
/// address.
pub fn parse_socket(text: &str) -> Option<SocketAddr> {
    if let Some(port) = text.strip_prefix("localhost:") {
        let port: u16 = port.parse().ok()?;
        return Some(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse().ok()
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("unix: must be followed by a path".to_owned()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => parse_socket(text).map(Self::Tcp).ok_or_else(|| {
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

/// An open listener, on TCP or on a Unix socket.
#[derive(Clone, Debug)]
pub enum Opened {
    Tcp(Arc<std::net::TcpListener>),
    /// A listener on a Unix socket; the socket's file remains when the node stops.
    Unix(Arc<std::os::unix::net::UnixListener>),
}

impl Opened {
    /// Starts to listen on `address`. Replaces a stale socket file, on which no process listens, but never any other file.
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

    /// Returns the address that the listener is bound to. The path is empty if a Unix socket has no name.
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

/// Removes the socket file at `path` if no process listens on it. A missing file is not an error.
///
/// # Errors
/// Returns an error if the file is not a socket, is a socket in use, or cannot be examined, connected to or removed.
pub fn remove_stale(path: &Path) -> io::Result<()> {
    use rustix::fs::FileType;
    let found = match rustix::fs::lstat(path) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        found => found?,
    };
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        let words = "the path is taken by a file that is not a socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, words));
    }
    match socket::connect(path, Duration::ZERO) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Ok(rustix::fs::unlink(path)?)
        }
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        // Some process listens, but does not accept connections at the moment.
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            Err(io::ErrorKind::AddrInUse.into())
        }
        Err(error) => Err(error),
    }
}

/// A range of IP addresses: `ADDRESS/BITS`, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Returns whether `address` is in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        fn alike(one: u128, other: u128, width: u32, bits: u8) -> bool {
            let rest = width - u32::from(bits);
            one.checked_shr(rest).unwrap_or(0) == other.checked_shr(rest).unwrap_or(0)
        }
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                alike(u32::from(ours).into(), u32::from(theirs).into(), 32, self.bits)
            }
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
        let wrong = || {
            format!("{text} is not a network: give an address or ADDRESS/BITS, such as 10.0.0.0/8")
        };
        let (address, bits) = text.split_once('/').unzip();
        let address: IpAddr = address.unwrap_or(text).parse().map_err(|_| wrong())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits: u8 = bits.map_or(Ok(width), str::parse).map_err(|_| wrong())?;
        if bits > width {
            return Err(wrong());
        }
        // An IPv4-mapped network is stored as IPv4, because the addresses of connections are compared in that form.
        match (address.to_canonical(), bits.checked_sub(96)) {
            (inner @ IpAddr::V4(_), Some(bits)) if address.is_ipv6() => {
                Ok(Self { address: inner, bits })
            }
            _ => Ok(Self { address, bits }),
        }
    }
}
