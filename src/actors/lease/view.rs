//! A lease, as it is shown.

use crate::actors::lease::item::Lease;
use crate::clock::{Date, Timestamp};
use serde::Serialize;

/// A lease, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaseView {
    /// The lease.
    #[serde(flatten)]
    pub lease: Lease,
    /// When it asks by itself next.
    pub due: Option<Date>,
    /// Whether a whole pass is owed.
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

impl LeaseView {
    /// Whether a whole pass is owed after the one that runs, if one does.
    pub fn is_followed(&self) -> bool {
        self.wanted && self.lease.wanted > self.lease.settled()
    }

    /// Whether a request has any use: Fossil's check before it spawns. Nobody is next who would do for it.
    pub fn is_useful(&self, now: Timestamp) -> bool {
        let next = self.lease.next.as_ref();
        !self.lease.settings.disabled && next.is_none_or(|it| !it.is_live(now))
    }
}
