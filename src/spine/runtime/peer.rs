//! Lets other actors and ports send an actor messages that get no answer.

use super::shell::{Holding, Proceed, Shell, Undelivered};
use crate::ids::ActorId;
use crate::spine::directory::Peer;
use crate::spine::effect::{Action, Tell};
use crate::spine::machine::{Actor, Machine};
use crate::spine::port::Port;
use crate::spine::shared::Spine;
use crate::spine::supervision::Verdict;
use actix::Addr;
use std::rc::Rc;

/// An actor's address for messages from other actors.
pub(super) struct Address<M: Actor>(Addr<Shell<M>>);

impl<M: Actor> Address<M> {
    pub(super) const fn new(address: Addr<Shell<M>>) -> Self {
        Self(address)
    }
}

impl<M: Actor> Peer for Address<M> {
    fn tell(&self, tell: Tell) {
        self.0.do_send(tell);
    }

    fn undelivered(&self) {
        self.0.do_send(Undelivered);
    }

    fn handle_due(&self) {
        self.0.do_send(Proceed);
    }
}

/// The address to which a port reports the completion of actions. Clones refer to the same actor, and can be used from any thread.
pub struct Completions<M: Actor>(Addr<Shell<M>>);

impl<M: Actor> Clone for Completions<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: Actor> Completions<M> {
    pub(super) const fn new(address: Addr<Shell<M>>) -> Self {
        Self(address)
    }

    /// Sends the actor a report. If the report is refused, the actor requests the action again later.
    pub fn report(&self, message: &M::Message) {
        self.0.do_send(Self::tell(message));
    }

    /// Like [`report`](Self::report). `held` is dropped when the actor has handled the report, or has ended.
    pub fn report_holding(&self, message: &M::Message, held: impl Send + 'static) {
        let tell = Self::tell(message);
        let held = Box::new(held);
        self.0.do_send(Holding { tell, held });
    }

    fn tell(message: &M::Message) -> Tell {
        let message = rmp_serde::to_vec(message).expect("messages should always encode");
        Tell { from: M::ID, to: M::ID, message }
    }
}

/// The port of the Supervisor: passes its verdicts to the actors that wait for them. The id of an action is the id of the actor that the
/// verdict is about.
pub struct Judge(Rc<Spine>);

impl Judge {
    /// Creates the port for the actors of this node.
    pub const fn new(spine: Rc<Spine>) -> Self {
        Self(spine)
    }
}

impl<M: Machine<Action = Verdict>> Port<M> for Judge {
    fn perform(&mut self, action: Action<Verdict>) {
        let actor = u8::try_from(action.id).expect("the id should be that of an actor");
        self.0.pass_verdict(ActorId(actor), action.what);
    }
}
