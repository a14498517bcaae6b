//! Rotates output files without the cooperation of the writer, which keeps its file open in append mode and continues to write.
//!
//! The old output is compressed into a separate file and synced before it is removed from the beginning of the original. Where the file
//! system can remove the beginning of a file (ext4, XFS), no output is ever lost. Elsewhere the file is truncated to zero length, and
//! output written between the last check and the truncation is lost. After a crash before the removal or the truncation, some output may
//! be in both files.
//!
//! The position of a file's first byte in the whole output is stored beside it (`stdout.log.at`), and that of a rotated file in its gzip
//! header, so that a reader can follow the output over rotations (decision 56).

use crate::kernel::file;
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// The number of bytes per read.
const CHUNK_BYTES: usize = 64 << 10;

/// The maximum number of times that a file is checked for new output before it is truncated.
const LOOKS: u32 = 8;

/// The length of the file with a position: 20 digits, a mark and a line break.
const POSITION_BYTES: usize = 22;

/// The highest position of a file's first byte that is believed, so that it can be added to the length of any file. No output gets there; a
/// process that runs as our user may have written anything.
const POSITION_MAX: u64 = 1 << 62;

/// An output file whose size is limited.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// Open for reading only, since a file that is open for writing when its process has ended is reported as a leak.
    file: OwnedFd,
    /// Locked while the beginning of the file is removed.
    removal: Mutex<()>,
    /// Whether the rotation in progress is to be abandoned.
    is_abandoned: AtomicBool,
}

/// The result of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rotated {
    /// The number of bytes removed from the file.
    pub(super) bytes: u64,
    /// Whether the file was truncated because its beginning could not be removed. Some output may then have been lost.
    pub(super) is_cut: bool,
}

/// Returns the path of the `nth` rotated file; 1 is the newest.
pub(super) fn rotated(path: &Path, nth: u8) -> PathBuf {
    beside(path, &format!(".{nth}.gz"))
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

impl Log {
    /// Opens an output file.
    ///
    /// # Errors
    /// Returns an error if it does not exist, or is not a regular file of our user with a single name.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file = file::own(&path, OFlags::RDONLY, Mode::empty())?;
        Ok(Self {
            path,
            file: file.into(),
            removal: Mutex::default(),
            is_abandoned: AtomicBool::new(false),
        })
    }

    /// Opens the same file for writing, even if it was renamed or removed.
    fn writable(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = flags | OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(path, flags, Mode::empty())?)
    }

    fn truncate(&self) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(self.writable(OFlags::empty())?, 0)?)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn length(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstat(&self.file)?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// Returns the number of bytes that the file takes on the disk, which a process can raise without writing.
    pub(super) fn reserved(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstat(&self.file)?;
        Ok(u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512))
    }

    /// Gives back what the file takes on the disk beyond its content. Output written at this moment may be lost.
    pub(super) fn give_back(&self) -> io::Result<()> {
        let file = self.writable(OFlags::empty())?;
        Ok(rustix::fs::ftruncate(file, self.length()?)?)
    }

    /// Returns whether the file still has its name. If it was removed or renamed, the process that has it open still writes to it.
    pub(super) fn has_its_name(&self) -> bool {
        let own = rustix::fs::fstat(&self.file);
        let there = rustix::fs::lstat(&self.path);
        own.is_ok_and(|own| {
            there.is_ok_and(|there| (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino))
        })
    }

    /// Rotates the file, keeping `kept` rotated files. Returns an error if `goes_on` returns `false` between two chunks, or [`Self::discard`]
    /// is called meanwhile: the rotation is then abandoned, and the file itself is unchanged.
    pub(super) fn rotate(&self, kept: u8, goes_on: &dyn Fn() -> bool) -> io::Result<Rotated> {
        self.is_abandoned.store(false, Ordering::SeqCst);
        let rotation = Rotation { log: self, kept, goes_on };
        let bytes = match can_shorten(&self.path)? {
            Some(block) => whole_blocks(self.length()?, block),
            None => 0,
        };
        if bytes > 0 { rotation.shorten(bytes) } else { rotation.cut() }
    }

    /// Discards the whole content, because it grows faster than it can be rotated. Abandons a rotation in progress. What was discarded is
    /// noted in the file. Returns the number of bytes.
    pub(super) fn discard(&self) -> io::Result<u64> {
        self.is_abandoned.store(true, Ordering::SeqCst);
        // If the beginning is being removed, the file is as short as it can be when that is done.
        let _removal = match self.removal.try_lock() {
            Ok(removal) => removal,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(0),
        };
        let bytes = self.length()?;
        if !self.has_its_name() {
            // Nobody can read it, so there is nothing to note.
            self.truncate()?;
            return Ok(bytes);
        }
        let begin = self.position();
        self.move_to(begin + bytes, &mut || self.truncate())?;
        let note = format!(
            "\n[sexton: {bytes} bytes of output were discarded: they were written faster than the file could be rotated]\n"
        );
        // The writer appends, too, so the note must be appended by the kernel.
        let own = self.writable(OFlags::APPEND)?;
        rustix::io::write(&own, note.as_bytes())?;
        Ok(bytes)
    }

    fn remove(&self) -> MutexGuard<'_, ()> {
        self.removal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the position of the first byte of the file in the whole output; 0 if none that is possible is stored.
    fn position(&self) -> u64 {
        let read =
            file::own(&beside(&self.path, ".at"), OFlags::RDONLY, Mode::empty()).and_then(|file| {
                let mut text = String::new();
                io::Read::read_to_string(
                    &mut io::Read::take(file, POSITION_BYTES as u64),
                    &mut text,
                )?;
                Ok(text)
            });
        let text = read.unwrap_or_default();
        let digits = text.trim_end().trim_end_matches('?');
        let position = digits.parse().ok();
        position.filter(|it| *it <= POSITION_MAX).unwrap_or(0)
    }

    /// Stores a new position, and removes the part of the file before it. Meanwhile, the stored position is marked as uncertain, so that a
    /// reader waits.
    fn move_to(
        &self,
        position: u64,
        removes: &mut dyn FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        let path = beside(&self.path, ".at");
        let flags = OFlags::WRONLY | OFlags::CREATE;
        let stored = file::own(&path, flags, Mode::RUSR | Mode::WUSR);
        let store = |mark: char| {
            // Without a stored position, only readers that follow the output are misled.
            if let Ok(file) = &stored {
                let text = format!("{position:020}{mark}\n");
                let _written = rustix::io::pwrite(file, text.as_bytes(), 0);
            }
        };
        store('?');
        let removed = removes();
        if removed.is_ok() {
            store(' ');
        }
        removed
    }
}

/// A rotation of a file.
struct Rotation<'a> {
    log: &'a Log,
    kept: u8,
    goes_on: &'a dyn Fn() -> bool,
}

impl Rotation<'_> {
    /// Moves the first `bytes` bytes of the file to a rotated file. They no longer change, since the writer only appends.
    fn shorten(&self, bytes: u64) -> io::Result<Rotated> {
        let begin = self.log.position();
        self.keep(0..bytes, begin)?;
        let _removal = self.log.remove();
        self.check()?;
        let flags = FallocateFlags::COLLAPSE_RANGE;
        self.log.move_to(begin + bytes, &mut || {
            let file = self.log.writable(OFlags::empty())?;
            Ok(rustix::fs::fallocate(&file, flags, 0, bytes)?)
        })?;
        let is_cut = false;
        Ok(Rotated { bytes, is_cut })
    }

    /// Moves the content of the file to a rotated file, and truncates the file to zero length.
    fn cut(&self) -> io::Result<Rotated> {
        let begin = self.log.position();
        let mut bytes = self.log.length()?;
        let newest = self.keep(0..bytes, begin)?;
        let _removal = self.log.remove();
        for _ in 0..LOOKS {
            self.check()?;
            let length = self.log.length()?;
            if length <= bytes {
                break;
            }
            if let Some(newest) = &newest {
                // A gzip stream that is appended to another is read as its continuation.
                self.compress(bytes..length, newest, begin + bytes)?;
            }
            bytes = length;
        }
        self.log.move_to(begin + bytes, &mut || self.log.truncate())?;
        let is_cut = true;
        Ok(Rotated { bytes, is_cut })
    }

    /// Returns an error if the rotation is to be abandoned.
    fn check(&self) -> io::Result<()> {
        if (self.goes_on)() && !self.log.is_abandoned.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(io::Error::from(io::ErrorKind::Interrupted))
    }

    /// Compresses a part of the file, which begins at this position of the whole output, into a new rotated file, then renames the older ones
    /// to make it the newest, and returns it. Returns `None` if no rotated file is to be kept.
    fn keep(&self, part: Range<u64>, position: u64) -> io::Result<Option<OwnedFd>> {
        if self.kept == 0 {
            return Ok(None);
        }
        let path = self.log.path();
        let next = rotated(path, 0);
        let kept = create(&next).and_then(|made| {
            self.compress(part, &made, position)?;
            rustix::fs::fdatasync(&made)?;
            Ok(made)
        });
        let made = kept.inspect_err(|_| {
            let _is_gone = rustix::fs::unlink(&next);
        })?;
        for nth in (1..self.kept).rev() {
            move_on(&rotated(path, nth), &rotated(path, nth + 1))?;
        }
        move_on(&next, &rotated(path, 1))?;
        Ok(Some(made))
    }

    fn compress(&self, part: Range<u64>, to: &OwnedFd, position: u64) -> io::Result<()> {
        let header = GzBuilder::new().comment(position.to_string());
        let mut encoder: GzEncoder<_> = header.write(Descriptor(to), Compression::fast());
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut at = part.start;
        while at < part.end {
            self.check()?;
            let rest = usize::try_from(part.end - at).unwrap_or(usize::MAX);
            let space = chunk.get_mut(..rest.min(CHUNK_BYTES)).unwrap_or_default();
            let count = rustix::io::pread(&self.log.file, space, at)?;
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
        Ok(rustix::io::write(self.0.as_fd(), bytes)?)
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

/// Creates a file, and never opens one that another user may have put there, such as a pipe.
fn create(path: &Path) -> io::Result<OwnedFd> {
    match rustix::fs::unlink(path) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?)
}

/// Returns the length of the whole blocks before the last byte, since at least one byte must remain in the file.
const fn whole_blocks(length: u64, block: u64) -> u64 {
    length.saturating_sub(1) / block * block
}

/// Determines with a trial file next to `path` whether the file system can remove the beginning of a file. If so, returns the block size,
/// of which the removed length must be a multiple; otherwise `None`.
fn can_shorten(path: &Path) -> io::Result<Option<u64>> {
    let trial = beside(path, ".trial");
    let file = create(&trial)?;
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
    use super::{Log, Rotation, rotated, whole_blocks};
    use flate2::read::MultiGzDecoder;
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
                    let log = Log::open(path.clone()).expect("the file exists");
                    is_cut |= log.rotate(50, &|| true).expect("the file can be rotated").is_cut;
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
            writer.write_all(text.as_bytes()).expect("the file can be written");
            let rotation = Rotation {
                log: &Log::open(path.clone()).expect("the file exists"),
                kept: 5,
                goes_on: &|| true,
            };
            let done = rotation.cut().expect("the file can be rotated");
            assert_eq!((done.bytes, done.is_cut), (text.len() as u64, true));
        }
        writer.write_all(b"line 3000\n").expect("the file can be written");
        assert_eq!(std::fs::metadata(&path).expect("the file exists").len(), 10);
        assert!(whole(&path, 5) == lines(0..3001));
    }

    /// A process that runs as our user may write to this file, too.
    #[test]
    fn a_position_that_no_output_has_is_not_believed() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let (path, at) = (dir.path().join("stdout.log"), dir.path().join("stdout.log.at"));
        for planted in [u64::MAX.to_string(), (u64::MAX - 1).to_string(), "-1".to_owned()] {
            std::fs::write(&path, lines(0..10_000)).expect("the file can be written");
            std::fs::write(&at, &planted).expect("the file can be written");
            let log = Log::open(path.clone()).expect("the file exists");
            let rotated = log.rotate(1, &|| true).expect("the file can be rotated");
            assert_eq!(log.position(), rotated.bytes, "{planted}");
            std::fs::write(&at, &planted).expect("the file can be written");
            let left = log.discard().expect("the file can be truncated");
            assert_eq!(log.position(), left, "{planted}");
        }
        // The highest position that is believed can be added to the length of any file.
        let highest = super::POSITION_MAX;
        std::fs::write(&at, highest.to_string()).expect("the file can be written");
        let log = Log::open(path).expect("the file exists");
        let bytes = log.discard().expect("the file can be truncated");
        assert!(bytes > 0 && highest.checked_add(i64::MAX.unsigned_abs()).is_some());
    }

    #[test]
    fn no_more_are_kept_than_are_to_be_and_one_that_is_given_up_changes_nothing() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("stdout.log");
        for part in 0..4 {
            let text = lines(part * 1000..(part + 1) * 1000);
            std::fs::write(&path, text).expect("the file can be written");
            let log = Log::open(path.clone()).expect("the file exists");
            log.rotate(2, &|| true).expect("the file can be rotated");
        }
        assert!(rotated(&path, 2).exists() && !rotated(&path, 3).exists());
        let text = lines(0..1000);
        std::fs::write(&path, &text).expect("the file can be written");
        let log = Log::open(path.clone()).expect("the file exists");
        assert!(log.rotate(2, &|| false).is_err());
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
