//! Rotates output files without the cooperation of the writer, which keeps its file open in append mode and continues to write.
//!
//! The old output is compressed into a separate file and synced before it is removed from the beginning of the original. Where the file
//! system can remove the beginning of a file (ext4, XFS), no output is ever lost. Elsewhere the file is truncated to zero length, and
//! output written between the last check and the truncation is lost. After a crash before the removal or the truncation, some output may
//! be in both files.

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The number of bytes per read.
const CHUNK_BYTES: usize = 64 << 10;

/// The maximum number of times that a file is checked for new output before it is truncated.
const LOOKS: u32 = 8;

/// The result of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rotated {
    /// The number of bytes removed from the file.
    pub(super) bytes: u64,
    /// Whether the file was truncated because its beginning could not be removed. Some output may then have been lost.
    pub(super) is_cut: bool,
}

/// Rotates a file, keeping `kept` rotated files. Returns an error if `goes_on` returns `false` between two chunks: the rotation is then
/// abandoned, and the file itself is unchanged.
pub(super) fn rotate(path: &Path, kept: u8, goes_on: &dyn Fn() -> bool) -> io::Result<Rotated> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let rotation = Rotation {
        file,
        path,
        kept,
        goes_on,
    };
    let block = can_shorten(path)?;
    match block.map(|block| (rotation.length().map(|it| whole_blocks(it, block)), block)) {
        Some((Ok(bytes), _)) if bytes > 0 => rotation.shorten(bytes),
        Some((Err(error), _)) => Err(error),
        Some((Ok(_), _)) | None => rotation.cut(),
    }
}

/// Returns the path of the `nth` rotated file; 1 is the newest.
pub(super) fn rotated(path: &Path, nth: u8) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{nth}.gz"));
    PathBuf::from(name)
}

struct Rotation<'a> {
    file: OwnedFd,
    path: &'a Path,
    kept: u8,
    goes_on: &'a dyn Fn() -> bool,
}

impl Rotation<'_> {
    fn length(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstat(&self.file)?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// Moves the first `bytes` bytes of the file to a rotated file. They no longer change, since the writer only appends.
    fn shorten(&self, bytes: u64) -> io::Result<Rotated> {
        self.keep(0..bytes)?;
        rustix::fs::fallocate(&self.file, FallocateFlags::COLLAPSE_RANGE, 0, bytes)?;
        let is_cut = false;
        Ok(Rotated { bytes, is_cut })
    }

    /// Moves the content of the file to a rotated file, and truncates the file to zero length.
    fn cut(&self) -> io::Result<Rotated> {
        let mut bytes = self.length()?;
        self.keep(0..bytes)?;
        for _ in 0..LOOKS {
            let length = self.length()?;
            if length <= bytes {
                break;
            }
            if self.kept > 0 {
                let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                let newest = rotated(self.path, 1);
                let newest = rustix::fs::open(newest, flags, Mode::empty())?;
                // A gzip stream that is appended to another is read as its continuation.
                self.compress(bytes..length, &newest)?;
            }
            bytes = length;
        }
        rustix::fs::ftruncate(&self.file, 0)?;
        let is_cut = true;
        Ok(Rotated { bytes, is_cut })
    }

    /// Compresses a part of the file into a new rotated file, then renames the older ones to make it the newest. Does nothing if no rotated
    /// file is to be kept.
    fn keep(&self, part: Range<u64>) -> io::Result<()> {
        if self.kept == 0 {
            return Ok(());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let next = rotated(self.path, 0);
        let made = rustix::fs::open(&next, flags | OFlags::NOFOLLOW, Mode::RUSR | Mode::WUSR);
        let made = made.map_err(io::Error::from);
        let kept = made.and_then(|made| {
            self.compress(part, &made)?;
            Ok(rustix::fs::fdatasync(&made)?)
        });
        if let Err(error) = kept {
            let _is_gone = rustix::fs::unlink(&next);
            return Err(error);
        }
        for nth in (1..self.kept).rev() {
            move_on(&rotated(self.path, nth), &rotated(self.path, nth + 1))?;
        }
        move_on(&next, &rotated(self.path, 1))
    }

    fn compress(&self, part: Range<u64>, to: &OwnedFd) -> io::Result<()> {
        let mut encoder = GzEncoder::new(Descriptor(to), Compression::fast());
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut at = part.start;
        while at < part.end {
            if !(self.goes_on)() {
                return Err(io::Error::from(io::ErrorKind::Interrupted));
            }
            let rest = usize::try_from(part.end - at).unwrap_or(usize::MAX);
            let space = chunk.get_mut(..rest.min(CHUNK_BYTES)).unwrap_or_default();
            let count = rustix::io::pread(&self.file, space, at)?;
            if count == 0 {
                break;
            }
            encoder.write_all(chunk.get(..count).unwrap_or_default())?;
            at += count as u64;
        }
        encoder.finish()?;
        Ok(())
    }
}

/// Implements [`io::Write`] for a borrowed descriptor.
struct Descriptor<'a>(&'a OwnedFd);

impl io::Write for Descriptor<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn move_on(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::rename(from, to) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the length of the whole blocks before the last byte, since at least one byte must remain in the file.
const fn whole_blocks(length: u64, block: u64) -> u64 {
    length.saturating_sub(1) / block * block
}

/// Determines with a trial file next to `path` whether the file system can remove the beginning of a file. If so, returns the block size,
/// of which the removed length must be a multiple; otherwise `None`.
fn can_shorten(path: &Path) -> io::Result<Option<u64>> {
    let mut name = path.as_os_str().to_owned();
    name.push(".trial");
    let trial = PathBuf::from(name);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = rustix::fs::open(&trial, flags | OFlags::NOFOLLOW, Mode::RUSR | Mode::WUSR)?;
    let _is_gone = rustix::fs::unlink(&trial);
    let block = u64::try_from(rustix::fs::fstat(&file)?.st_blksize).unwrap_or(0);
    if block == 0 || rustix::fs::ftruncate(&file, block + 1).is_err() {
        return Ok(None);
    }
    let done = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, block);
    Ok(done.is_ok().then_some(block))
}

#[cfg(test)]
mod tests {
    use super::{Rotation, rotate, rotated, whole_blocks};
    use flate2::read::MultiGzDecoder;
    use rustix::fs::{Mode, OFlags};
    use std::fmt::Write as _;
    use std::fs::{File, OpenOptions};
    use std::io::{Read as _, Write as _};
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    fn whole(path: &Path, kept: u8) -> String {
        let mut all = String::new();
        for nth in (1..=kept).rev() {
            if let Ok(file) = File::open(rotated(path, nth)) {
                let read = MultiGzDecoder::new(file).read_to_string(&mut all);
                read.expect("the gzip file is complete");
            }
        }
        all + &std::fs::read_to_string(path).expect("the file exists")
    }

    fn lines(numbers: std::ops::Range<u32>) -> String {
        let mut text = String::new();
        for number in numbers {
            writeln!(text, "line {number}").expect("writing to memory does not fail");
        }
        text
    }

    #[test]
    fn what_a_writer_wrote_is_all_there_in_order_after_rotations_beside_it() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("stdout.log");
        let open = OpenOptions::new().create(true).append(true).open(&path);
        let mut file = open.expect("the file can be created");
        let (written, rotations) = (AtomicU32::new(0), AtomicU32::new(0));
        let is_over = AtomicBool::new(false);
        let mut is_cut = false;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The writer runs until the other thread has rotated the file a few times, however slow that is.
                let goes_on = |number| number < 100_000 || rotations.load(Ordering::SeqCst) < 3;
                for number in (0..).take_while(|number| goes_on(*number)) {
                    file.write_all(lines(number..number + 1).as_bytes())
                        .expect("the file can be written");
                    written.store(number + 1, Ordering::SeqCst);
                }
                is_over.store(true, Ordering::SeqCst);
            });
            while !is_over.load(Ordering::SeqCst) {
                let long = std::fs::metadata(&path).is_ok_and(|it| it.len() > 50_000);
                if long && rotations.load(Ordering::SeqCst) < 40 {
                    is_cut |= rotate(&path, 50, &|| true)
                        .expect("the file can be rotated")
                        .is_cut;
                    rotations.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        // If the file was truncated while being written, some output may be lost.
        if !is_cut {
            assert!(whole(&path, 50) == lines(0..written.into_inner()));
            assert!(rotated(&path, 2).exists());
        }
    }

    #[test]
    fn what_is_cut_to_nothing_is_kept_and_the_writer_goes_on_at_the_beginning() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("stdout.log");
        let open = OpenOptions::new().create(true).append(true).open(&path);
        let mut writer = open.expect("the file can be created");
        for part in 0..3 {
            let text = lines(part * 1000..(part + 1) * 1000);
            writer
                .write_all(text.as_bytes())
                .expect("the file can be written");
            let flags = OFlags::RDWR | OFlags::CLOEXEC;
            let rotation = Rotation {
                file: rustix::fs::open(&path, flags, Mode::empty()).expect("the file exists"),
                path: &path,
                kept: 5,
                goes_on: &|| true,
            };
            let done = rotation.cut().expect("the file can be rotated");
            assert_eq!((done.bytes, done.is_cut), (text.len() as u64, true));
        }
        writer
            .write_all(b"line 3000\n")
            .expect("the file can be written");
        assert_eq!(std::fs::metadata(&path).expect("the file exists").len(), 10);
        assert!(whole(&path, 5) == lines(0..3001));
    }

    #[test]
    fn no_more_are_kept_than_are_to_be_and_one_that_is_given_up_changes_nothing() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("stdout.log");
        for part in 0..4 {
            let text = lines(part * 1000..(part + 1) * 1000);
            std::fs::write(&path, text).expect("the file can be written");
            rotate(&path, 2, &|| true).expect("the file can be rotated");
        }
        assert!(rotated(&path, 2).exists() && !rotated(&path, 3).exists());
        let text = lines(0..1000);
        std::fs::write(&path, &text).expect("the file can be written");
        assert!(rotate(&path, 2, &|| false).is_err());
        assert!(std::fs::read_to_string(&path).expect("the file exists") == text);
        assert!(!rotated(&path, 0).exists());
    }

    #[test]
    fn something_is_always_left() {
        assert_eq!(whole_blocks(0, 4096), 0);
        assert_eq!(whole_blocks(4096, 4096), 0);
        assert_eq!(whole_blocks(4097, 4096), 4096);
    }
}
