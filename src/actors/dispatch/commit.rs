//! Commits outcomes, without making any decisions.

use crate::actors::binding::{Exit, PROCESSES, ToProcesses, Until, Watch as Watching};
use crate::actors::dispatch::decide::{EXECUTE, UPDATE};
use crate::actors::dispatch::machine::DispatchMachine;
use crate::actors::dispatch::message::{Message, Report};
use crate::actors::dispatch::outcome::{Step, TaskStep};
use crate::actors::dispatch::remote::{Remote, RemoteAttempt};
use crate::actors::dispatch::server::{Group, Server};
use crate::actors::dispatch::task::{
    Attempt, BurstReport, Cause, Cleaning, ExitStatus, Past, RunStatus, Saved, Stage, Task, Terms,
    Trace, Verdict,
};
use crate::actors::lock::{self, Hold, LOCKS, Name};
use crate::actors::process::{LAUNCHES, LaunchAs, Launching, Message as ToLaunch};
use crate::clock::Timestamp;
use crate::ids::{ActorId, ProcessId, Slot};
use crate::spine::machine::{Effects, Machine as _, Stamp};
use std::sync::Arc;

impl DispatchMachine {
    /// Applies one step of an outcome, and sends the requests that follow from it to other actors.
    pub(super) fn apply(
        &mut self,
        entry: Stamp,
        message: &Message,
        step: &Step,
        effects: &mut Effects<Self>,
    ) {
        let seq = entry.seq;
        match step {
            Step::Task(slot, step) => self.apply_to_task(entry, message, (*slot, step), effects),
            Step::ServerMade { name, threads, remote } => {
                self.make_server(entry, name, (*threads, remote.clone()));
            }
            Step::ServerThreads(slot, threads) => {
                self.state.change_server(seq, *slot, |it| it.threads = *threads);
            }
            Step::ServerReached(slot, remote) => {
                let change = |it: &mut Server| {
                    (it.remote, it.outage) = (Some(remote.clone()), None);
                };
                self.state.change_server(seq, *slot, change);
            }
            Step::ServerFailed(slot, outage) => {
                self.state.change_server(seq, *slot, |it| it.outage = Some(*outage));
            }
            Step::ServerAnswered(slot) => {
                self.state.change_server(seq, *slot, |it| it.outage = None);
            }
            Step::ServerEnabled(slot, on) => {
                self.state.change_server(seq, *slot, |it| {
                    it.enabled = *on;
                    it.outage = it.outage.filter(|_| !*on);
                });
            }
            Step::ServerRemoved(slot) if self.state.index.threads.used(*slot) == 0 => {
                self.state.remove_server(seq, *slot);
            }
            Step::ServerRemoved(slot) => {
                self.state.change_server(seq, *slot, |it| it.leaves = true);
            }
            Step::GroupSet { slot, name, max, pause } => {
                let (name, max, pause) = (name.clone(), *max, *pause);
                self.state.set_group(seq, *slot, Group { name, max, pause });
            }
            Step::Paused(pause) => {
                let change = self.state.pages.by(seq);
                self.state.head.change(change, |it| it.pause = *pause);
            }
            Step::Rests => {
                let change = self.state.pages.by(seq);
                self.state.head.change(change, |it| it.rests = true);
            }
            Step::GivesBack(held) => {
                let names = [&held.key, &held.index, &held.owner].map(Name::clone);
                effects.tell(LOCKS, &lock::Message::Yield(hold(names)));
            }
        }
    }

    fn make_server(&mut self, entry: Stamp, name: &Name, (threads, remote): (u32, Option<Remote>)) {
        let leaving = self.state.server(name).map(|(slot, _)| slot);
        if let Some(slot) = leaving {
            self.state.change_server(entry.seq, slot, |it| {
                (it.threads, it.enabled, it.leaves) = (threads, true, false);
                (it.remote, it.outage) = (remote, None);
            });
            return;
        }
        let server = Server {
            name: name.clone(),
            threads,
            enabled: true,
            leaves: false,
            remote,
            outage: None,
        };
        let slot = self.state.servers.next_free();
        self.state.insert_server(entry.seq, slot, server);
    }

    fn apply_to_task(
        &mut self,
        entry: Stamp,
        message: &Message,
        (slot, step): (Slot, &TaskStep),
        effects: &mut Effects<Self>,
    ) {
        match step {
            TaskStep::Claimed { server, process, lost_after_ms } => {
                let used = self.state.index.threads.used(*server);
                let at = self.state.servers.get(*server);
                let threads = at.map_or(0, |it| it.threads);
                let remote = at.and_then(|it| it.remote.clone());
                let reach = remote.zip(*lost_after_ms);
                let reach = reach.map(|(it, span)| RemoteAttempt::new(it, *process, span));
                let on = (*server, *process);
                self.state.change(entry.seq, slot, |it| {
                    it.claim(entry, on, reach);
                    it.change_attempt(|it| (it.trace.used, it.trace.threads) = (used, threads));
                });
                self.send_obligations(slot, effects);
            }
            TaskStep::Added { terms } => {
                let task = Task::added(entry, message, *terms);
                self.state.insert(entry.seq, slot, task);
            }
            TaskStep::Forgotten => {
                self.abandon_cleanup(slot, effects);
                self.state.remove(entry.seq, slot);
            }
            TaskStep::Ended { cleanup, .. } => {
                self.give_back(slot, &[EXECUTE, UPDATE], effects);
                if cleanup.is_some() {
                    self.abandon_cleanup(slot, effects);
                }
                let server = self.server_of(slot);
                self.state.change(entry.seq, slot, |it| it.end(entry, step, server));
                self.send_obligations(slot, effects);
            }
            TaskStep::Blocked => {
                self.give_back(slot, &[UPDATE], effects);
                let server = self.server_of(slot);
                self.state.change(entry.seq, slot, |it| it.block(entry, server));
            }
            TaskStep::Unblocked | TaskStep::Over { .. } => {
                self.give_back(slot, &[EXECUTE], effects);
                self.state.change(entry.seq, slot, |it| it.apply(entry, message, step));
            }
            TaskStep::Locked
            | TaskStep::Launched
            | TaskStep::CleanupLaunched
            | TaskStep::Reattached { .. }
            | TaskStep::Stopping(_) => {
                self.state.change(entry.seq, slot, |it| it.apply(entry, message, step));
                self.send_obligations(slot, effects);
            }
            TaskStep::Updates
            | TaskStep::Reported { .. }
            | TaskStep::Excused
            | TaskStep::CleanupEnded(_)
            | TaskStep::Ready
            | TaskStep::Paused(_)
            | TaskStep::Woken(_)
            | TaskStep::Terminating
            | TaskStep::Restarted => {
                self.state.change(entry.seq, slot, |it| it.apply(entry, message, step));
            }
        }
    }

    /// Returns the name of the server that the task's attempt runs on; empty if there is no attempt or no such server.
    fn server_of(&self, slot: Slot) -> Name {
        let attempt = self.state.tasks.get(slot).and_then(|it| it.attempt.as_ref());
        let server = attempt.and_then(|it| self.state.servers.get(it.server));
        server.map(|it| it.name.clone()).unwrap_or_default()
    }

    /// Gives up the locks with these keys, whether held or waited for: those of the task's attempt or, without an attempt, those for which
    /// the task itself waits in line.
    fn give_back(&self, slot: Slot, keys: &[&str], effects: &mut Effects<Self>) {
        let Some(task) = self.state.tasks.get(slot) else {
            return;
        };
        let of_attempt = task.attempt.as_ref().map(|it| it.token);
        if let Some(token) = of_attempt.or(task.blocked) {
            for key in keys {
                let hold = hold(task.lock(key, token));
                effects.tell(LOCKS, &lock::Message::Yield(hold));
            }
        }
    }

    /// Gives up on the task's current cleanup, if there is one. If no report has confirmed that its launch was accepted, requests
    /// notification of the end of its process: if the launch was accepted after all, the process record would otherwise never be removed.
    fn abandon_cleanup(&self, slot: Slot, effects: &mut Effects<Self>) {
        let cleaning = self.state.tasks.get(slot).and_then(|it| it.cleaning);
        if let Some(cleaning) = cleaning.filter(|it| !it.taken) {
            send_end_watch(cleaning.process, effects);
        }
    }

    /// Sends all requests to other actors that are outstanding for a task.
    pub(super) fn send_obligations(&self, slot: Slot, effects: &mut Effects<Self>) {
        let Some(task) = self.state.tasks.get(slot) else {
            return;
        };
        if let Some(token) = task.blocked {
            let hold = hold(task.lock(EXECUTE, token));
            effects.tell(LOCKS, &lock::Message::Hold(hold));
        }
        if let Some(cleaning) = task.cleaning {
            let launching = || task.cleaning_up(&cleaning);
            send_process_request(cleaning.process, cleaning.taken, launching, effects);
        }
        let Some(attempt) = &task.attempt else {
            return;
        };
        if attempt.has_lock() {
            let launching = || task.launching(attempt);
            let is_taken = attempt.launched.is_some();
            send_process_request(attempt.process, is_taken, launching, effects);
            // If `stops` is set, the local process is a replacement that was launched to stop the attempt, and needs no further request.
            let is_told = attempt.reach.as_ref().is_some_and(|it| it.stops);
            if attempt.stopping.is_some() && !is_told {
                effects.tell(PROCESSES, &ToProcesses::Fence(attempt.process));
            }
        } else {
            for key in [EXECUTE, UPDATE] {
                let hold = hold(task.lock(key, attempt.token));
                effects.tell(LOCKS, &lock::Message::Hold(hold));
            }
        }
    }
}

fn hold([key, index, owner]: [Name; 3]) -> Hold {
    Hold { by: ActorId::DISPATCH, key, index, owner }
}

/// Requests the launch of a process or, once the launch has been accepted, notification of the end of the process and its tree.
fn send_process_request(
    id: ProcessId,
    is_taken: bool,
    launching: impl FnOnce() -> Launching,
    effects: &mut Effects<DispatchMachine>,
) {
    if is_taken {
        send_end_watch(id, effects);
    } else {
        let by = DispatchMachine::ID;
        let launching = launching();
        let launch = LaunchAs { by, id, launching };
        effects.tell(LAUNCHES, &ToLaunch::LaunchAs(Box::new(launch)));
    }
}

/// Requests notification of the end of a process and its whole tree.
fn send_end_watch(process: ProcessId, effects: &mut Effects<DispatchMachine>) {
    let (by, until) = (DispatchMachine::ID, Until::Tree);
    let watch = Watching { by, process, until };
    effects.tell(PROCESSES, &ToProcesses::Watch(watch));
}

impl Task {
    fn added(entry: Stamp, message: &Message, terms: Terms) -> Self {
        let Message::Add(adding) = message else {
            unreachable!("only `Message::Add` adds a task");
        };
        Self {
            id: entry.seq.0,
            work: adding.work.clone(),
            group: Group::resolve(&adding.group),
            name: adding.name.clone(),
            priority: adding.priority,
            command: Arc::clone(&adding.command),
            cleanup: adding.cleanup.clone(),
            terms,
            created: entry.at,
            status: if adding.not_ready { RunStatus::NotReady } else { RunStatus::NotStarted },
            paused: adding.paused,
            ..Self::default()
        }
    }

    fn apply(&mut self, entry: Stamp, message: &Message, step: &TaskStep) {
        match step {
            TaskStep::Locked => self.change_attempt(|it| {
                (it.stage, it.trace.locked) = (Stage::Locked, Some(entry.at));
            }),
            TaskStep::Updates => self.change_attempt(|it| it.updates = true),
            TaskStep::Launched => self.change_attempt(|it| {
                (it.stage, it.launched) = (Stage::Launched, Some(entry.at));
            }),
            TaskStep::Stopping(cause) => self.change_attempt(|it| it.stopping = Some(*cause)),
            TaskStep::Excused => self.change_attempt(|it| it.beat = Some(entry.at)),
            TaskStep::Reported { until } => {
                if let Message::Report { report, nth, .. } = message {
                    self.report(entry, (report, *nth), *until);
                }
            }
            TaskStep::Reattached { process } => self.change_attempt(|it| {
                (it.stage, it.launched, it.process) = (Stage::Locked, None, *process);
                let stops = it.stopping.is_some();
                if let Some(reach) = &mut it.reach {
                    reach.reattach(stops);
                }
            }),
            TaskStep::Unblocked => self.blocked = None,
            TaskStep::CleanupLaunched => {
                self.cleaning = self.cleaning.map(|it| Cleaning { taken: true, ..it });
            }
            TaskStep::CleanupEnded(exit) => self.cleaned(entry.at, *exit),
            TaskStep::Over { exit, forgotten } => {
                self.finish(entry.at, *exit);
                self.forgotten = Some(*forgotten);
            }
            TaskStep::Ready => self.status = RunStatus::NotStarted,
            TaskStep::Paused(on) => self.paused = *on,
            TaskStep::Woken(at) if self.status == RunStatus::Waiting => {
                (self.wake, self.is_due) = (self.wake.min(*at), true);
            }
            TaskStep::Woken(_) => self.woken = true,
            TaskStep::Terminating => self.terminating = true,
            TaskStep::Restarted => self.restart(),
            TaskStep::Added { .. }
            | TaskStep::Claimed { .. }
            | TaskStep::Blocked
            | TaskStep::Ended { .. }
            | TaskStep::Forgotten => {
                unreachable!("`apply_to_task` commits these steps itself")
            }
        }
    }

    fn change_attempt(&mut self, make: impl FnOnce(&mut Attempt)) {
        if let Some(attempt) = &mut self.attempt {
            make(attempt);
        }
    }

    fn claim(
        &mut self,
        entry: Stamp,
        (server, process): (Slot, ProcessId),
        reach: Option<RemoteAttempt>,
    ) {
        let wake = (self.status == RunStatus::Waiting).then_some(self.wake);
        self.status = RunStatus::Processing;
        self.counts = true;
        self.woken = false;
        self.attempts += 1;
        self.started.get_or_insert(entry.at);
        self.attempt = Some(Attempt {
            token: entry.seq.into(),
            server,
            process,
            stage: Stage::Claimed,
            claimed: entry.at,
            launched: None,
            revision: self.revision,
            updates: false,
            beat: None,
            said: None,
            stopping: None,
            last: self.terminating,
            reach: reach.map(Box::new),
            trace: Trace { wake, ..Trace::default() },
        });
    }

    fn report(
        &mut self,
        entry: Stamp,
        (report, nth): (&Report, Option<u64>),
        until: Option<crate::clock::Date>,
    ) {
        if let Report::Save(body) = report {
            self.revision += 1;
            self.saved = Some(Saved { at: entry.at, body: body.clone() });
        }
        let said = match report {
            Report::Done { warning, words } => {
                Some(BurstReport::Done { warning: *warning, words: words.clone() })
            }
            Report::Fail { words } => Some(BurstReport::Fail { words: words.clone() }),
            Report::Wait { .. } => until.map(|until| BurstReport::Wait { until }),
            Report::Save(_) | Report::Beat | Report::Far(_) | Report::Reached => None,
        };
        self.change_attempt(|it| {
            // Once an attempt has sent a heartbeat, each of its reports counts as one.
            if matches!(report, Report::Beat) || it.beat.is_some() {
                it.beat = Some(entry.at);
            }
            if said.is_some() {
                it.said = said;
            }
            if let Some(reach) = &mut it.reach {
                let end = match report {
                    Report::Far(end) => Some(*end),
                    Report::Save(_)
                    | Report::Beat
                    | Report::Done { .. }
                    | Report::Wait { .. }
                    | Report::Fail { .. }
                    | Report::Reached => None,
                };
                reach.receive(end, nth);
            }
            if matches!(report, Report::Save(_)) {
                it.trace.saved.get_or_insert(entry.at);
            }
        });
    }

    /// Records that the task's attempt has ended, and sets the status that follows from the verdict.
    fn end(&mut self, entry: Stamp, step: &TaskStep, server: Name) {
        let (
            TaskStep::Ended { exit, verdict, wake, is_due, forgotten, cleanup, unstarted },
            Some(attempt),
        ) = (step, self.attempt.take())
        else {
            unreachable!("`Ended` is decided only for a task with an attempt");
        };
        let has_saved = self.revision > attempt.revision;
        self.setbacks = match verdict {
            Verdict::Reset(_) if attempt.is_not_reached() => self.setbacks,
            Verdict::Reset(_) if !has_saved => self.setbacks.saturating_add(1),
            Verdict::Reset(_) | Verdict::Waits | Verdict::Ended(_) | Verdict::FailedOut(_) => 0,
        };
        self.words = attempt.words(*verdict, *exit);
        match verdict.exit() {
            Some(exit) => {
                self.finish(entry.at, exit);
                self.forgotten = Some(*forgotten);
            }
            None if *unstarted => self.be_unstarted(),
            None => {
                self.status = RunStatus::Waiting;
                (self.wake, self.is_due) = (*wake, *is_due);
            }
        }
        self.woken = false;
        if let Some(process) = cleanup {
            self.cleaning =
                Some(Cleaning { process: *process, token: attempt.token, taken: false });
        }
        self.remember(&attempt, (entry.at, *exit, *verdict), (server, has_saved));
    }

    /// Records that the task has not started after all.
    fn be_unstarted(&mut self) {
        let was_over = self.past.iter().any(|it| it.verdict.exit().is_some());
        self.status = if was_over { RunStatus::Restarted } else { RunStatus::NotStarted };
        self.counts = false;
        self.started = None;
    }

    /// Records that another holder has the task's execute lock: the attempt has ended, and the task waits in line for the lock.
    fn block(&mut self, entry: Stamp, server: Name) {
        let Some(attempt) = self.attempt.take() else {
            unreachable!("only a task with an attempt is blocked");
        };
        self.status = RunStatus::Waiting;
        self.is_due = true;
        self.blocked = Some(attempt.token);
        let verdict = Verdict::Reset(Cause::ExecuteLock);
        self.remember(&attempt, (entry.at, None, verdict), (server, false));
    }

    fn remember(
        &mut self,
        attempt: &Attempt,
        (ended, exit, verdict): (Timestamp, Option<Exit>, Verdict),
        (server, saved): (Name, bool),
    ) {
        if self.past.len() >= Self::PAST_MAX {
            self.past.remove(0);
        }
        self.past.push(Past {
            token: attempt.token,
            server,
            process: attempt.launched.map(|_| attempt.process),
            claimed: attempt.claimed,
            launched: attempt.launched,
            ended,
            exit,
            saved,
            verdict,
            cleanup: None,
            trace: attempt.trace,
        });
    }

    fn finish(&mut self, at: Timestamp, exit: ExitStatus) {
        self.status = RunStatus::Complete;
        self.exit = exit;
        self.ended = Some(at);
        self.counts = false;
        self.blocked = None;
        self.is_due = false;
    }

    fn cleaned(&mut self, at: Timestamp, exit: Exit) {
        if let Some(cleaning) = self.cleaning.take() {
            let after = |it: &&mut Past| it.token == cleaning.token;
            if let Some(past) = self.past.iter_mut().find(after) {
                (past.cleanup, past.trace.cleaned) = (Some(exit), Some(at));
            }
        }
    }

    /// Restarts a task that is over. It continues from its saved state.
    fn restart(&mut self) {
        self.status = RunStatus::Restarted;
        self.exit = ExitStatus::NotFinished;
        (self.started, self.ended, self.forgotten) = (None, None, None);
        self.words = String::new();
        self.terminating = false;
        self.setbacks = 0;
    }
}
