//! Listings of entries. `select` visits at most [`SLOTS_IN_A_ROW`] slots per call; `list` without a key visits all entries,
//! however few it returns.

use crate::actors::lock::entry::Entry;
use crate::actors::lock::machine::{LockMachine, SLOTS_IN_A_ROW};
use crate::actors::lock::message::{EntryView, Name, Reply, Selection};
use crate::ids::{Slot, Token};

impl LockMachine {
    pub(super) fn list(&self, key: Option<&Name>, entries_max: u32) -> Vec<EntryView> {
        let mut heads: Vec<Slot> = match key {
            Some(key) => self.state.of_key(key.as_bytes()).collect(),
            None => {
                self.state.entries.iter().filter(|(_, e)| e.is_owner()).map(|(s, _)| s).collect()
            }
        };
        if key.is_none() {
            heads.sort_by_key(|slot| {
                self.state.entries.get(*slot).map(|entry| (entry.key(), entry.first()))
            });
        }
        heads
            .into_iter()
            .flat_map(|head| std::iter::once(head).chain(self.in_line(head)).zip(1..))
            .take(entries_max as usize)
            .filter_map(|(slot, place)| Some(self.listed(self.state.entries.get(slot)?, place)))
            .collect()
    }

    /// Returns a page of at most `entries_max` entries that match the selection, beginning at the slot `from`, and the
    /// slot at which the next page begins (`None` after the last page). Visits at most [`SLOTS_IN_A_ROW`] slots, so that
    /// the actor can handle other requests between two pages.
    pub(super) fn select(&self, selection: &Selection) -> Reply {
        let Selection { key, index, owner, from, entries_max } = selection;
        let is = |wanted: &Option<Name>, found: &[u8]| {
            wanted.as_ref().is_none_or(|it| it.as_bytes() == found)
        };
        let mut entries = Vec::new();
        let end = from.0.saturating_add(SLOTS_IN_A_ROW);
        for slot in (from.0..end.min(self.state.entries.extent())).map(Slot) {
            if entries.len() == *entries_max as usize {
                let next = Some(slot);
                return Reply::Page { entries, next };
            }
            let found = self.state.entries.get(slot).filter(|entry| {
                is(key, entry.key()) && is(index, entry.index()) && is(owner, entry.owner())
            });
            entries.extend(found.map(|entry| {
                let place = self.state.place(slot, self.rules.high_first);
                self.listed(entry, place)
            }));
        }
        let next = (end < self.state.entries.extent()).then_some(Slot(end));
        Reply::Page { entries, next }
    }

    fn listed(&self, entry: &Entry, place: u32) -> EntryView {
        let name = |bytes: &[u8]| Name::new(bytes).unwrap_or_default();
        EntryView {
            key: name(entry.key()),
            index: name(entry.index()),
            owner: name(entry.owner()),
            place,
            ttl: entry.ttl,
            ttw: entry.ttw,
            priority: entry.priority,
            since: entry.since,
            deadline: self.state.deadline_of(entry),
            token: Some(entry.token()).filter(|token| *token != Token(0)),
            bound: entry.bound(),
            fencing: entry.is_fencing(),
            away: entry.is_away(),
        }
    }
}
