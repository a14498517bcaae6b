//! The kernel below the port, and the faults that its wiring may have.

use super::hooks;
use super::kernel::world::Handle;
use super::kernel::{Kernel, Key};
use crate::setting::Plant;
use sexton::actors::process::{
    Action, End, Failure, Identity, Lost, Message, Notice, Remains, Spec,
};
use sexton::bytes::Bytes;
use sexton::clock::Date;
use sexton::ids::ProcessId;
use sexton::keeper::protocol::{Launch, Request};
use sexton::ports::process::{ExitStatus, Lookup, Survivors, Tree, World};
use std::collections::{BTreeMap, BTreeSet};

/// The time without a reachable keeper after which attempts that only a keeper could know of are given up, in
/// milliseconds.
const ALONE_MS: u64 = 20_000;

/// The kernel as seen by a port that may have a fault.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    pub(super) kernel: Kernel,
    pub(super) plant: Option<Plant>,
    /// The leaders for which a signal was requested. `trees` has the trees.
    pub(super) meant: BTreeSet<Key>,
    pub(super) trees: BTreeSet<ProcessId>,
    /// The attempt whose end was reported last.
    pub(super) ended: Option<ProcessId>,
    /// Attempts of services, each with the run directory of its instance, which identifies the instance.
    pub(super) places: BTreeMap<ProcessId, String>,
    /// Attempts whose process reported that it is ready.
    pub(super) ready: BTreeSet<ProcessId>,
    /// The time since when no keeper has been reachable, on the kernel's clock; `None` while a keeper is reachable.
    pub(super) alone: Option<u64>,
    /// Attempts that were given up after `ALONE_MS`.
    pub(super) given_up: BTreeSet<ProcessId>,
    /// The times of the first requests to kill an attempt, to kill it in the current life of the node, and to wait for
    /// its end.
    pub(super) killed: BTreeMap<ProcessId, u64>,
    pub(super) killed_here: BTreeMap<ProcessId, u64>,
    pub(super) awaited: BTreeMap<ProcessId, u64>,
}

impl Machine {
    fn is(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    /// Records that a signal is requested for this process and its tree.
    pub(super) fn means(&mut self, id: ProcessId, identity: &Identity) {
        self.meant.insert((identity.boot, identity.inode));
        self.trees.insert(id);
        // A process of a tree that registered itself leads a tree of its own, which is part of the other.
        let mut its = self.kernel.processes.values();
        let its = its.find(|it| it.inode == identity.inode && self.kernel.boot == identity.boot);
        self.trees.extend(its.and_then(|it| it.tree));
    }

    /// Records the time of the first request to kill an attempt or to wait for it.
    pub(super) fn note_asked(&mut self, action: &Action) {
        let now = self.kernel.now;
        if let Action::Kill { id, .. } | Action::Signal { id, .. } = action
            && self.is(Plant::StuckAtOnce)
        {
            let (id, unkillable, unknown) = (*id, 1, 0);
            self.kernel.report(Message::Stuck { id, unkillable, unknown });
        }
        if let Action::Kill { id, .. } = action {
            self.killed.entry(*id).or_insert(now);
            self.killed_here.entry(*id).or_insert(now);
        } else if let Action::Await { id, .. } = action {
            self.awaited.entry(*id).or_insert(now);
        }
    }

    /// Returns a signal that reached a process for which none was requested, or `None`.
    pub(super) fn take_stray(&mut self) -> Option<(Key, [Option<ProcessId>; 2], u8)> {
        let sent = std::mem::take(&mut self.kernel.signalled);
        let mut stray = sent.into_iter().filter(|(key, trees, _)| {
            let mut trees = trees.iter().flatten();
            !self.meant.contains(key) && !trees.any(|id| self.trees.contains(id))
        });
        stray.next()
    }
}

impl World for Machine {
    type Handle = Handle;

    fn machine_and_boot(&self) -> (u128, u128) {
        self.kernel.machine_and_boot()
    }

    fn date(&self) -> Date {
        self.kernel.date()
    }

    fn clock(&self) -> u64 {
        self.kernel.clock()
    }

    fn note(&mut self, id: ProcessId, leader: Option<&Identity>) {
        self.kernel.note(id, leader);
    }

    fn forget(&mut self, id: ProcessId) {
        self.kernel.forget(id);
    }

    fn find(&mut self, identity: &Identity) -> Lookup<Handle> {
        if self.is(Plant::FoundByPid) {
            let there = self.kernel.processes.get(&identity.pid);
            return there.map_or(Lookup::Gone(None), |it| Lookup::Alive(Handle(it.inode)));
        }
        match self.kernel.find(identity) {
            Lookup::Unknown if self.is(Plant::UnknownIsGone) => Lookup::Gone(None),
            found @ (Lookup::Alive(_) | Lookup::Gone(_) | Lookup::Unknown) => found,
        }
    }

    fn watch(&mut self, id: ProcessId, handle: &Handle) {
        self.kernel.watch(id, handle);
    }

    fn status(&mut self, handle: &Handle) -> ExitStatus {
        self.kernel.status(handle)
    }

    fn signal(&mut self, handle: &Handle, signals: &[u8], group: bool) -> Result<(), i32> {
        self.kernel.signal(handle, signals, group)
    }

    fn survivors(&mut self, tree: &Tree) -> Survivors {
        let leader = (tree.leader.boot, tree.leader.inode);
        if self.is(Plant::TreeOfLeader) && !self.kernel.lives(leader) {
            return Survivors::default();
        }
        self.kernel.survivors(tree)
    }

    fn watch_tree(&mut self, tree: &Tree) {
        self.kernel.watch_tree(tree);
    }

    fn signal_tree(&mut self, tree: &Tree, signals: &[u8]) -> Result<(), i32> {
        if self.is(Plant::StopTakenForEnd) && self.places.contains_key(&tree.id) {
            let (end, dumped) = (signals.first().copied().unwrap_or(0), false);
            let left = Remains { empty: true, ..Remains::default() };
            self.kernel.report(Message::Ended {
                id: tree.id,
                end: End::Signal { signal: end, dumped },
                at: self.date(),
                left: Box::new(left),
            });
        }
        self.kernel.signal_tree(tree, signals)
    }

    fn has_keeper(&mut self) -> bool {
        self.kernel.has_keeper()
    }

    fn join(&mut self) -> Result<(), Failure> {
        let joined = self.kernel.join();
        self.alone = match joined {
            Ok(()) => None,
            Err(_) => self.alone.or(Some(self.kernel.now)),
        };
        joined
    }

    fn ask(&mut self, request: Request) {
        if let Request::Launch { attempt, .. } = &request
            && self.is(Plant::LaunchedTwice)
        {
            self.kernel.forget_launch(*attempt);
        }
        self.kernel.ask(request);
    }

    fn prepare(&mut self, id: ProcessId, spec: &Spec) -> Result<Launch, Failure> {
        if let Some(own) = &spec.run_dir {
            let place = String::from_utf8_lossy(own.as_bytes()).into_owned();
            self.places.insert(id, place);
        }
        self.kernel.prepare(id, spec)
    }

    fn write_pid_file(&mut self, id: ProcessId, run_dir: Option<&Bytes>, pid: u32) {
        self.kernel.write_pid_file(id, run_dir, pid);
    }

    fn remains(&mut self, tree: &Tree, run_dir: Option<&Bytes>) -> Remains {
        self.kernel.remains(tree, run_dir)
    }

    fn clear(&mut self, tree: &Tree, run_dir: Option<&Bytes>) {
        self.kernel.clear(tree, run_dir);
    }

    fn read(&mut self, id: ProcessId, _: Option<&Bytes>) {
        let times = if self.is(Plant::ChildTwice) { 2 } else { 1 };
        for message in hooks::read(id, times) {
            self.report(message);
        }
    }

    fn report(&mut self, mut message: Message) {
        if matches!(message, Message::Stuck { .. }) && self.is(Plant::StuckUnsaid) {
            return;
        }
        if let Message::Ended { id, end, left, .. } = &mut message {
            left.empty |= left.alive == 0 && self.is(Plant::DoubtIsEmpty);
            let is_single_threaded = self.alone.is_some_and(|at| self.kernel.now >= at + ALONE_MS);
            if *end == End::Lost(Lost::KeeperGone) && is_single_threaded {
                self.given_up.insert(*id);
            }
            if self.is(Plant::StatusGuessed) && matches!(end, End::Lost(Lost::KeeperGone)) {
                *end = End::Code(0);
            }
            if self.is(Plant::ForgottenEarly) {
                let attempts = vec![*id];
                self.kernel.ask(Request::Forget { attempts });
            }
            let before = self.ended.replace(*id);
            if self.is(Plant::EndOfAnother) {
                *id = before.unwrap_or(*id);
            }
        }
        if let Message::Started { id, .. } = &message
            && self.is(Plant::ReadyGuessed)
            && self.places.contains_key(id)
        {
            let (id, notice) = (*id, Notice::Ready);
            self.kernel.report(Message::Notice { id, notice });
        }
        self.kernel.report(message);
    }
}
