//! What waits for the journal: answers, each behind the entry it rests on.
//!
//! The outbox outlives the machine and its restarts. Answers leave in the order they came.

use crate::ids::Seq;
use crate::spine::host::{Answer, ReplyTo};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Answers in order. Cloning gives another handle on the same outbox.
pub struct Outbox<R> {
    held: Rc<RefCell<VecDeque<Held<R>>>>,
}

struct Held<R> {
    rests_on: Seq,
    answers: Vec<Answer<R>>,
    reply_to: ReplyTo<R>,
}

impl<R> Clone for Outbox<R> {
    fn clone(&self) -> Self {
        Self {
            held: Rc::clone(&self.held),
        }
    }
}

impl<R> Default for Outbox<R> {
    fn default() -> Self {
        Self {
            held: Rc::default(),
        }
    }
}

impl<R> Outbox<R> {
    /// Holds answers until the entry `rests_on` is durable. It is never earlier than the one before.
    pub fn hold(&self, rests_on: Seq, answers: Vec<Answer<R>>, reply_to: ReplyTo<R>) {
        let mut held = self.held.borrow_mut();
        if let Some(before) = held.back() {
            assert!(
                before.rests_on <= rests_on,
                "answers come in the order of what they rest on"
            );
        }
        held.push_back(Held {
            rests_on,
            answers,
            reply_to,
        });
    }

    /// Lets out all that rests on nothing later than `durable`.
    pub fn release(&self, durable: Seq) {
        loop {
            // Called outside the borrow: an answer may lead to the next thing being held.
            let next = self
                .held
                .borrow_mut()
                .pop_front_if(|held| held.rests_on <= durable);
            let Some(Held {
                answers, reply_to, ..
            }) = next
            else {
                return;
            };
            reply_to(answers);
        }
    }

    /// Forgets what waits: whoever waits for it sees its request end unanswered. For a node that has halted.
    pub fn discard(&self) {
        let held = std::mem::take(&mut *self.held.borrow_mut());
        drop(held);
    }
}
