//! The lease rules. They follow, step by step (A to D), the part of Fossil's `backoffice.c` that decides which of the requesting processes
//! runs. `docs/leases.md` describes the differences.

use crate::actors::binding::{EndNotice, Exit, Until};
use crate::actors::lease::item::{
    ClockReading, Command, Current, Due, Holder, Lease, Missed, NextRequest, Setting, Settings,
};
use crate::actors::lease::machine::LeaseMachine;
use crate::actors::lease::message::{Claim, Imported, Message, PassRequest};
use crate::actors::lease::outcome::{Outcome, Refused, Source, Step, Turn};
use crate::actors::lock::Name;
use crate::clock::{Date, Now, Timestamp};
use crate::ids::{ProcessId, Slot, Token};
use crate::schedule::Schedule;
use crate::spine::machine::Moment;
use std::collections::BTreeSet;

/// How late a date may be noticed without counting as missed, in milliseconds.
const LATE_MS: u64 = 60_000;

/// How far, in milliseconds, the wall clock may pass over dates that then come late, or show dates again that do not come again. As in
/// Debian's cron, a larger step is taken as a correction of a wrong clock.
const PASSED_OVER_MS: u64 = 3 * 3_600_000;

/// The slot of an existing or new lease, the lease if it exists, and the steps that create it.
type LeaseSlot<'l> = (Slot, Option<&'l Lease>, Vec<(Slot, Step)>);

impl LeaseMachine {
    pub(super) fn decision(&self, moment: &Moment, message: &Message) -> Outcome {
        let decided = match message {
            Message::Request(requesting) => self.request(moment, requesting),
            Message::Renew { name, token, .. } => {
                self.of_client(name, *token).map(|slot| changed(slot, Step::Renewed))
            }
            Message::Finish { name, token, code } => self.of_client(name, *token).map(|slot| {
                let exit = Some(Exit::Code(*code));
                changed_all(self.ended(slot, exit, true))
            }),
            Message::Withdraw { name, place } => Ok(self.withdraw(name, *place)),
            Message::Set { name, setting } => self.set(moment, name, setting),
            Message::Import { name, current, next } => self.import(moment, name, (*current, *next)),
            Message::Reset { name, force } => self.reset(name, *force),
            Message::Gone(gone) => Ok(self.gone(moment, *gone)),
            Message::Launched(process) => Ok(self.launched(*process)),
            Message::Started(process) => Ok(self.started(moment, *process)),
            Message::Lapse { slot } => Ok(self.lapse(moment, *slot)),
            Message::Due { slot } => Ok(self.due_date(moment, *slot)),
        };
        decided.unwrap_or_else(Outcome::Refused)
    }

    /// Finds a lease or, if none has this name, a slot for a new one. Refuses an empty name, and refuses a new lease if the maximum number
    /// exists already.
    fn place_of(&self, name: &Name) -> Result<LeaseSlot<'_>, Refused> {
        if name.as_bytes().is_empty() {
            return Err(Refused::NoName);
        }
        if let Some((slot, lease)) = self.state.find(name) {
            return Ok((slot, Some(lease), Vec::new()));
        }
        if self.state.leases.len() >= self.rules.leases_max as usize {
            return Err(Refused::Full);
        }
        self.check_bytes(name.as_bytes().len() as u64)?;
        let slot = self.state.leases.next_free();
        Ok((slot, None, vec![(slot, Step::Made)]))
    }

    /// Refuses texts of this size if they would exceed the limit for all leases.
    const fn check_bytes(&self, more: u64) -> Result<(), Refused> {
        if self.state.bytes().saturating_add(more) > self.rules.bytes_max {
            return Err(Refused::Full);
        }
        Ok(())
    }

    fn request(&self, moment: &Moment, requesting: &PassRequest) -> Result<Outcome, Refused> {
        let now = moment.now.at;
        check_request(requesting)?;
        let command = requesting.command.as_ref().map_or(0, |it| it.bytes());
        let log = requesting.log.as_ref().map_or(0, String::len);
        if command > 0 || log > 0 {
            self.check_bytes(command.saturating_add(log as u64))?;
        }
        let (slot, lease, mut steps) = self.place_of(&requesting.name)?;
        let fresh = Lease::default();
        let lease = lease.unwrap_or(&fresh);
        if lease.settings.disabled {
            return Err(Refused::Disabled);
        }
        if requesting.command_for(lease).is_none() && requesting.claim.is_none() {
            return Err(Refused::NoCommand);
        }
        if moment.draining.has_begun() {
            return Err(Refused::Draining);
        }
        let period_ms = requesting.period_ms.unwrap_or(lease.settings.period_ms);
        let no_delay = requesting.no_delay || lease.settings.no_delay;
        let is_own = |place: &&NextRequest| !requesting.is(place);
        if let Some(other) = lease.next.as_ref().filter(|it| it.is_live(now)).filter(is_own) {
            // A. Another request is next, and its pass will serve this request too. If that request has no command, its client is to run
            // the pass itself and may die first; no pass would follow then, so the command of this request is kept.
            if other.command.is_some() || requesting.claim.is_some() || no_delay {
                let turn = Turn::NotNeeded;
                if other.command.is_some() && !no_delay && !other.shared {
                    steps.push((slot, Step::Shared));
                    return Ok(turn_outcome(steps, turn));
                }
                return Ok(Outcome::Turned { slot, turn });
            }
            steps.push((slot, Step::Owed(Source::Request)));
            return Ok(turn_outcome(steps, Turn::Kept));
        }
        let is_over = lease.free_at() <= now;
        if is_over && lease.running().is_none() {
            // B. No pass is running, and the period of the last one is over: the pass begins.
            let process = requesting.claim.is_none().then(|| moment.process_id(0));
            steps.push((
                slot,
                Step::Began {
                    source: Source::Request,
                    process,
                    until: now.plus_ms(period_ms),
                    owed: !no_delay,
                },
            ));
            return Ok(turn_outcome(steps, Turn::Current));
        }
        if no_delay {
            // C. The pass would have to wait, and the request does not permit that.
            let turn = Turn::NoDelay;
            return Ok(Outcome::Turned { slot, turn });
        }
        // D. The request becomes next, or stays next if the client is repeating it.
        let until = lease.until().max(now).plus_ms(period_ms);
        let returns = lease.next.as_ref().is_some_and(|place| requesting.is(place));
        let step = if returns { Step::Returned { until } } else { Step::Placed { until } };
        steps.push((slot, step));
        Ok(turn_outcome(steps, Turn::Next))
    }

    /// Returns the slot of the lease if its running pass has this token and is run by a client itself. Otherwise, refuses the token as
    /// stale.
    fn of_client(&self, name: &Name, token: Token) -> Result<Slot, Refused> {
        let found = self.state.find(name);
        let (slot, lease) = found.ok_or(Refused::StaleToken)?;
        let current = lease.running().filter(|it| it.token == token);
        if current.is_some_and(Current::is_run_by_client) {
            Ok(slot)
        } else {
            Err(Refused::StaleToken)
        }
    }

    /// Returns the steps that end the running pass of a lease, and those that follow from its end.
    fn ended(&self, slot: Slot, exit: Option<Exit>, whole: bool) -> Vec<(Slot, Step)> {
        let mut steps = vec![(slot, Step::Ended { exit, whole })];
        let Some(lease) = self.state.leases.get(slot) else {
            return Vec::new();
        };
        if lease.leaves {
            steps.push((slot, Step::Forgotten));
        } else if !whole && lease.broken + 1 >= Lease::BROKEN_MAX && lease.is_owed() {
            steps.push((slot, Step::GaveUp));
        } else if !whole && lease.is_inherited() {
            steps.push((slot, Step::Shared));
        }
        steps
    }

    fn withdraw(&self, name: &Name, token: Token) -> Outcome {
        let found = self.state.find(name);
        let is_its = |(_, lease): &(Slot, &Lease)| {
            let place = lease.next.as_ref();
            place.is_some_and(|it| it.token == token)
        };
        if let Some((slot, lease)) = found.filter(is_its) {
            let is_shared = lease.next.as_ref().is_some_and(|it| it.shared);
            let gives_up = (!is_shared).then_some((slot, Step::GaveUp));
            let steps = [(slot, Step::Left)].into_iter().chain(gives_up);
            return changed_all(steps.collect());
        }
        // The pass may have begun in the meantime. If the client was to run it itself, nobody will now, so it ends.
        let is_unheard = |it: &Current| it.place == token && it.is_run_by_client();
        let runs = found.filter(|(_, lease)| lease.running().is_some_and(is_unheard));
        match runs {
            Some((slot, _)) => changed_all(self.ended(slot, None, false)),
            None => Outcome::Absent,
        }
    }

    fn set(&self, moment: &Moment, name: &Name, setting: &Setting) -> Result<Outcome, Refused> {
        let (slot, lease, mut steps) = self.place_of(name)?;
        let fresh = Lease::default();
        let lease = lease.unwrap_or(&fresh);
        steps.push((slot, Step::Set(setting.clone())));
        match setting {
            Setting::Period(span) if !(1..=Settings::SPAN_MS_MAX).contains(span) => {
                return Err(Refused::Span);
            }
            Setting::MaxRun(span) if *span > Settings::SPAN_MS_MAX => return Err(Refused::Span),
            Setting::Log(Some(log)) => {
                check_log(log)?;
                self.check_bytes(log.len() as u64)?;
            }
            Setting::Disabled(true) => {
                if lease.next.is_some() {
                    steps.push((slot, Step::Left));
                }
                steps.push((slot, Step::GaveUp));
            }
            Setting::Command(Some(command)) => {
                check_command(command)?;
                self.check_bytes(command.bytes())?;
            }
            Setting::Command(None) if lease.schedule.is_some() => return Err(Refused::NoCommand),
            Setting::Schedule(Some(schedule)) => {
                if lease.settings.command.is_none() {
                    return Err(Refused::NoCommand);
                }
                let date = schedule.next(moment.now.date()).ok_or(Refused::NoDate)?;
                let place = lease.due.unwrap_or(self.state.dues.next_free());
                let at = Some(date);
                let clock =
                    Some(ClockReading { offset: moment.now.offset, seen: moment.now.date() });
                steps.push((slot, Step::Scheduled { at, place, clock }));
            }
            Setting::Schedule(None) => {
                if let Some(place) = lease.due {
                    let (at, clock) = (None, None);
                    steps.push((slot, Step::Scheduled { at, place, clock }));
                }
            }
            Setting::Period(_)
            | Setting::MaxRun(_)
            | Setting::Disabled(false)
            | Setting::NoDelay(_)
            | Setting::Command(None)
            | Setting::Log(None)
            | Setting::CatchesUp(_) => {}
        }
        Ok(changed_all(steps))
    }

    fn import(
        &self,
        moment: &Moment,
        name: &Name,
        (current, next): (Imported, Imported),
    ) -> Result<Outcome, Refused> {
        let (slot, lease, mut steps) = self.place_of(name)?;
        if lease.is_some_and(|it| it.running().is_some()) {
            return Err(Refused::Running);
        }
        let period_ms = lease.map_or(Settings::PERIOD_MS, |it| it.settings.period_ms);
        let now = moment.now;
        // The wall clock may have been set back after Fossil stored these times. Even then, the current holder's lease must not last longer
        // than one period from now, and the next holder's no longer than two.
        let of_current = now.offset.time(current.until).min(now.at.plus_ms(period_ms));
        let most = now.at.plus_ms(period_ms.saturating_mul(2));
        let until = (of_current, now.offset.time(next.until).min(most));
        steps.push((slot, Step::Imported { until }));
        Ok(changed_all(steps))
    }

    fn reset(&self, name: &Name, force: bool) -> Result<Outcome, Refused> {
        let Some((slot, lease)) = self.state.find(name) else {
            return Ok(Outcome::Absent);
        };
        let Some(current) = lease.running() else {
            return Ok(changed(slot, Step::Forgotten));
        };
        if !force || lease.leaves {
            return Err(Refused::Running);
        }
        if matches!(current.holder, Holder::Timed { .. }) {
            let exit = None;
            let ended = Step::Ended { exit, whole: false };
            return Ok(changed_all(vec![(slot, ended), (slot, Step::Forgotten)]));
        }
        let mut steps = vec![(slot, Step::Forgotten)];
        if !current.stopping {
            steps.push((slot, Step::Stopping));
        }
        Ok(changed_all(steps))
    }

    /// Decides what follows from the end of a process: the passes and the next requests that depend on it end, in parts if there are many.
    fn gone(&self, moment: &Moment, gone: EndNotice) -> Outcome {
        let mut steps = Vec::new();
        for slot in self.state.ended_by(gone, self.part()) {
            let Some(lease) = self.state.leases.get(slot) else {
                continue;
            };
            let current = lease.running();
            let of_pass = current.map(|it| self.gone_of_pass(moment, (slot, it), gone));
            let of_pass = of_pass.unwrap_or_default();
            // If the lease is deleted, the next request is deleted with it.
            let stays = !of_pass.contains(&(slot, Step::Forgotten));
            steps.extend(of_pass);
            let next = lease.next.as_ref().and_then(|place| place.process);
            let next = next.filter(|it| it.process == gone.process && gone.ends(it.until));
            if next.is_some() && stays {
                steps.push((slot, Step::Left));
            }
        }
        if steps.is_empty() { Outcome::Unchanged } else { changed_all(steps) }
    }

    /// Returns the maximum number of leases that change at once because a process has ended.
    fn part(&self) -> usize {
        self.rules.part.max(1) as usize
    }

    /// Returns the message for the rest, if this outcome is not the last part: the same message, since what has ended no longer depends on
    /// the process.
    pub(super) fn rest_of(&self, message: &Message, outcome: &Outcome) -> Option<Message> {
        let (Message::Gone(gone), Outcome::Changed { steps, .. }) = (message, outcome) else {
            return None;
        };
        let slots: BTreeSet<Slot> = steps.iter().map(|(slot, _)| *slot).collect();
        (slots.len() >= self.part()).then_some(Message::Gone(*gone))
    }

    fn gone_of_pass(
        &self,
        moment: &Moment,
        (slot, current): (Slot, &Current),
        gone: EndNotice,
    ) -> Vec<(Slot, Step)> {
        let until = match &current.holder {
            Holder::Launched { process, .. } if *process == gone.process => Until::Tree,
            Holder::Process(binding) if binding.process == gone.process => binding.until,
            Holder::Launched { .. }
            | Holder::Process(_)
            | Holder::Timed { .. }
            | Holder::Nobody => {
                return Vec::new();
            }
        };
        if !gone.ends(until) {
            return Vec::new();
        }
        let has_parcel = match &current.holder {
            Holder::Launched { command, .. } => command.spec.parcel.is_some(),
            Holder::Process(_) | Holder::Timed { .. } | Holder::Nobody => false,
        };
        if has_parcel && gone.exit == Some(Exit::Failed) && !current.stopping {
            // The launch failed, most likely because the caller has exited and its streams and environment are gone with it. The command is
            // launched again without them.
            let process = moment.process_id(0);
            return vec![(slot, Step::Relaunched { process })];
        }
        // A pass that was stopped because it ran too long counts as whole, so that it is not repeated, unless it had not even started.
        let never_ran = gone.exit == Some(Exit::Failed);
        let whole = current.stopping && !never_ran || matches!(gone.exit, Some(Exit::Code(_)));
        // If the process started at an unknown time, it may have done so as late as now.
        let is_unknown = gone.pid.is_some() || gone.exit == Some(Exit::Lost);
        let start = current.started(moment.now.at).filter(|_| is_unknown);
        let start = start.map(|step| (slot, step));
        let ended = self.ended(slot, gone.exit, whole);
        start.into_iter().chain(ended).collect()
    }

    fn started(&self, moment: &Moment, process: ProcessId) -> Outcome {
        let found = self.state.of_launched(process);
        let step = found.and_then(|(slot, lease)| {
            let step = lease.running()?.started(moment.now.at)?;
            Some(changed(slot, step))
        });
        step.unwrap_or(Outcome::Unchanged)
    }

    fn launched(&self, process: ProcessId) -> Outcome {
        match self.state.of_launched(process) {
            Some((slot, lease)) if lease.running().is_some_and(Current::is_launching) => {
                changed(slot, Step::Taken)
            }
            Some(_) | None => Outcome::Unchanged,
        }
    }

    /// Decides what follows when a deadline of a lease has passed. It is a deadline of the running pass or of the next request or, if no
    /// pass is running, the time at which the next pass may begin.
    fn lapse(&self, moment: &Moment, slot: Slot) -> Outcome {
        let now = moment.now.at;
        let Some(lease) = self.state.leases.get(slot) else {
            return Outcome::Absent;
        };
        let has_come = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        if has_come(lease.lapses_at()) {
            return changed(slot, Step::Left);
        }
        if let Some(current) = lease.running() {
            if has_come(current.lost_at(self.state.head.epoch)) {
                return changed_all(self.ended(slot, None, false));
            }
            if has_come(lease.stops_at(current)) {
                return changed(slot, Step::Stopping);
            }
            return changed(slot, Step::Warned);
        }
        if moment.draining.has_begun() {
            return changed(slot, Step::Rests);
        }
        let (source, launches, period_ms) = match (&lease.next, lease.owed_command()) {
            (Some(place), _) => (Source::Place, place.command.is_some(), place.period_ms),
            (None, Some((_, period_ms))) => (Source::Kept, true, period_ms),
            (None, None) => return Outcome::Unchanged,
        };
        let process = launches.then(|| moment.process_id(0));
        let until = now.plus_ms(period_ms);
        let owed = true;
        changed(slot, Step::Began { source, process, until, owed })
    }

    /// Decides what follows when a date of a schedule has come, or when the clock by which it was determined has stepped.
    fn due_date(&self, moment: &Moment, place: Slot) -> Outcome {
        let due = self.state.dues.get(place);
        let Some(due) = due else {
            return Outcome::Absent;
        };
        let slot = due.lease;
        let lease = self.state.leases.get(slot);
        let lease = lease.expect("a schedule date should belong to a lease");
        let now = moment.now;
        let (at, clock) = next_date(lease.schedule.as_ref(), *due, now);
        let clock = Some(clock);
        let mut steps = vec![(slot, Step::Scheduled { at, place, clock })];
        let follows = match punctuality(lease.schedule.as_ref(), *due, now, self.state.head.epoch) {
            Punctuality::Early => None,
            Punctuality::InTime => Some(Step::Owed(Source::Date)),
            Punctuality::Missed(_) if lease.settings.catches_up => Some(Step::Owed(Source::Date)),
            Punctuality::Missed(missed) => Some(Step::Missed(missed)),
        };
        let follows = follows.filter(|_| !lease.settings.disabled);
        steps.extend(follows.map(|step| (slot, step)));
        changed_all(steps)
    }
}

/// Whether a date of a schedule has come, and whether it was noticed in time.
enum Punctuality {
    /// It has not come yet.
    Early,
    /// It has come, or the clock was set forward beyond it by at most [`PASSED_OVER_MS`].
    InTime,
    /// It was noticed too late.
    Missed(Missed),
}

/// `epoch` is the latest startup of the server.
fn punctuality(schedule: Option<&Schedule>, due: Due, now: Now, epoch: Timestamp) -> Punctuality {
    let today = now.date();
    if due.at > today {
        return Punctuality::Early;
    }
    // If several dates have come, the latest may be recent although the first is not.
    let recent = Date(today.0.saturating_sub(LATE_MS + 1));
    let recent = schedule.and_then(|it| it.next(recent));
    let is_recent = today <= due.at.plus_ms(LATE_MS) || recent.is_some_and(|it| it <= today);
    // The clock by which the date was determined showed it while the server was down.
    let offset = due.clock.map_or(now.offset, |it| it.offset);
    let down = offset.time(due.at) < epoch;
    if is_recent || !down && today <= due.at.plus_ms(PASSED_OVER_MS) {
        return Punctuality::InTime;
    }
    Punctuality::Missed(Missed { first: due.at, noticed: today, down })
}

/// Returns the date that follows on `due`, which stays the same unless it has come or the clock was set back, and the reading of the clock
/// that determines it.
///
/// As in cron, dates that a clock set back by at most [`PASSED_OVER_MS`] shows again do not come again, unless they are hours of the
/// schedule rather than times of day. Otherwise, what the clock shows now counts at once.
fn next_date(schedule: Option<&Schedule>, due: Due, now: Now) -> (Option<Date>, ClockReading) {
    let today = now.date();
    let next = || schedule.and_then(|it| it.next(today));
    let offset = now.offset;
    let by_today = ClockReading { offset, seen: today };
    let shown = due.clock.map(|it| it.offset.date(now.at).max(it.seen));
    match shown {
        Some(shown)
            if due.at > today
                && shown <= today.plus_ms(PASSED_OVER_MS)
                && !schedule.is_some_and(Schedule::is_hourly) =>
        {
            let seen = shown.max(today);
            (Some(due.at), ClockReading { offset, seen })
        }
        Some(_) | None => (next(), by_today),
    }
}

impl Current {
    /// Returns the step that records that the process of the pass has started, and that its period is counted from `now`; `None` if no
    /// command was launched for the pass, or if this is recorded already.
    fn started(&self, now: Timestamp) -> Option<Step> {
        let is_launched = matches!(self.holder, Holder::Launched { .. });
        let period = self.until.since(self.since).as_millis();
        let until = now.plus_ms(u64::try_from(period).unwrap_or(u64::MAX));
        (is_launched && !self.progress.started).then_some(Step::Started { until })
    }
}

impl PassRequest {
    /// Returns the command that the request names or else the one that is set for the lease; `None` if there is neither. A request with a
    /// claim does not run it.
    pub(super) fn command_for<'a>(&'a self, lease: &'a Lease) -> Option<&'a Command> {
        self.command.as_ref().or(lease.settings.command.as_ref())
    }

    /// Returns whether `place` was requested by the same process, that is, whether the client is repeating its request. Always false if the
    /// request names no process.
    fn is(&self, place: &NextRequest) -> bool {
        let process = self.claim.and_then(|it| it.process).map(|it| it.process);
        process.is_some() && place.process.map(|it| it.process) == process
    }
}

fn check_request(requesting: &PassRequest) -> Result<(), Refused> {
    let spans = 1..=Settings::SPAN_MS_MAX;
    let Claim { ttl_ms, .. } = requesting.claim.unwrap_or_default();
    if !spans.contains(&ttl_ms) || requesting.period_ms.is_some_and(|it| !spans.contains(&it)) {
        return Err(Refused::Span);
    }
    if requesting.max_run_ms.is_some_and(|it| it > Settings::SPAN_MS_MAX) {
        return Err(Refused::Span);
    }
    if let Some(log) = &requesting.log {
        check_log(log)?;
    }
    requesting.command.as_ref().map_or(Ok(()), check_command)
}

fn check_log(log: &str) -> Result<(), Refused> {
    let is_path = log.starts_with('/') && !log.contains('\0');
    let is_short = log.len() <= Settings::LOG_BYTES_MAX;
    (is_path && is_short).then_some(()).ok_or(Refused::Log)
}

fn check_command(command: &Command) -> Result<(), Refused> {
    command.check().map_err(Refused::Command)
}

fn changed(slot: Slot, step: Step) -> Outcome {
    changed_all(vec![(slot, step)])
}

const fn changed_all(steps: Vec<(Slot, Step)>) -> Outcome {
    Outcome::Changed { steps, turn: None }
}

const fn turn_outcome(steps: Vec<(Slot, Step)>, turn: Turn) -> Outcome {
    let turn = Some(turn);
    Outcome::Changed { steps, turn }
}
