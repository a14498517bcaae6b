//! Reads files named in the configuration or on the command line: settings, host lists, tokens, certificates. Each is read in one
//! go, up to a limit. Only regular files are read, so a pipe cannot block the caller.

use crate::kernel::file;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use std::fs::Metadata;
use std::io::{self, Read as _};
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Reads at most `bytes_max` bytes of a file, and returns them with the file's mode. Returns an error unless it is a regular file.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<(Vec<u8>, u32)> {
    read_with(path, bytes_max, |_| Ok(()))
}

/// Reads a file like [`read`], but returns an error if it belongs to a user other than root and the one of this process: that user could
/// have chosen its content, which is a secret.
pub fn read_own(path: &Path, bytes_max: u64) -> io::Result<(Vec<u8>, u32)> {
    read_with(path, bytes_max, |metadata| {
        let owner = metadata.uid();
        if crate::kernel::socket::is_own(owner) {
            return Ok(());
        }
        let words = format!(
            "it belongs to user {owner}, who could have chosen what it contains: it must belong to root or to the user of this process"
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, words))
    })
}

fn read_with(
    path: &Path,
    bytes_max: u64,
    check: impl FnOnce(&Metadata) -> io::Result<()>,
) -> io::Result<(Vec<u8>, u32)> {
    let file = file::regular(path, OFlags::RDONLY)?;
    let metadata = file.metadata()?;
    check(&metadata)?;
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok((bytes, metadata.permissions().mode() & 0o7777))
}

/// Reads the last `bytes_max` bytes of a file of ours, and returns them with the file's size. Returns an error for what somebody else may
/// have put in its place.
pub fn tail(path: &Path, bytes_max: u64) -> io::Result<(Vec<u8>, u64)> {
    let mut file = file::own(path, OFlags::RDONLY, Mode::empty())?;
    let metadata = file.metadata()?;
    file.seek(SeekFrom::Start(metadata.len().saturating_sub(bytes_max)))?;
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok((bytes, metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::{read, tail};
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn what_is_no_file_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        for path in [pipe.as_path(), folder.path()] {
            let refused = read(path, 10).unwrap_err().to_string();
            assert_eq!(refused, "it is not a regular file");
        }
        let file = folder.path().join("file");
        std::fs::write(&file, "0123456789abc").unwrap();
        assert_eq!(read(&file, 10).unwrap().0, b"0123456789");
        assert_eq!(tail(&file, 3).unwrap(), (b"abc".to_vec(), 13));
        assert_eq!(tail(&file, 99).unwrap(), (b"0123456789abc".to_vec(), 13));
        assert_eq!(tail(&pipe, 3).unwrap_err().to_string(), "it is not a regular file");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(tail(&link, 3).unwrap_err().to_string(), "it is a symbolic link");
    }
}
