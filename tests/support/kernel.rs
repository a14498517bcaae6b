//! A simulated kernel, keeper and file system: PIDs are reused, descriptors run out, exits arrive late, processes leave
//! their session, keepers are killed, and the machine reboots. It has the true state, with which tests compare reports.

use sexton::actors::process::{Failure, Identity, Message, Output, Remains, Spec, Step};
use sexton::bytes::Bytes;
use sexton::clock::Date;
use sexton::ids::ProcessId;
use sexton::keeper::protocol::{Exited, Launch, Report, Request, Started};
use sexton::ports::process::{ExitStatus, Lookup, Survivors, Tree, World};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The number of available PIDs, so small that PIDs are reused.
const PIDS: u32 = 40;

/// An event for the follower, the part of the port that observes processes.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Heard(Report),
    Ended(ProcessId),
    Emptied(ProcessId),
    KeeperGone,
}

/// A simulated process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) inode: u64,
    pub(crate) ticks: u64,
    /// The attempt whose leader it is, if any.
    pub(crate) leads: Option<ProcessId>,
    /// The attempt to which it belongs, as its leader or as a descendant, if any.
    pub(crate) tree: Option<ProcessId>,
    /// Whether it survives SIGTERM.
    pub(crate) ignores_term: bool,
    /// Whether it survives every signal, like a process that waits for an unresponsive disk.
    pub(crate) unkillable: bool,
    /// Whether it cannot be attributed: it left its session, and its environment is not readable.
    pub(crate) hidden: bool,
}

/// The entry for an attempt in a keeper's log.
#[derive(Clone, Copy, Debug)]
enum Logged {
    Started(Started),
    Exited(Exited),
    Failed(i32),
}

/// The identity of a process: its boot, and its inode in that boot.
pub(crate) type Key = (u128, u64);

/// A running keeper.
#[derive(Debug)]
struct Keeper {
    children: BTreeSet<ProcessId>,
    joined: bool,
}

/// The whole simulated machine.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a separate kind of fault"
)]
pub(crate) struct Kernel {
    pub(crate) boot: u128,
    pub(crate) now: u64,
    next_pid: u32,
    /// The PID that was freed last.
    freed: u32,
    next_inode: u64,
    pub(crate) processes: BTreeMap<u32, Process>,
    keeper: Option<Keeper>,
    log: BTreeMap<ProcessId, Logged>,
    watched: BTreeSet<(u64, ProcessId)>,
    /// Trees with their own control groups, which will become empty.
    emptying: BTreeSet<ProcessId>,
    /// The time at which this boot began, in milliseconds of `now`.
    booted: u64,
    /// The wall clock minus `now`, in milliseconds.
    pub(crate) skew: i64,
    pub(crate) events: VecDeque<Event>,
    pub(crate) reports: Vec<Message>,
    /// The PIDs for which a PID file was written.
    pub(crate) noted: Vec<u32>,
    /// Every process that was ever launched, by attempt. `truth` has how each process really ended.
    pub(crate) launched: BTreeMap<ProcessId, Vec<Key>>,
    pub(crate) truth: BTreeMap<Key, u32>,
    /// Attempts that were running when their keeper ended. Their processes have no parent that waits for them.
    pub(crate) orphaned: BTreeSet<ProcessId>,
    /// Signals that were sent: the process, the tree if it was sent to a tree, and the number.
    pub(crate) signalled: Vec<(Key, Option<ProcessId>, u8)>,
    /// Whether no descriptors are left.
    pub(crate) exhausted: bool,
    /// Whether the kernel reports how a process ended only to its parent.
    pub(crate) secretive: bool,
    /// The number of times that a descriptor becomes readable before its process has really ended.
    pub(crate) early_wakes: u32,
    pub(crate) contains: bool,
    pub(crate) refuses: Option<i32>,
    pub(crate) no_keeper: bool,
}

impl Default for Kernel {
    fn default() -> Self {
        Self {
            boot: 1,
            now: 1_000_000,
            next_pid: 2,
            freed: 2,
            next_inode: 100,
            processes: BTreeMap::new(),
            keeper: None,
            log: BTreeMap::new(),
            watched: BTreeSet::new(),
            emptying: BTreeSet::new(),
            booted: 0,
            skew: 0,
            events: VecDeque::new(),
            reports: Vec::new(),
            noted: Vec::new(),
            launched: BTreeMap::new(),
            truth: BTreeMap::new(),
            orphaned: BTreeSet::new(),
            signalled: Vec::new(),
            exhausted: false,
            secretive: false,
            early_wakes: 0,
            contains: true,
            refuses: None,
            no_keeper: false,
        }
    }
}

impl Kernel {
    /// Starts a process that belongs to a tree, or to none. Returns its PID, or `None` if all PIDs are in use.
    pub(crate) fn spawn(&mut self, tree: Option<ProcessId>) -> Option<u32> {
        let free = (0..PIDS).map(|step| 2 + (self.next_pid - 2 + step) % PIDS);
        let pid = free
            .into_iter()
            .find(|pid| !self.processes.contains_key(pid))?;
        self.next_pid = 2 + (pid - 1) % PIDS;
        self.next_inode += 1;
        let process = Process {
            inode: self.next_inode,
            // A tick is ten milliseconds, so a process with a reused PID may have the same start time as the one before.
            ticks: (self.now - self.booted) / 10,
            leads: None,
            tree,
            ignores_term: false,
            unkillable: false,
            hidden: false,
        };
        self.processes.insert(pid, process);
        Some(pid)
    }

    pub(crate) fn identity(&self, pid: u32) -> Option<Identity> {
        let process = self.processes.get(&pid)?;
        Some(Identity {
            machine: 7,
            boot: self.boot,
            namespace: 3,
            pid,
            inode: process.inode,
            ticks: process.ticks,
        })
    }

    /// Ends a process with this wait status.
    pub(crate) fn end(&mut self, pid: u32, status: u32) {
        let Some(process) = self.processes.remove(&pid) else {
            return;
        };
        self.freed = pid;
        self.truth.insert((self.boot, process.inode), status);
        let inode = process.inode;
        let is_its = |watched: &&(u64, ProcessId)| watched.0 == inode;
        for watched in self.watched.iter().filter(is_its) {
            self.events.push_back(Event::Ended(watched.1));
        }
        self.watched.retain(|watched| watched.0 != inode);
        if let Some(tree) = process.tree
            && self.processes.values().all(|it| it.tree != Some(tree))
            && self.emptying.remove(&tree)
        {
            self.events.push_back(Event::Emptied(tree));
        }
        let Some(id) = process.leads else {
            return;
        };
        if let Some(keeper) = &mut self.keeper
            && keeper.children.remove(&id)
            && let Some(Logged::Started(started)) = self.log.get(&id)
        {
            let exited = Exited {
                started: *started,
                status,
                at: self.now.saturating_add_signed(self.skew),
                cpu_ms: 1,
                memory_max: 4096,
            };
            self.log.insert(id, Logged::Exited(exited));
            if keeper.joined {
                self.events.push_back(Event::Heard(Report::Exited(exited)));
            }
        }
    }

    pub(crate) fn kill_keeper(&mut self) {
        let Some(keeper) = self.keeper.take() else {
            return;
        };
        self.orphaned.extend(keeper.children);
        if keeper.joined {
            // Reports of the keeper that were not read are lost with it.
            self.events
                .retain(|event| !matches!(event, Event::Heard(_)));
            self.events.push_back(Event::KeeperGone);
        }
    }

    /// Kills the coordinator. Its descriptors and unread events are lost, and everything else stays.
    pub(crate) fn lose_coordinator(&mut self) {
        self.events.clear();
        self.watched.clear();
        self.emptying.clear();
        if let Some(keeper) = &mut self.keeper {
            keeper.joined = false;
        }
    }

    pub(crate) fn reboot(&mut self) {
        const KILLED: u32 = 9;
        for process in std::mem::take(&mut self.processes).into_values() {
            self.truth.insert((self.boot, process.inode), KILLED);
        }
        self.keeper = None;
        self.log.clear();
        self.lose_coordinator();
        // PIDs and inodes are counted from the beginning again, so new ones repeat old ones.
        self.boot += 1;
        (self.next_pid, self.next_inode, self.booted) = (2, 100, self.now);
    }

    /// Returns whether the process with this identity is alive.
    pub(crate) fn lives(&self, (boot, inode): Key) -> bool {
        boot == self.boot && self.processes.values().any(|it| it.inode == inode)
    }

    /// Starts an unrelated process with the PID that was freed last. Returns whether that PID was free.
    pub(crate) fn reuse(&mut self) -> bool {
        self.next_pid = self.freed;
        self.spawn(None) == Some(self.freed)
    }

    /// Removes this attempt from the keeper's log.
    pub(crate) fn forget_launch(&mut self, attempt: ProcessId) {
        self.log.remove(&attempt);
    }

    pub(crate) fn logged(&self) -> Vec<ProcessId> {
        self.log.keys().copied().collect()
    }

    pub(crate) const fn keeper_lives(&self) -> bool {
        self.keeper.is_some()
    }

    pub(crate) fn keeper_holds(&self) -> usize {
        self.log.len()
    }

    fn take(&mut self, pid: u32, signal: u8) {
        let Some(process) = self.processes.get(&pid) else {
            return;
        };
        let key = (self.boot, process.inode);
        self.signalled.push((key, process.tree, signal));
        let ends = match signal {
            9 => !process.unkillable,
            15 => !process.ignores_term && !process.unkillable,
            _ => false,
        };
        if ends {
            self.end(pid, signal.into());
        }
    }

    fn members(&self, tree: &Tree) -> Vec<u32> {
        let of = |pid: u32, process: &Process| {
            let is_in = process.tree == Some(tree.id) && (tree.contained || !process.hidden);
            // Without a control group, the leader is found by its identity.
            let is_it = || self.identity(pid).is_some_and(|it| it.is(&tree.leader));
            is_in || !tree.contained && is_it()
        };
        let members = self.processes.iter().filter(|(pid, it)| of(**pid, it));
        members.map(|(pid, _)| *pid).collect()
    }

    fn said(&self, attempt: ProcessId, logged: &Logged) -> Report {
        let children = self.keeper.as_ref().map(|it| &it.children);
        match logged {
            Logged::Started(started) if children.is_some_and(|it| it.contains(&attempt)) => {
                Report::Started(*started)
            }
            Logged::Started(started) => Report::Orphaned(*started),
            Logged::Exited(exited) => Report::Exited(*exited),
            Logged::Failed(errno) => failed(attempt, *errno),
        }
    }

    fn launch(&mut self, attempt: ProcessId) {
        let said = match self.log.get(&attempt) {
            Some(logged) => self.said(attempt, logged),
            None => self.launch_new(attempt),
        };
        self.events.push_back(Event::Heard(said));
    }

    fn launch_new(&mut self, attempt: ProcessId) -> Report {
        let errno = self.refuses;
        let Some(pid) = errno.is_none().then(|| self.spawn(Some(attempt))).flatten() else {
            let errno = errno.unwrap_or(11);
            self.log.insert(attempt, Logged::Failed(errno));
            return failed(attempt, errno);
        };
        let process = self.processes.get_mut(&pid).expect("it was just started");
        process.leads = Some(attempt);
        let started = Started {
            attempt,
            pid,
            namespace: 3,
            inode: process.inode,
            ticks: process.ticks,
            at: self.now.saturating_add_signed(self.skew),
            contained: self.contains,
        };
        self.launched
            .entry(attempt)
            .or_default()
            .push((self.boot, process.inode));
        self.log.insert(attempt, Logged::Started(started));
        let keeper = self.keeper.as_mut().expect("a keeper launches");
        keeper.children.insert(attempt);
        Report::Started(started)
    }
}

fn failed(attempt: ProcessId, errno: i32) -> Report {
    Report::Failed {
        attempt,
        step: sexton::keeper::protocol::step::EXEC,
        errno,
    }
}

/// A descriptor, which refers to one process even if its PID is reused.
#[derive(Debug)]
pub(crate) struct Handle(pub(crate) u64);

impl World for Kernel {
    type Handle = Handle;

    fn machine_and_boot(&self) -> (u128, u128) {
        (7, self.boot)
    }

    fn date(&self) -> Date {
        Date(self.now.saturating_add_signed(self.skew))
    }

    fn clock(&self) -> u64 {
        self.now
    }

    fn find(&mut self, identity: &Identity) -> Lookup<Handle> {
        if self.exhausted {
            return Lookup::Unknown;
        }
        if self.lives((identity.boot, identity.inode)) {
            Lookup::Alive(Handle(identity.inode))
        } else {
            Lookup::Gone(None)
        }
    }

    fn watch(&mut self, id: ProcessId, handle: &Handle) {
        self.watched.insert((handle.0, id));
    }

    fn status(&mut self, handle: &Handle) -> ExitStatus {
        if self.early_wakes > 0 {
            self.early_wakes -= 1;
            return ExitStatus::Alive;
        }
        let known = self.truth.get(&(self.boot, handle.0)).copied();
        known
            .filter(|_| !self.secretive)
            .map_or(ExitStatus::Unavailable, ExitStatus::Known)
    }

    fn signal(&mut self, handle: &Handle, signal: u8, _group: bool) -> Result<(), i32> {
        let mut processes = self.processes.iter();
        let Some((pid, _)) = processes.find(|(_, it)| it.inode == handle.0) else {
            return Err(3);
        };
        let pid = *pid;
        self.take(pid, signal);
        Ok(())
    }

    fn survivors(&mut self, tree: &Tree) -> Survivors {
        let count = |some: usize| u32::try_from(some).expect("processes are few");
        let hidden = self.processes.values();
        let hidden = hidden.filter(|it| !tree.contained && it.hidden && it.leads.is_none());
        Survivors {
            unknown: count(hidden.count()),
            alive: count(self.members(tree).len()),
        }
    }

    fn watch_tree(&mut self, tree: &Tree) {
        if tree.contained {
            self.emptying.insert(tree.id);
        }
    }

    fn signal_tree(&mut self, tree: &Tree, signal: u8) -> Result<(), i32> {
        for pid in self.members(tree) {
            self.take(pid, signal);
        }
        Ok(())
    }

    fn has_keeper(&mut self) -> bool {
        self.keeper.is_some()
    }

    fn join(&mut self) -> Result<(), Failure> {
        if self.no_keeper {
            return Err(Failure {
                step: Step::Keeper,
                errno: 2,
                about: None,
            });
        }
        let children = BTreeSet::new();
        let keeper = self.keeper.get_or_insert(Keeper {
            children,
            joined: false,
        });
        keeper.joined = true;
        let mut said = vec![Report::Welcome {
            version: 1,
            pid: 1,
            boot: self.boot,
            groups: None,
        }];
        for (id, logged) in &self.log {
            match logged {
                Logged::Started(started) if !keeper.children.contains(id) => {
                    said.push(Report::Orphaned(*started));
                }
                Logged::Started(started) => said.push(Report::Started(*started)),
                Logged::Exited(exited) => said.push(Report::Exited(*exited)),
                Logged::Failed(errno) => said.push(failed(*id, *errno)),
            }
        }
        said.push(Report::Told);
        self.events.extend(said.into_iter().map(Event::Heard));
        Ok(())
    }

    fn ask(&mut self, request: Request) {
        let Some(keeper) = self.keeper.as_ref().filter(|it| it.joined) else {
            return;
        };
        match request {
            Request::Launch { attempt, .. } => self.launch(attempt),
            Request::Forget { attempts } => {
                for id in attempts {
                    if !keeper.children.contains(&id) {
                        self.log.remove(&id);
                    }
                }
            }
            Request::Ask { attempt } => {
                let said = match self.log.get(&attempt) {
                    Some(logged) => self.said(attempt, logged),
                    None => Report::Absent { attempt },
                };
                self.events.push_back(Event::Heard(said));
            }
            Request::Hello { .. } | Request::Parcel { .. } | Request::Upgrade { .. } => {}
        }
    }

    fn prepare(&mut self, _id: ProcessId, spec: &Spec) -> Result<Launch, Failure> {
        Ok(Launch {
            argv: spec.argv.clone(),
            ..Launch::default()
        })
    }

    fn write_pid_file(&mut self, _id: ProcessId, _run_dir: Option<&Bytes>, pid: u32) {
        self.noted.push(pid);
    }

    fn remains(&mut self, tree: &Tree, _run_dir: Option<&Bytes>) -> Remains {
        let left = self.survivors(tree);
        Remains {
            alive: left.alive,
            empty: tree.launched && left.is_empty(),
            stdout: Output::default(),
            ..Remains::default()
        }
    }

    fn clear(&mut self, _tree: &Tree, _run_dir: Option<&Bytes>) {}

    fn report(&mut self, message: Message) {
        self.reports.push(message);
    }
}
