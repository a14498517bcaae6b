//! A wait for a job of a queue, and what becomes of a claim of which nobody hears.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an answer is the one hoped for, or says why not"
)]

use crate::actors::queue::{Claim, Message, QueueMachine, Refused, Reply, Right};
use crate::handle::Drains;
use crate::handle::queue_error::{QueueError, refusal};
use crate::ids::Token;
use crate::spine::delivery::Item;
use crate::spine::runtime::{Mailbox, Waiting};
use tokio::sync::watch;

/// Gives a claimed job back, and waits for no answer.
pub(super) fn give_back(mailbox: &Mailbox<QueueMachine>, id: u64, token: Token) {
    let release = Message::Release {
        id,
        by: Right::Token(token),
        priority: None,
        delay_ms: 0,
    };
    mailbox.cast(vec![Item::Message(release)]);
}

/// A wait for a job. Dropped, it ends; a job that is claimed for it in that moment is given back.
pub struct JobWait {
    pub(super) wait: Waiting<QueueMachine>,
    pub(super) draining: watch::Receiver<Drains>,
}

impl JobWait {
    /// The job, once there is one; refused when the node begins to drain. May be given up, and asked for again.
    pub async fn claim(&mut self) -> Result<Claim, QueueError> {
        let answer = tokio::select! {
            biased;
            answer = self.wait.answer() => answer??,
            Ok(_) = self.draining.wait_for(|drains| drains.claims) => {
                Reply::Refused(Refused::Draining)
            }
        };
        match answer {
            Reply::Claim(claim) => Ok(*claim),
            other => Err(refusal(&other)),
        }
    }

    /// Ends the wait: the job that was claimed for it before that, if one was.
    pub async fn withdraw(self) -> Result<Option<Claim>, QueueError> {
        match self.wait.withdraw().await {
            None => Ok(None),
            Some(answer) => match answer? {
                Reply::Claim(claim) => Ok(Some(*claim)),
                other => Err(refusal(&other)),
            },
        }
    }
}
