//! Requests that are sent to a server in addition to the measured load: for the number of items that it serves, and for a checkpoint. Each
//! server has its own protocol for these.

use crate::codec::Protocol;
use crate::failure::Failure;
use crate::gateway::{put_request, response};
use crate::interrupt::Stop;
use crate::job::JobProtocol;
use crate::load::now;
use crate::peer::Peer;
use serde_json::{Value, json};
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The pause between two polls of a server that is starting: short compared with what is measured, long enough to spare the processor.
const SERVED_POLL: Duration = Duration::from_millis(1);

/// The pause between two polls for the end of a checkpoint. Redis itself checks every 100 ms.
const REWRITE_POLL: Duration = Duration::from_millis(10);

/// A request that is not answered for this long is repeated.
const PATIENCE: Duration = Duration::from_secs(1);

/// The maximum time that a checkpoint may take.
const CHECKPOINT_PATIENCE: Duration = Duration::from_mins(5);

/// Sleeps for `span`: between two polls, or between two actions of a measurement.
#[expect(
    clippy::disallowed_methods,
    reason = "what a measurement waits for sends no event, so it must be polled"
)]
pub(crate) fn rest(span: Duration) {
    std::thread::sleep(span);
}

/// Connects to the Unix socket in a sexton data directory. A read fails if nothing arrives for `patience`.
pub(crate) fn on_socket(data: &Path, patience: Duration) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(data.join("sexton.sock"))?;
    stream.set_read_timeout(Some(patience))?;
    Ok(stream)
}

/// Sends one HTTP request, and returns the status and body of the response.
pub(crate) fn exchange(
    stream: &mut (impl Read + Write),
    path: &str,
    body: Option<&Value>,
) -> io::Result<(u16, String)> {
    say(stream, path, body)?;
    receive(stream)
}

/// Sends one HTTP request, without waiting for the response.
pub(crate) fn say(stream: &mut impl Write, path: &str, body: Option<&Value>) -> io::Result<()> {
    let mut request = Vec::new();
    put_request(path, body, &mut request);
    stream.write_all(&request)
}

/// Reads the response to a request, and returns its status and body.
pub(crate) fn receive(stream: &mut impl Read) -> io::Result<(u16, String)> {
    let mut input = Vec::new();
    loop {
        if let Some((status, body, _)) = response(&input) {
            return Ok((status, String::from_utf8_lossy(body).into_owned()));
        }
        read_more(stream, &mut input)?;
    }
}

/// Waits for more bytes, and appends them to `input`. The end of the stream is an error.
pub(crate) fn read_more(stream: &mut impl Read, input: &mut Vec<u8>) -> io::Result<()> {
    let mut bytes = [0; 4096];
    match stream.read(&mut bytes)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        read => {
            input.extend_from_slice(bytes.get(..read).unwrap_or(&[]));
            Ok(())
        }
    }
}

/// A protocol in which a server can be asked for its number of items, such as locks or jobs.
pub(crate) trait Counted {
    /// Returns the greeting that the server sends on each new connection.
    fn greeting(&self) -> &[u8];
    /// Returns the number of items; `None` if the server cannot count them yet.
    fn count(&self, line: &mut BufReader<TcpStream>) -> io::Result<Option<u64>>;
}

/// Polls until the server counts `wanted` items, even if a request fails or is not answered. Returns an error if the server counts more
/// than `wanted` items or exits, or if the measurement is interrupted.
pub(crate) fn await_served<P: Counted>(
    peer: &mut Peer<P>,
    wanted: u32,
    stop: &Stop,
) -> Result<(), Failure> {
    let mut line = None;
    loop {
        stop.check()?;
        let counted = match &mut line {
            Some(line) => peer.protocol.count(line),
            None => open(peer.address, peer.protocol.greeting()).and_then(|open| {
                let line = line.insert(open);
                peer.protocol.count(line)
            }),
        };
        match counted {
            Ok(Some(counted)) if counted == u64::from(wanted) => return Ok(()),
            Ok(Some(counted)) if counted > u64::from(wanted) => {
                let words = format!("expected {wanted} items after the restart, found {counted}");
                return Err(Failure::new(words));
            }
            Ok(Some(_) | None) => {}
            Err(_) => line = None,
        }
        peer.check()?;
        rest(SERVED_POLL);
    }
}

fn open(address: SocketAddr, greeting: &[u8]) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    if stream.local_addr()? == address {
        // While no server listens, the kernel may choose this very port for this end of the connection, which then connects to itself.
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = BufReader::new(stream);
    let mut greeted = vec![0; greeting.len()];
    line.read_exact(&mut greeted)?;
    if greeted == greeting { Ok(line) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
}

/// Counts locks.
impl Counted for Protocol {
    fn greeting(&self) -> &[u8] {
        self.greeting()
    }

    fn count(&self, line: &mut BufReader<TcpStream>) -> io::Result<Option<u64>> {
        match self {
            Self::Lockserver => {
                line.get_mut().write_all(&[8])?;
                // Fourteen numbers of four bytes each, the thirteenth of which counts owners, and two more bytes.
                let mut answer = [0; 58];
                line.read_exact(&mut answer)?;
                let owners = answer.get(48..).and_then(|rest| rest.first_chunk());
                Ok(owners.map(|owners| u32::from_be_bytes(*owners).into()))
            }
            Self::Redis { .. } => number(line, b"DBSIZE\r\n"),
            Self::Http(_) => unreachable!("no measurement over HTTP counts locks"),
        }
    }
}

/// Counts waiting jobs.
impl Counted for JobProtocol {
    fn greeting(&self) -> &[u8] {
        &[]
    }

    fn count(&self, line: &mut BufReader<TcpStream>) -> io::Result<Option<u64>> {
        match self {
            Self::Lists => number(line, b"LLEN queue\r\n"),
            Self::Beanstalk => {
                line.get_mut().write_all(b"stats\r\n")?;
                let mut head = String::new();
                line.read_line(&mut head)?;
                let len = head.strip_prefix("OK ").map(str::trim_end);
                let Some(len) = len.and_then(|len| len.parse::<usize>().ok()) else {
                    return Ok(None);
                };
                let mut body = vec![0; len + 2];
                line.read_exact(&mut body)?;
                let body = String::from_utf8_lossy(&body).into_owned();
                let ready = |line: &str| line.strip_prefix("current-jobs-ready: ")?.parse().ok();
                Ok(body.lines().find_map(ready))
            }
        }
    }
}

/// Sends a request to Redis, and returns the answer if it is a number; `None` otherwise.
fn number(line: &mut BufReader<TcpStream>, asked: &[u8]) -> io::Result<Option<u64>> {
    line.get_mut().write_all(asked)?;
    let mut answer = String::new();
    line.read_line(&mut answer)?;
    let number = answer.strip_prefix(':');
    Ok(number.and_then(|number| number.trim_end().parse().ok()))
}

/// Where to request checkpoints of a server. Unlike the [`Peer`] itself, it can be sent to another thread.
#[derive(Clone)]
pub(crate) enum Checkpoints {
    /// Over the Unix socket in this data directory.
    Sexton(PathBuf),
    /// At this address: a rewrite of the append-only file, which is Redis' equivalent.
    Redis(SocketAddr),
}

impl Checkpoints {
    pub(crate) fn of<P>(peer: &Peer<P>) -> Self {
        if peer.is_redis() {
            Self::Redis(peer.address)
        } else {
            Self::Sexton(peer.data().to_owned())
        }
    }

    /// Requests a checkpoint, waits for its end, and returns how long it took; `None` if the server has no such request.
    pub(crate) fn make(&self, stop: &Stop) -> Result<Option<Duration>, Failure> {
        let began = now();
        match self {
            Self::Sexton(data) => {
                let answer = on_socket(data, CHECKPOINT_PATIENCE).and_then(|mut stream| {
                    exchange(&mut stream, "/v1/checkpoint", Some(&json!({})))
                });
                match answer.map_err(Failure::to("take a checkpoint"))? {
                    (200, _) => {}
                    (404 | 405, _) => return Ok(None),
                    (status, body) => {
                        let words = format!("failed to take a checkpoint: {status} {body}");
                        return Err(Failure::new(words));
                    }
                }
            }
            Self::Redis(address) => rewrite(*address, stop)?,
        }
        Ok(Some(now() - began))
    }
}

/// Makes Redis rewrite its append-only file, and waits for the end of the rewrite.
fn rewrite(address: SocketAddr, stop: &Stop) -> Result<(), Failure> {
    let cannot = |error: io::Error| Failure::to("rewrite the append-only file")(error);
    let mut line = begin_rewrite(address).map_err(cannot)?;
    loop {
        stop.check()?;
        let facts = persistence(&mut line).map_err(cannot)?;
        let says = |fact: &str| facts.lines().any(|line| line == fact);
        if says("aof_rewrite_in_progress:0") && says("aof_rewrite_scheduled:0") {
            if says("aof_last_bgrewrite_status:ok") {
                return Ok(());
            }
            return Err(cannot(io::Error::other("Redis reported a failure")));
        }
        rest(REWRITE_POLL);
    }
}

fn begin_rewrite(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    // Redis does not answer while it forks, which may take a while.
    stream.set_read_timeout(Some(CHECKPOINT_PATIENCE))?;
    let mut line = BufReader::new(stream);
    line.get_mut().write_all(b"BGREWRITEAOF\r\n")?;
    let mut answer = String::new();
    line.read_line(&mut answer)?;
    if answer.starts_with('+') { Ok(line) } else { Err(io::Error::other(answer)) }
}

/// Returns Redis' report on its persistence.
fn persistence(line: &mut BufReader<TcpStream>) -> io::Result<String> {
    line.get_mut().write_all(b"INFO persistence\r\n")?;
    let mut head = String::new();
    line.read_line(&mut head)?;
    let len = head.strip_prefix('$').and_then(|len| len.trim_end().parse().ok());
    let len: usize = len.ok_or_else(|| io::Error::other(head.clone()))?;
    let mut body = vec![0; len + 2];
    line.read_exact(&mut body)?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}
