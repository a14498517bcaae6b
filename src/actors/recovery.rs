//! From snapshot and journal to machines: pages, then commits alone, without deciding and without effects. The one
//! recovery path, for a start of the node, for an actor whose commit panicked, and for the tools that look at a log.
//!
//! The newest snapshot that reads is taken, and the journal behind it. What is wrong with a snapshot is told and costs
//! time; only when neither reads and the journal no longer has the beginning is anything lost, which is an error.

use crate::actors::host::panic_words;
use crate::actors::machine::{Effects, Machine, Stamp, Start};
use crate::actors::parallel::{both, in_shares};
use crate::clock::Timestamp;
use crate::ids::{ActorId, Digest, Seq};
use crate::persist::PersistError;
use crate::persist::disk::Disk;
use crate::persist::format::{Kind, Mark, Watermark};
use crate::persist::journal::{Begin, Reader, Record, Tail};
use crate::persist::snapshots::{BySlot, Found, Look, Page, Seal, SlotId, Slots};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Fewer pages than this are not worth a thread of their own.
const PAGES_TO_A_THREAD: usize = 64;

/// Why the past could not be repeated.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The journal cannot be read.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// What snapshots had is lost, and the journal does not have it either.
    #[error("{error}; {}", .mended.join("; "))]
    Lost {
        /// Why the journal alone does not do.
        error: PersistError,
        /// What is wrong with the snapshots.
        mended: Vec<String>,
    },
    /// A record belongs to an actor that this program does not have.
    #[error("replay entry {seq}: it belongs to actor {actor}, which this program does not have")]
    UnknownActor {
        /// The entry.
        seq: Seq,
        /// Its actor.
        actor: ActorId,
    },
    /// A record checks, but its content is not what this program understands.
    #[error("replay entry {seq} of {actor}: its content does not decode: {cause}")]
    Undecodable {
        /// The entry.
        seq: Seq,
        /// Its actor.
        actor: &'static str,
        /// What the decoder says.
        cause: String,
    },
    /// Committing a record panicked. It is never skipped silently.
    #[error("replay entry {seq} of {actor}: it panicked: {cause}")]
    Panicked {
        /// The entry.
        seq: Seq,
        /// Its actor.
        actor: &'static str,
        /// The panic's words.
        cause: String,
    },
}

/// A machine that is being brought up to where the log ends.
pub struct Replica<M: Machine> {
    machine: M,
    rules: M::Rules,
    last: Seq,
    entries: u64,
}

impl<M: Machine> Replica<M> {
    /// A replica with nothing in it.
    pub fn new(rules: M::Rules) -> Self {
        Self {
            machine: M::new(rules.clone()),
            rules,
            last: Seq(0),
            entries: 0,
        }
    }

    /// The machine, and its newest entry.
    pub fn into_parts(self) -> (M, Seq) {
        (self.machine, self.last)
    }

    /// The machine, as far as it has come.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, to let time act on it.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// Commits one entry.
    pub fn commit(
        &mut self,
        stamp: Stamp,
        message: &M::Message,
        outcome: &M::Outcome,
    ) -> Result<(), RecoveryError> {
        let mut effects = Effects::default();
        let commit = || self.machine.commit(stamp, message, outcome, &mut effects);
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
    pub fn decode(record: &Record<'_>) -> Result<(M::Message, M::Outcome), RecoveryError> {
        rmp_serde::from_slice(record.payload).map_err(|error| RecoveryError::Undecodable {
            seq: record.seq,
            actor: M::NAME,
            cause: error.to_string(),
        })
    }
}

/// A replica whatever its machine.
pub trait Recovering {
    /// Which actor's entries it takes.
    fn actor(&self) -> ActorId;
    /// Commits one entry of that actor.
    fn apply(&mut self, record: &Record<'_>) -> Result<(), RecoveryError>;
    /// The coordinator started here.
    fn start(&mut self, start: Start);
    /// The digest of its state.
    fn digest(&self) -> Digest;
    /// Its newest entry.
    fn last(&self) -> Seq;
    /// A machine of the same kind, from pages that a snapshot has of it; of nothing if it has none.
    fn load(&self, pages: Vec<Page>, state: Option<&Watermark>) -> Result<Box<dyn Any>, String>;
    /// Takes what `load` made in the place of what there is.
    fn replace(&mut self, loaded: Box<dyn Any>);
}

impl<M: Machine> Recovering for Replica<M> {
    fn actor(&self) -> ActorId {
        M::ID
    }

    fn apply(&mut self, record: &Record<'_>) -> Result<(), RecoveryError> {
        let (message, outcome) = Self::decode(record)?;
        self.commit(
            Stamp {
                seq: record.seq,
                at: record.at,
            },
            &message,
            &outcome,
        )
    }

    fn start(&mut self, start: Start) {
        self.machine.start(start);
        self.last = start.stamp.seq;
    }

    fn digest(&self) -> Digest {
        self.machine.digest()
    }

    fn last(&self) -> Seq {
        self.last
    }

    fn load(&self, pages: Vec<Page>, state: Option<&Watermark>) -> Result<Box<dyn Any>, String> {
        let machine = from_pages::<M>(self.rules.clone(), &pages)?;
        let Some(state) = state else {
            return Ok(Box::new((machine, Seq(0))));
        };
        if machine.digest() == state.digest {
            Ok(Box::new((machine, state.upto)))
        } else {
            let (found, said) = (machine.digest(), state.digest);
            Err(format!(
                "the digest of {} is {found}, should be {said}",
                M::NAME
            ))
        }
    }

    fn replace(&mut self, loaded: Box<dyn Any>) {
        let loaded: Box<(M, Seq)> = loaded.downcast().expect("it was made by this `load`");
        (self.machine, self.last) = *loaded;
    }
}

/// A machine from its pages, which are decoded on as many threads as there are cores.
fn from_pages<M: Machine>(rules: M::Rules, pages: &[Page]) -> Result<M, String> {
    let decode = |pages: &[Page]| -> Result<Vec<M::Page>, String> {
        let filled = pages.iter().filter(|page| !page.content.is_empty());
        filled
            .map(|page| M::decode_page(page.page, &page.content))
            .collect()
    };
    let build = || {
        let mut decoded = Vec::with_capacity(pages.len());
        for share in in_shares(pages, PAGES_TO_A_THREAD, decode) {
            decoded.extend(share?);
        }
        let mut machine = M::from_pages(rules, decoded);
        for page in pages {
            machine.pages().loaded(page.page, page.changed);
        }
        Ok(machine)
    };
    catch_unwind(AssertUnwindSafe(build))
        .unwrap_or_else(|payload| Err(panic_words(payload.as_ref())))
}

/// Which records a recovery takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope {
    /// The last sequence number wanted; all if `None`.
    pub until: Option<Seq>,
    /// Whether entries of actors that are not being recovered are passed over.
    pub partial: bool,
}

/// What a recovery found.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// Where the log ends.
    pub tail: Tail,
    /// The snapshot that it began with, if it did.
    pub snapshot: Option<(SlotId, Seal)>,
    /// Up to where each slot goes that can be relied on.
    pub sealed: BySlot<Option<Seq>>,
    /// What is wrong with snapshots, in words.
    pub mended: Vec<String>,
}

/// Brings the replicas to where the log ends, or to the end of the scope, and says what was found.
pub fn recover(
    disk: &dyn Disk,
    slots: Option<&Slots>,
    replicas: &mut [&mut dyn Recovering],
    scope: Scope,
) -> Result<Past, RecoveryError> {
    let Looked {
        sealed,
        wrong: mut mended,
        reaches,
    } = match slots {
        Some(slots) => look(disk, slots)?,
        None => Looked::default(),
    };
    let mut reliable = BySlot::default();
    for (slot, seal) in &sealed {
        reliable[*slot] = Some(seal.manifest.begun);
    }
    let mut snapshot = None;
    for (slot, seal) in sealed {
        let fits = |state: &Watermark| scope.until.is_none_or(|until| state.upto <= until);
        let mut ours = replicas
            .iter()
            .filter_map(|replica| seal.manifest.state(replica.actor()));
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
                mended.push(format!("snapshot {slot} does not read: {error}"));
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
    match repeat(disk, begin, replicas, scope) {
        Ok(tail) => Ok(Past {
            tail,
            snapshot,
            sealed: reliable,
            mended,
        }),
        Err(RecoveryError::Persist(error)) if !mended.is_empty() => {
            Err(RecoveryError::Lost { error, mended })
        }
        Err(error) => Err(error),
    }
}

/// Snapshots with their seals, newest first.
pub type Snapshots = Vec<(SlotId, Seal)>;

/// What a look at the snapshots found.
#[derive(Debug, Default)]
pub struct Looked {
    /// Whole snapshots, newest first.
    pub sealed: Snapshots,
    /// What is wrong with the others, in words.
    pub wrong: Vec<String>,
    /// How far the log must reach, by what any of them says: a seal that reads is right, whatever became of the files.
    pub reaches: Seq,
}

/// Whole snapshots of this log, and what is wrong with the others.
pub fn look(disk: &dyn Disk, slots: &Slots) -> Result<Looked, RecoveryError> {
    let examine = |slot| {
        let look = slots.look_closely(slot)?;
        let belongs = match &look.found {
            Found::Sealed(seal) => belongs(disk, seal),
            Found::Absent | Found::Unsealed | Found::Damaged(_) => false,
        };
        Ok::<_, RecoveryError>((look, belongs))
    };
    let (a, b) = both(|| examine(SlotId::A), || examine(SlotId::B));
    let (mut sealed, mut wrong, mut reaches) = (Vec::new(), Vec::new(), Seq(0));
    for (slot, examined) in [(SlotId::A, a), (SlotId::B, b)] {
        let (Look { found, seal, .. }, belongs) = examined?;
        reaches = reaches.max(seal.map_or(Seq(0), |seal| seal.mark));
        match found {
            Found::Absent => {}
            Found::Unsealed => wrong.push(format!(
                "snapshot {slot} was being written when the coordinator went down"
            )),
            Found::Sealed(seal) if belongs => sealed.push((slot, seal)),
            Found::Sealed(Seal { mark, .. }) => wrong.push(format!(
                "snapshot {slot} is of another log: this one has no mark of it at {mark}"
            )),
            Found::Damaged(how) => wrong.push(format!("snapshot {slot} is damaged: {how}")),
        }
    }
    sealed.sort_by_key(|(_, seal)| std::cmp::Reverse(seal.manifest.begun));
    Ok(Looked {
        sealed,
        wrong,
        reaches,
    })
}

/// Whether a snapshot is of this log: the mark that its seal names says the same of each actor's state. One of another
/// directory does not show otherwise; what is behind it would be committed to a state that it was never decided on.
/// A log that does not read there is for whoever repeats it to judge; a seal that names no mark behind what it holds
/// cannot be judged.
fn belongs(disk: &dyn Disk, seal: &Seal) -> bool {
    if seal.mark <= seal.manifest.begun {
        return true;
    }
    let begin = Begin {
        after: Seq(seal.mark.0.saturating_sub(1)),
        ..Begin::default()
    };
    let Ok(mut reader) = Reader::open_after(disk, begin) else {
        return true;
    };
    let Ok(Some(record)) = reader.next() else {
        return true;
    };
    let is_mark = record.seq == seal.mark && record.kind == Kind::Mark;
    let mark = is_mark.then(|| decode_mark(&record));
    matches!(mark, Some(Ok(Mark::Checkpoint { states, .. })) if states == seal.manifest.states)
}

/// Fills the replicas from a snapshot. If it does not read, they are as they were.
pub fn load(
    slots: &Slots,
    slot: SlotId,
    seal: &Seal,
    replicas: &mut [&mut dyn Recovering],
    partial: bool,
) -> Result<(), PersistError> {
    let mut pages: BTreeMap<ActorId, Vec<Page>> = BTreeMap::new();
    slots.read(slot, seal, &mut |page| {
        pages.entry(page.actor).or_default().push(page);
        Ok(())
    })?;
    let refused = |cause: String| PersistError::Store {
        action: "read",
        folder: slot.folder(),
        cause,
    };
    let mut loading = Vec::new();
    for replica in replicas.iter() {
        let actor = replica.actor();
        let pages = pages.remove(&actor).unwrap_or_default();
        let state = seal.manifest.state(actor);
        let loaded = replica.load(pages, state).map_err(refused)?;
        loading.push(loaded);
    }
    if let Some(actor) = pages.keys().next().filter(|_| !partial) {
        return Err(refused(format!(
            "it has state of actor {actor}, which this program does not have"
        )));
    }
    for (replica, loaded) in replicas.iter_mut().zip(loading) {
        replica.replace(loaded);
    }
    Ok(())
}

/// Repeats what the log has behind a snapshot, and says where it ends.
fn repeat(
    disk: &dyn Disk,
    begin: Begin,
    replicas: &mut [&mut dyn Recovering],
    scope: Scope,
) -> Result<Tail, RecoveryError> {
    let mut reader = Reader::open_after(disk, begin)?;
    while let Some(record) = reader.next()? {
        if scope.until.is_some_and(|until| record.seq > until) {
            break;
        }
        apply(&record, replicas, scope.partial)?;
        if scope.until == Some(record.seq) {
            break;
        }
    }
    Ok(reader.tail().clone())
}

fn apply(
    record: &Record<'_>,
    replicas: &mut [&mut dyn Recovering],
    partial: bool,
) -> Result<(), RecoveryError> {
    match record.kind {
        Kind::Entry => {
            match replicas
                .iter_mut()
                .find(|replica| replica.actor() == record.actor)
            {
                // What a snapshot has of it already.
                Some(replica) if record.seq <= replica.last() => Ok(()),
                Some(replica) => replica.apply(record),
                None if partial => Ok(()),
                None => Err(RecoveryError::UnknownActor {
                    seq: record.seq,
                    actor: record.actor,
                }),
            }
        }
        Kind::Mark => {
            if let Mark::Start { skipped, .. } = decode_mark(record)? {
                for replica in replicas.iter_mut() {
                    if record.seq <= replica.last() {
                        continue;
                    }
                    let stamp = Stamp {
                        seq: record.seq,
                        at: record.at,
                    };
                    replica.start(Start { stamp, skipped });
                }
            }
            Ok(())
        }
        Kind::Poisoned | Kind::End => Ok(()),
    }
}

/// The mark in a record of that kind.
pub fn decode_mark(record: &Record<'_>) -> Result<Mark, RecoveryError> {
    rmp_serde::from_slice(record.payload).map_err(|error| RecoveryError::Undecodable {
        seq: record.seq,
        actor: "node",
        cause: error.to_string(),
    })
}
