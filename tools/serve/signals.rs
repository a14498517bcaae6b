//! The signals of `sexton serve`: which are listened to, and what SIGUSR1 writes.

use sexton::actors::lock::{self, Query, Reply};
use sexton::node::Node;
use sexton::persist::disk::RealDisk;
use sexton::spine::delivery::Item;
use std::fmt::Write as _;
use std::path::Path;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    Stop(&'static str),
    Reload,
    Dump,
    Drain,
    Reap,
}

/// The signals of LockServer, those that people expect of a daemon, and for PID 1 that of children that ended.
pub(crate) struct Signals {
    listened: Vec<(Asked, Signal)>,
}

impl Signals {
    pub(crate) fn listen(is_init: bool) -> std::io::Result<Self> {
        let mut kinds = vec![
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
        // Others leave their children to those that started them.
        if is_init {
            kinds.push((Asked::Reap, SignalKind::child()));
        }
        let listened = kinds
            .into_iter()
            .map(|(asked, kind)| Ok((asked, signal(kind)?)))
            .collect::<std::io::Result<_>>()?;
        outlive_file_limit()?;
        Ok(Self { listened })
    }

    pub(crate) async fn next(&mut self) -> Asked {
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

/// SIGUSR1: a checkpoint, beside whatever else is asked; the statistics and the locks, each replaced as a whole.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the thread of signals, and no task of the core"
)]
pub(crate) async fn dump(node: &Node, data: Option<&Path>) {
    let Some(data) = data else {
        tracing::warn!("nowhere to write to: this coordinator keeps no files");
        return;
    };
    let handle = node.handle();
    tokio::spawn(async move {
        match handle.checkpoint().await {
            Ok(_) => tracing::info!("took the checkpoint that SIGUSR1 asked for"),
            Err(error) => tracing::error!(%error, "failed to take a checkpoint"),
        }
    });
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
            | Reply::Contended { .. }
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
