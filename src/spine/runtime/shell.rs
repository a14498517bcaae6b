//! The actix actor around a host: its messages, its timer, and its handling of panics.

use super::rebuild::rebuild;
use crate::clock::Timestamp;
use crate::decode;
use crate::ids::{ActorId, Digest, Seq, Ticket};
use crate::spine::delivery::{Delivery, Flow, Report, Wait};
use crate::spine::effect::Tell;
use crate::spine::host::Host;
use crate::spine::ledger::Ledger;
use crate::spine::machine::{self, Gauge, Machine};
use crate::spine::shared::Spine;
use crate::spine::supervision::Verdict;
use actix::{
    Actor, ActorFutureExt as _, AsyncContext as _, Context, Handler, Message, SpawnHandle,
    WrapFuture,
};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::oneshot;

/// The maximum time a timer sleeps. It is short because tokio's clock, unlike node time, stops while the machine is suspended.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The actix actor around a host.
pub(super) struct Shell<M: machine::Actor> {
    pub(super) host: Host<M>,
    rules: M::Rules,
    spine: Rc<Spine>,
    timer: Option<(Timestamp, SpawnHandle)>,
    /// Whether a [`CarryOn`] is on its way.
    carries_on: bool,
}

impl<M: machine::Actor> Shell<M> {
    pub(super) fn new(host: Host<M>, rules: M::Rules, spine: Rc<Spine>) -> Self {
        Self { host, rules, spine, timer: None, carries_on: false }
    }

    fn drive(
        &mut self,
        context: &mut Context<Self>,
        step: impl FnOnce(&mut Host<M>, &mut Ledger) -> Flow,
    ) {
        if self.spine.is_over() {
            return;
        }
        let flow = step(&mut self.host, &mut self.spine.ledger());
        for tell in self.host.take_tells() {
            self.spine.directory().tell(tell);
        }
        for sender in self.host.take_undelivered() {
            self.spine.directory().undelivered(sender);
        }
        self.spine.delivered();
        self.host.outbox().release(self.spine.durable());
        self.spine.feed().show(self.spine.durable());
        match flow {
            Flow::Done => self.set_timer(context),
            Flow::Yield => self.yield_turn(context),
            Flow::Panicked(report) => self.await_verdict(context, &report),
        }
        if self.host.has_parked() && !std::mem::replace(&mut self.carries_on, true) {
            self.carry_on_later(context);
        }
    }

    /// Makes the host carry on with what is parked, once other actors, and the deliveries that are in the mailbox by then, have had their
    /// turn.
    fn carry_on_later(&self, context: &mut Context<Self>) {
        let turn = tokio::task::yield_now();
        context.wait(WrapFuture::<Self>::into_actor(turn, self).map(|(), _, context| {
            context.address().do_send(CarryOn);
        }));
    }

    /// Reports a panic to the Supervisor, and does nothing else until its verdict arrives.
    fn await_verdict(&mut self, context: &mut Context<Self>, report: &Report) {
        let Some(verdict) = self.spine.panicked(M::ID, report, self.host.is_spent()) else {
            return;
        };
        let spine = Rc::clone(&self.spine);
        let judged = async move {
            tokio::select! {
                verdict = verdict => verdict.unwrap_or(Verdict::Halt),
                () = spine.until_halted() => Verdict::Halt,
            }
        };
        context.wait(judged.into_actor(self).map(|verdict, shell, context| {
            if verdict == Verdict::Restart {
                shell.restart(context);
            }
        }));
    }

    /// Continues after a panic, with a rebuilt machine if the panic spent it.
    fn restart(&mut self, context: &mut Context<Self>) {
        if self.host.is_spent() {
            self.rebuild(context);
        } else {
            self.proceed(context);
        }
    }

    fn proceed(&mut self, context: &mut Context<Self>) {
        self.drive(context, Host::proceed);
    }

    /// Proceeds once other actors have had their turn, and once the journal is durable if sequence numbers or space are short. The mailbox
    /// waits meanwhile.
    fn yield_turn(&mut self, context: &mut Context<Self>) {
        let spine = Rc::clone(&self.spine);
        let short = spine.ledger().is_short();
        let last = self.host.last();
        let turn = async move {
            if short {
                spine.write();
                spine.until_durable_or_halted(last).await;
            }
            tokio::task::yield_now().await;
        };
        context.wait(turn.into_actor(self).map(|(), shell, context| shell.proceed(context)));
    }

    /// Sets a timer for the next deadline.
    fn set_timer(&mut self, context: &mut Context<Self>) {
        let offset = self.spine.ledger().both().offset;
        let Some(deadline) = self.host.deadline(offset) else {
            return;
        };
        if let Some((set_for, timer)) = self.timer {
            if set_for <= deadline {
                return;
            }
            context.cancel_future(timer);
        }
        let wait = deadline.since(self.spine.ledger().now()).min(SLEEP_MAX);
        let timer = context.run_later(wait, |shell, context| {
            shell.timer = None;
            // The timer may fire while the mailbox waits, for example for a verdict. Then the actor proceeds when that wait ends.
            if !context.waiting() {
                shell.proceed(context);
            }
        });
        self.timer = Some((deadline, timer));
    }

    /// Rebuilds a spent machine, while the mailbox waits.
    fn rebuild(&mut self, context: &mut Context<Self>) {
        let spent = self.host.take_spent(self.rules.clone());
        let (spine, until) = (Rc::clone(&self.spine), self.host.last());
        let work = rebuild(spine, spent, self.rules.clone(), until);
        context.wait(work.into_actor(self).map(|rebuilt, shell, context| match rebuilt {
            Ok(machine) => {
                shell.drive(context, |host, ledger| host.rebuilt(ledger, machine));
            }
            Err(halt) => shell.spine.halt(halt),
        }));
    }
}

/// actix drops an actor whose handler panics. The host catches the panics of the machine, so this is one of the code around it, and nothing
/// would answer the actor's requests any more.
impl<M: machine::Actor> Drop for Shell<M> {
    fn drop(&mut self) {
        if !self.spine.is_over() {
            let name = format!("the actor {:?}", M::NAME);
            self.spine.sentry().ended(&name, Ok(()));
        }
    }
}

// No part of a shell is ever pinned in memory.
impl<M: machine::Actor> Unpin for Shell<M> {}

impl<M: machine::Actor> Actor for Shell<M> {
    type Context = Context<Self>;

    /// Releases the effects that `resume` requested when the node started, before anything is delivered.
    fn started(&mut self, context: &mut Self::Context) {
        self.proceed(context);
    }
}

pub(super) struct Deliver<M: Machine>(pub(super) Delivery<M>);

impl<M: Machine> Message for Deliver<M> {
    type Result = ();
}

impl<M: machine::Actor> Handler<Deliver<M>> for Shell<M> {
    type Result = ();

    fn handle(&mut self, Deliver(delivery): Deliver<M>, context: &mut Self::Context) {
        self.drive(context, |host, ledger| host.deliver(ledger, delivery));
    }
}

impl Message for Tell {
    type Result = ();
}

impl<M: machine::Actor> Handler<Tell> for Shell<M> {
    type Result = ();

    fn handle(&mut self, tell: Tell, context: &mut Self::Context) {
        match decode::from_slice(&tell.message) {
            Ok(message) => self.drive(context, |host, ledger| {
                host.deliver(ledger, Delivery::from_actor(message, tell.from))
            }),
            Err(error) => {
                tracing::error!(actor = M::NAME, %error, "received a message that cannot be decoded");
            }
        }
    }
}

/// A report, and what is dropped when it has been handled.
pub(super) struct Holding {
    pub(super) tell: Tell,
    pub(super) held: Box<dyn Send>,
}

impl Message for Holding {
    type Result = ();
}

impl<M: machine::Actor> Handler<Holding> for Shell<M> {
    type Result = ();

    fn handle(&mut self, Holding { tell, held }: Holding, context: &mut Self::Context) {
        self.handle(tell, context);
        drop(held);
    }
}

/// A notification that one of this actor's tells (its messages to other actors) was refused, or that handling it panicked.
pub(super) struct Undelivered;

impl Message for Undelivered {
    type Result = ();
}

impl<M: machine::Actor> Handler<Undelivered> for Shell<M> {
    type Result = ();

    fn handle(&mut self, Undelivered: Undelivered, context: &mut Self::Context) {
        let at = self.spine.ledger().now();
        self.host.undelivered(at);
        self.set_timer(context);
    }
}

/// A notification that something may have become due.
pub(super) struct Proceed;

impl Message for Proceed {
    type Result = ();
}

impl<M: machine::Actor> Handler<Proceed> for Shell<M> {
    type Result = ();

    fn handle(&mut self, Proceed: Proceed, context: &mut Self::Context) {
        self.proceed(context);
    }
}

/// A request to go on with what is parked.
struct CarryOn;

impl Message for CarryOn {
    type Result = ();
}

impl<M: machine::Actor> Handler<CarryOn> for Shell<M> {
    type Result = ();

    fn handle(&mut self, CarryOn: CarryOn, context: &mut Self::Context) {
        self.carries_on = false;
        self.drive(context, Host::carry_on);
    }
}

pub(super) struct WatchFor<M: Machine> {
    pub(super) ticket: Ticket,
    pub(super) wait: Wait<M>,
}

impl<M: Machine> Message for WatchFor<M> {
    type Result = ();
}

impl<M: machine::Actor> Handler<WatchFor<M>> for Shell<M> {
    type Result = ();

    fn handle(&mut self, wait: WatchFor<M>, context: &mut Self::Context) {
        self.drive(context, |host, ledger| host.watch(ledger, wait.ticket, wait.wait));
    }
}

/// A request to repeat this actor's requests to other actors and ports.
pub(super) struct Restate(pub(super) oneshot::Sender<()>);

impl Message for Restate {
    type Result = ();
}

impl<M: machine::Actor> Handler<Restate> for Shell<M> {
    type Result = ();

    fn handle(&mut self, Restate(done): Restate, context: &mut Self::Context) {
        self.drive(context, Host::restate);
        let _ = done.send(());
    }
}

/// A request for the encoded messages that [`Restate`] would make this actor send to another actor.
pub(super) struct RestatementRequest(pub(super) ActorId, pub(super) oneshot::Sender<Vec<Vec<u8>>>);

impl Message for RestatementRequest {
    type Result = ();
}

impl<M: machine::Actor> Handler<RestatementRequest> for Shell<M> {
    type Result = ();

    fn handle(
        &mut self,
        RestatementRequest(to, answer): RestatementRequest,
        context: &mut Self::Context,
    ) {
        let mut stated = Vec::new();
        self.drive(context, |host, ledger| host.obligations_to(ledger, to, &mut stated));
        drop(answer.send(stated));
    }
}

/// A request to replace the rules.
pub(super) struct ReplaceRules<M: Machine> {
    pub(super) rules: M::Rules,
    pub(super) done: oneshot::Sender<()>,
}

impl<M: Machine> Message for ReplaceRules<M> {
    type Result = ();
}

impl<M: machine::Actor> Handler<ReplaceRules<M>> for Shell<M> {
    type Result = ();

    fn handle(
        &mut self,
        ReplaceRules { rules, done }: ReplaceRules<M>,
        context: &mut Self::Context,
    ) {
        // A machine that is rebuilt later follows these rules, too.
        self.rules = rules.clone();
        self.drive(context, |host, ledger| host.set_rules(ledger, rules));
        // The caller may no longer be waiting.
        let _ = done.send(());
    }
}

pub(super) struct Unwatch(pub(super) Ticket);

impl Message for Unwatch {
    type Result = ();
}

impl<M: machine::Actor> Handler<Unwatch> for Shell<M> {
    type Result = ();

    fn handle(&mut self, Unwatch(ticket): Unwatch, context: &mut Self::Context) {
        self.drive(context, |host, ledger| host.unwatch(ledger, ticket));
    }
}

/// A notification that the node has halted. Pending requests are dropped, which notifies their callers.
pub(super) struct Abandon;

impl Message for Abandon {
    type Result = ();
}

impl<M: machine::Actor> Handler<Abandon> for Shell<M> {
    type Result = ();

    fn handle(&mut self, Abandon: Abandon, _: &mut Self::Context) {
        self.host.abandon();
    }
}

/// The status of an actor.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ActorStatus {
    /// The actor's name.
    pub name: &'static str,
    /// The sequence number of the actor's newest entry.
    pub last: Seq,
    /// The digest of the actor's durable state; `None` while the actor is being rebuilt.
    pub digest: Option<Digest>,
    /// The machine's gauges.
    pub gauges: Vec<Gauge>,
    /// The panics that caused an item to be quarantined: its deadline is ignored until the item changes.
    pub quarantined: Vec<Report>,
}

pub(super) struct Describe(pub(super) oneshot::Sender<ActorStatus>);

impl Message for Describe {
    type Result = ();
}

impl<M: machine::Actor> Handler<Describe> for Shell<M> {
    type Result = ();

    fn handle(&mut self, Describe(answer): Describe, _: &mut Self::Context) {
        let status = ActorStatus {
            name: M::NAME,
            last: self.host.last(),
            digest: self.host.digest(),
            gauges: self.host.gauges(),
            quarantined: self.host.quarantined().to_vec(),
        };
        drop(answer.send(status));
    }
}

/// A function that sets the hook that provokes panics in a host.
pub(super) type Planting<M> = Box<dyn FnOnce(&mut Host<M>) + Send>;

pub(super) struct InjectFaults<M: machine::Actor>(pub(super) Planting<M>);

impl<M: machine::Actor> Message for InjectFaults<M> {
    type Result = ();
}

impl<M: machine::Actor> Handler<InjectFaults<M>> for Shell<M> {
    type Result = ();

    fn handle(&mut self, InjectFaults(plant): InjectFaults<M>, _: &mut Self::Context) {
        plant(&mut self.host);
    }
}
