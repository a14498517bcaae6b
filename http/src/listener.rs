//! The HTTP listener: its sockets, its limits, and the threads that serve connections. HTTP has its own thread, so that neither a large
//! answer nor a slow client delays the actors. TLS handshakes have another: anybody who can connect may begin any number of them, and each
//! costs a signature.

use crate::access::Peer;
use crate::capacity::Capacity;
use crate::counters::{Counters, Stats};
use crate::guesses::Guesses;
use crate::problem::Problem;
use crate::queue_rates::QueueRates;
use crate::rates::Rates;
use crate::routes;
use crate::session::{App, Session, Stream};
use crate::shared::Shared;
use crate::socket::{self, Rights, Socket, SocketFile};
use crate::tls::{Identity, TlsError};
use crate::token::{TokenError, Tokens};
use crate::{job, lease, lease_set, process, report, task, task_server};
use actix_service::IntoServiceFactory as _;
use actix_web::dev::{AppConfig, ServiceFactory as _};
use actix_web::web::{Data, PayloadConfig};
use rustix::net::sockopt;
use rustix::process::setpriority_process;
use sexton::config::{HttpConfig, Listeners};
use sexton::handle::{Handle, ListenerStatus, Requester};
use sexton::kernel::socket::{Peers, is_own};
use sexton::kernel::tcp;
use sexton::protocols::listener::{self, Place, Places};
use sexton::refusal::Reason;
use sexton::status::Listening;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::timeout;

/// The maximum number of connections above the connection limit that are answered with a refusal at the same time. Further connections are
/// closed without an answer.
const REFUSALS_MAX: u32 = 64;

/// The size of the kernel's send buffer for each client, in bytes; the default would be megabytes.
const SEND_BYTES: usize = 128 * 1024;

/// The niceness of the thread for TLS handshakes, relative to which the other threads have 0.
const HANDSHAKE_NICE: i32 = 10;

/// How long pending requests may take once the listener closes.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the HTTP thread may take to end once the listener closes.
const CLOSED_TIMEOUT: Duration = Duration::from_secs(5);

/// The paths that accept jobs and commands, and therefore larger bodies.
const LONG: [&str; 6] =
    [job::PUSH, job::PUSH_ALL, process::LAUNCH, lease::RUN, lease_set::SET, task::ADD];

/// A handle to the HTTP listener. Clones refer to the same listener.
#[derive(Clone)]
pub struct Listener {
    shared: Arc<Shared>,
    address: Option<SocketAddr>,
    socket: Option<PathBuf>,
    closing: watch::Sender<bool>,
    /// A channel whose sender is dropped when the HTTP thread ends.
    closed: watch::Receiver<()>,
}

/// Why the HTTP listener could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The token file cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Listening on an address or a path failed.
    #[error("cannot open the HTTP listener on {address}: {source}")]
    Listen {
        /// The address or path.
        address: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The HTTP thread could not be started.
    #[error("cannot start the HTTP thread: {0}")]
    Thread(io::Error),
}

/// Reads the token file, and the certificate with its key. Each is `None` if it is not configured.
fn read_files(config: &HttpConfig) -> Result<(Option<Tokens>, Option<Identity>), OpenError> {
    let tokens = config.token_file.as_deref().map(Tokens::read).transpose()?;
    let files = config.tls_certificate.as_ref().zip(config.tls_key.as_ref());
    let identity = files.map(|(certificate, key)| Identity::read(certificate, key));
    Ok((tokens, identity.transpose()?))
}

impl Listener {
    /// Checks that the token file, the certificate and its key can be used.
    pub(crate) fn check_files(config: &HttpConfig) -> Result<(), OpenError> {
        read_files(config).map(drop)
    }

    /// Starts to serve on `sockets`, and returns once its thread is serving requests. Called on the core thread.
    pub(crate) async fn open(
        config: &HttpConfig,
        sockets: Sockets,
        node: &Handle,
        request_bytes_max: usize,
    ) -> Result<Self, OpenError> {
        let (tokens, identity) = read_files(config)?;
        let tls_files = config.tls_certificate.clone().zip(config.tls_key.clone());
        let Sockets { tcp, unix } = sockets;
        let reports = listen_for_reports(node);
        let (closing, asked) = watch::channel(false);
        let (ended, closed) = watch::channel(());
        let listener = Self {
            shared: Arc::new(Shared {
                counters: Counters::default(),
                names: config.names.clone(),
                lets_others_in: Rights::of(config).are_shared(),
                token_file: config.token_file.clone(),
                tokens: watch::Sender::new(tokens.map(Arc::new)),
                tls_files,
                identity: Mutex::new(identity),
                connections_max: config.connections_max,
                request_bytes_max,
                tcp: Capacity::new(config, node.unfinished_requests()),
                unix: Capacity::new(config, node.unfinished_requests()),
                own: Capacity::of_owner(config, node.unfinished_requests()),
                long: LONG,
                inventory: task_server::INVENTORY,
                description: routes::written_description(),
                clock: node.clock(),
                guesses: Guesses::default(),
                rates: Rates::default(),
                queue_rates: QueueRates::default(),
            }),
            address: tcp.as_ref().map(|(address, _)| *address),
            socket: config.socket.clone(),
            closing,
            closed,
        };
        // The listener is added before it serves, so that the first status includes it.
        node.add_listener(listener.clone());
        let serving = Serving {
            node: node.clone(),
            listener: listener.clone(),
            tcp: tcp.map(|(_, listener)| listener),
            unix,
            reports,
            handshakes: listener
                .shared
                .identity()
                .map(|_| start_handshakes(node, asked.clone()))
                .transpose()?,
            closing: asked,
        };
        let (ready, opened) = oneshot::channel();
        let run = move || {
            let closing = serving.closing.clone();
            serving.run(ready);
            drop(ended);
            *closing.borrow()
        };
        // The thread is not joined: it ends when the listener closes, and `closed` reports that.
        node.thread("sexton-http", run).map_err(OpenError::Thread)?;
        match opened.await {
            Ok(Ok(())) => Ok(listener),
            Ok(Err(error)) => Err(OpenError::Thread(error)),
            Err(_) => Err(OpenError::Thread(io::Error::other(
                "the HTTP thread ended before it was ready",
            ))),
        }
    }

    /// Returns the listener's TCP address, if it listens on TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns the path of the listener's Unix socket, if it listens on one.
    pub fn socket(&self) -> Option<PathBuf> {
        self.socket.clone()
    }

    /// Returns the current statistics.
    pub fn stats(&self) -> Stats {
        let shared = &self.shared;
        let active = shared.tcp.connections.taken()
            + shared.unix.connections.taken()
            + shared.own.connections.taken();
        shared.counters.stats(active)
    }

    /// Reloads the token file; if that fails, the old tokens stay in force. Ends the waits and the streams of requests whose token was
    /// removed. Returns whether the tokens changed, or `None` if no token file is configured.
    pub fn reload_token(&self) -> Result<Option<bool>, TokenError> {
        let Some(file) = &self.shared.token_file else {
            return Ok(None);
        };
        let tokens = Arc::new(Tokens::read(file)?);
        let changed = self.shared.tokens.send_replace(Some(Arc::clone(&tokens)));
        Ok(Some(changed != Some(tokens)))
    }

    /// Reloads the certificate and its key for new connections; if that fails, the old ones stay in force. Returns whether
    /// the certificate changed, or `None` if none is configured.
    pub fn reload_identity(&self) -> Result<Option<bool>, TlsError> {
        let Some((certificate, key)) = &self.shared.tls_files else {
            return Ok(None);
        };
        let identity = Identity::read(certificate, key)?;
        let current = &self.shared.identity;
        let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
        let same = current.as_ref().is_some_and(|old| old.is_same(&identity));
        *current = Some(identity);
        Ok(Some(!same))
    }

    /// Stops accepting connections, and waits at most `CLOSED_TIMEOUT` for the HTTP thread to complete pending requests and end.
    pub(crate) async fn close_in_time(&self) {
        self.closing.send_replace(true);
        let mut closed = self.closed.clone();
        let ended = async { while closed.changed().await.is_ok() {} };
        if timeout(CLOSED_TIMEOUT, ended).await.is_err() {
            tracing::warn!("the HTTP thread did not end in time and is abandoned");
        }
    }
}

impl ListenerStatus for Listener {
    fn show(&self, _locks: (u32, u32), listening: &mut Listening) {
        listening.listeners.http = self.address;
        listening.listeners.socket.clone_from(&self.socket);
        listening.http = Some(self.stats());
    }
}

/// Returns the address of an open socket, and a non-blocking listener on it. `at` is the configured address.
fn open_tcp(
    at: SocketAddr,
    open: &std::net::TcpListener,
) -> Result<(SocketAddr, std::net::TcpListener), OpenError> {
    let opened = || {
        let listener = listener::share(open)?;
        Ok((listener.local_addr()?, listener))
    };
    opened().map_err(|source| OpenError::Listen { address: at.to_string(), source })
}

/// The sockets on which HTTP is served.
pub(crate) struct Sockets {
    tcp: Option<(SocketAddr, std::net::TcpListener)>,
    unix: Option<Unix>,
}

impl Sockets {
    /// Takes the TCP listener that is open already, and listens on the Unix socket, unless that is open, too.
    pub(crate) fn open(config: &HttpConfig, open: &Listeners) -> Result<Self, OpenError> {
        let tcp = config.tcp.zip(open.http.as_deref());
        let tcp = tcp.map(|(at, open)| open_tcp(at, open));
        Ok(Self { tcp: tcp.transpose()?, unix: listen_unix(config, open, Rights::of(config))? })
    }
}

/// A Unix socket, and its file if the coordinator created it.
type Unix = (std::os::unix::net::UnixListener, Option<SocketFile>);

fn listen_unix(
    config: &HttpConfig,
    open: &Listeners,
    rights: Rights,
) -> Result<Option<Unix>, OpenError> {
    let path = config.socket.as_deref();
    let Some(open) = &open.socket else {
        let listen =
            |path| socket::listen(path, rights).map_err(|error| cannot_listen(path, error));
        let listened = path.map(listen).transpose()?;
        return Ok(listened.map(|(listener, file)| (listener, Some(file))));
    };
    // The socket was opened by another program, such as systemd, which has set its permissions. They are kept unless others are configured.
    if let Some(path) = path.filter(|_| rights.are_shared()) {
        rights.apply(path).map_err(|error| cannot_listen(path, error))?;
    }
    Ok(Some((listen_open(open)?, None)))
}

/// Listens for reports from task commands. Returns `None` if the node has no socket for them, or if listening fails: a failure is logged
/// and does not prevent startup.
fn listen_for_reports(node: &Handle) -> Option<Unix> {
    let path = node.report_socket()?;
    let listened = report::listen(&path);
    listened
        .inspect_err(|error| {
            let path = path.display();
            tracing::warn!(%error, %path, "tasks cannot report: failed to open their socket");
        })
        .ok()
        .map(|(listener, file)| (listener, Some(file)))
}

fn cannot_listen(path: &Path, source: io::Error) -> OpenError {
    OpenError::Listen { address: path.display().to_string(), source }
}

fn listen_open(
    open: &std::os::unix::net::UnixListener,
) -> Result<std::os::unix::net::UnixListener, OpenError> {
    let cloned = open.try_clone().and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    cloned.map_err(OpenError::Thread)
}

/// Starts the thread for TLS handshakes, and returns the runtime that runs on it. Its priority is low, so that a flood of handshakes does not
/// slow down the requests of those who are connected.
fn start_handshakes(
    node: &Handle,
    mut closing: watch::Receiver<bool>,
) -> Result<runtime::Handle, OpenError> {
    let runtime = runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(OpenError::Thread)?;
    let handle = runtime.handle().clone();
    let run = move || {
        // Of the calling thread. If it fails, the thread has the priority of the others.
        let _ = setpriority_process(None, HANDSHAKE_NICE);
        // An error means that the listener is gone.
        drop(runtime.block_on(closing.wait_for(|closing| *closing)));
        true
    };
    node.thread("sexton-tls", run).map_err(OpenError::Thread)?;
    Ok(handle)
}

/// The part of the listener that moves to the HTTP thread.
struct Serving {
    node: Handle,
    listener: Listener,
    tcp: Option<std::net::TcpListener>,
    unix: Option<Unix>,
    reports: Option<Unix>,
    /// Runs handshakes; `None` without TLS.
    handshakes: Option<runtime::Handle>,
    closing: watch::Receiver<bool>,
}

impl Serving {
    fn run(self, ready: oneshot::Sender<io::Result<()>>) {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => LocalSet::new().block_on(&runtime, self.serve(ready)),
            // `Listener::open` waits for this result. If it no longer waits, nobody needs the error.
            Err(error) => drop(ready.send(Err(error))),
        }
    }

    async fn serve(self, ready: oneshot::Sender<io::Result<()>>) {
        let Self { node, listener, tcp, unix, reports, handshakes, closing } = self;
        let listeners = || {
            let tcp = tcp.map(TcpListener::from_std).transpose()?;
            let reports = reports.map(Socket::new).transpose()?;
            Ok((tcp, unix.map(Socket::new).transpose()?, reports))
        };
        let (tcp, unix, reports) = match listeners() {
            Ok(listeners) => listeners,
            Err(error) => return drop(ready.send(Err(error))),
        };
        let app = actix_web::App::new()
            .app_data(Data::new(node.clone()))
            .app_data(Data::from(Arc::clone(&listener.shared)))
            // The session has limited the body already; the framework's own limit is 256 KiB.
            .app_data(PayloadConfig::new(usize::MAX))
            .configure(routes::serve)
            .into_factory();
        let app = app.new_service(AppConfig::default()).await;
        let Ok(app) = app else {
            return drop(ready.send(Err(io::Error::other("the routes cannot be set up"))));
        };
        let server = ConnectionServer {
            app: Rc::new(app),
            config: actix_http::ServiceConfig::default(),
            shared: Arc::clone(&listener.shared),
            handshakes,
            closing,
        };
        listener.shared.rates.read(&node);
        drop(ready.send(Ok(())));
        let core = async {
            let mut closing = server.closing.clone();
            tokio::select! {
                // If the core thread has ended without closing its listeners, they are closed here.
                () = node.ended() => drop(listener.closing.send_replace(true)),
                _ = closing.wait_for(|closing| *closing) => {}
            }
        };
        let reporting = async {
            if let Some(socket) = &reports {
                report::serve(socket, node.clone(), server.closing.clone()).await;
            }
        };
        let keeping = async {
            let keep = async |socket: Option<&Socket>| {
                if let Some(socket) = socket {
                    socket.keep(server.closing.clone()).await;
                }
            };
            tokio::join!(keep(unix.as_ref()), keep(reports.as_ref()));
        };
        let sampling = listener.shared.rates.sample(&node, server.closing.clone());
        let (tcp, clients) = (server.serve_tcp(tcp), server.serve_unix(unix.as_ref()));
        tokio::join!(core, tcp, clients, reporting, keeping, sampling);
    }
}

/// Everything that is needed to serve connections.
struct ConnectionServer<A> {
    app: Rc<A>,
    config: actix_http::ServiceConfig,
    shared: Arc<Shared>,
    handshakes: Option<runtime::Handle>,
    closing: watch::Receiver<bool>,
}

impl<A: App> ConnectionServer<A> {
    async fn serve_tcp(&self, listener: Option<TcpListener>) {
        let Some(listener) = listener else { return };
        let accept = async || loop {
            let (stream, remote) = listener::accept(&listener).await;
            // These calls fail if the connection was closed meanwhile. It is then dropped.
            let bounded = sockopt::set_socket_send_buffer_size(&stream, SEND_BYTES);
            let ends = (stream.local_addr(), stream.peer_addr());
            if let ((Ok(near), Ok(far)), Ok(())) = (ends, bounded) {
                // Only logins, which require tokens, are bound to users.
                let tokens = self.shared.tokens();
                let peer = Peer::Tcp {
                    local: near.ip().to_canonical(),
                    remote: remote.to_canonical(),
                    user: tokens.and_then(|_| tcp::user(near, far)),
                };
                return (stream, peer);
            }
        };
        let Some(handshakes) = self.handshakes.clone() else {
            self.serve(accept, async |stream| Some(stream), &self.shared.tcp.connections).await;
            return;
        };
        let shared = Arc::clone(&self.shared);
        let greet = async move |stream| {
            let identity = shared.identity()?;
            // It does not panic; if it did, the connection would be closed.
            handshakes.spawn(async move { identity.handshake(stream).await }).await.ok()?
        };
        self.serve(accept, greet, &self.shared.tcp.connections).await;
    }

    async fn serve_unix(&self, socket: Option<&Socket>) {
        let Some(socket) = socket else { return };
        let accept = async || {
            // A user whom the mode of the file admits, but the settings do not, gets a refusal: see `admit`.
            let (stream, uid) = socket.accept(Peers::OfFile).await;
            // If the kernel supports it, the process is identified by an inode, so that it is not confused with a later
            // process with the same PID.
            let pid = stream.peer_cred().ok().and_then(|from| from.pid());
            let pid = pid.and_then(|pid| u32::try_from(pid).ok());
            let process = pid.and_then(|pid| Requester::of(&stream, pid));
            (stream, Peer::Socket { uid, process })
        };
        self.serve(accept, async |stream| Some(stream), &self.shared.unix.connections).await;
    }

    /// Accepts connections until the listener closes, then waits at most `CLOSING_TIMEOUT` for pending answers.
    async fn serve<S: 'static, IO: Stream + 'static>(
        &self,
        accept: impl AsyncFn() -> (S, Peer),
        greet: impl AsyncFn(S) -> Option<IO> + 'static,
        places: &Arc<Places>,
    ) {
        let greet = Rc::new(greet);
        let refusals = Places::new(REFUSALS_MAX);
        let mut closing = self.closing.clone();
        let mut sessions = JoinSet::new();
        loop {
            tokio::select! {
                (socket, peer) = accept() => {
                    let greet = Rc::clone(&greet);
                    let stream = async move { greet(socket).await };
                    self.admit((stream, peer), places, &refusals, &mut sessions);
                }
                // Discards sessions that have ended.
                Some(_) = sessions.join_next() => {}
                _ = closing.wait_for(|closing| *closing) => break,
            }
        }
        let ended = async { while sessions.join_next().await.is_some() {} };
        if timeout(CLOSING_TIMEOUT, ended).await.is_err() {
            tracing::info!(open = sessions.len(), "HTTP connections were cut off");
        }
    }

    /// Returns a place for the coordinator's own user or root on a socket that other users may use as well: they may have taken all others.
    fn place_of_owner(&self, peer: Peer) -> Option<Place> {
        let is_owner = matches!(peer, Peer::Socket { uid, .. } if is_own(uid));
        let places =
            (is_owner && self.shared.lets_others_in).then_some(&self.shared.own.connections);
        places?.take()
    }

    fn admit<IO: Stream + 'static>(
        &self,
        (stream, peer): (impl Future<Output = Option<IO>> + 'static, Peer),
        places: &Arc<Places>,
        refusals: &Arc<Places>,
        sessions: &mut JoinSet<()>,
    ) {
        let shared = Arc::clone(&self.shared);
        let config = self.config.clone();
        let session = async move {
            let stream = stream.await?;
            Some(Session::new(stream, peer, config, shared))
        };
        // A stranger takes none of the places that are for clients.
        let is_stranger =
            matches!(peer, Peer::Socket { uid, .. } if !self.shared.peers().admits(uid));
        let place =
            if is_stranger { None } else { places.take().or_else(|| self.place_of_owner(peer)) };
        if let Some(place) = place {
            self.shared.counters.accepted();
            let (app, closing) = (Rc::clone(&self.app), self.closing.clone());
            sessions.spawn_local(async move {
                if let Some(session) = session.await {
                    session.serve(app, closing).await;
                }
                drop(place);
            });
            return;
        }
        let problem = if is_stranger {
            Problem::new(Reason::Foreign, socket::FOREIGN)
        } else {
            self.shared.counters.rejected_busy();
            let most = self.shared.connections_max;
            let words = format!("{most} connections are open, which is the limit");
            Problem::new(Reason::Crowded, words)
        };
        if let Some(place) = refusals.take() {
            sessions.spawn_local(async move {
                if let Some(session) = session.await {
                    session.reject(&problem).await;
                }
                drop(place);
            });
        }
    }
}
