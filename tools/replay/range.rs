//! Finds where the replay of a directory begins: at the first record, or with a snapshot if the beginning of the journal no longer
//! exists.

use crate::isolated::Copies;
use crate::report::Failure;
use sexton::clock::Timestamp;
use sexton::ids::Seq;
use sexton::persist::PersistError;
use sexton::persist::disk::{Disk, RealDisk};
use sexton::persist::format::Kind;
use sexton::persist::journal::segment;
use sexton::persist::journal::{Begin, Reader};
use sexton::persist::snapshots::{Seal, SlotId};
use sexton::replay::Replay;
use sexton::spine::recovery::{self, SnapshotSurvey, decode_mark};
use std::path::Path;

/// What a replay must produce, and where it stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// The position after which the replay stops; `None` if it continues to the end of the log.
    pub(crate) until: Option<Place>,
    /// What the replay must produce.
    pub(crate) wanted: Purpose,
}

/// The purpose of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// All existing records, with the names of the items that they concern. If the beginning of the log no longer exists, the names are
    /// known only for records after a snapshot.
    Records,
    /// The state at the end of the replay.
    State,
    /// The state at the end of the replay, and all earlier states that can be compared with the digests of checkpoints.
    Verification,
}

/// A position in a log: a sequence number, or a time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Seq(Seq),
    Time(Timestamp),
}

/// Where a replay begins and stops.
#[derive(Clone, Debug, Default)]
pub(crate) struct Range {
    /// The position after which the replay begins; `None` if it begins with the first existing record.
    pub(crate) begin: Option<Begin>,
    /// The sequence number after which the replay stops; `None` if it continues to the end of the log.
    pub(crate) until: Option<Seq>,
    /// Remarks to print for the user.
    pub(crate) remarks: Vec<String>,
}

impl Range {
    /// Opens the journal at the beginning of the range.
    pub(crate) fn open<'d>(&self, disk: &'d dyn Disk) -> Result<Reader<'d>, PersistError> {
        match self.begin {
            Some(begin) => Reader::open_after(disk, begin),
            None => Reader::open_present(disk),
        }
    }
}

/// Finds where the replay begins and stops. If the beginning of the journal no longer exists, loads a snapshot into `replay`; fails if no
/// snapshot can be used, unless only the records are wanted.
pub(crate) fn find(data: &Path, replay: &mut Replay, goal: Goal) -> Result<Range, Failure> {
    let disk = RealDisk::new(data);
    let ordinals = segment::ordinals(&disk)?;
    let mut range = if ordinals.first().is_none_or(|first| *first == 1) {
        Range { until: resolve(&disk, goal.until, Seq(0))?, ..Range::default() }
    } else {
        with_snapshot(data, &disk, replay, goal)?
    };
    if goal.wanted == Purpose::Verification
        && let Err(error) = note(&disk, &range, replay)
    {
        // The replay reports the same error when it reads that record.
        range
            .remarks
            .push(format!("not all digests of checkpoints could be read: failed to {error}"));
    }
    Ok(range)
}

/// Loads a snapshot that includes nothing after the position where the replay stops: the newest one if only the final state is wanted, so
/// that few records must be replayed, and otherwise the oldest one, so that many can be shown or verified. If there is none, fails unless
/// only the records are wanted.
fn with_snapshot(
    data: &Path,
    disk: &RealDisk,
    replay: &mut Replay,
    goal: Goal,
) -> Result<Range, Failure> {
    let copies = Copies::of(data)?;
    let SnapshotSurvey { mut sealed, wrong: mut remarks, is_foreign: _, reaches } =
        recovery::look(disk, copies.slots()).map_err(Failure::from)?;
    let begin = |seal: &Seal| Begin {
        after: seal.manifest.begun,
        at: seal.manifest.at,
        reserved: seal.manifest.reserved,
        reaches,
    };
    sealed.retain(|(_, seal)| Reader::open_after(disk, begin(seal)).is_ok());
    if goal.wanted != Purpose::State {
        sealed.reverse();
    }
    let until = resolve(disk, goal.until, known_at(&sealed, goal.until))?;
    let fits = |seal: &Seal| {
        let states = seal.manifest.states.iter();
        until.is_none_or(|until| states.map(|state| state.upto).all(|upto| upto <= until))
    };
    let begins = match Reader::open_present(disk)?.after() {
        Seq(0) => "the beginning of the journal cannot be read".to_owned(),
        Seq(after) => format!("the journal begins after sequence number {after}"),
    };
    for (slot, seal) in sealed.iter().filter(|(_, seal)| fits(seal)) {
        match replay.load(copies.slots(), (*slot, seal)) {
            Ok(()) => {
                let begun = seal.manifest.begun;
                remarks.push(if goal.wanted == Purpose::Records {
                    format!("{begins}; names of items are known only after sequence number {begun}, from snapshot {slot}")
                } else {
                    format!("{begins}; the replay begins with snapshot {slot}, which holds everything up to sequence number {begun}")
                });
                return Ok(Range {
                    begin: (goal.wanted != Purpose::Records).then(|| begin(seal)),
                    until,
                    remarks,
                });
            }
            Err(error) => remarks.push(format!("snapshot {slot} is unusable: failed to {error}")),
        }
    }
    if goal.wanted == Purpose::Records {
        replay.read_only();
        remarks.push(format!("{begins}; names of items are not known"));
        return Ok(Range { begin: None, until, remarks });
    }
    remarks.insert(0, format!("failed to replay {}: {begins}", data.display()));
    for (slot, seal) in sealed.iter().filter(|(_, seal)| !fits(seal)) {
        let upto = seal.manifest.states.iter().map(|state| state.upto).max();
        let upto = upto.unwrap_or(seal.manifest.begun);
        remarks.push(format!(
            "snapshot {slot} goes up to sequence number {upto}, which is after --until"
        ));
    }
    Err(Failure::unreachable(remarks.join("; ")).help(
        "without the beginning of the journal, only states after a snapshot can be rebuilt; \
        leave out --state and --verify to see the existing records",
    ))
}

/// Returns the last sequence number included in the snapshots that were taken at or before the time `until`; 0 if there are none or if
/// `until` is not a time.
fn known_at(sealed: &[(SlotId, Seal)], until: Option<Place>) -> Seq {
    let Some(Place::Time(until)) = until else {
        return Seq(0);
    };
    let manifests = sealed.iter().map(|(_, seal)| &seal.manifest);
    let earlier = manifests.filter(|manifest| manifest.at <= until);
    earlier.map(|manifest| manifest.begun).max().unwrap_or_default()
}

/// Converts a position to a sequence number. A time is converted to the number of the last record at or before it, or to `known` if that is
/// larger. Returns `None` if `until` is `None`.
fn resolve(disk: &RealDisk, until: Option<Place>, known: Seq) -> Result<Option<Seq>, PersistError> {
    let until = match until {
        None => return Ok(None),
        Some(Place::Seq(until)) => return Ok(Some(until)),
        Some(Place::Time(until)) => until,
    };
    let mut last = known;
    let mut reader = Reader::open_present(disk)?;
    // Damage after that time does not matter; damage before it is reported when the replay reads it.
    while let Ok(Some(record)) = reader.next() {
        if record.at > until {
            break;
        }
        last = last.max(record.seq);
    }
    Ok(Some(last))
}

/// Passes the digests of checkpoints to the replay, which compares its states with them.
fn note(
    disk: &RealDisk,
    range: &Range,
    replay: &mut Replay,
) -> Result<(), recovery::RecoveryError> {
    let mut reader = range.open(disk)?;
    while let Some(record) = reader.next()? {
        if record.kind == Kind::Mark {
            replay.note(&decode_mark(&record)?);
        }
    }
    Ok(())
}
