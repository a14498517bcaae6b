//! Tests of the guarantees of leases. `world.rs` tests them against random failures of processes, messages and the
//! server. Fossil's test vectors are in `tests/scripts/lease/vectors.txt`.

#![expect(clippy::wildcard_enum_match_arm, reason = "an unexpected variant fails the test")]

mod world;

use crate::actors::binding::{EndNotice, Exit, Until, Watch};
use crate::actors::lease::{
    Current, LeaseMachine, Message, Outcome, PassRequest, Query, Reply, Rules, Setting, Source,
    Step, Turn,
};
use crate::actors::lock::Name;
use crate::actors::process::{Launching, Message as ToProcesses, Spec};
use crate::bytes::Bytes;
use crate::clock::{Offset, Timestamp};
use crate::ids::{ActorId, ProcessId, Seq};
use crate::schedule::Schedule;
use crate::spine::effect::Effect;
use crate::spine::machine::{
    Durability, Effects, Machine as _, Moment, Now, Observable as _, Stamp, Start, Timed as _,
};
use crate::spine::shelf::Shelf;
use std::sync::Arc;

/// A machine, driven the way its host drives it: all due items are processed before each message.
struct Bench {
    machine: LeaseMachine,
    now: u64,
    /// How far the wall clock is ahead of node time, in milliseconds.
    offset: i64,
    seq: u64,
    /// Messages sent to the `ProcessActor` that it has not processed yet.
    told: Vec<ToProcesses>,
    /// Journal entries, for replay.
    log: Vec<Logged>,
    shelf: Shelf<LeaseMachine>,
    /// The fault that is injected, if any.
    fault: Option<Fault>,
}

/// A fault that can be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A request that relies on another client's next request is not recorded, so it is lost if that client dies.
    RequestForgotten,
    /// Deadlines follow the wall clock, so passes begin early when it jumps ahead.
    Early,
    /// After a restart, messages to other actors are not sent again.
    NotRestated,
    /// The start of a process is not counted as the beginning of its pass.
    StartIgnored,
    /// A process record may be removed before the actor that launched it has been notified of the launch.
    RemovedEarly,
}

enum Logged {
    Entry(Stamp, Message, Outcome),
    Start(Start),
}

fn shown(machine: &LeaseMachine) -> String {
    machine.assert_whole();
    format!("{:?}", machine.view())
}

fn name() -> Name {
    Name::try_from("nightly").expect("the name is short")
}

fn command() -> Arc<Launching> {
    let argv = vec![Bytes::new(&b"work"[..])];
    let spec = Spec { argv, ..Spec::default() };
    Arc::new(Launching { spec, ..Launching::default() })
}

fn process(pid: u64) -> ProcessId {
    ProcessId(u128::from(pid))
}

impl Bench {
    fn at(now: u64) -> Self {
        Self {
            machine: LeaseMachine::new(Rules::default()),
            now,
            offset: 0,
            seq: 0,
            told: Vec::new(),
            log: Vec::new(),
            shelf: Shelf::new(Rules::default(), shown),
            fault: None,
        }
    }

    fn both(&self) -> Now {
        Now { at: Timestamp(self.now), offset: Offset(self.offset) }
    }

    /// Decides a message twice, asserting that both outcomes are equal. Then commits and logs it as the host does, unless the message
    /// changes nothing. Returns the reply.
    fn apply(&mut self, message: Message) -> Reply {
        let now = match message {
            Message::Lapse { .. } => self.acting(),
            _ => self.both(),
        };
        let moment = Moment { seq: Seq(self.seq + 1), now, ..Moment::default() };
        let mut outcome = self.machine.decide(&moment, &message);
        assert_eq!(outcome, self.machine.decide(&moment, &message));
        if let (Some(Fault::RequestForgotten), Outcome::Changed { steps, .. }) =
            (self.fault, &mut outcome)
        {
            steps.retain(|(_, step)| *step != Step::Owed(Source::Request));
        }
        if self.machine.durability(&message, &outcome) == Durability::Nothing {
            return self.machine.reply(Seq(0), &message, &outcome);
        }
        self.seq += 1;
        let stamp = moment.stamp();
        let mut effects = Effects::<LeaseMachine>::default();
        self.machine.commit(stamp, &message, &outcome, &mut effects);
        self.receive(&mut effects);
        let reply = self.machine.reply(moment.seq, &message, &outcome);
        self.log.push(Logged::Entry(stamp, message, outcome));
        reply
    }

    /// Returns the time at which ticks are decided: node time or, with the fault `Early`, the wall-clock time if that is later.
    fn acting(&self) -> Now {
        let mut now = self.both();
        if self.fault == Some(Fault::Early) {
            now.at = now.at.plus_ms(u64::try_from(self.offset).unwrap_or(0));
        }
        now
    }

    fn receive(&mut self, effects: &mut Effects<LeaseMachine>) {
        for effect in effects.take() {
            if let Effect::Tell(to, message) = effect {
                assert_eq!(to, ActorId::PROCESS);
                let told = rmp_serde::from_slice(&message);
                self.told.push(told.expect("the bytes are a message to the `ProcessActor`"));
            }
        }
    }

    /// Processes every due item.
    fn tick(&mut self) {
        for _ in 0..100 {
            let Some(item) = self.machine.due(self.acting()) else {
                return;
            };
            let message = self.machine.tick(item);
            let before = self.seq;
            self.apply(message);
            assert!(self.seq > before, "a tick changes something");
        }
        panic!("items are still due after 100 ticks");
    }

    fn say(&mut self, message: Message) -> Reply {
        self.tick();
        self.apply(message)
    }

    fn advance(&mut self, ms: u64) {
        let end = self.now + ms;
        loop {
            let deadline = self.machine.deadline(Offset(self.offset));
            let next = deadline.map_or(end, |it| it.0.clamp(self.now, end));
            self.now = next;
            self.tick();
            if next == end {
                return;
            }
        }
    }

    /// Kills and restarts the server: messages that have not been processed are lost.
    fn restart(&mut self) {
        self.told.clear();
        self.seq += 10;
        let start =
            Start { stamp: Stamp { seq: Seq(self.seq), at: Timestamp(self.now) }, skipped: 9 };
        self.machine.start(start);
        self.log.push(Logged::Start(start));
        self.resume();
    }

    /// Has the machine send its pending messages to other actors again; they are lost if the fault is `NotRestated`.
    fn resume(&mut self) {
        let mut effects = Effects::<LeaseMachine>::default();
        self.machine.resume(&mut effects);
        if self.fault != Some(Fault::NotRestated) {
            self.receive(&mut effects);
        }
    }

    /// Builds a new machine from the latest snapshot and the log entries after it.
    fn replayed(&mut self) -> LeaseMachine {
        let (mut machine, upto) = self.shelf.load();
        for logged in &self.log {
            match logged {
                Logged::Entry(stamp, message, outcome) if stamp.seq > upto => {
                    let mut effects = Effects::<LeaseMachine>::default();
                    machine.commit(*stamp, message, outcome, &mut effects);
                }
                Logged::Start(start) if start.stamp.seq > upto => machine.start(*start),
                Logged::Entry(..) | Logged::Start(_) => {}
            }
        }
        machine
    }

    fn lease(&self) -> crate::actors::lease::Lease {
        match self.machine.query(self.both(), &Query::Of(name())) {
            Reply::Lease(view) => view.lease,
            other => panic!("the lease does not exist: {other:?}"),
        }
    }

    fn current(&self) -> Current {
        self.lease().current.expect("the lease has had a pass")
    }

    fn request(&mut self, requesting: PassRequest) -> Turn {
        let message = Message::Request(Box::new(PassRequest { name: name(), ..requesting }));
        match self.say(message) {
            Reply::Turned { turn, .. } => turn,
            other => panic!("expected the result of a request, found {other:?}"),
        }
    }

    fn run(&mut self) -> Turn {
        self.request(PassRequest { command: Some(command()), ..PassRequest::default() })
    }

    /// Removes and returns the launches that were requested but not processed yet.
    fn launches(&mut self) -> Vec<ProcessId> {
        let launched = |told: ToProcesses| match told {
            ToProcesses::LaunchAs(asked) => Some(asked.id),
            _ => None,
        };
        std::mem::take(&mut self.told).into_iter().filter_map(launched).collect()
    }

    fn gone(&mut self, process: ProcessId, exit: impl Into<Option<Exit>>) {
        self.gone_with(process, exit.into(), None);
    }

    fn gone_with(&mut self, process: ProcessId, exit: Option<Exit>, pid: Option<u32>) {
        self.say(Message::Gone(EndNotice { process, until: Until::Tree, exit, pid }));
    }
}

#[test]
fn a_pass_that_is_killed_is_made_up_for_when_its_period_is_over() {
    let mut bench = Bench::at(1_000_000);
    assert_eq!(bench.run(), Turn::Current);
    let first = bench.launches();
    let [first] = first[..] else {
        panic!("expected one launch, found {first:?}");
    };
    bench.advance(10_000);
    bench.gone(first, Exit::Signal(9));
    assert_eq!(bench.launches(), []);
    bench.advance(50_000);
    assert_eq!(bench.launches(), [], "the last instant still belongs to the period");
    bench.advance(1);
    let second = bench.launches();
    let [second] = second[..] else {
        panic!("expected one launch, found {second:?}");
    };
    bench.gone(second, Exit::Code(3));
    bench.advance(1_000_000);
    assert_eq!(bench.launches(), [], "the pass was whole: nothing is owed");
}

#[test]
fn of_three_callers_one_runs_one_is_next_and_one_is_not_needed() {
    let mut bench = Bench::at(1_000_000);
    let turns = [bench.run(), bench.run(), bench.run()];
    assert_eq!(turns, [Turn::Current, Turn::Next, Turn::NotNeeded]);
    let first = bench.launches();
    bench.advance(100_000);
    assert_eq!(bench.launches(), [], "no pass begins while the first is still running");
    assert_eq!(
        bench.current().warnings,
        1,
        "the overrun is reported 30 s after the end of the period"
    );
    bench.gone(first[0], Exit::Code(0));
    bench.tick();
    assert_eq!(bench.launches().len(), 1, "the next pass begins immediately");
}

#[test]
fn a_launch_without_its_caller_is_asked_for_again_without_what_that_had() {
    let mut bench = Bench::at(1_000_000);
    let mut attached = Launching::clone(&command());
    attached.spec.parcel = Some(7);
    bench.request(PassRequest { command: Some(Arc::new(attached)), ..PassRequest::default() });
    let first = bench.launches();
    bench.gone(first[0], Exit::Failed);
    let asked = bench.told.pop();
    let Some(ToProcesses::LaunchAs(asked)) = asked else {
        panic!("expected another launch, found {asked:?}");
    };
    assert_eq!(asked.launching.spec.parcel, None);
    assert_ne!(asked.id, first[0]);
    bench.gone(asked.id, Exit::Failed);
    assert!(bench.lease().running().is_none());
    assert_eq!(bench.launches(), [], "the next attempt waits until the period is over");
}

#[test]
fn what_is_always_killed_is_given_up_in_the_end() {
    let mut bench = Bench::at(1_000_000);
    bench.run();
    let mut launched = 0;
    loop {
        bench.advance(61_000);
        let launches = bench.launches();
        let [process] = launches[..] else {
            break;
        };
        launched += 1;
        assert!(launched < 1000, "the pass is never given up");
        bench.gone(process, Exit::Signal(11));
    }
    assert_eq!(launched, crate::actors::lease::Lease::BROKEN_MAX);
    assert_eq!(bench.run(), Turn::Current, "another request begins a pass immediately");
}

#[test]
fn a_schedule_asks_by_itself_and_what_was_missed_runs_once_or_not_at_all() {
    for (catches_up, expected) in [(false, 0), (true, 1)] {
        let mut bench = Bench::at(1_000_000_000_000);
        let schedule = Schedule::new("0 * * * *", None).expect("the schedule is valid");
        for setting in [
            Setting::Command(Some(command())),
            Setting::CatchesUp(catches_up),
            Setting::Schedule(Some(schedule)),
        ] {
            bench.say(Message::Set { name: name(), setting });
        }
        bench.advance(3_600_000);
        let first = bench.launches();
        assert_eq!(first.len(), 1, "the schedule fired once");
        bench.gone(first[0], Exit::Code(0));
        // The server is down for five hours.
        bench.now += 5 * 3_600_000;
        bench.restart();
        bench.tick();
        assert_eq!(bench.launches().len(), expected);
    }
}

#[test]
fn a_wall_clock_that_jumps_moves_no_period() {
    let mut bench = Bench::at(1_000_000_000_000);
    bench.run();
    let first = bench.launches();
    bench.gone(first[0], Exit::Code(0));
    bench.run();
    for jump in [3_600_000, -3_600_000] {
        bench.offset += jump;
        bench.advance(20_000);
        assert_eq!(bench.launches(), []);
    }
    bench.advance(20_001);
    assert_eq!(bench.launches().len(), 1);
}

#[test]
fn a_reset_proves_that_the_pass_is_gone_first() {
    let mut bench = Bench::at(1_000_000);
    bench.run();
    let first = bench.launches();
    bench.say(Message::Launched(first[0]));
    bench.told.clear();
    let reset = |force| Message::Reset { name: name(), force };
    assert!(matches!(bench.say(reset(false)), Reply::Refused(_)));
    bench.say(reset(true));
    let watched = Watch { by: ActorId::LEASE, process: first[0], until: Until::Tree };
    let told = [ToProcesses::Watch(watched), ToProcesses::Fence(first[0])];
    assert_eq!(bench.told, told);
    assert!(bench.lease().running().is_some(), "the end of the process has not been reported yet");
    bench.gone(first[0], Exit::Signal(15));
    let query = Query::Of(name());
    assert_eq!(bench.machine.query(bench.both(), &query), Reply::Absent);
}
