//! Claiming jobs: jobs that are ready now, the next job to become ready, and new jobs in exchange for completed ones.
//!
//! The state machine decides which job is claimed; this module never does.

#![expect(clippy::wildcard_enum_match_arm, reason = "a reply of any other kind is an error")]

use crate::actors::queue::{
    AnyType, Claim, Claimant, Message, Pop, QueueName, Reply, Right, Watch,
};
use crate::handle::job_wait::{JobWait, give_back};
use crate::handle::queue_error::{QueueError, refusal};
use crate::handle::queues::Queues;
use crate::ids::{ProcessId, Token};
use crate::spine::delivery::Answer;
use std::sync::Arc;

/// The result of completing jobs and claiming new ones.
#[derive(Debug)]
pub struct Exchanged {
    /// The result of completing each job, in the order of the request.
    pub done: Vec<Result<(), QueueError>>,
    /// The new claims, which may be an empty list if no job is ready; or the first refusal if there are no claims.
    pub claims: Result<Vec<Claim>, QueueError>,
}

/// Returns the claims among these answers. If there are none, returns the first refusal, or an empty list if nothing was refused.
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
    // Claims that were made are returned even if others were refused: only the caller can complete their jobs or give them back.
    match refused {
        Some(refused) if claims.is_empty() => Err(refused),
        Some(_) | None => Ok(claims),
    }
}

impl Queues {
    /// Claims the most urgent ready job of these queues, and the oldest among equally urgent ones. Returns `None` if no job is ready. If
    /// the future is dropped, a job claimed for it is given back, unless the handle has an idempotency key.
    pub async fn pop(&self, queues: &[QueueName]) -> Result<Option<Claim>, QueueError> {
        Ok(self.pop_some(queues, 1).await?.pop())
    }

    /// Claims up to `most` jobs, each as [`Queues::pop`] does.
    pub async fn pop_some(
        &self,
        queues: &[QueueName],
        most: usize,
    ) -> Result<Vec<Claim>, QueueError> {
        let pop = self.claim_of(queues);
        let pops = std::iter::repeat_n(pop, most).zip(0..);
        self.claims(pops.collect()).await
    }

    /// Claims up to `most` jobs, each from the tenant whose turn it is: tenants get turns in proportion to their weights
    /// ([`TenantRules`](crate::actors::queue::TenantRules)), however many jobs they have waiting. Of the tenant's queues, the one with the
    /// lowest rank is chosen, and among queues of equal rank the one that was claimed from least recently. The most urgent job of that
    /// queue is claimed.
    pub async fn pop_any(&self, of: AnyType, most: usize) -> Result<Vec<Claim>, QueueError> {
        let pops = std::iter::repeat_n(self.turn_of(of), most).zip(0..);
        self.claims(pops.collect()).await
    }

    /// Sends these claims, each with its number within the request, and returns those that found a job. If none did, returns the first
    /// refusal.
    async fn claims(&self, pops: Vec<(Pop, u64)>) -> Result<Vec<Claim>, QueueError> {
        let pops = pops.into_iter();
        let pops = pops.map(|(pop, nth)| self.message(Message::Pop(pop), nth));
        claimed(self.mailbox.call_or(pops.collect(), self.on_undelivered()).await?)
    }

    /// Completes claimed jobs, then claims up to `most` jobs of these queues: a worker that continues with its next job needs only one turn
    /// of the actor, one sync and one answer.
    ///
    /// # Errors
    /// Returns an error if the node has stopped. Individual failures are part of the result.
    pub async fn exchange(
        &self,
        done: &[(u64, Token)],
        queues: &[QueueName],
        most: usize,
    ) -> Result<Exchanged, QueueError> {
        self.exchange_for(done, self.claim_of(queues), most).await
    }

    /// Completes claimed jobs, then claims up to `most` jobs from the tenants whose turn it is, as [`Queues::pop_any`] does.
    ///
    /// # Errors
    /// Returns an error if the node has stopped. Individual failures are part of the result.
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
        let acks =
            done.iter().map(|(id, token)| Message::Delete { id: *id, by: Right::Token(*token) });
        let pops = std::iter::repeat_n(pop, most).map(Message::Pop);
        let items = acks.chain(pops).zip(0..);
        let items = items.map(|(message, nth)| self.message(message, nth));
        let answers = self.mailbox.call_or(items.collect(), self.on_undelivered());
        let mut answers = answers.await?.into_iter();
        let ended = answers.by_ref().take(done.len());
        let done = ended.map(|answer| match answer? {
            Reply::Done => Ok(()),
            other => Err(refusal(&other)),
        });
        Ok(Exchanged { done: done.collect(), claims: claimed(answers) })
    }

    /// Claims a job as [`Queues::pop`] does, waiting until there is one.
    pub async fn pop_waiting(&self, queues: &[QueueName]) -> Result<Claim, QueueError> {
        loop {
            if let Some(claim) = self.pop(queues).await? {
                return Ok(claim);
            }
            if let Some(claim) = self.wait_for_job(queues).claim().await? {
                return Ok(claim);
            }
        }
    }

    /// Ends all waits for a job whose claim would be bound to this process: each ends without a job. When this returns, no wait that
    /// began before is given a job any more; one that was given a job before has been answered with it.
    ///
    /// # Errors
    /// Returns an error if the node has stopped.
    pub async fn withdraw(&self, process: ProcessId) -> Result<(), QueueError> {
        let mut withdrawn = self.mailbox.begin_watch(Watch::Withdraw(process));
        match withdrawn.answer().await?? {
            Reply::Done => Ok(()),
            other => Err(refusal(&other)),
        }
    }

    /// Begins to wait for a job of these queues. Among waits for the same queues, the earliest is served first.
    pub fn wait_for_job(&self, queues: &[QueueName]) -> JobWait {
        self.begin_wait(self.claim_of(queues))
    }

    /// Begins to wait for a job of any selected queue, chosen as in [`Queues::pop_any`]. Waits that name their queues are served before
    /// waits of this kind, which are served in the order in which they began.
    pub fn wait_for_any(&self, of: AnyType) -> JobWait {
        self.begin_wait(self.turn_of(of))
    }

    fn begin_wait(&self, pop: Pop) -> JobWait {
        let wait = self.mailbox.begin_watch_or((Watch::Job(pop), self.key), self.on_undelivered());
        let draining = self.draining.clone();
        JobWait { wait, draining }
    }

    /// Gives a claimed job back to its queue, ready immediately, without waiting for the answer. Meant for claims that could not be
    /// delivered.
    pub fn give_back(&self, id: u64, token: Token) {
        give_back(&self.mailbox, id, token);
    }

    /// Returns a callback for answers that could not be delivered: it gives the jobs claimed by them back to their queues.
    fn on_undelivered(&self) -> impl Fn(Vec<Answer<Reply>>) + Send + Sync + use<> {
        // With an idempotency key, the client can repeat the request and gets the same claims, so they are not given back.
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
        Pop { weights: [].into(), any: Some(Arc::new(of)), ..self.claim_of(&[]) }
    }
}
