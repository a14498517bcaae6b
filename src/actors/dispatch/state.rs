//! All tasks, servers and groups, and their indexes.

use crate::actors::dispatch::message::Rules;
use crate::actors::dispatch::ready::{Ready, Threads};
use crate::actors::dispatch::server::{Group, Head, Pause, Server};
use crate::actors::dispatch::task::{RunStatus, Task};
use crate::actors::dispatch::view::Totals;
use crate::actors::lock::Name;
use crate::clock::Timestamp;
use crate::ids::{Digest, PageId, ProcessId, Seq, Slot};
use crate::lookup::durable::{DurableSlab, Loaded, Plain, Singleton};
use crate::lookup::pages::Pages;
use crate::spine::machine::Start;
use std::collections::{BTreeMap, BTreeSet};

/// A decoded page.
#[derive(Debug)]
pub enum Page {
    /// The state that does not belong to any one task, server or group.
    Head(Head),
    /// Tasks by slot.
    Tasks(Loaded<Task>),
    /// Servers by slot.
    Servers(Loaded<Server>),
    /// Groups by slot.
    Groups(Loaded<Group>),
}

impl Page {
    /// Decodes the content of a page. If it is malformed, returns a description of what is wrong.
    pub(super) fn decode(page: PageId, content: &[u8]) -> Result<Self, String> {
        if page == PageId::HEAD {
            return Singleton::decode(content).map(Self::Head);
        }
        match page.kind() {
            <Server as Plain>::KIND => DurableSlab::decode(page, content).map(Self::Servers),
            <Group as Plain>::KIND => DurableSlab::decode(page, content).map(Self::Groups),
            _ => DurableSlab::decode(page, content).map(Self::Tasks),
        }
    }
}

/// All tasks, servers and groups.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) head: Singleton<Head>,
    pub(super) tasks: DurableSlab<Task>,
    pub(super) servers: DurableSlab<Server>,
    pub(super) groups: DurableSlab<Group>,
    pub(super) pages: Pages,
    pub(super) index: Index,
}

/// The indexes and counts derived from tasks, servers and groups.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) by_id: BTreeMap<u64, Slot>,
    by_process: BTreeMap<ProcessId, Slot>,
    servers: BTreeMap<Name, Slot>,
    groups: BTreeMap<Name, Slot>,
    /// Tasks that are over, in the order in which they ended.
    pub(super) over: BTreeSet<(Timestamp, Slot)>,
    /// Tasks that have an attempt or a cleanup, or wait for a lock, and so have outstanding requests to other actors.
    pub(super) bound: BTreeSet<Slot>,
    /// The tasks in `bound`, and all others that are in progress.
    pub(super) in_progress: BTreeSet<Slot>,
    pub(super) ready: Ready,
    pub(super) threads: Threads,
    /// The size of the texts of all tasks, in bytes.
    pub(super) bytes: u64,
    totals: Totals,
}

impl Index {
    /// Adds a task to the counts if `comes`; otherwise removes it from them.
    fn count(&mut self, task: &Task, comes: bool) {
        let totals = &mut self.totals;
        let mut counts = vec![match task.status {
            RunStatus::NotReady | RunStatus::NotStarted | RunStatus::Restarted => &mut totals.fresh,
            RunStatus::Waiting => &mut totals.waiting,
            RunStatus::Processing => &mut totals.processing,
            RunStatus::Complete => &mut totals.complete,
        }];
        if task.exit.is_failure() {
            counts.push(&mut totals.failed);
        }
        for count in counts {
            if comes {
                *count += 1;
            } else {
                *count -= 1;
            }
        }
    }

    fn add(&mut self, slot: Slot, task: &Task, servers: &DurableSlab<Server>) {
        self.count(task, true);
        self.bytes += task.bytes();
        if let Some(attempt) = &task.attempt {
            self.by_process.insert(attempt.process, slot);
            if let Some(server) = servers.get(attempt.server) {
                self.threads.take(attempt.server, server, true);
            }
        }
        if let Some(cleaning) = &task.cleaning {
            self.by_process.insert(cleaning.process, slot);
        }
        if task.attempt.is_some() || task.blocked.is_some() || task.cleaning.is_some() {
            self.bound.insert(slot);
        }
        if task.is_in_progress() {
            self.in_progress.insert(slot);
        }
        if let Some(ended) = task.ended {
            self.over.insert((ended, slot));
        }
        self.ready.add(slot, task);
    }

    fn remove(&mut self, slot: Slot, task: &Task, servers: &DurableSlab<Server>) {
        self.count(task, false);
        self.bytes -= task.bytes();
        if let Some(attempt) = &task.attempt {
            self.by_process.remove(&attempt.process);
            if let Some(server) = servers.get(attempt.server) {
                self.threads.take(attempt.server, server, false);
            }
        }
        if let Some(cleaning) = &task.cleaning {
            self.by_process.remove(&cleaning.process);
        }
        self.bound.remove(&slot);
        self.in_progress.remove(&slot);
        if let Some(ended) = task.ended {
            self.over.remove(&(ended, slot));
        }
        self.ready.remove(slot, task);
    }
}

impl State {
    /// Applies the default limit of groups, which comes from the rules and is not part of the durable state.
    pub(super) fn set_rules(&mut self, rules: &Rules) {
        self.index.ready.set_default_max(rules.group_max);
    }

    pub(super) fn find(&self, id: u64) -> Option<(Slot, &Task)> {
        let slot = *self.index.by_id.get(&id)?;
        Some((slot, self.tasks.get(slot)?))
    }

    /// Returns the task whose attempt or cleanup has this process, if there is one.
    pub(super) fn of_process(&self, process: ProcessId) -> Option<(Slot, &Task)> {
        let slot = *self.index.by_process.get(&process)?;
        Some((slot, self.tasks.get(slot)?))
    }

    pub(super) fn server(&self, name: &Name) -> Option<(Slot, &Server)> {
        let slot = *self.index.servers.get(name)?;
        Some((slot, self.servers.get(slot)?))
    }

    /// Returns all servers by name, including those being removed.
    pub(super) fn servers_by_name(&self) -> impl Iterator<Item = (Slot, &Server)> {
        let all = self.index.servers.values();
        all.filter_map(|slot| Some((*slot, self.servers.get(*slot)?)))
    }

    pub(super) fn group(&self, name: &Name) -> Option<(Slot, &Group)> {
        let slot = *self.index.groups.get(name)?;
        Some((slot, self.groups.get(slot)?))
    }

    pub(super) fn totals(&self) -> Totals {
        Totals { pause: self.head.pause, ..self.index.totals }
    }

    /// Returns the maximum number of tasks in progress, given the maximum per thread of an enabled server.
    pub(super) fn under_way_max(&self, per_thread: u32) -> u32 {
        self.index.threads.all.saturating_mul(per_thread)
    }

    /// Returns the task whose burst begins next, and the server that the burst will run on; `None` if no burst can begin at `now`.
    pub(super) fn next(&self, per_thread: u32, now: Timestamp) -> Option<(Slot, Slot)> {
        let (at, task, server) = self.coming(per_thread)?;
        (at <= now).then_some((task, server))
    }

    /// Returns the task whose burst begins next, the server that the burst will run on, and when it may begin; `None` if no burst can begin
    /// before something changes.
    pub(super) fn coming(&self, per_thread: u32) -> Option<(Timestamp, Slot, Slot)> {
        if self.head.rests {
            return None;
        }
        let (at, server) = self.index.threads.next()?;
        let starts = self.index.ready.under_way < self.under_way_max(per_thread);
        Some((at, self.first_ready(starts)?, server))
    }

    /// Returns the task whose burst begins next if a thread is free; `None` if no task is ready. Tasks that have not started are considered
    /// only if `starts` is set.
    fn first_ready(&self, starts: bool) -> Option<Slot> {
        let ready = &self.index.ready;
        let starts = starts && self.head.pause == Pause::Off;
        let fresh = || ready.first_fresh().filter(|_| starts);
        let goes_on = self.head.pause < Pause::Hard;
        let started = ready.first_started().filter(|_| goes_on);
        started.or_else(fresh)
    }

    /// Returns whether a task is ready to run but no server is enabled.
    pub(super) fn lacks_servers(&self) -> bool {
        self.index.threads.all == 0 && self.first_ready(true).is_some()
    }

    pub(super) fn insert(&mut self, entry: Seq, slot: Slot, task: Task) {
        self.index.by_id.insert(task.id, slot);
        self.index.add(slot, &task, &self.servers);
        self.tasks.insert(self.pages.by(entry), slot, task);
    }

    pub(super) fn change(&mut self, entry: Seq, slot: Slot, make: impl FnOnce(&mut Task)) {
        let (index, servers) = (&mut self.index, &self.servers);
        self.tasks.change(self.pages.by(entry), slot, |task| {
            index.remove(slot, task, servers);
            make(task);
            index.add(slot, task, servers);
        });
    }

    pub(super) fn remove(&mut self, entry: Seq, slot: Slot) {
        let task = self.tasks.remove(self.pages.by(entry), slot);
        self.index.remove(slot, &task, &self.servers);
        self.index.by_id.remove(&task.id);
    }

    pub(super) fn insert_server(&mut self, entry: Seq, slot: Slot, server: Server) {
        self.index.servers.insert(server.name.clone(), slot);
        self.index.threads.add(slot, &server);
        self.servers.insert(self.pages.by(entry), slot, server);
        self.head.change(self.pages.by(entry), |head| head.had_servers = true);
    }

    pub(super) fn change_server(&mut self, entry: Seq, slot: Slot, make: impl FnOnce(&mut Server)) {
        let threads = &mut self.index.threads;
        self.servers.change(self.pages.by(entry), slot, |server| {
            threads.remove(slot, server);
            make(server);
            threads.add(slot, server);
        });
    }

    /// Removes a server on which nothing is running.
    pub(super) fn remove_server(&mut self, entry: Seq, slot: Slot) {
        let server = self.servers.remove(self.pages.by(entry), slot);
        self.index.threads.remove(slot, &server);
        self.index.servers.remove(&server.name);
    }

    pub(super) fn set_group(&mut self, entry: Seq, slot: Slot, group: Group) {
        self.index.ready.set(&group);
        if self.groups.get(slot).is_some() {
            let change = self.pages.by(entry);
            self.groups.change(change, slot, |it| *it = group);
        } else {
            self.index.groups.insert(group.name.clone(), slot);
            self.groups.insert(self.pages.by(entry), slot, group);
        }
    }

    /// Handles the startup of the coordinator: heartbeat intervals start again, and bursts may begin, even if the coordinator was draining
    /// when it stopped.
    pub(super) fn start(&mut self, Start { stamp, .. }: Start) {
        self.head.change(self.pages.by(stamp.seq), |head| {
            head.epoch = stamp.at;
            head.rests = false;
        });
        self.tasks.restart_spans(stamp.at);
    }

    pub(super) fn encode_page(&self, page: PageId, content: &mut Vec<u8>) {
        if page == PageId::HEAD {
            return self.head.encode(content);
        }
        match page.kind() {
            <Server as Plain>::KIND => self.servers.encode(page, content),
            <Group as Plain>::KIND => self.groups.encode(page, content),
            _ => self.tasks.encode(page, content),
        }
    }

    pub(super) fn from_pages(pages: &mut dyn Iterator<Item = Page>) -> Self {
        let mut state = Self::default();
        for page in pages {
            match page {
                Page::Head(head) => {
                    state.tasks.restart_spans(head.epoch);
                    state.head.load(head);
                }
                Page::Tasks(page) => state.tasks.load(page),
                Page::Servers(page) => state.servers.load(page),
                Page::Groups(page) => state.groups.load(page),
            }
        }
        state.index = state.indexed();
        state
    }

    /// Computes the indexes and counts from scratch.
    fn indexed(&self) -> Index {
        let mut index = Index::default();
        index.ready.set_default_max(self.index.ready.default_max());
        for (slot, server) in self.servers.iter() {
            index.servers.insert(server.name.clone(), slot);
            index.threads.add(slot, server);
        }
        for (slot, group) in self.groups.iter() {
            index.groups.insert(group.name.clone(), slot);
            index.ready.set(group);
        }
        for (slot, task) in self.tasks.iter() {
            index.by_id.insert(task.id, slot);
            index.add(slot, task, &self.servers);
        }
        index
    }

    pub(super) fn digest(&self) -> Digest {
        let mut digest = self.tasks.digest();
        digest.merge(self.servers.digest());
        digest.merge(self.groups.digest());
        digest.merge(self.head.digest());
        digest
    }

    /// Asserts that indexes and counts match a fresh computation.
    #[cfg(test)]
    pub(super) fn assert_whole(&self) {
        self.tasks.assert_whole();
        self.servers.assert_whole();
        self.groups.assert_whole();
        assert_eq!(self.index, self.indexed());
    }
}
