//! The effects that processes and time have on the leases of the model.

use super::{Entry, Model};
use sexton::actors::binding::{Exit, Until};
use sexton::actors::lease::{ClockReading, Holder, Missed, NextRequest};
use sexton::clock::{Date, Timestamp};
use sexton::ids::{ProcessId, Slot, Token};
use sexton::schedule::Schedule;

impl Model {
    /// Returns the leases that change when a process has ended: as many as change at once, first those that it was launched for.
    pub(super) fn ended_with(&self, process: ProcessId, until: Until) -> Vec<Slot> {
        let ends = |needed: Until| until == Until::Tree || needed == Until::Process;
        let mut ended = Vec::new();
        for known in &self.all {
            let current = known.lease.current.as_ref().filter(|it| it.end.is_none());
            match current.map(|it| &it.holder) {
                Some(Holder::Launched { process: its, .. })
                    if *its == process && ends(Until::Tree) =>
                {
                    ended.push((None, known.slot));
                }
                Some(Holder::Process(it)) if it.process == process && ends(it.until) => {
                    ended.push((Some(it.until), known.slot));
                }
                _ => {}
            }
            let next = known.lease.next.as_ref().and_then(|it| it.process);
            if let Some(it) = next.filter(|it| it.process == process && ends(it.until)) {
                ended.push((Some(it.until), known.slot));
            }
        }
        ended.sort_unstable();
        let mut slots = Vec::new();
        for (_, slot) in ended {
            if slots.len() < self.rules.part as usize && !slots.contains(&slot) {
                slots.push(slot);
            }
        }
        slots.sort_unstable();
        slots
    }

    /// Updates a lease after a process, or its tree, has ended. Returns whether the lease changed.
    pub(super) fn gone(
        &mut self,
        slot: Slot,
        (process, until, exit): (ProcessId, Until, Option<Exit>),
        (pid, entry): (Option<u32>, Entry),
    ) -> bool {
        let Some(known) = self.all.iter_mut().find(|it| it.slot == slot) else {
            return false;
        };
        let ends = |needed: Until| until == Until::Tree || needed == Until::Process;
        let next = known.lease.next.as_ref().and_then(|it| it.process);
        let leaves_place = next.is_some_and(|it| it.process == process && ends(it.until));
        let mut changed = leaves_place;
        let mut stays = true;
        if let Some(current) = known.lease.current.as_mut().filter(|it| it.end.is_none()) {
            let is_its = match &current.holder {
                Holder::Launched { process: its, .. } => *its == process && until == Until::Tree,
                Holder::Process(it) => it.process == process && ends(it.until),
                Holder::Timed { .. } | Holder::Nobody => false,
            };
            if is_its {
                changed = true;
                let stopped = current.stopping;
                match &mut current.holder {
                    Holder::Launched { process, command, taken }
                        if command.spec.parcel.is_some()
                            && exit == Some(Exit::Failed)
                            && !stopped =>
                    {
                        let mut bare = (**command).clone();
                        bare.spec.parcel = None;
                        *command = bare.into();
                        (*process, *taken) = (entry.process.unwrap_or_default(), false);
                    }
                    Holder::Launched { .. }
                    | Holder::Process(_)
                    | Holder::Timed { .. }
                    | Holder::Nobody => {
                        let code = matches!(exit, Some(Exit::Code(_)));
                        let whole = code || stopped && exit != Some(Exit::Failed);
                        if pid.is_some() || exit == Some(Exit::Lost) {
                            known.started(entry.now.at);
                        }
                        stays = known.end(entry.now.at, exit, whole);
                    }
                }
            }
        }
        if leaves_place {
            known.lease.next = None;
        }
        if changed {
            known.stuck = false;
        }
        self.all.retain(|it| stays || it.slot != slot);
        changed
    }

    /// Handles a deadline of a lease. Returns whether the lease changed.
    pub(super) fn lapse(&mut self, slot: Slot, entry: Entry) -> bool {
        let (now, epoch) = (entry.now.at, self.epoch);
        let Some(known) = self.all.iter_mut().find(|it| it.slot == slot) else {
            return false;
        };
        let lapsed =
            known.lease.next.as_ref().is_some_and(|place| {
                place.command.is_none() && !place.connected && place.until < now
            });
        if lapsed {
            known.lease.next = None;
            return true;
        }
        let max = known.max_run_ms();
        if let Some(current) = known.lease.current.as_mut().filter(|it| it.end.is_none()) {
            let lost = match current.holder {
                Holder::Timed { ttl_ms, renewed } => renewed.max(epoch).0 + ttl_ms <= now.0,
                Holder::Launched { .. } | Holder::Process(_) | Holder::Nobody => false,
            };
            if lost {
                let stays = known.end(now, None, false);
                self.all.retain(|it| stays || it.slot != slot);
            } else if max > 0 && !current.stopping && current.since.0 + max <= now.0 {
                current.stopping = true;
            } else {
                current.warnings += 1;
            }
            return true;
        }
        let place = known.lease.next.take().or_else(|| {
            let (command, period_ms) = known.spare()?;
            Some(NextRequest {
                token: Token(0),
                command: Some(command),
                process: None,
                pid: 0,
                period_ms,
                ttl_ms: 0,
                connected: false,
                until: Timestamp(0),
                shared: false,
                log: known.lease.log.clone(),
                max_run_ms: known.lease.extra.max_run_ms,
            })
        });
        match place {
            Some(place) => known.begin(entry, &place),
            None => return false,
        }
        true
    }

    /// Handles a date of a schedule. Returns whether the lease changed.
    pub(super) fn date(&mut self, place: Slot, entry: Entry) -> bool {
        let Some(known) = self.all.iter_mut().find(|it| it.lease.due == Some(place)) else {
            return false;
        };
        let (now, today) = (entry.now, entry.now.date());
        let hours = |count: u64| count * 3_600_000;
        let due = known.due.unwrap_or_default();
        let schedule = known.lease.schedule.as_ref();
        let next = schedule.and_then(|it| it.next(today));
        let read = known.clock.unwrap_or(ClockReading { offset: now.offset, seen: Date(0) });
        let was = Date(read.offset.date(now.at).0.max(read.seen.0));
        known.clock = Some(ClockReading { offset: now.offset, seen: today });
        if due > today {
            // The clock has stepped. A time of day that comes for the second time is left out, but a clock that was wrong by more than three
            // hours is not trusted about what has come.
            let is_repeated = was.0.saturating_sub(today.0) <= hours(3);
            let is_hourly = schedule.is_some_and(Schedule::is_hourly);
            if is_repeated && !is_hourly {
                known.clock =
                    Some(ClockReading { offset: now.offset, seen: Date(was.0.max(today.0)) });
            } else {
                known.due = next;
            }
        } else {
            known.due = next;
            let late = today.0 - due.0;
            let recent = schedule.and_then(|it| it.next(Date(today.0.saturating_sub(60_001))));
            let is_recent = late <= 60_000 || recent.is_some_and(|it| it <= today);
            let down = read.offset.time(due) < self.epoch;
            let comes = is_recent || !down && late <= hours(3);
            if known.lease.settings.disabled {
                // Nothing comes, and nothing is missed.
            } else if comes || known.lease.settings.catches_up {
                known.owe();
                known.share();
                (known.lease.command, known.lease.log) = (None, None);
                known.lease.extra.max_run_ms = None;
            } else {
                known.lease.extra.missed = Some(Missed { first: due, noticed: today, down });
            }
        }
        known.lease.due = known.due.map(|_| place);
        known.stuck = false;
        true
    }
}
