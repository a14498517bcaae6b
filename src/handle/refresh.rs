//! Which servers there are, looked up again: by the lease of [`REFRESH`], whose command brings an inventory
//! (`sexton server update`).

use super::{Handle, LeaseError, Requested, TaskError};
use crate::actors::lease::Requesting;
use crate::actors::lock::Name;
use crate::spine::runtime::Stopped;
use std::time::Duration;

/// The lease whose passes bring the servers in line with an inventory. Nothing is looked up while there is none.
pub const REFRESH: &str = "server-refresh";

/// The least time between two requests that nobody but the node makes.
const PAUSE: Duration = Duration::from_secs(1);

impl Handle {
    /// Asks for a pass of the lease [`REFRESH`]: a server has come online, or is thought to be gone.
    ///
    /// # Errors
    /// [`LeaseError::Absent`] if there is no such lease, and why it is refused.
    pub async fn refresh_servers(&self) -> Result<Requested, LeaseError> {
        let name = Name::try_from(REFRESH).expect("it is short");
        let leases = self.leases();
        // A request would make one, which has no command.
        leases.get(&name).await?;
        leases
            .request(Requesting {
                name,
                ..Requesting::default()
            })
            .await
    }

    /// Asks for one whenever servers are wanted: when an attempt could not be launched or its server is lost, and while tasks
    /// could run and no server is enabled. At most once a second; the lease's period bounds how often one begins. Ends when the node does.
    pub async fn keep_servers_fresh(&self) -> Stopped {
        let tasks = self.tasks();
        let mut is_told = false;
        loop {
            // Together, so that what happens meanwhile is not passed over.
            let (paused, wanted) = tokio::join!(self.pause(PAUSE), tasks.servers_wanted());
            if paused.is_err() || matches!(wanted, Err(TaskError::Stopped(_))) {
                return Stopped;
            }
            match self.refresh_servers().await {
                Ok(_) | Err(LeaseError::Absent) => is_told = false,
                Err(LeaseError::Stopped(stopped)) => return stopped,
                Err(error @ (LeaseError::Refused(_) | LeaseError::Failed(_))) => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::warn!(lease = REFRESH, %error, "the servers are not refreshed");
                    }
                }
            }
        }
    }
}
