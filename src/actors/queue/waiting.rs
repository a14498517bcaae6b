//! Who waits for a job, and who has to do with a queue. Volatile: the host states it again after a rebuild, and nobody
//! waits on beyond the end of the process.

use crate::actors::queue::message::{Pop, Watch};
use crate::actors::queue::name::QueueName;
use crate::actors::queue::state::State;
use crate::ids::{Slot, Ticket};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tickets by what they stand for.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pops: BTreeMap<Ticket, (Pop, Vec<Slot>)>,
    presences: BTreeMap<Ticket, (Slot, Vec<Slot>)>,
    standing: BTreeMap<Ticket, Slot>,
}

impl Waiting {
    pub(super) fn watch(&mut self, state: &mut State, ticket: Ticket, watch: &Watch) {
        match watch {
            Watch::Job(pop) => {
                let queues = slots(state, &pop.queues);
                for queue in &queues {
                    state.await_job(*queue, ticket, true);
                }
                let pop = Pop {
                    ticket: Some(ticket),
                    waits: false,
                    ..pop.clone()
                };
                self.pops.insert(ticket, (pop, queues));
            }
            Watch::Standing(queue) => {
                let queue = state.queue_for(queue);
                state.attend(queue, |queue| queue.standing += 1);
                self.standing.insert(ticket, queue);
            }
            Watch::Presence { using, watching } => {
                let using = state.queue_for(using);
                state.attend(using, |queue| queue.using += 1);
                let watching = slots(state, watching);
                for queue in &watching {
                    state.attend(*queue, |queue| queue.watching += 1);
                }
                self.presences.insert(ticket, (using, watching));
            }
        }
    }

    /// Waits no longer. Also called when a wait has been answered.
    pub(super) fn forget(&mut self, state: &mut State, ticket: Ticket) {
        if let Some((_, queues)) = self.pops.remove(&ticket) {
            for queue in queues {
                state.await_job(queue, ticket, false);
                state.forsake(queue);
            }
        }
        if let Some(queue) = self.standing.remove(&ticket) {
            state.attend(queue, |queue| queue.standing -= 1);
            state.forsake(queue);
        }
        if let Some((using, watching)) = self.presences.remove(&ticket) {
            state.attend(using, |queue| queue.using -= 1);
            for queue in &watching {
                state.attend(*queue, |queue| queue.watching -= 1);
            }
            for queue in watching.into_iter().chain([using]) {
                state.forsake(queue);
            }
        }
    }

    /// What this ticket waits for.
    pub(super) fn pop(&self, ticket: Ticket) -> Option<&Pop> {
        self.pops.get(&ticket).map(|(pop, _)| pop)
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.pops.len()
    }
}

fn slots(state: &mut State, names: &Arc<[QueueName]>) -> Vec<Slot> {
    let mut slots: Vec<Slot> = names.iter().map(|name| state.queue_for(name)).collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}
