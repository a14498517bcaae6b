//! Requests about all jobs of a queue, a worker or a process. There may be millions of them, so each part of such a request changes at most
//! as many as the rules say, and others are served in between.

use crate::actors::queue::machine::QueueMachine;
use crate::actors::queue::message::Message;
use crate::actors::queue::outcome::Outcome;
use crate::actors::queue::part::{FlushMore, FlushPart, KickMore, KickPart};
use crate::actors::queue::queue::Queue;
use sexton_api::queue::Phase;
use sexton_api::queue::QueueName;

/// How many jobs a part of a flush examines for each one that it may delete: those of other queues have ids in between.
const EXAMINED: usize = 16;

impl QueueMachine {
    /// Returns the maximum number of jobs that one outcome changes.
    pub(super) fn part(&self) -> u32 {
        self.state.rules.across.part.max(1)
    }

    /// Decides to delete every job of a queue.
    pub(super) fn decide_flush(&self, queue: &Queue) -> Outcome {
        if queue.counts.all() > self.part() {
            let part = FlushPart { deleted: 0, upto: self.state.head.next_id, next: Some(0) };
            return self.decide_flush_part(&queue.name, part);
        }
        let slots = queue.slots(&self.state.jobs).into_iter();
        let keys = slots.filter_map(|slot| self.remembered(self.state.job(slot)?));
        Outcome::Flushed { count: queue.counts.all(), keys: keys.collect() }
    }

    /// Decides a part of a flush. Jobs go by their ids, since a queue's indexes change while it is in use.
    pub(super) fn decide_flush_part(&self, queue: &QueueName, mut part: FlushPart) -> Outcome {
        let from = part.next.take().unwrap_or(u64::MAX);
        let most = self.part() as usize;
        let number = self.state.queue_named(queue).and_then(|(_, it)| it.number);
        let (mut slots, mut keys) = (Vec::new(), Vec::new());
        let jobs = self.state.ids.from(from);
        for (examined, (id, slot)) in jobs.take_while(|(id, _)| *id < part.upto).enumerate() {
            if slots.len() == most || examined == most.saturating_mul(EXAMINED) {
                part.next = Some(id);
                break;
            }
            if let Some(job) = self.state.job(slot).filter(|it| Some(it.queue) == number) {
                slots.push(slot);
                keys.extend(self.remembered(job));
            }
        }
        Outcome::FlushedPart { slots, keys, part }
    }

    /// Decides to kick at most `most` of the `there` jobs that are in `phase`; `Absent` if that is none.
    pub(super) fn kicked(&self, phase: Phase, there: u32, most: u32) -> Outcome {
        match there.min(most) {
            0 => Outcome::Absent,
            count if count > self.part() => Outcome::KickedPart {
                phase,
                count: self.part(),
                part: KickPart { kicked: 0, left: count - self.part() },
            },
            count => Outcome::Kicked { phase, count },
        }
    }

    /// Decides a part of a kick.
    pub(super) fn decide_kick_part(&self, more: &KickMore) -> Outcome {
        let found = self.state.queue_named(&more.queue);
        let there = found.map_or(0, |(_, queue)| kickable(queue, more.phase));
        let count = there.min(more.part.left).min(self.part());
        Outcome::KickedPart {
            phase: more.phase,
            count,
            part: KickPart { left: (more.part.left - count).min(there - count), ..more.part },
        }
    }

    /// Returns the message for the rest of a request, if its outcome is not the last part.
    pub(super) fn rest_of(&self, message: &Message, outcome: &Outcome) -> Option<Message> {
        let is_full = |claims: usize| claims >= self.part() as usize;
        match (message, outcome) {
            (
                Message::Flush { queue } | Message::FlushMore(FlushMore { queue, .. }),
                Outcome::FlushedPart { slots, part, .. },
            ) if part.next.is_some() => Some(Message::FlushMore(FlushMore {
                queue: queue.clone(),
                part: FlushPart { deleted: part.deleted_with(slots), ..*part },
            })),
            (
                Message::Kick { queue, .. }
                | Message::Repush { queue, .. }
                | Message::KickMore(KickMore { queue, .. }),
                Outcome::KickedPart { phase, count, part },
            ) if part.left > 0 => Some(Message::KickMore(KickMore {
                queue: queue.clone(),
                phase: *phase,
                part: KickPart { kicked: part.kicked.saturating_add(*count), ..*part },
            })),
            (
                Message::Depart { .. } | Message::Gone(_),
                Outcome::Departed { back, abandoned, .. },
            ) if is_full(back.len() + abandoned.len()) => Some(message.clone()),
            (Message::Depart { .. } | Message::Gone(_), Outcome::ClaimsEnded { ends, .. })
                if is_full(ends.len()) =>
            {
                Some(message.clone())
            }
            _ => None,
        }
    }
}

/// Returns the number of jobs that a kick would take from this phase.
fn kickable(queue: &Queue, phase: Phase) -> u32 {
    let counts = &queue.counts;
    match phase {
        Phase::Buried => counts.buried + counts.abandoned + counts.quarantined,
        Phase::Delayed => counts.delayed + counts.retrying,
        Phase::Abandoned => counts.abandoned,
        Phase::Ready | Phase::Claimed | Phase::Retrying | Phase::Quarantined => 0,
    }
}
