//! What the kernel's file system of processes, pidfs, says of a descriptor: calls that have no safe form elsewhere.

#![expect(
    unsafe_code,
    reason = "file handles and exit statuses of descriptors of processes have no safe call in rustix"
)]

use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

/// `f_type` of pidfs, see `statfs`.
const PID_FS_MAGIC: u64 = 0x5049_4446;
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
    /// Of the thread, of the process, of its parent.
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

/// What the kernel keeps of a process for those that have a descriptor of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kernel) enum Kept {
    /// Its parent has reaped it: its status, as `wait` has it.
    Status(u32),
    /// It lives, or its parent has not reaped it yet: its PID.
    Process(u32),
    /// Nothing more.
    Nothing,
}

/// Whether inodes of such descriptors are those of processes: pidfs, and numbers of 64 bits.
pub(in crate::kernel) fn is_pidfs(pidfd: impl AsFd) -> bool {
    let status = rustix::fs::fstatfs(pidfd);
    let is_pidfs = status.is_ok_and(|status| u64::try_from(status.f_type) == Ok(PID_FS_MAGIC));
    is_pidfs && cfg!(target_pointer_width = "64")
}

/// The type of file handles of pidfs, if processes can be opened by them.
pub(in crate::kernel) fn handle_type(pidfd: impl AsFd) -> Option<i32> {
    let mut handle = Handle {
        bytes: 8,
        kind: 0,
        inode: [0; 8],
    };
    let mut mount: libc::c_int = 0;
    let (fd, no_path) = (pidfd.as_fd().as_raw_fd(), c"".as_ptr());
    let place = (&raw mut handle).cast();
    // SAFETY: `handle` has the layout of `file_handle` and room for as many bytes as it says; the path ends with a NUL.
    let named =
        unsafe { libc::name_to_handle_at(fd, no_path, place, &raw mut mount, libc::AT_EMPTY_PATH) };
    if named != 0 || handle.bytes != 8 {
        return None;
    }
    let inode = u64::from_ne_bytes(handle.inode);
    let opened = open(pidfd, handle.kind, inode);
    opened.ok().flatten().map(|_pidfd| handle.kind)
}

/// A descriptor of the process of this inode; `None` if it is gone, or not to be seen from this PID namespace. Another
/// descriptor says where pidfs is.
pub(in crate::kernel) fn open(
    pidfs: impl AsFd,
    kind: i32,
    inode: u64,
) -> io::Result<Option<OwnedFd>> {
    let mut handle = Handle {
        bytes: 8,
        kind,
        inode: inode.to_ne_bytes(),
    };
    let mount = pidfs.as_fd().as_raw_fd();
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: `handle` has the layout of `file_handle` and as many bytes as it says; it is only read.
    let fd = unsafe { libc::open_by_handle_at(mount, (&raw mut handle).cast(), flags) };
    if fd >= 0 {
        // SAFETY: the kernel has just given it, so it is open and nobody else's.
        return Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ESTALE) => Ok(None),
        _ => Err(error),
    }
}

/// Whether the kernel answers questions about a descriptor's process.
pub(in crate::kernel) fn answers(pidfd: impl AsFd) -> bool {
    ask(pidfd, INFO_EXIT).is_ok()
}

/// What the kernel keeps of the process.
pub(in crate::kernel) fn kept(pidfd: impl AsFd) -> io::Result<Kept> {
    match ask(pidfd, INFO_EXIT) {
        Ok(info) if info.mask & INFO_EXIT == 0 => Ok(Kept::Process(info.pids[1])),
        Ok(info) => Ok(Kept::Status(info.exit_code.cast_unsigned())),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(Kept::Nothing),
        Err(error) => Err(error),
    }
}

fn ask(pidfd: impl AsFd, mask: u64) -> io::Result<Info> {
    let mut info = Info {
        mask,
        ..Info::default()
    };
    // SAFETY: the number of the request says how long `info` is, and it has that layout.
    let done = unsafe { libc::ioctl(pidfd.as_fd().as_raw_fd(), GET_INFO, &raw mut info) };
    match done {
        0 => Ok(info),
        _ => Err(io::Error::last_os_error()),
    }
}
