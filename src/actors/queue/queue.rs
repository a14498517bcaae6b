//! A queue: its jobs by phase, and the clients that use it.

use crate::actors::queue::claimed::ClaimedList;
use crate::actors::queue::job::Job;
use crate::actors::queue::phase::Counts;
use crate::actors::queue::ready::Ready;
use crate::actors::queue::reply::QueueView;
use crate::actors::queue::rules::{Order, TypeRules};
use crate::actors::queue::throttle::Throttle;
use crate::actors::queue::turns::QueuePosition;
use crate::clock::{Date, Offset, Timestamp};
use crate::ids::{Seq, Slot, Ticket};
use crate::lookup::slab::Slab;
use serde::{Deserialize, Serialize};
use sexton_api::queue::Phase;
use sexton_api::queue::QueueName;
use std::collections::BTreeSet;

/// A queue. Its name and its pause are durable, and are stored under its number while it has jobs or is paused. All
/// other fields are rebuilt from jobs, rules and the pages of closed queues and turns, or are lost on a restart.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) name: QueueName,
    pub(super) order: Order,
    /// Its number, while it has jobs or is paused; otherwise `None`.
    pub(super) number: Option<Slot>,
    pub(super) ready: Ready,
    pub(super) delayed: BTreeSet<(Timestamp, u64, Slot)>,
    /// Buried jobs in the order of their burial, then abandoned jobs, the oldest first, see [`buried_key`].
    pub(super) buried: BTreeSet<(Seq, u64, Slot)>,
    /// Failed or deferred jobs that wait to be tried again, the oldest first.
    pub(super) retrying: BTreeSet<(u64, Slot)>,
    /// Quarantined jobs, the oldest first.
    pub(super) quarantined: BTreeSet<(u64, Slot)>,
    /// Claimed jobs.
    pub(super) held: ClaimedList,
    /// The number of claims that are bound to a process.
    pub(super) bound: u32,
    pub(super) counts: Counts,
    pub(super) is_paused: bool,
    pub(super) throttle: Throttle,
    /// The requests that wait for a job of this queue, the oldest first.
    pub(super) waiting: BTreeSet<Ticket>,
    pub(super) using: u32,
    pub(super) watching: u32,
    /// The number of `Watch::Standing` watches, which keep the queue in existence even if no client uses it.
    pub(super) kept_by: u32,
    pub(super) total: u64,
    pub(super) deletes: u64,
    pub(super) pauses: u64,
    /// Its index in `State::offered`; `None` if it is not in that list.
    pub(super) place: Option<u32>,
    /// Its tenant, and its position among the tenant's queues.
    pub(super) tenant_position: QueuePosition,
}

/// The durable part of a queue that has jobs or is paused, stored by number.
#[derive(Debug)]
pub struct Numbered {
    pub(super) name: QueueName,
    pub(super) pause: Option<Pause>,
    /// The queue's slot in `State::queues`; not stored.
    pub(super) queue: Slot,
}

/// A period in which no jobs can be claimed from a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pause {
    pub(super) since: Date,
    pub(super) until: Date,
}

/// The lower bound of the keys of abandoned jobs in `Queue::buried`. No buried job has this sequence number, since no journal entry has it.
pub(super) const ABANDONED: (Seq, u64, Slot) = (Seq(u64::MAX), 0, Slot(0));

/// Returns the key of a buried or abandoned job in `Queue::buried`.
pub(super) fn buried_key(phase: Phase, (buried, id, slot): (Seq, u64, Slot)) -> (Seq, u64, Slot) {
    if phase == Phase::Abandoned { (ABANDONED.0, id, slot) } else { (buried, id, slot) }
}

impl Queue {
    pub(super) fn new(name: QueueName, rules: &TypeRules, tenant_position: QueuePosition) -> Self {
        Self {
            name,
            order: rules.order,
            number: None,
            ready: Ready::default(),
            delayed: BTreeSet::new(),
            buried: BTreeSet::new(),
            retrying: BTreeSet::new(),
            quarantined: BTreeSet::new(),
            held: ClaimedList::default(),
            bound: 0,
            counts: Counts::default(),
            is_paused: false,
            throttle: Throttle::new(rules),
            waiting: BTreeSet::new(),
            using: 0,
            watching: 0,
            kept_by: 0,
            total: 0,
            deletes: 0,
            pauses: 0,
            place: None,
            tenant_position,
        }
    }

    /// Applies new rules from now on. The claiming order changes only if no job is ready, because ready jobs are sorted by it.
    pub(super) fn set_rules(&mut self, rules: &TypeRules) {
        self.throttle.set_rules(rules);
        if self.counts.ready == 0 {
            self.order = rules.order;
        }
    }

    /// Returns whether a job can be claimed from it.
    pub(super) const fn is_poppable(&self) -> bool {
        self.has_claimable() && !self.throttle.is_closed()
    }

    /// Returns whether a job can be claimed from it at `at`. Decisions use this instead of `is_poppable`, because the
    /// result does not depend on whether a queue whose closing has ended has already been marked as open.
    pub(super) fn is_poppable_at(&self, at: Timestamp) -> bool {
        self.has_claimable() && self.throttle.opens_at() <= at
    }

    /// Returns whether a job could be claimed from it if its throttle were open.
    pub(super) const fn has_claimable(&self) -> bool {
        self.counts.ready > 0 && !self.is_paused
    }

    /// Returns whether it has durable state, that is, jobs or a pause.
    pub(super) fn is_durable(&self) -> bool {
        self.counts.all() > 0 || self.is_paused
    }

    /// Returns whether it has a reason to exist. A closed queue is kept, since it would be open if it were created again.
    pub(super) fn is_present(&self) -> bool {
        let attended = self.using > 0 || self.watching > 0 || !self.waiting.is_empty();
        self.is_durable() || attended || self.kept_by > 0 || self.throttle.is_closed()
    }

    /// Returns the slots of all of its jobs, in ascending order.
    pub(super) fn slots(&self, jobs: &Slab<Job>) -> Vec<Slot> {
        let delayed = self.delayed.iter().map(|(_, _, slot)| *slot);
        let buried = self.buried.iter().map(|(_, _, slot)| *slot);
        let retrying = self.retrying.iter().chain(&self.quarantined);
        let retrying = retrying.map(|(_, slot)| *slot);
        let listed = delayed.chain(buried).chain(retrying);
        let linked = self.ready.iter(jobs).chain(self.held.iter(jobs));
        let mut slots: Vec<Slot> = listed.chain(linked).collect();
        slots.sort_unstable();
        slots
    }

    /// Returns a view of it. `pause` is the pause that is stored under its number; `None` if it is not paused.
    pub(super) fn view(&self, jobs: &Slab<Job>, pause: Option<Pause>, offset: Offset) -> QueueView {
        QueueView {
            name: self.name.clone(),
            jobs: self.counts,
            total: self.total,
            using: self.using,
            watching: self.watching,
            waiting: u32::try_from(self.waiting.len()).unwrap_or(u32::MAX),
            deletes: self.deletes,
            pauses: self.pauses,
            pause_ms: pause.map_or(0, |pause| pause.until.0.saturating_sub(pause.since.0)),
            paused_until: pause.map(|pause| offset.time(pause.until)),
            throttled_until: (self.throttle.is_closed()).then(|| self.throttle.opens_at()),
            oldest: self.ready.oldest(jobs),
        }
    }
}
