//! A simulated kernel, keeper and file system: PIDs are reused, descriptors run out, exits arrive late, processes leave
//! their session or their control group, end their main thread, keep forking or carry the id of another tree, a second user imitates
//! them, keepers are killed, and the machine reboots. It has the true state, with which tests compare reports.

use sexton::actors::process::{Identity, Message};
use sexton::ids::ProcessId;
use sexton::keeper::protocol::{Exited, Report, Started};
use sexton::kernel::proc::Stat;
use sexton::ports::process::Tree;
use sexton::ports::process::members::{Members, Wanted};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[path = "kernel_world.rs"]
pub(crate) mod world;

/// The PID of the keeper. Processes of which nobody is the parent have 0 as that of their parent.
const KEEPER: u32 = 1;

/// The user of the coordinator, and the other user of the machine.
pub(crate) const OWN: u32 = 0;
pub(crate) const OTHER: u32 = 1000;

/// A fault in how the processes of a tree are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blindness {
    /// A process whose main thread has ended is taken for ended.
    Threads,
    /// The control group of a tree is taken for the whole tree.
    OutsideGroup,
    /// An id in the environment counts, whoever put it there.
    Users,
    /// An id in the environment counts, whatever the control group of the process.
    Groups,
    /// A pass counts although processes were created while it was made.
    Forks,
}

/// The number of passes, which show no process that keeps forking.
const PASSES: usize = 2;

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
#[expect(clippy::struct_excessive_bools, reason = "each is independent of the others")]
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
    /// The PID of its parent.
    pub(crate) parent: u32,
    pub(crate) user: u32,
    /// The attempt named in its environment, unless it is hidden.
    pub(crate) named: Option<ProcessId>,
    /// Whether it left the control group of its tree.
    pub(crate) moved: bool,
    /// Whether its main thread has ended. It lives on in other threads.
    pub(crate) headless: bool,
    /// Whether it keeps forking, each process ending when it has started the next: no pass over all processes shows it.
    pub(crate) fleeting: bool,
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
    /// Every attempt that it launched.
    launched: BTreeSet<ProcessId>,
    joined: bool,
}

/// The whole simulated machine.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate kind of fault")]
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
    /// Trees that were launched in a control group of their own.
    grouped: BTreeSet<ProcessId>,
    /// Attempts that the coordinator follows.
    followed: BTreeSet<ProcessId>,
    pub(crate) blindness: Option<Blindness>,
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
    /// The attempts for which a file system does not answer.
    pub(crate) unfetched: BTreeSet<ProcessId>,
    /// Every process that was ever launched, by attempt. `truth` has how each process really ended.
    pub(crate) launched: BTreeMap<ProcessId, Vec<Key>>,
    pub(crate) truth: BTreeMap<Key, u32>,
    /// Attempts that were running when their keeper ended. Their processes have no parent that waits for them.
    pub(crate) orphaned: BTreeSet<ProcessId>,
    /// Signals that were sent: the process, the trees to which it belongs in truth and by its own word, and the number.
    pub(crate) signalled: Vec<(Key, [Option<ProcessId>; 2], u8)>,
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
            grouped: BTreeSet::new(),
            followed: BTreeSet::new(),
            blindness: None,
            emptying: BTreeSet::new(),
            booted: 0,
            skew: 0,
            events: VecDeque::new(),
            reports: Vec::new(),
            noted: Vec::new(),
            unfetched: BTreeSet::new(),
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
        let pid = free.into_iter().find(|pid| !self.processes.contains_key(pid))?;
        self.next_pid = 2 + (pid - 1) % PIDS;
        self.next_inode += 1;
        let leader = self.processes.iter();
        let mut leader = leader.filter(|(_, it)| tree.is_some() && it.leads == tree);
        let orphanage = if self.keeper.is_some() { KEEPER } else { 0 };
        let parent = leader.next().map_or(orphanage, |(pid, _)| *pid);
        let process = Process {
            inode: self.next_inode,
            // A tick is ten milliseconds, so a process with a reused PID may have the same start time as the one before.
            ticks: (self.now - self.booted) / 10,
            leads: None,
            tree,
            ignores_term: false,
            unkillable: false,
            hidden: false,
            parent: tree.map_or(0, |_| parent),
            user: OWN,
            named: tree,
            moved: false,
            headless: false,
            fleeting: false,
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
        self.orphan(pid);
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

    /// Makes a process without children an orphan, outside the control group of its tree.
    pub(crate) fn detach(&mut self, pid: u32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            (process.parent, process.moved) = (pid, true);
        }
        self.orphan(pid);
    }

    /// Gives the children of an ended process to the keeper, if that launched their tree.
    fn orphan(&mut self, parent: u32) {
        let children = self.keeper.as_ref().map(|it| it.launched.clone());
        for process in self.processes.values_mut().filter(|it| it.parent == parent) {
            let is_its = |tree: &ProcessId| children.as_ref().is_some_and(|it| it.contains(tree));
            process.parent = process.tree.filter(is_its).map_or(0, |_| KEEPER);
        }
        self.end_lost();
    }

    /// Ends the processes that nothing connects to their tree any more, since the keeper that would have inherited them was
    /// killed. Only control groups hold these together, which is a documented limit.
    fn end_lost(&mut self) {
        let is_lost = |it: &&Process| {
            let is_grouped = it.tree.is_some_and(|tree| self.grouped.contains(&tree)) && !it.moved;
            let is_known = !it.hidden && it.named == it.tree && it.user == OWN;
            it.parent == 0 && it.tree.is_some() && it.leads.is_none() && !is_grouped && !is_known
        };
        let lost = self.processes.iter().filter(|(_, it)| is_lost(it));
        let lost: Vec<u32> = lost.map(|(pid, _)| *pid).collect();
        for pid in lost {
            self.end(pid, 9);
        }
    }

    pub(crate) fn kill_keeper(&mut self) {
        let Some(keeper) = self.keeper.take() else {
            return;
        };
        self.orphaned.extend(keeper.children);
        self.orphan(KEEPER);
        if keeper.joined {
            // Reports of the keeper that were not read are lost with it.
            self.events.retain(|event| !matches!(event, Event::Heard(_)));
            self.events.push_back(Event::KeeperGone);
        }
    }

    /// Kills the coordinator. Its descriptors and unread events are lost, and everything else stays.
    pub(crate) fn lose_coordinator(&mut self) {
        self.events.clear();
        self.watched.clear();
        self.emptying.clear();
        self.followed.clear();
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
        self.grouped.clear();
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

    /// Returns whether a tree was launched in a control group of its own.
    pub(crate) fn has_group(&self, tree: ProcessId) -> bool {
        self.grouped.contains(&tree)
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
        let is_grouped = |it: ProcessId| self.grouped.contains(&it) && self.followed.contains(&it);
        let is_grouped = process.tree.is_some_and(is_grouped);
        // A process of our own user may name another tree, and its word counts unless the control group of a followed tree says otherwise.
        let counts = process.user == OWN && (process.moved || !is_grouped);
        let named = process.named.filter(|_| counts);
        self.signalled.push((key, [process.tree, named], signal));
        let ends = match signal {
            9 => !process.unkillable,
            15 => !process.ignores_term && !process.unkillable,
            _ => false,
        };
        if ends {
            self.end(pid, signal.into());
        }
    }

    /// Returns the members of a tree, as `tree.rs` of the port finds them.
    fn members(&self, tree: &Tree) -> Members {
        let is_in = |it: &Process| it.tree == Some(tree.id) && !it.moved;
        let group = self.processes.iter();
        let group = group.filter(|(_, it)| tree.contained && is_in(it));
        let group: BTreeSet<u32> = group.map(|(pid, _)| *pid).collect();
        let is_blind = |to: Blindness| self.blindness == Some(to);
        if tree.contained && is_blind(Blindness::OutsideGroup) {
            return Members {
                alive: group.into_iter().map(|pid| (pid, None)).collect(),
                unknown: 0,
            };
        }
        let others = self.processes.iter();
        let others = others.filter(|(_, it)| it.leads.is_some_and(|id| id != tree.id));
        let others: BTreeSet<u32> = others.map(|(pid, _)| *pid).collect();
        let keeps_forking = self.processes.values().any(|it| it.fleeting);
        let is_settled = !keeps_forking || is_blind(Blindness::Forks);
        let living = self.processes.iter().filter(|(_, it)| !it.fleeting);
        let living = living.map(|(pid, it)| (*pid, it.stat()));
        let living = living.filter(|(_, it)| !it.is_zombie());
        let living = living.filter(|(_, it)| it.state != b'Z' || !is_blind(Blindness::Threads));
        let wanted = Wanted {
            tree,
            group: &group,
            keeper: self.keeper.as_ref().map_or(0, |_| KEEPER),
            leaders: &others,
        };
        let seen = world::Seen { kernel: self, tree };
        let may_own = |(pid, it): (&u32, &Process)| {
            it.parent == KEEPER && wanted.may_own(*pid, &it.stat(), &seen)
        };
        let is_proved = tree.kept && self.keeper.is_some() && !is_blind(Blindness::Forks);
        if is_proved && group.is_empty() && !self.processes.iter().any(may_own) {
            return Members::default();
        }
        let living = living.collect();
        let pass = || Ok((Members::of(wanted, &living, &seen), is_settled));
        Members::proved((0..PASSES).map(|_| pass())).expect("every pass can be made")
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
        self.launched.entry(attempt).or_default().push((self.boot, process.inode));
        self.log.insert(attempt, Logged::Started(started));
        let keeper = self.keeper.as_mut().expect("a keeper launches");
        keeper.children.insert(attempt);
        keeper.launched.insert(attempt);
        if self.contains {
            self.grouped.insert(attempt);
        } else {
            self.grouped.remove(&attempt);
        }
        Report::Started(started)
    }
}

fn failed(attempt: ProcessId, errno: i32) -> Report {
    Report::Failed { attempt, step: sexton::keeper::protocol::step::EXEC, errno }
}

impl Process {
    fn stat(&self) -> Stat {
        Stat {
            state: if self.headless { b'Z' } else { b'S' },
            threads: 2,
            parent: self.parent,
            group: 0,
            session: 0,
            start_ticks: self.ticks,
            cpu_ticks: 0,
            virtual_bytes: 0,
            memory_pages: 0,
            exit_code: 0,
        }
    }
}
