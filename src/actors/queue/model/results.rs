//! The model of the results of jobs, implemented as a plain list.

use super::{Model, Moment};
use sexton::actors::queue::{JobResult, KeepResult, Message, Reply};
use sexton::clock::{Date, Timestamp};
use sexton::ids::{Seq, Slot};

/// A stored result.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) result: JobResult,
    seq: Seq,
    /// See `Entry::quarantined`.
    pub(crate) quarantined: bool,
}

impl Kept {
    fn bytes(&self) -> u64 {
        let error = self.result.end.error.as_ref();
        let error = error.map_or(0, |it| it.as_str().len());
        (200 + self.result.end.output.as_bytes().len() + error) as u64
    }
}

impl Model {
    pub(super) fn keep(
        &mut self,
        message: &Message,
        keep: &KeepResult,
        (seq, at): Moment,
    ) -> Reply {
        if let Some(refused) = self.refused(message, (keep.id, keep.by)) {
            return refused;
        }
        let date = self.date(at);
        let view = self.job(keep.id).expect("the job exists").view.clone();
        let new = Kept {
            result: JobResult {
                id: keep.id,
                queue: view.queue,
                end: keep.end.clone(),
                attempts: view.attempts,
                age_ms: at.0.saturating_sub(view.created.0),
                ended: Date(date.0),
                until: Date(date.plus_ms(keep.ms).0),
            },
            seq,
            quarantined: false,
        };
        let is_own = |kept: &Kept| kept.result.id == keep.id;
        loop {
            let others = || self.results.iter().flatten().filter(|it| !is_own(it));
            let bytes: u64 = others().map(Kept::bytes).sum();
            let rules = self.rules.across.results;
            let is_room = others().count() < rules.count_max as usize
                && bytes + new.bytes() <= rules.bytes_max;
            let Some(oldest) = others().map(|it| it.seq).min().filter(|_| !is_room) else {
                break;
            };
            for place in &mut self.results {
                place.take_if(|it| it.seq == oldest);
            }
        }
        let own = |place: &Option<Kept>| place.as_ref().is_some_and(is_own);
        let place = self.results.iter().position(own);
        let free = || self.results.iter().position(Option::is_none);
        match place.or_else(free) {
            Some(place) => self.results[place] = Some(new),
            None => self.results.push(Some(new)),
        }
        Reply::Done
    }

    /// Returns the reply to a query for the stored result of a job.
    pub(crate) fn result(&self, id: u64) -> Reply {
        let mut kept = self.results.iter().flatten();
        let kept = kept.find(|it| it.result.id == id);
        kept.map_or(Reply::Absent, |kept| Reply::Result(Box::new(kept.result.clone())))
    }

    /// Returns, for each result that is not quarantined, the time at which it is dropped, and its slot as a number and as a
    /// `Slot`. Returns no items while removals by time are held back.
    pub(super) fn forgotten(&self) -> impl Iterator<Item = (Timestamp, u32, Slot)> {
        let kept = (0..).zip(&self.results).filter_map(|(place, kept)| {
            let kept = kept.as_ref().filter(|it| !it.quarantined)?;
            let until = self.time(Timestamp(kept.result.until.0));
            Some((until, place, Slot(place)))
        });
        kept.filter(|_| !self.held)
    }
}
