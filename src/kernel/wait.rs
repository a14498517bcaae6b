//! Children that ended, those that were inherited among them.

#![expect(
    unsafe_code,
    reason = "a status together with what was used has no safe call"
)]

use crate::kernel::pidfd::Pidfd;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
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

/// A child that has ended and that nobody has reaped, which stays as it is. Always the same one until that is reaped.
///
/// # Errors
/// Those of `waitid`.
pub fn ended() -> io::Result<Option<u32>> {
    let ended = look((libc::P_ALL, 0), libc::WNOWAIT)?;
    Ok(ended.map(|(pid, _)| pid))
}

/// Reaps the child of this PID if it has ended; whether it had.
///
/// # Errors
/// Those of `waitid`.
pub fn reap_pid(pid: u32) -> io::Result<bool> {
    Ok(look((libc::P_PID, pid), 0)?.is_some())
}

/// Reaps a process that is a child of ours, if it has ended: its status, as `wait` has it.
///
/// # Errors
/// Those of `waitid` (5.4).
pub fn reap_process(process: &Pidfd) -> io::Result<Option<u32>> {
    let fd = u32::try_from(process.as_fd().as_raw_fd()).unwrap_or(u32::MAX);
    let ended = look((libc::P_PIDFD, fd), 0)?;
    Ok(ended.map(|(_, status)| status))
}

/// A child that has ended, with its status; `None` if none of these has, or is ours.
fn look((kind, which): (libc::idtype_t, u32), how: libc::c_int) -> io::Result<Option<(u32, u32)>> {
    // SAFETY: plain numbers, of which zero is one.
    let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | how;
    // SAFETY: a place for the answer, which is there.
    if unsafe { libc::waitid(kind, which, &raw mut found, how) } != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ECHILD) => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: `waitid` writes the fields of a child, or leaves zeroes.
    let (pid, value) = unsafe { (found.si_pid(), found.si_status()) };
    let status = match found.si_code {
        libc::CLD_EXITED => (value & 0xff) << 8,
        libc::CLD_DUMPED => value | 0x80,
        _ => value,
    };
    let pid = u32::try_from(pid).ok().filter(|pid| *pid != 0);
    Ok(pid.map(|pid| (pid, status.cast_unsigned())))
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
