//! Answers and actions that wait for the journal, each with the entry that it depends on.
//!
//! The outbox outlives the machine and its restarts. Whatever it holds is released in order of arrival.

use crate::ids::Seq;
use crate::spine::delivery::{Answer, ReplyTo};
use crate::spine::effect::Action;
use crate::spine::machine::Machine;
use crate::spine::port::Port;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Answers and actions, in order. Clones share one outbox.
pub struct Outbox<M: Machine> {
    held: Rc<RefCell<VecDeque<PendingOutput<M>>>>,
    port: Rc<RefCell<Option<Box<dyn Port<M>>>>>,
}

struct PendingOutput<M: Machine> {
    depends_on: Seq,
    what: Output<M>,
}

enum Output<M: Machine> {
    Answers(Vec<Answer<M::Reply>>, ReplyTo<M::Reply>),
    Action(Action<M::Action>),
}

impl<M: Machine> Clone for Outbox<M> {
    fn clone(&self) -> Self {
        Self { held: Rc::clone(&self.held), port: Rc::clone(&self.port) }
    }
}

impl<M: Machine> Default for Outbox<M> {
    fn default() -> Self {
        Self { held: Rc::default(), port: Rc::default() }
    }
}

impl<M: Machine> Outbox<M> {
    /// Sets the port that performs actions. It must be set before an action is released.
    pub fn set_port(&self, port: Box<dyn Port<M>>) {
        *self.port.borrow_mut() = Some(port);
    }

    /// Holds answers until the entry `depends_on` is durable. `depends_on` must not be lower than that of anything held already.
    pub fn hold(
        &self,
        depends_on: Seq,
        answers: Vec<Answer<M::Reply>>,
        reply_to: ReplyTo<M::Reply>,
    ) {
        self.push(depends_on, Output::Answers(answers, reply_to));
    }

    /// Holds an action until the entry `depends_on` is durable. `depends_on` must not be lower than that of anything held already.
    pub fn hold_action(&self, depends_on: Seq, action: Action<M::Action>) {
        self.push(depends_on, Output::Action(action));
    }

    fn push(&self, depends_on: Seq, what: Output<M>) {
        let mut held = self.held.borrow_mut();
        if let Some(before) = held.back() {
            assert!(
                before.depends_on <= depends_on,
                "effects come in the order of the entries that they depend on"
            );
        }
        held.push_back(PendingOutput { depends_on, what });
    }

    /// Releases everything that depends on no entry later than `durable`.
    pub fn release(&self, durable: Seq) {
        loop {
            // The borrow ends before the answer is sent, because sending it may cause the next effect to be held.
            let next = self.held.borrow_mut().pop_front_if(|held| held.depends_on <= durable);
            match next.map(|held| held.what) {
                None => return,
                Some(Output::Answers(answers, reply_to)) => reply_to(answers),
                Some(Output::Action(action)) => {
                    let mut port = self.port.borrow_mut();
                    let port = port.as_mut();
                    port.expect("the port should be set before an action is released")
                        .perform(action);
                }
            }
        }
    }

    /// Drops everything held, because the node has halted. Callers that wait for one of the answers get none.
    pub fn discard(&self) {
        let held = std::mem::take(&mut *self.held.borrow_mut());
        drop(held);
    }
}
