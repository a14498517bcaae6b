//! The port of processes, one step at a time: its requests, its observations, and its reports. The kernel outlives it.

use super::kernel::{Blindness, Event, Kernel};
use super::machine::Machine;
use crate::chance::Chance;
use crate::setting::Plant;
use crate::violation::{Promise, Violation, ensure};
use sexton::actors::process::{Action, Identity, Message, ProcessMachine, Spec};
use sexton::ids::{ActorId, ProcessId, Seq};
use sexton::ports::process::Follower;
use sexton::spine::effect::{self, Tell};
use std::cell::{RefCell, RefMut};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

/// The port and its surroundings. Cloning gives another handle.
#[derive(Clone)]
pub(crate) struct Port(Rc<RefCell<Room>>);

/// The number of times that each event happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventCounts {
    pub(crate) reboots: u64,
    pub(crate) keepers_killed: u64,
    pub(crate) forks: u64,
    pub(crate) escapes: u64,
    pub(crate) moves: u64,
    pub(crate) headless: u64,
    pub(crate) foreign_ids: u64,
    pub(crate) chains: u64,
    pub(crate) imitations: u64,
    pub(crate) pids_reused: u64,
    pub(crate) descriptors_out: u64,
    pub(crate) events_overtaken: u64,
    pub(crate) events_twice: u64,
    pub(crate) reports_overtaken: u64,
    pub(crate) reports_twice: u64,
    pub(crate) notices: u64,
}

pub(super) struct Room {
    pub(super) follower: Follower<Machine>,
    plant: Option<Plant>,
    /// Requests that the port has not begun.
    asked: VecDeque<(Seq, Action)>,
    /// Entries that requested something, until they are found in the log.
    causes: BTreeSet<Seq>,
    /// Reports that the actor has not received yet.
    reports: VecDeque<Message>,
    /// The first sequence number of this node.
    began: Seq,
    pub(super) met: EventCounts,
    /// Whether processes that survive every signal still do so when everything settles.
    pub(super) keeps_unkillable: bool,
}

impl Port {
    pub(crate) fn new(plant: Option<Plant>) -> Self {
        let mut machine = Machine { plant, ..Machine::default() };
        machine.kernel.blindness = match plant {
            Some(Plant::ThreadsUnseen) => Some(Blindness::Threads),
            Some(Plant::GroupIsAll) => Some(Blindness::OutsideGroup),
            Some(Plant::AnyoneNames) => Some(Blindness::Users),
            Some(Plant::GroupsIgnored) => Some(Blindness::Groups),
            Some(Plant::UnsettledIsEmpty) => Some(Blindness::Forks),
            _ => None,
        };
        Self(Rc::new(RefCell::new(Room {
            follower: Follower::new(machine),
            plant,
            asked: VecDeque::new(),
            causes: BTreeSet::new(),
            reports: VecDeque::new(),
            began: Seq(0),
            met: EventCounts::default(),
            keeps_unkillable: false,
        })))
    }

    pub(super) fn room(&self) -> RefMut<'_, Room> {
        self.0.borrow_mut()
    }

    /// Handles the start or the end of a node. The port loses its state, and the kernel keeps its own.
    pub(crate) fn start(&self, began: Seq) {
        let mut room = self.room();
        let mut machine = std::mem::take(room.follower.world());
        machine.kernel.lose_coordinator();
        machine.kernel.reports.clear();
        machine.alone = None;
        machine.killed_here.clear();
        room.follower = Follower::new(machine);
        room.began = began;
        room.asked.clear();
        room.reports.clear();
    }

    /// Cuts the power, which ends everything that is running.
    pub(crate) fn reboot(&self) {
        let mut room = self.room();
        room.met.reboots += 1;
        room.kernel().reboot();
    }

    /// Advances the kernel's clock by `ms` milliseconds, and sets the wall clock.
    pub(crate) fn pass(&self, ms: u64, wall: u64) {
        let mut room = self.room();
        let kernel = room.kernel();
        kernel.now += ms;
        let wall = i64::try_from(wall).expect("clocks are near today");
        kernel.skew = wall - i64::try_from(kernel.now).expect("clocks are near today");
    }

    /// Takes one step: begins a request, observes an event, or handles what is due. Returns whether there was anything to
    /// do.
    pub(crate) fn step(&self, chance: &mut Chance) -> Result<bool, Violation> {
        let mut room = self.room();
        let now = room.kernel().now;
        let is_due = room.follower.deadline().is_some_and(|at| at <= now);
        let has_events = !room.kernel().events.is_empty();
        let ways = [(!room.asked.is_empty(), 0), (has_events, 1), (is_due, 2)];
        let ways = ways.into_iter().filter(|(is_open, _)| *is_open);
        let ways: Vec<u8> = ways.map(|(_, way)| way).collect();
        if ways.is_empty() {
            return Ok(false);
        }
        match *chance.pick(&ways) {
            0 => room.perform(),
            1 => room.hear(chance),
            _ => room.follower.handle_due(),
        }
        let reports = std::mem::take(&mut room.kernel().reports);
        room.reports.extend(reports);
        let stray = room.follower.world().take_stray();
        ensure(stray.is_none(), Promise::NoStranger, || {
            format!("{stray:?} was sent to a process for which it was not requested")
        })?;
        Ok(true)
    }

    /// Returns the time until the port acts without a request, in milliseconds, or `None`.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let mut room = self.room();
        let now = room.kernel().now;
        let at = room.follower.deadline();
        at.map(|at| at.saturating_sub(now))
    }

    pub(crate) fn is_quiet(&self) -> bool {
        let is_due = self.deadline() == Some(0);
        let mut room = self.room();
        let has_events = !room.kernel().events.is_empty();
        !is_due && !has_events && room.asked.is_empty() && room.reports.is_empty()
    }

    /// Returns the next report in transit to the actor. Reports about one process stay in the order in which the port
    /// sent them. Reports about other processes may overtake them, and some reports arrive twice.
    pub(crate) fn report(&self, chance: Option<&mut Chance>) -> Option<Tell> {
        let mut room = self.room();
        if room.reports.is_empty() {
            return None;
        }
        let (mut at, mut again) = (0, false);
        if let Some(chance) = chance {
            if chance.per_mille(250) {
                at = chance.index(room.reports.len());
                let id = room.reports.get(at).and_then(Message::id);
                let first = room.reports.iter().position(|it| it.id() == id);
                at = first.unwrap_or(0);
                room.met.reports_overtaken += u64::from(at > 0);
            }
            again = chance.per_mille(80);
        }
        let message = room.reports.remove(at)?;
        if again {
            room.met.reports_twice += 1;
            room.reports.push_back(message.clone());
        }
        Some(Tell {
            from: ActorId::PROCESS,
            to: ActorId::PROCESS,
            message: rmp_serde::to_vec(&message).expect("messages encode"),
        })
    }

    /// Checks that every entry that requested something is in the log, unless a power cut may have removed it.
    pub(crate) fn check_asked(
        &self,
        stands: impl Fn(Seq) -> bool,
        may_be_lost: impl Fn(Seq) -> bool,
    ) -> Result<(), Violation> {
        for cause in std::mem::take(&mut self.room().causes) {
            let right = stands(cause) || may_be_lost(cause);
            ensure(right, Promise::ActedOnIt, || {
                format!("a process was acted on by entry {cause}, which is not in the log")
            })?;
        }
        Ok(())
    }

    /// Returns processes that may register themselves: processes that were not launched here, and some that were.
    pub(crate) fn strangers(&self) -> Vec<Identity> {
        let mut room = self.room();
        let kernel = room.kernel();
        let pids: Vec<u32> = kernel.processes.keys().copied().collect();
        let found = pids.into_iter().filter_map(|pid| kernel.identity(pid));
        found.take(6).collect()
    }

    pub(crate) fn met(&self) -> EventCounts {
        self.room().met
    }
}

impl Room {
    pub(super) fn kernel(&mut self) -> &mut Kernel {
        &mut self.machine().kernel
    }

    /// Adds a report that the actor has not received yet.
    pub(super) fn receive_message(&mut self, message: Message) {
        self.reports.push_back(message);
    }

    pub(super) fn machine(&mut self) -> &mut Machine {
        self.follower.world()
    }

    fn perform(&mut self) {
        let Some((asked, mut action)) = self.asked.pop_front() else {
            return;
        };
        let (_, boot) = sexton::ports::process::World::machine_and_boot(self.follower.world());
        match &mut action {
            Action::Launch { spec, .. }
                if self.plant == Some(Plant::RelaunchNotRestated)
                    && asked < self.began
                    && is_of_service(spec) =>
            {
                return;
            }
            Action::Launch { id, spec }
                if self.plant == Some(Plant::ServiceTwice) && is_of_service(spec) =>
            {
                // Use another id, so that nothing else refers to this process.
                let id = ProcessId(!id.0);
                let spec = spec.clone();
                self.follower.perform(asked, Action::Launch { id, spec });
            }
            Action::Follow { .. }
                if self.plant == Some(Plant::FollowNotRestated) && asked < self.began =>
            {
                return;
            }
            Action::Follow { identity, .. }
            | Action::Signal { identity, .. }
            | Action::Kill { identity, .. }
            | Action::Await { identity, .. }
                if self.plant == Some(Plant::BootIgnored) =>
            {
                identity.boot = boot;
            }
            Action::Read { .. }
                if self.plant == Some(Plant::HookForgotten) && asked < self.began =>
            {
                return;
            }
            Action::ForgetOthers if self.plant == Some(Plant::ForgetAll) => {
                // Forget all attempts first, including requested launches, as if no actor had named them.
                let attempts = self.kernel().logged();
                let request = sexton::keeper::protocol::Request::Forget { attempts };
                sexton::ports::process::World::ask(self.kernel(), request);
            }
            Action::Launch { .. }
            | Action::Follow { .. }
            | Action::Signal { .. }
            | Action::Kill { .. }
            | Action::Await { .. }
            | Action::Read { .. }
            | Action::Forget { .. }
            | Action::ForgetOthers => {}
        }
        self.machine().note_asked(&action);
        self.follower.perform(asked, action);
    }

    /// Observes an event. Reports of the keeper arrive in order, and before the end of its process is seen. The kernel's
    /// reports of ends arrive at any time, and may arrive twice.
    fn hear(&mut self, chance: &mut Chance) {
        let events = &mut self.kernel().events;
        let is_kernels = |event: &Event| matches!(event, Event::Ended(_) | Event::Emptied(_));
        let mut at = 0;
        if chance.per_mille(500) {
            let wants_kernels = events.front().is_some_and(|first| !is_kernels(first));
            let other = events.iter().position(|it| is_kernels(it) == wants_kernels);
            at = other.unwrap_or(0);
        }
        let Some(event) = events.remove(at) else {
            return;
        };
        self.met.events_overtaken += u64::from(at > 0);
        match event {
            Event::Heard(report) => self.follower.receive(report),
            Event::KeeperGone => self.follower.keeper_gone(),
            Event::Emptied(id) => self.follower.emptied(id),
            Event::Ended(id) => {
                self.follower.ended(id);
                if chance.per_mille(100) {
                    self.met.events_twice += 1;
                    self.follower.ended(id);
                }
            }
        }
    }
}

fn is_of_service(spec: &Spec) -> bool {
    spec.run_dir.is_some()
}

impl sexton::spine::port::Port<ProcessMachine> for Port {
    fn perform(&mut self, action: effect::Action<Action>) {
        let mut room = self.room();
        room.causes.insert(action.attempt);
        // Only the process that the signal is for may receive it; `take_stray` finds any other.
        if let Action::Signal { id, identity, .. } | Action::Kill { id, identity, .. } =
            &action.what
        {
            room.follower.world().means(*id, identity);
        }
        room.asked.push_back((action.attempt, action.what));
    }
}
