//! The answers to queries and waits.

use super::{Model, count};
use sexton::actors::dispatch::{
    ExitStatus, GroupView, Query, Reply, RunStatus, ServerView, Task, TaskFilter, TaskView, Tasks,
    Totals, UnderWay, Watch, WorkInProgress,
};
use sexton::actors::lock::Name;
use sexton::ids::Slot;

impl Model {
    pub(crate) fn view(&self, slot: Slot) -> Option<TaskView> {
        let task = self.task(slot)?.clone();
        let on = task.attempt.as_ref().map(|it| it.server);
        let mut servers = self.state.servers.iter();
        let server = servers.find(|(its, _)| Some(*its) == on);
        Some(TaskView {
            server: server.map(|(_, it)| it.name.clone()),
            obstacle: self.obstacle(slot, &task),
            task,
        })
    }

    pub(super) fn shown(&self, slot: Slot) -> Reply {
        let view = self.view(slot).map(Box::new);
        view.map_or(Reply::Absent, Reply::Task)
    }

    /// Returns the views of all tasks, by slot.
    pub(crate) fn views(&self) -> Vec<TaskView> {
        let mut slots: Vec<Slot> = self.state.tasks.iter().map(|(slot, _)| *slot).collect();
        slots.sort_unstable();
        slots.into_iter().filter_map(|slot| self.view(slot)).collect()
    }

    /// Returns the answer to a query.
    pub(crate) fn answer(&self, query: &Query) -> Reply {
        match query {
            Query::Task(id) => {
                let found = self.find(*id);
                found.map_or(Reply::Absent, |(slot, _)| self.shown(slot))
            }
            Query::Tasks { filter, after, limit } => {
                Reply::Tasks(Box::new(self.list(filter, *after, *limit as usize)))
            }
            Query::Saved(process) => match self.attempted_by(*process) {
                Some((_, task)) => {
                    let saved = task.saved.as_ref().map(|it| it.body.clone());
                    Reply::Saved(task.revision, saved)
                }
                None => Reply::Absent,
            },
            Query::Servers => Reply::Servers(self.servers()),
            Query::Inventory(hosts) => self.reconciled(hosts).unwrap_or_else(Reply::Refused),
            Query::Groups => Reply::Groups(self.groups()),
            Query::Totals => Reply::Totals(self.totals()),
            Query::Terms => Reply::Terms(self.rules.terms),
            Query::Active { most } => Reply::Tasks(Box::new(self.active(*most as usize))),
            Query::WorkInProgress => Reply::WorkInProgress(Box::new(self.work_in_progress())),
        }
    }

    fn list(&self, filter: &TaskFilter, after: Option<u64>, limit: usize) -> Tasks {
        let mut all = self.views();
        all.retain(|it| after.is_none_or(|after| it.task.id > after));
        all.sort_by_key(|it| it.task.id);
        let is = |wanted: &Option<Name>, its: &Name| wanted.as_ref().is_none_or(|it| it == its);
        let takes = |it: &TaskView| {
            filter.status.is_none_or(|status| status == it.task.status)
                && is(&filter.group, &it.task.group)
                && is(&filter.work, &it.task.work)
        };
        let last = all.last().map(|it| it.task.id);
        let mut tasks: Vec<TaskView> = all.into_iter().filter(takes).collect();
        // The machine stops visiting tasks once the list is full, so it sets `next` even if no later task matches the filter.
        let end = limit.checked_sub(1).and_then(|last| tasks.get(last)).map(|it| it.task.id);
        tasks.truncate(limit);
        let next = end.filter(|end| Some(*end) != last);
        Tasks { tasks, next }
    }

    fn servers(&self) -> Vec<ServerView> {
        let servers = self.state.servers.iter();
        let views = servers.map(|(slot, it)| ServerView {
            name: it.name.clone(),
            threads: it.threads,
            used: self.used(*slot),
            enabled: it.enabled,
            leaves: it.leaves,
            remote: it.remote.clone(),
            outage: it.outage,
        });
        let mut views: Vec<_> = views.collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views
    }

    /// Lists groups that have settings, tasks in progress, or tasks that could begin if the group permitted it.
    fn groups(&self) -> Vec<GroupView> {
        let tasks = self.state.tasks.iter().map(|(_, it)| &it.group);
        let set = self.state.groups.iter().map(|it| &it.name);
        let mut names: Vec<&Name> = tasks.chain(set).collect();
        names.sort_unstable();
        names.dedup();
        let views = names.into_iter().map(|name| {
            let (max, pause) = self.group(name);
            let its = self.state.tasks.iter().map(|(_, it)| it);
            let its: Vec<_> = its.filter(|it| it.group == *name).collect();
            let used = count(its.iter().filter(|it| it.counts));
            let mut works: Vec<&Name> = Vec::new();
            let mut ready = 0;
            for it in its {
                // Of several tasks with the same work id, only one can begin, so they count as one. A waiting task is already in
                // progress, so it is always counted.
                let is_first = it.work.as_bytes().is_empty()
                    || it.status == RunStatus::Waiting
                    || !works.contains(&&it.work);
                if is_first && self.could_begin(it) {
                    ready += 1;
                    works.push(&it.work);
                }
            }
            GroupView { name: name.clone(), max, used, pause, ready }
        });
        let is_set = |name: &Name| self.state.groups.iter().any(|it| it.name == *name);
        views.filter(|it| it.used > 0 || it.ready > 0 || is_set(&it.name)).collect()
    }

    /// Returns all work in progress. The host handles due deadlines before a query, so no task is late.
    fn work_in_progress(&self) -> WorkInProgress {
        let mut tasks: Vec<_> = self.state.tasks.iter().collect();
        tasks.sort_unstable_by_key(|(slot, _)| *slot);
        let stands = |task: &Task| {
            let asks = task.attempt.is_some() || task.blocked.is_some() || task.cleaning.is_some();
            asks || task.counts
                || [RunStatus::Waiting, RunStatus::Processing].contains(&task.status)
        };
        let tasks = tasks.into_iter().filter(|(_, task)| stands(task));
        let under_way = tasks.map(|(slot, task)| UnderWay {
            id: task.id,
            work: task.work.clone(),
            group: task.group.clone(),
            status: task.status,
            counts: task.counts,
            attempt: task.attempt.clone(),
            server: self.view(*slot).and_then(|it| it.server),
            blocked: task.blocked,
            cleaning: task.cleaning,
            late: false,
        });
        let mut groups = self.groups();
        groups.retain(|it| it.used > 0);
        WorkInProgress { tasks: under_way.collect(), servers: self.servers(), groups, whole: true }
    }

    fn totals(&self) -> Totals {
        let counted = |is: &dyn Fn(RunStatus, ExitStatus) -> bool| {
            let tasks = self.state.tasks.iter();
            tasks.filter(|(_, it)| is(it.status, it.exit)).count() as u64
        };
        let is_fresh =
            |it| matches!(it, RunStatus::NotReady | RunStatus::NotStarted | RunStatus::Restarted);
        Totals {
            fresh: counted(&|it, _| is_fresh(it)),
            waiting: counted(&|it, _| it == RunStatus::Waiting),
            processing: counted(&|it, _| it == RunStatus::Processing),
            complete: counted(&|it, _| it == RunStatus::Complete),
            failed: counted(&|_, exit| {
                matches!(exit, ExitStatus::SystemError | ExitStatus::UserError)
            }),
            pause: self.state.pause,
        }
    }

    /// Lists at most `most` tasks: first those with a burst running, then those that wait for their next burst, then those that could begin
    /// their first burst. Of several such tasks with the same work id and group, only the first is listed.
    fn active(&self, most: usize) -> Tasks {
        let with = |status: &[RunStatus]| {
            let tasks = self.state.tasks.iter();
            let tasks = tasks.filter(|(_, task)| status.contains(&task.status));
            tasks.collect::<Vec<_>>()
        };
        let mut running = with(&[RunStatus::Processing]);
        running.sort_by_key(|(_, task)| (task.attempt.as_ref().map(|it| it.claimed), task.id));
        let mut waiting = with(&[RunStatus::Waiting]);
        waiting.sort_by_key(|(_, task)| (task.wake, task.id));
        let mut fresh = with(&[RunStatus::NotStarted, RunStatus::Restarted]);
        fresh.retain(|(_, task)| self.could_begin(task) && self.is_first_of_work(task));
        fresh.sort_by_key(|(_, task)| (task.group.clone(), task.priority, task.id));
        let all = [running, waiting, fresh].concat();
        let shown = all.iter().take(most);
        Tasks {
            tasks: shown.filter_map(|(slot, _)| self.view(*slot)).collect(),
            next: (all.len() > most).then_some(0),
        }
    }

    /// Returns whether no other task with the same work id and group could begin before this one.
    fn is_first_of_work(&self, task: &Task) -> bool {
        let rank = |task: &Task| (task.priority, task.id);
        let tasks = self.state.tasks.iter().map(|(_, other)| other);
        let mut same = tasks.filter(|other| {
            let is_fresh = matches!(other.status, RunStatus::NotStarted | RunStatus::Restarted);
            let is_like = other.work == task.work && other.group == task.group;
            is_fresh && is_like && !other.work.as_bytes().is_empty() && self.could_begin(other)
        });
        !same.any(|other| rank(other) < rank(task))
    }

    /// Returns the answer to a wait if its condition is met, and `None` otherwise.
    pub(crate) fn wakes(&self, watch: &Watch) -> Option<Reply> {
        match watch {
            Watch::Over(id) => match self.find(*id) {
                Some((_, task)) if task.status != RunStatus::Complete => None,
                Some((slot, _)) => Some(self.shown(slot)),
                None => Some(Reply::Absent),
            },
            Watch::Idle => {
                let totals = self.totals();
                (totals.processing == 0).then_some(Reply::Totals(totals))
            }
            Watch::ServersWanted => (self.troubled || self.lacks_servers()).then_some(Reply::Done),
        }
    }
}
