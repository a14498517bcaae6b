//! The rules for adding jobs, one by one or in batches, and for registering root jobs.

use crate::actors::queue::canonical::canonical;
use crate::actors::queue::decide::after;
use crate::actors::queue::machine::QueueMachine;
use crate::actors::queue::message::{DedupKey, Put, Root};
use crate::actors::queue::outcome::{NewJob, Outcome, Placed};
use crate::actors::queue::pages;
use crate::actors::queue::refused::Refused;
use crate::actors::queue::rules::{Class, TypeRules};
use crate::clock::Date;
use crate::spine::machine::Moment;
use sexton_api::queue::QueueName;
use std::collections::{BTreeSet, HashMap};

/// A job in a batch whose outcome is being decided.
struct PlannedJob<'a> {
    put: &'a Put,
    rules: &'a TypeRules,
    key: Option<DedupKey>,
    /// The id of the existing job that it duplicates, or of the job that was added under its remembered key; otherwise `None`.
    twin: Option<u64>,
    /// The index of the last job of the batch with the same key; its own index if it is that job or has no key.
    last: usize,
}

impl QueueMachine {
    pub(super) fn decide_put(&self, moment: &Moment, put: &Put) -> Outcome {
        let rules = self.state.rules.of(&put.queue);
        if let Err(refused) = self.check_put(moment, put, rules) {
            return Outcome::Refused(refused);
        }
        let key = key_of(put, rules);
        if let Some(id) = key.and_then(|key| self.state.uniques.of(&put.queue, key)) {
            return Outcome::Remembered { id };
        }
        if let Some(slot) = key.and_then(|key| self.state.twin(&put.queue, key)) {
            return Outcome::Duplicate { slot };
        }
        let bytes = put.body.as_bytes().len() as u64;
        let room = self.check_room(1, bytes);
        let room = room.and_then(|()| self.check_queue_limit([&put.queue]));
        let room = room.and_then(|()| self.check_root_limit(put.registers().map(|root| root.key)));
        match room.and_then(|()| self.check_key_limit(usize::from(put.unique_for_ms > 0))) {
            Ok(()) => Outcome::Put {
                slot: self.state.jobs.next_free(),
                job: new_job(moment.now.date(), (put, rules), (self.state.head.next_id, key)),
            },
            Err(refused) => Outcome::Refused(refused),
        }
    }

    /// Decides the outcome of a batch: all of its jobs that are not duplicates are added, or the batch is refused.
    pub(super) fn decide_batch(&self, moment: &Moment, puts: &[Put]) -> Outcome {
        let rules = |put: &Put| self.state.rules.of(&put.queue);
        let refused = |put: &Put| self.check_put(moment, put, rules(put)).err();
        if let Some(refused) = puts.iter().find_map(refused) {
            return Outcome::Refused(refused);
        }
        let plan = self.plan(puts);
        let counts =
            |place: usize, wish: &PlannedJob<'_>| wish.last == place && wish.twin.is_none();
        let new = || (0..).zip(&plan).filter(|(place, wish)| counts(*place, wish));
        let bytes = new().map(|(_, wish)| wish.put.body.as_bytes().len() as u64);
        let (count, bytes) = (new().count() as u64, bytes.sum());
        let queues: BTreeSet<&QueueName> = new().map(|(_, wish)| &wish.put.queue).collect();
        let roots = new().filter_map(|(_, wish)| Some(wish.put.registers()?.key));
        let roots: BTreeSet<DedupKey> = roots.collect();
        let room = self.check_room(count, bytes);
        let room = room.and_then(|()| self.check_queue_limit(queues));
        let keys = new().filter(|(_, wish)| wish.put.unique_for_ms > 0).count();
        let room = room.and_then(|()| self.check_root_limit(roots));
        if let Err(refused) = room.and_then(|()| self.check_key_limit(keys)) {
            return Outcome::Refused(refused);
        }
        let ids: HashMap<usize, u64> =
            new().map(|(place, _)| place).zip(self.state.head.next_id..).collect();
        let placed = (0..).zip(&plan).map(|(place, wish)| {
            let id = wish.twin.or_else(|| ids.get(&wish.last).copied());
            let id =
                id.expect("a job should be added by this batch, or duplicate a job that has an id");
            if counts(place, wish) {
                Placed::New(new_job(moment.now.date(), (wish.put, wish.rules), (id, wish.key)))
            } else {
                Placed::Twin(id)
            }
        });
        Outcome::Batch { placed: placed.collect() }
    }

    fn plan<'a>(&'a self, puts: &'a [Put]) -> Vec<PlannedJob<'a>> {
        let rules = |put: &Put| self.state.rules.of(&put.queue);
        let keys: Vec<Option<DedupKey>> = puts.iter().map(|put| key_of(put, rules(put))).collect();
        let keyed = || puts.iter().zip(&keys).map(|(put, key)| (&put.queue, *key));
        let last: HashMap<(&QueueName, Option<DedupKey>), usize> = keyed().zip(0..).collect();
        let wish = |(place, (put, key)): (usize, (&'a Put, &Option<DedupKey>))| {
            let known = key.and_then(|key| self.state.uniques.of(&put.queue, key));
            let twin = key.and_then(|key| self.state.twin(&put.queue, key));
            let last = key.and_then(|key| last.get(&(&put.queue, Some(key))));
            PlannedJob {
                put,
                rules: rules(put),
                key: *key,
                twin: known.or_else(|| Some(self.state.job(twin?)?.id)),
                last: last.copied().unwrap_or(place),
            }
        };
        (0..).zip(puts.iter().zip(&keys)).map(wish).collect()
    }

    /// Checks that this job may be added, or returns the reason for the refusal. Limits on totals are checked elsewhere.
    fn check_put(&self, moment: &Moment, put: &Put, rules: &TypeRules) -> Result<(), Refused> {
        if put.body.as_bytes().len() > self.state.rules.body_bytes_max as usize {
            return Err(Refused::TooBig);
        }
        if moment.draining.has_begun() || self.state.head.draining {
            return Err(Refused::Draining);
        }
        if rules.read_only.is_some() {
            return Err(Refused::ReadOnly);
        }
        Ok(())
    }

    /// Checks that there is room for `count` more jobs with `bytes` bytes in total. Adding no jobs is always allowed, even if the limit on
    /// bytes is already exceeded, which stored errors can cause.
    fn check_room(&self, count: u64, bytes: u64) -> Result<(), Refused> {
        if count == 0 {
            return Ok(());
        }
        let (totals, rules) = (&self.state.totals, &self.state.rules);
        let most = rules.jobs_max.min(pages::SLOTS_MAX);
        if u64::from(totals.jobs.all()) + count > most.into()
            || totals.bytes + bytes > rules.bytes_max
        {
            return Err(Refused::Full);
        }
        Ok(())
    }

    /// Checks that the limit on queues allows all of these queues to have jobs or be paused. No queue may be passed twice.
    pub(super) fn check_queue_limit<'a>(
        &self,
        queues: impl IntoIterator<Item = &'a QueueName>,
    ) -> Result<(), Refused> {
        let is_new = |queue: &&QueueName| {
            let queue = self.state.queue_named(queue);
            queue.is_none_or(|(_, queue)| queue.number.is_none())
        };
        let new = queues.into_iter().filter(is_new).count();
        let most = self.state.rules.queues_max.min(pages::SLOTS_MAX) as usize;
        if new > 0 && self.state.numbers.len() + new > most {
            return Err(Refused::QueuesFull);
        }
        Ok(())
    }

    pub(super) fn decide_register(&self, root: Root) -> Outcome {
        if self.state.roots.is_known(root) {
            return Outcome::Absent;
        }
        match self.check_root_limit([root.key]) {
            Ok(()) => Outcome::Registered { slot: self.state.roots.slot_of(root.key) },
            Err(refused) => Outcome::Refused(refused),
        }
    }

    /// Checks that there is room for root jobs with these keys. No key may be passed twice.
    fn check_root_limit(&self, keys: impl IntoIterator<Item = DedupKey>) -> Result<(), Refused> {
        let roots = &self.state.roots;
        let is_new = |key: &DedupKey| roots.newest(*key).is_none();
        let new = keys.into_iter().filter(is_new).count();
        let most = self.state.rules.roots_max.min(pages::SLOTS_MAX) as usize;
        if new > 0 && roots.known.len() + new > most {
            return Err(Refused::RootsFull);
        }
        Ok(())
    }

    /// Checks that there is room for `new` more remembered keys.
    fn check_key_limit(&self, new: usize) -> Result<(), Refused> {
        let most = self.state.rules.across.keys_max.min(pages::SLOTS_MAX) as usize;
        if new > 0 && self.state.uniques.known.len() + new > most {
            return Err(Refused::KeysFull);
        }
        Ok(())
    }
}

/// Returns the deduplication key of a job: the given one or, if its type deduplicates or the job must be unique for a
/// time, that of its canonical body. Otherwise returns `None`.
fn key_of(put: &Put, rules: &TypeRules) -> Option<DedupKey> {
    let form = || canonical(put.body.as_bytes(), &rules.dedup_ignore);
    let by_body = || (rules.dedup || put.unique_for_ms > 0).then(|| DedupKey::of(&form()));
    put.dedup.or_else(by_body)
}

fn new_job(
    date: Date,
    (put, rules): (&Put, &TypeRules),
    (id, dedup): (u64, Option<DedupKey>),
) -> NewJob {
    NewJob {
        id,
        until: after(date, put.delay_ms),
        passing: rules.class == Class::Memory,
        retries: put.retries && rules.retries,
        dedup,
        unique_until: (put.unique_for_ms > 0)
            .then(|| date.plus_ms(put.unique_for_ms.min(Put::UNIQUE_MS_MAX))),
    }
}
