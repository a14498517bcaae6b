//! What is seen of a host from outside.

use super::Host;
use crate::clock::{Offset, Timestamp};
use crate::ids::{ActorId, Digest, Seq};
use crate::spine::delivery::Report;
use crate::spine::guard::guard;
use crate::spine::machine::{Actor, Gauge};
use crate::spine::outbox::Outbox;
use crate::spine::recovery;

impl<M: Actor> Host<M> {
    /// Whether the machine must be rebuilt before anything else.
    pub fn is_spent(&self) -> bool {
        self.spent
    }

    /// Whether a delivery is being worked through.
    pub fn is_busy(&self) -> bool {
        self.backlog.is_some()
    }

    /// The newest entry of this actor.
    pub fn last(&self) -> Seq {
        self.last
    }

    /// The entry that answers from here on rest on: behind it there is only what passes with the process.
    pub fn awaited(&self) -> Seq {
        self.awaited
    }

    /// Which actor this is.
    pub fn actor(&self) -> ActorId {
        M::ID
    }

    /// A time before which nothing is due.
    pub fn deadline(&self, offset: Offset) -> Option<Timestamp> {
        if self.spent {
            return None;
        }
        // What panics here panics again, and is reported, when it is acted on.
        let machine = guard(|| self.machine.deadline(offset)).unwrap_or(Some(Timestamp(0)));
        machine.into_iter().chain(self.restate.due).min()
    }

    /// What waits for the journal.
    pub fn outbox(&self) -> &Outbox<M> {
        &self.outbox
    }

    /// The machine, to look at. Not while it is spent.
    pub fn machine(&self) -> &M {
        assert!(!self.spent, "a spent machine shows nothing");
        &self.machine
    }

    /// The digest of the state; none while it is spent.
    pub fn digest(&self) -> Option<Digest> {
        let machine = Some(&self.machine).filter(|_| !self.spent)?;
        guard(|| recovery::digest(machine, &self.receipts)).ok()
    }

    /// What the machine counts; nothing while it is spent.
    pub fn gauges(&self) -> Vec<Gauge> {
        let machine = Some(&self.machine).filter(|_| !self.spent);
        let gauges = machine.and_then(|machine| guard(|| machine.gauges()).ok());
        gauges.unwrap_or_default()
    }

    /// Items on which time no longer acts, with the panics that were the reason.
    pub fn quarantined(&self) -> &[Report] {
        &self.quarantined
    }
}
