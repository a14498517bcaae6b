//! Where the replay of a directory begins: with the first entry of all, if the journal still has it, else with a snapshot
//! and what the journal has behind it.

use crate::isolated::Copies;
use crate::report::Failure;
use sexton::actors::recovery::{self, Looked, decode_mark};
use sexton::clock::Timestamp;
use sexton::ids::Seq;
use sexton::persist::PersistError;
use sexton::persist::disk::RealDisk;
use sexton::persist::format::Kind;
use sexton::persist::journal::segment::{self, Opening};
use sexton::persist::journal::{Begin, Reader};
use sexton::persist::snapshots::{Seal, SlotId};
use sexton::replay::Replay;
use std::path::Path;

/// What a replay is to come to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// The last sequence number.
    pub(crate) until: Option<Until>,
    /// Whether only the state there is wanted, and no entry on the way.
    pub(crate) state_alone: bool,
    /// Whether states are to be compared with what checkpoints noted of them.
    pub(crate) verify: bool,
}

/// Where a replay stops.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    Seq(Seq),
    Time(Timestamp),
}

/// Where a replay begins, and where it stops.
#[derive(Clone, Debug, Default)]
pub(crate) struct Range {
    pub(crate) begin: Begin,
    pub(crate) until: Option<Seq>,
    /// What to say of it.
    pub(crate) remarks: Vec<String>,
}

/// Finds where to begin, and fills the replay with what the snapshot there holds.
pub(crate) fn find(data: &Path, replay: &mut Replay, goal: Goal) -> Result<Range, Failure> {
    let disk = RealDisk::new(data);
    let ordinals = segment::ordinals(&disk)?;
    let mut range = if ordinals.first().is_none_or(|first| *first == 1) {
        Range {
            until: resolve(&disk, Begin::default(), goal.until)?,
            ..Range::default()
        }
    } else {
        with_snapshot(data, &disk, replay, goal)?
    };
    if goal.verify
        && let Err(error) = note(&disk, range.begin, replay)
    {
        // The replay itself says the same, once it has shown what comes before.
        range.remarks.push(format!(
            "what checkpoints noted could not all be read: failed to {error}"
        ));
    }
    Ok(range)
}

/// Begins with the snapshot that leaves most to show, or least to do.
fn with_snapshot(
    data: &Path,
    disk: &RealDisk,
    replay: &mut Replay,
    goal: Goal,
) -> Result<Range, Failure> {
    let copies = Copies::of(data)?;
    let Looked {
        mut sealed,
        wrong: mut remarks,
        reaches,
    } = recovery::look(disk, copies.slots()).map_err(Failure::from)?;
    let begin = |seal: &Seal| Begin {
        after: seal.manifest.begun,
        at: seal.manifest.at,
        reserved: seal.manifest.reserved,
        reaches,
    };
    let has = |(_, seal): &(SlotId, Seal)| Reader::open_after(disk, begin(seal)).is_ok();
    sealed.retain(has);
    let until = match sealed.last() {
        Some((_, oldest)) => resolve(disk, begin(oldest), goal.until)?,
        None => None,
    };
    if !goal.state_alone {
        sealed.reverse();
    }
    let first = first_number(disk)?;
    let first = first.map_or("nowhere".to_owned(), |first| {
        format!("at sequence number {first}")
    });
    let fits = |seal: &Seal| {
        let states = seal.manifest.states.iter();
        until.is_none_or(|until| states.map(|state| state.upto).all(|upto| upto <= until))
    };
    for (slot, seal) in sealed.iter().filter(|(_, seal)| fits(seal)) {
        match replay.load(copies.slots(), (*slot, seal)) {
            Ok(()) => {
                remarks.push(format!(
                    "the journal begins {first}: this begins with snapshot {slot}, which holds everything up to {}",
                    seal.manifest.begun
                ));
                return Ok(Range {
                    begin: begin(seal),
                    until,
                    remarks,
                });
            }
            Err(error) => remarks.push(format!("snapshot {slot} does not read: {error}")),
        }
    }
    remarks.insert(
        0,
        format!(
            "failed to replay {}: the journal begins {first}",
            data.display()
        ),
    );
    for (slot, seal) in sealed.iter().filter(|(_, seal)| !fits(seal)) {
        let upto = seal.manifest.states.iter().map(|state| state.upto).max();
        let upto = upto.unwrap_or(seal.manifest.begun);
        remarks.push(format!(
            "snapshot {slot} holds what came up to {upto}, which is later"
        ));
    }
    Err(Failure::unreachable(remarks.join("; ")).help(
        "what came before is gone from here: a backup from then, or an exported log, may have it",
    ))
}

/// The first number that the journal has.
fn first_number(disk: &RealDisk) -> Result<Option<Seq>, PersistError> {
    for ordinal in segment::ordinals(disk)? {
        if let Opening::Record(seq) = segment::opening(disk, ordinal)? {
            return Ok(Some(seq));
        }
    }
    Ok(None)
}

/// The last number up to a time: zero if even the first is later.
fn resolve(
    disk: &RealDisk,
    begin: Begin,
    until: Option<Until>,
) -> Result<Option<Seq>, PersistError> {
    let until = match until {
        None => return Ok(None),
        Some(Until::Seq(until)) => return Ok(Some(until)),
        Some(Until::Time(until)) => until,
    };
    let mut last = if begin.at <= until {
        begin.after
    } else {
        Seq(0)
    };
    let mut reader = Reader::open_after(disk, begin)?;
    // Damage behind that time is not looked for; damage before it is told when it is come to.
    while let Ok(Some(record)) = reader.next() {
        if record.at > until {
            break;
        }
        last = record.seq;
    }
    Ok(Some(last))
}

/// Has the replay compare what checkpoints noted.
fn note(disk: &RealDisk, begin: Begin, replay: &mut Replay) -> Result<(), recovery::RecoveryError> {
    let mut reader = Reader::open_after(disk, begin)?;
    while let Some(record) = reader.next()? {
        if record.kind == Kind::Mark {
            replay.note(&decode_mark(&record)?);
        }
    }
    Ok(())
}
