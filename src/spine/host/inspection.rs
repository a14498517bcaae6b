//! The state of a host, as visible from outside. After a panic that makes it unusable, a machine is *spent* until it is rebuilt.

use super::Host;
use crate::clock::{Offset, Timestamp};
use crate::ids::{ActorId, Digest, Seq};
use crate::spine::delivery::Report;
use crate::spine::guard::guard;
use crate::spine::machine::{Actor, Gauge};
use crate::spine::outbox::Outbox;
use crate::spine::recovery;

impl<M: Actor> Host<M> {
    /// Returns whether the machine is spent, and must be rebuilt before it is used again.
    pub fn is_spent(&self) -> bool {
        self.spent
    }

    /// Returns whether a delivery is being carried out.
    pub fn is_busy(&self) -> bool {
        self.backlog.is_some()
    }

    /// Returns the newest entry of this actor.
    pub fn last(&self) -> Seq {
        self.last
    }

    /// Returns the newest entry that must be durable before this actor's answers are sent. Later entries of the actor only record state
    /// that is lost anyway when the process exits.
    pub fn awaited(&self) -> Seq {
        self.awaited
    }

    /// Returns the actor's id.
    pub fn actor(&self) -> ActorId {
        M::ID
    }

    /// Returns a time before which nothing is due; `None` if nothing has a deadline, or the machine is spent.
    pub fn deadline(&self, offset: Offset) -> Option<Timestamp> {
        if self.spent {
            return None;
        }
        // After a panic here, the deadline counts as passed: the panic will recur, and be reported, when the host acts on it.
        let machine = guard(|| self.machine.deadline(offset)).unwrap_or(Some(Timestamp(0)));
        machine.into_iter().chain(self.restate.due).min()
    }

    /// Returns the outbox, which holds the answers and actions that wait for the journal.
    pub fn outbox(&self) -> &Outbox<M> {
        &self.outbox
    }

    /// Returns the machine, for inspection.
    ///
    /// # Panics
    /// Panics while the machine is spent.
    pub fn machine(&self) -> &M {
        assert!(!self.spent, "a spent machine is not inspected");
        &self.machine
    }

    /// Returns the digest of the state; `None` while the machine is spent, or if computing the digest panics.
    pub fn digest(&self) -> Option<Digest> {
        let machine = Some(&self.machine).filter(|_| !self.spent)?;
        guard(|| recovery::digest(machine, &self.receipts)).ok()
    }

    /// Returns the machine's gauges; empty while the machine is spent, or if computing them panics.
    pub fn gauges(&self) -> Vec<Gauge> {
        let machine = Some(&self.machine).filter(|_| !self.spent);
        let gauges = machine.and_then(|machine| guard(|| machine.gauges()).ok());
        gauges.unwrap_or_default()
    }

    /// Returns the panics that quarantined an item. The deadlines of these items are ignored.
    pub fn quarantined(&self) -> &[Report] {
        &self.quarantined
    }
}
