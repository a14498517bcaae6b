//! `sexton serve`: the daemon. Opens the node that the settings lead to, and serves until a signal ends it.

mod on_stop;
mod reload;
mod signals;

use crate::allocator::{give_back, give_back_forever};
use crate::log;
use crate::notify::Notify;
use crate::progress::Progress;
use crate::report::Failure;
use crate::serve::reload::Reload;
pub(crate) use crate::serve::signals::outlive_file_limit;
use crate::serve::signals::{Asked, Signals, dump};
use crate::settings::{Effective, Given, LogFormat};
use crate::sockets;
use crate::text;
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sexton::config::Config;
use sexton::node::{Drain, Handle, Node};
use sexton::spine::progress::Step;
use std::convert::Infallible;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// Descriptors that are none of connections.
const OTHER_DESCRIPTORS: u64 = 64;

/// So many are enough for most, whatever the settings would allow.
const DESCRIPTORS_ENOUGH: u64 = 4096;

/// Run the coordinator until a signal stops it.
///
/// When every listener is open it prints one line that begins with `ready`, with the addresses of the listeners.
/// Everything it acknowledges is on disk before the answer leaves; kill it any way you like and start it again.
///
/// Services of the configuration run as long as it has them, and are launched again when they end. A clean stop ends them
/// first, unless --on-stop leave lets them run on until the next start; processes of `sexton run` always run on.
///
/// As PID 1 of a container it reaps what it inherits, and a stop ends the processes of `sexton run`, too: they could not
/// outlast it.
///
/// Signals: INT, TERM and TSTP stop it cleanly; a second one waits for no service. HUP reads the configuration, the hosts
/// list, the token file and the certificate again, and logs what took effect and what needs a restart. USR1 takes a
/// checkpoint, and writes DATA/lockserver.stats and DATA/lockserver.locks. SYS or USR2 drains: nothing new, exit when no
/// lock, claim and pass is left.
///
/// Every flag may also stand in the environment (`SEXTON_LOCK_ENTRIES` for --lock-entries) or in the file of --config; a
/// flag overrides the environment, and that overrides the file. `sexton config` shows what is in force.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton serve                               listens on loopback, data in ~/.local/state/sexton
  sexton serve --data /var/lib/sexton --hosts /etc/sexton/hosts --lockserver 0.0.0.0:11340
  sexton serve --memory --http off           no files at all: everything is gone with the process

Exit status: 0 stopped in good order; 2 wrong flags; 3 something cannot be read or opened;
4 halted because the disk failed or an actor panicked too often.")]
pub(crate) struct Serve {
    #[command(flatten)]
    given: Given,
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let listeners = sockets::take()?;
        let Effective {
            settings,
            mut node,
            strange,
            entries,
        } = self.given.settle()?;
        sockets::open_on(&mut node, listeners)?;
        node.after_checkpoint = Some(give_back);
        let filter = log::start(&settings);
        let reload = Reload::new(self.given, filter, (entries, node.rules.clone()));
        for name in &strange {
            tracing::warn!("the environment has {name}, which is no setting");
        }
        say_what_descriptors_allow(raise_descriptor_limit(), &node);
        if let Some(data) = &node.data {
            say_who_may_change(data);
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
    // Signals first: one that comes while opening must not end the process half-way.
    let is_init = config.is_init;
    let mut signals = Signals::listen(is_init)
        .map_err(|error| Failure::unreachable(format!("failed to listen for signals: {error}")))?;
    let data = config.data.clone();
    let notify = Notify::from_environment();
    let node = open(config, format, &notify)?;
    announce(&node.handle());
    notify.ready("every door is open");
    let handle = node.handle();
    if is_init {
        // Those that ended before this listened.
        handle.processes().reap();
    }
    let mut alive = std::pin::pin!(notify.watch(&handle));
    let mut freed = std::pin::pin!(give_back_forever());
    let mut servers = std::pin::pin!(keep_servers_fresh(&handle));
    loop {
        tokio::select! {
            asked = signals.next() => match asked {
                Asked::Stop(name) => {
                    tracing::info!(signal = name, "stopping");
                    break;
                }
                Asked::Reload => reload.reload(&node).await,
                Asked::Dump => dump(&node, data.as_deref()).await,
                Asked::Reap => handle.processes().reap(),
                Asked::Drain => {
                    notify.status("draining");
                    // A node that has halted says so below.
                    let _begun = handle.begin_drain(Drain::All).await;
                    tracing::info!("draining: no new locks, jobs, claims, passes or tasks; the end comes when no lock, no claim, no pass and no attempt of a task is left");
                }
            },
            // However it began: by a signal, or through a door.
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

/// Has the servers of tasks looked up whenever they are wanted. That the node has ended is told elsewhere.
async fn keep_servers_fresh(handle: &Handle) -> Infallible {
    let _stopped = handle.keep_servers_fresh().await;
    std::future::pending().await
}

/// Opens the node, and says how far that has come: in the log or on the terminal, and to a service manager.
fn open(config: Config, format: LogFormat, notify: &Notify) -> Result<Node, Failure> {
    let (shown, told) = (config.progress.clone(), config.progress.clone());
    let words = move || Some(recovery_words(shown.get()));
    let line = |line: &str| tracing::info!("{line}");
    let _progress = match format {
        LogFormat::Text => Progress::start(words, line),
        LogFormat::Json => Progress::aside(words, line),
    };
    let _patience = notify.while_working(move || recovery_words(told.get()));
    Ok(Node::open(config)?)
}

/// One line on standard output, when every door is open.
#[expect(
    clippy::print_stdout,
    reason = "the ready line is this program's output"
)]
fn announce(handle: &Handle) {
    let doors = handle.doors();
    let socket = doors
        .socket
        .as_ref()
        .map_or("off".to_owned(), |path| path.display().to_string());
    println!(
        "ready lockserver={} beanstalk={} http={} socket={socket}",
        shown(doors.lockserver.as_ref()),
        shown(doors.beanstalk.as_ref()),
        shown(doors.http.as_ref()),
    );
    let recovered = handle.recovered();
    tracing::info!(
        records = recovered.records,
        ms = recovered.ms,
        clean = recovered.clean,
        "recovered"
    );
}

/// Where a door is, if it is open.
fn shown(address: Option<&impl ToString>) -> String {
    address.map_or_else(|| "off".to_owned(), ToString::to_string)
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

/// Says that not as many connections can be open as the settings allow, if it is so. What is left are enough for most:
/// it is a warning only where they are few.
fn say_what_descriptors_allow(descriptors: u64, node: &Config) {
    let lockserver = node
        .lockserver
        .as_ref()
        .map_or(0, |door| door.connections_max);
    let beanstalk = node
        .beanstalk
        .as_ref()
        .map_or(0, |door| door.connections_max);
    let http = node.http.as_ref().map_or(0, |door| {
        let listeners = u64::from(door.tcp.is_some()) + u64::from(door.socket.is_some());
        listeners * u64::from(door.connections_max)
    });
    let connections = u64::from(lockserver) + u64::from(beanstalk) + http;
    if descriptors >= connections.saturating_add(OTHER_DESCRIPTORS) {
        return;
    }
    let words = "the limit of descriptors (`ulimit -n`, LimitNOFILE=) allows fewer connections than the settings";
    if descriptors < DESCRIPTORS_ENOUGH {
        tracing::warn!(descriptors, connections, "{words}");
    } else {
        tracing::info!(descriptors, connections, "{words}");
    }
}

/// Warns of a data directory in which others may put files in place of ours.
fn say_who_may_change(data: &Path) {
    let Ok(metadata) = std::fs::metadata(data) else {
        // One that is not there yet is made so that nobody else may.
        return;
    };
    let mode = metadata.permissions().mode() & 0o7777;
    let data = data.display();
    if mode & 0o022 != 0 {
        tracing::warn!(
            "{data} has mode {mode:04o}, so others may replace what is in it: `chmod 700 {data}` closes it to them"
        );
    }
    let (owner, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != own && owner != 0 {
        tracing::warn!(
            "{data} belongs to user {owner}, who may replace what is in it, and this is user {own}: `chown {own} {data}` gives it to this one"
        );
    }
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
