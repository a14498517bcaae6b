//! Mailboxes, through which any thread sends an actor messages, queries and waits, and receives the answers.

use super::answering::{AnswerReceiver, answer_channel};
use super::shell::{self, ActorStatus, Shell};
use crate::clock::ClockCallback;
use crate::decode;
use crate::ids::{RequestKey, Ticket};
use crate::spine::delivery::{Answer, Authority, Delivery, Item, PanicInjector, ReplyTo, Wait};
use crate::spine::directory::{Admission, Permit};
use crate::spine::effect::To;
use crate::spine::host::Host;
use crate::spine::machine::Actor;
use actix::Addr;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The address of an actor. Clones refer to the same actor, and can be used from any thread.
pub struct Mailbox<M: Actor> {
    address: Addr<Shell<M>>,
    admission: Admission,
    authority: Authority,
}

impl<M: Actor> Mailbox<M> {
    pub(super) fn new(address: Addr<Shell<M>>, admission: Admission) -> Self {
        Self { address, admission, authority: Authority::Full }
    }

    /// Returns the address of the same actor, for senders of limited authority.
    #[must_use]
    pub fn limited(&self) -> Self {
        Self { authority: Authority::Limited, ..self.clone() }
    }

    /// Returns the address of the same actor, for clients of a protocol that has neither tokens nor users: their authority is limited, and
    /// their open commands have a bound of their own.
    #[must_use]
    pub fn for_strangers(&self) -> Self {
        Self { admission: self.admission.strangers(), ..self.limited() }
    }

    /// Waits until the bound on open commands allows these.
    async fn admit(&self, items: &[Item<M>]) -> Permit {
        let cost = items.iter().map(|item| M::cost(item.request())).sum();
        self.admission.admit(items.len(), cost).await
    }

    fn delivery(&self, items: Vec<Item<M>>, reply_to: ReplyTo<M::Reply>) -> shell::Deliver<M> {
        let authority = self.authority;
        shell::Deliver(Delivery { authority, ..Delivery::new(items, reply_to) })
    }
}

impl<M: Actor> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self {
            address: self.address.clone(),
            admission: self.admission.clone(),
            authority: self.authority,
        }
    }
}

/// The error for a request to a node that has halted or stopped. The request may or may not have been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node has stopped")]
pub struct Stopped;

impl<M: Actor> Mailbox<M> {
    /// Delivers commands and waits for their answers, which arrive together and in order.
    ///
    /// First waits until the bound on open commands allows them. Once they are delivered, dropping the future does not cancel them. There
    /// may be fewer answers than commands: see [`Delivery`].
    pub async fn call(&self, items: Vec<Item<M>>) -> Result<Vec<Answer<M::Reply>>, Stopped> {
        let permit = self.admit(&items).await;
        let (answer, answers) = oneshot::channel();
        let reply_to: ReplyTo<M::Reply> = Box::new(move |all| {
            drop(permit);
            // The caller may no longer be waiting; the commands were carried out nevertheless.
            drop(answer.send(all));
        });
        // Not `try_send`: actix would refuse more than a few messages, but the bound on open commands has been enforced already. If the
        // actor has stopped, the answer's channel is dropped with the message.
        self.address.do_send(self.delivery(items, reply_to));
        answers.await.map_err(|_| Stopped)
    }

    /// Like [`call`](Self::call), for queries that scan much state: only one such call is carried out at a time, across all actors.
    pub async fn scan(&self, items: Vec<Item<M>>) -> Result<Vec<Answer<M::Reply>>, Stopped> {
        let turn = self.admission.scan().await;
        let answers = self.call(items).await;
        drop(turn);
        answers
    }

    /// Like [`call`](Self::call), but if the future is dropped, the answers go to `on_undelivered`.
    pub async fn call_or(
        &self,
        items: Vec<Item<M>>,
        on_undelivered: impl Fn(Vec<Answer<M::Reply>>) + Send + Sync + 'static,
    ) -> Result<Vec<Answer<M::Reply>>, Stopped> {
        let permit = self.admit(&items).await;
        let (answer, mut answers) = answer_channel(Arc::new(on_undelivered));
        let reply_to: ReplyTo<M::Reply> = Box::new(move |all| {
            drop(permit);
            answer(all);
        });
        // Not `try_send`: actix would refuse more than a few messages, but the bound on open commands has been enforced already. If the
        // actor has stopped, the answer's channel is dropped with the message.
        self.address.do_send(self.delivery(items, reply_to));
        answers.answers().await.ok_or(Stopped)
    }

    /// Delivers commands without waiting for their answers, regardless of the bound on open commands.
    pub fn cast(&self, items: Vec<Item<M>>) {
        let reply_to: ReplyTo<M::Reply> = Box::new(drop);
        self.address.do_send(self.delivery(items, reply_to));
    }

    /// Delivers nothing, and passes the answers to `reply_to`, for tests in which it panics.
    #[doc(hidden)]
    pub fn cast_to(&self, reply_to: ReplyTo<M::Reply>) {
        let delivery = Delivery::new(Vec::new(), reply_to);
        self.address.do_send(shell::Deliver(delivery));
    }

    /// Waits for a condition, and returns the answer.
    pub async fn watch(&self, watch: M::Watch) -> Result<Answer<M::Reply>, Stopped> {
        self.begin_watch(watch).answer().await
    }

    /// Begins to wait for a condition.
    pub fn begin_watch(&self, watch: M::Watch) -> Waiting<M> {
        self.begin_watch_or((watch, None), drop)
    }

    /// Like [`begin_watch`](Self::begin_watch), with an optional idempotency key (see [`Wait::key`]). An answer that has not been received
    /// when the wait is dropped goes to `on_undelivered`.
    pub fn begin_watch_or(
        &self,
        (watch, key): (M::Watch, Option<RequestKey>),
        on_undelivered: impl Fn(Vec<Answer<M::Reply>>) + Send + Sync + 'static,
    ) -> Waiting<M> {
        let ticket = self.admission.ticket();
        let (reply_to, answers) = answer_channel(Arc::new(on_undelivered));
        self.address.do_send(shell::WatchFor {
            ticket,
            wait: Wait { watch, reply_to, key: key.map(Box::new) },
        });
        Waiting { address: self.address.clone(), ticket, answers: Some(answers) }
    }

    /// Returns a number that no other wait or caller gets during the life of the process.
    pub fn ticket(&self) -> Ticket {
        self.admission.ticket()
    }

    /// Returns a callback that makes the actor handle its due items. The callback returns false once the actor has stopped.
    pub fn due_callback(&self) -> ClockCallback {
        let mailbox = self.clone();
        Box::new(move || {
            // Due items are handled before any delivery, even an empty one.
            mailbox.cast(Vec::new());
            mailbox.address.connected()
        })
    }

    /// Replaces the actor's rules from the next message on. They apply until the node stops; the next start applies the rules of the
    /// configuration again.
    pub async fn set_rules(&self, rules: M::Rules) -> Result<(), Stopped> {
        let (done, is_done) = oneshot::channel();
        self.address.do_send(shell::ReplaceRules { rules, done });
        is_done.await.map_err(|_| Stopped)
    }

    /// Makes the actor repeat its requests to other actors and ports, as at startup. This is harmless, because each request is an upsert.
    pub async fn restate(&self) -> Result<(), Stopped> {
        let (done, is_done) = oneshot::channel();
        self.address.do_send(shell::Restate(done));
        is_done.await.map_err(|_| Stopped)
    }

    /// Returns the messages that [`restate`](Self::restate) would make the actor send to `to`, without sending them. Messages that cannot
    /// be decoded as a `T` are left out.
    pub async fn obligations_to<T: DeserializeOwned>(&self, to: To<T>) -> Result<Vec<T>, Stopped> {
        let (answer, stated) = oneshot::channel();
        self.address.do_send(shell::RestatementRequest(to.actor(), answer));
        let stated = stated.await.map_err(|_| Stopped)?;
        let read = stated.iter().map(|bytes| decode::from_slice(bytes));
        Ok(read.filter_map(Result::ok).collect())
    }

    /// Requests the actor's status.
    pub async fn status(&self) -> Result<ActorStatus, Stopped> {
        let (answer, status) = oneshot::channel();
        self.address.do_send(shell::Describe(answer));
        status.await.map_err(|_| Stopped)
    }

    /// Sets a hook that provokes panics, for tests and for faults that tasks request.
    #[doc(hidden)]
    pub fn inject_panics(&self, injector: PanicInjector<M>) {
        let plant = |host: &mut Host<M>| host.inject_panics(injector);
        self.address.do_send(shell::InjectFaults(Box::new(plant)));
    }
}

/// A wait that has begun. Dropping it ends the wait.
pub struct Waiting<M: Actor> {
    address: Addr<Shell<M>>,
    ticket: Ticket,
    /// `None` once [`answer`](Self::answer) has completed.
    answers: Option<AnswerReceiver<M::Reply>>,
}

impl<M: Actor> Waiting<M> {
    /// Waits for the answer. If the future is dropped before it completes, the wait continues, and this may be called again. After it has
    /// completed, further calls return [`Stopped`].
    pub async fn answer(&mut self) -> Result<Answer<M::Reply>, Stopped> {
        let answers = self.answers.as_mut().ok_or(Stopped)?;
        let all = answers.answers().await;
        self.answers = None;
        all.ok_or(Stopped)?.into_iter().next().ok_or(Stopped)
    }

    /// Ends the wait, and returns the answer if one was given before that.
    pub async fn withdraw(&mut self) -> Option<Answer<M::Reply>> {
        self.address.do_send(shell::Unwatch(self.ticket));
        self.answer().await.ok()
    }
}

impl<M: Actor> Drop for Waiting<M> {
    fn drop(&mut self) {
        // A wait that was answered has already ended.
        if self.answers.is_some() {
            self.address.do_send(shell::Unwatch(self.ticket));
        }
    }
}
