//! What an entry of the journal came to, as events for whoever listens: which job came, who took it, what became of it.
//!
//! Told before the commit, while jobs stand as they were. Touches are no events: they change nothing but a deadline.

use crate::actors::queue::job::Job;
use crate::actors::queue::machine::QueueMachine;
use crate::actors::queue::message::{Message, NewJob, Outcome, Placed, Put};
use crate::actors::queue::name::QueueName;
use crate::actors::queue::phase::Phase;
use crate::clock::Date;
use crate::ids::{Seq, Slot};
use crate::spine::event::Happening;

/// Whoever is told.
type Tell<'a> = &'a mut dyn FnMut(Happening);

impl QueueMachine {
    /// Tells what this outcome comes to, in order.
    pub(super) fn tell(&self, seq: Seq, (message, outcome): (&Message, &Outcome), tell: Tell<'_>) {
        match (outcome, message) {
            (Outcome::Put { job, .. }, Message::Put(put)) => tell(added(put, job)),
            (Outcome::Batch { placed }, Message::Batch(puts)) => {
                for (put, placed) in puts.iter().zip(placed) {
                    if let Placed::New(job) = placed {
                        tell(added(put, job));
                    }
                }
            }
            (Outcome::Claimed { slot, .. }, _) => self.about("claimed", *slot, |job, told| {
                tell(
                    told.number("token", seq.0)
                        .number("attempt", job.tries() + 1),
                );
            }),
            (Outcome::Deleted { slot }, _) => self.about("done", *slot, |job, told| {
                let kind = match (job.phase, message) {
                    (Phase::Claimed, Message::Fail { .. }) => "failed",
                    (Phase::Claimed, _) => "done",
                    _ => "deleted",
                };
                tell(Happening { kind, ..told });
            }),
            (Outcome::Released { slot, until }, _) => self.about("released", *slot, |_, told| {
                tell(ready_at(told, *until));
            }),
            (Outcome::Failed { slot, until }, _) => self.about("failed", *slot, |_, told| {
                tell(told.number("ready_at", until.0));
            }),
            (Outcome::Departed { back, abandoned }, _) => {
                for slot in back {
                    self.about("returned", *slot, |job, told| {
                        let kind = if job.retries { told.kind } else { "spent" };
                        tell(Happening { kind, ..told });
                    });
                }
                for slot in abandoned {
                    self.about("abandoned", *slot, |_, told| tell(told));
                }
            }
            (Outcome::Pruned { slot }, _) => self.about("pruned", *slot, |job, told| {
                let spent = job.phase == Phase::Claimed && !job.retries;
                let kind = if spent { "spent" } else { told.kind };
                tell(Happening { kind, ..told });
            }),
            (Outcome::Buried { slot }, _) => self.about("buried", *slot, |_, told| tell(told)),
            (Outcome::KickedJob { slot }, _) => self.about("kicked", *slot, |_, told| tell(told)),
            (Outcome::Ready { slot }, _) => self.about("ready", *slot, |_, told| tell(told)),
            (Outcome::TimedOut { slot }, _) => self.about("expired", *slot, |_, told| tell(told)),
            (Outcome::Abandoned { slot }, _) => {
                self.about("abandoned", *slot, |_, told| tell(told));
            }
            (
                Outcome::Kicked { count, .. },
                Message::Kick { queue, .. } | Message::Repush { queue, .. },
            ) => {
                tell(of("kicked", queue).number("count", *count));
            }
            (Outcome::Flushed { count }, Message::Flush { queue }) => {
                tell(of("flushed", queue).number("count", *count));
            }
            (Outcome::Paused { until }, Message::Pause { queue, .. }) if until.0 > 0 => {
                tell(of("paused", queue).number("until", until.0));
            }
            (Outcome::Paused { .. }, Message::Pause { queue, .. } | Message::Unpause { queue }) => {
                tell(of("resumed", queue));
            }
            (Outcome::Draining, _) => tell(Happening::new("draining")),
            // What changes nothing, or nothing but a deadline or a number.
            _ => {}
        }
    }

    /// Tells of a claim whose span begins again, which is no event.
    pub(super) fn tell_touched(&self, outcome: &Outcome, tell: Tell<'_>) {
        if let Outcome::Touched { slot, until } = outcome {
            self.about("touched", *slot, |_, told| {
                tell(told.number("until", until.0));
            });
        }
    }

    fn about(&self, kind: &'static str, slot: Slot, tell: impl FnOnce(&Job, Happening)) {
        if let Some(job) = self.state.job(slot) {
            let queue = &self.state.queue_of(job).name;
            tell(job, of(kind, queue).number("job", job.id));
        }
    }
}

fn added(put: &Put, job: &NewJob) -> Happening {
    let told = of("added", &put.queue).number("job", job.id);
    ready_at(told.number("priority", put.priority), job.until)
}

/// With the time at which the job is ready, if it is not at once.
fn ready_at(told: Happening, until: Date) -> Happening {
    if until == Date(0) {
        told
    } else {
        told.number("ready_at", until.0)
    }
}

fn of(kind: &'static str, queue: &QueueName) -> Happening {
    Happening::new(kind).name("queue", queue.as_bytes())
}
