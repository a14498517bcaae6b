//! The contenders for one lock, in order, and which of them are away.

use crate::actors::lock::rank::Rank;
use crate::ids::{Seq, Slot};
use crate::lookup::table::Table;
use std::collections::BTreeMap;

/// Contenders by priority.
type Ranks = BTreeMap<u8, Rank>;

/// The contenders for one lock.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) ranks: Ranks,
    pub(super) by_owner: Table,
    pub(super) len: usize,
    /// The number of contenders whose clients are away.
    pub(super) away: usize,
    /// The contenders whose clients are not away. Empty while nobody is away: then it would be a copy of `ranks`.
    pub(super) present: Ranks,
}

/// The place of a contender in its line: its priority, its sequence number and its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) priority: u8,
    pub(super) seq: Seq,
    pub(super) slot: Slot,
}

impl Line {
    /// Returns the sequence number and slot of the contender that was queued first, whatever its priority; `None` if the line
    /// is empty.
    pub(super) fn oldest(&self) -> Option<(Seq, Slot)> {
        self.ranks.values().filter_map(Rank::first).min()
    }

    /// Returns all contenders, in order.
    pub(super) fn all(&self, high_first: bool) -> impl Iterator<Item = Slot> + '_ {
        in_order(&self.ranks, high_first)
    }

    /// Returns the contenders that are not away, in order.
    pub(super) fn present(&self, high_first: bool) -> impl Iterator<Item = Slot> + '_ {
        in_order(if self.away == 0 { &self.ranks } else { &self.present }, high_first)
    }

    /// Adds a contender, except to `by_owner`.
    pub(super) fn insert(&mut self, it: Standing, is_away: bool) {
        if is_away {
            self.begin_present();
            self.away += 1;
        } else if self.away > 0 {
            insert(&mut self.present, it);
        }
        insert(&mut self.ranks, it);
        self.len += 1;
    }

    /// Removes a contender, except from `by_owner`.
    pub(super) fn remove(&mut self, it: Standing, is_away: bool) {
        if is_away {
            self.come_back(it);
        }
        if self.away > 0 {
            remove(&mut self.present, it);
        }
        remove(&mut self.ranks, it);
        self.len -= 1;
    }

    /// Records that the client of a contender is away.
    pub(super) fn leave(&mut self, it: Standing) {
        self.begin_present();
        self.away += 1;
        remove(&mut self.present, it);
    }

    fn begin_present(&mut self) {
        if self.away == 0 {
            self.present.clone_from(&self.ranks);
        }
    }

    /// Records that the client of a contender is no longer away.
    pub(super) fn come_back(&mut self, it: Standing) {
        self.away -= 1;
        if self.away == 0 {
            self.present.clear();
        } else {
            insert(&mut self.present, it);
        }
    }
}

fn in_order(ranks: &Ranks, high_first: bool) -> impl Iterator<Item = Slot> + '_ {
    let down = high_first.then(|| ranks.values().rev()).into_iter().flatten();
    let up = (!high_first).then(|| ranks.values()).into_iter().flatten();
    down.chain(up).flat_map(Rank::iter)
}

fn insert(ranks: &mut Ranks, Standing { priority, seq, slot }: Standing) {
    ranks.entry(priority).or_default().insert(seq, slot);
}

fn remove(ranks: &mut Ranks, Standing { priority, seq, slot }: Standing) {
    let rank = ranks.get_mut(&priority).expect("a contender should be in the rank of its priority");
    assert!(rank.remove(seq) == Some(slot), "a contender is in the rank of its priority");
    if rank.is_empty() {
        ranks.remove(&priority);
    }
}
