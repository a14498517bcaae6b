//! A process by descriptor: whatever is asked of it or sent to it reaches that process or none.

#![expect(
    unsafe_code,
    reason = "signals by descriptor with flags have no safe call in rustix"
)]

use crate::kernel::pidfs::Kept;
use crate::kernel::{host, pidfs, proc};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

/// `PIDFD_SIGNAL_PROCESS_GROUP` of `linux/pidfd.h`.
const SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;
/// What can be learned of how a process ended by those that are not its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// As `wait` has it.
    Known(u32),
    /// It has not ended.
    Alive,
    /// Nothing: a kernel before 6.15, or a zombie of another user.
    Untold,
}

/// A process.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

impl Pidfd {
    /// The process that has this PID now; `None` if none has.
    ///
    /// # Errors
    /// Those of `pidfd_open`: too many descriptors, or a kernel that has none of these.
    pub fn open(pid: u32) -> io::Result<Option<Self>> {
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => Ok(Some(Self(fd))),
            // A thread that leads no process has a number of its own, which is no PID.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The process of this inode; `None` if it is gone, or not to be seen from this PID namespace.
    ///
    /// # Errors
    /// `Unsupported` if the kernel opens no process by its inode, else those of `open_by_handle_at`.
    pub fn open_inode(inode: u64) -> io::Result<Option<Self>> {
        let kind = host::abilities().handles;
        let kind = kind.ok_or(io::Error::from(io::ErrorKind::Unsupported))?;
        let opened = pidfs::open(own()?, kind, inode)?;
        Ok(opened.map(Self))
    }

    /// A descriptor that the kernel gave as one of a process.
    pub(in crate::kernel) const fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// The inode by which it is found again; 0 where inodes of such descriptors mean nothing.
    ///
    /// # Errors
    /// Those of `fstat`.
    pub fn inode(&self) -> io::Result<u64> {
        if !host::abilities().inodes {
            return Ok(0);
        }
        Ok(rustix::fs::fstat(&self.0)?.st_ino)
    }

    /// Sends a signal to the process; whether it was there. With signal 0, nothing is sent.
    ///
    /// # Errors
    /// Those of `pidfd_send_signal`, permission above all.
    pub fn signal(&self, signal: u8) -> io::Result<bool> {
        self.send(signal, 0)
    }

    /// Sends a signal to all processes of the group that the process leads; whether there were any (6.9).
    ///
    /// # Errors
    /// The same; `EINVAL` where the kernel cannot.
    pub fn signal_group(&self, signal: u8) -> io::Result<bool> {
        self.send(signal, SIGNAL_PROCESS_GROUP)
    }

    fn send(&self, signal: u8, flags: libc::c_uint) -> io::Result<bool> {
        let (fd, signal) = (self.0.as_raw_fd(), libc::c_int::from(signal));
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: plain numbers, and a null pointer, which stands for the usual `siginfo`.
        let done = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, none, flags) };
        if done == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ESRCH) => Ok(false),
            _ => Err(error),
        }
    }

    /// Whether all of its threads have ended, be it reaped or not.
    ///
    /// # Errors
    /// Those of `poll`.
    pub fn has_ended(&self) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        let at_once = Timespec::default();
        loop {
            match poll(&mut polled, Some(&at_once)) {
                Ok(count) => return Ok(count > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether its PID is still its own: it runs, or nobody has reaped it.
    ///
    /// # Errors
    /// Those of `pidfd_send_signal` but for a missing permission, which only a living process can refuse.
    pub fn is_held(&self) -> io::Result<bool> {
        match self.signal(0) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(true),
            other => other,
        }
    }

    /// How it ended, as far as the kernel says so to others than its parent, whether that has reaped it or not.
    ///
    /// # Errors
    /// Those of the calls.
    pub fn exit_status(&self) -> io::Result<ExitStatus> {
        if !host::abilities().exits {
            return Ok(ExitStatus::Untold);
        }
        let mut kept = pidfs::kept(self)?;
        if let Kept::Process(pid) = kept {
            if !self.has_ended()? {
                return Ok(ExitStatus::Alive);
            }
            let status = proc::zombie_status(pid)?;
            // Held after it was read, the PID was of this process all the time.
            if self.is_held()? {
                return Ok(status.map_or(ExitStatus::Untold, ExitStatus::Known));
            }
            kept = pidfs::kept(self)?;
        }
        Ok(match kept {
            Kept::Status(status) => ExitStatus::Known(status),
            Kept::Process(_) | Kept::Nothing => ExitStatus::Untold,
        })
    }
}

impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Pidfd> for OwnedFd {
    fn from(pidfd: Pidfd) -> Self {
        pidfd.0
    }
}

/// One of our own, which says where pidfs is. Open as long as we live.
fn own() -> io::Result<&'static Pidfd> {
    static OWN: OnceLock<Pidfd> = OnceLock::new();
    if let Some(own) = OWN.get() {
        return Ok(own);
    }
    let own = Pidfd::open(std::process::id())?;
    let own = own.ok_or(io::Error::from(io::ErrorKind::NotFound))?;
    Ok(OWN.get_or_init(|| own))
}

#[cfg(test)]
#[path = "pidfd_tests.rs"]
mod tests;
