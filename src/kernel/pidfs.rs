//! Queries to pidfs, the kernel's file system for pidfds, with system calls for which there are no safe wrappers elsewhere.

#![expect(
    unsafe_code,
    reason = "rustix has no safe calls for the file handles and exit statuses of pidfds"
)]

use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

/// The `f_type` of pidfs, see `statfs`.
const PID_FS_MAGIC: u64 = 0x5049_4446;
/// `PIDFD_INFO_EXIT` of `linux/pidfd.h`.
const INFO_EXIT: u64 = 1 << 3;
/// `PIDFD_GET_INFO` of `linux/pidfd.h`: `_IOWR(0xff, 11, struct pidfd_info)`, where the structure has 64 bytes.
const GET_INFO: libc::Ioctl = 0xc040_ff0b_u32 as libc::Ioctl;

/// The first version of `struct pidfd_info`, 64 bytes long.
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    group: u64,
    /// The ids of the thread, the process and its parent.
    pids: [u32; 3],
    users: [u32; 8],
    exit_code: i32,
}

const _: () = assert!(size_of::<Info>() == 64 && offset_of!(Info, exit_code) == 60);

/// `struct file_handle` with the eight-byte handles of pidfs.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    inode: [u8; 8],
}

/// The information that the kernel still has about the process of a pidfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kernel) enum Retained {
    /// The process has been reaped. Contains its exit status in the format of `wait`.
    Status(u32),
    /// The process is alive, or has ended but not been reaped. Contains its PID.
    Process(u32),
    /// The kernel no longer has any information about it.
    Nothing,
}

/// Returns whether the inode of a pidfd identifies its process: it does on pidfs with 64-bit inode numbers.
pub(in crate::kernel) fn is_pidfs(pidfd: impl AsFd) -> bool {
    let status = rustix::fs::fstatfs(pidfd);
    let is_pidfs = status.is_ok_and(|status| u64::try_from(status.f_type) == Ok(PID_FS_MAGIC));
    is_pidfs && cfg!(target_pointer_width = "64")
}

/// Returns the type number of the file handles of pidfs, or `None` if processes cannot be opened by such handles.
pub(in crate::kernel) fn handle_type(pidfd: impl AsFd) -> Option<i32> {
    let mut handle = Handle { bytes: 8, kind: 0, inode: [0; 8] };
    let mut mount: libc::c_int = 0;
    let (fd, no_path) = (pidfd.as_fd().as_raw_fd(), c"".as_ptr());
    let place = (&raw mut handle).cast();
    // SAFETY: `handle` has the layout of `file_handle` and room for the number of bytes it states; the path is NUL-terminated.
    let named =
        unsafe { libc::name_to_handle_at(fd, no_path, place, &raw mut mount, libc::AT_EMPTY_PATH) };
    if named != 0 || handle.bytes != 8 {
        return None;
    }
    let inode = u64::from_ne_bytes(handle.inode);
    let opened = open(pidfd, handle.kind, inode);
    opened.ok().flatten().map(|_pidfd| handle.kind)
}

/// Opens the process with this inode; `None` if it no longer exists or is not visible from this PID namespace. `pidfs` may be any pidfd: it
/// only identifies the mount of pidfs. `kind` is the result of [`handle_type`].
pub(in crate::kernel) fn open(
    pidfs: impl AsFd,
    kind: i32,
    inode: u64,
) -> io::Result<Option<OwnedFd>> {
    let mut handle = Handle { bytes: 8, kind, inode: inode.to_ne_bytes() };
    let mount = pidfs.as_fd().as_raw_fd();
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: `handle` has the layout of `file_handle` and holds the number of bytes it states; it is only read.
    let fd = unsafe { libc::open_by_handle_at(mount, (&raw mut handle).cast(), flags) };
    if fd >= 0 {
        // SAFETY: the kernel has just returned this descriptor, so it is open and nothing else owns it.
        return Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ESTALE) => Ok(None),
        _ => Err(error),
    }
}

/// Returns whether the kernel answers queries about the process of a pidfd.
pub(in crate::kernel) fn is_supported(pidfd: impl AsFd) -> bool {
    ask(pidfd, INFO_EXIT).is_ok()
}

/// Returns the information that the kernel still has about the process.
pub(in crate::kernel) fn query_retained(pidfd: impl AsFd) -> io::Result<Retained> {
    match ask(pidfd, INFO_EXIT) {
        Ok(info) if info.mask & INFO_EXIT == 0 => Ok(Retained::Process(info.pids[1])),
        Ok(info) => Ok(Retained::Status(info.exit_code.cast_unsigned())),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(Retained::Nothing),
        Err(error) => Err(error),
    }
}

fn ask(pidfd: impl AsFd, mask: u64) -> io::Result<Info> {
    let mut info = Info { mask, ..Info::default() };
    // SAFETY: the request number encodes the size of `info`, which has the expected layout.
    let done = unsafe { libc::ioctl(pidfd.as_fd().as_raw_fd(), GET_INFO, &raw mut info) };
    match done {
        0 => Ok(info),
        _ => Err(io::Error::last_os_error()),
    }
}
