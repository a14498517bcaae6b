//! Builds the views of tasks, servers and groups.

use crate::actors::dispatch::event;
use crate::actors::dispatch::machine::{DispatchMachine, LISTED_MAX, LOOKED_AT_MAX};
use crate::actors::dispatch::message::{Message, PRUNED_MAX, Reply, TaskFilter};
use crate::actors::dispatch::outcome::{Outcome, Step};
use crate::actors::dispatch::ready::GroupIndex;
use crate::actors::dispatch::server::Pause;
use crate::actors::dispatch::task::{RunStatus, Task};
use crate::actors::dispatch::view::{GroupView, Obstacle, ServerView, TaskView, Tasks};
use crate::actors::lock::Name;
use crate::clock::Timestamp;
use crate::ids::Slot;
use crate::spine::event::EventBody;
use crate::spine::machine::{Gauge, Observable, Stamp};
use std::collections::BTreeSet;
use std::ops::Bound;

impl DispatchMachine {
    pub(super) fn view_of(&self, slot: Slot) -> Option<TaskView> {
        let task = self.state.tasks.get(slot)?.clone();
        let attempt = task.attempt.as_ref();
        let server = attempt.and_then(|it| self.state.servers.get(it.server));
        Some(TaskView {
            server: server.map(|it| it.name.clone()),
            obstacle: self.obstacle(slot, &task),
            task,
        })
    }

    /// Returns why the next burst of a task does not begin; `None` if the task is over, if a burst is running, or if nothing prevents the
    /// next one.
    fn obstacle(&self, slot: Slot, task: &Task) -> Option<Obstacle> {
        match task.status {
            RunStatus::Processing | RunStatus::Complete => return None,
            RunStatus::NotReady => return Some(Obstacle::NotReady),
            RunStatus::Waiting if task.blocked.is_some() => return Some(Obstacle::Locked),
            RunStatus::Waiting if !task.is_due => return Some(Obstacle::Waits(task.wake)),
            RunStatus::Waiting | RunStatus::NotStarted | RunStatus::Restarted => {}
        }
        if task.paused {
            return Some(Obstacle::Paused);
        }
        let (head, index) = (&self.state.head, &self.state.index);
        let is_fresh = task.status.is_fresh();
        if head.pause == Pause::Hard || is_fresh && head.pause == Pause::Soft {
            return Some(Obstacle::AllPaused(head.pause));
        }
        let group = index.ready.group(&task.group);
        let default_max = index.ready.default_max();
        let pause = group.map_or(Pause::Off, GroupIndex::pause);
        if pause == Pause::Hard || is_fresh && pause == Pause::Soft {
            return Some(Obstacle::GroupPaused(task.group.clone(), pause));
        }
        if let Some(group) = group.filter(|it| is_fresh && it.used >= it.max(default_max)) {
            return Some(match group.max(default_max) {
                0 => Obstacle::GroupDisabled(task.group.clone()),
                max => Obstacle::GroupFull { group: task.group.clone(), used: group.used, max },
            });
        }
        if let Some(other) = index.ready.under_way_of(&task.work, task.id).filter(|_| is_fresh) {
            return Some(Obstacle::WorkUnderWay { work: task.work.clone(), task: other });
        }
        if head.rests {
            return Some(Obstacle::Draining);
        }
        let threads = index.threads.all;
        if threads == 0 {
            return Some(Obstacle::NoServer);
        }
        let (used, max) =
            (index.ready.under_way, self.state.under_way_max(self.rules.tasks_per_thread));
        if is_fresh && used >= max {
            return Some(Obstacle::TooManyUnderWay { used, max });
        }
        let sound = index.threads.sound;
        if sound == 0 {
            return Some(Obstacle::NotReached { threads });
        }
        let Some((Timestamp(0), _)) = index.threads.next() else {
            return Some(Obstacle::NoThread { threads: sound });
        };
        let next = self.state.coming(self.rules.tasks_per_thread);
        next.filter(|(_, task, _)| *task != slot).map(|_| Obstacle::InLine)
    }

    pub(super) fn list(&self, filter: &TaskFilter, after: Option<u64>, limit: u32) -> Tasks {
        let limit = limit.min(LISTED_MAX) as usize;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut all = self.state.index.by_id.range((from, Bound::Unbounded));
        let (mut tasks, mut last) = (Vec::new(), None);
        if limit == 0 {
            return Tasks { tasks, next: None };
        }
        let looked_at = all.by_ref().take(LOOKED_AT_MAX);
        for (id, slot) in looked_at {
            let task = self.state.tasks.get(*slot);
            if task.is_some_and(|task| filter.takes(task)) {
                tasks.extend(self.view_of(*slot));
            }
            last = Some(*id);
            if tasks.len() >= limit {
                break;
            }
        }
        let next = last.filter(|last| {
            let rest = (Bound::Excluded(*last), Bound::Unbounded);
            self.state.index.by_id.range(rest).next().is_some()
        });
        Tasks { tasks, next }
    }

    /// Lists at most `most` tasks: first those with a burst running, then those that wait for their next burst, then those that could begin
    /// their first burst. If there are more, `next` is 0, which is not the id of a task.
    pub(super) fn active(&self, most: u32) -> Tasks {
        let index = &self.state.index;
        let in_progress = index.in_progress.iter().take(LOOKED_AT_MAX);
        let mut active: Vec<_> = in_progress
            .filter_map(|slot| {
                let task = self.state.tasks.get(*slot)?;
                let claimed = task.attempt.as_ref().map(|it| it.claimed);
                let rank = match claimed {
                    Some(claimed) => (0, claimed.0),
                    None => (1, task.wake.0),
                };
                // The index also contains tasks that are not in progress but whose cleanup has not ended. They are left out.
                task.status.is_under_way().then_some((rank, task.id, *slot))
            })
            .collect();
        active.sort_unstable();
        let most = most.min(LISTED_MAX) as usize;
        let in_progress = active.into_iter().map(|(_, _, slot)| slot);
        let mut all = in_progress.chain(index.ready.fresh());
        let shown = all.by_ref().take(most);
        let tasks = shown.filter_map(|slot| self.view_of(slot)).collect();
        Tasks { tasks, next: all.next().map(|_| 0) }
    }

    pub(super) fn servers(&self) -> Vec<ServerView> {
        let all = self.state.servers_by_name();
        let views = all.map(|(slot, server)| ServerView {
            name: server.name.clone(),
            threads: server.threads,
            used: self.state.index.threads.used(slot),
            enabled: server.enabled,
            leaves: server.leaves,
            remote: server.remote.clone(),
            outage: server.outage,
        });
        views.collect()
    }

    pub(super) fn groups(&self) -> Vec<GroupView> {
        let all = self.state.index.ready.groups().take(LISTED_MAX as usize);
        all.map(|group| self.group_view(group)).collect()
    }

    pub(super) fn group_view(&self, (name, group): (&Name, &GroupIndex)) -> GroupView {
        GroupView {
            name: name.clone(),
            max: group.max(self.state.index.ready.default_max()),
            used: group.used,
            pause: group.pause(),
            ready: group.ready(),
        }
    }

    /// Returns the reply to an inventory with these steps: how many servers they add, remove and change.
    pub(super) fn reconciled(steps: &[Step]) -> Reply {
        let count = |is: fn(&Step) -> bool| {
            let those = steps.iter().filter(|step| is(step));
            u32::try_from(those.count()).unwrap_or(u32::MAX)
        };
        let of_one = |step: &Step| match step {
            Step::ServerThreads(slot, _) | Step::ServerReached(slot, _) => Some(*slot),
            Step::Task(..)
            | Step::ServerMade { .. }
            | Step::ServerFailed(..)
            | Step::ServerAnswered(_)
            | Step::ServerEnabled(..)
            | Step::ServerRemoved(_)
            | Step::GroupSet { .. }
            | Step::Paused(_)
            | Step::Rests
            | Step::GivesBack(_) => None,
        };
        let changed: BTreeSet<Slot> = steps.iter().filter_map(of_one).collect();
        Reply::Reconciled {
            added: count(|step| matches!(step, Step::ServerMade { .. })),
            removed: count(|step| matches!(step, Step::ServerRemoved(_))),
            changed: u32::try_from(changed.len()).unwrap_or(u32::MAX),
        }
    }

    /// Returns whether repeating a prune request that forgot `pruned` tasks might forget more. That is possible only if the request reached
    /// its limit.
    pub(super) fn has_more(&self, keep: u32, limit: u32, pruned: u32) -> bool {
        let is_full = pruned == limit.min(PRUNED_MAX);
        is_full && pruned > 0 && self.state.index.over.len() > keep as usize
    }
}

impl Observable for DispatchMachine {
    const KINDS: &'static [&'static str] = event::KINDS;
    const WARNINGS: &'static [&'static str] = &["failed", "server-failed"];

    type View = Vec<TaskView>;

    fn sample(&self, most: usize) -> Vec<TaskView> {
        let all = self.state.tasks.iter().take(most);
        all.filter_map(|(slot, _)| self.view_of(slot)).collect()
    }

    fn gauges(&self) -> Vec<Gauge> {
        let gauge = |name, help, value| Gauge { name, help, value };
        let totals = self.state.totals();
        let servers = self.state.servers.len() as u64;
        vec![
            gauge("fresh", "tasks that have not started", totals.fresh),
            gauge("waiting", "tasks between two bursts", totals.waiting),
            gauge("processing", "tasks with an attempt under way", totals.processing),
            gauge("complete", "tasks that are over", totals.complete),
            gauge("failed", "tasks that have failed", totals.failed),
            gauge("bytes", "size of all tasks in bytes", self.state.index.bytes),
            gauge("servers", "servers", servers),
        ]
    }

    fn events(
        &self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        publish: &mut dyn FnMut(EventBody),
    ) {
        event::events(&self.state, entry, (message, outcome), publish);
    }
}
