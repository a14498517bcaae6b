//! Chooses the next task and its server, with indexes that are derived from tasks, servers and groups, and are updated whenever these
//! change.
//!
//! The order is that of Wip's `getNextTasks`: first the tasks that have started and whose wake time has come, by priority, wake time and
//! id; then those that have not started, by priority and id, if their group and work id permit them to start. (Wip has a third list, of
//! waiting tasks that do not count towards the limit of their group. It is not needed here: a task that is terminated before it starts is
//! over immediately.) A choice only takes the first entries of ordered indexes, however many tasks are waiting.

use crate::actors::dispatch::server::{Group, Pause, Server};
use crate::actors::dispatch::task::{Priority, RunStatus, Task};
use crate::actors::lock::Name;
use crate::clock::Timestamp;
use crate::ids::Slot;
use std::collections::{BTreeMap, BTreeSet};

/// The sort key of a task: its priority, wake time (0 if it has not started), id and slot.
type Rank = (Priority, u64, u64, Slot);

fn rank(slot: Slot, task: &Task) -> Rank {
    let wake = if task.status.is_fresh() { 0 } else { task.wake.0 };
    (task.priority, wake, task.id, slot)
}

/// The settings of a group, the number of its tasks in progress, and those of its tasks that could begin a burst.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct GroupIndex {
    /// The settings of the group, if it has any: its own limit (`None` for the default) and its pause.
    setting: Option<(Option<u32>, Pause)>,
    /// The number of tasks in progress.
    pub(super) used: u32,
    /// Tasks that have started and could begin their next burst.
    started: BTreeSet<Rank>,
    /// Tasks that could begin their first burst: all without a work id, and the first of each work id that permits it.
    fresh: BTreeSet<Rank>,
    /// The first task of `started`, and the first task of `fresh`. The former is `None` while the pause of the group is hard, the latter
    /// while the group is paused at all or its limit is reached.
    first: (Option<Rank>, Option<Rank>),
}

impl GroupIndex {
    /// Returns the maximum number of tasks in progress: the group's own limit, or else `default_max`.
    pub(super) fn max(&self, default_max: u32) -> u32 {
        self.setting.and_then(|(max, _)| max).unwrap_or(default_max)
    }

    pub(super) fn pause(&self) -> Pause {
        self.setting.map_or(Pause::Off, |(_, pause)| pause)
    }

    pub(super) fn ready(&self) -> u32 {
        u32::try_from(self.started.len() + self.fresh.len()).unwrap_or(u32::MAX)
    }

    fn is_empty(&self) -> bool {
        self.setting.is_none() && self.used == 0 && self.started.is_empty() && self.fresh.is_empty()
    }
}

/// The tasks that share a work id: those in progress, and those that could begin their first burst.
#[derive(Debug, Default, PartialEq, Eq)]
struct Work {
    /// The ids of the tasks in progress.
    under_way: BTreeSet<u64>,
    /// Tasks that could begin their first burst, by group.
    fresh: BTreeMap<Name, BTreeSet<Rank>>,
    /// The first task of each group in `fresh`, which is offered to that group; empty while a task with the work id is in progress.
    offered: BTreeMap<Name, Rank>,
}

/// All tasks that could begin their next burst.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ready {
    /// The default for the maximum number of tasks in progress in a group.
    default_max: u32,
    groups: BTreeMap<Name, GroupIndex>,
    works: BTreeMap<Name, Work>,
    /// Of each group whose pause is not hard, the first task that has started and could continue.
    started: BTreeSet<Rank>,
    /// Of each group that is not paused and whose limit is not reached, the first task that could begin its first burst.
    fresh: BTreeSet<Rank>,
    /// The number of tasks that are in progress and not paused.
    pub(super) under_way: u32,
}

impl Default for Ready {
    fn default() -> Self {
        Self {
            default_max: Group::MAX,
            groups: BTreeMap::new(),
            works: BTreeMap::new(),
            started: BTreeSet::new(),
            fresh: BTreeSet::new(),
            under_way: 0,
        }
    }
}

impl Ready {
    /// Returns the default for the maximum number of tasks in progress in a group.
    pub(super) const fn default_max(&self) -> u32 {
        self.default_max
    }

    /// Sets the default for the maximum number of tasks in progress in a group.
    pub(super) fn set_default_max(&mut self, default_max: u32) {
        if std::mem::replace(&mut self.default_max, default_max) != default_max {
            let names: Vec<Name> = self.groups.keys().cloned().collect();
            for name in names {
                self.refresh(&name);
            }
        }
    }

    /// Returns the first task that has started and could continue, if there is one.
    pub(super) fn first_started(&self) -> Option<Slot> {
        self.started.first().map(|rank| rank.3)
    }

    /// Returns the first task that could be started, if there is one.
    pub(super) fn first_fresh(&self) -> Option<Slot> {
        self.fresh.first().map(|rank| rank.3)
    }

    pub(super) fn group(&self, name: &Name) -> Option<&GroupIndex> {
        self.groups.get(name)
    }

    /// Returns the tasks that could begin their first burst, by group, and within a group in the order in which they would begin. Of
    /// several tasks with the same work id, each group contributes only the first, and none while a task with that work id is in progress.
    /// Limits and pauses are not considered.
    pub(super) fn fresh(&self) -> impl Iterator<Item = Slot> {
        let groups = self.groups.values();
        groups.flat_map(|group| group.fresh.iter().map(|rank| rank.3))
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = (&Name, &GroupIndex)> {
        self.groups.iter()
    }

    /// Returns the id of a task with this work id that is in progress, other than `but`; `None` if there is no such task.
    pub(super) fn under_way_of(&self, work: &Name, but: u64) -> Option<u64> {
        let under_way = &self.works.get(work)?.under_way;
        under_way.iter().copied().find(|id| *id != but)
    }

    pub(super) fn add(&mut self, slot: Slot, task: &Task) {
        let rank = rank(slot, task);
        self.group_of(&task.group).used += u32::from(task.counts);
        if task.status.is_under_way() {
            self.under_way += u32::from(!task.paused);
            if !task.work.as_bytes().is_empty() {
                let work = self.works.entry(task.work.clone()).or_default();
                work.under_way.insert(task.id);
                self.offer_all(&task.work);
            }
        }
        if task.is_ready() {
            if task.status == RunStatus::Waiting {
                self.group_of(&task.group).started.insert(rank);
            } else if task.work.as_bytes().is_empty() {
                self.group_of(&task.group).fresh.insert(rank);
            } else {
                let work = self.works.entry(task.work.clone()).or_default();
                let fresh = work.fresh.entry(task.group.clone()).or_default();
                fresh.insert(rank);
                self.offer(&task.work, &task.group);
            }
        }
        self.refresh(&task.group);
    }

    pub(super) fn remove(&mut self, slot: Slot, task: &Task) {
        let rank = rank(slot, task);
        self.group_of(&task.group).used -= u32::from(task.counts);
        if task.status.is_under_way() {
            self.under_way -= u32::from(!task.paused);
            if let Some(work) = self.works.get_mut(&task.work) {
                work.under_way.remove(&task.id);
                self.offer_all(&task.work);
            }
        }
        if task.is_ready() {
            let group = self.group_of(&task.group);
            group.started.remove(&rank);
            if task.work.as_bytes().is_empty() {
                group.fresh.remove(&rank);
            } else if let Some(work) = self.works.get_mut(&task.work) {
                if let Some(fresh) = work.fresh.get_mut(&task.group) {
                    fresh.remove(&rank);
                }
                self.offer(&task.work, &task.group);
            }
        }
        self.refresh(&task.group);
        let is_idle = |work: &Work| work.under_way.is_empty() && work.fresh.is_empty();
        if self.works.get(&task.work).is_some_and(is_idle) {
            self.works.remove(&task.work);
        }
    }

    /// Applies the settings of a group.
    pub(super) fn set(&mut self, group: &Group) {
        self.group_of(&group.name).setting = Some((group.max, group.pause));
        self.refresh(&group.name);
    }

    fn group_of(&mut self, name: &Name) -> &mut GroupIndex {
        self.groups.entry(name.clone()).or_default()
    }

    /// Updates which task with this work id the group may start: its first one that could begin, or none while a task with the work id is
    /// in progress.
    fn offer(&mut self, work: &Name, group: &Name) {
        let Some(of) = self.works.get_mut(work) else {
            return;
        };
        let fresh = of.fresh.get(group).and_then(BTreeSet::first).copied();
        if of.fresh.get(group).is_some_and(BTreeSet::is_empty) {
            of.fresh.remove(group);
        }
        let wanted = fresh.filter(|_| of.under_way.is_empty());
        let offered = match wanted {
            Some(rank) => of.offered.insert(group.clone(), rank),
            None => of.offered.remove(group),
        };
        if offered == wanted {
            return;
        }
        let index = self.group_of(group);
        if let Some(old) = offered {
            index.fresh.remove(&old);
        }
        index.fresh.extend(wanted);
        self.refresh(group);
    }

    fn offer_all(&mut self, work: &Name) {
        let of = self.works.get(work);
        let groups = of.map(|of| of.fresh.keys().cloned().collect::<Vec<_>>());
        for group in groups.unwrap_or_default() {
            self.offer(work, &group);
        }
    }

    /// Updates the entries of a group in `started` and `fresh` after the group has changed, and removes the group's index if it is empty.
    fn refresh(&mut self, name: &Name) {
        let Some(group) = self.groups.get_mut(name) else {
            return;
        };
        let is_open = group.pause() == Pause::Off && group.used < group.max(self.default_max);
        let goes_on = group.pause() < Pause::Hard;
        let started = group.started.first().filter(|_| goes_on).copied();
        let fresh = group.fresh.first().filter(|_| is_open).copied();
        let before = std::mem::replace(&mut group.first, (started, fresh));
        for (all, old, new) in
            [(&mut self.started, before.0, started), (&mut self.fresh, before.1, fresh)]
        {
            if old != new {
                if let Some(old) = old {
                    all.remove(&old);
                }
                all.extend(new);
            }
        }
        if group.is_empty() {
            self.groups.remove(name);
        }
    }
}

/// The threads of the servers, and which servers have a free one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Threads {
    /// For each server on which an attempt runs, the number of its threads in use.
    used: BTreeMap<Slot, u32>,
    /// Enabled servers with a free thread, by the percentage of their threads in use, except those in `failing`.
    free: BTreeSet<(u32, Slot)>,
    /// Enabled servers that could not be reached and have no attempt, by the time at which they may be tried again.
    failing: BTreeSet<(Timestamp, Slot)>,
    /// The total number of threads of all enabled servers.
    pub(super) all: u32,
    /// The part of `all` whose servers could be reached.
    pub(super) sound: u32,
}

impl Threads {
    /// Returns the server for the next attempt, and when the attempt may begin; `None` if no enabled server has a free thread. It is the
    /// server with the lowest percentage of threads in use, and of several such servers, the one with the lowest slot. A server that could
    /// not be reached is tried only if no other has a free thread.
    pub(super) fn next(&self) -> Option<(Timestamp, Slot)> {
        let free = self.free.first().map(|(_, slot)| (Timestamp(0), *slot));
        free.or_else(|| self.failing.first().copied())
    }

    pub(super) fn used(&self, slot: Slot) -> u32 {
        self.used.get(&slot).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, slot: Slot, server: &Server) {
        if server.enabled && !server.leaves {
            self.all += server.threads;
            match server.outage {
                None => {
                    self.sound += server.threads;
                    self.free.extend(self.place(slot, server));
                }
                Some(outage) if self.used(slot) == 0 => {
                    self.failing.insert((outage.retry, slot));
                }
                Some(_) => {}
            }
        }
    }

    pub(super) fn remove(&mut self, slot: Slot, server: &Server) {
        if server.enabled && !server.leaves {
            self.all -= server.threads;
            match server.outage {
                None => {
                    self.sound -= server.threads;
                    if let Some(place) = self.place(slot, server) {
                        self.free.remove(&place);
                    }
                }
                Some(outage) => {
                    self.failing.remove(&(outage.retry, slot));
                }
            }
        }
    }

    /// Counts a thread of a server as taken by an attempt if `takes`, otherwise as freed.
    pub(super) fn take(&mut self, slot: Slot, server: &Server, takes: bool) {
        self.remove(slot, server);
        let used = self.used.entry(slot).or_default();
        if takes {
            *used += 1;
        } else {
            *used -= 1;
        }
        if *used == 0 {
            self.used.remove(&slot);
        }
        self.add(slot, server);
    }

    fn place(&self, slot: Slot, server: &Server) -> Option<(u32, Slot)> {
        let used = self.used(slot);
        let percent = (used * 100).checked_div(server.threads)?;
        (used < server.threads).then_some((percent, slot))
    }
}
