//! The consequences for a service when one of its processes ends. They are part of the entry that records the end.

use super::{Actions, Entry, Model, Modelled};
use sexton::actors::process::{Cause, Consequence, End, Last, Message, Phase, Policy, Verdict};
use sexton::clock::Timestamp;
use sexton::ids::{ProcessId, Slot};

/// The end of a process, and its consequences.
struct ProcessEnd {
    place: (Slot, usize),
    last: Last,
    then: Consequence,
}

impl Model {
    /// Applies a report from the port about a process. Returns whether it changes anything.
    pub(super) fn reported(
        &mut self,
        (id, message): (ProcessId, &Message),
        entry: Entry,
        actions: &mut Actions,
    ) -> bool {
        let follows = self.follows((id, message), entry);
        // If there is room, the entry that records the end also launches the next process. At that point, the ended process still counts
        // towards the limit on live processes.
        let launched = follows.as_ref().and_then(|it| self.added_at_once(it, entry));
        let silence = self.find(id).and_then(|it| it.silence(message, entry));
        if silence.is_some_and(|stop| self.stop_part(id, stop, actions)) {
            return true;
        }
        let it = self.find_mut(id);
        let it = it.filter(|it| it.view.phase != Phase::Exited && it.view.deferred.is_none());
        let (changed, contradicts) =
            it.map_or((false, false), |it| it.report(message, entry, actions));
        self.contradictions += u64::from(contradicts);
        if let Some(stop) = silence {
            self.stop_below((id, usize::MAX), stop, actions);
        }
        if let Some(follows) = follows {
            let place = follows.place;
            self.end_in(follows, entry.now.at);
            if let Some(id) = launched {
                self.launch_in(place, id, (entry.seq, actions));
            }
        }
        changed
    }

    fn follows(&self, (id, message): (ProcessId, &Message), entry: Entry) -> Option<ProcessEnd> {
        let mut places = self.services.iter().flat_map(|it| {
            let processes = it.processes();
            processes.map(|(nth, id)| (id, (it.slot, nth)))
        });
        let (_, place) = places.find(|(its, _)| *its == id)?;
        let mut it = self.find(id).filter(|it| it.view.phase != Phase::Exited)?.clone();
        it.report(message, entry, &mut Actions::new());
        if it.view.phase != Phase::Exited {
            return None;
        }
        let last = Last {
            process: id,
            at: it.view.ended.expect("it has ended"),
            end: it.view.end,
            failure: it.view.failure.clone(),
            stopped_by: it.view.stop.map(|stop| stop.cause),
        };
        let then = self.then(place, (&it, &last), entry.now.at);
        Some(ProcessEnd { place, last, then })
    }

    fn then(
        &self,
        (slot, nth): (Slot, usize),
        (it, last): (&Modelled, &Last),
        now: Timestamp,
    ) -> Consequence {
        let service = self.served(slot);
        if service.must_stop(nth) {
            return Consequence::Nothing;
        }
        let definition = &service.definition;
        let code = match last.end {
            Some(End::Code(code)) => Some(code),
            Some(End::Signal { signal, .. }) => Some(128 + signal),
            Some(End::Lost(_)) | None => None,
        };
        let had_to_be_stopped =
            matches!(last.stopped_by, Some(Cause::NotReady | Cause::Watchdog | Cause::Timeout));
        let is_well = code.is_some_and(|code| code == 0 || definition.success.contains(&code));
        let is_well = is_well && !had_to_be_stopped;
        match definition.restart {
            Policy::OnFailure | Policy::Never if is_well => {
                return Consequence::Never(Verdict::Finished);
            }
            Policy::Never => return Consequence::Never(Verdict::Failed),
            Policy::Always | Policy::OnFailure => {}
        }
        if last.end.is_some_and(End::ends_tree) {
            let (at, series, counts) = (now, 0, false);
            return Consequence::Again { at, series, counts };
        }
        let place = service.place(nth);
        if let Some(intensity) = definition.intensity {
            let restarts = place.restarts.iter();
            let recent = restarts.filter(|at| at.0 + intensity.period_ms >= now.0);
            if recent.count() >= intensity.restarts_max as usize {
                return Consequence::Never(Verdict::Failed);
            }
        }
        let started = it.view.started.unwrap_or(last.at);
        let is_long = last.at.0.saturating_sub(started.0) >= definition.backoff.max_ms.max(1);
        let before = if is_long { 0 } else { place.series };
        let mut wait_ms = 0;
        for nth in 0..before {
            let doubled = if nth == 0 { definition.backoff.first_ms } else { wait_ms * 2 };
            wait_ms = doubled.min(definition.backoff.max_ms);
        }
        Consequence::Again { at: now.plus_ms(wait_ms), series: before + 1, counts: true }
    }

    /// Adds the record of the next process, and returns its id; `None` if the launch must wait, or there is no room.
    fn added_at_once(&mut self, follows: &ProcessEnd, entry: Entry) -> Option<ProcessId> {
        let (slot, nth) = follows.place;
        let is_now = match follows.then {
            Consequence::Nothing => true,
            Consequence::Again { at, .. } => at <= entry.now.at,
            Consequence::Never(_) => false,
        };
        let service = self.served(slot);
        let is_up = service.is_up() && nth < service.size();
        if !is_now || !is_up || self.awaited(service).next().is_some() {
            return None;
        }
        let launching = service.launching(nth);
        self.add(&launching, None, entry).ok()
    }

    fn end_in(&mut self, ProcessEnd { place, last, then }: ProcessEnd, now: Timestamp) {
        let service = self.served_mut(place.0);
        let intensity = service.definition.intensity;
        let period_ms = intensity.map_or(0, |it| it.period_ms);
        let it = service.places.get_mut(place.1);
        let it = it.expect("the instance exists");
        (it.process, it.last) = (None, Some(last));
        it.restarts.retain(|at| at.0 + period_ms >= now.0);
        match then {
            Consequence::Nothing => {}
            Consequence::Never(verdict) => it.verdict = Some(verdict),
            Consequence::Again { at, series, counts } => {
                (it.next, it.series) = (Some(at), series);
                if counts && intensity.is_some() {
                    it.restarts.push(now);
                }
            }
        }
        service.fit();
    }
}
