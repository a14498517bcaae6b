//! The verdicts, causes, obstacles and refusals that a test run has encountered, by name.

use crate::actors::dispatch::{
    Cause, ExitStatus, Obstacle, Outcome, Past, Refused, Reply, Step, TaskStep, TaskView, Verdict,
};
use std::collections::BTreeMap;

/// The names of the cases that the histories must cover at least five times each. A name that ends in `never` documents a case that cannot
/// occur.
const NAMES: &[&str] = &[
    "ended not-finished never",
    "ended warning",
    "ended terminated",
    "ended completed",
    "ended user-error",
    "waits",
    "reset not-launched",
    "reset execute-lock",
    "reset update-lock",
    "reset died",
    "reset unreported",
    "reset server-gone",
    "failed-out died",
    "failed-out overdue",
    "failed-out silent",
    "failed-out server-gone",
    "stopping update-lock",
    "stopping overdue",
    "stopping silent",
    "excused",
    "stopping terminated",
    "stopping server-gone",
    "over terminated",
    "obstacle not-ready",
    "obstacle paused",
    "obstacle waits",
    "obstacle locked",
    "obstacle all-paused",
    "obstacle group-paused",
    "obstacle group-disabled",
    "obstacle group-full",
    "obstacle work-under-way",
    "obstacle no-server",
    "obstacle no-thread",
    "obstacle not-reached",
    "obstacle too-many-under-way",
    "obstacle in-line",
    "obstacle draining",
    "refused full",
    "refused servers-full",
    "refused groups-full",
    "refused draining",
    "refused command",
    "refused span",
    "refused no-name",
    "refused named-twice",
    "refused threads",
    "refused over",
    "refused not-over",
    "refused not-held",
    "refused stale",
    "refused stopping",
    "refused locked",
    "refused too-large",
    "refused words",
    "cleaned up",
    "woken during a burst",
    "server came back",
    "server removed with its last attempt",
    "room made",
    "unblocked",
    "rests",
    "given back",
    "quarantined",
    "client told that servers are wanted",
    "client told that its wait is over",
    "taken a checkpoint",
    "disk low",
    "reattached",
    "reached otherwise",
    "failed",
    "answered",
    "unstarted",
    "refused remote",
    "failed-out server-lost",
    "reset server-lost",
];

/// How many times each name was encountered.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage(BTreeMap<String, u32>);

impl Coverage {
    pub(super) fn note(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            *self.0.entry(what.clone()).or_default() += count;
        }
    }

    /// Returns the expected names that were encountered fewer than five times, and all encountered names that are not in [`NAMES`].
    pub(super) fn rare(&self) -> Vec<&str> {
        let count = |name: &str| self.0.get(name).copied().unwrap_or(0);
        let expected = NAMES.iter().filter(|name| !name.ends_with(" never"));
        let rare = expected.filter(|name| count(name) < 5).copied();
        let unknown = self.0.keys().filter(|name| !NAMES.contains(&name.as_str()));
        rare.chain(unknown.map(String::as_str)).collect()
    }

    pub(super) fn note_outcome(&mut self, outcome: &Outcome) {
        let Outcome::Changed { steps, .. } = outcome else {
            return;
        };
        let removes = |step: &Step| matches!(step, Step::ServerRemoved(_));
        let forgets = |step: &Step| matches!(step, Step::Task(_, TaskStep::Forgotten));
        for step in steps {
            match step {
                Step::Rests => self.note("rests"),
                Step::GivesBack(_) => self.note("given back"),
                Step::Task(_, TaskStep::Stopping(cause)) => {
                    self.note(format!("stopping {}", cause.name()));
                }
                Step::Task(_, TaskStep::Over { exit, .. }) => {
                    self.note(format!("over {}", exit.name()));
                }
                Step::Task(_, TaskStep::Ended { verdict, unstarted, .. }) => {
                    self.note_verdict(*verdict);
                    if *unstarted {
                        self.note("unstarted");
                    }
                    if steps.iter().any(removes) {
                        self.note("server removed with its last attempt");
                    }
                    if steps.iter().any(forgets) {
                        self.note("room made");
                    }
                }
                Step::Task(_, TaskStep::Blocked) => {
                    self.note_verdict(Verdict::Reset(Cause::ExecuteLock));
                }
                Step::Task(_, TaskStep::Excused) => self.note("excused"),
                Step::Task(_, TaskStep::Unblocked) => self.note("unblocked"),
                Step::Task(_, TaskStep::Reattached { .. }) => self.note("reattached"),
                Step::ServerReached(..) => self.note("reached otherwise"),
                Step::ServerFailed(..) => self.note("failed"),
                Step::ServerAnswered(_) => self.note("answered"),
                Step::Task(_, TaskStep::CleanupEnded(_)) => self.note("cleaned up"),
                Step::Task(..)
                | Step::ServerMade { .. }
                | Step::ServerThreads(..)
                | Step::ServerEnabled(..)
                | Step::ServerRemoved(_)
                | Step::GroupSet { .. }
                | Step::Paused(_) => {}
            }
        }
    }

    fn note_verdict(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Ended(exit) => self.note(format!("ended {}", exit.name())),
            Verdict::Waits => self.note("waits"),
            Verdict::Reset(cause) => self.note(format!("reset {}", cause.name())),
            Verdict::FailedOut(cause) => self.note(format!("failed-out {}", cause.name())),
        }
    }

    pub(super) fn note_reply(&mut self, reply: &Reply) {
        let Reply::Refused(refused) = reply else {
            return;
        };
        self.note(match refused {
            Refused::Full => "refused full",
            Refused::ServersFull => "refused servers-full",
            Refused::GroupsFull => "refused groups-full",
            Refused::Draining => "refused draining",
            Refused::Command(_) => "refused command",
            Refused::Span => "refused span",
            Refused::NoName => "refused no-name",
            Refused::NamedTwice => "refused named-twice",
            Refused::Threads => "refused threads",
            Refused::Remote => "refused remote",
            Refused::Over => "refused over",
            Refused::NotOver => "refused not-over",
            Refused::NotHeld => "refused not-held",
            Refused::Stale => "refused stale",
            Refused::Stopping(_) => "refused stopping",
            Refused::Locked => "refused locked",
            Refused::TooLarge => "refused too-large",
            Refused::Words => "refused words",
            Refused::DiskFull => "refused disk-full",
            Refused::KeyReused => "refused key-reused",
            Refused::ReceiptsFull => "refused receipts-full",
            Refused::Forbidden => "refused forbidden",
        });
    }

    pub(super) fn note_view(&mut self, view: &TaskView) {
        let Some(obstacle) = &view.obstacle else {
            return;
        };
        self.note(match obstacle {
            Obstacle::NotReady => "obstacle not-ready",
            Obstacle::Paused => "obstacle paused",
            Obstacle::Waits(_) => "obstacle waits",
            Obstacle::Locked => "obstacle locked",
            Obstacle::AllPaused(_) => "obstacle all-paused",
            Obstacle::GroupPaused(..) => "obstacle group-paused",
            Obstacle::GroupDisabled(_) => "obstacle group-disabled",
            Obstacle::GroupFull { .. } => "obstacle group-full",
            Obstacle::WorkUnderWay { .. } => "obstacle work-under-way",
            Obstacle::NoServer => "obstacle no-server",
            Obstacle::NoThread { .. } => "obstacle no-thread",
            Obstacle::NotReached { .. } => "obstacle not-reached",
            Obstacle::TooManyUnderWay { .. } => "obstacle too-many-under-way",
            Obstacle::InLine => "obstacle in-line",
            Obstacle::Draining => "obstacle draining",
            Obstacle::DiskLow { .. } => "obstacle disk-low",
        });
    }
}

/// Returns whether a task that failed has a reason for that: a message, or the command's own report or exit status. Returns true for a task
/// that has not failed.
pub(super) fn has_reason(view: &TaskView) -> bool {
    let task = &view.task;
    let by_itself = |past: &Past| past.verdict == Verdict::Ended(ExitStatus::UserError);
    let is_told = task.past.last().is_some_and(by_itself);
    !task.exit.is_failure() || !task.words.is_empty() || is_told
}
