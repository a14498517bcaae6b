//! The views of services.

use crate::actors::process::service::definition::Policy;
use crate::actors::process::service::item::Last;
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::ids::ProcessId;
use crate::spine::supervision::Intensity;
use serde::{Deserialize, Serialize};

/// The status of a service, or of one of its processes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is down because it was stopped or never started.
    #[default]
    Stopped,
    /// It exited successfully, and is not launched again automatically.
    Finished,
    /// It is running.
    Running,
    /// It is waiting for the services it depends on.
    Waiting,
    /// It is being launched, or is not ready yet.
    Starting,
    /// It is being stopped, or has announced that it is about to end.
    Stopping,
    /// It has ended, and will be launched again after a restart delay.
    Backoff,
    /// It has failed, and will not be launched again automatically.
    Failed,
}

impl Status {
    /// All statuses, in ascending order. The status of a service is the highest among those of its processes.
    pub const ALL: [Self; 8] = [
        Self::Stopped,
        Self::Finished,
        Self::Running,
        Self::Waiting,
        Self::Starting,
        Self::Stopping,
        Self::Backoff,
        Self::Failed,
    ];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Finished => "finished",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Stopping => "stopping",
            Self::Backoff => "backoff",
            Self::Failed => "failed",
        }
    }
}

/// The view of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServiceView {
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: Status,
    /// Whether it should be up.
    pub wanted: bool,
    /// Whether it is configured.
    pub listed: bool,
    /// Program and arguments, with secrets masked.
    pub argv: Vec<Bytes>,
    /// The policy that decides whether a process is launched again after its end.
    pub restart: Policy,
    /// The limit on restarts, beyond which a process counts as failed; `None` for no limit.
    pub intensity: Option<Intensity>,
    /// The services that must be ready, or have finished, before it is started.
    pub after: Vec<String>,
    /// The services in `after` that it is waiting for.
    pub waits_for: Vec<String>,
    /// Its processes.
    pub instances: Vec<InstanceView>,
}

/// The view of an instance of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceView {
    /// Its instance number, from 1.
    pub number: usize,
    /// Its status.
    pub status: Status,
    /// The id of its process; `None` if it has none.
    pub process: Option<ProcessId>,
    /// The PID of the process, once known.
    pub pid: Option<u32>,
    /// When the process started; `None` if it has not started.
    pub started: Option<Date>,
    /// The latest status text that the process sent, if any.
    pub said: Option<String>,
    /// The number of restarts within the period of the intensity (the limit on restarts); 0 if there is no limit.
    pub restarts: usize,
    /// When it will be launched again, if it waits for a restart delay.
    pub next: Option<Date>,
    /// How its previous process ended; `None` if it had none.
    pub last: Option<Last>,
    /// The directory that contains its files, relative to the data directory.
    pub run_dir: String,
}
