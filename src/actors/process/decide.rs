//! The rules for existing processes. They decide what each message does, but change nothing. `adding.rs` has the rules for new records.

use crate::actors::binding::Watch;
use crate::actors::process::machine::ProcessMachine;
use crate::actors::process::message::{End, Message, Notice, Remains};
use crate::actors::process::outcome::{Outcome, Refused};
use crate::actors::process::record::{Announced, Cause, Phase, Record, Stop, Stuck};
use crate::actors::process::spec::{Flaw, Spec};
use crate::clock::{Date, Timestamp};
use crate::ids::{ProcessId, Seq, Slot};
use crate::spine::machine::Moment;

/// The maximum number of records that one prune request removes.
const PRUNED_MAX: u32 = 1024;

impl ProcessMachine {
    pub(super) fn decision(&self, moment: &Moment, message: &Message) -> Outcome {
        let decided = match message {
            Message::Launch(launching) => {
                self.launching(moment, (launching, &launching.parentage), None)
            }
            Message::Begin { id } => self.begin(moment, *id),
            Message::Register(registering) => self.registering(moment, registering),
            Message::Serve(registering) => self.serving(moment, registering),
            Message::Finish { id, code, error } => {
                let too_long = error.as_ref().map_or(0, String::len) > Message::ERROR_BYTES_MAX;
                self.finish(moment, *id, (*code, too_long))
            }
            Message::Stop { .. } => self.stop(moment, message),
            Message::Signal { id, signal, .. } => self.signal(*id, *signal),
            Message::Settle { id } => self.settle(*id),
            Message::Prune { before, keep, limit } => Ok(self.prune(*before, *keep, *limit)),
            Message::Started { .. }
            | Message::Failed { .. }
            | Message::Ended { .. }
            | Message::Empty { .. }
            | Message::Stuck { .. }
            | Message::Notice { .. }
            | Message::Signalled { .. } => Ok(self.reported(moment, message)),
            Message::Watch(watch) => Ok(self.watched(*watch)),
            Message::Fence(id) => Ok(self.fence(moment, *id)),
            Message::LaunchAs(asked) => Ok(self.launching_as(moment, asked)),
            Message::Child { of, child } => Ok(self.child(moment, (*of, child))),
            Message::Found { id, found } => Ok(self.found(*id, found)),
            Message::Service(message) => self.serve(moment, message),
            Message::Lapse { slot } => Ok(self.lapse(moment, *slot)),
        };
        decided.unwrap_or_else(Outcome::Refused)
    }

    /// Returns the record with this id if it is live; otherwise, the reason to refuse the request.
    pub(super) fn live(&self, id: ProcessId) -> Result<(Slot, &Record), Refused> {
        let found = self.state.find(id).ok_or(Refused::Unknown)?;
        Some(found).filter(|(_, record)| record.is_live()).ok_or(Refused::Ended)
    }

    fn finish(
        &self,
        moment: &Moment,
        id: ProcessId,
        (code, too_long): (u8, bool),
    ) -> Result<Outcome, Refused> {
        let (slot, record) = self.live(id)?;
        if record.launched {
            return Err(Refused::Launched);
        }
        if self.state.is_server(id) {
            return Err(Refused::Server);
        }
        if record.end.is_some() {
            return Err(Refused::Ended);
        }
        if too_long {
            return Err(Refused::Invalid(Flaw::Error));
        }
        let end = End::Code(code);
        Ok(Outcome::Ended { slot, end, at: moment.now.date(), tree: awaits_tree(record, end) })
    }

    pub(super) fn stop(&self, moment: &Moment, message: &Message) -> Result<Outcome, Refused> {
        let &Message::Stop { id, signal, grace_ms, tree } = message else {
            unreachable!("only stop requests are decided here");
        };
        let (slot, record) = self.live(id)?;
        if self.state.is_server(id) || tree && self.state.contains_server(id) {
            return Err(Refused::Server);
        }
        let spec = &record.profile.spec;
        let signal = signal.unwrap_or(spec.first_signal());
        if !(1..=Spec::SIGNAL_MAX).contains(&signal) {
            return Err(Refused::Invalid(Flaw::Signal));
        }
        let grace_ms = grace_ms.unwrap_or(spec.grace_ms);
        if grace_ms > Spec::GRACE_MS_MAX {
            return Err(Refused::Invalid(Flaw::Grace));
        }
        let asked = Stop::new(moment, (Cause::Request, signal), (grace_ms, tree));
        Ok(self.stopping((slot, record), asked))
    }

    /// Decides to stop a process as `asked`. If its tree is included, launched processes whose records are descendants of its record are
    /// stopped in the same way: in the kernel, they are children of the keeper, so a signal to the process's own tree does not reach them.
    /// If there are many, it is stopped in parts, itself with the last ones: until then, a repetition finds it as it was.
    fn stopping(&self, (slot, record): (Slot, &Record), asked: Stop) -> Outcome {
        let stop = |(slot, record): (Slot, &Record)| {
            let stop = match record.rare.stop {
                None => Some(asked),
                Some(before) => merged(before, asked, self.state.head.epoch),
            };
            stop.map(|stop| (slot, stop))
        };
        let own = stop((slot, record));
        if asked.tree && record.held > 0 {
            let below = self.state.below(record.id).into_iter();
            let below = below.filter(|(at, it)| *at != slot && it.launched && it.is_live());
            let mut rest = below.filter_map(stop);
            let below: Vec<_> = rest.by_ref().take(self.part() - 1).collect();
            if rest.next().is_some() {
                return Outcome::StoppingPart { stops: below };
            }
            if !below.is_empty() {
                // If the request affects only descendants, this entry repeats the stop of the process itself, so that the record of the
                // process shows that the request had an effect.
                let restated = |before| Stop { asked: asked.asked, errno: None, ..before };
                let own = own.or_else(|| Some((slot, restated(record.rare.stop?))));
                let stops = own.into_iter().chain(below).collect();
                return Outcome::StoppingTree { stops };
            }
        }
        own.map_or(Outcome::Unchanged, |(slot, stop)| Outcome::Stopping { slot, stop })
    }

    fn watched(&self, watch: Watch) -> Outcome {
        let found = self.state.find(watch.process);
        match found.filter(|(_, record)| !record.is_gone(watch.until)) {
            None => Outcome::Gone,
            Some((_, record)) if record.watchers.contains(&(watch.by, watch.until)) => {
                Outcome::Unchanged
            }
            Some((slot, _)) => Outcome::Watched { slot },
        }
    }

    /// Decides to stop the launched processes of a tree, because the right bound to it has ended. Registered processes are not stopped. A
    /// process that is already being stopped keeps a single stop: the two are merged, with [`Cause::Fence`] as the cause.
    fn fence(&self, moment: &Moment, id: ProcessId) -> Outcome {
        // The end of a right of the server itself does not stop its services.
        if self.state.is_server(id) {
            return Outcome::Unchanged;
        }
        let below = self.state.below(id).into_iter();
        let launched = below.filter(|(_, it)| it.launched && it.is_live());
        let stop = |(slot, record): (Slot, &Record)| {
            let spec = &record.profile.spec;
            let signal = (Cause::Fence, spec.first_signal());
            let asked = Stop::new(moment, signal, (spec.grace_ms, true));
            let stop = match record.rare.stop {
                None => Some(asked),
                Some(before) if before.cause == Cause::Fence => None,
                Some(before) => Some(Stop {
                    cause: Cause::Fence,
                    ..merged(before, asked, self.state.head.epoch).unwrap_or(before)
                }),
            };
            stop.map(|stop| (slot, stop))
        };
        let mut rest = launched.filter_map(stop);
        let stops: Vec<_> = rest.by_ref().take(self.part()).collect();
        if rest.next().is_some() {
            Outcome::StoppingPart { stops }
        } else if stops.is_empty() {
            Outcome::Unchanged
        } else {
            Outcome::Fenced { stops }
        }
    }

    /// Returns the maximum number of processes that one outcome stops.
    fn part(&self) -> usize {
        self.state.rules.part.max(2) as usize
    }

    /// Returns the message for the rest of a request, if its outcome is not the last part: the same message, which finds what is left. A
    /// deadline needs none: it is still due.
    pub(super) fn rest_of(message: &Message, outcome: &Outcome) -> Option<Message> {
        let is_due = matches!(message, Message::Lapse { .. } | Message::Service(_));
        let is_part = matches!(outcome, Outcome::StoppingPart { .. });
        (is_part && !is_due).then(|| message.clone())
    }

    fn signal(&self, id: ProcessId, signal: u8) -> Result<Outcome, Refused> {
        let (slot, record) = self.live(id)?;
        if self.state.is_server(id) {
            return Err(Refused::Server);
        }
        if !(1..=Spec::SIGNAL_MAX).contains(&signal) {
            return Err(Refused::Invalid(Flaw::Signal));
        }
        if record.phase == Phase::Queued {
            return Err(Refused::Queued);
        }
        if record.end.is_some() {
            return Err(Refused::Ended);
        }
        if record.rare.signals.len() >= Record::SIGNALS_MAX {
            return Err(Refused::Busy);
        }
        Ok(Outcome::Signalling { slot })
    }

    /// Decides that a tree counts as empty because a client says so. Refused unless the whole tree has been killed, and only processes that may
    /// or may not belong to it were left.
    fn settle(&self, id: ProcessId) -> Result<Outcome, Refused> {
        let (slot, record) = self.live(id)?;
        let is_killed = record.rare.stop.is_some_and(|stop| stop.tree && stop.killed);
        let is_unknown = record.rare.stuck.is_some_and(|it| it.unkillable == 0);
        if record.end.is_none() || !is_killed || !is_unknown {
            return Err(Refused::NotUnknown);
        }
        Ok(Outcome::Emptied { slot })
    }

    /// Decides which records a prune request removes: at most `limit` and at most [`PRUNED_MAX`] records, beginning with the process that
    /// ended longest ago. The last `keep` processes to end keep their records, as do those that ended at or after `before`.
    fn prune(&self, before: Option<Date>, keep: u32, limit: u32) -> Outcome {
        let removable = &self.state.index.removable;
        let most = removable.len().saturating_sub(keep as usize);
        let limit = limit.min(PRUNED_MAX) as usize;
        let oldest = removable.iter().take(most);
        let old = oldest.take_while(|(ended, _)| before.is_none_or(|before| *ended < before));
        let mut slots: Vec<Slot> = old.take(limit + 1).map(|(_, slot)| *slot).collect();
        let more = slots.len() > limit;
        slots.truncate(limit);
        Outcome::Pruned { slots, more }
    }

    /// Decides the outcome of a report from the port. Reports may be late, duplicated or out of order.
    fn reported(&self, moment: &Moment, message: &Message) -> Outcome {
        let id = message.id();
        let found = id.and_then(|id| self.state.find(id));
        // The server's own record is not followed: a late report is about an earlier process that it stood for. Nor is a process that the
        // port was not asked to launch.
        let is_followed =
            |it: &Record| it.is_live() && !it.is_deferred() && !self.state.is_server(it.id);
        let found = found.filter(|(_, record)| is_followed(record));
        let Some((slot, record)) = found else {
            return Outcome::Unchanged;
        };
        let now = moment.now;
        match message {
            Message::Started { identity, at, .. } => match &record.identity {
                Some(known) if known.is(identity) => Outcome::Unchanged,
                Some(_) => Outcome::Contradicted,
                None => {
                    // An impossible date is corrected: a process cannot have started before its launch was requested, or in the future.
                    let since = now.offset.time((*at).max(record.queued)).min(now.at);
                    Outcome::Started { slot, since }
                }
            },
            Message::Failed { .. } if record.phase == Phase::Queued => {
                Outcome::Failed { slot, at: now.date() }
            }
            Message::Failed { .. } => Outcome::Contradicted,
            Message::Ended { end, at, left, .. }
                if record.end.is_none() && !self.lacks_start(record, left) =>
            {
                Outcome::Ended {
                    slot,
                    end: *end,
                    at: (*at).min(now.date()),
                    tree: !left.empty && awaits_tree(record, *end),
                }
            }
            Message::Empty { .. } if is_emptied(record) => Outcome::Emptied { slot },
            Message::Stuck { unkillable, unknown, .. } => {
                let stuck = Stuck::new(*unkillable, *unknown);
                let is_late = *unkillable > 0 && record.kills_nothing();
                if record.phase == Phase::Stopping && record.rare.stuck != stuck && !is_late {
                    Outcome::Stuck { slot }
                } else {
                    Outcome::Unchanged
                }
            }
            Message::Notice { notice, .. } => self.decide_notice(moment, (slot, record), notice),
            Message::Signalled { asked, errno, .. } => signalled((slot, record), *asked, *errno),
            Message::Ended { .. }
            | Message::Empty { .. }
            | Message::Launch(_)
            | Message::Begin { .. }
            | Message::Register(_)
            | Message::Serve(_)
            | Message::Finish { .. }
            | Message::Stop { .. }
            | Message::Signal { .. }
            | Message::Settle { .. }
            | Message::Prune { .. }
            | Message::Watch(_)
            | Message::Fence(_)
            | Message::LaunchAs(_)
            | Message::Child { .. }
            | Message::Found { .. }
            | Message::Service(_)
            | Message::Lapse { .. } => Outcome::Unchanged,
        }
    }

    /// Returns whether the start of this process has not been reported although its tree is being stopped, watched, or not proved to be empty.
    /// A report of its end is then ignored, since the tree cannot be identified without the start. The port will repeat both reports, in
    /// order.
    fn lacks_start(&self, record: &Record, left: &Remains) -> bool {
        let is_stopped = record.is_stopped_with_tree();
        let needs_it = is_stopped || self.state.is_tree_watched(record) || !left.empty;
        record.phase == Phase::Queued && needs_it
    }

    /// Decides the outcome of a notice from a process, or of a missing watchdog notice.
    fn decide_notice(
        &self,
        moment: &Moment,
        (slot, record): (Slot, &Record),
        notice: &Notice,
    ) -> Outcome {
        // SIGABRT, so that the process leaves a core dump.
        const ABORT: u8 = 6;
        let is_new = match notice {
            Notice::Ready => record.announced != Announced::Ready,
            Notice::Leaving => record.announced != Announced::Leaving,
            Notice::Words(words) => {
                words.len() <= Notice::WORDS_BYTES_MAX && record.rare.said.as_ref() != Some(words)
            }
            Notice::Silent if record.phase == Phase::Running => {
                let grace = (record.profile.spec.grace_ms, true);
                let stop = Stop::new(moment, (Cause::Watchdog, ABORT), grace);
                return self.stopping((slot, record), stop);
            }
            Notice::Silent => false,
        };
        if is_new && record.end.is_none() { Outcome::Noticed { slot } } else { Outcome::Unchanged }
    }

    /// Decides the outcome when a deadline of a record has passed.
    fn lapse(&self, moment: &Moment, slot: Slot) -> Outcome {
        let record = self.state.records.get(slot);
        let record = record.expect("a due record should exist");
        match record.phase {
            Phase::Running => {
                let spec = &record.profile.spec;
                let is_over = |at: Option<Timestamp>| at.is_some_and(|at| at <= moment.now.at);
                let cause = if is_over(record.expires) { Cause::Timeout } else { Cause::NotReady };
                let signal = (cause, spec.first_signal());
                self.stopping((slot, record), Stop::new(moment, signal, (spec.grace_ms, true)))
            }
            Phase::Stopping => Outcome::Killing { slot },
            Phase::Exited => Outcome::Pruned { slots: vec![slot], more: false },
            Phase::Queued => Outcome::Cancelled { slot, at: moment.now.date() },
        }
    }
}

impl Stop {
    fn new(moment: &Moment, (cause, signal): (Cause, u8), (grace_ms, tree): (u32, bool)) -> Self {
        Self {
            cause,
            signal,
            tree,
            since: moment.now.at,
            grace_ms,
            killed: grace_ms == 0,
            asked: moment.seq,
            errno: None,
        }
    }

    /// Returns when the grace period ends and SIGKILL follows. The grace period begins again at `epoch`, the time of the last startup.
    fn ends(&self, epoch: Timestamp) -> Timestamp {
        self.since.max(epoch).plus_ms(self.grace_ms.into())
    }
}

impl Stuck {
    /// Returns the counts of stuck processes; `None` if both are zero.
    pub(super) const fn new(unkillable: u32, unknown: u32) -> Option<Self> {
        if unkillable == 0 && unknown == 0 {
            return None;
        }
        Some(Self { unkillable, unknown })
    }
}

/// Merges a second stop (`asked`) into the first (`before`). The second may bring SIGKILL forward or extend the stop to the whole tree, but
/// it neither delays SIGKILL nor excludes the tree. Returns `None` if the second stop adds nothing.
fn merged(before: Stop, asked: Stop, epoch: Timestamp) -> Option<Stop> {
    let sooner = !before.killed && (asked.killed || asked.ends(epoch) < before.ends(epoch));
    let wider = asked.tree && !before.tree;
    if !sooner && !wider {
        return None;
    }
    let mut stop = before;
    stop.tree |= asked.tree;
    if sooner {
        (stop.since, stop.grace_ms, stop.killed) = (asked.since, asked.grace_ms, asked.killed);
    }
    // A signal is sent again only if the stop now includes the tree, or kills immediately. A shorter grace period alone sends no signal.
    if wider || asked.killed {
        (stop.asked, stop.errno) = (asked.asked, None);
        stop.signal = asked.signal;
    }
    Some(stop)
}

/// Returns whether a record whose process ends like this waits until its tree is proved to be empty: because that is being stopped, or because
/// the process was launched, so that what it left can be listed and stopped. After a reboot, nothing is left.
fn awaits_tree(record: &Record, end: End) -> bool {
    let is_stopped = record.phase == Phase::Stopping && record.is_stopped_with_tree();
    (is_stopped || record.launched) && !record.empty && !end.ends_tree()
}

/// Returns whether the record waits for a report that its tree is empty, and has not received one yet.
fn is_emptied(record: &Record) -> bool {
    let is_stopped = record.rare.stop.is_some_and(|stop| stop.tree);
    let is_asked = is_stopped || record.end.is_some();
    is_asked && record.phase == Phase::Stopping && !record.empty
}

/// Decides the outcome of a report that a signal was sent, or could not be sent.
fn signalled((slot, record): (Slot, &Record), asked: Seq, errno: Option<i32>) -> Outcome {
    let is_on_its_way = record.rare.signals.iter().any(|it| it.asked == asked);
    let stop = record.rare.stop.filter(|stop| stop.asked == asked);
    let says_more = stop.is_some_and(|stop| stop.errno != errno);
    if is_on_its_way || says_more { Outcome::Signalled { slot } } else { Outcome::Unchanged }
}
