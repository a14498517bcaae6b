//! The state of servers and groups. These types are stored: see the change rule in `persist/format.rs`.

use crate::actors::dispatch::remote::Remote;
use crate::actors::lock::Name;
use crate::clock::Timestamp;
use crate::ids::ProcessId;
use crate::lookup::durable::{Plain, Single};
use serde::{Deserialize, Serialize};

/// A server on which tasks run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// The name.
    pub name: Name,
    /// The maximum number of attempts that run on the server at a time.
    pub threads: u32,
    /// Whether tasks are assigned to the server. Only an operator disables a server, and only an operator enables it again.
    pub enabled: bool,
    /// Whether the server is being removed; it disappears when its last attempt has ended.
    pub leaves: bool,
    /// How the server is reached, if it is another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
    /// The latest failures to reach the server; `None` once it was reached again. Only another machine has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<Outage>,
}

/// The failures to reach a server since it was last reached. Such a server gets an attempt only if no other server has a free thread, only
/// one at a time, and not before `retry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// The number of failures. Attempts that were claimed before a failure was noticed do not count again.
    pub failures: u32,
    /// When the first failure was noticed.
    pub since: Timestamp,
    /// When the latest failure was noticed.
    pub latest: Timestamp,
    /// When the server may be tried again.
    pub retry: Timestamp,
    /// The local process of the latest failed attempt, whose output has the reason.
    pub process: ProcessId,
}

impl Outage {
    /// The pause after the first failure, in milliseconds. It doubles with each further failure.
    const PAUSE_MS: u64 = 1000;
    /// The longest pause, in milliseconds.
    const PAUSE_MS_MAX: u64 = 60_000;

    /// Returns the outage after one more failure, noticed at `now`.
    pub(super) fn after(before: Option<Self>, now: Timestamp, process: ProcessId) -> Self {
        let failures = before.map_or(0, |it| it.failures);
        let pause = (Self::PAUSE_MS << failures.min(16)).min(Self::PAUSE_MS_MAX);
        Self {
            failures: failures.saturating_add(1),
            since: before.map_or(now, |it| it.since),
            latest: now,
            retry: now.plus_ms(pause),
            process,
        }
    }
}

impl Server {
    /// The name of the server that stands for the coordinator's own machine. It is created with the first task if no server has ever
    /// existed.
    pub const LOCAL: &'static str = "local";
    /// The maximum number of threads of one server.
    pub const THREADS_MAX: u32 = 10_000;
}

impl Plain for Server {
    const KIND: u8 = 1;
}

/// The settings of a group. Groups without settings use the defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The name.
    pub name: Name,
    /// The maximum number of tasks in progress, that is, between their first burst and their end; if 0, no task is started. `None` means
    /// the configured default.
    pub max: Option<u32>,
    /// Which bursts of the group are paused.
    pub pause: Pause,
}

impl Group {
    /// Wip's default for the maximum number of tasks in progress in a group.
    pub const MAX: u32 = 3;
    /// The name of the group that a task belongs to if it is added without one.
    pub const DEFAULT: &'static str = "default";

    /// Resolves the name of a group: an empty name means [`Self::DEFAULT`].
    pub fn resolve(name: &Name) -> Name {
        if name.as_bytes().is_empty() {
            Name::try_from(Self::DEFAULT).unwrap_or_default()
        } else {
            name.clone()
        }
    }
}

impl Plain for Group {
    const KIND: u8 = 2;
}

/// Which bursts are paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pause {
    /// Nothing is paused.
    #[default]
    Off,
    /// Tasks that have not started are paused. Tasks that have started continue to their end.
    Soft,
    /// No burst begins.
    Hard,
}

impl Pause {
    /// Returns the name of this value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Soft => "soft",
            Self::Hard => "hard",
        }
    }
}

/// The state that does not belong to any one task, server or group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// When heartbeat intervals were last restarted, which happens at each startup of the coordinator.
    pub(super) epoch: Timestamp,
    /// The pause that applies to all tasks.
    pub(super) pause: Pause,
    /// Whether a server has ever existed.
    pub(super) had_servers: bool,
    /// Whether no burst begins until the next startup, because the coordinator is draining.
    pub(super) rests: bool,
}

impl Single for Head {
    fn canonical(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(b"dispatch");
        bytes.extend_from_slice(&self.epoch.0.to_le_bytes());
        bytes.push(self.pause as u8);
        bytes.push(self.had_servers.into());
        bytes.push(self.rests.into());
    }
}
