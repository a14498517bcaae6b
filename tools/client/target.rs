//! Selects a coordinator and connects to it: over the socket of its data directory, another Unix socket, or TCP with or without
//! TLS.
//!
//! The token goes into the head of a request and nowhere else; in particular, never into an error message.

use crate::client::connection::{Connection, Idle};
use crate::directory;
use crate::report::Failure;
use crate::settings::data_directory;
use crate::within::within;
use clap::Args;
use sexton::actors::process::masked_url;
use sexton::kernel::socket;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// The maximum size of a token file or certificate file, in bytes. The certificates that a system trusts take a few hundred kilobytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The maximum length of a token, in bytes; the coordinator has the same limit.
const TOKEN_BYTES_MAX: usize = 4096;

/// How long connecting to one address may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum time to resolve a name: the resolver's own by default, with three servers that are each asked twice.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Files in which systems keep the certificates that they trust; the first one that exists is used.
const SYSTEM_CERTIFICATES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The flags that select a coordinator.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Where {
    /// Where the coordinator keeps its data [default: as for `sexton serve`]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,

    #[arg(
        long,
        global = true,
        value_name = "URL",
        conflicts_with = "data",
        help = "The coordinator's URL: http://HOST:PORT, https://HOST:PORT, or unix:PATH [env: SEXTON_URL]"
    )]
    url: Option<String>,

    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help = "File with the token that the coordinator requires over TCP [env: SEXTON_TOKEN_FILE]"
    )]
    token_file: Option<PathBuf>,

    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help = "Certificates to trust, in PEM [env: SEXTON_CA_FILE] [default: the system's]"
    )]
    ca_file: Option<PathBuf>,
}

impl Where {
    /// Returns the selected coordinator. A flag overrides the environment, in which `SEXTON_URL` overrides `SEXTON_DATA`.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        let set = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        if let Some(data) = &self.data {
            return Ok(Target::of(data));
        }
        let from_environment = || Some(set("SEXTON_URL")?.to_string_lossy().into_owned());
        let Some(url) = self.url.clone().or_else(from_environment) else {
            return data_directory(None).map(|data| Target::of(&data));
        };
        if let Some(path) = url.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Target {
                way: Way::Socket(path.into()),
                data: None,
                host: "localhost".to_owned(),
                token: None,
                key: None,
                idle: Idle::default(),
            });
        }
        let place = Place::parse(&url)?;
        let given = |flag: &Option<PathBuf>, name| flag.clone().or_else(|| Some(set(name)?.into()));
        let token = given(&self.token_file, "SEXTON_TOKEN_FILE");
        let tls = if place.is_tls {
            let certificates = given(&self.ca_file, "SEXTON_CA_FILE");
            let name = ServerName::try_from(place.name.clone());
            Some((trusting(certificates)?, name.map_err(|_| wrong(&url))?))
        } else {
            None
        };
        Ok(Target {
            token: token.map(|file| read_token(&file)).transpose()?,
            host: place.host.clone(),
            way: Way::Tcp { place, tls },
            data: None,
            key: None,
            idle: Idle::default(),
        })
    }
}

/// A coordinator, and how to connect to it.
#[derive(Clone)]
pub(crate) struct Target {
    way: Way,
    /// The data directory, if the coordinator was selected by it.
    pub(super) data: Option<PathBuf>,
    /// The `Host` header of requests.
    pub(super) host: String,
    pub(super) token: Option<String>,
    /// The idempotency key of requests, if they have one.
    pub(super) key: Option<String>,
    /// The idle connections to the coordinator.
    pub(super) idle: Idle,
}

#[derive(Clone)]
enum Way {
    Socket(PathBuf),
    Tcp { place: Place, tls: Option<(Arc<ClientConfig>, ServerName<'static>)> },
}

impl Target {
    /// Returns whether the coordinator is reached over a Unix socket, and so runs on this machine.
    pub(crate) const fn is_socket(&self) -> bool {
        matches!(self.way, Way::Socket(_))
    }

    /// Returns the path of the Unix socket; `None` over TCP.
    pub(crate) fn socket(&self) -> Option<&Path> {
        match &self.way {
            Way::Socket(path) => Some(path),
            Way::Tcp { .. } => None,
        }
    }

    /// Returns the target for the coordinator of a data directory.
    pub(crate) fn of(data: &Path) -> Self {
        Self {
            way: Way::Socket(data.join("sexton.sock")),
            data: Some(data.to_owned()),
            host: "localhost".to_owned(),
            token: None,
            key: None,
            idle: Idle::default(),
        }
    }

    /// Returns a copy of this target whose requests have this idempotency key.
    pub(crate) fn under(&self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self.clone() }
    }

    /// Returns how messages refer to the coordinator: by its data directory if it was selected by one, otherwise by its address.
    pub(crate) fn shown(&self) -> String {
        match (&self.data, &self.way) {
            (Some(data), _) => data.display().to_string(),
            (None, way) => way.shown(),
        }
    }

    /// Returns the coordinator's address, for messages.
    pub(super) fn place(&self) -> String {
        self.way.shown()
    }

    /// Returns whether the coordinator is reached over TCP, and so might run on another machine.
    pub(super) fn is_tcp(&self) -> bool {
        matches!(self.way, Way::Tcp { .. })
    }

    /// Takes an idle connection, or opens a new one. Each read or write on the connection takes at most `patience`.
    pub(super) fn connect(&self, patience: Duration) -> io::Result<Box<dyn Connection>> {
        let connection = match self.idle.take() {
            Some((connection, limit)) if limit == patience => return Ok(connection),
            Some((connection, _)) => connection,
            None => {
                let connection = self.way.connect()?;
                self.check_listener(&*connection)?;
                connection
            }
        };
        connection.wait_at_most(patience)?;
        Ok(connection)
    }

    /// Fails if another user, who is not root, listens on the socket of a data directory in whose place somebody else than that user can have
    /// put another one. Nothing has been sent yet.
    fn check_listener(&self, connection: &dyn Connection) -> io::Result<()> {
        let user = connection.user().filter(|user| !socket::is_own(*user));
        let (Some(data), Some(user)) = (&self.data, user) else {
            return Ok(());
        };
        directory::replaceable(data, Some(user)).map_or(Ok(()), |why| {
            let words = format!(
                "user {user} listens there, and others can put another directory in the place of {}, since {why}: if the coordinator of that user is meant, name its socket with --url unix:PATH",
                data.display()
            );
            Err(io::Error::other(words))
        })
    }

    /// Fails if the coordinator runs as another user than this process, and not as root. Called before anything is handed over that the
    /// user of this process may want to keep from others: its environment and streams. A directory that anyone can create might be
    /// another user's. A coordinator that cannot be reached is not an error here: the request that follows will fail.
    pub(crate) fn check_user(&self) -> Result<(), Failure> {
        let Ok(connection) = self.connect(CONNECT_TIMEOUT) else {
            return Ok(());
        };
        let user = connection.user();
        self.idle.keep(connection, CONNECT_TIMEOUT);
        let Some(user) = user.filter(|user| !socket::is_own(*user)) else {
            return Ok(());
        };
        let shown = self.shown();
        let words = format!(
            "the coordinator on {shown} runs as user {user}, so the environment and the streams of this process are not handed over to it"
        );
        Err(Failure::unreachable(words).help(
            "run the command as that user, or use a coordinator of your own: --data DIR; with --detach, nothing but the command is sent",
        ))
    }
}

impl Way {
    fn connect(&self) -> io::Result<Box<dyn Connection>> {
        let (place, tls) = match self {
            Self::Socket(path) => return Ok(Box::new(socket::connect(path, CONNECT_TIMEOUT)?)),
            Self::Tcp { place, tls } => (place, tls),
        };
        let stream = place.connect()?;
        stream.set_nodelay(true)?;
        let Some((config, name)) = tls else {
            return Ok(Box::new(stream));
        };
        let session = ClientConnection::new(Arc::clone(config), name.clone());
        let session = session.map_err(io::Error::other)?;
        Ok(Box::new(StreamOwned::new(session, stream)))
    }

    fn shown(&self) -> String {
        match self {
            Self::Socket(path) => path.display().to_string(),
            Self::Tcp { place, .. } if place.is_tls => format!("https://{}", place.host),
            Self::Tcp { place, .. } => format!("http://{}", place.host),
        }
    }
}

/// The scheme, host and port of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    is_tls: bool,
    /// The host and, if the URL has one, the port, as written in the URL.
    host: String,
    /// The host, without the port and without the brackets of an IPv6 address.
    name: String,
    port: u16,
}

impl Place {
    fn parse(url: &str) -> Result<Self, Failure> {
        let plain = url.strip_prefix("http://").map(|rest| (rest, false, 80));
        let tls = || Some((url.strip_prefix("https://")?, true, 443));
        let parse = || {
            let (rest, is_tls, usual) = plain.or_else(tls)?;
            let host = rest.strip_suffix('/').unwrap_or(rest);
            let may_hold = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]%".contains(&byte);
            if host.is_empty() || !host.bytes().all(may_hold) {
                return None;
            }
            let (name, port) = match host.rsplit_once(':') {
                Some((name, port)) if !name.contains(':') || name.ends_with(']') => {
                    (name, port.parse().ok()?)
                }
                Some(_) | None => (host, usual),
            };
            let within = |name: &str| Some(name.strip_prefix('[')?.strip_suffix(']')?.to_owned());
            let name = within(name).unwrap_or_else(|| name.to_owned());
            (!name.is_empty()).then(|| Self { is_tls, host: host.to_owned(), name, port })
        };
        parse().ok_or_else(|| wrong(url))
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::other("the host name has no address");
        for address in resolved(&self.name, self.port)? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Returns the addresses of a host, or an error after [`RESOLVE_TIMEOUT`].
///
/// # Errors
/// Returns an error if the name cannot be resolved.
pub(crate) fn resolved(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let host = name.to_owned();
    let found = within("sexton-resolve", RESOLVE_TIMEOUT, move || {
        Ok((host.as_str(), port).to_socket_addrs()?.collect())
    });
    found.map_err(|error| {
        if error.kind() != ErrorKind::TimedOut {
            return error;
        }
        io::Error::new(error.kind(), format!("failed to resolve the name {name}: {error}"))
    })
}

fn wrong(url: &str) -> Failure {
    Failure::usage(format!("the URL {:?} is invalid", masked_url(url)))
        .help("expected http://HOST:PORT, https://HOST:PORT or unix:PATH, with nothing after it")
}

/// Reads the token in the first line of a file, without the scope that may follow it in the coordinator's own token file.
fn read_token(file: &Path) -> Result<String, Failure> {
    let text = read("token file", file)?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next().unwrap_or_default().trim_end();
    let suffixes = [" run", " read"];
    let bare = suffixes.into_iter().find_map(|it| line.strip_suffix(it));
    let line = bare.unwrap_or(line).to_owned();
    let is_token = (1..=TOKEN_BYTES_MAX).contains(&line.len())
        && line.bytes().all(|byte| byte.is_ascii_graphic());
    if is_token {
        return Ok(line);
    }
    let words = format!("failed to use the token file {}", file.display());
    let help = "its first line must be a token of 1 to 4,096 visible ASCII characters";
    Err(Failure::unreachable(words).help(help))
}

/// Returns a TLS configuration that trusts the certificates in `file` or, if that is `None`, those that the system trusts.
fn trusting(file: Option<PathBuf>) -> Result<Arc<ClientConfig>, Failure> {
    let help = "--ca-file FILE names the certificates to trust, in PEM; for a self-signed certificate, name the certificate itself";
    let system = || SYSTEM_CERTIFICATES.iter().map(PathBuf::from);
    let file = file.or_else(|| system().find(|path| path.exists()));
    let file = file.ok_or_else(|| {
        Failure::unreachable("failed to find the certificates that this system trusts").help(help)
    })?;
    let pem = read("certificates", &file)?;
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok);
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        let words = format!("failed to use {}: it holds no certificate in PEM", file.display());
        return Err(Failure::unreachable(words).help(help));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::unreachable(format!("failed to set up TLS: {error}")))?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}

fn read(what: &str, file: &Path) -> Result<Vec<u8>, Failure> {
    let read = sexton::protocols::file::read(file, FILE_BYTES_MAX);
    read.map(|(bytes, _)| bytes).map_err(|error| {
        let file = file.display();
        Failure::unreachable(format!("failed to read the {what} {file}: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn a_url_is_a_host_and_a_port() {
        for (url, is_tls, name, port) in [
            ("http://localhost:11380", false, "localhost", 11380),
            ("http://10.0.0.7/", false, "10.0.0.7", 80),
            ("https://locks.example.org", true, "locks.example.org", 443),
            ("https://[::1]:1", true, "::1", 1),
        ] {
            let place = Place::parse(url).unwrap();
            let found = (place.is_tls, place.name.as_str(), place.port);
            assert_eq!(found, (is_tls, name, port), "{url}");
        }
        for wrong in [
            "",
            "localhost:11380",
            "ftp://a",
            "http://",
            "http://:80",
            "http://a:x",
            "http://a:70000",
            "http://a/v1",
            "http://u@a",
            "http://a b",
            "http://a\r\nx: y",
        ] {
            assert!(Place::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
