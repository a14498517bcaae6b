//! The rules by which messages about tasks, servers and groups are decided. They follow Wip, Acquia's task system; see `docs/tasks.md`.

use crate::actors::binding::Exit;
use crate::actors::dispatch::machine::DispatchMachine;
use crate::actors::dispatch::message::{
    Act, Host, Message, NewTask, PRUNED_MAX, Report, ServerChange,
};
use crate::actors::dispatch::outcome::{Outcome, Refused, Step, TaskStep};
use crate::actors::dispatch::remote::{Remote, RemoteEnd};
use crate::actors::dispatch::server::{Group, Pause, Server};
use crate::actors::dispatch::task::{Attempt, Cause, ExitStatus, RunStatus, Task, Terms};
use crate::actors::lock::{LockState, Name};
use crate::actors::process::{Flaw, Launching, Spec};
use crate::clock::Date;
use crate::ids::{ProcessId, Slot, Token};
use crate::spine::machine::Moment;
use std::collections::{BTreeMap, BTreeSet};

/// The key of the lock that an attempt must hold to run its command. The index of the lock is the id of the task.
pub const EXECUTE: &str = "wip-pool-lock-execute";
/// The key of the lock that an attempt must hold to save the task's state. The index of the lock is the id of the task.
pub const UPDATE: &str = "wip-pool-lock-update";

impl DispatchMachine {
    pub(super) fn decision(&self, moment: &Moment, message: &Message) -> Outcome {
        let decided = match message {
            Message::Add(adding) => self.adding(moment, adding),
            Message::Act { task, act } => match self.state.find(*task) {
                Some((slot, task)) => self.act(moment, (slot, task), *act),
                None => return Outcome::Absent,
            },
            Message::Report { process, report, nth } => {
                self.report(moment, *process, (report, *nth))
            }
            Message::Pause { group, pause } => self.pause(group.as_ref(), *pause),
            Message::Limit { group, max } => self.set_group(group, Some(*max), None),
            Message::Server { name, change } => self.server(name, change),
            Message::Inventory { hosts } => self.inventory(hosts),
            Message::Prune { before, keep, limit } => {
                Ok(self.prune(moment, *before, (*keep, *limit)))
            }
            Message::Gone(gone) => Ok(self.gone(moment, *gone)),
            Message::Launched(process) => Ok(self.launched(*process)),
            Message::Held(held) => Ok(self.held(moment, held)),
            Message::Lapse { slot } => Ok(self.lapse(moment, *slot)),
            Message::Dispatch => Ok(self.dispatch(moment)),
        };
        decided.unwrap_or_else(Outcome::Refused)
    }

    fn adding(&self, moment: &Moment, adding: &NewTask) -> Result<Outcome, Refused> {
        if moment.draining.has_begun() {
            return Err(Refused::Draining);
        }
        if self.state.tasks.len() >= self.rules.tasks_max as usize {
            return Err(Refused::Full);
        }
        self.check_bytes(adding.bytes())?;
        let terms = adding.terms.unwrap_or(self.rules.terms);
        let spans = 1..=Terms::SPAN_MS_MAX;
        let of_terms = [terms.burst_ms, terms.fail_after_ms, terms.progress_ms];
        if !of_terms.iter().all(|span| spans.contains(span)) {
            return Err(Refused::Span);
        }
        check_command(&adding.command)?;
        adding.cleanup.as_deref().map_or(Ok(()), check_command)?;
        let mut steps = Vec::new();
        if !self.state.head.had_servers {
            steps.push(Step::ServerMade {
                name: Name::try_from(Server::LOCAL).unwrap_or_default(),
                threads: self.rules.local_threads.max(1),
                remote: None,
            });
        }
        let slot = self.state.tasks.next_free();
        steps.push(Step::Task(slot, TaskStep::Added { terms }));
        Ok(changed(steps))
    }

    /// Refuses texts of this size if they would exceed the limit for all tasks.
    const fn check_bytes(&self, more: u64) -> Result<(), Refused> {
        if self.state.index.bytes.saturating_add(more) > self.rules.bytes_max {
            return Err(Refused::Full);
        }
        Ok(())
    }

    fn act(
        &self,
        moment: &Moment,
        (slot, task): (Slot, &Task),
        act: Act,
    ) -> Result<Outcome, Refused> {
        let is_over = task.status == RunStatus::Complete;
        if is_over && act != Act::Restart {
            return Err(Refused::Over);
        }
        let step = match act {
            Act::Ready if task.status == RunStatus::NotReady => TaskStep::Ready,
            Act::Ready => return Err(Refused::NotHeld),
            Act::Pause if task.paused => return Ok(Outcome::Unchanged),
            Act::Pause => TaskStep::Paused(true),
            Act::Resume if !task.paused => return Ok(Outcome::Unchanged),
            Act::Resume => TaskStep::Paused(false),
            Act::Wake if task.status.is_under_way() => TaskStep::Woken(moment.now.date()),
            Act::Wake => return Ok(Outcome::Unchanged),
            Act::Terminate { now } => return Ok(self.terminate(moment, (slot, task), now)),
            Act::Restart if is_over => TaskStep::Restarted,
            Act::Restart => return Err(Refused::NotOver),
        };
        Ok(of_task(slot, step))
    }

    /// Decides how a task is terminated. If it has not started, it is over immediately; otherwise it gets one last burst to clean up. If
    /// `now` is set, there is no last burst: a current attempt is stopped, and without one the task is over immediately.
    fn terminate(&self, moment: &Moment, (slot, task): (Slot, &Task), now: bool) -> Outcome {
        let over =
            || TaskStep::Over { exit: ExitStatus::Terminated, forgotten: self.forgotten(moment) };
        match &task.attempt {
            Some(attempt) if now && attempt.stopping.is_none() => {
                of_task(slot, TaskStep::Stopping(Cause::Terminated))
            }
            Some(_) if now || task.terminating => Outcome::Unchanged,
            None if now || !task.status.is_under_way() => {
                let mut steps = vec![Step::Task(slot, over())];
                steps.extend(self.eviction_steps());
                changed(steps)
            }
            None if task.terminating => Outcome::Unchanged,
            Some(_) | None => changed(vec![
                Step::Task(slot, TaskStep::Terminating),
                Step::Task(slot, TaskStep::Woken(moment.now.date())),
            ]),
        }
    }

    fn report(
        &self,
        moment: &Moment,
        process: ProcessId,
        (report, nth): (&Report, Option<u64>),
    ) -> Result<Outcome, Refused> {
        let (slot, task) = self.state.of_process(process).ok_or(Refused::Stale)?;
        let attempt = task.attempt_of(process).ok_or(Refused::Stale)?;
        // A report from another machine is sent again until it is answered, so a report that was already accepted changes nothing.
        let is_far = matches!(report, Report::Far(_) | Report::Reached);
        let is_old = match &attempt.reach {
            None if is_far => return Err(Refused::Stale),
            None => false,
            Some(reach) if is_far => reach.end.is_some(),
            Some(reach) => nth.is_some_and(|nth| nth <= reach.heard),
        };
        if is_old {
            return Ok(Outcome::Unchanged);
        }
        if let Some(cause) = attempt.stopping.filter(|_| !is_far) {
            return Err(Refused::Stopping(cause));
        }
        match report {
            Report::Save(body) if body.as_bytes().len() > self.rules.saved_bytes_max as usize => {
                return Err(Refused::TooLarge);
            }
            Report::Save(body) if attempt.updates => {
                let before = task.saved.as_ref().map_or(0, |it| it.body.as_bytes().len());
                let more = body.as_bytes().len().saturating_sub(before);
                if more > 0 {
                    self.check_bytes(more as u64)?;
                }
            }
            Report::Save(_) if !attempt.updates => {
                // Without the update lock the attempt cannot save what it has done, so there is no point in continuing. It is stopped,
                // and the next attempt requests the lock again.
                let step = Step::Task(slot, TaskStep::Stopping(Cause::UpdateLock));
                return Ok(Outcome::Changed { steps: vec![step], refused: Some(Refused::Locked) });
            }
            Report::Done { words, .. } | Report::Fail { words }
                if words.len() > Task::WORDS_BYTES_MAX =>
            {
                return Err(Refused::Words);
            }
            Report::Wait { ms } if *ms > Terms::SPAN_MS_MAX => return Err(Refused::Span),
            Report::Save(_)
            | Report::Beat
            | Report::Done { .. }
            | Report::Wait { .. }
            | Report::Fail { .. }
            | Report::Far(_) => {}
            Report::Reached => {
                let answered = self.answered_server(attempt, report);
                return Ok(answered.map_or(Outcome::Unchanged, |step| changed(vec![step])));
            }
        }
        let until = if let Report::Wait { ms } = report {
            Some(moment.now.date().plus_ms(*ms))
        } else {
            None
        };
        let mut steps = vec![Step::Task(slot, TaskStep::Reported { until })];
        steps.extend(self.answered_server(attempt, report));
        Ok(changed(steps))
    }

    /// Returns the step that records that the server of an attempt was reached again, if it could not be reached before and this report
    /// proves it.
    fn answered_server(&self, attempt: &Attempt, report: &Report) -> Option<Step> {
        let is_proof = match report {
            Report::Far(RemoteEnd::Ended(exit)) => *exit != Exit::Failed,
            Report::Far(RemoteEnd::NotReached | RemoteEnd::Unreachable) => false,
            Report::Save(_)
            | Report::Beat
            | Report::Done { .. }
            | Report::Wait { .. }
            | Report::Fail { .. }
            | Report::Reached => true,
        };
        let server = self.state.servers.get(attempt.server)?;
        (is_proof && server.outage.is_some()).then_some(Step::ServerAnswered(attempt.server))
    }

    fn pause(&self, group: Option<&Name>, pause: Pause) -> Result<Outcome, Refused> {
        match group {
            Some(group) => self.set_group(group, None, Some(pause)),
            None if self.state.head.pause == pause => Ok(Outcome::Unchanged),
            None => Ok(changed(vec![Step::Paused(pause)])),
        }
    }

    fn set_group(
        &self,
        name: &Name,
        max: Option<u32>,
        pause: Option<Pause>,
    ) -> Result<Outcome, Refused> {
        let name = Group::resolve(name);
        let known = self.state.group(&name);
        if known.is_none() && self.state.groups.len() >= self.rules.groups_max as usize {
            return Err(Refused::GroupsFull);
        }
        let slot = known.map_or_else(|| self.state.groups.next_free(), |(slot, _)| slot);
        let before = known.map_or((None, Pause::Off), |(_, it)| (it.max, it.pause));
        let after = (max.or(before.0), pause.unwrap_or(before.1));
        if before == after {
            return Ok(Outcome::Unchanged);
        }
        Ok(changed(vec![Step::GroupSet { slot, name, max: after.0, pause: after.1 }]))
    }

    fn server(&self, name: &Name, change: &ServerChange) -> Result<Outcome, Refused> {
        let found = self.state.server(name).filter(|(_, it)| !it.leaves);
        let step = match (change, found) {
            (ServerChange::Threads(threads), _) => return self.set_server(name, *threads, None),
            (ServerChange::Reached { threads, remote }, _) => {
                return self.set_server(name, *threads, Some(remote));
            }
            (ServerChange::Enabled(_) | ServerChange::Removed, None) => return Ok(Outcome::Absent),
            (ServerChange::Enabled(on), Some((_, it)))
                if it.enabled == *on && (!*on || it.outage.is_none()) =>
            {
                return Ok(Outcome::Unchanged);
            }
            (ServerChange::Enabled(on), Some((slot, _))) => Step::ServerEnabled(slot, *on),
            (ServerChange::Removed, Some((slot, _))) => {
                let mut stopping = self.stopping_on(&[slot].into());
                let stops = stopping.remove(&slot).unwrap_or_default();
                return Ok(changed([vec![Step::ServerRemoved(slot)], stops].concat()));
            }
        };
        Ok(changed(vec![step]))
    }

    /// Decides on a new number of threads for a server and, if `remote` is given, on a new way to reach it. A server that does not exist
    /// is added.
    fn set_server(
        &self,
        name: &Name,
        threads: u32,
        remote: Option<&Remote>,
    ) -> Result<Outcome, Refused> {
        if !(1..=Server::THREADS_MAX).contains(&threads) {
            return Err(Refused::Threads);
        }
        let found = self.state.server(name).filter(|(_, it)| !it.leaves);
        let Some((slot, it)) = found else {
            let step = self.new_server(name, (threads, remote), 0)?;
            return Ok(changed(vec![step]));
        };
        let mut steps = Vec::new();
        if it.threads != threads {
            steps.push(Step::ServerThreads(slot, threads));
        }
        steps.extend(reached((slot, it), remote)?);
        Ok(if steps.is_empty() { Outcome::Unchanged } else { changed(steps) })
    }

    /// Returns the steps that stop the attempts on these servers, by server. They are found in one pass, since an inventory may remove many
    /// servers.
    fn stopping_on(&self, servers: &BTreeSet<Slot>) -> BTreeMap<Slot, Vec<Step>> {
        let mut stopping = BTreeMap::<Slot, Vec<Step>>::new();
        let bound = self.state.index.bound.iter();
        for slot in bound.filter(|_| !servers.is_empty()) {
            let task = self.state.tasks.get(*slot);
            let attempt = task.and_then(|it| it.attempt.as_ref());
            let attempt = attempt.filter(|it| it.stopping.is_none());
            if let Some(attempt) = attempt.filter(|it| servers.contains(&it.server)) {
                let step = Step::Task(*slot, TaskStep::Stopping(Cause::ServerGone));
                stopping.entry(attempt.server).or_default().push(step);
            }
        }
        stopping
    }

    /// Returns the step that adds a server, or restores a server that was being removed. `before` is the number of servers that the same
    /// message has added so far.
    fn new_server(
        &self,
        name: &Name,
        (threads, remote): (u32, Option<&Remote>),
        before: usize,
    ) -> Result<Step, Refused> {
        if name.as_bytes().is_empty() {
            return Err(Refused::NoName);
        }
        check_remote(remote)?;
        let is_new = self.state.server(name).is_none();
        if is_new && self.state.servers.len() + before >= self.rules.servers_max as usize {
            return Err(Refused::ServersFull);
        }
        Ok(Step::ServerMade { name: name.clone(), threads, remote: remote.cloned() })
    }

    /// Decides on an inventory: adds new servers, changes existing ones and removes missing ones. Like `wipctl server update`, it never
    /// changes a server that an operator disabled.
    pub(super) fn inventory(&self, hosts: &[Host]) -> Result<Outcome, Refused> {
        let mut wanted = BTreeMap::new();
        for host in hosts {
            let threads = host.threads.max(1);
            if threads > Server::THREADS_MAX {
                return Err(Refused::Threads);
            }
            let remote = host.remote.as_ref();
            if wanted.insert(&host.name, (threads, remote)).is_some() {
                return Err(Refused::NamedTwice);
            }
        }
        let mut steps = Vec::new();
        let known = || self.state.servers_by_name().filter(|(_, it)| !it.leaves);
        let is_gone = |it: &Server| it.enabled && !wanted.contains_key(&it.name);
        let gone = known().filter(|(_, it)| is_gone(it));
        let mut stopping = self.stopping_on(&gone.map(|(slot, _)| slot).collect());
        for (slot, server) in known() {
            match wanted.remove(&server.name) {
                Some(_) if !server.enabled => {}
                Some((threads, remote)) => {
                    if threads != server.threads {
                        steps.push(Step::ServerThreads(slot, threads));
                    }
                    steps.extend(reached((slot, server), remote)?);
                }
                None if server.enabled => {
                    steps.push(Step::ServerRemoved(slot));
                    steps.extend(stopping.remove(&slot).unwrap_or_default());
                }
                None => {}
            }
        }
        let (mut makes, mut new) = (Vec::new(), 0);
        for (name, wanted) in wanted {
            makes.push(self.new_server(name, wanted, new)?);
            new += usize::from(self.state.server(name).is_none());
        }
        steps.extend(makes);
        if steps.is_empty() {
            return Ok(Outcome::Unchanged);
        }
        Ok(changed(steps))
    }

    fn prune(&self, moment: &Moment, before: Option<Date>, (keep, limit): (u32, u32)) -> Outcome {
        let over = &self.state.index.over;
        let before = before.map_or(moment.now.at, |it| moment.now.offset.time(it));
        let most = over.len().saturating_sub(keep as usize);
        let most = most.min(limit.min(PRUNED_MAX) as usize);
        let old = over.iter().take(most).take_while(|(at, _)| *at < before);
        let steps = old.map(|(_, slot)| Step::Task(*slot, TaskStep::Forgotten));
        let steps: Vec<Step> = steps.collect();
        if steps.is_empty() { Outcome::Unchanged } else { changed(steps) }
    }

    fn launched(&self, process: ProcessId) -> Outcome {
        let Some((slot, task)) = self.state.of_process(process) else {
            return Outcome::Unchanged;
        };
        let attempt = task.attempt_of(process);
        let cleaning = task.cleaning.filter(|it| it.process == process);
        if attempt.is_some_and(|it| it.launched.is_none()) {
            of_task(slot, TaskStep::Launched)
        } else if cleaning.is_some_and(|it| !it.taken) {
            of_task(slot, TaskStep::CleanupLaunched)
        } else {
            Outcome::Unchanged
        }
    }

    /// Decides on a report about an attempt's lock. If nothing needs the lock any more, its release is requested again, since the first
    /// request may have been lost.
    fn held(&self, moment: &Moment, held: &LockState) -> Outcome {
        let gives_back = || changed(vec![Step::GivesBack(held.clone())]);
        let Some((slot, task, token)) = self.of_lock(held) else {
            return gives_back();
        };
        let of_execute = held.key.as_bytes() == EXECUTE.as_bytes();
        if task.blocked == Some(token) {
            return match (of_execute, held.granted) {
                (true, true) => of_task(slot, TaskStep::Unblocked),
                (true, false) => Outcome::Unchanged,
                (false, _) => gives_back(),
            };
        }
        let Some(attempt) = task.attempt.as_ref().filter(|it| it.token == token) else {
            return gives_back();
        };
        match (of_execute, held.granted) {
            (true, true) if !attempt.has_lock() => match attempt.stopping {
                None => of_task(slot, TaskStep::Locked),
                Some(_) => self.ended(moment, slot, None),
            },
            (true, false) if !attempt.has_lock() => self.blocked(moment, slot),
            (false, true) if !attempt.updates => of_task(slot, TaskStep::Updates),
            (_, _) => Outcome::Unchanged,
        }
    }

    /// Returns the task that a lock belongs to, and the token of the attempt named as its owner; `None` if the lock does not belong to an
    /// existing task.
    pub(super) fn of_lock(&self, held: &LockState) -> Option<(Slot, &Task, Token)> {
        let id = std::str::from_utf8(held.index.as_bytes()).ok()?;
        let (slot, task) = self.state.find(id.parse().ok()?)?;
        let owner = std::str::from_utf8(held.owner.as_bytes()).ok()?;
        let token = owner.strip_prefix("attempt-")?.parse().ok()?;
        Some((slot, task, Token(token)))
    }

    /// Decides what happens to a task whose deadline has passed: its wake time has come, its attempt took too long or sent no heartbeat, or
    /// the task has been kept long enough after its end.
    fn lapse(&self, moment: &Moment, slot: Slot) -> Outcome {
        let Some(task) = self.state.tasks.get(slot) else {
            return Outcome::Absent;
        };
        match task.status {
            RunStatus::Complete => of_task(slot, TaskStep::Forgotten),
            RunStatus::Waiting => of_task(slot, TaskStep::Woken(task.wake)),
            RunStatus::Processing => match task.stops_at(self.state.head.epoch) {
                // If the coordinator was slow, heartbeats may have arrived in time that are not read yet.
                Some((at, Cause::Silent)) if at.plus_ms(LATE_MS) < moment.now.at => {
                    of_task(slot, TaskStep::Excused)
                }
                Some((at, cause)) if at <= moment.now.at => self.stopping(moment, slot, cause),
                Some(_) | None => Outcome::Unchanged,
            },
            RunStatus::NotReady | RunStatus::NotStarted | RunStatus::Restarted => {
                Outcome::Unchanged
            }
        }
    }

    /// Decides to stop the attempt of a task. An attempt that does not hold the execute lock yet has no process, so it ends immediately.
    fn stopping(&self, moment: &Moment, slot: Slot, cause: Cause) -> Outcome {
        let mut steps = vec![Step::Task(slot, TaskStep::Stopping(cause))];
        let task = self.state.tasks.get(slot);
        let attempt = task.and_then(|it| it.attempt.as_ref());
        if attempt.is_some_and(|it| !it.has_lock()) {
            steps.extend(self.ends(moment, slot, (None, Some(cause))));
        }
        changed(steps)
    }

    /// Decides which burst begins next, and on which server. While the coordinator is draining, decides instead that no burst begins until
    /// the next startup.
    fn dispatch(&self, moment: &Moment) -> Outcome {
        if moment.draining.has_begun() {
            return changed(vec![Step::Rests]);
        }
        let per_thread = self.rules.tasks_per_thread;
        let Some((task, server)) = self.state.next(per_thread, moment.now.at) else {
            return Outcome::Unchanged;
        };
        let process = moment.process_id(0);
        // Only an attempt on another machine can lose contact.
        let there = self.state.servers.get(server);
        let there = there.is_some_and(|it| it.remote.is_some());
        let lost_after_ms = there.then_some(self.rules.lost_after_ms);
        of_task(task, TaskStep::Claimed { server, process, lost_after_ms })
    }

    /// Returns when a task that ends now will be forgotten.
    pub(super) fn forgotten(&self, moment: &Moment) -> Date {
        moment.now.date().plus_ms(self.rules.kept_ms)
    }

    /// Returns the steps that forget the oldest tasks that are over, to make room for one more. At most two are forgotten at a time, so the
    /// number of tasks that are over falls gradually after the limit was lowered.
    pub(super) fn eviction_steps(&self) -> impl Iterator<Item = Step> {
        let over = &self.state.index.over;
        let surplus = (over.len() + 1).saturating_sub(self.rules.kept_max as usize);
        let oldest = over.iter().take(surplus.min(2));
        oldest.map(|(_, slot)| Step::Task(*slot, TaskStep::Forgotten))
    }
}

fn check_remote(remote: Option<&Remote>) -> Result<(), Refused> {
    let is_safe = remote.is_none_or(Remote::is_safe);
    if is_safe { Ok(()) } else { Err(Refused::Remote) }
}

/// Returns the step that changes how an existing server is reached; `None` if nothing changes. Refuses a description that is not safe in a
/// command line.
fn reached(
    (slot, server): (Slot, &Server),
    remote: Option<&Remote>,
) -> Result<Option<Step>, Refused> {
    let new = remote.filter(|it| server.remote.as_ref() != Some(*it));
    check_remote(new)?;
    Ok(new.map(|it| Step::ServerReached(slot, it.clone())))
}

/// How late it may be noticed that heartbeats are missing, in milliseconds. If it is noticed later, the coordinator has not read what arrived
/// meanwhile, either, so the interval begins again. A tick is usually less than a few milliseconds late.
const LATE_MS: u64 = 250;

/// The maximum number of environment variables that a burst gets in addition to those of its task.
const OWN_VARIABLES_MAX: usize = 10;

/// Refuses a command that could not be run, including one that leaves no room in its environment for the [`OWN_VARIABLES_MAX`] variables
/// that are added.
fn check_command(command: &Launching) -> Result<(), Refused> {
    let variables = command.spec.env.len() + command.spec.secrets.len();
    if variables + OWN_VARIABLES_MAX > Spec::ENV_MAX {
        return Err(Refused::Command(Flaw::Env));
    }
    command.check().map_err(Refused::Command)
}

pub(super) fn of_task(slot: Slot, step: TaskStep) -> Outcome {
    changed(vec![Step::Task(slot, step)])
}

pub(super) const fn changed(steps: Vec<Step>) -> Outcome {
    let refused = None;
    Outcome::Changed { steps, refused }
}
