//! Queue state from its pages: every index built again.

#![expect(
    clippy::indexing_slicing,
    reason = "slots come from indexes over the slabs: one that leads nowhere is an impossible state"
)]

use crate::actors::queue::job::Job;
use crate::actors::queue::name::QueueName;
use crate::actors::queue::pages::{KeptJob, Page};
use crate::actors::queue::queue::Pause;
use crate::actors::queue::rules::Rules;
use crate::actors::queue::state::State;
use crate::ids::Slot;
use std::collections::VecDeque;

impl State {
    /// The state with these pages in it, which come in ascending order: those of jobs before those of their queues.
    ///
    /// # Panics
    /// If they contradict each other.
    pub(in crate::actors::queue) fn from_pages(
        rules: Rules,
        pages: &mut dyn Iterator<Item = Page>,
    ) -> Self {
        let mut state = Self::new(rules);
        // Jobs by age; and those whose body is still to come, as their slots ascend.
        let (mut jobs, mut without) = (Vec::new(), VecDeque::new());
        for page in pages {
            match page {
                Page::Head(head) => {
                    state.head = head;
                    state.totals.draining = head.draining;
                }
                Page::Jobs(kept) => {
                    for (slot, job) in kept {
                        jobs.push((job.id, slot));
                        let is_whole = job.body.is_some();
                        state.load_job(slot, job);
                        if is_whole {
                            state.settle(slot);
                        } else {
                            without.push_back(slot);
                        }
                    }
                }
                Page::Queues(kept) => {
                    for (number, queue) in kept {
                        state.load_queue(number, &queue.name, queue.pause);
                    }
                }
                Page::Body(slot, body) => {
                    let next = without.pop_front();
                    assert_eq!(next, Some(slot), "a page of a body is of a job without");
                    state.jobs[slot].body = body;
                    state.settle(slot);
                }
                Page::Roots(kept) => {
                    for (slot, known) in kept {
                        state.roots.append(slot, known);
                        state.count_root(slot, true);
                    }
                }
            }
        }
        assert!(without.is_empty(), "a job without a body has a page for it");
        // A lane of what is ready takes those that come by age; all others would stand apart.
        jobs.sort_unstable();
        for (_, slot) in jobs {
            let job = &mut state.jobs[slot];
            job.queue = *state.numbers.get(job.queue).expect("a job has a queue");
            state.queues[job.queue].total += 1;
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

    /// Puts a job in its place, as far as its page tells: its queue is still that of the page.
    fn load_job(&mut self, slot: Slot, kept: KeptJob) {
        let job = Job {
            id: kept.id,
            body: kept.body.unwrap_or_default(),
            created: kept.created,
            ttr_ms: kept.ttr_ms,
            previous: Slot::NONE,
            next: Slot::NONE,
            queue: kept.queue,
            priority: kept.priority,
            phase: kept.phase,
            passing: kept.passing,
            retries: kept.retries,
            story: kept.story,
        };
        self.jobs.append(slot, job);
    }
}
