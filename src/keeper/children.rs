//! The children of a keeper, from the launch request to the report of their end.

use crate::ids::ProcessId;
use crate::keeper::client::Client;
use crate::keeper::core::{Keeper, wall};
use crate::keeper::launch::{self, Failed, step_of};
use crate::keeper::poll::Source;
use crate::keeper::protocol::{ATTEMPTS_MAX, Launch, step};
use crate::keeper::record::Record;
use crate::kernel::cgroup;
use crate::kernel::plan::Step;
use crate::kernel::spawn::Outcome;
use crate::kernel::wait::{self, ChildExit, Children};
use std::io;

/// The maximum number of children reaped before other events are served.
const REAPED_MAX: usize = 1024;

impl Keeper {
    /// Launches an attempt unless it is already held. Returns a failure only if the attempt could not be recorded: it is then not held, and
    /// the coordinator may request it again. Any other failure is recorded as the outcome of the attempt, and `None` is returned.
    pub(super) fn launch(&mut self, attempt: ProcessId, launch: &Launch) -> Option<Failed> {
        if self.attempts.get(attempt).is_some() {
            return None;
        }
        if self.attempts.len() >= ATTEMPTS_MAX {
            return Some((step::FULL, 0));
        }
        let intent = Record::Intent(attempt);
        if let Err(error) = self.log.intend(intent, self.attempts.len()) {
            return Some((step::LOG, error.raw_os_error().unwrap_or(0)));
        }
        let failed = match self.try_launch(attempt, launch) {
            Ok(()) => return None,
            Err((step::LOG, errno)) => return Some((step::LOG, errno)),
            Err(failed) => failed,
        };
        self.fail(attempt, failed);
        None
    }

    fn try_launch(&mut self, attempt: ProcessId, launch: &Launch) -> Result<(), Failed> {
        let parcel = match launch.parcel {
            Some(ticket) => Some(self.parcels.take(ticket).ok_or((step::PARCEL, 0))?),
            None => None,
        };
        let ready = launch::prepare(launch, parcel)?;
        let groups = self.files.groups.as_deref();
        let (spawned, started) = launch::start(attempt, &ready, groups, wall())?;
        if let Err(error) = self.log.append(Record::Started(started)) {
            // `spawned` is dropped without being released, so its process exits without having executed its program.
            return Err((step::LOG, error.raw_os_error().unwrap_or(0)));
        }
        self.attempts.start(started);
        // `release` fails if the process was killed in the meantime; the process is then reaped like any other.
        if let Ok(outcome) = spawned.release() {
            self.follow(started.pid, outcome);
        } else {
            self.attempts.run(attempt);
        }
        Ok(())
    }

    fn fail(&mut self, attempt: ProcessId, (step, errno): Failed) {
        let record = Record::Failed { attempt, step, errno };
        // If this fails, the log is marked incomplete and is rewritten when there is room.
        drop(self.log.append(record));
        self.attempts.fail(attempt, step, errno);
    }

    /// Starts watching whether a child executes its program.
    pub(super) fn follow(&mut self, pid: u32, outcome: Outcome) {
        // If the descriptor cannot be polled, the end of the child is still noticed.
        drop(self.poll.add(&outcome, Source::Starting(pid)));
        self.starting.insert(pid, outcome);
        self.note_start(pid);
    }

    /// Records whether a child has executed its program or has failed to. Does nothing if that is not known yet.
    pub(super) fn note_start(&mut self, pid: u32) {
        let Some(outcome) = self.starting.get_mut(&pid) else {
            return;
        };
        if let Some(read) = outcome.read() {
            self.started(pid, read);
        }
    }

    fn started(&mut self, pid: u32, outcome: Result<(), (Step, i32)>) {
        if let Some(outcome) = self.starting.remove(&pid) {
            self.poll.remove(&outcome);
        }
        let Some(attempt) = self.attempts.of_child(pid) else {
            return;
        };
        match outcome {
            Ok(()) => self.attempts.run(attempt),
            Err((step, errno)) => self.fail(attempt, (step_of(step), errno)),
        }
        self.change(attempt);
    }

    /// Reaps at most `REAPED_MAX` children that have ended, including orphaned descendants. Returns `Alive` if there may be more children,
    /// and `None` if there are none.
    pub(super) fn reap(&mut self) -> io::Result<Children> {
        for _ in 0..REAPED_MAX {
            match wait::reap()? {
                Children::Ended(ended) => self.end(&ended),
                rest @ (Children::Alive | Children::None) => {
                    self.reaps = false;
                    return Ok(rest);
                }
            }
        }
        self.reaps = true;
        Ok(Children::Alive)
    }

    fn end(&mut self, ended: &ChildExit) {
        if let Some(outcome) = self.starting.get_mut(&ended.pid) {
            // A child that fails to execute its program reports that before it ends, so without a report nothing failed.
            let outcome = outcome.read().unwrap_or(Ok(()));
            self.started(ended.pid, outcome);
        }
        if let Some(exited) = self.attempts.end(ended, wall()) {
            // If this fails, the log is marked incomplete and is rewritten when there is room.
            drop(self.log.append(Record::of_end(&exited)));
            self.change(exited.started.attempt);
        }
    }

    fn change(&mut self, attempt: ProcessId) {
        let client = self.coordinator.and_then(|number| self.clients.get_mut(&number));
        if let Some(feed) = client.and_then(Client::feed) {
            feed.change(attempt);
        }
    }

    /// Forgets those of `attempts` whose processes are not live children of ours, and removes their control groups.
    pub(super) fn forget(&mut self, attempts: &[ProcessId]) {
        let mut forgotten = Vec::new();
        for attempt in attempts {
            let Some(held) = self.attempts.forget(*attempt) else {
                continue;
            };
            forgotten.push(*attempt);
            // A failed attempt may have had a group.
            let had_group = held.started().is_none_or(|started| started.contained);
            if let Some(groups) = self.files.groups.as_ref().filter(|_| had_group) {
                // A group with live processes stays, and is removed together with the keeper's group.
                drop(cgroup::remove(&groups.join(attempt.to_string())));
            }
        }
        self.log.forget(&forgotten);
        if self.log.is_mostly_past(self.attempts.len()) {
            // If this fails, the old log, which is only longer, remains valid.
            drop(self.log.compact(self.attempts.records()));
        }
    }
}
