//! Durable queue state as pages, and back: ranges of jobs by slot, ranges of queues by number, long bodies one by one,
//! ranges of root jobs by slot, and what there is but once.
//!
//! Indexes are no part of a page: they are built again. Change rule: the layout is part of the on-disk format, see
//! `persist/format.rs`.

use crate::actors::queue::body::Body;
use crate::actors::queue::job::{Job, Phase, Story};
use crate::actors::queue::name::QueueName;
use crate::actors::queue::queue::{Pause, Queue};
use crate::actors::queue::roots::KnownRoot;
use crate::clock::Timestamp;
use crate::ids::{PageId, Slot};
use crate::lookup::slab::Slab;
use serde::{Deserialize, Serialize};

/// Jobs to a page, and queues. Few in tests, so that a small state has several.
const SLOTS: u32 = if cfg!(test) { 2 } else { 16 };

/// A body that is longer has a page of its own, which is written once and not with each change of its job.
const INLINE_BYTES_MAX: usize = 200;

/// Slots of jobs and numbers of queues stay below this, so that each has a page.
pub(super) const NUMBERS_MAX: u32 = 1 << KIND_SHIFT;

/// Where something durable is kept.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// With what there is but once.
    Head,
    /// On this page of jobs.
    Jobs(u32),
    /// On this page of queues.
    Queues(u32),
    /// On the page of the body of the job in this slot.
    Body(Slot),
    /// On this page of root jobs.
    Roots(u32),
}

/// The kinds of pages share their numbers: the two highest bits tell which it is.
const KIND_SHIFT: u32 = PageId::AREA_SHIFT;

impl Place {
    pub(super) const fn of_job(slot: Slot) -> Self {
        Self::Jobs(slot.0 / SLOTS)
    }

    pub(super) const fn of_queue(number: Slot) -> Self {
        Self::Queues(number.0 / SLOTS)
    }

    pub(super) const fn of_body(slot: Slot) -> Self {
        Self::Body(slot)
    }

    pub(super) const fn of_root(slot: Slot) -> Self {
        Self::Roots(slot.0 / SLOTS)
    }

    pub(super) const fn page(self) -> PageId {
        match self {
            Self::Head => PageId::HEAD,
            Self::Jobs(page) => PageId(page + 1),
            Self::Queues(page) => PageId(1 << KIND_SHIFT | page),
            Self::Body(slot) => PageId(2 << KIND_SHIFT | slot.0),
            Self::Roots(page) => PageId(3 << KIND_SHIFT | page),
        }
    }

    const fn of(page: PageId) -> Self {
        let rest = page.0 & ((1 << KIND_SHIFT) - 1);
        match (page.0 >> KIND_SHIFT, rest) {
            (0, 0) => Self::Head,
            (0, page) => Self::Jobs(page - 1),
            (1, page) => Self::Queues(page),
            (2, slot) => Self::Body(Slot(slot)),
            (_, page) => Self::Roots(page),
        }
    }
}

/// Whether a body has a page of its own.
pub(super) fn is_apart(body: &Body) -> bool {
    body.as_bytes().len() > INLINE_BYTES_MAX
}

/// A page, decoded.
#[derive(Debug)]
pub enum Page {
    /// What there is but once.
    Head(Head),
    /// Jobs by slot.
    Jobs(Vec<(Slot, KeptJob)>),
    /// Queues by number.
    Queues(Vec<(Slot, KeptQueue)>),
    /// The body of the job in a slot.
    Body(Slot, Body),
    /// Root jobs by slot.
    Roots(Vec<(Slot, KnownRoot)>),
}

/// What there is but once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// When spans began again last: the coordinator's newest start.
    pub(super) epoch: Timestamp,
    /// Whether new jobs are refused.
    pub(super) draining: bool,
    /// The number of the next job.
    pub(super) next_id: u64,
}

impl Default for Head {
    fn default() -> Self {
        Self {
            epoch: Timestamp(0),
            draining: false,
            next_id: 1,
        }
    }
}

impl Head {
    /// What the digest is made of.
    pub(super) fn canonical(self) -> [u8; 17] {
        let mut bytes = [u8::from(self.draining); 17];
        let (words, _) = bytes.split_at_mut(16);
        let (epoch, next) = words.split_at_mut(8);
        epoch.copy_from_slice(&self.epoch.0.to_le_bytes());
        next.copy_from_slice(&self.next_id.to_le_bytes());
        bytes
    }
}

/// A job as a page holds it.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeptJob {
    /// Slot within the page.
    place: u8,
    pub(super) id: u64,
    pub(super) created: Timestamp,
    pub(super) ttr_ms: u64,
    /// The number of its queue.
    pub(super) queue: Slot,
    pub(super) priority: u32,
    pub(super) phase: Phase,
    pub(super) passing: bool,
    pub(super) retries: bool,
    pub(super) story: Option<Box<Story>>,
    /// None, if it has a page of its own.
    pub(super) body: Option<Body>,
}

/// A queue as a page holds it.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeptQueue {
    /// Number within the page.
    place: u8,
    pub(super) name: QueueName,
    pub(super) pause: Option<Pause>,
}

/// What pages are made of, but for what there is once.
pub(super) type Slabs<'a> = (
    &'a Slab<Job>,
    &'a Slab<Queue>,
    &'a Slab<Slot>,
    &'a Slab<KnownRoot>,
);

/// Writes a page; nothing if it has no content.
pub(super) fn encode(
    page: PageId,
    head: Head,
    (jobs, queues, numbers, roots): Slabs<'_>,
    content: &mut Vec<u8>,
) {
    match Place::of(page) {
        Place::Head => write(&head, content),
        Place::Jobs(page) => {
            let kept: Vec<KeptJob> = places()
                .filter_map(|place| {
                    let job = jobs.get(Slot(page * SLOTS + u32::from(place)))?;
                    let queue = queues.get(job.queue).and_then(|queue| queue.number);
                    Some(KeptJob {
                        place,
                        id: job.id,
                        created: job.created,
                        ttr_ms: job.ttr_ms,
                        queue: queue.expect("a queue with jobs has a number"),
                        priority: job.priority,
                        phase: job.phase,
                        passing: job.passing,
                        retries: job.retries,
                        story: job.story.clone(),
                        body: (!is_apart(&job.body)).then(|| job.body.clone()),
                    })
                })
                .collect();
            write_some(&kept, content);
        }
        Place::Queues(page) => {
            let kept: Vec<KeptQueue> = places()
                .filter_map(|place| {
                    let slot = numbers.get(Slot(page * SLOTS + u32::from(place)))?;
                    let queue = queues.get(*slot)?;
                    Some(KeptQueue {
                        place,
                        name: queue.name.clone(),
                        pause: queue.pause,
                    })
                })
                .collect();
            write_some(&kept, content);
        }
        Place::Body(slot) => {
            let body = jobs.get(slot).map(|job| &job.body);
            if let Some(body) = body.filter(|body| is_apart(body)) {
                content.extend_from_slice(body.as_bytes());
            }
        }
        Place::Roots(page) => {
            let kept = places().filter_map(|place| {
                let root = roots.get(Slot(page * SLOTS + u32::from(place)))?;
                Some((place, *root))
            });
            write_some(&kept.collect::<Vec<(u8, KnownRoot)>>(), content);
        }
    }
}

fn places() -> impl Iterator<Item = u8> {
    0..u8::try_from(SLOTS).unwrap_or(u8::MAX)
}

fn write_some<T: Serialize>(kept: &[T], content: &mut Vec<u8>) {
    if !kept.is_empty() {
        write(&kept, content);
    }
}

fn write<T: Serialize>(kept: &T, content: &mut Vec<u8>) {
    rmp_serde::encode::write(content, kept).expect("writing to memory does not fail");
}

/// Reads a page.
pub(super) fn decode(page: PageId, content: &[u8]) -> Result<Page, String> {
    let slot_in = |page: u32, place: u8| {
        let inside = u32::from(place) < SLOTS;
        inside
            .then(|| Slot(page * SLOTS + u32::from(place)))
            .ok_or_else(|| format!("place {place} of a page is impossible"))
    };
    match Place::of(page) {
        Place::Head => Ok(Page::Head(read(content)?)),
        Place::Jobs(page) => {
            let kept: Vec<KeptJob> = read(content)?;
            let jobs = kept
                .into_iter()
                .map(|job| Ok((slot_in(page, job.place)?, job)));
            Ok(Page::Jobs(jobs.collect::<Result<_, String>>()?))
        }
        Place::Queues(page) => {
            let kept: Vec<KeptQueue> = read(content)?;
            let queues = kept
                .into_iter()
                .map(|queue| Ok((slot_in(page, queue.place)?, queue)));
            Ok(Page::Queues(queues.collect::<Result<_, String>>()?))
        }
        Place::Body(slot) => Ok(Page::Body(slot, Body::new(content))),
        Place::Roots(page) => {
            let kept: Vec<(u8, KnownRoot)> = read(content)?;
            let roots = kept
                .into_iter()
                .map(|(place, root)| Ok((slot_in(page, place)?, root)));
            Ok(Page::Roots(roots.collect::<Result<_, String>>()?))
        }
    }
}

fn read<'a, T: Deserialize<'a>>(content: &'a [u8]) -> Result<T, String> {
    rmp_serde::from_slice(content).map_err(|error| error.to_string())
}
