//! Requests about tasks, and reports from their commands.

use super::{Applied, ApplyResult, Entry, Model, free_slot};
use sexton::actors::binding::Exit;
use sexton::actors::dispatch::{
    Act, BurstReport, Cause, ExitStatus, NewTask, Refused, RemoteEnd, Reply, Report, RunStatus,
    Saved, Server, Task,
};
use sexton::actors::lock::Name;
use sexton::actors::process::Launching;
use sexton::ids::{ProcessId, Slot};
use std::sync::Arc;

/// The maximum length of a time limit or a wait, in milliseconds: 366 days.
const SPAN_MAX: u64 = 366 * 24 * 3_600_000;

fn check(command: &Launching) -> Result<(), Refused> {
    // The coordinator adds nine variables and a secret.
    if command.spec.env.len() + command.spec.secrets.len() > 1024 - 10 {
        return Err(Refused::Command(sexton::actors::process::Flaw::Env));
    }
    command.spec.check().map_err(Refused::Command)?;
    command.tags.check().map_err(Refused::Command)
}

impl Model {
    fn came(&self, slot: Slot) -> Applied {
        (self.shown(slot), true)
    }

    /// Returns the size of the texts of all tasks.
    fn bytes(&self) -> u64 {
        let of_task = |(_, task): &(Slot, Task)| {
            let names = [&task.work, &task.group, &task.name];
            let names: usize = names.iter().map(|it| it.as_bytes().len()).sum();
            let saved = task.saved.as_ref().map_or(0, |it| it.body.as_bytes().len());
            let commands = [Some(&task.command), task.cleanup.as_ref()];
            let commands = commands.into_iter().flatten().map(|it| it.bytes());
            (names + saved + task.words.len()) as u64 + commands.sum::<u64>()
        };
        self.state.tasks.iter().map(of_task).sum()
    }

    pub(super) fn add(&mut self, asked: &NewTask, entry: Entry) -> ApplyResult {
        if entry.draining {
            return Err(Refused::Draining);
        }
        if self.state.tasks.len() >= self.rules.tasks_max as usize {
            return Err(Refused::Full);
        }
        let cleanup = asked.cleanup.as_ref().map_or(0, |it| it.bytes());
        let names = [&asked.work, &asked.group, &asked.name];
        let names: usize = names.iter().map(|it| it.as_bytes().len()).sum();
        if self.bytes() + asked.command.bytes() + cleanup + names as u64 > self.rules.bytes_max {
            return Err(Refused::Full);
        }
        let terms = asked.terms.unwrap_or(self.rules.terms);
        for span in [terms.burst_ms, terms.fail_after_ms, terms.progress_ms] {
            if span == 0 || span > SPAN_MAX {
                return Err(Refused::Span);
            }
        }
        check(&asked.command)?;
        if let Some(cleanup) = &asked.cleanup {
            check(cleanup)?;
        }
        if !self.state.had_servers {
            let name = Name::try_from(Server::LOCAL).expect("the name is short");
            self.make_server(&name, self.rules.local_threads.max(1), None);
        }
        let mut group = asked.group.clone();
        if group.as_bytes().is_empty() {
            group = Name::try_from("default").expect("the name is short");
        }
        let task = Task {
            id: entry.seq.0,
            work: asked.work.clone(),
            group,
            name: asked.name.clone(),
            priority: asked.priority,
            command: Arc::clone(&asked.command),
            cleanup: asked.cleanup.clone(),
            terms,
            created: entry.now.at,
            status: if asked.not_ready { RunStatus::NotReady } else { RunStatus::NotStarted },
            paused: asked.paused,
            ..Task::default()
        };
        let slot = free_slot(&self.state.tasks);
        self.state.tasks.push((slot, task));
        Ok(self.came(slot))
    }

    pub(super) fn act(&mut self, id: u64, act: Act, entry: Entry) -> ApplyResult {
        let Some((slot, task)) = self.find(id) else {
            return Ok((Reply::Absent, false));
        };
        let (status, paused) = (task.status, task.paused);
        if (status == RunStatus::Complete) != (act == Act::Restart) {
            let is_over = status == RunStatus::Complete;
            return Err(if is_over { Refused::Over } else { Refused::NotOver });
        }
        let is_idle = match act {
            Act::Pause => paused,
            Act::Resume => !paused,
            Act::Wake => !status.is_under_way(),
            Act::Ready | Act::Terminate { .. } | Act::Restart => false,
        };
        if is_idle {
            return Ok((self.shown(slot), false));
        }
        match act {
            Act::Ready if status != RunStatus::NotReady => return Err(Refused::NotHeld),
            Act::Ready => self.at(slot).status = RunStatus::NotStarted,
            Act::Pause => self.at(slot).paused = true,
            Act::Resume => self.at(slot).paused = false,
            Act::Wake => self.wake(slot, entry),
            Act::Terminate { now } => return Ok(self.terminate(slot, now, entry)),
            Act::Restart => {
                let task = self.at(slot);
                task.status = RunStatus::Restarted;
                task.exit = ExitStatus::NotFinished;
                (task.started, task.ended, task.forgotten) = (None, None, None);
                task.words.clear();
                task.terminating = false;
                task.setbacks = 0;
            }
        }
        Ok(self.came(slot))
    }

    /// Ends the wait of a task. If an attempt is running, the task will not wait once the attempt has ended.
    pub(super) fn wake(&mut self, slot: Slot, entry: Entry) {
        let today = entry.now.date();
        let task = self.at(slot);
        if task.status == RunStatus::Processing {
            task.woken = true;
        } else {
            task.is_due = true;
            task.wake = task.wake.min(today);
        }
    }

    fn terminate(&mut self, slot: Slot, now: bool, entry: Entry) -> Applied {
        let task = self.task(slot).expect("the task was just found");
        let runs = task.attempt.is_some();
        let winds_up = !now && task.status.is_under_way();
        if winds_up && !task.terminating {
            self.at(slot).terminating = true;
            self.wake(slot, entry);
        } else if winds_up {
            return (self.shown(slot), false);
        } else if runs {
            let is_stopping = task.attempt.as_ref().is_some_and(|it| it.stopping.is_some());
            if is_stopping {
                return (self.shown(slot), false);
            }
            self.stop(slot, Cause::Terminated);
        } else {
            self.tell_over(slot);
            self.be_over(slot, ExitStatus::Terminated, entry);
            self.make_room(slot);
        }
        (self.shown(slot), true)
    }

    /// Marks the attempt of a task as being stopped, and requests that its process be stopped, if it has one.
    pub(super) fn stop(&mut self, slot: Slot, cause: Cause) {
        if let Some(attempt) = &mut self.at(slot).attempt {
            attempt.stopping = Some(cause);
        }
        self.tell_obligations(slot);
    }

    pub(super) fn be_over(&mut self, slot: Slot, exit: ExitStatus, entry: Entry) {
        let forgotten = entry.now.date().plus_ms(self.rules.kept_ms);
        let task = self.at(slot);
        (task.status, task.exit) = (RunStatus::Complete, exit);
        task.ended = Some(entry.now.at);
        task.forgotten = Some(forgotten);
        (task.counts, task.is_due) = (false, false);
        task.blocked = None;
    }

    /// Returns the task whose attempt has this process, if there is one.
    pub(super) fn attempted_by(&self, process: ProcessId) -> Option<(Slot, &Task)> {
        let is_its = |task: &Task| task.attempt.as_ref().is_some_and(|it| it.process == process);
        let mut tasks = self.state.tasks.iter();
        let found = tasks.find(|(_, task)| is_its(task));
        found.map(|(slot, task)| (*slot, task))
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind")]
    pub(super) fn report(
        &mut self,
        process: ProcessId,
        (report, nth): (&Report, Option<u64>),
        entry: Entry,
    ) -> ApplyResult {
        let (slot, task) = self.attempted_by(process).ok_or(Refused::Stale)?;
        let attempt = task.attempt.as_ref().ok_or(Refused::Stale)?;
        let updates = attempt.updates;
        let is_far = matches!(report, Report::Far(_) | Report::Reached);
        let is_old = match &attempt.reach {
            None if is_far => return Err(Refused::Stale),
            None => false,
            Some(reach) if is_far => reach.end.is_some(),
            Some(reach) => nth.unwrap_or(u64::MAX) <= reach.heard,
        };
        if is_old {
            return Ok((self.shown(slot), false));
        }
        if let Some(cause) = attempt.stopping.filter(|_| !is_far) {
            return Err(Refused::Stopping(cause));
        }
        let server = attempt.server;
        if *report == Report::Reached {
            let answered = self.answer_server(server);
            return Ok((self.shown(slot), answered));
        }
        let max = self.rules.saved_bytes_max as usize;
        let date = entry.now.date();
        let task = match report {
            Report::Save(body) if body.as_bytes().len() > max => return Err(Refused::TooLarge),
            Report::Done { words, .. } | Report::Fail { words } if words.len() > 1024 => {
                return Err(Refused::Words);
            }
            Report::Wait { ms } if *ms > SPAN_MAX => return Err(Refused::Span),
            Report::Save(_) if !updates => {
                self.stop(slot, Cause::UpdateLock);
                return Ok((Reply::Refused(Refused::Locked), true));
            }
            Report::Save(_)
            | Report::Beat
            | Report::Done { .. }
            | Report::Wait { .. }
            | Report::Fail { .. }
            | Report::Far(_)
            | Report::Reached => self.at(slot),
        };
        let attempt = task.attempt.as_mut().expect("its attempt was just found");
        // Once an attempt has sent a heartbeat, each of its reports counts as one.
        if *report == Report::Beat || attempt.beat.is_some() {
            attempt.beat = Some(entry.now.at);
        }
        if let Some(reach) = &mut attempt.reach {
            reach.heard = reach.heard.max(nth.unwrap_or(0));
            if let Report::Far(end) = report {
                reach.end = Some(*end);
            }
        }
        match report {
            Report::Beat | Report::Far(_) | Report::Reached => {}
            Report::Save(body) => {
                task.revision += 1;
                let (at, body) = (entry.now.at, body.clone());
                task.saved = Some(Saved { at, body });
                attempt.trace.saved = attempt.trace.saved.or(Some(at));
            }
            Report::Done { warning, words } => {
                let (warning, words) = (*warning, words.clone());
                attempt.said = Some(BurstReport::Done { warning, words });
            }
            Report::Wait { ms } => {
                let until = date.plus_ms(*ms);
                attempt.said = Some(BurstReport::Wait { until });
            }
            Report::Fail { words } => {
                let words = words.clone();
                attempt.said = Some(BurstReport::Fail { words });
            }
        }
        let proves_nothing =
            [RemoteEnd::NotReached, RemoteEnd::Unreachable, RemoteEnd::Ended(Exit::Failed)];
        if !proves_nothing.map(Report::Far).contains(report) {
            self.answer_server(server);
        }
        Ok(self.came(slot))
    }

    /// Records that a server was reached. Returns whether it could not be reached before.
    fn answer_server(&mut self, slot: Slot) -> bool {
        let mut servers = self.state.servers.iter_mut();
        let server = servers.find(|(its, _)| *its == slot);
        server.is_some_and(|(_, it)| it.outage.take().is_some())
    }
}
