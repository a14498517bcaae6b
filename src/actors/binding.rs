//! How a right is tied to the process that holds it: what the actors that keep rights say to the `ProcessActor`, and what
//! it says to them.
//!
//! A holder of rights states which processes it watches ([`Watch`]): with the entry that binds something, and all of them
//! again with every `resume`. The `ProcessActor` says when one is gone ([`Gone`]), at once if it is so already. Both are
//! upserts, so that each may be lost to a crash and is made good by the next start.
//!
//! Change rule: these are parts of stored messages, see `persist/format.rs`.

use crate::ids::{ActorId, ProcessId};
use crate::spine::effect::To;
use serde::{Deserialize, Serialize};

/// How long a right lasts that is bound to a process.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// Until the process itself has ended.
    #[default]
    Process,
    /// Until nothing of its tree lives either: what it started, and what has a record below it.
    Tree,
}

/// What ties a right to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Binding {
    /// The process, by its record.
    pub process: ProcessId,
    /// How much of it has to end.
    pub until: Until,
    /// Whether its tree is killed, and proved gone, before the right passes on when its time runs out.
    pub fence: bool,
}

/// An actor wants to know when a process is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// Which actor.
    pub by: ActorId,
    /// Which process.
    pub process: ProcessId,
    /// How much of it has to end.
    pub until: Until,
}

/// How a process ended, as far as its watchers care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// By itself, with this code.
    Code(u8),
    /// By this signal.
    Signal(u8),
    /// Nobody can know how.
    Lost,
    /// It could not be started.
    Failed,
}

/// A process is gone, or its whole tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// Which.
    pub process: ProcessId,
    /// How much of it.
    pub until: Until,
    /// How the process itself ended. `None` if there is no record of it any more.
    #[serde(default)]
    pub exit: Option<Exit>,
}

impl Gone {
    /// Whether what lasts until then has ended.
    pub const fn ends(self, until: Until) -> bool {
        matches!(
            (self.until, until),
            (Until::Tree, _) | (Until::Process, Until::Process)
        )
    }
}

/// What is said to the `ProcessActor`: variants of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToProcesses {
    /// Say when it is gone.
    Watch(Watch),
    /// Stop its tree: the right that it has is over.
    Fence(ProcessId),
}

/// What the `ProcessActor` says: a variant of the message of each actor that keeps rights. Only an actor that launches
/// (`process::LaunchAs`) is told of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToHolder {
    /// It is gone.
    Gone(Gone),
    /// Its launch is taken on: there is a record of it.
    Launched(ProcessId),
}

/// Where processes are watched.
pub const PROCESSES: To<ToProcesses> = To::new(ActorId::PROCESS);

/// Where an actor hears that a process is gone.
pub const fn holder(actor: ActorId) -> To<ToHolder> {
    To::new(actor)
}
