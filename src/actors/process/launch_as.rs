//! Launches requested by other actors, and the notifications sent to them.

use crate::actors::binding::{self, EndNotice, Exit, ToHolder, Until, Watch};
use crate::actors::process::machine::ProcessMachine;
use crate::actors::process::message::{End, LaunchAs};
use crate::actors::process::outcome::Outcome;
use crate::actors::process::record::Record;
use crate::ids::{ActorId, Seq};
use crate::spine::machine::{Effects, Moment};

impl Record {
    /// Returns how the process ended, as reported to watchers. Must be called only once the process is gone: if it then has no recorded
    /// end, it could not be started.
    pub(super) const fn exit(&self) -> Exit {
        match self.end {
            Some(End::Code(code)) => Exit::Code(code),
            Some(End::Signal { signal, .. }) => Exit::Signal(signal),
            Some(End::Lost(_)) => Exit::Lost,
            None => Exit::Failed,
        }
    }

    /// Returns whether it was launched, and `actor` requested the launch or watches its tree.
    pub(super) fn is_launched_for(&self, actor: ActorId) -> bool {
        let is_watched = self.watchers.contains(&(actor, Until::Tree));
        self.launched && (is_watched || self.awaited == Some(actor))
    }

    /// Returns the notification that the process is gone, or its whole tree if `until` is the tree.
    pub(super) fn gone(&self, until: Until) -> EndNotice {
        EndNotice {
            process: self.id,
            until,
            exit: Some(self.exit()),
            pid: self.identity.map(|it| it.pid),
        }
    }
}

impl ProcessMachine {
    pub(super) fn launching_as(&self, moment: &Moment, asked: &LaunchAs) -> Outcome {
        match self.state.find(asked.id) {
            Some(_) => Outcome::Taken,
            None => {
                let launching = (&asked.launching, &self.below_server(&asked.launching));
                self.launching(moment, launching, Some(asked.id)).unwrap_or_else(Outcome::Declined)
            }
        }
    }

    pub(super) fn commit_launch_as(
        &mut self,
        entry: Seq,
        (asked, outcome): (&LaunchAs, &Outcome),
        effects: &mut Effects<Self>,
    ) {
        let holder = binding::holder(asked.by);
        if let Outcome::Declined(_) = outcome {
            let (process, until) = (asked.id, Until::Tree);
            let exit = Some(Exit::Failed);
            let gone = EndNotice { process, until, exit, pid: None };
            return effects.tell(holder, &ToHolder::Gone(gone));
        }
        effects.tell(holder, &ToHolder::Launched(asked.id));
        if let Outcome::Launched(insertion) = outcome {
            self.commit_launch(entry, (&asked.launching, insertion), effects);
            self.state.change(entry, insertion.slot, |it| it.awaited = Some(asked.by));
        }
    }

    /// Notifies an actor that the process or tree it wants to watch is already gone, or that the process has no record. If the actor
    /// requested the launch, it will not repeat that request after this notification, so the record may now be removed.
    pub(super) fn commit_gone(&mut self, entry: Seq, watch: Watch, effects: &mut Effects<Self>) {
        if let Some((slot, record)) = self.state.find(watch.process)
            && record.awaited == Some(watch.by)
        {
            self.state.change(entry, slot, |it| it.awaited = None);
        }
        let Watch { by, process, until } = watch;
        let nobody = EndNotice { process, until, exit: None, pid: None };
        let found = self.state.find(process);
        let gone = found.map_or(nobody, |(_, record)| record.gone(until));
        effects.tell(binding::holder(by), &ToHolder::Gone(gone));
    }
}
