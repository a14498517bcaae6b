//! Waiting for a job, and giving back jobs whose claims could not be delivered.

#![expect(clippy::wildcard_enum_match_arm, reason = "a reply of any other kind is an error")]

use crate::actors::queue::{Claim, ErrorText, Message, QueueMachine, Refused, Reply, Right};
use crate::handle::Drains;
use crate::handle::queue_error::{QueueError, refusal};
use crate::ids::Token;
use crate::spine::delivery::Item;
use crate::spine::runtime::{Mailbox, Waiting};
use tokio::sync::watch;

/// Gives a claimed job back to its queue, ready immediately and untried, without waiting for the answer.
pub(super) fn give_back(mailbox: &Mailbox<QueueMachine>, id: u64, token: Token) {
    mailbox.cast(vec![Item::Message(interruption(id, token, None))]);
}

/// Returns the message that gives a claimed job back untried.
pub(super) const fn interruption(id: u64, token: Token, error: Option<ErrorText>) -> Message {
    Message::Defer {
        id,
        by: Right::Token(token),
        error,
        retry_after_ms: Some(0),
        interrupted: true,
    }
}

/// A wait for a job. Dropping it ends the wait; a job claimed for it in the meantime is given back.
pub struct JobWait {
    pub(super) wait: Waiting<QueueMachine>,
    pub(super) draining: watch::Receiver<Drains>,
}

impl JobWait {
    /// Resolves with a claim once a job is available, with `None` if the wait was ended by [`Queues::withdraw`](crate::handle::Queues), or
    /// with [`Refused::Draining`] once the node gives out no more claims. The future may be dropped and the method called again.
    pub async fn claim(&mut self) -> Result<Option<Claim>, QueueError> {
        let answer = tokio::select! {
            biased;
            answer = self.wait.answer() => answer??,
            Ok(_) = self.draining.wait_for(|drains| drains.claims) => {
                // A claim may have been made in the meantime. It must be returned to the caller, because nothing else would end it.
                match self.wait.withdraw().await {
                    Some(answer) => answer?,
                    None => Reply::Refused(Refused::Draining),
                }
            }
        };
        match answer {
            Reply::Claim(claim) => Ok(Some(*claim)),
            Reply::Nothing { .. } => Ok(None),
            other => Err(refusal(&other)),
        }
    }

    /// Ends the wait. Returns the claim if one was made before the wait ended.
    pub async fn withdraw(mut self) -> Result<Option<Claim>, QueueError> {
        match self.wait.withdraw().await {
            None => Ok(None),
            Some(answer) => match answer? {
                Reply::Claim(claim) => Ok(Some(*claim)),
                Reply::Nothing { .. } => Ok(None),
                other => Err(refusal(&other)),
            },
        }
    }
}
