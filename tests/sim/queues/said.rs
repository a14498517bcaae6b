//! What a message does to the list, and what is answered.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "each rule names the messages it is about"
)]

use crate::queues::kinds::span;
use crate::queues::list::{Job, Pause, Queues};
use sexton::actors::queue::{Message, Phase, Refused, Reply, Right};
use sexton::clock::Timestamp;
use sexton::ids::Slot;
use sexton::spine::machine::Stamp;

impl Queues {
    /// What a message does, and what is answered. `chosen` is the job that chance fell on.
    pub(super) fn message(
        &mut self,
        message: &Message,
        stamp: Stamp,
        chosen: Option<u64>,
    ) -> Reply {
        let at = stamp.at;
        match message {
            Message::Put(put) => self.put_one(put, at),
            Message::Batch(puts) => self.put_all(puts, at),
            Message::Spoil => {
                self.last_id += 1;
                Reply::Done
            }
            Message::Register(root) => self.register(*root, at),
            Message::Pop(pop) => match self.best(pop, chosen) {
                Some(slot) => self.claim(slot, pop.by, stamp),
                None => Reply::Nothing {
                    waits: pop.waits,
                    soonest: self.soonest(pop.by),
                },
            },
            Message::PopJob { id, by } => match self.find(*id) {
                Some((slot, job)) if job.view.phase != Phase::Claimed => {
                    self.claim(slot, *by, stamp)
                }
                Some(_) | None => Reply::Absent,
            },
            Message::Delete { id, by }
            | Message::Release { id, by, .. }
            | Message::Bury { id, by, .. }
            | Message::Touch { id, by }
            | Message::Fail { id, by, .. } => self.end(message, (*id, *by), stamp),
            _ => self.of_many(message, at),
        }
    }

    /// What is said of many jobs at once, or by no right of a claim.
    fn of_many(&mut self, message: &Message, at: Timestamp) -> Reply {
        match message {
            Message::Kick { queue, count } => {
                let mut line = self.line(queue, Phase::Buried);
                if line.is_empty() {
                    line = self.line(queue, Phase::Delayed);
                }
                self.kick(line, *count)
            }
            Message::Repush { queue, count } => {
                let mut line = self.line(queue, Phase::Abandoned);
                line.sort_by_key(|slot| self.job(*slot).view.id);
                self.kick(line, *count)
            }
            Message::KickJob { id } => match self.find(*id) {
                Some((slot, job)) if !matches!(job.view.phase, Phase::Ready | Phase::Claimed) => {
                    self.job(slot).kick();
                    Reply::Done
                }
                Some(_) | None => Reply::Absent,
            },
            Message::Pause { queue, ms } => {
                let pause = Pause {
                    until: at.plus_ms(*ms),
                    quarantined: false,
                };
                if *ms == 0 {
                    self.pauses.remove(queue);
                } else {
                    self.pauses.insert(queue.clone(), pause);
                }
                Reply::Done
            }
            Message::Flush { queue } => {
                let before = self.jobs.len();
                self.jobs.retain(|_, job| job.view.queue != *queue);
                let gone = before - self.jobs.len();
                Reply::Count(u32::try_from(gone).expect("worlds are small"))
            }
            Message::Depart { worker } => {
                let its = |(_, job): &(&Slot, &Job)| job.worker == Some(*worker);
                let its: Vec<Slot> = self.jobs.iter().filter(its).map(|it| *it.0).collect();
                for slot in &its {
                    self.give_back(*slot);
                }
                if its.is_empty() {
                    Reply::Absent
                } else {
                    Reply::Done
                }
            }
            Message::Drain if self.draining => Reply::Absent,
            Message::Drain => {
                self.draining = true;
                Reply::Done
            }
            _ => unreachable!("time is followed by `tick`"),
        }
    }

    /// Makes the first of these ready.
    fn kick(&mut self, mut line: Vec<Slot>, count: u32) -> Reply {
        line.truncate(count as usize);
        for slot in &line {
            self.job(*slot).kick();
        }
        Reply::Count(u32::try_from(line.len()).expect("worlds are small"))
    }

    /// What whoever has a job says of it.
    pub(super) fn end(&mut self, message: &Message, (id, by): (u64, Right), stamp: Stamp) -> Reply {
        let Some((slot, job)) = self.find(id) else {
            return Reply::Absent;
        };
        let is_its = job.view.phase == Phase::Claimed
            && match by {
                Right::Worker(worker) => job.worker == Some(worker),
                Right::Token(token) => job.view.token == Some(token),
                Right::Unclaimed => false,
            };
        let is_free = job.view.phase != Phase::Claimed && !matches!(by, Right::Token(_));
        let may = is_its || is_free && matches!(message, Message::Delete { .. });
        match by {
            Right::Token(_) if !may => return Reply::Refused(Refused::StaleToken),
            Right::Worker(_) | Right::Unclaimed if !may => return Reply::Absent,
            Right::Token(_) | Right::Worker(_) | Right::Unclaimed => {}
        }
        let at = stamp.at;
        let job = self.job(slot);
        let urgency = |job: &mut Job, priority: &Option<u32>| {
            job.view.priority = priority.unwrap_or(job.view.priority);
        };
        match message {
            Message::Release {
                priority, delay_ms, ..
            } => {
                urgency(job, priority);
                job.view.releases += 1;
                if job.last.is_some() {
                    self.give_back(slot);
                    return Reply::Abandoned;
                }
                job.view.delay_ms = *delay_ms;
                match delay_ms {
                    0 => job.go(Phase::Ready, None),
                    ms => job.go(Phase::Delayed, Some(at.plus_ms(*ms))),
                }
            }
            Message::Bury { priority, .. } => {
                urgency(job, priority);
                job.view.buries += 1;
                job.buried = stamp.seq;
                job.go(Phase::Buried, None);
            }
            Message::Touch { .. } => {
                job.span = span(&job.view);
                job.view.until = Some(at.plus_ms(job.span));
                job.quarantined = false;
            }
            Message::Fail { retry_after_ms, .. } if job.view.retries => {
                let until = retry_after_ms.map(|ms| at.plus_ms(ms)).or(job.view.until);
                job.span = until.unwrap_or_default().0.saturating_sub(at.0);
                job.go(Phase::Claimed, until);
            }
            _ => drop(self.jobs.remove(&slot)),
        }
        Reply::Done
    }
}
