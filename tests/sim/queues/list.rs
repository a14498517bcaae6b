//! One list of jobs, searched from end to end: what can be looked up, and what time does.

use crate::queues::kinds::{JOBS_MAX, rules_of, span};
use sexton::actors::queue::{
    Body, Claim, Claimant, DedupKey, JobView, Message, Phase, Pop, QueueName, Reply, Root, Worker,
};
use sexton::clock::Timestamp;
use sexton::ids::{Seq, Slot};
use sexton::spine::machine::Stamp;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) view: JobView,
    pub(super) body: Body,
    pub(super) worker: Option<Worker>,
    /// Milliseconds that its claim lasts.
    pub(super) span: u64,
    /// If this is its last try: when it is pruned.
    pub(super) last: Option<Timestamp>,
    pub(super) buried: Seq,
    pub(super) dedup: Option<DedupKey>,
    pub(super) root: Option<Root>,
    /// Time does not act on it until something else does.
    pub(super) quarantined: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    pub(super) until: Timestamp,
    pub(super) quarantined: bool,
}

/// Queues, as the text has them.
#[derive(Clone, Default)]
pub(crate) struct Queues {
    pub(super) jobs: BTreeMap<Slot, Job>,
    pub(super) pauses: BTreeMap<QueueName, Pause>,
    pub(super) roots: BTreeMap<Slot, (Root, Timestamp)>,
    /// The number that was given last.
    pub(super) last_id: u64,
    pub(super) draining: bool,
    /// Every number that any job had.
    pub(super) seen: BTreeSet<u64>,
    /// What was claimed last by somebody who waited, and how.
    pub(super) woken: Option<(Pop, Reply)>,
}

/// What time acts on first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Job(Slot),
    Pause,
    Root(Slot),
}

impl Job {
    pub(super) fn go(&mut self, phase: Phase, until: Option<Timestamp>) {
        (self.view.phase, self.view.until) = (phase, until);
        (self.view.token, self.worker) = (None, None);
        self.quarantined = false;
        if phase != Phase::Claimed {
            self.last = None;
        }
    }

    pub(super) fn kick(&mut self) {
        self.view.kicks += 1;
        self.view.attempts = 0;
        self.go(Phase::Ready, None);
    }

    pub(super) fn is_unclaimed(&self) -> bool {
        matches!(self.view.phase, Phase::Ready | Phase::Delayed)
    }
}

impl Queues {
    pub(super) fn find(&self, id: u64) -> Option<(Slot, &Job)> {
        let mut jobs = self.jobs.iter();
        let found = jobs.find(|(_, job)| job.view.id == id);
        found.map(|(slot, job)| (*slot, job))
    }

    pub(super) fn job(&mut self, slot: Slot) -> &mut Job {
        self.jobs.get_mut(&slot).expect("slots come from the list")
    }

    /// The jobs of a queue in a phase, in order.
    pub(super) fn line(&self, queue: &QueueName, phase: Phase) -> Vec<Slot> {
        let of = |(_, job): &(&Slot, &Job)| job.view.queue == *queue && job.view.phase == phase;
        let mut line: Vec<(&Slot, &Job)> = self.jobs.iter().filter(of).collect();
        line.sort_by_key(|(_, job)| {
            let view = &job.view;
            let first = match phase {
                Phase::Ready => view.priority.into(),
                Phase::Buried => job.buried.0,
                Phase::Delayed | Phase::Claimed | Phase::Abandoned => {
                    view.until.unwrap_or_default().0
                }
            };
            (first, view.id)
        });
        line.into_iter().map(|(slot, _)| *slot).collect()
    }

    /// The job that a claim takes: the most urgent of all queues; if chance is asked, the best of some queue.
    pub(super) fn best(&self, pop: &Pop, chosen: Option<u64>) -> Option<Slot> {
        let open = pop.queues.iter().filter(|it| !self.pauses.contains_key(it));
        let bests = open.filter_map(|queue| self.line(queue, Phase::Ready).first().copied());
        let view = |slot: &Slot| &self.jobs.get(slot).expect("it is in line").view;
        if pop.weights.is_empty() {
            bests.min_by_key(|slot| (view(slot).priority, view(slot).id))
        } else {
            let mut bests = bests.peekable();
            let any = bests.peek().copied();
            bests.find(|slot| Some(view(slot).id) == chosen).or(any)
        }
    }

    pub(super) fn is_outdated(&self, root: Root) -> bool {
        let mut roots = self.roots.values();
        roots.any(|(known, _)| known.key == root.key && known.at > root.at)
    }

    pub(super) fn claim(&mut self, slot: Slot, by: Claimant, stamp: Stamp) -> Reply {
        let job = self.job(slot);
        let rules = rules_of(&job.view.queue);
        if matches!(job.view.phase, Phase::Buried | Phase::Abandoned) {
            job.view.attempts = 0;
        }
        job.span = span(&job.view);
        job.go(Phase::Claimed, Some(stamp.at.plus_ms(job.span)));
        job.view.attempts += 1;
        job.view.reserves += 1;
        job.view.token = Some(stamp.seq.into());
        let is_last =
            rules.max_tries > 0 && job.view.attempts >= rules.max_tries && job.view.retries;
        job.last = is_last.then(|| stamp.at.plus_ms(rules.prune_ms + 1));
        job.worker = match by {
            Claimant::Worker(worker) => Some(worker),
            Claimant::Bearer => None,
        };
        let job = job.clone();
        Reply::Claim(Box::new(Claim {
            id: job.view.id,
            token: stamp.seq.into(),
            queue: job.view.queue,
            attempts: job.view.attempts,
            until: job.view.until.unwrap_or_default(),
            retries: job.view.retries,
            duplicate: job.root.is_some_and(|root| self.is_outdated(root)),
            body: job.body,
        }))
    }

    /// The claim is over, and nothing was said.
    pub(super) fn give_back(&mut self, slot: Slot) {
        let job = self.job(slot);
        match job.last {
            _ if !job.view.retries => drop(self.jobs.remove(&slot)),
            Some(prune) => job.go(Phase::Abandoned, Some(prune)),
            None => job.go(Phase::Ready, None),
        }
    }

    pub(super) fn is_full(&self, more: usize) -> bool {
        self.jobs.len() + more > JOBS_MAX as usize
    }

    pub(super) fn soonest(&self, by: Claimant) -> Option<Timestamp> {
        let Claimant::Worker(worker) = by else {
            return None;
        };
        let its = self.jobs.values().filter(|job| job.worker == Some(worker));
        its.filter_map(|job| job.view.until).min()
    }

    pub(super) fn first_due(&self, at: Timestamp) -> Option<(Timestamp, Due)> {
        let jobs = self.jobs.iter().filter(|(_, job)| !job.quarantined);
        let jobs = jobs.filter_map(|(slot, job)| Some((job.view.until?, Due::Job(*slot))));
        let pauses = self.pauses.values().filter(|pause| !pause.quarantined);
        let pauses = pauses.map(|pause| (pause.until, Due::Pause));
        let roots = self.roots.iter();
        let roots = roots.map(|(slot, (_, until))| (*until, Due::Root(*slot)));
        let due = jobs
            .chain(pauses)
            .chain(roots)
            .filter(|(until, _)| *until <= at);
        due.min()
    }

    pub(super) fn tick(&mut self, at: Timestamp, message: &Message) -> Result<(), String> {
        let first = self.first_due(at);
        let wrong = || Err(format!("time acted, where {first:?} is due"));
        match (message, &first) {
            (Message::Expire { slot }, Some((_, Due::Job(due)))) if slot == due => {
                self.expire(*slot);
            }
            (Message::Unpause { queue }, Some((until, Due::Pause))) => {
                let pause = self.pauses.remove(queue);
                if pause.is_none_or(|pause| pause.until != *until || pause.quarantined) {
                    return wrong();
                }
            }
            (Message::Forget { slot }, Some((_, Due::Root(due)))) if slot == due => {
                self.roots.remove(slot);
            }
            _ => return wrong(),
        }
        Ok(())
    }

    pub(super) fn expire(&mut self, slot: Slot) {
        let job = self.job(slot);
        match job.view.phase {
            Phase::Abandoned => drop(self.jobs.remove(&slot)),
            Phase::Claimed => {
                job.view.timeouts += 1;
                self.give_back(slot);
            }
            Phase::Delayed | Phase::Ready | Phase::Buried => job.go(Phase::Ready, None),
        }
    }

    pub(super) fn found(&self, slot: Option<&Slot>) -> Reply {
        let job = slot.and_then(|slot| self.jobs.get(slot));
        job.map_or(Reply::Absent, |job| {
            Reply::Found(job.view.id, job.body.clone())
        })
    }
}

/// The lowest slot that is free.
pub(super) fn free<T>(taken: &BTreeMap<Slot, T>) -> Slot {
    let mut slots = (0..).map(Slot);
    slots
        .find(|slot| !taken.contains_key(slot))
        .expect("worlds are small")
}
