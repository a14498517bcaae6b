//! The log of a keeper, from which its successor restores the attempts held. It is not synced to disk: it describes processes of the
//! current boot, none of which survives a power cut.
//!
//! Before an intent (the record that precedes a launch) is written, space is reserved for all records that follow from it, so that a full
//! disk makes launches fail but not the recording of ends.

use crate::keeper::record::{self, LENGTH, Record};
use crate::kernel::file;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// The name of the log in the data directory.
pub(crate) const NAME: &str = "keeper.log";
/// The name of a new log before it replaces the old one.
const NEXT: &str = "keeper.log.next";
/// The number of bytes reserved beyond those needed, so that few launches have to reserve space.
const ROOM: u64 = 64 << 10;
/// The maximum number of records that follow an intent: started, failed or exited, forgotten.
const RECORDS_PER_INTENT_MAX: u64 = 3;
/// The minimum number of records for which a log is worth rewriting.
const COMPACTED_FROM: u32 = 4096;

/// A log open for writing.
pub(crate) struct Log {
    file: File,
    data: PathBuf,
    boot: u128,
    /// The number of records in it.
    records: u32,
    /// The offset up to which space is reserved.
    room: u64,
    /// Whether the log lacks records that could not be written.
    is_incomplete: bool,
}

/// The contents of a log when it was opened.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) records: Vec<Record>,
    /// The number of damaged records, including a torn one at the end.
    pub(crate) damaged: u32,
    /// The number of record slots, if the log is from this boot.
    pub(crate) places: Option<u32>,
}

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// An I/O error.
    #[error("failed to use {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The underlying error.
        source: io::Error,
    },
    /// The log was written by a newer version of this program.
    #[error("{} has version {found}, and this program reads version {}", path.display(), record::VERSION)]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
}

/// Reads the log of this boot in a data directory. The contents are empty if there is no log, if its header is invalid, or if it is from
/// another boot.
pub(crate) fn read(data: &Path, boot: u128) -> Result<Contents, LogError> {
    let path = data.join(NAME);
    let wrong = |source| LogError::Io { path: data.join(NAME), source };
    let file = match file::regular(&path, OFlags::RDONLY | OFlags::NOFOLLOW) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Contents::default()),
        Err(error) => return Err(wrong(error)),
    };
    let mut file = io::BufReader::new(file);
    let Some(header) = next(&mut file).map_err(wrong)? else {
        return Ok(Contents::default());
    };
    match record::parse_header(&header) {
        Some((found, _)) if found > record::VERSION => Err(LogError::TooNew { path, found }),
        Some((_, of)) if of == boot => contents(&mut file).map_err(wrong),
        // Processes of another boot no longer exist, and a log without a valid header may be from another boot.
        Some(_) | None => Ok(Contents::default()),
    }
}

fn contents(file: &mut impl Read) -> io::Result<Contents> {
    let mut found = Contents::default();
    let mut number = 0;
    while let Some(bytes) = next(file)? {
        match Record::from_bytes(&bytes, number) {
            Some(record) => found.records.push(record),
            // Each record has its own slot and checksum, so those that follow are unaffected.
            None => found.damaged += 1,
        }
        number += 1;
    }
    found.places = Some(number);
    Ok(found)
}

/// Reads the next record, undecoded; `None` at the end. A torn record at the end is padded with zeroes, and its checksum will not match.
fn next(file: &mut impl Read) -> io::Result<Option<[u8; LENGTH]>> {
    let mut bytes = [0; LENGTH];
    let mut rest = bytes.as_mut_slice();
    while !rest.is_empty() {
        match file.read(rest) {
            Ok(0) => break,
            Ok(count) => rest = rest.get_mut(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let is_empty = rest.len() == LENGTH;
    Ok((!is_empty).then_some(bytes))
}

impl Log {
    /// Creates a log with these records, replacing any existing one.
    pub(crate) fn begin(
        data: &Path,
        boot: u128,
        records: impl Iterator<Item = Record>,
    ) -> Result<Self, LogError> {
        let wrong = |source| LogError::Io { path: data.join(NAME), source };
        let (file, count, room) = rewrite(data, boot, records).map_err(wrong)?;
        Ok(Self { file, data: data.to_owned(), boot, records: count, room, is_incomplete: false })
    }

    /// Continues an existing log of this boot, which has `records` slots, damaged ones included.
    pub(crate) fn resume(data: &Path, boot: u128, records: u32) -> Result<Self, LogError> {
        let path = data.join(NAME);
        match file::regular(&path, OFlags::WRONLY | OFlags::NOFOLLOW) {
            Ok(file) => Ok(Self {
                file,
                data: data.to_owned(),
                boot,
                records,
                room: 0,
                is_incomplete: false,
            }),
            Err(source) => Err(LogError::Io { path, source }),
        }
    }

    /// Appends an intent, after reserving space for all records that will follow from it and from the `held` other attempts. Returns an
    /// error if space cannot be reserved or the intent cannot be written.
    pub(crate) fn intend(&mut self, intent: Record, held: usize) -> io::Result<()> {
        let held = u64::try_from(held).unwrap_or(u64::MAX).saturating_add(1);
        if self.end().saturating_add(room_for(held)) > self.room {
            self.room = keep_room(&self.file, self.end(), held)?;
        }
        self.write(&intent.to_bytes(self.records), 1)
    }

    /// Appends a record. If that fails, the log is marked incomplete.
    pub(crate) fn append(&mut self, record: Record) -> io::Result<()> {
        let written = self.write(&record.to_bytes(self.records), 1);
        self.is_incomplete |= written.is_err();
        written
    }

    /// Records that `attempts` are forgotten. If that fails, the log is marked incomplete, and a keeper that restores it before it is
    /// rewritten reports these attempts once more.
    pub(crate) fn forget(&mut self, attempts: &[crate::ids::ProcessId]) {
        let mut bytes = Vec::with_capacity(attempts.len() * LENGTH);
        for (attempt, number) in attempts.iter().zip(self.records..) {
            bytes.extend(Record::Forgotten(*attempt).to_bytes(number));
        }
        let count = u32::try_from(attempts.len()).unwrap_or(u32::MAX);
        let written = self.write(&bytes, count);
        self.is_incomplete |= written.is_err();
    }

    /// Writes after the last complete record, so a partial record at the end is overwritten.
    fn write(&mut self, bytes: &[u8], count: u32) -> io::Result<()> {
        self.file.write_all_at(bytes, self.end())?;
        self.records += count;
        Ok(())
    }

    fn end(&self) -> u64 {
        end_of(self.records)
    }

    /// Returns whether the log lacks records that could not be written.
    pub(crate) const fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// Returns whether the log has at least [`COMPACTED_FROM`] records, and would have fewer than half of them after a rewrite.
    pub(crate) fn is_mostly_past(&self, held: usize) -> bool {
        let needed = u32::try_from(held).unwrap_or(u32::MAX).saturating_mul(2);
        self.records >= COMPACTED_FROM && needed < self.records / 2
    }

    /// Rewrites the log with only these records. If that fails, the old log stays in use.
    pub(crate) fn compact(&mut self, records: impl Iterator<Item = Record>) -> io::Result<()> {
        let (file, count, room) = rewrite(&self.data, self.boot, records)?;
        self.file = file;
        (self.records, self.room, self.is_incomplete) = (count, room, false);
        Ok(())
    }
}

/// Returns the size in bytes of a log with `records` records.
fn end_of(records: u32) -> u64 {
    bytes_of(u64::from(records) + 1)
}

fn bytes_of(records: u64) -> u64 {
    let length = u64::try_from(LENGTH).unwrap_or(u64::MAX);
    records.saturating_mul(length)
}

/// Returns the maximum total size of an intent and of the records that may still follow for `held` attempts, in bytes.
fn room_for(held: u64) -> u64 {
    bytes_of(held.saturating_mul(RECORDS_PER_INTENT_MAX).saturating_add(1))
}

/// Reserves space for the records that may be written for `held` attempts; returns the offset up to which it is reserved.
fn keep_room(file: &File, from: u64, held: u64) -> io::Result<u64> {
    let room = room_for(held).saturating_add(ROOM);
    match fallocate(file, FallocateFlags::KEEP_SIZE, from, room) {
        // On a file system that cannot reserve space, a full disk is noticed only when a record is written.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(from.saturating_add(room)),
        Err(error) => Err(error.into()),
    }
}

/// Replaces the log with one that contains `records`. Returns the new file, its number of records, and the offset up to which space is
/// reserved.
fn rewrite(
    data: &Path,
    boot: u128,
    records: impl Iterator<Item = Record>,
) -> io::Result<(File, u32, u64)> {
    let path = data.join(NEXT);
    let written = write_next(&path, boot, records).and_then(|written| {
        fs::rename(&path, data.join(NAME))?;
        Ok(written)
    });
    if written.is_err() {
        // A partial file would take up space that is needed.
        drop(fs::remove_file(&path));
    }
    written
}

fn write_next(
    path: &Path,
    boot: u128,
    records: impl Iterator<Item = Record>,
) -> io::Result<(File, u32, u64)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
    let file = file::regular(path, flags)?;
    let mut out = io::BufWriter::new(&file);
    let mut count = 0;
    out.write_all(&record::header(boot))?;
    for record in records {
        out.write_all(&record.to_bytes(count))?;
        count += 1;
    }
    out.flush()?;
    drop(out);
    // There are at most as many attempts as records.
    let room = keep_room(&file, end_of(count), u64::from(count))?;
    Ok((file, count, room))
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
