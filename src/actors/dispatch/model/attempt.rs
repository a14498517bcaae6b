//! The model of attempts: how locks, processes and time affect them, and how they end.

use super::{Entry, Model};
use sexton::actors::binding::{EndNotice, Exit, Until};
use sexton::actors::dispatch::{
    Attempt, BurstReport, Cause, Cleaning, ExitStatus, Outage, Past, RemoteAttempt, RemoteEnd,
    RunStatus, Stage, Task, Trace, Verdict,
};
use sexton::actors::lock::LockState;
use sexton::clock::{Date, Timestamp};
use sexton::ids::{ProcessId, Slot, Token};

/// Returns the verdict on an attempt. `exit` is how its process ended, if it had a process.
fn verdict(task: &Task, attempt: &Attempt, exit: Option<Exit>) -> Verdict {
    // A command that may have run must not run again, unless it saved its state or its terms permit a second run.
    let broken = |cause| {
        let goes_on = task.revision > attempt.revision || !task.terms.abort_on_failure;
        match (attempt.last, goes_on) {
            (true, _) => Verdict::Ended(ExitStatus::Terminated),
            (false, true) => Verdict::Reset(cause),
            (false, false) => Verdict::FailedOut(cause),
        }
    };
    let ended = |exit| Verdict::Ended(if attempt.last { ExitStatus::Terminated } else { exit });
    let never_ran = matches!(exit, None | Some(Exit::Failed));
    match attempt.stopping {
        Some(Cause::Terminated) => return Verdict::Ended(ExitStatus::Terminated),
        Some(cause @ (Cause::Overdue | Cause::Silent)) => return Verdict::FailedOut(cause),
        Some(Cause::UpdateLock) => return Verdict::Reset(Cause::UpdateLock),
        Some(cause @ (Cause::ServerGone | Cause::ServerLost)) if attempt.said.is_none() => {
            return if never_ran && cause == Cause::ServerGone {
                Verdict::Reset(Cause::ServerGone)
            } else {
                broken(cause)
            };
        }
        Some(_) | None => {}
    }
    match &attempt.said {
        Some(BurstReport::Done { warning: true, .. }) => return ended(ExitStatus::Warning),
        Some(BurstReport::Done { warning: false, .. }) => return ended(ExitStatus::Completed),
        Some(BurstReport::Fail { .. }) => return ended(ExitStatus::UserError),
        Some(BurstReport::Wait { .. }) if attempt.last => {
            return Verdict::Ended(ExitStatus::Terminated);
        }
        Some(BurstReport::Wait { .. }) => return Verdict::Waits,
        None => {}
    }
    let counts = !task.terms.report_required;
    match exit {
        Some(Exit::Failed) => Verdict::Reset(Cause::NotLaunched),
        Some(Exit::Code(0)) if counts => ended(ExitStatus::Completed),
        Some(Exit::Code(0)) => Verdict::Reset(Cause::Unreported),
        Some(Exit::Code(_)) if counts => ended(ExitStatus::UserError),
        Some(Exit::Code(_) | Exit::Signal(_) | Exit::Lost) | None => broken(Cause::Died),
    }
}

/// Returns how long a task waits after `setbacks + 1` attempts in a row that failed without having saved anything, in milliseconds.
fn backoff(setbacks: u32) -> u64 {
    if setbacks == 0 {
        return 0;
    }
    let doubled = (1..setbacks).fold(1000_u64, |ms, _| (2 * ms).min(60_000));
    doubled.min(60_000)
}

/// Returns the message about an attempt's result that its task shows; empty if there is nothing to explain.
fn words(attempt: &Attempt, verdict: Verdict, exit: Option<Exit>) -> String {
    let said = match &attempt.said {
        Some(BurstReport::Done { words, .. } | BurstReport::Fail { words }) => Some(words.clone()),
        Some(BurstReport::Wait { .. }) | None => None,
    };
    match (verdict, said, exit) {
        (Verdict::Ended(_), Some(said), _) => said,
        (Verdict::Ended(ExitStatus::UserError), None, Some(Exit::Code(code))) => {
            format!("its command ended with status {code}")
        }
        (Verdict::FailedOut(Cause::Died), _, Some(Exit::Signal(signal))) => {
            format!("its command was killed by signal {signal} before it saved anything")
        }
        (Verdict::FailedOut(Cause::Died), _, Some(Exit::Code(code))) => {
            format!("its command ended with status {code}, unannounced, before it saved anything")
        }
        (Verdict::FailedOut(Cause::Died), _, _) => {
            "its command was lost before it saved anything".to_owned()
        }
        (Verdict::FailedOut(Cause::Overdue), ..) => "its attempt took too long".to_owned(),
        (Verdict::FailedOut(Cause::Silent), ..) => {
            "its command stopped sending heartbeats".to_owned()
        }
        (Verdict::FailedOut(Cause::ServerLost), ..) => {
            "its server could not be reached, and it may not run twice".to_owned()
        }
        (Verdict::FailedOut(Cause::ServerGone), ..) => {
            "its server is gone, and it may not run twice".to_owned()
        }
        (Verdict::Ended(_) | Verdict::Waits | Verdict::Reset(_) | Verdict::FailedOut(_), ..) => {
            String::new()
        }
    }
}

impl Model {
    /// Returns when and why the current attempt will be stopped; `None` if the task has no attempt, or if the attempt is being stopped
    /// already.
    pub(super) fn stops_at(&self, task: &Task) -> Option<(Timestamp, Cause)> {
        let attempt = task.attempt.as_ref().filter(|it| it.stopping.is_none())?;
        let overdue = attempt.claimed.plus_ms(task.terms.fail_after_ms);
        let silent = attempt.beat.map(|beat| {
            let since = beat.max(self.state.epoch);
            since.plus_ms(task.terms.progress_ms)
        });
        Some(match silent {
            Some(silent) if silent < overdue => (silent, Cause::Silent),
            Some(_) | None => (overdue, Cause::Overdue),
        })
    }

    /// Handles a deadline of a task. Returns whether anything changed.
    pub(super) fn lapse(&mut self, slot: Slot, entry: Entry) -> bool {
        let Some(task) = self.task(slot) else {
            return false;
        };
        match task.status {
            RunStatus::Complete => self.forget(slot),
            RunStatus::Waiting => self.at(slot).is_due = true,
            RunStatus::Processing => {
                let Some((at, cause)) = self.stops_at(task) else {
                    return false;
                };
                if at > entry.now.at {
                    return false;
                }
                if cause == Cause::Silent && at.plus_ms(250) < entry.now.at {
                    let attempt = self.at(slot).attempt.as_mut();
                    attempt.expect("it is silent").beat = Some(entry.now.at);
                    return true;
                }
                let never_ran = task.attempt.as_ref().map(|it| it.stage) == Some(Stage::Claimed);
                self.stop(slot, cause);
                if never_ran {
                    self.end(slot, None, entry);
                }
            }
            RunStatus::NotReady | RunStatus::NotStarted | RunStatus::Restarted => return false,
        }
        true
    }

    /// Begins the next burst, if one can begin. While the coordinator is draining, prevents bursts until the next startup instead. Returns
    /// whether anything changed.
    pub(super) fn begin(&mut self, entry: Entry) -> bool {
        if entry.draining {
            self.state.rests = true;
            return true;
        }
        let Some((slot, server)) = self.next(entry.now.at) else {
            return false;
        };
        let process = entry.process.unwrap_or_default();
        let servers = self.state.servers.iter();
        let mut its = servers.filter(|(its, _)| *its == server);
        let remote = its.next().and_then(|(_, it)| it.remote.clone());
        let reach = remote.map(|remote| {
            Box::new(RemoteAttempt {
                remote,
                known_as: process,
                lost_after_ms: self.rules.lost_after_ms,
                heard: 0,
                again: 0,
                stops: false,
                end: None,
            })
        });
        let used = self.used(server);
        let mut servers = self.state.servers.iter();
        let its = servers.find(|(its, _)| *its == server);
        let threads = its.map_or(0, |(_, it)| it.threads);
        let task = self.at(slot);
        let wake = (task.status == RunStatus::Waiting).then_some(task.wake);
        task.status = RunStatus::Processing;
        (task.counts, task.woken) = (true, false);
        task.attempts += 1;
        task.started = task.started.or(Some(entry.now.at));
        task.attempt = Some(Attempt {
            token: Token(entry.seq.0),
            server,
            process,
            stage: Stage::Claimed,
            claimed: entry.now.at,
            launched: None,
            revision: task.revision,
            updates: false,
            beat: None,
            said: None,
            stopping: None,
            last: task.terminating,
            reach,
            trace: Trace { wake, used, threads, ..Trace::default() },
        });
        self.tell_obligations(slot);
        true
    }

    pub(super) fn launched(&mut self, process: ProcessId, entry: Entry) -> bool {
        if let Some((slot, task)) = self.attempted_by(process) {
            let is_new = task.attempt.as_ref().is_some_and(|it| it.launched.is_none());
            if is_new && let Some(attempt) = &mut self.at(slot).attempt {
                (attempt.stage, attempt.launched) = (Stage::Launched, Some(entry.now.at));
                self.tell_obligations(slot);
            }
            return is_new;
        }
        let Some(slot) = self.cleaned_by(process) else {
            return false;
        };
        let is_new = self.task(slot).and_then(|it| it.cleaning).is_some_and(|it| !it.taken);
        if is_new {
            if let Some(cleaning) = &mut self.at(slot).cleaning {
                cleaning.taken = true;
            }
            self.tell_obligations(slot);
        }
        is_new
    }

    /// Gives up on the task's current cleanup, if there is one. If no report has confirmed that its launch was accepted, requests
    /// notification of the end of its process: if the launch was accepted after all, the process record would otherwise never be removed.
    pub(super) fn abandon_cleanup(&mut self, slot: Slot) {
        let cleaning = self.task(slot).and_then(|it| it.cleaning);
        if let Some(cleaning) = cleaning.filter(|it| !it.taken) {
            self.tell_watch(cleaning.process);
        }
    }

    fn cleaned_by(&self, process: ProcessId) -> Option<Slot> {
        let cleans = |task: &Task| task.cleaning.is_some_and(|it| it.process == process);
        let mut tasks = self.state.tasks.iter();
        tasks.find(|(_, task)| cleans(task)).map(|(slot, _)| *slot)
    }

    /// Handles the end of the process tree of an attempt or a cleanup. Returns whether anything changed.
    pub(super) fn gone(&mut self, gone: EndNotice, entry: Entry) -> bool {
        if gone.until != Until::Tree {
            return false;
        }
        let exit = gone.exit.unwrap_or(Exit::Lost);
        if let Some((slot, task)) = self.attempted_by(gone.process) {
            let may_run = task.attempt.as_ref().is_some_and(|it| it.stage != Stage::Claimed);
            if may_run {
                self.settle(slot, exit, entry);
            }
            return may_run;
        }
        let Some(slot) = self.cleaned_by(gone.process) else {
            return false;
        };
        let task = self.at(slot);
        let after = task.cleaning.take().map(|it| it.token);
        for past in task.past.iter_mut().filter(|it| Some(it.token) == after) {
            past.cleanup = Some(exit);
            past.trace.cleaned = Some(entry.now.at);
        }
        true
    }

    /// Handles the end of an attempt's local process, which ends the attempt. If the attempt runs on another machine and its result has not
    /// been reported, a replacement is launched instead, up to ten times, unless the first local process could not be started.
    fn settle(&mut self, slot: Slot, exit: Exit, entry: Entry) {
        let Some(attempt) = &mut self.at(slot).attempt else {
            return;
        };
        let (stops, stopping) = (attempt.stopping.is_some(), attempt.stopping);
        let Some(reach) = &mut attempt.reach else {
            return self.end(slot, Some(exit), entry);
        };
        let is_fresh = reach.again == 0;
        let (exit, lost) = match reach.end {
            Some(RemoteEnd::Ended(exit)) => (exit, false),
            Some(RemoteEnd::NotReached) => (Exit::Failed, false),
            Some(RemoteEnd::Unreachable) => (Exit::Lost, true),
            None if is_fresh && exit == Exit::Failed => (Exit::Failed, false),
            None if reach.again == 10 => (Exit::Lost, true),
            None => {
                reach.again += 1;
                reach.stops = stops;
                attempt.process = entry.process.unwrap_or_default();
                (attempt.stage, attempt.launched) = (Stage::Locked, None);
                return self.tell_obligations(slot);
            }
        };
        if lost {
            attempt.stopping = stopping.or(Some(Cause::ServerLost));
        }
        let ended = attempt.clone();
        self.end(slot, Some(exit), entry);
        if lost {
            self.fail_server(&ended, entry);
        }
    }

    /// Handles a report that an attempt was granted a lock, or waits for one. Returns whether anything changed.
    pub(super) fn held(&mut self, held: &LockState, entry: Entry) -> bool {
        let text = |name: &sexton::actors::lock::Name| {
            let text = std::str::from_utf8(name.as_bytes());
            text.map(str::to_owned).unwrap_or_default()
        };
        let id = text(&held.index).parse().unwrap_or(0);
        let owner = text(&held.owner);
        let token = owner.strip_prefix("attempt-").and_then(|it| it.parse().ok());
        let executes = text(&held.key) == "wip-pool-lock-execute";
        let (Some((slot, task)), Some(token)) = (self.find(id), token.map(Token)) else {
            self.tell_yield([&held.key, &held.index, &held.owner]);
            return true;
        };
        let is_blocked = task.blocked == Some(token);
        let attempt = task.attempt.as_ref().filter(|it| it.token == token);
        match attempt {
            _ if is_blocked && executes && !held.granted => return false,
            _ if is_blocked && executes => {
                self.tell_yield([&held.key, &held.index, &held.owner]);
                self.at(slot).blocked = None;
            }
            None => self.tell_yield([&held.key, &held.index, &held.owner]),
            Some(attempt) if !executes && held.granted && !attempt.updates => {
                if let Some(attempt) = &mut self.at(slot).attempt {
                    attempt.updates = true;
                }
            }
            Some(attempt) if !executes || attempt.stage != Stage::Claimed => return false,
            Some(attempt) if attempt.stopping.is_some() => self.end(slot, None, entry),
            Some(_) if held.granted => {
                if let Some(attempt) = &mut self.at(slot).attempt {
                    attempt.stage = Stage::Locked;
                    attempt.trace.locked = Some(entry.now.at);
                }
                self.tell_obligations(slot);
            }
            Some(_) => self.block(slot, entry),
        }
        true
    }

    /// Frees the thread and lets the task wait in line, since another holder has the execute lock.
    fn block(&mut self, slot: Slot, entry: Entry) {
        self.tell_yield_of(slot, &["wip-pool-lock-update"]);
        let task = self.at(slot);
        let attempt = task.attempt.take().expect("the task has an attempt");
        (task.status, task.is_due) = (RunStatus::Waiting, true);
        task.blocked = Some(attempt.token);
        let came = (None, Verdict::Reset(Cause::ExecuteLock));
        self.remember(slot, (&attempt, false), came, entry);
    }

    /// Ends an attempt: its locks are released, and the verdict is applied to the task.
    #[expect(clippy::too_many_lines, reason = "one arm for each kind")]
    fn end(&mut self, slot: Slot, exit: Option<Exit>, entry: Entry) {
        self.tell_yield_of(slot, &["wip-pool-lock-execute", "wip-pool-lock-update"]);
        let today = entry.now.date();
        let task = self.at(slot);
        let attempt = task.attempt.take().expect("the task has an attempt");
        let verdict = verdict(task, &attempt, exit);
        let saved = task.revision > attempt.revision;
        let end = attempt.reach.as_ref().and_then(|it| it.end);
        let unreached = end == Some(RemoteEnd::NotReached);
        task.words = words(&attempt, verdict, exit);
        let woken = std::mem::take(&mut task.woken);
        let wake: Date = match (verdict, &attempt.said) {
            _ if woken => today,
            (Verdict::Waits, Some(BurstReport::Wait { until })) => *until,
            (Verdict::Reset(_), _) if !saved && !unreached => today.plus_ms(backoff(task.setbacks)),
            _ => today,
        };
        self.troubled |= matches!(
            verdict,
            Verdict::Reset(Cause::NotLaunched | Cause::ServerLost)
                | Verdict::FailedOut(Cause::NotLaunched | Cause::ServerLost)
        );
        let is_reset = matches!(verdict, Verdict::Reset(_));
        let task = self.at(slot);
        task.setbacks = match (is_reset, saved, unreached) {
            (true, _, true) => task.setbacks,
            (true, false, false) => task.setbacks + 1,
            (_, _, _) => 0,
        };
        let cleans = task.cleanup.is_some() && attempt.stage != Stage::Claimed;
        if cleans {
            self.abandon_cleanup(slot);
            self.at(slot).cleaning = Some(Cleaning {
                process: entry.process.unwrap_or_default(),
                token: attempt.token,
                taken: false,
            });
        }
        let over = match verdict {
            Verdict::Ended(exit) => Some(exit),
            Verdict::FailedOut(_) => Some(ExitStatus::SystemError),
            Verdict::Waits | Verdict::Reset(_) => None,
        };
        if let Some(exit) = over {
            self.be_over(slot, exit, entry);
        } else {
            let task = self.at(slot);
            let first = task.started == Some(attempt.claimed);
            let cleans_up = attempt.last || task.terminating;
            if is_reset && unreached && first && !cleans_up {
                let was_over =
                    |it: &Past| matches!(it.verdict, Verdict::Ended(_) | Verdict::FailedOut(_));
                task.status = if task.past.iter().any(was_over) {
                    RunStatus::Restarted
                } else {
                    RunStatus::NotStarted
                };
                (task.counts, task.started) = (false, None);
            } else {
                task.status = RunStatus::Waiting;
                (task.wake, task.is_due) = (wake, wake <= today);
            }
        }
        self.remember(slot, (&attempt, saved), (exit, verdict), entry);
        self.tell_obligations(slot);
        if over.is_some() {
            self.make_room(slot);
        }
        let is_last = self.used(attempt.server) == 0;
        if unreached {
            self.fail_server(&attempt, entry);
        }
        let servers = &mut self.state.servers;
        servers.retain(|(its, it)| *its != attempt.server || !it.leaves || !is_last);
    }

    /// Records that the server of an attempt could not be reached, unless a failure was noticed after the attempt was claimed. The server
    /// is tried again after one second, two, four and so on, up to a minute.
    fn fail_server(&mut self, attempt: &Attempt, entry: Entry) {
        let now = entry.now.at;
        let mut servers = self.state.servers.iter_mut();
        let server = servers.find(|(its, it)| *its == attempt.server && it.remote.is_some());
        let Some((_, server)) = server else {
            return;
        };
        let before = server.outage;
        if before.is_some_and(|it| it.latest >= attempt.claimed) {
            return;
        }
        let failures = before.map_or(1, |it| it.failures + 1);
        let seconds = (1..failures).fold(1, |pause, _| (2 * pause).min(60));
        server.outage = Some(Outage {
            failures,
            since: before.map_or(now, |it| it.since),
            latest: now,
            retry: now.plus_ms(seconds * 1000),
            process: attempt.process,
        });
    }

    fn remember(
        &mut self,
        slot: Slot,
        (attempt, saved): (&Attempt, bool),
        (exit, verdict): (Option<Exit>, Verdict),
        entry: Entry,
    ) {
        let mut servers = self.state.servers.iter();
        let server = servers.find(|(its, _)| *its == attempt.server);
        let server = server.map(|(_, it)| it.name.clone()).unwrap_or_default();
        let past = Past {
            token: attempt.token,
            server,
            process: attempt.launched.and(Some(attempt.process)),
            claimed: attempt.claimed,
            launched: attempt.launched,
            ended: entry.now.at,
            exit,
            saved,
            verdict,
            cleanup: None,
            trace: attempt.trace,
        };
        let task = self.at(slot);
        task.past.push(past);
        let old = task.past.len().saturating_sub(8);
        task.past.drain(..old);
    }
}
