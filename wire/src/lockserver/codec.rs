//! Decodes LockServer's commands and encodes its answers. Does no I/O, and allocates only for names and the output.

use crate::lockserver::stats::{self, Stats};
use sexton::actors::lock::{EntryView, Name};
use sexton::config::LongWidth;
use std::fmt;

/// A command, as sent by a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// 01: asks who owns a lock.
    FindOwner(Lock),
    /// 02: requests a lock.
    Request {
        lock: Lock,
        /// The requesting owner.
        owner: Name,
        /// The time to live (TTL): for how long the owner holds the lock unless it is renewed, in seconds.
        ttl: u16,
        /// The time to wait (TTW): for how long a contender stays in line unless its request is renewed, in seconds.
        ttw: u16,
        /// The priority among contenders.
        priority: u8,
    },
    /// 03: requests a contender's position.
    FindContender(Lock, Name),
    /// 04: renews a lock.
    Renew(Lock, Name),
    /// 05: releases a lock; an index of `*` means every index of the key.
    Release(Lock, Name),
    /// 06: releases every lock of an owner, and withdraws its requests.
    ReleaseAll(Name),
    /// 07: lists the owners and contenders of a key.
    List(Name),
    /// 08: requests the statistics.
    Stats,
}

/// A key and an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The key.
    pub key: Name,
    /// The index.
    pub index: Name,
}

/// The names of the commands from 01 on.
pub const COMMANDS: [&str; 8] = [
    "find owner",
    "request",
    "find contender",
    "renew",
    "release",
    "release all",
    "list",
    "statistics",
];

/// The maximum length of a command, in bytes: a request with three names of 255 bytes.
pub const COMMAND_BYTES_MAX: usize = 1 + 3 * 256 + 5;

/// The error for bytes that are not a command. It is unknown where the next command begins, so the connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The first byte is not one of 01 to 08.
    #[error("unknown command {0:02x}: expected 01 to 08")]
    UnknownCommand(u8),
}

/// Decodes the command at the start of `bytes` and returns it with its length, or `None` if more bytes are needed.
pub fn decode(bytes: &[u8]) -> Result<Option<(Command, usize)>, WireError> {
    let Some((code, rest)) = bytes.split_first() else {
        return Ok(None);
    };
    if !(1..=COMMANDS.len()).contains(&usize::from(*code)) {
        return Err(WireError::UnknownCommand(*code));
    }
    let mut arguments = Arguments { rest };
    let command = arguments.command(*code);
    Ok(command.map(|command| (command, bytes.len() - arguments.rest.len())))
}

/// The unparsed arguments of a command.
struct Arguments<'a> {
    rest: &'a [u8],
}

impl Arguments<'_> {
    fn command(&mut self, code: u8) -> Option<Command> {
        Some(match code {
            1 => Command::FindOwner(self.lock()?),
            2 => Command::Request {
                lock: self.lock()?,
                owner: self.name()?,
                ttl: self.u16()?,
                ttw: self.u16()?,
                priority: self.u8()?,
            },
            3 => Command::FindContender(self.lock()?, self.name()?),
            4 => Command::Renew(self.lock()?, self.name()?),
            5 => Command::Release(self.lock()?, self.name()?),
            6 => Command::ReleaseAll(self.name()?),
            7 => Command::List(self.name()?),
            _ => Command::Stats,
        })
    }

    fn lock(&mut self) -> Option<Lock> {
        Some(Lock { key: self.name()?, index: self.name()? })
    }

    fn name(&mut self) -> Option<Name> {
        let (len, rest) = self.rest.split_first()?;
        let (name, rest) = rest.split_at_checked((*len).into())?;
        self.rest = rest;
        Name::new(name)
    }

    fn u16(&mut self) -> Option<u16> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u16::from_be_bytes(*bytes))
    }

    fn u8(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }
}

/// An answer to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Answer to 01: the owner; `None` is sent as an empty name.
    Owner(Option<Name>),
    /// Answer to 02 and 03: the position in line. 1 is the owner of the lock, and 0 means not in line.
    Location(u32),
    /// Answer to 04: whether the lock was renewed.
    Renewed(bool),
    /// Answer to 05 and 06: the number of entries removed.
    Count(u32),
    /// Answer to 07: the entries of the key.
    List(Vec<EntryView>),
    /// Answer to 08: the statistics.
    Stats(Stats),
}

/// The maximum number of entries in an answer to 07, whose count has two bytes.
pub const LISTED_MAX: u32 = 65_535;

/// Appends an answer to `output`. `long` is the width of the statistics whose type in C is `long`.
pub fn encode(answer: &Answer, long: LongWidth, output: &mut Vec<u8>) {
    match answer {
        Answer::Owner(owner) => put_name(output, owner.as_ref().map_or(&[], Name::as_bytes)),
        Answer::Location(number) | Answer::Count(number) => {
            output.extend_from_slice(&saturated(*number).to_be_bytes());
        }
        Answer::Renewed(renewed) => output.push(u8::from(*renewed)),
        Answer::List(entries) => {
            let entries = entries.get(..LISTED_MAX as usize).unwrap_or(entries);
            let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
            output.extend_from_slice(&saturated(count).to_be_bytes());
            for entry in entries {
                output.push(entry.priority);
                output.extend_from_slice(&entry.ttl.to_be_bytes());
                output.extend_from_slice(&entry.ttw.to_be_bytes());
                put_name(output, entry.index.as_bytes());
                put_name(output, entry.owner.as_bytes());
                output.push(u8::from(entry.place == 1));
            }
        }
        Answer::Stats(stats) => put_stats(output, stats, long),
    }
}

fn put_stats(output: &mut Vec<u8>, stats: &Stats, long: LongWidth) {
    for number in stats::ints(stats) {
        output.extend_from_slice(&number.to_be_bytes());
    }
    for number in stats::longs(stats) {
        match long {
            // Row 31 of `docs/protocols/lockserver.md`: counters wrap as in C.
            LongWidth::Four => output.extend_from_slice(&low_half(number).to_be_bytes()),
            LongWidth::Eight => output.extend_from_slice(&number.to_be_bytes()),
        }
    }
    output.extend_from_slice(&saturated(stats.active).to_be_bytes());
}

fn low_half(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

fn saturated(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn put_name(output: &mut Vec<u8>, name: &[u8]) {
    output.push(u8::try_from(name.len()).expect("names should have at most 255 bytes"));
    output.extend_from_slice(name);
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.key, self.index)
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FindOwner(lock) => write!(f, "find owner {lock}"),
            Self::Request { lock, owner, ttl, ttw, priority } => {
                write!(f, "request {lock} {owner:?} ttl={ttl} ttw={ttw} priority={priority}")
            }
            Self::FindContender(lock, owner) => write!(f, "find contender {lock} {owner:?}"),
            Self::Renew(lock, owner) => write!(f, "renew {lock} {owner:?}"),
            Self::Release(lock, owner) => write!(f, "release {lock} {owner:?}"),
            Self::ReleaseAll(owner) => write!(f, "release all {owner:?}"),
            Self::List(key) => write!(f, "list {key:?}"),
            Self::Stats => f.write_str("stats"),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(Some(owner)) => write!(f, "{owner:?}"),
            Self::Owner(None) => f.write_str("nobody"),
            Self::Location(number) => write!(f, "location {number}"),
            Self::Renewed(true) => f.write_str("renewed"),
            Self::Renewed(false) => f.write_str("not there"),
            Self::Count(number) => write!(f, "{number} ended"),
            Self::List(entries) => write!(f, "{} entries", entries.len()),
            Self::Stats(stats) => write!(f, "{stats:?}"),
        }
    }
}
