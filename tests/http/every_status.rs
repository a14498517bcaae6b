//! Produces every described answer once. A new path or status without a case here fails the test.

use crate::daemon::{Daemon, text};
use crate::described;
use crate::opened::{Answer, Opened, answers, read_all, request, run};
use crate::{lease_status, process_status, queue_status, task_status};
use serde_json::{Value, json};
use sexton::spine::delivery::Stage;
use std::io::Write as _;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// The one path about queues that only those who may run commands can use.
const WITHDRAW: &str = "/v1/queues/withdraw";

/// Paths with requests that may find nothing although they name nothing.
const UNNAMED: [&str; 2] = ["/v1/queues/next", "/v1/servers/refresh"];

/// A success that cannot be had here: it takes an orphan that may belong to any tree, and so would put the trees of all coordinators of the
/// machine in doubt. `cli trees::an_orphan_that_names_no_record_keeps_the_lock_until_its_tree_is_settled` has it.
pub(crate) const SETTLE: &str = "/v1/processes/settle";

/// A request that was not sent yet.
#[derive(Clone)]
pub(crate) struct PendingRequest {
    method: String,
    target: String,
    host: &'static str,
    headers: String,
    body: Option<String>,
}

impl PendingRequest {
    /// Returns a request for a path that succeeds if `me` holds the lock `held`.
    pub(crate) fn well(path: &str, method: &str) -> Self {
        let entry = "key=held&owner=me";
        let (query, body) = match path {
            "/healthz" | "/metrics" | "/v1/checkpoint" | "/v1/clock/confirm" | "/v1/drain"
            | "/v1/events" | "/v1/locks" | "/v1/openapi.json" | "/v1/status" => (None, None),
            "/v1/locks/owner" => (Some("key=held"), None),
            "/v1/locks/place" => (Some(entry), None),
            "/v1/locks/acquire" | "/v1/locks/release" | "/v1/locks/renew" => {
                (None, Some(json!({"key": "held", "owner": "me"})))
            }
            "/v1/locks/release-all" => (None, Some(json!({"owner": "me"}))),
            "/v1/locks/force" => (None, Some(json!({"key": "held"}))),
            "/v1/locks/watch" => (None, Some(json!({"key": "held", "owner": "me", "token": 0}))),
            path if path.starts_with("/v1/queues") => queue_status::parts(path),
            path => return Self::as_described(path, method),
        };
        Self::new((path, method), query, body)
    }

    /// Returns the smallest request that the description of a path allows.
    pub(crate) fn as_described(path: &str, method: &str) -> Self {
        let (query, body) = described::least(path, method);
        Self::new((path, method), query.as_deref(), body)
    }

    fn new((path, method): (&str, &str), query: Option<&str>, body: Option<Value>) -> Self {
        Self {
            method: method.to_owned(),
            target: query.map_or(path.to_owned(), |query| format!("{path}?{query}")),
            host: "localhost",
            headers: String::new(),
            body: body.map(|body| body.to_string()),
        }
    }

    pub(crate) fn with(mut self, header: &str) -> Self {
        self.headers.push_str(header);
        self.headers.push_str("\r\n");
        self
    }

    pub(crate) fn at_target(mut self, target: &str) -> Self {
        target.clone_into(&mut self.target);
        self
    }

    pub(crate) fn about(mut self, body: &Value) -> Self {
        self.body = Some(body.to_string());
        self
    }

    /// Returns the same request with an additional space, so that its bytes differ.
    pub(crate) fn spaced(mut self) -> Self {
        self.body = self.body.map(|body| format!("{body} "));
        self
    }

    pub(crate) fn text(&self) -> String {
        let Self { method, target, host, headers, body } = self;
        let length = body
            .as_ref()
            .map_or(String::new(), |body| format!("Content-Length: {}\r\n", body.len()));
        let body = body.as_deref().unwrap_or("");
        format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{headers}{length}\r\n{body}")
    }

    pub(crate) fn of(&self, opened: &Opened) -> Answer {
        self.at(opened.address())
    }

    fn at(&self, address: SocketAddr) -> Answer {
        // While a client waits, it must keep its sending side open. A stream of events ends only when the client closes
        // the connection.
        let closes = self.target == "/v1/events" || self.headers.contains("Connection");
        let text = if closes { self.text() } else { self.clone().with("Connection: close").text() };
        let mut stream = send(address, &text);
        if closes {
            stream.shutdown(Shutdown::Write).expect("connected");
        }
        received(&mut stream)
    }
}

fn send(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let patience = Some(Duration::from_mins(1));
    stream.set_read_timeout(patience).expect("the option can be set");
    stream.write_all(text.as_bytes()).expect("connected");
    stream
}

fn received(stream: &mut TcpStream) -> Answer {
    answers(&read_all(stream)).pop().expect("an answer")
}

/// Nodes in the states that produce the answers.
struct Nodes {
    well: Opened,
    guarded: Opened,
    full: Opened,
    panicking: Opened,
    memory: Opened,
    draining: Opened,
    /// A node whose only allowed connection is in use, and that connection.
    crowded: (Opened, TcpStream),
}

/// Makes `me` the owner of the lock `held`.
pub(crate) fn hold(opened: &Opened) {
    run(opened.handle().locks().batch(vec![request(b"held", b"me")])).expect("the node answers");
}

impl Nodes {
    fn open() -> Self {
        let panicking = Opened::new();
        hold(&panicking);
        let handle = panicking.handle();
        handle.inject_panics(|stage| {
            let stages = [Stage::Decide, Stage::Query, Stage::Watch];
            assert!(!stages.contains(&stage), "planted");
        });
        // Put a file in place of the directory of snapshots, so that checkpoints fail.
        let snapshots = panicking.directory.path().join("data/snapshots");
        if snapshots.exists() {
            std::fs::remove_dir_all(&snapshots).expect("our own directory");
        }
        std::fs::write(&snapshots, "no folder").expect("our own file");
        let crowded = Opened::with(|http| http.connections_max = 1);
        let taken = crowded.connect();
        let stats = || crowded.listener().stats();
        crate::lock::until(|| stats().active == 1);
        let full = Opened::configured(|config| config.rules.lock.entries_max = 1);
        hold(&full);
        Self {
            well: Opened::configured(|config| {
                queue_status::rules(config);
                process_status::launches(config);
                process_status::serves(config);
            }),
            guarded: Opened::with_token(),
            full,
            panicking,
            memory: Opened::configured(|config| {
                config.data = None;
                config.http.as_mut().expect("HTTP is configured").socket = None;
            }),
            draining: Opened::new(),
            crowded: (crowded, taken),
        }
    }

    /// Provokes an answer about leases or tasks in their special cases. Returns `None` in all other cases.
    fn provoke_by_its_own(&self, path: &str, method: &str, status: u16) -> Option<Answer> {
        let (asked, nodes) = ((path, method, status), (&self.well, &self.panicking));
        if lease_status::is_ours(path) {
            lease_status::provoke(asked, nodes)
        } else if task_status::is_ours(path) {
            task_status::provoke(asked, nodes)
        } else {
            None
        }
    }

    /// Provokes an answer with this status from the node that gives it.
    fn provoke(&self, path: &str, method: &str, status: u16) -> Answer {
        hold(&self.well);
        if process_status::is_ours(path)
            && let Some(answer) = self.provoke_by_processes(path, method, status)
        {
            return answer;
        }
        if let Some(answer) = self.provoke_by_its_own(path, method, status) {
            return answer;
        }
        let is_of_queues = path.starts_with("/v1/queues");
        let well = match status {
            200 | 422 if is_of_queues => queue_status::well(path, method, &self.well),
            _ => PendingRequest::well(path, method),
        };
        if [WITHDRAW, "/v1/drain"].contains(&path) && [200, 500].contains(&status) {
            let node = match (status, path) {
                (500, _) => &self.panicking,
                (_, WITHDRAW) => &self.well,
                _ => &self.draining,
            };
            return process_status::at(&well, &node.socket());
        }
        match status {
            409 | 422 | 429 => self.provoke_by_state(well, (path, method, status)),
            _ => self.provoke_by_request(well, (path, method, status)),
        }
    }

    /// Sends a request to the node where all is well, as a caller who may make it.
    fn send(&self, path: &str, asking: &PendingRequest) -> Answer {
        match path {
            WITHDRAW => process_status::at(asking, &self.well.socket()),
            _ => asking.of(&self.well),
        }
    }

    /// Provokes a refusal that depends on what the node holds, or on what it was asked before.
    fn provoke_by_state(
        &self,
        well: PendingRequest,
        (path, method, status): (&str, &str, u16),
    ) -> Answer {
        match status {
            409 if path == "/v1/checkpoint" => well.of(&self.memory),
            409 if path.starts_with("/v1/queues") => {
                queue_status::conflict(path, method, &self.well)
            }
            409 => conflict(path, &well).of(&self.well),
            422 => {
                let key = format!("Idempotency-Key: {path}");
                let first = self.send(path, &well.clone().with(&key));
                assert_eq!(first.status, 200, "{first:?}");
                self.send(path, &well.with(&key).spaced())
            }
            _ => {
                let guess = well.with("Authorization: Bearer wrong-horse-battery-staple");
                let mut answers = (0..1000).map(|_| guess.of(&self.guarded));
                let refused = answers.find(|it| it.status == 429);
                refused.expect("wrong tokens are bounded")
            }
        }
    }

    /// Provokes an answer by the request alone, or by the node that gets it.
    fn provoke_by_request(
        &self,
        well: PendingRequest,
        (path, method, status): (&str, &str, u16),
    ) -> Answer {
        match (status, path) {
            (200, _) => well.of(&self.well),
            (400, _) => well.with("Host: localhost").of(&self.well),
            (401, _) => well.of(&self.guarded),
            (403, _) => well.with("Origin: http://evil.example").of(&self.well),
            (404, _) if path.starts_with("/v1/queues") => {
                queue_status::absent(path, method, &self.well)
            }
            // Bind the lock to a process that does not exist.
            (404, "/v1/locks/acquire") => {
                let process = "00000000-0000-7000-8000-000000000001";
                let bound = well.about(&json!({"key": "a", "owner": "me", "process": process}));
                process_status::at(&bound, &self.well.socket())
            }
            (404, _) => absent(path, well).of(&self.well),
            (405, _) => {
                let method = "PUT".to_owned();
                PendingRequest { method, ..well }.of(&self.well)
            }
            (413, _) => {
                let body = None;
                let large = PendingRequest { body, ..well };
                large.with("Content-Length: 100000000").of(&self.well)
            }
            (415, _) => self.send(path, &well.with("Content-Type: text/plain")),
            (421, _) => {
                let host = "evil.example";
                PendingRequest { host, ..well }.of(&self.well)
            }
            (431, _) => well.with(&format!("X: {}", "x".repeat(20_000))).of(&self.well),
            (500, _) => well.of(&self.panicking),
            (501, _) => {
                let upgrade = well.with("Connection: upgrade").with("Upgrade: websocket");
                upgrade.of(&self.well)
            }
            (503, "/v1/locks/acquire") => {
                well.about(&json!({"key": "b", "owner": "me"})).of(&self.full)
            }
            (503, _) => {
                let (crowded, _) = &self.crowded;
                received(&mut send(crowded.address(), ""))
            }
            (status, path) => panic!("{method} {path} {status} has no case here"),
        }
    }
}

impl Nodes {
    /// Provokes an answer about processes, over the socket. Returns `None` if the answer is the same as for other paths.
    fn provoke_by_processes(&self, path: &str, method: &str, status: u16) -> Option<Answer> {
        let socket = self.well.socket();
        let answer = match status {
            200 => {
                let (asking, launched) = process_status::well(path, method, &socket);
                let answer = process_status::at(&asking, &socket);
                if let Some(id) = launched {
                    process_status::ended(&socket, &id);
                }
                answer
            }
            404 => process_status::at(&process_status::absent(path, method), &socket),
            409 => process_status::conflict(path, method, &socket),
            415 => {
                let (asking, _) = process_status::well(path, method, &socket);
                process_status::at(&asking.with("Content-Type: text/plain"), &socket)
            }
            422 => {
                let (asking, launched) = process_status::well(path, method, &socket);
                let asking = asking.with(&format!("Idempotency-Key: {path}"));
                let first = process_status::at(&asking, &socket);
                assert_eq!(first.status, 200, "{first:?}");
                let answer = process_status::at(&asking.spaced(), &socket);
                if let Some(id) = launched {
                    process_status::ended(&socket, &id);
                }
                answer
            }
            500 => {
                let asking = process_status::least(path, method);
                process_status::at(&asking, &self.panicking.socket())
            }
            _ => return None,
        };
        Some(answer)
    }
}

/// Returns a request about a lock or an entry that does not exist.
fn absent(path: &str, well: PendingRequest) -> PendingRequest {
    if ["/v1/locks/owner", "/v1/locks/place"].contains(&path) {
        let target = well.target.replace("held", "absent");
        return PendingRequest { target, ..well };
    }
    if path == "/v1/locks/force" {
        return well.about(&json!({"key": "absent"}));
    }
    well.about(&json!({"key": "absent", "owner": "me"}))
}

/// Returns a request that conflicts with the holder of the lock.
fn conflict(path: &str, well: &PendingRequest) -> PendingRequest {
    well.clone().about(&if path == "/v1/locks/acquire" {
        json!({"key": "held", "owner": "other"})
    } else {
        json!({"key": "held", "owner": "me", "token": 1})
    })
}

/// A coordinator whose disk is so full that even renewals are refused.
struct FullDisk {
    files: tempfile::TempDir,
    daemon: Daemon,
    /// A process that was launched before the disk was full.
    process: String,
}

impl FullDisk {
    fn fill() -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let data = files.path().join("data");
        queue_status::abandon(&data);
        let flags = ["--http", "127.0.0.1:0", "--fsync", "never"];
        let flags = [&flags[..], &["--data", text(&data)]].concat();
        let daemon = Daemon::serve(&flags);
        let process = process_status::launched(&data.join("sexton.sock"));
        task_status::before_it_is_full(&data.join("sexton.sock"));
        daemon.limit_files(Some(3 << 20));
        let full = Self { files, daemon, process };
        // First add large entries until there is no space for another, and then renew one until there is no space for
        // renewals.
        full.repeat(|round| json!({"key": format!("{round:0>255}"), "owner": "x".repeat(255)}));
        full.repeat(|_| json!({"key": format!("{:0>255}", 0), "owner": "x".repeat(255)}));
        full
    }

    /// Sends requests for locks, many per connection, until one is refused because the disk is full.
    fn repeat(&self, fields: impl Fn(u32) -> Value) {
        for round in 0..1000_u32 {
            let asking = |entry| {
                let well = PendingRequest::well("/v1/locks/acquire", "POST");
                well.about(&fields(round * 200 + entry)).text()
            };
            let text: String = (0..200).map(asking).collect();
            let mut stream = send(self.daemon.http(), &text);
            stream.shutdown(Shutdown::Write).expect("connected");
            let answers = answers(&read_all(&mut stream));
            if answers.iter().any(|answer| answer.status == 507) {
                return;
            }
        }
        panic!("the disk does not become full");
    }

    /// Stops the process that was launched, and the coordinator.
    fn end(self) {
        self.daemon.limit_files(None);
        let socket = self.files.path().join("data/sexton.sock");
        process_status::ended(&socket, &self.process);
    }

    fn provoke(&self, path: &str, method: &str) -> Answer {
        if process_status::is_ours(path) {
            let socket = self.files.path().join("data/sexton.sock");
            return process_status::full(path, method, (&socket, &self.process));
        }
        if lease_status::is_ours(path) {
            let socket = self.files.path().join("data/sexton.sock");
            return lease_status::full(path, method, &socket);
        }
        if task_status::is_ours(path) {
            let socket = self.files.path().join("data/sexton.sock");
            return task_status::full(path, method, &socket);
        }
        let asking = PendingRequest::well(path, method);
        if !path.starts_with("/v1/locks") {
            return asking.at(self.daemon.http());
        }
        let fields = json!({"key": format!("{:0>255}", 0), "owner": "x".repeat(255)});
        asking.about(&fields).at(self.daemon.http())
    }
}

#[test]
fn every_answer_that_is_described_is_given() {
    let described = described::answers();
    assert!(described.len() > 400, "the description was read");
    let nodes = Nodes::open();
    // Begin all slow requests first, so that their timeouts run at the same time.
    let late: Vec<_> = described
        .iter()
        .filter(|(_, _, status)| *status == 408)
        .map(|(path, method, _)| {
            let text = PendingRequest::well(path, method).text();
            let begun = text.split_once("\r\n").expect("a first line").0;
            (path, method, send(nodes.well.address(), begun))
        })
        .collect();
    let mut full = None;
    for (path, method, status) in &described {
        let answer = match status {
            408 => continue,
            200 | 422 if path == SETTLE => continue,
            507 => full.get_or_insert_with(FullDisk::fill).provoke(path, method),
            status => nodes.provoke(path, method, *status),
        };
        if *status == 507 {
            let detail = answer.problem(507);
            let freeing = ["queue flush", "ps prune", "task prune", "released locks"];
            let names = |what: &&str| detail.contains(*what);
            assert!(freeing.iter().all(names), "{method} {path}: {detail}");
        }
        assert_eq!(answer.status, *status, "{method} {path}: {answer:?}");
        described::check(method, path, &answer);
        if *status == 404 && !UNNAMED.contains(&path.as_str()) {
            let field = answer.because(404, "absent").get("field").cloned();
            let field = field.unwrap_or_else(|| panic!("{path} says what is absent: {answer:?}"));
            let known = described::fields(method, path);
            assert!(known.contains(field.as_str().expect("text")), "{path}: {field} in {known:?}");
        }
    }
    if let Some(full) = full {
        full.end();
    }
    for (path, method, mut stream) in late {
        let answer = received(&mut stream);
        assert_eq!(answer.status, 408, "{method} {path}: {answer:?}");
        described::check(method, path, &answer);
    }
}
