//! The environment of the port.

use crate::actors::dispatch::Task;
use crate::actors::process::{Failure, Spec};
use crate::ids::ProcessId;
use crate::ports::process::faults::Faults;
use crate::ports::process::files;
use crate::ports::process::link::{self, KeeperProgram};
use crate::ports::process::observed::Observed;
use crate::ports::process::reporting::{self, Reporting};
use crate::ports::process::unread::Unread;
use std::path::{Path, PathBuf};

/// The environment of the port: directories, programs and options.
#[derive(Clone, Debug)]
pub struct Place {
    /// The data directory. Without one, no process is launched.
    pub data: Option<PathBuf>,
    /// The program to run as the keeper.
    pub keeper: KeeperProgram,
    /// Whether this process inherits orphans and must reap them.
    pub is_init: bool,
    /// The observations that the status of the node reports.
    pub observed: Observed,
    /// The notices that the actor has yet to handle.
    pub unread: Unread,
    /// The socket and key for the reports of processes that work on tasks; `None` without a data directory.
    pub reporting: Option<Reporting>,
    /// The faults that tasks have requested; `None` if the configuration does not allow tasks to request faults.
    pub faults: Option<Faults>,
}

impl Place {
    /// Returns whether a keeper may be running, started by this coordinator or an earlier one.
    pub(super) fn may_have_keeper(&self) -> bool {
        let socket = self.data.as_ref().map(|data| data.join(crate::keeper::SOCKET));
        socket.is_some_and(|socket| socket.exists())
    }

    /// Returns the environment variables with which a process reports on a task; none if its spec does not request them.
    pub(super) fn reports(&self, id: ProcessId, spec: &Spec) -> Vec<(&'static str, Vec<u8>)> {
        let reports = spec.secrets.iter().any(|name| name == Task::SECRET);
        let Some(reporting) = self.reporting.as_ref().filter(|_| reports) else {
            return Vec::new();
        };
        let socket = files::bytes_of(reporting.socket()).as_bytes().to_vec();
        vec![(Task::SECRET, reporting.secret(id).into_bytes()), (reporting::ADDRESS, socket)]
    }

    /// Returns the data directory, or the failure of a launch if no process can be launched.
    pub(super) fn data(&self) -> Result<&Path, Failure> {
        let data = self.data.as_deref();
        data.filter(|_| self.keeper != KeeperProgram::None).ok_or_else(link::none)
    }
}
