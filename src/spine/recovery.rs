//! Recovers machines from a snapshot and the journal: loads pages, then commits entries, without repeating decisions or effects. There is
//! no other recovery path: a starting node, the rebuild of an actor after a panic, and the tools that inspect a log all use this one.
//!
//! Recovery takes the newest readable snapshot, and the journal after it. A problem with a snapshot is reported, and only makes recovery
//! slower, because more of the journal is replayed. State is lost only if neither snapshot is readable and the journal's first segments
//! have been removed; recovery then returns an error.

use crate::clock::Timestamp;
use crate::ids::{ActorId, Digest, Seq};
use crate::lookup::pages::Copied;
use crate::persist::PersistError;
use crate::persist::disk::Disk;
use crate::persist::format::Kind;
use crate::persist::journal::{Begin, Reader, Record, Tail};
use crate::persist::mark::{Mark, Marked, Watermark};
use crate::persist::snapshots::{BySlot, Page, Seal, SlotDetails, SlotId, SlotStatus, Slots};
use crate::spine::guard::panic_words;
use crate::spine::ledger::Entry;
use crate::spine::loading::{self, IncomingPages};
use crate::spine::machine::{Actor, Effects, Gauge, Machine, Stamp, Start};
use crate::spine::matching::belongs;
pub use crate::spine::matching::{JOURNAL_TOO_SHORT, reaches_back};
use crate::spine::pages;
use crate::spine::parallel::{BatchSender, Coming, ahead, both};
use crate::spine::receipts::Receipts;
use crate::spine::record::decode_record;
pub use crate::spine::record::{RecoveryError, decode_mark};
use std::any::Any;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A journal entry of the actor `M`.
pub type EntryOf<M> = Entry<<M as Machine>::Message, <M as Machine>::Outcome>;

/// The recovered state of an actor.
pub struct Recovered<M> {
    /// The machine.
    pub machine: M,
    /// What the actor did under each idempotency key.
    pub receipts: Receipts,
    /// The sequence number of the last entry or start mark that the state includes.
    pub last: Seq,
}

/// A machine that is being brought up to the end of the log.
pub struct Replica<M: Machine> {
    machine: M,
    receipts: Receipts,
    rules: M::Rules,
    last: Seq,
    entries: u64,
}

impl<M: Actor> Replica<M> {
    /// Creates an empty replica.
    pub fn new(rules: M::Rules) -> Self {
        Self {
            machine: M::new(rules.clone()),
            receipts: Receipts::default(),
            rules,
            last: Seq(0),
            entries: 0,
        }
    }

    /// Returns the recovered state.
    pub fn into_parts(self) -> Recovered<M> {
        Recovered { machine: self.machine, receipts: self.receipts, last: self.last }
    }

    /// Returns the machine in its current state.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Replaces the rules of the machine, and of those that [`load`](Recovering::load) builds from now on.
    pub fn set_rules(&mut self, rules: M::Rules) {
        self.rules = rules.clone();
        self.machine.set_rules(rules);
    }

    /// Returns the machine for changes other than commits, such as [`due`](crate::spine::machine::Timed::due) makes.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// Returns the pages that changed after the entry `since`, with their current content.
    pub fn pages_since(&mut self, since: Seq) -> Vec<Page> {
        self.machine.pages().begin(since, Seq(u64::MAX));
        let (copied, _) = pages::slice(&mut self.machine, &self.receipts, usize::MAX);
        let page = |it: Copied| Page {
            actor: M::ID,
            page: it.page,
            changed: it.changed,
            content: it.content,
        };
        copied.into_iter().map(page).collect()
    }

    /// Commits one entry.
    pub fn commit(&mut self, stamp: Stamp, entry: &EntryOf<M>) -> Result<(), RecoveryError> {
        let mut effects = Effects::<M>::default();
        let Entry { message, outcome, key } = entry;
        let commit = || {
            self.machine.commit(stamp, message, outcome, &mut effects);
            if let Some(key) = key {
                let pages = self.machine.pages();
                self.receipts.note(pages, stamp, (*key, outcome));
            }
        };
        catch_unwind(AssertUnwindSafe(commit)).map_err(|payload| RecoveryError::Panicked {
            seq: stamp.seq,
            actor: M::NAME,
            cause: panic_words(payload.as_ref()),
        })?;
        self.last = stamp.seq;
        self.entries += 1;
        Ok(())
    }

    /// Decodes an entry.
    pub fn decode(record: &Record<'_>) -> Result<EntryOf<M>, RecoveryError> {
        decode_record(record, M::NAME)
    }
}

/// A function that decodes a record into a boxed [`EntryOf`] its actor. It can be called on any thread.
pub type ReadEntry = fn(&Record<'_>) -> Result<Box<dyn Any + Send>, RecoveryError>;

/// A [`Replica`] whose machine can be of any type.
pub trait Recovering {
    /// Returns the id of the actor whose entries the replica commits.
    fn actor(&self) -> ActorId;
    /// Returns the function that decodes this actor's entries.
    fn reader(&self) -> ReadEntry;
    /// Commits an entry that the function from [`reader`](Self::reader) has decoded. Panics if it is of another type.
    fn replay(&mut self, stamp: Stamp, entry: Box<dyn Any>) -> Result<(), RecoveryError>;
    /// Decodes an entry and commits it.
    fn apply(&mut self, record: &Record<'_>) -> Result<(), RecoveryError> {
        let entry = self.reader()(record)?;
        self.replay(stamp_of(record), entry)
    }
    /// Applies a start of the coordinator, as recorded by the next mark in the log.
    fn start(&mut self, start: Start);
    /// Returns the digest of the actor's state.
    fn digest(&self) -> Digest;
    /// Returns whether a recorded digest is that of the actor's state, as this or an earlier version of the program computes it.
    fn has_digest(&self, recorded: Digest) -> bool;
    /// Returns the sequence number of the last entry or start mark that the state includes.
    fn last(&self) -> Seq;
    /// Returns the actor's name.
    fn name(&self) -> &'static str;
    /// Returns the machine's gauges.
    fn gauges(&self) -> Vec<Gauge>;
    /// Builds the actor's state from its pages in a snapshot, for [`replace`](Self::replace); without pages, it is empty. Returns an error
    /// if the pages are invalid, or if the digest of the result differs from that in `state`. The replica itself does not change.
    fn load(
        &self,
        pages: Coming<'_, Page>,
        state: Option<&Watermark>,
    ) -> Result<Box<dyn Any>, String>;
    /// Replaces the current state with one that `load` has built.
    fn replace(&mut self, loaded: Box<dyn Any>);
}

impl<M: Actor> Recovering for Replica<M> {
    fn actor(&self) -> ActorId {
        M::ID
    }

    fn reader(&self) -> ReadEntry {
        |record| Ok(Box::new(Self::decode(record)?))
    }

    fn replay(&mut self, stamp: Stamp, entry: Box<dyn Any>) -> Result<(), RecoveryError> {
        let entry: Box<EntryOf<M>> = entry
            .downcast()
            .expect("the entry should have been decoded by this replica's `reader`");
        self.commit(stamp, &entry)
    }

    fn start(&mut self, start: Start) {
        self.machine.start(start);
        self.last = start.stamp.seq;
    }

    fn digest(&self) -> Digest {
        digest(&self.machine, &self.receipts)
    }

    fn has_digest(&self, recorded: Digest) -> bool {
        is_digest_of(recorded, &self.machine, &self.receipts)
    }

    fn last(&self) -> Seq {
        self.last
    }

    fn name(&self) -> &'static str {
        M::NAME
    }

    fn gauges(&self) -> Vec<Gauge> {
        self.machine.gauges()
    }

    fn load(
        &self,
        pages: Coming<'_, Page>,
        state: Option<&Watermark>,
    ) -> Result<Box<dyn Any>, String> {
        let (machine, receipts) = loading::machine::<M>(self.rules.clone(), pages)?;
        match state {
            Some(Watermark { digest: said, .. }) if !is_digest_of(*said, &machine, &receipts) => {
                let found = digest(&machine, &receipts);
                Err(format!("the digest of {} is {found}, but should be {said}", M::NAME))
            }
            state => Ok(Box::new(Recovered {
                machine,
                receipts,
                last: state.map_or(Seq(0), |state| state.upto),
            })),
        }
    }

    fn replace(&mut self, loaded: Box<dyn Any>) {
        let loaded: Box<Recovered<M>> =
            loaded.downcast().expect("the state should have been built by this replica's `load`");
        let Recovered { machine, receipts, last } = *loaded;
        (self.machine, self.receipts, self.last) = (machine, receipts, last);
    }
}

/// Returns the digest of an actor's durable state, which consists of its machine's state and its receipts.
pub fn digest<M: Actor>(machine: &M, receipts: &Receipts) -> Digest {
    let mut digest = machine.digest();
    digest.merge(receipts.digest());
    digest
}

/// Returns whether a recorded digest is that of this state, as this or an earlier version of the program computes it.
fn is_digest_of<M: Actor>(recorded: Digest, machine: &M, receipts: &Receipts) -> bool {
    let is_former = |mut former: Digest| {
        former.merge(receipts.digest());
        former == recorded
    };
    digest(machine, receipts) == recorded || machine.former_digest().is_some_and(is_former)
}

/// How far a recovery replays the log, and for which actors.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope {
    /// The last sequence number to replay; if `None`, the log is replayed to its end.
    pub until: Option<Seq>,
    /// Whether the pages and entries of actors without a replica are skipped. If false, they are an error.
    pub partial: bool,
}

/// The result of a recovery.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// The end of the log, or of the part of it that was read.
    pub tail: Tail,
    /// The snapshot that recovery began with, if there was one.
    pub snapshot: Option<(SlotId, Seal)>,
    /// The sequence number up to which the snapshot in each slot covers every entry; `None` for a slot without a usable snapshot.
    pub sealed: BySlot<Option<Seq>>,
    /// Descriptions of problems with snapshots, and of damage to parts of the journal that were not needed.
    pub mended: Vec<String>,
    /// The node's state, according to the marks in the snapshot and in the journal after it.
    pub marked: Marked,
}

/// Brings the replicas up to the end of the log, or of the scope, and returns what was found. Without `slots`, only the journal is used.
pub fn recover(
    disk: &dyn Disk,
    slots: Option<&Slots>,
    replicas: &mut [&mut dyn Recovering],
    scope: Scope,
) -> Result<Past, RecoveryError> {
    let SnapshotSurvey { sealed, wrong: mut mended, is_foreign, reaches } = match slots {
        Some(slots) => look(disk, slots)?,
        None => SnapshotSurvey::default(),
    };
    // Without a snapshot of its own, nothing shows that the journal is the one of this directory: another may have been put in its place.
    if sealed.is_empty() && is_foreign {
        return Err(RecoveryError::OtherLog { wrong: mended });
    }
    let mut reliable = BySlot::default();
    for (slot, seal) in &sealed {
        reliable[*slot] = Some(seal.manifest.begun);
    }
    let mut snapshot = None;
    for (slot, seal) in sealed {
        let fits = |state: &Watermark| scope.until.is_none_or(|until| state.upto <= until);
        let mut ours = replicas.iter().filter_map(|replica| seal.manifest.state(replica.actor()));
        let Some(slots) = slots.filter(|_| ours.all(fits)) else {
            continue;
        };
        match load(slots, slot, &seal, replicas, scope.partial) {
            Ok(()) => {
                snapshot = Some((slot, seal));
                break;
            }
            Err(error) => {
                reliable[slot] = None;
                mended.push(format!("snapshot {slot} is unusable: failed to {error}"));
            }
        }
    }
    let manifest = snapshot.as_ref().map(|(_, seal)| &seal.manifest);
    let begin = Begin {
        after: manifest.map_or(Seq(0), |manifest| manifest.begun),
        at: manifest.map_or(Timestamp(0), |manifest| manifest.at),
        reserved: manifest.map_or(Seq(0), |manifest| manifest.reserved),
        reaches,
    };
    let mut marked = manifest.map_or_else(Marked::default, |manifest| manifest.marked.clone());
    match replay(disk, begin, replicas, scope, &mut marked) {
        Ok(tail) => {
            for slot in SlotId::ALL {
                let before = reliable[slot].filter(|begun| *begun < begin.after);
                if before.is_some_and(|begun| !reaches_back(disk, begun)) {
                    reliable[slot] = None;
                    mended.push(format!("snapshot {slot}: {JOURNAL_TOO_SHORT}"));
                }
            }
            mended.extend(tail.passed.iter().map(ToString::to_string));
            Ok(Past { marked, tail, snapshot, sealed: reliable, mended })
        }
        Err(RecoveryError::Persist(error)) if !mended.is_empty() => {
            Err(RecoveryError::Lost { error, mended })
        }
        Err(error) => Err(error),
    }
}

/// Snapshots with their seals, newest first.
pub type Snapshots = Vec<(SlotId, Seal)>;

/// The result of examining the snapshots.
#[derive(Debug, Default)]
pub struct SnapshotSurvey {
    /// Complete snapshots, newest first.
    pub sealed: Snapshots,
    /// Descriptions of what is wrong with the other snapshots.
    pub wrong: Vec<String>,
    /// Whether one of them is complete, but belongs to another log.
    pub is_foreign: bool,
    /// The last sequence number that the log must contain according to the seals. A readable seal is trusted, even if the files of its
    /// snapshot are damaged.
    pub reaches: Seq,
}

/// Examines the snapshots. What is wrong with them is part of the result; the only error is a seal of a newer format.
pub fn look(disk: &dyn Disk, slots: &Slots) -> Result<SnapshotSurvey, RecoveryError> {
    let examine = |slot| {
        let look = slots.check_details(slot)?;
        let belongs = match &look.found {
            SlotStatus::Sealed(seal) => belongs(disk, seal),
            SlotStatus::Absent | SlotStatus::Unsealed | SlotStatus::Damaged(_) => false,
        };
        Ok::<_, RecoveryError>((look, belongs))
    };
    let (a, b) = both(|| examine(SlotId::A), || examine(SlotId::B));
    let (mut sealed, mut wrong) = (Vec::new(), Vec::new());
    let (mut is_foreign, mut reaches) = (false, Seq(0));
    for (slot, examined) in [(SlotId::A, a), (SlotId::B, b)] {
        let (SlotDetails { found, seal, .. }, belongs) = examined?;
        reaches = reaches.max(seal.map_or(Seq(0), |seal| seal.mark));
        match found {
            SlotStatus::Absent => {}
            SlotStatus::Unsealed => wrong
                .push(format!("snapshot {slot} was being written when the coordinator went down")),
            SlotStatus::Sealed(seal) if belongs => sealed.push((slot, seal)),
            SlotStatus::Sealed(Seal { mark, .. }) => {
                is_foreign = true;
                wrong.push(format!(
                    "snapshot {slot} belongs to another log: this log has no matching mark at sequence number {mark}"
                ));
            }
            SlotStatus::Damaged(how) => wrong.push(format!("snapshot {slot} is damaged: {how}")),
        }
    }
    sealed.sort_by_key(|(_, seal)| std::cmp::Reverse(seal.manifest.begun));
    Ok(SnapshotSurvey { sealed, wrong, is_foreign, reaches })
}

/// Loads the replicas from a snapshot. On an error, they are unchanged. With `partial`, pages of actors without a replica are skipped;
/// otherwise they are an error.
pub fn load(
    slots: &Slots,
    slot: SlotId,
    seal: &Seal,
    replicas: &mut [&mut dyn Recovering],
    partial: bool,
) -> Result<(), PersistError> {
    let refused =
        |cause: String| PersistError::Store { action: "read", folder: slot.folder(), cause };
    let (read, loaded) =
        loading::while_read(slots, slot, seal, |arriving| build(arriving, seal, replicas, partial));
    // If the snapshot could not be read completely, the state built from part of it is discarded.
    read?;
    let loaded = loaded.map_err(refused)?;
    for (replica, loaded) in replicas.iter_mut().zip(loaded) {
        replica.replace(loaded);
    }
    Ok(())
}

/// Builds the state of each replica from its pages, and returns the states in the order of the replicas.
fn build(
    mut arriving: IncomingPages<'_>,
    seal: &Seal,
    replicas: &[&mut dyn Recovering],
    partial: bool,
) -> Result<Vec<Box<dyn Any>>, String> {
    let mut loaded: Vec<Option<Box<dyn Any>>> = replicas.iter().map(|_| None).collect();
    while let Some(actor) = arriving.actor() {
        let mut ours = replicas.iter().zip(&mut loaded);
        let pages = &mut arriving.of(actor);
        match ours.find(|(replica, _)| replica.actor() == actor) {
            Some((replica, loaded)) => {
                *loaded = Some(replica.load(pages, seal.manifest.state(actor))?);
            }
            None if partial => pages.for_each(drop),
            None => {
                return Err(format!(
                    "it has state of actor {actor}, which this program does not have"
                ));
            }
        }
    }
    let all = replicas.iter().zip(loaded).map(|(replica, loaded)| {
        let state = seal.manifest.state(replica.actor());
        loaded.map_or_else(|| replica.load(&mut iter::empty(), state), Ok)
    });
    all.collect()
}

/// Replays the log after a snapshot into the replicas and `marked`. Returns the end of the log, or of the part that was read.
fn replay(
    disk: &dyn Disk,
    begin: Begin,
    replicas: &mut [&mut dyn Recovering],
    scope: Scope,
    marked: &mut Marked,
) -> Result<Tail, RecoveryError> {
    let actors = replicas.iter().map(|replica| Replaying {
        actor: replica.actor(),
        after: replica.last(),
        read: replica.reader(),
    });
    let actors: Vec<Replaying> = actors.collect();
    let mut reader = Reader::open_after(disk, begin)?;
    let read = |made: &mut BatchSender<_>| read(&mut reader, &actors, scope, made);
    let (read, repeated) = ahead(read, |steps| {
        for step in steps {
            match step? {
                Step::Nothing => {}
                Step::Entry(stamp, place, entry) => {
                    let replica =
                        replicas.get_mut(place).expect("the index should be that of a replica");
                    replica.replay(stamp, entry)?;
                }
                Step::Mark(stamp, mark) => {
                    marked.apply(&mark);
                    if let Mark::Start { skipped, .. } = mark {
                        for replica in replicas.iter_mut() {
                            if replica.last() < stamp.seq {
                                replica.start(Start { stamp, skipped });
                            }
                        }
                    }
                }
            }
        }
        Ok::<_, RecoveryError>(())
    });
    repeated?;
    read?;
    Ok(reader.tail().clone())
}

/// An actor whose entries are replayed.
struct Replaying {
    actor: ActorId,
    /// The last entry that the actor's state in the snapshot includes.
    after: Seq,
    read: ReadEntry,
}

/// The action to take for a record.
enum Step {
    Nothing,
    /// The replica with this index commits an entry.
    Entry(Stamp, usize, Box<dyn Any + Send>),
    Mark(Stamp, Mark),
}

/// Reads records up to the end of the log, or of the scope, and hands over the step for each. Stops early if the consumer does.
fn read(
    reader: &mut Reader<'_>,
    actors: &[Replaying],
    scope: Scope,
    made: &mut BatchSender<Result<Step, RecoveryError>>,
) -> Result<(), PersistError> {
    while let Some(record) = reader.next()? {
        let seq = record.seq;
        if scope.until.is_some_and(|until| seq > until)
            || !made.push(step(&record, actors, scope.partial))
            || scope.until == Some(seq)
        {
            break;
        }
    }
    Ok(())
}

fn step(record: &Record<'_>, actors: &[Replaying], partial: bool) -> Result<Step, RecoveryError> {
    match record.kind {
        Kind::Entry => {
            let mut places = actors.iter().enumerate();
            match places.find(|(_, repeating)| repeating.actor == record.actor) {
                Some((_, repeating)) if record.seq <= repeating.after => Ok(Step::Nothing),
                Some((place, repeating)) => {
                    Ok(Step::Entry(stamp_of(record), place, (repeating.read)(record)?))
                }
                None if partial => Ok(Step::Nothing),
                None => Err(RecoveryError::UnknownActor { seq: record.seq, actor: record.actor }),
            }
        }
        Kind::Mark => Ok(Step::Mark(stamp_of(record), decode_mark(record)?)),
        Kind::Poisoned | Kind::End => Ok(Step::Nothing),
    }
}

fn stamp_of(record: &Record<'_>) -> Stamp {
    Stamp { seq: record.seq, at: record.at }
}
