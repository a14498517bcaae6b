//! Flips a bit on a copy of the disk as a crash left it. The damage must be reported, or cut off and counted, or
//! harmless; it must never change a record or cause a panic.

use crate::chance::Chance;
use crate::check::{Read, read};
use crate::coverage::Coverage;
use crate::disk::SimDisk;
use crate::violation::{Promise, Violation, ensure};
use sexton::ids::Seq;
use sexton::persist::PersistError;
use sexton::persist::format::{SEGMENT_HEADER_BYTES, frame};
use sexton::persist::journal::{Tail, segment};

/// Flips one random bit of the log on a copy of the disk, and checks the log that is then read.
pub(crate) fn check(
    disk: &SimDisk,
    chance: &mut Chance,
    coverage: &mut Coverage,
) -> Result<(), Violation> {
    let Read { log: whole, tail: Ok(tail), .. } = read(disk) else {
        return Ok(());
    };
    let ordinals =
        segment::ordinals(disk).map_err(|error| Violation::new(Promise::Starts, error))?;
    let (Some((last, end)), false) = (tail.place, ordinals.is_empty()) else {
        return Ok(());
    };
    let ordinal = *chance.pick(&ordinals);
    let name = segment::name(ordinal);
    let len = disk.bytes(&name).len() as u64;
    // Mostly flip a bit that belongs to a record, not to the unused end of the last segment.
    let upto = if ordinal == last && chance.per_mille(700) { end } else { len };
    let offset = chance.below(upto.max(1));
    let bit = u8::try_from(chance.below(8)).expect("a byte has eight bits");
    let copy = disk.copy();
    let place = usize::try_from(offset).expect("files fit in memory");
    copy.flip(&name, place, bit);
    coverage.bits_flipped += 1;
    let Read { opening, log: found, tail: verdict } = read(&copy);
    let at = format!("bit {bit} of byte {offset} of {name}");
    ensure(whole.get(..found.len()) == Some(&found), Promise::DamageNamed, || {
        format!("{at} changed or created a record")
    })?;
    let after = found.last().map_or(opening, |kept| kept.seq);
    let missing = whole.len() - found.len();
    let behind = ordinals.iter().filter(|other| **other > ordinal);
    let mut behind = behind.map(|other| disk.bytes(&segment::name(*other)));
    let proven = is_proven(&disk.bytes(&name), place) || behind.any(|bytes| has_records(&bytes));
    ensure(verdict.is_err() || missing == 0 || !proven, Promise::DamageNamed, || {
        format!("{at} was synced, but was cut as if it were unsynced")
    })?;
    // If reading stops in the rest of a record whose first part was in a removed segment, no record was read at all.
    let read = [Some(after), found.is_empty().then_some(Seq(0))];
    judge(verdict, (&name, offset), read, missing, coverage)
        .map_err(|what| Violation::new(Promise::DamageNamed, format!("{at}: {what}")))
}

fn judge(
    verdict: Result<Tail, PersistError>,
    (name, flipped): (&str, u64),
    read: [Option<Seq>; 2],
    missing: usize,
    coverage: &mut Coverage,
) -> Result<(), String> {
    match verdict {
        Ok(_) if missing == 0 => Ok(()),
        Ok(tail) => match tail.cut {
            // A record in parts is cut where its first part begins, possibly in the previous segment.
            Some(cut) if cut.bytes > 0 && (cut.file.as_str(), cut.offset) <= (name, flipped) => {
                coverage.damage_cut += 1;
                Ok(())
            }
            cut => Err(format!("{missing} records are missing, and the cut is {cut:?}")),
        },
        Err(PersistError::Corrupt { file, offset, after, found }) => {
            coverage.damage_named += 1;
            if (file.as_str(), offset) <= (name, flipped) && read.contains(&Some(after)) {
                Ok(())
            } else {
                Err(format!(
                    "reported {file} at {offset} after {after}, but {read:?} was read last: {found}"
                ))
            }
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Returns whether the bytes before the damage prove that the damaged record was synced: some later record was written
/// when it was already synced.
fn is_proven(bytes: &[u8], flipped: usize) -> bool {
    let mut damaged = None;
    let mut offset = SEGMENT_HEADER_BYTES;
    while let Some((header, _)) = bytes.get(offset..).and_then(|rest| frame(rest, 0)) {
        let end = offset + header.size as usize;
        match damaged {
            None if flipped < end => damaged = Some(offset),
            Some(damaged) if offset - header.unsynced as usize > damaged => return true,
            None | Some(_) => {}
        }
        offset = end;
    }
    false
}

fn has_records(bytes: &[u8]) -> bool {
    bytes.get(SEGMENT_HEADER_BYTES..).is_some_and(|rest| frame(rest, 0).is_some())
}
