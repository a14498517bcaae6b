//! The log of a keeper: what it holds, so that the one after it knows. Written, not synced: what a power cut takes is of
//! a boot that is over.
//!
//! Before an intent is written, room is kept for all that follows from it, so that a full disk refuses launches and not
//! ends.

use crate::keeper::record::{self, LENGTH, Record};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Its name in the data directory.
pub(crate) const NAME: &str = "keeper.log";
/// The name of one that is being written to take its place.
const NEXT: &str = "keeper.log.next";
/// How much room is kept at a time.
const ROOM: u64 = 64 << 10;
/// The most records that follow from an intent: started, failed or exited, forgotten.
const CONSEQUENCES: u64 = 3;
/// Fewer records than this are not worth a new file.
const COMPACTED_FROM: u32 = 4096;

/// An open log.
pub(crate) struct Log {
    file: File,
    data: PathBuf,
    boot: u128,
    /// How many records it has.
    records: u32,
    /// Up to where there is room on disk.
    room: u64,
    /// Whether something could not be written that is held in memory.
    is_behind: bool,
}

/// What a log had when it was opened.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) records: Vec<Record>,
    /// How many records were damaged, a torn one at the end among them.
    pub(crate) damaged: u32,
    /// How many places for records it has, if it is of this boot.
    pub(crate) places: Option<u32>,
}

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file system.
    #[error("failed to use {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// It is of a newer program, which knows what this one does not.
    #[error("{} has version {found}, and this program reads version {}", path.display(), record::VERSION)]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
}

/// Reads the log of this boot in a data directory. One of another boot, or none, has nothing.
pub(crate) fn read(data: &Path, boot: u128) -> Result<Contents, LogError> {
    let path = data.join(NAME);
    let wrong = |source| LogError::Io {
        path: data.join(NAME),
        source,
    };
    let file = match File::open(&path) {
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
        // What another boot had is no more, and what no header vouches for may be of another boot.
        Some(_) | None => Ok(Contents::default()),
    }
}

fn contents(file: &mut impl Read) -> io::Result<Contents> {
    let mut found = Contents::default();
    let mut number = 0;
    while let Some(bytes) = next(file)? {
        match Record::from_bytes(&bytes, number) {
            Some(record) => found.records.push(record),
            // Each has its place and its sum, so that what follows is as good as before.
            None => found.damaged += 1,
        }
        number += 1;
    }
    found.places = Some(number);
    Ok(found)
}

/// The next 64 bytes; a torn end is filled up, and its sum will not do.
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
    /// Begins a log that has these records, in place of whatever is there.
    pub(crate) fn begin(
        data: &Path,
        boot: u128,
        records: impl Iterator<Item = Record>,
    ) -> Result<Self, LogError> {
        let wrong = |source| LogError::Io {
            path: data.join(NAME),
            source,
        };
        let (file, count, room) = write_anew(data, boot, records).map_err(wrong)?;
        Ok(Self {
            file,
            data: data.to_owned(),
            boot,
            records: count,
            room,
            is_behind: false,
        })
    }

    /// Goes on with a log of this boot as it is: after as many records, damaged ones among them.
    pub(crate) fn go_on(data: &Path, boot: u128, records: u32) -> Result<Self, LogError> {
        let path = data.join(NAME);
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(file) => Ok(Self {
                file: File::from(file),
                data: data.to_owned(),
                boot,
                records,
                room: 0,
                is_behind: false,
            }),
            Err(error) => Err(LogError::Io {
                path,
                source: error.into(),
            }),
        }
    }

    /// Appends an intent, if there is room for all that follows from it and from the others that are held.
    pub(crate) fn intend(&mut self, intent: Record, held: usize) -> io::Result<()> {
        let held = u64::try_from(held).unwrap_or(u64::MAX).saturating_add(1);
        if self.end().saturating_add(room_for(held)) > self.room {
            self.room = keep_room(&self.file, self.end(), held)?;
        }
        self.write(&intent.to_bytes(self.records), 1)
    }

    /// Appends a record. If that fails, the log is behind what is held.
    pub(crate) fn append(&mut self, record: Record) -> io::Result<()> {
        let written = self.write(&record.to_bytes(self.records), 1);
        self.is_behind |= written.is_err();
        written
    }

    /// Appends that these are forgotten. If that fails, they will be reported once more to whoever comes after a crash.
    pub(crate) fn forget(&mut self, attempts: &[crate::ids::ProcessId]) {
        let mut bytes = Vec::with_capacity(attempts.len() * LENGTH);
        for (attempt, number) in attempts.iter().zip(self.records..) {
            bytes.extend(Record::Forgotten(*attempt).to_bytes(number));
        }
        let count = u32::try_from(attempts.len()).unwrap_or(u32::MAX);
        let written = self.write(&bytes, count);
        self.is_behind |= written.is_err();
    }

    /// A half record at the end is written over by the next.
    fn write(&mut self, bytes: &[u8], count: u32) -> io::Result<()> {
        self.file.write_all_at(bytes, self.end())?;
        self.records += count;
        Ok(())
    }

    fn end(&self) -> u64 {
        end_of(self.records)
    }

    /// Whether something that is held is not in it.
    pub(crate) const fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Whether most of it speaks of what is forgotten.
    pub(crate) fn is_mostly_past(&self, held: usize) -> bool {
        let needed = u32::try_from(held).unwrap_or(u32::MAX).saturating_mul(2);
        self.records >= COMPACTED_FROM && needed < self.records / 2
    }

    /// Writes it anew with these records alone. If that fails, the old one goes on.
    pub(crate) fn compact(&mut self, records: impl Iterator<Item = Record>) -> io::Result<()> {
        let (file, count, room) = write_anew(&self.data, self.boot, records)?;
        self.file = file;
        (self.records, self.room, self.is_behind) = (count, room, false);
        Ok(())
    }
}

/// Where a log of so many records ends.
fn end_of(records: u32) -> u64 {
    bytes_of(u64::from(records) + 1)
}

fn bytes_of(records: u64) -> u64 {
    let length = u64::try_from(LENGTH).unwrap_or(u64::MAX);
    records.saturating_mul(length)
}

/// How many bytes may follow from so many attempts that are held.
fn room_for(held: u64) -> u64 {
    bytes_of(held.saturating_mul(CONSEQUENCES).saturating_add(1))
}

/// Keeps room for what may follow from so many attempts; up to where there is room then.
fn keep_room(file: &File, from: u64, held: u64) -> io::Result<u64> {
    let room = room_for(held).saturating_add(ROOM);
    match fallocate(file, FallocateFlags::KEEP_SIZE, from, room) {
        // A file system that keeps no room writes when there is some, and says so when there is none.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(from.saturating_add(room)),
        Err(error) => Err(error.into()),
    }
}

/// A log in the place of the one that is there: its file, how many records it has, and up to where there is room.
fn write_anew(
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
        // Half of it would take the room that is missing.
        drop(fs::remove_file(&path));
    }
    written
}

fn write_next(
    path: &Path,
    boot: u128,
    records: impl Iterator<Item = Record>,
) -> io::Result<(File, u32, u64)> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
    let mut out = io::BufWriter::new(&file);
    let mut count = 0;
    out.write_all(&record::header(boot))?;
    for record in records {
        out.write_all(&record.to_bytes(count))?;
        count += 1;
    }
    out.flush()?;
    drop(out);
    // An attempt that is held has a record at least.
    let room = keep_room(&file, end_of(count), u64::from(count))?;
    Ok((file, count, room))
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
