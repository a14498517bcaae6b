//! Sends requests to a running coordinator, with limits on the time and size of an answer. Also follows streams of events, and repeats
//! requests that wait, or that have an idempotency key, after the coordinator restarts.

use crate::client::answer::{Answer, Fields, with_query};
use crate::client::connection::Connection;
use crate::client::returning::Pauses;
use crate::client::target::Target;
use crate::report::{BOTH_WAYS, Failure, tell};
use serde_json::{Map, Value};
use sexton::persist::disk::RealDisk;
use sexton::refusal::Reason;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long the coordinator may take to answer a request that does not wait for anything.
const TIMEOUT: Duration = Duration::from_secs(15);

/// How long to keep repeating a request with an idempotency key while the coordinator is down. The coordinator remembers keys for longer
/// than that.
const RETURN_MAX: Duration = Duration::from_mins(5);

/// How long to keep repeating a request with an idempotency key while too many requests are waiting. The keeper holds what a launch needs for
/// longer than that.
const CROWDED_MAX: Duration = Duration::from_secs(30);

/// The maximum size of an answer that announces its length, in bytes: a job may be that long.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// The maximum size of the body of an answer that does not announce its length, and of a refusal, in bytes.
const REFUSAL_BYTES_MAX: u64 = 4 << 20;

/// How long a stream may be silent. The coordinator sends a keep-alive every 15 s.
const SILENCE: Duration = Duration::from_secs(45);

/// The size of the buffer for reading an answer, in bytes. Most answers are shorter.
const READ_BYTES: usize = 1 << 10;

/// The maximum sizes, in bytes, of the head of an answer, of one chunk of a stream, and of one of its lines, which may span chunks.
const HEAD_BYTES_MAX: usize = 16 << 10;
const CHUNK_BYTES_MAX: usize = 1 << 20;
const LINE_BYTES_MAX: usize = 4 << 20;

/// The maximum length of the line with the size of a chunk, in bytes.
const SIZE_BYTES_MAX: u64 = 64;

/// Sends a GET request, and waits at most [`TIMEOUT`] for the answer.
pub(crate) fn get(target: &Target, path: &str) -> Result<Answer, Failure> {
    Ok(ask(target, ("GET", path, ""), TIMEOUT)?)
}

/// Sends a GET request with `query` as the query string. If the item named in `query` does not exist, the refusal includes the item's name.
pub(crate) fn look(target: &Target, path: &str, query: &Fields) -> Result<Answer, Failure> {
    Ok(get(target, &with_query(path, query))?.about(&Value::Object(query.clone())))
}

/// Sends a request, given by its method, path and body, and waits at most `patience` for the answer.
pub(super) fn once(
    target: &Target,
    request: (&str, &str, &str),
    patience: Duration,
) -> Result<Answer, Failure> {
    Ok(ask(target, request, patience)?)
}

/// Posts fields to a path. If `wait`, in seconds, is not 0, the coordinator may take that long to answer, and if it stops or crashes
/// meanwhile, or too many requests are waiting, the request is sent again until it is answered or the time is over. If the first attempt cannot
/// reach the coordinator, returns an error immediately.
pub(crate) fn send(
    target: &Target,
    path: &str,
    mut fields: Map<String, Value>,
    wait: u64,
) -> Result<Answer, Failure> {
    let began = instant();
    let wait = Duration::from_secs(wait);
    let mut pauses = Pauses::of(target);
    let (mut outage, mut note): (Option<Outage>, Option<Outage>) = (None, None);
    loop {
        let left = wait.saturating_sub(began.elapsed());
        if !wait.is_zero() {
            let seconds = left.as_millis().div_ceil(1000);
            fields.insert("wait".to_owned(), u64::try_from(seconds).unwrap_or(0).into());
        }
        let asked = Value::Object(fields.clone());
        let body = asked.to_string();
        match ask(target, ("POST", path, &body), left + TIMEOUT) {
            // Nothing was done. The last attempt, when the time is over, does not wait.
            Ok(answer) if !left.is_zero() && answer.is_refused_as(Reason::Waits) => {
                note.get_or_insert_with(|| Outage::begin(CROWDED));
                pauses.rest(left);
                continue;
            }
            Ok(answer) if wait.is_zero() || !answer.is_refused_as(Reason::Stopped) => {
                return Ok(answer.about(&asked));
            }
            Err(Trouble::CutOff(_)) | Ok(_) if !wait.is_zero() => pauses.start_again(),
            Err(Trouble::Absent(_)) if outage.is_some() => {}
            answered => return answered.map_err(Failure::from),
        }
        outage.get_or_insert_with(|| Outage::begin(STOPPED));
        let left = wait.saturating_sub(began.elapsed());
        if left.is_zero() {
            let words = "the coordinator stopped and did not come back in time";
            return Err(
                Failure::unreachable(words).help("`sexton status` shows whether it is running")
            );
        }
        pauses.rest(left);
    }
}

/// The note about an outage.
const STOPPED: &str = "the coordinator stopped; waiting for it to come back";

/// The note about a coordinator with which too many requests are waiting.
const CROWDED: &str = "too many requests are waiting with the coordinator; trying again";

/// The number of requests of this process that are waiting for the coordinator to come back.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// An outage of the coordinator, as seen by one request. The request no longer counts as waiting when this value is dropped. If several
/// requests of this process wait at the same time, only the first prints its note.
pub(crate) struct Outage;

impl Outage {
    pub(crate) fn begin(note: &str) -> Self {
        if WAITING.fetch_add(1, Ordering::Relaxed) == 0 {
            tell(note);
        }
        Self
    }
}

impl Drop for Outage {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Posts fields to a path once, and waits at most `patience` for the answer.
pub(crate) fn send_within(
    target: &Target,
    path: &str,
    fields: Fields,
    patience: Duration,
) -> Result<Answer, Failure> {
    let asked = Value::Object(fields);
    let body = asked.to_string();
    Ok(ask(target, ("POST", path, &body), patience)?.about(&asked))
}

/// Returns an unguessable random number.
pub(crate) fn drawn() -> io::Result<u128> {
    let mut chance = [0; 16];
    getrandom::fill(&mut chance).map_err(io::Error::other)?;
    Ok(u128::from_le_bytes(chance))
}

/// Returns a new idempotency key.
pub(super) fn new_key() -> Result<String, Failure> {
    let drawn = drawn();
    drawn
        .map(|drawn| format!("{drawn:032x}"))
        .map_err(|error| Failure::unreachable(format!("failed to read random numbers: {error}")))
}

/// Posts a request that changes something: with a new idempotency key, as [`send_once`] does. A command that uses this has the effect that it
/// reports, no matter when the coordinator is killed, and has it once.
pub(crate) fn change(target: &Target, path: &str, fields: Fields) -> Result<Answer, Failure> {
    let key = new_key()?;
    let answer = send_once(target, path, fields.clone(), &key)?;
    if answer.status == 400 && answer.field().as_deref() == Some("Idempotency-Key") {
        // The path accepts no keys, because a repetition of its requests changes nothing.
        return send(target, path, fields, 0);
    }
    Ok(answer)
}

/// Posts fields to a path with an idempotency key, and repeats the request for up to [`RETURN_MAX`] if the coordinator stops or crashes
/// before it answers, and for up to [`CROWDED_MAX`] if it refuses the request because too many are waiting. The coordinator carries out the
/// request at most once, and gives every repetition the same answer. If the first attempt cannot reach the coordinator, returns an error
/// immediately.
pub(crate) fn send_once(
    target: &Target,
    path: &str,
    fields: Map<String, Value>,
    key: &str,
) -> Result<Answer, Failure> {
    again(&target.under(key), path, fields)
}

/// Posts fields to a path, and repeats the request as [`send_once`] does: either the target has an idempotency key, or a repetition of the
/// request changes nothing more.
pub(super) fn again(
    target: &Target,
    path: &str,
    fields: Map<String, Value>,
) -> Result<Answer, Failure> {
    let began = instant();
    let asked = Value::Object(fields);
    let body = asked.to_string();
    let mut pauses = Pauses::of(target);
    let (mut outage, mut note): (Option<Outage>, Option<Outage>) = (None, None);
    loop {
        let most = if outage.is_some() { RETURN_MAX } else { CROWDED_MAX };
        let failure = match ask(target, ("POST", path, &body), TIMEOUT) {
            Ok(answer) if answer.is_refused_as(Reason::Waits) && began.elapsed() < most => {
                note.get_or_insert_with(|| Outage::begin(CROWDED));
                pauses.rest(most);
                continue;
            }
            // An attempt that was refused did nothing, but an earlier one that was cut off may have been carried out.
            Ok(answer)
                if !answer.is_refused_as(Reason::Stopped)
                    && (outage.is_none() || !answer.is_refused_as(Reason::Waits)) =>
            {
                return Ok(answer.about(&asked));
            }
            Ok(_) => {
                pauses.start_again();
                None
            }
            Err(Trouble::CutOff(failure)) => {
                pauses.start_again();
                Some(failure)
            }
            Err(Trouble::Absent(failure)) if outage.is_some() => Some(failure),
            Err(trouble) => return Err(trouble.into()),
        };
        if began.elapsed() > RETURN_MAX {
            let words = "the coordinator stopped and did not come back";
            return Err(failure.unwrap_or_else(|| Failure::unreachable(words)));
        }
        outage.get_or_insert_with(|| Outage::begin(STOPPED));
        pauses.rest(RETURN_MAX);
    }
}

/// The reason why there is no answer.
enum Trouble {
    /// No coordinator can be reached.
    Absent(Failure),
    /// The connection was closed before the answer was complete, probably because the coordinator exited.
    CutOff(Failure),
    /// The request failed for any other reason, such as a timeout, a missing permission or an invalid certificate.
    Refused(Failure),
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Absent(failure) | Trouble::CutOff(failure) | Trouble::Refused(failure) => {
                failure
            }
        }
    }
}

fn ask(
    target: &Target,
    request: (&str, &str, &str),
    patience: Duration,
) -> Result<Answer, Trouble> {
    let failed = |found: &dyn Display| {
        let words = format!("the request to {} failed: {found}", target.place());
        let failure = Failure::unreachable(words);
        if target.is_tcp() { failure.help(SCHEMES) } else { failure }
    };
    let mut answer = Vec::new();
    let mut reader = ask_on(target, request, patience)?;
    let read = read_answer(&mut reader, &mut answer);
    match read.map_err(|error| (error.kind(), error)) {
        // A coordinator may refuse a request before it has read all of it, and reset the connection after its answer. A TLS connection may
        // be closed without an alert, so an unexpected end of file is no error if the answer is complete.
        Err((io::ErrorKind::ConnectionReset, _)) if parse(&answer).is_some() => {}
        Ok(()) | Err((io::ErrorKind::UnexpectedEof, _)) => {}
        Err((io::ErrorKind::WouldBlock, _)) => {
            let seconds = patience.as_secs();
            let words = format!("the coordinator did not answer within {seconds} s");
            return Err(Trouble::Refused(failed(&words)));
        }
        Err((io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe, error)) => {
            return Err(cut_off(&error, target));
        }
        Err((_, error)) => return Err(Trouble::Refused(failed(&error))),
    }
    match parse(&answer) {
        Some(parsed) => {
            if reader.buffer().is_empty() && !ends_connection(&answer) {
                target.idle.keep(reader.into_inner(), patience);
            }
            Ok(parsed)
        }
        None if answer.is_empty() || answer.starts_with(b"HTTP/1.") => {
            Err(cut_off(&"the answer was cut off", target))
        }
        None => Err(Trouble::Refused(failed(&"the answer is not HTTP"))),
    }
}

/// Returns whether the coordinator closes the connection after this answer.
fn ends_connection(answer: &[u8]) -> bool {
    let head = answer.split(|byte| *byte == b'\n');
    let mut head = head.take_while(|line| !line.trim_ascii().is_empty());
    head.any(|line| line.trim_ascii().eq_ignore_ascii_case(b"connection: close"))
}

/// Reads an answer up to its announced length, since the connection may stay open after it. Without a length, reads until the
/// connection closes.
fn read_answer(reader: &mut impl BufRead, answer: &mut Vec<u8>) -> io::Result<()> {
    let mut head = reader.by_ref().take(HEAD_BYTES_MAX as u64);
    while !answer.ends_with(b"\r\n\r\n") {
        if head.read_until(b'\n', answer)? == 0 {
            return Ok(());
        }
    }
    let head = std::str::from_utf8(answer).ok();
    let length = head.and_then(|head| length(head.split("\r\n")));
    let most = length.map_or(REFUSAL_BYTES_MAX, |length| ANSWER_BYTES_MAX.min(length as u64));
    reader.take(most).read_to_end(answer).map(drop)
}

/// Returns the value of the `Content-Length` header, or `None` if it is missing or invalid.
fn length<'a>(mut lines: impl Iterator<Item = &'a str>) -> Option<usize> {
    lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<usize>().ok())?
    })
}

/// Gets a path whose answer is a stream, and passes each line to `take`. Returns `None` when the coordinator has ended the stream, or the
/// answer if its status is not 200.
pub(crate) fn follow(
    target: &Target,
    path: &str,
    mut take: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<Option<Answer>, Failure> {
    let broken = |error: io::Error| {
        let words = if error.kind() == io::ErrorKind::UnexpectedEof {
            "the coordinator closed the connection unexpectedly".to_owned()
        } else {
            format!("the connection to the coordinator was lost: {error}")
        };
        Failure::unreachable(words).help("`sexton status` shows whether it is running")
    };
    let mut reader = ask_on(target, ("GET", path, ""), SILENCE)?;
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let left = (HEAD_BYTES_MAX - head.len()) as u64;
        let line = reader.by_ref().take(left).read_line(&mut head);
        if line.map_err(broken)? == 0 {
            return Err(broken(io::ErrorKind::UnexpectedEof.into()));
        }
    }
    if !head.starts_with("HTTP/1.1 200 ") {
        // Read only as much as announced: the connection stays open after an answer that has a length.
        let length = length(head.split("\r\n")).map_or(REFUSAL_BYTES_MAX, |length| length as u64);
        let mut answer = head.into_bytes();
        let mut body = reader.take(length.min(REFUSAL_BYTES_MAX));
        body.read_to_end(&mut answer).map_err(broken)?;
        let answer = parse(&answer);
        return answer.map(Some).ok_or_else(|| broken(io::ErrorKind::InvalidData.into()));
    }
    let mut rest = Vec::new();
    while let Some(chunk) = next_chunk(&mut reader).map_err(broken)? {
        rest.extend_from_slice(&chunk);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            take(String::from_utf8_lossy(&line).trim_end())?;
        }
        if rest.len() > LINE_BYTES_MAX {
            return Err(broken(io::ErrorKind::InvalidData.into()));
        }
    }
    Ok(None)
}

/// Reads the next chunk of a body. Returns `None` at the end of the body.
fn next_chunk(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut size = String::new();
    if reader.take(SIZE_BYTES_MAX).read_line(&mut size)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let size = size.strip_suffix('\n').ok_or(io::ErrorKind::InvalidData)?;
    let size = usize::from_str_radix(size.trim_end(), 16).ok();
    let size = size.filter(|size| *size <= CHUNK_BYTES_MAX);
    let size = size.ok_or(io::ErrorKind::InvalidData)?;
    let mut chunk = vec![0; size + 2];
    reader.read_exact(&mut chunk)?;
    chunk.truncate(size);
    Ok((size > 0).then_some(chunk))
}

/// The advice if a request over TCP gets an unexpected answer: the URL may have the wrong scheme.
const SCHEMES: &str = "use https:// for a coordinator with TLS, http:// for one without";

/// Describes a connection that was closed before the answer was complete, as when the coordinator is killed, with advice on what to do.
fn cut_off(found: &dyn Display, target: &Target) -> Trouble {
    let words = format!("the request to {} failed: {found}", target.place());
    let help = match &target.data {
        Some(data) => format!(
            "the coordinator exited before it answered: `sexton status` shows whether it is running, `sexton serve --data {}` starts it",
            data.display()
        ),
        None if target.is_tcp() => {
            format!(
                "if the coordinator did not just exit, {SCHEMES}; `sexton status` shows whether it is running"
            )
        }
        None => {
            "the coordinator exited before it answered: `sexton status` shows whether it is running"
                .to_owned()
        }
    };
    Trouble::CutOff(Failure::unreachable(words).help(help))
}

/// Describes why no coordinator can be reached, with advice on what to do.
fn unreachable_because(error: &io::Error, target: &Target) -> Trouble {
    let (tried, kind) = (target.place(), error.kind());
    let absent = matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
    if let (Some(data), true) = (&target.data, absent) {
        // A process uses the directory but does not listen: usually `sexton beanstalkd`, or a coordinator that is still starting.
        if let Ok(Some(process)) = RealDisk::new(data).holder() {
            let data = data.display();
            let words =
                format!("process {process} uses {data}, but nothing listens on its socket {tried}");
            return Trouble::Absent(
                Failure::unreachable(words).help(
                    "`sexton beanstalkd` has no such socket, and a coordinator that is starting does not have it yet",
                ),
            );
        }
        let found = if kind == io::ErrorKind::ConnectionRefused {
            format!("nothing listens on {tried}, which a killed coordinator left behind")
        } else if data.exists() {
            format!("there is no socket {tried}")
        } else {
            "there is no such directory".to_owned()
        };
        let data = data.display();
        let failure = Failure::unreachable(format!("no coordinator runs on {data}: {found}"));
        return Trouble::Absent(failure.help(format!(
            "`sexton serve --data {data}` starts one; --data DIR or SEXTON_DATA names another directory, --url another machine"
        )));
    }
    let failure = Failure::unreachable(format!("failed to connect to {tried}: {error}"));
    if kind == io::ErrorKind::PermissionDenied {
        Trouble::Refused(failure.help(BOTH_WAYS))
    } else if kind == io::ErrorKind::InvalidData {
        let words = "--ca-file FILE names the certificates to trust; http:// is for a coordinator without TLS";
        Trouble::Refused(failure.help(words))
    } else if absent && target.is_tcp() {
        let words = "`sexton serve --http ADDRESS --token-file FILE` starts a coordinator that listens on TCP";
        Trouble::Absent(failure.help(words))
    } else if absent {
        Trouble::Absent(failure)
    } else {
        Trouble::Refused(failure)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a command measures how long it has waited in real time"
)]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

#[expect(
    clippy::disallowed_methods,
    reason = "no event signals that a coordinator is back or that a file has grown"
)]
pub(crate) fn rest(pause: Duration) {
    std::thread::sleep(pause);
}

/// Connects, sends a request, and returns a reader for the answer.
fn ask_on(
    target: &Target,
    (method, path, body): (&str, &str, &str),
    patience: Duration,
) -> Result<BufReader<Box<dyn Connection>>, Trouble> {
    let content = match (method, body.len()) {
        ("POST", 0) => "Content-Length: 0\r\n".to_owned(),
        (_, 0) => String::new(),
        (_, length) => {
            format!("Content-Type: application/json\r\nContent-Length: {length}\r\n")
        }
    };
    let token = target
        .token
        .as_ref()
        .map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let key =
        target.key.as_ref().map_or_else(String::new, |key| format!("Idempotency-Key: {key}\r\n"));
    let host = &target.host;
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{token}{key}{content}");
    let connected = target.connect(patience);
    let mut stream = connected.map_err(|error| unreachable_because(&error, target))?;
    let sent = stream.write_all(format!("{head}\r\n{body}").as_bytes());
    // A coordinator that refuses a request may answer and close the connection before it has read all of the request.
    match sent.map_err(|error| (error.kind(), error)) {
        Ok(()) | Err((io::ErrorKind::BrokenPipe, _)) => {
            Ok(BufReader::with_capacity(READ_BYTES, stream))
        }
        Err((io::ErrorKind::ConnectionReset, error)) => Err(cut_off(&error, target)),
        Err((_, error)) => Err(unreachable_because(&error, target)),
    }
}

/// Parses an answer. Returns `None` if it is not HTTP, announces no length, or has a body of a different length.
fn parse(answer: &[u8]) -> Option<Answer> {
    let (head, body) = std::str::from_utf8(answer).ok()?.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let (version, status) = lines.next()?.split_once(' ')?;
    let status = status.get(..3)?.parse().ok()?;
    let length = length(lines)?;
    let whole = version.starts_with("HTTP/1.") && body.len() == length;
    whole.then(|| Answer { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::{Answer, parse};

    #[test]
    fn an_answer_is_taken_whole_or_not_at_all() {
        let whole = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\nx: y\r\n\r\nab\n";
        let expected = Answer { status: 503, body: "ab\n".to_owned() };
        assert_eq!(parse(whole.as_bytes()), Some(expected));
        for end in 0..whole.len() {
            assert_eq!(parse(&whole.as_bytes()[..end]), None, "cut at {end}");
        }
        for wrong in [
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 abc\r\ncontent-length: 0\r\n\r\n",
        ] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong:?}");
        }
    }
}
