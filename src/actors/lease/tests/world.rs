//! Checks that passes of a lease never overlap or begin too early, and that every request is followed by a whole pass, in spite of random
//! failures of processes, messages and the server.

use super::{Bench, Fault, command, process};
use crate::actors::binding::{Binding, Exit, Until};
use crate::actors::lease::{Claim, Lease, Message, PassRequest, Query, Reply, Setting, Turn};
use crate::actors::lock::Name;
use crate::actors::process::{LaunchAs, Message as ToProcesses};
use crate::bytes::Bytes;
use crate::clock::Offset;
use crate::ids::{ProcessId, Seq, Token};
use crate::schedule::Schedule;
use crate::spine::machine::{Machine as _, Paged as _, Timed as _};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;

/// A step of a random test case: a message, a failure, or the passing of time.
#[derive(Clone, Debug)]
enum Act {
    Run {
        lease: u8,
        no_delay: bool,
    },
    Claim {
        lease: u8,
        process: u8,
        waits: bool,
    },
    Finish {
        lease: u8,
    },
    Renew {
        lease: u8,
    },
    Withdraw {
        lease: u8,
    },
    Set(u8, Setting),
    Reset(u8, bool),
    /// The `ProcessActor` processes its messages. Its reports that launches were accepted are delivered if `heard`, and lost otherwise.
    Deliver {
        heard: bool,
    },
    Lose,
    /// A launched process starts. This is reported to the `LeaseActor` if `heard`.
    Start {
        nth: usize,
        heard: bool,
    },
    /// A process ends.
    End {
        nth: usize,
        exit: Exit,
    },
    /// The records of processes that have ended are removed, if the `LeaseActor` has been notified of their launch.
    Prune,
    Pass(u64),
    Jump(i64),
    Restart,
    Resume,
    Checkpoint,
    Reload,
}

fn act() -> impl Strategy<Value = Act> {
    let lease = 0..2_u8;
    let exit = prop_oneof![
        3 => Just(Exit::Code(0)),
        1 => Just(Exit::Code(1)),
        3 => Just(Exit::Signal(9)),
        1 => Just(Exit::Lost),
        1 => Just(Exit::Failed),
    ];
    let setting = prop_oneof![
        Just(Setting::Period(30_000)),
        Just(Setting::MaxRun(20_000)),
        Just(Setting::MaxRun(0)),
        Just(Setting::Log(Some("/var/log/x".to_owned()))),
        Just(Setting::NoDelay(true)),
        Just(Setting::NoDelay(false)),
        Just(Setting::Disabled(true)),
        Just(Setting::Disabled(false)),
        Just(Setting::Command(Some(command()))),
        Just(Setting::Schedule(Schedule::new("*/5 * * * *", None).ok())),
    ];
    prop_oneof![
        6 => (lease.clone(), any::<bool>()).prop_map(|(lease, no_delay)| Act::Run { lease, no_delay }),
        3 => (lease.clone(), 0..4_u8, any::<bool>())
            .prop_map(|(lease, process, waits)| Act::Claim { lease, process, waits }),
        2 => lease.clone().prop_map(|lease| Act::Finish { lease }),
        1 => lease.clone().prop_map(|lease| Act::Renew { lease }),
        1 => lease.clone().prop_map(|lease| Act::Withdraw { lease }),
        2 => (lease.clone(), setting).prop_map(|(lease, setting)| Act::Set(lease, setting)),
        1 => (lease, any::<bool>()).prop_map(|(lease, force)| Act::Reset(lease, force)),
        8 => Just(Act::Deliver { heard: true }),
        2 => Just(Act::Deliver { heard: false }),
        1 => Just(Act::Lose),
        6 => (0..4_usize, any::<bool>()).prop_map(|(nth, heard)| Act::Start { nth, heard }),
        8 => (0..4_usize, exit).prop_map(|(nth, exit)| Act::End { nth, exit }),
        1 => Just(Act::Prune),
        8 => prop_oneof![Just(1_u64), 0..5_000_u64, 10_000..100_000_u64].prop_map(Act::Pass),
        1 => prop_oneof![Just(3_600_000_i64), Just(-3_600_000_i64)].prop_map(Act::Jump),
        1 => Just(Act::Restart),
        1 => Just(Act::Resume),
        1 => Just(Act::Checkpoint),
        1 => Just(Act::Reload),
    ]
}

/// The record of a launched process, as the `ProcessActor` keeps it.
#[derive(Debug)]
struct Record {
    lease: Name,
    /// Whether the process has started.
    started: bool,
    /// How the process ended; `None` while it is running.
    end: Option<Exit>,
    /// Whether the `LeaseActor` has been notified of the launch and has requested notification of the end.
    watched: bool,
}

/// Two leases, and the processes that run for them.
struct World {
    bench: Bench,
    /// The records of launched processes.
    records: BTreeMap<ProcessId, Record>,
    /// Every process that was ever launched.
    launched: BTreeSet<ProcessId>,
    /// When the latest pass of each lease began, and its token. A pass with a command begins when its process starts; until then, this is
    /// when it was granted.
    began: BTreeMap<Name, (u64, Token)>,
    /// When the latest process of each lease started, and the token of its pass.
    ran: BTreeMap<Name, (u64, Token)>,
    /// For each lease, the number of the first pass that can serve its latest request, and the result of that request.
    asked: BTreeMap<Name, (u64, Turn)>,
    /// The shortest period that a lease can have in this test, in milliseconds.
    period: u64,
}

impl World {
    fn new() -> Self {
        Self {
            bench: Bench::at(1_000_000_000_000),
            records: BTreeMap::new(),
            launched: BTreeSet::new(),
            began: BTreeMap::new(),
            ran: BTreeMap::new(),
            asked: BTreeMap::new(),
            period: 30_000,
        }
    }

    fn name(lease: u8) -> Name {
        Name::try_from(if lease == 0 { "a" } else { "b" }).expect("the name is short")
    }

    fn lease(&self, name: &Name) -> Option<Lease> {
        let query = Query::Of(name.clone());
        match self.bench.machine.query(self.bench.both(), &query) {
            Reply::Lease(view) => Some(view.lease),
            _ => None,
        }
    }

    /// Processes the messages to the `ProcessActor` as that actor would. Accepted launches are reported to the `LeaseActor` only if
    /// `heard` is set.
    fn deliver(&mut self, heard: bool) {
        for told in std::mem::take(&mut self.bench.told) {
            match told {
                ToProcesses::LaunchAs(asked) => {
                    self.launch(&asked);
                    if heard {
                        self.bench.say(Message::Launched(asked.id));
                    }
                }
                ToProcesses::Watch(watch) => {
                    if let Some(record) = self.records.get_mut(&watch.process) {
                        record.watched = true;
                    }
                    self.tell_if_gone(watch.process);
                }
                ToProcesses::Fence(process) => {
                    if let Some(record) = self.records.get_mut(&process) {
                        let signal = Exit::Signal(15);
                        let end = if record.started { signal } else { Exit::Failed };
                        record.end.get_or_insert(end);
                        self.tell_if_gone(process);
                    }
                }
                other => panic!("unexpected message to the `ProcessActor`: {other:?}"),
            }
        }
    }

    /// Launches a process unless its id already has a record. Checks that the id was never launched before and that no other pass of the
    /// lease is running.
    fn launch(&mut self, asked: &LaunchAs) {
        if self.records.contains_key(&asked.id) {
            return;
        }
        let named = |(name, _): &&(String, Bytes)| name == "SEXTON_LEASE";
        let its = asked.launching.spec.env.iter().find(named);
        let its = its.expect("`SEXTON_LEASE` is set").1.as_bytes();
        let lease = Name::new(its).expect("the name is short");
        assert!(self.launched.insert(asked.id), "a pass is launched twice");
        let mut beside = self.records.values();
        let beside = beside.find(|it| it.lease == lease && it.end.is_none());
        assert!(beside.is_none(), "a pass is already running: {beside:?}");
        let record = Record { lease, started: false, end: None, watched: false };
        self.records.insert(asked.id, record);
    }

    fn tell_if_gone(&mut self, process: ProcessId) {
        // Processes 0 to 3 belong to clients and are alive. Others without a record have ended.
        if process.0 < 4 {
            return;
        }
        match self.records.get(&process) {
            Some(record) if record.end.is_none() || !record.watched => {}
            Some(record) => {
                let is_known = record.started && self.bench.fault != Some(Fault::StartIgnored);
                let pid = is_known.then_some(7);
                self.bench.gone_with(process, record.end, pid);
            }
            None => self.bench.gone(process, None),
        }
    }

    /// Removes the records of processes that have ended and are watched by the `LeaseActor`; with the fault `RemovedEarly`, also of those
    /// that are not watched yet.
    fn prune(&mut self) {
        let is_early = self.bench.fault == Some(Fault::RemovedEarly);
        let stays = |record: &Record| record.end.is_none() || !record.watched && !is_early;
        self.records.retain(|_, record| stays(record));
    }

    /// Requests a pass with a command, and notes which pass is the first that can serve the request, unless the request never waits.
    fn run(&mut self, lease: u8, no_delay: bool) {
        let name = Self::name(lease);
        let reply = self.bench.say(Message::Request(Box::new(PassRequest {
            name: name.clone(),
            command: Some(command()),
            no_delay,
            ..PassRequest::default()
        })));
        if let Reply::Turned { turn, lease, .. } = reply {
            let number = match turn {
                // A request that does not wait is not owed a whole pass.
                _ if no_delay || lease.lease.settings.no_delay => return,
                Turn::Current => lease.lease.begun,
                Turn::Next | Turn::Kept | Turn::NotNeeded => lease.lease.begun + 1,
                Turn::NoDelay => return,
            };
            self.asked.insert(name, (number, turn));
        }
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Run { lease, no_delay } => self.run(*lease, *no_delay),
            Act::Claim { lease, process: pid, waits } => self.claim(*lease, *pid, *waits),
            Act::Finish { lease } => {
                let name = Self::name(*lease);
                let token = self.began.get(&name).map_or(Token(0), |it| it.1);
                self.bench.say(Message::Finish { name, token, code: 0 });
            }
            Act::Renew { lease } => {
                let name = Self::name(*lease);
                let token = self.began.get(&name).map_or(Token(0), |it| it.1);
                let process = None;
                self.bench.say(Message::Renew { name, token, process });
            }
            Act::Withdraw { lease } => self.withdraw(*lease),
            Act::Set(lease, setting) => {
                let (name, setting) = (Self::name(*lease), setting.clone());
                self.bench.say(Message::Set { name, setting });
            }
            Act::Reset(lease, force) => {
                let (name, force) = (Self::name(*lease), *force);
                self.bench.say(Message::Reset { name, force });
            }
            Act::Deliver { heard } => self.deliver(*heard),
            Act::Lose => self.bench.told.clear(),
            Act::Start { nth, heard } => {
                let mut waiting = self.records.iter();
                let waiting = waiting.by_ref().filter(|(_, it)| !it.started && it.end.is_none());
                let id = waiting.map(|(id, _)| *id).nth(*nth);
                if let Some(id) = id {
                    self.start(id, *heard);
                }
            }
            Act::End { nth, exit } => self.end(*nth, *exit),
            Act::Prune => self.prune(),
            Act::Pass(ms) => self.pass(*ms),
            Act::Jump(ms) => self.bench.offset += ms,
            Act::Restart => self.bench.restart(),
            Act::Resume => self.bench.resume(),
            Act::Checkpoint => self.bench.shelf.step(&mut self.bench.machine, Seq(self.bench.seq)),
            Act::Reload => self.reload(),
        }
        self.look();
    }

    /// Withdraws the request that is next, as its client would. Other requests that rely on its pass must still be served.
    fn withdraw(&mut self, lease: u8) {
        let name = Self::name(lease);
        let next = self.lease(&name).and_then(|it| it.next);
        let place = next.map_or(Token(0), |it| it.token);
        let others = self.asked.get(&name).map(|(_, turn)| *turn);
        if !matches!(others, Some(Turn::Kept | Turn::Current | Turn::NotNeeded)) {
            self.asked.remove(&name);
        }
        self.bench.say(Message::Withdraw { name, place });
    }

    /// Requests a pass as a client that runs the pass itself.
    fn claim(&mut self, lease: u8, pid: u8, waits: bool) {
        let by_process = (pid > 0).then(|| Binding {
            process: process(pid.into()),
            until: Until::Tree,
            fence: false,
        });
        let claim = Claim { process: by_process, waits, ..Claim::default() };
        self.bench.say(Message::Request(Box::new(PassRequest {
            name: Self::name(lease),
            claim: Some(claim),
            ..PassRequest::default()
        })));
    }

    /// Starts a launched process, which begins its pass. Checks that this is more than one period after the beginning of the latest pass.
    fn start(&mut self, id: ProcessId, heard: bool) {
        let record = self.records.get_mut(&id).expect("the process has a record");
        record.started = true;
        let (name, now) = (record.lease.clone(), self.bench.now);
        if let Some((began, token)) = self.began.get_mut(&name) {
            let token = *token;
            if let Some((before, old)) = self.ran.insert(name, (now, token)) {
                let apart = now - before;
                assert!(token == old || apart > self.period, "passes begin {apart} ms apart");
            }
            *began = now;
        }
        if heard && self.bench.fault != Some(Fault::StartIgnored) {
            self.bench.say(Message::Started(id));
        }
    }

    /// Ends the `nth` running process, counted from 0, and notifies the `LeaseActor` if it watches the process. Does nothing if there are
    /// too few.
    fn end(&mut self, nth: usize, exit: Exit) {
        let mut records = self.records.iter_mut();
        let Some((id, record)) = records.by_ref().filter(|(_, it)| it.end.is_none()).nth(nth)
        else {
            return;
        };
        let id = *id;
        let exit = match (record.started, exit) {
            (true, Exit::Failed) => Exit::Signal(9),
            (_, exit) => exit,
        };
        if !record.started && exit != Exit::Failed {
            self.start(id, false);
        }
        let record = self.records.get_mut(&id).expect("the process has a record");
        record.end = Some(exit);
        self.tell_if_gone(id);
    }

    /// Rebuilds the machine from the latest snapshot and the log, and checks that its digest has not changed.
    fn reload(&mut self) {
        let replayed = self.bench.replayed();
        assert_eq!(replayed.digest(), self.bench.machine.digest());
        self.bench.machine = replayed;
        self.bench.resume();
    }

    fn pass(&mut self, ms: u64) {
        let end = self.bench.now + ms;
        while self.bench.now < end {
            let offset = Offset(self.bench.offset);
            let deadline = self.bench.machine.deadline(offset);
            let next = deadline.map_or(end, |it| it.0.clamp(self.bench.now + 1, end));
            self.bench.now = next;
            self.bench.tick();
            self.look();
        }
    }

    /// Checks the invariants of the machine, that tokens only grow, and that passes of a lease begin more than one period apart.
    fn look(&mut self) {
        self.bench.machine.assert_whole();
        for lease in 0..2 {
            let name = Self::name(lease);
            let Some(lease) = self.lease(&name) else {
                // The lease was deleted: the next request gets a pass immediately.
                self.began.remove(&name);
                self.ran.remove(&name);
                self.asked.remove(&name);
                continue;
            };
            // Passes are not repeated while the lease is disabled, or after too many consecutive passes that were not whole.
            if lease.settings.disabled || lease.broken >= Lease::BROKEN_MAX {
                self.asked.remove(&name);
            }
            let Some(current) = &lease.current else {
                continue;
            };
            let token = current.token;
            let before = self.began.get(&name).copied();
            if before.is_some_and(|(_, old)| old == token) {
                continue;
            }
            let now = self.bench.now;
            if let Some((before, old)) = before {
                assert!(token > old, "tokens only grow");
                let apart = now - before;
                assert!(apart > self.period, "passes begin {apart} ms apart");
            }
            self.began.insert(name, (now, token));
        }
    }

    /// Lets time pass without further failures, and checks that every request is served.
    fn settle(&mut self) {
        for lease in 0..2 {
            self.act(&Act::Set(lease, Setting::Schedule(None)));
            // Below, a launch takes longer than the time limit of some leases.
            self.act(&Act::Set(lease, Setting::MaxRun(0)));
        }
        for _ in 0..40 {
            self.deliver(true);
            self.end(0, Exit::Code(0));
            for lease in 0..2 {
                self.act(&Act::Finish { lease });
            }
            self.pass(31_000);
            self.bench.resume();
        }
        for lease in 0..2 {
            let name = Self::name(lease);
            let Some(lease) = self.lease(&name) else {
                continue;
            };
            let is_done = lease.whole >= lease.wanted || lease.owed_command().is_none();
            assert!(is_done || lease.settings.disabled, "a request is forgotten: {lease:?}");
            let asked = self.asked.get(&name).map_or(0, |(number, _)| *number);
            assert!(lease.whole >= asked, "the request for pass {asked} is forgotten: {lease:?}");
        }
    }

    /// Runs one test case: applies `acts` with this fault, reloads the machine, and checks that every request is served.
    fn run_all(acts: &[Act], fault: Option<Fault>) {
        let mut world = Self::new();
        world.bench.fault = fault;
        for lease in 0..2 {
            let setting = Setting::Period(30_000);
            world.act(&Act::Set(lease, setting));
        }
        for act in acts {
            world.act(act);
        }
        world.reload();
        world.settle();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn passes_never_overlap_nor_come_too_soon_and_every_request_has_one(
        acts in prop::collection::vec(act(), 0..80)
    ) {
        World::run_all(&acts, None);
    }
}

/// Checks that the assertion whose text contains `by` catches this fault.
fn caught(fault: Fault, by: &str) {
    let mut runner = TestRunner::deterministic();
    let mut said = Vec::new();
    for _ in 0..400 {
        let acts = prop::collection::vec(act(), 0..80).new_tree(&mut runner);
        let acts = acts.expect("acts are drawn").current();
        let found = catch_unwind(|| World::run_all(&acts, Some(fault)));
        let Err(panic) = found else {
            continue;
        };
        let what = panic.downcast_ref::<String>().cloned();
        let what = what.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
        let what = what.unwrap_or_default();
        if what.contains(by) {
            return;
        }
        said.push(what);
    }
    panic!("{fault:?} was not caught; other failures: {said:?}");
}

#[test]
fn a_request_that_is_forgotten_when_the_next_one_dies_is_found() {
    caught(Fault::RequestForgotten, "is forgotten");
}

#[test]
fn a_pass_that_begins_early_after_the_wall_clock_jumped_is_found() {
    caught(Fault::Early, "ms apart");
}

#[test]
fn a_pass_that_begins_early_because_the_one_before_started_late_is_found() {
    caught(Fault::StartIgnored, "ms apart");
}

#[test]
fn an_obligation_that_no_start_states_again_is_found() {
    caught(Fault::NotRestated, "is forgotten");
}

#[test]
fn a_launch_whose_record_is_removed_before_it_is_known_is_found() {
    caught(Fault::RemovedEarly, "launched twice");
}
