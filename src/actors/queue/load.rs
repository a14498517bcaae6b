//! Builds queue state from its pages. Pages do not contain the indexes, so every index is rebuilt.

#![expect(
    clippy::indexing_slicing,
    reason = "slots come from indexes over the slabs: a slot without an item is an impossible state"
)]

use crate::actors::queue::pages::Page;
use crate::actors::queue::queue::Numbered;
use crate::actors::queue::rules::Rules;
use crate::actors::queue::state::State;
use crate::ids::Slot;
use crate::lookup::durable::Loaded;
use std::collections::VecDeque;

impl State {
    /// Builds the state from its pages, which must be in ascending order of their ids: the jobs come before the queues.
    ///
    /// # Panics
    /// Panics if the pages contradict each other.
    pub(super) fn from_pages(rules: Rules, pages: &mut dyn Iterator<Item = Page>) -> Self {
        let mut state = Self::new(rules);
        // Jobs whose body pages have not been read yet, in ascending order of their slots.
        let mut without = VecDeque::new();
        let (mut closed, mut turns) = (Vec::new(), None);
        for page in pages {
            match page {
                Page::Head(head) => {
                    state.jobs.restart_spans(head.epoch);
                    state.totals.draining = head.draining;
                    state.head.load(head);
                }
                Page::Jobs(page) => {
                    let lacking = page.items.iter().filter(|(_, job)| job.body.is_none());
                    without.extend(lacking.map(|(slot, _)| *slot));
                    state.jobs.load(page);
                }
                Page::Queues(page) => state.load_queues(page),
                Page::Body(slot, body) => {
                    let next = without.pop_front();
                    assert_eq!(
                        next,
                        Some(slot),
                        "each body page belongs to the next job without a body"
                    );
                    state.jobs.volatile()[slot].body = Some(body);
                }
                Page::Roots(page) => state.roots.load(page),
                Page::Closed(page) => closed = page,
                Page::Turns(page) => turns = Some(page),
                Page::Results(page) => state.results.load(page),
                Page::Keys(page) => state.uniques.load(page),
            }
        }
        assert!(without.is_empty(), "every job has a body");
        // Oldest first, since a lane of ready jobs accepts jobs only in that order (see `ready.rs`). Other jobs would
        // go into the tree, which needs more memory.
        let jobs = state.jobs.iter();
        let mut by_age: Vec<(u64, Slot)> = jobs.map(|(slot, job)| (job.id, slot)).collect();
        by_age.sort_unstable();
        for (_, slot) in by_age {
            let queue = state.slot_of_queue(&state.jobs[slot]);
            state.queues[queue].total += 1;
            state.index_job(slot);
            state.enter(slot);
        }
        state.load_closed(closed);
        state.settle_turns();
        if let Some(turns) = turns {
            state.load_turns(turns);
        }
        state
    }

    /// Loads a page of numbered queues, creating those that do not exist in memory yet.
    fn load_queues(&mut self, mut page: Loaded<Numbered>) {
        for (number, numbered) in &mut page.items {
            numbered.queue = self.queue_for(&numbered.name);
            let queue = &mut self.queues[numbered.queue];
            (queue.number, queue.is_paused) = (Some(*number), numbered.pause.is_some());
        }
        self.numbers.load(page);
    }
}
