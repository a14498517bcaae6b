//! The rules: what becomes of a process. Decides without changing anything.

use crate::actors::process::machine::ProcessMachine;
use crate::actors::process::message::{End, Lost, Message};
use crate::actors::process::outcome::{Outcome, Refused};
use crate::actors::process::record::{Cause, Phase, Record, Stop, Stuck};
use crate::actors::process::spec::{Flaw, Spec};
use crate::clock::{Date, Timestamp};
use crate::ids::{ProcessId, Slot};
use crate::spine::machine::Moment;

/// The most records that one message removes.
const PRUNED_MAX: u32 = 1024;

impl ProcessMachine {
    pub(super) fn decision(&self, moment: &Moment, message: &Message) -> Outcome {
        let decided = match message {
            Message::Launch(launching) => self.launching(moment, launching),
            Message::Register(registering) => self.registering(moment, registering),
            Message::Finish { id, code, error } => {
                let too_long = error.as_ref().map_or(0, String::len) > Message::ERROR_BYTES_MAX;
                self.finish(moment, *id, (*code, too_long))
            }
            Message::Stop { .. } => self.stop(moment, message),
            Message::Signal { id, signal, .. } => self.signal(*id, *signal),
            Message::Prune {
                before,
                keep,
                limit,
            } => Ok(self.prune(*before, *keep, *limit)),
            Message::Started { .. }
            | Message::Failed { .. }
            | Message::Ended { .. }
            | Message::Empty { .. }
            | Message::Stuck { .. }
            | Message::Signalled { .. } => Ok(self.reported(moment, message)),
            Message::Lapse { slot } => Ok(self.lapse(moment, *slot)),
        };
        decided.unwrap_or_else(Outcome::Refused)
    }

    /// The record of a process that has not ended.
    fn live(&self, id: ProcessId) -> Result<(Slot, &Record), Refused> {
        let found = self.state.find(id).ok_or(Refused::Unknown)?;
        Some(found)
            .filter(|(_, record)| record.is_live())
            .ok_or(Refused::Ended)
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
        if record.end.is_some() {
            return Err(Refused::Ended);
        }
        if too_long {
            return Err(Refused::Invalid(Flaw::Error));
        }
        let end = End::Code(code);
        Ok(Outcome::Ended {
            slot,
            end,
            at: moment.now.date(),
            tree: awaits_tree(record, end),
        })
    }

    fn stop(&self, moment: &Moment, message: &Message) -> Result<Outcome, Refused> {
        let &Message::Stop {
            id,
            signal,
            grace_ms,
            tree,
        } = message
        else {
            unreachable!("only a stop stops");
        };
        let (slot, record) = self.live(id)?;
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
        let stop = match record.stop {
            None => Some(asked),
            Some(before) => merged(before, asked, self.state.head.epoch),
        };
        Ok(stop.map_or(Outcome::Unchanged, |stop| Outcome::Stopping { slot, stop }))
    }

    fn signal(&self, id: ProcessId, signal: u8) -> Result<Outcome, Refused> {
        let (slot, record) = self.live(id)?;
        if !(1..=Spec::SIGNAL_MAX).contains(&signal) {
            return Err(Refused::Invalid(Flaw::Signal));
        }
        if record.phase == Phase::Queued {
            return Err(Refused::Queued);
        }
        if record.end.is_some() {
            return Err(Refused::Ended);
        }
        if record.signals.len() >= Record::SIGNALS_MAX {
            return Err(Refused::Busy);
        }
        Ok(Outcome::Signalling { slot })
    }

    /// The oldest of what may be removed.
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

    /// What the port reports. Each may come late, twice, or in another order than it happened.
    fn reported(&self, moment: &Moment, message: &Message) -> Outcome {
        let id = message.id();
        let found = id.and_then(|id| self.state.find(id));
        let Some((slot, record)) = found.filter(|(_, record)| record.is_live()) else {
            return Outcome::Unchanged;
        };
        let now = moment.now;
        match message {
            Message::Started { identity, at, .. } => match &record.identity {
                Some(known) if known.is(identity) => Outcome::Unchanged,
                Some(_) => Outcome::Contradicted,
                None => {
                    // A date that cannot be is not believed: no process runs before it is asked for, or from later on.
                    let since = now.offset.time((*at).max(record.queued)).min(now.at);
                    Outcome::Started { slot, since }
                }
            },
            Message::Failed { .. } if record.phase == Phase::Queued => Outcome::Failed {
                slot,
                at: now.date(),
            },
            Message::Failed { .. } => Outcome::Contradicted,
            Message::Ended { end, at, .. } if record.end.is_none() && !misses_start(record) => {
                Outcome::Ended {
                    slot,
                    end: *end,
                    at: (*at).min(now.date()),
                    tree: awaits_tree(record, *end),
                }
            }
            Message::Empty { .. } => {
                let is_asked = record.stop.is_some_and(|stop| stop.tree);
                let is_new = is_asked && record.phase == Phase::Stopping && !record.empty;
                if is_new {
                    Outcome::Emptied { slot }
                } else {
                    Outcome::Unchanged
                }
            }
            Message::Stuck {
                unkillable,
                unknown,
                ..
            } => {
                let stuck = Stuck::new(*unkillable, *unknown);
                if record.phase == Phase::Stopping && record.stuck != stuck {
                    Outcome::Stuck { slot }
                } else {
                    Outcome::Unchanged
                }
            }
            Message::Signalled { asked, errno, .. } => {
                let is_on_its_way = record.signals.iter().any(|it| it.asked == *asked);
                let stop = record.stop.filter(|stop| stop.asked == *asked);
                let says_more = stop.is_some_and(|stop| stop.errno != *errno);
                if is_on_its_way || says_more {
                    Outcome::Signalled { slot }
                } else {
                    Outcome::Unchanged
                }
            }
            Message::Ended { .. }
            | Message::Launch(_)
            | Message::Register(_)
            | Message::Finish { .. }
            | Message::Stop { .. }
            | Message::Signal { .. }
            | Message::Prune { .. }
            | Message::Lapse { .. } => Outcome::Unchanged,
        }
    }

    /// What time does.
    fn lapse(&self, moment: &Moment, slot: Slot) -> Outcome {
        let record = self.state.records.get(slot);
        let record = record.expect("time acts on what is there");
        match record.phase {
            Phase::Running => {
                let spec = &record.profile.spec;
                let signal = (Cause::Timeout, spec.first_signal());
                let stop = Stop::new(moment, signal, (spec.grace_ms, true));
                Outcome::Stopping { slot, stop }
            }
            Phase::Stopping => Outcome::Killing { slot },
            Phase::Exited => Outcome::Pruned {
                slots: vec![slot],
                more: false,
            },
            Phase::Queued => unreachable!("nothing is due of what was not started"),
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

    /// When SIGKILL follows.
    fn ends(&self, epoch: Timestamp) -> Timestamp {
        self.since.max(epoch).plus_ms(self.grace_ms.into())
    }
}

impl Stuck {
    /// What is stuck; nothing if that is none.
    pub(super) const fn new(unkillable: u32, unknown: u32) -> Option<Self> {
        if unkillable == 0 && unknown == 0 {
            return None;
        }
        Some(Self {
            unkillable,
            unknown,
        })
    }
}

/// What a second stop makes of the first: SIGKILL may come sooner, and the tree may be included, and never the other way
/// round. `None` if it asks for no more than the first.
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
    // What has to be done anew is done by this entry; a grace that is only shorter needs nothing.
    if wider || asked.killed {
        (stop.asked, stop.errno) = (asked.asked, None);
        stop.signal = asked.signal;
    }
    Some(stop)
}

/// Whether the tree of this process is to be stopped, and the report of its start is missing: without it nobody could say
/// whose tree that is. The port reports both again, in order.
fn misses_start(record: &Record) -> bool {
    record.phase == Phase::Queued && record.stop.is_some_and(|stop| stop.tree)
}

/// Whether what a process left is waited for when it has ended. What another boot left is gone.
fn awaits_tree(record: &Record, end: End) -> bool {
    let asked = record.stop.is_some_and(|stop| stop.tree);
    asked && record.phase == Phase::Stopping && !record.empty && end != End::Lost(Lost::Rebooted)
}
