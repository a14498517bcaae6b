//! The start of every actor, each with the port that performs its actions: a new actor has a line here.

use crate::actors::{Actors, Rules};
use crate::spine::directory::Admission;
use crate::spine::each::{HostOf, MailboxOf};
use crate::spine::host::Host;
use crate::spine::machine::Actor;
use crate::spine::port::{NoPort, Port};
use crate::spine::runtime::{self, Completions, Judge, Mailbox};
use crate::spine::shared::Spine;
use std::rc::Rc;

/// Starts every actor.
pub(super) fn start(
    hosts: Actors<HostOf>,
    rules: Rules,
    spine: &Rc<Spine>,
    admission: &Admission,
) -> Actors<MailboxOf> {
    let judge = Judge::new(Rc::clone(spine));
    let core = Core { spine, admission };
    Actors {
        supervisor: core.start(hosts.supervisor, rules.supervisor, |_| Box::new(judge)),
        lock: core.start(hosts.lock, rules.lock, |_| Box::new(NoPort)),
        queue: core.start(hosts.queue, rules.queue, |_| Box::new(NoPort)),
    }
}

/// What all actors are started with.
struct Core<'c> {
    spine: &'c Rc<Spine>,
    admission: &'c Admission,
}

impl Core<'_> {
    fn start<M: Actor>(
        &self,
        host: Host<M>,
        rules: M::Rules,
        port: impl FnOnce(Completions<M>) -> Box<dyn Port<M>>,
    ) -> Mailbox<M> {
        runtime::start(host, rules, self.spine, self.admission.clone(), port)
    }
}
