//! A process by descriptor: whatever is asked of it or sent to it reaches that process or none.

#![expect(
    unsafe_code,
    reason = "signals to a group, file handles and exit statuses of descriptors have no safe call in rustix"
)]

use crate::kernel::host;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::OnceLock;

/// `f_type` of pidfs, see `statfs`.
const PID_FS_MAGIC: u64 = 0x5049_4446;
/// `PIDFD_SIGNAL_PROCESS_GROUP` of `linux/pidfd.h`.
const SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;
/// `PIDFD_INFO_EXIT` of `linux/pidfd.h`.
const INFO_EXIT: u64 = 1 << 3;
/// `PIDFD_GET_INFO` of `linux/pidfd.h`: `_IOWR(0xff, 11, struct pidfd_info)`, with 64 bytes.
const GET_INFO: libc::Ioctl = 0xc040_ff0b_u32 as libc::Ioctl;

/// `struct pidfd_info` in its first version, of 64 bytes.
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    group: u64,
    pids: [u32; 3],
    users: [u32; 8],
    exit_code: i32,
}

const _: () = assert!(size_of::<Info>() == 64 && offset_of!(Info, exit_code) == 60);

/// `struct file_handle` with the eight bytes that pidfs has.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    inode: [u8; 8],
}

/// A process.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

/// What the kernel says of how a process ended to those that are not its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// As `wait` has it.
    Known(u32),
    /// It lives, or its parent has not reaped it yet.
    Unreaped,
    /// Nothing: a kernel before 6.15, or one that keeps nothing more of it.
    Untold,
}

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
        let mut handle = Handle {
            bytes: 8,
            kind,
            inode: inode.to_ne_bytes(),
        };
        let mount = own()?.as_fd().as_raw_fd();
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: `handle` has the layout of `file_handle` and as many bytes as it says; it is only read.
        let fd = unsafe { libc::open_by_handle_at(mount, (&raw mut handle).cast(), flags) };
        if fd >= 0 {
            // SAFETY: the kernel has just given it, so it is open and nobody else's.
            return Ok(Some(Self(unsafe { OwnedFd::from_raw_fd(fd) })));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ESTALE) => Ok(None),
            _ => Err(error),
        }
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

    /// How it ended, as far as the kernel says so to others than its parent.
    ///
    /// # Errors
    /// Those of the call.
    pub fn exit_status(&self) -> io::Result<ExitStatus> {
        if !host::abilities().exits {
            return Ok(ExitStatus::Untold);
        }
        match self.ask(INFO_EXIT) {
            Ok(info) if info.mask & INFO_EXIT == 0 => Ok(ExitStatus::Unreaped),
            Ok(info) => Ok(ExitStatus::Known(info.exit_code.cast_unsigned())),
            // It has ended, and the kernel keeps nothing more of it.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(ExitStatus::Untold),
            Err(error) => Err(error),
        }
    }

    fn ask(&self, mask: u64) -> io::Result<Info> {
        let mut info = Info {
            mask,
            ..Info::default()
        };
        // SAFETY: the number of the request says how long `info` is, and it has that layout.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), GET_INFO, &raw mut info) };
        match done {
            0 => Ok(info),
            _ => Err(io::Error::last_os_error()),
        }
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

/// Whether inodes of such descriptors are those of processes: pidfs, and numbers of 64 bits.
pub(in crate::kernel) fn is_of_pidfs(pidfd: &Pidfd) -> bool {
    let status = rustix::fs::fstatfs(&pidfd.0);
    let is_pidfs = status.is_ok_and(|status| u64::try_from(status.f_type) == Ok(PID_FS_MAGIC));
    is_pidfs && cfg!(target_pointer_width = "64")
}

/// The type of file handles of pidfs, if processes can be opened by them.
pub(in crate::kernel) fn handle_type(pidfd: &Pidfd) -> Option<i32> {
    let mut handle = Handle {
        bytes: 8,
        kind: 0,
        inode: [0; 8],
    };
    let mut mount: libc::c_int = 0;
    let (fd, no_path) = (pidfd.0.as_raw_fd(), c"".as_ptr());
    let place = (&raw mut handle).cast();
    // SAFETY: `handle` has the layout of `file_handle` and room for as many bytes as it says; the path ends with a NUL.
    let named =
        unsafe { libc::name_to_handle_at(fd, no_path, place, &raw mut mount, libc::AT_EMPTY_PATH) };
    if named != 0 || handle.bytes != 8 {
        return None;
    }
    let kind = handle.kind;
    let place = (&raw mut handle).cast();
    // SAFETY: as above; the kernel has filled it.
    let opened = unsafe { libc::open_by_handle_at(fd, place, libc::O_RDONLY | libc::O_CLOEXEC) };
    if opened < 0 {
        return None;
    }
    // SAFETY: the kernel has just given it, so it is open and nobody else's.
    drop(unsafe { OwnedFd::from_raw_fd(opened) });
    Some(kind)
}

/// Whether the kernel answers questions about a descriptor's process.
pub(in crate::kernel) fn knows_exits(pidfd: &Pidfd) -> bool {
    pidfd.ask(INFO_EXIT).is_ok()
}

#[cfg(test)]
#[path = "pidfd_tests.rs"]
mod tests;
