//! The busiest queues, for an overview of the server. Each query examines at most [`LOOKED_AT_MAX`] slots and returns the slot at which to
//! continue.

use crate::actors::queue::machine::QueueMachine;
use crate::actors::queue::queue::Queue;
use crate::actors::queue::reply::Reply;
use crate::actors::queue::select::LOOKED_AT_MAX;
use crate::clock::Offset;
use crate::ids::Slot;
use std::cmp::Reverse;

impl QueueMachine {
    /// Returns the `most` busiest queues, busiest first, of those in the [`LOOKED_AT_MAX`] slots from `from` on, and
    /// the slot at which to continue (`None` after the last slot). Queues are ranked by their number of jobs, then by the number of waiting
    /// requests, then by the number of jobs added.
    pub(super) fn busiest(&self, (from, most): (Slot, u32), offset: Offset) -> Reply {
        let queues = &self.state.queues;
        let end = from.0.saturating_add(LOOKED_AT_MAX).min(queues.extent());
        let ranked = (from.0..end).filter_map(|slot| Some((queues.get(Slot(slot))?, slot)));
        let ranked = ranked.map(|(queue, slot)| (Reverse(rank(queue)), slot));
        let mut ranked: Vec<_> = ranked.collect();
        if ranked.len() > most as usize {
            ranked.select_nth_unstable(most as usize);
            ranked.truncate(most as usize);
        }
        ranked.sort_unstable();
        let busiest = ranked.iter().filter_map(|(_, slot)| queues.get(Slot(*slot)));
        let busiest = busiest.map(|queue| self.state.queue_view(queue, offset));
        Reply::Busiest {
            queues: busiest.collect(),
            next: (end < queues.extent()).then_some(Slot(end)),
        }
    }
}

fn rank(queue: &Queue) -> (u32, usize, u64) {
    (queue.counts.all(), queue.waiting.len(), queue.total)
}
