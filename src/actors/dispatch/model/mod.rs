//! A model of dispatch, implemented with plain lists and without indexes. The unit tests in `dispatch/tests/` and the simulation in
//! `tests/sim/dispatch/` compare the machine with it. The simulation compiles these files too, so they refer to the library by its crate
//! name. The model and the machine share the types of messages, state and views, but no rules.
//!
//! | file | holds |
//! |---|---|
//! | `tasks.rs` `attempt.rs` | requests about tasks, and reports from commands; the events of attempts |
//! | `setting.rs` | settings of operators, and inventories |
//! | `next.rs` `look.rs` | the next task, and why other tasks do not begin; answers to queries |
//! | `notification.rs` | messages to other actors |

mod attempt;
mod look;
mod next;
mod notification;
mod setting;
mod tasks;

pub(crate) use next::Item;
pub(crate) use notification::Notification;
use sexton::actors::dispatch::{
    Group, Message, Pause, Refused, Reply, Rules, RunStatus, Server, Task,
};
use sexton::clock::{Date, Now, Timestamp};
use sexton::ids::{ProcessId, Seq, Slot};

/// The journal entry of a message, with the values that the model takes from the machine and its host.
#[derive(Clone, Copy, Default)]
pub(crate) struct Entry {
    pub(crate) seq: Seq,
    pub(crate) now: Now,
    /// The id of the process that the message launches, if it launches one.
    pub(crate) process: Option<ProcessId>,
    /// Whether the coordinator is draining.
    pub(crate) draining: bool,
}

/// All durable state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) tasks: Vec<(Slot, Task)>,
    pub(crate) servers: Vec<(Slot, Server)>,
    pub(crate) groups: Vec<Group>,
    pub(crate) pause: Pause,
    had_servers: bool,
    rests: bool,
    epoch: Timestamp,
}

/// The model of the machine, with its durable state and its volatile state.
#[derive(Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent of each other")]
pub(crate) struct Model {
    rules: Rules,
    pub(crate) state: State,
    /// Tasks for which handling a deadline panicked. Their deadlines are ignored until the task changes.
    stuck: Vec<Slot>,
    /// Whether the decision about the next burst panicked. If so, no burst begins until the state changes.
    stalled: bool,
    /// Whether the wall clock is in doubt. While it is, no task is forgotten because of its age.
    pub(crate) held: bool,
    /// Whether the disk is low on space. While it is, no burst begins.
    pub(crate) disk_low: bool,
    /// Whether an attempt has failed because of its server since the flag was last reset.
    pub(crate) troubled: bool,
    /// The messages sent to other actors since this list was last taken.
    pub(crate) messages: Vec<Notification>,
}

/// The result of a message: the reply, and whether anything changed.
pub(crate) type Applied = (Reply, bool);

/// The result of a message, or why it is refused.
type ApplyResult = Result<Applied, Refused>;

/// Returns the lowest free slot.
fn free_slot<T>(taken: &[(Slot, T)]) -> Slot {
    let is_free = |slot: &u32| taken.iter().all(|(its, _)| its.0 != *slot);
    let slot = (0..u32::MAX).find(is_free);
    Slot(slot.expect("there are more slots than items"))
}

impl Model {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Applies a message. Returns the reply, and whether anything changed.
    pub(crate) fn send(&mut self, message: &Message, entry: Entry) -> Applied {
        let done = match message {
            Message::Add(asked) => self.add(asked, entry),
            Message::Act { task, act } => self.act(*task, *act, entry),
            Message::Report { process, report, nth } => {
                self.report(*process, (report, *nth), entry)
            }
            Message::Pause { group, pause } => self.pause(group.as_ref(), *pause),
            Message::Limit { group, max } => self.set_group(group, Some(*max), None),
            Message::Server { name, change } => self.change_server(name, change),
            Message::Inventory { hosts } => self.reconcile(hosts),
            Message::Prune { before, keep, limit } => {
                Ok(self.prune(*before, (*keep, *limit), entry))
            }
            Message::Gone(gone) => Ok((Reply::Done, self.gone(*gone, entry))),
            Message::Launched(process) => Ok((Reply::Done, self.launched(*process, entry))),
            Message::Held(held) => Ok((Reply::Done, self.held(held, entry))),
            Message::Lapse { slot } => Ok((Reply::Done, self.lapse(*slot, entry))),
            Message::Dispatch => Ok((Reply::Done, self.begin(entry))),
        };
        let (reply, changed) = done.unwrap_or_else(|refused| (Reply::Refused(refused), false));
        self.stalled &= !changed;
        (reply, changed)
    }

    /// Handles the startup of the coordinator: heartbeat intervals start again, and bursts may begin.
    pub(crate) fn start(&mut self, at: Timestamp) {
        self.state.epoch = at;
        self.state.rests = false;
        self.recover();
    }

    /// Handles a rebuild of the machine: no deadline is ignored any more, and bursts may begin.
    pub(crate) fn recover(&mut self) {
        self.stuck.clear();
        self.stalled = false;
    }

    /// Returns whether the deadline of any task is ignored, because handling it panicked.
    pub(crate) fn is_stuck(&self) -> bool {
        !self.stuck.is_empty()
    }

    pub(crate) fn find(&self, id: u64) -> Option<(Slot, &Task)> {
        let mut tasks = self.state.tasks.iter();
        let found = tasks.find(|(_, task)| task.id == id);
        found.map(|(slot, task)| (*slot, task))
    }

    pub(crate) fn task(&self, slot: Slot) -> Option<&Task> {
        let mut tasks = self.state.tasks.iter();
        tasks.find(|(its, _)| *its == slot).map(|(_, task)| task)
    }

    /// Returns a task for modification. Its deadline is no longer ignored.
    fn at(&mut self, slot: Slot) -> &mut Task {
        self.stuck.retain(|it| *it != slot);
        let mut tasks = self.state.tasks.iter_mut();
        let found = tasks.find(|(its, _)| *its == slot);
        found.map(|(_, task)| task).expect("the task exists")
    }

    fn forget(&mut self, slot: Slot) {
        self.abandon_cleanup(slot);
        self.stuck.retain(|it| *it != slot);
        self.state.tasks.retain(|(its, _)| *its != slot);
    }

    fn named_server(&self, name: &sexton::actors::lock::Name) -> Option<(Slot, &Server)> {
        let mut servers = self.state.servers.iter();
        let found = servers.find(|(_, server)| server.name == *name);
        found.map(|(slot, server)| (*slot, server))
    }

    /// Counts the attempts that run on a server.
    fn used(&self, server: Slot) -> u32 {
        let attempts = self.state.tasks.iter();
        let attempts = attempts.filter_map(|(_, task)| task.attempt.as_ref());
        count(attempts.filter(|it| it.server == server))
    }

    /// Returns the end time and the slot of each task that is over, the oldest first.
    fn over(&self) -> Vec<(Timestamp, Slot)> {
        let tasks = self.state.tasks.iter();
        let over = tasks.filter(|(_, task)| task.status == RunStatus::Complete);
        let mut over: Vec<_> =
            over.map(|(slot, task)| (task.ended.expect("the task has ended"), *slot)).collect();
        over.sort_unstable();
        over
    }

    /// Forgets at most two of the oldest tasks that are over, as long as there are more than `kept_max` of them. The task in slot `than`,
    /// which has just ended, is not forgotten.
    fn make_room(&mut self, than: Slot) {
        for _ in 0..2 {
            let mut over = self.over();
            over.retain(|(_, slot)| *slot != than);
            if over.len() >= self.rules.kept_max as usize
                && let Some((_, oldest)) = over.first()
            {
                self.forget(*oldest);
            }
        }
    }

    fn prune(&mut self, before: Option<Date>, (keep, limit): (u32, u32), entry: Entry) -> Applied {
        let over = self.over();
        let before = before.map_or(entry.now.at, |date| entry.now.offset.time(date));
        let old = over.len().saturating_sub(keep as usize);
        let old = over.iter().take(old).filter(|(at, _)| *at < before);
        let gone: Vec<Slot> = old.take(limit.min(1000) as usize).map(|(_, slot)| *slot).collect();
        for slot in &gone {
            self.forget(*slot);
        }
        let is_all_that_may = gone.len() as u64 == u64::from(limit.min(1000));
        let more = is_all_that_may && !gone.is_empty() && self.over().len() > keep as usize;
        (Reply::Pruned(count(gone.iter()), more), !gone.is_empty())
    }
}

fn count<T>(all: impl Iterator<Item = T>) -> u32 {
    u32::try_from(all.count()).expect("the model is small")
}
