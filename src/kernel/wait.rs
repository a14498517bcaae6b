//! Children that ended, those that were inherited among them.

#![expect(
    unsafe_code,
    reason = "a status together with what was used has no safe call"
)]

use std::io;
use std::ptr;

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its PID, which may be another's from now on.
    pub pid: u32,
    /// Code in the second byte, signal in the first.
    pub status: u32,
    /// Processor time of it and of what it waited for, in milliseconds.
    pub cpu_ms: u64,
    /// The most memory at once, in bytes.
    pub memory_max: u64,
}

/// What a look at our children finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// One has ended, and is reaped now.
    Ended(Ended),
    /// There are some, and none has ended.
    Alive,
    /// There are none.
    None,
}

/// Reaps a child, if one has ended.
///
/// # Errors
/// Those of `wait4`.
pub fn reap() -> io::Result<Children> {
    let mut status = 0;
    // SAFETY: plain numbers, of which zero is one.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: places for two answers, which are there.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut used) };
    match u32::try_from(pid) {
        Ok(0) => Ok(Children::Alive),
        Ok(pid) => Ok(Children::Ended(Ended {
            pid,
            status: status.cast_unsigned(),
            cpu_ms: milliseconds(used.ru_utime).saturating_add(milliseconds(used.ru_stime)),
            memory_max: u64::try_from(used.ru_maxrss)
                .unwrap_or(0)
                .saturating_mul(1024),
        })),
        Err(_) => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ECHILD) => Ok(Children::None),
            error => Err(error),
        },
    }
}

/// Whether this PID is that of a child of ours that nobody has reaped.
pub fn is_child(pid: u32) -> bool {
    // SAFETY: plain numbers, of which zero is one.
    let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let look = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    let place = ptr::from_mut(&mut found);
    // SAFETY: a place for the answer, which is there.
    unsafe { libc::waitid(libc::P_PID, pid, place, look) == 0 }
}

fn milliseconds(time: libc::timeval) -> u64 {
    let whole = u64::try_from(time.tv_sec).unwrap_or(0);
    let part = u64::try_from(time.tv_usec).unwrap_or(0);
    whole.saturating_mul(1000).saturating_add(part / 1000)
}
