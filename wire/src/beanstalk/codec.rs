//! Decodes commands from bytes, in order, regardless of how the input is split. Does no I/O.
//!
//! The decoder owns the framing: where a line ends, how long a body is, what is skipped. It does not buffer lines. It buffers
//! the part of a body that has arrived, unless the announced size exceeds the limit. It decides nothing about jobs.

use crate::beanstalk::command::{Command, Counted, Put, Refusal};
use crate::beanstalk::line::{self, Line, PutLine};
use std::borrow::Cow;

/// The maximum length of a command line, including its line end, in bytes.
pub const LINE_BYTES_MAX: usize = 224;

const END: &[u8; 2] = b"\r\n";

/// The initial capacity, in bytes, of the buffer for a body that arrives in pieces. If the whole body is shorter than this, the buffer has
/// exactly the length of the body; if the first piece is longer, the buffer has the length of that piece.
const BODY_STEP_BYTES: usize = 4096;

/// The framing state of one connection.
#[derive(Debug)]
pub struct Decoder {
    job_bytes_max: u32,
    state: State,
}

/// The part of the input that the next byte belongs to.
#[derive(Debug)]
enum State {
    /// A command line.
    Line,
    /// The rest of a line that exceeds the limit.
    Overlong {
        /// Whether the previous byte was a carriage return, the first half of a line end.
        half: bool,
    },
    /// A rejected body and its line end, which are skipped.
    Refused {
        left: u64,
        why: Refusal,
    },
    Body(Box<Incoming>),
    /// An HTTP request or a TLS handshake. All further input is discarded.
    Http,
}

/// A job whose body is still arriving.
#[derive(Debug)]
struct Incoming {
    line: PutLine,
    body: Vec<u8>,
    /// The number of bytes of the line end that have arrived.
    end: usize,
    /// Whether the bytes of the line end are correct so far.
    ended_well: bool,
}

impl Decoder {
    /// Creates a decoder for a new connection; bodies may have at most `job_bytes_max` bytes.
    pub fn new(job_bytes_max: u32) -> Self {
        Self { job_bytes_max, state: State::Line }
    }

    /// Takes bytes off the front of `input` until a command is complete, and returns their number and the command. If no command is
    /// complete, any bytes not taken are the start of a line, and must be passed again together with the bytes that follow.
    pub fn take<'a>(&mut self, input: &'a [u8]) -> (usize, Option<Command<'a>>) {
        let mut taken = 0;
        loop {
            let rest = input.get(taken..).unwrap_or(&[]);
            let (bytes, command) = match &mut self.state {
                State::Line => self.take_line(rest),
                State::Overlong { half } => match skip_line(half, rest) {
                    (bytes, true) => {
                        self.state = State::Line;
                        (bytes, Some(refused(Refusal::BadFormat, None)))
                    }
                    (bytes, false) => (bytes, None),
                },
                State::Refused { left, why } => {
                    let why = *why;
                    let len = u64::try_from(rest.len()).unwrap_or(u64::MAX);
                    let bytes = len.min(*left);
                    *left -= bytes;
                    let done = *left == 0;
                    if done {
                        self.state = State::Line;
                    }
                    let command = done.then(|| refused(why, Some(Counted::Put)));
                    (usize::try_from(bytes).unwrap_or(rest.len()), command)
                }
                State::Http => (rest.len(), None),
                State::Body(incoming) => {
                    let bytes = incoming.take(rest);
                    let command = incoming.complete().then(|| self.finish_body());
                    (bytes, command)
                }
            };
            taken += bytes;
            if command.is_some() || bytes == 0 {
                return (taken, command);
            }
        }
    }

    /// Returns the memory held by an unfinished body, in bytes.
    pub fn held_bytes(&self) -> usize {
        match &self.state {
            State::Body(incoming) => incoming.body.capacity(),
            State::Line | State::Overlong { .. } | State::Refused { .. } | State::Http => 0,
        }
    }

    /// Discards the unfinished body, if there is one. Its remaining bytes are skipped as they arrive, and the command is then refused with
    /// [`Refusal::OutOfMemory`].
    pub fn discard_body(&mut self) {
        if let State::Body(incoming) = &self.state {
            let missing = body_len(&incoming.line) + END.len() - incoming.body.len() - incoming.end;
            self.state = State::Refused { left: missing as u64, why: Refusal::OutOfMemory };
        }
    }

    /// Returns the announced length of the unfinished body, in bytes, or `None` if no body is being buffered.
    pub fn announced_bytes(&self) -> Option<u32> {
        match &self.state {
            State::Body(incoming) => Some(incoming.line.body_bytes),
            State::Line | State::Overlong { .. } | State::Refused { .. } | State::Http => None,
        }
    }

    /// Returns whether the body that is arriving is within the limit, or `None` if no body is arriving.
    pub(crate) fn put_under_way(&self) -> Option<bool> {
        match &self.state {
            State::Body(_) => Some(true),
            State::Refused { why, .. } => Some(*why != Refusal::JobTooBig),
            State::Line | State::Overlong { .. } | State::Http => None,
        }
    }

    fn take_line<'a>(&mut self, input: &'a [u8]) -> (usize, Option<Command<'a>>) {
        let window = input.get(..LINE_BYTES_MAX).unwrap_or(input);
        let Some(len) = line_len(window) else {
            if window.len() < LINE_BYTES_MAX {
                return (0, None);
            }
            if line::is_of_browser(window) {
                self.state = State::Http;
                return (LINE_BYTES_MAX, Some(Command::Http));
            }
            // The last byte is not taken, since it may be the first half of a line end.
            self.state = State::Overlong { half: false };
            return (LINE_BYTES_MAX - 1, None);
        };
        let taken = len + END.len();
        match line::read(input.get(..len).unwrap_or(input)) {
            Line::Command(command) => {
                if command == Command::Http {
                    self.state = State::Http;
                }
                (taken, Some(command))
            }
            Line::Put(put) => {
                let rest = input.get(taken..).unwrap_or(&[]);
                let (bytes, command) = self.begin_body(put, rest);
                (taken + bytes, command)
            }
        }
    }

    /// Begins the body of a `put` whose line was taken. Returns the number of bytes taken from `input`, and the command if the whole body
    /// is in `input` or the arguments are refused. Otherwise takes nothing, and sets the state in which the body is read or skipped.
    fn begin_body<'a>(
        &mut self,
        mut line: PutLine,
        input: &'a [u8],
    ) -> (usize, Option<Command<'a>>) {
        if line.body_bytes > self.job_bytes_max {
            let left = u64::from(line.body_bytes) + 2;
            let why = Refusal::JobTooBig;
            self.state = State::Refused { left, why };
            return (0, None);
        }
        if let Err(refusal) = line.tail {
            // The body is not skipped: the bytes that follow are parsed as a line.
            return (0, Some(refused(refusal, Some(Counted::Put))));
        }
        let len = body_len(&line);
        let Some((body, end)) = input.get(..len + END.len()).map(|whole| whole.split_at(len))
        else {
            self.state = State::Body(Box::new(Incoming {
                line,
                body: Vec::new(),
                end: 0,
                ended_well: true,
            }));
            return (0, None);
        };
        let command = put(&mut line, Cow::Borrowed(body), end == END);
        (len + END.len(), Some(command))
    }

    fn finish_body(&mut self) -> Command<'static> {
        let State::Body(incoming) = std::mem::replace(&mut self.state, State::Line) else {
            unreachable!("this is called only in the state `Body`");
        };
        let Incoming { mut line, body, ended_well, .. } = *incoming;
        put(&mut line, Cow::Owned(body), ended_well)
    }
}

impl Incoming {
    /// Takes the bytes of `input` that belong to the body and its line end, and returns their number.
    fn take(&mut self, input: &[u8]) -> usize {
        let size = body_len(&self.line);
        let missing = size - self.body.len();
        let part = input.get(..missing).unwrap_or(input);
        self.make_room(part.len(), size);
        self.body.extend_from_slice(part);
        let mut taken = part.len();
        while let (Some(expected), Some(byte)) = (END.get(self.end), input.get(taken)) {
            self.ended_well &= expected == byte;
            self.end += 1;
            taken += 1;
        }
        taken
    }

    /// Makes room for `more` bytes. Doubles the capacity, as a vector does, but not beyond `size`, so that a complete body has no spare
    /// capacity.
    fn make_room(&mut self, more: usize, size: usize) {
        let len = self.body.len() + more;
        if len > self.body.capacity() {
            let capacity = len.max(2 * self.body.len()).max(BODY_STEP_BYTES).min(size);
            self.body.reserve_exact(capacity - self.body.len());
        }
    }

    fn complete(&self) -> bool {
        self.end == END.len()
    }
}

/// Returns the complete `put`, or a refusal if the body is not terminated correctly.
fn put<'a>(line: &mut PutLine, body: Cow<'a, [u8]>, ended_well: bool) -> Command<'a> {
    if !ended_well {
        return refused(Refusal::ExpectedCrlf, Some(Counted::Put));
    }
    Command::Put(Put {
        priority: line.priority,
        delay: line.delay,
        ttr: line.ttr,
        dedup: line.tail.as_mut().map_or(None, Option::take),
        body,
    })
}

fn refused(refusal: Refusal, counted: Option<Counted>) -> Command<'static> {
    Command::Refused { refusal, counted }
}

fn body_len(line: &PutLine) -> usize {
    usize::try_from(line.body_bytes).expect("usize should have at least 32 bits")
}

/// Returns the offset of the first line end; `None` if there is none.
fn line_len(window: &[u8]) -> Option<usize> {
    window.windows(END.len()).position(|pair| pair == END)
}

/// Skips to the end of the line. Returns the number of bytes skipped, and whether the end was found.
fn skip_line(half: &mut bool, input: &[u8]) -> (usize, bool) {
    for (at, byte) in input.iter().enumerate() {
        if *half && *byte == b'\n' {
            return (at + 1, true);
        }
        *half = *byte == b'\r';
    }
    (input.len(), false)
}
