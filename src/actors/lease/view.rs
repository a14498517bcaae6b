//! What people and programs are shown of leases.

use crate::actors::lease::event;
use crate::actors::lease::item::{Lease, Settings};
use crate::actors::lease::machine::{LISTED_MAX, LeaseMachine};
use crate::actors::lease::message::Message;
use crate::actors::lease::outcome::Outcome;
use crate::actors::lock::Name;
use crate::clock::{Date, Timestamp};
use crate::ids::Slot;
use crate::spine::event::Happening;
use crate::spine::machine::{Gauge, Shown, Stamp};
use serde::Serialize;
use std::ops::Bound;

/// A lease, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaseView {
    /// The lease.
    #[serde(flatten)]
    pub lease: Lease,
    /// When it asks by itself next.
    pub due: Option<Date>,
    /// Whether a pass is wanted: one is owed, or its period is over.
    pub wanted: bool,
}

/// Some leases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// Them, by name.
    pub leases: Vec<LeaseView>,
    /// Whether there are more after the last.
    pub more: bool,
}

impl LeaseMachine {
    pub(super) fn view_of(&self, slot: Slot) -> Option<LeaseView> {
        let lease = self.state.leases.get(slot)?.clone();
        let due = lease.due.and_then(|it| self.state.dues.get(it));
        Some(LeaseView {
            due: due.map(|it| it.at),
            wanted: lease.is_owed(),
            lease,
        })
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

impl LeaseView {
    /// The first instant at which a request could have a pass at once, as far as is known now.
    pub fn free_at(&self, now: Timestamp) -> Option<Timestamp> {
        let is_free = self.lease.running().is_none() && self.lease.next.is_none();
        is_free.then(|| self.lease.free_at().max(now))
    }

    /// Whether a request has any use: Fossil's check before it spawns. Nobody is next who would do for it.
    pub fn is_useful(&self, now: Timestamp) -> bool {
        let next = self.lease.next.as_ref();
        !self.lease.settings.disabled && next.is_none_or(|it| !it.is_live(now))
    }

    /// What is set.
    pub const fn settings(&self) -> &Settings {
        &self.lease.settings
    }
}

impl Shown for LeaseMachine {
    const KINDS: &'static [&'static str] = event::KINDS;

    type View = Vec<LeaseView>;

    fn view(&self) -> Vec<LeaseView> {
        let all = self.state.leases.iter();
        all.filter_map(|(slot, _)| self.view_of(slot)).collect()
    }

    fn gauges(&self) -> Vec<Gauge> {
        let gauge = |name, help, value| Gauge { name, help, value };
        let totals = self.state.totals;
        let leases = self.state.leases.len() as u64;
        vec![
            gauge("leases", "leases", leases),
            gauge("running", "leases with a pass that runs", totals.running),
            gauge("waiting", "leases with somebody next", totals.waiting),
        ]
    }

    fn events(
        &self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        publish: &mut dyn FnMut(Happening),
    ) {
        event::events(&self.state, entry, (message, outcome), publish);
    }
}
