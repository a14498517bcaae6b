//! The attempts that a keeper holds. An *attempt* is one launch of a command; it is held until the coordinator has made its end durable and
//! sends a request to forget it. Every report to the coordinator is derived from this state.

use crate::ids::ProcessId;
use crate::keeper::protocol::{Exited, Report, Started};
use crate::keeper::record::Record;
use crate::kernel::wait::ChildExit;
use std::collections::BTreeMap;
use std::ops::Bound;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptState {
    /// Its process is our child and has not executed its program yet.
    Starting(Started),
    /// Its process is our child and runs its program.
    Running(Started),
    /// Its process was started by an earlier keeper, so this keeper cannot learn how it ends.
    Orphaned(Started),
    /// Its process has ended.
    Exited(Exited),
    /// The attempt could not be started.
    Failed { step: u8, errno: i32 },
}

impl AttemptState {
    /// Returns the description of the process that was started for the attempt; `None` if the attempt failed.
    pub(crate) const fn started(&self) -> Option<&Started> {
        match self {
            Self::Starting(started) | Self::Running(started) | Self::Orphaned(started) => {
                Some(started)
            }
            Self::Exited(exited) => Some(&exited.started),
            Self::Failed { .. } => None,
        }
    }

    fn report(&self, attempt: ProcessId) -> Option<Report> {
        Some(match *self {
            // The outcome is reported as soon as it is known.
            Self::Starting(_) => return None,
            Self::Running(started) => Report::Started(started),
            Self::Orphaned(started) => Report::Orphaned(started),
            Self::Exited(exited) => Report::Exited(exited),
            Self::Failed { step, errno } => Report::Failed { attempt, step, errno },
        })
    }
}

/// All attempts held, and the children (by PID) that belong to them.
#[derive(Default)]
pub(crate) struct Attempts {
    held: BTreeMap<ProcessId, AttemptState>,
    children: BTreeMap<u32, ProcessId>,
}

impl Attempts {
    /// Rebuilds the attempts from the records of a log. An attempt that was started, and whose end is not in the log, is `Running` if
    /// `is_ours` recognises its process as our child; otherwise, an earlier keeper started it, and it is `Orphaned`.
    pub(crate) fn restored(records: &[Record], is_ours: impl Fn(&Started) -> bool) -> Self {
        let mut attempts = Self::default();
        for record in records {
            attempts.replay(record);
        }
        let mut children = BTreeMap::new();
        for (attempt, held) in &mut attempts.held {
            if let AttemptState::Orphaned(started) = *held
                && is_ours(&started)
            {
                children.insert(started.pid, *attempt);
                *held = AttemptState::Running(started);
            }
        }
        attempts.children = children;
        attempts
    }

    fn replay(&mut self, record: &Record) {
        match *record {
            Record::Intent(_) => {}
            Record::Started(started) => {
                let attempt = started.attempt;
                self.held.insert(attempt, AttemptState::Orphaned(started));
            }
            Record::Exited { attempt, status, at, cpu_ms, memory_max } => {
                // If the start record is damaged, it is unknown which process ended, so this record is ignored.
                if let Some(held) = self.held.get_mut(&attempt)
                    && let Some(started) = held.started().copied()
                {
                    *held =
                        AttemptState::Exited(Exited { started, status, at, cpu_ms, memory_max });
                }
            }
            Record::Failed { attempt, step, errno } => {
                self.held.insert(attempt, AttemptState::Failed { step, errno });
            }
            Record::Forgotten(attempt) => {
                self.held.remove(&attempt);
            }
        }
    }

    /// Returns the records of the shortest log that describes the same state.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record> {
        self.held.iter().flat_map(|(attempt, held)| {
            let started = held.started().copied().map(Record::Started);
            let end = match held {
                AttemptState::Exited(exited) => Some(Record::of_end(exited)),
                AttemptState::Failed { step, errno } => {
                    Some(Record::Failed { attempt: *attempt, step: *step, errno: *errno })
                }
                AttemptState::Starting(_)
                | AttemptState::Running(_)
                | AttemptState::Orphaned(_) => None,
            };
            started.into_iter().chain(end)
        })
    }

    /// Returns the number of attempts held.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns whether no attempt is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the number of our children that belong to an attempt.
    pub(crate) fn alive(&self) -> usize {
        self.children.len()
    }

    /// Returns the state of an attempt, if it is held.
    pub(crate) fn get(&self, attempt: ProcessId) -> Option<&AttemptState> {
        self.held.get(&attempt)
    }

    /// Returns the report on an attempt; `None` if the attempt is not held, or if its process has not executed its program yet.
    pub(crate) fn report(&self, attempt: ProcessId) -> Option<Report> {
        self.held.get(&attempt)?.report(attempt)
    }

    /// Returns the held attempt with the next higher id, or the one with the lowest id if `attempt` is `None`. Returns `None` if no attempt
    /// follows.
    pub(crate) fn after(&self, attempt: Option<ProcessId>) -> Option<ProcessId> {
        let from = attempt.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.held.range((from, Bound::Unbounded));
        rest.next().map(|(attempt, _)| *attempt)
    }

    /// Records that the attempt's process has been created.
    pub(crate) fn start(&mut self, started: Started) {
        self.children.insert(started.pid, started.attempt);
        self.held.insert(started.attempt, AttemptState::Starting(started));
    }

    /// Records that the attempt's process has executed its program.
    pub(crate) fn run(&mut self, attempt: ProcessId) {
        if let Some(held) = self.held.get_mut(&attempt)
            && let AttemptState::Starting(started) = *held
        {
            *held = AttemptState::Running(started);
        }
    }

    /// Changes a running attempt back to `Starting`, because its process had not executed its program yet when the keeper was upgraded.
    pub(crate) fn restart(&mut self, attempt: ProcessId) {
        if let Some(held) = self.held.get_mut(&attempt)
            && let AttemptState::Running(started) = *held
        {
            *held = AttemptState::Starting(started);
        }
    }

    /// Records that the attempt could not be started. If it has a process, the process no longer counts as our child.
    pub(crate) fn fail(&mut self, attempt: ProcessId, step: u8, errno: i32) {
        let before = self.held.insert(attempt, AttemptState::Failed { step, errno });
        if let Some(started) = before.as_ref().and_then(AttemptState::started) {
            self.children.remove(&started.pid);
        }
    }

    /// Records the end of a child, and returns the end of its attempt; `None` if the child belonged to no attempt.
    pub(crate) fn end(&mut self, ended: &ChildExit, at: u64) -> Option<Exited> {
        let attempt = self.children.remove(&ended.pid)?;
        let held = self.held.get_mut(&attempt)?;
        let exited = Exited {
            started: *held.started()?,
            status: ended.status,
            at,
            cpu_ms: ended.cpu_ms,
            memory_max: ended.memory_max,
        };
        *held = AttemptState::Exited(exited);
        Some(exited)
    }

    /// Returns the attempt that a child belongs to, if any.
    pub(crate) fn of_child(&self, pid: u32) -> Option<ProcessId> {
        self.children.get(&pid).copied()
    }

    /// Forgets an attempt and returns its last state; `None` if the attempt is not held, or cannot be forgotten because its process is
    /// still our child.
    pub(crate) fn forget(&mut self, attempt: ProcessId) -> Option<AttemptState> {
        match self.held.get(&attempt)? {
            AttemptState::Starting(_) | AttemptState::Running(_) => None,
            AttemptState::Orphaned(_) | AttemptState::Exited(_) | AttemptState::Failed { .. } => {
                self.held.remove(&attempt)
            }
        }
    }
}

#[cfg(test)]
#[path = "attempts_tests.rs"]
mod tests;
