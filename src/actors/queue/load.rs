//! Queue state from its pages: every index built again.

#![expect(
    clippy::indexing_slicing,
    reason = "slots come from indexes over the slabs: one that leads nowhere is an impossible state"
)]

use crate::actors::queue::body::Body;
use crate::actors::queue::job::Job;
use crate::actors::queue::name::QueueName;
use crate::actors::queue::pages::{KeptJob, Page};
use crate::actors::queue::queue::Pause;
use crate::actors::queue::rules::Rules;
use crate::actors::queue::state::State;
use crate::actors::slab::Slab;
use crate::ids::Slot;
use std::collections::HashMap;

impl State {
    /// The state with these pages in it, which come in ascending order.
    ///
    /// # Panics
    /// If they contradict each other.
    pub(in crate::actors::queue) fn from_pages(rules: Rules, pages: Vec<Page>) -> Self {
        let mut state = Self::new(rules);
        let (mut jobs, mut bodies) = (Vec::new(), HashMap::new());
        for page in pages {
            match page {
                Page::Head(head) => {
                    state.head = head;
                    state.totals.draining = head.draining;
                }
                Page::Jobs(kept) => jobs.push(kept),
                Page::Queues(kept) => {
                    for (number, queue) in kept {
                        state.load_queue(number, &queue.name, queue.pause);
                    }
                }
                Page::Body(slot, body) => drop(bodies.insert(slot, body)),
                Page::Roots(kept) => {
                    for (slot, known) in kept {
                        state.roots.append(slot, known);
                        state.count_root(slot, true);
                    }
                }
            }
        }
        let jobs = jobs.into_iter().flatten();
        let jobs: Vec<(Slot, KeptJob)> = jobs.collect();
        let mut by_age: Vec<(u64, Slot)> = jobs.iter().map(|(slot, job)| (job.id, *slot)).collect();
        for (slot, job) in jobs {
            let body = job.body.clone().or_else(|| bodies.remove(&slot));
            state.load_job(
                slot,
                job,
                body.expect("a job without a body has a page for it"),
            );
        }
        assert!(bodies.is_empty(), "a page of a body has a job");
        // A lane of what is ready takes those that come by age; all others would stand apart.
        by_age.sort_unstable();
        for (_, slot) in by_age {
            state.enter(slot);
        }
        state
    }

    /// Puts a queue from a page in its place.
    fn load_queue(&mut self, number: Slot, name: &QueueName, pause: Option<Pause>) {
        let slot = self.queue_for(name);
        self.numbers.append(number, slot);
        let queue = &mut self.queues[slot];
        (queue.number, queue.pause) = (Some(number), pause);
        if let Some(pause) = pause {
            self.pauses.insert((pause.until, number));
        }
        self.count_queue(slot, number, true);
    }

    /// Puts a job in its place. They come by slot, and enter the indexes of their phases afterwards.
    fn load_job(&mut self, slot: Slot, kept: KeptJob, body: Body) {
        let queue = *self.numbers.get(kept.queue).expect("a job has a queue");
        let job = Job {
            id: kept.id,
            body,
            created: kept.created,
            ttr_ms: kept.ttr_ms,
            previous: Slot::NONE,
            next: Slot::NONE,
            queue,
            priority: kept.priority,
            phase: kept.phase,
            passing: kept.passing,
            retries: kept.retries,
            story: kept.story,
        };
        self.settle(slot, job, Slab::append);
    }
}
