//! One lease of the model.

use sexton::actors::binding::Exit;
use sexton::actors::lease::{
    ClockReading, Command, Current, End, Holder, Lease, LeaseView, NextRequest, PassRequest,
    Progress,
};
use sexton::actors::lock::Name;
use sexton::clock::{Date, Now, Timestamp};
use sexton::ids::{ProcessId, Seq, Slot, Token};

/// The journal entry of a message, with the process id that the model copies from the machine.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) seq: Seq,
    pub(crate) now: Now,
    /// The id of the process that the message launches, if it launches one.
    pub(crate) process: Option<ProcessId>,
}

/// A lease, with state that is not part of the view.
#[derive(Clone, Debug)]
pub(crate) struct ModelLease {
    pub(crate) slot: Slot,
    pub(crate) lease: Lease,
    pub(crate) due: Option<Date>,
    /// The clock by which `due` was determined.
    pub(crate) clock: Option<ClockReading>,
    /// Whether the lease's deadline is ignored until the lease changes, because handling it panicked.
    pub(super) stuck: bool,
    /// Whether the next date of the lease's schedule is ignored until the schedule is set again, because handling it panicked.
    pub(super) stuck_date: bool,
}

impl ModelLease {
    pub(super) fn new(slot: Slot, name: &Name) -> Self {
        let lease = Lease { name: name.clone(), ..Lease::default() };
        Self { slot, lease, due: None, clock: None, stuck: false, stuck_date: false }
    }

    pub(crate) fn view(&self) -> LeaseView {
        let lease = self.lease.clone();
        let wanted = lease.wanted > lease.whole && !lease.settings.disabled;
        let due = self.due;
        LeaseView { lease, due, wanted }
    }

    pub(super) fn runs(&self) -> bool {
        self.lease.current.as_ref().is_some_and(|it| it.end.is_none())
    }

    pub(super) fn owes(&self) -> bool {
        self.lease.wanted > self.lease.whole && !self.lease.settings.disabled
    }

    pub(super) fn spare(&self) -> Option<(Command, u64)> {
        let set = self.lease.settings.command.clone();
        let set = set.map(|it| (it, self.lease.settings.period_ms));
        self.lease.command.clone().or(set)
    }

    /// Returns the earliest deadline of the lease, if it has any.
    pub(super) fn acts_at(&self, epoch: Timestamp) -> Option<Timestamp> {
        let lease = &self.lease;
        let mut all = Vec::new();
        if let Some(current) = lease.current.as_ref().filter(|it| it.end.is_none()) {
            if let Holder::Timed { ttl_ms, renewed } = current.holder {
                all.push(renewed.max(epoch).0 + ttl_ms);
            }
            if self.max_run_ms() > 0 && !current.stopping {
                all.push(current.since.0 + self.max_run_ms());
            }
            all.push(current.until.0 + (30_000 << current.warnings.min(40)));
        } else if !lease.rests {
            let by_itself = match &lease.next {
                Some(place) => place.command.is_some() || place.connected,
                None => self.owes() && self.spare().is_some(),
            };
            if by_itself {
                all.push(lease.current.as_ref().map_or(0, |it| it.until.0 + 1));
            }
        }
        if let Some(place) = &lease.next
            && place.command.is_none()
            && !place.connected
        {
            all.push(place.until.0 + 1);
        }
        all.into_iter().min().map(Timestamp)
    }

    /// Records that another whole pass must follow the latest pass, and resets the count of consecutive passes that were not whole.
    pub(super) fn owe(&mut self) {
        self.lease.wanted = self.lease.begun + 1;
        self.lease.broken = 0;
    }

    /// Begins the pass of a request. If the pass turns out not to be whole, it is repeated, unless the request never waits (`impatient`).
    pub(super) fn begin_at_once(&mut self, asked: &PassRequest, entry: Entry, impatient: bool) {
        let place = self.place(asked, entry.seq.into(), entry.now.at);
        self.begin(entry, &place);
        if !impatient {
            self.lease.wanted = self.lease.begun;
            self.lease.broken = 0;
            self.keep(asked);
        }
    }

    /// Records that other requests rely on the next request's pass too. Does nothing if no request is next.
    pub(super) fn share(&mut self) {
        if let Some(place) = &mut self.lease.next {
            place.shared = true;
        }
    }

    pub(super) fn keep(&mut self, asked: &PassRequest) {
        if asked.claim.is_none()
            && let Some(command) = self.brought(asked)
        {
            let mut bare = (*command).clone();
            bare.spec.parcel = None;
            let period = asked.period_ms.unwrap_or(self.lease.settings.period_ms);
            self.lease.command = Some((bare.into(), period));
            self.lease.log.clone_from(&asked.log);
            self.lease.extra.max_run_ms = asked.max_run_ms;
        }
    }

    pub(super) fn brought(&self, asked: &PassRequest) -> Option<Command> {
        asked.command.clone().or_else(|| self.lease.settings.command.clone())
    }

    pub(super) fn give_up(&mut self) {
        self.lease.wanted = self.lease.wanted.min(self.enough());
        self.lease.broken = 0;
    }

    /// Returns the number of the latest pass that needs no repetition: the running one or, if there is none, the latest whole one.
    pub(super) fn enough(&self) -> u64 {
        if self.runs() { self.lease.begun } else { self.lease.whole }
    }

    pub(super) fn place(&self, asked: &PassRequest, token: Token, until: Timestamp) -> NextRequest {
        let claim = asked.claim.unwrap_or_default();
        NextRequest {
            token,
            command: self.brought(asked).filter(|_| asked.claim.is_none()),
            process: claim.process,
            pid: claim.pid,
            period_ms: asked.period_ms.unwrap_or(self.lease.settings.period_ms),
            ttl_ms: claim.ttl_ms,
            connected: claim.waits,
            until,
            shared: false,
            log: asked.log.clone(),
            max_run_ms: asked.max_run_ms,
        }
    }

    pub(super) fn begin(&mut self, entry: Entry, place: &NextRequest) {
        let since = entry.now.at;
        let holder = match (&place.command, place.process) {
            (Some(command), _) => Holder::Launched {
                process: entry.process.unwrap_or_default(),
                command: Command::clone(command),
                taken: false,
            },
            (None, Some(binding)) => Holder::Process(binding),
            (None, None) => Holder::Timed { ttl_ms: place.ttl_ms, renewed: since },
        };
        self.lease.begun += 1;
        self.lease.next = None;
        self.lease.current = Some(Current {
            token: entry.seq.into(),
            place: place.token,
            holder,
            pid: place.pid,
            since,
            until: since.plus_ms(place.period_ms),
            end: None,
            stopping: false,
            warnings: 0,
            log: place.log.clone().or(self.lease.settings.log.clone()),
            progress: Progress { started: false, max_run_ms: place.max_run_ms },
        });
    }

    /// Returns the time limit of the running pass, or 0 if it has none.
    pub(super) fn max_run_ms(&self) -> u64 {
        let own = self.lease.current.as_ref();
        let own = own.and_then(|it| it.progress.max_run_ms);
        own.unwrap_or(self.lease.settings.max_run_ms)
    }

    /// Moves the beginning of a launched pass, and with it its period, to the time at which its process started. Returns whether anything
    /// changed.
    pub(super) fn started(&mut self, now: Timestamp) -> bool {
        let current = self.lease.current.as_mut();
        let is_new = |it: &&mut Current| {
            matches!(it.holder, Holder::Launched { .. }) && !it.progress.started
        };
        let Some(current) = current.filter(is_new) else {
            return false;
        };
        let until = Timestamp(now.0 + (current.until.0 - current.since.0));
        (current.since, current.until) = (now, until);
        current.progress.started = true;
        if let Some(place) = &mut self.lease.next {
            place.until = Timestamp(place.until.0.max(until.0 + place.period_ms));
        }
        true
    }

    /// Ends the running pass. Returns whether the lease remains: `false` means that it was to be deleted after this pass, which the caller
    /// must do.
    pub(super) fn end(&mut self, at: Timestamp, exit: Option<Exit>, whole: bool) -> bool {
        if let Some(current) = &mut self.lease.current {
            current.end = Some(End { at, exit, whole });
        }
        if self.lease.leaves {
            return false;
        }
        if whole {
            self.lease.whole = self.lease.begun;
            self.lease.broken = 0;
        } else {
            let owed = self.owes();
            self.lease.broken += 1;
            if owed && self.lease.broken >= 25 {
                self.give_up();
            } else if self.lease.wanted.min(self.lease.begun) > self.lease.whole {
                self.share();
            }
        }
        true
    }
}
