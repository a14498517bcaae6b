//! The pages that hold durable queue state. Jobs, root jobs, results and remembered keys are stored by slot, and queues by
//! number. Each long job body has a page of its own. The head, the closed queues and the turns of tenants have one page each.
//!
//! Change rule: the layout is part of the on-disk format, see `persist/format.rs`.

use crate::actors::queue::job::{Details, Job, nonzero};
use crate::actors::queue::message::is_not;
use crate::actors::queue::phase::stored;
use crate::actors::queue::queue::{Numbered, Pause, Queue};
use crate::actors::queue::results::KnownResult;
use crate::actors::queue::roots::KnownRoot;
use crate::actors::queue::turns::{StoredTurns, TURNS};
use crate::actors::queue::uniques::KnownKey;
use crate::bytes::Bytes as Body;
use crate::clock::{Deadline, Timestamp};
use crate::ids::{PageId, Slot};
use crate::lookup::durable::{self, DurableSlab, Item, Loaded, Single, Singleton};
use crate::lookup::slab::Slab;
use serde::{Deserialize, Serialize};
use sexton_api::queue::Phase;
use sexton_api::queue::QueueName;
use std::collections::BTreeSet;

/// The maximum length of a body that is stored with its job. A longer body has a page of its own, so that a change to the job does not
/// rewrite it.
const INLINE_BYTES_MAX: usize = 200;

/// The kind of the pages that hold one job body each; the index of such a page is the slot of its job. The kinds of items are
/// [`Item::KIND`]; [`CLOSED`] and [`TURNS`] have kinds of their own.
const BODIES: u8 = 2;

/// The kind of the pages that hold results.
pub(super) const RESULTS: u8 = <KnownResult as Item>::KIND;

/// The kind of the pages that hold remembered deduplication keys.
pub(super) const KEYS: u8 = <KnownKey as Item>::KIND;

/// The maximum number of job slots, so that each slot can have a page for its body.
pub(super) const SLOTS_MAX: u32 = PageId::len(BODIES);

/// Returns the page of the body of the job in this slot.
pub(super) const fn body_page(slot: Slot) -> PageId {
    PageId::new(BODIES, slot.0)
}

/// Returns whether a body has a page of its own.
pub(super) fn has_own_page(body: &Body) -> bool {
    body.as_bytes().len() > INLINE_BYTES_MAX
}

/// Writes the page of a body; writes nothing if there is no job, or if its body is stored with it.
pub(super) fn encode_body(job: Option<&Job>, content: &mut Vec<u8>) {
    if let Some(body) = job.map(Job::body).filter(|body| has_own_page(body)) {
        content.extend_from_slice(body.as_bytes());
    }
}

/// The page of the queues that are closed by their throttles.
pub(super) const CLOSED: PageId = PageId::new(4, 0);

/// The name of a closed queue, and the node time at which it opens, in microseconds since 1970.
pub(super) type Closed = (QueueName, u64);

/// Writes the page of closed queues.
pub(super) fn encode_closed(
    closings: &BTreeSet<(Timestamp, Slot)>,
    queues: &Slab<Queue>,
    content: &mut Vec<u8>,
) {
    let closed = closings.iter().filter_map(|(_, slot)| queues.get(*slot));
    let closed = closed.map(|queue| (&queue.name, queue.throttle.end_us()));
    durable::write(&closed.collect::<Vec<_>>(), content);
}

/// A decoded page.
#[derive(Debug)]
pub enum Page {
    /// The head: the state that belongs to no single item.
    Head(Head),
    /// A range of jobs, by slot.
    Jobs(Loaded<Job>),
    /// A range of queues, by number.
    Queues(Loaded<Numbered>),
    /// The body of the job in a slot.
    Body(Slot, Body),
    /// A range of root jobs, by slot.
    Roots(Loaded<KnownRoot>),
    /// The queues that are closed by their throttles, and when each opens.
    Closed(Vec<Closed>),
    /// The turns of tenants.
    Turns(StoredTurns),
    /// A range of results, by slot.
    Results(Loaded<KnownResult>),
    /// A range of remembered keys, by slot.
    Keys(Loaded<KnownKey>),
}

impl Page {
    /// Decodes the content of a page. Returns a description of the problem if the content is invalid.
    pub(super) fn decode(page: PageId, content: &[u8]) -> Result<Self, String> {
        match page.kind() {
            _ if page == PageId::HEAD => Singleton::decode(content).map(Self::Head),
            _ if page == CLOSED => durable::read(content).map(Self::Closed),
            _ if page == TURNS => durable::read(content).map(Self::Turns),
            Numbered::KIND => DurableSlab::decode(page, content).map(Self::Queues),
            BODIES => Ok(Self::Body(Slot(page.index()), Body::new(content))),
            KnownRoot::KIND => DurableSlab::decode(page, content).map(Self::Roots),
            RESULTS => DurableSlab::decode(page, content).map(Self::Results),
            KEYS => DurableSlab::decode(page, content).map(Self::Keys),
            _ => DurableSlab::decode(page, content).map(Self::Jobs),
        }
    }
}

/// The state that belongs to no single item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// When the server last started. The time limits of claims and the waits for a retry were restarted at that time.
    pub(super) epoch: Timestamp,
    /// Whether new jobs are refused.
    pub(super) draining: bool,
    /// The id of the next job.
    pub(super) next_id: u64,
}

impl Default for Head {
    fn default() -> Self {
        Self { epoch: Timestamp(0), draining: false, next_id: 1 }
    }
}

impl Single for Head {
    fn canonical(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.epoch.0.to_le_bytes());
        bytes.extend_from_slice(&self.next_id.to_le_bytes());
        bytes.push(self.draining.into());
    }
}

/// A job as stored in a page.
#[derive(Serialize, Deserialize)]
pub struct StoredJob {
    /// The offset of the job's slot from the first slot of the page.
    place: u8,
    id: u64,
    created: Timestamp,
    ttr_ms: u64,
    /// The number of its queue.
    queue: Slot,
    priority: u32,
    phase: Phase,
    passing: bool,
    retries: bool,
    details: Option<Box<Details>>,
    /// `None` if the body has a page of its own.
    body: Option<Body>,
    #[serde(default, skip_serializing_if = "is_not")]
    tube: bool,
}

impl Item for Job {
    const KIND: u8 = 0;
    const SLOTS: u32 = 16;

    type Stored<'a> = StoredJob;

    fn store(&self, place: u8) -> StoredJob {
        StoredJob {
            place,
            id: self.id,
            created: self.created,
            ttr_ms: self.ttr_ms,
            queue: self.queue,
            priority: self.priority,
            phase: stored(self.phase),
            passing: self.passing,
            retries: self.retries,
            details: self.details.clone(),
            body: Some(self.body().clone()).filter(|body| !has_own_page(body)),
            tube: self.tube,
        }
    }

    fn place(stored: &StoredJob) -> u8 {
        stored.place
    }

    fn restore(stored: StoredJob, _slot: Slot) -> Result<Self, String> {
        let token = stored.details.as_ref().and_then(|details| nonzero(details.token));
        let failed = stored.phase == Phase::Claimed && token.is_none();
        let phase = if failed { Phase::Retrying } else { stored.phase };
        Ok(Self {
            id: stored.id,
            body: stored.body,
            created: stored.created,
            ttr_ms: stored.ttr_ms,
            previous: Slot::NONE,
            next: Slot::NONE,
            queue: stored.queue,
            priority: stored.priority,
            phase,
            passing: stored.passing,
            retries: stored.retries,
            tube: stored.tube,
            details: stored.details,
        })
    }

    fn canonical(&self, _slot: Slot, bytes: &mut Vec<u8>) {
        self.canonical_numbers(bytes);
        if let Some(details) = &self.details {
            details.canonical(bytes);
        }
    }

    fn former_canonical(&self, _slot: Slot, bytes: &mut Vec<u8>) {
        self.canonical_numbers(bytes);
        if let Some(details) = &self.details {
            details.former_canonical(bytes);
        }
    }

    fn deadline(&self, epoch: Timestamp) -> Option<Deadline> {
        self.ends(epoch)
    }
}

impl Job {
    /// Appends all durable fields except the details and the body, which never changes and has a digest of its own.
    fn canonical_numbers(&self, bytes: &mut Vec<u8>) {
        for word in [self.id, self.created.0, self.ttr_ms] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.queue.0.to_le_bytes());
        bytes.extend_from_slice(&self.priority.to_le_bytes());
        bytes.extend_from_slice(&[
            stored(self.phase) as u8,
            self.passing.into(),
            u8::from(self.retries) | u8::from(self.tube) << 1,
        ]);
    }
}

/// A queue as stored in a page.
#[derive(Serialize, Deserialize)]
pub struct StoredQueue {
    /// The offset of the queue's number from the first number of the page.
    place: u8,
    name: QueueName,
    pause: Option<Pause>,
}

impl Item for Numbered {
    const KIND: u8 = 1;
    const SLOTS: u32 = 16;

    type Stored<'a> = StoredQueue;

    fn store(&self, place: u8) -> StoredQueue {
        StoredQueue { place, name: self.name.clone(), pause: self.pause }
    }

    fn place(stored: &StoredQueue) -> u8 {
        stored.place
    }

    fn restore(stored: StoredQueue, _number: Slot) -> Result<Self, String> {
        Ok(Self { name: stored.name, pause: stored.pause, queue: Slot::NONE })
    }

    fn canonical(&self, number: Slot, bytes: &mut Vec<u8>) {
        let pause = self.pause.unwrap_or_default();
        bytes.extend_from_slice(&number.0.to_le_bytes());
        bytes.extend_from_slice(&pause.since.0.to_le_bytes());
        bytes.extend_from_slice(&pause.until.0.to_le_bytes());
        bytes.extend_from_slice(self.name.as_bytes());
    }

    fn deadline(&self, _epoch: Timestamp) -> Option<Deadline> {
        self.pause.map(|pause| Deadline::Date(pause.until))
    }
}

impl Item for KnownRoot {
    const KIND: u8 = 3;
    const SLOTS: u32 = 16;

    type Stored<'a> = (u8, Self);

    fn store(&self, place: u8) -> (u8, Self) {
        (place, *self)
    }

    fn place((place, _): &(u8, Self)) -> u8 {
        *place
    }

    fn restore((_, known): (u8, Self), _slot: Slot) -> Result<Self, String> {
        Ok(known)
    }

    fn canonical(&self, slot: Slot, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.root.key.0);
        bytes.extend_from_slice(&slot.0.to_le_bytes());
        bytes.extend_from_slice(&self.root.at.to_le_bytes());
        bytes.extend_from_slice(&self.until.0.to_le_bytes());
    }

    fn deadline(&self, _epoch: Timestamp) -> Option<Deadline> {
        Some(Deadline::Time(self.until))
    }
}
