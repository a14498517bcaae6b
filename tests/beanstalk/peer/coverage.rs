//! Counts of the cases in the compared sequences, since a comparison proves nothing about a case that never occurred.

use std::fmt;
use std::iter::Sum;

/// The number of times that each case occurred.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Coverage {
    /// A second connection began to wait for a tube.
    pub(crate) pairs: u64,
    /// One of two connections that waited for a tube was served.
    pub(crate) served: u64,
    /// A waiting connection was closed.
    pub(crate) closed: u64,
    /// A reservation expired.
    pub(crate) expired: u64,
    /// A job was given to a waiting connection after its reservation by another one expired.
    pub(crate) handed_on: u64,
}

impl Sum for Coverage {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, it| Self {
            pairs: sum.pairs + it.pairs,
            served: sum.served + it.served,
            closed: sum.closed + it.closed,
            expired: sum.expired + it.expired,
            handed_on: sum.handed_on + it.handed_on,
        })
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} pairs of waiting connections on one tube, {} of them served, {} waiting connections closed, \
             {} reservations expired, {} of them to a waiting connection",
            self.pairs, self.served, self.closed, self.expired, self.handed_on,
        )
    }
}
