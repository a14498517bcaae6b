//! What is shown of services.

use crate::actors::process::service::definition::Policy;
use crate::actors::process::service::item::Last;
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::ids::ProcessId;
use serde::{Deserialize, Serialize};

/// How a service stands, or one of its processes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is down, and is to be.
    #[default]
    Stopped,
    /// It has done what it was to do.
    Finished,
    /// It runs.
    Running,
    /// It waits until others run.
    Waiting,
    /// It is being launched, or is not ready yet.
    Starting,
    /// It is being stopped.
    Stopping,
    /// It ended, and is launched again when the wait is over.
    Backoff,
    /// It ended badly, and is not launched again by itself.
    Failed,
}

impl Status {
    /// All of them. Of the processes of a service, the last here that one of them has is that of the service.
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

    /// Its name.
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

/// A service, to be shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServiceView {
    /// Its name.
    pub name: String,
    /// How it stands.
    pub status: Status,
    /// Whether it is to be up.
    pub wanted: bool,
    /// Whether the configuration has it.
    pub listed: bool,
    /// Program and arguments, secrets masked.
    pub argv: Vec<Bytes>,
    /// When it is launched again.
    pub restart: Policy,
    /// Services that are to run before it is started.
    pub after: Vec<String>,
    /// Of those, the ones that it waits for.
    pub waits_for: Vec<String>,
    /// Its processes.
    pub instances: Vec<InstanceView>,
}

/// A process of a service, to be shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceView {
    /// Its number, from 1.
    pub number: usize,
    /// How it stands.
    pub status: Status,
    /// Its process.
    pub process: Option<ProcessId>,
    /// The PID of that, once it is known.
    pub pid: Option<u32>,
    /// When that started.
    pub started: Option<Date>,
    /// What that says it does.
    pub said: Option<String>,
    /// Restarts of late, as far back as the intensity looks.
    pub restarts: usize,
    /// When it is launched again.
    pub next: Option<Date>,
    /// How the process before ended.
    pub last: Option<Last>,
    /// The directory of its files.
    pub run_dir: String,
}
