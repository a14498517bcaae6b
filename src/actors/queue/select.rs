//! Queries over all jobs, all queues, or all queues with claimable jobs. To build one reply, at most [`LOOKED_AT_MAX`]
//! items are examined, and the reply states where to continue, so that other requests are served in between. The jobs
//! of one process are found by an index, without that limit.

use crate::actors::queue::index::mix;
use crate::actors::queue::job::Job;
use crate::actors::queue::machine::QueueMachine;
use crate::actors::queue::message::Message;
use crate::actors::queue::phase::Counts;
use crate::actors::queue::reply::{Choice, JobSelection, Query, QueueSelection, Reply, Watch};
use crate::clock::Offset;
use crate::ids::Slot;
use crate::spine::machine::Request;

/// The maximum number of items examined for one answer.
pub(super) const LOOKED_AT_MAX: u32 = 8192;

/// The number of random picks that are tried before all queues are searched.
const TRIES: u64 = 32;

impl QueueMachine {
    /// Returns a page of at most `most` jobs that match the selection, in order of their slots, and the slot at which to
    /// continue (`None` after the last page).
    pub(super) fn select_jobs(&self, selection: &JobSelection, offset: Offset) -> Reply {
        let JobSelection { queue, kind, phases, error, process, from, most } = selection;
        let mut jobs = Vec::new();
        let next = None;
        let mut number = None;
        if let Some(name) = queue {
            let (_, found) = self.state.queue_named(name).unzip();
            let has_any = |counts: &Counts| phases.iter().any(|phase| counts.of(*phase) > 0);
            let found = found.filter(|it| phases.is_empty() || has_any(&it.counts));
            number = found.and_then(|queue| queue.number);
            if number.is_none() {
                return Reply::JobPage { jobs, next };
            }
        }
        let lets_through = |job: &&Job| {
            let is_of = |kind: &String| {
                let queue = self.state.queue_of(job);
                queue.name.kind() == kind.as_bytes()
            };
            let has = |text: &String| {
                let error = job.details().error.as_ref();
                error.is_some_and(|error| error.as_str().contains(text.as_str()))
            };
            number.is_none_or(|it| it == job.queue)
                && (phases.is_empty() || phases.contains(&job.phase))
                && kind.as_ref().is_none_or(is_of)
                && error.as_ref().is_none_or(has)
        };
        // The jobs of a process are indexed. Without a process, all jobs are searched, `LOOKED_AT_MAX` slots per query.
        let extent = self.state.jobs.extent();
        let end = match process {
            Some(_) => extent,
            None => from.0.saturating_add(LOOKED_AT_MAX).min(extent),
        };
        let bound = process.map(|process| self.state.of_process(process, *from));
        let bound = bound.into_iter().flatten();
        let all = (from.0..end).map(Slot).filter(|_| process.is_none());
        for slot in bound.chain(all) {
            if jobs.len() == *most as usize {
                let next = Some(slot);
                return Reply::JobPage { jobs, next };
            }
            let found = self.state.job(slot).filter(lets_through);
            jobs.extend(found.map(|job| self.job_view((slot, job), offset)));
        }
        let next = (end < extent).then_some(Slot(end));
        Reply::JobPage { jobs, next }
    }

    /// Returns a page of at most `most` queues that match the selection, in order of their slots, and the slot at which to
    /// continue (`None` after the last page).
    pub(super) fn select_queues(&self, selection: &QueueSelection, offset: Offset) -> Reply {
        let QueueSelection { tenant, kind, from, most } = selection;
        let is = |wanted: &Option<String>, found: &[u8]| {
            wanted.as_ref().is_none_or(|it| it.as_bytes() == found)
        };
        let extent = self.state.queues.extent();
        let end = from.0.saturating_add(LOOKED_AT_MAX).min(extent);
        let mut queues = Vec::new();
        for slot in (from.0..end).map(Slot) {
            if queues.len() == *most as usize {
                let next = Some(slot);
                return Reply::QueuePage { queues, next };
            }
            let found = self
                .state
                .queues
                .get(slot)
                .filter(|queue| is(tenant, queue.name.tenant()) && is(kind, queue.name.kind()));
            queues.extend(found.map(|queue| self.state.queue_view(queue, offset)));
        }
        let next = (end < extent).then_some(Slot(end));
        Reply::QueuePage { queues, next }
    }

    /// Returns the names of the queues in the [`LOOKED_AT_MAX`] slots from `from` on, and the slot at which to continue
    /// (`None` after the last slot).
    pub(super) fn names(&self, from: Slot) -> Reply {
        let extent = self.state.queues.extent();
        let end = from.0.saturating_add(LOOKED_AT_MAX).min(extent);
        let share = (from.0..end).filter_map(|slot| self.state.queues.get(Slot(slot)));
        Reply::Queues {
            names: share.map(|queue| queue.name.clone()).collect(),
            next: (end < extent).then_some(Slot(end)),
        }
    }

    /// Chooses a queue at random. Usually one of the first [`TRIES`] random picks matches, whatever the number of queues. If
    /// none does, all queues are searched for matches, [`LOOKED_AT_MAX`] per query.
    pub(super) fn choose(&self, choice: &Choice) -> Reply {
        let Choice { chance, kinds, from, among } = choice;
        let offered = &self.state.offered;
        let may = |slot: &&Slot| {
            let name = &self.state.queue(**slot).name;
            kinds.is_empty() || kinds.contains(name.kind())
        };
        let name = |slot: &Slot| self.state.queue(*slot).name.clone();
        let mut tries = (0..TRIES).filter(|_| *from == 0);
        let first = tries.find_map(|again| draw(offered, mix(chance ^ mix(again))).filter(may));
        if let Some(slot) = first {
            return Reply::Chosen { queue: Some(name(slot)), among: 1, next: None };
        }
        let share = offered.iter().skip(*from as usize);
        let share: Vec<&Slot> = share.take(LOOKED_AT_MAX as usize).filter(may).collect();
        let among = among.saturating_add(u32::try_from(share.len()).unwrap_or(u32::MAX));
        // Every matching queue is chosen with the same probability, whichever query examines it: the matches of this
        // query compete with all earlier matches.
        let place = mix(chance ^ u64::from(*from)).checked_rem(among.into());
        let place = place.and_then(|place| usize::try_from(place).ok());
        let chosen = place.and_then(|place| share.get(place));
        let looked_at = from.saturating_add(LOOKED_AT_MAX);
        Reply::Chosen {
            queue: chosen.map(|slot| name(slot)),
            among,
            next: Some(looked_at).filter(|it| (*it as usize) < offered.len()),
        }
    }

    /// Returns the cost of a request, as a number of ordinary commands. Finding a queue by name costs a sixteenth of a
    /// command, examining an item an eighth, watching a queue a quarter, adding a job of a batch a whole one, and statistics four, mostly
    /// for writing them down.
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other request counts as one command")]
    pub(super) fn cost_of(asked: &Request<'_, Self>) -> usize {
        match asked {
            Request::Message(Message::Pop(pop)) | Request::Watch(Watch::Job(pop)) => {
                1 + pop.queues.len() / 16
            }
            Request::Message(Message::Batch(jobs)) => 1 + jobs.len(),
            Request::Watch(Watch::Presence { watching, .. }) => 1 + watching.len() / 4,
            Request::Query(
                Query::Queues { .. }
                | Query::SelectJobs(_)
                | Query::SelectQueues(_)
                | Query::Busiest { .. }
                | Query::Next(_),
            ) => LOOKED_AT_MAX as usize / 8,
            Request::Query(Query::Totals | Query::Queue { .. } | Query::Job { .. }) => 4,
            _ => 1,
        }
    }
}

/// Returns the item that the random number `chance` selects; `None` if there are no items.
fn draw<T>(these: &[T], chance: u64) -> Option<&T> {
    let place = chance.checked_rem(these.len() as u64)?;
    these.get(usize::try_from(place).ok()?)
}
