//! A second implementation of the lease rules, based on a plain list and linear searches. The simulation (`tests/sim/leases.rs`) compiles
//! it in order to compare the machine with it, so this file refers to the library by its crate name. The model follows `docs/leases.md`. It
//! shares the types of messages and views with the machine, but none of the rules.

mod acts;
mod record;

pub(crate) use record::{Entry, ModelLease};
use sexton::actors::binding::{Exit, Until};
use sexton::actors::lease::{
    Claim, ClockReading, Current, End, Holder, Imported, Message, NextRequest, PassRequest,
    Progress, Query, Refused, Reply, Rules, Setting, Turn, Watch,
};
use sexton::actors::lock::Name;
use sexton::clock::{Now, Timestamp};
use sexton::ids::{Slot, Token};

/// The maximum for periods and time limits, in milliseconds: 366 days.
const SPAN_MAX: u64 = 366 * 24 * 3_600_000;

/// An item that can be due. Among items that are due at the same instant, leases come before dates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Item {
    Lease(Slot),
    Date(Slot),
}

/// All leases.
#[derive(Clone, Default)]
pub(crate) struct Model {
    pub(crate) rules: Rules,
    pub(crate) all: Vec<ModelLease>,
    pub(crate) epoch: Timestamp,
}

/// The result of a message: the reply, and whether anything changed.
pub(crate) type Applied = (Reply, bool);

impl Model {
    pub(crate) fn find(&self, name: &Name) -> Option<&ModelLease> {
        self.all.iter().find(|it| it.lease.name == *name)
    }

    /// Returns the first item that is due at `now`, if there is one.
    pub(crate) fn due(&self, now: Now) -> Option<Item> {
        let offset_of = |it: &ModelLease| it.clock.map(|it| it.offset.0);
        let with_date = self.all.iter().filter(|it| !it.stuck_date);
        let mut dates: Vec<_> =
            with_date.filter_map(|it| Some((offset_of(it), it.lease.due?))).collect();
        dates.sort_unstable();
        let ends = dates.first().into_iter().chain(dates.last());
        let steps = |of: Option<i64>| of.is_none_or(|of| (of - now.offset.0).abs() >= 60_000);
        let mut stepped = ends.filter(|(of, _)| steps(*of));
        if let Some((_, place)) = stepped.next() {
            return Some(Item::Date(*place));
        }
        let mut all = Vec::new();
        for known in &self.all {
            if let Some(at) = known.acts_at(self.epoch).filter(|_| !known.stuck) {
                all.push((at, Item::Lease(known.slot)));
            }
            if let (Some(date), Some(place)) = (known.due, known.lease.due)
                && !known.stuck_date
            {
                all.push((now.offset.time(date), Item::Date(place)));
            }
        }
        let passed = all.into_iter().filter(|(at, _)| *at <= now.at);
        passed.min().map(|(_, item)| item)
    }

    /// Quarantines an item whose tick panicked. Until the next startup, the deadline of a lease is ignored unless the lease changes, and a
    /// date unless the schedule is set again.
    pub(crate) fn quarantine(&mut self, item: Item) {
        for known in &mut self.all {
            known.stuck |= item == Item::Lease(known.slot);
            known.stuck_date |= known.lease.due.is_some_and(|it| item == Item::Date(it));
        }
    }

    /// Handles the startup of the server: quarantine ends, passes may begin again after draining, clients have their full TTL for the next
    /// renewal, and no client waits on a connection any more.
    pub(crate) fn start(&mut self, at: Timestamp) {
        self.epoch = at;
        for known in &mut self.all {
            (known.stuck, known.stuck_date) = (false, false);
            known.lease.rests = false;
            let over = known.lease.current.as_ref().map_or(at, |it| it.until);
            if let Some(place) = known.lease.next.as_mut().filter(|it| it.connected) {
                place.connected = false;
                place.until = over.max(at).plus_ms(place.period_ms);
            }
        }
    }

    /// Applies a message. Returns the reply, and whether anything changed.
    pub(crate) fn send(&mut self, message: &Message, entry: Entry) -> Applied {
        match message {
            Message::Request(asked) => self.request(asked, entry),
            Message::Lapse { slot } => (Reply::Done, self.lapse(*slot, entry)),
            Message::Due { slot } => (Reply::Done, self.date(*slot, entry)),
            Message::Gone(gone) => {
                let mut changed = false;
                for slot in self.ended_with(gone.process, gone.until) {
                    let ended = (gone.process, gone.until, gone.exit);
                    changed |= self.gone(slot, ended, (gone.pid, entry));
                }
                (Reply::Done, changed)
            }
            Message::Launched(process) => {
                let mut changed = false;
                for known in &mut self.all {
                    let current = known.lease.current.as_mut().filter(|it| it.end.is_none());
                    if let Some(Holder::Launched { process: its, taken, .. }) =
                        current.map(|it| &mut it.holder)
                        && its == process
                        && !*taken
                    {
                        (*taken, changed) = (true, true);
                        known.stuck = false;
                    }
                }
                (Reply::Done, changed)
            }
            Message::Started(process) => {
                let mut changed = false;
                for known in &mut self.all {
                    let current = known.lease.current.as_ref().filter(|it| it.end.is_none());
                    let is_its = current.is_some_and(|it| it.holder.process() == Some(*process));
                    if is_its && known.started(entry.now.at) {
                        (known.stuck, changed) = (false, true);
                    }
                }
                (Reply::Done, changed)
            }
            Message::Renew { name, token, .. } | Message::Finish { name, token, .. } => {
                self.of_client(name, *token, message, entry)
            }
            Message::Withdraw { name, place } => self.withdraw(name, *place, entry),
            Message::Set { name, setting } => self.set(name, setting, entry),
            Message::Import { name, current, next } => self.import(name, (current, next), entry),
            Message::Reset { name, force } => self.reset(name, *force),
        }
    }

    fn withdraw(&mut self, name: &Name, place: Token, entry: Entry) -> Applied {
        let Some(known) = self.named(name) else {
            return (Reply::Absent, false);
        };
        if known.lease.next.as_ref().is_some_and(|it| it.token == place) {
            let place = known.lease.next.take().expect("a request is next");
            if !place.shared {
                known.give_up();
            }
            known.stuck = false;
            return self.shown(name);
        }
        let current = known.lease.current.as_ref().filter(|it| it.end.is_none());
        let is_its = current.is_some_and(|it| {
            let is_run_by_client = matches!(it.holder, Holder::Process(_) | Holder::Timed { .. });
            it.place == place && is_run_by_client
        });
        if !is_its {
            return (Reply::Absent, false);
        }
        known.stuck = false;
        let stays = known.end(entry.now.at, None, false);
        let slot = known.slot;
        self.all.retain(|it| stays || it.slot != slot);
        self.shown(name)
    }

    fn named(&mut self, name: &Name) -> Option<&mut ModelLease> {
        self.all.iter_mut().find(|it| it.lease.name == *name)
    }

    fn shown(&self, name: &Name) -> Applied {
        let known = self.find(name);
        (known.map_or(Reply::Done, |it| Reply::Lease(Box::new(it.view()))), true)
    }

    /// Returns the lease with this name, creating it if necessary. Refuses an empty name, and refuses a new lease if the maximum number
    /// exists already.
    fn made(&mut self, name: &Name) -> Result<&mut ModelLease, Refused> {
        if name.as_bytes().is_empty() {
            return Err(Refused::NoName);
        }
        let place = self.all.iter().position(|it| it.lease.name == *name);
        let place = match place {
            Some(place) => place,
            None if self.all.len() >= self.rules.leases_max as usize => return Err(Refused::Full),
            None => {
                let is_free = |slot: &u32| self.all.iter().all(|it| it.slot.0 != *slot);
                let slot = (0..u32::MAX).find(is_free).expect("there are more slots than leases");
                self.all.push(ModelLease::new(Slot(slot), name));
                self.all.len() - 1
            }
        };
        let known = self.all.get_mut(place);
        Ok(known.expect("the lease was found or just created"))
    }

    fn request(&mut self, asked: &PassRequest, entry: Entry) -> Applied {
        let before = self.all.len();
        let turned = self.turn(asked, entry);
        match turned {
            Err(refused) => {
                self.all.truncate(before);
                (Reply::Refused(refused), false)
            }
            Ok((turn, changed)) => {
                if changed && let Some(known) = self.named(&asked.name) {
                    known.stuck = false;
                }
                let has_place = matches!(turn, Turn::Current | Turn::Next);
                let place = if has_place { entry.seq.into() } else { Token(0) };
                let Some(known) = self.find(&asked.name) else {
                    return (Reply::Absent, changed);
                };
                let lease = Box::new(known.view());
                let pass = lease.lease.begun + u64::from(turn != Turn::Current);
                (Reply::Turned { turn, place, pass, lease }, changed)
            }
        }
    }

    fn turn(&mut self, asked: &PassRequest, entry: Entry) -> Result<(Turn, bool), Refused> {
        let Claim { ttl_ms, process, .. } = asked.claim.unwrap_or_default();
        let is_span = |span: u64| (1..=SPAN_MAX).contains(&span);
        let is_limit = |span: u64| span == 0 || is_span(span);
        if !is_span(ttl_ms)
            || !asked.period_ms.is_none_or(is_span)
            || !asked.max_run_ms.is_none_or(is_limit)
        {
            return Err(Refused::Span);
        }
        if let Some(command) = &asked.command {
            command.spec.check().map_err(Refused::Command)?;
            command.tags.check().map_err(Refused::Command)?;
        }
        let now = entry.now.at;
        let known = self.made(&asked.name)?;
        if known.lease.settings.disabled {
            return Err(Refused::Disabled);
        }
        if asked.claim.is_none() && known.brought(asked).is_none() {
            return Err(Refused::NoCommand);
        }
        let impatient = asked.no_delay || known.lease.settings.no_delay;
        let returns = known.lease.next.as_ref().is_some_and(|place| {
            process.is_some() && place.process.map(|it| it.process) == process.map(|it| it.process)
        });
        if let Some(place) = known.lease.next.as_ref().filter(|it| !returns && is_live(it, now)) {
            if place.command.is_some() || asked.claim.is_some() || impatient {
                let is_new = place.command.is_some() && !impatient && !place.shared;
                if is_new {
                    known.share();
                }
                return Ok((Turn::NotNeeded, is_new));
            }
            known.owe();
            known.share();
            known.keep(asked);
            return Ok((Turn::Kept, true));
        }
        let over = known.lease.current.as_ref().map_or(Timestamp(0), |it| it.until);
        let is_over = known.lease.current.is_none() || over < now;
        if is_over && !known.runs() {
            known.begin_at_once(asked, entry, impatient);
            return Ok((Turn::Current, true));
        }
        if impatient {
            return Ok((Turn::NoDelay, false));
        }
        let period_ms = asked.period_ms.unwrap_or(known.lease.settings.period_ms);
        let until = over.max(now).plus_ms(period_ms);
        let mut place = known.place(asked, entry.seq.into(), until);
        if returns {
            place.shared = known.lease.next.as_ref().is_some_and(|it| it.shared);
        } else {
            place.shared = known.lease.wanted > known.enough();
            known.owe();
            known.keep(asked);
        }
        known.lease.next = Some(place);
        Ok((Turn::Next, true))
    }

    fn of_client(&mut self, name: &Name, token: Token, message: &Message, entry: Entry) -> Applied {
        let stale = (Reply::Refused(Refused::StaleToken), false);
        let Some(known) = self.named(name).filter(|it| it.runs()) else {
            return stale;
        };
        let Some(current) = known.lease.current.as_mut().filter(|it| it.token == token) else {
            return stale;
        };
        if !matches!(current.holder, Holder::Process(_) | Holder::Timed { .. }) {
            return stale;
        }
        known.stuck = false;
        if let Message::Renew { process, .. } = message {
            match (process, &mut current.holder) {
                (Some(binding), holder) => *holder = Holder::Process(*binding),
                (None, Holder::Timed { renewed, .. }) => *renewed = entry.now.at,
                (None, _) => {}
            }
        } else if let Message::Finish { code, .. } = message {
            let stays = known.end(entry.now.at, Some(Exit::Code(*code)), true);
            let slot = known.slot;
            self.all.retain(|it| stays || it.slot != slot);
        }
        self.shown(name)
    }

    /// Returns the lowest slot that no date uses.
    fn place_of_date(&self) -> Slot {
        let is_free = |slot: &u32| self.all.iter().all(|it| it.lease.due != Some(Slot(*slot)));
        Slot((0..u32::MAX).find(is_free).expect("there are more slots than leases"))
    }

    fn set(&mut self, name: &Name, setting: &Setting, entry: Entry) -> Applied {
        let before = self.all.len();
        match self.setting(name, setting, entry) {
            Err(refused) => {
                self.all.truncate(before);
                (Reply::Refused(refused), false)
            }
            Ok(()) => self.shown(name),
        }
    }

    fn setting(&mut self, name: &Name, setting: &Setting, entry: Entry) -> Result<(), Refused> {
        let fresh = self.place_of_date();
        let known = self.made(name)?;
        let settings = &mut known.lease.settings;
        match setting {
            Setting::Period(span) if *span == 0 || *span > SPAN_MAX => return Err(Refused::Span),
            Setting::MaxRun(span) if *span > SPAN_MAX => return Err(Refused::Span),
            Setting::Period(span) => settings.period_ms = *span,
            Setting::MaxRun(span) => settings.max_run_ms = *span,
            Setting::NoDelay(on) => settings.no_delay = *on,
            Setting::CatchesUp(on) => settings.catches_up = *on,
            Setting::Log(Some(log)) if !log.starts_with('/') || log.len() > 4096 => {
                return Err(Refused::Log);
            }
            Setting::Log(file) => settings.log.clone_from(file),
            Setting::Disabled(on) => {
                settings.disabled = *on;
                if *on {
                    known.lease.next = None;
                    known.give_up();
                }
            }
            Setting::Command(command) => {
                if let Some(command) = command {
                    command.spec.check().map_err(Refused::Command)?;
                    command.tags.check().map_err(Refused::Command)?;
                } else if known.lease.schedule.is_some() {
                    return Err(Refused::NoCommand);
                }
                settings.command.clone_from(command);
            }
            Setting::Schedule(None) => {
                known.lease.schedule = None;
                (known.lease.due, known.due, known.clock) = (None, None, None);
            }
            Setting::Schedule(Some(schedule)) => {
                if settings.command.is_none() {
                    return Err(Refused::NoCommand);
                }
                let date = schedule.next(entry.now.date()).ok_or(Refused::NoDate)?;
                known.lease.schedule = Some(schedule.clone());
                known.lease.due.get_or_insert(fresh);
                known.due = Some(date);
                known.clock =
                    Some(ClockReading { offset: entry.now.offset, seen: entry.now.date() });
                known.stuck_date = false;
            }
        }
        known.stuck = false;
        Ok(())
    }

    fn import(
        &mut self,
        name: &Name,
        (current, next): (&Imported, &Imported),
        entry: Entry,
    ) -> Applied {
        let now = entry.now;
        let known = match self.made(name) {
            Ok(known) if known.runs() => return (Reply::Refused(Refused::Running), false),
            Ok(known) => known,
            Err(refused) => return (Reply::Refused(refused), false),
        };
        let period = known.lease.settings.period_ms;
        let bound = |it: &Imported| {
            it.process.map(|process| sexton::actors::binding::Binding {
                process,
                until: Until::Process,
                fence: false,
            })
        };
        let (at, exit, whole) = (now.at, None, true);
        known.lease.current = (current.pid > 0 || current.until.0 > 0).then(|| Current {
            token: entry.seq.into(),
            place: Token(0),
            holder: bound(current).map_or(Holder::Nobody, Holder::Process),
            pid: current.pid,
            since: at,
            until: now.offset.time(current.until).min(at.plus_ms(period)),
            end: current.process.is_none().then_some(End { at, exit, whole }),
            stopping: false,
            warnings: 0,
            log: None,
            progress: Progress::default(),
        });
        known.lease.begun += u64::from(known.lease.current.is_some());
        if !known.runs() {
            known.lease.whole = known.lease.begun;
        }
        known.lease.next = (next.pid > 0).then(|| NextRequest {
            token: entry.seq.into(),
            command: None,
            process: bound(next),
            pid: next.pid,
            period_ms: period,
            ttl_ms: 60_000,
            connected: false,
            until: now.offset.time(next.until).min(at.plus_ms(2 * period)),
            shared: false,
            log: None,
            max_run_ms: None,
        });
        known.lease.wanted = known.lease.whole;
        known.stuck = false;
        self.shown(name)
    }

    fn reset(&mut self, name: &Name, force: bool) -> Applied {
        let Some(known) = self.named(name) else {
            return (Reply::Absent, false);
        };
        if !known.runs() {
            self.all.retain(|it| it.lease.name != *name);
            return (Reply::Done, true);
        }
        if !force || known.lease.leaves {
            return (Reply::Refused(Refused::Running), false);
        }
        let is_timed = |it: &Current| matches!(it.holder, Holder::Timed { .. });
        if known.lease.current.as_ref().is_some_and(is_timed) {
            self.all.retain(|it| it.lease.name != *name);
            return (Reply::Done, true);
        }
        known.lease.leaves = true;
        if let Some(current) = &mut known.lease.current {
            current.stopping = true;
        }
        known.stuck = false;
        self.shown(name)
    }

    /// Returns the reply to a query.
    pub(crate) fn answer(&self, query: &Query) -> Reply {
        match query {
            Query::Of(name) => {
                let known = self.find(name);
                known.map_or(Reply::Absent, |it| Reply::Lease(Box::new(it.view())))
            }
            Query::List { .. }
            | Query::Active { .. }
            | Query::Failed { .. }
            | Query::Unwell { .. }
            | Query::Totals => {
                unreachable!("simulated clients request neither lists nor totals")
            }
        }
    }

    /// Returns the answer to a waiting request whose condition holds, or whose lease does not exist; `None` if the condition does not hold
    /// yet.
    pub(crate) fn wakes(&self, watch: &Watch) -> Option<Reply> {
        let known = watch.name().and_then(|name| self.find(name));
        let Some(known) = known else {
            return Some(Reply::Absent);
        };
        let comes = known.lease.next.is_some() || known.owes() && known.spare().is_some();
        let over = match watch {
            Watch::Begun { number, .. } => {
                let newest = known.lease.current.as_ref().filter(|it| it.end.is_none());
                let has_record = newest
                    .is_none_or(|it| !matches!(it.holder, Holder::Launched { taken: false, .. }));
                let begun = known.lease.begun;
                begun > *number || begun == *number && has_record || begun < *number && !comes
            }
            Watch::Whole { number, .. } => known.lease.whole >= *number || !known.runs() && !comes,
            Watch::Ended { token, .. } => {
                let current = known.lease.current.as_ref();
                !known.runs() || current.is_none_or(|it| it.token != *token)
            }
            Watch::Idle => unreachable!("simulated clients only wait for leases"),
        };
        over.then(|| Reply::Lease(Box::new(known.view())))
    }
}

fn is_live(place: &NextRequest, now: Timestamp) -> bool {
    place.command.is_some() || place.connected || place.process.is_some() && place.until >= now
}
