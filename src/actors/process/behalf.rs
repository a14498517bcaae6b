//! Launches that other actors ask for, and what those are told.

use crate::actors::binding::{self, Exit, Gone, ToHolder, Until, Watch};
use crate::actors::process::machine::ProcessMachine;
use crate::actors::process::message::{End, LaunchAs};
use crate::actors::process::outcome::Outcome;
use crate::actors::process::record::Record;
use crate::ids::Seq;
use crate::spine::machine::{Effects, Moment};

impl Record {
    /// How it ended, as far as its watchers care. What has ended without an end was never started.
    pub(super) const fn exit(&self) -> Exit {
        match self.end {
            Some(End::Code(code)) => Exit::Code(code),
            Some(End::Signal { signal, .. }) => Exit::Signal(signal),
            Some(End::Lost(_)) => Exit::Lost,
            None => Exit::Failed,
        }
    }

    /// That it is gone, or its tree.
    pub(super) const fn gone(&self, until: Until) -> Gone {
        Gone {
            process: self.id,
            until,
            exit: Some(self.exit()),
        }
    }
}

impl ProcessMachine {
    pub(super) fn launching_as(&self, moment: &Moment, asked: &LaunchAs) -> Outcome {
        match self.state.find(asked.id) {
            Some((_, record)) if record.is_gone(Until::Tree) => Outcome::Gone,
            Some((slot, _)) => Outcome::Watched { slot },
            None => self
                .launching(moment, &asked.launching, Some(asked.id))
                .unwrap_or_else(Outcome::Declined),
        }
    }

    pub(super) fn commit_launch_as(
        &mut self,
        entry: Seq,
        (asked, outcome): (&LaunchAs, &Outcome),
        effects: &mut Effects<Self>,
    ) {
        let watch = Watch {
            by: asked.by,
            process: asked.id,
            until: Until::Tree,
        };
        let holder = binding::holder(asked.by);
        if let Outcome::Declined(_) = outcome {
            let (process, until) = (asked.id, Until::Tree);
            let exit = Some(Exit::Failed);
            let gone = Gone {
                process,
                until,
                exit,
            };
            return effects.tell(holder, &ToHolder::Gone(gone));
        }
        effects.tell(holder, &ToHolder::Launched(asked.id));
        match (outcome, &asked.launching) {
            (Outcome::Launched(insertion), launching) => {
                self.commit_launch(entry, (launching, insertion), effects);
                self.commit_watch(entry, (insertion.slot, watch));
            }
            (Outcome::Watched { slot }, _) => self.commit_watch(entry, (*slot, watch)),
            (Outcome::Gone, _) => self.tell_gone(watch, effects),
            (other, _) => unreachable!("{other:?} never comes of a launch"),
        }
    }

    /// Tells an actor that what it wants to watch is gone.
    pub(super) fn tell_gone(&self, watch: Watch, effects: &mut Effects<Self>) {
        let Watch { by, process, until } = watch;
        let nobody = Gone {
            process,
            until,
            exit: None,
        };
        let found = self.state.find(process);
        let gone = found.map_or(nobody, |(_, record)| record.gone(until));
        effects.tell(binding::holder(by), &ToHolder::Gone(gone));
    }
}
