//! The model of processes as a reference: the required content of the log and of answers to clients.

#![expect(clippy::wildcard_enum_match_arm, reason = "each rule names its messages")]

use super::clients::Callers;
use super::hooks::Recorded;
use super::model::{Answer as Outcomes, Entry, Model, Verdict, insertion_of};
use super::services::are_alike;
use crate::coverage::Coverage;
use crate::each::Judged;
use crate::reference::{AnsweredMessages, Origin, Reference};
use crate::violation::Violation;
use sexton::actors::process::{
    Cause, Consequence, End, Insertion, Lost, Message, Notice, Outcome, Phase, ProcessMachine,
    Query, RecordView, Refused, Reply, Rules, ServiceMessage, ServiceStep, Stop,
    Verdict as Finding, View, Watch,
};
use sexton::clock::{Now, Offset, Timestamp};
use sexton::ids::{Seq, Slot};
use sexton::persist::mark::Marked;
use sexton::spine::delivery::Answer;
use sexton::spine::machine::{Machine as _, Observable as _, Stamp, Start};

/// A time later than the request of any stop.
const LATE: Timestamp = Timestamp(u64::MAX / 2);

/// Processes, according to the model.
#[derive(Clone)]
pub(crate) struct Processes {
    model: Model,
    offset: Offset,
    /// Whether records must not be removed by age, because the wall clock is in doubt.
    held: bool,
    hooks: Recorded,
}

impl Default for Processes {
    fn default() -> Self {
        let model = Model { rules: Processes::rules(), ..Model::default() };
        Self { model, offset: Offset(0), held: false, hooks: Recorded::default() }
    }
}

impl Processes {
    const fn now(&self, at: Timestamp) -> Now {
        let offset = self.offset;
        Now { at, offset }
    }

    fn first_due(&self, at: Timestamp) -> Option<Message> {
        self.model.due(self.now(at), self.held)
    }

    /// Returns the model after a message, and the outcome of the message.
    fn follow(
        &self,
        stamp: Stamp,
        message: &Message,
        insertion: Option<&Insertion>,
    ) -> (Model, Outcomes) {
        let mut after = self.model.clone();
        let entry = Entry {
            seq: stamp.seq,
            now: self.now(stamp.at),
            new: insertion.map(|it| (it.id, it.slot)),
        };
        let right = after.send(message, entry);
        (after, right)
    }
}

/// Counts the change of a service. `ends` is whether the end of a process caused it.
fn count_step(step: &ServiceStep, ends: bool, counted: &mut Coverage) {
    match step {
        ServiceStep::Added { .. } => counted.services_added += 1,
        ServiceStep::Changed { .. } => counted.services_changed += 1,
        ServiceStep::Removed { .. } => counted.services_removed += 1,
        ServiceStep::Released { .. } => counted.services_released += 1,
        ServiceStep::Deferred { .. } => counted.services_deferred += 1,
        ServiceStep::Stopped { .. } => counted.services_stopped += 1,
        ServiceStep::Launched { .. } => {
            counted.services_launched += 1;
            counted.services_launched_at_once += u64::from(ends);
        }
        ServiceStep::Ended { then, .. } => match then {
            Consequence::Nothing => counted.services_ended_as_asked += 1,
            Consequence::Again { series, .. } => {
                counted.services_restarted += 1;
                counted.services_waited += u64::from(*series > 1);
            }
            Consequence::Never(Finding::Finished) => counted.services_finished += 1,
            Consequence::Never(Finding::Failed) => counted.services_given_up += 1,
        },
        ServiceStep::Started { .. }
        | ServiceStep::Restarted { .. }
        | ServiceStep::Dropped { .. }
        | ServiceStep::Held { .. } => {}
    }
}

fn count_end(end: End, counted: &mut Coverage) {
    match end {
        End::Code(_) | End::Signal { .. } => counted.processes_ended += 1,
        End::Lost(Lost::Rebooted) => counted.processes_rebooted += 1,
        End::Lost(Lost::KeeperGone) => counted.processes_lost += 1,
        End::Lost(_) => counted.strangers_gone += 1,
    }
}

/// Checks that a new record has the lowest free slot, and an unused id.
fn check_insertion(after: &Model, insertion: &Insertion) -> Result<(), String> {
    let others = || after.records.iter().filter(|it| it.slot != insertion.slot);
    let is_used = |slot: u32| others().any(|it| it.slot == Slot(slot));
    if after.records.len() != others().count() + 1 || !(0..insertion.slot.0).all(is_used) {
        return Err(format!("{insertion:?} has no slot of its own, or not the lowest"));
    }
    if others().any(|it| it.view.id == insertion.id) {
        return Err(format!("{insertion:?} has the id of another"));
    }
    Ok(())
}

impl Judged for ProcessMachine {
    type Reference = Processes;
}

impl Reference for Processes {
    const CALLS: u64 = 55;
    const WATCHES: u64 = 8;
    const TURNS: u64 = 80;

    type Clients = Callers;
    type Machine = ProcessMachine;

    /// Returns limits that are small enough to be reached.
    fn rules() -> Rules {
        Rules { retention_ms: 20_000, records_max: 24, live_max: 12, bytes_max: 2_800, part: 2 }
    }

    fn promised(
        &mut self,
        stamp: Stamp,
        message: &Message,
        outcome: &Outcome,
    ) -> Result<(), Violation> {
        self.hooks.follow(message, outcome).map_err(|it| {
            let what = format!("entry {} of processes: {}", stamp.seq, it.what);
            Violation::new(it.promise, what)
        })
    }

    fn apply(
        &mut self,
        stamp: Stamp,
        message: &Message,
        (outcome, reply): (&Outcome, &Reply),
    ) -> Result<(), String> {
        let due = self.first_due(stamp.at);
        let acted = Some(message).filter(|it| Self::origin(it) == Origin::Tick);
        if due.as_ref() != acted {
            return Err(format!("time acted on {acted:?}, but {due:?} is due"));
        }
        let insertion = insertion_of(outcome);
        let (after, right) = self.follow(stamp, message, insertion);
        if right.verdict != Verdict::Changed || right.reply != *reply {
            return Err(format!("{reply:?}, expected {right:?}"));
        }
        if let Some(insertion) = insertion {
            check_insertion(&after, insertion)?;
        } else if after.records.iter().any(|it| it.slot == Slot::NONE) {
            return Err("a new record is missing".to_owned());
        }
        self.model = after;
        Ok(())
    }

    fn apply_marks(&mut self, marked: &Marked) {
        self.offset = Offset(marked.offset_ms);
        self.held = marked.believed.is_some();
    }

    fn start(&mut self, Start { stamp, .. }: Start) {
        self.model.start(stamp.at, stamp.seq);
    }

    fn poisoned(&mut self, message: &Message) {
        match message {
            Message::Lapse { slot } => {
                let mut records = self.model.records.iter_mut();
                if let Some(it) = records.find(|it| it.slot == *slot) {
                    it.quarantined = true;
                }
            }
            Message::Service(ServiceMessage::Lapse { slot }) => {
                let mut services = self.model.services.iter_mut();
                if let Some(it) = services.find(|it| it.slot == *slot) {
                    it.quarantined = true;
                }
            }
            _ => {}
        }
    }

    fn due(&self, at: Timestamp) -> Option<String> {
        self.first_due(at).map(|message| format!("{message:?}"))
    }

    /// Whether a stop requires more than the previous one depends on its time. A later stop never requires less, so the
    /// reply is the one at the latest possible time.
    fn without_change(&self, message: &Message) -> Option<Reply> {
        let (at, seq) = (LATE, Seq(u64::MAX));
        let (_, right) = self.follow(Stamp { seq, at }, message, None);
        (right.verdict != Verdict::Changed).then_some(right.reply)
    }

    fn answer(&self, query: &Query) -> Answer<Reply> {
        Ok(self.model.answer(query))
    }

    fn is_answer(&self, query: &Query, at: Timestamp, answer: &Answer<Reply>) -> bool {
        match (query, answer) {
            (Query::Services(None), Ok(shown)) => {
                are_alike(shown, &self.model.services_as_shown(self.now(at)))
            }
            _ => self.answer(query) == *answer,
        }
    }

    fn agrees(&self, machine: &ProcessMachine) -> Result<(), String> {
        let records = self.model.records.iter();
        let right: View = records.map(|it| (it.view.id, it.view.clone())).collect();
        let view = machine.view();
        if view != right {
            return Err(format!("records are {view:?}, expected {right:?}"));
        }
        // At time zero no remembered restart is too old to be shown.
        let now = self.now(Timestamp(0));
        let services = machine.query(now, &Query::Services(None));
        let right = Reply::Services(self.model.services_as_shown(now));
        if services != right {
            return Err(format!("services are {services:?}, expected {right:?}"));
        }
        Ok(())
    }

    fn origin(message: &Message) -> Origin {
        match message {
            Message::Lapse { .. } | Message::Service(ServiceMessage::Lapse { .. }) => Origin::Tick,
            Message::Started { .. }
            | Message::Failed { .. }
            | Message::Ended { .. }
            | Message::Empty { .. }
            | Message::Stuck { .. }
            | Message::Watch(_)
            | Message::Fence(_)
            | Message::LaunchAs(_)
            | Message::Notice { .. }
            | Message::Child { .. }
            | Message::Found { .. }
            | Message::Signalled { .. } => Origin::Tell,
            Message::Launch(_)
            | Message::Begin { .. }
            | Message::Register(_)
            | Message::Serve(_)
            | Message::Finish { .. }
            | Message::Stop { .. }
            | Message::Signal { .. }
            | Message::Settle { .. }
            | Message::Service(_)
            | Message::Prune { .. } => Origin::Client,
        }
    }

    fn changes(reply: &Reply) -> bool {
        match reply {
            Reply::Registered { known, .. } => !known,
            Reply::Pruned { count, .. } => *count > 0,
            Reply::Launched(_)
            | Reply::Stopping(_)
            | Reply::Signalling(_)
            | Reply::Record(_)
            | Reply::Done => true,
            Reply::Sent(_)
            | Reply::Spec(_)
            | Reply::Ambiguous(_)
            | Reply::Page { .. }
            | Reply::Count { .. }
            | Reply::Ids { .. }
            | Reply::Totals(_)
            | Reply::Services(_)
            | Reply::Refused(_) => false,
        }
    }

    fn wakes(&self, watch: &Watch) -> Option<Reply> {
        self.model.wakes(watch)
    }

    /// A stop that requires no more than the previous one has the same reply and no entry. The same holds for a request
    /// about a service that is already in the requested state.
    fn may_pass<'a>(
        (message, _): (&Message, &Reply),
        _: impl Fn() -> AnsweredMessages<'a, Self>,
    ) -> bool {
        matches!(message, Message::Stop { .. } | Message::Service(_))
    }

    /// Clients may learn that a process has started, or that a service is running, before that is durable.
    fn may_wake_pass(watch: &Watch, reply: &Reply) -> bool {
        let runs = |record: &RecordView| record.phase == Phase::Running;
        let is_of_start =
            matches!((watch, reply), (Watch::Start(_), Reply::Record(record)) if runs(record));
        is_of_start || matches!(watch, Watch::Services(_))
    }

    /// A process that was shown as running must have a durable launch.
    fn has_seen(&self, reply: &Reply) -> bool {
        match reply {
            Reply::Record(record) => {
                let mut records = self.model.records.iter();
                records.any(|it| it.view.id == record.id)
            }
            _ => true,
        }
    }

    fn count(message: &Message, outcome: &Outcome, counted: &mut Coverage) {
        match outcome {
            Outcome::Launched(_) => {
                let is_deferred = matches!(message, Message::Launch(it) if it.deferred);
                counted.launches_deferred += u64::from(is_deferred);
                counted.processes_launched += u64::from(!is_deferred);
            }
            Outcome::Begun { .. } => counted.launches_begun += 1,
            Outcome::Cancelled { .. } => counted.launches_cancelled += 1,
            Outcome::Registered(_) => counted.processes_registered += 1,
            Outcome::Started { .. } => counted.processes_started += 1,
            Outcome::Failed { .. } => counted.launches_failed += 1,
            Outcome::Ended { end, tree, .. } => {
                counted.processes_finished += u64::from(matches!(message, Message::Finish { .. }));
                counted.leaders_outlived += u64::from(*tree);
                count_end(*end, counted);
            }
            Outcome::Emptied { .. } => counted.trees_emptied += 1,
            Outcome::Stopping { stop, .. } if stop.cause == Cause::NotReady => {
                counted.services_never_ready += 1;
            }
            Outcome::Stopping { stop, .. } if stop.cause == Cause::Timeout => {
                counted.processes_timed_out += 1;
            }
            Outcome::Stopping { stop, .. } => {
                counted.trees_stopped += u64::from(stop.tree);
                counted.processes_stopped += u64::from(!stop.tree);
            }
            Outcome::Killing { .. } => counted.graces_over += 1,
            Outcome::Signalling { .. } => counted.signals_asked += 1,
            Outcome::Signalled { .. } => counted.signals_answered += 1,
            Outcome::Pruned { .. } => counted.records_pruned += 1,
            Outcome::Watched { .. } => counted.processes_watched += 1,
            Outcome::Gone => counted.processes_gone += 1,
            Outcome::Fenced { .. } => counted.trees_fenced += 1,
            Outcome::StoppingPart { .. } => counted.stops_in_parts += 1,
            Outcome::StoppingTree { stops } => {
                let timed_out = |(_, stop): &(Slot, Stop)| stop.cause == Cause::Timeout;
                counted.processes_timed_out += u64::from(stops.iter().any(timed_out));
                counted.trees_stopped_with_records += 1;
            }
            Outcome::Service(turn) => {
                if let Some(outcome) = &turn.process {
                    Self::count(message, outcome, counted);
                }
                let ends = turn.process.is_some();
                for step in &turn.steps {
                    count_step(step, ends, counted);
                }
            }
            Outcome::Noticed { .. } => {
                counted.services_ready += u64::from(is_ready(message));
            }
            Outcome::Child(_) => counted.hook_children += 1,
            Outcome::Found { .. } => counted.hooks_read += 1,
            Outcome::Stuck { .. } => counted.trees_stuck += 1,
            Outcome::Known { .. }
            | Outcome::Serving(_)
            | Outcome::Renewed { .. }
            | Outcome::Taken
            | Outcome::Declined(_)
            | Outcome::Unchanged
            | Outcome::Contradicted
            | Outcome::Refused(_) => {}
        }
    }

    fn may_be_refused(message: &Message) -> bool {
        matches!(
            message,
            Message::Launch(_)
                | Message::Begin { .. }
                | Message::LaunchAs(_)
                | Message::Register(_)
                | Message::Signal { .. }
                | Message::Service(ServiceMessage::Configure(_))
        )
    }

    fn is_disk_full(reply: &Reply) -> bool {
        *reply == Reply::Refused(Refused::DiskFull)
    }
}

fn is_ready(message: &Message) -> bool {
    matches!(message, Message::Notice { notice: Notice::Ready, .. })
}
