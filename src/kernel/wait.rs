//! Waiting for children that have ended, including orphans that this process has adopted.

#![expect(
    unsafe_code,
    reason = "no safe call returns the status of a child together with its resource usage"
)]

use crate::kernel::pidfd::Pidfd;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::ptr;

/// A child that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildExit {
    /// Its PID, which may be reused from now on.
    pub pid: u32,
    /// Its status in the format of `wait`: the exit code in the second byte, the signal in the first.
    pub status: u32,
    /// Processor time of the child and of the descendants it waited for, in milliseconds.
    pub cpu_ms: u64,
    /// The peak resident memory in bytes, of the child or of a descendant it waited for, whichever is higher.
    pub memory_max: u64,
}

/// The result of checking for ended children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// A child has ended and was reaped.
    Ended(ChildExit),
    /// There are children, but none has ended.
    Alive,
    /// There are no children.
    None,
}

/// Reaps a child if one has ended.
///
/// # Errors
/// Returns the error of `wait4`.
pub fn reap() -> io::Result<Children> {
    let mut status = 0;
    // SAFETY: all zeroes is a valid value of this plain C struct.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers refer to live values.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut used) };
    match u32::try_from(pid) {
        Ok(0) => Ok(Children::Alive),
        Ok(pid) => Ok(Children::Ended(ChildExit {
            pid,
            status: status.cast_unsigned(),
            cpu_ms: milliseconds(used.ru_utime).saturating_add(milliseconds(used.ru_stime)),
            memory_max: u64::try_from(used.ru_maxrss).unwrap_or(0).saturating_mul(1024),
        })),
        Err(_) => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ECHILD) => Ok(Children::None),
            error => Err(error),
        },
    }
}

/// Returns the PID of a child that has ended and has not been reaped, if any. Does not reap it, so the next call returns the same child.
///
/// # Errors
/// Returns the error of `waitid`.
pub fn ended() -> io::Result<Option<u32>> {
    let ended = look((libc::P_ALL, 0), libc::WNOWAIT)?;
    Ok(ended.map(|(pid, _)| pid))
}

/// Reaps the child with this PID if it has ended. Returns whether it was reaped.
///
/// # Errors
/// Returns the error of `waitid`.
pub fn reap_pid(pid: u32) -> io::Result<bool> {
    Ok(look((libc::P_PID, pid), 0)?.is_some())
}

/// Reaps a child and returns its status in the format of `wait`; `None` if it has not ended, or is not a child of this process.
///
/// # Errors
/// Returns the error of `waitid`, which supports pidfds since Linux 5.4.
pub fn reap_process(process: &Pidfd) -> io::Result<Option<u32>> {
    let fd = u32::try_from(process.as_fd().as_raw_fd()).unwrap_or(u32::MAX);
    let ended = look((libc::P_PIDFD, fd), 0)?;
    Ok(ended.map(|(_, status)| status))
}

/// Returns the PID and the status (in the format of `wait`) of a child that has ended and is selected by `kind` and `which`; `None` if
/// there is none. Reaps the child unless `how` is `WNOWAIT`.
fn look((kind, which): (libc::idtype_t, u32), how: libc::c_int) -> io::Result<Option<(u32, u32)>> {
    // SAFETY: all zeroes is a valid value of this plain C struct.
    let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | how;
    // SAFETY: the pointer refers to a live value.
    if unsafe { libc::waitid(kind, which, &raw mut found, how) } != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ECHILD) => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: `waitid` has filled in the fields of a child, or left zeroes.
    let (pid, value) = unsafe { (found.si_pid(), found.si_status()) };
    let status = match found.si_code {
        libc::CLD_EXITED => (value & 0xff) << 8,
        libc::CLD_DUMPED => value | 0x80,
        _ => value,
    };
    let pid = u32::try_from(pid).ok().filter(|pid| *pid != 0);
    Ok(pid.map(|pid| (pid, status.cast_unsigned())))
}

/// Returns whether this PID belongs to a child of this process that has not been reaped.
pub fn is_child(pid: u32) -> bool {
    // SAFETY: all zeroes is a valid value of this plain C struct.
    let mut found: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let look = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    let place = ptr::from_mut(&mut found);
    // SAFETY: the pointer refers to a live value.
    unsafe { libc::waitid(libc::P_PID, pid, place, look) == 0 }
}

fn milliseconds(time: libc::timeval) -> u64 {
    let whole = u64::try_from(time.tv_sec).unwrap_or(0);
    let part = u64::try_from(time.tv_usec).unwrap_or(0);
    whole.saturating_mul(1000).saturating_add(part / 1000)
}
