//! The records of a keeper's log, 64 bytes each, as specified in `docs/protocols/keeper.md`, "The log".
//!
//! Change rule: a changed layout gets a new [`VERSION`], and a keeper with a newer version must either read logs of this version or refuse
//! to start.

use crate::ids::ProcessId;
use crate::keeper::protocol::{Exited, Started};

/// The size in bytes of a record, and of the header.
pub(crate) const LENGTH: usize = 64;
/// The version of this layout.
pub(crate) const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"sextonkl";

/// A change to the state of an attempt, that is, of one launch of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The attempt is about to be started.
    Intent(ProcessId),
    /// Its process has been created and waits for permission to run.
    Started(Started),
    /// Its process has ended.
    Exited { attempt: ProcessId, status: u32, at: u64, cpu_ms: u64, memory_max: u64 },
    /// The attempt could not be started.
    Failed { attempt: ProcessId, step: u8, errno: i32 },
    /// The attempt was forgotten: no coordinator will ask for it again.
    Forgotten(ProcessId),
}

impl Record {
    /// Returns the record of an attempt's end.
    pub(crate) const fn of_end(exited: &Exited) -> Self {
        Self::Exited {
            attempt: exited.started.attempt,
            status: exited.status,
            at: exited.at,
            cpu_ms: exited.cpu_ms,
            memory_max: exited.memory_max,
        }
    }

    /// Encodes the record for the slot with the index `number` in the log.
    pub(crate) fn to_bytes(self, number: u32) -> [u8; LENGTH] {
        let (kind, detail, short, attempt, longs) = match self {
            Self::Intent(attempt) => (1, 0, 0, attempt, [0; 4]),
            Self::Started(started) => (
                2,
                u8::from(started.contained),
                started.pid,
                started.attempt,
                [started.namespace, started.inode, started.ticks, started.at],
            ),
            Self::Exited { attempt, status, at, cpu_ms, memory_max } => {
                (3, 0, status, attempt, [at, cpu_ms, memory_max, 0])
            }
            Self::Failed { attempt, step, errno } => {
                (4, step, errno.cast_unsigned(), attempt, [0; 4])
            }
            Self::Forgotten(attempt) => (5, 0, 0, attempt, [0; 4]),
        };
        let mut bytes = [0; LENGTH];
        put(&mut bytes, 0, &[kind, detail]);
        put(&mut bytes, 4, &short.to_le_bytes());
        put(&mut bytes, 8, &attempt.0.to_be_bytes());
        for (place, long) in (24..).step_by(8).zip(longs) {
            put(&mut bytes, place, &long.to_le_bytes());
        }
        put(&mut bytes, 56, &number.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    /// Decodes the record from the slot with the index `number`. Returns `None` if it is damaged, is of an unknown kind, or belongs in
    /// another slot.
    pub(crate) fn from_bytes(bytes: &[u8; LENGTH], number: u32) -> Option<Self> {
        if !is_sealed(bytes) || u32_at(bytes, 56)? != number {
            return None;
        }
        let attempt = ProcessId(u128::from_be_bytes(*bytes.get(8..)?.first_chunk()?));
        let detail = *bytes.get(1)?;
        Some(match bytes.first()? {
            1 => Self::Intent(attempt),
            2 => Self::Started(Started {
                attempt,
                pid: u32_at(bytes, 4)?,
                namespace: u64_at(bytes, 24)?,
                inode: u64_at(bytes, 32)?,
                ticks: u64_at(bytes, 40)?,
                at: u64_at(bytes, 48)?,
                contained: detail != 0,
            }),
            3 => Self::Exited {
                attempt,
                status: u32_at(bytes, 4)?,
                at: u64_at(bytes, 24)?,
                cpu_ms: u64_at(bytes, 32)?,
                memory_max: u64_at(bytes, 40)?,
            },
            4 => Self::Failed { attempt, step: detail, errno: u32_at(bytes, 4)?.cast_signed() },
            5 => Self::Forgotten(attempt),
            _ => return None,
        })
    }
}

/// Encodes the header of a log of this boot.
pub(crate) fn header(boot: u128) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    put(&mut bytes, 0, MAGIC);
    put(&mut bytes, 8, &VERSION.to_le_bytes());
    put(&mut bytes, 16, &boot.to_le_bytes());
    seal(&mut bytes);
    bytes
}

/// Returns the version and the boot from a header; `None` if it is not a valid header.
pub(crate) fn parse_header(bytes: &[u8; LENGTH]) -> Option<(u32, u128)> {
    if !bytes.starts_with(MAGIC) || !is_sealed(bytes) {
        return None;
    }
    let boot = u128::from_le_bytes(*bytes.get(16..)?.first_chunk()?);
    Some((u32_at(bytes, 8)?, boot))
}

fn seal(bytes: &mut [u8; LENGTH]) {
    let (content, _) = bytes.split_at(60);
    let sum = crc32c::crc32c(content);
    put(bytes, 60, &sum.to_le_bytes());
}

fn is_sealed(bytes: &[u8; LENGTH]) -> bool {
    let (content, _) = bytes.split_at(60);
    u32_at(bytes, 60) == Some(crc32c::crc32c(content))
}

fn put(bytes: &mut [u8; LENGTH], at: usize, part: &[u8]) {
    for (place, byte) in bytes.iter_mut().skip(at).zip(part) {
        *place = *byte;
    }
}

fn u32_at(bytes: &[u8; LENGTH], at: usize) -> Option<u32> {
    let part = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*part))
}

fn u64_at(bytes: &[u8; LENGTH], at: usize) -> Option<u64> {
    let part = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*part))
}

#[cfg(test)]
mod tests {
    use super::{LENGTH, Record, header, parse_header};
    use crate::ids::ProcessId;
    use crate::keeper::protocol::Started;

    fn all() -> [Record; 5] {
        let attempt = ProcessId(0x0192_f5e0_7a4b_7c11_9d2e_5f6a_7b8c_9d0e);
        [
            Record::Intent(attempt),
            Record::Started(Started {
                attempt,
                pid: 4242,
                namespace: 1,
                inode: u64::MAX,
                ticks: 3,
                at: 4,
                contained: true,
            }),
            Record::Exited { attempt, status: 0x8b, at: 5, cpu_ms: 6, memory_max: 7 },
            Record::Failed { attempt, step: 9, errno: -2 },
            Record::Forgotten(attempt),
        ]
    }

    #[test]
    fn records_are_read_as_they_were_written_and_in_their_place_alone() {
        for record in all() {
            let bytes = record.to_bytes(17);
            assert_eq!(Record::from_bytes(&bytes, 17), Some(record));
            assert_eq!(Record::from_bytes(&bytes, 18), None);
        }
    }

    #[test]
    fn a_flipped_bit_is_found_wherever_it_is() {
        for record in all() {
            for bit in 0..LENGTH * 8 {
                let mut bytes = record.to_bytes(0);
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Record::from_bytes(&bytes, 0), None, "bit {bit}");
            }
        }
        assert_eq!(Record::from_bytes(&[0; LENGTH], 0), None);
    }

    #[test]
    fn headers_say_the_boot() {
        assert_eq!(parse_header(&header(7)), Some((1, 7)));
        let mut other = header(7);
        other[0] = b'x';
        assert_eq!(parse_header(&other), None);
    }
}
