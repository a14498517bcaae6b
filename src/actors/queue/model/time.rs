//! The model of deadlines and of the order in which waiting requests are served, implemented with plain lists.

use super::{Due, Entry, Model, Pause};
use sexton::actors::queue::{Order, Phase, Pop, QueueName};
use sexton::clock::Timestamp;
use sexton::ids::{Slot, Ticket};

impl Model {
    /// Opens the closed queues that are due to open at `at` or earlier.
    pub(crate) fn open(&mut self, at: Timestamp) {
        self.closings.retain(|(_, opens)| *opens > at);
    }

    /// Restarts the server: jobs kept in memory are removed, claims of connections are given back, the time limits of other
    /// claims and the waits for a retry restart, and new jobs are accepted again.
    pub(crate) fn start(&mut self, at: Timestamp, skipped: u64) {
        self.draining = false;
        self.open(at);
        self.next_id += skipped;
        self.jobs.retain(|job| !job.view.passing);
        for job in &mut self.jobs {
            job.start(at);
        }
        self.jobs.retain(|job| !job.is_gone);
        for pause in &mut self.pauses {
            pause.quarantined = false;
        }
        for kept in self.results.iter_mut().flatten() {
            kept.quarantined = false;
        }
        for known in self.keys.iter_mut().flatten() {
            known.quarantined = false;
        }
        self.number();
        self.update_line();
    }

    /// Returns the item that must be processed first at `at`; `None` if nothing is due.
    pub(crate) fn next_due(&self, at: Timestamp) -> Option<Due> {
        let jobs = self
            .jobs
            .iter()
            .filter(|job| !(job.quarantined || self.held && job.view.phase == Phase::Abandoned));
        let jobs =
            jobs.filter_map(|job| Some((self.ends(job)?, 0, job.slot.0, Due::Job(job.slot))));
        let pauses = (0..).zip(&self.numbers).filter_map(|(number, queue)| {
            let of_queue = |pause: &&Pause| Some(&pause.queue) == queue.as_ref();
            let mut pauses = self.pauses.iter().filter(|pause| !pause.quarantined);
            let pause = pauses.find(of_queue)?;
            let until = self.time(pause.until);
            Some((until, 1, number, Due::Pause(pause.queue.clone())))
        });
        let roots = (0..).zip(&self.roots).filter_map(|(place, known)| {
            let (_, until) = (*known)?;
            Some((until, 3, place, Due::Root(Slot(place))))
        });
        let roots = roots.filter(|_| !self.held);
        let results = self.forgotten();
        let results = results.map(|(until, place, slot)| (until, 4, place, Due::Result(slot)));
        let keys = self.forgotten_keys();
        let keys = keys.map(|(until, place, slot)| (until, 2, place, Due::Key(slot)));
        let timed = jobs.chain(pauses).chain(roots).chain(results).chain(keys);
        let timed = timed.filter(|(until, ..)| *until <= at);
        let first = timed.min_by_key(|(until, kind, number, _)| (*until, *kind, *number));
        first.map(|(.., due)| due).or_else(|| self.next_waiter())
    }

    /// Returns whether this item is a waiting request that may be served now although `next_due` names another. With
    /// random order, that is true of every request that is the first to wait for a queue with a claimable job.
    pub(crate) fn may_serve(&self, due: &Due, at: Timestamp) -> bool {
        let Due::Waiter(ticket) = due else {
            return false;
        };
        let has_job = |queue: &QueueName| {
            let is_ready = |job: &Entry| job.view.phase == Phase::Ready && job.view.queue == *queue;
            !self.is_shut(queue) && self.jobs.iter().any(is_ready)
        };
        let first = |queue: &QueueName| {
            let waits = |(_, pop): &&(Ticket, Pop)| pop.queues.contains(queue);
            let tickets = self.waiters.iter().filter(waits).map(|(ticket, _)| *ticket);
            tickets.min()
        };
        let (_, pop) = self
            .waiters
            .iter()
            .find(|(it, _)| it == ticket)
            .expect("the ticket belongs to a waiting request");
        let mut queues = pop.queues.iter();
        self.rules.default.order == Order::Random
            && matches!(self.next_due(at), Some(Due::Waiter(_)))
            && queues.any(|queue| has_job(queue) && first(queue) == Some(*ticket))
    }

    fn next_waiter(&self) -> Option<Due> {
        let waited: Vec<QueueName> =
            self.waiters.iter().flat_map(|(_, pop)| pop.queues.to_vec()).collect();
        let Some(job) = self.best(&waited) else {
            return self.next_turn();
        };
        let waits = |(_, pop): &&(Ticket, Pop)| pop.queues.contains(&job.view.queue);
        let tickets = self.waiters.iter().filter(waits).map(|(ticket, _)| *ticket);
        tickets.min().map(Due::Waiter)
    }

    /// Returns the oldest request that waits for a tenant's turn and can be served; `None` if there is none.
    fn next_turn(&self) -> Option<Due> {
        let has_turn = |(_, pop): &&(Ticket, Pop)| {
            let any = pop.any.as_ref();
            any.is_some_and(|any| self.turn(any).is_some())
        };
        let tickets = self.waiters.iter().filter(has_turn);
        tickets.map(|(ticket, _)| *ticket).min().map(Due::Waiter)
    }

    pub(crate) fn tick(&mut self, due: &Due) {
        match due {
            Due::Pause(queue) => self.pauses.retain(|pause| pause.queue != *queue),
            Due::Root(slot) => self.roots[slot.index()] = None,
            Due::Key(slot) => self.keys[slot.index()] = None,
            Due::Result(slot) => self.results[slot.index()] = None,
            Due::Job(slot) => {
                let job = self.jobs.iter().find(|job| job.slot == *slot);
                let view = job.expect("a due job exists").view.clone();
                let ever = view.ttr_ms == 0 && self.rules_of(&view.queue).claim_ttl_ms == 0;
                let job = self.job(view.id).expect("a due job exists");
                let pruned = view.phase == Phase::Abandoned
                    || ever && view.token.is_some() && job.last.is_none();
                let kills = view.bound.is_some_and(|it| it.fence) || view.command.is_some();
                if view.phase == Phase::Claimed && kills {
                    job.hand_over();
                    (job.view.fencing, job.view.until) = (true, None);
                    let told = job.obligations();
                    self.told.extend(told);
                } else if pruned {
                    if view.phase == Phase::Abandoned {
                        self.forget_keys_of(&[view.id]);
                    }
                    self.jobs.retain(|job| job.slot != *slot);
                } else {
                    job.view.timeouts += u32::from(view.phase == Phase::Claimed);
                    if view.phase == Phase::Claimed {
                        job.give_back();
                    } else {
                        job.go(Phase::Ready, None);
                    }
                }
                self.jobs.retain(|job| !job.is_gone);
            }
            Due::Waiter(_) => unreachable!("a waiting request is served by a message"),
        }
        self.number();
        self.update_line();
    }
}
