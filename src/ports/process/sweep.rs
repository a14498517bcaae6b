//! Passes over all processes, shared by all trees that are asked about between two events.

use crate::kernel::proc::{self, Stat, Unanswered, Variable};
use crate::ports::process::environment::ID;
use crate::ports::process::members::Members;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;

/// The number of passes that must find nothing if other processes are being created all the time.
const PASSES: usize = 8;

/// How often a pass during which processes were created looks at the new ones.
const CATCH_UPS: usize = 8;

/// The passes made since the last event. Each is made when the first tree needs it, and serves all others.
#[derive(Debug, Default)]
pub(super) struct Sweep(Vec<Pass>);

/// All live processes.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) living: BTreeMap<u32, Stat>,
    /// The ids in the environments of the processes for which a tree asked.
    named: RefCell<BTreeMap<u32, Result<Option<Variable>, Unanswered>>>,
    /// When it began, in clock ticks since boot.
    ticks: u64,
    /// Whether it shows every process that was alive at its end.
    is_settled: bool,
}

impl Pass {
    /// Looks at all processes. One that is alive at the end and was not seen has been created since the beginning, since one that was alive
    /// all the time was seen. So if processes were created, the new ones are looked at, until none is created meanwhile.
    fn make() -> io::Result<Self> {
        let (ticks, mut created) = (proc::now_ticks(), proc::created_count()?);
        let mut living = proc::living()?;
        let mut is_settled = false;
        for _ in 0..CATCH_UPS {
            let now = proc::created_count()?;
            is_settled = now == created;
            if is_settled {
                break;
            }
            created = now;
            proc::catch_up(&mut living)?;
        }
        Ok(Self { living, named: RefCell::default(), ticks, is_settled })
    }

    /// Returns the id in the environment of a process, which is read once for all trees.
    pub(super) fn named(&self, pid: u32) -> Result<Option<Variable>, Unanswered> {
        let mut named = self.named.borrow_mut();
        named.entry(pid).or_insert_with(|| proc::variable(pid, ID)).clone()
    }
}

impl Sweep {
    /// Forgets all passes, since something may have happened after them.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the members of a tree whose leader started at `started`, as [`Members::proved`] does. On a busy machine, up to [`PASSES`]
    /// are made.
    pub(super) fn search(
        &mut self,
        started: u64,
        find: impl Fn(&Pass) -> Members,
    ) -> io::Result<Members> {
        self.search_by(Pass::make, started, find)
    }

    fn search_by(
        &mut self,
        make: impl Fn() -> io::Result<Pass>,
        started: u64,
        find: impl Fn(&Pass) -> Members,
    ) -> io::Result<Members> {
        // A pass that began before the leader may have missed the whole tree.
        if self.0.first().is_some_and(|pass| pass.ticks <= started) {
            self.clear();
        }
        Members::proved((0..PASSES).filter_map(|at| {
            if self.0.len() <= at {
                match make() {
                    Ok(pass) => self.0.push(pass),
                    Err(error) => return Some(Err(error)),
                }
            }
            let pass = self.0.get(at)?;
            Some(Ok((find(pass), pass.is_settled)))
        }))
    }

    /// Returns the number of passes made since the last event.
    #[cfg(test)]
    pub(super) const fn passes(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{PASSES, Pass, Sweep};
    use crate::ports::process::members::Members;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    fn pass(is_settled: bool) -> Pass {
        Pass { living: BTreeMap::new(), named: RefCell::default(), ticks: 1, is_settled }
    }

    #[test]
    fn a_tree_is_unknown_while_processes_are_created_during_every_pass() {
        let mut sweep = Sweep::default();
        let mut search = |is_settled| {
            sweep.clear();
            let found = sweep.search_by(|| Ok(pass(is_settled)), 0, |_| Members::default());
            (found.expect("the passes are made"), sweep.passes())
        };
        let unknown = Members { alive: Vec::new(), unknown: 1 };
        assert_eq!(search(false), (unknown, PASSES));
        assert_eq!(search(true), (Members::default(), 1), "a settled pass");
    }

    #[test]
    fn all_trees_share_the_passes_between_two_events() {
        let mut sweep = Sweep::default();
        for _ in 0..400 {
            let found = sweep.search(0, |_| Members::default());
            assert_eq!(found.expect("it is readable").alive, []);
        }
        let passes = sweep.passes();
        assert!((1..=PASSES).contains(&passes), "{passes}");
        sweep.clear();
        let own = std::process::id();
        let found = sweep.search(0, |pass| Members {
            alive: pass.living.get_key_value(&own).map(|it| (*it.0, None)).into_iter().collect(),
            unknown: 0,
        });
        assert_eq!(found.expect("it is readable").alive, [(own, None)]);
        assert_eq!(sweep.passes(), 1, "one member is enough");
    }

    #[test]
    fn a_pass_does_not_count_for_a_tree_that_began_after_it() {
        let mut sweep = Sweep::default();
        let own = std::process::id();
        let find = |_: &_| Members { alive: vec![(own, None)], unknown: 0 };
        sweep.search(0, find).expect("it is readable");
        let before = sweep.0.first().map(|pass| pass.ticks);
        let later = before.unwrap_or_default() + 1;
        while crate::kernel::proc::now_ticks() <= later {
            std::thread::yield_now();
        }
        sweep.search(later, find).expect("it is readable");
        assert_ne!(sweep.0.first().map(|pass| pass.ticks), before);
    }
}
