//! The machine paired with its model.

use super::coverage::{Coverage, has_reason};
use super::steps::Doing;
use crate::actors::dispatch::model::{Entry, Item, Model, Notification, State};
use crate::actors::dispatch::{
    DispatchMachine, Message, Outcome, Query, Reply, Rules, RunStatus, Step, TaskFilter, TaskStep,
    TaskView, Terms, Watch,
};
use crate::actors::lock::{self, LockState, Name};
use crate::actors::{binding, process};
use crate::clock::{Offset, Timestamp};
use crate::ids::{ActorId, ProcessId, Seq, Ticket, Token};
use crate::spine::effect::Effect;
use crate::spine::machine::{
    Draining, Durability, Effects, Machine as _, Moment, Now, Observable as _, Paged as _, Stamp,
    Start, Timed as _,
};
use crate::spine::shelf::Shelf;

const BEGIN: u64 = 1_000_000_000_000;

/// Returns rules with limits so small that each is reached.
pub(super) fn rules() -> Rules {
    Rules {
        tasks_max: 7,
        servers_max: 3,
        groups_max: 2,
        local_threads: 2,
        tasks_per_thread: 2,
        saved_bytes_max: 4,
        kept_ms: 40_000,
        lost_after_ms: 900,
        kept_max: 3,
        terms: Terms { fail_after_ms: 20_000, ..Terms::default() },
        group_max: 3,
        ..Rules::default()
    }
}

/// The machine under test, its model, and the log of committed entries.
pub(super) struct Pair {
    machine: DispatchMachine,
    model: Model,
    now: u64,
    /// How far the wall clock is ahead of node time, in milliseconds.
    offset: i64,
    seq: u64,
    draining: bool,
    /// Whether the next tick counts as having panicked.
    trap: bool,
    log: Vec<Logged>,
    shelf: Shelf<DispatchMachine>,
    waits: Vec<(Ticket, Watch)>,
    tickets: u64,
    /// The latest requests to the lock actor. A step that answers a request picks one of them.
    holds: Vec<LockState>,
    pub(super) met: Coverage,
}

enum Logged {
    Entry(Stamp, Message, Outcome),
    Start(Start),
}

impl Logged {
    /// Commits the entry to a machine if its number is greater than `after`.
    fn repeat(&self, machine: &mut DispatchMachine, after: Seq) {
        match self {
            Self::Entry(stamp, message, outcome) if stamp.seq > after => {
                let mut effects = Effects::<DispatchMachine>::default();
                machine.commit(*stamp, message, outcome, &mut effects);
            }
            Self::Start(start) if start.stamp.seq > after => machine.start(*start),
            Self::Entry(..) | Self::Start(_) => {}
        }
    }
}

fn shown(machine: &DispatchMachine) -> String {
    let now = Now::default();
    let rest = [Query::Servers, Query::Groups, Query::Totals];
    let rest = rest.map(|query| machine.query(now, &query));
    format!("{:?} {rest:?}", machine.view())
}

/// Returns the id of the process that an outcome launches, if any.
fn process_of(outcome: &Outcome) -> Option<ProcessId> {
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

impl Pair {
    pub(super) fn new() -> Self {
        Self {
            machine: DispatchMachine::new(rules()),
            model: Model::new(rules()),
            now: BEGIN,
            offset: 0,
            seq: 0,
            draining: false,
            trap: false,
            log: Vec::new(),
            shelf: Shelf::new(rules(), shown),
            waits: Vec::new(),
            tickets: 0,
            holds: Vec::new(),
            met: Coverage::default(),
        }
    }

    fn both(&self) -> Now {
        Now { at: Timestamp(self.now), offset: Offset(self.offset) }
    }

    /// Makes the machine decide on a message twice, which must give the same outcome; commits and logs the outcome like the host; and
    /// asserts that the model gives the same result.
    fn send(&mut self, message: Message) {
        let moment = Moment {
            seq: Seq(self.seq + 1),
            now: self.both(),
            draining: if self.draining { Draining::All } else { Draining::No },
            ..Moment::default()
        };
        let outcome = self.machine.decide(&moment, &message);
        let again = self.machine.decide(&moment, &message);
        assert_eq!(outcome, again, "deciding changes nothing");
        let entry = Entry {
            seq: moment.seq,
            now: moment.now,
            process: process_of(&outcome),
            draining: self.draining,
        };
        let before = self.model.state.clone();
        let (right, changes) = self.model.send(&message, entry);
        let durability = self.machine.durability(&message, &outcome);
        assert_eq!(
            changes,
            durability == Durability::Durable,
            "machine and model agree on whether {message:?} changes anything: {outcome:?}"
        );
        let reply = if changes {
            self.seq += 1;
            let stamp = moment.stamp();
            let mut effects = Effects::<DispatchMachine>::default();
            self.machine.commit(stamp, &message, &outcome, &mut effects);
            self.receive(&mut effects);
            self.machine.reply(moment.seq, &message, &outcome)
        } else {
            assert_eq!(before, self.model.state, "nothing changed");
            self.machine.reply(Seq(0), &message, &outcome)
        };
        assert_eq!(reply, right, "machine and model reply alike to {message:?}");
        self.note_change(&before, &outcome);
        self.met.note_reply(&reply);
        self.met.note_outcome(&outcome);
        if changes {
            self.log.push(Logged::Entry(moment.stamp(), message, outcome));
        }
    }

    /// Notes the cases that can only be recognised from the state before the message.
    fn note_change(&mut self, before: &State, outcome: &Outcome) {
        let Outcome::Changed { steps, .. } = outcome else {
            return;
        };
        for step in steps {
            if let Step::ServerMade { name, .. } = step
                && before.servers.iter().any(|(_, it)| it.name == *name)
            {
                self.met.note("server came back");
            }
            if let Step::Task(slot, TaskStep::Woken(_)) = step
                && let Some((_, task)) = before.tasks.iter().find(|(its, _)| its == slot)
                && task.attempt.is_some()
            {
                self.met.note("woken during a burst");
            }
        }
    }

    /// Checks that the machine notifies other actors, and answers waiting clients, as the model does.
    fn receive(&mut self, effects: &mut Effects<DispatchMachine>) {
        let (mut locks, mut processes) = (Vec::new(), Vec::new());
        for effect in effects.take() {
            match effect {
                Effect::Wake(ticket, reply) => {
                    let wait = self.waits.iter().position(|(its, _)| *its == ticket);
                    let (_, watch) = self.waits.remove(wait.expect("the ticket belongs to a wait"));
                    assert_eq!(Some(reply), self.model.wakes(&watch));
                    self.met.note(match watch {
                        Watch::ServersWanted => "client told that servers are wanted",
                        Watch::Over(_) | Watch::Idle => "client told that its wait is over",
                    });
                }
                Effect::Tell(ActorId::LOCK, message) => {
                    let told: lock::Message =
                        rmp_serde::from_slice(&message).expect("the bytes decode as a message");
                    self.note_hold(&told);
                    locks.push(told);
                }
                Effect::Tell(to, message) => {
                    assert_eq!(to, ActorId::PROCESS);
                    let told: process::Message =
                        rmp_serde::from_slice(&message).expect("the bytes decode as a message");
                    processes.push(told);
                }
                Effect::Act(_) => unreachable!("the dispatch machine requests no actions"),
            }
        }
        let (mut right_of_locks, mut right_of_processes) = (Vec::new(), Vec::new());
        for told in self.model.messages.drain(..) {
            match told {
                Notification::Lock(told) => right_of_locks.push(told),
                Notification::Process(told) => right_of_processes.push(*told),
            }
        }
        assert_eq!(locks, right_of_locks);
        assert_eq!(processes, right_of_processes);
        for (_, watch) in &self.waits {
            assert_eq!(self.model.wakes(watch), None, "{watch:?} was not woken");
        }
        self.model.troubled = false;
    }

    fn note_hold(&mut self, told: &lock::Message) {
        if let lock::Message::Hold(hold) = told {
            let held = LockState {
                key: hold.key.clone(),
                index: hold.index.clone(),
                owner: hold.owner.clone(),
                granted: true,
            };
            self.holds.push(held);
            let old = self.holds.len().saturating_sub(8);
            self.holds.drain(..old);
        }
    }

    /// Handles all items that are due, as the host does before each message.
    fn let_time_act(&mut self) {
        for _ in 0..100 {
            let due = self.machine.due(self.both());
            let item = due.and_then(|due| Item::of(&self.machine.tick(due)));
            assert_eq!(
                item,
                self.model.due(self.both()),
                "machine and model agree on the first due item"
            );
            let (Some(item), Some(due)) = (item, due) else {
                self.check_deadline();
                return;
            };
            let said = self.machine.deadline(Offset(self.offset));
            assert!(said.is_some_and(|said| said.0 <= self.now), "{said:?}");
            if std::mem::take(&mut self.trap) {
                let now = self.both();
                self.machine.quarantine(due, now);
                assert!(self.machine.is_quarantined(due));
                self.model.quarantine(item);
                self.met.note("quarantined");
                continue;
            }
            let before = self.seq;
            self.send(self.machine.tick(due));
            assert!(self.seq > before, "a tick changes something");
            self.compare();
        }
        panic!("items are still due after 100 ticks");
    }

    /// Checks that nothing is due before the reported deadline.
    fn check_deadline(&self) {
        let said = self.machine.deadline(Offset(self.offset));
        let offset = Offset(self.offset);
        for ms in [1, 1000, 30_000, 100_000] {
            let at = Timestamp(self.now + ms);
            if self.model.due(Now { at, offset }).is_some() {
                assert!(said.is_some_and(|said| said <= at), "{said:?}, not {at}");
            }
        }
    }

    pub(super) fn step(&mut self, doing: Doing) {
        self.let_time_act();
        match doing {
            Doing::Send(message) => self.send(message),
            Doing::Act(nth, act) => {
                let task = self.nth_task(nth, |_| true).map_or(9999, |it| it.id);
                self.send(Message::Act { task, act });
            }
            Doing::Report(place, report, nth) => {
                let process = self.nth_process(place);
                self.send(Message::Report { process, report, nth });
            }
            Doing::Gone(nth, until, exit) => {
                let process = self.nth_process(nth);
                let gone = binding::EndNotice { process, until, exit, pid: None };
                self.send(Message::Gone(gone));
            }
            Doing::Launched(nth) => {
                let process = self.nth_process(nth);
                self.send(Message::Launched(process));
            }
            Doing::Held(nth, granted) => {
                let held = self.holds.get(nth % self.holds.len().max(1)).cloned();
                if let Some(held) = held {
                    self.send(Message::Held(LockState { granted, ..held }));
                }
            }
            Doing::Run(nth) => self.run(nth),
            Doing::Stray(key, index, owner) => {
                let held = LockState { key, index, owner, granted: true };
                self.send(Message::Held(held));
            }
            Doing::Pass(ms) => self.now += ms,
            Doing::Jump(ms) => self.offset += ms,
            Doing::Drain => self.draining = true,
            Doing::Start => self.start(),
            Doing::Resume => self.resume(),
            Doing::Trap => self.trap = true,
            Doing::Hold(held) => self.hold_removals(held),
            Doing::DiskLow(disk_low) => self.set_disk_low(disk_low),
            Doing::Watch(nth) => self.watch(nth),
            Doing::Unwatch => {
                if let Some((ticket, _)) = self.waits.pop() {
                    self.machine.unwatch(ticket);
                }
            }
            Doing::Checkpoint => {
                let taken = self.shelf.taken;
                self.shelf.step(&mut self.machine, Seq(self.seq));
                if self.shelf.taken > taken {
                    self.met.note("taken a checkpoint");
                }
            }
            Doing::Reload => self.reload(),
        }
        self.compare();
    }

    fn hold_removals(&mut self, held: bool) {
        self.machine.hold_removals(held);
        self.model.held = held;
    }

    /// Sets whether the disk is low on space.
    fn set_disk_low(&mut self, disk_low: bool) {
        self.machine.hold_for_space(disk_low);
        self.model.disk_low = disk_low;
        self.met.note("disk low");
    }

    /// Grants an attempt its locks, and accepts its launch.
    fn run(&mut self, nth: usize) {
        let claimed = self.nth_task(nth, |task| task.attempt.is_some());
        let Some(attempt) = claimed.and_then(|it| Some((it.id, it.attempt?))) else {
            return;
        };
        let (id, attempt) = attempt;
        for key in ["wip-pool-lock-execute", "wip-pool-lock-update"] {
            let name = |text: &str| Name::try_from(text).expect("the name is short");
            self.send(Message::Held(LockState {
                key: name(key),
                index: name(&id.to_string()),
                owner: name(&format!("attempt-{}", attempt.token)),
                granted: true,
            }));
            self.let_time_act();
        }
        self.send(Message::Launched(attempt.process));
    }

    fn nth_task(
        &self,
        nth: usize,
        is: impl Fn(&crate::actors::dispatch::Task) -> bool,
    ) -> Option<crate::actors::dispatch::Task> {
        let tasks = self.model.state.tasks.iter().map(|(_, task)| task);
        let tasks: Vec<_> = tasks.filter(|task| is(task)).collect();
        tasks.get(nth % tasks.len().max(1)).map(|it| (*it).clone())
    }

    /// Returns the process of an attempt or a cleanup; for 0, a process that belongs to neither.
    fn nth_process(&self, nth: usize) -> ProcessId {
        let tasks = self.model.state.tasks.iter().map(|(_, task)| task);
        let mut all = vec![ProcessId(7)];
        for task in tasks {
            all.extend(task.attempt.as_ref().map(|it| it.process));
            all.extend(task.cleaning.map(|it| it.process));
        }
        let last = all.len() - 1;
        let place = if nth == 0 { 0 } else { 1 + nth % last.max(1) };
        all.get(place).copied().unwrap_or_default()
    }

    fn start(&mut self) {
        // A restart takes time, so the clock must have moved on.
        self.now += 1;
        self.seq += 1;
        let stamp = Stamp { seq: Seq(self.seq), at: Timestamp(self.now) };
        let start = Start { stamp, skipped: 0 };
        self.machine.start(start);
        self.model.start(stamp.at);
        self.draining = false;
        self.log.push(Logged::Start(start));
        self.resume();
    }

    /// Checks that `resume` sends all outstanding requests again.
    fn resume(&mut self) {
        let mut effects = Effects::<DispatchMachine>::default();
        self.machine.resume(&mut effects);
        self.model.tell_all();
        self.receive(&mut effects);
    }

    fn watch(&mut self, nth: usize) {
        let task = self.nth_task(nth, |_| true);
        let over = task.map(|it| Watch::Over(it.id));
        let watch = match nth {
            0 => Watch::Idle,
            1 => Watch::ServersWanted,
            _ => over.unwrap_or(Watch::Idle),
        };
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.waits.push((ticket, watch));
        let mut effects = Effects::<DispatchMachine>::default();
        self.machine.watch(ticket, &watch, &mut effects);
        self.receive(&mut effects);
    }

    /// Compares the answers to all queries, and checks all invariants.
    fn compare(&mut self) {
        // The deadline of a quarantined task is not in the index, so the assertion would fail.
        if !self.model.is_stuck() {
            self.machine.assert_whole();
        }
        let views = self.machine.view();
        assert_eq!(views, self.model.views());
        for view in &views {
            self.met.note_view(view);
            assert!(has_reason(view), "a failed task gives no reason: {view:?}");
        }
        Self::check_promises(&views);
        let now = self.both();
        let mut standing = self.machine.query(now, &Query::WorkInProgress);
        if let Reply::WorkInProgress(standing) = &mut standing {
            // The host handles due items before each query, so no task is late in its replies. This test does not, so the flag is cleared.
            standing.tasks.iter_mut().for_each(|it| it.late = false);
        }
        assert_eq!(standing, self.model.answer(&Query::WorkInProgress));
        let mut queries = vec![Query::Servers, Query::Groups, Query::Totals, Query::Terms];
        queries.extend([1, 100].map(|most| Query::Active { most }));
        let filter = |status, group: Option<&Name>, work: Option<&Name>| TaskFilter {
            status,
            group: group.cloned(),
            work: work.cloned(),
        };
        let first = views.first().map(|it| it.task.clone()).unwrap_or_default();
        for (filter, after) in [
            (filter(None, None, None), None),
            (filter(None, Some(&first.group), None), Some(first.id)),
            (filter(Some(RunStatus::Waiting), None, None), None),
            (filter(None, None, Some(&first.work)), None),
        ] {
            for limit in [0, 2] {
                let filter = filter.clone();
                queries.push(Query::Tasks { filter, after, limit });
            }
        }
        for view in &views {
            let process = view.task.attempt.as_ref().map(|it| it.process);
            queries.push(Query::Task(view.task.id));
            queries.push(Query::Saved(process.unwrap_or_default()));
        }
        for query in queries {
            let answer = self.machine.query(self.both(), &query);
            assert_eq!(answer, self.model.answer(&query), "{query:?}");
        }
    }

    /// Checks the invariants that hold regardless of the rules.
    fn check_promises(views: &[TaskView]) {
        let processing = |it: &&TaskView| it.task.status == RunStatus::Processing;
        let runs = |it: &&TaskView| it.task.attempt.is_some();
        assert!(views.iter().all(|it| processing(&it) == runs(&it)));
        let mut tokens: Vec<Token> =
            views.iter().filter_map(|it| it.task.attempt.as_ref().map(|it| it.token)).collect();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), views.iter().filter(runs).count());
        let works = views.iter().filter(|it| it.task.status.is_under_way());
        let mut works: Vec<&Name> = works.map(|it| &it.task.work).collect();
        works.retain(|it| !it.as_bytes().is_empty());
        let under_way = works.len();
        works.sort_unstable();
        works.dedup();
        assert_eq!(works.len(), under_way, "at most one task with a given work id is under way");
    }

    /// Rebuilds the machine from the latest snapshot and the log entries after it, and compares its state with that of the machine that it
    /// replaces.
    fn reload(&mut self) {
        let (mut machine, upto) = self.shelf.load();
        for logged in &self.log {
            logged.repeat(&mut machine, upto);
        }
        machine.hold_removals(self.model.held);
        machine.hold_for_space(self.model.disk_low);
        machine.assert_whole();
        assert_eq!(machine.digest(), self.machine.digest());
        self.machine = machine;
        self.model.recover();
        self.waits.clear();
        self.resume();
    }

    /// Checks that committing the log to an empty machine with other rules results in the same state.
    pub(super) fn replay(&self) {
        let mut fresh = DispatchMachine::new(Rules {
            tasks_max: 0,
            servers_max: 0,
            groups_max: 0,
            kept_max: 0,
            group_max: 1,
            ..Rules::default()
        });
        for logged in &self.log {
            logged.repeat(&mut fresh, Seq(0));
        }
        fresh.assert_whole();
        assert_eq!(fresh.digest(), self.machine.digest());
        let tasks = |machine: &DispatchMachine| {
            let views = machine.view().into_iter();
            views.map(|it| it.task).collect::<Vec<_>>()
        };
        assert_eq!(tasks(&fresh), tasks(&self.machine));
    }
}
