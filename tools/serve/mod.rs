//! `sexton serve`: the server. Opens a node with the given settings, and serves until a signal, the end of a drain or a halt.

mod on_stop;
mod reload;
mod signals;

use crate::allocator::{give_back, give_back_forever};
use crate::directory;
use crate::log;
use crate::notify::Notify;
use crate::progress::Progress;
use crate::protocols;
use crate::report::Failure;
use crate::serve::reload::Reload;
pub(crate) use crate::serve::signals::outlive_file_limit;
use crate::serve::signals::{SignalRequest, Signals, dump};
use crate::settings::{Effective, LogFormat, ParsedFlags};
use crate::sockets;
use crate::text;
use clap::Args;
use rustix::process::{Resource, getrlimit};
use sexton::config::{Config, LockserverConfig};
use sexton::kernel::descriptors;
use sexton::node::{Drain, Handle, Node};
use sexton::spine::progress::Step;
use std::convert::Infallible;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The number of descriptors reserved for purposes other than client connections.
const OTHER_DESCRIPTORS: u64 = 64;

/// A descriptor limit that is too low for the settings is logged as a warning if it is below this number, and otherwise at debug level.
const DESCRIPTORS_ENOUGH: u64 = 4096;

/// Run the coordinator until a signal stops it.
///
/// When every listener is open, it prints one line that begins with `ready`, with the addresses of the listeners. Everything that it
/// acknowledges is on disk before the answer is sent, so it can be killed at any moment and started again.
///
/// Services of the configuration are kept running: they are launched again when they end. A clean stop ends them first, unless
/// --on-stop leave keeps them running until the next start. Processes of `sexton run` always keep running.
///
/// As PID 1 of a container it reaps orphaned processes, and a stop also ends the processes of `sexton run`, since they cannot
/// outlive PID 1.
///
/// Signals: INT, TERM and TSTP stop it cleanly; a second one skips the wait for services. HUP reloads the configuration, the
/// hosts list, the token file and the certificate, and logs what took effect and what needs a restart. USR1 takes a checkpoint,
/// and writes DATA/lockserver.stats and DATA/lockserver.locks. SYS or USR2 drains: it accepts nothing new, and exits once no
/// lock, claim, pass or attempt of a task is left.
///
/// Every flag can also be set in the environment (`SEXTON_LOCK_ENTRIES` for --lock-entries) or in the file of --config. A flag
/// overrides the environment, which overrides the file. `sexton config` with the same flags shows the settings that result.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton serve                               listens on loopback, data in ~/.local/state/sexton
  sexton serve --data /var/lib/sexton --hosts /etc/sexton/hosts --lockserver 0.0.0.0:11340
  sexton serve --memory --http off           no files: everything is lost when the process ends

Exit status: 0 stopped cleanly; 2 wrong flags; 3 a file or address cannot be opened or used; \
4 halted because the disk failed or an actor panicked too often.")]
pub(crate) struct Serve {
    #[command(flatten)]
    given: ParsedFlags,
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), Failure> {
        sexton::kernel::signals::hide();
        let listeners = sockets::take()?;
        let Effective { settings, mut node, unknown_variables, entries } = self.given.settle()?;
        sockets::open_on(&mut node, listeners)?;
        node.after_checkpoint = Some(give_back);
        let filter = log::start(&settings)?;
        let reload = Reload::new(self.given, filter, (entries, node.rules.clone()));
        for name in &unknown_variables {
            tracing::warn!("{name} in the environment is not a setting");
        }
        say_what_descriptors_allow(raise_descriptor_limit(), &node);
        if let Some(data) = &node.data {
            say_who_may_change(data);
        }
        if let Some(config) = &settings.config {
            say_who_may_write(config);
        }
        if let Some(lockserver) = &node.lockserver {
            say_who_is_admitted(lockserver);
        }
        let on_stop = on_stop::Stopping::new(settings.on_stop, node.is_init);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::unreachable(format!("failed to start: {error}")))?;
        let ended = runtime.block_on(serve(node, settings.log_format, (reload, on_stop)));
        match settings.log_format {
            LogFormat::Text => ended,
            LogFormat::Json => ended.map_err(Failure::logged),
        }
    }
}

async fn serve(
    config: Config,
    format: LogFormat,
    (mut reload, on_stop): (Reload, on_stop::Stopping),
) -> Result<(), Failure> {
    // Listen for signals first: a signal that arrives while the node opens must not kill the process.
    let is_init = config.is_init;
    let mut signals = Signals::listen(is_init)
        .map_err(|error| Failure::unreachable(format!("failed to listen for signals: {error}")))?;
    let data = config.data.clone();
    let notify = Notify::from_environment();
    let node = open(config, format, &notify)?;
    announce(&node.handle())?;
    notify.ready("all listeners are open");
    let handle = node.handle();
    if is_init {
        // Reap children that ended before SIGCHLD was handled.
        handle.processes().reap();
    }
    let mut alive = std::pin::pin!(notify.watch(&handle));
    let mut freed = std::pin::pin!(give_back_forever());
    let mut servers = std::pin::pin!(keep_servers_fresh(&handle));
    loop {
        tokio::select! {
            asked = signals.next() => match asked {
                SignalRequest::Stop(name) => {
                    tracing::info!(signal = name, "stopping");
                    break;
                }
                SignalRequest::Reload => reload.reload(&node).await,
                SignalRequest::Dump => dump(&node, data.as_deref()).await,
                SignalRequest::Reap => handle.processes().reap(),
                SignalRequest::Drain => {
                    notify.status("draining");
                    // If this fails, the node has halted, which is handled below.
                    let _begun = handle.begin_drain(Drain::All).await;
                    tracing::info!("draining: no new locks, jobs, claims, passes or tasks; exits when no lock, claim, pass or attempt of a task is left");
                }
            },
            // The drain may have begun with a signal or with a request.
            Ok(()) = handle.drained() => {
                tracing::info!("drained");
                break;
            }
            never = &mut alive => match never {},
            never = &mut freed => match never {},
            never = &mut servers => match never {},
            halt = handle.halted() => {
                notify.status(&format!("halted: {halt}"));
                drop(node);
                return Err(halt.into());
            }
        }
    }
    let _patience = notify.stopping();
    on_stop.carry_out(&handle, &mut signals).await;
    node.stop().map_err(Failure::from)
}

/// Keeps the inventories of task servers up to date. Never completes, even if the node ends: the caller handles that separately.
async fn keep_servers_fresh(handle: &Handle) -> Infallible {
    let _stopped = handle.keep_servers_fresh().await;
    std::future::pending().await
}

/// Opens the node. Meanwhile reports the progress of recovery in the log or on the terminal, and to the service manager, if there is one.
fn open(config: Config, format: LogFormat, notify: &Notify) -> Result<Node, Failure> {
    let (shown, told) = (config.progress.clone(), config.progress.clone());
    let words = move || Some(recovery_words(shown.get()));
    let line = |line: &str| tracing::info!("{line}");
    let _progress = match format {
        LogFormat::Text => Progress::start(words, line),
        LogFormat::Json => Progress::aside(words, line),
    };
    let _patience = notify.while_working(move || recovery_words(told.get()));
    Ok(Node::open_with(config, protocols::all())?)
}

/// Prints the ready line to standard output, and logs the result of the recovery. Must not be called before every listener is open.
///
/// # Errors
/// Fails if no thread can be started.
fn announce(handle: &Handle) -> Result<(), Failure> {
    let listeners = handle.listeners();
    let socket =
        listeners.socket.as_ref().map_or("off".to_owned(), |path| path.display().to_string());
    log::announce(&format!(
        "ready lockserver={} beanstalk={} http={} socket={socket}\n",
        shown(listeners.lockserver.as_ref()),
        shown(listeners.beanstalk.as_ref()),
        shown(listeners.http.as_ref()),
    ))?;
    let recovered = handle.recovered();
    tracing::info!(
        records = recovered.records,
        ms = recovered.ms,
        clean = recovered.clean,
        new = recovered.new,
        "recovered"
    );
    Ok(())
}

/// Formats the address of a listener, or `off`.
fn shown(address: Option<&impl ToString>) -> String {
    address.map_or_else(|| "off".to_owned(), ToString::to_string)
}

/// Raises the soft limit on open descriptors to the hard limit, and returns the soft limit in force. A failure is only logged.
pub(crate) fn raise_descriptor_limit() -> u64 {
    if let Err(error) = descriptors::raise() {
        tracing::warn!(%error, "failed to raise the descriptor limit");
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Logs a message if the descriptor limit allows fewer connections than the settings do. Most coordinators need far fewer than the
/// settings allow, so the message is a warning only below [`DESCRIPTORS_ENOUGH`].
fn say_what_descriptors_allow(descriptors: u64, node: &Config) {
    let lockserver = node.lockserver.as_ref().map_or(0, |listener| listener.connections_max);
    let beanstalk = node.beanstalk.as_ref().map_or(0, |listener| listener.connections_max);
    let http = node.http.as_ref().map_or(0, |listener| {
        let listeners = u64::from(listener.tcp.is_some()) + u64::from(listener.socket.is_some());
        listeners * u64::from(listener.connections_max)
    });
    let connections = u64::from(lockserver) + u64::from(beanstalk) + http;
    if descriptors >= connections.saturating_add(OTHER_DESCRIPTORS) {
        return;
    }
    let words = "the descriptor limit (`ulimit -n`, LimitNOFILE=) allows fewer connections than the settings do";
    if descriptors < DESCRIPTORS_ENOUGH {
        tracing::warn!(descriptors, connections, "{words}");
    } else {
        tracing::debug!(descriptors, connections, "{words}");
    }
}

/// Warns if other users can write to the configuration, which names programs to run, or put another in its place.
fn say_who_may_write(config: &Path) {
    let own = rustix::process::geteuid().as_raw();
    if let Err(error) = sexton::kernel::file::of_user(config, own) {
        let config = config.display();
        tracing::warn!(
            "other users may decide what {config} says, which names the programs that run as this user: {error}"
        );
    }
}

/// Warns if other users can replace files in the data directory, or the directory itself.
fn say_who_may_change(data: &Path) {
    if let Some(why) = directory::replaceable(data, None) {
        let data = data.display();
        tracing::warn!(
            "other users can put another directory in the place of {data}, since {why}: move it to where only its user and root may write"
        );
    }
    let Ok(metadata) = std::fs::metadata(data) else {
        // A directory that does not exist yet is created private.
        return;
    };
    let mode = metadata.permissions().mode() & 0o7777;
    let data = data.display();
    if mode & 0o022 != 0 {
        tracing::warn!(
            "{data} has mode {mode:04o}, so other users can replace its files: `chmod 700 {data}` makes it private"
        );
    }
}

/// Warns if LockServer listens beyond loopback, but refuses every other host.
fn say_who_is_admitted(lockserver: &LockserverConfig) {
    if lockserver.hosts.is_none() && !lockserver.address.ip().is_loopback() {
        let address = lockserver.address;
        tracing::warn!(
            "lockserver={address} refuses every other host: --hosts names a file that lists those to admit"
        );
    }
}

/// Describes the progress of a recovery.
fn recovery_words(step: Step) -> String {
    match step {
        Step::Reading => "reading the data of the last run".to_owned(),
        Step::Building { pages } => {
            let pages = text::grouped(pages);
            format!("building the state from {pages} pages of a snapshot")
        }
        Step::Replaying { records, upto } => {
            let records = text::grouped(records);
            format!("replaying the journal: {records} records, at sequence number {upto}")
        }
    }
}
