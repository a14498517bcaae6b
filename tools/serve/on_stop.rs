//! Stops the services on a clean stop of the coordinator and, if it is PID 1, all other processes that it launched. Processes that
//! are still running when PID 1 ends are killed by the kernel.

use crate::serve::signals::{SignalRequest, Signals};
use crate::settings::OnStop;
use sexton::actors::process::{Phase, Query, Selection};
use sexton::handle::{ProcessError, Processes, Stopping as Stop};
use sexton::ids::ProcessId;
use sexton::node::Handle;
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
    /// have exited, for at most [`TIMEOUT`]. Does nothing with `--on-stop leave`. Another stop signal or a halt ends the wait: services
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
            match services.settled(None).await {
                Ok(()) => tracing::info!("services stopped"),
                Err(error) => tracing::error!(%error, "failed to wait for the services"),
            }
        }
        if self.is_init
            && let Err(error) = stop_all(&handle.processes()).await
        {
            tracing::error!(%error, "failed to stop the processes");
        }
    }
}

/// Stops all launched processes, each with its tree and within its grace period, and waits until they have ended.
async fn stop_all(processes: &Processes) -> Result<(), ProcessError> {
    loop {
        let ids = launched(processes).await?;
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

/// Returns the live processes that the coordinator launched. The others are only watched by it, and it must not stop them. Those whose
/// launch is deferred stay queued.
async fn launched(processes: &Processes) -> Result<Vec<ProcessId>, ProcessError> {
    let mut ids = Vec::new();
    let mut selection = Selection {
        phases: vec![Phase::Queued, Phase::Running, Phase::Stopping],
        most: Query::MOST,
        ..Selection::default()
    };
    loop {
        let (records, next) = processes.list(selection.clone()).await?;
        let launched = records.iter().filter(|it| it.launched && it.deferred.is_none());
        ids.extend(launched.map(|it| it.id));
        if next.is_none() {
            return Ok(ids);
        }
        selection.after = next;
    }
}
