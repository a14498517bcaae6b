//! The table of lines and their results, and a decoder that is fed as by a connection.

use sexton_wire::beanstalk::{Command, Decoder, Reply};

/// The maximum size of a body, in bytes: beanstalkd's own default.
pub(crate) const JOB_BYTES_MAX: u32 = 65_535;

/// One row of the table.
pub(crate) struct Row {
    /// Its text in the table.
    pub(crate) text: &'static str,
    pub(crate) known_to: KnownTo,
    pub(crate) input: Vec<u8>,
    /// The result of each command: the command as the log shows it, or its error.
    pub(crate) outcomes: Vec<String>,
}

/// The programs that behave as the row states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownTo {
    /// Every beanstalkd since 1.12.
    Beanstalkd,
    /// beanstalkd since 1.13.
    Since13,
    /// Only sexton.
    Ours,
}

impl Row {
    pub(crate) fn all() -> Vec<Self> {
        let mut known_to = KnownTo::Ours;
        let mut rows = Vec::new();
        for text in include_str!("lines.txt").lines() {
            match text {
                "[beanstalkd]" => known_to = KnownTo::Beanstalkd,
                "[1.13]" => known_to = KnownTo::Since13,
                "[ours]" => known_to = KnownTo::Ours,
                _ if text.is_empty() || text.starts_with('#') => {}
                _ => rows.push(Self::read(text, known_to)),
            }
        }
        rows
    }

    fn read(text: &'static str, known_to: KnownTo) -> Self {
        let (input, outcomes) = text.rsplit_once(" => ").expect("a row has two sides");
        let mut input = expand(input.as_bytes());
        input.extend_from_slice(b"\r\n");
        let outcomes = String::from_utf8(expand(outcomes.as_bytes())).expect("outcomes are text");
        Self { text, known_to, input, outcomes: outcomes.split(" ; ").map(str::to_owned).collect() }
    }
}

/// Expands escapes to bytes, and `{x*3}` to `xxx`.
fn expand(mut text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !text.is_empty() {
        if let Some((byte, times, rest)) = repetition(text) {
            bytes.resize(bytes.len() + times, byte);
            text = rest;
        } else {
            let (byte, rest) = unit(text).expect("there is more");
            bytes.push(byte);
            text = rest;
        }
    }
    bytes
}

fn repetition(text: &[u8]) -> Option<(u8, usize, &[u8])> {
    let (byte, rest) = unit(text.strip_prefix(b"{")?)?;
    let rest = rest.strip_prefix(b"*")?;
    let end = rest.iter().position(|byte| *byte == b'}')?;
    let (times, rest) = rest.split_at_checked(end)?;
    let times = std::str::from_utf8(times).ok()?.parse().ok()?;
    Some((byte, times, rest.strip_prefix(b"}")?))
}

fn unit(text: &[u8]) -> Option<(u8, &[u8])> {
    Some(match text {
        [b'\\', b'x', high, low, rest @ ..] => {
            let digits = [*high, *low];
            let digits = std::str::from_utf8(&digits).ok()?;
            (u8::from_str_radix(digits, 16).ok()?, rest)
        }
        [b'\\', b'r', rest @ ..] => (b'\r', rest),
        [b'\\', b'n', rest @ ..] => (b'\n', rest),
        [b'\\', b't', rest @ ..] => (b'\t', rest),
        [b'\\', b'0', rest @ ..] => (0, rest),
        [byte, rest @ ..] => (*byte, rest),
        [] => return None,
    })
}

/// The results of bytes that arrive in parts, as over one connection.
pub(crate) struct Client {
    decoder: Decoder,
    /// Bytes that the decoder has not consumed yet.
    rest: Vec<u8>,
    pub(crate) outcomes: Vec<String>,
    /// The body of each job.
    pub(crate) bodies: Vec<Vec<u8>>,
    /// The maximum memory that the decoder held between two parts, in bytes.
    pub(crate) held_bytes_max: usize,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self {
            decoder: Decoder::new(JOB_BYTES_MAX),
            rest: Vec::new(),
            outcomes: Vec::new(),
            bodies: Vec::new(),
            held_bytes_max: 0,
        }
    }

    /// Returns the results of these parts, in order.
    pub(crate) fn of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut client = Self::new();
        for piece in pieces {
            client.offer(piece);
        }
        client
    }

    pub(crate) fn offer(&mut self, piece: &[u8]) {
        self.rest.extend_from_slice(piece);
        let mut taken = 0;
        loop {
            let (bytes, command) = self.decoder.take(self.rest.get(taken..).unwrap_or(&[]));
            taken += bytes;
            assert!(taken <= self.rest.len(), "the decoder takes only existing bytes");
            let Some(command) = command else { break };
            assert!(bytes > 0, "a command has bytes");
            self.outcomes.push(outcome(&command));
            if let Command::Put(put) = command {
                self.bodies.push(put.body.into_owned());
            }
        }
        self.rest.drain(..taken);
        self.held_bytes_max = self.held_bytes_max.max(self.decoder.held_bytes() + self.rest.len());
    }
}

fn outcome(command: &Command<'_>) -> String {
    if let Command::Refused { refusal, .. } = command {
        return Reply::from(*refusal).to_string();
    }
    command.to_string()
}

/// Returns whether an outcome is an error. The replies of other outcomes depend on queues.
pub(crate) fn is_refusal(outcome: &str) -> bool {
    matches!(outcome, "BAD_FORMAT" | "UNKNOWN_COMMAND" | "EXPECTED_CRLF" | "JOB_TOO_BIG")
}
