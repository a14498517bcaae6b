//! Uses file leases to detect whether a file is open for writing, without searching for the process that has it open.

#![expect(unsafe_code, reason = "there are no safe calls for file leases")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// `F_SETSIG` as defined in `asm-generic/fcntl.h`.
const F_SETSIG: libc::c_int = 10;

/// Returns whether any process has this file open for writing. `file` must be open read-only. The kernel grants a read lease only if there
/// is no writer; the lease is released immediately.
///
/// # Errors
/// Returns the error of `fcntl`: the file may belong to another user, or its file system may not support leases.
pub fn is_written(file: BorrowedFd<'_>) -> io::Result<bool> {
    let fd = file.as_raw_fd();
    // SAFETY: the call takes only integers. If a process opens the file for writing while we hold the lease, the kernel sends us `SIGURG`,
    // which is ignored by default, instead of `SIGIO`, which would end this process.
    if unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGURG) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call takes only integers.
    if unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) } != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EAGAIN) => Ok(true),
            _ => Err(error),
        };
    }
    // SAFETY: the call takes only integers.
    unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK) };
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::is_written;
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsFd as _;

    #[test]
    fn a_file_is_written_as_long_as_somebody_has_it_open_for_that() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("file");
        let writer = File::create(&path).expect("the file is created");
        let reader = File::open(&path).expect("the file exists");
        // On a file system without leases, callers have to search for writers instead, so there is nothing to test.
        let Ok(is) = is_written(reader.as_fd()) else {
            return;
        };
        assert!(is);
        drop(writer);
        assert!(!is_written(reader.as_fd()).expect("the file system has leases"));
        let appender = OpenOptions::new().append(true).open(&path);
        assert!(is_written(reader.as_fd()).expect("the file system has leases"));
        drop(appender);
        assert!(!is_written(reader.as_fd()).expect("the file system has leases"));
    }
}
