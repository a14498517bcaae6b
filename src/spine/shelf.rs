//! Keeps two snapshots of a machine in memory, for model tests. They are written alternately, from the machine's pages, as a coordinator
//! would write them.

use crate::ids::{Digest, PageId, Seq};
use crate::spine::machine::Paged;
use crate::spine::pages;
use crate::spine::receipts::Receipts;
use std::collections::BTreeMap;

/// The two snapshots, and the checkpoint under way.
pub(crate) struct Shelf<M: Paged> {
    rules: M::Rules,
    /// Asserts that a machine is consistent, and formats the part of its state that a snapshot contains.
    look: fn(&M) -> String,
    slots: [Slot; 2],
    running: Option<Running>,
    /// The number of completed checkpoints.
    pub(crate) taken: u32,
    /// The number of pages copied early because they were about to change.
    pub(crate) early: u32,
}

#[derive(Clone, Default)]
struct Slot {
    upto: Seq,
    pages: BTreeMap<PageId, (Seq, Vec<u8>)>,
}

struct Running {
    slot: usize,
    upto: Seq,
    digest: Digest,
    shown: String,
}

impl<M: Paged> Shelf<M> {
    pub(crate) fn new(rules: M::Rules, look: fn(&M) -> String) -> Self {
        Self { rules, look, slots: Default::default(), running: None, taken: 0, early: 0 }
    }

    /// Begins a checkpoint, or copies one more page for the one under way. After the last page, asserts that the snapshot has the state
    /// that the machine had when the checkpoint began.
    pub(crate) fn step(&mut self, machine: &mut M, last: Seq) {
        let Some(running) = &self.running else {
            let slot = usize::from(self.slots[1].upto < self.slots[0].upto);
            machine.pages().begin(self.slots[slot].upto, last);
            self.running = Some(Running {
                slot,
                upto: last,
                digest: machine.digest(),
                shown: (self.look)(machine),
            });
            return;
        };
        let (copied, done) = pages::slice(machine, &Receipts::default(), 1);
        self.early += u32::try_from(copied.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let slot = &mut self.slots[running.slot];
        for copied in copied {
            slot.pages.insert(copied.page, (copied.changed, copied.content));
        }
        if done && let Some(running) = self.running.take() {
            self.slots[running.slot].upto = running.upto;
            self.taken += 1;
            let read = self.read(running.slot);
            let shown = (self.look)(&read);
            assert_eq!(read.digest(), running.digest, "a snapshot has the state at its watermark");
            assert_eq!(shown, running.shown);
        }
    }

    /// Abandons the checkpoint under way, if any, and returns the machine loaded from the newest snapshot, with that snapshot's watermark.
    pub(crate) fn load(&mut self) -> (M, Seq) {
        if let Some(running) = self.running.take() {
            // The slot is half written, so it is rewritten from scratch next time.
            self.slots[running.slot] = Slot::default();
        }
        let newest = usize::from(self.slots[1].upto > self.slots[0].upto);
        (self.read(newest), self.slots[newest].upto)
    }

    fn read(&self, slot: usize) -> M {
        let slot = &self.slots[slot];
        let decode = |(page, (_, content)): (&PageId, &(Seq, Vec<u8>))| {
            M::decode_page(*page, content).expect("a written page should decode")
        };
        let filled = slot.pages.iter().filter(|(_, page)| !page.1.is_empty());
        let mut machine = M::from_pages(self.rules.clone(), &mut filled.map(decode));
        for (page, (changed, _)) in &slot.pages {
            machine.pages().loaded(*page, *changed);
        }
        machine
    }
}
