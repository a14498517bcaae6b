//! What is known of one service. Stored: see the change rule in `persist/format.rs`.

use crate::actors::process::message::{End, Failure, Launching};
use crate::actors::process::record::Cause;
use crate::actors::process::service::definition::Definition;
use crate::actors::process::spec::Parentage;
use crate::clock::{Date, Timestamp};
use crate::ids::{ProcessId, Seq};
use crate::lookup::kept::Plain;
use serde::{Deserialize, Serialize};

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// As the configuration has it, or had it last.
    pub definition: Definition,
    /// Whether the configuration has it. One that it no longer has is stopped, and then removed.
    pub listed: bool,
    /// Whether it is to be up: what the configuration said when it was new, and people since.
    pub wanted: bool,
    /// Whether it is down because the server is stopping. Ends with the next configuration, that of the next start.
    pub held: bool,
    /// The entry since which its processes are to be as they are now defined: older ones are replaced.
    pub revision: Seq,
    /// Its processes, by number. More than defined only while those that are too many end.
    pub instances: Vec<Instance>,
}

/// A process of a service, or the place of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Its process, from the launch until that has ended.
    pub process: Option<ProcessId>,
    /// The entry that launched it.
    pub launched: Seq,
    /// When it may be launched again.
    pub next: Option<Timestamp>,
    /// When it was to be launched again, as far back as the intensity looks.
    pub restarts: Vec<Timestamp>,
    /// Restarts in a row, each after a short run: what the next wait depends on.
    pub series: u32,
    /// Why it is not launched again by itself.
    pub verdict: Option<Verdict>,
    /// How the process before ended.
    pub last: Option<Last>,
}

/// Why a process is not launched again by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It has done what it was to do.
    Finished,
    /// It ended badly, and is not launched again, or was too often.
    Failed,
}

/// How a process of a service ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Last {
    /// Its record, which may have gone since.
    pub process: ProcessId,
    /// When.
    pub at: Date,
    /// How.
    pub end: Option<End>,
    /// Why it could not be started.
    pub failure: Option<Failure>,
    /// Why it was stopped, if it was.
    #[serde(default)]
    pub stopped_by: Option<Cause>,
}

impl Service {
    /// A service that is new.
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

    /// Whether it is to be up now.
    pub(super) const fn is_up(&self) -> bool {
        self.listed && self.wanted && !self.held
    }

    /// How many processes it should have when it is up.
    pub(super) fn size(&self) -> usize {
        self.definition.instances.into()
    }

    /// Whether the process of an instance is to end.
    pub(super) fn is_to_end(&self, nth: usize) -> bool {
        let outdated = self
            .instances
            .get(nth)
            .is_some_and(|it| it.launched < self.revision);
        !self.is_up() || nth >= self.size() || outdated
    }

    /// Whether a process of it is to end, and has not.
    pub(super) fn is_ending(&self) -> bool {
        let mut all = self.instances.iter().enumerate();
        all.any(|(nth, it)| it.process.is_some() && self.is_to_end(nth))
    }

    /// What is launched for an instance.
    pub(super) fn launching(&self, nth: usize) -> Launching {
        Launching {
            spec: self.definition.spec_of(nth),
            tags: self.definition.tags_of(nth),
            parentage: Parentage::default(),
        }
    }

    /// Whether it has no process.
    pub(super) fn is_empty(&self) -> bool {
        self.instances.iter().all(|it| it.process.is_none())
    }

    /// Makes places for as many processes as are defined. What is too many goes when its process has ended.
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

    /// Begins anew: what was given up, and what waits, is launched again.
    pub(super) fn begin_anew(&mut self) {
        for it in &mut self.instances {
            (it.next, it.series, it.verdict) = (None, 0, None);
            it.restarts.clear();
        }
    }
}

impl Plain for Service {
    const KIND: u8 = 3;
    const SLOTS: u32 = 2;
}
