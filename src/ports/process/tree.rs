//! Determines which processes belong to a tree.
//!
//! If the tree has a control group, the group contains exactly its processes. Otherwise `/proc` is searched: the leader and every process
//! with the id of the attempt in its environment belong to the tree, and so do their descendants. If the keeper has inherited an orphan
//! whose environment contains no id, the orphan may belong to any tree whose leader started before it: it counts as unknown, and is never
//! signalled.

use crate::actors::process::{Bound, Identity};
use crate::ids::ProcessId;
use crate::kernel::pidfd::Pidfd;
use crate::kernel::{cgroup, identity, memory, proc};
use crate::ports::process::environment::ID;
use crate::ports::process::world::{Survivors, Tree};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// The number of consecutive searches that must find nothing if other processes are being created all the time.
const SEARCHES: u32 = 8;

/// The location of the control groups, and the process that inherits orphans.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    /// The control group that contains the groups of attempts; `None` if attempts have no groups.
    pub(super) base: Option<PathBuf>,
    /// The PID of the keeper; 0 until one has been joined.
    pub(super) keeper: u32,
}

/// The live members of a tree, as PIDs with their start times, and the number of orphans that may be members.
#[derive(Debug, Default)]
struct Members {
    alive: Vec<(u32, u64)>,
    unknown: u32,
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
    pub(super) fn survivors(&self, tree: &Tree, leaders: &BTreeSet<u32>) -> Survivors {
        let survivors = match self.group(tree) {
            Some(group) => contained(&group),
            None => search_on(tree, self.keeper, leaders),
        };
        survivors.unwrap_or(Survivors {
            alive: 0,
            unknown: 1,
        })
    }

    /// Sends a signal to each process of a tree, through that process's own descriptor. SIGKILL is sent to a control group as a whole.
    pub(super) fn signal(
        &self,
        tree: &Tree,
        signal: u8,
        leaders: &BTreeSet<u32>,
    ) -> io::Result<()> {
        const KILL: u8 = 9;
        let Some(group) = self.group(tree) else {
            let members = search(tree, self.keeper, leaders)?;
            return members
                .alive
                .iter()
                .try_for_each(|(pid, ticks)| send((*pid, *ticks), &tree.leader, signal));
        };
        if signal == KILL && cgroup::kill(&group)? {
            return Ok(());
        }
        for pid in cgroup::procs(&group)? {
            let Some(pidfd) = Pidfd::open(pid)? else {
                continue;
            };
            // The descriptor refers to the process that has the PID now: check that this process is still in the group.
            if cgroup::procs(&group)?.contains(&pid) && pidfd.is_held()? {
                pidfd.signal(signal)?;
            }
        }
        Ok(())
    }

    /// Returns whether the total memory of a tree can be limited.
    pub(super) fn bound_trees(&self) -> bool {
        self.base.as_deref().is_some_and(memory::is_delegated)
    }

    /// Returns the memory limit of a whole tree and whether it was reached; `None` if there is no limit or it cannot be read.
    pub(super) fn bound(&self, tree: &Tree) -> Option<Bound> {
        let bound = memory::bound_of(&self.group(tree)?).ok()??;
        Some(Bound {
            bytes: bound.most,
            reached: bound.was_reached,
        })
    }

    /// Removes the control group of an empty tree.
    pub(super) fn remove(&self, tree: &Tree) {
        if let Some(group) = self.group(tree) {
            // The error is ignored: a group with a live process cannot be removed, and remains.
            drop(cgroup::remove(&group));
        }
    }
}

fn contained(group: &Path) -> io::Result<Survivors> {
    let alive = if cgroup::is_populated(group)? {
        // Zombies are no longer listed as members, but the group is populated, so there is at least one process.
        cgroup::procs(group)?.len().max(1)
    } else {
        0
    };
    Ok(Survivors {
        alive: alive.try_into().unwrap_or(u32::MAX),
        unknown: 0,
    })
}

fn send((pid, ticks): (u32, u64), leader: &Identity, signal: u8) -> io::Result<()> {
    let Some(pidfd) = Pidfd::open(pid)? else {
        return Ok(());
    };
    let same = proc::stat(pid)?.is_some_and(|stat| stat.start_ticks == ticks);
    let same = same && (pid != leader.pid || is_process(pid, leader)?);
    // If the process still holds its PID, what was just read from `/proc` belongs to this process.
    if same && pidfd.is_held()? {
        pidfd.signal(signal)?;
    }
    Ok(())
}

/// Counts the live processes of a tree without a control group. A search that finds nothing proves that the tree is empty only if no
/// process was created in the meantime: a tree that keeps forking may evade any search. On a busy machine, the search is repeated, at most
/// [`SEARCHES`] times in all.
fn search_on(tree: &Tree, keeper: u32, leaders: &BTreeSet<u32>) -> io::Result<Survivors> {
    let mut survivors = Survivors::default();
    for _ in 0..SEARCHES {
        let made = proc::created_count()?;
        let members = search(tree, keeper, leaders)?;
        survivors = Survivors {
            alive: members.alive.len().try_into().unwrap_or(u32::MAX),
            unknown: members.unknown,
        };
        if !survivors.is_empty() || proc::created_count()? == made {
            break;
        }
    }
    Ok(survivors)
}

fn search(tree: &Tree, keeper: u32, leaders: &BTreeSet<u32>) -> io::Result<Members> {
    let stats = proc::living()?;
    let leader = &tree.leader;
    let mut members = BTreeSet::new();
    let mut strangers = Vec::new();
    for (pid, stat) in &stats {
        let has_its_numbers = *pid == leader.pid && stat.start_ticks == leader.ticks;
        let is_leader = has_its_numbers && is_process(*pid, leader)?;
        match (is_leader, attributed(*pid, tree.id)) {
            (true, _) | (false, Some(true)) => {
                members.insert(*pid);
            }
            // A descendant cannot have started before the leader.
            (false, None)
                if stat.parent == keeper
                    && keeper != 0
                    && stat.start_ticks >= leader.ticks
                    && !leaders.contains(pid) =>
            {
                strangers.push(*pid);
            }
            (false, _) => {}
        }
    }
    // A descendant of a member is also a member, whatever its environment contains.
    proc::add_descendants(&mut members, &stats);
    let alive = members
        .iter()
        .filter_map(|pid| Some((*pid, stats.get(pid)?.start_ticks)));
    Ok(Members {
        alive: alive.collect(),
        unknown: strangers.len().try_into().unwrap_or(u32::MAX),
    })
}

/// Returns whether the process with this PID is really the given one. Within one clock tick, another process may have received the same
/// PID, and then it also has the same start time.
fn is_process(pid: u32, which: &Identity) -> io::Result<bool> {
    let found = identity::identify(pid)?;
    Ok(found.is_some_and(|(_, now)| now.is(which)))
}

/// Returns whether a process belongs to this attempt according to its environment; `None` if the environment names no attempt or cannot
/// be read.
fn attributed(pid: u32, id: ProcessId) -> Option<bool> {
    Some(id_in_environment(pid)? == id.to_string().into_bytes())
}

/// Returns the record named in the environment of a process, if any.
pub(super) fn named(pid: u32) -> Option<ProcessId> {
    String::from_utf8(id_in_environment(pid)?)
        .ok()?
        .parse()
        .ok()
}

fn id_in_environment(pid: u32) -> Option<Vec<u8>> {
    let environment = proc::environ(pid).ok()??;
    let prefix = format!("{ID}=");
    let mut variables = environment.iter();
    let its = variables.find_map(|it| it.as_bytes().strip_prefix(prefix.as_bytes()))?;
    Some(its.to_vec())
}

#[cfg(test)]
mod tests {
    use super::Groups;
    use crate::ids::ProcessId;
    use crate::kernel::identity::identify;
    use crate::ports::process::world::Tree;
    use std::collections::BTreeSet;

    #[test]
    fn a_tree_whose_group_is_not_here_is_searched_for() {
        let base = tempfile::tempdir().expect("a directory can be created");
        let (_, leader) = identify(std::process::id())
            .expect("the process can be identified")
            .expect("the process is alive");
        let tree = Tree {
            id: ProcessId(7),
            leader,
            launched: true,
            contained: true,
        };
        let groups = Groups {
            base: Some(base.path().to_owned()),
            keeper: 0,
        };
        let survivors = groups.survivors(&tree, &BTreeSet::new());
        assert!(survivors.alive > 0, "this process is alive: {survivors:?}");
    }
}
