//! Whether a file is open for writing, without a search for who has it.

#![expect(unsafe_code, reason = "leases have no safe calls")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// `F_SETSIG` of `asm-generic/fcntl.h`, which every architecture has.
const F_SETSIG: libc::c_int = 10;

/// Whether somebody has this file open for writing. It is to be open for reading alone here. The kernel gives a lease for reading only
/// where nobody writes; it is given back at once.
///
/// # Errors
/// Those of `fcntl`: the file may be another user's, or on a file system without leases.
pub fn is_written(file: BorrowedFd<'_>) -> io::Result<bool> {
    let fd = file.as_raw_fd();
    // SAFETY: numbers alone. Whoever opens the file for writing meanwhile has us told by a signal that is ignored unless
    // somebody asked for it: the usual one would end this process.
    if unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGURG) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: numbers alone.
    if unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) } != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EAGAIN) => Ok(true),
            _ => Err(error),
        };
    }
    // SAFETY: numbers alone.
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
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let writer = File::create(&path).expect("it is made");
        let reader = File::open(&path).expect("it is there");
        // Some file systems have no leases: there, what is asked is searched for.
        let Ok(is) = is_written(reader.as_fd()) else {
            return;
        };
        assert!(is);
        drop(writer);
        assert!(!is_written(reader.as_fd()).expect("as before"));
        let appender = OpenOptions::new().append(true).open(&path);
        assert!(is_written(reader.as_fd()).expect("as before"));
        drop(appender);
        assert!(!is_written(reader.as_fd()).expect("as before"));
    }
}
