//! Parcels: environment, umask, limits and streams that a client hands over for a launch. A parcel is kept in memory only, until a launch
//! names its ticket, the connection of its client closes, or a minute has passed. A client can request that its parcel has no time limit.

use crate::keeper::protocol::{
    Inheritance, PARCEL_SECONDS, PARCELS_MAX, PARCELS_STAYING_MAX, Parcel,
};
use std::os::fd::OwnedFd;

/// The maximum total size of waiting parcels, in bytes.
const BYTES_MAX: usize = 32 << 20;

/// A parcel that waits for its launch.
pub(crate) struct Waiting {
    pub(crate) ticket: u128,
    pub(crate) parcel: Parcel,
    pub(crate) streams: [OwnedFd; 3],
    /// What the command takes over beyond the parcel.
    pub(crate) inheritance: Inheritance,
    /// The further descriptors, whose numbers the inheritance has.
    pub(crate) further: Vec<OwnedFd>,
    /// Its encoded size in bytes.
    pub(crate) bytes: usize,
    /// When it expires, in milliseconds since boot; [`STAYS`] if it stays until its connection closes.
    pub(crate) until: u64,
}

/// The maximum number of descriptors of waiting parcels in addition to their streams.
const FURTHER_MAX: usize = 256;

/// The expiry of a parcel that stays until its connection closes.
pub(crate) const STAYS: u64 = u64::MAX;

/// Returns when a parcel that arrives at `now` expires unless it stays; both times are in milliseconds since boot.
pub(crate) const fn until(now: u64) -> u64 {
    now + PARCEL_SECONDS * 1000
}

/// All waiting parcels, at most [`PARCELS_MAX`].
#[derive(Default)]
pub(crate) struct Parcels(Vec<Waiting>);

impl Parcels {
    /// Adds a parcel, or returns the reason why it is refused.
    pub(crate) fn put(
        &mut self,
        (ticket, parcel, inheritance): (u128, Parcel, Inheritance),
        mut fds: Vec<OwnedFd>,
        bytes: usize,
        until: u64,
    ) -> Result<(), String> {
        if !inheritance.is_valid() {
            return Err(
                "the numbers of descriptors or the set of processors are not within their limits"
                    .to_owned(),
            );
        }
        let (count, further) = (fds.len(), inheritance.descriptors.len());
        if count != 3 + further {
            let needed = if further == 0 {
                "three descriptors".to_owned()
            } else {
                format!("three descriptors and {further} further ones")
            };
            return Err(format!("a parcel needs {needed}, not {count}"));
        }
        let further = fds.split_off(3);
        let streams = <[OwnedFd; 3]>::try_from(fds).expect("three should be left");
        if self.0.iter().any(|waiting| waiting.ticket == ticket) {
            return Err("a parcel with this ticket already exists".to_owned());
        }
        if self.0.len() >= PARCELS_MAX {
            return Err(format!(
                "{PARCELS_MAX} parcels wait for their launches, and no more are allowed"
            ));
        }
        let staying = self.0.iter().filter(|waiting| waiting.until == STAYS);
        if until == STAYS && staying.count() >= PARCELS_STAYING_MAX {
            return Err(format!(
                "{PARCELS_STAYING_MAX} parcels wait until their connections close, and no more are allowed"
            ));
        }
        let held: usize = self.0.iter().map(|waiting| waiting.bytes).sum();
        if held + bytes > BYTES_MAX {
            return Err(format!("waiting parcels may have at most {BYTES_MAX} bytes in total"));
        }
        let waiting = self.0.iter().map(|waiting| waiting.further.len());
        if waiting.sum::<usize>() + further.len() > FURTHER_MAX {
            return Err(format!(
                "waiting parcels may have at most {FURTHER_MAX} descriptors in addition to their streams"
            ));
        }
        self.push(Waiting { ticket, parcel, streams, inheritance, further, bytes, until });
        Ok(())
    }

    /// Adds a parcel that has already been accepted, without checking it again.
    pub(crate) fn push(&mut self, waiting: Waiting) {
        self.0.push(waiting);
    }

    /// Takes the parcel with this ticket for its launch; `None` if there is none.
    pub(crate) fn take(&mut self, ticket: u128) -> Option<Waiting> {
        let place = self.0.iter().position(|waiting| waiting.ticket == ticket)?;
        Some(self.0.swap_remove(place))
    }

    /// Drops parcels that have expired.
    pub(crate) fn expire(&mut self, now: u64) {
        self.0.retain(|waiting| waiting.until > now);
    }

    /// Returns whether no parcel is waiting.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the waiting parcels.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, Parcels, STAYS, until};
    use crate::keeper::protocol::{
        Inheritance, PARCEL_SECONDS, PARCELS_MAX, PARCELS_STAYING_MAX, Parcel,
    };
    use std::fs::File;
    use std::os::fd::OwnedFd;

    fn streams(count: usize) -> Vec<OwnedFd> {
        let null = || File::open("/dev/null").expect("/dev/null exists").into();
        (0..count).map(|_| null()).collect()
    }

    #[test]
    fn parcels_are_bounded_and_wait_a_minute() {
        let mut parcels = Parcels::default();
        let mut put = |ticket, fds, bytes| {
            let parcel = (ticket, Parcel::default(), Inheritance::default());
            parcels.put(parcel, streams(fds), bytes, until(0))
        };
        put(0, 2, 1).expect_err("a stream is missing");
        put(0, 4, 1).expect_err("there is one stream too many");
        put(0, 3, 1).expect("there is room");
        put(0, 3, 1).expect_err("the ticket is in use");
        put(1, 3, BYTES_MAX).expect_err("the parcel is too large");
        for ticket in 1..PARCELS_MAX {
            put(ticket as u128, 3, 1).expect("there is room");
        }
        put(999, 3, 1).expect_err("there are too many");
        assert!(parcels.take(0).is_some() && parcels.take(0).is_none());
        parcels.expire(PARCEL_SECONDS * 1000 - 1);
        assert!(!parcels.is_empty());
        parcels.expire(PARCEL_SECONDS * 1000);
        assert!(parcels.is_empty());
    }

    #[test]
    fn further_descriptors_are_numbered_and_bounded() {
        let mut parcels = Parcels::default();
        let mut put = |ticket, descriptors: Vec<i32>, fds| {
            let inheritance = Inheritance { descriptors, ..Inheritance::default() };
            parcels.put((ticket, Parcel::default(), inheritance), streams(fds), 1, 60_000)
        };
        for (numbers, fds) in [
            (vec![2], 4),
            (vec![3, 3], 5),
            (vec![Inheritance::DESCRIPTOR_MAX + 1], 4),
            ((3..65).collect(), 65),
            (vec![3, 5], 4),
            (vec![], 4),
        ] {
            put(0, numbers.clone(), fds).expect_err(&format!("{numbers:?}, {fds}"));
        }
        for ticket in 0..4 {
            put(ticket, (3..64).collect(), 64).expect("there is room");
        }
        put(5, (3..16).collect(), 16).expect_err("there are too many in all");
        put(5, vec![63], 4).expect("there is room");
    }

    #[test]
    fn those_that_stay_leave_room_for_others() {
        let mut parcels = Parcels::default();
        let mut put = |ticket: usize, until| {
            let parcel = (ticket as u128, Parcel::default(), Inheritance::default());
            parcels.put(parcel, streams(3), 1, until)
        };
        for ticket in 0..PARCELS_STAYING_MAX {
            put(ticket, STAYS).expect("there is room");
        }
        let words = put(1000, STAYS).expect_err("there are too many");
        assert!(words.contains("32 parcels wait"), "{words}");
        put(1001, until(0)).expect("there is room for one that does not stay");
        parcels.expire(until(0));
        assert!(parcels.take(1001).is_none() && parcels.take(0).is_some());
    }
}
