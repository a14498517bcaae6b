//! The checkpoints of a run, whose steps alternate with all other moves, and the damage done to slots while no node is
//! running.

use crate::checkpoint::{Stage, Step};
use crate::node::Stopped;
use crate::run::Run;
use crate::snapshots;
use crate::violation::{Promise, Violation, ensure};
use sexton::ids::Seq;
use sexton::persist::journal::segment;
use sexton::persist::snapshots::{BySlot, SlotId};
use sexton::spine::checkpoint::slot_to_write;

/// The damage done to a slot while no node was running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Harm {
    #[default]
    None,
    /// A later checkpoint that was cut short may have removed it.
    Perhaps,
    Done,
}

/// The calls to the disk in which a process may be killed.
#[derive(Clone, Copy)]
enum Call {
    None,
    Open,
    Put,
    Close,
    Seal,
}

/// The probability that a checkpoint begins, in thousandths.
const BEGINS: u64 = 120;
/// The number of steps in a thousand in which a whole checkpoint is taken at once.
const HURRIES: u64 = 40;
/// The number of steps within which a checkpoint must have ended.
const STEPS_MAX: u32 = 10_000;

impl Run<'_> {
    /// Continues a checkpoint, or begins one by chance.
    pub(crate) fn come_to_snapshots(&mut self) -> Result<(), Violation> {
        let idle = self.node.as_ref().is_some_and(|node| !node.amid);
        if idle && !self.chance.per_mille(BEGINS) {
            return Ok(());
        }
        if self.chance.per_mille(HURRIES) {
            return self.take_whole_snapshot();
        }
        self.take_snapshot()
    }

    /// Continues a checkpoint, or begins one.
    fn take_snapshot(&mut self) -> Result<(), Violation> {
        let Some(node) = &mut self.node else {
            return Ok(());
        };
        let stage = node.checkpoint.as_ref().map(|it| it.stage().clone());
        if let Some(Stage::Seal(mark)) = stage
            && node.log.released >= mark
        {
            self.checker.bank(&self.disk, mark)?;
        }
        let call = match stage {
            None => Call::Open,
            Some(Stage::Put(..)) => Call::Put,
            Some(Stage::Close) => Call::Close,
            Some(Stage::Seal(_)) => Call::Seal,
            Some(Stage::Begin | Stage::BeginActor(_) | Stage::Copy(_) | Stage::Mark) => Call::None,
        };
        let (sealed, step) = (node.sealed, node.checkpoint(self.setting.slice_bytes));
        let written = node.sealed;
        node.check_stores()?;
        self.say(|| format!("checkpoint: {step:?}"));
        if let Call::Open = call {
            self.coverage.checkpoints_begun += 1;
            self.harm_is_uncertain(sealed);
        }
        if self.disk.is_dead() {
            match call {
                Call::Open => self.coverage.deaths_opening_a_slot += 1,
                Call::Put => self.coverage.deaths_putting_pages += 1,
                Call::Close => self.coverage.deaths_closing_a_slot += 1,
                Call::Seal => self.coverage.deaths_sealing_a_slot += 1,
                Call::None => {}
            }
            self.coverage.deaths_inside_a_disk_call += 1;
            self.after_death();
            return Ok(());
        }
        match step {
            Ok(Step::Going | Step::Waiting) => {}
            Ok(Step::Interrupted) => self.coverage.checkpoints_interrupted += 1,
            Ok(Step::Sealed(segments)) => {
                self.coverage.checkpoints_sealed += 1;
                self.coverage.segments_trimmed += segments;
                self.coverage.segments_trimmed_together += u64::from(segments > 1);
                for slot in SlotId::ALL {
                    if written[slot] != sealed[slot] && self.harm[slot] != Harm::None {
                        self.harm[slot] = Harm::None;
                        self.coverage.slots_rebuilt += 1;
                    }
                }
            }
            Err(error) => {
                self.coverage.checkpoints_failed += 1;
                let words = error.to_string();
                let expected = words.contains("the disk failed to")
                    || (error.is_disk_full() && self.disk.is_bounded());
                ensure(expected, Promise::Sealed, || words)?;
            }
        }
        Ok(())
    }

    /// Records that the damage may be gone, because the slot is being written.
    fn harm_is_uncertain(&mut self, sealed: BySlot<Option<Seq>>) {
        let harm = &mut self.harm[slot_to_write(sealed)];
        if *harm == Harm::Done {
            *harm = Harm::Perhaps;
        }
    }

    /// Takes the steps of a checkpoint until it has ended, with the journal's steps in between. The node may end too.
    pub(crate) fn take_whole_snapshot(&mut self) -> Result<(), Violation> {
        for _ in 0..STEPS_MAX {
            self.take_snapshot()?;
            let Some(node) = &mut self.node else {
                return Ok(());
            };
            if node.checkpoint.is_none() {
                return Ok(());
            }
            node.hand(&mut self.tap)?;
            if let Err(error) = node.log.drain() {
                return self.halted(Stopped::Journal(error));
            }
            self.release()?;
        }
        Err(Violation::new(Promise::Answered, "a checkpoint never ends"))
    }

    /// May damage a slot while no node is running, if the state can still be recovered without it.
    pub(crate) fn while_slots_rest(&mut self) -> Result<(), Violation> {
        if self.chance.per_mille(400) {
            snapshots::check_damage(&self.disk, &mut self.chance, &mut self.coverage)?;
        }
        if self.chance.per_mille(100) {
            snapshots::check_short(&self.disk, &mut self.chance, &mut self.coverage)?;
        }
        if self.setting.plant.is_none() && self.chance.per_mille(60) {
            self.damage_a_slot();
        }
        Ok(())
    }

    fn damage_a_slot(&mut self) {
        let whole = snapshots::whole(&self.disk);
        let slot = match whole.as_slice() {
            [first, second] => self.chance.pick(&[first.0, second.0]).to_owned(),
            [(slot, _)] if snapshots::is_journal_whole(&self.disk) => *slot,
            _ => return,
        };
        if snapshots::spoil(&self.disk, slot, &mut self.chance) {
            self.say(|| format!("slot {slot} is damaged"));
            self.coverage.slots_damaged_for_good += 1;
            self.harm[slot] = Harm::Done;
        }
    }

    /// Checks, after startup, that a slot is reported as incomplete only if it was damaged or being written, and that
    /// damage is reported.
    pub(crate) fn check_slots(&mut self) -> Result<(), Violation> {
        let Some(node) = &self.node else {
            return Ok(());
        };
        self.coverage.starts_from_a_snapshot += u64::from(node.found.from_snapshot);
        node.check_stores()?;
        for slot in SlotId::ALL {
            let harm = &mut self.harm[slot];
            let mut mended = node.found.mended.iter();
            let told = mended.find(|words| snapshots::speaks_of(words, slot));
            let unsealed = told.is_some_and(|words| words.contains("was being written"));
            match (told, *harm) {
                (Some(_), Harm::None) if unsealed => {
                    self.coverage.slots_half_written_at_a_start += 1;
                }
                (Some(words), Harm::None) => {
                    return Err(Violation::new(Promise::Sealed, words));
                }
                (None, Harm::Done) => {
                    let what = format!("the damage of slot {slot} was not reported");
                    return Err(Violation::new(Promise::DamageNamed, what));
                }
                (None, Harm::Perhaps) => *harm = Harm::None,
                (None, Harm::None) | (Some(_), Harm::Perhaps | Harm::Done) => {}
            }
        }
        if self.chance.per_mille(250) {
            let digests = node.actors.digests();
            snapshots::check_alone(&self.disk, &digests, &mut self.coverage)?;
        }
        Ok(())
    }

    /// Checks, after rewriting both slots, that the disk contains the required files and no others.
    pub(crate) fn check_files(&mut self) -> Result<(), Violation> {
        for _ in SlotId::ALL {
            self.take_whole_snapshot()?;
        }
        let whole = snapshots::whole(&self.disk);
        ensure(whole.len() == 2, Promise::NoLeak, || {
            format!("only {} slots are complete after two checkpoints", whole.len())
        })?;
        let ordinals = segment::ordinals(&self.disk).unwrap_or_default();
        let older = whole.iter().map(|(_, seal)| seal.manifest.begun).min();
        let needed = segment::first_needed(&self.disk, &ordinals, older.unwrap_or_default());
        let needed = needed.ok().flatten().unwrap_or(1);
        let mut files = self.disk.files();
        files.remove("journal/synced");
        for ordinal in ordinals.into_iter().filter(|it| *it >= needed) {
            files.remove(&segment::name(ordinal));
        }
        for (slot, seal) in &whole {
            files.remove(&slot.seal());
            for file in &seal.files {
                files.remove(&format!("{}/{}", slot.folder(), file.name));
            }
        }
        ensure(files.is_empty(), Promise::NoLeak, || format!("unneeded files: {files:?}"))?;
        self.coverage.disks_without_a_leak += 1;
        Ok(())
    }
}
