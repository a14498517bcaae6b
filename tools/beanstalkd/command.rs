//! A server that replaces beanstalkd: one listener, jobs in memory or in a directory, and beanstalkd's signals and exit statuses.

use crate::allocator::{give_back, give_back_forever};
use crate::beanstalkd::flag::{self, Flags, Invocation, Sync, USAGE};
use crate::beanstalkd::user;
use crate::client::resolved;
use crate::log;
use crate::notify::Notify;
use crate::report::Failure;
use crate::serve::{outlive_file_limit, raise_descriptor_limit};
use crate::settings::LogFormat;
use crate::sockets;
use clap::Args;
use sexton::actors::{Rules, queue};
use sexton::config::{Address, BeanstalkConfig, Config, Listeners, Network, Opened};
use sexton::node::Drain;
use sexton::persist::journal::{Fsync, Sizes};
use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::{LevelFilter, Targets};

/// The exit status of beanstalkd for a wrong command line.
const WRONG_WORDS: u8 = 5;
/// The exit status of beanstalkd for an address that it cannot listen on.
const CANNOT_LISTEN: u8 = 111;

/// The exit status after SIGTERM as PID 1, such as in a container: 128 plus the number of the signal. beanstalkd exits with the same
/// status.
const TERMINATED: u8 = 143;

/// The number of descriptors reserved for purposes other than client connections.
const OTHER_DESCRIPTORS: u64 = 64;

/// Run as a drop-in replacement for beanstalkd, with its command line and only its protocol
///
/// A symbolic link named `beanstalkd` to this program does the same, for programs that start beanstalkd by name. SIGTERM and
/// SIGINT stop the server cleanly; after SIGUSR1 it refuses new jobs. Without -b, jobs are kept in memory only.
#[derive(Args)]
#[command(disable_help_flag = true)]
#[command(after_help = "Examples:
  sexton beanstalkd -l 127.0.0.1 -p 11300
  sexton beanstalkd -b /var/lib/beanstalkd -f 0
  ln -s $(command -v sexton) beanstalkd && ./beanstalkd -h")]
pub(crate) struct Beanstalkd {
    /// beanstalkd's flags; -h shows them
    #[arg(value_name = "FLAGS", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Beanstalkd {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut words = self.words;
        // beanstalkd has no --help, but every other subcommand of sexton has one, so this one accepts it too.
        if words.first().is_some_and(|word| word == "--help") {
            words = vec!["-h".into()];
        }
        run(words)
    }
}

/// Returns the arguments if the program was called as `beanstalkd`, and otherwise `None`.
pub(crate) fn invoked_as_beanstalkd() -> Option<Vec<OsString>> {
    let mut words = std::env::args_os();
    let name = words.next()?;
    let is_so = Path::new(&name).file_name() == Some("beanstalkd".as_ref());
    is_so.then(|| words.collect())
}

/// Does what the arguments of a beanstalkd command line request: runs the server, or prints the version or the usage.
pub(crate) fn run(words: Vec<OsString>) -> Result<(), Failure> {
    let words = words.into_iter();
    let asked = flag::read(words.map(|word| word.to_string_lossy().into_owned()));
    match asked {
        Ok(Invocation::Serve(flags)) => serve(&flags),
        Ok(Invocation::Version) => {
            let (theirs, ours) = (sexton_wire::beanstalk::VERSION, env!("CARGO_PKG_VERSION"));
            let line = format!("beanstalkd {theirs} (sexton {ours})\n");
            crate::report::written(std::io::stdout().lock().write_all(line.as_bytes()))
        }
        Ok(Invocation::Help) => {
            crate::report::written(std::io::stderr().lock().write_all(USAGE.as_bytes()))
        }
        Err(words) => Err(Failure::of_beanstalkd(WRONG_WORDS, words).help("-h shows the flags")),
    }
}

fn serve(flags: &Flags) -> Result<(), Failure> {
    start_log(flags.verbosity);
    let opened = match sockets::take_one()? {
        Some(passed) => passed,
        None => listen(flags)?,
    };
    if let Some(name) = &flags.user {
        user::become_user(name).map_err(|(status, words)| Failure::of_beanstalkd(status, words))?;
    }
    // No thread may start before: each keeps the user as whom it was started.
    log::start_writing()?;
    for letter in &flags.ignored {
        tracing::warn!("-{letter} is ignored: the journal is always compacted");
    }
    if let Some(data) = &flags.data {
        look_for_binlog(data);
    }
    let config = configure(flags, opened)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::unreachable(format!("failed to start: {error}")))?;
    runtime.block_on(until_signal(config))
}

/// Starts logging errors and warnings; with one `-V` also progress, and with more also every command and reply.
fn start_log(verbosity: u32) {
    let level = match verbosity {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    log::start_with(Targets::new().with_default(level), LogFormat::Text);
}

fn listen(flags: &Flags) -> Result<Opened, Failure> {
    let shown = flags.address.as_deref().unwrap_or("0.0.0.0");
    let cannot = |error: std::io::Error| {
        let words = format!("failed to listen on {shown}, port {}: {error}", flags.port);
        Failure::of_beanstalkd(CANNOT_LISTEN, words)
    };
    if let Some(path) = shown.strip_prefix("unix:") {
        return Opened::at(&Address::Unix(path.into())).map_err(cannot);
    }
    let port: u16 = flags.port.parse().map_err(|_| {
        let words = format!("failed to listen: {} is not a port", flags.port);
        Failure::of_beanstalkd(CANNOT_LISTEN, words)
    })?;
    let found = resolved(shown, port).map_err(cannot)?;
    let address = found
        .first()
        .copied()
        .ok_or_else(|| cannot(std::io::ErrorKind::AddrNotAvailable.into()))?;
    let opened = Opened::at(&Address::Tcp(address)).map_err(cannot)?;
    if !address.ip().is_loopback() {
        tracing::warn!(
            "anyone who can reach {address} can use the queues: -l 127.0.0.1 keeps others out"
        );
    }
    Ok(opened)
}

/// Warns if the directory contains a binlog of beanstalkd, whose jobs are not read.
fn look_for_binlog(data: &Path) {
    let Ok(files) = std::fs::read_dir(data) else {
        return;
    };
    let mut names = files.flatten().map(|file| file.file_name());
    if names.any(|name| name.to_string_lossy().starts_with("binlog.")) {
        let data = data.display();
        tracing::warn!(
            "{data} has a binlog of beanstalkd: its jobs are not read, and its files are left alone"
        );
    }
}

fn configure(flags: &Flags, opened: Opened) -> Result<Config, Failure> {
    let address = opened
        .address()
        .map_err(|error| Failure::of_beanstalkd(CANNOT_LISTEN, error.to_string()))?;
    let descriptors = raise_descriptor_limit().saturating_sub(OTHER_DESCRIPTORS);
    let connections = u32::try_from(descriptors).unwrap_or(u32::MAX).clamp(1, 1 << 20);
    let everybody = ["0.0.0.0/0", "::/0"].map(str::parse::<Network>);
    let fsync = match flags.sync {
        Sync::Never => Fsync::Never,
        Sync::Within(0) => Fsync::Always,
        Sync::Within(ms) => Fsync::Interval(Duration::from_millis(ms.min(60_000))),
    };
    let segments = flags.file_bytes.map_or_else(Sizes::default, |bytes| {
        // A segment must hold the longest record. Segments larger than 1 GiB gain nothing.
        let bytes = bytes.next_multiple_of(4096).clamp(1 << 20, 1 << 30);
        Sizes { first_bytes: bytes, max_bytes: bytes }
    });
    Ok(Config {
        data: flags.data.clone(),
        after_checkpoint: Some(give_back),
        fsync,
        segments,
        rules: Rules {
            queue: queue::Rules {
                body_bytes_max: flags.job_bytes.max(1),
                ..queue::Rules::default()
            },
            ..Rules::default()
        },
        beanstalk: Some(BeanstalkConfig {
            address,
            hosts: everybody.into_iter().flatten().collect(),
            connections_max: connections,
            job_bytes_max: flags.job_bytes,
        }),
        listeners: Listeners { beanstalk: Some(opened), ..Listeners::default() },
        ..Config::in_memory()
    })
}

async fn until_signal(config: Config) -> Result<(), Failure> {
    let cannot_listen =
        |error| Failure::unreachable(format!("failed to listen for signals: {error}"));
    outlive_file_limit().map_err(cannot_listen)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot_listen)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot_listen)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(cannot_listen)?;
    let mut drain = signal(SignalKind::user_defined1()).map_err(cannot_listen)?;
    let notify = Notify::from_environment();
    let node = sexton_wire::open(config)?;
    notify.ready("all listeners are open");
    let handle = node.handle();
    tracing::info!(pid = std::process::id(), listeners = ?handle.listeners().beanstalk, "serving");
    let mut status = None;
    let mut freed = std::pin::pin!(give_back_forever());
    loop {
        tokio::select! {
            Some(()) = terminate.recv() => {
                status = (std::process::id() == 1).then_some(TERMINATED);
                break;
            }
            Some(()) = interrupt.recv() => break,
            Some(()) = hangup.recv() => break,
            Some(()) = drain.recv() => {
                // If this fails, the node has halted, which is handled below.
                let _begun = handle.begin_drain(Drain::Jobs).await;
                tracing::info!("draining: no new jobs");
            }
            never = &mut freed => match never {},
            halt = handle.halted() => {
                drop(node);
                return Err(halt.into());
            }
        }
    }
    let _patience = notify.stopping();
    node.stop()?;
    status.map_or(Ok(()), |status| Err(Failure::of_beanstalkd(status, "")))
}
