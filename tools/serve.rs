//! `sexton serve`: the daemon. Opens the node that the settings lead to, and turns signals into what they ask for.

use crate::allocator::{give_back, give_back_forever};
use crate::log;
use crate::notify::Notify;
use crate::progress::Progress;
use crate::report::Failure;
use crate::settings::{Effective, Given, LogFormat};
use crate::sockets;
use crate::text;
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sexton::actors::lock::{self, Query, Reply};
use sexton::config::Config;
use sexton::node::{Drain, Handle, Node};
use sexton::persist::disk::RealDisk;
use sexton::spine::delivery::Item;
use sexton::spine::progress::Step;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Descriptors that are none of connections.
const OTHER_DESCRIPTORS: u64 = 64;

/// So many are enough for most, whatever the settings would allow.
const DESCRIPTORS_ENOUGH: u64 = 4096;

/// Run the coordinator until a signal stops it.
///
/// When every door is open it prints one line that begins with `ready`, with the addresses of the doors. Everything
/// it acknowledges is on disk before the answer leaves; kill it any way you like and start it again.
///
/// Signals: INT, TERM and TSTP stop in good order. HUP reads the hosts list, the token file and the certificate again. USR1 writes
/// DATA/lockserver.stats and DATA/lockserver.locks. SYS or USR2 drains: no new locks, exit when none is left.
///
/// Every flag may also stand in the environment (`SEXTON_LOCK_ENTRIES` for --lock-entries) or in the file of --config; a
/// flag goes before the environment, and that before the file. `sexton config` shows what is in force.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton serve                               doors on loopback, data in ~/.local/state/sexton
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
            ..
        } = self.given.settle()?;
        sockets::open_on(&mut node, listeners)?;
        node.after_checkpoint = Some(give_back);
        log::start(&settings);
        for name in &strange {
            tracing::warn!("the environment has {name}, which is no setting");
        }
        say_what_descriptors_allow(raise_descriptor_limit(), &node);
        if let Some(data) = &node.data {
            say_who_may_change(data);
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::unreachable(format!("failed to start: {error}")))?;
        let ended = runtime.block_on(serve(node, settings.log_format));
        match settings.log_format {
            LogFormat::Text => ended,
            LogFormat::Json => ended.map_err(Failure::logged),
        }
    }
}

async fn serve(config: Config, format: LogFormat) -> Result<(), Failure> {
    // Signals first: one that comes while opening must not end the process half-way.
    let mut signals = Signals::listen()
        .map_err(|error| Failure::unreachable(format!("failed to listen for signals: {error}")))?;
    let data = config.data.clone();
    let notify = Notify::from_environment();
    let node = open(config, format, &notify)?;
    announce(&node.handle());
    notify.ready();
    let handle = node.handle();
    let mut alive = std::pin::pin!(notify.watch(&handle));
    let mut freed = std::pin::pin!(give_back_forever());
    loop {
        tokio::select! {
            asked = signals.next() => match asked {
                Asked::Stop(name) => {
                    tracing::info!(signal = name, "stopping");
                    break;
                }
                Asked::Reload => reload(&node),
                Asked::Dump => dump(&node, data.as_deref()).await,
                Asked::Drain => {
                    notify.status("draining");
                    // A node that has halted says so below.
                    let _begun = handle.begin_drain(Drain::All).await;
                    tracing::info!("draining: no new locks, jobs or claims; the end comes when no lock and no claim is left");
                }
            },
            // However it began: by a signal, or through a door.
            Ok(()) = handle.drained() => {
                tracing::info!("drained");
                break;
            }
            never = &mut alive => match never {},
            never = &mut freed => match never {},
            halt = handle.halted() => {
                notify.status(&format!("halted: {halt}"));
                drop(node);
                return Err(halt.into());
            }
        }
    }
    let _patience = notify.stopping();
    node.stop().map_err(Failure::from)
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
    if mode & 0o022 != 0 {
        let data = data.display();
        tracing::warn!(
            "{data} has mode {mode:04o}, so others may replace what is in it: `chmod 700 {data}` closes it to them"
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
        outlive_file_limit()?;
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

/// A write beyond the limit of a file's size (`ulimit -f`) is an error of that write from now on, which is told as
/// such, and not the end of the process without a word.
pub(crate) fn outlive_file_limit() -> std::io::Result<()> {
    let number = rustix::process::Signal::XFSZ.as_raw();
    // That it is listened to is all: what was listened to once never ends the process again.
    signal(SignalKind::from_raw(number)).map(drop)
}

/// SIGHUP: reads the files again, and says what changed. What cannot be read stays as it was.
fn reload(node: &Node) {
    if let Some(door) = node.lockserver() {
        reloaded("hosts list", door.reload_hosts());
    }
    if let Some(door) = node.http() {
        reloaded("token file", door.reload_token());
        reloaded("TLS certificate", door.reload_identity());
    }
    tracing::info!("settings are read at the start alone");
}

fn reloaded<E: std::fmt::Display>(what: &'static str, changed: Result<Option<bool>, E>) {
    match changed {
        Ok(None) => {}
        Ok(Some(true)) => tracing::info!("the {what} changed and is in force"),
        Ok(Some(false)) => tracing::info!("the {what} is as it was"),
        Err(error) => tracing::error!(%error, "failed to reload, the old {what} stays in force"),
    }
}

/// SIGUSR1: the statistics and the locks, each replaced as a whole.
async fn dump(node: &Node, data: Option<&Path>) {
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
    let Ok(answers) = node.handle().locks().batch(asked).await else {
        return;
    };
    let disk = RealDisk::new(data);
    for answer in answers.into_iter().flatten() {
        let written = match answer {
            Reply::Counts { owners, contenders } => node.lockserver().map_or(Ok(()), |door| {
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
            | Reply::Page { .. }
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
