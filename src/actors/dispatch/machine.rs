//! The machine of the `DispatchActor`: the interface between the rules of dispatch and the host, which runs the machine.

use crate::actors::dispatch::message::{Message, PRUNED_MAX, Query, Reply, Rules, Watch};
use crate::actors::dispatch::outcome::{Outcome, Step, TaskStep};
use crate::actors::dispatch::state::{Page, State};
use crate::actors::dispatch::task::RunStatus;
use crate::clock::{Offset, Timestamp};
use crate::ids::{ActorId, Digest, PageId, Seq, Slot, Ticket};
use crate::lookup::pages::Pages;
use crate::spine::machine::{
    Durability, Effects, Machine, Moment, Never, Now, Paged, Request, SpaceEffect, Stamp, Start,
    Timed,
};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of tasks, or of groups, in one list.
pub(super) const LISTED_MAX: u32 = 1000;

/// The maximum number of tasks visited to build one list.
pub(super) const LOOKED_AT_MAX: usize = 8192;

/// The timer item that is due while a task is ready and a thread is free. Lower item numbers are the slots of tasks.
const DISPATCH: u64 = 1 << 32;

/// The dispatch machine: all tasks, servers and groups, and the rules that change them.
#[derive(Debug)]
pub struct DispatchMachine {
    pub(super) rules: Rules,
    pub(super) state: State,
    /// Clients waiting until a task is over, by the id of the task.
    waiting: BTreeSet<(u64, Ticket)>,
    /// The id of the task that each client in `waiting` waits for.
    tickets: BTreeMap<Ticket, u64>,
    /// Clients waiting until no attempt is running.
    idle: BTreeSet<Ticket>,
    /// Clients waiting until an update of the servers is needed, see [`Watch::ServersWanted`].
    waiting_for_servers: BTreeSet<Ticket>,
    /// Whether a decision about the next burst panicked. If so, no burst begins until the state or the rules change, or the coordinator
    /// restarts.
    stalled: bool,
    /// Whether the disk is low on space. If so, no burst begins: the record of its process would be refused, and meanwhile the task would
    /// occupy a thread, a place in its group and its locks.
    disk_low: bool,
}

impl DispatchMachine {
    fn with_state(rules: Rules, mut state: State) -> Self {
        state.set_rules(&rules);
        Self {
            rules,
            state,
            waiting: BTreeSet::new(),
            tickets: BTreeMap::new(),
            idle: BTreeSet::new(),
            waiting_for_servers: BTreeSet::new(),
            stalled: false,
            disk_low: false,
        }
    }

    /// Returns when the next burst can begin; `None` if none can before something changes.
    fn dispatches_at(&self) -> Option<Timestamp> {
        let coming = self.state.coming(self.rules.tasks_per_thread);
        let coming = coming.filter(|_| !self.stalled && !self.disk_low);
        coming.map(|(at, _, _)| at)
    }

    /// Answers the waiting clients whose condition is now met.
    fn wake(&mut self, steps: &[Step], effects: &mut Effects<Self>) {
        if self.state.totals().processing == 0 {
            for ticket in std::mem::take(&mut self.idle) {
                effects.wake(ticket, Reply::Totals(self.state.totals()));
            }
        }
        if self.state.lacks_servers() || steps.iter().any(Step::blames_server) {
            for ticket in std::mem::take(&mut self.waiting_for_servers) {
                effects.wake(ticket, Reply::Done);
            }
        }
        if self.waiting.is_empty() {
            return;
        }
        for step in steps {
            if let Step::Task(slot, TaskStep::Ended { .. } | TaskStep::Over { .. }) = step
                && let Some(task) = self.state.tasks.get(*slot)
                && task.status == RunStatus::Complete
            {
                let id = task.id;
                let range = (id, Ticket(0))..=(id, Ticket(u64::MAX));
                let tickets: Vec<_> = self.waiting.range(range).copied().collect();
                for (id, ticket) in tickets {
                    self.waiting.remove(&(id, ticket));
                    self.tickets.remove(&ticket);
                    effects.wake(ticket, self.shown(*slot));
                }
            }
        }
    }

    pub(super) fn shown(&self, slot: Slot) -> Reply {
        self.view_of(slot).map_or(Reply::Absent, |view| Reply::Task(Box::new(view)))
    }
}

#[cfg(test)]
impl DispatchMachine {
    /// Asserts that the state is consistent.
    pub(super) fn assert_whole(&self) {
        self.state.assert_whole();
    }
}

impl Machine for DispatchMachine {
    const NAME: &'static str = "dispatch";
    const ID: ActorId = ActorId::DISPATCH;

    type Rules = Rules;
    type Message = Message;
    type Outcome = Outcome;
    type Query = Query;
    type Reply = Reply;
    type Watch = Watch;
    type Action = Never;

    fn new(rules: Rules) -> Self {
        Self::with_state(rules, State::default())
    }

    fn set_rules(&mut self, rules: Rules) {
        self.state.set_rules(&rules);
        self.rules = rules;
        self.stalled = false;
    }

    fn decide(&self, moment: &Moment, message: &Message) -> Outcome {
        self.decision(moment, message)
    }

    fn durability(&self, _message: &Message, outcome: &Outcome) -> Durability {
        match outcome {
            Outcome::Changed { .. } => Durability::Durable,
            Outcome::Absent | Outcome::Unchanged | Outcome::Refused(_) => Durability::Nothing,
        }
    }

    fn commit(
        &mut self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        effects: &mut Effects<Self>,
    ) {
        let Outcome::Changed { steps, .. } = outcome else {
            return;
        };
        self.stalled = false;
        for step in steps {
            self.apply(entry, message, step, effects);
        }
        self.wake(steps, effects);
    }

    fn reply(&self, _seq: Seq, message: &Message, outcome: &Outcome) -> Reply {
        let steps = match outcome {
            Outcome::Absent => return Reply::Absent,
            Outcome::Refused(refused) | Outcome::Changed { refused: Some(refused), .. } => {
                return Reply::Refused(*refused);
            }
            Outcome::Changed { steps, .. } => steps.as_slice(),
            Outcome::Unchanged => &[],
        };
        match message {
            Message::Act { task, .. } => {
                let found = self.state.find(*task);
                found.map_or(Reply::Absent, |(slot, _)| self.shown(slot))
            }
            Message::Report { process, .. } => {
                let found = self.state.of_process(*process);
                found.map_or(Reply::Absent, |(slot, _)| self.shown(slot))
            }
            Message::Add(_) => {
                let slot_of = |step: &Step| {
                    if let Step::Task(slot, TaskStep::Added { .. }) = step {
                        Some(*slot)
                    } else {
                        None
                    }
                };
                let added = steps.iter().find_map(slot_of);
                added.map_or(Reply::Absent, |slot| self.shown(slot))
            }
            Message::Inventory { .. } => Self::reconciled(steps),
            Message::Prune { keep, limit, .. } => {
                let pruned = u32::try_from(steps.len()).unwrap_or(u32::MAX);
                Reply::Pruned(pruned, self.has_more(*keep, *limit, pruned))
            }
            Message::Pause { .. }
            | Message::Limit { .. }
            | Message::Server { .. }
            | Message::Gone(_)
            | Message::Launched(_)
            | Message::Held(_)
            | Message::Lapse { .. }
            | Message::Dispatch => Reply::Done,
        }
    }

    fn query(&self, now: Now, query: &Query) -> Reply {
        match query {
            Query::Task(id) => {
                let found = self.state.find(*id);
                found.map_or(Reply::Absent, |(slot, _)| self.shown(slot))
            }
            Query::Tasks { filter, after, limit } => {
                Reply::Tasks(Box::new(self.list(filter, *after, *limit)))
            }
            Query::Saved(process) => match self.state.of_process(*process) {
                Some((_, task)) if task.attempt_of(*process).is_some() => {
                    let saved = task.saved.as_ref().map(|it| it.body.clone());
                    Reply::Saved(task.revision, saved)
                }
                Some(_) | None => Reply::Absent,
            },
            Query::Servers => Reply::Servers(self.servers()),
            Query::Inventory(hosts) => match self.inventory(hosts) {
                Ok(Outcome::Changed { steps, .. }) => Self::reconciled(&steps),
                Ok(Outcome::Absent | Outcome::Unchanged | Outcome::Refused(_)) => {
                    Self::reconciled(&[])
                }
                Err(refused) => Reply::Refused(refused),
            },
            Query::Groups => Reply::Groups(self.groups()),
            Query::Totals => Reply::Totals(self.state.totals()),
            Query::Terms => Reply::Terms(self.rules.terms),
            Query::Active { most } => Reply::Tasks(Box::new(self.active(*most))),
            Query::WorkInProgress => Reply::WorkInProgress(Box::new(self.work_in_progress(now))),
        }
    }

    fn cost(asked: Request<'_, Self>) -> usize {
        match asked {
            Request::Query(Query::Tasks { .. } | Query::Active { .. }) => LOOKED_AT_MAX / 8,
            Request::Query(
                Query::Servers | Query::Groups | Query::Inventory(_) | Query::WorkInProgress,
            ) => LISTED_MAX as usize,
            Request::Message(Message::Prune { limit, .. }) => 1 + (*limit).min(PRUNED_MAX) as usize,
            Request::Query(_) | Request::Message(_) | Request::Watch(_) => 1,
        }
    }

    fn space_effect(&self, message: &Message) -> SpaceEffect {
        match message {
            Message::Add(_) | Message::Inventory { .. } | Message::Server { .. } => {
                SpaceEffect::Adds
            }
            Message::Limit { .. } | Message::Pause { .. } | Message::Report { .. } => {
                SpaceEffect::Keeps
            }
            Message::Act { .. }
            | Message::Prune { .. }
            | Message::Gone(_)
            | Message::Launched(_)
            | Message::Held(_)
            | Message::Lapse { .. }
            | Message::Dispatch => SpaceEffect::Frees,
        }
    }

    fn watch(&mut self, ticket: Ticket, watch: &Watch, effects: &mut Effects<Self>) {
        match watch {
            Watch::Idle if self.state.totals().processing == 0 => {
                effects.wake(ticket, Reply::Totals(self.state.totals()));
            }
            Watch::Idle => {
                self.idle.insert(ticket);
            }
            Watch::ServersWanted if self.state.lacks_servers() => {
                effects.wake(ticket, Reply::Done);
            }
            Watch::ServersWanted => {
                self.waiting_for_servers.insert(ticket);
            }
            Watch::Over(id) => match self.state.find(*id) {
                Some((_, task)) if task.status != RunStatus::Complete => {
                    self.waiting.insert((*id, ticket));
                    self.tickets.insert(ticket, *id);
                }
                Some((slot, _)) => effects.wake(ticket, self.shown(slot)),
                None => effects.wake(ticket, Reply::Absent),
            },
        }
    }

    fn unwatch(&mut self, ticket: Ticket) {
        self.idle.remove(&ticket);
        self.waiting_for_servers.remove(&ticket);
        if let Some(id) = self.tickets.remove(&ticket) {
            self.waiting.remove(&(id, ticket));
        }
    }

    /// Handles the startup of the coordinator. Attempts continue while the coordinator is down, and their time limits are not extended.
    /// Heartbeats cannot be received during that time, so heartbeat intervals start again.
    fn start(&mut self, start: Start) {
        self.stalled = false;
        self.state.start(start);
    }

    /// Repeats the outstanding requests to other actors, since a request or its answer may have been lost.
    fn resume(&mut self, effects: &mut Effects<Self>) {
        for slot in &self.state.index.bound {
            self.send_obligations(*slot, effects);
        }
    }
}

impl Timed for DispatchMachine {
    fn deadline(&self, offset: Offset) -> Option<Timestamp> {
        let both = [self.dispatches_at(), self.state.tasks.deadline(offset)];
        both.into_iter().flatten().min()
    }

    fn due(&mut self, now: Now) -> Option<u64> {
        let task = self.state.tasks.due(now);
        let task = task.map(|(_, slot)| u64::from(slot.0));
        let dispatches = self.dispatches_at().filter(|at| *at <= now.at);
        task.or_else(|| dispatches.map(|_| DISPATCH))
    }

    fn tick(&self, item: u64) -> Message {
        if item >= DISPATCH {
            return Message::Dispatch;
        }
        let slot = slot_of(item);
        Message::Lapse { slot }
    }

    fn hold_removals(&mut self, held: bool) {
        self.state.tasks.hold_removals(held);
    }

    fn hold_for_space(&mut self, held: bool) {
        self.disk_low = held;
    }

    fn is_quarantined(&self, item: u64) -> bool {
        if item >= DISPATCH { self.stalled } else { self.state.tasks.is_quarantined(slot_of(item)) }
    }

    fn quarantine(&mut self, item: u64, now: Now) {
        if item >= DISPATCH {
            self.stalled = true;
        } else {
            self.state.tasks.quarantine(slot_of(item), now);
        }
    }
}

fn slot_of(item: u64) -> Slot {
    Slot(u32::try_from(item).expect("items should be slots"))
}

impl Paged for DispatchMachine {
    type Page = Page;

    fn pages(&mut self) -> &mut Pages {
        &mut self.state.pages
    }

    fn encode_page(&self, page: PageId, content: &mut Vec<u8>) {
        self.state.encode_page(page, content);
    }

    fn decode_page(page: PageId, content: &[u8]) -> Result<Page, String> {
        Page::decode(page, content)
    }

    fn from_pages(rules: Rules, pages: &mut dyn Iterator<Item = Page>) -> Self {
        Self::with_state(rules, State::from_pages(pages))
    }

    fn digest(&self) -> Digest {
        self.state.digest()
    }
}
