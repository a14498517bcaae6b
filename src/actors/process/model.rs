//! Processes as a plain list of records, as they are shown: what the machine is compared with.

use crate::actors::process::{
    Action, Cause, End, Flaw, Identity, Launching, Lost, Message, Parentage, Phase, Reach,
    RecordView, Refused, Rules, Sent, Spec, Stop, Stuck, Tags, kind_of, masked,
};
use crate::clock::{Date, Now, Timestamp};
use crate::ids::{ProcessId, Seq, Slot};

/// A record, and what is not shown of it.
#[derive(Clone)]
pub(super) struct Modelled {
    pub(super) view: RecordView,
    pub(super) slot: Slot,
    made: Seq,
    spec: Spec,
    expires: Option<Timestamp>,
    empty: bool,
    signals: Vec<(Seq, u8, bool)>,
    pub(super) bytes: u64,
}

/// All of them, in the order in which they were made.
#[derive(Clone, Default)]
pub(super) struct Model {
    pub(super) records: Vec<Modelled>,
    pub(super) rules: Rules,
    pub(super) epoch: Timestamp,
    pub(super) started: Seq,
    pub(super) contradictions: u64,
}

/// What a message comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Refused(Refused),
    Nothing,
    Changed,
}

/// Actions with the slot and the entry that they are of.
pub(super) type Actions = Vec<(u64, Seq, Action)>;

/// The entry that a message would make: its number and time, and the id and slot that a new record gets.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) seq: Seq,
    pub(super) now: Now,
    pub(super) new: Option<(ProcessId, Slot)>,
}

impl Model {
    pub(super) fn find(&mut self, id: ProcessId) -> Option<&mut Modelled> {
        self.records.iter_mut().find(|it| it.view.id == id)
    }

    fn at(&mut self, slot: Slot) -> &mut Modelled {
        let mut records = self.records.iter_mut();
        let found = records.find(|it| it.slot == slot);
        found.expect("time acts on what is there")
    }

    /// Whether something lives here or below.
    pub(super) fn stays(&self, id: ProcessId) -> bool {
        self.records.iter().any(|it| {
            let own = it.view.id == id && it.view.phase != Phase::Exited;
            own || it.view.parent == Some(id) && self.stays(it.view.id)
        })
    }

    /// Slots of those that may go, the oldest first.
    pub(super) fn removable(&self) -> Vec<(Date, Slot)> {
        let free = self.records.iter().filter(|it| !self.stays(it.view.id));
        let mut free: Vec<_> = free
            .map(|it| (it.view.ended.expect("it has ended"), it.slot))
            .collect();
        free.sort_unstable();
        free
    }

    fn live(&self, identity: &Identity) -> Option<&Modelled> {
        let is_it = |it: &&Modelled| {
            let its = it.view.identity.as_ref();
            it.view.phase != Phase::Exited && its.is_some_and(|its| its.is(identity))
        };
        let found = self.records.iter().filter(is_it);
        found.min_by_key(|it| (!it.view.launched, it.view.id))
    }

    fn above(&self, id: Option<ProcessId>) -> Vec<ProcessId> {
        let found = self.records.iter().find(|it| Some(it.view.id) == id);
        found.map_or_else(Vec::new, |it| {
            let mut above = self.above(it.view.parent);
            above.push(it.view.id);
            above
        })
    }

    /// What is due first: the ends of timeouts and graces, and of the time for which records are kept.
    pub(super) fn due(&self, now: Now, held: bool) -> Option<Slot> {
        let acts = self.records.iter().filter_map(|it| {
            let at = match (it.view.phase, it.view.stop) {
                (Phase::Running, _) => it.expires,
                (Phase::Stopping, Some(stop)) if !stop.killed => Some(ends(&stop, self.epoch)),
                _ => None,
            };
            at.map(|at| (at, it.slot))
        });
        let kept = self.rules.retention_ms;
        let removals = self.removable().into_iter().filter(|_| !held);
        let removals = removals.map(|(ended, slot)| (now.offset.time(ended.plus_ms(kept)), slot));
        let due = acts.chain(removals).filter(|(at, _)| *at <= now.at);
        due.min().map(|(_, slot)| slot)
    }

    fn remove(&mut self, slots: &[Slot]) {
        let gone: Vec<ProcessId> = slots.iter().map(|slot| self.at(*slot).view.id).collect();
        self.records.retain(|it| !gone.contains(&it.view.id));
        for it in &mut self.records {
            it.view.parent = it.view.parent.filter(|parent| !gone.contains(parent));
        }
    }

    /// Does what a message says.
    pub(super) fn send(&mut self, message: &Message, entry: Entry) -> (Verdict, Actions) {
        let mut actions = Vec::new();
        let verdict = match self.change(message, entry, &mut actions) {
            Ok(true) => Verdict::Changed,
            Ok(false) => Verdict::Nothing,
            Err(refused) => Verdict::Refused(refused),
        };
        self.count_below();
        (verdict, actions)
    }

    fn count_below(&mut self) {
        let lively: Vec<ProcessId> = self.records.iter().map(|it| it.view.id).collect();
        let lively: Vec<ProcessId> = lively.into_iter().filter(|id| self.stays(*id)).collect();
        let parents: Vec<_> = self
            .records
            .iter()
            .map(|it| (it.view.id, it.view.parent))
            .collect();
        for it in &mut self.records {
            let children = parents
                .iter()
                .filter(|(id, parent)| *parent == Some(it.view.id) && lively.contains(id));
            it.view.live_children = u32::try_from(children.count()).expect("few");
        }
    }

    fn change(
        &mut self,
        message: &Message,
        entry: Entry,
        actions: &mut Actions,
    ) -> Result<bool, Refused> {
        match message {
            Message::Launch(launching) => self.add(launching, None, entry).map(|()| true),
            Message::Register(registering) => {
                if registering.identity.pid == 0 {
                    return Err(Refused::Invalid(Flaw::Identity));
                }
                if self.live(&registering.identity).is_some() {
                    return Ok(false);
                }
                let spec = Spec {
                    argv: registering.argv.clone(),
                    dir: registering.dir.clone(),
                    ..Spec::default()
                };
                let launching = Launching {
                    spec,
                    tags: registering.tags.clone(),
                    parentage: registering.parentage.clone(),
                };
                let running = Some((registering.identity, registering.started));
                self.add(&launching, running, entry).map(|()| true)
            }
            Message::Prune {
                before,
                keep,
                limit,
            } => {
                let old = self.removable();
                let most = old.len().saturating_sub(*keep as usize);
                let old = old.into_iter().take(most).take(*limit as usize);
                let old = old.filter(|(ended, _)| before.is_none_or(|before| *ended < before));
                let slots: Vec<Slot> = old.map(|(_, slot)| slot).collect();
                self.remove(&slots);
                Ok(!slots.is_empty())
            }
            Message::Lapse { slot } => {
                let it = self.at(*slot);
                match (it.view.phase, &mut it.view.stop) {
                    (Phase::Running, stop) => {
                        let signal = if it.spec.stop_signal == 0 {
                            15
                        } else {
                            it.spec.stop_signal
                        };
                        *stop = Some(new_stop(
                            entry,
                            (Cause::Timeout, signal),
                            (it.spec.grace_ms, true),
                        ));
                        it.view.phase = Phase::Stopping;
                    }
                    (Phase::Stopping, Some(stop)) => {
                        (stop.killed, stop.asked, stop.errno) = (true, entry.seq, None)
                    }
                    _ => {
                        self.remove(&[*slot]);
                        return Ok(true);
                    }
                }
                it.step(entry.seq, actions);
                Ok(true)
            }
            _ => {
                let epoch = self.epoch;
                let reports = !matches!(
                    message,
                    Message::Finish { .. } | Message::Stop { .. } | Message::Signal { .. }
                );
                let found = self.find(message.id().expect("it is about one"));
                let found = found.ok_or(Refused::Unknown);
                let found = found.and_then(|it| match it.view.phase {
                    Phase::Exited => Err(Refused::Ended),
                    _ => Ok(it),
                });
                match found {
                    Err(_) if reports => Ok(false),
                    Err(refused) => Err(refused),
                    Ok(it) if reports => {
                        let (changed, contradicts) = it.hear(message, entry, actions);
                        self.contradictions += u64::from(contradicts);
                        Ok(changed)
                    }
                    Ok(it) => it.ask(message, entry, (epoch, actions)),
                }
            }
        }
    }

    fn add(
        &mut self,
        Launching {
            spec,
            tags,
            parentage,
        }: &Launching,
        running: Option<(Identity, Date)>,
        Entry { seq, now, new }: Entry,
    ) -> Result<(), Refused> {
        if running.is_none() {
            spec.check().map_err(Refused::Invalid)?;
        }
        tags.check().map_err(Refused::Invalid)?;
        let live = self
            .records
            .iter()
            .filter(|it| it.view.phase != Phase::Exited);
        if live.count() >= self.rules.live_max as usize {
            return Err(Refused::Full);
        }
        let parent = self.parent(parentage, running.map(|(identity, _)| identity));
        let above = self.above(parent);
        let depth = parent
            .and_then(|id| self.find(id))
            .map_or(0, |it| it.view.depth + 1);
        let root = parent.and_then(|id| self.find(id)).map(|it| it.view.root);
        let kind = if tags.kind.is_empty() {
            kind_of(&spec.argv).to_owned()
        } else {
            tags.kind.clone()
        };
        let of_kind = self.records.iter().filter(|it| it.view.kind == kind);
        let number = 1 + of_kind.map(|it| it.view.number).max().unwrap_or(0);
        let tags = Tags {
            kind,
            ..tags.clone()
        };
        let bytes = (spec.bytes() + tags.bytes()) as u64;
        let mut gone = Vec::new();
        let is_over = |model: &Self| {
            let all: u64 = model.records.iter().map(|it| it.bytes).sum();
            model.records.len() >= model.rules.records_max as usize
                || all + bytes > model.rules.bytes_max
        };
        let mut after = self.clone();
        while is_over(&after) {
            let mut free = self.removable().into_iter().map(|(_, slot)| slot);
            let next =
                free.find(|slot| !gone.contains(slot) && !above.contains(&self.at(*slot).view.id));
            let next = next.ok_or(Refused::Full)?;
            gone.push(next);
            after.remove(&[next]);
        }
        self.remove(&gone);
        let (id, slot) = new.expect("the machine adds one, too");
        let view = RecordView {
            id,
            parent,
            root: root.unwrap_or(id),
            depth,
            kind: tags.kind,
            number,
            url: tags.url,
            labels: tags.labels,
            argv: masked(&spec.argv),
            dir: spec.dir.clone(),
            env: spec.env.iter().map(|(name, _)| name.clone()).collect(),
            run_dir: None,
            timeout_ms: spec.timeout_ms,
            launched: running.is_none(),
            is_hook: false,
            phase: if running.is_some() {
                Phase::Running
            } else {
                Phase::Queued
            },
            identity: running.map(|(identity, _)| identity),
            contained: false,
            queued: now.date(),
            started: running.map(|(_, started)| started),
            ended: None,
            stop: None,
            end: None,
            failure: None,
            error: None,
            remains: None,
            stuck: None,
            sent: None,
            live_children: 0,
        };
        self.records.push(Modelled {
            view,
            slot,
            made: seq,
            spec: spec.clone(),
            expires: None,
            empty: false,
            signals: Vec::new(),
            bytes,
        });
        Ok(())
    }

    fn parent(&mut self, parentage: &Parentage, own: Option<Identity>) -> Option<ProcessId> {
        let machine = own.or(parentage.line.first().copied()).map(|it| it.machine);
        if let Some(named) = parentage.named.and_then(|id| self.find(id)) {
            let its = named.view.identity;
            let elsewhere = its.is_some_and(|its| machine.is_some_and(|it| it != its.machine));
            let itself = its.is_some_and(|its| own.is_some_and(|own| own.is(&its)));
            if !elsewhere && !itself {
                return Some(named.view.id);
            }
        }
        let line = parentage
            .line
            .iter()
            .filter(|it| own.is_none_or(|own| !own.is(it)));
        line.filter_map(|it| self.live(it))
            .map(|it| it.view.id)
            .next()
    }

    /// What the last record that was added asks for.
    pub(super) fn attempt(&self, at: usize) -> Actions {
        let mut actions = Actions::new();
        if let Some(it) = self.records.get(at) {
            let id = it.view.id;
            let launched = it.view.launched;
            let what = match it.view.identity {
                None => Action::Launch {
                    id,
                    spec: it.spec.clone(),
                },
                Some(identity) => Action::Follow {
                    id,
                    identity,
                    launched,
                    contained: it.view.contained,
                    run_dir: it.spec.run_dir.clone(),
                },
            };
            actions.push((it.slot.0.into(), it.made, what));
        }
        actions
    }

    /// All that stands.
    pub(super) fn resume(&self) -> Actions {
        let mut live: Vec<usize> = (0..self.records.len()).collect();
        live.retain(|at| self.records[*at].view.phase != Phase::Exited);
        live.sort_by_key(|at| self.records[*at].view.id);
        let mut actions = Actions::new();
        for at in live {
            actions.extend(self.attempt(at));
            let it = &self.records[at];
            for signal in &it.signals {
                it.signal(*signal, &mut actions);
            }
            if it.view.phase == Phase::Stopping {
                let asked = it.view.stop.expect("it is stopped").asked;
                it.step(asked, &mut actions);
                let stop = it.view.stop.expect("it is stopped");
                if it.view.end.is_some() && !stop.killed {
                    let (id, identity) = it.known();
                    actions.push((it.slot.0.into(), asked, Action::Await { id, identity }));
                }
            }
        }
        actions.push((u64::MAX, self.started, Action::Census));
        actions
    }
}

fn ends(stop: &Stop, epoch: Timestamp) -> Timestamp {
    stop.since.max(epoch).plus_ms(stop.grace_ms.into())
}

fn new_stop(entry: Entry, (cause, signal): (Cause, u8), (grace_ms, tree): (u32, bool)) -> Stop {
    Stop {
        cause,
        signal,
        tree,
        since: entry.now.at,
        grace_ms,
        killed: grace_ms == 0,
        asked: entry.seq,
        errno: None,
    }
}

impl Modelled {
    fn known(&self) -> (ProcessId, Identity) {
        (self.view.id, self.view.identity.expect("it is known"))
    }

    /// The step of a stop, if this entry asks for it.
    fn step(&self, entry: Seq, actions: &mut Actions) {
        let stop = self.view.stop.expect("it is stopped");
        if stop.asked != entry || self.view.phase == Phase::Queued {
            return;
        }
        let ((id, identity), tree) = (self.known(), stop.tree);
        let what = if stop.killed {
            Action::Kill { id, identity, tree }
        } else {
            let reach = if tree { Reach::Tree } else { Reach::Leader };
            Action::Signal {
                id,
                identity,
                signal: stop.signal,
                reach,
            }
        };
        actions.push((self.slot.0.into(), entry, what));
    }

    fn signal(&self, (asked, signal, group): (Seq, u8, bool), actions: &mut Actions) {
        let (id, identity) = self.known();
        let reach = if group { Reach::Group } else { Reach::Leader };
        let what = Action::Signal {
            id,
            identity,
            signal,
            reach,
        };
        actions.push((self.slot.0.into(), asked, what));
    }

    /// A client asks for something.
    fn ask(
        &mut self,
        message: &Message,
        entry: Entry,
        (epoch, actions): (Timestamp, &mut Actions),
    ) -> Result<bool, Refused> {
        match message {
            Message::Finish { code, error, .. } => {
                if self.view.launched {
                    return Err(Refused::Launched);
                }
                if self.view.end.is_some() {
                    return Err(Refused::Ended);
                }
                self.view.error.clone_from(error);
                self.bytes += error.as_ref().map_or(0, |it| it.len() as u64);
                self.end((End::Code(*code), entry.now.date()), entry.seq, actions);
                Ok(true)
            }
            Message::Signal { signal, group, .. } => {
                if self.view.phase == Phase::Queued {
                    return Err(Refused::Queued);
                }
                if self.view.end.is_some() {
                    return Err(Refused::Ended);
                }
                if self.signals.len() == 8 {
                    return Err(Refused::Busy);
                }
                self.signals.push((entry.seq, *signal, *group));
                self.signal((entry.seq, *signal, *group), actions);
                Ok(true)
            }
            Message::Stop {
                signal,
                grace_ms,
                tree,
                ..
            } => {
                let first = if self.spec.stop_signal == 0 {
                    15
                } else {
                    self.spec.stop_signal
                };
                let signal = signal.unwrap_or(first);
                let grace_ms = grace_ms.unwrap_or(self.spec.grace_ms);
                let asked = new_stop(entry, (Cause::Request, signal), (grace_ms, *tree));
                match &mut self.view.stop {
                    None => self.view.stop = Some(asked),
                    Some(stop) => {
                        let wider = *tree && !stop.tree;
                        let sooner = !stop.killed
                            && (grace_ms == 0 || ends(&asked, epoch) < ends(stop, epoch));
                        if sooner {
                            stop.since = entry.now.at;
                            stop.grace_ms = grace_ms;
                            stop.killed = grace_ms == 0;
                        }
                        stop.tree |= *tree;
                        if wider || sooner && grace_ms == 0 {
                            (stop.asked, stop.signal, stop.errno) = (entry.seq, signal, None);
                        }
                        if !wider && !sooner {
                            return Ok(false);
                        }
                    }
                }
                if self.view.phase == Phase::Running {
                    self.view.phase = Phase::Stopping;
                }
                self.step(entry.seq, actions);
                Ok(true)
            }
            _ => unreachable!("clients ask for nothing else"),
        }
    }

    /// The port reports something: whether it changes anything, and whether it contradicts what was reported before.
    fn hear(&mut self, message: &Message, entry: Entry, actions: &mut Actions) -> (bool, bool) {
        let view = &mut self.view;
        match message {
            Message::Started {
                identity,
                at,
                contained,
                ..
            } => {
                if let Some(known) = view.identity {
                    return (false, !known.is(identity));
                }
                let since = entry
                    .now
                    .offset
                    .time((*at).max(view.queued))
                    .min(entry.now.at);
                let timeout_ms = self.spec.timeout_ms;
                self.expires = (timeout_ms > 0).then(|| since.plus_ms(timeout_ms));
                (view.identity, view.started) = (Some(*identity), Some(*at));
                (view.contained, view.phase) = (*contained, Phase::Running);
                if let Some(stop) = &mut view.stop {
                    (stop.since, stop.asked) = (entry.now.at, entry.seq);
                    view.phase = Phase::Stopping;
                    self.step(entry.seq, actions);
                }
            }
            Message::Failed { failure, .. } => {
                if view.phase != Phase::Queued {
                    return (false, true);
                }
                view.failure = Some(failure.clone());
                view.ended = Some(entry.now.date());
                self.bytes += failure.about.as_ref().map_or(0, |it| it.len() as u64);
                self.leave(entry.seq, actions);
            }
            Message::Ended { end, at, left, .. } => {
                if view.end.is_some() {
                    return (false, false);
                }
                view.remains = Some(left.clone());
                self.bytes += left.stdout.head.as_bytes().len() as u64;
                self.end((*end, (*at).min(entry.now.date())), entry.seq, actions);
            }
            Message::Empty { .. } => {
                let awaited = view.stop.is_some_and(|stop| stop.tree);
                if view.phase != Phase::Stopping || !awaited || self.empty {
                    return (false, false);
                }
                self.empty = true;
                if let Some(left) = &mut view.remains {
                    left.alive = 0;
                }
                if view.end.is_some() {
                    self.leave(entry.seq, actions);
                }
            }
            Message::Stuck {
                unkillable,
                unknown,
                ..
            } => {
                let stuck = Stuck {
                    unkillable: *unkillable,
                    unknown: *unknown,
                };
                let stuck = Some(stuck).filter(|it| it.unkillable + it.unknown > 0);
                if view.phase != Phase::Stopping || view.stuck == stuck {
                    return (false, false);
                }
                view.stuck = stuck;
            }
            Message::Signalled { asked, errno, .. } => {
                if self.signals.iter().any(|(its, ..)| its == asked) {
                    self.signals.retain(|(its, ..)| its != asked);
                    view.sent = Some(Sent {
                        asked: *asked,
                        errno: *errno,
                    });
                } else if let Some(stop) = view.stop.as_mut().filter(|it| it.asked == *asked) {
                    if stop.errno == *errno {
                        return (false, false);
                    }
                    stop.errno = *errno;
                } else {
                    return (false, false);
                }
            }
            _ => unreachable!("the port reports nothing else"),
        }
        (true, false)
    }

    fn end(&mut self, (end, at): (End, Date), entry: Seq, actions: &mut Actions) {
        (self.view.end, self.view.ended) = (Some(end), Some(at));
        self.signals.clear();
        let stop = self
            .view
            .stop
            .filter(|_| self.view.phase == Phase::Stopping);
        let stop = stop.filter(|stop| stop.tree && !self.empty);
        match stop {
            Some(stop) if end != End::Lost(Lost::Rebooted) => {
                if !stop.killed {
                    let (id, identity) = self.known();
                    actions.push((self.slot.0.into(), entry, Action::Await { id, identity }));
                }
            }
            _ => self.leave(entry, actions),
        }
    }

    fn leave(&mut self, entry: Seq, actions: &mut Actions) {
        (self.view.phase, self.view.stuck) = (Phase::Exited, None);
        self.signals.clear();
        let id = self.view.id;
        actions.push((self.slot.0.into(), entry, Action::Forget { id }));
    }
}
