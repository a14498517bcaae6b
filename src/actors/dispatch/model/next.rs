//! The choice of the next task and its server, why other tasks do not begin, and which item is due first.

use super::{Model, count};
use sexton::actors::dispatch::{Message, Obstacle, Pause, RunStatus, Server, Task};
use sexton::clock::{Now, Timestamp};
use sexton::ids::Slot;

/// An item that can be due: the deadline of a task, or the next burst. Deadlines that are due come before the next burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Task(Slot),
    Dispatch,
}

impl Item {
    /// Returns the item that a tick handles; `None` if the message is not a tick.
    pub(crate) const fn of(message: &Message) -> Option<Self> {
        match message {
            Message::Lapse { slot } => Some(Self::Task(*slot)),
            Message::Dispatch => Some(Self::Dispatch),
            Message::Add(_)
            | Message::Act { .. }
            | Message::Report { .. }
            | Message::Pause { .. }
            | Message::Limit { .. }
            | Message::Server { .. }
            | Message::Inventory { .. }
            | Message::Prune { .. }
            | Message::Gone(_)
            | Message::Launched(_)
            | Message::Held(_) => None,
        }
    }
}

impl Model {
    /// Returns the first item that is due at `now`, if there is one.
    pub(crate) fn due(&self, now: Now) -> Option<Item> {
        let acts_at = |task: &Task| match task.status {
            RunStatus::Waiting if !task.is_due => Some(now.offset.time(task.wake)),
            RunStatus::Processing => self.stops_at(task).map(|(at, _)| at),
            RunStatus::Complete => {
                task.forgotten.filter(|_| !self.held).map(|date| now.offset.time(date))
            }
            RunStatus::NotReady
            | RunStatus::NotStarted
            | RunStatus::Waiting
            | RunStatus::Restarted => None,
        };
        let tasks = self.state.tasks.iter();
        let tasks = tasks.filter(|(slot, _)| !self.stuck.contains(slot));
        let all = tasks.filter_map(|(slot, task)| Some((acts_at(task)?, *slot)));
        let first: Option<(Timestamp, Slot)> = all.filter(|(at, _)| *at <= now.at).min();
        let dispatch = || {
            let next = self.next(now.at);
            let next = next.filter(|_| !self.stalled && !self.disk_low);
            next.map(|_| Item::Dispatch)
        };
        first.map(|(_, slot)| Item::Task(slot)).or_else(dispatch)
    }

    /// Quarantines an item whose tick panicked: it is ignored until its state changes.
    pub(crate) fn quarantine(&mut self, item: Item) {
        match item {
            Item::Task(slot) => self.stuck.push(slot),
            Item::Dispatch => self.stalled = true,
        }
    }

    /// Returns the servers that tasks may be assigned to.
    fn enabled(&self) -> impl Iterator<Item = &(Slot, Server)> {
        let servers = self.state.servers.iter();
        servers.filter(|(_, it)| it.enabled && !it.leaves)
    }

    fn threads(&self) -> u32 {
        self.enabled().map(|(_, it)| it.threads).sum()
    }

    /// Returns the server with the lowest percentage of threads in use, the first by slot among equals; `None` if no thread is free. Servers
    /// that could not be reached are not considered.
    fn sound(&self) -> Option<Slot> {
        let sound = self.enabled().filter(|(_, it)| it.outage.is_none());
        let free = sound.filter_map(|(slot, it)| {
            let used = self.used(*slot);
            (used < it.threads).then(|| (used * 100 / it.threads, *slot))
        });
        free.min().map(|(_, slot)| slot)
    }

    /// Returns the server for the next attempt at `now`: a sound one or, if none has a free thread, the idle one that could not be reached
    /// and has waited longest to be tried again.
    fn place(&self, now: Timestamp) -> Option<Slot> {
        let failing = || {
            let idle = self.enabled().filter(|(slot, _)| self.used(*slot) == 0);
            let all = idle.filter_map(|(slot, it)| Some((it.outage?.retry, *slot)));
            let first = all.min().filter(|(retry, _)| *retry <= now);
            first.map(|(_, slot)| slot)
        };
        self.sound().or_else(failing)
    }

    /// Counts the tasks that are in progress and not paused.
    fn under_way(&self) -> u32 {
        let tasks = self.state.tasks.iter();
        count(tasks.filter(|(_, it)| it.status.is_under_way() && !it.paused))
    }

    /// Counts the tasks of a task's group that are in progress, from their first burst to their last.
    fn used_of_group(&self, task: &Task) -> u32 {
        let tasks = self.state.tasks.iter();
        count(tasks.filter(|(_, it)| it.counts && it.group == task.group))
    }

    /// Returns the lowest id of another task with the same work id that is in progress; `None` if there is no such task.
    fn other(&self, task: &Task) -> Option<u64> {
        let tasks = self.state.tasks.iter().map(|(_, it)| it);
        let others = tasks.filter(|it| {
            let same = it.work == task.work && !it.work.as_bytes().is_empty();
            same && it.id != task.id && it.status.is_under_way()
        });
        others.map(|it| it.id).min()
    }

    /// Returns the obstacle to the next burst that lies in the task itself, in its status or its pause; `None` if there is none.
    fn own_obstacle(task: &Task) -> Option<Obstacle> {
        match task.status {
            RunStatus::NotReady => return Some(Obstacle::NotReady),
            RunStatus::Waiting if task.blocked.is_some() => return Some(Obstacle::Locked),
            RunStatus::Waiting if !task.is_due => return Some(Obstacle::Waits(task.wake)),
            RunStatus::NotStarted
            | RunStatus::Waiting
            | RunStatus::Processing
            | RunStatus::Complete
            | RunStatus::Restarted => {}
        }
        task.paused.then_some(Obstacle::Paused)
    }

    /// Returns an obstacle to the task's next burst that lies in other tasks or in settings; `None` if there is none. A lack of threads is
    /// not considered.
    fn obstacle_of_others(&self, task: &Task) -> Option<Obstacle> {
        let fresh = task.status != RunStatus::Waiting;
        let stops = |pause: Pause| pause == Pause::Hard || fresh && pause == Pause::Soft;
        let (max, pause) = self.group(&task.group);
        let group = task.group.clone();
        if stops(self.state.pause) {
            return Some(Obstacle::AllPaused(self.state.pause));
        }
        if stops(pause) {
            return Some(Obstacle::GroupPaused(group, pause));
        }
        let used = self.used_of_group(task);
        if fresh && max == 0 {
            return Some(Obstacle::GroupDisabled(group));
        }
        if fresh && used >= max {
            return Some(Obstacle::GroupFull { group, used, max });
        }
        let other = self.other(task).filter(|_| fresh)?;
        let work = task.work.clone();
        Some(Obstacle::WorkUnderWay { work, task: other })
    }

    /// Returns whether the task and its work id permit the next burst to begin.
    pub(super) fn could_begin(&self, task: &Task) -> bool {
        let rests = matches!(task.status, RunStatus::Processing | RunStatus::Complete);
        let is_alone = task.status == RunStatus::Waiting || self.other(task).is_none();
        !rests && is_alone && Self::own_obstacle(task).is_none()
    }

    /// Returns whether the next burst could begin if a thread were free.
    fn is_ready(&self, task: &Task) -> bool {
        let rests = matches!(task.status, RunStatus::Processing | RunStatus::Complete);
        !rests && Self::own_obstacle(task).is_none() && self.obstacle_of_others(task).is_none()
    }

    /// Returns the task whose burst begins next, and its server, if a burst can begin. Tasks that have started come first, by priority,
    /// wake time and id, then the others, by priority and id.
    pub(super) fn next(&self, now: Timestamp) -> Option<(Slot, Slot)> {
        let server = self.place(now).filter(|_| !self.state.rests)?;
        let max = self.threads().saturating_mul(self.rules.tasks_per_thread);
        let starts = self.under_way() < max;
        let tasks = self.state.tasks.iter();
        let ready = tasks.filter(|(_, task)| self.is_ready(task));
        let ready = ready.filter(|(_, task)| task.status == RunStatus::Waiting || starts);
        let next = ready.min_by_key(|(_, task)| {
            let fresh = task.status != RunStatus::Waiting;
            let wake = if fresh { 0 } else { task.wake.0 };
            (fresh, task.priority, wake, task.id)
        });
        next.map(|(slot, _)| (*slot, server))
    }

    /// Returns whether no server is enabled, and a task could begin if one were.
    pub(super) fn lacks_servers(&self) -> bool {
        let mut tasks = self.state.tasks.iter();
        self.threads() == 0 && tasks.any(|(_, task)| self.is_ready(task))
    }

    /// Returns why the next burst of a task does not begin; `None` if the task is over, if a burst is running, or if nothing prevents the
    /// next one.
    pub(super) fn obstacle(&self, slot: Slot, task: &Task) -> Option<Obstacle> {
        if matches!(task.status, RunStatus::Processing | RunStatus::Complete) {
            return None;
        }
        let threads = self.threads();
        let max = threads.saturating_mul(self.rules.tasks_per_thread);
        let sound = self.enabled().filter(|(_, it)| it.outage.is_none());
        let sound: u32 = sound.map(|(_, it)| it.threads).sum();
        let used = self.under_way();
        let is_fresh = task.status != RunStatus::Waiting;
        let of_threads = || {
            let reasons = [
                (self.state.rests, Obstacle::Draining),
                (threads == 0, Obstacle::NoServer),
                (is_fresh && used >= max, Obstacle::TooManyUnderWay { used, max }),
                (sound == 0, Obstacle::NotReached { threads }),
                (self.sound().is_none(), Obstacle::NoThread { threads: sound }),
                (
                    self.next(Timestamp(u64::MAX)).is_some_and(|(next, _)| next != slot),
                    Obstacle::InLine,
                ),
            ];
            let mut reasons = reasons.into_iter();
            reasons.find(|(holds, _)| *holds).map(|(_, reason)| reason)
        };
        Self::own_obstacle(task).or_else(|| self.obstacle_of_others(task)).or_else(of_threads)
    }
}
