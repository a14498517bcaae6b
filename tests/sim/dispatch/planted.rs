//! Faults planted in tasks, and the tests that show that each of them is caught.

use super::promises::Promises;
use crate::planted::caught;
use crate::setting::Plant;
use crate::violation::Promise;
use sexton::actors::binding::Exit;
use sexton::actors::dispatch::{
    DispatchMachine, ExitStatus, Message, NewTask, Outcome, Pause, Report, Step, TaskStep, Terms,
    Verdict,
};
use sexton::actors::lock::Name;
use sexton::bytes::Bytes;
use sexton::clock::{Date, Timestamp};
use sexton::ids::{ProcessId, Seq, Slot};
use sexton::spine::machine::{Observable as _, Stamp};

/// Returns the report of a process without a live attempt, changed so that it comes from a live one. Returns `None` for
/// other messages.
pub(crate) fn as_if_live(machine: &DispatchMachine, message: &Message) -> Option<Message> {
    let Message::Report { process, report, nth } = message else {
        return None;
    };
    let views = machine.view();
    let attempts = || views.iter().filter_map(|it| it.task.attempt.as_ref());
    let is_live = attempts().any(|it| it.process == *process);
    let other = attempts().find(|it| it.stopping.is_none());
    let other = other.filter(|_| !is_live)?;
    Some(Message::Report { process: other.process, report: report.clone(), nth: *nth })
}

#[test]
fn what_a_stale_attempt_saves_is_caught() {
    caught(Plant::SavedByStale, &[Promise::OnlyTheLive], 400);
}

#[test]
fn a_task_that_is_left_in_its_burst_is_caught() {
    // The lost message may be about a launch that failed.
    let promises = [Promise::UnderWay, Promise::Told, Promise::EndsWithOwner];
    caught(Plant::GoneOfTaskLost, &promises, 100);
}

#[test]
fn a_launch_of_a_task_that_is_never_taken_on_is_caught() {
    caught(Plant::LaunchOfTaskLost, &[Promise::Told], 100);
}

#[test]
fn a_burst_on_a_low_disk_is_caught() {
    caught(Plant::LowDiskIgnored, &[Promise::RoomFirst], 200);
}

#[test]
fn a_lock_that_outlives_its_attempt_is_caught() {
    caught(Plant::LockKept, &[Promise::EndsWithOwner], 100);
}

/// An invented history, built step by step.
#[derive(Default)]
struct History {
    promises: Promises,
    seq: u64,
}

impl History {
    /// Returns a history with one server of this number of threads, and one task for each of these work ids.
    fn with(threads: u32, works: &[&str]) -> Self {
        let mut history = Self::default();
        let name = Name::try_from("local").expect("the name is short");
        history.right(Step::ServerMade { name, threads, remote: None });
        for (slot, work) in (0..).zip(works) {
            let asked = NewTask {
                work: Name::try_from(*work).expect("the name is short"),
                ..NewTask::default()
            };
            let terms = Terms::default();
            let step = Step::Task(Slot(slot), TaskStep::Added { terms });
            let came = history.send(&Message::Add(Box::new(asked)), step);
            assert_eq!(came, None);
        }
        history
    }

    fn send(&mut self, message: &Message, step: Step) -> Option<Promise> {
        self.seq += 1;
        let stamp = Stamp { seq: Seq(self.seq), at: Timestamp(self.seq) };
        let outcome = Outcome::Changed { steps: vec![step], refused: None };
        let kept = self.promises.follow(stamp, message, &outcome);
        kept.err().map(|violation| violation.promise)
    }

    /// Appends a step that keeps all promises.
    fn right(&mut self, step: Step) {
        assert_eq!(self.send(&Message::Dispatch, step), None);
    }

    /// Appends a step that must break this promise.
    fn wrong(mut self, step: Step, promise: Promise) {
        assert_eq!(self.send(&Message::Dispatch, step), Some(promise));
    }
}

fn claimed(task: u32) -> Step {
    let (server, process) = (Slot(0), ProcessId(task.into()));
    Step::Task(Slot(task), TaskStep::Claimed { server, process, lost_after_ms: None })
}

fn ended(task: u32, verdict: Verdict, is_due: bool) -> Step {
    let ended = TaskStep::Ended {
        exit: Some(Exit::Code(0)),
        verdict,
        wake: Date(9),
        is_due,
        forgotten: Date(9),
        cleanup: None,
        unstarted: false,
    };
    Step::Task(Slot(task), ended)
}

#[test]
fn two_attempts_of_a_task_or_of_a_work_id_are_caught() {
    let mut history = History::with(2, &["w", "w"]);
    history.right(claimed(0));
    history.wrong(claimed(0), Promise::OneAttempt);
    let mut history = History::with(2, &["w", "w"]);
    history.right(claimed(0));
    history.wrong(claimed(1), Promise::OneAttempt);
}

#[test]
fn a_thread_that_is_taken_twice_is_caught() {
    let mut history = History::with(1, &["", ""]);
    history.right(claimed(0));
    history.right(ended(0, Verdict::Waits, true));
    history.right(claimed(1));
    history.wrong(claimed(0), Promise::ThreadOwned);
}

#[test]
fn an_attempt_that_ends_twice_is_caught() {
    let mut history = History::with(1, &[""]);
    history.right(claimed(0));
    history.right(ended(0, Verdict::Waits, true));
    history.wrong(ended(0, Verdict::Waits, true), Promise::OneAttempt);
}

#[test]
fn a_disabled_server_that_is_used_is_caught() {
    for step in [Step::ServerEnabled(Slot(0), false), Step::ServerRemoved(Slot(0))] {
        let mut history = History::with(3, &["", ""]);
        history.right(claimed(0));
        history.right(step);
        history.wrong(claimed(1), Promise::HeldBack);
    }
}

#[test]
fn a_group_over_its_limit_is_caught() {
    let mut history = History::with(9, &["", "", "", ""]);
    for task in 0..3 {
        history.right(claimed(task));
    }
    // A waiting task counts towards the limit of its group, and a completed task does not.
    history.right(ended(0, Verdict::Waits, true));
    history.right(claimed(0));
    history.right(ended(0, Verdict::Ended(ExitStatus::Completed), false));
    history.right(claimed(3));
    history.right(Step::Task(Slot(0), TaskStep::Restarted));
    history.wrong(claimed(0), Promise::HeldBack);
}

#[test]
fn a_burst_that_begins_in_spite_of_a_pause_is_caught() {
    let group = |pause| Step::GroupSet {
        slot: Slot(0),
        name: Name::try_from("default").expect("the name is short"),
        max: None,
        pause,
    };
    for hard in [Step::Paused(Pause::Hard), group(Pause::Hard)] {
        let mut history = History::with(1, &[""]);
        history.right(claimed(0));
        history.right(ended(0, Verdict::Waits, true));
        history.right(hard);
        history.wrong(claimed(0), Promise::HeldBack);
    }
    for soft in [Step::Paused(Pause::Soft), group(Pause::Soft)] {
        let mut history = History::with(1, &["", ""]);
        history.right(claimed(0));
        history.right(ended(0, Verdict::Waits, true));
        history.right(soft);
        history.right(claimed(0));
        history.right(ended(0, Verdict::Waits, true));
        history.wrong(claimed(1), Promise::HeldBack);
    }
    let mut history = History::with(1, &[""]);
    history.right(Step::Task(Slot(0), TaskStep::Paused(true)));
    history.wrong(claimed(0), Promise::HeldBack);
}

#[test]
fn a_wake_that_is_lost_between_burst_and_wait_is_caught() {
    let mut history = History::with(1, &[""]);
    history.right(claimed(0));
    history.right(Step::Task(Slot(0), TaskStep::Woken(Date(5))));
    history.wrong(ended(0, Verdict::Waits, false), Promise::WakeKept);
}

#[test]
fn a_task_that_fails_without_a_reason_is_caught() {
    let mut history = History::with(1, &[""]);
    history.right(claimed(0));
    let failed = Verdict::Ended(ExitStatus::SystemError);
    history.wrong(ended(0, failed, false), Promise::Reasoned);
}

#[test]
fn a_save_without_its_lock_is_caught() {
    let save = |process| Message::Report {
        process: ProcessId(process),
        report: Report::Save(Bytes::new(&b"a"[..])),
        nth: None,
    };
    let reported = || Step::Task(Slot(0), TaskStep::Reported { until: None });
    let mut history = History::with(1, &[""]);
    history.right(claimed(0));
    let came = history.send(&save(0), reported());
    assert_eq!(came, Some(Promise::OnlyTheLive));
    history.right(Step::Task(Slot(0), TaskStep::Updates));
    assert_eq!(history.send(&save(0), reported()), None);
    let came = history.send(&save(1), reported());
    assert_eq!(came, Some(Promise::OnlyTheLive), "it belongs to another attempt");
}

#[test]
fn a_report_that_is_taken_twice_is_caught() {
    let beat = |nth| Message::Report { process: ProcessId(0), report: Report::Beat, nth };
    let reported = || Step::Task(Slot(0), TaskStep::Reported { until: None });
    let mut history = History::with(1, &[""]);
    history.right(Step::Task(
        Slot(0),
        TaskStep::Claimed { server: Slot(0), process: ProcessId(0), lost_after_ms: Some(1) },
    ));
    for nth in [Some(1), Some(2), None] {
        assert_eq!(history.send(&beat(nth), reported()), None);
    }
    let came = history.send(&beat(Some(2)), reported());
    assert_eq!(came, Some(Promise::OnlyTheLive));
}
