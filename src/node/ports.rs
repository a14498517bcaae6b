//! Starts every actor, each with the port that performs its actions. The port of a new kind of action is added here.

use crate::actors::lease::{self, LeaseMachine};
use crate::actors::process::{self, ProcessMachine};
use crate::actors::{Actors, Rules, each};
use crate::ports::lease::LeasePort;
use crate::ports::process::{ProcessPort, ProcessPortHandle};
use crate::spine::directory::Admission;
use crate::spine::each::{HostOf, MailboxOf};
use crate::spine::machine::{Actor, Never};
use crate::spine::port::{NoPort, Port};
use crate::spine::runtime::{self, Completions, Judge};
use crate::spine::shared::Spine;
use crate::spine::supervision::Verdict;
use std::rc::Rc;

/// Starts every actor, and returns their mailboxes.
pub(super) fn start(
    hosts: Actors<HostOf>,
    rules: Rules,
    spine: &Rc<Spine>,
    admission: &Admission,
    port: &ProcessPortHandle,
) -> Actors<MailboxOf> {
    each!(list: host in hosts, rules in rules => {
        runtime::start(host, rules, spine, admission.clone(), |it| Performed::port(it, spine, port))
    })
}

/// The type of a machine's actions; it selects the port that performs them.
trait Performed<M: Actor<Action = Self>>: Sized {
    /// Returns the port; it reports results through `completions`.
    fn port(
        completions: Completions<M>,
        spine: &Rc<Spine>,
        port: &ProcessPortHandle,
    ) -> Box<dyn Port<M>>;
}

impl<M: Actor<Action = Self>> Performed<M> for Never {
    fn port(_: Completions<M>, _: &Rc<Spine>, _: &ProcessPortHandle) -> Box<dyn Port<M>> {
        Box::new(NoPort)
    }
}

impl<M: Actor<Action = Self>> Performed<M> for Verdict {
    fn port(_: Completions<M>, spine: &Rc<Spine>, _: &ProcessPortHandle) -> Box<dyn Port<M>> {
        Box::new(Judge::new(Rc::clone(spine)))
    }
}

impl Performed<LeaseMachine> for lease::Action {
    fn port(
        _: Completions<LeaseMachine>,
        spine: &Rc<Spine>,
        port: &ProcessPortHandle,
    ) -> Box<dyn Port<LeaseMachine>> {
        Box::new(LeasePort::new(port.data(), spine.sentry().clone()))
    }
}

impl Performed<ProcessMachine> for process::Action {
    fn port(
        completions: Completions<ProcessMachine>,
        _: &Rc<Spine>,
        port: &ProcessPortHandle,
    ) -> Box<dyn Port<ProcessMachine>> {
        let unread = port.unread().clone();
        let reporter = move || {
            let (completions, unread) = (completions.clone(), unread.clone());
            move |message| {
                // Processes send these as they like, so there is a limit on those that wait for the actor.
                if let process::Message::Notice { .. } = message {
                    completions.report_holding(&message, unread.one());
                } else {
                    completions.report(&message);
                }
            }
        };
        Box::new(ProcessPort::new(port.clone(), reporter))
    }
}
