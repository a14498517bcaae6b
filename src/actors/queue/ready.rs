//! The ready jobs of a queue, ordered by rank, then by id.
//!
//! A job that becomes ready is usually younger than all ready jobs of its rank. The jobs for which this holds form one
//! linked list per rank, called a lane, which needs no extra memory per job. A job whose lane already ends with a younger
//! job is put into a tree instead: for example, one that was delayed, released or kicked, or whose claim timed out.

use crate::actors::queue::job::Job;
use crate::clock::Timestamp;
use crate::ids::Slot;
use crate::lookup::slab::Slab;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of lanes, and of jobs in the tree, that are searched for the oldest job.
const RANKS: usize = 64;

/// The value of `previous` that marks a job in the tree.
const IN_TREE: Slot = Slot(u32::MAX - 1);

/// The ready jobs of one queue, ordered by rank, then by id.
#[derive(Debug, Default)]
pub(super) struct Ready {
    lanes: BTreeMap<u64, Lane>,
    tree: BTreeSet<(u64, u64, Slot)>,
}

/// A linked list of jobs of one rank, ordered by age.
#[derive(Debug)]
struct Lane {
    first: Slot,
    last: Slot,
}

impl Ready {
    /// Adds a job.
    pub(super) fn insert(&mut self, jobs: &mut Slab<Job>, slot: Slot, rank: u64) {
        let id = jobs[slot].id;
        let (previous, next) = match self.lanes.get_mut(&rank) {
            None => {
                let lane = Lane { first: slot, last: slot };
                self.lanes.insert(rank, lane);
                (Slot::NONE, Slot::NONE)
            }
            Some(lane) if jobs[lane.last].id < id => {
                let before = std::mem::replace(&mut lane.last, slot);
                jobs[before].next = slot;
                (before, Slot::NONE)
            }
            Some(_) => {
                self.tree.insert((rank, id, slot));
                (IN_TREE, Slot::NONE)
            }
        };
        let job = &mut jobs[slot];
        (job.previous, job.next) = (previous, next);
    }

    /// Removes a job.
    pub(super) fn remove(&mut self, jobs: &mut Slab<Job>, slot: Slot, rank: u64) {
        let Job { id, previous, next, .. } = jobs[slot];
        if previous == IN_TREE {
            let was = self.tree.remove(&(rank, id, slot));
            assert!(was, "a job marked as being in the tree is in the tree");
            return;
        }
        if previous != Slot::NONE {
            jobs[previous].next = next;
        }
        if next != Slot::NONE {
            jobs[next].previous = previous;
        }
        if previous != Slot::NONE && next != Slot::NONE {
            return;
        }
        let lane = self.lanes.get_mut(&rank);
        let lane = lane.expect("the lane of a linked job should exist");
        match (previous, next) {
            (Slot::NONE, Slot::NONE) => drop(self.lanes.remove(&rank)),
            (Slot::NONE, next) => lane.first = next,
            (previous, _) => lane.last = previous,
        }
    }

    /// Returns the slots of all jobs: those in lanes by rank and id, then those in the tree.
    pub(super) fn iter<'a>(&'a self, jobs: &'a Slab<Job>) -> impl Iterator<Item = Slot> + 'a {
        let lane = move |lane: &Lane| {
            let next = move |slot: &Slot| Some(jobs[*slot].next).filter(|next| *next != Slot::NONE);
            std::iter::successors(Some(lane.first), next)
        };
        let tree = self.tree.iter().map(|(_, _, slot)| *slot);
        self.lanes.values().flat_map(lane).chain(tree)
    }

    /// Asserts that lanes are ordered by age and linked both ways, and that jobs in the tree are marked.
    #[cfg(test)]
    pub(super) fn assert_whole(&self, jobs: &Slab<Job>) {
        for lane in self.lanes.values() {
            let (mut before, mut slot) = (Slot::NONE, lane.first);
            while slot != Slot::NONE {
                let job = &jobs[slot];
                assert_eq!(job.previous, before, "jobs are linked both ways");
                assert!(
                    before == Slot::NONE || jobs[before].id < job.id,
                    "a lane is ordered by age"
                );
                (before, slot) = (slot, job.next);
            }
            assert_eq!(lane.last, before, "a lane records its last job");
        }
        for (_, id, slot) in &self.tree {
            assert_eq!((jobs[*slot].id, jobs[*slot].previous), (*id, IN_TREE));
        }
    }

    /// Returns when the oldest ready job was added; `None` if no job is ready. Examines only the first job in each of the
    /// first [`RANKS`] lanes and the first [`RANKS`] jobs in the tree, so an older job may be missed.
    pub(super) fn oldest(&self, jobs: &Slab<Job>) -> Option<Timestamp> {
        let lanes = self.lanes.values().map(|lane| lane.first);
        let tree = self.tree.iter().map(|(_, _, slot)| *slot);
        let first = lanes.take(RANKS).chain(tree.take(RANKS));
        first.map(|slot| jobs[slot].created).min()
    }

    /// Returns the rank, id and slot of the first job; `None` if there are no jobs.
    pub(super) fn first(&self, jobs: &Slab<Job>) -> Option<(u64, u64, Slot)> {
        self.from(jobs, 0)
    }

    /// Returns the rank, id and slot of the first job whose rank is at least `rank` or, if there is none, of the first job in the queue;
    /// `None` if there are no jobs.
    pub(super) fn around(&self, jobs: &Slab<Job>, rank: u64) -> Option<(u64, u64, Slot)> {
        self.from(jobs, rank).or_else(|| self.first(jobs))
    }

    fn from(&self, jobs: &Slab<Job>, rank: u64) -> Option<(u64, u64, Slot)> {
        let lane = self.lanes.range(rank..).next();
        let in_lane = lane.map(|(rank, lane)| (*rank, jobs[lane.first].id, lane.first));
        let tree = self.tree.range((rank, 0, Slot(0))..).next().copied();
        match (in_lane, tree) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }
}
