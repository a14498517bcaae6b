//! Applies an outcome, without making any decisions.

use crate::actors::binding::{Binding, Exit, PROCESSES, ToProcesses, Until, Watch as Watching};
use crate::actors::lease::item::{
    Command, Current, Due, End, Holder, Lease, NextRequest, Progress, Setting,
};
use crate::actors::lease::machine::LeaseMachine;
use crate::actors::lease::message::{self, Claim, Imported, LogEvent, Message, PassRequest};
use crate::actors::lease::outcome::{Source, Step};
use crate::actors::process::{LAUNCHES, LaunchAs, Launching, Message as ToLaunch};
use crate::bytes::Bytes;
use crate::clock::Timestamp;
use crate::ids::{ProcessId, Slot, Token};
use crate::spine::effect::Action;
use crate::spine::machine::{Effects, Machine as _, Stamp};
use std::sync::Arc;

impl LeaseMachine {
    /// Applies one step of an outcome, and sends the requests that follow from it.
    pub(super) fn apply(
        &mut self,
        entry: Stamp,
        message: &Message,
        (slot, step): (Slot, &Step),
        effects: &mut Effects<Self>,
    ) {
        match step {
            Step::Made => self.state.insert(entry.seq, slot, Lease::named(message)),
            Step::Forgotten => {
                let lease = self.state.leases.get(slot);
                if lease.is_some_and(|it| it.running().is_some()) {
                    self.state.change(entry.seq, slot, |it| it.leaves = true);
                } else {
                    self.state.remove(entry.seq, slot);
                }
            }
            Step::Scheduled { at, place, clock } => {
                let due = at.map(|at| Due { lease: slot, at, clock: *clock });
                self.state.schedule(entry.seq, slot, (*place, due));
            }
            Step::Ended { .. }
            | Step::Began { .. }
            | Step::Relaunched { .. }
            | Step::Owed(_)
            | Step::Placed { .. }
            | Step::Returned { .. }
            | Step::Left
            | Step::Shared
            | Step::GaveUp
            | Step::Stopping
            | Step::Warned
            | Step::Renewed
            | Step::Taken
            | Step::Started { .. }
            | Step::Missed(_)
            | Step::Set(_)
            | Step::Imported { .. }
            | Step::Rests => {
                self.state.change(entry.seq, slot, |it| it.apply(entry, message, step));
                let lease = self.state.leases.get(slot);
                if let Some(what) = lease.and_then(|it| it.log_action(entry.at, step)) {
                    let (id, attempt) = (slot.0.into(), entry.seq);
                    effects.act(Action { id, attempt, what });
                }
                if step.binds() {
                    self.send_obligations(slot, effects);
                }
            }
        }
    }

    /// Sends to other actors whatever requests the lease has outstanding with them. Each message is an upsert, so sending it again does no
    /// harm.
    pub(super) fn send_obligations(&self, slot: Slot, effects: &mut Effects<Self>) {
        let Some(lease) = self.state.leases.get(slot) else {
            return;
        };
        let by = Self::ID;
        let watch = |binding: &Binding, effects: &mut Effects<Self>| {
            let Binding { process, until, .. } = *binding;
            let watch = Watching { by, process, until };
            effects.tell(PROCESSES, &ToProcesses::Watch(watch));
        };
        if let Some(current) = lease.running() {
            match &current.holder {
                Holder::Launched { process, command, taken } => {
                    if *taken {
                        watch(&Binding::of_tree(*process), effects);
                    } else {
                        let launching = lease.launching(command, current.token);
                        let launch = LaunchAs { by, id: *process, launching };
                        effects.tell(LAUNCHES, &ToLaunch::LaunchAs(Box::new(launch)));
                    }
                }
                Holder::Process(binding) => watch(binding, effects),
                Holder::Timed { .. } | Holder::Nobody => {}
            }
            if let Some(process) = current.holder.process().filter(|_| current.stopping) {
                effects.tell(PROCESSES, &ToProcesses::Fence(process));
            }
        }
        if let Some(binding) = lease.next.as_ref().and_then(|it| it.process) {
            watch(&binding, effects);
        }
    }
}

impl Step {
    /// Returns whether this step requires requests to other actors.
    const fn binds(&self) -> bool {
        matches!(
            self,
            Self::Began { .. }
                | Self::Relaunched { .. }
                | Self::Placed { .. }
                | Self::Returned { .. }
                | Self::Stopping
                | Self::Renewed
                | Self::Taken
                | Self::Imported { .. }
        )
    }
}

impl Binding {
    /// Returns a binding that lasts until the whole tree of a process has ended.
    const fn of_tree(process: ProcessId) -> Self {
        Self { process, until: Until::Tree, fence: false }
    }
}

impl Lease {
    /// Creates a lease with default settings and with the name that `message` gives.
    fn named(message: &Message) -> Self {
        let name = message.name().expect("a message that creates a lease should name it");
        Self { name: name.clone(), ..Self::default() }
    }

    fn apply(&mut self, entry: Stamp, message: &Message, step: &Step) {
        match step {
            Step::Made | Step::Forgotten | Step::Scheduled { .. } => {}
            Step::Ended { exit, whole } => self.end(entry, *exit, *whole),
            Step::Began { source, process, until, owed } => {
                self.begin(entry, message, (*source, *process), (*until, *owed));
            }
            Step::Relaunched { process } => {
                let current = self.current.as_mut();
                if let Some(Holder::Launched { process: its, command, taken }) =
                    current.map(|it| &mut it.holder)
                {
                    *command = without_parcel(command);
                    (*its, *taken) = (*process, false);
                }
            }
            Step::Started { until } => self.start_pass(entry.at, *until),
            Step::Missed(missed) => self.extra.missed = Some(*missed),
            Step::Owed(source) => {
                self.wanted = self.begun + 1;
                self.keep(message, *source);
                self.share();
            }
            Step::Placed { until } => {
                // An earlier request may still be owed a pass, because its pass was not whole or because it expired while it was next. The
                // pass of the new request then serves that one too.
                let shared = self.wanted > self.last_settled();
                let place = NextRequest::of(entry, message, self, *until);
                self.next = Some(NextRequest { shared, ..place });
                self.wanted = self.begun + 1;
                self.keep(message, Source::Request);
            }
            Step::Returned { until } => {
                // The repeated request gets a new token, so that a delayed withdrawal of the original one does not remove it.
                let shared = self.next.as_ref().is_some_and(|it| it.shared);
                let place = NextRequest::of(entry, message, self, *until);
                self.next = Some(NextRequest { shared, ..place });
            }
            Step::Left => self.next = None,
            Step::Shared => self.share(),
            Step::GaveUp => {
                self.wanted = self.wanted.min(self.last_settled());
                self.broken = 0;
            }
            Step::Stopping => self.change_current(|it| it.stopping = true),
            Step::Warned => self.change_current(|it| it.warnings += 1),
            Step::Renewed => self.renew(entry, message),
            Step::Taken => self.change_current(|it| {
                if let Holder::Launched { taken, .. } = &mut it.holder {
                    *taken = true;
                }
            }),
            Step::Set(setting) => self.set(setting),
            Step::Imported { until } => self.import(entry, message, *until),
            Step::Rests => self.rests = true,
        }
    }

    /// Records that other requests rely on the next request's pass too. Does nothing if no request is next.
    const fn share(&mut self) {
        if let Some(place) = &mut self.next {
            place.shared = true;
        }
    }

    /// Records that the process of the running pass has started, from which its period is counted. A next request that expires unless it is
    /// repeated keeps one period for that.
    fn start_pass(&mut self, at: Timestamp, until: Timestamp) {
        self.change_current(|it| {
            (it.since, it.until) = (at, until);
            it.progress.started = true;
        });
        if let Some(place) = &mut self.next {
            place.until = place.until.max(until.plus_ms(place.period_ms));
        }
    }

    /// Returns the action that logs an applied step; `None` if there is nothing to log: the pass has no log file, and there is nothing to
    /// warn about.
    fn log_action(&self, now: Timestamp, step: &Step) -> Option<message::Action> {
        if let Step::Missed(missed) = step {
            return Some(message::Action {
                file: self.settings.log.clone(),
                lease: self.name.clone(),
                token: Token(0),
                what: LogEvent::Missed(*missed),
            });
        }
        let current = self.current.as_ref()?;
        let span = |since: Timestamp| u64::try_from(now.since(since).as_millis());
        let span = |since| span(since).unwrap_or(u64::MAX);
        let plain = self.is_of_plain_client();
        let failed = matches!(step, Step::Ended { .. }) && self.failure().is_some() && !self.leaves;
        let what = if let Step::Ended { exit, .. } = step {
            let launched = match &current.holder {
                Holder::Launched { process, command, .. } => {
                    Some((*process, command.spec.run_dir.clone()))
                }
                Holder::Process(_) | Holder::Timed { .. } | Holder::Nobody => None,
            };
            let ran_ms = span(current.since);
            LogEvent::Ended { ran_ms, exit: *exit, launched, warns: failed, plain }
        } else if let Step::Warned = step {
            // Of several warnings that are due at once, after a suspension for example, only the last is logged.
            if current.warns_at() <= now {
                return None;
            }
            LogEvent::Overran { plain, ran_ms: span(current.since), over_ms: span(current.until) }
        } else if matches!(step, Step::Began { .. }) {
            LogEvent::Began
        } else {
            return None;
        };
        let action = message::Action {
            file: current.log.clone(),
            lease: self.name.clone(),
            token: current.token,
            what,
        };
        let warns = failed || matches!(step, Step::Warned);
        (action.file.is_some() || warns).then_some(action)
    }

    fn change_current(&mut self, make: impl FnOnce(&mut Current)) {
        if let Some(current) = &mut self.current {
            make(current);
        }
    }

    fn end(&mut self, entry: Stamp, exit: Option<Exit>, whole: bool) {
        let at = entry.at;
        self.change_current(|it| it.end = Some(End { at, exit, whole }));
        if whole {
            self.whole = self.begun;
            self.broken = 0;
        } else {
            self.broken += 1;
        }
    }

    fn begin(
        &mut self,
        entry: Stamp,
        message: &Message,
        (source, process): (Source, Option<ProcessId>),
        (until, owed): (Timestamp, bool),
    ) {
        let place = match source {
            Source::Request => NextRequest::of(entry, message, self, entry.at),
            Source::Place => self.next.take().expect("a request should be next"),
            Source::Kept | Source::Date => NextRequest::owed(self),
        };
        self.begun += 1;
        if source == Source::Request && owed {
            self.wanted = self.begun;
            self.keep(message, source);
        }
        let holder = match (process, &place.command, place.process) {
            (Some(process), Some(command), _) => {
                Holder::Launched { process, command: Command::clone(command), taken: false }
            }
            (_, _, Some(binding)) => Holder::Process(binding),
            _ => Holder::Timed { ttl_ms: place.ttl_ms, renewed: entry.at },
        };
        if source == Source::Request {
            // A request that is still next has expired or was made by the same client, so it is dropped.
            self.next = None;
        }
        self.current = Some(Current {
            token: entry.seq.into(),
            place: place.token,
            holder,
            pid: place.pid,
            since: entry.at,
            until,
            end: None,
            stopping: false,
            warnings: 0,
            log: place.log.or_else(|| self.settings.log.clone()),
            progress: Progress { started: false, max_run_ms: place.max_run_ms },
        });
    }

    /// Stores the command of a request, in case its pass has to be repeated; a request with a claim leaves the stored command as it is. For
    /// a schedule date, removes the stored command, so that the one set for the lease is run. In every case, resets the count of
    /// consecutive passes that were not whole.
    fn keep(&mut self, message: &Message, source: Source) {
        self.broken = 0;
        let period_ms = self.settings.period_ms;
        match (source, message) {
            (Source::Request, Message::Request(requesting)) if requesting.claim.is_none() => {
                let command = requesting.command_for(self).map(without_parcel);
                let period_ms = requesting.period_ms.unwrap_or(period_ms);
                self.command = command.map(|command| (command, period_ms));
                self.log.clone_from(&requesting.log);
                self.extra.max_run_ms = requesting.max_run_ms;
            }
            (Source::Date, _) => {
                (self.command, self.log, self.extra.max_run_ms) = (None, None, None);
            }
            _ => {}
        }
    }

    fn renew(&mut self, entry: Stamp, message: &Message) {
        let Message::Renew { process, .. } = message else {
            return;
        };
        self.change_current(|it| match (process, &mut it.holder) {
            (Some(binding), holder) => *holder = Holder::Process(*binding),
            (None, Holder::Timed { renewed, .. }) => *renewed = entry.at,
            (None, _) => {}
        });
    }

    fn set(&mut self, setting: &Setting) {
        let settings = &mut self.settings;
        match setting {
            Setting::Period(span) => settings.period_ms = *span,
            Setting::NoDelay(on) => settings.no_delay = *on,
            Setting::Disabled(on) => settings.disabled = *on,
            Setting::MaxRun(span) => settings.max_run_ms = *span,
            Setting::Command(command) => settings.command.clone_from(command),
            Setting::Schedule(schedule) => self.schedule.clone_from(schedule),
            Setting::CatchesUp(on) => settings.catches_up = *on,
            Setting::Log(file) => settings.log.clone_from(file),
        }
    }

    fn import(&mut self, entry: Stamp, message: &Message, until: (Timestamp, Timestamp)) {
        let Message::Import { current, next, .. } = message else {
            return;
        };
        let until_process = |process| Binding { process, until: Until::Process, fence: false };
        let (whole, exit) = (true, None);
        let ended = End { at: entry.at, exit, whole };
        let is_there = |it: &Imported| it.pid != 0 || it.until.0 != 0;
        self.current = Some(*current).filter(is_there).map(|it| Current {
            token: entry.seq.into(),
            place: Token(0),
            holder: it.process.map_or(Holder::Nobody, |it| Holder::Process(until_process(it))),
            pid: it.pid,
            since: entry.at,
            until: until.0,
            end: it.process.is_none().then_some(ended),
            stopping: false,
            warnings: 0,
            log: None,
            progress: Progress::default(),
        });
        self.begun += u64::from(self.current.is_some());
        if self.running().is_none() {
            self.whole = self.begun;
        }
        self.next = Some(*next).filter(|it| it.pid != 0).map(|it| NextRequest {
            token: entry.seq.into(),
            command: None,
            process: it.process.map(until_process),
            pid: it.pid,
            period_ms: self.settings.period_ms,
            ttl_ms: Claim::default().ttl_ms,
            connected: false,
            until: until.1,
            shared: false,
            log: None,
            max_run_ms: None,
        });
        self.wanted = self.whole;
    }

    /// Returns the launch for a pass, with the token and the name of the lease added to the environment.
    fn launching(&self, command: &Command, token: Token) -> Launching {
        let mut launching = Launching::clone(command);
        let name = self.name.to_text();
        let more = [("SEXTON_FENCE", token.0.to_string()), ("SEXTON_LEASE", name)];
        let more = more.map(|(name, value)| (name.to_owned(), Bytes::new(value.into_bytes())));
        launching.spec.env.extend(more);
        launching
    }
}

impl NextRequest {
    /// Creates the `NextRequest` of the request in a message.
    fn of(entry: Stamp, message: &Message, lease: &Lease, until: Timestamp) -> Self {
        let Message::Request(requesting) = message else {
            unreachable!("only a request has a place");
        };
        let PassRequest { claim, period_ms, .. } = &**requesting;
        let command = requesting.command_for(lease).filter(|_| claim.is_none());
        let Claim { process, pid, ttl_ms, waits } = claim.unwrap_or_default();
        Self {
            token: entry.seq.into(),
            command: command.cloned(),
            process,
            pid,
            period_ms: period_ms.unwrap_or(lease.settings.period_ms),
            ttl_ms,
            connected: waits,
            until,
            shared: false,
            log: requesting.log.clone(),
            max_run_ms: requesting.max_run_ms,
        }
    }

    /// Creates a `NextRequest` for an owed pass that no particular request is waiting for, with the command that [`Lease::owed_command`] returns.
    fn owed(lease: &Lease) -> Self {
        let (command, period_ms) =
            lease.owed_command().expect("an owed pass should have a command");
        Self {
            token: Token(0),
            command: Some(Command::clone(command)),
            process: None,
            pid: 0,
            period_ms,
            ttl_ms: 0,
            connected: false,
            until: Timestamp(0),
            shared: false,
            log: lease.log.clone(),
            max_run_ms: lease.extra.max_run_ms,
        }
    }
}

/// Returns the command without its parcel, which contains the streams and the environment of its caller.
fn without_parcel(command: &Command) -> Command {
    if command.spec.parcel.is_none() {
        return Command::clone(command);
    }
    let mut without = Launching::clone(command);
    without.spec.parcel = None;
    Arc::new(without)
}
