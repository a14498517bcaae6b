//! The state of one service. Stored: see the change rule in `persist/format.rs`.

use crate::actors::process::message::{End, Failure, Launching};
use crate::actors::process::record::Cause;
use crate::actors::process::service::definition::Definition;
use crate::actors::process::spec::Parentage;
use crate::clock::{Date, Timestamp};
use crate::ids::{ProcessId, Seq};
use crate::lookup::durable::Plain;
use serde::{Deserialize, Serialize};

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Its current definition, or the last one if it is no longer configured.
    pub definition: Definition,
    /// Whether it is configured. A service that is no longer configured is stopped, then removed.
    pub listed: bool,
    /// Whether it should be up: at first as configured by `autostart`, later as requested by users.
    pub wanted: bool,
    /// Whether it must be down because the server is shutting down. Reset when the configuration is applied at the next startup, or when a
    /// user starts the service.
    pub held: bool,
    /// The last entry that required its processes to be replaced, such as a restart: those launched before it are stopped.
    pub revision: Seq,
    /// Its instances, indexed by number. There may be more than the definition specifies, until the processes of the excess ones have
    /// ended.
    pub instances: Vec<Instance>,
}

/// An instance of a service. It has at most one process at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Its process, from the launch until its end.
    pub process: Option<ProcessId>,
    /// The entry that launched its current or most recent process.
    pub launched: Seq,
    /// The earliest time of its next launch; `None` if it need not wait.
    pub next: Option<Timestamp>,
    /// The times of its restarts within the period of the intensity.
    pub restarts: Vec<Timestamp>,
    /// The number of consecutive restarts after short runs. The next delay depends on it.
    pub series: u32,
    /// Why it is not launched again automatically; `None` if it may be launched.
    pub verdict: Option<Verdict>,
    /// How its previous process ended.
    pub last: Option<Last>,
}

/// Why a process is not launched again automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It exited successfully.
    Finished,
    /// It failed and its policy forbids a restart, or it reached the limit on restarts.
    Failed,
}

/// How a process of a service ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Last {
    /// The id of its record, which may have been removed.
    pub process: ProcessId,
    /// When it ended.
    pub at: Date,
    /// How it ended; `None` if it could not be started.
    pub end: Option<End>,
    /// Why it could not be started; `None` if it was started.
    pub failure: Option<Failure>,
    /// Why it was stopped, if it was.
    #[serde(default)]
    pub stopped_by: Option<Cause>,
}

impl Service {
    /// Creates a new service.
    pub(super) fn new(definition: Definition, entry: Seq) -> Self {
        let mut service = Self {
            listed: true,
            wanted: definition.autostart,
            held: false,
            revision: entry,
            instances: Vec::new(),
            definition,
        };
        service.resize();
        service
    }

    /// Returns whether it should be up now.
    pub(super) const fn is_up(&self) -> bool {
        self.listed && self.wanted && !self.held
    }

    /// Returns the number of processes it should have when it is up.
    pub(super) fn size(&self) -> usize {
        self.definition.instances.into()
    }

    /// Returns whether the process of an instance must be stopped: the service should be down, or the instance is excess or outdated.
    pub(super) fn is_to_end(&self, nth: usize) -> bool {
        let outdated = self.instances.get(nth).is_some_and(|it| it.launched < self.revision);
        !self.is_up() || nth >= self.size() || outdated
    }

    /// Returns whether one of its processes must be stopped, but has not ended yet.
    pub(super) fn is_ending(&self) -> bool {
        let mut all = self.instances.iter().enumerate();
        all.any(|(nth, it)| it.process.is_some() && self.is_to_end(nth))
    }

    /// Returns the launch request for the process of an instance.
    pub(super) fn launching(&self, nth: usize) -> Launching {
        Launching {
            spec: self.definition.spec_of(nth),
            tags: self.definition.tags_of(nth),
            parentage: Parentage::default(),
            deferred: false,
        }
    }

    /// Returns whether it has no process.
    pub(super) fn is_empty(&self) -> bool {
        self.instances.iter().all(|it| it.process.is_none())
    }

    /// Resizes the list of instances to the number in the definition. Excess instances are removed only after their processes have ended.
    pub(super) fn resize(&mut self) {
        let size = self.size();
        while self.instances.len() > size
            && self.instances.last().is_some_and(|it| it.process.is_none())
        {
            self.instances.pop();
        }
        if self.instances.len() < size {
            self.instances.resize_with(size, Instance::default);
        }
    }

    /// Resets the delays, restart counts and verdicts of all instances, so that those without a process may be launched at once.
    pub(super) fn reset(&mut self) {
        for it in &mut self.instances {
            (it.next, it.series, it.verdict) = (None, 0, None);
            it.restarts.clear();
        }
    }
}

impl Instance {
    /// Returns whether its previous process could not be launched, and it waits for the next attempt.
    pub(super) fn could_not_be_launched(&self) -> bool {
        let failed = |last: &Last| last.failure.is_some();
        self.process.is_none() && self.next.is_some() && self.last.as_ref().is_some_and(failed)
    }
}

impl Plain for Service {
    const KIND: u8 = 3;
    const SLOTS: u32 = 2;
}
