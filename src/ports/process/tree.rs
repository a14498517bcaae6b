//! Which processes belong to a tree.
//!
//! In a control group of its own, the group says so. Without one, `/proc` is searched: what has the id of the attempt in
//! its environment belongs to it, and so does what descends from it. An orphan that the keeper inherited and whose
//! environment does not say may belong to any: it is unknown, and is never signalled.

use crate::actors::process::{Bound, Identity};
use crate::ids::ProcessId;
use crate::kernel::pidfd::Pidfd;
use crate::kernel::{cgroup, identity, memory, proc};
use crate::ports::process::environment::ID;
use crate::ports::process::world::{Survivors, Tree};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// How many searches that find nothing are enough, if others make processes all the time.
const SEARCHES: u32 = 8;

/// Where control groups are, and who inherits orphans.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    /// Below which attempts have theirs.
    pub(super) base: Option<PathBuf>,
    /// The PID of the keeper.
    pub(super) keeper: u32,
}

/// Members of a tree: PIDs with when each started.
#[derive(Debug, Default)]
struct Members {
    alive: Vec<(u32, u64)>,
    unknown: u32,
}

impl Groups {
    /// The control group of a tree, if it has one. A keeper that was started in another group than the one before it knows
    /// nothing of the groups that stand there: that there is none here does not say that a tree is empty.
    pub(super) fn group(&self, tree: &Tree) -> Option<PathBuf> {
        let base = self.base.as_ref().filter(|_| tree.contained)?;
        let group = base.join(tree.id.to_string());
        group.is_dir().then_some(group)
    }

    /// The attempt in whose control group a process is, if it is in one.
    pub(super) fn attempt_of(&self, pid: u32) -> Option<ProcessId> {
        let base = self.base.as_ref()?;
        let group = cgroup::of(pid)?;
        let rest = group.strip_prefix(base).ok()?;
        let name = rest.components().next()?.as_os_str().to_str()?;
        name.parse().ok()
    }

    /// What lives of a tree. If that cannot be found out, one is unknown.
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

    /// Sends a signal to all of a tree, each by its own descriptor.
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
            // The descriptor is of whoever has the PID now: is that one of the group?
            if cgroup::procs(&group)?.contains(&pid) && pidfd.is_held()? {
                pidfd.signal(signal)?;
            }
        }
        Ok(())
    }

    /// Whether the memory of a tree can be bounded as a whole.
    pub(super) fn bound_trees(&self) -> bool {
        self.base.as_deref().is_some_and(memory::is_given_out)
    }

    /// How the memory of a tree is bounded as a whole, if it is.
    pub(super) fn bound(&self, tree: &Tree) -> Option<Bound> {
        let bound = memory::bound_of(&self.group(tree)?).ok()??;
        Some(Bound {
            bytes: bound.most,
            reached: bound.was_reached,
        })
    }

    /// Removes the control group of a tree that is empty.
    pub(super) fn remove(&self, tree: &Tree) {
        if let Some(group) = self.group(tree) {
            // What still lives there keeps it.
            drop(cgroup::remove(&group));
        }
    }
}

fn contained(group: &Path) -> io::Result<Survivors> {
    let alive = if cgroup::is_populated(group)? {
        // Zombies are no members any more: the group says that it is populated, so there is one.
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
    // Held throughout, the PID was of one process all the time.
    if same && pidfd.is_held()? {
        pidfd.signal(signal)?;
    }
    Ok(())
}

/// What lives of a tree without a control group. That a search found nothing proves it only if nothing was made meanwhile: a process
/// that goes on in its children may always be where the search is not. On a machine that never rests it is searched for several times.
fn search_on(tree: &Tree, keeper: u32, leaders: &BTreeSet<u32>) -> io::Result<Survivors> {
    let mut survivors = Survivors::default();
    for _ in 0..SEARCHES {
        let made = proc::made()?;
        let members = search(tree, keeper, leaders)?;
        survivors = Survivors {
            alive: members.alive.len().try_into().unwrap_or(u32::MAX),
            unknown: members.unknown,
        };
        if !survivors.is_empty() || proc::made()? == made {
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
            (false, None) if stat.parent == keeper && keeper != 0 && !leaders.contains(pid) => {
                strangers.push(*pid);
            }
            (false, _) => {}
        }
    }
    // What descends from a member is one, whatever its environment says.
    proc::add_descendants(&mut members, &stats);
    let alive = members
        .iter()
        .filter_map(|pid| Some((*pid, stats.get(pid)?.start_ticks)));
    Ok(Members {
        alive: alive.collect(),
        unknown: strangers.len().try_into().unwrap_or(u32::MAX),
    })
}

/// Whether the one that has this PID is this very process: within one tick of the kernel a stranger may have got its PID,
/// and then has its start time, too.
fn is_process(pid: u32, which: &Identity) -> io::Result<bool> {
    let found = identity::identify(pid)?;
    Ok(found.is_some_and(|(_, now)| now.is(which)))
}

/// Whether the environment says that it belongs to this attempt; `None` if it names none, or cannot be read.
fn attributed(pid: u32, id: ProcessId) -> Option<bool> {
    Some(id_in_environment(pid)? == id.to_string().into_bytes())
}

/// The record that the environment of a process names.
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
        let base = tempfile::tempdir().expect("there is a directory");
        let (_, leader) = identify(std::process::id())
            .expect("it can be")
            .expect("it lives");
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
        assert!(survivors.alive > 0, "this process lives: {survivors:?}");
    }
}
