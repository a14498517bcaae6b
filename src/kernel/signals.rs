//! Signals as a descriptor that can be polled, for a program of one thread.

#![expect(unsafe_code, reason = "signalfd and dispositions have no safe calls")]

use std::ffi::c_int;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr;

/// A child has ended.
pub const CHILD: u32 = 17;
/// Somebody asks for an end.
pub const TERMINATE: u32 = 15;
/// Somebody at a terminal does.
pub const INTERRUPT: u32 = 2;
/// The terminal is gone.
pub const HANG_UP: u32 = 1;
/// Nobody reads.
pub const PIPE: u32 = 13;

const _: () =
    assert!(CHILD == libc::SIGCHLD.unsigned_abs() && PIPE == libc::SIGPIPE.unsigned_abs());

/// Signals that come as something to read.
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks these, and has them to be read.
    ///
    /// # Errors
    /// Those of `signalfd`.
    pub fn of(signals: &[u32]) -> io::Result<Self> {
        // SAFETY: a set that is emptied before it is used, and numbers.
        let fd = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, number(*signal));
            }
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given it, so it is open and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next one that has come, if any.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn next(&self) -> io::Result<Option<u32>> {
        const LENGTH: usize = size_of::<libc::signalfd_siginfo>();
        let mut bytes = [0; LENGTH];
        match rustix::io::read(&self.0, &mut bytes) {
            Ok(_) => {
                let number = bytes.first_chunk::<4>();
                Ok(number.map(|bytes| u32::from_ne_bytes(*bytes)))
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Takes no notice of this signal from now on. A program that is executed inherits that.
pub fn ignore(signal: u32) {
    // SAFETY: numbers, and no function of ours that would run.
    unsafe { libc::signal(number(signal), libc::SIG_IGN) };
}

/// Lets large pages of memory be as the system has them: whoever asked otherwise for itself passed it on to us, and we would
/// to our children.
pub fn allow_huge_pages() {
    // SAFETY: numbers alone.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 0, 0, 0, 0) };
}

/// Makes this process the parent of whoever is left behind below it.
///
/// # Errors
/// Those of `prctl`.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: numbers alone.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn number(signal: u32) -> c_int {
    c_int::try_from(signal).unwrap_or(c_int::MAX)
}
