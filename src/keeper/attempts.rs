//! What a keeper holds: attempts that run, and those that have ended and are not forgotten. Everything that it reports
//! is derived from this.

use crate::ids::ProcessId;
use crate::keeper::protocol::{Exited, Report, Started};
use crate::keeper::record::Record;
use crate::kernel::wait::Ended;
use std::collections::BTreeMap;
use std::ops::Bound;

/// What is known of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// Its process is ours, and has not come as far as its program.
    Starting(Started),
    /// Its process is ours.
    Running(Started),
    /// Its process was that of a keeper before us: how it ends cannot be known here.
    Orphaned(Started),
    /// It has ended.
    Exited(Exited),
    /// It could not be started.
    Failed { step: u8, errno: i32 },
}

impl Held {
    /// How it was started, if it was.
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
            // What became of it is reported as soon as that is known.
            Self::Starting(_) => return None,
            Self::Running(started) => Report::Started(started),
            Self::Orphaned(started) => Report::Orphaned(started),
            Self::Exited(exited) => Report::Exited(exited),
            Self::Failed { step, errno } => Report::Failed {
                attempt,
                step,
                errno,
            },
        })
    }
}

/// All that is held, by attempt, and those of our children that belong to one, by PID.
#[derive(Default)]
pub(crate) struct Attempts {
    held: BTreeMap<ProcessId, Held>,
    children: BTreeMap<u32, ProcessId>,
}

impl Attempts {
    /// What a log tells: what runs by it was started by a keeper before us, unless `is_ours` knows it for a child.
    pub(crate) fn restored(records: &[Record], is_ours: impl Fn(&Started) -> bool) -> Self {
        let mut attempts = Self::default();
        for record in records {
            attempts.replay(record);
        }
        let mut children = BTreeMap::new();
        for (attempt, held) in &mut attempts.held {
            if let Held::Orphaned(started) = *held
                && is_ours(&started)
            {
                children.insert(started.pid, *attempt);
                *held = Held::Running(started);
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
                self.held.insert(attempt, Held::Orphaned(started));
            }
            Record::Exited {
                attempt,
                status,
                at,
                cpu_ms,
                memory_max,
            } => {
                // Without a start, which damage may have taken, nobody could say what it was that ended.
                if let Some(held) = self.held.get_mut(&attempt)
                    && let Some(started) = held.started().copied()
                {
                    *held = Held::Exited(Exited {
                        started,
                        status,
                        at,
                        cpu_ms,
                        memory_max,
                    });
                }
            }
            Record::Failed {
                attempt,
                step,
                errno,
            } => {
                self.held.insert(attempt, Held::Failed { step, errno });
            }
            Record::Forgotten(attempt) => {
                self.held.remove(&attempt);
            }
        }
    }

    /// The shortest log that tells the same.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record> {
        self.held.iter().flat_map(|(attempt, held)| {
            let started = held.started().copied().map(Record::Started);
            let end = match held {
                Held::Exited(exited) => Some(Record::of_end(exited)),
                Held::Failed { step, errno } => Some(Record::Failed {
                    attempt: *attempt,
                    step: *step,
                    errno: *errno,
                }),
                Held::Starting(_) | Held::Running(_) | Held::Orphaned(_) => None,
            };
            started.into_iter().chain(end)
        })
    }

    /// How many are held.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// How many of our children belong to an attempt.
    pub(crate) fn alive(&self) -> usize {
        self.children.len()
    }

    /// What is known of an attempt.
    pub(crate) fn get(&self, attempt: ProcessId) -> Option<&Held> {
        self.held.get(&attempt)
    }

    /// What is to be reported of an attempt now.
    pub(crate) fn report(&self, attempt: ProcessId) -> Option<Report> {
        self.held.get(&attempt)?.report(attempt)
    }

    /// The first attempt after this one.
    pub(crate) fn after(&self, attempt: Option<ProcessId>) -> Option<ProcessId> {
        let from = attempt.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.held.range((from, Bound::Unbounded));
        rest.next().map(|(attempt, _)| *attempt)
    }

    /// Its process is there.
    pub(crate) fn start(&mut self, started: Started) {
        self.children.insert(started.pid, started.attempt);
        self.held.insert(started.attempt, Held::Starting(started));
    }

    /// It has come as far as its program.
    pub(crate) fn run(&mut self, attempt: ProcessId) {
        if let Some(held) = self.held.get_mut(&attempt)
            && let Held::Starting(started) = *held
        {
            *held = Held::Running(started);
        }
    }

    /// What a program before us knew: it has not come as far as its program.
    pub(crate) fn restart(&mut self, attempt: ProcessId) {
        if let Some(held) = self.held.get_mut(&attempt)
            && let Held::Running(started) = *held
        {
            *held = Held::Starting(started);
        }
    }

    /// It could not be started. If there is a process, that is none of ours any more.
    pub(crate) fn fail(&mut self, attempt: ProcessId, step: u8, errno: i32) {
        let before = self.held.insert(attempt, Held::Failed { step, errno });
        if let Some(started) = before.as_ref().and_then(Held::started) {
            self.children.remove(&started.pid);
        }
    }

    /// A child has ended: of which attempt, and how; `None` if it was of none.
    pub(crate) fn end(&mut self, ended: &Ended, at: u64) -> Option<Exited> {
        let attempt = self.children.remove(&ended.pid)?;
        let held = self.held.get_mut(&attempt)?;
        let exited = Exited {
            started: *held.started()?,
            status: ended.status,
            at,
            cpu_ms: ended.cpu_ms,
            memory_max: ended.memory_max,
        };
        *held = Held::Exited(exited);
        Some(exited)
    }

    /// The attempt that this child of ours belongs to.
    pub(crate) fn of_child(&self, pid: u32) -> Option<ProcessId> {
        self.children.get(&pid).copied()
    }

    /// Forgets an attempt of which we have no process; what was known of it.
    pub(crate) fn forget(&mut self, attempt: ProcessId) -> Option<Held> {
        match self.held.get(&attempt)? {
            Held::Starting(_) | Held::Running(_) => None,
            Held::Orphaned(_) | Held::Exited(_) | Held::Failed { .. } => self.held.remove(&attempt),
        }
    }
}

#[cfg(test)]
#[path = "attempts_tests.rs"]
mod tests;
