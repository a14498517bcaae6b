//! Applies the outcome of each committed entry, and requests the resulting actions from the port. On `resume`, for example after a restart
//! of the server, requests all actions again that are still needed.

use crate::actors::binding::{self, ToHolder, Watch};
use crate::actors::process::machine::ProcessMachine;
use crate::actors::process::message::{
    Action, Launching, Message, Notice, Reach, Registering, Remains,
};
use crate::actors::process::outcome::{Insertion, Outcome};
use crate::actors::process::record::{
    Announced, Deferral, Phase, Profile, RareFields, Record, Sending, Sent, Stop, Stuck,
};
use crate::actors::process::spec::{Expectation, Ready};
use crate::clock::Timestamp;
use crate::ids::{ActorId, ProcessId, Seq, Slot};
use crate::spine::effect;
use crate::spine::machine::{Effects, Stamp};
use std::sync::Arc;

/// The id of [`Action::ForgetOthers`]. The ids of other actions are slots, and no slot has this number.
const FORGET_OTHERS: u64 = u64::MAX;

impl ProcessMachine {
    pub(super) fn apply(
        &mut self,
        entry: Stamp,
        (message, outcome): (&Message, &Outcome),
        effects: &mut Effects<Self>,
    ) {
        match (outcome, message) {
            (Outcome::Launched(insertion), Message::Launch(launching)) => {
                self.commit_launch(entry.seq, (launching, insertion), effects);
            }
            (Outcome::Begun { slot }, _) => self.commit_begin(entry.seq, *slot, effects),
            (Outcome::Cancelled { slot, at }, _) => {
                self.commit_cancellation(entry.seq, (*slot, *at), effects);
            }
            (outcome, Message::LaunchAs(asked)) => {
                self.commit_launch_as(entry.seq, (asked, outcome), effects);
            }
            (Outcome::Registered(insertion), Message::Register(registering)) => {
                self.commit_registration(entry.seq, (registering, insertion), effects);
            }
            (_, Message::Serve(registering)) => {
                self.commit_server(entry.seq, (registering, outcome));
            }
            (Outcome::Stopping { slot, stop }, _) => {
                self.commit_stop(entry.seq, (*slot, *stop), effects);
            }
            (Outcome::Killing { slot }, _) => {
                self.change_stop(entry.seq, *slot, |stop| {
                    (stop.killed, stop.asked, stop.errno) = (true, entry.seq, None);
                });
                self.request_stop(*slot, effects);
            }
            (Outcome::Signalling { slot }, Message::Signal { signal, group, .. }) => {
                let sending = Sending { asked: entry.seq, signal: *signal, group: *group };
                self.state.change(entry.seq, *slot, |it| it.rare.signals.push(sending));
                self.request_signal(*slot, sending, effects);
            }
            (Outcome::Watched { slot }, Message::Watch(watch)) => {
                self.commit_watch(entry.seq, (*slot, *watch));
            }
            (Outcome::Gone, Message::Watch(watch)) => self.commit_gone(entry.seq, *watch, effects),
            (
                Outcome::Fenced { stops }
                | Outcome::StoppingTree { stops }
                | Outcome::StoppingPart { stops },
                _,
            ) => {
                for (slot, stop) in stops {
                    self.commit_stop(entry.seq, (*slot, *stop), effects);
                }
            }
            (Outcome::Child(insertion), Message::Child { of, child }) => {
                self.commit_child(entry, (*of, child), Some(insertion));
            }
            (Outcome::Declined(_), Message::Child { of, child }) => {
                self.commit_child(entry, (*of, child), None);
            }
            (Outcome::Found { slot }, Message::Found { found, .. }) => {
                self.commit_found(entry, *slot, found);
            }
            (Outcome::Service(turn), _) => self.apply_turn(entry, (message, turn), effects),
            (Outcome::Pruned { slots, .. }, _) => {
                for slot in slots {
                    self.state.remove(entry.seq, *slot);
                }
            }
            _ => self.apply_report(entry, (message, outcome), effects),
        }
    }

    fn commit_registration(
        &mut self,
        seq: Seq,
        (registering, insertion): (&Registering, &Insertion),
        effects: &mut Effects<Self>,
    ) {
        let profile = registering.profile(&insertion.kind);
        self.add(seq, insertion, profile, |it| {
            it.phase = Phase::Running;
            it.identity = Some(registering.identity);
            it.started = Some(registering.started);
        });
        self.request_attempt(insertion.slot, effects);
    }

    /// Applies a report from the port or from a process.
    fn apply_report(
        &mut self,
        entry: Stamp,
        (message, outcome): (&Message, &Outcome),
        effects: &mut Effects<Self>,
    ) {
        match (outcome, message) {
            (Outcome::Started { slot, since }, _) => {
                self.commit_start(entry, (*slot, message), *since, effects);
            }
            (Outcome::Ended { slot, tree, .. }, _) => {
                self.commit_end(entry.seq, (message, outcome), effects);
                self.leave(entry.seq, (*slot, *tree), effects);
            }
            (Outcome::Failed { slot, at }, Message::Failed { failure, .. }) => {
                self.counted.failures += 1;
                self.state.change(entry.seq, *slot, |it| {
                    it.rare.failure = Some(failure.clone());
                    it.ended = Some(*at);
                });
                self.leave(entry.seq, (*slot, false), effects);
            }
            (Outcome::Emptied { slot }, _) => {
                self.state.change(entry.seq, *slot, |it| {
                    it.empty = true;
                    if let Some(left) = &mut it.remains {
                        Arc::make_mut(left).alive = 0;
                    }
                });
                if self.record(*slot).end.is_some() {
                    self.leave(entry.seq, (*slot, false), effects);
                }
            }
            (Outcome::Stuck { slot }, Message::Stuck { unkillable, unknown, .. }) => {
                let stuck = Stuck::new(*unkillable, *unknown);
                self.state.change(entry.seq, *slot, |it| it.rare.stuck = stuck);
            }
            (Outcome::Noticed { slot }, Message::Notice { notice, .. }) => {
                self.state.change(entry.seq, *slot, |it| note(it, notice));
            }
            (Outcome::Signalled { slot }, Message::Signalled { asked, errno, .. }) => {
                self.commit_sent(entry.seq, *slot, (*asked, *errno), effects);
            }
            (outcome, message) => unreachable!("{outcome:?} cannot result from {message:?}"),
        }
    }

    pub(super) fn record(&self, slot: Slot) -> &Record {
        let record = self.state.records.get(slot);
        record.expect("an outcome should name an existing record")
    }

    pub(super) fn add(
        &mut self,
        entry: Seq,
        insertion: &Insertion,
        profile: Profile,
        make: impl FnOnce(&mut Record),
    ) {
        for slot in &insertion.evicted {
            self.state.remove(entry, *slot);
        }
        let mut record = Record {
            id: insertion.id,
            made: entry,
            parent: insertion.parent,
            root: insertion.root,
            depth: insertion.depth,
            number: insertion.number,
            queued: insertion.at,
            profile: Arc::new(profile),
            ..Record::default()
        };
        if insertion.stop.is_some() {
            record.rare.stop = insertion.stop;
        }
        make(&mut record);
        self.state.insert(entry, insertion.slot, record);
    }

    pub(super) fn commit_launch(
        &mut self,
        entry: Seq,
        (launching, insertion): (&Launching, &Insertion),
        effects: &mut Effects<Self>,
    ) {
        let profile = launching.profile(&insertion.kind);
        let bound = launching.parentage.bound;
        let deferred = launching.deferred.then_some(Deferral { bound });
        self.counted.launches += u64::from(deferred.is_none());
        self.add(entry, insertion, profile, |it| {
            it.launched = true;
            if deferred.is_some() {
                it.rare.deferred = deferred;
            }
        });
        self.request_attempt(insertion.slot, effects);
    }

    /// Lets the record of the server, which may be new, stand for the process that `registering` describes.
    fn commit_server(&mut self, entry: Seq, (registering, outcome): (&Registering, &Outcome)) {
        let make = |record: &mut Record| {
            record.phase = Phase::Running;
            record.identity = Some(registering.identity);
            record.started = Some(registering.started);
        };
        if let Outcome::Serving(insertion) = outcome {
            self.state.set_server(entry, insertion.id);
            let profile = registering.profile(&insertion.kind);
            self.add(entry, insertion, profile, make);
        } else if let Outcome::Renewed { slot, .. } = outcome {
            let kind = self.record(*slot).profile.tags.kind.clone();
            let profile = registering.profile(&kind);
            self.state.renew(entry, *slot, profile, make);
        } else {
            unreachable!("{outcome:?} cannot result from {registering:?}")
        }
    }

    fn commit_watch(&mut self, entry: Seq, (slot, watch): (Slot, Watch)) {
        self.state.change(entry, slot, |it| {
            it.awaited = it.awaited.filter(|by| *by != watch.by);
            it.watchers.insert((watch.by, watch.until));
        });
    }

    fn commit_stop(&mut self, entry: Seq, (slot, stop): (Slot, Stop), effects: &mut Effects<Self>) {
        self.state.change(entry, slot, |it| {
            it.rare.stop = Some(stop);
            if it.phase == Phase::Running {
                it.phase = Phase::Stopping;
            }
        });
        if stop.asked == entry {
            self.request_stop(slot, effects);
        }
    }

    /// Commits the start of a process. If a stop was requested before the start, it takes effect now.
    fn commit_start(
        &mut self,
        entry: Stamp,
        (slot, message): (Slot, &Message),
        since: Timestamp,
        effects: &mut Effects<Self>,
    ) {
        let Message::Started { identity, at, contained, .. } = message else {
            unreachable!("only a `Started` message is committed as a start");
        };
        self.state.change(entry.seq, slot, |it| {
            it.identity = Some(*identity);
            it.started = Some(*at);
            it.contained = *contained;
            let timeout_ms = it.profile.spec.timeout_ms;
            it.expires = (timeout_ms > 0).then(|| since.plus_ms(timeout_ms));
            let ready_ms = u64::from(it.profile.spec.ready_timeout_ms);
            let is_awaited = it.profile.spec.ready != Ready::Running;
            let is_awaited = is_awaited && it.announced == Announced::Nothing;
            if is_awaited && ready_ms > 0 {
                it.rare.ready_by = Some(since.plus_ms(ready_ms));
            }
            it.phase = Phase::Running;
            if let Some(RareFields { stop: Some(stop), .. }) = it.rare.get_mut() {
                // The grace period of a stop that was requested while the process was queued begins now. The grace period of an inherited
                // stop, which was requested by the entry that created the record, does not begin again, so that it expires together with
                // that of the tree.
                if stop.asked != it.made {
                    stop.since = entry.at;
                }
                stop.asked = entry.seq;
                it.phase = Phase::Stopping;
            }
        });
        if self.record(slot).rare.stop.is_some() {
            self.request_stop(slot, effects);
        }
        let record = self.record(slot);
        if record.is_launched_for(ActorId::LEASE) {
            let holder = binding::holder(ActorId::LEASE);
            effects.tell(holder, &ToHolder::Started(record.id));
        }
        self.wake(record.id, effects);
    }

    fn commit_end(
        &mut self,
        entry: Seq,
        (message, outcome): (&Message, &Outcome),
        effects: &mut Effects<Self>,
    ) {
        let Outcome::Ended { slot, end, at, tree } = outcome else {
            unreachable!("only an `Ended` outcome is committed as an end");
        };
        self.state.change(entry, *slot, |it| {
            (it.end, it.ended) = (Some(*end), Some(*at));
            if let Some(rare) = it.rare.get_mut() {
                rare.signals.clear();
            }
            if *tree {
                it.phase = Phase::Stopping;
                if it.kills_nothing()
                    && let Some(rare) = it.rare.get_mut()
                {
                    rare.stuck = None;
                }
            }
            if let Message::Finish { error, .. } = message {
                it.rare.error.clone_from(error);
            }
            if let Message::Ended { left, .. } = message {
                it.remains = Some(Arc::new(Remains::clone(left)));
            }
        });
        if *tree {
            let record = self.record(*slot);
            let killed = record.rare.stop.is_some_and(|stop| stop.killed && stop.tree);
            // If the tree is being killed, no `Await` is needed: the port reports `Empty` as the result of `Kill`.
            if !killed {
                let (id, identity) = id_and_identity(record);
                act(effects, *slot, entry, Action::Await { id, identity });
            }
            self.wake(record.id, effects);
        }
    }

    /// Sets the phase of a record to `Exited`, tells the keeper to forget the process, and answers the clients that wait for its end. Does
    /// nothing if `tree` is set: the record then still waits for its tree to end.
    pub(super) fn leave(
        &mut self,
        entry: Seq,
        (slot, tree): (Slot, bool),
        effects: &mut Effects<Self>,
    ) {
        if tree {
            return;
        }
        self.state.change(entry, slot, |it| {
            it.phase = Phase::Exited;
            if let Some(rare) = it.rare.get_mut() {
                rare.stuck = None;
                rare.signals.clear();
            }
        });
        let record = self.record(slot);
        let id = record.id;
        act(effects, slot, entry, Action::Forget { id });
        self.request_reading(slot, effects);
        self.wake(id, effects);
        // Clients may be waiting for the tree of an ancestor that ended earlier, and this may have been the last process in that tree.
        let record = self.record(slot);
        if record.is_stopped_with_tree() {
            let above = self.state.above(record.parent);
            let above: Vec<ProcessId> = above.map(|(_, record)| record.id).collect();
            for id in above {
                self.wake(id, effects);
            }
        }
    }

    fn commit_sent(
        &mut self,
        entry: Seq,
        slot: Slot,
        (asked, errno): (Seq, Option<i32>),
        effects: &mut Effects<Self>,
    ) {
        self.state.change(entry, slot, |it| {
            let before = it.rare.signals.len();
            it.rare.signals.retain(|sending| sending.asked != asked);
            if it.rare.signals.len() < before {
                it.rare.sent = Some(Sent { asked, errno });
            } else if let Some(stop) = &mut it.rare.stop {
                stop.errno = errno;
            }
        });
        self.wake(self.record(slot).id, effects);
    }

    fn change_stop(&mut self, entry: Seq, slot: Slot, make: impl FnOnce(&mut Stop)) {
        self.state.change(entry, slot, |it| {
            make(it.rare.stop.as_mut().expect("a process being stopped should have a stop"));
        });
    }

    /// Answers those clients waiting on this record whose condition is now met.
    fn wake(&mut self, id: ProcessId, effects: &mut Effects<Self>) {
        for (ticket, watch) in self.waiting.of(id) {
            if let Some(reply) = self.answer(&watch) {
                self.waiting.forget(ticket);
                effects.wake(ticket, reply);
            }
        }
    }

    /// Requests all actions again that are still needed, and then makes the keeper forget every process that none
    /// of these actions names. This includes processes whose `Forget` was lost.
    pub(super) fn request_all(&self, effects: &mut Effects<Self>) {
        for id in &self.state.index.live {
            let Some((slot, record)) = self.state.find(*id) else {
                continue;
            };
            if self.state.is_server(record.id) {
                continue;
            }
            self.request_attempt(slot, effects);
            for sending in &record.rare.signals {
                self.request_signal(slot, *sending, effects);
            }
            if record.phase == Phase::Stopping {
                self.request_stop(slot, effects);
            }
        }
        for (slot, _) in self.state.records.iter() {
            self.request_reading(slot, effects);
        }
        effects.act(effect::Action {
            id: FORGET_OTHERS,
            attempt: self.state.head.start,
            what: Action::ForgetOthers,
        });
    }

    /// Requests the action for a live record: to launch its process, or to follow it once its identity is known. If the process has ended,
    /// it is followed until its tree has ended, too, because the port needs the identity to recognise the tree. If the port then reports
    /// the end of the process again, the report is ignored. Requests nothing while the launch is deferred.
    pub(super) fn request_attempt(&self, slot: Slot, effects: &mut Effects<Self>) {
        let record = self.record(slot);
        if record.is_deferred() {
            return;
        }
        let id = record.id;
        let what = match record.identity {
            None => Action::Launch { id, spec: record.profile.spec.clone() },
            Some(identity) => Action::Follow {
                id,
                identity,
                launched: record.launched,
                contained: record.contained,
                run_dir: record.profile.spec.run_dir.clone(),
                user: record.profile.spec.user.clone(),
                expects: expectation(record),
            },
        };
        act(effects, slot, record.made, what);
    }

    /// If the record is that of an ended hook whose output has not been read yet, requests that it be read.
    fn request_reading(&self, slot: Slot, effects: &mut Effects<Self>) {
        let record = self.record(slot);
        if record.is_to_be_read() {
            let what = Action::Read { id: record.id, run_dir: record.profile.spec.run_dir.clone() };
            act(effects, slot, record.made, what);
        }
    }

    /// Requests the current step of a stop: a signal or SIGKILL. Once the process itself has ended, also requests a report when its tree is
    /// empty, unless SIGKILL to the tree causes that report anyway.
    fn request_stop(&self, slot: Slot, effects: &mut Effects<Self>) {
        let record = self.record(slot);
        if record.phase != Phase::Stopping {
            return;
        }
        let (id, identity) = id_and_identity(record);
        // Without a stop, the process itself has ended, and only the end of its tree is awaited.
        let Some(stop) = record.rare.stop else {
            return act(effects, slot, record.made, Action::Await { id, identity });
        };
        let (tree, signal) = (stop.tree, stop.signal);
        let has_ended = record.end.is_some();
        let what = if stop.killed {
            Action::Kill { id, identity, tree }
        } else {
            let reach = if tree { Reach::Tree } else { Reach::Leader };
            Action::Signal { id, identity, signal, reach, stops: true }
        };
        if !has_ended || tree {
            act(effects, slot, stop.asked, what);
        }
        if has_ended && !(stop.killed && tree) {
            act(effects, slot, stop.asked, Action::Await { id, identity });
        }
    }

    fn request_signal(&self, slot: Slot, sending: Sending, effects: &mut Effects<Self>) {
        let (id, identity) = id_and_identity(self.record(slot));
        let reach = if sending.group { Reach::Group } else { Reach::Leader };
        let signal = sending.signal;
        let what = Action::Signal { id, identity, signal, reach, stops: false };
        act(effects, slot, sending.asked, what);
    }
}

/// Stores a notice from a process.
fn note(record: &mut Record, notice: &Notice) {
    match notice {
        Notice::Ready => (record.announced, record.rare.ready_by) = (Announced::Ready, None),
        Notice::Leaving => (record.announced, record.rare.ready_by) = (Announced::Leaving, None),
        Notice::Words(words) => record.rare.said = Some(words.clone()),
        Notice::Silent => unreachable!("a silent process is stopped instead"),
    }
}

/// Returns what the port must watch for while the process is running; `None` if there is nothing to watch for, or if the keeper did not
/// launch the process.
fn expectation(record: &Record) -> Option<Box<Expectation>> {
    let is_ready = record.announced != Announced::Nothing;
    let expected = record.profile.spec.expectation(is_ready);
    expected.filter(|_| record.launched)
}

/// Returns the id of a record and the identity of its process, which must have started.
fn id_and_identity(record: &Record) -> (ProcessId, crate::actors::process::identity::Identity) {
    let identity = record.identity;
    (record.id, identity.expect("the identity of a started process should be known"))
}

fn act(effects: &mut Effects<ProcessMachine>, slot: Slot, attempt: Seq, what: Action) {
    let id = slot.0.into();
    effects.act(effect::Action { id, attempt, what });
}
