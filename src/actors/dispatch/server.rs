//! What is known of servers and of groups. Stored: see the change rule in `persist/format.rs`.

use crate::actors::dispatch::remote::Remote;
use crate::actors::lock::Name;
use crate::clock::Timestamp;
use crate::lookup::kept::{Plain, Single};
use serde::{Deserialize, Serialize};

/// Where tasks run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its name.
    pub name: Name,
    /// How many attempts run there at a time.
    pub threads: u32,
    /// Whether tasks are given to it. Only an operator says otherwise, and only an operator takes that back.
    pub enabled: bool,
    /// Whether it was removed, and goes when its last attempt has ended.
    pub leaves: bool,
    /// How it is reached, if it is another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
}

impl Server {
    /// The server that is made with the first task, if there is none: the coordinator's own machine.
    pub const LOCAL: &'static str = "local";
    /// The most threads of one server.
    pub const THREADS_MAX: u32 = 10_000;
}

impl Plain for Server {
    const KIND: u8 = 1;
}

/// What was set for a group. Others have what is usual.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its name.
    pub name: Name,
    /// How many of its tasks are under way at a time, from their first burst to their last; none if 0. As the configuration
    /// has it for groups of which nothing is said, if `None`.
    pub max: Option<u32>,
    /// Whether none of its tasks is started, and no burst begins.
    pub pause: Pause,
}

impl Group {
    /// Wip's: how many tasks of a group are under way at a time.
    pub const MAX: u32 = 3;
    /// The group of a task that names none.
    pub const DEFAULT: &'static str = "default";

    /// The group that is meant by a name: that of tasks that name none, if it is empty.
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

/// What is held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pause {
    /// Nothing.
    #[default]
    Off,
    /// Tasks that have not started. Those that have go on to their end.
    Soft,
    /// Every burst that has not begun.
    Hard,
}

impl Pause {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Soft => "soft",
            Self::Hard => "hard",
        }
    }
}

/// What there is but once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// When spans began again last: the newest start of the coordinator.
    pub(super) epoch: Timestamp,
    /// What is held back of all tasks.
    pub(super) pause: Pause,
    /// Whether there ever was a server.
    pub(super) had_servers: bool,
    /// Whether no burst begins until the next start, since the coordinator drains.
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
