//! Why a process could not be started. Stored: see the change rule in `persist/format.rs`.

use serde::{Deserialize, Serialize};

/// The reason why a process could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The step that failed.
    pub step: Step,
    /// The kernel's error number; 0 if the kernel did not report the failure.
    pub errno: i32,
    /// What the step failed on, such as a path or a name, if known.
    pub about: Option<String>,
}

/// A step of a launch, as reported on failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Reaching the keeper, the process that launches commands for the server: none is running, or it cannot be started or reached.
    Keeper,
    /// Creating its directory (`DATA/run/ID`) or a file in that directory.
    Files,
    /// Opening an output file.
    Output,
    /// Building its environment: a secret is missing, or a file cannot be read.
    Environment,
    /// Finding the parcel: the streams and environment that the client should have handed to the keeper.
    Parcel,
    /// Creating a new process.
    Fork,
    /// Creating its control group.
    Group,
    /// Changing to its working directory.
    Directory,
    /// Switching to its user and groups.
    User,
    /// Setting its limits.
    Limits,
    /// Executing the program: it does not exist, is not executable, lacks its interpreter, or has too many arguments.
    Exec,
    /// No step was begun, because the server that requested the launch had exited by then.
    Abandoned,
    /// No step was begun, because the process was stopped while its launch was deferred.
    Cancelled,
}

impl Failure {
    /// Returns the reason why a process whose launch was deferred is never started: it was stopped.
    pub const fn cancelled() -> Self {
        Self { step: Step::Cancelled, errno: 0, about: None }
    }

    /// Returns whether the process was stopped while its launch was deferred, rather than that its launch failed.
    pub fn is_cancellation(&self) -> bool {
        self.step == Step::Cancelled
    }
}

impl Step {
    /// Returns its stable name, for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keeper => "keeper",
            Self::Files => "files",
            Self::Output => "output",
            Self::Environment => "environment",
            Self::Parcel => "parcel",
            Self::Fork => "fork",
            Self::Group => "group",
            Self::Directory => "directory",
            Self::User => "user",
            Self::Limits => "limits",
            Self::Exec => "exec",
            Self::Abandoned => "abandoned",
            Self::Cancelled => "cancelled",
        }
    }
}
