//! How a right (a lock or a lease, for example) is tied to the process that holds it: the messages between the actors that grant rights and
//! the `ProcessActor`.
//!
//! When a right is bound to a process, the actor that granted it asks the `ProcessActor` to watch the process ([`Watch`]), and repeats this
//! request whenever `Machine::resume` is called, for example after a startup. The `ProcessActor` sends an [`EndNotice`] when the process,
//! or its whole tree, has ended. If that has already happened, or if the process has no record, it sends the notice immediately. Both
//! messages are upserts: if a crash loses one, it is sent again after the next startup.
//!
//! Change rule: these types are part of stored messages, see `persist/format.rs`.

use crate::ids::{ActorId, ProcessId};
use crate::spine::effect::To;
use serde::{Deserialize, Serialize};
use sexton_api::binding::Extent;
use std::fmt;

/// How long a right that is bound to a process lasts.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// Until the process itself has ended.
    #[default]
    Process,
    /// Until the whole tree has ended: the process, everything it started, and every process whose record is a descendant of its record.
    Tree,
}

impl From<Extent> for Until {
    fn from(extent: Extent) -> Self {
        match extent {
            Extent::Process => Self::Process,
            Extent::Tree => Self::Tree,
        }
    }
}

impl From<Until> for Extent {
    fn from(until: Until) -> Self {
        match until {
            Until::Process => Self::Process,
            Until::Tree => Self::Tree,
        }
    }
}

/// The binding of a right to a process: the right ends when the process, or its whole tree, has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Binding {
    /// The id of the process record.
    pub process: ProcessId,
    /// How much of the process tree must end before the right does.
    pub until: Until,
    /// Whether, after the right has expired, it is granted to another holder only once the process tree has been stopped and its end
    /// confirmed.
    pub fence: bool,
}

/// A request from an actor to be notified when a process, or its whole tree, has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// The actor to notify.
    pub by: ActorId,
    /// The process to watch.
    pub process: ProcessId,
    /// How much of the process tree must end before the notification is sent.
    pub until: Until,
}

/// How a process ended, in as much detail as its watchers need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// Exited with this code.
    Code(u8),
    /// Killed by this signal.
    Signal(u8),
    /// Ended in a way that can no longer be determined.
    Lost,
    /// Could not be started.
    Failed,
}

/// Formats the end for users, for example as `exit 3`.
impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Lost => f.write_str("lost"),
            Self::Failed => f.write_str("failed to start"),
        }
    }
}

/// A notification that a process, or its whole tree, has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndNotice {
    /// The process.
    pub process: ProcessId,
    /// How much of the process tree has ended.
    pub until: Until,
    /// How the process itself ended; `None` if it has no record.
    #[serde(default)]
    pub exit: Option<Exit>,
    /// The PID of the process; `None` if it never had one, or has no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

impl EndNotice {
    /// Returns whether this notification ends a right that lasts until `until`.
    pub const fn ends(self, until: Until) -> bool {
        matches!((self.until, until), (Until::Tree, _) | (Until::Process, Until::Process))
    }
}

/// A request to the `ProcessActor`. The variants mirror those of the same name in `process::Message`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToProcesses {
    /// Notify an actor when a process, or its whole tree, has ended.
    Watch(Watch),
    /// Stop the process with its tree (its stop signal, then SIGKILL after its grace period), because a right bound to it has ended.
    Fence(ProcessId),
}

/// A notification from the `ProcessActor`. The variants mirror those of the same name in the message type of each actor that grants rights.
/// Only an actor that launches processes (`process::LaunchAs`) receives `Launched`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToHolder {
    /// A watched process, or its whole tree, has ended; or a launch was declined ([`Exit::Failed`]).
    Gone(EndNotice),
    /// The launch was accepted, and the process has a record.
    Launched(ProcessId),
    /// The process has started. Sent at most once, and only to the `LeaseActor`, which counts the period of a pass from then; if it is lost
    /// in a crash, the period is counted from the end of the pass.
    Started(ProcessId),
}

/// The address for [`ToProcesses`] messages.
pub const PROCESSES: To<ToProcesses> = To::new(ActorId::PROCESS);

/// Returns the address at which `actor` receives [`ToHolder`] notifications.
pub const fn holder(actor: ActorId) -> To<ToHolder> {
    To::new(actor)
}
