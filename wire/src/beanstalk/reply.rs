//! Encodes the server's replies. Does no I/O, and copies each body once, into the output.

use crate::beanstalk::command::{Refusal, ReserveMode};
use crate::beanstalk::decimal::{DIGITS_MAX, put_number};
use crate::beanstalk::stats::{JobState, JobStats, ServerStats, TubeStats};
use std::fmt;

/// A reply to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The reply `INSERTED id`.
    Inserted(u64),
    /// `INSERTED id STATE [priority]`, an extension: another job has the same key.
    InsertedBefore {
        /// The id of the job with that key.
        id: u64,
        state: JobState,
        /// Its priority, if this `put` raised it.
        priority: Option<u32>,
    },
    /// The reply `EXPECTED_CRLF`.
    ExpectedCrlf,
    /// The reply `JOB_TOO_BIG`.
    JobTooBig,
    /// The reply `DRAINING`.
    Draining,
    /// The reply `USING tube`.
    Using(&'a [u8]),
    /// `USING mode`, an extension: the reply to `reserve-mode`.
    UsingMode(ReserveMode),
    /// `RESERVED id bytes`, followed by the body.
    Reserved(Job<'a>),
    /// `RESERVED_BATCH count`, an extension, followed by each job in the form of `RESERVED`.
    ReservedBatch(Vec<Job<'a>>),
    /// The reply `DEADLINE_SOON`.
    DeadlineSoon,
    /// The reply `TIMED_OUT`.
    TimedOut,
    /// The reply `DELETED`.
    Deleted,
    /// `DELETED_BATCH deleted absent`, an extension.
    DeletedBatch {
        /// The number of jobs deleted.
        deleted: u64,
        /// The number of jobs that did not exist or were reserved by another client.
        absent: u64,
    },
    /// The reply `RELEASED`.
    Released,
    /// The reply `BURIED`.
    Buried,
    /// The reply `TOUCHED`.
    Touched,
    /// The reply `WATCHING count`.
    Watching(u64),
    /// The reply `NOT_IGNORED`.
    NotIgnored,
    /// `FOUND id bytes`, followed by the body.
    Found(Job<'a>),
    /// `KICKED count`, the reply to `kick`.
    Kicked(u64),
    /// `KICKED`, the reply to `kick-job`.
    JobKicked,
    /// The reply `PAUSED`.
    Paused,
    /// `FLUSHED count`, an extension.
    Flushed(u64),
    /// `OK bytes`, followed by the statistics of a job.
    JobStats(JobStats<'a>),
    /// `OK bytes`, followed by the statistics of a tube.
    TubeStats(TubeStats<'a>),
    /// `OK bytes`, followed by the statistics of the server.
    ServerStats(Box<ServerStats<'a>>),
    /// `OK bytes`, followed by the names of tubes.
    Tubes(Vec<&'a [u8]>),
    /// The reply `NOT_FOUND`.
    NotFound,
    /// The reply `OUT_OF_MEMORY`.
    OutOfMemory,
    /// The reply `INTERNAL_ERROR`.
    InternalError,
    /// The reply `BAD_FORMAT`.
    BadFormat,
    /// The reply `UNKNOWN_COMMAND`.
    UnknownCommand,
}

/// A job, as sent to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job<'a> {
    /// The job's id.
    pub id: u64,
    /// The job's body, without the line end.
    pub body: &'a [u8],
}

impl From<Refusal> for Reply<'_> {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::BadFormat => Self::BadFormat,
            Refusal::UnknownCommand => Self::UnknownCommand,
            Refusal::JobTooBig => Self::JobTooBig,
            Refusal::ExpectedCrlf => Self::ExpectedCrlf,
            Refusal::OutOfMemory => Self::OutOfMemory,
        }
    }
}

/// Appends a reply to `output`.
pub fn encode(reply: &Reply<'_>, output: &mut Vec<u8>) {
    match reply {
        Reply::Inserted(id) => put_numbers(output, "INSERTED", &[*id]),
        Reply::InsertedBefore { id, state, priority } => {
            output.extend_from_slice(b"INSERTED ");
            put_number(output, *id);
            output.push(b' ');
            output.extend_from_slice(state.word().to_ascii_uppercase().as_bytes());
            let priority = priority.map(u64::from);
            put_numbers(output, "", priority.as_slice());
        }
        Reply::Using(tube) => put_word(output, "USING", tube),
        Reply::UsingMode(mode) => put_word(output, "USING", mode.word().as_bytes()),
        Reply::Reserved(job) => put_job(output, "RESERVED", *job),
        Reply::ReservedBatch(jobs) => {
            put_numbers(output, "RESERVED_BATCH", &[count(jobs.len())]);
            for job in jobs {
                put_job(output, "RESERVED", *job);
            }
        }
        Reply::DeletedBatch { deleted, absent } => {
            put_numbers(output, "DELETED_BATCH", &[*deleted, *absent]);
        }
        Reply::Watching(watched) => put_numbers(output, "WATCHING", &[*watched]),
        Reply::Found(job) => put_job(output, "FOUND", *job),
        Reply::Kicked(kicked) => put_numbers(output, "KICKED", &[*kicked]),
        Reply::Flushed(flushed) => put_numbers(output, "FLUSHED", &[*flushed]),
        Reply::JobStats(stats) => put_block(output, &stats.to_yaml()),
        Reply::TubeStats(stats) => put_block(output, &stats.to_yaml()),
        Reply::ServerStats(stats) => put_block(output, &stats.to_yaml()),
        Reply::Tubes(names) => put_list(output, names),
        Reply::ExpectedCrlf => put_line(output, "EXPECTED_CRLF"),
        Reply::JobTooBig => put_line(output, "JOB_TOO_BIG"),
        Reply::Draining => put_line(output, "DRAINING"),
        Reply::DeadlineSoon => put_line(output, "DEADLINE_SOON"),
        Reply::TimedOut => put_line(output, "TIMED_OUT"),
        Reply::Deleted => put_line(output, "DELETED"),
        Reply::Released => put_line(output, "RELEASED"),
        Reply::Buried => put_line(output, "BURIED"),
        Reply::Touched => put_line(output, "TOUCHED"),
        Reply::NotIgnored => put_line(output, "NOT_IGNORED"),
        Reply::JobKicked => put_line(output, "KICKED"),
        Reply::Paused => put_line(output, "PAUSED"),
        Reply::NotFound => put_line(output, "NOT_FOUND"),
        Reply::OutOfMemory => put_line(output, "OUT_OF_MEMORY"),
        Reply::InternalError => put_line(output, "INTERNAL_ERROR"),
        Reply::BadFormat => put_line(output, "BAD_FORMAT"),
        Reply::UnknownCommand => put_line(output, "UNKNOWN_COMMAND"),
    }
}

fn put_line(output: &mut Vec<u8>, words: &str) {
    output.extend_from_slice(words.as_bytes());
    output.extend_from_slice(b"\r\n");
}

fn put_word(output: &mut Vec<u8>, first: &str, second: &[u8]) {
    output.extend_from_slice(first.as_bytes());
    output.push(b' ');
    output.extend_from_slice(second);
    output.extend_from_slice(b"\r\n");
}

fn put_numbers(output: &mut Vec<u8>, word: &str, numbers: &[u64]) {
    output.extend_from_slice(word.as_bytes());
    for number in numbers {
        output.push(b' ');
        put_number(output, *number);
    }
    output.extend_from_slice(b"\r\n");
}

fn put_job(output: &mut Vec<u8>, word: &str, job: Job<'_>) {
    output.reserve(word.len() + 2 * (1 + DIGITS_MAX) + 4 + job.body.len());
    put_numbers(output, word, &[job.id, count(job.body.len())]);
    output.extend_from_slice(job.body);
    output.extend_from_slice(b"\r\n");
}

fn put_block(output: &mut Vec<u8>, block: &[u8]) {
    put_numbers(output, "OK", &[count(block.len())]);
    output.extend_from_slice(block);
    output.extend_from_slice(b"\r\n");
}

/// Appends a list of tubes. Names are unquoted here, unlike in statistics.
fn put_list(output: &mut Vec<u8>, names: &[&[u8]]) {
    const HEAD: &[u8] = b"---\n";
    let len = HEAD.len() + names.iter().map(|name| name.len() + 3).sum::<usize>();
    output.reserve(len + DIGITS_MAX + 7);
    put_numbers(output, "OK", &[count(len)]);
    output.extend_from_slice(HEAD);
    for name in names {
        output.extend_from_slice(b"- ");
        output.extend_from_slice(name);
        output.push(b'\n');
    }
    output.extend_from_slice(b"\r\n");
}

fn count(len: usize) -> u64 {
    u64::try_from(len).expect("usize should have at most 64 bits")
}

/// Formats the first line of the reply, for the log.
impl fmt::Display for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut output = Vec::new();
        encode(self, &mut output);
        let line = output.split(|byte| *byte == b'\r').next().unwrap_or(&[]);
        write!(f, "{}", line.escape_ascii())
    }
}
