//! Views of leases.

use crate::actors::lease::item::Lease;
use crate::clock::{Date, Timestamp};
use serde::Serialize;

/// A lease as shown to clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaseView {
    /// The state of the lease.
    #[serde(flatten)]
    pub lease: Lease,
    /// The next date of the lease's schedule; `None` if there is none.
    pub due: Option<Date>,
    /// Whether a whole pass is owed.
    pub wanted: bool,
}

/// A page of leases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// The leases, ordered by name.
    pub leases: Vec<LeaseView>,
    /// Whether more leases follow.
    pub more: bool,
}

impl LeaseView {
    /// Returns whether another pass must follow the running one. If no pass is running, returns whether one must run.
    pub fn is_followed(&self) -> bool {
        self.wanted && self.lease.wanted > self.lease.last_settled()
    }

    /// Returns whether a request would have any effect. It has none if the lease is disabled or another request is next. Fossil checks
    /// this before it spawns a process.
    pub fn is_useful(&self, now: Timestamp) -> bool {
        let next = self.lease.next.as_ref();
        !self.lease.settings.disabled && next.is_none_or(|it| !it.is_live(now))
    }
}
