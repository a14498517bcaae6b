//! The processes of a tree, as `/proc` and control groups show them; `members.rs` has the rules.
//!
//! That a tree is empty takes two proofs: nothing is in its control group, if it has one, and nothing that belongs to it is outside, where a
//! process may have been moved (`su -l`, `systemd-run --scope`). While the keeper that launched the tree lives, its list of children is
//! the second proof: the keeper inherits the orphans of all trees, so if none of its children may belong to this one, nothing of it is left.
//! Otherwise all processes are searched.

use crate::actors::process::{Bound, Identity, masked};
use crate::ids::ProcessId;
use crate::kernel::pidfd::Pidfd;
use crate::kernel::proc::Variable;
use crate::kernel::{cgroup, host, identity, memory, proc};
use crate::ports::process::environment::ID;
use crate::ports::process::members::{Details, Members, Named, Wanted};
use crate::ports::process::sweep::{Pass, Sweep};
use crate::ports::process::world::{Survivors, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// How often the list of the keeper's children is read until [`AGREE`] consecutive readings do.
const READINGS: usize = 6;

/// The number of readings that prove what the children of the keeper were. The first is looked at; if the second agrees, no child that the
/// first listed had ended and hidden another one before the second began, and if the third agrees, neither had any during the second, which
/// thus lists all children there were at its end.
const AGREE: usize = 3;

/// The location of the control groups, and the process that inherits orphans.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    /// The control group that contains the groups of attempts; `None` if attempts have no groups.
    pub(super) base: Option<PathBuf>,
    /// The PID of the keeper; 0 until one has been joined.
    pub(super) keeper: u32,
}

/// What else is known when a tree is searched for.
pub(super) struct Known<'a> {
    /// The attempts that are followed, each with the PID of its leader if that may be alive.
    pub(super) trees: &'a BTreeMap<ProcessId, Option<u32>>,
    /// The user that the tree was launched as, if not the coordinator's.
    pub(super) user: Option<u32>,
    pub(super) sweep: &'a mut Sweep,
}

impl Groups {
    /// Returns the control group of a tree, if it exists below `base`; after a restart, it may not be known that the tree has one. A keeper
    /// that was started in a different group than its predecessor cannot see the earlier groups, so a missing group does not prove that a
    /// tree is empty.
    pub(super) fn group(&self, tree: &Tree) -> Option<PathBuf> {
        let group = self.base.as_ref()?.join(tree.id.to_string());
        group.is_dir().then_some(group)
    }

    /// Returns the attempt whose control group contains a process, if any.
    pub(super) fn attempt_of(&self, pid: u32) -> Option<ProcessId> {
        let base = self.base.as_ref()?;
        let group = cgroup::of(pid)?;
        let rest = group.strip_prefix(base).ok()?;
        let name = rest.components().next()?.as_os_str().to_str()?;
        name.parse().ok()
    }

    /// Counts the live processes of a tree. If they cannot be counted, returns one unknown process.
    pub(super) fn survivors(&self, tree: &Tree, known: &mut Known<'_>) -> Survivors {
        self.count(tree, known).unwrap_or(Survivors { alive: 0, unknown: 1 })
    }

    fn count(&self, tree: &Tree, known: &mut Known<'_>) -> io::Result<Survivors> {
        let group = self.group(tree);
        if let Some(group) = &group
            && cgroup::is_populated(group)?
        {
            // Zombies are not listed as members, but the group is populated, so there is at least one process.
            let alive = cgroup::procs(group)?.len().max(1);
            return Ok(Survivors { alive: alive.try_into().unwrap_or(u32::MAX), unknown: 0 });
        }
        if tree.kept && self.has_no_orphans(tree, known)? {
            return Ok(Survivors::default());
        }
        let members = self.search(tree, known)?;
        Ok(Survivors {
            alive: members.alive.len().try_into().unwrap_or(u32::MAX),
            unknown: members.unknown,
        })
    }

    /// Returns the live processes of a tree.
    pub(super) fn search(&self, tree: &Tree, known: &mut Known<'_>) -> io::Result<Members> {
        let group = self.group(tree).map(|group| cgroup::procs(&group));
        let group: BTreeSet<u32> = group.transpose()?.into_iter().flatten().collect();
        let (leaders, trees, user) = (known.leaders(tree.id), known.trees, known.user);
        let find = |pass: &Pass| {
            let looked = Looked { groups: self, tree, trees, user, pass: Some(pass) };
            // If the keeper still lives, nothing had another parent because of its end when the pass was made.
            let keeper = if self.keeper_lives() { self.keeper } else { 0 };
            let wanted = Wanted { tree, group: &group, keeper, leaders: &leaders };
            Members::of(wanted, &pass.living, &looked)
        };
        known.sweep.search(tree.leader.ticks, find)
    }

    /// Returns whether the keeper that was joined last is alive.
    fn keeper_lives(&self) -> bool {
        let stat = proc::stat(self.keeper).ok().flatten();
        self.keeper != 0 && stat.is_some_and(|stat| !stat.is_zombie())
    }

    /// Returns whether it is proved that no child of the keeper belongs to the tree.
    fn has_no_orphans(&self, tree: &Tree, known: &Known<'_>) -> io::Result<bool> {
        if tree.leader.namespace != host::namespace() {
            return Ok(false);
        }
        let looked =
            Looked { groups: self, tree, trees: known.trees, user: known.user, pass: None };
        let wanted = Wanted {
            tree,
            group: &BTreeSet::new(),
            keeper: self.keeper,
            leaders: &known.leaders(tree.id),
        };
        let may_be_its = |pid| {
            let stat = proc::stat(pid)?.filter(|stat| !stat.is_zombie());
            Ok(stat.is_some_and(|stat| wanted.may_own(pid, &stat, &looked)))
        };
        let children = || proc::children(self.keeper);
        Ok(has_none(children, may_be_its)? && self.keeper_lives())
    }

    /// Sends signals to each process of a tree, through that process's own descriptor. SIGKILL is sent to a control group as a whole, and
    /// then to the processes outside it.
    pub(super) fn signal(
        &self,
        tree: &Tree,
        signals: &[u8],
        known: &mut Known<'_>,
    ) -> io::Result<()> {
        const KILL: u8 = 9;
        let group = self.group(tree);
        if let Some(group) = group.as_ref().filter(|_| signals == [KILL]) {
            cgroup::kill(group)?;
        }
        // One that may not be signalled does not keep the others from it.
        let mut sent = Ok(());
        for its in self.search(tree, known)?.alive {
            sent = sent.and(send(its, (&tree.leader, group.as_deref()), signals));
        }
        sent
    }

    /// Returns the live processes of a tree, at most [`Left::MOST`].
    pub(super) fn left(&self, tree: &Tree, known: &mut Known<'_>) -> Vec<Left> {
        let members = self.search(tree, known).unwrap_or_default();
        let pids = members.alive.iter().map(|(pid, _)| *pid);
        pids.take(Left::MOST).map(Left::of).collect()
    }

    /// Returns whether the total memory of a tree can be limited.
    pub(super) fn bound_trees(&self) -> bool {
        self.base.as_deref().is_some_and(memory::is_delegated)
    }

    /// Returns the memory limit of a whole tree and whether it was reached; `None` if there is no limit or it cannot be read.
    pub(super) fn bound(&self, tree: &Tree) -> Option<Bound> {
        let bound = memory::bound_of(&self.group(tree)?).ok()??;
        Some(Bound { bytes: bound.most, reached: bound.was_reached })
    }

    /// Removes the control group of an empty tree.
    pub(super) fn remove(&self, tree: &Tree) {
        if let Some(group) = self.group(tree) {
            // The error is ignored: a group with a live process cannot be removed, and remains.
            drop(cgroup::remove(&group));
        }
    }
}

/// Returns whether it is proved that no child may belong to a tree, from readings of a list that misses children if others end while it is
/// read: [`AGREE`] readings in a row must agree. A tree that keeps forking, each process ending when it has started the next, has another
/// child in each reading.
fn has_none(
    mut children: impl FnMut() -> io::Result<Option<Vec<u32>>>,
    may_be_its: impl Fn(u32) -> io::Result<bool>,
) -> io::Result<bool> {
    let (mut looked_at, mut agree) = (None, 0);
    for _ in 0..READINGS {
        let now = children()?;
        if looked_at == now {
            agree += 1;
        } else {
            for pid in now.iter().flatten() {
                if may_be_its(*pid)? {
                    return Ok(false);
                }
            }
            (looked_at, agree) = (now, 1);
        }
        if looked_at.is_none() || agree == AGREE {
            break;
        }
    }
    Ok(agree == AGREE)
}

impl Known<'_> {
    /// Returns the PIDs of the leaders of other trees.
    fn leaders(&self, id: ProcessId) -> BTreeSet<u32> {
        let others = self.trees.iter().filter(|(other, _)| **other != id);
        others.filter_map(|(_, pid)| *pid).collect()
    }
}

fn send(
    (pid, ticks): (u32, Option<u64>),
    (leader, group): (&Identity, Option<&Path>),
    signals: &[u8],
) -> io::Result<()> {
    let Some(pidfd) = Pidfd::open(pid)? else {
        return Ok(());
    };
    let is_it = match ticks {
        Some(ticks) => proc::stat(pid)?.is_some_and(|stat| stat.start_ticks == ticks),
        // It started after the pass, and is known only from the group.
        None => group.is_some_and(|group| cgroup::procs(group).is_ok_and(|it| it.contains(&pid))),
    };
    let is_it = is_it && (pid != leader.pid || is_process(pid, leader)?);
    // If the process still holds its PID, what was just read belongs to this process.
    if is_it && pidfd.is_held()? {
        for signal in signals {
            pidfd.signal(*signal)?;
        }
    }
    Ok(())
}

/// A live process of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its PID when it was found.
    pub pid: u32,
    /// Its command line, with secrets masked.
    pub command: String,
}

impl Left {
    /// The maximum number of processes that are named for a tree.
    pub const MOST: usize = 16;
    /// The maximum number of characters of a command line.
    const LETTERS_MAX: usize = 200;

    fn of(pid: u32) -> Self {
        let argv = proc::cmdline(pid).ok().flatten().unwrap_or_default();
        let argv = masked(&argv);
        let words = argv.iter().map(|it| String::from_utf8_lossy(it.as_bytes()));
        let command = words.collect::<Vec<_>>().join(" ");
        let command = command.chars().take(Self::LETTERS_MAX).collect();
        Self { pid, command }
    }
}

/// Looks up the details of single processes in `/proc`.
struct Looked<'a> {
    groups: &'a Groups,
    tree: &'a Tree,
    trees: &'a BTreeMap<ProcessId, Option<u32>>,
    /// See [`Known::user`].
    user: Option<u32>,
    /// The pass that remembers what has been looked up, if one is made.
    pass: Option<&'a Pass>,
}

impl Details for Looked<'_> {
    fn is_leader(&self, pid: u32) -> bool {
        // If this cannot be determined, the process has the PID and the start time of the leader.
        is_process(pid, &self.tree.leader).unwrap_or(true)
    }

    fn named(&self, pid: u32, only_trusted: bool) -> Named {
        let own = rustix::process::geteuid().as_raw();
        let users = [Some(own), self.user];
        let is_trusted = |by: &dyn Fn(u32) -> bool| users.iter().flatten().any(|user| by(*user));
        if only_trusted {
            let user = proc::user(pid).ok().flatten();
            if !is_trusted(&|trusted| user == Some(trusted)) {
                return Named::Nothing;
            }
        }
        let variable = match self.pass {
            Some(pass) => pass.named(pid),
            None => proc::variable(pid, ID),
        };
        let Ok(variable) = variable else {
            return Named::Unanswered;
        };
        let counts = |it: &Variable| !only_trusted || is_trusted(&|user| it.is_of(user));
        let id = variable.filter(counts).as_ref().and_then(id_in);
        id.map_or(Named::Nothing, Named::Attempt)
    }

    fn attempt_of(&self, pid: u32) -> Option<ProcessId> {
        self.groups.attempt_of(pid)
    }

    fn is_followed(&self, id: ProcessId) -> bool {
        self.trees.contains_key(&id)
    }
}

/// Returns whether the process with this PID is really the given one. Within one clock tick, another process may have received the same
/// PID, and then it also has the same start time.
fn is_process(pid: u32, which: &Identity) -> io::Result<bool> {
    let found = identity::identify(pid)?;
    Ok(found.is_some_and(|(_, now)| now.is(which)))
}

/// Returns the record named in the environment of a process, if any.
pub(super) fn named(pid: u32) -> Option<ProcessId> {
    id_in(&proc::variable(pid, ID).ok()??)
}

fn id_in(variable: &Variable) -> Option<ProcessId> {
    std::str::from_utf8(variable.value.as_bytes()).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Groups, Known, READINGS, has_none};
    use crate::ids::ProcessId;
    use crate::kernel::identity::identify;
    use crate::ports::process::sweep::Sweep;
    use crate::ports::process::world::Tree;
    use std::cell::Cell;
    use std::collections::BTreeMap;

    /// Returns what the readings prove; nothing once they are used up. The PIDs from 100 may be members.
    fn prove(readings: &[&[u32]]) -> bool {
        let at = Cell::new(0);
        let children = || {
            let reading = readings.get(at.replace(at.get() + 1));
            Ok(reading.map(|pids| pids.to_vec()))
        };
        has_none(children, |pid| Ok(pid >= 100)).expect("no reading fails")
    }

    #[test]
    fn no_child_is_left_if_three_readings_in_a_row_agree() {
        assert!(prove(&[&[1, 2], &[1, 2], &[1, 2]]));
        assert!(prove(&[&[], &[], &[]]));
        assert!(prove(&[&[1], &[1, 2], &[2], &[2], &[2]]));
        assert!(!prove(&[&[1, 2], &[1, 2]]), "the keeper has gone");
        assert!(!prove(&[&[1], &[1, 100], &[1, 100], &[1, 100]]));
    }

    #[test]
    fn a_tree_that_keeps_forking_is_seen_by_the_list_of_children() {
        // Each process has ended, and started the next, when it is looked at.
        let chain: Vec<Vec<u32>> = (1..=20).map(|pid| vec![pid]).collect();
        let chain: Vec<&[u32]> = chain.iter().map(Vec::as_slice).collect();
        assert!(!prove(&chain));
        // The next one was hidden by the end of the first, while the list was read.
        let hidden: Vec<&[u32]> =
            (0..READINGS).map(|at| if at % 3 == 2 { &[2][..] } else { &[1][..] }).collect();
        assert!(!prove(&hidden));
    }

    #[test]
    fn a_tree_whose_group_is_not_here_is_searched_for() {
        let base = tempfile::tempdir().expect("a directory can be created");
        let (_, leader) = identify(std::process::id())
            .expect("the process can be identified")
            .expect("the process is alive");
        let tree = Tree { id: ProcessId(7), leader, launched: true, contained: true, kept: false };
        let groups = Groups { base: Some(base.path().to_owned()), keeper: 0 };
        let mut sweep = Sweep::default();
        let mut known = Known { trees: &BTreeMap::new(), user: None, sweep: &mut sweep };
        let survivors = groups.survivors(&tree, &mut known);
        assert!(survivors.alive > 0, "this process is alive: {survivors:?}");
    }
}
