//! The seal of a slot, which names every file of the slot with its length and checksum. Change rule: see `persist/format.rs`.
//!
//! A seal is written after the slot's store was closed, settled (reopened until that changes no file), read back and synced. It is removed
//! before anything is written to the slot again.

use crate::decode;
use crate::ids::Seq;
use crate::persist::disk::Disk;
use crate::persist::error::PersistError;
use crate::persist::format::FORMAT_VERSION;
use crate::persist::snapshots::page::Manifest;
use serde::{Deserialize, Serialize};
use std::io;

const MAGIC: [u8; 8] = *b"SEXTONS\0";
const HEADER_BYTES: usize = 16;
/// The maximum size of a seal, in bytes. Seals are far smaller, since a slot has only a few files.
const SEAL_BYTES_MAX: u64 = 1 << 20;
const READ_BYTES: usize = 256 * 1024;

/// A description of a closed slot's content and files, by which missing and changed files are detected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// A copy of the slot's manifest.
    pub manifest: Manifest,
    /// The sequence number of the journal mark that announces this snapshot. The log was on disk up to this mark when the slot was sealed.
    pub mark: Seq,
    /// The number of pages.
    pub pages: u64,
    /// The total size of the pages' content, in bytes.
    pub bytes: u64,
    /// The slot's files, sorted by name.
    pub files: Vec<FileSum>,
}

/// A file's name, length and checksum, either as sealed or as found on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSum {
    /// The file's name within the slot.
    pub name: String,
    /// The file's length in bytes.
    pub len: u64,
    /// The CRC-32C of the whole file.
    pub crc: u32,
}

/// The result of decoding a seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealRead {
    /// A valid seal.
    Good(Seal),
    /// A seal of the given format version, which is newer than this program supports.
    TooNew(u32),
    /// Not a seal, or a damaged one.
    Bad,
}

impl Seal {
    /// Encodes the seal.
    pub fn encode(&self) -> Vec<u8> {
        let payload = rmp_serde::to_vec(self).expect("seals should always encode");
        let version = FORMAT_VERSION.to_le_bytes();
        let crc = crc(&version, &payload).to_le_bytes();
        [&MAGIC[..], &version, &crc, &payload].concat()
    }

    /// Decodes a seal.
    pub fn decode(bytes: &[u8]) -> SealRead {
        let read = || {
            let (header, payload) = bytes.split_at_checked(HEADER_BYTES)?;
            let (magic, rest) = header.split_first_chunk::<8>()?;
            let (version, said) = rest.split_first_chunk::<4>()?;
            if *magic != MAGIC {
                return None;
            }
            let found = u32::from_le_bytes(*version);
            if *said != crc(version, payload).to_le_bytes() {
                return None;
            }
            // As with segments, later formats keep this header and its checksum. The checksum matches, so the version is not just damaged.
            if found > FORMAT_VERSION {
                return Some(SealRead::TooNew(found));
            }
            decode::from_slice(payload).ok().map(SealRead::Good)
        };
        read().unwrap_or(SealRead::Bad)
    }

    /// Returns the total size of the slot's files, in bytes.
    pub fn file_bytes(&self) -> u64 {
        // Saturates, since the seal may be forged.
        let lengths = self.files.iter().map(|file| file.len);
        lengths.fold(0, u64::saturating_add)
    }
}

fn crc(version: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(version), payload)
}

/// Reads and decodes a seal file. Returns `None` if it does not exist.
pub fn read(disk: &dyn Disk, name: &str) -> Result<Option<SealRead>, PersistError> {
    let contents = || -> io::Result<Option<Vec<u8>>> {
        let file = match disk.open(name, false) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let len = file.len()?.min(SEAL_BYTES_MAX);
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let read = file.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        Ok(Some(bytes))
    };
    let contents = contents().map_err(PersistError::io("read", name))?;
    Ok(contents.map(|bytes| Seal::decode(&bytes)))
}

/// Computes the length and checksum of every file in a folder and in the folders below it. The result is sorted by name.
pub fn sum_files(disk: &dyn Disk, folder: &str) -> Result<Vec<FileSum>, PersistError> {
    sum_some(disk, folder, |_, _| true)
}

/// Computes what [`check_files`] needs: the lengths of all files, and the checksums of those whose lengths match the seal. A file of
/// another length is damaged whatever it contains, and may be far larger, so it is not read.
pub fn sum_sealed(
    disk: &dyn Disk,
    folder: &str,
    sealed: &[FileSum],
) -> Result<Vec<FileSum>, PersistError> {
    let is_sealed =
        |name: &str, len| sealed.iter().any(|file| file.name == name && file.len == len);
    sum_some(disk, folder, is_sealed)
}

/// Like [`sum_files`], but leaves out the checksums of the files for which `is_read` returns `false`.
fn sum_some(
    disk: &dyn Disk,
    folder: &str,
    is_read: impl Fn(&str, u64) -> bool,
) -> Result<Vec<FileSum>, PersistError> {
    let mut files = disk.tree(folder).map_err(PersistError::io("list", folder))?;
    files.sort();
    let mut buffer = vec![0; READ_BYTES];
    let mut sums = Vec::with_capacity(files.len());
    for (name, len) in files {
        if !is_read(&name, len) {
            let crc = 0;
            sums.push(FileSum { name, len, crc });
            continue;
        }
        let path = format!("{folder}/{name}");
        let mut sum = || -> io::Result<FileSum> {
            let file = disk.open(&path, false)?;
            let (mut len, mut crc) = (0, 0);
            loop {
                let read = file.read_at(&mut buffer, len)?;
                crc = crc32c::crc32c_append(crc, buffer.get(..read).unwrap_or(&[]));
                len += read as u64;
                if read < buffer.len() {
                    break;
                }
            }
            Ok(FileSum { name: name.clone(), len, crc })
        };
        sums.push(sum().map_err(PersistError::io("read", &path))?);
    }
    Ok(sums)
}

/// A file of a slot, compared with the slot's seal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileCheck {
    /// The file's name within the slot.
    pub name: String,
    /// The file's length in bytes; `None` if it is missing.
    pub len: Option<u64>,
    /// How the file differs from the seal; `None` if it does not, or if the slot has no valid seal.
    pub wrong: Option<String>,
}

/// Compares files with those that were sealed. The result lists the sealed files first, then any files that are not in the seal.
pub fn check_files(sealed: &[FileSum], found: &[FileSum]) -> Vec<FileCheck> {
    let of = |files: &[FileSum], name: &str| files.iter().find(|file| file.name == name).cloned();
    let mut checks = Vec::with_capacity(sealed.len());
    for said in sealed {
        let name = &said.name;
        let file = of(found, name);
        let wrong = match &file {
            None => Some(format!("{name} is missing")),
            Some(file) if file.len != said.len => {
                Some(format!("{name} has {} bytes, but was sealed with {}", file.len, said.len))
            }
            Some(file) if file.crc != said.crc => {
                Some(format!("{name} has changed since it was sealed: its checksum differs"))
            }
            Some(_) => None,
        };
        checks.push(FileCheck { name: name.clone(), len: file.map(|file| file.len), wrong });
    }
    let strays = found.iter().filter(|file| of(sealed, &file.name).is_none());
    checks.extend(strays.map(|stray| FileCheck {
        name: stray.name.clone(),
        len: Some(stray.len),
        wrong: Some(format!("{} did not exist when the slot was sealed", stray.name)),
    }));
    checks
}

#[cfg(test)]
mod tests {
    use super::{FORMAT_VERSION, FileSum, Manifest, Seal, SealRead, check_files, sum_sealed};
    use crate::ids::Seq;
    use crate::persist::disk::RealDisk;

    #[test]
    fn a_file_whose_length_shows_the_damage_is_not_read() {
        let folder = tempfile::tempdir().expect("a directory can be created");
        let place = folder.path().join("slot");
        std::fs::create_dir(&place).expect("a new directory");
        std::fs::write(place.join("whole"), b"12345").expect("a writable file");
        let holed = std::fs::File::create(place.join("holed")).expect("a writable file");
        // A hole takes no space, but would take very long to read.
        holed.set_len(1 << 40).expect("files may have holes");
        let disk = RealDisk::new(folder.path());
        let sealed = ["holed", "whole"].map(|name| FileSum {
            name: name.to_owned(),
            len: 5,
            crc: crc32c::crc32c(b"12345"),
        });
        let found = sum_sealed(&disk, "slot", &sealed).expect("the files can be listed");
        let wrong: Vec<Option<String>> =
            check_files(&sealed, &found).into_iter().map(|file| file.wrong).collect();
        let words = "holed has 1099511627776 bytes, but was sealed with 5";
        assert_eq!(wrong, [Some(words.to_owned()), None]);
    }

    #[test]
    fn a_seal_of_a_newer_program_is_told_from_a_damaged_one() {
        let mut newer = Seal::default().encode();
        newer[8..12].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
        assert_eq!(Seal::decode(&newer), SealRead::Bad, "only its version changed");
        newer[12..16].fill(9);
        assert_eq!(Seal::decode(&newer), SealRead::Bad, "its version and its checksum changed");
        let sum = super::crc(&(FORMAT_VERSION + 1).to_le_bytes(), &newer[16..]);
        newer[12..16].copy_from_slice(&sum.to_le_bytes());
        let read = Seal::decode(&newer);
        assert_eq!(read, SealRead::TooNew(FORMAT_VERSION + 1));
    }

    #[test]
    fn a_seal_comes_back_and_every_flip_is_found() {
        let file = FileSum { name: "db".to_owned(), len: 17, crc: 4 };
        let seal = Seal {
            manifest: Manifest { begun: Seq(9), ..Manifest::default() },
            mark: Seq(11),
            pages: 3,
            bytes: 80,
            files: vec![file],
        };
        let bytes = seal.encode();
        assert_eq!(Seal::decode(&bytes), SealRead::Good(seal));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Seal::decode(&flipped), SealRead::Bad, "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(Seal::decode(&bytes[..len]), SealRead::Bad, "cut at {len}");
        }
    }
}
