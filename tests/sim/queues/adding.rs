//! What becomes of jobs that are added, one or many, and of root jobs.

use crate::queues::kinds::{is_in_memory, key_of, rules_of};
use crate::queues::list::{Job, Queues, free};
use sexton::actors::queue::{JobView, Phase, Put, Refused, Reply, Root};
use sexton::clock::Timestamp;
use sexton::ids::Seq;

/// How long a root job is remembered.
const REMEMBERED_MS: u64 = 28 * 24 * 3_600_000;
impl Queues {
    pub(super) fn register(&mut self, root: Root, at: Timestamp) -> Reply {
        let known = self.roots.iter().find(|(_, (it, _))| it.key == root.key);
        let slot = match known {
            Some((_, (known, _))) if known.at >= root.at => return Reply::Absent,
            Some((slot, _)) => *slot,
            None => free(&self.roots),
        };
        let until = at.plus_ms(REMEMBERED_MS);
        self.roots.insert(slot, (root, until));
        Reply::Done
    }

    pub(super) fn twin(&self, put: &Put) -> Option<&Job> {
        let key = key_of(put)?;
        let same = |job: &&Job| {
            job.is_unclaimed() && job.view.queue == put.queue && job.dedup == Some(key)
        };
        self.jobs
            .values()
            .filter(same)
            .min_by_key(|job| job.view.id)
    }

    pub(super) fn put(&mut self, put: &Put, at: Timestamp) -> u64 {
        self.last_id += 1;
        let (id, rules) = (self.last_id, rules_of(&put.queue));
        let delayed = put.delay_ms > 0;
        let view = JobView {
            id,
            queue: put.queue.clone(),
            phase: if delayed {
                Phase::Delayed
            } else {
                Phase::Ready
            },
            priority: put.priority,
            created: at,
            until: delayed.then(|| at.plus_ms(put.delay_ms)),
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
            passing: is_in_memory(&put.queue),
            bytes: put.body.as_bytes().len() as u64,
        };
        let job = Job {
            view,
            body: put.body.clone(),
            worker: None,
            span: 0,
            last: None,
            buried: Seq(0),
            dedup: key_of(put),
            root: put.root,
            quarantined: false,
        };
        self.jobs.insert(free(&self.jobs), job);
        self.seen.insert(id);
        if let Some(root) = put.registers() {
            self.register(root, at);
        }
        id
    }

    pub(super) fn put_one(&mut self, put: &Put, at: Timestamp) -> Reply {
        if self.draining {
            return Reply::Refused(Refused::Draining);
        }
        if let Some(twin) = self.twin(put) {
            return Reply::Put {
                id: twin.view.id,
                duplicate: Some(twin.view.phase),
            };
        }
        if self.is_full(1) {
            return Reply::Refused(Refused::Full);
        }
        Reply::Put {
            id: self.put(put, at),
            duplicate: None,
        }
    }

    /// All of them, or none; of those that are one with each other the last counts.
    pub(super) fn put_all(&mut self, puts: &[Put], at: Timestamp) -> Reply {
        if self.draining && !puts.is_empty() {
            return Reply::Refused(Refused::Draining);
        }
        let name = |put: &Put| key_of(put).map(|key| (put.queue.clone(), key));
        let last = |place: usize, put: &Put| {
            let mut rest = puts.iter().skip(place + 1);
            name(put).is_none() || rest.all(|other| name(other) != name(put))
        };
        let twins: Vec<Option<u64>> = puts
            .iter()
            .map(|put| self.twin(put).map(|twin| twin.view.id))
            .collect();
        let is_new: Vec<bool> = (0..)
            .zip(puts.iter().zip(&twins))
            .map(|(place, (put, twin))| twin.is_none() && last(place, put))
            .collect();
        if self.is_full(is_new.iter().filter(|new| **new).count()) && is_new.contains(&true) {
            return Reply::Refused(Refused::Full);
        }
        let ids: Vec<Option<u64>> = puts
            .iter()
            .zip(&is_new)
            .map(|(put, new)| new.then(|| self.put(put, at)))
            .collect();
        let one = |put: &Put| {
            let mut all = puts.iter().zip(&ids);
            all.find_map(|(other, id)| id.filter(|_| name(other) == name(put)))
        };
        let told = puts.iter().zip(&ids).zip(&twins);
        let told = told.map(|((put, id), twin)| match (id, twin) {
            (Some(id), _) => (*id, true),
            (None, Some(twin)) => (*twin, false),
            (None, None) => (one(put).unwrap_or_default(), false),
        });
        Reply::Batch(told.collect())
    }
}
