//! Checks on request whether processes are still alive.

use crate::bytes::Bytes;
use crate::ports::process::attempt::Attempt;
use crate::ports::process::follower::Follower;
use crate::ports::process::world::{Lookup, Tree, World};

impl<W: World> Follower<W> {
    /// Looks up a process that is recorded as alive, even if the follower considers it alive. Returns whether the process has ended. How it
    /// ended is reported as usual, as soon as that is known. Returns `false` if the lookup is inconclusive, or if the id of this machine has changed.
    pub fn reconcile(&mut self, tree: &Tree, run_dir: Option<&Bytes>) -> bool {
        let Tree { id, leader, .. } = *tree;
        if self.is_elsewhere(&leader) {
            return false;
        }
        self.world.note(id, None);
        let attempt = self.attempts.entry(id);
        let attempt = attempt.or_insert_with(|| Attempt::new(tree.launched, run_dir.cloned()));
        attempt.contained |= tree.contained;
        attempt.identity.get_or_insert(leader);
        let is_gone =
            attempt.ended.is_some() || matches!(self.world.find(&leader), Lookup::Gone(_));
        if is_gone {
            // The descriptor did not report the end, or the event was missed.
            (attempt.handle, attempt.next_look) = (None, None);
        }
        self.follow(id);
        is_gone
    }
}
