//! Pidfds: descriptors that each refer to one process, so that queries and signals never reach another process that has reused its PID.

#![expect(
    unsafe_code,
    reason = "rustix has no safe call that sends a signal to a pidfd with flags"
)]

use crate::kernel::pidfs::Retained;
use crate::kernel::{host, pidfs, proc};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

/// `PIDFD_SIGNAL_PROCESS_GROUP` of `linux/pidfd.h`.
const SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;
/// The exit status of a process, as the kernel reports it to processes other than the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// The status in the format of `wait`.
    Known(u32),
    /// The process has not ended.
    Alive,
    /// Unavailable, for example because the kernel is older than 6.15, or the process is another user's zombie.
    Unavailable,
}

/// A descriptor of a process (pidfd).
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

impl Pidfd {
    /// Opens the process that has this PID now; `None` if no process has it.
    ///
    /// # Errors
    /// Returns the error of `pidfd_open`: too many open descriptors, or a kernel without pidfds.
    pub fn open(pid: u32) -> io::Result<Option<Self>> {
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => Ok(Some(Self(fd))),
            // `EINVAL` or `ENOENT` means that this is the id of a thread that is not the leader of its process, and so not a PID.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the process with this inode; `None` if it no longer exists or is not visible from this PID namespace.
    ///
    /// # Errors
    /// Returns `Unsupported` if the kernel cannot open a process by its inode, else the error of `open_by_handle_at`.
    pub fn open_inode(inode: u64) -> io::Result<Option<Self>> {
        let kind = host::abilities().handles;
        let kind = kind.ok_or(io::Error::from(io::ErrorKind::Unsupported))?;
        let opened = pidfs::open(own()?, kind, inode)?;
        Ok(opened.map(Self))
    }

    /// Wraps a descriptor that the kernel returned as a pidfd.
    pub(in crate::kernel) const fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Returns the inode by which the process can be found again; 0 if this kernel's pidfd inodes are not unique.
    ///
    /// # Errors
    /// Returns the error of `fstat`.
    pub fn inode(&self) -> io::Result<u64> {
        if !host::abilities().inodes {
            return Ok(0);
        }
        Ok(rustix::fs::fstat(&self.0)?.st_ino)
    }

    /// Sends a signal to the process and returns whether the process still existed. Signal 0 only checks that.
    ///
    /// # Errors
    /// Returns the error of `pidfd_send_signal`, most likely that permission is denied.
    pub fn signal(&self, signal: u8) -> io::Result<bool> {
        self.send(signal, 0)
    }

    /// Sends a signal to every process of the process group that this process leads, and returns whether there were any. Requires
    /// Linux 6.9.
    ///
    /// # Errors
    /// Returns the error of `pidfd_send_signal`; `EINVAL` if the kernel does not support this.
    pub fn signal_group(&self, signal: u8) -> io::Result<bool> {
        self.send(signal, SIGNAL_PROCESS_GROUP)
    }

    fn send(&self, signal: u8, flags: libc::c_uint) -> io::Result<bool> {
        let (fd, signal) = (self.0.as_raw_fd(), libc::c_int::from(signal));
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the call takes only integers and a null pointer, which stands for the default `siginfo`.
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

    /// Returns `true` once all threads of the process have ended, even if the process has not been reaped yet.
    ///
    /// # Errors
    /// Returns the error of `poll`.
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

    /// Returns whether the process still holds its PID, which it does until it is reaped.
    ///
    /// # Errors
    /// Returns the error of `pidfd_send_signal`, except for a missing permission, which shows that the process exists.
    pub fn is_held(&self) -> io::Result<bool> {
        match self.signal(0) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(true),
            other => other,
        }
    }

    /// Returns the exit status as far as the kernel reports it to processes other than the parent, whether or not the process has been
    /// reaped.
    ///
    /// # Errors
    /// Returns the error of the system call that failed.
    pub fn exit_status(&self) -> io::Result<ExitStatus> {
        if !host::abilities().exits {
            return Ok(ExitStatus::Unavailable);
        }
        let mut kept = pidfs::query_retained(self)?;
        if let Retained::Process(pid) = kept {
            if !self.has_ended()? {
                return Ok(ExitStatus::Alive);
            }
            let status = proc::zombie_status(pid)?;
            // If the process still holds its PID now, the status just read by PID is that of this process.
            if self.is_held()? {
                return Ok(status.map_or(ExitStatus::Unavailable, ExitStatus::Known));
            }
            kept = pidfs::query_retained(self)?;
        }
        Ok(match kept {
            Retained::Status(status) => ExitStatus::Known(status),
            Retained::Process(_) | Retained::Nothing => ExitStatus::Unavailable,
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

/// Returns a pidfd of this process, which is never closed. It identifies the mount of pidfs when another process is opened by its inode.
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
