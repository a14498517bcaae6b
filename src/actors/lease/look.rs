//! Builds the views and gauges of leases.

use crate::actors::lease::event;
use crate::actors::lease::machine::{ACTIVE_MAX, LISTED_MAX, LeaseMachine};
use crate::actors::lease::message::Message;
use crate::actors::lease::outcome::Outcome;
use crate::actors::lease::view::{LeaseView, Listing};
use crate::actors::lock::Name;
use crate::ids::Slot;
use crate::spine::event::EventBody;
use crate::spine::machine::{Gauge, Observable, Stamp};
use std::ops::Bound;

impl LeaseMachine {
    pub(super) fn view_of(&self, slot: Slot) -> Option<LeaseView> {
        let lease = self.state.leases.get(slot)?.clone();
        let due = lease.due.and_then(|it| self.state.dues.get(it));
        Some(LeaseView { due: due.map(|it| it.at), wanted: lease.is_owed(), lease })
    }

    pub(super) fn list(&self, prefix: &Name, after: Option<&Name>, limit: u32) -> Listing {
        let limit = limit.min(LISTED_MAX) as usize;
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let of_prefix = |(name, _): &(&Name, Slot)| name.as_bytes().starts_with(prefix.as_bytes());
        let mut all = self.state.after(from).take_while(of_prefix);
        let first = all.by_ref().take(limit);
        let leases = first.filter_map(|(_, slot)| self.view_of(slot)).collect();
        let more = all.next().is_some();
        Listing { leases, more }
    }
}

impl LeaseMachine {
    /// Returns the first `most` active leases (those with a pass that is running, requested, owed or scheduled) in the order of
    /// `Query::Active`. Considers only the first [`ACTIVE_MAX`] active leases by slot.
    pub(super) fn active(&self, most: u32) -> Listing {
        let all = self.state.active();
        let leases = all.iter().take(ACTIVE_MAX);
        let mut found: Vec<_> =
            leases.filter_map(|slot| Some((self.active_sort_key(*slot)?, *slot))).collect();
        found.sort_unstable();
        found.truncate(most as usize);
        let more = found.len() < all.len();
        let leases = found.into_iter();
        let leases = leases.filter_map(|(_, slot)| self.view_of(slot)).collect();
        Listing { leases, more }
    }

    /// Returns the first `most` leases of `Query::Unwell`.
    pub(super) fn unwell(&self, most: u32) -> Listing {
        let mut found = Vec::new();
        for slot in self.state.active().iter().take(ACTIVE_MAX) {
            let Some((lease, key)) = self.state.leases.get(*slot).zip(self.active_sort_key(*slot))
            else {
                continue;
            };
            let overruns = lease.running().is_some_and(|it| it.warnings > 0);
            if lease.failure().is_none() && (overruns || lease.broken > 0) {
                found.push((lease.is_of_plain_client(), key, *slot));
            }
        }
        found.sort_unstable();
        let more = found.len() > most as usize;
        let first = found.into_iter().take(most as usize);
        let leases = first.filter_map(|(.., slot)| self.view_of(slot)).collect();
        Listing { leases, more }
    }

    /// Returns the first `most` leases of `Query::Failed`.
    pub(super) fn failed(&self, most: u32) -> Listing {
        let mut all = self.state.failed();
        let first = all.by_ref().take(most.min(LISTED_MAX) as usize);
        let leases = first.filter_map(|slot| self.view_of(slot)).collect();
        let more = all.next().is_some();
        Listing { leases, more }
    }

    /// Returns the sort key of an active lease: its state, then a time. `None` if the lease is not active.
    fn active_sort_key(&self, slot: Slot) -> Option<(u8, u64)> {
        let lease = self.state.leases.get(slot)?;
        if let Some(current) = lease.running() {
            return Some((0, current.since.0));
        }
        if lease.next.is_some() || lease.is_owed() {
            return Some((1, lease.until().0));
        }
        let due = self.state.dues.get(lease.due?)?;
        Some((2, due.at.0))
    }
}

impl Observable for LeaseMachine {
    const KINDS: &'static [&'static str] = event::KINDS;

    type View = Vec<LeaseView>;

    fn sample(&self, most: usize) -> Vec<LeaseView> {
        let all = self.state.leases.iter().take(most);
        all.filter_map(|(slot, _)| self.view_of(slot)).collect()
    }

    fn gauges(&self) -> Vec<Gauge> {
        let gauge = |name, help, value| Gauge { name, help, value };
        let totals = self.state.totals();
        let leases = self.state.leases.len() as u64;
        vec![
            gauge("leases", "leases", leases),
            gauge("bytes", "size of all leases in bytes", self.state.bytes()),
            gauge("running", "leases with a running pass", totals.running),
            gauge("waiting", "leases with a waiting request", totals.waiting),
        ]
    }

    fn events(
        &self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        publish: &mut dyn FnMut(EventBody),
    ) {
        event::events(&self.state, entry, (message, outcome), publish);
    }
}
