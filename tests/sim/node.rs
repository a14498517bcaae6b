//! The whole node in one thread: its actors around one ledger and one journal.
//!
//! Does what the runtime does, in the same order, but only when it is told to: each method is one move, and a crash
//! may fall between any two. A panic is supervised here, too. Planted faults are wired in here, never in `src/`.

use crate::actor::{Actor, Turn};
use crate::chance::Chance as Seeded;
use crate::checkpoint::{Checkpoint, Step};
use crate::coverage::Coverage;
use crate::disk::SimDisk;
use crate::each::{ACTORS, Actors, Replicas, Who, each};
use crate::log::Log;
use crate::reference::{Reference, replica};
use crate::setting::{Plant, Setting};
use crate::store::SimStores;
use crate::tap::Tap;
use crate::violation::{Promise, Violation, ensure};
use crate::{planted, planted_slots};
use sexton::clock::{ManualClock, Timestamp};
use sexton::ids::{Digest, Seq};
use sexton::persist::PersistError;
use sexton::persist::disk::Disk;
use sexton::persist::format::Chance;
use sexton::persist::journal::Tail;
use sexton::persist::snapshots::{BySlot, Slots};
use sexton::spine::host::Report;
use sexton::spine::ledger::{Ledger, Stage};
use sexton::spine::machine::Tell;
use sexton::spine::recovery::{Past, Recovering, RecoveryError, Scope, recover};
use std::collections::VecDeque;
use std::sync::Arc;

/// Why a node goes no further.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The journal failed.
    Journal(PersistError),
    /// The log could not be replayed.
    Replay(RecoveryError),
    /// A promise was broken on the way.
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

/// The node.
pub(crate) struct Node {
    pub(crate) actors: Actors,
    pub(crate) ledger: Ledger,
    pub(crate) log: Log,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) found: Found,
    pub(crate) slots: Slots,
    /// Up to where each slot goes that is sealed.
    pub(crate) sealed: BySlot<Option<Seq>>,
    pub(crate) checkpoint: Option<Checkpoint>,
    /// A checkpoint is being taken, or was when the process died.
    pub(crate) amid: bool,
    /// What it met on its way, to be added when it goes down.
    pub(crate) met: Coverage,
    pub(crate) plant: Option<Plant>,
    stores: Arc<SimStores>,
    disk: SimDisk,
    tells: VecDeque<Tell>,
}

/// What a start found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) tail: Tail,
    /// It began with a snapshot.
    pub(crate) from_snapshot: bool,
    /// What is wrong with snapshots, in words.
    pub(crate) mended: Vec<String>,
    /// Newest entry and digest of each actor.
    pub(crate) digests: [(Seq, Digest); ACTORS],
    /// The number of the start mark.
    pub(crate) start: Seq,
}

impl Node {
    /// Recovers what the disk holds, and notes the start.
    pub(crate) fn start(
        disk: &SimDisk,
        setting: &Setting,
        wall: Timestamp,
        tap: &mut Tap,
    ) -> Result<Self, Stopped> {
        let mut replicas = Replicas::new();
        let chance = Seeded::of(setting.seed ^ disk.operations());
        let stores = Arc::new(SimStores::new(disk, chance));
        let theirs = planted_slots::disk(setting.plant, disk);
        let slots = Slots::new(theirs, Arc::clone(&stores) as _);
        let past = if setting.plant == Some(Plant::PoisonApplied) {
            planted::recover_with_poison(disk, &mut replicas)?
        } else {
            recover_only_reading(disk, &slots, &mut replicas.recovering())?
        };
        let Past {
            mut tail,
            snapshot,
            sealed,
            mended,
        } = past;
        let digests = each!(it in replicas.each_ref() => (it.last(), it.digest()));
        tap.start(tail.last, tail.last_at);
        planted::forget(setting.plant, &mut tail);
        let clock = Arc::new(ManualClock::at(wall.max(tail.last_at)));
        clock.set_offset_ms(offset(wall, tail.last_at));
        let mut log = Log::open(disk, setting, &tail)?;
        let mut ledger = Ledger::new(Arc::clone(&clock) as _, &tail, false);
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
            found: Found {
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
        };
        node.actors.lock.early_reads = setting.plant == Some(Plant::ReadBeforeSync);
        each!(actor in node.actors.each_mut() => actor.host.start(start));
        planted::started(setting.plant, &mut node);
        node.gather_tells();
        Ok(node)
    }

    /// Gives an actor a turn.
    pub(crate) fn turn(&mut self, who: Who, coverage: &mut Coverage) {
        let turn = self.actors.turn(who, &mut self.ledger);
        self.gather_tells();
        match turn {
            Turn::Idle | Turn::Done => {}
            Turn::Yielded => coverage.flows_yielded += 1,
            Turn::Panicked(report) => Self::note(&report, coverage),
        }
    }

    /// The verdict is always to restart. A spent machine waits for its rebuilding.
    fn note(report: &Report, coverage: &mut Coverage) {
        match report.stage {
            Stage::Decide => coverage.panics_in_decide += 1,
            Stage::Commit => coverage.panics_in_commit += 1,
            Stage::Tick => coverage.panics_in_tick += 1,
            Stage::Query => coverage.panics_in_query += 1,
        }
    }

    /// Rebuilds what is spent, once the log may be relied on up to there. Others go on before and meanwhile, and so does
    /// a checkpoint: the slot that it writes has no seal, and is not read.
    pub(crate) fn rebuild(&mut self) -> Result<(), Stopped> {
        let released = self.log.released;
        let files = (&self.disk, &self.slots);
        let rebuilt = each!(actor in self.actors.each_mut() => rebuild(files, actor, released)?);
        for from_snapshot in rebuilt.into_iter().flatten() {
            self.met.rebuilds_from_a_snapshot += u64::from(from_snapshot);
            self.met.rebuilds_in_a_checkpoint += u64::from(self.amid);
        }
        self.gather_tells();
        Ok(())
    }

    /// Goes on with a checkpoint, or begins one.
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
            // Nobody is left to tidy up.
            Err(_) if self.disk.is_dead() => {}
            Ok(Step::Sealed(_) | Step::Interrupted) | Err(_) => self.give_up(),
        }
        step
    }

    /// Lets go of the checkpoint that is under way, and of the slot, unless it is sealed.
    fn give_up(&mut self) {
        if let Some(checkpoint) = self.checkpoint.take() {
            checkpoint.end(self);
            self.amid = self.disk.is_dead();
        }
    }

    /// The disk that snapshots are written to.
    pub(crate) fn snapshots_disk(&self) -> Arc<dyn Disk> {
        planted_slots::disk(self.plant, &self.disk)
    }

    /// No store was ever opened that was not as its last owner left it.
    pub(crate) fn check_stores(&self) -> Result<(), Violation> {
        ensure(self.stores.spoiled() == 0, Promise::Sealed, || {
            "a store was opened whose files are not what was written".to_owned()
        })
    }

    fn gather_tells(&mut self) {
        each!(actor in self.actors.each_mut() => self.tells.extend(actor.take_tells()));
    }

    /// Brings one tell to its actor's mailbox.
    pub(crate) fn route(&mut self) -> bool {
        let Some(tell) = self.tells.pop_front() else {
            return false;
        };
        self.actors.post_tell(&tell);
        true
    }

    /// Hands what was gathered to the journal.
    pub(crate) fn hand(&mut self, tap: &mut Tap) -> Result<(), Violation> {
        let batch = self.ledger.take_batch();
        tap.pass(&batch)?;
        self.log.hand(planted::alter(self.plant, batch));
        Ok(())
    }

    /// Lets answers out that rest on nothing that is still to be synced.
    pub(crate) fn release(&mut self) -> [Vec<usize>; ACTORS] {
        let upto = if self.plant == Some(Plant::ReplyBeforeSync) {
            self.ledger.last()
        } else {
            self.log.released
        };
        self.ledger.durable(self.log.released);
        let early = planted::released_early(self.plant, self.ledger.last());
        self.actors.queue.release(early);
        each!(actor in self.actors.each_mut() => actor.release(upto))
    }

    /// Looks at the disk and at the wall clock.
    pub(crate) fn look(&mut self) {
        let room = self.log.look();
        self.ledger.set_room(room);
        self.ledger.watch_wall_clock();
    }

    /// Whether anything is left to do, but for the passing of time.
    pub(crate) fn is_at_rest(&mut self) -> bool {
        let now = self.ledger.now();
        self.tells.is_empty()
            && !self.ledger.is_dirty()
            && !self.log.is_busy()
            && !each!(actor in self.actors.each_ref() => actor.is_waiting(now)).contains(&true)
    }
}

/// Wall clock less node time after a start.
fn offset(wall: Timestamp, floor: Timestamp) -> i64 {
    let behind = floor.0.saturating_sub(wall.0);
    -i64::try_from(behind).expect("clocks are a few days apart")
}

/// Recovers; a start does not change a byte of what it reads.
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

/// Rebuilds an actor if it is time to. If so, whether that began with a snapshot.
fn rebuild<R: Reference>(
    (disk, slots): (&SimDisk, &Slots),
    actor: &mut Actor<R>,
    released: Seq,
) -> Result<Option<bool>, Stopped> {
    let until = actor.host.last();
    if !actor.host.is_spent() || until > released {
        return Ok(None);
    }
    let mut replica = replica::<R>();
    let scope = Scope {
        until: Some(until),
        partial: true,
    };
    let past = recover(disk, Some(slots), &mut [&mut replica], scope)?;
    actor.rebuild(replica);
    Ok(Some(past.snapshot.is_some()))
}
