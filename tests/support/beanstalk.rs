//! A client of beanstalkd's protocol over TCP. It only finds the end of each reply, and tests compare whole replies. If
//! the server closes the connection within a reply, that is an error; if it does not reply in time, the test fails.

use crate::patience::PATIENCE;
use std::fmt;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// A connection.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

/// A reply: its line without the line end, and the body that follows it, which may be empty.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) line: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// Returns a reply of one line.
    pub(crate) fn line(line: impl Into<String>) -> Self {
        Self { line: line.into(), body: Vec::new() }
    }

    /// Returns a reply with a job and its body. The word is `RESERVED` or `FOUND`.
    pub(crate) fn job(word: &str, id: u64, body: &[u8]) -> Self {
        Self { line: format!("{word} {id} {}", body.len()), body: body.to_vec() }
    }

    /// Returns the number after this word, or `None` if the line does not begin with the word.
    pub(crate) fn number(&self, word: &str) -> Option<u64> {
        let rest = self.line.strip_prefix(word)?.trim_start();
        rest.split(' ').next()?.parse().ok()
    }

    /// Returns a value of the statistics in the body, or `None` if the key is not there.
    pub(crate) fn statistic(&self, key: &str) -> Option<&str> {
        let text = std::str::from_utf8(&self.body).ok()?;
        let values = text.lines().filter_map(|line| line.split_once(": "));
        let mut values = values.filter(|(name, _)| *name == key);
        values.next().map(|(_, value)| value.trim_matches('"'))
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.line, self.body.escape_ascii())
    }
}

impl Client {
    /// Opens a new connection.
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends these bytes unchanged.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Receives the next reply. Fails the test if it does not arrive in time.
    pub(crate) fn receive(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        let read = answered(self.stream.read_line(&mut line))?;
        let Some(line) = line.strip_suffix("\r\n").filter(|_| read > 0) else {
            return Err(ErrorKind::UnexpectedEof.into());
        };
        let words: Vec<&str> = line.split(' ').collect();
        let bytes = match words.as_slice() {
            ["OK", bytes] | ["RESERVED" | "FOUND", _, bytes] => bytes.parse().ok(),
            _ => None,
        };
        let mut body = Vec::new();
        if let Some(bytes) = bytes {
            let bytes: usize = bytes;
            body.resize(bytes + 2, 0);
            answered(self.stream.read_exact(&mut body))?;
            assert!(body.ends_with(b"\r\n"), "{line}: {}", body.escape_ascii());
            body.truncate(bytes);
        }
        let line = line.to_owned();
        Ok(Reply { line, body })
    }

    /// Sends one command, given without its line end, and waits for its reply.
    pub(crate) fn ask(&mut self, command: &str) -> io::Result<Reply> {
        self.send(format!("{command}\r\n").as_bytes())?;
        self.receive()
    }
}

/// Returns the result of a read, but fails the test if the read timed out.
fn answered<T>(read: io::Result<T>) -> io::Result<T> {
    let slow =
        |error: &io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
    assert!(!read.as_ref().is_err_and(slow), "the server sent nothing for {PATIENCE:?}");
    read
}
