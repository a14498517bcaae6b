//! The events that a journal entry causes, for subscribers: jobs that were added or claimed, and what happened to them.
//!
//! They are published before the commit, while jobs are still in their previous state. A touch causes no event, because
//! it changes only a deadline.

use crate::actors::queue::job::Job;
use crate::actors::queue::machine::QueueMachine;
use crate::actors::queue::message::{Message, Pop, Put};
use crate::actors::queue::outcome::{ClaimEnd, NewJob, Outcome, Placed};
use crate::actors::queue::part::{FlushMore, KickMore};
use crate::actors::queue::report::Progress;
use crate::actors::queue::right::Claimant;
use crate::clock::Date;
use crate::ids::{Seq, Slot};
use crate::spine::event::EventBody;
use sexton_api::queue::Phase;
use sexton_api::queue::QueueName;

/// The function that events are passed to.
type Emit<'a> = &'a mut dyn FnMut(EventBody);

impl QueueMachine {
    /// Calls `emit` for each event that this outcome causes, in order.
    #[expect(clippy::too_many_lines, reason = "one arm for each kind")]
    pub(super) fn emit(&self, seq: Seq, (message, outcome): (&Message, &Outcome), emit: Emit<'_>) {
        match (outcome, message) {
            (Outcome::Put { job, .. }, Message::Put(put)) => emit(added(put, job)),
            (Outcome::Batch { placed }, Message::Batch(puts)) => {
                for (put, placed) in puts.iter().zip(placed) {
                    if let Placed::New(job) = placed {
                        emit(added(put, job));
                    }
                }
            }
            (Outcome::Claimed { slot, .. }, _) => self.about("claimed", *slot, |job, told| {
                let told = told.number("token", seq.0);
                let told = told.number("attempt", job.tries() + 1);
                emit(match process_of(message) {
                    Some(process) => told.text("process", process),
                    None => told,
                });
            }),
            (Outcome::Fenced { slot }, _) => self.about("fencing", *slot, |job, told| {
                emit(told.number("token", job.details().token.0));
            }),
            (Outcome::Deleted { slot, .. }, _) => self.about("done", *slot, |job, told| {
                let kind = match (job.phase, message) {
                    (Phase::Claimed, Message::Fail { .. } | Message::Defer { .. }) => "failed",
                    (Phase::Claimed, _) => "done",
                    _ => "deleted",
                };
                emit(EventBody { kind, ..told });
            }),
            (Outcome::Released { slot, until }, _) => self.about("released", *slot, |_, told| {
                emit(ready_at(told, *until));
            }),
            (Outcome::Failed { slot, until }, _) => self.about("failed", *slot, |_, told| {
                let is_crash = matches!(message, Message::Fail { crashed: true, .. });
                let kind = if is_crash { "crashed" } else { "failed" };
                emit(EventBody { kind, ..told }.number("ready_at", until.0));
            }),
            (Outcome::Deferred { slot, until }, _) => self.about("deferred", *slot, |_, told| {
                emit(told.number("ready_at", until.0));
            }),
            (Outcome::Reported { slot }, Message::Report { progress, .. }) => {
                self.about("progress", *slot, |_, told| emit(reported(told, progress)));
            }
            (Outcome::Departed { .. }, _) => self.emit_departed((message, outcome), emit),
            (Outcome::ClaimsEnded { ends, .. }, _) => {
                for (slot, end) in ends {
                    self.emit_end((*slot, *end), message, emit);
                }
            }
            (Outcome::Pruned { slot, .. }, _) => self.about("pruned", *slot, |job, told| {
                let spent = job.phase == Phase::Claimed && !job.retries;
                let kind = if spent { "spent" } else { told.kind };
                emit(EventBody { kind, ..told });
            }),
            (
                Outcome::Kicked { .. } | Outcome::KickedPart { .. },
                Message::Kick { queue, .. }
                | Message::Repush { queue, .. }
                | Message::KickMore(KickMore { queue, .. }),
            ) => emit_total(of("kicked", queue), outcome, emit),
            (
                Outcome::Flushed { .. } | Outcome::FlushedPart { .. },
                Message::Flush { queue } | Message::FlushMore(FlushMore { queue, .. }),
            ) => emit_total(of("flushed", queue), outcome, emit),
            (Outcome::Paused { until }, Message::Pause { queue, .. }) if until.0 > 0 => {
                emit(of("paused", queue).number("until", until.0));
            }
            (Outcome::Paused { .. }, Message::Pause { queue, .. } | Message::Unpause { queue }) => {
                emit(of("resumed", queue));
            }
            (Outcome::Draining, _) => emit(EventBody::new("draining")),
            (outcome, _) => {
                if let Some((kind, slot)) = plain(outcome) {
                    self.about(kind, slot, |_, told| emit(told));
                }
            }
        }
    }

    /// Passes to `emit` the events for claims that end because their worker or process is gone.
    fn emit_departed(&self, (message, outcome): (&Message, &Outcome), emit: Emit<'_>) {
        let Outcome::Departed { back, abandoned, .. } = outcome else {
            unreachable!("the outcome is a departure")
        };
        for slot in back {
            self.about("returned", *slot, |job, told| {
                let kind = if job.retries { told.kind } else { "spent" };
                emit(caused(message, EventBody { kind, ..told }));
            });
        }
        for slot in abandoned {
            self.about("abandoned", *slot, |_, told| emit(caused(message, told)));
        }
    }

    /// Passes to `emit` the event for a claim that ends because its worker or process is gone. A claim that is handed over goes on, so it
    /// has none.
    fn emit_end(&self, (slot, end): (Slot, ClaimEnd), message: &Message, emit: Emit<'_>) {
        self.about("returned", slot, |job, told| {
            let kind = match end {
                ClaimEnd::HandedOver => return,
                ClaimEnd::Returned if !job.retries => "spent",
                ClaimEnd::Returned if job.is_last_try() => "abandoned",
                ClaimEnd::Returned => "returned",
                ClaimEnd::Done => "done",
                ClaimEnd::Retried { crashed: false, .. } => "failed",
                ClaimEnd::Retried { crashed: true, .. } => "crashed",
                ClaimEnd::Quarantined => "quarantined",
            };
            let told = caused(message, EventBody { kind, ..told });
            emit(if let ClaimEnd::Retried { until, .. } = end {
                told.number("ready_at", until.0)
            } else {
                told
            });
        });
    }

    /// Calls `emit` if this outcome touches a claim, or names the process that works on it; does nothing for other outcomes. Neither is
    /// published as an event: it appears only in the history of a job.
    pub(super) fn emit_kept(&self, (message, outcome): (&Message, &Outcome), emit: Emit<'_>) {
        match (outcome, message) {
            (Outcome::Touched { slot, until }, _) => self.about("touched", *slot, |_, told| {
                emit(told.number("until", until.0));
            }),
            (Outcome::Attached { slot, .. }, Message::Attach { command, .. }) => {
                self.about("attached", *slot, |_, told| {
                    emit(told.text("process", command.process.to_string()));
                });
            }
            _ => {}
        }
    }

    fn about(&self, kind: &'static str, slot: Slot, emit: impl FnOnce(&Job, EventBody)) {
        if let Some(job) = self.state.job(slot) {
            let queue = &self.state.queue_of(job).name;
            emit(job, of(kind, queue).number("job", job.id));
        }
    }
}

/// Emits the event of a request about many jobs, once it is done.
fn emit_total(told: EventBody, outcome: &Outcome, emit: Emit<'_>) {
    if let (count, true) = outcome.total() {
        emit(told.number("count", count));
    }
}

/// Returns the event kind and the job's slot for an outcome whose event has no other fields; `None` for outcomes that `emit`
/// handles or that cause no event.
fn plain(outcome: &Outcome) -> Option<(&'static str, Slot)> {
    let named = match outcome {
        Outcome::Buried { slot } => ("buried", slot),
        Outcome::KickedJob { slot } => ("kicked", slot),
        Outcome::Ready { slot } => ("ready", slot),
        Outcome::TimedOut { slot } => ("expired", slot),
        Outcome::Abandoned { slot } => ("abandoned", slot),
        Outcome::Cancelled { slot, .. } => ("cancelled", slot),
        Outcome::Quarantined { slot } => ("quarantined", slot),
        Outcome::Put { .. }
        | Outcome::Batch { .. }
        | Outcome::Registered { .. }
        | Outcome::Forgotten { .. }
        | Outcome::Spoiled { .. }
        | Outcome::Claimed { .. }
        | Outcome::Touched { .. }
        | Outcome::Reported { .. }
        | Outcome::Deleted { .. }
        | Outcome::Released { .. }
        | Outcome::Failed { .. }
        | Outcome::Deferred { .. }
        | Outcome::Kicked { .. }
        | Outcome::KickedPart { .. }
        | Outcome::FlushedPart { .. }
        | Outcome::Paused { .. }
        | Outcome::Flushed { .. }
        | Outcome::Fenced { .. }
        | Outcome::Departed { .. }
        | Outcome::Attached { .. }
        | Outcome::ClaimsEnded { .. }
        | Outcome::Pruned { .. }
        | Outcome::Draining
        | Outcome::ResultKept { .. }
        | Outcome::ResultDropped { .. }
        | Outcome::KeyForgotten { .. }
        | Outcome::Remembered { .. }
        | Outcome::Duplicate { .. }
        | Outcome::Absent
        | Outcome::Refused(_) => return None,
    };
    Some((named.0, *named.1))
}

/// Returns the id of the process that a new claim is bound to; `None` for other messages and claimants.
fn process_of(message: &Message) -> Option<String> {
    let (Message::Pop(Pop { by, .. }) | Message::PopJob { by, .. }) = message else {
        return None;
    };
    if let Claimant::Process(binding) = by { Some(binding.process.to_string()) } else { None }
}

/// Adds the cause to an event if the claim ended because a process is gone.
fn caused(message: &Message, told: EventBody) -> EventBody {
    if let Message::Gone(gone) = message {
        told.text("cause", "process").text("process", gone.process.to_string())
    } else {
        told
    }
}

fn reported(told: EventBody, progress: &Progress) -> EventBody {
    let told = match progress.percent {
        Some(percent) => told.number("percent", percent),
        None => told,
    };
    match &progress.text {
        Some(text) => told.text("text", text.as_str().to_owned()),
        None => told,
    }
}

fn added(put: &Put, job: &NewJob) -> EventBody {
    let told = of("added", &put.queue).number("job", job.id);
    ready_at(told.number("priority", put.priority), job.until)
}

/// Adds the time at which the job becomes ready, unless it is ready immediately.
fn ready_at(told: EventBody, until: Date) -> EventBody {
    if until == Date(0) { told } else { told.number("ready_at", until.0) }
}

fn of(kind: &'static str, queue: &QueueName) -> EventBody {
    EventBody::new(kind).name("queue", queue.as_bytes())
}
