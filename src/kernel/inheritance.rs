//! What a command takes over from the process on whose behalf it is started, beyond its environment and limits: further descriptors, its
//! share of the processors and of the disks, and its terminal.

#![expect(
    unsafe_code,
    reason = "there are no safe calls for priorities of input and output, and for descriptors by number"
)]

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

/// `IOPRIO_WHO_PROCESS` of `linux/ioprio.h`.
pub(in crate::kernel) const IO_OF_PROCESS: libc::c_int = 1;

/// The share of the processors and of the disks that a process has. A part that needs a privilege is ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Priorities {
    /// The nice value, if it is to be set.
    pub nice: Option<i32>,
    /// The priority of input and output, as `ioprio_get` returns it, if it is to be set.
    pub io_priority: Option<i32>,
    /// The processors that may be used, as a set of bits, lowest first; empty for all.
    pub cpus: Vec<u8>,
}

/// Returns this process's priority of input and output, 0 if that follows from its nice value; `None` if it cannot be read.
pub fn io_priority() -> Option<i32> {
    // SAFETY: the call takes only integers.
    let priority = unsafe { libc::syscall(libc::SYS_ioprio_get, IO_OF_PROCESS, 0) };
    i32::try_from(priority).ok().filter(|it| *it >= 0)
}

/// Returns a copy of the descriptor with this number, if this process was started with it: `None` if it is not open, or closes on `exec`, as
/// every descriptor does that this process opened itself.
///
/// # Errors
/// Returns the error of `fcntl`, such as too many open descriptors.
pub fn inherited(number: RawFd) -> io::Result<Option<OwnedFd>> {
    // SAFETY: the call takes only integers, and fails if the descriptor is not open.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 || flags & libc::FD_CLOEXEC != 0 {
        return Ok(None);
    }
    // SAFETY: the call takes only integers, and returns a new descriptor that nothing else owns.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(copy) }))
}
