//! The external world on which counters act: bells that are rung. It outlives the node, refuses some requests, and
//! forgets others.
//!
//! Does what a port must do: performs an attempt once, ignores an older one, and reports an attempt again that was
//! already performed. The faults of a port are planted here.

use crate::chance::Chance;
use crate::counter::{CounterMachine, CounterMessage, Message};
use crate::processes;
use crate::setting::Plant;
use crate::violation::{Promise, Violation, ensure};
use sexton::actors::lease::{self, LeaseMachine};
use sexton::ids::{ActorId, Seq, Slot};
use sexton::spine::Host;
use sexton::spine::effect::{Action, Tell};
use sexton::spine::items::Itemized as _;
use sexton::spine::machine::Machine as _;
use sexton::spine::port::Port;
use sexton::spine::supervision::Verdict;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// The key of a bell: its actor, and its counter.
type Id = (ActorId, u64);

/// The state of the latest attempt to ring a bell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asked,
    Rung,
    Refused,
}

/// The bells and their attempts, and the machine on which processes run. Cloning gives another handle on the same world.
#[derive(Clone)]
pub(crate) struct World {
    bells: Rc<RefCell<Bells>>,
    pub(crate) processes: processes::Port,
}

#[derive(Default)]
struct Bells {
    plant: Option<Plant>,
    /// The latest known attempt for each bell.
    known: BTreeMap<Id, (Seq, State)>,
    /// The number of times that each attempt rang its bell.
    rung: BTreeMap<(Id, Seq), u32>,
    /// Attempts that were requested, until they are found in the log.
    asked: BTreeSet<(Id, Seq)>,
    /// Completions that the node has not received yet.
    reports: VecDeque<(Id, Seq, bool)>,
    /// Verdicts that were released, but not taken.
    verdicts: Vec<(ActorId, Verdict)>,
    /// The first sequence number of this node.
    began: Seq,
    pub(crate) repeated: u64,
    pub(crate) forgotten: u64,
}

impl World {
    pub(crate) fn new(plant: Option<Plant>) -> Self {
        let bells = Bells { plant, ..Bells::default() };
        Self { bells: Rc::new(RefCell::new(bells)), processes: processes::Port::new(plant) }
    }

    /// Handles the startup of a node. Completions for the previous one are lost.
    pub(crate) fn start(&self, began: Seq) {
        let mut bells = self.bells.borrow_mut();
        bells.began = began;
        bells.reports.clear();
        bells.verdicts.clear();
        self.processes.start(began);
    }

    pub(crate) fn take_verdicts(&self) -> Vec<(ActorId, Verdict)> {
        std::mem::take(&mut self.bells.borrow_mut().verdicts)
    }

    /// Handles one requested attempt: mostly rings the bell, sometimes refuses or forgets the request.
    pub(crate) fn act(&self, chance: &mut Chance) -> Result<(), Violation> {
        let mut bells = self.bells.borrow_mut();
        let asked = bells.known.iter().filter(|(_, (_, state))| *state == State::Asked);
        let asked: Vec<Id> = asked.map(|(id, _)| *id).collect();
        if asked.is_empty() {
            return Ok(());
        }
        let id = *chance.pick(&asked);
        match chance.weighted(&[(7, 0), (2, 1), (1, 2)]) {
            0 => bells.ring(id),
            1 => {
                bells.refuse(id);
                Ok(())
            }
            _ => {
                bells.known.remove(&id);
                bells.forgotten += 1;
                Ok(())
            }
        }
    }

    /// Rings all requested bells. Returns whether there were any.
    pub(crate) fn ring_all(&self) -> Result<bool, Violation> {
        let mut bells = self.bells.borrow_mut();
        let asked = bells.known.iter().filter(|(_, (_, state))| *state == State::Asked);
        let asked: Vec<Id> = asked.map(|(id, _)| *id).collect();
        for id in &asked {
            bells.ring(*id)?;
        }
        Ok(!asked.is_empty())
    }

    /// Returns the next completion for its actor. Some are lost by chance.
    pub(crate) fn report(&self, lossy: Option<&mut Chance>) -> Option<Tell> {
        let mut bells = self.bells.borrow_mut();
        let (id, attempt, refused) = bells.reports.pop_front()?;
        if lossy.is_some_and(|chance| chance.per_mille(50)) {
            bells.forgotten += 1;
            return None;
        }
        let attempt = match bells.plant {
            // With the planted fault, the completion of an older attempt is reported for the latest.
            Some(Plant::CompletionOfOlder) => bells.known.get(&id).map_or(attempt, |bell| bell.0),
            _ => attempt,
        };
        let name = Slot(u32::try_from(id.1).expect("bells have the names of counters"));
        let message: Message = (name, CounterMessage::Rung(attempt, refused));
        Some(Tell {
            from: id.0,
            to: id.0,
            message: rmp_serde::to_vec(&message).expect("messages encode"),
        })
    }

    pub(crate) fn is_quiet(&self) -> bool {
        let bells = self.bells.borrow();
        let asked = bells.known.values().any(|(_, state)| *state == State::Asked);
        let rests = !asked && bells.reports.is_empty() && bells.verdicts.is_empty();
        rests && self.processes.is_quiet()
    }

    /// Checks that every attempt that was requested is in the log, unless a power cut may have removed it.
    pub(crate) fn check_asked(
        &self,
        stands: impl Fn(Seq) -> bool,
        may_be_lost: impl Fn(Seq) -> bool,
    ) -> Result<(), Violation> {
        self.processes.check_asked(&stands, &may_be_lost)?;
        for (id, attempt) in std::mem::take(&mut self.bells.borrow_mut().asked) {
            ensure(stands(attempt) || may_be_lost(attempt), Promise::ActedOnIt, || {
                format!("{id:?} was acted on by attempt {attempt}, which is not in the log")
            })?;
        }
        Ok(())
    }

    /// Checks that every attempt that the counters record as rung was rung.
    pub(crate) fn check_bells<const ID: u8>(
        &self,
        host: &Host<CounterMachine<ID>>,
    ) -> Result<(), Violation> {
        if host.is_spent() {
            return Ok(());
        }
        let bells = self.bells.borrow();
        for (name, counter) in host.machine().items().iter() {
            let is_done = counter.attempt > Seq(0) && !counter.silent;
            let attempt = ((host.actor(), name.0.into()), counter.attempt);
            let right = !is_done || bells.rung.contains_key(&attempt);
            ensure(right, Promise::ActedOnIt, || {
                format!("{ID} counts {attempt:?} as rung, which was not")
            })?;
        }
        Ok(())
    }

    /// Returns how often an attempt was requested again after it was done, and how often a request was forgotten.
    pub(crate) fn met(&self) -> (u64, u64) {
        let bells = self.bells.borrow();
        (bells.repeated, bells.forgotten)
    }
}

impl Bells {
    fn ring(&mut self, id: Id) -> Result<(), Violation> {
        let Some((attempt, state)) = self.known.get_mut(&id) else {
            return Ok(());
        };
        *state = State::Rung;
        let attempt = *attempt;
        let times = self.rung.entry((id, attempt)).or_default();
        *times += 1;
        self.reports.push_back((id, attempt, false));
        ensure(*times == 1, Promise::ActedOnce, || {
            format!("{id:?} was rung {times} times by attempt {attempt}")
        })
    }

    fn refuse(&mut self, id: Id) {
        if let Some((attempt, state)) = self.known.get_mut(&id) {
            *state = State::Refused;
            self.reports.push_back((id, *attempt, true));
        }
    }

    fn ask(&mut self, id: Id, attempt: Seq) {
        // With the planted fault, requests of an earlier node are never repeated.
        if self.plant == Some(Plant::ActionNotRestated) && attempt < self.began {
            return;
        }
        self.asked.insert((id, attempt));
        match self.known.get(&id).copied() {
            // A crash lost the later attempt that is known here. Refuse this one, so that the node requests a later one.
            Some((known, _)) if known > attempt => self.reports.push_back((id, attempt, true)),
            // A forgotten request that was performed is still known as rung.
            None if self.rung.contains_key(&(id, attempt)) => {
                self.reports.push_back((id, attempt, false));
            }
            Some((known, State::Asked)) if known == attempt => {}
            Some((known, state)) if known == attempt => {
                self.repeated += 1;
                if self.plant == Some(Plant::ActedTwice) {
                    self.known.insert(id, (attempt, State::Asked));
                } else {
                    self.reports.push_back((id, attempt, state == State::Refused));
                }
            }
            _ => {
                self.known.insert(id, (attempt, State::Asked));
            }
        }
    }
}

impl<const ID: u8> Port<CounterMachine<ID>> for World {
    fn perform(&mut self, action: Action<u64>) {
        let id = (CounterMachine::<ID>::ID, action.id);
        self.bells.borrow_mut().ask(id, action.attempt);
    }
}

/// Performs nothing: the actions of leases are lines of logs, on which nothing depends.
impl Port<LeaseMachine> for World {
    fn perform(&mut self, _: Action<lease::Action>) {}
}

/// Records the Supervisor's verdicts, for the node to take.
impl Port<sexton::actors::supervisor::SupervisorMachine> for World {
    fn perform(&mut self, action: Action<Verdict>) {
        let actor = u8::try_from(action.id).expect("the id is that of an actor");
        self.bells.borrow_mut().verdicts.push((ActorId(actor), action.what));
    }
}
