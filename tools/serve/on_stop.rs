//! Stops the services on a clean stop of the coordinator and, if it is PID 1, all other processes that it launched. Processes that
//! are still running when PID 1 ends are killed by the kernel.

use crate::serve::signals::{SignalRequest, Signals};
use crate::settings::OnStop;
use sexton::actors::process::{Phase, Query, RecordView, Selection};
use sexton::handle::{ProcessError, Processes, Stopping as Stop};
use sexton::ids::ProcessId;
use sexton::node::Handle;
use sexton::spine::event::Event;
use sexton::spine::feed::Notification;
use std::collections::BTreeSet;
use std::future::pending;
use std::time::Duration;
use tokio::time::timeout;

/// The maximum time to wait until services and, as PID 1, all launched processes have ended. Each is killed when its grace period is
/// over, but a process that even SIGKILL does not end, or a long chain of services, could delay the stop for longer.
const TIMEOUT: Duration = Duration::from_mins(10);

/// Stops the processes that must end with the coordinator.
pub(super) struct Stopping {
    what: OnStop,
    is_init: bool,
}

impl Stopping {
    pub(super) fn new(what: OnStop, is_init: bool) -> Self {
        if is_init && what == OnStop::Leave {
            tracing::warn!(
                "this is PID 1: with --on-stop leave, the kernel kills all processes when sexton stops"
            );
        }
        Self { what, is_init }
    }

    /// Stops all services, in the reverse of the order in which they start, and as PID 1 also all launched processes. Waits until they
    /// have exited, for at most [`TIMEOUT`], or until all that is left are processes of which it is unknown whether they belong to a service:
    /// nothing more is done about those. Does nothing with `--on-stop leave`. Another stop signal or a halt ends the wait: services
    /// that still run are left running, and the coordinator finds them when it starts again.
    pub(super) async fn carry_out(self, handle: &Handle, signals: &mut Signals) {
        if self.what == OnStop::Leave {
            return;
        }
        let mut rest = std::pin::pin!(timeout(TIMEOUT, self.bring_down(handle)));
        loop {
            tokio::select! {
                done = &mut rest => {
                    if done.is_err() {
                        tracing::warn!("timed out waiting for processes to stop");
                    }
                    return;
                }
                asked = signals.next() => match asked {
                    SignalRequest::Stop(_) => {
                        tracing::warn!("second signal: not waiting for services");
                        return;
                    }
                    SignalRequest::Reap => handle.processes().reap(),
                    SignalRequest::Reload | SignalRequest::Dump | SignalRequest::Drain => {}
                },
                _ = handle.halted() => return,
            }
        }
    }

    async fn bring_down(&self, handle: &Handle) {
        let services = handle.services();
        if services.list(None).await.is_ok_and(|all| !all.is_empty()) {
            if let Err(error) = services.hold().await {
                return tracing::error!(%error, "failed to stop the services");
            }
            tracing::info!("stopping services");
            tokio::select! {
                settled = services.settled(None) => match settled {
                    Ok(()) => tracing::info!("services stopped"),
                    Err(error) => tracing::error!(%error, "failed to wait for the services"),
                },
                () = only_doubts(handle, async || unstopped(handle).await) => {}
            }
        }
        if self.is_init {
            let processes = handle.processes();
            tokio::select! {
                stopped = stop_all(&processes) => if let Err(error) = stopped {
                    tracing::error!(%error, "failed to stop the processes");
                },
                () = only_doubts(handle, async || launched(&processes).await) => {}
            }
        }
    }
}

/// Waits until nothing is known to be alive of the processes that `left` returns: each has been killed with its tree, and what may be left of
/// it are processes that may or may not belong to it. Logs each as soon as that is known.
async fn only_doubts(
    handle: &Handle,
    left: impl AsyncFn() -> Result<Vec<(String, RecordView)>, ProcessError>,
) {
    let Ok(mut events) = handle.events(None).await else {
        return pending().await;
    };
    let mut logged = BTreeSet::new();
    loop {
        // If the node fails, the wait for the processes fails as well.
        let records = left().await.unwrap_or_default();
        let doubtful = records.iter().filter(|(_, record)| is_doubtful(record));
        let mut count = 0;
        for (name, record) in doubtful {
            count += 1;
            if logged.insert(record.id) {
                let unknown = record.stuck.map_or(0, |it| it.unknown);
                tracing::warn!(
                    %name, process = %record.id, unknown,
                    "a process was killed with its tree, but processes are alive that may or may not belong to it: \"sexton ps ID\" shows it"
                );
            }
        }
        if count > 0 && count == records.len() {
            return tracing::warn!("not waiting any longer: nothing else is known to be alive");
        }
        loop {
            match events.next().await {
                Some(Notification::Event(event)) if !decides(&event, count > 0) => {}
                Some(_) => break,
                None => return pending().await,
            }
        }
        // All events that have happened are looked at together.
        while events.try_next().is_some() {}
    }
}

/// Returns whether an event may be the last that [`only_doubts`] waits for: a tree is killed or becomes doubtful or, if others are doubtful
/// already, a process ends.
fn decides(event: &Event, some_are_doubtful: bool) -> bool {
    let kinds = ["stopping", "stuck"];
    event.actor == "process" && (some_are_doubtful || kinds.contains(&event.what.kind))
}

/// Returns the processes of services that have not ended with their trees, with the names of the services.
async fn unstopped(handle: &Handle) -> Result<Vec<(String, RecordView)>, ProcessError> {
    let mut found = Vec::new();
    for service in handle.services().list(None).await? {
        for id in service.instances.iter().filter_map(|it| it.process) {
            let record = handle.processes().get(id).await?;
            if record.ended.is_none() || record.phase != Phase::Exited {
                found.push((service.name.clone(), record));
            }
        }
    }
    Ok(found)
}

/// Returns whether a process has ended and its tree was killed, but may have members.
fn is_doubtful(record: &RecordView) -> bool {
    record.end.is_some()
        && record.stop.is_some_and(|stop| stop.tree && stop.killed)
        && record.stuck.is_some_and(|stuck| stuck.unkillable == 0 && stuck.unknown > 0)
}

/// Stops all launched processes, each with its tree and within its grace period, and waits until they have ended.
async fn stop_all(processes: &Processes) -> Result<(), ProcessError> {
    loop {
        let ids: Vec<ProcessId> = launched(processes).await?.iter().map(|it| it.1.id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        tracing::info!(processes = ids.len(), "stopping processes");
        for id in &ids {
            let how = Stop { tree: true, ..Stop::default() };
            // An error is ignored: the process may have ended meanwhile.
            drop(processes.stop(*id, how).await);
        }
        for id in ids {
            processes.ended(id).await?;
        }
    }
}

/// Returns the live processes that the coordinator launched, with their types. The others are only watched by it, and it must not stop them.
/// Those whose launch is deferred stay queued.
async fn launched(processes: &Processes) -> Result<Vec<(String, RecordView)>, ProcessError> {
    let mut found = Vec::new();
    let mut selection = Selection {
        phases: vec![Phase::Queued, Phase::Running, Phase::Stopping],
        most: Query::MOST,
        ..Selection::default()
    };
    loop {
        let (records, next) = processes.list(selection.clone()).await?;
        let launched = records.into_iter().filter(|it| it.launched && it.deferred.is_none());
        found.extend(launched.map(|it| (it.kind.clone(), it)));
        if next.is_none() {
            return Ok(found);
        }
        selection.after = next;
    }
}
