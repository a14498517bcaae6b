//! Refreshes the list of servers through the lease named [`REFRESH`], whose command supplies an inventory
//! (`sexton server update`).

use super::{Handle, LeaseError, Requested, TaskError};
use crate::actors::lease::PassRequest;
use crate::actors::lock::Name;
use crate::spine::runtime::Stopped;
use std::time::Duration;

/// The lease whose passes bring the servers in line with an inventory. Nothing is refreshed while it does not exist.
pub const REFRESH: &str = "server-refresh";

/// The minimum interval between two requests made by the node itself.
const PAUSE: Duration = Duration::from_secs(1);

impl Handle {
    /// Requests a pass of the lease [`REFRESH`]. To be called when a server has come online or is thought to be gone.
    ///
    /// # Errors
    /// Returns [`LeaseError::Absent`] if there is no such lease, or [`LeaseError::Refused`] if the request is refused.
    pub async fn refresh_servers(&self) -> Result<Requested, LeaseError> {
        let name = Name::try_from(REFRESH).expect("the name should be short");
        let leases = self.leases();
        // Without this query, a lease that does not exist would be reported as one that has no command.
        leases.get(&name).await?;
        leases.request(PassRequest { name, ..PassRequest::default() }).await
    }

    /// Requests a refresh whenever the list of servers may be out of date: when an attempt could not be launched or its server is lost, and
    /// while tasks could run but no server is enabled. Does so at most once a second; the lease's period limits how often a pass begins.
    /// Returns when the node has stopped or halted.
    pub async fn keep_servers_fresh(&self) -> Stopped {
        let tasks = self.tasks();
        let mut has_warned = false;
        loop {
            // Both are awaited together, so that nothing that happens during the pause is missed.
            let (paused, wanted) = tokio::join!(self.pause(PAUSE), tasks.servers_wanted());
            if paused.is_err() || matches!(wanted, Err(TaskError::Stopped(_))) {
                return Stopped;
            }
            match self.refresh_servers().await {
                Ok(_) | Err(LeaseError::Absent) => has_warned = false,
                Err(LeaseError::Stopped(stopped)) => return stopped,
                Err(error @ (LeaseError::Refused(_) | LeaseError::Failed(_))) => {
                    if !std::mem::replace(&mut has_warned, true) {
                        tracing::warn!(lease = REFRESH, %error, "could not refresh the servers");
                    }
                }
            }
        }
    }
}
