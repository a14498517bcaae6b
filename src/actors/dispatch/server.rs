//! The state of servers and groups. Stored: see the change rule in `persist/format.rs`.

use crate::actors::dispatch::remote::Remote;
use crate::actors::lock::Name;
use crate::clock::Timestamp;
use crate::lookup::kept::{Plain, Single};
use serde::{Deserialize, Serialize};

/// A server on which tasks run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its name.
    pub name: Name,
    /// The number of attempts that run there at a time.
    pub threads: u32,
    /// Whether tasks are assigned to it. Only an operator disables a server, and only an operator enables it again.
    pub enabled: bool,
    /// Whether it was removed; it disappears when its last attempt has ended.
    pub leaves: bool,
    /// How it is reached, if it is another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
}

impl Server {
    /// The server that is created with the first task if there is none: the coordinator's own machine.
    pub const LOCAL: &'static str = "local";
    /// The most threads of one server.
    pub const THREADS_MAX: u32 = 10_000;
}

impl Plain for Server {
    const KIND: u8 = 1;
}

/// The settings of a group. Groups without settings use the defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its name.
    pub name: Name,
    /// The most tasks under way at a time, from their first burst to their last; if 0, none is started. `None` means the configured
    /// default.
    pub max: Option<u32>,
    /// The pause in effect.
    pub pause: Pause,
}

impl Group {
    /// Wip's default for the most tasks of a group under way at a time.
    pub const MAX: u32 = 3;
    /// The group of a task that names none.
    pub const DEFAULT: &'static str = "default";

    /// Resolves the name of a group: the empty name means the group of tasks that name none.
    pub fn meant(name: &Name) -> Name {
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

/// The degree to which tasks are paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pause {
    /// Nothing is paused.
    #[default]
    Off,
    /// Tasks that have not started are paused. Others continue to their end.
    Soft,
    /// No burst begins.
    Hard,
}

impl Pause {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Soft => "soft",
            Self::Hard => "hard",
        }
    }
}

/// State that exists only once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// When spans last began again: at the most recent start of the coordinator.
    pub(super) epoch: Timestamp,
    /// The pause that applies to all tasks.
    pub(super) pause: Pause,
    /// Whether there ever was a server.
    pub(super) had_servers: bool,
    /// Whether no burst begins until the next start, since the coordinator is draining.
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
