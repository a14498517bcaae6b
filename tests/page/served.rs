//! A node in this process that serves the page, on a port that it keeps across restarts.

use crate::lock_request::request;
use serde_json::Value;
use sexton::actors::lock::Name;
use sexton::actors::queue::{Body, Put, QueueName};
pub(crate) use sexton::block_on as run;
use sexton::config::{Config, HttpConfig};
use sexton::handle::Handle;
use sexton::node::Node;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;

/// A token without access to processes, and one with it.
pub(crate) const TOKEN: &str = "correct-horse-battery-staple";
pub(crate) const RUN_TOKEN: &str = "correct-horse-that-runs";

pub(crate) struct Served {
    node: Option<Node>,
    config: Config,
    pub(crate) address: SocketAddr,
    #[expect(dead_code, reason = "held for as long as the node runs")]
    directory: tempfile::TempDir,
}

impl Served {
    /// Starts a node that requires no token.
    pub(crate) fn open() -> Self {
        Self::configured(|_| {})
    }

    /// Starts a node that accepts both tokens.
    pub(crate) fn with_tokens(change: impl FnOnce(&mut Config)) -> Self {
        Self::configured(|config| {
            let data = config.data.as_ref().expect("it has files");
            let file = data.with_file_name("tokens");
            let mut options = std::fs::OpenOptions::new();
            let opened = options.write(true).create_new(true).mode(0o600).open(&file);
            let lines = format!("{TOKEN}\n{RUN_TOKEN} run\n");
            let mut opened = opened.expect("it can be created");
            opened.write_all(lines.as_bytes()).expect("a writable file");
            let http = config.http.as_mut().expect("HTTP is configured");
            http.token_file = Some(file);
            change(config);
        })
    }

    pub(crate) fn configured(change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let http = HttpConfig {
            tcp: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            ..HttpConfig::default()
        };
        let mut config = Config { http: Some(http), ..Config::at(directory.path().join("data")) };
        change(&mut config);
        let node = sexton_http::open(config.clone()).expect("the node opens");
        let address = node.handle().listeners().http.expect("it listens");
        config.http.as_mut().expect("HTTP is configured").tcp = Some(address);
        Self { node: Some(node), config, address, directory }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn handle(&self) -> Handle {
        self.node.as_ref().expect("the node is running").handle()
    }

    pub(crate) fn stop(&mut self) {
        let node = self.node.take().expect("it is running");
        node.stop().expect("a clean stop");
    }

    pub(crate) fn start(&mut self) {
        self.node = Some(sexton_http::open(self.config.clone()).expect("it opens again"));
    }

    /// Requests a lock, or waits for it.
    pub(crate) fn lock(&self, key: &[u8], owner: &[u8]) {
        let asked = vec![request(key, owner)];
        run(self.handle().locks().batch(asked)).expect("the node answers");
    }

    /// Returns the holder of a lock.
    pub(crate) fn owner(&self, key: &str) -> Option<String> {
        let key = Name::try_from(key).expect("the name is short");
        let owner = run(self.handle().locks().owner(&key, &Name::default()));
        owner.expect("the node answers").map(|owner| owner.to_text())
    }

    /// Adds jobs to a queue.
    pub(crate) fn push(&self, queue: &str, bodies: &[&str]) {
        let queue: QueueName = queue.try_into().expect("a valid name");
        let jobs =
            bodies.iter().map(|body| Put::new(queue.clone(), Body::new(body.as_bytes().to_vec())));
        let added = run(self.handle().queues().put_all(jobs.collect()));
        added.expect("they are added");
    }

    /// Sends an HTTP request with the token that allows commands. Returns the JSON in the answer.
    pub(crate) fn post(&self, path: &str, fields: &Value) -> Value {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        let body = fields.to_string();
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {RUN_TOKEN}\r\n"
        );
        let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).expect("connected");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("UTF-8");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path} {body}: {answer}");
        let (begin, end) = (answer.find('{'), answer.rfind('}'));
        let json = &answer[begin.expect("valid JSON")..=end.expect("valid JSON")];
        serde_json::from_str(json).expect("valid JSON")
    }
}
