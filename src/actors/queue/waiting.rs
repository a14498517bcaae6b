//! Requests that wait for jobs, and clients that use or watch queues. Volatile: they end with the server process, and
//! the host adds them again after a rebuild.

use crate::actors::queue::job::Job;
use crate::actors::queue::message::{AnyType, Pop};
use crate::actors::queue::reply::Watch;
use crate::actors::queue::right::Claimant;
use crate::actors::queue::state::State;
use crate::clock::Timestamp;
use crate::ids::{ProcessId, Slot, Ticket};
use sexton_api::queue::QueueName;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Waiting requests and connected clients by ticket, one map for each kind of watch.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pops: BTreeMap<Ticket, (Pop, Vec<Slot>)>,
    /// The requests in `pops` that wait for a tenant's turn, grouped by selection.
    turns: BTreeMap<Arc<AnyType>, BTreeSet<Ticket>>,
    presences: BTreeMap<Ticket, Presence>,
    kept_queues: BTreeMap<Ticket, Slot>,
    /// Requests that wait until no job is claimed.
    unclaimed: BTreeSet<Ticket>,
    /// For each request that waits until a job is over, the id of the job; `by_job` is the reverse index.
    ends: BTreeMap<Ticket, u64>,
    by_job: BTreeSet<(u64, Ticket)>,
}

/// The queues that a client uses and watches.
#[derive(Debug)]
struct Presence {
    using: Slot,
    watching: Vec<Slot>,
}

impl Waiting {
    /// Adds a watch. Unless it is `Unclaimed` or `Standing`, it replaces an earlier watch with the same ticket.
    pub(super) fn watch(&mut self, state: &mut State, ticket: Ticket, watch: &Watch) {
        match watch {
            Watch::Job(pop) => {
                self.forget(state, ticket);
                let queues = slots(state, &pop.queues);
                if let Some(any) = &pop.any {
                    let tickets = self.turns.entry(Arc::clone(any)).or_default();
                    tickets.insert(ticket);
                    state.turns.has_new_offers = true;
                }
                for queue in &queues {
                    state.await_job(*queue, ticket, true);
                }
                let pop = Pop { ticket: Some(ticket), waits: false, ..pop.clone() };
                self.pops.insert(ticket, (pop, queues));
            }
            // Answered by the machine, which has the effects.
            Watch::Withdraw(_) => {}
            Watch::Unclaimed => {
                self.unclaimed.insert(ticket);
            }
            Watch::Over { id } => {
                self.forget(state, ticket);
                self.ends.insert(ticket, *id);
                self.by_job.insert((*id, ticket));
                let is_over = |job: &Job| job.phase.is_over();
                if state.find(*id).is_none_or(|(_, job)| is_over(job)) {
                    state.over.push(*id);
                } else {
                    state.awaited.insert(*id);
                }
            }
            Watch::KeepQueue(queue) => {
                let queue = state.queue_for(queue);
                state.change_queue(queue, |queue| queue.kept_by += 1);
                self.kept_queues.insert(ticket, queue);
            }
            Watch::Presence { using, watching } => {
                let presence =
                    Presence { using: state.queue_for(using), watching: slots(state, watching) };
                state.change_queue(presence.using, |queue| queue.using += 1);
                for queue in &presence.watching {
                    state.change_queue(*queue, |queue| queue.watching += 1);
                }
                // The previous queues are left only after the new ones are joined, so that a queue in both sets is not removed in between.
                self.forget(state, ticket);
                self.presences.insert(ticket, presence);
            }
        }
    }

    /// Removes all watches of a ticket, if it has any. Also called when a request has been answered.
    pub(super) fn forget(&mut self, state: &mut State, ticket: Ticket) {
        if let Some((pop, queues)) = self.pops.remove(&ticket) {
            for queue in queues {
                state.await_job(queue, ticket, false);
                state.remove_if_unused(queue);
            }
            if let Some(any) = &pop.any {
                self.forget_turn(any, ticket);
            }
        }
        self.unclaimed.remove(&ticket);
        if let Some(id) = self.ends.remove(&ticket) {
            self.by_job.remove(&(id, ticket));
            if self.waits_for(id).next().is_none() {
                state.awaited.remove(&id);
            }
        }
        if let Some(queue) = self.kept_queues.remove(&ticket) {
            state.change_queue(queue, |queue| queue.kept_by -= 1);
            state.remove_if_unused(queue);
        }
        if let Some(Presence { using, watching }) = self.presences.remove(&ticket) {
            state.change_queue(using, |queue| queue.using -= 1);
            for queue in &watching {
                state.change_queue(*queue, |queue| queue.watching -= 1);
            }
            for queue in watching {
                state.remove_if_unused(queue);
            }
            state.remove_if_unused(using);
        }
    }

    fn forget_turn(&mut self, any: &Arc<AnyType>, ticket: Ticket) {
        if let Some(tickets) = self.turns.get_mut(any) {
            tickets.remove(&ticket);
            if tickets.is_empty() {
                self.turns.remove(any);
            }
        }
    }

    /// Returns whether `next_turn` may find a request. If false, there is none that can be given a job.
    pub(super) fn may_have_turn(&self, state: &State) -> bool {
        state.turns.has_new_offers && !self.turns.is_empty()
    }

    /// Returns the oldest request that waits for a tenant's turn and can be given a job at `at`; `None` if there is
    /// no such request. Searches only if `may_have_turn` returns true.
    pub(super) fn next_turn(&self, state: &mut State, at: Timestamp) -> Option<Ticket> {
        if !self.may_have_turn(state) {
            return None;
        }
        let served = self.turns.iter().filter(|(any, _)| state.turn(any, at).is_some());
        let found = served.filter_map(|(_, tickets)| tickets.first().copied()).min();
        state.turns.has_new_offers = found.is_some();
        found
    }

    /// Removes and returns the requests that wait until no job is claimed.
    pub(super) fn take_unclaimed(&mut self) -> BTreeSet<Ticket> {
        std::mem::take(&mut self.unclaimed)
    }

    /// Removes and returns the requests that wait for the end of this job.
    pub(super) fn take_ends(&mut self, id: u64) -> Vec<Ticket> {
        let tickets: Vec<Ticket> = self.waits_for(id).collect();
        for ticket in &tickets {
            self.ends.remove(ticket);
            self.by_job.remove(&(id, *ticket));
        }
        tickets
    }

    /// Returns the tickets of the requests that wait for a job on behalf of this process.
    pub(super) fn of_process(&self, process: ProcessId) -> Vec<Ticket> {
        let is_of = |pop: &Pop| matches!(pop.by, Claimant::Process(by) if by.process == process);
        let pops = self.pops.iter().filter(|(_, (pop, _))| is_of(pop));
        pops.map(|(ticket, _)| *ticket).collect()
    }

    fn waits_for(&self, id: u64) -> impl Iterator<Item = Ticket> + '_ {
        let all = (id, Ticket(0))..=(id, Ticket(u64::MAX));
        self.by_job.range(all).map(|(_, ticket)| *ticket)
    }

    /// Returns the request that waits for a job under this ticket; `None` if there is none.
    pub(super) fn pop(&self, ticket: Ticket) -> Option<&Pop> {
        self.pops.get(&ticket).map(|(pop, _)| pop)
    }

    /// Returns every request that waits for a job, with its queues.
    #[cfg(test)]
    pub(super) fn pops(&self) -> impl Iterator<Item = (Ticket, &[Slot])> {
        let pops = self.pops.iter();
        pops.map(|(ticket, (_, queues))| (*ticket, queues.as_slice()))
    }

    /// Returns, for each client, the queue that it uses and the queues that it watches.
    #[cfg(test)]
    pub(super) fn presences(&self) -> impl Iterator<Item = (Slot, &[Slot])> {
        let presences = self.presences.values();
        presences.map(|presence| (presence.using, presence.watching.as_slice()))
    }

    /// Returns the number of requests that wait for a job.
    pub(super) fn len(&self) -> usize {
        self.pops.len()
    }
}

/// Returns the slots of the queues with these names, without repetition. Creates queues if necessary.
fn slots(state: &mut State, names: &Arc<[QueueName]>) -> Vec<Slot> {
    let mut slots: Vec<Slot> = names.iter().map(|name| state.queue_for(name)).collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}
