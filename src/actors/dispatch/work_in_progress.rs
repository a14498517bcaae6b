//! All work in progress at one moment, for an audit that compares it with the states of other actors.

use crate::actors::dispatch::machine::DispatchMachine;
use crate::actors::dispatch::task::{RunStatus, Task};
use crate::actors::dispatch::view::{UnderWay, WorkInProgress};
use crate::clock::Now;
use crate::ids::Slot;

/// The maximum number of tasks in [`WorkInProgress::tasks`].
const WORK_MAX: usize = 100_000;

impl Task {
    /// Returns whether the task is in progress, or has outstanding requests to other actors.
    pub(super) fn is_in_progress(&self) -> bool {
        let obliges = self.attempt.is_some() || self.blocked.is_some() || self.cleaning.is_some();
        obliges || self.counts || self.status.is_under_way()
    }
}

impl DispatchMachine {
    pub(super) fn work_in_progress(&self, now: Now) -> WorkInProgress {
        let slots = &self.state.index.in_progress;
        let tasks = slots.iter().take(WORK_MAX);
        let groups = self.state.index.ready.groups();
        let groups = groups.filter(|(_, group)| group.used > 0);
        WorkInProgress {
            tasks: tasks.filter_map(|slot| self.under_way(*slot, now)).collect(),
            servers: self.servers(),
            groups: groups.map(|group| self.group_view(group)).collect(),
            whole: slots.len() <= WORK_MAX,
        }
    }

    fn under_way(&self, slot: Slot, now: Now) -> Option<UnderWay> {
        let task = self.state.tasks.get(slot)?;
        let waits = task.status == RunStatus::Waiting && !task.is_due;
        let is_overdue = task.stops_at(self.state.head.epoch).is_some_and(|(at, _)| at <= now.at);
        let server = task.attempt.as_ref().map(|it| it.server);
        let server = server.and_then(|slot| self.state.servers.get(slot));
        Some(UnderWay {
            id: task.id,
            work: task.work.clone(),
            group: task.group.clone(),
            status: task.status,
            counts: task.counts,
            attempt: task.attempt.clone(),
            server: server.map(|it| it.name.clone()),
            blocked: task.blocked,
            cleaning: task.cleaning,
            late: is_overdue || waits && now.offset.time(task.wake) <= now.at,
        })
    }
}
