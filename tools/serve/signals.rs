//! The signals of `sexton serve`, and what SIGUSR1 writes.

use sexton::actors::lock::{self, Query, Reply};
use sexton::node::Node;
use sexton::persist::disk::RealDisk;
use sexton::spine::delivery::Item;
use sexton_wire::lockserver;
use std::fmt::Write as _;
use std::path::Path;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The request that a signal stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SignalRequest {
    Stop(&'static str),
    Reload,
    Dump,
    Drain,
    Reap,
}

/// Listens for the signals that LockServer handled, for those that daemons usually handle and, as PID 1, for SIGCHLD.
pub(crate) struct Signals {
    listened: Vec<(SignalRequest, Signal)>,
}

impl Signals {
    pub(crate) fn listen(is_init: bool) -> std::io::Result<Self> {
        let mut kinds = vec![
            (SignalRequest::Stop("INT"), SignalKind::interrupt()),
            (SignalRequest::Stop("TERM"), SignalKind::terminate()),
            (
                SignalRequest::Stop("TSTP"),
                SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()),
            ),
            (SignalRequest::Reload, SignalKind::hangup()),
            (SignalRequest::Dump, SignalKind::user_defined1()),
            (SignalRequest::Drain, SignalKind::user_defined2()),
            (SignalRequest::Drain, SignalKind::from_raw(rustix::process::Signal::SYS.as_raw())),
        ];
        // Only PID 1 inherits orphans that it has to reap.
        if is_init {
            kinds.push((SignalRequest::Reap, SignalKind::child()));
        }
        let listened = kinds
            .into_iter()
            .map(|(asked, kind)| Ok((asked, signal(kind)?)))
            .collect::<std::io::Result<_>>()?;
        outlive_file_limit()?;
        Ok(Self { listened })
    }

    pub(crate) async fn next(&mut self) -> SignalRequest {
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

/// Makes a write beyond the file size limit (`ulimit -f`) fail with an error, instead of SIGXFSZ ending the process.
pub(crate) fn outlive_file_limit() -> std::io::Result<()> {
    let number = rustix::process::Signal::XFSZ.as_raw();
    // Registering a listener once is enough: from then on the signal does not end the process, even if the listener is dropped.
    signal(SignalKind::from_raw(number)).map(drop)
}

/// Handles SIGUSR1: takes a checkpoint in the background, and replaces the files `lockserver.stats` and `lockserver.locks` in `data`. If
/// the node keeps no files, only logs a warning.
#[expect(
    clippy::disallowed_methods,
    reason = "this runs on the runtime of the main thread, not on that of the core"
)]
pub(crate) async fn dump(node: &Node, data: Option<&Path>) {
    let Some(data) = data else {
        tracing::warn!("SIGUSR1 ignored: this coordinator keeps no files");
        return;
    };
    let handle = node.handle();
    tokio::spawn(async move {
        match handle.checkpoint().await {
            Ok(_) => tracing::info!("took the checkpoint requested by SIGUSR1"),
            Err(error) => tracing::error!(%error, "failed to take a checkpoint"),
        }
    });
    let asked = vec![
        Item::Query(Query::Counts),
        Item::Query(Query::List { key: None, entries_max: u32::MAX }),
    ];
    let Ok(answers) = node.handle().locks().batch(asked).await else {
        return;
    };
    let disk = RealDisk::new(data);
    let mut all_written = true;
    for answer in answers.into_iter().flatten() {
        let written = match answer {
            Reply::Counts { owners, contenders } => {
                let listener = node.listener::<lockserver::Listener>();
                listener.map_or(Ok(()), |listener| {
                    let lines = lockserver::stats::lines(&listener.stats(owners, contenders));
                    disk.replace("lockserver.stats", lines.as_bytes())
                })
            }
            Reply::List(entries) => {
                disk.replace("lockserver.locks", lock_lines(&entries).as_bytes())
            }
            Reply::LinePosition(_)
            | Reply::Ended(_)
            | Reply::Absent
            | Reply::Refused(_)
            | Reply::Draining
            | Reply::Owner(_)
            | Reply::Page { .. }
            | Reply::Contended { .. }
            | Reply::Due => unreachable!("a dump requests only counts and a list"),
        };
        if let Err(error) = written {
            tracing::error!(%error, "failed to write a file requested by SIGUSR1");
            all_written = false;
        }
    }
    if all_written {
        tracing::info!("wrote lockserver.stats and lockserver.locks");
    }
}

/// Returns the content of `lockserver.locks`: a line with the names of the columns, and one line per lock entry.
fn lock_lines(entries: &[lock::EntryView]) -> String {
    let mut lines = String::from("# key index owner place priority ttl ttw\n");
    for entry in entries {
        let lock::EntryView { key, index, owner, place, priority, ttl, ttw, .. } = entry;
        writeln!(lines, "{key:?} {index:?} {owner:?} {place} {priority} {ttl} {ttw}")
            .expect("writing to memory should not fail");
    }
    lines
}
