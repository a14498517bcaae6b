//! The model of claims whose worker or process is gone, and of crashes that workers report.

use super::{Entry, Model};
use sexton::actors::binding::{Binding, EndNotice, Exit, Until};
use sexton::actors::queue::{Message, Phase, Reply, TypeRules, Worker};
use sexton::clock::Timestamp;
use sexton::ids::Slot;

/// Returns the error of a job whose claim ended because its process is gone.
fn how_it_ended(gone: EndNotice) -> String {
    let id = gone.process.to_string();
    let named = gone.pid.map_or(id, |pid| pid.to_string());
    let did = match gone.exit {
        Some(Exit::Code(code)) => &format!("exited with status {code}"),
        Some(Exit::Signal(number)) => &format!("was killed by signal {number}"),
        Some(Exit::Failed) => "could not be started",
        Some(Exit::Lost) | None => "is gone",
    };
    ["its claim ended: process ", &named, " ", did].concat()
}

/// Returns the delay after something has gone wrong this many times, in milliseconds. It is not random.
fn pause(rules: &TypeRules, times: u32) -> u64 {
    let backoff = rules.backoff.unwrap_or_default();
    let longer = |ms: u64, _| (ms * u64::from(backoff.factor)).min(backoff.max_ms);
    (1..times).fold(backoff.first_ms.min(backoff.max_ms), longer)
}

impl Entry {
    fn park(&mut self, ms: u64, at: Timestamp) {
        self.go(Phase::Retrying, Some(at.plus_ms(ms)));
        self.span = ms;
    }

    /// Ends a claim whose job has failed, without a report of its worker.
    fn has_failed(&mut self, rules: &TypeRules, (words, at): (&str, Timestamp)) {
        if !self.view.cancelled {
            self.view.error = Some(words.to_owned().into());
        }
        if self.last.is_some() || !self.view.retries {
            return self.give_back();
        }
        self.view.crashes = 0;
        self.park(pause(rules, self.view.attempts), at);
    }

    /// Ends a claim by a crash. `most` is the limit on crashes in a row.
    fn has_crashed(&mut self, rules: &TypeRules, most: u32, at: Timestamp) {
        if !self.view.retries || self.view.cancelled {
            return self.give_back();
        }
        let crashes = self.view.crashes + 1;
        if most > 0 && crashes >= most {
            self.view.crashes = crashes;
            self.go(Phase::Quarantined, None);
        } else if self.last.is_some() {
            self.give_back();
        } else {
            self.view.crashes = crashes;
            self.park(pause(rules, crashes), at);
        }
    }

    /// Returns whether the claim goes on, as long as the process that works on the job, because only the claimant is gone.
    fn is_handed_over(&mut self) -> bool {
        let command = self.view.command.map(|it| it.process);
        let is_new = command.is_some() && self.view.bound.map(|it| it.process) != command;
        if is_new {
            self.hand_over();
            self.quarantined = false;
        }
        is_new
    }

    /// Binds the claim to the process that works on the job, if there is one.
    pub(super) fn hand_over(&mut self) {
        if let Some(command) = self.view.command {
            self.view.bound =
                Some(Binding { process: command.process, until: Until::Tree, fence: true });
        }
    }
}

impl Model {
    /// Ends the claims that are bound to a process that is gone, or hands them over.
    pub(super) fn gone(&mut self, gone: EndNotice, at: Timestamp) -> Reply {
        let ends = |job: &&Entry| {
            let bound = job.view.bound;
            bound.is_some_and(|it| it.process == gone.process && gone.ends(it.until))
        };
        let ended = self.jobs.iter().filter(ends);
        let until = |job: &Entry| job.view.bound.map(|it| it.until);
        let mut ended: Vec<_> = ended.map(|job| (until(job), job.slot, job.view.id)).collect();
        ended.sort_unstable();
        ended.truncate(self.rules.across.part as usize);
        let ended = ended.into_iter().map(|(_, slot, id)| (slot, id));
        let mut ended: Vec<(Slot, u64)> = ended.collect();
        ended.sort_unstable();
        let is_late =
            |job: &Entry| ended.iter().any(|(slot, _)| *slot == job.slot) && job.view.fencing;
        let mut words = how_it_ended(gone);
        if self.jobs.iter().any(is_late) {
            words.push_str(" after a claim ran out");
        }
        for (_, id) in &ended {
            self.end_one(*id, gone.exit, (&words, at));
        }
        self.jobs.retain(|job| !job.is_gone);
        if ended.is_empty() { Reply::Absent } else { Reply::Done }
    }

    fn end_one(&mut self, id: u64, exit: Option<Exit>, (words, at): (&str, Timestamp)) {
        let queue = self.job(id).expect("the job exists").view.queue.clone();
        let rules = self.rules_of(&queue);
        let job = self.job(id).expect("the job exists");
        if job.is_handed_over() {
            if job.view.cancelled {
                (job.view.fencing, job.view.until) = (true, None);
            }
            if job.view.fencing {
                let told = job.obligations();
                self.told.extend(told);
            } else {
                self.watch(id);
            }
            return;
        }
        let completes = job.view.command.map(|it| it.completes);
        match (completes, exit) {
            (Some(_), _) if job.view.fencing => return job.has_failed(&rules, (words, at)),
            (Some(true), Some(Exit::Code(0))) if !job.view.cancelled => {
                job.is_gone = true;
                return;
            }
            (Some(true), Some(Exit::Code(_))) => return job.has_failed(&rules, (words, at)),
            _ => {}
        }
        if !job.view.cancelled {
            job.view.error = Some(words.to_owned().into());
        }
        if completes.is_none() && job.view.fencing {
            job.give_back();
        } else {
            job.has_crashed(&rules, rules.crash_tries, at);
        }
    }

    /// Ends the claims of a connection that has closed.
    pub(super) fn depart(&mut self, worker: Worker, at: Timestamp) -> Reply {
        let mine = self.jobs.iter().filter(|job| job.worker == Some(worker));
        let mut mine: Vec<&Entry> = mine.collect();
        mine.sort_by_key(|job| (job.view.until, job.slot));
        let mine = mine.into_iter().take(self.rules.across.part as usize);
        let mine: Vec<_> = mine.map(|job| (job.view.id, job.view.queue.clone())).collect();
        let is_limited = |(_, queue): &(_, _)| self.rules_of(queue).tube_crash_tries > 0;
        let has_reason = mine.iter().any(is_limited);
        for (id, queue) in &mine {
            let rules = self.rules_of(queue);
            let job = self.job(*id).expect("the job exists");
            if has_reason && !job.view.cancelled {
                let words = "its claim ended: its client disconnected";
                job.view.error = Some(words.to_owned().into());
            }
            match rules.tube_crash_tries {
                0 => job.give_back(),
                most => job.has_crashed(&rules, most, at),
            }
        }
        self.jobs.retain(|job| !job.is_gone);
        if mine.is_empty() { Reply::Absent } else { Reply::Done }
    }

    /// Applies the report of a worker that the work on its job crashed.
    pub(super) fn crash(&mut self, message: &Message, id: u64, at: Timestamp) -> Reply {
        let Message::Fail { error, retry_after_ms, .. } = message else {
            unreachable!("only a `Fail` reports a crash")
        };
        let queue = self.job(id).expect("the job exists").view.queue.clone();
        let rules = self.rules_of(&queue);
        let job = self.job(id).expect("the job exists");
        if !job.view.cancelled {
            job.view.error.clone_from(error);
        }
        let most = match job.worker {
            Some(_) => rules.tube_crash_tries,
            None => rules.crash_tries,
        };
        let retries = job.view.retries;
        job.has_crashed(&rules, most, at);
        if let (Phase::Retrying, Some(ms)) = (job.view.phase, retry_after_ms) {
            job.park(*ms, at);
        }
        let is_over = matches!(job.view.phase, Phase::Abandoned | Phase::Quarantined);
        self.jobs.retain(|job| !job.is_gone);
        if retries && is_over { Reply::Abandoned } else { Reply::Done }
    }
}
