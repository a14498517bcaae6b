//! The model of adding jobs and registering root jobs, implemented with plain lists.

use super::{Entry, Model};
use sexton::actors::queue::{
    Class, DedupKey, JobView, Phase, Put, QueueName, Refused, Reply, Root,
};
use sexton::clock::Timestamp;
use sexton::ids::{Seq, Slot};

impl Model {
    pub(super) fn is_one_too_many(&self, queue: &QueueName) -> bool {
        let lasting = self.queues().iter().filter(|it| self.lasts(it)).count();
        lasting >= self.rules.queues_max as usize && !self.lasts(queue)
    }

    pub(super) fn newest(&self, key: DedupKey) -> Option<u64> {
        let mut known = self.roots.iter().flatten();
        let known = known.find(|(root, _)| root.key == key);
        known.map(|(root, _)| root.at)
    }

    pub(super) fn register(&mut self, root: Root, at: Timestamp) -> Reply {
        if self.newest(root.key).is_some_and(|known| known >= root.at) {
            return Reply::Absent;
        } else if self.is_one_root_too_many(root) {
            return Reply::Refused(Refused::RootsFull);
        }
        let known = Some((root, at.plus_ms(2_419_200_000)));
        let same =
            |kept: &Option<(Root, Timestamp)>| kept.is_some_and(|(kept, _)| kept.key == root.key);
        let place = self.roots.iter().position(same);
        match place.or_else(|| self.roots.iter().position(Option::is_none)) {
            Some(place) => self.roots[place] = known,
            None => self.roots.push(known),
        }
        Reply::Done
    }

    fn is_one_root_too_many(&self, root: Root) -> bool {
        let known = self.roots.iter().flatten().count();
        known >= self.rules.roots_max as usize && self.newest(root.key).is_none()
    }

    /// Adds the jobs of a batch regardless of the limits, then checks the limits, and removes the jobs again if one is exceeded.
    pub(super) fn batch(&mut self, puts: &[Put], at: Timestamp) -> Reply {
        for put in puts {
            if put.body.as_bytes().len() > self.rules.body_bytes_max as usize {
                return Reply::Refused(Refused::TooBig);
            } else if self.draining {
                return Reply::Refused(Refused::Draining);
            } else if let Some(why) = self.rules_of(&put.queue).read_only.clone() {
                return Reply::ReadOnly(why);
            }
        }
        let before = (self.jobs.clone(), self.roots.clone(), self.next_id);
        let keys = self.keys.clone();
        let numbers = self.numbers.clone();
        let (rules, sums) = (self.rules.clone(), self.sums());
        (self.rules.jobs_max, self.rules.bytes_max) = (1000, u64::MAX);
        (self.rules.queues_max, self.rules.roots_max) = (1000, 1000);
        self.rules.across.keys_max = 1000;
        let same = |one: usize, other: usize| {
            let (one, other) = (&puts[one], &puts[other]);
            let key = self.key_of(one);
            key.is_some() && one.queue == other.queue && key == self.key_of(other)
        };
        let last = |place: usize| (place..puts.len()).rfind(|other| same(place, *other));
        let last: Vec<usize> = (0..puts.len()).map(|place| last(place).unwrap_or(place)).collect();
        let known = |put: &Put| self.remembered(&put.queue, self.key_of(put));
        let remembered: Vec<Option<u64>> = puts.iter().map(known).collect();
        let mut told = vec![(0, false); puts.len()];
        for (place, put) in puts.iter().enumerate() {
            // Of several jobs with the same key, the last is added, unless a duplicate already exists.
            let known = remembered.get(place).copied().flatten();
            if let Some(id) = known {
                told[place] = (id, false);
            } else if (last[place] == place || self.twin(put).is_some())
                && let Reply::Put { id, duplicate } = self.put(put, at)
            {
                told[place] = (id, duplicate.is_none());
                self.number();
            }
        }
        for place in 0..puts.len() {
            if told[place].0 == 0 {
                told[place] = (told[last[place]].0, false);
            }
        }
        self.rules = rules;
        let after = self.sums();
        let mut grown = [false; 5];
        for (grown, (after, before)) in grown.iter_mut().zip(after.iter().zip(sums)) {
            *grown = *after > before;
        }
        // If the byte limit is already exceeded, no job is added, not even a job with an empty body.
        grown[1] = grown[0];
        let limits = [
            (self.rules.jobs_max.into(), Refused::Full),
            (self.rules.bytes_max, Refused::Full),
            (self.rules.queues_max.into(), Refused::QueuesFull),
            (self.rules.roots_max.into(), Refused::RootsFull),
            (self.rules.across.keys_max.into(), Refused::KeysFull),
        ];
        for (((limit, refused), after), grown) in limits.iter().zip(after).zip(grown) {
            if after > *limit && grown {
                (self.jobs, self.roots, self.next_id) = before;
                (self.numbers, self.keys) = (numbers, keys);
                return Reply::Refused(*refused);
            }
        }
        Reply::Batch(told)
    }

    /// Returns the total size of all bodies, errors and progress reports, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let views = self.jobs.iter().map(|job| &job.view);
        let texts = views.clone().flat_map(|view| {
            let progress = view.progress.as_ref();
            [view.error.as_ref(), progress.and_then(|it| it.text.as_ref())]
        });
        let texts: usize = texts.flatten().map(|text| text.as_str().len()).sum();
        views.map(|view| view.bytes).sum::<u64>() + texts as u64
    }

    /// Returns, in this order: the number of jobs, their size in bytes, and the numbers of queues that have jobs or are
    /// paused, of root jobs and of remembered keys.
    fn sums(&self) -> [u64; 5] {
        let queues = self.queues();
        [
            self.jobs.len() as u64,
            self.bytes(),
            queues.iter().filter(|it| self.lasts(it)).count() as u64,
            self.roots.iter().flatten().count() as u64,
            self.keys.iter().flatten().count() as u64,
        ]
    }

    fn key_of(&self, put: &Put) -> Option<DedupKey> {
        let says = DedupKey::of(put.body.as_bytes());
        let by_body = self.rules_of(&put.queue).dedup || put.unique_for_ms > 0;
        put.dedup.or(by_body.then_some(says))
    }

    /// Returns the oldest ready, delayed or retrying job that a new job would duplicate; `None` if there is none.
    fn twin(&self, put: &Put) -> Option<&Entry> {
        let key = self.key_of(put)?;
        let jobs = self.jobs.iter().filter(|job| {
            let waits = [Phase::Ready, Phase::Delayed, Phase::Retrying].contains(&job.view.phase);
            waits && job.view.queue == put.queue && job.dedup == Some(key)
        });
        jobs.min_by_key(|job| job.view.id)
    }

    pub(super) fn put(&mut self, put: &Put, at: Timestamp) -> Reply {
        let bytes = put.body.as_bytes().len() as u64;
        let used = self.bytes();
        if bytes > self.rules.body_bytes_max.into() {
            return Reply::Refused(Refused::TooBig);
        } else if self.draining {
            return Reply::Refused(Refused::Draining);
        } else if let Some(why) = self.rules_of(&put.queue).read_only.clone() {
            return Reply::ReadOnly(why);
        } else if let Some(id) = self.remembered(&put.queue, self.key_of(put)) {
            let job = self.jobs.iter().find(|job| job.view.id == id);
            let phase = job.map(|job| job.view.phase);
            return Reply::Remembered { id, phase };
        } else if let Some(twin) = self.twin(put) {
            return Reply::Put { id: twin.view.id, duplicate: Some(twin.view.phase) };
        } else if self.jobs.len() >= self.rules.jobs_max as usize
            || used + bytes > self.rules.bytes_max
        {
            return Reply::Refused(Refused::Full);
        } else if self.is_one_too_many(&put.queue) {
            return Reply::Refused(Refused::QueuesFull);
        }
        let root = put.root.filter(|_| put.is_root);
        if root.is_some_and(|root| self.is_one_root_too_many(root)) {
            return Reply::Refused(Refused::RootsFull);
        } else if self.is_one_key_too_many(put) {
            return Reply::Refused(Refused::KeysFull);
        }
        let id = self.next_id;
        self.next_id += 1;
        let taken = |slot: &Slot| self.jobs.iter().any(|job| job.slot == *slot);
        let mut slots = (0..=self.rules.jobs_max).map(Slot);
        let slot = slots.find(|slot| !taken(slot)).expect("there are more slots than jobs");
        let entry = self.entry(put, (id, slot), at);
        self.jobs.push(entry);
        if let Some(root) = put.root.filter(|_| put.is_root) {
            self.register(root, at);
        }
        self.remember(put, (id, self.key_of(put)), at);
        Reply::Put { id, duplicate: None }
    }

    fn entry(&self, put: &Put, (id, slot): (u64, Slot), at: Timestamp) -> Entry {
        let delayed = put.delay_ms > 0;
        let bytes = put.body.as_bytes().len() as u64;
        let (rules, dedup) = (self.rules_of(&put.queue), self.key_of(put));
        Entry {
            slot,
            view: JobView {
                id,
                queue: put.queue.clone(),
                phase: if delayed { Phase::Delayed } else { Phase::Ready },
                priority: put.priority,
                created: at,
                claimed: None,
                until: delayed.then(|| self.date(at).plus_ms(put.delay_ms)),
                delay_ms: put.delay_ms,
                ttr_ms: put.ttr_ms,
                attempts: 0,
                reserves: 0,
                timeouts: 0,
                releases: 0,
                buries: 0,
                kicks: 0,
                token: None,
                retries: put.retries && rules.retries,
                passing: rules.class == Class::Memory,
                bytes,
                error: None,
                bound: None,
                fencing: false,
                cancelled: false,
                command: None,
                crashes: 0,
                progress: None,
            },
            worker: None,
            span: 0,
            last: None,
            buried: Seq(0),
            dedup,
            root: put.root,
            tube: put.tube,
            items: put.items,
            body: put.body.clone(),
            is_gone: false,
            quarantined: false,
        }
    }
}
