//! Wrong decisions about tasks, planted in the host of a simulated node, and the tests that show that each of them is
//! caught.

use crate::planted::{caught, caught_as};
use crate::setting::Plant;
use crate::violation::Promise;
use sexton::actors::dispatch::{
    Act, DispatchMachine, ExitStatus, Message, Obstacle, Outcome, Pause, Query, Reply, Report,
    RunStatus, ServerChange, ServerView, Step, Task, TaskStep, TaskView, Verdict,
};
use sexton::ids::{ProcessId, Slot};
use sexton::spine::delivery::Forger;
use sexton::spine::machine::{Machine as _, Moment, Observable as _};

/// A message, its outcome, and the machine that decided it.
struct Decided<'a> {
    machine: &'a DispatchMachine,
    moment: &'a Moment,
    message: &'a Message,
    outcome: &'a Outcome,
}

/// Returns the function that forges decisions for a planted fault, or `None` if the fault is not in this file.
pub(crate) fn forger(plant: Option<Plant>) -> Option<Forger<DispatchMachine>> {
    let forge: fn(&Decided<'_>) -> Option<Outcome> = match plant {
        Some(Plant::WorkTwice) => work_twice,
        Some(Plant::ThreadTwice) => thread_twice,
        Some(Plant::GroupOverLimit) => group_over_limit,
        Some(Plant::HardPauseIgnored) => hard_pause_ignored,
        Some(Plant::WakeLost) => wake_lost,
        Some(Plant::ReasonLost) => reason_lost,
        Some(Plant::ThreadLeaked) => thread_leaked,
        Some(Plant::DisabledServerUsed) => disabled_server_used,
        Some(Plant::ReportTwice) => report_twice,
        _ => return None,
    };
    Some(Box::new(move |machine, moment, message, outcome| {
        forge(&Decided { machine, moment, message, outcome })
    }))
}

impl Decided<'_> {
    fn steps(&self) -> &[Step] {
        match self.outcome {
            Outcome::Changed { steps, .. } => steps,
            Outcome::Absent | Outcome::Unchanged | Outcome::Refused(_) => &[],
        }
    }

    /// Returns the steps of the decision that the machine would make about another message.
    fn would_be(&self, message: &Message) -> Vec<Step> {
        match self.machine.decide(self.moment, message) {
            Outcome::Changed { steps, .. } => steps,
            Outcome::Absent | Outcome::Unchanged | Outcome::Refused(_) => Vec::new(),
        }
    }

    /// Returns the slot of a task. Views do not show it, but a decision about the task does.
    fn slot(&self, task: &Task) -> Option<Slot> {
        let act = if task.paused { Act::Resume } else { Act::Pause };
        let steps = self.would_be(&Message::Act { task: task.id, act });
        if let [Step::Task(slot, _)] = steps.as_slice() { Some(*slot) } else { None }
    }

    /// Returns the slot of a server, found in the same way: views do not show it, but a decision to enable or disable the
    /// server does.
    fn server_slot(&self, server: &ServerView) -> Option<Slot> {
        let steps = self.would_be(&Message::Server {
            name: server.name.clone(),
            change: ServerChange::Enabled(!server.enabled),
        });
        if let [Step::ServerEnabled(slot, _)] = steps.as_slice() { Some(*slot) } else { None }
    }

    fn task_of(&self, process: ProcessId) -> Option<Task> {
        let views = self.machine.view().into_iter();
        let mut tasks = views.map(|view| view.task);
        tasks.find(|it| it.attempt.as_ref().is_some_and(|it| it.process == process))
    }

    /// Returns the task whose attempt this decision ends, or `None` if it ends none.
    fn over(&self, views: &[TaskView]) -> Option<TaskView> {
        let Message::Gone(gone) = self.message else {
            return None;
        };
        let ended = |step: &Step| matches!(step, Step::Task(_, TaskStep::Ended { .. }));
        if !self.steps().iter().any(ended) {
            return None;
        }
        let is_its = |it: &&TaskView| {
            let attempt = it.task.attempt.as_ref();
            attempt.is_some_and(|it| it.process == gone.process)
        };
        views.iter().find(is_its).cloned()
    }

    /// Adds to the decision a step that begins a burst of such a task on such a server; returns `None` if that is not
    /// possible here. Unless the task waits for its work id, that work id must have no live attempt. Only decisions that
    /// end an attempt, which frees a thread, and decisions about client requests are forged.
    fn begins(
        &self,
        is_its: impl Fn(&TaskView) -> bool,
        is_there: impl Fn(&ServerView) -> bool,
    ) -> Option<Outcome> {
        let views = self.machine.view();
        let over = self.over(&views);
        let asked =
            matches!(self.message, Message::Add(_) | Message::Act { .. } | Message::Report { .. });
        if self.steps().is_empty() || !asked && over.is_none() {
            return None;
        }
        let ends = over.as_ref().map(|it| it.task.id);
        let is_live = |task: &Task| {
            let its = |it: &TaskView| {
                let is_live = it.task.attempt.is_some() && Some(it.task.id) != ends;
                it.task.work == task.work && is_live
            };
            !task.work.as_bytes().is_empty() && views.iter().any(its)
        };
        let fits = |view: &&TaskView| {
            let view = *view;
            let by_work = matches!(view.obstacle, Some(Obstacle::WorkUnderWay { .. }));
            is_its(view) && is_live(&view.task) == by_work
        };
        let slot = self.slot(&views.iter().find(fits)?.task)?;
        let is_changed = |step: &Step| matches!(step, Step::Task(its, _) if *its == slot);
        if self.steps().iter().any(is_changed) {
            return None;
        }
        let Reply::Servers(servers) = self.machine.query(self.moment.now, &Query::Servers) else {
            return None;
        };
        let freed = over.and_then(|it| it.server);
        let mut servers = servers.into_iter().map(|mut it| {
            it.used -= u32::from(Some(&it.name) == freed.as_ref());
            it
        });
        let server = servers.find(|it| !it.leaves && is_there(it))?;
        let claimed = TaskStep::Claimed {
            server: self.server_slot(&server)?,
            process: self.moment.process_id(1),
            lost_after_ms: None,
        };
        let mut steps = self.steps().to_vec();
        steps.push(Step::Task(slot, claimed));
        Some(changed(steps))
    }

    /// Begins a burst, like `begins`, of a task that something holds back, on a server with a free thread.
    fn begins_although(&self, is_held_back: impl Fn(&Obstacle) -> bool) -> Option<Outcome> {
        self.begins(
            |it| it.obstacle.as_ref().is_some_and(&is_held_back),
            |it| it.enabled && it.used < it.threads,
        )
    }

    /// Begins a burst, like `begins`, of any task without a work id that may still have bursts. The judge checks for a
    /// free thread before everything else, so other obstacles do not matter.
    fn begins_on(&self, is_there: impl Fn(&ServerView) -> bool) -> Option<Outcome> {
        let could_begin = |it: &TaskView| {
            let has_bursts = it.task.status.is_fresh() || it.task.status == RunStatus::Waiting;
            has_bursts && it.task.work.as_bytes().is_empty()
        };
        self.begins(could_begin, is_there)
    }

    /// Returns the same decision, with a changed `Ended` step. Returns `None` if its first step does not end an attempt.
    fn ends(&self, change: impl Fn(&mut TaskStep)) -> Option<Outcome> {
        let mut steps = self.steps().to_vec();
        let Some(Step::Task(_, ended @ TaskStep::Ended { .. })) = steps.first_mut() else {
            return None;
        };
        change(ended);
        Some(changed(steps))
    }
}

fn changed(steps: Vec<Step>) -> Outcome {
    let refused = None;
    Outcome::Changed { steps, refused }
}

fn work_twice(decided: &Decided<'_>) -> Option<Outcome> {
    decided.begins_although(|it| matches!(it, Obstacle::WorkUnderWay { .. }))
}

fn thread_twice(decided: &Decided<'_>) -> Option<Outcome> {
    decided.begins_on(|it| it.enabled && it.used >= it.threads)
}

fn group_over_limit(decided: &Decided<'_>) -> Option<Outcome> {
    decided
        .begins_although(|it| matches!(it, Obstacle::GroupFull { .. } | Obstacle::GroupDisabled(_)))
}

fn hard_pause_ignored(decided: &Decided<'_>) -> Option<Outcome> {
    decided.begins_although(|it| {
        matches!(it, Obstacle::GroupPaused(_, Pause::Hard) | Obstacle::AllPaused(Pause::Hard))
    })
}

/// Makes a task that was woken in its burst wait anyway.
fn wake_lost(decided: &Decided<'_>) -> Option<Outcome> {
    let Message::Gone(gone) = decided.message else {
        return None;
    };
    decided.task_of(gone.process).filter(|it| it.woken)?;
    let later = decided.moment.now.date().plus_ms(60_000);
    decided.ends(|step| {
        if let TaskStep::Ended { wake, is_due, .. } = step {
            (*wake, *is_due) = (later, false);
        }
    })
}

fn reason_lost(decided: &Decided<'_>) -> Option<Outcome> {
    decided.ends(|step| {
        if let TaskStep::Ended { verdict, .. } = step
            && matches!(verdict, Verdict::FailedOut(_))
        {
            *verdict = Verdict::Ended(ExitStatus::SystemError);
        }
    })
}

/// Keeps the thread of an attempt whose processes have all ended.
fn thread_leaked(decided: &Decided<'_>) -> Option<Outcome> {
    let is_end = matches!(decided.message, Message::Gone(_));
    let ends = |step: &Step| matches!(step, Step::Task(_, TaskStep::Ended { .. }));
    (is_end && decided.steps().iter().any(ends)).then_some(Outcome::Unchanged)
}

/// Begins a burst on a disabled server. The clients of a run rarely disable a server, so the decision also disables it.
fn disabled_server_used(decided: &Decided<'_>) -> Option<Outcome> {
    let [step @ Step::Task(_, TaskStep::Claimed { server, .. })] = decided.steps() else {
        return None;
    };
    let disabled = Step::ServerEnabled(*server, false);
    Some(changed(vec![disabled, step.clone()]))
}

/// Applies a report twice: either at once, or when an attempt on another machine repeats it because the answer was lost.
fn report_twice(decided: &Decided<'_>) -> Option<Outcome> {
    let Message::Report { process, report, .. } = decided.message else {
        return None;
    };
    if let [step @ Step::Task(_, TaskStep::Reported { .. })] = decided.steps() {
        return Some(changed(vec![step.clone(), step.clone()]));
    }
    let is_old = *decided.outcome == Outcome::Unchanged && !matches!(report, Report::Far(_));
    let task = decided.task_of(*process).filter(|_| is_old)?;
    let until = if let Report::Wait { ms } = report {
        Some(decided.moment.now.date().plus_ms(*ms))
    } else {
        None
    };
    let reported = TaskStep::Reported { until };
    Some(changed(vec![Step::Task(decided.slot(&task)?, reported)]))
}

#[test]
fn two_attempts_of_a_work_id_at_a_time_are_caught() {
    caught(Plant::WorkTwice, &[Promise::OneAttempt], 400);
}

#[test]
fn a_burst_on_a_server_without_a_free_thread_is_caught() {
    // If such bursts begin again and again, the node never settles, which may be found first.
    let others = [Promise::Answered];
    caught_as(Plant::ThreadTwice, Promise::ThreadOwned, &others, 400);
}

#[test]
fn a_burst_of_a_group_beyond_its_limit_is_caught() {
    // If the group has room at that moment, the burst itself is right, but a second machine decides differently.
    let others = [Promise::DecidedAgain];
    caught_as(Plant::GroupOverLimit, Promise::HeldBack, &others, 1500);
}

#[test]
fn a_burst_in_spite_of_a_hard_pause_is_caught() {
    caught(Plant::HardPauseIgnored, &[Promise::HeldBack], 1500);
}

#[test]
fn a_wake_that_is_lost_in_a_burst_is_caught() {
    // A forged entry is also found when it is decided again.
    let others = [Promise::DecidedAgain];
    caught_as(Plant::WakeLost, Promise::WakeKept, &others, 400);
}

#[test]
fn a_failed_task_that_does_not_say_why_is_caught() {
    caught(Plant::ReasonLost, &[Promise::Reasoned], 100);
}

#[test]
fn a_thread_that_is_never_given_back_is_caught() {
    // What waits for the thread is never launched.
    let others = [Promise::Told];
    caught_as(Plant::ThreadLeaked, Promise::UnderWay, &others, 100);
}

#[test]
fn a_burst_on_a_disabled_server_is_caught() {
    caught(Plant::DisabledServerUsed, &[Promise::HeldBack], 400);
}

#[test]
fn a_report_that_is_taken_twice_is_caught() {
    caught(Plant::ReportTwice, &[Promise::OnlyTheLive], 400);
}
