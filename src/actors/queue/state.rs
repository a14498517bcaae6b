//! Jobs and queues, and the indexes over them; moving a job from phase to phase.
//!
//! Invariants: a job is in the index of its phase and in no other; a queue has a number while it has jobs or is paused,
//! and is there while it has a number, anybody has to do with it, or it is closed; counts are what a walk would count.
//! Never here: what should become of a job. That is decided in `machine.rs` and only carried out here.

#![expect(
    clippy::indexing_slicing,
    reason = "slots come from indexes over the slabs: one that leads nowhere is an impossible state"
)]

use crate::actors::queue::by_id::ById;
use crate::actors::queue::job::{Job, Phase, Story};
use crate::actors::queue::message::{DedupKey, NewJob, Put, Root, Worker};
use crate::actors::queue::name::QueueName;
use crate::actors::queue::pages::{self, Head, Place};
use crate::actors::queue::queue::{Pause, Queue};
use crate::actors::queue::reply::Totals;
use crate::actors::queue::roots::{KnownRoot, Roots};
use crate::actors::queue::rules::{Order, Rules};
use crate::clock::Timestamp;
use crate::ids::{Digest, Seq, Slot, Ticket};
use crate::lookup::slab::Slab;
use crate::lookup::table::Table;
use crate::lookup::wheel::Wheel;
use crate::spine::machine::{Stamp, Start};
use crate::spine::pages::Pages;
use std::collections::{BTreeMap, BTreeSet};

/// Every job and every queue, by every way of asking for one.
#[derive(Debug)]
pub(super) struct State {
    pub(super) rules: Rules,
    pub(super) jobs: Slab<Job>,
    pub(super) ids: ById,
    pub(super) wheel: Wheel,
    pub(super) queues: Slab<Queue>,
    pub(super) names: Table,
    /// Queues by their number in pages.
    pub(super) numbers: Slab<Slot>,
    /// Queues by the end of their pause, and by their number.
    pub(super) pauses: BTreeSet<(Timestamp, Slot)>,
    /// Queues that are closed, by when they open.
    pub(super) closings: BTreeSet<(Timestamp, Slot)>,
    /// What connections have claimed, by when the claim ends.
    pub(super) workers: BTreeMap<Worker, BTreeSet<(Timestamp, Slot)>>,
    /// The unclaimed jobs that others may be one with: of a queue, by key, the oldest first.
    pub(super) dedup: BTreeSet<(Slot, DedupKey, u64, Slot)>,
    /// The newest root job of each key.
    pub(super) roots: Roots,
    /// Queues that are offered to whoever asks for any: something can be claimed, and they are not read-only.
    pub(super) offered: Vec<Slot>,
    /// Queues from which something can be claimed, and that somebody waits for.
    pub(super) wanted: BTreeSet<Slot>,
    pub(super) totals: Totals,
    pub(super) head: Head,
    pub(super) digest: Digest,
    pub(super) scratch: Vec<u8>,
    pub(super) pages: Pages,
}

impl State {
    /// Goes by other rules from now on, also for queues that are there.
    pub(super) fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
        let slots: Vec<Slot> = self.queues.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            let queue = &mut self.queues[slot];
            queue.go_by(self.rules.of(&queue.name));
        }
    }

    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            jobs: Slab::default(),
            ids: ById::default(),
            wheel: Wheel::default(),
            queues: Slab::default(),
            names: Table::default(),
            numbers: Slab::default(),
            pauses: BTreeSet::new(),
            closings: BTreeSet::new(),
            workers: BTreeMap::new(),
            dedup: BTreeSet::new(),
            roots: Roots::default(),
            offered: Vec::new(),
            wanted: BTreeSet::new(),
            totals: Totals::default(),
            head: Head::default(),
            digest: Digest::default(),
            scratch: Vec::new(),
            pages: Pages::default(),
        }
    }

    pub(super) fn job(&self, slot: Slot) -> Option<&Job> {
        self.jobs.get(slot)
    }

    /// A job by its number.
    pub(super) fn find(&self, id: u64) -> Option<(Slot, &Job)> {
        let slot = self.ids.get(id)?;
        Some((slot, &self.jobs[slot]))
    }

    /// A queue by its name, if anybody has to do with it.
    pub(super) fn queue_named(&self, name: &QueueName) -> Option<(Slot, &Queue)> {
        let slot = self
            .names
            .find(name, |slot| self.queues[slot].name == *name)?;
        Some((slot, &self.queues[slot]))
    }

    pub(super) fn queue(&self, slot: Slot) -> &Queue {
        &self.queues[slot]
    }

    /// The oldest unclaimed job of a queue with this key.
    pub(super) fn twin(&self, queue: &QueueName, key: DedupKey) -> Option<Slot> {
        let (queue, _) = self.queue_named(queue)?;
        let mut twins = self.dedup.range((queue, key, 0, Slot(0))..);
        let twin = twins
            .next()
            .filter(|(of, with, ..)| (*of, *with) == (queue, key));
        twin.map(|(.., slot)| *slot)
    }

    /// The job that a claim from this queue would take at `at`.
    pub(super) fn best(
        &self,
        name: &QueueName,
        (at, chance): (Timestamp, u64),
    ) -> Option<(u64, u64, Slot)> {
        let (_, queue) = self.queue_named(name)?;
        if !queue.is_poppable_at(at) {
            return None;
        }
        match queue.order {
            Order::Random => queue.ready.around(&self.jobs, chance),
            Order::Priority | Order::Fifo | Order::Timestamp => queue.ready.first(&self.jobs),
        }
    }

    /// Whether a newer root job has made this job superfluous.
    pub(super) fn is_duplicate(&self, job: &Job) -> bool {
        let root = job.story.as_deref().and_then(|story| story.root);
        root.is_some_and(|root| self.roots.is_outdated(root))
    }

    /// When the first of a worker's claims ends.
    pub(super) fn soonest(&self, worker: Worker) -> Option<Timestamp> {
        let claims = self.workers.get(&worker)?;
        claims.first().map(|(until, _)| *until)
    }

    /// A worker's claims, by when they end.
    pub(super) fn claims(&self, worker: Worker) -> impl Iterator<Item = Slot> + '_ {
        let claims = self.workers.get(&worker).into_iter().flatten();
        claims.map(|(_, slot)| *slot)
    }

    /// A queue that has a job, and who waits for it first: of several, the one with the most urgent job.
    pub(super) fn wanted(&self) -> Option<Ticket> {
        let best = self.wanted.iter().min_by_key(|slot| {
            let first = self.queues[**slot].ready.first(&self.jobs);
            first.map(|(rank, id, _)| (rank, id))
        })?;
        self.queues[*best].waiting.first().copied()
    }

    pub(super) fn is_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// The first pause to end, and the number of its queue.
    pub(super) fn pause_ends(&self) -> Option<(Timestamp, Slot)> {
        self.pauses.first().copied()
    }

    /// When time acts on a job.
    pub(super) fn deadline_of(&self, slot: Slot) -> Option<Timestamp> {
        self.jobs.get(slot)?.deadline(self.head.epoch)
    }

    /// Takes a job that is due at `at` out of the order of deadlines, until its phase changes.
    pub(super) fn forget_deadline(&mut self, slot: Slot, at: Timestamp) {
        if let Some(deadline) = self.deadline_of(slot).filter(|deadline| *deadline <= at) {
            self.wheel.remove(slot, deadline);
        }
    }

    /// Takes the queue of this number, whose pause is over at `at`, out of the order of pauses, until its pause changes.
    pub(super) fn forget_pause(&mut self, number: Slot, at: Timestamp) {
        self.pauses
            .retain(|(until, other)| *other != number || *until > at);
    }

    /// Says that a page is about to change.
    pub(super) fn touch(&mut self, place: Place, seq: Seq) {
        let Self {
            pages,
            jobs,
            queues,
            numbers,
            roots,
            head,
            ..
        } = self;
        pages.touch(place.page(), seq, |content| {
            let slabs = (&*jobs, &*queues, &*numbers, roots.slab());
            pages::encode(place.page(), *head, slabs, content);
        });
    }

    /// Adds a job.
    pub(super) fn put(&mut self, slot: Slot, stamp: Stamp, put: &Put, new: &NewJob) {
        let queue = self.queue_for(&put.queue);
        self.hold(queue, stamp.seq);
        self.touch(Place::Head, stamp.seq);
        self.head.next_id = self.head.next_id.max(new.id + 1);
        let delayed = new.until != Timestamp(0);
        let is_plain = !delayed && put.delay_ms == 0 && new.dedup.is_none() && put.root.is_none();
        let story = (!is_plain).then(|| {
            Box::new(Story {
                since: stamp.at,
                until: new.until,
                delay_ms: put.delay_ms,
                dedup: new.dedup,
                root: put.root,
                ..Story::default()
            })
        });
        let job = Job {
            id: new.id,
            body: put.body.clone(),
            created: stamp.at,
            ttr_ms: put.ttr_ms,
            previous: Slot::NONE,
            next: Slot::NONE,
            queue,
            priority: put.priority,
            phase: if delayed {
                Phase::Delayed
            } else {
                Phase::Ready
            },
            passing: new.passing,
            retries: new.retries,
            story,
        };
        self.touch(Place::of_job(slot), stamp.seq);
        if pages::is_apart(&put.body) {
            self.touch(Place::of_body(slot), stamp.seq);
        }
        self.jobs.insert(slot, job);
        self.settle(slot);
        self.queues[queue].total += 1;
        self.enter(slot);
        if let Some(root) = put.registers() {
            self.register(root, stamp);
        }
    }

    /// A job has come to its place: what stays as it is while its phases change.
    pub(super) fn settle(&mut self, slot: Slot) {
        let job = &self.jobs[slot];
        job.canonical_body(&mut self.scratch);
        self.digest.add(&self.scratch);
        self.totals.bytes += job.body.as_bytes().len() as u64;
        self.totals.added += 1;
        self.ids.insert(job.id, slot);
    }

    /// Remembers a root job, unless it, or a newer one, is known.
    pub(super) fn register(&mut self, root: Root, stamp: Stamp) {
        if self.roots.is_known(root) {
            return;
        }
        let slot = self.roots.slot_of(root.key);
        self.touch(Place::of_root(slot), stamp.seq);
        self.count_root(slot, false);
        self.roots.put(slot, KnownRoot::new(root, stamp.at));
        self.count_root(slot, true);
    }

    /// Forgets a root job.
    pub(super) fn forget_root(&mut self, slot: Slot, seq: Seq) {
        self.touch(Place::of_root(slot), seq);
        self.count_root(slot, false);
        self.roots.remove(slot);
    }

    pub(super) fn count_root(&mut self, slot: Slot, present: bool) {
        let Some(known) = self.roots.slab().get(slot) else {
            return;
        };
        known.canonical(slot, &mut self.scratch);
        if present {
            self.digest.add(&self.scratch);
        } else {
            self.digest.remove(&self.scratch);
        }
    }

    /// Ends a job.
    pub(super) fn delete(&mut self, slot: Slot, seq: Seq) {
        self.touch(Place::of_job(slot), seq);
        if pages::is_apart(&self.jobs[slot].body) {
            self.touch(Place::of_body(slot), seq);
        }
        self.leave(slot);
        let job = self.jobs.remove(slot);
        self.ids.remove(job.id);
        job.canonical_body(&mut self.scratch);
        self.digest.remove(&self.scratch);
        self.totals.bytes -= job.body.as_bytes().len() as u64;
        self.queues[job.queue].deletes += 1;
        self.let_go(job.queue, seq);
    }

    /// Changes a job, and with it page, digest, counts and every index.
    pub(super) fn change(&mut self, slot: Slot, seq: Seq, change: impl FnOnce(&mut Job)) {
        self.touch(Place::of_job(slot), seq);
        self.leave(slot);
        change(&mut self.jobs[slot]);
        self.enter(slot);
    }

    /// Pauses a queue, or ends its pause.
    pub(super) fn pause(&mut self, name: &QueueName, stamp: Stamp, pause: Option<Pause>) {
        let queue = self.queue_for(name);
        if pause.is_some() {
            self.hold(queue, stamp.seq);
        }
        if let Some(number) = self.queues[queue].number {
            self.touch(Place::of_queue(number), stamp.seq);
            self.count_queue(queue, number, false);
            let before = std::mem::replace(&mut self.queues[queue].pause, pause);
            self.count_queue(queue, number, true);
            if let Some(before) = before {
                self.pauses.remove(&(before.until, number));
            }
            if let Some(pause) = pause {
                self.pauses.insert((pause.until, number));
            }
        }
        self.review(queue);
        self.let_go(queue, stamp.seq);
    }

    /// The coordinator started: what was kept in memory is gone, spans begin again, what belonged to connections is given
    /// back, and a drain is over.
    pub(super) fn start(&mut self, start: Start) {
        let Start { stamp, skipped } = start;
        self.open(stamp.at);
        self.open_all();
        let ended: Vec<Slot> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.passing)
            .map(|(slot, _)| slot)
            .collect();
        for slot in ended {
            self.delete(slot, stamp.seq);
        }
        self.touch(Place::Head, stamp.seq);
        self.head = Head {
            epoch: stamp.at,
            draining: false,
            next_id: self.head.next_id + skipped,
        };
        self.totals.draining = false;
        let bound: Vec<Slot> = self
            .workers
            .values()
            .flatten()
            .map(|(_, slot)| *slot)
            .collect();
        self.workers.clear();
        self.wheel = self.wind();
        // Their deadlines are those of the new wheel now.
        for slot in &bound {
            if let Some(worker) = self.jobs[*slot].story().worker {
                let claim = (self.deadline_of(*slot).unwrap_or_default(), *slot);
                self.workers.entry(worker).or_default().insert(claim);
            }
        }
        for slot in bound {
            self.give_back(slot, stamp);
        }
    }

    /// A claim has ended without a word: the job is ready again, abandoned if that was its last try, or gone if it is
    /// run at most once.
    pub(super) fn give_back(&mut self, slot: Slot, stamp: Stamp) {
        if !self.jobs[slot].retries {
            return self.delete(slot, stamp.seq);
        }
        self.change(slot, stamp.seq, |job| {
            let story = job.story_mut();
            let prune = story.prune;
            end_claim(story, stamp.at);
            if prune == Timestamp(0) {
                job.phase = Phase::Ready;
            } else {
                story.until = prune;
                job.phase = Phase::Abandoned;
            }
        });
    }

    /// Every deadline, set anew.
    pub(super) fn wind(&self) -> Wheel {
        let mut wheel = Wheel::default();
        for (slot, job) in self.jobs.iter() {
            if let Some(deadline) = job.deadline(self.head.epoch) {
                wheel.insert(slot, deadline);
            }
        }
        wheel
    }

    /// The queue of this name, made if there is none.
    pub(super) fn queue_for(&mut self, name: &QueueName) -> Slot {
        if let Some((slot, _)) = self.queue_named(name) {
            return slot;
        }
        let slot = self.queues.next_free();
        let queue = Queue::new(name.clone(), self.rules.of(name));
        self.queues.insert(slot, queue);
        let (queues, names) = (&self.queues, &mut self.names);
        names.insert(name, slot, |other| queues[other].name.clone());
        self.totals.queues += 1;
        slot
    }

    /// Gives a queue a number, if it has none: it is about to have something durable.
    fn hold(&mut self, queue: Slot, seq: Seq) {
        if self.queues[queue].number.is_some() {
            return;
        }
        let number = self.numbers.next_free();
        self.touch(Place::of_queue(number), seq);
        self.numbers.insert(number, queue);
        self.queues[queue].number = Some(number);
        self.count_queue(queue, number, true);
    }

    /// Takes a queue's number away if it has nothing durable any more, and the queue if nobody has to do with it.
    pub(super) fn let_go(&mut self, queue: Slot, seq: Seq) {
        if let Some(number) = self.queues[queue].number
            && !self.queues[queue].is_durable()
        {
            self.touch(Place::of_queue(number), seq);
            self.count_queue(queue, number, false);
            self.numbers.remove(number);
            self.queues[queue].number = None;
        }
        self.forsake(queue);
    }

    /// Takes a queue away if nobody has to do with it.
    pub(super) fn forsake(&mut self, queue: Slot) {
        if self.queues.get(queue).is_none_or(Queue::is_present) {
            return;
        }
        let gone = self.queues.remove(queue);
        assert!(
            self.names.remove(&gone.name, queue),
            "a queue is found by its name"
        );
        self.totals.queues -= 1;
    }

    /// Somebody begins or ends to have to do with a queue.
    pub(super) fn attend(&mut self, queue: Slot, change: impl FnOnce(&mut Queue)) {
        change(&mut self.queues[queue]);
    }

    /// Somebody begins or ends to wait for a job of a queue.
    pub(super) fn await_job(&mut self, queue: Slot, ticket: Ticket, waits: bool) {
        let waiting = &mut self.queues[queue].waiting;
        if waits {
            waiting.insert(ticket);
        } else {
            waiting.remove(&ticket);
        }
        self.review(queue);
    }

    pub(super) fn count_queue(&mut self, queue: Slot, number: Slot, present: bool) {
        self.queues[queue].canonical(number, &mut self.scratch);
        if present {
            self.digest.add(&self.scratch);
        } else {
            self.digest.remove(&self.scratch);
        }
    }
}

/// The claim of a job is over.
pub(super) fn end_claim(story: &mut Story, at: Timestamp) {
    story.since = at;
    story.until = Timestamp(0);
    story.worker = None;
    story.token = crate::ids::Token(0);
    story.prune = Timestamp(0);
}
