//! Changes to one record: requests from clients, and reports from the port.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "each rule names the messages that it applies to"
)]

use super::{Actions, Entry, Modelled};
use sexton::actors::process::{
    Action, Announced, Cause, End, Identity, Message, Notice, Phase, Reach, Ready, Refused,
    Remains, Sent, Spec, Stop, Stuck,
};
use sexton::clock::{Date, Timestamp};
use sexton::ids::{ProcessId, Seq};
use std::sync::Arc;

/// Returns when the grace period of a stop ends. It begins again at `epoch`, the time of the last startup.
pub(super) fn ends(stop: &Stop, epoch: Timestamp) -> Timestamp {
    stop.since.max(epoch).plus_ms(stop.grace_ms.into())
}

pub(super) const fn first_signal(spec: &Spec) -> u8 {
    const TERM: u8 = 15;
    match spec.stop_signal {
        0 => TERM,
        signal => signal,
    }
}

pub(super) fn new_stop(
    entry: Entry,
    (cause, signal): (Cause, u8),
    (grace_ms, tree): (u32, bool),
) -> Stop {
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
    pub(super) fn known(&self) -> (ProcessId, Identity) {
        (self.view.id, self.view.identity.expect("the identity of a started process is known"))
    }

    /// Requests the action for a live record: to launch its process, or to follow it once its identity is known. While its launch is
    /// deferred, there is none.
    pub(super) fn attempt(&self, actions: &mut Actions) {
        if self.view.deferred.is_some() {
            return;
        }
        let id = self.view.id;
        let what = match self.view.identity {
            None => Action::Launch { id, spec: self.spec.clone() },
            Some(identity) => Action::Follow {
                id,
                identity,
                launched: self.view.launched,
                contained: self.view.contained,
                run_dir: self.spec.run_dir.clone(),
                user: self.spec.user.clone(),
                expects: {
                    let is_ready = self.view.announced != Announced::Nothing;
                    self.spec.expectation(is_ready).filter(|_| self.view.launched)
                },
            },
        };
        actions.push((self.slot.0.into(), self.made, what));
    }

    /// Requests the action for the current step of a stop, if this entry requested that step. If the process itself has ended, also
    /// requests a report when its tree is empty, unless the tree is being killed. Without a stop, requests only that report.
    pub(super) fn step(&self, entry: Seq, actions: &mut Actions) {
        if self.view.phase == Phase::Queued {
            return;
        }
        let (id, identity) = self.known();
        let wait = (self.slot.0.into(), entry, Action::Await { id, identity });
        let Some(stop) = self.view.stop else {
            actions.push(wait);
            return;
        };
        if stop.asked != entry {
            return;
        }
        let tree = stop.tree;
        let what = if stop.killed {
            Action::Kill { id, identity, tree }
        } else {
            let reach = if tree { Reach::Tree } else { Reach::Leader };
            Action::Signal { id, identity, signal: stop.signal, reach, stops: true }
        };
        let has_ended = self.view.end.is_some();
        if !has_ended || tree {
            actions.push((self.slot.0.into(), entry, what));
        }
        if has_ended && (!stop.killed || !tree) {
            actions.push(wait);
        }
    }

    pub(super) fn signal(&self, (asked, signal, group): (Seq, u8, bool), actions: &mut Actions) {
        let (id, identity) = self.known();
        let reach = if group { Reach::Group } else { Reach::Leader };
        let what = Action::Signal { id, identity, signal, reach, stops: false };
        actions.push((self.slot.0.into(), asked, what));
    }

    /// Applies a client's request. Returns whether it changes anything, or the reason if it is refused.
    pub(super) fn ask(
        &mut self,
        message: &Message,
        entry: Entry,
        (epoch, actions): (Timestamp, &mut Actions),
    ) -> Result<bool, Refused> {
        let changed = match message {
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
                true
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
                true
            }
            Message::Stop { .. } => self.stop(self.asked_stop(message, entry), epoch, actions),
            _ => unreachable!("clients send no other requests here"),
        };
        self.quarantined &= !changed;
        Ok(changed)
    }

    /// Refuses to take the tree for empty, unless it has been killed and it is unknown whether any of it is left.
    pub(super) fn settles(&self) -> Result<(), Refused> {
        let view = &self.view;
        if view.phase == Phase::Exited {
            return Err(Refused::Ended);
        }
        let is_killed = view.stop.is_some_and(|stop| stop.killed && stop.tree);
        let is_unknown = view.stuck.is_some_and(|it| it.unkillable == 0 && it.unknown > 0);
        let settles = view.end.is_some() && is_killed && is_unknown;
        settles.then_some(()).ok_or(Refused::NotUnknown)
    }

    /// Returns the stop that this message requests for a whole tree; `None` if it requests none.
    pub(super) fn stops_tree(&self, message: &Message, entry: Entry) -> Option<Stop> {
        let stops = matches!(message, Message::Stop { tree: true, .. });
        stops.then(|| self.asked_stop(message, entry))
    }

    /// Returns the stop that a client requests.
    pub(super) fn asked_stop(&self, message: &Message, entry: Entry) -> Stop {
        let &Message::Stop { signal, grace_ms, tree, .. } = message else {
            unreachable!("only stop requests are handled here");
        };
        let signal = signal.unwrap_or_else(|| first_signal(&self.spec));
        let grace_ms = grace_ms.unwrap_or(self.spec.grace_ms);
        new_stop(entry, (Cause::Request, signal), (grace_ms, tree))
    }

    /// Returns the stop of the process with its tree if this message tells that a watchdog notice of the process is missing; `None` if it
    /// does not, or if the process is not running.
    pub(super) fn silence(&self, message: &Message, entry: Entry) -> Option<Stop> {
        const ABORT: u8 = 6;
        let tells = matches!(message, Message::Notice { notice: Notice::Silent, .. });
        let is_late = tells && self.view.phase == Phase::Running;
        let grace = (self.spec.grace_ms, true);
        is_late.then(|| new_stop(entry, (Cause::Watchdog, ABORT), grace))
    }

    /// Applies a notice from the process, or the absence of a watchdog notice. Returns whether that changes anything.
    fn noticed(&mut self, message: &Message, entry: Entry, actions: &mut Actions) -> bool {
        let Message::Notice { notice, .. } = message else {
            return false;
        };
        let before = (self.view.announced, self.view.said.clone());
        match notice {
            Notice::Silent => {
                let stop = self.silence(message, entry);
                return stop.is_some_and(|stop| self.stop(stop, Timestamp(0), actions));
            }
            _ if self.view.end.is_some() => {}
            Notice::Ready => (self.view.announced, self.ready_by) = (Announced::Ready, None),
            Notice::Leaving => (self.view.announced, self.ready_by) = (Announced::Leaving, None),
            Notice::Words(words) => {
                let old = self.view.said.replace(words.clone());
                self.bytes += words.len() as u64;
                self.bytes -= old.map_or(0, |old| old.len() as u64);
            }
        }
        before != (self.view.announced, self.view.said.clone())
    }

    pub(super) fn stop(&mut self, asked: Stop, epoch: Timestamp, actions: &mut Actions) -> bool {
        match &mut self.view.stop {
            None => self.view.stop = Some(asked),
            Some(stop) => {
                let wider = asked.tree && !stop.tree;
                let at_once = asked.grace_ms == 0;
                let is_earlier = at_once || ends(&asked, epoch) < ends(stop, epoch);
                let sooner = !stop.killed && is_earlier;
                if !wider && !sooner {
                    return false;
                }
                if sooner {
                    (stop.since, stop.grace_ms) = (asked.since, asked.grace_ms);
                    stop.killed = at_once;
                }
                stop.tree |= asked.tree;
                if wider || at_once {
                    (stop.asked, stop.signal, stop.errno) = (asked.asked, asked.signal, None);
                }
            }
        }
        if self.view.phase == Phase::Running {
            self.view.phase = Phase::Stopping;
        }
        self.step(asked.asked, actions);
        true
    }

    /// Applies a report from the port. Returns whether it changes anything, and whether it contradicts an earlier report.
    pub(super) fn report(
        &mut self,
        message: &Message,
        entry: Entry,
        actions: &mut Actions,
    ) -> (bool, bool) {
        let knows = self.view.identity;
        let (changed, contradicts) = match message {
            Message::Started { identity, .. } => match knows {
                Some(known) => (false, !known.is(identity)),
                None => (self.started(message, entry, actions), false),
            },
            Message::Failed { failure, .. } if self.view.phase == Phase::Queued => {
                self.view.failure = Some(failure.clone());
                self.view.ended = Some(entry.now.date());
                self.bytes += failure.about.as_ref().map_or(0, |it| it.len() as u64);
                self.leave(entry.seq, actions);
                (true, false)
            }
            Message::Failed { .. } => (false, true),
            // The end is ignored, since the tree cannot be identified before the start is reported. The port repeats both reports.
            Message::Ended { left, .. }
                if self.view.phase == Phase::Queued
                    && (self.view.stop.is_some_and(|stop| stop.tree)
                        || self.tree_watched
                        || !left.empty) =>
            {
                (false, false)
            }
            Message::Ended { end, at, left, .. } if self.view.end.is_none() => {
                self.view.remains = Some(Arc::new(Remains::clone(left)));
                self.bytes += left.stdout.head().len() as u64;
                self.empty |= left.empty;
                self.end((*end, (*at).min(entry.now.date())), entry.seq, actions);
                (true, false)
            }
            Message::Ended { .. } => (false, false),
            Message::Empty { .. } => (self.emptied(entry, actions), false),
            Message::Stuck { .. } => (self.stuck(message), false),
            Message::Notice { .. } => (self.noticed(message, entry, actions), false),
            Message::Signalled { asked, errno, .. } => (self.signalled(*asked, *errno), false),
            _ => unreachable!("the port sends no other reports"),
        };
        self.quarantined &= !changed;
        (changed, contradicts)
    }

    fn started(&mut self, message: &Message, entry: Entry, actions: &mut Actions) -> bool {
        let Message::Started { identity, at, contained, .. } = message else {
            unreachable!("only reports of a start are handled here");
        };
        let view = &mut self.view;
        let since = entry.now.offset.time((*at).max(view.queued));
        let since = since.min(entry.now.at);
        let is_awaited = self.spec.ready != Ready::Running && view.announced == Announced::Nothing;
        let ready_ms = u64::from(self.spec.ready_timeout_ms);
        self.ready_by = (is_awaited && ready_ms > 0).then(|| since.plus_ms(ready_ms));
        let timeout_ms = self.spec.timeout_ms;
        self.expires = (timeout_ms > 0).then(|| since.plus_ms(timeout_ms));
        (view.identity, view.started) = (Some(*identity), Some(*at));
        (view.contained, view.phase) = (*contained, Phase::Running);
        if let Some(stop) = &mut view.stop {
            // The grace period of an inherited stop does not begin again, so that it expires together with that of the tree.
            if stop.asked != self.made {
                stop.since = entry.now.at;
            }
            stop.asked = entry.seq;
            view.phase = Phase::Stopping;
            self.step(entry.seq, actions);
        }
        true
    }

    fn emptied(&mut self, entry: Entry, actions: &mut Actions) -> bool {
        let view = &mut self.view;
        let awaited = view.stop.is_some_and(|stop| stop.tree) || view.end.is_some();
        if view.phase != Phase::Stopping || !awaited || self.empty {
            return false;
        }
        self.empty = true;
        if let Some(left) = &mut view.remains {
            Arc::make_mut(left).alive = 0;
        }
        if view.end.is_some() {
            self.leave(entry.seq, actions);
        }
        true
    }

    fn stuck(&mut self, message: &Message) -> bool {
        let &Message::Stuck { unkillable, unknown, .. } = message else {
            unreachable!("only reports of stuck processes are handled here");
        };
        let stuck = (unkillable + unknown > 0).then_some(Stuck { unkillable, unknown });
        // A report of unkillable processes is outdated if SIGKILL was sent only to the process itself, and that has since ended.
        let is_late = unkillable > 0
            && self.view.end.is_some()
            && !self.view.stop.is_some_and(|stop| stop.tree);
        let changes = self.view.phase == Phase::Stopping && self.view.stuck != stuck && !is_late;
        if changes {
            self.view.stuck = stuck;
        }
        changes
    }

    fn signalled(&mut self, asked: Seq, errno: Option<i32>) -> bool {
        if self.signals.iter().any(|(its, ..)| *its == asked) {
            self.signals.retain(|(its, ..)| *its != asked);
            self.view.sent = Some(Sent { asked, errno });
            return true;
        }
        let stop = self.view.stop.as_mut();
        match stop.filter(|it| it.asked == asked && it.errno != errno) {
            Some(stop) => {
                stop.errno = errno;
                true
            }
            None => false,
        }
    }

    fn end(&mut self, (end, at): (End, Date), entry: Seq, actions: &mut Actions) {
        (self.view.end, self.view.ended) = (Some(end), Some(at));
        self.signals.clear();
        let stop = self.view.stop;
        let stop = stop.filter(|_| self.view.phase == Phase::Stopping);
        let stop = stop.filter(|stop| stop.tree);
        let awaited = stop.is_some() || self.view.launched;
        if !awaited || self.empty || end.ends_tree() {
            return self.leave(entry, actions);
        }
        self.view.phase = Phase::Stopping;
        if !self.view.stop.is_some_and(|stop| stop.tree) {
            self.view.stuck = None;
        }
        if stop.is_none_or(|stop| !stop.killed) {
            let (id, identity) = self.known();
            actions.push((self.slot.0.into(), entry, Action::Await { id, identity }));
        }
    }

    pub(super) fn leave(&mut self, entry: Seq, actions: &mut Actions) {
        (self.view.phase, self.view.stuck) = (Phase::Exited, None);
        self.signals.clear();
        let id = self.view.id;
        actions.push((self.slot.0.into(), entry, Action::Forget { id }));
        self.read(actions);
    }
}
