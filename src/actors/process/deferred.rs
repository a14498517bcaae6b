//! Launches that clients defer: deciding and committing their beginning and their cancellation.
//!
//! Until it begins, the process is a record like any other: it is live, so it counts towards the limits, keeps its position in the tree, and
//! belongs to the tree of its parent. It needs nothing from the port. A stop cancels it, whoever requests it: the deadline of its stop has
//! passed at once.

use crate::actors::process::machine::ProcessMachine;
use crate::actors::process::message::Failure;
use crate::actors::process::outcome::{Outcome, Refused};
use crate::actors::process::spec::Parentage;
use crate::clock::Date;
use crate::ids::{ProcessId, Seq, Slot};
use crate::spine::machine::{Effects, Moment};

impl ProcessMachine {
    /// Decides about the launch of a process whose launch was deferred. No ancestor is being stopped with its tree: that cancels it.
    pub(super) fn begin(&self, moment: &Moment, id: ProcessId) -> Result<Outcome, Refused> {
        let (slot, record) = self.live(id)?;
        let deferral = record.rare.deferred.ok_or(Refused::NotDeferred)?;
        if record.rare.stop.is_some() {
            return Err(Refused::Ended);
        }
        if moment.draining.has_begun() {
            return Err(Refused::Draining);
        }
        self.check_above(&Parentage {
            named: record.parent,
            line: Vec::new(),
            bound: deferral.bound,
        })?;
        Ok(Outcome::Begun { slot })
    }

    pub(super) fn commit_begin(&mut self, entry: Seq, slot: Slot, effects: &mut Effects<Self>) {
        self.counted.launches += 1;
        self.state.change(entry, slot, |it| it.rare.deferred = None);
        self.request_attempt(slot, effects);
    }

    pub(super) fn commit_cancellation(
        &mut self,
        entry: Seq,
        (slot, at): (Slot, Date),
        effects: &mut Effects<Self>,
    ) {
        self.state.change(entry, slot, |it| {
            it.rare.deferred = None;
            it.rare.failure = Some(Failure::cancelled());
            it.ended = Some(at);
        });
        self.leave(entry, (slot, false), effects);
    }
}
