//! Claims of jobs: those that are there, the next one that comes, and one in exchange for what is done.
//!
//! Never here: which job is claimed. That is the machine's.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an answer is the one hoped for, or says why not"
)]

use crate::actors::queue::{
    AnyType, Claim, Claimant, Message, Pop, QueueName, Reply, Right, Watch,
};
use crate::handle::job_wait::{JobWait, give_back};
use crate::handle::queue_error::{QueueError, refusal};
use crate::handle::queues::Queues;
use crate::ids::Token;
use crate::spine::delivery::Answer;
use std::sync::Arc;

/// What came of jobs that are done, and what was claimed after them.
#[derive(Debug)]
pub struct Exchanged {
    /// Of each job that is done, in order: whether it could be ended.
    pub done: Vec<Result<(), QueueError>>,
    /// What was claimed; or why nothing could be.
    pub claims: Result<Vec<Claim>, QueueError>,
}

/// What was claimed, of these answers; if nothing was, why some were refused.
fn claimed(answers: impl IntoIterator<Item = Answer<Reply>>) -> Result<Vec<Claim>, QueueError> {
    let (mut claims, mut refused) = (Vec::new(), None);
    for answer in answers {
        match answer {
            Ok(Reply::Claim(claim)) => claims.push(*claim),
            Ok(Reply::Nothing { .. }) => {}
            Ok(other) => refused = refused.or(Some(refusal(&other))),
            Err(failed) => refused = refused.or(Some(failed.into())),
        }
    }
    // What was claimed is for whoever asked to have, and to hear of.
    match refused {
        Some(refused) if claims.is_empty() => Err(refused),
        Some(_) | None => Ok(claims),
    }
}

impl Queues {
    /// Claims the most urgent job of these queues, among equals the oldest; none if there is none now. Dropping the
    /// future gives back what it would have answered.
    pub async fn pop(&self, queues: &[QueueName]) -> Result<Option<Claim>, QueueError> {
        Ok(self.pop_some(queues, 1).await?.pop())
    }

    /// The same for several jobs, so many at most.
    pub async fn pop_some(
        &self,
        queues: &[QueueName],
        most: usize,
    ) -> Result<Vec<Claim>, QueueError> {
        let pop = self.claim_of(queues);
        let pops = std::iter::repeat_n(pop, most).zip(0..);
        self.claims(pops.collect()).await
    }

    /// Claims up to so many jobs, each of the tenant whose turn it is: each has as many turns as its weight says
    /// ([`TenantRules`](crate::actors::queue::TenantRules)), whatever it has waiting. Of its queues the one with the lowest rank
    /// gives its best job, and of several the one that has not done so for longest.
    pub async fn pop_any(&self, of: AnyType, most: usize) -> Result<Vec<Claim>, QueueError> {
        let pops = std::iter::repeat_n(self.turn_of(of), most).zip(0..);
        self.claims(pops.collect()).await
    }

    /// Makes these claims, each with its number in the request; those that there is a job for.
    async fn claims(&self, pops: Vec<(Pop, u64)>) -> Result<Vec<Claim>, QueueError> {
        let pops = pops.into_iter();
        let pops = pops.map(|(pop, nth)| self.message(Message::Pop(pop), nth));
        claimed(self.mailbox.call_or(pops.collect(), self.unheard()).await?)
    }

    /// Ends claimed jobs that are done, and then claims up to so many of these queues: one turn, one sync, one answer for a worker
    /// that goes on with its next job.
    ///
    /// # Errors
    /// If the node has stopped. What was not done of it is said in the answer.
    pub async fn exchange(
        &self,
        done: &[(u64, Token)],
        queues: &[QueueName],
        most: usize,
    ) -> Result<Exchanged, QueueError> {
        self.exchange_for(done, self.claim_of(queues), most).await
    }

    /// The same, with claims of whichever tenant's turn it is, as [`Queues::pop_any`] makes them.
    ///
    /// # Errors
    /// If the node has stopped. What was not done of it is said in the answer.
    pub async fn exchange_any(
        &self,
        done: &[(u64, Token)],
        of: AnyType,
        most: usize,
    ) -> Result<Exchanged, QueueError> {
        self.exchange_for(done, self.turn_of(of), most).await
    }

    async fn exchange_for(
        &self,
        done: &[(u64, Token)],
        pop: Pop,
        most: usize,
    ) -> Result<Exchanged, QueueError> {
        let acks = done.iter().map(|(id, token)| Message::Delete {
            id: *id,
            by: Right::Token(*token),
        });
        let pops = std::iter::repeat_n(pop, most).map(Message::Pop);
        let items = acks.chain(pops).zip(0..);
        let items = items.map(|(message, nth)| self.message(message, nth));
        let answers = self.mailbox.call_or(items.collect(), self.unheard());
        let mut answers = answers.await?.into_iter();
        let ended = answers.by_ref().take(done.len());
        let done = ended.map(|answer| match answer? {
            Reply::Done => Ok(()),
            other => Err(refusal(&other)),
        });
        Ok(Exchanged {
            done: done.collect(),
            claims: claimed(answers),
        })
    }

    /// The same, and waits until there is one.
    pub async fn pop_waiting(&self, queues: &[QueueName]) -> Result<Claim, QueueError> {
        match self.pop(queues).await? {
            Some(claim) => Ok(claim),
            None => self.wait_for_job(queues).claim().await,
        }
    }

    /// Begins to wait for a job of these queues. Whoever began before is served before, of those who wait for the same.
    pub fn wait_for_job(&self, queues: &[QueueName]) -> JobWait {
        let watch = Watch::Job(self.claim_of(queues));
        let wait = self
            .mailbox
            .begin_watch_or((watch, self.key), self.unheard());
        let draining = self.draining.clone();
        JobWait { wait, draining }
    }

    /// Gives a claimed job back, to be ready at once, and waits for no answer: for claims of which nobody heard.
    pub fn give_back(&self, id: u64, token: Token) {
        give_back(&self.mailbox, id, token);
    }

    /// What becomes of claims of which nobody hears.
    fn unheard(&self) -> impl Fn(Vec<Answer<Reply>>) + Send + Sync + use<> {
        // Under a key they can be asked for again.
        let gives_back = self.key.is_none();
        let mailbox = self.mailbox.clone();
        move |answers| {
            for answer in answers.into_iter().filter(|_| gives_back) {
                if let Ok(Reply::Claim(claim)) = answer {
                    give_back(&mailbox, claim.id, claim.token);
                }
            }
        }
    }

    fn claim_of(&self, queues: &[QueueName]) -> Pop {
        Pop {
            queues: queues.into(),
            weights: self.weights.clone().unwrap_or_default(),
            by: self.bound.map_or(Claimant::Bearer, Claimant::Process),
            waits: false,
            ticket: None,
            ttr_ms: self.claim_ms,
            any: None,
        }
    }

    fn turn_of(&self, of: AnyType) -> Pop {
        Pop {
            weights: [].into(),
            any: Some(Arc::new(of)),
            ..self.claim_of(&[])
        }
    }
}
