//! Replaces the program of a keeper with a newer one in the same process, so that its children remain its children.
//!
//! The new program reads the attempts from the log. State that is not in the log is passed to it in an in-memory file, and the descriptors
//! it needs stay open.

use crate::decode;
use crate::keeper::protocol::Inheritance;
use crate::keeper::protocol::Parcel;
use crate::kernel::spawn::{inherit, replace};
use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

/// The name of a keeper's program, as `ps` shows it.
pub(crate) const NAME: &CStr = c"sexton";

/// The numbers of the descriptors that the new program finds open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// The lock file, which stays locked.
    pub lock: i32,
    /// The listening socket.
    pub listener: i32,
    /// The in-memory file with the state that is not in the log: an encoded `Carried`.
    pub state: i32,
}

impl Resumption {
    /// Parses the form used on the command line: `3,4,5`. Returns `None` if the text is not three numbers.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(',').map(|number| number.parse::<i32>().ok());
        let found =
            Self { lock: numbers.next()??, listener: numbers.next()??, state: numbers.next()?? };
        numbers.next().is_none().then_some(found)
    }
}

impl std::fmt::Display for Resumption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},{},{}", self.lock, self.listener, self.state)
    }
}

/// The state that is passed to the new program because it is not in the log. As in the protocol, new fields must be added at the end.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Carried {
    /// Parcels waiting for their launches.
    pub(crate) parcels: Vec<CarriedParcel>,
    /// Children that have not executed their programs yet, each with its PID and the descriptor from which its outcome is read.
    pub(crate) starting: Vec<(u32, RawFd)>,
}

/// A parcel waiting for its launch, as in `Waiting`, but with its streams as descriptor numbers.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CarriedParcel {
    pub(crate) ticket: u128,
    pub(crate) parcel: Parcel,
    pub(crate) streams: [RawFd; 3],
    pub(crate) bytes: usize,
    pub(crate) until: u64,
    #[serde(default)]
    pub(crate) inheritance: Inheritance,
    #[serde(default)]
    pub(crate) further: Vec<RawFd>,
}

impl Carried {
    /// Reads the state that the previous program wrote.
    pub(crate) fn read(state: OwnedFd) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let mut file = File::from(state);
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        decode::from_slice(&bytes).map_err(io::Error::other)
    }

    fn write(&self) -> io::Result<File> {
        let bytes = rmp_serde::to_vec(self).map_err(io::Error::other)?;
        let mut file = File::from(rustix::fs::memfd_create("keeper", MemfdFlags::CLOEXEC)?);
        file.write_all(&bytes)?;
        Ok(file)
    }
}

/// Executes `program` with `arguments` in place of the current program and passes it `carried`. `lock`, `listener` and the descriptors in
/// `open` stay open. Returns only on failure, in which case the keeper can continue as before.
pub(crate) fn become_program(
    program: &Path,
    mut arguments: Vec<OsString>,
    (lock, listener): (BorrowedFd<'_>, BorrowedFd<'_>),
    (carried, open): (&Carried, &[BorrowedFd<'_>]),
) -> io::Error {
    let state = match carried.write() {
        Ok(state) => state,
        Err(error) => return error,
    };
    let resumption = Resumption {
        lock: lock.as_raw_fd(),
        listener: listener.as_raw_fd(),
        state: state.as_raw_fd(),
    };
    arguments.extend(["--resume".into(), resumption.to_string().into()]);
    let mut staying = vec![lock, listener, state.as_fd()];
    staying.extend(open);
    let all = |stays: bool| staying.iter().try_for_each(|fd| inherit(*fd, stays));
    let error = match all(true) {
        Ok(()) => replace(program, NAME, &arguments),
        Err(error) => error.into(),
    };
    // Failing to restore close-on-exec is harmless: a child closes all descriptors but its own.
    let _best = all(false);
    error
}

#[cfg(test)]
mod tests {
    use super::{Carried, CarriedParcel, Inheritance, Resumption};

    #[test]
    fn numbers_of_descriptors_are_three() {
        let found = Resumption { lock: 3, listener: 4, state: 5 };
        assert_eq!(Resumption::parse("3,4,5"), Some(found));
        assert_eq!(Resumption::parse(&found.to_string()), Some(found));
        for wrong in ["", "3", "3,4", "3,4,x", "3,4,5,6"] {
            assert_eq!(Resumption::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_carried_comes_out_as_it_went_in() {
        let parcel = CarriedParcel {
            ticket: u128::MAX,
            parcel: crate::keeper::protocol::Parcel::default(),
            streams: [7, 8, 9],
            bytes: 10,
            until: 11,
            inheritance: Inheritance::default(),
            further: vec![10],
        };
        let carried = Carried { parcels: vec![parcel], starting: vec![(4242, 12)] };
        let file = carried.write().expect("there is memory");
        let read = Carried::read(file.into()).expect("the file is complete");
        assert_eq!(read, carried);
    }
}
