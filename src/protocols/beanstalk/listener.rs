//! The beanstalkd listener: which connections are admitted, how many at a time, and what is counted.

use crate::actors::queue::{QueueMachine, QueueName, Totals, Watch};
use crate::clock::{Clock, Timestamp};
use crate::config::{Address, BeanstalkConfig, Opened};
use crate::handle::{Drains, ListenerStatus};
use crate::kernel::socket::Peers;
use crate::protocols::beanstalk::VERSION;
use crate::protocols::beanstalk::command::Counted;
use crate::protocols::beanstalk::reply::Reply;
use crate::protocols::beanstalk::session::BeanstalkSession;
use crate::protocols::beanstalk::show;
use crate::protocols::beanstalk::stats::{self, BinlogStats, ServerStats};
use crate::protocols::bounds::{LargeAnswers, NAMED_BYTES_MAX, Turns, UNREAD_BYTES_MAX};
use crate::protocols::connection::{self, Stream};
use crate::protocols::listener::{self, Place, Places};
use crate::spine::budget::Budget;
use crate::spine::runtime::{self, Mailbox};
pub use crate::status::BeanstalkStats as Stats;
use rustix::system::uname;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

/// The tube that a client uses and watches initially.
pub(crate) const DEFAULT_TUBE: &[u8] = b"default";

/// A handle to the listener and the state its connections share. Clones refer to the same listener.
#[derive(Clone)]
pub struct Listener {
    shared: Arc<Shared>,
    address: Address,
}

pub(crate) struct Shared {
    pub(crate) counters: Counters,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) job_bytes_max: u32,
    draining: watch::Receiver<Drains>,
    places: Arc<Places>,
    pub(crate) large: LargeAnswers,
    pub(crate) turns: Turns,
    /// The memory budget for answers that clients have not read.
    pub(crate) unread: Arc<Budget>,
    /// The memory budget for jobs that have not arrived completely.
    pub(crate) unfinished: Arc<Budget>,
    /// The memory budget for watched tubes.
    pub(crate) named: Arc<Budget>,
    started: Timestamp,
    /// The server's id: 16 hexadecimal digits, chosen at random at startup.
    id: String,
    hostname: String,
    os: String,
    platform: String,
}

/// The listener's counters: totals since it was opened, and the current numbers of connections, producers and workers.
#[derive(Debug)]
pub(crate) struct Counters {
    commands: [AtomicU64; Counted::COUNT],
    connections: AtomicI64,
    connections_total: AtomicU64,
    rejected_hosts: AtomicU64,
    rejected_busy: AtomicU64,
    /// The number of connections closed because they carried an HTTP request.
    pub(crate) http: AtomicU64,
    producers: AtomicI64,
    workers: AtomicI64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            commands: std::array::from_fn(|_| AtomicU64::new(0)),
            connections: AtomicI64::new(0),
            connections_total: AtomicU64::new(0),
            rejected_hosts: AtomicU64::new(0),
            rejected_busy: AtomicU64::new(0),
            http: AtomicU64::new(0),
            producers: AtomicI64::new(0),
            workers: AtomicI64::new(0),
        }
    }
}

impl Counters {
    pub(crate) fn command(&self, counted: Counted) {
        if let Some(count) = self.commands.get(counted as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.connections_total.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn producers(&self, more: i64) {
        self.producers.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn workers(&self, more: i64) {
        self.workers.fetch_add(more, Ordering::Relaxed);
    }
}

fn shown(count: &AtomicI64) -> u64 {
    u64::try_from(count.load(Ordering::Relaxed)).unwrap_or(0)
}

impl Shared {
    /// Returns the reply to `stats`.
    pub(crate) fn server_stats(&self, totals: &Totals, now: Timestamp) -> Reply<'_> {
        let counters = &self.counters;
        let spent = processor_time();
        Reply::ServerStats(Box::new(ServerStats {
            jobs: show::counts(&totals.jobs),
            commands: std::array::from_fn(|at| {
                let count = counters.commands.get(at);
                count.map_or(0, |count| count.load(Ordering::Relaxed))
            }),
            job_timeouts: totals.timeouts,
            total_jobs: totals.added,
            job_bytes_max: self.job_bytes_max.into(),
            tubes: totals.queues.into(),
            connections: shown(&counters.connections),
            producers: shown(&counters.producers),
            workers: shown(&counters.workers),
            waiting: totals.waiting.into(),
            total_connections: counters.connections_total.load(Ordering::Relaxed),
            pid: std::process::id(),
            version: VERSION,
            user_time: spent,
            system_time: Duration::ZERO,
            uptime: now.since(self.started).as_secs(),
            binlog: BinlogStats::default(),
            draining: self.draining.borrow().jobs,
            id: &self.id,
            hostname: &self.hostname,
            os: &self.os,
            platform: &self.platform,
        }))
    }
}

impl Shared {
    /// Resolves when the node begins to drain claims, that is, to refuse new ones; never resolves if the node stops first.
    pub(crate) async fn until_draining(&self) {
        let mut draining = self.draining.clone();
        if draining.wait_for(|drains| drains.claims).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Returns the processor time that the process has used, as reported by the system.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

impl Listener {
    /// Starts to serve the connections of an open socket. Must be called on the core thread.
    pub(crate) fn open(
        config: &BeanstalkConfig,
        open: &Opened,
        (queues, draining): (Mailbox<QueueMachine>, watch::Receiver<Drains>),
        clock: Arc<dyn Clock>,
        id: u64,
    ) -> io::Result<Self> {
        let address = open.address()?;
        let listener = Listening::on(open)?;
        let system = uname();
        let text = |words: &std::ffi::CStr| words.to_string_lossy().into_owned();
        let shared = Arc::new(Shared {
            counters: Counters::default(),
            started: clock.now(),
            clock,
            job_bytes_max: config.job_bytes_max,
            draining,
            places: Places::of_connections(config.connections_max),
            large: LargeAnswers::default(),
            turns: Turns::of_connections(),
            unread: Budget::new(UNREAD_BYTES_MAX),
            unfinished: Budget::half_of(queues.unfinished()),
            named: Budget::new(NAMED_BYTES_MAX),
            id: format!("{id:016x}"),
            hostname: text(system.nodename()),
            os: text(system.version()),
            platform: text(system.machine()),
        });
        let serving = serve(listener, config.clone(), queues, Arc::clone(&shared));
        runtime::spawn("beanstalkd listener", serving);
        Ok(Self { shared, address })
    }

    /// Returns the address that the listener is bound to.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the listener's statistics since it was opened.
    pub fn stats(&self) -> Stats {
        let counters = &self.shared.counters;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            accepted: count(&counters.connections_total),
            rejected_hosts: count(&counters.rejected_hosts),
            rejected_busy: count(&counters.rejected_busy),
            active: self.shared.places.taken(),
            commands: stats::named(counters.commands.iter().map(count)).collect(),
        }
    }
}

impl ListenerStatus for Listener {
    fn show(&self, _locks: (u32, u32), listening: &mut crate::status::Listening) {
        listening.listeners.beanstalk = Some(self.address.clone());
        listening.beanstalk = Some(self.stats());
    }
}

/// A listening TCP or Unix socket.
enum Listening {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listening {
    fn on(open: &Opened) -> io::Result<Self> {
        Ok(match open {
            Opened::Tcp(open) => Self::Tcp(listener::listen_on(open)?),
            Opened::Unix(open) => {
                let listener = open.try_clone()?;
                listener.set_nonblocking(true)?;
                Self::Unix(UnixListener::from_std(listener)?)
            }
        })
    }
}

async fn serve(
    listener: Listening,
    config: BeanstalkConfig,
    queues: Mailbox<QueueMachine>,
    shared: Arc<Shared>,
) {
    // This watch keeps the default tube in existence even if it has no jobs and no clients.
    let default = QueueName::new(DEFAULT_TUBE).expect("the default tube should have a valid name");
    let _standing = queues.begin_watch(Watch::KeepQueue(default));
    let session = || BeanstalkSession::new(&queues, Arc::clone(&shared));
    match listener {
        Listening::Tcp(listener) => loop {
            let (stream, peer) = listener::accept(&listener).await;
            if let Some(place) = admit(&config, &shared, Some(peer)) {
                runtime::spawn_brief(serve_connection(stream, session(), place));
            }
        },
        // The list of hosts does not apply: every user with access to the socket file may connect.
        Listening::Unix(listener) => loop {
            let (stream, _) = listener::accept_unix(&listener, Peers::OfFile).await;
            if let Some(place) = admit(&config, &shared, None) {
                runtime::spawn_brief(serve_connection(stream, session(), place));
            }
        },
    }
}

/// Returns a place for a new connection, or `None` if its host is not allowed or no place is free. The protocol has no reply for a
/// refusal, so a refused connection is just closed.
fn admit(config: &BeanstalkConfig, shared: &Arc<Shared>, peer: Option<IpAddr>) -> Option<Place> {
    if let Some(peer) = peer.filter(|peer| !config.lets_in(*peer)) {
        let so_far = &shared.counters.rejected_hosts;
        let so_far = so_far.fetch_add(1, Ordering::Relaxed) + 1;
        listener::refused(&peer, so_far, "not in the list of hosts");
        return None;
    }
    let place = shared.places.take();
    if place.is_none() {
        let so_far = &shared.counters.rejected_busy;
        let so_far = so_far.fetch_add(1, Ordering::Relaxed) + 1;
        match peer {
            Some(peer) => listener::refused(&peer, so_far, "too many connections"),
            None => listener::refused(&"the socket", so_far, "too many connections"),
        }
    }
    place
}

async fn serve_connection(stream: impl Stream, mut session: BeanstalkSession, place: Place) {
    match connection::serve(&stream, &mut session, None).await {
        Ok(()) => {
            // Draining the connection may take a while. Dropping the session first gives the client's claims back at once.
            drop(session);
            connection::finish(stream).await;
        }
        Err(error) => tracing::debug!(%error, "a connection failed"),
    }
    drop(place);
}
