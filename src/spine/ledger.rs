//! The ordering point of a node: hands out sequence numbers and times, and gathers records until they are written together as a batch.
//!
//! Guarantees: numbers are handed out only below a bound that is durable; time in the log never goes back. The ledger does not decide,
//! write or sync: the driver of the node (the runtime or the simulation) takes the batch and writes it.

use crate::clock::{Clock, Offset, Timestamp};
use crate::ids::{ActorId, Chance, RequestKey, Seq};
use crate::persist::format::{About, Batch, Kind};
use crate::persist::journal::{Room, Tail};
use crate::persist::mark::{Draining, Mark, Marked, Watermark};
use crate::spine::delivery::Stage;
use crate::spine::machine::{Moment, Now, Stamp, Start};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of sequence numbers reserved at a time.
pub const RESERVE_STEP: u64 = 1 << 20;

/// The change of the wall clock relative to node time, in milliseconds, beyond which the wall clock is recorded again.
const OFFSET_STEP_MS: u64 = 1000;

/// A step of the wall clock by at least this, in seconds, is logged. Smaller ones may be a clock that is being slewed.
const NOTED_STEP_S: u64 = 60;

/// A wall clock that is further ahead of its expected time than this, in milliseconds, is in doubt.
const AHEAD_MS: i64 = 86_400_000;

/// A wall clock in doubt is trusted again once it has not stepped for this number of milliseconds.
const DOUBT_MS: u64 = 3_600_000;

/// The journal's record of a committed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<M, O> {
    /// The message.
    pub message: M,
    /// What was decided about it.
    pub outcome: O,
    /// The message's idempotency key; if there is none, it is left out of the encoding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<RequestKey>,
}

/// The journal's record of a message that was not applied, because a panic occurred while it was handled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Poisoned<M> {
    /// Where it panicked.
    pub stage: Stage,
    /// The panic message.
    pub cause: String,
    /// The message.
    pub message: M,
}

/// The number of entries that each actor has appended since startup.
#[derive(Debug, Default)]
pub struct EntryCounts([AtomicU64; 8]);

impl EntryCounts {
    /// Returns the number of entries of an actor.
    pub fn of(&self, actor: ActorId) -> u64 {
        let count = self.0.get(usize::from(actor.0));
        count.map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Returns the number of entries of all actors.
    pub fn all(&self) -> u64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn add(&self, actor: ActorId) {
        if let Some(count) = self.0.get(usize::from(actor.0)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The ordering point.
pub struct Ledger {
    clock: Arc<dyn Clock>,
    latest: Timestamp,
    next: Seq,
    /// Numbers below this are reserved durably.
    bound: Seq,
    /// The reserve mark that is not durable yet, if there is one: its own number, and the bound that applies once the mark is durable.
    reserving: Option<(Seq, Seq)>,
    batch: Batch,
    /// The node's state, according to the marks (its own journal records) so far.
    marked: Marked,
    /// The time of the last record of the previous run, if there was one.
    ended: Option<Timestamp>,
    /// The node time of startup, or of the wall clock's last step if that is later.
    doubted: Timestamp,
    /// How far the wall clock is ahead of its expected time, in milliseconds, while it is in doubt; 0 otherwise.
    ahead: Arc<AtomicU64>,
    room: Room,
    /// The maximum number of bytes that may be handed to the journal and not yet written: the space prepared in its files, minus the
    /// reserve.
    space: u64,
    /// The number of bytes handed to the journal that it had not written when last checked, plus those handed over since.
    unwritten_bytes: u64,
    /// Whether the node keeps no journal, so that no records are gathered and no numbers are reserved.
    memory: bool,
    appended: Appended,
    counts: Arc<EntryCounts>,
    /// The number of sequence numbers skipped after the end of the recovered journal.
    skipped: u64,
}

/// An amount of log: a number of records and their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// The number of records, not counting marks.
    pub records: u64,
    /// The size of all records, including marks, in bytes.
    pub bytes: u64,
}

/// The amount of appended log at which a checkpoint is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointThreshold {
    /// The number of records to reach, unless `bytes` is reached.
    pub records: u64,
    /// The number of bytes to reach, unless `records` is reached.
    pub bytes: u64,
    /// The number of bytes to reach in either case.
    pub bytes_min: u64,
}

impl Appended {
    /// Returns whether the threshold is reached.
    pub fn is(self, threshold: CheckpointThreshold) -> bool {
        (self.records >= threshold.records || self.bytes >= threshold.bytes)
            && self.bytes >= threshold.bytes_min
    }
}

impl Ledger {
    /// Creates a ledger that continues after `tail`. [`start`](Self::start) must be called before anything else is ordered.
    pub fn new(clock: Arc<dyn Clock>, tail: &Tail, marked: Marked, memory: bool) -> Self {
        let next = tail.next();
        Self {
            latest: tail.last_at.max(clock.now()),
            ended: (tail.last_at > Timestamp(0)).then_some(tail.last_at),
            doubted: Timestamp(0),
            ahead: Arc::default(),
            marked,
            clock,
            next,
            bound: next,
            reserving: None,
            batch: Batch::default(),
            room: Room::Ample,
            space: u64::MAX,
            unwritten_bytes: 0,
            memory,
            appended: Appended { records: tail.entries, bytes: tail.bytes },
            counts: Arc::default(),
            skipped: next.0 - 1 - tail.last.0,
        }
    }

    /// Returns node time, which never goes back.
    pub fn now(&mut self) -> Timestamp {
        self.latest = self.latest.max(self.clock.now());
        self.latest
    }

    /// Reserves numbers and records the start. The batch must be durable before anything else is ordered.
    pub fn start(&mut self, chance: Chance) -> Start {
        self.bound = Seq(self.next.0 + RESERVE_STEP);
        self.mark(&Mark::Reserve { bound: self.bound });
        let at = self.now();
        let offset_ms = self.clock.offset_ms();
        // The offset at which the wall clock would still show the time of the last record. How much time has passed since then is unknown
        // here, so none is added.
        let expected = self.ended.map(|ended| {
            let shown = self.marked.believed.unwrap_or(self.marked.offset_ms);
            shown.saturating_sub_unsigned(at.0.saturating_sub(ended.0))
        });
        let believed = expected.filter(|expected| is_far_ahead(offset_ms, *expected));
        if self.ended.is_some() {
            note_step(self.marked.offset_ms.min(0), offset_ms.min(0));
        }
        let program = env!("CARGO_PKG_VERSION").to_owned();
        let skipped = self.skipped;
        let stamp = self.mark(&Mark::Start { chance, offset_ms, program, skipped, believed });
        Start { stamp, skipped }
    }

    /// Records that a snapshot slot is about to be sealed with these watermarks, and returns the number and time of the record.
    pub fn checkpoint(&mut self, slot: u8, states: Vec<Watermark>) -> Stamp {
        self.mark(&Mark::Checkpoint { slot, states })
    }

    /// Records the rules of an actor, if they have changed.
    pub fn rules(&mut self, actor: ActorId, rules: &impl Serialize) {
        let rules = rmp_serde::to_vec(rules).expect("rules should always encode");
        if self.marked.rules.get(&actor) != Some(&rules) {
            self.mark(&Mark::Rules { actor, rules });
        }
    }

    /// Makes an actor refuse the kinds of work that `draining` names, from here until the server restarts. Returns the number and time of
    /// the record, or `None` if the actor already refuses at least as much.
    pub fn drain(&mut self, actor: ActorId, draining: Draining) -> Option<Stamp> {
        let more = draining > self.marked.draining(actor);
        more.then(|| self.mark(&Mark::Drain { actor, draining }))
    }

    /// Records a clean stop, and returns the number and time of the record.
    pub fn stop(&mut self) -> Stamp {
        self.mark(&Mark::Stop)
    }

    /// Records the wall clock if it has stepped since it was last recorded, or was in doubt and is now trusted again. Returns whether a
    /// mark was recorded.
    pub fn watch_wall_clock(&mut self) -> bool {
        let offset_ms = self.clock.offset_ms();
        let before = self.marked.believed;
        if offset_ms.abs_diff(self.marked.offset_ms) > OFFSET_STEP_MS {
            note_step(self.marked.offset_ms, offset_ms);
            let expected = before.unwrap_or(self.marked.offset_ms);
            let believed = is_far_ahead(offset_ms, expected).then_some(expected);
            self.mark(&Mark::Clock { offset_ms, believed });
            return true;
        }
        let waited = self.now().since(self.doubted).as_millis();
        waited >= u128::from(DOUBT_MS) && self.confirm_wall_clock().is_some()
    }

    /// If the wall clock is in doubt, trusts it from here on, and returns the number and time of the record of this. Otherwise, records
    /// nothing and returns `None`.
    pub fn confirm_wall_clock(&mut self) -> Option<Stamp> {
        self.marked.believed?;
        Some(self.mark(&Mark::Clock { offset_ms: self.clock.offset_ms(), believed: None }))
    }

    /// Returns how far the wall clock is ahead of its expected time while it is in doubt, in milliseconds; otherwise zero.
    pub fn ahead(&self) -> &Arc<AtomicU64> {
        &self.ahead
    }

    /// Returns the number of entries that each actor has appended.
    pub fn counts(&self) -> &Arc<EntryCounts> {
        &self.counts
    }

    /// Returns the current time by both clocks. The wall clock's offset from node time is the one last recorded in the log.
    pub fn both(&mut self) -> Now {
        Now { at: self.now(), offset: Offset(self.marked.offset_ms) }
    }

    /// Returns the moment of a decision that this actor makes now. No number may be handed out between this call and the resulting entry.
    pub fn moment(&mut self, actor: ActorId, now: Now) -> Moment {
        self.renew_reserve(now.at);
        Moment {
            seq: self.next,
            now,
            chance: self.marked.chance,
            draining: self.marked.draining(actor),
        }
    }

    /// Hands out the next number, stamped with `at`.
    pub fn order(&mut self, at: Timestamp) -> Stamp {
        self.order_some(at, 1)
    }

    /// Hands out `numbers` numbers in a row. Returns the first, stamped with `at`.
    pub fn order_some(&mut self, at: Timestamp, numbers: u64) -> Stamp {
        self.renew_reserve(at);
        self.number(at, numbers)
    }

    /// Reserves more numbers if fewer than half of [`RESERVE_STEP`] are left below the bound, and no reserve is pending.
    fn renew_reserve(&mut self, at: Timestamp) {
        if !self.memory && self.reserving.is_none() && self.bound.0 - self.next.0 < RESERVE_STEP / 2
        {
            let bound = Seq(self.bound.0 + RESERVE_STEP);
            let stamp = self.number(at, 1);
            self.reserving = Some((stamp.seq, bound));
            self.put_mark(stamp, &Mark::Reserve { bound });
        }
    }

    fn number(&mut self, at: Timestamp, numbers: u64) -> Stamp {
        let seq = self.next;
        self.next = Seq(seq.0 + numbers);
        assert!(
            self.memory || self.next <= self.bound,
            "sequence numbers are handed out only below the durable bound"
        );
        Stamp { seq, at }
    }

    /// Returns whether numbers or space are short. If so, nothing may be ordered until the batch is durable.
    pub fn is_short(&self) -> bool {
        !self.memory && (self.bound.0 - self.next.0 < RESERVE_STEP / 8 || self.is_crowded())
    }

    /// Notes that everything up to `upto` is durable, which makes a pending reserve valid.
    pub fn durable(&mut self, upto: Seq) {
        if let Some((_, bound)) = self.reserving.take_if(|(mark, _)| *mark <= upto) {
            self.bound = bound;
        }
    }

    /// Appends an entry.
    pub fn append<T: Serialize>(&mut self, actor: ActorId, stamp: Stamp, content: &T) {
        self.put(actor, Kind::Entry, stamp, content);
    }

    /// Appends an entry that no answer waits for.
    pub fn append_transient<T: Serialize>(&mut self, actor: ActorId, stamp: Stamp, content: &T) {
        self.record(actor, Kind::Entry, stamp, |batch, about| {
            batch.push_transient(about, |bytes| encode(bytes, content));
        });
    }

    /// Appends the record of a message that was not applied because of a panic.
    pub fn poison<M: Serialize>(&mut self, actor: ActorId, stamp: Stamp, content: &Poisoned<M>) {
        self.put(actor, Kind::Poisoned, stamp, content);
    }

    fn put<T: Serialize>(&mut self, actor: ActorId, kind: Kind, stamp: Stamp, content: &T) {
        self.record(actor, kind, stamp, |batch, about| {
            batch.push(about, |bytes| encode(bytes, content));
        });
    }

    fn record(
        &mut self,
        actor: ActorId,
        kind: Kind,
        stamp: Stamp,
        push: impl FnOnce(&mut Batch, About),
    ) {
        if kind == Kind::Entry {
            self.counts.add(actor);
        }
        if self.memory {
            return;
        }
        let before = self.batch.len();
        let about = About { seq: stamp.seq, at: stamp.at, actor, kind };
        push(&mut self.batch, about);
        self.appended.records += u64::from(kind != Kind::Mark);
        self.appended.bytes += (self.batch.len() - before) as u64;
    }

    fn mark(&mut self, mark: &Mark) -> Stamp {
        let at = self.now();
        let stamp = self.order(at);
        self.marked.apply(mark);
        if let Mark::Start { .. } | Mark::Clock { .. } = mark {
            self.note_doubt(at);
        }
        self.put_mark(stamp, mark);
        stamp
    }

    /// Notes and logs whether the wall clock, which was just read, is in doubt.
    fn note_doubt(&mut self, at: Timestamp) {
        let before = self.ahead.load(Ordering::Relaxed);
        let believed = self.marked.believed;
        let ahead = believed.map_or(0, |believed| self.marked.offset_ms.abs_diff(believed));
        self.doubted = at;
        self.ahead.store(ahead, Ordering::Relaxed);
        let hours = ahead / 3_600_000;
        if ahead > 0 {
            tracing::warn!(
                hours,
                "THE WALL CLOCK IS FAR AHEAD: nothing is pruned until `sexton confirm-clock` is run, or an hour passes without a step"
            );
        } else if before > 0 {
            tracing::info!("the wall clock is trusted again: pruning resumes");
        }
    }

    fn put_mark(&mut self, stamp: Stamp, mark: &Mark) {
        self.put(ActorId::NODE, Kind::Mark, stamp, mark);
        self.batch.make_urgent();
    }

    /// Takes the records gathered since the last call.
    pub fn take_batch(&mut self) -> Batch {
        self.unwritten_bytes += self.batch.len() as u64;
        std::mem::take(&mut self.batch)
    }

    /// Returns the gathered records, so that the caller can write them itself instead of handing them to the journal thread.
    pub fn batch_mut(&mut self) -> &mut Batch {
        &mut self.batch
    }

    /// Returns whether there is anything to write.
    pub fn is_dirty(&self) -> bool {
        !self.batch.is_empty()
    }

    /// Returns whether this node keeps no files.
    pub fn is_memory(&self) -> bool {
        self.memory
    }

    /// Returns how much room the log still has.
    pub fn room(&self) -> Room {
        self.room
    }

    /// Sets how much room the log still has.
    pub fn set_room(&mut self, room: Room) {
        self.room = room;
    }

    /// Sets the maximum number of bytes that may be handed to the journal and not yet written, and the current number of such bytes.
    pub fn set_space(&mut self, space: u64, unwritten_bytes: u64) {
        self.space = space;
        self.unwritten_bytes = unwritten_bytes;
    }

    /// Returns whether the bytes not yet written may exceed the prepared space. If so, nothing more is decided until the journal has found
    /// out whether the disk is full; after that, the reserve may be used.
    fn is_crowded(&self) -> bool {
        let on_its_way = self.unwritten_bytes + self.batch.len() as u64;
        self.room == Room::Ample && on_its_way > 0 && on_its_way >= self.space
    }

    /// Returns the total that was appended, including what recovery replayed.
    pub fn appended(&self) -> Appended {
        self.appended
    }

    /// Returns the first number that is not reserved, whether or not the reserve is durable yet.
    pub fn reserved(&self) -> Seq {
        self.reserving.map_or(self.bound, |(_, bound)| bound)
    }

    /// Returns the node's state, according to the marks so far.
    pub fn marked(&self) -> &Marked {
        &self.marked
    }

    /// Returns the last number handed out.
    pub fn last(&self) -> Seq {
        Seq(self.next.0 - 1)
    }
}

/// Logs a step of the wall clock. At a start, node time is not behind the wall clock, so only a clock that was set back is noticed.
fn note_step(before: i64, after: i64) {
    let seconds = before.abs_diff(after) / 1000;
    if seconds < NOTED_STEP_S {
        return;
    }
    let direction = if after > before { "forward" } else { "back" };
    tracing::warn!(seconds, "the wall clock was set {direction}: dates and schedules follow it");
}

fn is_far_ahead(offset_ms: i64, expected: i64) -> bool {
    offset_ms.saturating_sub(expected) > AHEAD_MS
}

fn encode<T: Serialize>(bytes: &mut Vec<u8>, content: &T) {
    rmp_serde::encode::write(bytes, content).expect("writing to memory should not fail");
}
