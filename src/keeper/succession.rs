//! Handover from a running keeper to the program that replaces it in the same process.

use crate::keeper::core::{Keeper, now};
use crate::keeper::parcels::{Waiting, until};
use crate::keeper::upgrade::{self, Carried, CarriedParcel};
use crate::kernel::proc;
use crate::kernel::spawn::{Outcome, inherited};
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

impl Keeper {
    /// Takes over the state that the previous program passed on because it is not in the log. Parcels and children whose descriptors cannot
    /// be taken over are skipped.
    pub(crate) fn unpack(&mut self, carried: Carried) {
        for parcel in carried.parcels {
            let [input, output, errors] = parcel.streams.map(inherited);
            let further = parcel.further.into_iter().map(inherited);
            let further = further.collect::<Result<Vec<_>, _>>();
            if let (Ok(input), Ok(output), Ok(errors), Ok(further)) =
                (input, output, errors, further)
            {
                self.parcels.push(Waiting {
                    ticket: parcel.ticket,
                    parcel: parcel.parcel,
                    streams: [input, output, errors],
                    inheritance: parcel.inheritance,
                    further,
                    bytes: parcel.bytes,
                    until: parcel.until,
                });
            }
        }
        for (pid, outcome) in carried.starting {
            if let (Some(attempt), Ok(fd)) = (self.attempts.of_child(pid), inherited(outcome)) {
                self.attempts.restart(attempt);
                self.follow(pid, Outcome::from_fd(fd));
            }
        }
    }

    /// Executes `program` in place of the one that is running. Returns only on failure, with the reason.
    pub(super) fn upgrade(&mut self, program: &Path) -> Option<String> {
        // The coordinator may not be able to find this out: see `signals::hide`.
        if proc::executes(std::process::id(), program).unwrap_or(false) {
            return None;
        }
        if self.log.is_incomplete()
            && let Err(error) = self.log.compact(self.attempts.records())
        {
            return Some(format!("the log is incomplete and cannot be rewritten: {error}"));
        }
        let carried = Carried {
            parcels: self.parcels.iter().map(carried).collect(),
            starting: self
                .starting
                .iter()
                .map(|(pid, outcome)| (*pid, outcome.as_fd().as_raw_fd()))
                .collect(),
        };
        let streams =
            self.parcels.iter().flat_map(|waiting| waiting.streams.iter().chain(&waiting.further));
        let mut open: Vec<BorrowedFd<'_>> = streams.map(OwnedFd::as_fd).collect();
        open.extend(self.starting.values().map(Outcome::as_fd));
        let arguments = vec!["keeper".into(), "--data".into(), self.files.data.clone().into()];
        let files = (self.files.lock.as_fd(), self.files.listener.as_fd());
        let error = upgrade::become_program(program, arguments, files, (&carried, &open));
        Some(format!("failed to execute {}: {error}", program.display()))
    }
}

fn carried(waiting: &Waiting) -> CarriedParcel {
    CarriedParcel {
        ticket: waiting.ticket,
        parcel: waiting.parcel.clone(),
        streams: waiting.streams.each_ref().map(AsRawFd::as_raw_fd),
        bytes: waiting.bytes,
        inheritance: waiting.inheritance.clone(),
        further: waiting.further.iter().map(AsRawFd::as_raw_fd).collect(),
        // The upgrade closes the client's connection, so a parcel that was to wait until then waits for one more minute at most.
        until: waiting.until.min(until(now())),
    }
}
