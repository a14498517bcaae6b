//! The whole node in one thread: its actors around one ledger and one journal.
//!
//! Does the same as the runtime, in the same order, but only on request: each method is one step, and a crash may happen
//! between any two. It also supervises panics. Planted faults are added here, never in `src/`.

use crate::actor::{Actor, Turn};
use crate::chance::Chance as Seeded;
use crate::checkpoint::{Checkpoint, Step};
use crate::counter::LEFT;
use crate::coverage::Coverage;
use crate::disk::SimDisk;
use crate::dispatch::check_room;
use crate::each::{Actors, Each, Family, Judged, Replicas, each};
use crate::log::Log;
use crate::reference::{Reference, replica};
use crate::setting::{Plant, Setting};
use crate::store::SimStores;
use crate::tap::Tap;
use crate::violation::{Promise, Violation, ensure};
use crate::world::World;
use crate::{planted, planted_claims, planted_slots};
use sexton::clock::{ManualClock, Timestamp};
use sexton::ids::Chance;
use sexton::ids::{ActorId, Digest, Seq};
use sexton::persist::PersistError;
use sexton::persist::disk::Disk;
use sexton::persist::journal::{Room, Tail};
use sexton::persist::snapshots::{BySlot, Slots};
use sexton::spine::delivery::Report;
use sexton::spine::delivery::Stage;
use sexton::spine::effect::Tell;
use sexton::spine::ledger::Ledger;
use sexton::spine::recovery::{Past, Recovering, RecoveryError, Scope, recover};
use sexton::spine::supervision::{Panicked, Verdict};
use std::collections::VecDeque;
use std::sync::Arc;

/// The reason why a node cannot continue.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The journal failed.
    Journal(PersistError),
    /// The log could not be replayed.
    Replay(RecoveryError),
    /// A promise was broken during startup.
    Broken(Violation),
}

impl From<PersistError> for Stopped {
    fn from(error: PersistError) -> Self {
        Self::Journal(error)
    }
}

impl From<RecoveryError> for Stopped {
    fn from(error: RecoveryError) -> Self {
        if let RecoveryError::Persist(error @ PersistError::Io { .. }) = error {
            Self::Journal(error)
        } else {
            Self::Replay(error)
        }
    }
}

impl From<Violation> for Stopped {
    fn from(violation: Violation) -> Self {
        Self::Broken(violation)
    }
}

pub(crate) struct Node {
    pub(crate) actors: Actors,
    pub(crate) ledger: Ledger,
    pub(crate) log: Log,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) found: StartFindings,
    pub(crate) slots: Slots,
    /// The entry up to which each sealed slot contains the state.
    pub(crate) sealed: BySlot<Option<Seq>>,
    pub(crate) checkpoint: Option<Checkpoint>,
    /// Whether a checkpoint is in progress, or was when the process ended.
    pub(crate) amid: bool,
    /// Counts of this node, to be added when it ends.
    pub(crate) met: Coverage,
    pub(crate) plant: Option<Plant>,
    stores: Arc<SimStores>,
    disk: SimDisk,
    tells: VecDeque<Tell>,
    /// The free space of the disk before entries were decided: each item has the last entry before a change of the space,
    /// and the space after it. The first item is from before the current batch.
    rooms: Vec<(Seq, Room)>,
    pub(crate) world: World,
}

/// The indexes of the calls of each actor that were just answered.
pub(crate) type Answered = Each<CallsOf>;

pub(crate) struct CallsOf;

impl Family for CallsOf {
    type Of<M: Judged> = Vec<usize>;
}

/// What the node found on the disk at startup.
#[derive(Clone, Debug)]
pub(crate) struct StartFindings {
    pub(crate) tail: Tail,
    /// Whether recovery began from a snapshot.
    pub(crate) from_snapshot: bool,
    /// What is wrong with the snapshots, each as text.
    pub(crate) mended: Vec<String>,
    /// The last entry and the digest of each actor.
    pub(crate) digests: Vec<(Seq, Digest)>,
    /// The sequence number of the start mark.
    pub(crate) start: Seq,
}

impl Node {
    /// Recovers from the disk, and records the startup in the log.
    pub(crate) fn start(
        disk: &SimDisk,
        setting: &Setting,
        (wall, world): (Timestamp, &World),
        tap: &mut Tap,
    ) -> Result<Self, Stopped> {
        let mut replicas = Replicas::new();
        planted_claims::recover(setting.plant, &mut replicas);
        let chance = Seeded::of(setting.seed ^ disk.operations());
        let stores = Arc::new(SimStores::new(disk, chance));
        let theirs = planted_slots::disk(setting.plant, disk);
        let slots = Slots::new(theirs, Arc::clone(&stores) as _);
        let past = if setting.plant == Some(Plant::PoisonApplied) {
            planted::recover_with_poison(disk, &mut replicas)?
        } else {
            recover_only_reading(disk, &slots, &mut replicas.recovering())?
        };
        let Past { mut tail, snapshot, sealed, mended, marked } = past;
        planted_claims::recovered(setting.plant, &mut replicas);
        let digests = each!(it in &replicas => (it.last(), it.digest())).into();
        tap.start(tail.last, tail.last_at);
        planted::forget(setting.plant, &mut tail);
        let clock = Arc::new(ManualClock::at(wall.max(tail.last_at)));
        clock.set_offset_ms(offset(wall, tail.last_at));
        let mut log = Log::open(disk, setting, &tail)?;
        let mut ledger = Ledger::new(Arc::clone(&clock) as _, &tail, marked, false);
        let start = ledger.start(Chance([7; 32]));
        let (start, batch) = planted::start(setting.plant, start, ledger.take_batch());
        tap.pass(&batch)?;
        log.hand(batch);
        log.drain()?;
        ledger.durable(start.stamp.seq);
        let mut node = Self {
            actors: Actors::new(replicas),
            ledger,
            log,
            clock,
            found: StartFindings {
                tail,
                from_snapshot: snapshot.is_some(),
                mended,
                digests,
                start: start.stamp.seq,
            },
            slots,
            sealed,
            checkpoint: None,
            amid: false,
            met: Coverage::default(),
            plant: setting.plant,
            stores,
            disk: disk.clone(),
            tells: VecDeque::new(),
            rooms: vec![(Seq(0), Room::Ample)],
            world: world.clone(),
        };
        node.actors.lock.early_reads = setting.plant == Some(Plant::ReadBeforeSync);
        world.start(start.stamp.seq);
        node.actors.attach(world);
        for began in each!(actor in &mut node.actors => actor.host.start(start)) {
            began.map_err(|words| Violation::new(Promise::NoPanic, words))?;
        }
        planted::started(setting.plant, &mut node);
        if setting.plant != Some(Plant::ResumeNotDrained) {
            for id in node.actors.ids() {
                node.gather_tells(id);
            }
        }
        Ok(node)
    }

    /// Restarts the actors for which the Supervisor's verdict has arrived.
    pub(crate) fn pass_verdicts(&mut self) {
        for (id, verdict) in self.world.take_verdicts() {
            assert_eq!(verdict, Verdict::Restart, "its rules never halt");
            each!(actor in &mut self.actors => actor.judged &= actor.host.actor() != id);
        }
    }

    /// Handles the result of an actor's turn: collects its tells, and reports a panic to the Supervisor.
    pub(crate) fn came(&mut self, id: ActorId, turn: Turn, coverage: &mut Coverage) {
        if matches!(turn, Turn::Idle) {
            return;
        }
        self.gather_tells(id);
        match turn {
            Turn::Idle | Turn::Done => {}
            Turn::Yielded => coverage.flows_yielded += 1,
            Turn::Panicked(report) => {
                Self::note(&report, coverage);
                let spent = each!(actor in &self.actors => actor.host.actor() == id && actor.host.is_spent());
                let panicked = Panicked {
                    actor: id,
                    stage: report.stage,
                    seq: report.seq,
                    cause: report.cause,
                    item: report.item,
                    spent: spent.contains(&true),
                };
                self.tells.push_back(Tell {
                    from: id,
                    to: ActorId::SUPERVISOR,
                    message: rmp_serde::to_vec(&panicked).expect("messages encode"),
                });
            }
        }
    }

    /// Gives an actor a turn.
    pub(crate) fn turn(&mut self, id: ActorId, coverage: &mut Coverage) {
        let has_mail = each!(actor in &self.actors => actor.host.actor() == id && actor.has_mail());
        let is_driven = has_mail.contains(&true);
        let room = self.ledger.room();
        if self.plant == Some(Plant::LowDiskIgnored) && id == ActorId::DISPATCH {
            self.ledger.set_room(Room::Ample);
        }
        let turn = self.actors.turn(id, &mut self.ledger);
        self.ledger.set_room(room);
        // With the planted fault, requests that `resume` repeated at startup stay in the host until the first message
        // after it.
        if self.plant != Some(Plant::ResumeNotDrained) || is_driven {
            self.came(id, turn, coverage);
        }
    }

    fn note(report: &Report, coverage: &mut Coverage) {
        match report.stage {
            Stage::Decide => coverage.panics_in_decide += 1,
            Stage::Commit => coverage.panics_in_commit += 1,
            Stage::Tick => coverage.panics_in_tick += 1,
            Stage::Query => coverage.panics_in_query += 1,
            Stage::Keeping => coverage.panics_in_keeping += 1,
            Stage::Due => coverage.panics_in_due += 1,
            Stage::Watch => coverage.panics_in_watch += 1,
            Stage::Resume => coverage.panics_in_resume += 1,
        }
    }

    /// Rebuilds a spent actor once the log is durable up to its last entry. Other actors and a checkpoint in progress
    /// continue: the slot that the checkpoint writes has no seal, so the rebuild does not read it.
    pub(crate) fn rebuild(&mut self, coverage: &mut Coverage) -> Result<(), Stopped> {
        let files = (&self.disk, &self.slots, &mut self.ledger);
        let (disk, slots, ledger) = files;
        let released = self.log.released;
        let rebuilt = each!(actor in &mut self.actors => {
            (actor.host.actor(), rebuild((disk, slots, &mut *ledger), actor, released)?)
        });
        for (id, rebuilt) in rebuilt {
            if let Some((from_snapshot, turn)) = rebuilt {
                self.met.rebuilds_from_a_snapshot += u64::from(from_snapshot);
                self.met.rebuilds_in_a_checkpoint += u64::from(self.amid);
                self.came(id, turn, coverage);
            }
        }
        Ok(())
    }

    /// Continues a checkpoint, or begins one.
    pub(crate) fn checkpoint(&mut self, bytes_max: usize) -> Result<Step, PersistError> {
        let Some(mut checkpoint) = self.checkpoint.take() else {
            self.amid = true;
            let opened = Checkpoint::open(self);
            self.amid = opened.is_ok() || self.disk.is_dead();
            self.checkpoint = Some(opened?);
            return Ok(Step::Going);
        };
        let step = checkpoint.step(self, bytes_max);
        self.checkpoint = Some(checkpoint);
        match &step {
            Ok(Step::Going | Step::Waiting) => {}
            // The process is dead: it cannot clean up.
            Err(_) if self.disk.is_dead() => {}
            Ok(Step::Sealed(_) | Step::Interrupted) | Err(_) => self.give_up(),
        }
        step
    }

    /// Abandons the checkpoint in progress. Its slot is unusable unless it is sealed.
    fn give_up(&mut self) {
        if let Some(checkpoint) = self.checkpoint.take() {
            checkpoint.end(self);
            self.amid = self.disk.is_dead();
        }
    }

    /// Returns the disk that snapshots are written to.
    pub(crate) fn snapshots_disk(&self) -> Arc<dyn Disk> {
        planted_slots::disk(self.plant, &self.disk)
    }

    /// Checks that every store that was opened was in the state in which a node had closed it.
    pub(crate) fn check_stores(&self) -> Result<(), Violation> {
        ensure(self.stores.spoiled() == 0, Promise::Sealed, || {
            "a store was opened whose files had changed".to_owned()
        })
    }

    /// Collects the tells (messages to other actors) that an actor sends, and notifies the senders of tells that it refused.
    fn gather_tells(&mut self, id: ActorId) {
        let now = self.ledger.now();
        let mut refused = Vec::new();
        each!(actor in &mut self.actors => {
            if actor.host.actor() == id {
                self.tells.extend(actor.take_tells());
                refused = actor.host.take_undelivered();
            }
        });
        self.met.tells_refused += refused.len() as u64;
        if self.plant == Some(Plant::RefusedTellForgotten) {
            return;
        }
        each!(actor in &mut self.actors => {
            if refused.contains(&actor.host.actor()) {
                actor.host.undelivered(now);
            }
        });
    }

    /// Delivers the next tell to its actor's mailbox. Returns whether there was one.
    pub(crate) fn route(&mut self) -> Result<bool, Violation> {
        let Some(tell) = self.tells.pop_front() else {
            return Ok(false);
        };
        let processes = &self.actors.process.host;
        self.world.processes.check_gone(processes, &tell)?;
        // Lose only tells of counters. If a report of a panic were lost, its actor would wait for the verdict forever.
        let is_told = tell.from == ActorId(LEFT) && tell.to != ActorId::SUPERVISOR;
        let is_lost = self.plant == Some(Plant::TellLost) && is_told;
        if planted::is_swallowed(self.plant, &tell) {
            return Ok(true);
        }
        self.tells.extend(planted::forged(self.plant, &tell));
        self.met.tells_lost += u64::from(is_lost);
        if !is_lost || self.met.tells_lost.is_multiple_of(2) {
            self.actors.post_tell(&tell);
        }
        Ok(true)
    }

    /// Delivers the next completion of a bell to its actor's mailbox, or loses it by chance. Returns whether there was
    /// one.
    pub(crate) fn complete(&mut self, lossy: Option<&mut Seeded>) -> bool {
        let Some(tell) = self.world.report(lossy) else {
            return false;
        };
        self.actors.post_tell(&tell);
        true
    }

    /// Delivers the next report of the port of processes to its actor's mailbox. Returns whether there was one.
    pub(crate) fn report(&mut self, chance: Option<&mut Seeded>) -> bool {
        let Some(tell) = self.world.processes.report(chance) else {
            return false;
        };
        self.actors.post_tell(&tell);
        true
    }

    /// Hands the current batch to the journal.
    pub(crate) fn hand(&mut self, tap: &mut Tap) -> Result<(), Violation> {
        let batch = self.ledger.take_batch();
        tap.pass(&batch)?;
        check_room(&batch, &self.rooms)?;
        self.rooms.drain(..self.rooms.len() - 1);
        let batch = planted_claims::as_asked(&self.actors.queue, batch);
        let batch = planted_claims::as_asked(&self.actors.dispatch, batch);
        self.log.hand(planted::alter(self.plant, batch));
        Ok(())
    }

    /// Releases answers whose entries are durable. Returns the calls that were answered.
    pub(crate) fn release(&mut self) -> Answered {
        let upto = if self.plant == Some(Plant::ReplyBeforeSync) {
            self.ledger.last()
        } else {
            self.log.released
        };
        self.ledger.durable(self.log.released);
        let early = planted::released_early(self.plant, self.ledger.last());
        self.actors.queue.release(early);
        if self.plant == Some(Plant::ProcessesEarly) {
            self.actors.process.release(self.ledger.last());
        }
        if self.plant == Some(Plant::ActionBeforeSync) {
            self.actors.left.release(self.ledger.last());
        }
        let answered = each!(list: actor in &mut self.actors => actor.release(upto));
        self.pass_verdicts();
        answered
    }

    /// Checks the free space of the disk and the wall clock for changes, and records them.
    pub(crate) fn look(&mut self) {
        let room = self.log.look();
        if room != self.ledger.room() {
            self.ledger.set_room(room);
            self.rooms.push((self.ledger.last(), room));
            each!(actor in &mut self.actors => actor.handle_due());
        }
        let before = self.ledger.last();
        self.ledger.watch_wall_clock();
        let last = self.ledger.last();
        if last > before {
            each!(actor in &mut self.actors => actor.stepped = last);
        }
    }

    /// Returns the kinds of work that can be done without time passing.
    pub(crate) fn left_to_do(&mut self) -> Vec<&'static str> {
        let now = self.ledger.both();
        let waiting = each!(actor in &self.actors => actor.is_waiting(now)).contains(&true);
        let left = [
            (!self.tells.is_empty(), "tells"),
            (!self.world.is_quiet(), "bells, completions, verdicts or processes"),
            (self.ledger.is_dirty(), "records"),
            (self.log.is_busy(), "writes"),
            (waiting, "mail, or what is due"),
        ];
        let left = left.into_iter().filter(|(is_left, _)| *is_left);
        left.map(|(_, what)| what).collect()
    }
}

/// Returns the wall clock minus node time after startup, in milliseconds.
fn offset(wall: Timestamp, floor: Timestamp) -> i64 {
    let behind = floor.0.saturating_sub(wall.0);
    -i64::try_from(behind).expect("clocks are a few days apart")
}

/// Recovers, and checks that recovery changes no byte on the disk.
fn recover_only_reading(
    disk: &SimDisk,
    slots: &Slots,
    replicas: &mut [&mut dyn Recovering],
) -> Result<Past, Stopped> {
    let before = disk.operations();
    let past = recover(disk, Some(slots), replicas, Scope::default())?;
    ensure(disk.operations() == before, Promise::Sealed, || {
        "reading the snapshots changed something".to_owned()
    })?;
    Ok(past)
}

/// Rebuilds an actor if it is spent and the log is durable up to its last entry. Returns whether the rebuild began from a
/// snapshot, and the result of the turn; `None` if there was nothing to rebuild.
fn rebuild<R: Reference>(
    (disk, slots, ledger): (&SimDisk, &Slots, &mut Ledger),
    actor: &mut Actor<R>,
    released: Seq,
) -> Result<Option<(bool, Turn)>, Stopped> {
    let until = actor.host.last();
    if !actor.host.is_spent() || actor.judged || until > released {
        return Ok(None);
    }
    let mut replica = replica::<R>();
    let scope = Scope { until: Some(until), partial: true };
    let past = recover(disk, Some(slots), &mut [&mut replica], scope)?;
    let turn = actor.rebuild(ledger, replica);
    Ok(Some((past.snapshot.is_some(), turn)))
}
