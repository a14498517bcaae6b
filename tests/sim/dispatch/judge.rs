//! The model of tasks as a reference: the required content of the log and of answers to clients.

use super::clients::TaskClients;
use super::model::{Entry, Item, Model};
use super::promises::Promises;
use crate::coverage::Coverage;
use crate::each::Judged;
use crate::reference::{AnsweredMessages, Origin, Reference};
use crate::violation::Violation;
use sexton::actors::dispatch::{
    DispatchMachine, Message, Outcome, Query, Refused, Reply, Report, Rules, Step, TaskStep, Terms,
    Verdict, Watch,
};
use sexton::clock::{Now, Offset, Timestamp};
use sexton::ids::ProcessId;
use sexton::persist::mark::Marked;
use sexton::spine::delivery::Answer;
use sexton::spine::machine::{Observable as _, Stamp, Start};

/// Tasks, according to the model.
#[derive(Clone)]
pub(crate) struct Dispatches {
    model: Model,
    offset: Offset,
    promises: Promises,
}

impl Default for Dispatches {
    fn default() -> Self {
        Self { model: Model::new(Self::rules()), offset: Offset(0), promises: Promises::default() }
    }
}

impl Dispatches {
    const fn now(&self, at: Timestamp) -> Now {
        let offset = self.offset;
        Now { at, offset }
    }
}

/// Returns the id of the process that an outcome launches, or `None` if it launches none.
fn launched(outcome: &Outcome) -> Option<ProcessId> {
    let Outcome::Changed { steps, .. } = outcome else {
        return None;
    };
    steps.iter().find_map(|step| {
        if let Step::Task(_, TaskStep::Claimed { process, .. }) = step {
            Some(*process)
        } else if let Step::Task(_, TaskStep::Ended { cleanup, .. }) = step {
            *cleanup
        } else if let Step::Task(_, TaskStep::Reattached { process }) = step {
            Some(*process)
        } else {
            None
        }
    })
}

fn count_step(message: &Message, step: &TaskStep, counted: &mut Coverage) {
    match step {
        TaskStep::Added { .. } => counted.tasks_added += 1,
        TaskStep::Claimed { .. } => counted.bursts_begun += 1,
        TaskStep::Launched => counted.bursts_launched += 1,
        TaskStep::Blocked => counted.bursts_blocked += 1,
        TaskStep::Stopping(_) => counted.bursts_stopped += 1,
        TaskStep::Reported { .. } => {
            let saves = matches!(message, Message::Report { report: Report::Save(_), .. });
            counted.saves += u64::from(saves);
            counted.bursts_told_of += u64::from(!saves);
        }
        TaskStep::Ended { verdict, .. } => match verdict {
            Verdict::Waits => counted.bursts_that_wait += 1,
            Verdict::Reset(_) => counted.bursts_reset += 1,
            Verdict::FailedOut(_) => counted.tasks_failed_out += 1,
            Verdict::Ended(_) => counted.tasks_ended += 1,
        },
        TaskStep::Restarted => counted.tasks_restarted += 1,
        TaskStep::CleanupEnded(_) => counted.tasks_cleaned_up += 1,
        TaskStep::Forgotten => counted.tasks_forgotten += 1,
        TaskStep::Woken(_) => counted.tasks_woken += 1,
        TaskStep::Reattached { .. } => counted.attempts_asked_for_again += 1,
        TaskStep::Locked
        | TaskStep::Updates
        | TaskStep::Excused
        | TaskStep::Unblocked
        | TaskStep::CleanupLaunched
        | TaskStep::Over { .. }
        | TaskStep::Ready
        | TaskStep::Paused(_)
        | TaskStep::Terminating => {}
    }
}

impl Judged for DispatchMachine {
    type Reference = Dispatches;
}

impl Reference for Dispatches {
    const CALLS: u64 = 30;
    const WATCHES: u64 = 6;
    const TURNS: u64 = 60;

    type Clients = TaskClients;
    type Machine = DispatchMachine;

    /// Returns limits that are small enough to be reached.
    fn rules() -> Rules {
        Rules {
            tasks_max: 8,
            lost_after_ms: 900,
            servers_max: 3,
            groups_max: 3,
            local_threads: 2,
            tasks_per_thread: 2,
            saved_bytes_max: 4,
            kept_ms: 20_000,
            kept_max: 3,
            terms: Terms { fail_after_ms: 20_000, ..Terms::default() },
            group_max: 3,
            ..Rules::default()
        }
    }

    fn promised(
        &mut self,
        stamp: Stamp,
        message: &Message,
        outcome: &Outcome,
    ) -> Result<(), Violation> {
        self.promises.follow(stamp, message, outcome)
    }

    fn apply(
        &mut self,
        stamp: Stamp,
        message: &Message,
        (outcome, reply): (&Outcome, &Reply),
    ) -> Result<(), String> {
        let now = self.now(stamp.at);
        // No entry shows that the disk is low on space, which holds bursts back. So a burst that is due may be missing
        // here; `check_tasks` finds it at the end.
        let is = Item::of(message);
        let due = self.model.due(now);
        let due = due.filter(|due| *due != Item::Dispatch || is.is_some());
        if due != is {
            return Err(format!("time acted on {is:?}, but {due:?} is due"));
        }
        let entry = Entry { seq: stamp.seq, now, process: launched(outcome), draining: false };
        let right = self.model.send(message, entry);
        // The library's tests compare the messages between actors, so these are discarded here.
        self.model.messages.clear();
        if right != (reply.clone(), true) {
            return Err(format!("{reply:?}, expected {right:?}"));
        }
        Ok(())
    }

    fn apply_marks(&mut self, marked: &Marked) {
        self.offset = Offset(marked.offset_ms);
        self.model.held = marked.believed.is_some();
    }

    fn start(&mut self, start: Start) {
        self.model.start(start.stamp.at);
    }

    fn poisoned(&mut self, message: &Message) {
        if let Some(item) = Item::of(message) {
            self.model.quarantine(item);
        }
    }

    fn due(&self, at: Timestamp) -> Option<String> {
        let due = self.model.due(self.now(at));
        let due = due.filter(|it| *it != Item::Dispatch);
        due.map(|it| format!("{it:?}"))
    }

    fn without_change(&self, message: &Message) -> Option<Reply> {
        let entry = Entry { now: self.now(Timestamp(0)), ..Entry::default() };
        let (reply, changed) = self.model.clone().send(message, entry);
        (!changed).then_some(reply)
    }

    fn answer(&self, query: &Query) -> Answer<Reply> {
        Ok(self.model.answer(query))
    }

    fn agrees(&self, machine: &DispatchMachine) -> Result<(), String> {
        let (view, mine) = (machine.view(), self.model.views());
        (view == mine).then_some(()).ok_or_else(|| format!("tasks are {view:?}, expected {mine:?}"))
    }

    fn origin(message: &Message) -> Origin {
        match message {
            Message::Lapse { .. } | Message::Dispatch => Origin::Tick,
            Message::Gone(_) | Message::Launched(_) | Message::Held(_) => Origin::Tell,
            Message::Add(_)
            | Message::Act { .. }
            | Message::Report { .. }
            | Message::Pause { .. }
            | Message::Limit { .. }
            | Message::Server { .. }
            | Message::Inventory { .. }
            | Message::Prune { .. } => Origin::Client,
        }
    }

    fn changes(reply: &Reply) -> bool {
        match reply {
            Reply::Reconciled { added, removed, changed } => added + removed + changed > 0,
            Reply::Pruned(count, _) => *count > 0,
            // A save that is refused for lack of the lock also ends its attempt, so it changes the state.
            Reply::Task(_) | Reply::Done | Reply::Refused(Refused::Locked) => true,
            Reply::Tasks(_)
            | Reply::Saved(..)
            | Reply::Servers(_)
            | Reply::Groups(_)
            | Reply::Totals(_)
            | Reply::Terms(_)
            | Reply::WorkInProgress(_)
            | Reply::Absent
            | Reply::Refused(_) => false,
        }
    }

    fn wakes(&self, watch: &Watch) -> Option<Reply> {
        self.model.wakes(watch)
    }

    /// A request that changes nothing has no entry, and its answer is the same as that to the request that made the
    /// change.
    fn may_pass<'a>(
        (message, _): (&Message, &Reply),
        _: impl Fn() -> AnsweredMessages<'a, Self>,
    ) -> bool {
        matches!(
            message,
            Message::Act { .. }
                | Message::Pause { .. }
                | Message::Limit { .. }
                | Message::Server { .. }
        )
    }

    fn count(message: &Message, outcome: &Outcome, counted: &mut Coverage) {
        let Outcome::Changed { steps, .. } = outcome else {
            return;
        };
        for step in steps {
            match step {
                Step::Task(_, step) => count_step(message, step, counted),
                Step::ServerRemoved(_) => counted.servers_removed += 1,
                Step::GivesBack(_) => counted.locks_given_back += 1,
                Step::ServerMade { .. }
                | Step::ServerThreads(..)
                | Step::ServerReached(..)
                | Step::ServerEnabled(..)
                | Step::ServerFailed(..)
                | Step::ServerAnswered(_)
                | Step::GroupSet { .. }
                | Step::Paused(_)
                | Step::Rests => {}
            }
        }
    }

    fn may_be_refused(message: &Message) -> bool {
        matches!(
            message,
            Message::Add(_)
                | Message::Report { .. }
                | Message::Pause { .. }
                | Message::Limit { .. }
                | Message::Server { .. }
                | Message::Inventory { .. }
        )
    }

    fn is_disk_full(reply: &Reply) -> bool {
        *reply == Reply::Refused(Refused::DiskFull)
    }
}
