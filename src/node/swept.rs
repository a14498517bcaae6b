//! Directories of processes go when their records have gone. What a record's removal leaves, also through a crash, is found by
//! looking for it: at a start, and now and then.

use crate::actors::process::Refused;
use crate::handle::{Handle, ProcessError};
use crate::ports::process::files::{self, RUN};
use crate::spine::runtime;
use std::path::Path;
use std::time::Duration;
use tokio::time::interval;

/// How often it is looked for.
const EVERY: Duration = Duration::from_mins(10);

/// Removes what no record has any more, as long as the node runs.
pub(super) fn start(handle: &Handle, data: Option<&Path>) {
    // Without a directory nothing is launched.
    let Some(data) = data else { return };
    let (handle, run) = (handle.clone(), data.join(RUN));
    runtime::spawn(async move {
        let mut each = interval(EVERY);
        loop {
            each.tick().await;
            if sweep(&handle, &run).await.is_none() {
                return;
            }
        }
    });
}

/// Looks once; none if nobody can be asked.
async fn sweep(handle: &Handle, run: &Path) -> Option<()> {
    let folder = run.to_owned();
    let found = tokio::task::spawn_blocking(move || files::dirs(&folder));
    for id in found.await.ok()? {
        match handle.processes().get(id).await {
            Ok(_) => {}
            // A record stands on disk before its directory is made: without one, it has gone.
            Err(ProcessError::Refused(Refused::Unknown)) => {
                let dir = run.join(id.to_string());
                let removed = tokio::task::spawn_blocking(move || files::remove_dir(&dir));
                removed.await.ok()?;
            }
            Err(_) => return None,
        }
    }
    Some(())
}
