//! `sexton serve`: the daemon. Flags into a checked configuration, signals into what they ask for.

use crate::progress::Progress;
use crate::report::{self, Failure};
use crate::text;
use clap::{Args, ValueEnum};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sexton::actors::checkpoint;
use sexton::actors::host::Item;
use sexton::actors::lock::{self, Query, Reply};
use sexton::actors::progress::Step;
use sexton::config::{Config, HTTP_PORT, HttpConfig, LOCKSERVER_PORT, LockserverConfig, LongWidth};
use sexton::node::{Handle, Node};
use sexton::persist::disk::RealDisk;
use sexton::persist::journal::Fsync;
use sexton::protocols::lockserver::DEBUG_TARGET;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Run the coordinator until a signal stops it.
///
/// When every door is open it prints one line that begins with `ready`, with the addresses of the doors. Everything
/// it acknowledges is on disk before the answer leaves; kill it any way you like and start it again.
///
/// Signals: INT, TERM and TSTP stop in good order. HUP reads the hosts list and the token file again. USR1 writes
/// DATA/lockserver.stats and DATA/lockserver.locks. SYS or USR2 drains: no new locks, exit when none is left.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton serve                               doors on loopback, data in ~/.local/state/sexton
  sexton serve --data /var/lib/sexton --hosts /etc/sexton/hosts --lockserver 0.0.0.0:11340
  sexton serve --memory --http off           no files at all: everything is gone with the process

Exit status: 0 stopped in good order; 2 wrong flags; 3 something cannot be read or opened;
4 halted because the disk failed or an actor panicked too often.")]
pub(crate) struct Serve {
    #[arg(
        long,
        value_name = "DIR",
        help = "Where everything is kept [env: SEXTON_DATA] [default: $XDG_STATE_HOME/sexton, else ~/.local/state/sexton]"
    )]
    data: Option<PathBuf>,

    /// Keep no files: everything is gone with the process
    #[arg(long, conflicts_with = "data")]
    memory: bool,

    /// When what is acknowledged is on disk: always (before the answer), interval:MS, never
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = parse_fsync, conflicts_with = "memory")]
    fsync: Fsync,

    /// Address of the LockServer door, or off; port 0 picks one
    #[arg(long, value_name = "ADDR", default_value_t = default_address(LOCKSERVER_PORT))]
    lockserver: Door,

    /// Address of the HTTP door, or off; port 0 picks one
    #[arg(long, value_name = "ADDR", default_value_t = default_address(HTTP_PORT))]
    http: Door,

    /// File with the token that HTTP requests over TCP must carry; needed beyond loopback
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Name by which HTTP requests over TCP may call this machine, beside its addresses and localhost; repeatable
    #[arg(long = "http-host", value_name = "NAME")]
    http_hosts: Vec<String>,

    /// Hosts that LockServer lets in: one address or prefix a line, # for comments [default: loopback]
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,

    /// The most LockServer connections at a time; more are refused
    #[arg(long, value_name = "N", default_value_t = 4096)]
    lockserver_connections: u32,

    /// Close LockServer connections that are silent for so many seconds, or off
    #[arg(long, value_name = "SECONDS", default_value = "off", value_parser = parse_idle)]
    lockserver_idle: Idle,

    /// Which priority goes first: high or low numbers
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = First::High)]
    lockserver_priority: First,

    /// Bytes of `long` in the statistics reply: 4 as in 2000, or 8
    #[arg(long, value_name = "BYTES", default_value = "4", value_parser = ["4", "8"])]
    lockserver_long: String,

    /// The most lock entries, owners and contenders together; more requests are refused
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    lock_entries: u32,

    /// Take a snapshot after so many changes: a start repeats what came behind the newest [default: after 200000 or
    /// 64 MiB of them, but not before they are as large as the newest]
    #[arg(long, value_name = "N")]
    checkpoint_every: Option<u64>,

    /// Print each LockServer command and its answer to standard error
    #[arg(short = 'd', long)]
    debug: bool,

    /// How much to log to standard error
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "SEXTON_LOG", value_parser = ["off", "error", "warn", "info", "debug", "trace"])]
    log: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum First {
    High,
    Low,
}

/// The address of a door, or that it is closed.
#[derive(Clone, Copy, Debug)]
enum Door {
    At(SocketAddr),
    Off,
}

/// How long a connection may be silent.
#[derive(Clone, Copy, Debug)]
struct Idle(Option<Duration>);

impl std::str::FromStr for Door {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            text => text.parse().map(Self::At).map_err(|_| {
                "expected an address and port such as 127.0.0.1:11340, or off".to_owned()
            }),
        }
    }
}

impl std::fmt::Display for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::At(address) => address.fmt(f),
            Self::Off => f.write_str("off"),
        }
    }
}

impl Door {
    fn address(self) -> Option<SocketAddr> {
        match self {
            Self::At(address) => Some(address),
            Self::Off => None,
        }
    }
}

fn default_address(port: u16) -> Door {
    Door::At(SocketAddr::from(([127, 0, 0, 1], port)))
}

/// `always`, `never`, or `interval:MS`.
pub(crate) fn parse_fsync(text: &str) -> Result<Fsync, String> {
    match text.split_once(':') {
        None if text == "always" => Ok(Fsync::Always),
        None if text == "never" => Ok(Fsync::Never),
        Some(("interval", ms)) => {
            let ms: u64 = ms
                .parse()
                .map_err(|_| format!("{ms:?} is not a number of milliseconds"))?;
            if (1..=60_000).contains(&ms) {
                Ok(Fsync::Interval(Duration::from_millis(ms)))
            } else {
                Err(format!("{ms} ms is not within 1 to 60000"))
            }
        }
        Some(_) | None => Err("expected always, interval:MS or never".to_owned()),
    }
}

fn parse_idle(text: &str) -> Result<Idle, String> {
    match text {
        "off" => Ok(Idle(None)),
        text => match text.parse() {
            Ok(seconds @ 1..=31_536_000) => Ok(Idle(Some(Duration::from_secs(seconds)))),
            Ok(_) | Err(_) => Err("expected 1 to 31536000 seconds, or off".to_owned()),
        },
    }
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.start_log();
        let descriptors = raise_descriptor_limit();
        let most = u64::from(self.lockserver_connections);
        if descriptors < most + 64 {
            tracing::warn!(
                descriptors,
                connections = most,
                "fewer descriptors than connections allowed"
            );
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::unreachable(format!("failed to start: {error}")))?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> Result<(), Failure> {
        // Signals first: one that comes while opening must not end the process half-way.
        let mut signals = Signals::listen().map_err(|error| {
            Failure::unreachable(format!("failed to listen for signals: {error}"))
        })?;
        let config = self.config()?;
        let data = config.data.clone();
        let recovery = config.progress.clone();
        let progress = Progress::start(
            move || Some(recovery_words(recovery.get())),
            |line| tracing::info!("{line}"),
        );
        let opened = Node::open(config);
        drop(progress);
        let node = opened?;
        announce(&node.handle());
        let handle = node.handle();
        let mut draining = std::pin::pin!(None);
        loop {
            tokio::select! {
                asked = signals.next() => match asked {
                    Asked::Stop(name) => {
                        tracing::info!(signal = name, "stopping");
                        break;
                    }
                    Asked::Reload => reload(&handle),
                    Asked::Dump => dump(&handle, data.as_deref()).await,
                    Asked::Drain => {
                        tracing::info!("draining: no new locks, the end comes when none is left");
                        let handle = handle.clone();
                        draining.set(Some(async move { handle.drain().await }));
                    }
                },
                Some(drained) = async {
                    match draining.as_mut().as_pin_mut() {
                        Some(drain) => Some(drain.await),
                        None => std::future::pending().await,
                    }
                } => {
                    if drained.is_ok() {
                        tracing::info!("drained");
                        break;
                    }
                    draining.set(None);
                }
                halt = handle.halted() => {
                    drop(node);
                    return Err(halt.into());
                }
            }
        }
        node.stop().map_err(Failure::from)
    }

    fn config(&self) -> Result<Config, Failure> {
        let data = if self.memory {
            None
        } else {
            Some(self.data_directory()?)
        };
        let socket = data.as_ref().map(|data| data.join("sexton.sock"));
        let http = self.http.address();
        let lockserver = self.lockserver.address().map(|address| LockserverConfig {
            address,
            hosts: self.hosts.clone(),
            connections_max: self.lockserver_connections,
            idle: self.lockserver_idle.0,
            long: if self.lockserver_long == "4" {
                LongWidth::Four
            } else {
                LongWidth::Eight
            },
        });
        let config = Config {
            checkpoints: self
                .checkpoint_every
                .map_or_else(checkpoint::Rules::default, checkpoint::Rules::every),
            data,
            fsync: self.fsync,
            locks: lock::Rules {
                high_first: self.lockserver_priority == First::High,
                entries_max: self.lock_entries,
            },
            lockserver,
            http: (http.is_some() || socket.is_some()).then(|| HttpConfig {
                tcp: http,
                socket,
                token_file: self.token_file.clone(),
                names: self.http_hosts.clone(),
            }),
            ..Config::in_memory()
        };
        match config.problems().as_slice() {
            [] => Ok(config),
            problems => Err(Failure::usage(format!(
                "failed to check the settings: {}",
                problems.join("; ")
            ))),
        }
    }

    fn data_directory(&self) -> Result<PathBuf, Failure> {
        data_directory(self.data.as_deref())
    }

    /// What the node says goes to standard error, in the order of importance that was asked for.
    fn start_log(&self) {
        let level: LevelFilter = self.log.parse().expect("clap lets only levels through");
        let wire = if self.debug {
            LevelFilter::DEBUG
        } else {
            LevelFilter::OFF
        };
        let rest = Targets::new()
            .with_default(level)
            .with_target(DEBUG_TARGET, wire);
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(report::colours())
            .with_target(false);
        tracing_subscriber::registry().with(rest).with(lines).init();
        // A panic inside an actor is an event like others: one line, not a dump in between.
        std::panic::set_hook(Box::new(|panic| {
            let place = panic
                .location()
                .map(ToString::to_string)
                .unwrap_or_default();
            let words = panic.payload_as_str().unwrap_or("a panic without words");
            tracing::error!(place, "panicked: {words}");
        }));
    }
}

/// `--data`, else `SEXTON_DATA`, else the place that the XDG base directories give. clap does not read the
/// environment here, since for clap a directory set there would contradict `--memory`.
pub(crate) fn data_directory(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    given
        .map(Path::to_owned)
        .or_else(|| set("SEXTON_DATA"))
        .or_else(|| Some(set("XDG_STATE_HOME")?.join("sexton")))
        .or_else(|| Some(set("HOME")?.join(".local/state/sexton")))
        .ok_or_else(|| {
            Failure::usage("no data directory: give --data DIR, or set SEXTON_DATA or HOME")
        })
}

/// One line on standard output, when every door is open; and the same to a supervisor that asked for it.
#[expect(
    clippy::print_stdout,
    reason = "the ready line is this program's output"
)]
fn announce(handle: &Handle) {
    let doors = handle.doors();
    let shown = |address: Option<SocketAddr>| address.map_or("off".to_owned(), |a| a.to_string());
    let socket = doors
        .socket
        .as_ref()
        .map_or("off".to_owned(), |path| path.display().to_string());
    println!(
        "ready lockserver={} beanstalk=off http={} socket={socket}",
        shown(doors.lockserver),
        shown(doors.http),
    );
    notify_ready();
    let recovered = handle.recovered();
    tracing::info!(
        records = recovered.records,
        ms = recovered.ms,
        clean = recovered.clean,
        "recovered"
    );
}

/// `sd_notify`: tells the service manager named in `NOTIFY_SOCKET` that the doors are open.
fn notify_ready() {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let sent = std::os::unix::net::UnixDatagram::unbound().and_then(|socket| {
        let bytes = path.as_encoded_bytes();
        match bytes.strip_prefix(b"@") {
            Some(name) => {
                use std::os::linux::net::SocketAddrExt as _;
                let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
                socket.send_to_addr(b"READY=1", &address)
            }
            None => socket.send_to(b"READY=1", Path::new(&path)),
        }
    });
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager could not be told");
    }
}

/// Raises the soft limit of descriptors to the hard one; the limit in force.
pub(crate) fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of descriptors stays as it is");
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How far a start has come, in words.
fn recovery_words(step: Step) -> String {
    match step {
        Step::Reading => "reading what the last run left".to_owned(),
        Step::Building { pages } => {
            let pages = text::grouped(pages);
            format!("building the state from {pages} pages of a snapshot")
        }
        Step::Repeating { records, upto } => {
            let records = text::grouped(records);
            format!("repeating the journal: {records} entries, at sequence number {upto}")
        }
    }
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Stop(&'static str),
    Reload,
    Dump,
    Drain,
}

/// The signals of LockServer, and those that people expect of a daemon.
struct Signals {
    listened: Vec<(Asked, Signal)>,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        let kinds = [
            (Asked::Stop("INT"), SignalKind::interrupt()),
            (Asked::Stop("TERM"), SignalKind::terminate()),
            (
                Asked::Stop("TSTP"),
                SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()),
            ),
            (Asked::Reload, SignalKind::hangup()),
            (Asked::Dump, SignalKind::user_defined1()),
            (Asked::Drain, SignalKind::user_defined2()),
            (
                Asked::Drain,
                SignalKind::from_raw(rustix::process::Signal::SYS.as_raw()),
            ),
        ];
        let listened = kinds
            .into_iter()
            .map(|(asked, kind)| Ok((asked, signal(kind)?)))
            .collect::<std::io::Result<_>>()?;
        Ok(Self { listened })
    }

    async fn next(&mut self) -> Asked {
        std::future::poll_fn(|context| {
            for (asked, signal) in &mut self.listened {
                if signal.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*asked);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// SIGHUP: reads the files again, and says what changed. What cannot be read stays as it was.
fn reload(handle: &Handle) {
    if let Some(door) = handle.lockserver() {
        reloaded("hosts list", door.reload_hosts());
    }
    if let Some(door) = handle.http() {
        reloaded("token file", door.reload_token());
    }
    tracing::info!("flags are read at the start alone");
}

fn reloaded<E: std::fmt::Display>(what: &'static str, changed: Result<bool, E>) {
    match changed {
        Ok(true) => tracing::info!("the {what} changed and is in force"),
        Ok(false) => tracing::info!("the {what} is as it was"),
        Err(error) => tracing::error!(%error, "failed to reload, the old {what} stays in force"),
    }
}

/// SIGUSR1: the statistics and the locks, each replaced as a whole.
async fn dump(handle: &Handle, data: Option<&Path>) {
    let Some(data) = data else {
        tracing::warn!("nowhere to write to: this coordinator keeps no files");
        return;
    };
    let asked = vec![
        Item::Query(Query::Counts),
        Item::Query(Query::List {
            key: None,
            entries_max: u32::MAX,
        }),
    ];
    let Ok(answers) = handle.locks().batch(asked).await else {
        return;
    };
    let disk = RealDisk::new(data);
    for answer in answers.into_iter().flatten() {
        let written = match answer {
            Reply::Counts { owners, contenders } => handle.lockserver().map_or(Ok(()), |door| {
                let lines = door.stats(owners, contenders).to_lines();
                disk.replace("lockserver.stats", lines.as_bytes())
            }),
            Reply::List(entries) => {
                disk.replace("lockserver.locks", lock_lines(&entries).as_bytes())
            }
            Reply::Standing(_)
            | Reply::Ended(_)
            | Reply::Absent
            | Reply::Refused(_)
            | Reply::Draining
            | Reply::Owner(_)
            | Reply::Due => unreachable!("a dump asks for counts and a list"),
        };
        if let Err(error) = written {
            tracing::error!(%error, "failed to write what SIGUSR1 asked for");
        }
    }
    tracing::info!("wrote lockserver.stats and lockserver.locks");
}

/// The fields of command 7, one entry a line, the key before them.
fn lock_lines(entries: &[lock::Listed]) -> String {
    let mut lines = String::from("# key index owner place priority ttl ttw\n");
    for entry in entries {
        let lock::Listed {
            key,
            index,
            owner,
            place,
            priority,
            ttl,
            ttw,
            ..
        } = entry;
        writeln!(
            lines,
            "{key:?} {index:?} {owner:?} {place} {priority} {ttl} {ttw}"
        )
        .expect("writing to memory does not fail");
    }
    lines
}
