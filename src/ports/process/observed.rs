//! Observations of the kernel and of the followed processes, for the status of the node.

use crate::kernel::host::{self, Abilities};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The observations of a port. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Observed(Arc<Mutex<Observations>>);

/// The latest observations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observations {
    /// Whether each launched process gets its own control group; `None` until a keeper has been joined.
    pub groups: Option<bool>,
    /// Whether the memory of a tree can be limited as a whole; `None` until a keeper has been joined.
    pub bounds_trees: Option<bool>,
    /// The number of followed processes for which it is unknown whether they are alive. They are looked up again.
    pub unknown: u32,
}

impl Observed {
    /// Returns the latest observations.
    pub fn now(&self) -> Observations {
        *self.lock()
    }

    /// Returns the id of this machine, which is part of the identities of its processes.
    pub fn machine(&self) -> u128 {
        host::machine()
    }

    /// Returns the abilities of this kernel.
    pub fn kernel(&self) -> &'static Abilities {
        host::abilities()
    }

    pub(super) fn joined(&self, groups: bool, bounds_trees: bool) {
        let mut observations = self.lock();
        observations.groups = Some(groups);
        observations.bounds_trees = Some(bounds_trees);
    }

    pub(super) fn count_unknown(&self, unknown: usize) {
        self.lock().unknown = unknown.try_into().unwrap_or(u32::MAX);
    }

    fn lock(&self) -> MutexGuard<'_, Observations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
