//! What happens to a task when an attempt has ended. The table covers all failure modes of Wip.
//!
//! | the attempt | the task |
//! |---|---|
//! | reported how the burst ended | is done, waits or has failed, as reported |
//! | could not be launched or get a lock, or ended with status 0 but without a required report | continues from its saved state |
//! | ended with status 0 | is done |
//! | ended with another status | has failed; if a report is required, the attempt counts as having died |
//! | died after it saved | continues from its saved state |
//! | died before it saved | fails or runs again, depending on `abort_on_failure` |
//! | was on a machine that could not be reached, so that nothing ran | goes elsewhere at once; if it was its first attempt, it counts as not started |
//! | took too long, or stopped sending heartbeats | fails |
//! | was stopped because its server was removed | continues if the attempt never ran; otherwise as if it had died |
//! | ran on a machine that cannot be reached | as if the attempt had died |
//! | was stopped because an operator terminated the task | is over |

use crate::actors::binding::{EndNotice, Exit, Until};
use crate::actors::dispatch::decide::{changed, of_task};
use crate::actors::dispatch::machine::DispatchMachine;
use crate::actors::dispatch::outcome::{Outcome, Step, TaskStep};
use crate::actors::dispatch::server::Outage;
use crate::actors::dispatch::task::{
    Attempt, BurstReport, Cause, ExitStatus, Stage, Task, Verdict,
};
use crate::ids::Slot;
use crate::spine::machine::Moment;

impl Attempt {
    /// Returns whether the attempt never ran because its server was not reached.
    pub(super) fn is_not_reached(&self) -> bool {
        let reach = self.reach.as_ref();
        reach.is_some_and(|it| it.is_not_reached())
    }

    /// Returns whether the attempt has been granted the execute lock.
    pub(super) const fn has_lock(&self) -> bool {
        !matches!(self.stage, Stage::Claimed)
    }
}

impl Task {
    /// Returns the verdict on an attempt. `exit` is how its process ended, if it had a process. `cause` is set if the attempt is stopped in
    /// the same entry.
    fn verdict(&self, attempt: &Attempt, exit: Option<Exit>, cause: Option<Cause>) -> Verdict {
        let ended = |exit| {
            // The burst in which a terminated task cleans up is its last, whatever the command reports.
            Verdict::Ended(if attempt.last { ExitStatus::Terminated } else { exit })
        };
        match (attempt.stopping.or(cause), &attempt.said) {
            (Some(Cause::Terminated), _) => return Verdict::Ended(ExitStatus::Terminated),
            (Some(cause @ (Cause::Overdue | Cause::Silent)), _) => {
                return Verdict::FailedOut(cause);
            }
            (Some(Cause::UpdateLock), _) => return Verdict::Reset(Cause::UpdateLock),
            // An attempt that never ran can be repeated safely.
            (Some(Cause::ServerGone), None) if matches!(exit, None | Some(Exit::Failed)) => {
                return Verdict::Reset(Cause::ServerGone);
            }
            (Some(cause @ (Cause::ServerGone | Cause::ServerLost)), None) => {
                return self.died(attempt, cause);
            }
            (_, Some(BurstReport::Done { warning: false, .. })) => {
                return ended(ExitStatus::Completed);
            }
            (_, Some(BurstReport::Done { warning: true, .. })) => {
                return ended(ExitStatus::Warning);
            }
            (_, Some(BurstReport::Fail { .. })) => return ended(ExitStatus::UserError),
            (_, Some(BurstReport::Wait { .. })) if attempt.last => {
                return Verdict::Ended(ExitStatus::Terminated);
            }
            (_, Some(BurstReport::Wait { .. })) => return Verdict::Waits,
            (_, None) => {}
        }
        match exit {
            Some(Exit::Failed) => Verdict::Reset(Cause::NotLaunched),
            Some(Exit::Code(0)) if !self.terms.report_required => ended(ExitStatus::Completed),
            Some(Exit::Code(0)) => Verdict::Reset(Cause::Unreported),
            Some(Exit::Code(_)) if !self.terms.report_required => ended(ExitStatus::UserError),
            Some(Exit::Code(_) | Exit::Signal(_) | Exit::Lost) | None => {
                self.died(attempt, Cause::Died)
            }
        }
    }

    /// Returns whether the task is as if it had not started: the attempt is its first since it was added or restarted, and its server was
    /// not reached. The task then holds neither its work id nor a place in its group until a server is available.
    fn is_unstarted_by(&self, attempt: &Attempt, verdict: Verdict) -> bool {
        let is_first = self.started == Some(attempt.claimed) && !attempt.last && !self.terminating;
        is_first && attempt.is_not_reached() && matches!(verdict, Verdict::Reset(_))
    }

    /// Returns the verdict on an attempt whose command was cut short. A command that may have run must not run again, unless it saved its
    /// state or the task's terms permit a second run.
    fn died(&self, attempt: &Attempt, cause: Cause) -> Verdict {
        let has_saved = self.revision > attempt.revision;
        if attempt.last {
            Verdict::Ended(ExitStatus::Terminated)
        } else if has_saved || !self.terms.abort_on_failure {
            Verdict::Reset(cause)
        } else {
            Verdict::FailedOut(cause)
        }
    }
}

impl Verdict {
    /// Returns how the task ended; `None` if it is not over.
    pub const fn exit(self) -> Option<ExitStatus> {
        match self {
            Self::Ended(exit) => Some(exit),
            Self::FailedOut(_) => Some(ExitStatus::SystemError),
            Self::Waits | Self::Reset(_) => None,
        }
    }
}

impl DispatchMachine {
    /// Decides on the end of the process tree of an attempt or a cleanup.
    pub(super) fn gone(&self, moment: &Moment, gone: EndNotice) -> Outcome {
        let found = self.state.of_process(gone.process);
        let Some((slot, task)) = found.filter(|_| gone.ends(Until::Tree)) else {
            return Outcome::Unchanged;
        };
        // Without a record, it is not known how the process ended.
        let exit = gone.exit.unwrap_or(Exit::Lost);
        match task.attempt_of(gone.process) {
            Some(attempt) if attempt.has_lock() => self.settled(moment, slot, exit),
            Some(_) => Outcome::Unchanged,
            None => of_task(slot, TaskStep::CleanupEnded(exit)),
        }
    }

    /// Decides on the end of an attempt's local process and its whole tree. An attempt on another machine may still be running there; as
    /// long as its end is not known, a new local process is launched to find out.
    fn settled(&self, moment: &Moment, slot: Slot, exit: Exit) -> Outcome {
        let task = self.state.tasks.get(slot);
        let reach = task.and_then(|it| it.attempt.as_ref()?.reach.as_ref());
        let (exit, cause) = match reach.map(|it| it.settled(exit)) {
            None => (exit, None),
            Some(Some((exit, is_lost))) => (exit, is_lost.then_some(Cause::ServerLost)),
            Some(None) => {
                let process = moment.process_id(0);
                return of_task(slot, TaskStep::Reattached { process });
            }
        };
        changed(self.ends(moment, slot, (Some(exit), cause)))
    }

    /// Decides that an attempt ends now.
    pub(super) fn ended(&self, moment: &Moment, slot: Slot, exit: Option<Exit>) -> Outcome {
        changed(self.ends(moment, slot, (exit, None)))
    }

    /// Returns the steps that end the attempt of a task, and those that follow from its end; no steps if there is no attempt. `exit` is how
    /// its process ended, if it had a process. `cause` is set if the attempt is stopped in the same entry.
    pub(super) fn ends(
        &self,
        moment: &Moment,
        slot: Slot,
        (exit, cause): (Option<Exit>, Option<Cause>),
    ) -> Vec<Step> {
        let Some(task) = self.state.tasks.get(slot) else {
            return Vec::new();
        };
        let Some(attempt) = &task.attempt else {
            return Vec::new();
        };
        let verdict = task.verdict(attempt, exit, cause);
        let today = moment.now.date();
        let wake = match (&verdict, &attempt.said) {
            (Verdict::Waits, Some(BurstReport::Wait { until })) if !task.woken => *until,
            // A server that is not reached is tried last from now on, so the task need not wait.
            (Verdict::Reset(_), _) if attempt.is_not_reached() => today,
            (Verdict::Reset(_), _) if task.revision == attempt.revision && !task.woken => {
                today.plus_ms(task.backoff_ms())
            }
            (_, _) => today,
        };
        let forgotten = self.forgotten(moment);
        let cleanup = task.cleanup.as_ref().filter(|_| attempt.has_lock());
        let is_over = verdict.exit().is_some();
        let room = self.eviction_steps().filter(|_| is_over);
        let ended = TaskStep::Ended {
            exit,
            verdict,
            wake,
            is_due: wake <= today,
            forgotten,
            cleanup: cleanup.map(|_| moment.process_id(0)),
            unstarted: task.is_unstarted_by(attempt, verdict),
        };
        let mut steps = vec![Step::Task(slot, ended)];
        steps.extend(room);
        let server = self.state.servers.get(attempt.server);
        let is_last = self.state.index.threads.used(attempt.server) == 1;
        if server.is_some_and(|it| it.leaves) && is_last {
            steps.push(Step::ServerRemoved(attempt.server));
        } else if attempt.is_not_reached() || cause == Some(Cause::ServerLost) {
            steps.extend(self.failed_server(moment, attempt));
        }
        steps
    }

    /// Returns the step that records that the server of an attempt could not be reached; `None` if the attempt was claimed before the
    /// latest such failure was noticed, so that it says nothing new.
    fn failed_server(&self, moment: &Moment, attempt: &Attempt) -> Option<Step> {
        let server = self.state.servers.get(attempt.server)?;
        let outage = server.outage;
        let is_new = outage.is_none_or(|it| attempt.claimed > it.latest);
        let outage = Outage::after(outage, moment.now.at, attempt.process);
        let is_far = server.remote.is_some();
        (is_new && is_far).then_some(Step::ServerFailed(attempt.server, outage))
    }

    /// Decides what to do if another holder has the execute lock: the thread is freed, and the task waits in line for the lock. An attempt
    /// that is being stopped ends instead.
    pub(super) fn blocked(&self, moment: &Moment, slot: Slot) -> Outcome {
        let task = self.state.tasks.get(slot);
        let is_stopping = |it: &Attempt| it.stopping.is_some();
        if task.and_then(|it| it.attempt.as_ref()).is_some_and(is_stopping) {
            return self.ended(moment, slot, None);
        }
        of_task(slot, TaskStep::Blocked)
    }
}
