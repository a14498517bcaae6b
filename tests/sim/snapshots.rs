//! Checks of the slots: each slot alone gives the full state, and damage is reported and repaired, or startup is refused.
//!
//! They work on copies of the disk, so they do not affect the node.

use crate::chance::Chance;
use crate::check::{Read, read};
use crate::coverage::Coverage;
use crate::disk::SimDisk;
use crate::each::Replicas;
use crate::store::SimStores;
use crate::violation::{Promise, Violation, ensure};
use sexton::ids::{Digest, Seq};
use sexton::persist::disk::Disk as _;
use sexton::persist::journal::{Begin, Reader, segment};
use sexton::persist::snapshots::{FOLDER, Seal, SlotId, SlotStatus, Slots};
use sexton::spine::recovery::{Past, RecoveryError, Scope, recover};
use std::sync::Arc;

/// What a recovery found, and the digest of each actor after it.
type Recovered = Result<(Past, Vec<Digest>), RecoveryError>;

/// Recovers from a disk. The outer result is a broken promise.
fn recovered(disk: &SimDisk) -> Result<Recovered, Violation> {
    let stores = Arc::new(SimStores::new(disk, Chance::of(disk.operations())));
    let slots = Slots::new(Arc::new(disk.clone()), Arc::clone(&stores) as _);
    let mut replicas = Replicas::new();
    let past = recover(disk, Some(&slots), &mut replicas.recovering(), Scope::default());
    ensure(stores.spoiled() == 0, Promise::Sealed, || {
        "a store was opened whose files had changed".to_owned()
    })?;
    Ok(past.map(|past| (past, replicas.digests())))
}

/// Returns the sealed slots that a startup could use, with their seals.
pub(crate) fn whole(disk: &SimDisk) -> Vec<(SlotId, Seal)> {
    let stores = Arc::new(SimStores::new(disk, Chance::of(0)));
    let slots = Slots::new(Arc::new(disk.clone()), stores);
    let looks = SlotId::ALL.map(|slot| (slot, slots.look(slot)));
    let whole = looks.into_iter().filter_map(|(slot, look)| match look {
        Ok(SlotStatus::Sealed(seal)) => Some((slot, seal)),
        Ok(SlotStatus::Absent | SlotStatus::Unsealed | SlotStatus::Damaged(_)) | Err(_) => None,
    });
    whole.collect()
}

/// Returns whether the log still has its first segment.
pub(crate) fn is_journal_whole(disk: &SimDisk) -> bool {
    let ordinals = segment::ordinals(disk).unwrap_or_default();
    ordinals.first().is_none_or(|first| *first == 1)
}

/// Returns whether a text is about this slot.
pub(crate) fn speaks_of(words: &str, slot: SlotId) -> bool {
    words.starts_with(&format!("snapshot {slot} "))
}

/// Checks that each slot alone gives the state with these digests.
pub(crate) fn check_alone(
    disk: &SimDisk,
    digests: &[Digest],
    coverage: &mut Coverage,
) -> Result<(), Violation> {
    for (slot, _) in whole(disk) {
        let copy = disk.copy();
        copy.erase(&slot.other().seal());
        let what = match recovered(&copy)? {
            Ok((Past { snapshot, .. }, _)) if snapshot.as_ref().map(|it| it.0) != Some(slot) => {
                "it is unreadable".to_owned()
            }
            Ok((_, found)) if found == digests => {
                coverage.slots_checked_alone += 1;
                continue;
            }
            Ok((_, found)) => format!("digests are {found:?}, not {digests:?}"),
            Err(error) => error.to_string(),
        };
        return Err(Violation::new(Promise::Spare, format!("slot {slot} alone: {what}")));
    }
    Ok(())
}

/// Damages a file of a slot, or its seal: flips a bit, truncates the file, or removes it. Returns whether there was a
/// file to damage.
pub(crate) fn spoil(disk: &SimDisk, slot: SlotId, chance: &mut Chance) -> bool {
    let files = disk.tree(FOLDER).unwrap_or_default();
    let folder = format!("{slot}/");
    let seal = format!("{slot}.seal");
    let ours: Vec<(String, u64)> =
        files.into_iter().filter(|(name, _)| name.starts_with(&folder) || *name == seal).collect();
    if ours.is_empty() {
        return false;
    }
    let (name, len) = chance.pick(&ours).clone();
    let name = format!("{FOLDER}/{name}");
    let len = usize::try_from(len).expect("files fit in memory");
    match chance.below(3) {
        0 if len > 0 => {
            let bit = u8::try_from(chance.below(8)).expect("a byte has eight bits");
            disk.flip(&name, chance.index(len), bit);
        }
        1 if len > 0 => disk.truncate(&name, chance.index(len)),
        _ => disk.erase(&name),
    }
    true
}

/// Damages one or both slots on a copy of the disk. Either the same state is recovered and the damage is reported, or
/// startup is refused because that state cannot be recovered any more.
pub(crate) fn check_damage(
    disk: &SimDisk,
    chance: &mut Chance,
    coverage: &mut Coverage,
) -> Result<(), Violation> {
    let copy = disk.copy();
    copy.kill();
    let (Ok((_, expected)), sealed) = (recovered(&copy)?, whole(&copy)) else {
        return Ok(());
    };
    let both = sealed.len() == 2 && chance.per_mille(600);
    let spoiled: Vec<SlotId> = match sealed.as_slice() {
        [] => return Ok(()),
        sealed if both => sealed.iter().map(|(slot, _)| *slot).collect(),
        sealed => vec![chance.pick(sealed).0],
    };
    for slot in &spoiled {
        assert!(spoil(&copy, *slot, chance), "a sealed slot has files");
    }
    coverage.slots_damaged += 1;
    coverage.both_slots_damaged += u64::from(both);
    let left = !whole(&copy).is_empty() || is_journal_whole(&copy);
    let named = |what: String| Violation::new(Promise::DamageNamed, what);
    match recovered(&copy)? {
        Ok((past, found)) => {
            ensure(found == expected, Promise::DamageNamed, || {
                format!("with {spoiled:?} damaged, digests are {found:?}, not {expected:?}")
            })?;
            let is_told = |slot: &&SlotId| past.mended.iter().any(|it| speaks_of(it, **slot));
            match spoiled.iter().find(|slot| !is_told(slot)) {
                Some(slot) => Err(named(format!("the damage of slot {slot} was not reported"))),
                None => Ok(()),
            }
        }
        Err(error) if left => Err(named(format!("with {spoiled:?} damaged: {error}"))),
        Err(RecoveryError::Lost { .. }) => {
            coverage.losses_refused += 1;
            Ok(())
        }
        Err(error) => Err(named(format!("with {spoiled:?} damaged, it only reported: {error}"))),
    }
}

/// Cuts the log on a copy of the disk before the mark in the latest slot's seal, and checks that this is reported.
pub(crate) fn check_short(
    disk: &SimDisk,
    chance: &mut Chance,
    coverage: &mut Coverage,
) -> Result<(), Violation> {
    let copy = disk.copy();
    copy.kill();
    let mark = whole(&copy).into_iter().map(|(_, seal)| seal.mark).max();
    let Some(mark) = mark else { return Ok(()) };
    let Some((ordinal, offset)) = a_place_before(&copy, mark, chance) else {
        return Ok(());
    };
    for later in segment::ordinals(&copy).unwrap_or_default() {
        if later > ordinal {
            copy.erase(&segment::name(later));
        }
    }
    copy.blank(&segment::name(ordinal), offset);
    coverage.journals_cut_short += 1;
    ensure(recovered(&copy)?.is_err(), Promise::DamageNamed, || {
        format!("the log was cut before {mark}, which was not reported")
    })
}

/// Returns the segment and offset at which a random record up to `mark` begins.
fn a_place_before(disk: &SimDisk, mark: Seq, chance: &mut Chance) -> Option<(u64, usize)> {
    let Read { opening, .. } = read(disk);
    let begin = Begin { after: opening, ..Begin::default() };
    let mut reader = Reader::open_after(disk, begin).ok()?;
    let mut places = Vec::new();
    let mut before = None;
    while let Some(record) = reader.next().ok()? {
        let seq = record.seq;
        if seq > mark {
            break;
        }
        places.extend(before);
        before = reader.tail().place;
    }
    let (ordinal, offset) = *chance.pick(places.get(..).filter(|it| !it.is_empty())?);
    Some((ordinal, usize::try_from(offset).expect("files fit in memory")))
}
