//! Queue state from its pages: every index built again.

use crate::actors::queue::body::Body;
use crate::actors::queue::job::Job;
use crate::actors::queue::pages::{KeptJob, Page};
use crate::actors::queue::rules::Rules;
use crate::actors::queue::state::State;
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
            }
        }
        let jobs = jobs.into_iter().flatten();
        let jobs: Vec<(Slot, KeptJob)> = jobs.collect();
        state.ids.reserve(jobs.len());
        for (slot, job) in jobs {
            let body = job.body.clone().or_else(|| bodies.remove(&slot));
            state.load_kept(
                slot,
                job,
                body.expect("a job without a body has a page for it"),
            );
        }
        assert!(bodies.is_empty(), "a page of a body has a job");
        state
    }

    fn load_kept(&mut self, slot: Slot, kept: KeptJob, body: Body) {
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
            story: kept.story,
        };
        self.load_job(slot, job);
    }
}
