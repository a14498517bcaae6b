//! Which processes belong to a tree, decided from what a pass over all processes shows. Both the real world and that of the simulation use
//! these rules.
//!
//! - The leader, every process in the tree's control group, and all descendants of a member are members.
//! - An orphan is recognised by the id in its environment. Anyone can put an id into the environment of a process of their own, so it counts
//!   only if the process descends from the keeper, which inherits the orphans of all trees, and of nobody else. If the keeper that launched
//!   the tree has ended, its orphans have other parents: then the id counts if the process runs as the coordinator's user, or as the one
//!   that the tree was launched as.
//! - An id and a control group attribute an orphan to another tree only if that tree is followed: anyone can name a tree, or make a control
//!   group for one, that never existed or has ended.
//! - An orphan of the keeper that nothing attributes to a tree may belong to any tree whose leader started before it: it is unknown.

use crate::ids::ProcessId;
use crate::kernel::proc::{self, Stat};
use crate::ports::process::world::Tree;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The tree whose members are wanted, and what is known about it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The tree.
    pub tree: &'a Tree,
    /// The PIDs in its control group; none if it has no group.
    pub group: &'a BTreeSet<u32>,
    /// The PID of the keeper that has been joined; 0 if there is none, or if it has ended since.
    pub keeper: u32,
    /// The PIDs of the leaders of other trees.
    pub leaders: &'a BTreeSet<u32>,
}

/// Details of single processes, which are looked up only for those that need it.
pub trait Details {
    /// Returns whether this process really is the leader of the tree, and not another one with the same PID and start time.
    fn is_leader(&self, pid: u32) -> bool;
    /// Returns the attempt that is named in the environment of a process. With `only_trusted`, a process counts as naming none unless it runs
    /// as a user whose word counts, and is not asked for its environment.
    fn named(&self, pid: u32, only_trusted: bool) -> Named;
    /// Returns the attempt whose control group contains a process.
    fn attempt_of(&self, pid: u32) -> Option<ProcessId>;
    /// Returns whether an attempt is followed. Until a launched tree is empty, it is.
    fn is_followed(&self, id: ProcessId) -> bool;
}

/// What the environment of a process says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// It names no attempt, or may not be read.
    Nothing,
    /// It names this one.
    Attempt(ProcessId),
    /// The process did not let its environment be read in time.
    Unanswered,
}

/// What an environment says about the tree that is looked for.
enum Says {
    /// The process belongs to it.
    Its,
    /// The process belongs to another one that is followed.
    Anothers,
    /// Nothing that counts.
    Nothing,
    /// It did not answer, and what it says might count though the process is not below the keeper.
    Unknown,
}

/// The live members of a tree, as PIDs with their start times, and the number of orphans that may be members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The members. The start time is `None` for a process that the pass did not show.
    pub alive: Vec<(u32, Option<u64>)>,
    /// The number of processes that may belong to the tree.
    pub unknown: u32,
}

impl Members {
    /// Returns whether there are none, and none in doubt.
    pub const fn is_empty(&self) -> bool {
        self.alive.is_empty() && self.unknown == 0
    }

    /// Decides which of the `living` processes are members.
    pub fn of(wanted: Wanted<'_>, living: &BTreeMap<u32, Stat>, details: &impl Details) -> Self {
        let Wanted { tree, group, .. } = wanted;
        let leader = &tree.leader;
        let mut members = group.clone();
        let mut unknown = 0_u32;
        for (pid, stat) in living {
            let has_its_numbers = *pid == leader.pid && stat.start_ticks == leader.ticks;
            if has_its_numbers && details.is_leader(*pid) {
                members.insert(*pid);
            }
            // Nothing that the leader started can have started before it.
            if members.contains(pid) || stat.start_ticks < leader.ticks {
                continue;
            }
            let is_below = wanted.is_below_keeper(*pid, living);
            match wanted.is_named(*pid, is_below, details) {
                Says::Its => {
                    members.insert(*pid);
                }
                Says::Anothers => {}
                Says::Nothing => unknown += u32::from(wanted.may_be_its(*pid, stat, details)),
                Says::Unknown => unknown += u32::from(wanted.is_unattributed(*pid, details)),
            }
        }
        // A descendant of a member is also a member, whatever its environment contains.
        proc::add_descendants(&mut members, living);
        let alive = members.iter().map(|pid| (*pid, living.get(pid).map(|stat| stat.start_ticks)));
        Self { alive: alive.collect(), unknown }
    }

    /// Returns what several passes show together. Each yields the members that it found, and whether it shows every process that was alive at
    /// its end. One that does not, because processes were created, proves nothing if it finds no members: a tree that keeps forking may evade
    /// it. If no pass proves that the tree is empty, it may have a member.
    ///
    /// # Errors
    /// Returns the error of the first pass that could not be made.
    pub fn proved(passes: impl IntoIterator<Item = io::Result<(Self, bool)>>) -> io::Result<Self> {
        for pass in passes {
            let (members, is_settled) = pass?;
            if !members.is_empty() || is_settled {
                return Ok(members);
            }
        }
        Ok(Self { alive: Vec::new(), unknown: 1 })
    }
}

impl Wanted<'_> {
    /// Returns whether a child of the keeper may belong to the tree. If none may, and the keeper launched the tree, the tree is empty:
    /// whatever belongs to it descends from its leader or from an orphan, and both are children of the keeper.
    pub fn may_own(&self, pid: u32, stat: &Stat, details: &impl Details) -> bool {
        stat.start_ticks >= self.tree.leader.ticks
            && !self.leaders.contains(&pid)
            && match self.is_named(pid, true, details) {
                Says::Its => true,
                Says::Anothers => false,
                Says::Nothing | Says::Unknown => self.may_be_its(pid, stat, details),
            }
    }

    /// Returns whether a process belongs to the tree according to its environment. It is read only if what it says may count: the other
    /// processes of the machine, of whichever users, are not asked.
    fn is_named(&self, pid: u32, is_below_keeper: bool, details: &impl Details) -> Says {
        // If the keeper that launched the tree lives, whatever belongs to the tree is below it.
        let is_kept = self.tree.kept && self.keeper != 0;
        if !is_below_keeper && is_kept {
            return Says::Nothing;
        }
        match details.named(pid, !is_below_keeper) {
            // Its control group, if it is in that of another tree, says more than its environment.
            Named::Attempt(named) if named == self.tree.id => {
                let is_its = self.group_of(pid, details).is_none_or(|it| it == named);
                if is_its { Says::Its } else { Says::Anothers }
            }
            Named::Attempt(named) if details.is_followed(named) => Says::Anothers,
            Named::Unanswered if !is_below_keeper => Says::Unknown,
            Named::Attempt(_) | Named::Nothing | Named::Unanswered => Says::Nothing,
        }
    }

    fn is_below_keeper(&self, pid: u32, living: &BTreeMap<u32, Stat>) -> bool {
        let parent = |pid: &u32| living.get(pid).map(|stat| stat.parent);
        let mut above = std::iter::successors(parent(&pid), parent).take(living.len());
        self.keeper != 0 && above.any(|pid| pid == self.keeper)
    }

    /// Returns whether a process that nothing attributes to a tree may be an orphan of this one.
    fn may_be_its(&self, pid: u32, stat: &Stat, details: &impl Details) -> bool {
        self.keeper != 0 && stat.parent == self.keeper && self.is_unattributed(pid, details)
    }

    fn is_unattributed(&self, pid: u32, details: &impl Details) -> bool {
        !self.leaders.contains(&pid) && self.group_of(pid, details).is_none()
    }

    /// Returns the followed attempt whose control group contains a process.
    fn group_of(&self, pid: u32, details: &impl Details) -> Option<ProcessId> {
        let group = details.attempt_of(pid)?;
        (group == self.tree.id || details.is_followed(group)).then_some(group)
    }
}

#[cfg(test)]
mod tests {
    use super::{Details, Members, Named, Wanted};
    use crate::actors::process::Identity;
    use crate::ids::ProcessId;
    use crate::kernel::proc::Stat;
    use crate::ports::process::world::Tree;
    use std::collections::{BTreeMap, BTreeSet};

    const ID: ProcessId = ProcessId(7);
    const OTHER: ProcessId = ProcessId(8);
    /// An attempt that has no record, or not any more.
    const ENDED: ProcessId = ProcessId(9);
    const KEEPER: u32 = 2;

    /// The named attempt and whether its word counts, and the control group, of each process that has them.
    #[derive(Default)]
    struct Known {
        named: BTreeMap<u32, (ProcessId, bool)>,
        groups: BTreeMap<u32, ProcessId>,
        /// Those that do not answer, and whether their users' word counts.
        unanswered: BTreeMap<u32, bool>,
    }

    impl Details for Known {
        fn is_leader(&self, _pid: u32) -> bool {
            true
        }

        fn named(&self, pid: u32, only_trusted: bool) -> Named {
            let counts = |is_trusted: &bool| *is_trusted || !only_trusted;
            if self.unanswered.get(&pid).is_some_and(counts) {
                return Named::Unanswered;
            }
            let named = self.named.get(&pid).filter(|(_, is_trusted)| counts(is_trusted));
            named.map_or(Named::Nothing, |(id, _)| Named::Attempt(*id))
        }

        fn attempt_of(&self, pid: u32) -> Option<ProcessId> {
            self.groups.get(&pid).copied()
        }

        fn is_followed(&self, id: ProcessId) -> bool {
            id != ENDED
        }
    }

    fn tree(kept: bool) -> Tree {
        let leader = Identity { machine: 1, boot: 1, namespace: 1, pid: 10, inode: 10, ticks: 100 };
        Tree { id: ID, leader, contained: true, launched: true, kept }
    }

    fn stat((pid, parent, start_ticks): (u32, u32, u64)) -> Stat {
        let text = format!("{pid} (sh) S {parent} 0 0");
        let zeroes = " 0".repeat(15);
        let text = format!("{text}{zeroes} {start_ticks} 0 0");
        Stat::parse(text.as_bytes()).expect("the format is right")
    }

    /// Returns the members and the unknown ones among processes given as PID, parent and start time.
    fn found(all: &[(u32, u32, u64)], known: &Known, kept: bool) -> (Vec<u32>, u32) {
        let living = all.iter().map(|it| (it.0, stat(*it))).collect();
        let tree = tree(kept);
        let wanted = Wanted {
            tree: &tree,
            group: &BTreeSet::new(),
            keeper: KEEPER,
            leaders: &BTreeSet::from([20]),
        };
        let Members { alive, unknown } = Members::of(wanted, &living, known);
        (alive.into_iter().map(|(pid, _)| pid).collect(), unknown)
    }

    #[test]
    fn descendants_and_orphans_are_members() {
        let known =
            Known { named: [(12, (ID, false)), (13, (OTHER, true))].into(), ..Known::default() };
        // The keeper, the leader with a child of another id, an orphan of any user, one of another tree, and another leader.
        let all = [
            (KEEPER, 1, 1),
            (10, KEEPER, 100),
            (11, 10, 101),
            (12, KEEPER, 102),
            (13, KEEPER, 103),
            (14, 12, 104),
            (20, KEEPER, 105),
        ];
        assert_eq!(found(&all, &known, true), (vec![10, 11, 12, 14], 0));
        // An orphan without an id that started later is unknown, unless it is in a control group.
        let all = [(KEEPER, 1, 1), (15, KEEPER, 99), (16, KEEPER, 100)];
        assert_eq!(found(&all, &Known::default(), true), (Vec::new(), 1));
        let known = Known { groups: [(16, OTHER)].into(), ..Known::default() };
        assert_eq!(found(&all, &known, true), (Vec::new(), 0));
    }

    #[test]
    fn an_orphan_that_names_a_tree_that_is_not_followed_is_unknown() {
        let all = [(KEEPER, 1, 1), (15, KEEPER, 101), (16, KEEPER, 102)];
        let known =
            Known { named: [(15, (ENDED, true)), (16, (OTHER, true))].into(), ..Known::default() };
        assert_eq!(found(&all, &known, true), (Vec::new(), 1));
        let known = Known { groups: [(15, ENDED), (16, OTHER)].into(), ..Known::default() };
        assert_eq!(found(&all, &known, true), (Vec::new(), 1));
        // Its own id counts, in a control group that it made for itself.
        let known = Known {
            named: [(15, (ID, true)), (16, (ID, true))].into(),
            groups: [(15, ENDED), (16, OTHER)].into(),
            ..Known::default()
        };
        assert_eq!(found(&all, &known, true), (vec![15], 0));
    }

    #[test]
    fn a_child_of_the_keeper_may_belong_to_a_tree_unless_it_is_anothers() {
        let known = Known {
            named: [(13, (OTHER, true)), (14, (ENDED, true)), (15, (ID, true))].into(),
            groups: [(16, OTHER)].into(),
            ..Known::default()
        };
        let tree = tree(true);
        let wanted = Wanted {
            tree: &tree,
            group: &BTreeSet::new(),
            keeper: KEEPER,
            leaders: &BTreeSet::from([20]),
        };
        // The last but one started before the leader, and the last is the leader of another tree.
        let all = [(12, 101), (13, 101), (14, 101), (15, 101), (16, 101), (17, 99), (20, 101)];
        let may = all
            .into_iter()
            .filter(|(pid, ticks)| wanted.may_own(*pid, &stat((*pid, KEEPER, *ticks)), &known));
        let may: Vec<u32> = may.map(|(pid, _)| pid).collect();
        assert_eq!(may, [12, 14, 15]);
    }

    #[test]
    fn passes_that_find_nothing_while_processes_are_created_prove_nothing() {
        let none = || Ok((Members::default(), false));
        let unknown = Members { alive: Vec::new(), unknown: 1 };
        let proved = |passes: Vec<_>| Members::proved(passes).expect("no pass failed");
        assert_eq!(proved(vec![none(), none()]), unknown);
        assert_eq!(proved(Vec::new()), unknown);
        let settled = Ok((Members::default(), true));
        assert_eq!(proved(vec![none(), settled]), Members::default());
        let one = Members { alive: vec![(10, None)], unknown: 0 };
        assert_eq!(proved(vec![none(), Ok((one.clone(), false))]), one);
    }

    #[test]
    fn an_id_counts_only_with_descent_or_the_right_user() {
        let all = [(KEEPER, 1, 1), (30, 1, 200), (31, 1, 201)];
        let known =
            Known { named: [(30, (ID, false)), (31, (ID, true))].into(), ..Known::default() };
        assert_eq!(found(&all, &known, false), (vec![31], 0));
        // While the keeper lives, it is the ancestor of whatever belongs to the tree.
        assert_eq!(found(&all, &known, true), (Vec::new(), 0));
        // It has ended.
        let without = [(30, 1, 200), (31, 1, 201)];
        assert_eq!(found(&without, &known, false), (vec![31], 0));
    }

    #[test]
    fn one_that_does_not_answer_is_unknown_where_its_word_might_count() {
        let known = Known {
            named: [(31, (ID, true)), (15, (OTHER, true))].into(),
            unanswered: [(16, false), (30, false), (32, true)].into(),
            ..Known::default()
        };
        let all = [
            (KEEPER, 1, 1),
            (10, KEEPER, 100),
            (15, KEEPER, 101),
            (16, KEEPER, 102),
            (30, 1, 200),
            (31, 1, 201),
            (32, 1, 202),
        ];
        // The others are found. An orphan of the keeper is unknown; processes elsewhere are not asked.
        assert_eq!(found(&all, &known, true), (vec![10], 1));
        // The keeper that launched the tree has ended: one of a user whose word counts is unknown, and a stranger is still nothing.
        let others = all.get(4..).expect("there are seven");
        assert_eq!(found(others, &known, false), (vec![31], 1));
        let known = Known { groups: [(16, OTHER), (32, OTHER)].into(), ..known };
        assert_eq!(found(&all, &known, true), (vec![10], 0));
        assert_eq!(found(others, &known, false), (vec![31], 0));
    }

    #[test]
    fn a_control_group_counts_more_than_an_id() {
        let all = [(KEEPER, 1, 1), (40, KEEPER, 200)];
        let known = Known {
            named: [(40, (ID, true))].into(),
            groups: [(40, OTHER)].into(),
            ..Known::default()
        };
        assert_eq!(found(&all, &known, true), (Vec::new(), 0));
        // The keeper has ended.
        let orphan = [(40, 1, 200)];
        assert_eq!(found(&orphan, &known, false), (Vec::new(), 0));
    }
}
