//! Jobs and queues, with the indexes over them, and the operations that move a job from phase to phase.
//!
//! Invariants: a job is in the index of its phase and of no other phase. A queue has a number while it has jobs or is
//! paused. A queue exists while it has a number, while a client uses or watches it or waits for one of its jobs, while a
//! `Watch::Standing` names it, or while its throttle is closed. The counts equal the numbers of jobs that they stand for.
//! Nothing is decided here: `decide.rs` and `adding.rs` decide what happens to a job, and `commit.rs` applies their
//! decisions through this file.

#![expect(
    clippy::indexing_slicing,
    reason = "slots come from indexes over the slabs: a slot without an item is an impossible state"
)]

use crate::actors::binding::Until;
use crate::actors::queue::by_id::ById;
use crate::actors::queue::job::{Details, Job};
use crate::actors::queue::message::{DedupKey, Put, Root};
use crate::actors::queue::outcome::NewJob;
use crate::actors::queue::pages::{self, Head};
use crate::actors::queue::queue::{Numbered, Pause, Queue};
use crate::actors::queue::reply::{QueueView, Totals};
use crate::actors::queue::report::KeepResult;
use crate::actors::queue::results::{JobResult, Results};
use crate::actors::queue::right::Worker;
use crate::actors::queue::roots::{KnownRoot, Roots};
use crate::actors::queue::rules::{Order, Rules};
use crate::actors::queue::turns::{self, Turns};
use crate::actors::queue::uniques::{KnownKey, Uniques};
use crate::clock::{Date, Offset, Timestamp};
use crate::ids::{Digest, PageId, ProcessId, Seq, Slot, Ticket};
use crate::lookup::durable::{DurableSlab, Item as _, Singleton};
use crate::lookup::pages::Pages;
use crate::lookup::slab::Slab;
use crate::lookup::table::Table;
use crate::spine::machine::{Stamp, Start};
use sexton_api::queue::Phase;
use sexton_api::queue::QueueName;
use std::collections::{BTreeMap, BTreeSet};

/// All jobs and queues, and every index over them.
#[derive(Debug)]
pub(super) struct State {
    pub(super) rules: Rules,
    pub(super) jobs: DurableSlab<Job>,
    /// The digest of all job bodies.
    pub(super) bodies: Digest,
    pub(super) ids: ById,
    pub(super) queues: Slab<Queue>,
    pub(super) names: Table,
    /// The durable parts of queues, by number.
    pub(super) numbers: DurableSlab<Numbered>,
    /// Closed queues, ordered by when they open.
    pub(super) closings: BTreeSet<(Timestamp, Slot)>,
    /// For each connection, its claims, ordered by when they end.
    pub(super) workers: BTreeMap<Worker, BTreeSet<(Timestamp, Slot)>>,
    /// Claims that are bound to processes, ordered by process.
    pub(super) bound: BTreeSet<(ProcessId, Until, Slot)>,
    /// Ready, delayed and retrying jobs with a deduplication key, ordered by the number of their queue, by key and by age.
    pub(super) dedup: BTreeSet<(Slot, DedupKey, u64, Slot)>,
    /// The newest root job of each key.
    pub(super) roots: Roots,
    /// Deduplication keys that are remembered whatever happens to their jobs.
    pub(super) uniques: Uniques,
    /// Results of finished jobs.
    pub(super) results: Results,
    /// Ids of jobs that are not over, and that requests wait for with `Watch::Over`. Volatile.
    pub(super) awaited: BTreeSet<u64>,
    /// Ids of awaited jobs that are over; the requests that wait for them will be answered after the commit. Volatile.
    pub(super) over: Vec<u64>,
    /// Queues that are offered to clients that name no queue: they have claimable jobs.
    pub(super) offered: Vec<Slot>,
    /// Queues that have claimable jobs and waiting clients.
    pub(super) wanted: BTreeSet<Slot>,
    /// The turns of tenants.
    pub(super) turns: Turns,
    /// The sequence number of the last journal entry that was committed. Volatile.
    pub(super) entry: Seq,
    pub(super) totals: Totals,
    pub(super) head: Singleton<Head>,
    pub(super) pages: Pages,
    /// Whether time-based removals are held back because the wall clock is in doubt. Volatile.
    held: bool,
    /// A buffer for the body being hashed, kept for reuse.
    scratch: Vec<u8>,
}

impl State {
    /// Applies new rules from now on, including to existing queues.
    pub(super) fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
        let slots: Vec<Slot> = self.queues.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            let queue = &mut self.queues[slot];
            queue.set_rules(self.rules.of(&queue.name));
            self.update_offer(slot);
        }
        self.settle_turns();
        self.reindex_offers();
    }

    /// Holds back time-based removals if `held` is true, and otherwise allows them again.
    pub(super) fn hold_removals(&mut self, held: bool) {
        self.held = held;
        self.jobs.hold_removals(held);
        self.results.known.hold_removals(held);
        self.uniques.known.hold_removals(held);
    }

    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            jobs: DurableSlab::default(),
            bodies: Digest::default(),
            ids: ById::default(),
            queues: Slab::default(),
            names: Table::default(),
            numbers: DurableSlab::default(),
            closings: BTreeSet::new(),
            workers: BTreeMap::new(),
            bound: BTreeSet::new(),
            dedup: BTreeSet::new(),
            roots: Roots::default(),
            uniques: Uniques::default(),
            results: Results::default(),
            awaited: BTreeSet::new(),
            over: Vec::new(),
            offered: Vec::new(),
            wanted: BTreeSet::new(),
            turns: Turns::default(),
            entry: Seq(0),
            totals: Totals::default(),
            head: Singleton::default(),
            pages: Pages::default(),
            held: false,
            scratch: Vec::new(),
        }
    }

    pub(super) fn job(&self, slot: Slot) -> Option<&Job> {
        self.jobs.get(slot)
    }

    /// Returns a job by its id; `None` if it does not exist.
    pub(super) fn find(&self, id: u64) -> Option<(Slot, &Job)> {
        let slot = self.ids.get(id)?;
        Some((slot, &self.jobs[slot]))
    }

    /// Returns a queue by its name; `None` if it does not exist.
    pub(super) fn queue_named(&self, name: &QueueName) -> Option<(Slot, &Queue)> {
        let slot = self.names.find(name, |slot| self.queues[slot].name == *name)?;
        Some((slot, &self.queues[slot]))
    }

    pub(super) fn queue(&self, slot: Slot) -> &Queue {
        &self.queues[slot]
    }

    /// Returns the slot of the queue of a job.
    pub(super) fn slot_of_queue(&self, job: &Job) -> Slot {
        self.numbers[job.queue].queue
    }

    /// Returns the queue of a job.
    pub(super) fn queue_of(&self, job: &Job) -> &Queue {
        self.queue(self.slot_of_queue(job))
    }

    /// Returns a view of a queue.
    pub(super) fn queue_view(&self, queue: &Queue, offset: Offset) -> QueueView {
        let numbered = queue.number.and_then(|number| self.numbers.get(number));
        let pause = numbered.and_then(|numbered| numbered.pause);
        queue.view(&self.jobs, pause, offset)
    }

    /// Returns the slot of the oldest ready, delayed or retrying job of a queue with this key; `None` if there is none.
    pub(super) fn twin(&self, queue: &QueueName, key: DedupKey) -> Option<Slot> {
        let number = self.queue_named(queue)?.1.number?;
        let mut twins = self.dedup.range((number, key, 0, Slot(0))..);
        let twin = twins.next().filter(|(of, with, ..)| (*of, *with) == (number, key));
        twin.map(|(.., slot)| *slot)
    }

    /// Returns the rank, id and slot of the job that a claim from this queue would take at `at`. Calls `chance`
    /// only if the order is random. Returns `None` if no job can be claimed.
    pub(super) fn best(
        &self,
        name: &QueueName,
        (at, chance): (Timestamp, impl Fn() -> u64),
    ) -> Option<(u64, u64, Slot)> {
        let (_, queue) = self.queue_named(name)?;
        if !queue.is_poppable_at(at) {
            return None;
        }
        match queue.order {
            Order::Random => queue.ready.around(&self.jobs, chance()),
            Order::Priority | Order::Fifo | Order::Timestamp => queue.ready.first(&self.jobs),
        }
    }

    /// Returns when a job's claim, or its wait for a retry, ends; `None` if there is neither, or if the claim ends only with its process.
    pub(super) fn claimed_until(&self, slot: Slot) -> Option<Timestamp> {
        self.jobs.get(slot)?.claimed_until(self.head.epoch)
    }

    /// Returns whether a newer root job has made this job obsolete.
    pub(super) fn is_duplicate(&self, job: &Job) -> bool {
        let root = job.details.as_deref().and_then(|details| details.root);
        root.is_some_and(|root| self.roots.is_outdated(root))
    }

    /// Returns when the first of a worker's claims ends; `None` if it has none.
    pub(super) fn soonest(&self, worker: Worker) -> Option<Timestamp> {
        let claims = self.workers.get(&worker)?;
        claims.first().map(|(until, _)| *until)
    }

    /// Returns the slots of the jobs that a worker has claimed, in the order in which the claims end.
    pub(super) fn claims(&self, worker: Worker) -> impl Iterator<Item = Slot> + '_ {
        let claims = self.workers.get(&worker).into_iter().flatten();
        claims.map(|(_, slot)| *slot)
    }

    /// Returns the oldest waiting request for a queue that has claimable jobs; `None` if there is none. Of several such
    /// queues, the queue with the first job in claiming order is served first.
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

    /// Returns the combined digest of all items, that is, of everything but the head.
    pub(super) fn digest_of_items(&self) -> Digest {
        let mut digest = self.bodies;
        digest.merge(self.jobs.digest());
        digest.merge(self.numbers.digest());
        digest.merge(self.roots.known.digest());
        digest.merge(self.results.known.digest());
        digest.merge(self.uniques.known.digest());
        digest
    }

    pub(super) fn digest(&self) -> Digest {
        let mut digest = self.digest_of_items();
        digest.merge(self.head.digest());
        digest
    }

    pub(super) fn encode_page(&self, page: PageId, content: &mut Vec<u8>) {
        match page.kind() {
            _ if page == PageId::HEAD => self.head.encode(content),
            _ if page == pages::CLOSED => {
                pages::encode_closed(&self.closings, &self.queues, content);
            }
            _ if page == turns::TURNS => self.encode_turns(content),
            Job::KIND => self.jobs.encode(page, content),
            Numbered::KIND => self.numbers.encode(page, content),
            KnownRoot::KIND => self.roots.known.encode(page, content),
            pages::KEYS => self.uniques.known.encode(page, content),
            pages::RESULTS => self.results.known.encode(page, content),
            _ => pages::encode_body(self.jobs.get(Slot(page.index())), content),
        }
    }

    /// Changes the state that belongs to no single item.
    pub(super) fn change_head(&mut self, seq: Seq, change: impl FnOnce(&mut Head)) {
        self.head.change(self.pages.by(seq), change);
        self.totals.draining = self.head.draining;
    }

    /// Adds a job. Also registers the root job and remembers the deduplication key, if the job requires this.
    pub(super) fn put(&mut self, slot: Slot, stamp: Stamp, put: &Put, new: &NewJob) {
        let queue = self.queue_for(&put.queue);
        let number = self.assign_number(queue, stamp.seq);
        self.skip_ids(stamp.seq, new.id);
        let delayed = new.until != Date(0);
        let is_plain = !delayed && put.delay_ms == 0 && new.dedup.is_none() && put.root.is_none();
        let is_plain = is_plain && put.items == 0;
        let details = (!is_plain).then(|| {
            Box::new(Details {
                since: stamp.at,
                until: Timestamp(new.until.0),
                delay_ms: put.delay_ms,
                dedup: new.dedup,
                root: put.root,
                items: put.items,
                ..Details::default()
            })
        });
        let job = Job {
            id: new.id,
            body: Some(put.body.clone()),
            created: stamp.at,
            ttr_ms: put.ttr_ms,
            previous: Slot::NONE,
            next: Slot::NONE,
            queue: number,
            priority: put.priority,
            phase: if delayed { Phase::Delayed } else { Phase::Ready },
            passing: new.passing,
            retries: new.retries,
            tube: put.tube,
            details,
        };
        self.touch_body(slot, pages::has_own_page(&put.body), stamp.seq);
        self.jobs.insert(self.pages.by(stamp.seq), slot, job);
        self.index_job(slot);
        self.queues[queue].total += 1;
        self.enter(slot);
        if let Some(root) = put.registers() {
            self.register(root, stamp);
        }
        if let (Some(key), Some(until)) = (new.dedup, new.unique_until) {
            let (queue, id) = (put.queue.clone(), new.id);
            let known = KnownKey { queue, key, id, until };
            self.uniques.remember(self.pages.by(stamp.seq), known);
        }
    }

    /// Forgets a remembered key.
    pub(super) fn forget_key(&mut self, slot: Slot, seq: Seq) {
        self.uniques.forget(self.pages.by(seq), slot);
    }

    /// Ensures that no later job gets this id or a lower one.
    pub(super) fn skip_ids(&mut self, seq: Seq, id: u64) {
        self.change_head(seq, |head| head.next_id = head.next_id.max(id + 1));
    }

    /// Marks the page of a body as about to change, if the body has a page of its own.
    fn touch_body(&mut self, slot: Slot, has_own_page: bool, seq: Seq) {
        if has_own_page {
            let jobs = &self.jobs;
            let encode = |content: &mut Vec<u8>| pages::encode_body(jobs.get(slot), content);
            self.pages.by(seq).touch(pages::body_page(slot), encode);
        }
    }

    /// Adds a new job to everything that does not depend on its phase: the digest of bodies, the totals and the index of
    /// ids.
    pub(super) fn index_job(&mut self, slot: Slot) {
        let job = &self.jobs[slot];
        job.canonical_body(&mut self.scratch);
        self.bodies.add(&self.scratch);
        self.totals.bytes += job.bytes();
        self.totals.added += 1;
        self.ids.insert(job.id, slot);
    }

    /// Remembers a root job, unless this or a newer root job is known.
    pub(super) fn register(&mut self, root: Root, stamp: Stamp) {
        if !self.roots.is_known(root) {
            let known = KnownRoot::new(root, stamp.at);
            self.roots.put(self.pages.by(stamp.seq), known);
        }
    }

    /// Forgets a root job.
    pub(super) fn forget_root(&mut self, slot: Slot, seq: Seq) {
        self.roots.remove(self.pages.by(seq), slot);
    }

    /// Stores the result of a job.
    pub(super) fn keep_result(
        &mut self,
        slot: Slot,
        stamp: Stamp,
        keep: (&KeepResult, Date, Date),
    ) {
        let job = &self.jobs[slot];
        let queue = self.queue_of(job).name.clone();
        let result = JobResult::of((job, queue), stamp.at, keep);
        self.results.keep(self.pages.by(stamp.seq), stamp, result);
    }

    /// Drops a result.
    pub(super) fn drop_result(&mut self, slot: Slot, seq: Seq) {
        self.results.remove(self.pages.by(seq), slot);
    }

    /// Removes a job, and its queue if nothing else keeps the queue in existence.
    pub(super) fn delete(&mut self, slot: Slot, seq: Seq) {
        self.leave(slot);
        self.touch_body(slot, pages::has_own_page(self.jobs[slot].body()), seq);
        let job = self.jobs.remove(self.pages.by(seq), slot);
        self.ids.remove(job.id);
        self.note_finished(job.id);
        job.canonical_body(&mut self.scratch);
        self.bodies.remove(&self.scratch);
        self.totals.bytes -= job.bytes();
        let queue = self.slot_of_queue(&job);
        self.queues[queue].deletes += 1;
        self.totals.deletes += 1;
        self.release_number(queue, seq);
    }

    /// Changes a job, and updates its page, the digest, the counts and every index.
    pub(super) fn change(&mut self, slot: Slot, seq: Seq, change: impl FnOnce(&mut Job)) {
        self.leave(slot);
        self.totals.bytes -= self.jobs[slot].bytes();
        self.jobs.change(self.pages.by(seq), slot, change);
        self.totals.bytes += self.jobs[slot].bytes();
        self.enter(slot);
    }

    /// Pauses a queue, or ends its pause.
    pub(super) fn pause(&mut self, name: &QueueName, stamp: Stamp, pause: Option<Pause>) {
        let queue = self.queue_for(name);
        if pause.is_some() {
            self.assign_number(queue, stamp.seq);
        }
        if let Some(number) = self.queues[queue].number {
            let change = self.pages.by(stamp.seq);
            self.numbers.change(change, number, |it| it.pause = pause);
            self.queues[queue].is_paused = pause.is_some();
        }
        self.update_offer(queue);
        self.release_number(queue, stamp.seq);
    }

    /// Handles a server start: jobs kept in memory only are removed, the time limits of claims and the waits for a retry
    /// restart, the claims of connections are given back, and new jobs are accepted again. Job ids that the previous
    /// process may have issued are skipped.
    pub(super) fn start(&mut self, start: Start) {
        let Start { stamp, skipped } = start;
        self.entry = stamp.seq;
        self.open(stamp.at);
        let ended: Vec<Slot> =
            self.jobs.iter().filter(|(_, job)| job.passing).map(|(slot, _)| slot).collect();
        for slot in ended {
            self.delete(slot, stamp.seq);
        }
        self.change_head(stamp.seq, |head| {
            (head.epoch, head.draining) = (stamp.at, false);
            head.next_id += skipped;
        });
        let bound: Vec<Slot> = self.workers.values().flatten().map(|(_, slot)| *slot).collect();
        self.workers.clear();
        self.jobs.restart_spans(stamp.at);
        for slot in &bound {
            if let Some(worker) = self.jobs[*slot].details().worker {
                let claim = (self.claimed_until(*slot).unwrap_or_default(), *slot);
                self.workers.entry(worker).or_default().insert(claim);
            }
        }
        for slot in bound {
            self.give_back(slot, stamp);
        }
        self.settle_turns();
    }

    /// Gives back a claim that ended without a result: the job becomes ready again, is abandoned if that was its last try
    /// or it was cancelled, or is removed if it runs at most once.
    pub(super) fn give_back(&mut self, slot: Slot, stamp: Stamp) {
        if !self.jobs[slot].retries {
            return self.delete(slot, stamp.seq);
        }
        if self.jobs[slot].details().prune != Date(0) {
            self.totals.abandoned += 1;
            self.note_finished(self.jobs[slot].id);
        }
        self.change(slot, stamp.seq, |job| {
            let details = job.details_mut();
            let prune = details.prune;
            end_claim(details, stamp.at);
            if prune == Date(0) {
                job.phase = Phase::Ready;
            } else {
                details.until = Timestamp(prune.0);
                job.phase = Phase::Abandoned;
            }
        });
    }

    /// Records that a job is over (removed, abandoned or quarantined), if a client is waiting for that.
    pub(super) fn note_finished(&mut self, id: u64) {
        if self.awaited.remove(&id) {
            self.over.push(id);
        }
    }

    /// Returns the slot of the queue with this name, creating the queue if necessary.
    pub(super) fn queue_for(&mut self, name: &QueueName) -> Slot {
        if let Some((slot, _)) = self.queue_named(name) {
            return slot;
        }
        let slot = self.queues.next_free();
        let tenant_position = self.join_tenant(name);
        let queue = Queue::new(name.clone(), self.rules.of(name), tenant_position);
        self.queues.insert(slot, queue);
        let (queues, names) = (&self.queues, &mut self.names);
        names.insert(name, slot, |other| queues[other].name.clone());
        self.totals.queues += 1;
        slot
    }

    /// Returns the number of a queue that is about to have jobs or be paused. Assigns a number if it has none.
    fn assign_number(&mut self, queue: Slot, seq: Seq) -> Slot {
        if let Some(number) = self.queues[queue].number {
            return number;
        }
        let number = self.numbers.next_free();
        let numbered = Numbered { name: self.queues[queue].name.clone(), pause: None, queue };
        self.numbers.insert(self.pages.by(seq), number, numbered);
        self.queues[queue].number = Some(number);
        number
    }

    /// Frees the number of a queue that has neither jobs nor a pause, and removes the queue if it has no other reason to exist.
    pub(super) fn release_number(&mut self, queue: Slot, seq: Seq) {
        if let Some(number) = self.queues[queue].number
            && !self.queues[queue].is_durable()
        {
            self.numbers.remove(self.pages.by(seq), number);
            self.queues[queue].number = None;
        }
        self.remove_if_unused(queue);
    }

    /// Removes the queue in a slot, if any, unless it has a reason to exist, see [`Queue::is_present`].
    pub(super) fn remove_if_unused(&mut self, queue: Slot) {
        if self.queues.get(queue).is_none_or(Queue::is_present) {
            return;
        }
        self.leave_tenant(queue);
        let gone = self.queues.remove(queue);
        assert!(self.names.remove(&gone.name, queue), "an existing queue is in the table of names");
        self.totals.queues -= 1;
    }

    /// Changes a queue, for example the counts of clients that use it.
    pub(super) fn change_queue(&mut self, queue: Slot, change: impl FnOnce(&mut Queue)) {
        change(&mut self.queues[queue]);
    }

    /// Adds a request that waits for a job of a queue if `waits` is true, and otherwise removes it.
    pub(super) fn await_job(&mut self, queue: Slot, ticket: Ticket, waits: bool) {
        let waiting = &mut self.queues[queue].waiting;
        if waits {
            waiting.insert(ticket);
        } else {
            waiting.remove(&ticket);
        }
        self.update_offer(queue);
    }
}

/// Clears the fields that belong to a claim. `at` is when the job's next phase begins.
pub(super) fn end_claim(details: &mut Details, at: Timestamp) {
    details.since = at;
    details.until = Timestamp(0);
    (details.worker, details.bound) = (None, None);
    details.token = crate::ids::Token(0);
    details.claimed = Timestamp(0);
    details.prune = Date(0);
}
