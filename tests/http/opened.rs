//! A node in this process with its HTTP listener open, and a minimal client that parses answers.

use crate::described;
pub(crate) use crate::lock_request::request;
use serde_json::Value;
pub(crate) use sexton::block_on as run;
use sexton::config::{Config, HttpConfig, LockserverConfig};
use sexton::node::{Handle, Node, NodeError};
use sexton_http::Listener;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) const TOKEN: &str = "correct-horse-battery-staple";

/// A node with its HTTP listener open on TCP and on a Unix socket, in its own directory.
pub(crate) struct Opened {
    node: Option<Node>,
    config: Config,
    pub(crate) directory: tempfile::TempDir,
}

/// A parsed answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// Returns the body of an answer, which must be successful, as JSON.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        serde_json::from_str(&self.body).expect("valid JSON")
    }

    /// Asserts that this is a problem document with this status and reason, and returns it.
    pub(crate) fn because(&self, status: u16, reason: &str) -> Value {
        self.problem(status);
        let document: Value = serde_json::from_str(&self.body).expect("valid JSON");
        assert_eq!(document.get("reason").and_then(Value::as_str), Some(reason), "{self:?}");
        document
    }

    /// Asserts that this is a problem document with this status. Returns its detail.
    pub(crate) fn problem(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        let content_type = self.header("content-type");
        assert_eq!(content_type, Some("application/problem+json"), "{self:?}");
        let document: Value = serde_json::from_str(&self.body).expect("valid JSON");
        let at = |path| document.pointer(path).expect("a member");
        assert_eq!(at("/status"), status);
        assert_eq!(at("/type"), "about:blank");
        assert!(at("/title").as_str().is_some_and(|title| !title.is_empty()));
        at("/detail").as_str().expect("the refusal has a detail").to_owned()
    }
}

/// Opens a node that serves all protocols, as the program does.
fn open(config: Config) -> Result<Node, NodeError> {
    let mut protocols = sexton_wire::protocols();
    protocols.extend(sexton_http::protocols());
    Node::open_with(config, protocols)
}

impl Opened {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut HttpConfig)) -> Self {
        Self::configured(|config| change(config.http.as_mut().expect("HTTP is configured")))
    }

    pub(crate) fn configured(change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let http = HttpConfig {
            tcp: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            socket: Some(directory.path().join("data/sexton.sock")),
            ..HttpConfig::default()
        };
        let mut config = Config {
            http: Some(http),
            lockserver: Some(LockserverConfig {
                address: SocketAddr::from(([127, 0, 0, 1], 0)),
                ..LockserverConfig::default()
            }),
            ..Config::at(directory.path().join("data"))
        };
        change(&mut config);
        let node = open(config.clone()).expect("the node opens");
        Self { node: Some(node), config, directory }
    }

    pub(crate) fn with_token() -> Self {
        Self::with_tokens(TOKEN)
    }

    /// Opens a node with these lines in its token file.
    pub(crate) fn with_tokens(lines: &str) -> Self {
        Self::with(|http| {
            let socket = http.socket.as_ref().expect("a socket");
            let file = socket
                .parent()
                .and_then(Path::parent)
                .expect("the socket is in a directory")
                .join("token");
            write_private(&file, lines);
            http.token_file = Some(file);
        })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.node.as_ref().expect("the node is running").handle()
    }

    pub(crate) fn listener(&self) -> &Listener {
        let node = self.node.as_ref().expect("the node is running");
        sexton_http::listener(node).expect("the listener is open")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.handle().listeners().http.expect("the listener is open")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.handle().listeners().socket.expect("the listener is open")
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).expect("it listens");
        let patience = Some(Duration::from_secs(30));
        stream.set_read_timeout(patience).expect("the option can be set");
        stream
    }

    /// Sends these bytes and closes the sending side. Returns all answers as text.
    pub(crate) fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes).expect("connected");
        stream.shutdown(std::net::Shutdown::Write).expect("connected");
        read_all(&mut stream)
    }

    pub(crate) fn ask(&self, bytes: &[u8]) -> Answer {
        let text = self.exchange(bytes);
        let answer = answers(&text).pop();
        let answer = answer.unwrap_or_else(|| panic!("no answer in {text:?}"));
        let line = String::from_utf8_lossy(bytes);
        let mut words = line.split_whitespace();
        if let (Some(method), Some(target)) = (words.next(), words.next())
            && target.starts_with('/')
        {
            described::check(method, target, &answer);
        }
        answer
    }

    pub(crate) fn post(&self, path: &str, fields: &Value) -> Answer {
        self.post_with(path, "", fields)
    }

    /// Sends a request over the socket, as the coordinator's own user.
    pub(crate) fn post_as_owner(&self, path: &str, fields: &Value) -> Answer {
        let answer = finish_over(&mut self.begin_as_owner(path, fields));
        described::check("POST", path, &answer);
        answer
    }

    /// Like [`Self::post_as_owner`], on a connection that stays open. [`finish_over`] receives the answer.
    pub(crate) fn begin_as_owner(&self, path: &str, fields: &Value) -> UnixStream {
        let body = fields.to_string();
        let length = body.len();
        let mut stream = UnixStream::connect(self.socket()).expect("it listens");
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).expect("connected");
        stream
    }

    pub(crate) fn post_with(&self, path: &str, headers: &str, fields: &Value) -> Answer {
        let body = fields.to_string();
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}");
        self.ask(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes())
    }

    /// Sends a POST request on a new connection, which stays open. [`finish`] receives the answer.
    pub(crate) fn begin(&self, path: &str, fields: &Value) -> TcpStream {
        self.begin_with(path, "", fields)
    }

    pub(crate) fn begin_with(&self, path: &str, headers: &str, fields: &Value) -> TcpStream {
        let body = fields.to_string();
        let length = body.len();
        let mut stream = self.connect();
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        let request = format!("{head}{headers}Content-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).expect("connected");
        stream
    }

    pub(crate) fn get(&self, path: &str, headers: &str) -> Answer {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").as_bytes())
    }

    pub(crate) fn get_over_socket(&self, path: &str) -> Answer {
        self.get_over_socket_as(path, "localhost")
    }

    /// Gets a path over the socket, with this `Host`.
    pub(crate) fn get_over_socket_as(&self, path: &str, host: &str) -> Answer {
        let mut stream = UnixStream::connect(self.socket()).expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("connected");
        answers(&read_all(&mut stream)).pop().expect("an answer")
    }

    /// Stops the node cleanly, and opens it again on the same directory.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.node = Some(open(self.config.clone()).expect("the node opens again"));
    }

    pub(crate) fn post_over_socket(&self, path: &str) -> Answer {
        let mut stream = UnixStream::connect(self.socket()).expect("it listens");
        let request =
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("connected");
        answers(&read_all(&mut stream)).pop().expect("an answer")
    }

    pub(crate) fn stop(&mut self) {
        self.node.take().expect("it is running").stop().expect("a clean stop");
    }
}

pub(crate) fn read_all(stream: &mut impl std::io::Read) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the end");
    String::from_utf8(bytes).expect("UTF-8")
}

/// Receives the answer to a request that was sent by [`Opened::begin`].
pub(crate) fn finish(path: &str, mut stream: TcpStream) -> Answer {
    let answer = answers(&read_all(&mut stream)).pop().expect("an answer");
    described::check("POST", path, &answer);
    answer
}

/// Receives an answer over the socket.
pub(crate) fn finish_over(stream: &mut UnixStream) -> Answer {
    answers(&read_all(stream)).pop().expect("an answer")
}

/// Parses a series of answers to GET requests. Each is read up to its length.
pub(crate) fn answers(mut text: &str) -> Vec<Answer> {
    let mut found = Vec::new();
    while let Some((head, rest)) = text.split_once("\r\n\r\n") {
        let mut answer = Answer {
            status: head.get(9..12).and_then(|status| status.parse().ok()).expect("a status"),
            head: head.to_owned(),
            body: String::new(),
        };
        let length =
            answer.header("content-length").map_or(0, |length| length.parse().expect("a length"));
        if answer.header("transfer-encoding") == Some("chunked") {
            text = unchunk(rest, &mut answer.body);
            found.push(answer);
            continue;
        }
        let (body, more) = rest.split_at_checked(length).expect("a body is as long as it says");
        body.clone_into(&mut answer.body);
        text = more;
        found.push(answer);
    }
    assert_eq!(text, "", "there is text after the answers");
    found
}

/// Parses a chunked body. Returns the text after it.
fn unchunk<'t>(mut text: &'t str, body: &mut String) -> &'t str {
    loop {
        let (size, rest) = text.split_once("\r\n").expect("a chunk says its size");
        let size = usize::from_str_radix(size, 16).expect("a size");
        let (chunk, rest) = rest.split_at_checked(size).expect("it is long enough");
        body.push_str(chunk);
        text = rest.strip_prefix("\r\n").expect("a chunk has an end");
        if size == 0 {
            return text;
        }
    }
}

pub(crate) fn write_private(file: &Path, text: &str) {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut opened = options.open(file).expect("a writable file");
    opened.write_all(text.as_bytes()).expect("a writable file");
}
