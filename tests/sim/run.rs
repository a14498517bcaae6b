//! One run: a seed, its steps, and the verdict.
//!
//! Each step is one move of the clients, time, the node, the journal or a fault, drawn from the seed. The checkers run at
//! every startup and at the end, once everything has settled.

use crate::actor::{Actor, Call, Turn};
use crate::chance::Chance;
use crate::check::{Checker, Peril};
use crate::counter::PLANTED;
use crate::counters::long_call;
use crate::coverage::Coverage;
use crate::disk::SimDisk;
use crate::each::{self, ClientsOf, Each, each};
use crate::node::{Node, Stopped};
use crate::reference::{Clients as _, Reference};
use crate::setting::{Kind, Setting};
use crate::taking::Harm;
use crate::tap::Tap;
use crate::violation::{Promise, Violation, ensure};
use crate::workload::Workload;
use crate::world::World;
use sexton::clock::{Clock as _, Timestamp};
use sexton::ids::{ActorId, Seq};
use sexton::persist::journal::Room;
use sexton::persist::snapshots::BySlot;
use sexton::spine::delivery::Stage;
use sexton::spine::guard::panic_words;
use sexton::spine::ledger::{Ledger, RESERVE_STEP};
use std::panic::{AssertUnwindSafe, catch_unwind};

const DAY_MS: u64 = 24 * 3600 * 1000;

/// Runs a seed. Returns its counts, and the first broken promise as an error.
pub(crate) fn run(setting: &Setting, trace: bool) -> (Coverage, Result<(), Violation>) {
    let mut run = Run::new(setting, trace);
    let verdict = catch_unwind(AssertUnwindSafe(|| run.all()));
    let verdict = verdict.unwrap_or_else(|payload| {
        let words = panic_words(payload.as_ref());
        Err(Violation::new(Promise::NoPanic, words))
    });
    run.tap.count(&mut run.coverage);
    run.count_world();
    let verdict = verdict.map_err(|violation| Violation {
        what: format!("step {}: {}", run.step, violation.what),
        ..violation
    });
    run.say(|| match &verdict {
        Ok(()) => "well".to_owned(),
        Err(violation) => format!("BROKEN {violation}"),
    });
    (run.coverage, verdict)
}

/// Returns whether a panic with this message was planted.
pub(crate) fn is_planted(words: &str) -> bool {
    words.starts_with(PLANTED)
}

pub(crate) struct Run<'a> {
    pub(crate) setting: &'a Setting,
    pub(crate) chance: Chance,
    pub(crate) disk: SimDisk,
    /// The machine's wall clock, in milliseconds.
    pub(crate) wall: u64,
    pub(crate) node: Option<Node>,
    /// The node that ended last, until the next one has started and was checked.
    pub(crate) past: Option<Node>,
    pub(crate) peril: Peril,
    clients: Each<ClientsOf>,
    moves: Vec<(u64, Move)>,
    pub(crate) world: World,
    pub(crate) tap: Tap,
    pub(crate) checker: Checker,
    pub(crate) coverage: Coverage,
    pub(crate) step: u64,
    pub(crate) trace: bool,
    /// Whether the disk was full at any time in the life of this node.
    pub(crate) was_full: bool,
    /// The damage done to each slot while no node was running.
    pub(crate) harm: BySlot<Harm>,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Call(ActorId),
    Watch(ActorId),
    Turn(ActorId),
    Route,
    Hand,
    Write,
    Sync,
    Interval,
    Release,
    Look,
    PassTime,
    World,
    Complete,
    Rebuild,
    LoseConnection,
    Special,
    /// A random event of processes, keepers or the kernel.
    Mischief,
    /// The port of processes takes a step.
    Follow,
    /// The process actor receives a report from its port.
    Report,
}

/// The moves that do not belong to a single actor, with their weights.
const MOVES: &[(u64, Move)] = &[
    (30, Move::Route),
    (20, Move::World),
    (20, Move::Complete),
    (90, Move::Hand),
    (80, Move::Write),
    (80, Move::Sync),
    (10, Move::Interval),
    (90, Move::Release),
    (15, Move::Look),
    (60, Move::PassTime),
    (20, Move::Rebuild),
    (6, Move::LoseConnection),
    (7, Move::Special),
    (42, Move::Mischief),
    (60, Move::Follow),
    (30, Move::Report),
];

/// Returns all moves with their weights.
fn moves() -> Vec<(u64, Move)> {
    let of_actors = each::weights().into_iter().flat_map(|(id, [calls, watches, turns])| {
        let moves = [(calls, Move::Call(id)), (watches, Move::Watch(id))];
        moves.into_iter().chain([(turns, Move::Turn(id))])
    });
    of_actors.chain(MOVES.iter().copied()).collect()
}

impl<'a> Run<'a> {
    pub(crate) fn new(setting: &'a Setting, trace: bool) -> Self {
        let mut chance = Chance::of(setting.seed);
        let disk = SimDisk::new(chance.fork(), setting.page_bytes);
        if setting.plant == Some(crate::setting::Plant::LyingSync) {
            disk.lie();
        }
        Self {
            setting,
            wall: 1_790_000_000_000 + chance.below(DAY_MS),
            disk,
            chance,
            node: None,
            past: None,
            peril: Peril { policy: setting.policy, power_cut: false, synced: Seq(0) },
            clients: Each::<ClientsOf>::new(setting),
            moves: moves(),
            world: World::new(setting.plant),
            tap: Tap::default(),
            checker: Checker::default(),
            coverage: Coverage::default(),
            step: 0,
            trace,
            was_full: false,
            harm: BySlot::default(),
        }
    }

    fn all(&mut self) -> Result<(), Violation> {
        self.go(self.setting.steps)?;
        self.finish()
    }

    /// Takes this number of steps.
    pub(crate) fn go(&mut self, steps: u64) -> Result<(), Violation> {
        for _ in 0..steps {
            self.step += 1;
            self.coverage.steps += 1;
            if self.node.is_none() {
                self.try_start()?;
            } else if self.chance.per_mille(self.setting.crashes) {
                self.misfortune()?;
            } else if self.chance.per_mille(self.setting.faults) {
                self.disk_fault();
            } else if self.chance.per_mille(self.setting.panics) {
                self.plant_panic();
            } else if self.chance.per_mille(self.setting.checkpoints) {
                self.come_to_snapshots()?;
            } else {
                let next = self.chance.weighted(&self.moves);
                self.make(next)?;
            }
        }
        Ok(())
    }

    pub(crate) fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            crate::print(&format!("{:>5} {}", self.step, what()));
        }
    }

    /// Starts the node. The process may be killed during startup.
    fn try_start(&mut self) -> Result<(), Violation> {
        if self.chance.per_mille(250) {
            let calls = self.chance.below(30);
            self.disk.die_after(calls);
        }
        self.start()
    }

    pub(crate) fn start(&mut self) -> Result<(), Violation> {
        let wall = Timestamp(self.wall);
        let started = Node::start(&self.disk, self.setting, (wall, &self.world), &mut self.tap);
        match started {
            Ok(node) => {
                self.started(node)?;
                Ok(())
            }
            Err(Stopped::Broken(violation)) => Err(violation),
            Err(Stopped::Journal(error)) if self.disk.is_dead() => {
                self.say(|| format!("start: killed: {error}"));
                self.coverage.deaths_inside_a_start += 1;
                self.after_death();
                Ok(())
            }
            Err(Stopped::Journal(error)) if error.is_disk_full() && self.disk.is_bounded() => {
                self.say(|| format!("start: {error}"));
                self.disk.set_space(None);
                self.disk.kill();
                Ok(())
            }
            Err(Stopped::Journal(error)) => Err(Violation::new(Promise::Starts, error)),
            Err(Stopped::Replay(error)) => {
                self.checker.explain(&self.disk, self.past.as_ref(), self.peril)?;
                Err(Violation::new(Promise::Starts, error))
            }
        }
    }

    fn started(&mut self, mut node: Node) -> Result<(), Violation> {
        let tail = &node.found.tail;
        self.say(|| format!("start: {tail:?}"));
        self.coverage.starts += 1;
        if let Some(cut) = &tail.cut {
            self.coverage.torn_tails_cut += 1;
            self.coverage.records_cut += cut.seqs.len() as u64;
        }
        self.checker.start(
            (&self.disk, &node),
            self.past.take().as_ref(),
            self.peril,
            &mut self.coverage,
        )?;
        self.world
            .check_asked(|seq| self.checker.is_known(seq), |seq| !self.peril.promises(seq))?;
        self.peril.power_cut = false;
        self.peril.synced = Seq(0);
        if self.setting.kind == Kind::Numbers {
            // Skip sequence numbers, which is allowed, so that the node is near the end of its reserved range.
            let now = node.ledger.now();
            let near = RESERVE_STEP / 2 - self.chance.below(40);
            for _ in 0..near {
                node.ledger.order(now);
            }
        }
        node.look();
        let configuration = self.clients.process.configure(&mut self.chance);
        node.actors.process.post(configuration);
        self.was_full = self.disk.is_bounded();
        self.node = Some(node);
        self.check_slots()
    }

    fn make(&mut self, next: Move) -> Result<(), Violation> {
        let Some(node) = &mut self.node else {
            return Ok(());
        };
        let mut stopped = None;
        match next {
            Move::Call(id) => {
                self.clients.process.see(self.world.processes.strangers());
                let known = self.clients.process.known();
                self.clients.lock.see(known.clone());
                self.clients.queue.see(known.clone());
                self.clients.lease.see(known);
                each!(actor in &mut node.actors, clients in &mut self.clients => {
                    if actor.host.actor() == id {
                        let asks = clients.call(&mut self.chance);
                        tracing(self.trace, || format!("{:>5} {id} asks {asks:?}", self.step));
                        actor.post(asks);
                    }
                });
            }
            Move::Watch(id) => {
                let turns = each!(actor in &mut node.actors, clients in &mut self.clients => {
                    let is_it = actor.host.actor() == id;
                    is_it.then(|| waits(actor, clients, &mut node.ledger, &mut self.chance))
                });
                for turn in turns.into_iter().flatten() {
                    node.came(id, turn, &mut self.coverage);
                }
            }
            Move::Turn(who) => {
                node.turn(who, &mut self.coverage);
                self.check_bells()?;
            }
            Move::Route => {
                node.route()?;
            }
            Move::Hand => node.hand(&mut self.tap)?,
            Move::Write => stopped = node.log.write().err().map(Stopped::Journal),
            Move::Sync => stopped = node.log.sync().err().map(Stopped::Journal),
            Move::Interval => stopped = node.log.interval().err().map(Stopped::Journal),
            Move::Release => self.release()?,
            Move::Look => self.look()?,
            Move::PassTime => self.pass_time(),
            Move::World => self.world.act(&mut self.chance)?,
            Move::Complete => {
                node.complete(Some(&mut self.chance));
            }
            Move::Rebuild => stopped = node.rebuild(&mut self.coverage).err(),
            Move::LoseConnection => {
                self.coverage.connections_lost += 1;
                let mut withdrawn = false;
                each!(actor in &mut node.actors => {
                    withdrawn = withdrawn || actor.unwatch(&mut node.ledger);
                });
                self.coverage.watches_withdrawn += u64::from(withdrawn);
            }
            Move::Special => self.special(),
            Move::Mischief => self.world.processes.mischief(&mut self.chance),
            Move::Follow => {
                self.world.processes.step(&mut self.chance)?;
            }
            Move::Report => {
                node.report(Some(&mut self.chance));
                self.check_processes()?;
            }
        }
        self.say(|| format!("{next:?}"));
        match stopped {
            None => Ok(()),
            Some(stopped) => self.halted(stopped),
        }
    }

    /// Makes the move that only this kind of run has.
    fn special(&mut self) {
        let Some(node) = &mut self.node else { return };
        match self.setting.kind {
            Kind::Plain => {}
            Kind::Long => node.actors.right.post(long_call(&mut self.chance)),
            Kind::Crowd => node.actors.lock.post(Workload::crowd(&mut self.chance)),
            Kind::Numbers => {
                let now = node.ledger.now();
                // Use up the reserved numbers, so that hosts must wait for a mark that reserves more.
                while !node.ledger.is_short() {
                    node.ledger.order(now);
                }
            }
        }
    }

    pub(crate) fn release(&mut self) -> Result<(), Violation> {
        let Some(node) = &mut self.node else {
            return Ok(());
        };
        let answered = node.release();
        let counts = each!(calls in &answered => calls.len());
        self.coverage.calls_answered += counts.iter().sum::<usize>() as u64;
        let refused = each!(clients in &mut self.clients, actor in &node.actors, calls in &answered => {
            let calls = actor.answered(calls);
            calls.inspect(|call| clients.note(call)).map(refusals).sum::<u64>()
        });
        let refused: u64 = refused.iter().sum();
        for call in node.actors.lock.answered(&answered.lock) {
            self.checker.note_tokens(call)?;
        }
        for answer in node.actors.queue.take_woken() {
            self.checker.given.note_claim(&answer)?;
        }
        for call in node.actors.queue.answered(&answered.queue) {
            self.checker.given.note(call)?;
        }
        self.coverage.disk_full_refusals += refused;
        ensure(refused == 0 || self.was_full, Promise::RoomAgain, || {
            "a full disk was reported, but the disk was not full".to_owned()
        })
    }

    /// Checks that the counters' state of their bells is true.
    pub(crate) fn check_bells(&self) -> Result<(), Violation> {
        let Some(Node { actors, .. }) = &self.node else {
            return Ok(());
        };
        self.world.check_bells(&actors.left.host)?;
        self.world.check_bells(&actors.right.host)
    }

    /// Checks that the records of processes are true.
    pub(crate) fn check_processes(&self) -> Result<(), Violation> {
        let Some(Node { actors, .. }) = &self.node else {
            return Ok(());
        };
        self.world.processes.check(&actors.process.host)
    }

    /// Adds the counts of the external world.
    fn count_world(&mut self) {
        let met = &mut self.coverage;
        (met.actions_repeated, met.actions_forgotten) = self.world.met();
        let seen = self.world.processes.met();
        met.reboots = seen.reboots;
        met.keepers_killed = seen.keepers_killed;
        met.forks = seen.forks;
        met.escapes = seen.escapes;
        met.moves = seen.moves;
        met.headless = seen.headless;
        met.foreign_ids = seen.foreign_ids;
        met.chains = seen.chains;
        met.imitations = seen.imitations;
        met.pids_reused = seen.pids_reused;
        met.descriptors_out = seen.descriptors_out;
        met.events_overtaken = seen.events_overtaken;
        met.events_twice = seen.events_twice;
        met.reports_overtaken = seen.reports_overtaken;
        met.reports_twice = seen.reports_twice;
        met.notices = seen.notices;
    }

    pub(crate) fn look(&mut self) -> Result<(), Violation> {
        self.check_processes()?;
        let bounded = self.disk.is_bounded();
        let Some(node) = &mut self.node else {
            return Ok(());
        };
        // Up to two faults may be pending, a failed write and a failed sync. Each makes one attempt to prepare a segment
        // fail.
        for _ in 0..3 {
            node.look();
        }
        let room = node.ledger.room();
        if self.disk.is_dead() {
            self.coverage.deaths_inside_a_disk_call += 1;
            self.after_death();
            return Ok(());
        }
        let (noted, right) = (node.ledger.marked().offset_ms, node.clock.offset_ms());
        ensure(noted.abs_diff(right) <= 1000, Promise::WallNoted, || {
            format!("the wall clock is {right} ms off node time, but {noted} is recorded")
        })?;
        ensure(bounded || room == Room::Ample, Promise::RoomAgain, || {
            format!("the disk has space, but the node reports {room:?}")
        })
    }

    fn pass_time(&mut self) {
        let ms = self.chance.weighted(&[(60, 0), (30, 1), (8, 2), (3, 3)]);
        let ms = match ms {
            0 => self.chance.below(20),
            1 => self.chance.below(1500),
            2 => self.chance.within(1, 6) * 1000,
            _ => {
                // The machine was suspended.
                self.coverage.sleeps += 1;
                self.chance.below(DAY_MS)
            }
        };
        self.wall += ms;
        self.world.processes.pass(ms, self.wall);
        let Some(node) = &mut self.node else { return };
        node.clock.advance_ms(ms);
        if self.chance.per_mille(50) {
            self.step_wall_clock();
        }
    }

    /// Sets the wall clock forward or back while the node runs, as NTP or a user would: also by more than the three hours within which
    /// schedules make up for dates.
    fn step_wall_clock(&mut self) {
        const HOUR_MS: i64 = 3_600_000;
        let steps = [-5 * HOUR_MS, -HOUR_MS, -90_000, -400, 5_000, HOUR_MS, 5 * HOUR_MS];
        let step = *self.chance.pick(&steps);
        self.wall = self.wall.saturating_add_signed(step);
        self.world.processes.pass(0, self.wall);
        let wall = i64::try_from(self.wall).expect("clocks are near today");
        let Some(node) = &mut self.node else { return };
        let now = i64::try_from(node.ledger.now().0).expect("clocks are near today");
        node.clock.set_offset_ms(wall - now);
    }

    fn plant_panic(&mut self) {
        let stage = self.chance.weighted(&[
            (3, Stage::Decide),
            (4, Stage::Commit),
            (3, Stage::Tick),
            (1, Stage::Keeping),
            (1, Stage::Due),
            (1, Stage::Watch),
            (2, Stage::Resume),
        ]);
        let Some(node) = &mut self.node else { return };
        let called = each::weights().into_iter();
        let called: Vec<ActorId> =
            called.filter(|(_, [calls, ..])| *calls > 0).map(|(id, _)| id).collect();
        let id = *self.chance.pick(&called);
        each!(actor in &node.actors => {
            if actor.host.actor() == id {
                actor.trap.set(stage);
            }
        });
        self.say(|| format!("panic planted in {stage:?} of actor {id}"));
    }

    fn disk_fault(&mut self) {
        let fault = self.chance.weighted(&[(2, 0), (2, 1), (6, 2), (6, 3)]);
        match fault {
            0 => self.disk.fail_write(),
            1 => self.disk.fail_sync(),
            2 => {
                self.coverage.disks_filled += u64::from(!self.disk.is_bounded());
                let free = self.chance.below(self.setting.sizes.first_bytes);
                self.disk.set_space(Some(free));
                self.was_full = true;
            }
            _ => {
                self.coverage.disks_freed += u64::from(self.disk.is_bounded());
                self.disk.set_space(None);
            }
        }
        self.say(|| format!("disk fault {fault}"));
    }
}

/// Begins a wait for a client of this actor.
fn waits<R: Reference>(
    actor: &mut Actor<R>,
    clients: &R::Clients,
    ledger: &mut Ledger,
    chance: &mut Chance,
) -> Turn {
    actor.watch(ledger, clients.watch(chance))
}

/// Returns the number of answers that report a full disk.
fn refusals<R: Reference>(call: &Call<R>) -> u64 {
    let answers = call.answers.iter().flatten().flatten();
    answers.filter(|reply| R::is_disk_full(reply)).count() as u64
}

/// Prints a line of the trace, if the trace was requested.
fn tracing(trace: bool, line: impl FnOnce() -> String) {
    if trace {
        crate::print(&line());
    }
}
