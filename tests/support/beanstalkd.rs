//! A server that implements beanstalkd's protocol on a Unix socket, started with beanstalkd's command line: beanstalkd
//! itself, or sexton in its place. Also a client that only finds the end of each reply.

use crate::patience::{PATIENCE, until};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A running server. Killed when dropped.
pub(crate) struct Server {
    child: Child,
    socket: PathBuf,
    _directory: TempDir,
}

impl Server {
    /// Starts sexton in beanstalkd's place, with these flags.
    pub(crate) fn sexton(flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sexton"));
        command.arg("beanstalkd").args(flags);
        Self::start(command, "-l")
    }

    /// Starts `sexton serve` without a data directory, with these flags and only the beanstalkd listener.
    pub(crate) fn serve(flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sexton"));
        command.args(["serve", "--memory", "--lockserver", "off", "--http", "off"]);
        command.args(flags);
        Self::start(command, "--beanstalk")
    }

    /// Starts beanstalkd itself: `beanstalkd`, or the binary that `BEANSTALKD_PATH` names. Returns it and its version, or an
    /// error if the binary cannot be run.
    #[expect(clippy::disallowed_methods, reason = "the caller of the tests names the program")]
    pub(crate) fn beanstalkd() -> Result<(Self, String), String> {
        let program = std::env::var("BEANSTALKD_PATH").unwrap_or_else(|_| "beanstalkd".to_owned());
        let version = Command::new(&program).arg("-v").output();
        let version = version.map_err(|error| format!("{program}: {error}"))?;
        let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
        Ok((Self::start(Command::new(program), "-l"), version))
    }

    fn start(mut command: Command, listen: &str) -> Self {
        let directory = tempfile::tempdir().expect("there is room for a socket");
        let socket = directory.path().join("socket");
        let child = command
            .arg(listen)
            .arg(format!("unix:{}", socket.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program runs");
        let server = Self { child, socket, _directory: directory };
        until("the server listens", || UnixStream::connect(&server.socket).ok());
        server
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether it is still running.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Opens a new connection.
    pub(crate) fn connect(&self) -> Client {
        self.connect_for(PATIENCE)
    }

    /// Opens a new connection, with this timeout for replies.
    pub(crate) fn connect_for(&self, patience: Duration) -> Client {
        let stream = UnixStream::connect(&self.socket).expect("it listens");
        let patience = Some(patience);
        stream.set_read_timeout(patience).expect("a nonzero timeout");
        Client { stream, received: Vec::new(), sent: String::new() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may already have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A connection to a server.
pub(crate) struct Client {
    stream: UnixStream,
    received: Vec<u8>,
    /// The bytes that were sent last, for the message of a failure.
    sent: String,
}

impl Client {
    /// Sends these bytes unchanged.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.sent = String::from_utf8_lossy(bytes).into_owned();
        self.stream.write_all(bytes).expect("connected");
    }

    /// Closes the sending side.
    pub(crate) fn end(&mut self) {
        let ended = self.stream.shutdown(Shutdown::Write);
        ended.expect("connected");
    }

    /// Sends one command, given without its line end, and returns its reply without the last line end.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.send(format!("{command}\r\n").as_bytes());
        let reply = self.reply().expect("a reply");
        String::from_utf8_lossy(&reply).trim_end().to_owned()
    }

    /// Receives the next complete reply, or `None` if the server has closed the connection.
    pub(crate) fn reply(&mut self) -> Option<Vec<u8>> {
        let reply = self.try_reply();
        reply.unwrap_or_else(|error| panic!("no answer to {:?}: {error}", self.sent))
    }

    /// Like [`reply`](Self::reply), but returns an error if no reply arrived in time.
    pub(crate) fn try_reply(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(reply) = self.take_reply() {
                return Ok(Some(reply));
            }
            if !self.receive()? {
                assert!(self.received.is_empty(), "half a reply: {self:?}");
                return Ok(None);
            }
        }
    }

    /// Returns the next reply, or `None` if it has not arrived completely.
    pub(crate) fn reply_so_far(&mut self) -> Option<Vec<u8>> {
        self.stream.set_nonblocking(true).expect("a mode of it");
        loop {
            match self.receive() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        self.stream.set_nonblocking(false).expect("a mode of it");
        self.take_reply()
    }

    /// Receives everything until the server closes the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.receive().expect("the end") {}
        std::mem::take(&mut self.received)
    }

    /// Returns the socket.
    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Receives what has arrived. Returns false at the end of the connection.
    fn receive(&mut self) -> std::io::Result<bool> {
        let mut bytes = vec![0; 65_536];
        match self.stream.read(&mut bytes) {
            Ok(count) => {
                self.received.extend_from_slice(bytes.get(..count).unwrap_or(&[]));
                Ok(count > 0)
            }
            // The server closed the connection although it had not read everything.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn take_reply(&mut self) -> Option<Vec<u8>> {
        let line = self.received.windows(2).position(|pair| pair == b"\r\n")? + 2;
        let words = String::from_utf8_lossy(self.received.get(..line)?).into_owned();
        let words: Vec<&str> = words.split_whitespace().collect();
        let body: usize = match words.as_slice() {
            ["OK", bytes] | ["RESERVED" | "FOUND", _, bytes] => bytes.parse().ok()?,
            _ => return Some(self.received.drain(..line).collect()),
        };
        let whole = line + body + 2;
        (self.received.len() >= whole).then(|| self.received.drain(..whole).collect())
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.received.escape_ascii())
    }
}
