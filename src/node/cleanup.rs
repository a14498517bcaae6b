//! Removes the directories of processes that have no record. Directories left over, for example after a crash, are found by a sweep at
//! startup and then periodically.

use crate::actors::process::Refused;
use crate::handle::{Handle, ProcessError};
use crate::ports::process::files::{self, RUN};
use crate::spine::runtime;
use std::path::Path;
use std::time::Duration;
use tokio::time::interval;

/// The interval between two sweeps.
const EVERY: Duration = Duration::from_mins(10);

/// Starts to sweep periodically, until the node stops. What a sweep could not do is logged, and the next one tries again.
pub(super) fn start(handle: &Handle, data: Option<&Path>) {
    // Without a data directory no process is launched.
    let Some(data) = data else { return };
    let (handle, run) = (handle.clone(), data.join(RUN));
    runtime::spawn("removal of old run directories", async move {
        let mut each = interval(EVERY);
        loop {
            each.tick().await;
            if let Err(error) = sweep(&handle, &run).await {
                tracing::warn!(%error, "failed to remove the directories of processes that are gone");
            }
        }
    });
}

/// Why a sweep ended early.
#[derive(Debug, thiserror::Error)]
enum SweepError {
    #[error(transparent)]
    Files(#[from] tokio::task::JoinError),
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// Sweeps once.
///
/// # Errors
/// Returns an error if a file operation panicked, or if looking up the record of a process failed.
async fn sweep(handle: &Handle, run: &Path) -> Result<(), SweepError> {
    let folder = run.to_owned();
    let found = tokio::task::spawn_blocking(move || files::dirs(&folder));
    for id in found.await? {
        match handle.processes().get(id).await {
            Ok(_) => {}
            // A record is on disk before its directory is created, so a directory without a record is a leftover.
            Err(ProcessError::Refused(Refused::Unknown)) => {
                let dir = run.join(id.to_string());
                let removed = tokio::task::spawn_blocking(move || files::remove_dir(&dir));
                removed.await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
