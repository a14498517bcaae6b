//! The ordering point of a node: hands out sequence numbers and times, and gathers the records of one write.
//!
//! Promises: numbers are handed out only below a bound that is durable; time in the log never goes back.
//! Never here: deciding, writing, syncing. Whoever drives the node (the runtime, the simulation) takes the batch.

use crate::clock::{Clock, Offset, Timestamp};
use crate::ids::{ActorId, Chance, RequestKey, Seq};
use crate::persist::format::{About, Batch, Kind};
use crate::persist::journal::{Room, Tail};
use crate::persist::mark::{Draining, Mark, Marked, Watermark};
use crate::spine::delivery::Stage;
use crate::spine::machine::{Moment, Now, Stamp, Start};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How many numbers are reserved at a time.
pub const RESERVE_STEP: u64 = 1 << 20;

/// The wall clock is noted again when it has moved this much against node time.
const OFFSET_STEP_MS: u64 = 1000;

/// What the journal keeps of a message that was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<M, O> {
    /// What was asked.
    pub message: M,
    /// What was decided.
    pub outcome: O,
    /// What the message came with. Without it, the entry ends before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<RequestKey>,
}

/// What the journal keeps of a message that panicked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Poisoned<M> {
    /// Where.
    pub stage: Stage,
    /// The panic's words.
    pub cause: String,
    /// What was being done.
    pub message: M,
}

/// The ordering point.
pub struct Ledger {
    clock: Arc<dyn Clock>,
    latest: Timestamp,
    next: Seq,
    /// Numbers below this are reserved durably.
    bound: Seq,
    /// A reserve mark on its way: its own number and the bound that holds once it is durable.
    reserving: Option<(Seq, Seq)>,
    batch: Batch,
    /// What the marks so far come to.
    marked: Marked,
    room: Room,
    /// Bytes that may be on their way to the journal at a time: what is prepared there, less the reserve.
    space: u64,
    /// Bytes handed over and, when last looked, not yet written.
    handed: u64,
    /// Without a journal nothing is gathered, and numbers need no reserve.
    memory: bool,
    appended: Appended,
    /// Numbers passed over behind the tail.
    skipped: u64,
}

/// What a start would have to repeat if there were no snapshot but that of before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// Records, marks left out.
    pub records: u64,
    /// Bytes of records.
    pub bytes: u64,
}

/// When enough was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enough {
    /// So many records,
    pub records: u64,
    /// or so many bytes,
    pub bytes: u64,
    /// but in either case so many bytes.
    pub bytes_min: u64,
}

impl Appended {
    /// Whether this is enough.
    pub fn is(self, enough: Enough) -> bool {
        (self.records >= enough.records || self.bytes >= enough.bytes)
            && self.bytes >= enough.bytes_min
    }
}

impl Ledger {
    /// A ledger that goes on behind `tail`. Its first mark must be a reserve, its second a start.
    pub fn new(clock: Arc<dyn Clock>, tail: &Tail, marked: Marked, memory: bool) -> Self {
        let next = tail.next();
        Self {
            latest: tail.last_at.max(clock.now()),
            marked,
            clock,
            next,
            bound: next,
            reserving: None,
            batch: Batch::default(),
            room: Room::Ample,
            space: u64::MAX,
            handed: 0,
            memory,
            appended: Appended {
                records: tail.entries,
                bytes: tail.bytes,
            },
            skipped: next.0 - 1 - tail.last.0,
        }
    }

    /// The node's time, never less than it was before.
    pub fn now(&mut self) -> Timestamp {
        self.latest = self.latest.max(self.clock.now());
        self.latest
    }

    /// Reserves numbers and notes the start. The batch must be durable before anything else is ordered.
    pub fn start(&mut self, chance: Chance) -> Start {
        self.bound = Seq(self.next.0 + RESERVE_STEP);
        self.mark(&Mark::Reserve { bound: self.bound });
        let offset_ms = self.clock.offset_ms();
        let program = env!("CARGO_PKG_VERSION").to_owned();
        let skipped = self.skipped;
        let stamp = self.mark(&Mark::Start {
            chance,
            offset_ms,
            program,
            skipped,
        });
        Start { stamp, skipped }
    }

    /// Notes that a slot is about to be sealed with these states.
    pub fn checkpoint(&mut self, slot: u8, states: Vec<Watermark>) -> Stamp {
        self.mark(&Mark::Checkpoint { slot, states })
    }

    /// Notes the rules that an actor goes by, if it is not by these already.
    pub fn rules(&mut self, actor: ActorId, rules: Vec<u8>) {
        if self.marked.rules.get(&actor) != Some(&rules) {
            self.mark(&Mark::Rules { actor, rules });
        }
    }

    /// Has an actor take nothing new on from here until the next start; the entry, if that is more than it did.
    pub fn drain(&mut self, actor: ActorId, draining: Draining) -> Option<Stamp> {
        let more = draining > self.marked.draining(actor);
        more.then(|| self.mark(&Mark::Drain { actor, draining }))
    }

    /// Notes a stop in good order.
    pub fn stop(&mut self) -> Stamp {
        self.mark(&Mark::Stop)
    }

    /// Notes the wall clock, if it has stepped since it was last noted; whether it has.
    pub fn watch_wall_clock(&mut self) -> bool {
        let offset_ms = self.clock.offset_ms();
        let stepped = offset_ms.abs_diff(self.marked.offset_ms) > OFFSET_STEP_MS;
        if stepped {
            self.mark(&Mark::Clock { offset_ms });
        }
        stepped
    }

    /// What time it is, by both clocks. The wall clock is as it was last noted in the log.
    pub fn both(&mut self) -> Now {
        Now {
            at: self.now(),
            offset: Offset(self.marked.offset_ms),
        }
    }

    /// The moment of a decision of this actor that is made now: no number is handed out between it and the entry that comes of it.
    pub fn moment(&mut self, actor: ActorId, now: Now) -> Moment {
        self.renew_reserve(now.at);
        Moment {
            seq: self.next,
            now,
            chance: self.marked.chance,
            draining: self.marked.draining(actor),
        }
    }

    /// Hands out the next number, with the time it was asked for at.
    pub fn order(&mut self, at: Timestamp) -> Stamp {
        self.order_some(at, 1)
    }

    /// Hands out so many numbers in a row; the first of them, with the time it was asked for at.
    pub fn order_some(&mut self, at: Timestamp, numbers: u64) -> Stamp {
        self.renew_reserve(at);
        self.number(at, numbers)
    }

    /// Notes a new bound when half of the numbers below the old one are used up.
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

    /// Whether numbers or space are short: nothing may be ordered before the batch is durable.
    pub fn is_short(&self) -> bool {
        !self.memory && (self.bound.0 - self.next.0 < RESERVE_STEP / 8 || self.is_crowded())
    }

    /// Everything up to here is durable: a reserve that was on its way holds.
    pub fn durable(&mut self, upto: Seq) {
        if let Some((_, bound)) = self.reserving.take_if(|(mark, _)| *mark <= upto) {
            self.bound = bound;
        }
    }

    /// Appends an entry.
    pub fn append<T: Serialize>(&mut self, actor: ActorId, stamp: Stamp, content: &T) {
        self.put(actor, Kind::Entry, stamp, content);
    }

    /// Appends an entry that nobody waits for.
    pub fn append_passing<T: Serialize>(&mut self, actor: ActorId, stamp: Stamp, content: &T) {
        self.record(actor, Kind::Entry, stamp, |batch, about| {
            batch.push_passing(about, |bytes| encode(bytes, content));
        });
    }

    /// Appends a poisoned message.
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
        if self.memory {
            return;
        }
        let before = self.batch.len();
        let about = About {
            seq: stamp.seq,
            at: stamp.at,
            actor,
            kind,
        };
        push(&mut self.batch, about);
        self.appended.records += u64::from(kind != Kind::Mark);
        self.appended.bytes += (self.batch.len() - before) as u64;
    }

    fn mark(&mut self, mark: &Mark) -> Stamp {
        let at = self.now();
        let stamp = self.order(at);
        self.marked.apply(mark);
        self.put_mark(stamp, mark);
        stamp
    }

    fn put_mark(&mut self, stamp: Stamp, mark: &Mark) {
        self.put(ActorId::NODE, Kind::Mark, stamp, mark);
        self.batch.make_urgent();
    }

    /// The records gathered since the last time.
    pub fn take_batch(&mut self) -> Batch {
        self.handed += self.batch.len() as u64;
        std::mem::take(&mut self.batch)
    }

    /// The records gathered, to be written in place.
    pub fn batch_mut(&mut self) -> &mut Batch {
        &mut self.batch
    }

    /// Whether there is anything to write.
    pub fn is_dirty(&self) -> bool {
        !self.batch.is_empty()
    }

    /// Whether this node keeps no files.
    pub fn is_memory(&self) -> bool {
        self.memory
    }

    /// What the log can still take.
    pub fn room(&self) -> Room {
        self.room
    }

    /// Notes what the log can still take.
    pub fn set_room(&mut self, room: Room) {
        self.room = room;
    }

    /// Notes how many bytes may be on their way at a time, and how many are.
    pub fn set_space(&mut self, space: u64, handed: u64) {
        self.space = space;
        self.handed = handed;
    }

    /// Whether more is on its way than is surely prepared: whether the disk is full must be known before anything
    /// else is decided. Once it is known, the reserve is there to be drawn on.
    fn is_crowded(&self) -> bool {
        let on_its_way = self.handed + self.batch.len() as u64;
        self.room == Room::Ample && on_its_way > 0 && on_its_way >= self.space
    }

    /// What was appended in all, with what the start repeated.
    pub fn appended(&self) -> Appended {
        self.appended
    }

    /// The first number that is not reserved, whether or not that is durable yet.
    pub fn reserved(&self) -> Seq {
        self.reserving.map_or(self.bound, |(_, bound)| bound)
    }

    /// What the marks so far come to.
    pub fn marked(&self) -> &Marked {
        &self.marked
    }

    /// The last number handed out.
    pub fn last(&self) -> Seq {
        Seq(self.next.0 - 1)
    }
}

fn encode<T: Serialize>(bytes: &mut Vec<u8>, content: &T) {
    rmp_serde::encode::write(bytes, content).expect("writing to memory does not fail");
}
