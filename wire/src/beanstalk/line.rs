//! Parses a command line with exactly the leniency of beanstalkd.
//!
//! The beginning of a line determines the command, and any error after that is a bad format of that command. Numbers may be preceded by
//! spaces, and those of `kick` and `reserve-with-timeout` may be followed by anything.

use crate::beanstalk::command::{
    Command, Counted, Dedup, RESERVE_BATCH_MAX, Refusal, ReserveMode, TubeName,
};

/// The content of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// A complete command.
    Command(Command<'a>),
    /// A `put`, whose body follows.
    Put(PutLine),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct PutLine {
    pub(super) priority: u32,
    pub(super) delay: u32,
    /// The reservation time in seconds; at least 1.
    pub(super) ttr: u32,
    pub(super) body_bytes: u32,
    /// The deduplication key, if there is one after the size; `Err` if anything else follows the size. The error is reported only if the
    /// body is not too big.
    pub(super) tail: Result<Option<Dedup>, Refusal>,
}

/// The commands. If the name of one command is the beginning of another's, [`VERBS`] lists the longer name first.
#[derive(Clone, Copy)]
enum Verb {
    Put,
    Delete,
    ReserveWithTimeout,
    ReserveJob,
    ReserveMode,
    ReserveBatch,
    Reserve,
    Release,
    Bury,
    Touch,
    Use,
    Watch,
    Ignore,
    PeekReady,
    PeekDelayed,
    PeekBuried,
    Peek,
    KickJob,
    Kick,
    StatsJob,
    StatsTube,
    Stats,
    ListTubesWatched,
    ListTubeUsed,
    ListTubes,
    PauseTube,
    Quit,
    DeleteBatch,
    FlushTube,
}

const VERBS: &[(&[u8], Verb)] = &[
    (b"put ", Verb::Put),
    (b"delete ", Verb::Delete),
    (b"reserve-with-timeout ", Verb::ReserveWithTimeout),
    (b"reserve-job ", Verb::ReserveJob),
    (b"reserve-mode ", Verb::ReserveMode),
    (b"reserve-batch ", Verb::ReserveBatch),
    (b"reserve", Verb::Reserve),
    (b"release ", Verb::Release),
    (b"bury ", Verb::Bury),
    (b"touch ", Verb::Touch),
    (b"use ", Verb::Use),
    (b"watch ", Verb::Watch),
    (b"ignore ", Verb::Ignore),
    (b"peek-ready", Verb::PeekReady),
    (b"peek-delayed", Verb::PeekDelayed),
    (b"peek-buried", Verb::PeekBuried),
    (b"peek ", Verb::Peek),
    (b"kick-job ", Verb::KickJob),
    (b"kick ", Verb::Kick),
    (b"stats-job ", Verb::StatsJob),
    (b"stats-tube ", Verb::StatsTube),
    (b"stats", Verb::Stats),
    (b"list-tubes-watched", Verb::ListTubesWatched),
    (b"list-tube-used", Verb::ListTubeUsed),
    (b"list-tubes", Verb::ListTubes),
    // No space: the name may follow directly.
    (b"pause-tube", Verb::PauseTube),
    (b"quit", Verb::Quit),
    (b"delete-batch ", Verb::DeleteBatch),
    (b"flush-tube ", Verb::FlushTube),
];

/// Returns the names of all commands, for the table of what each may do.
#[doc(hidden)]
pub fn verbs() -> impl Iterator<Item = &'static str> {
    let names = VERBS.iter().map(|(begin, _)| std::str::from_utf8(begin.trim_ascii()));
    names.map(|name| name.expect("the name of a command should be ASCII"))
}

/// The beginnings of HTTP requests: the methods that a browser lets a page use without a preflight, and the preflight itself.
const METHODS: &[&[u8]] = &[b"GET ", b"HEAD ", b"POST ", b"OPTIONS "];

/// The header that precedes the body of every HTTP/1.1 request, whatever the method. Matched without regard to case.
const HOST: &[u8] = b"host:";

/// The beginning of a TLS handshake: the type of the record, and the first byte of the version. A browser can be made to open one to this
/// port, with text of a web page's choice in it.
const HANDSHAKE: &[u8] = &[0x16, 0x03];

/// Returns whether a line, or its beginning, is what browsers send: the first line of an HTTP request or its `Host` header, or a TLS
/// handshake.
pub(super) fn is_of_browser(line: &[u8]) -> bool {
    let header = line.get(..HOST.len());
    METHODS.iter().any(|method| line.starts_with(method))
        || line.starts_with(HANDSHAKE)
        || header.is_some_and(|header| header.eq_ignore_ascii_case(HOST))
}

/// Parses a line without its line end.
pub(super) fn read(line: &[u8]) -> Line<'_> {
    if is_of_browser(line) {
        return Line::Command(Command::Http);
    }
    if line.contains(&0) {
        return refused(Refusal::BadFormat, None);
    }
    let verb = VERBS.iter().find_map(|(begin, verb)| Some((*verb, line.strip_prefix(*begin)?)));
    let Some((verb, rest)) = verb else {
        return refused(Refusal::UnknownCommand, None);
    };
    Arguments { rest }.line(verb).unwrap_or_else(|| refused(Refusal::BadFormat, None))
}

fn refused(refusal: Refusal, counted: Option<Counted>) -> Line<'static> {
    Line::Command(Command::Refused { refusal, counted })
}

/// The arguments after the verb, which are consumed one by one. Methods return `None` for a bad format.
struct Arguments<'a> {
    rest: &'a [u8],
}

impl<'a> Arguments<'a> {
    fn line(&mut self, verb: Verb) -> Option<Line<'a>> {
        Some(Line::Command(match verb {
            Verb::Put => return self.put().map(Line::Put),
            Verb::Delete => Command::Delete(self.last_u64()?),
            // Anything after the number is ignored.
            Verb::ReserveWithTimeout => Command::ReserveWithTimeout(self.timeout()?),
            Verb::ReserveJob => Command::ReserveJob(self.last_u64()?),
            Verb::ReserveMode => Command::ReserveMode(self.reserve_mode()?),
            Verb::ReserveBatch => Command::ReserveBatch(self.batch()?),
            Verb::Reserve => self.end(Command::Reserve)?,
            Verb::Release => {
                Command::Release { id: self.u64()?, priority: self.u32()?, delay: self.last_u32()? }
            }
            Verb::Bury => Command::Bury { id: self.u64()?, priority: self.last_u32()? },
            Verb::Touch => Command::Touch(self.last_u64()?),
            Verb::Use => Command::Use(self.tube()?),
            Verb::Watch => self.watch()?,
            Verb::Ignore => Command::Ignore(self.tube()?),
            Verb::PeekReady => self.end(Command::PeekReady)?,
            Verb::PeekDelayed => self.end(Command::PeekDelayed)?,
            Verb::PeekBuried => self.end(Command::PeekBuried)?,
            Verb::Peek => Command::Peek(self.last_u64()?),
            Verb::KickJob => Command::KickJob(self.last_u64()?),
            Verb::Kick => Command::Kick(self.bound()?),
            Verb::StatsJob => Command::StatsJob(self.last_u64()?),
            Verb::StatsTube => Command::StatsTube(self.tube()?),
            Verb::Stats => self.end(Command::Stats)?,
            Verb::ListTubesWatched => self.end(Command::ListTubesWatched)?,
            Verb::ListTubeUsed => self.end(Command::ListTubeUsed)?,
            Verb::ListTubes => self.end(Command::ListTubes)?,
            Verb::Quit => Command::Quit,
            Verb::DeleteBatch => Command::DeleteBatch(self.ids()?),
            Verb::FlushTube => Command::FlushTube(self.tube()?),
            Verb::PauseTube => self.pause_tube()?,
        }))
    }

    fn put(&mut self) -> Option<PutLine> {
        Some(PutLine {
            priority: self.u32()?,
            delay: self.u32()?,
            ttr: self.u32()?.max(1),
            body_bytes: self.u32()?,
            tail: self.dedup(),
        })
    }

    /// Parses an optional ` idp:key[:ttl]`. Returns `Ok(None)` at the end of the line, and an error if anything else follows.
    fn dedup(&mut self) -> Result<Option<Dedup>, Refusal> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.tag().map(Some).ok_or(Refusal::BadFormat)
    }

    fn tag(&mut self) -> Option<Dedup> {
        self.rest = self.rest.strip_prefix(b" ")?;
        self.skip_spaces();
        self.rest = self.rest.strip_prefix(b"idp:")?;
        let key = TubeName::new(self.take_while(|byte| byte != b':'))?;
        let ttl = match self.rest {
            [] => 0,
            [_colon, b'0'..=b'9', ..] => {
                self.rest = self.rest.strip_prefix(b":")?;
                self.last_u32()?
            }
            _ => return None,
        };
        Some(Dedup { key: key.as_bytes().into(), ttl })
    }

    fn pause_tube(&mut self) -> Option<Command<'a>> {
        self.skip_spaces();
        let name = self.take_while(TubeName::may_hold);
        if name.is_empty() {
            return None;
        }
        let seconds = self.last_u32()?;
        Some(match TubeName::new(name) {
            Some(tube) => Command::PauseTube { tube, seconds },
            // The name is too long or begins with a hyphen. beanstalkd counts the command before it checks the name.
            None => {
                Command::Refused { refusal: Refusal::BadFormat, counted: Some(Counted::PauseTube) }
            }
        })
    }

    fn watch(&mut self) -> Option<Command<'a>> {
        let name = self.take_while(|byte| byte != b' ');
        let weight = match self.rest {
            [] => None,
            _ => Some(self.last_u32().filter(|weight| *weight > 0)?),
        };
        let tube = TubeName::new(name)?;
        Some(Command::Watch { tube, weight })
    }

    fn reserve_mode(&mut self) -> Option<ReserveMode> {
        match self.rest {
            b"default" => Some(ReserveMode::Default),
            b"fifo" => Some(ReserveMode::Fifo),
            b"weighted" => Some(ReserveMode::Weighted),
            _ => None,
        }
    }

    fn batch(&mut self) -> Option<u32> {
        self.last_u32().filter(|jobs| (1..=RESERVE_BATCH_MAX).contains(jobs))
    }

    fn ids(&mut self) -> Option<Vec<u64>> {
        let mut ids = vec![self.u64()?];
        while !self.rest.is_empty() {
            ids.push(self.u64()?);
        }
        Some(ids)
    }

    fn timeout(&mut self) -> Option<u32> {
        self.u32().filter(|seconds| i32::try_from(*seconds).is_ok())
    }

    /// Parses the number of `kick` as C's `strtoul` does. White space of any kind and a sign may precede it, and anything may
    /// follow. A number that does not fit into 64 bits is a bad format; otherwise, the low 32 bits are used.
    fn bound(&mut self) -> Option<u32> {
        self.take_while(|byte| byte == b' ' || (b'\t'..=b'\r').contains(&byte));
        let negative = match self.rest {
            [sign @ (b'-' | b'+'), rest @ ..] => {
                self.rest = rest;
                *sign == b'-'
            }
            _ => false,
        };
        let number = self.digits()?;
        let number = if negative { number.wrapping_neg() } else { number };
        u32::try_from(number & u64::from(u32::MAX)).ok()
    }

    /// Parses the rest of the line as a tube name.
    fn tube(&mut self) -> Option<TubeName<'a>> {
        TubeName::new(self.rest)
    }

    fn last_u64(&mut self) -> Option<u64> {
        let number = self.u64()?;
        self.end(number)
    }

    fn last_u32(&mut self) -> Option<u32> {
        let number = self.u32()?;
        self.end(number)
    }

    fn u32(&mut self) -> Option<u32> {
        u32::try_from(self.u64()?).ok()
    }

    fn u64(&mut self) -> Option<u64> {
        self.skip_spaces();
        self.digits()
    }

    /// Parses digits; returns `None` if there are none, or if the number does not fit into 64 bits.
    fn digits(&mut self) -> Option<u64> {
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        if digits.is_empty() {
            return None;
        }
        digits.iter().try_fold(0_u64, |number, digit| {
            number.checked_mul(10)?.checked_add((digit - b'0').into())
        })
    }

    fn skip_spaces(&mut self) {
        self.take_while(|byte| byte == b' ');
    }

    fn take_while(&mut self, holds: impl Fn(u8) -> bool) -> &'a [u8] {
        let len = self.rest.iter().take_while(|byte| holds(**byte)).count();
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }

    fn end<T>(&self, value: T) -> Option<T> {
        self.rest.is_empty().then_some(value)
    }
}
