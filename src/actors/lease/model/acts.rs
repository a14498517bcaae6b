//! The effects that processes and time have on the leases of the model.

use super::{Entry, Model};
use sexton::actors::binding::{Exit, Until};
use sexton::actors::lease::{Holder, NextRequest};
use sexton::clock::{Date, Timestamp};
use sexton::ids::{ProcessId, Slot, Token};

impl Model {
    /// Updates a lease after a process, or its tree, has ended. Returns whether the lease changed.
    pub(super) fn gone(
        &mut self,
        slot: Slot,
        (process, until, exit): (ProcessId, Until, Option<Exit>),
        entry: Entry,
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
                    Holder::Launched {
                        process,
                        command,
                        taken,
                    } if command.spec.parcel.is_some()
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
                        let whole = stopped || matches!(exit, Some(Exit::Code(_)));
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
        let max = known.lease.settings.max_run_ms;
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
        let today = entry.now.date();
        let due = known.due.unwrap_or_default();
        let schedule = known.lease.schedule.as_ref();
        known.due = schedule.and_then(|it| it.next(today));
        known.lease.due = known.due.map(|_| place);
        let since = |date: Date| today.0.checked_sub(date.0);
        let recent = schedule.and_then(|it| it.next(Date(today.0.saturating_sub(60_001))));
        let in_time = [Some(due), recent].into_iter().flatten();
        let in_time = in_time.filter_map(since).any(|since| since <= 60_000);
        if !known.lease.settings.disabled && (in_time || known.lease.settings.catches_up) {
            known.owe();
            known.share();
            (known.lease.command, known.lease.log) = (None, None);
        }
        known.stuck = false;
        true
    }
}
