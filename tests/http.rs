//! The HTTP door of a node in this process, over real sockets: routes, refusals, limits, hostile bytes.

use sexton::actors::host::Item;
use sexton::actors::ledger::Stage;
use sexton::actors::lock::{LockMachine, Message, Name};
use sexton::config::{Config, HttpConfig, LockserverConfig};
use sexton::node::{Handle, Node, NodeError};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

const TOKEN: &str = "correct-horse-battery-staple";

/// A node with its HTTP door open on TCP and on a socket in a directory of its own.
struct Opened {
    node: Option<Node>,
    directory: tempfile::TempDir,
}

/// An answer, taken apart.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// Asserts that this is a problem document about this status, and gives its detail.
    fn problem(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        let content_type = self.header("content-type");
        assert_eq!(content_type, Some("application/problem+json"), "{self:?}");
        let document: serde_json::Value = serde_json::from_str(&self.body).expect("it is JSON");
        assert_eq!(document["status"], status);
        assert_eq!(document["type"], "about:blank");
        assert!(
            document["title"]
                .as_str()
                .is_some_and(|title| !title.is_empty())
        );
        document["detail"].as_str().expect("it says why").to_owned()
    }
}

impl Opened {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut HttpConfig)) -> Self {
        Self::configured(|config| change(config.http.as_mut().expect("it has one")))
    }

    fn configured(change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
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
        let node = Node::open(config).expect("the node opens");
        Self {
            node: Some(node),
            directory,
        }
    }

    fn with_token() -> Self {
        Self::with(|http| {
            let socket = http.socket.as_ref().expect("it has one");
            let file = socket
                .parent()
                .and_then(Path::parent)
                .expect("inside")
                .join("token");
            write_private(&file, TOKEN);
            http.token_file = Some(file);
        })
    }

    fn handle(&self) -> Handle {
        self.node.as_ref().expect("it runs").handle()
    }

    fn address(&self) -> SocketAddr {
        self.handle().doors().http.expect("the door is open")
    }

    fn socket(&self) -> PathBuf {
        self.handle().doors().socket.expect("the door is open")
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).expect("it listens");
        let patience = Some(Duration::from_secs(30));
        stream.set_read_timeout(patience).expect("it can be set");
        stream
    }

    /// Everything that is answered to these bytes, with the sending side closed behind them.
    fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes).expect("it is read");
        stream
            .shutdown(std::net::Shutdown::Write)
            .expect("it is open");
        read_all(&mut stream)
    }

    fn ask(&self, bytes: &[u8]) -> Answer {
        let text = self.exchange(bytes);
        answers(&text)
            .pop()
            .unwrap_or_else(|| panic!("no answer in {text:?}"))
    }

    fn get(&self, path: &str, headers: &str) -> Answer {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").as_bytes())
    }

    fn get_over_socket(&self, path: &str) -> Answer {
        let mut stream = UnixStream::connect(self.socket()).expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it is read");
        answers(&read_all(&mut stream)).pop().expect("it answers")
    }

    fn stop(&mut self) {
        self.node
            .take()
            .expect("it runs")
            .stop()
            .expect("it stops well");
    }
}

fn read_all(stream: &mut impl std::io::Read) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("it ends");
    String::from_utf8(bytes).expect("it is text")
}

/// Takes the answers to GET requests apart, each by its length.
fn answers(mut text: &str) -> Vec<Answer> {
    let mut found = Vec::new();
    while let Some((head, rest)) = text.split_once("\r\n\r\n") {
        let mut answer = Answer {
            status: head[9..12].parse().expect("a status"),
            head: head.to_owned(),
            body: String::new(),
        };
        let length = answer
            .header("content-length")
            .map_or(0, |length| length.parse().expect("a length"));
        answer.body = rest[..length].to_owned();
        text = &rest[length..];
        found.push(answer);
    }
    assert_eq!(text, "", "something stands behind the answers");
    found
}

fn write_private(file: &Path, text: &str) {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut opened = options.open(file).expect("it can be written");
    opened
        .write_all(text.as_bytes())
        .expect("it can be written");
}

fn run<T>(task: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(task)
}

fn request(key: &[u8], owner: &[u8]) -> Item<LockMachine> {
    let name = |bytes: &[u8]| Name::new(bytes).expect("it is short");
    Item::Message(Message::Request {
        key: name(key),
        index: name(b""),
        owner: name(owner),
        ttl: 600,
        ttw: 600,
        priority: 0,
    })
}

#[test]
fn the_routes_answer() {
    let opened = Opened::new();
    let health = opened.get("/healthz", "");
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));
    for path in ["/healthz", "/v1/status", "/metrics"] {
        let answer = opened.get(path, "");
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(
            answer.header("x-content-type-options"),
            Some("nosniff"),
            "{path}"
        );
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        let head =
            opened.exchange(format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"),
            "{head}"
        );
        assert_eq!(
            head.matches("\r\n\r\n").count(),
            1,
            "an answer to HEAD has no body: {head}"
        );
    }
}

#[test]
fn the_status_tells_what_was_done() {
    let opened = Opened::new();
    let items = vec![
        request(b"a", b"one"),
        request(b"a", b"two"),
        request(b"b", b"one"),
    ];
    let done = run(opened.handle().locks(items)).expect("it runs");
    assert_eq!(done.len(), 3);
    let over_tcp = opened.get("/v1/status", "");
    assert_eq!(over_tcp.header("content-type"), Some("application/json"));
    for answer in [over_tcp, opened.get_over_socket("/v1/status")] {
        let status: serde_json::Value = serde_json::from_str(&answer.body).expect("it is JSON");
        assert_eq!(
            (&status["lock_owners"], &status["lock_contenders"]),
            (&2.into(), &1.into())
        );
        assert_eq!(status["pid"], std::process::id());
        assert_eq!(status["fsync"], "always");
        assert_eq!(status["doors"]["http"], opened.address().to_string());
        assert_eq!(
            status["doors"]["socket"],
            opened.socket().to_str().expect("text")
        );
        assert_eq!(status["actors"][0]["name"], "lock");
        assert_eq!(status["actors"][0]["restarts"], 0);
        assert!(status["journal"]["syncs"].as_u64() > Some(0));
        assert!(status["journal"]["released"].as_u64() >= status["actors"][0]["last"].as_u64());
        assert!(status["http"]["accepted"].as_u64() > Some(0));
        assert_eq!(status["halted"], serde_json::Value::Null);
    }
}

#[test]
fn the_metrics_are_metrics_line_by_line() {
    let opened = Opened::new();
    let items = vec![request(b"a", b"one"), request(b"a", b"two")];
    let done = run(opened.handle().locks(items)).expect("it runs");
    assert_eq!(done.len(), 2);
    opened.get("/nothing", "").problem(404);
    let page = opened.get("/metrics", "");
    assert!(
        page.header("content-type")
            .is_some_and(|found| found.starts_with("application/openmetrics-text"))
    );
    let body = page
        .body
        .strip_suffix("# EOF\n")
        .expect("the page is whole");
    let mut types = std::collections::BTreeMap::new();
    let mut samples = std::collections::BTreeMap::new();
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (kind, name, rest) = (
                words.next(),
                words.next().expect("a name"),
                words.next().expect("a text"),
            );
            assert!(matches!(kind, Some("HELP" | "TYPE" | "UNIT")), "{line}");
            assert!(name.starts_with("sexton_") && !rest.is_empty(), "{line}");
            if kind == Some("TYPE") {
                assert!(
                    types.insert(name.to_owned(), rest.to_owned()).is_none(),
                    "twice: {line}"
                );
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a series and a value");
        let value: f64 = value.parse().expect("a number");
        let name = series.split('{').next().expect("a name");
        let family = types
            .keys()
            .rfind(|family| name.starts_with(family.as_str()))
            .unwrap_or_else(|| panic!("no type: {line}"));
        let suffix = &name[family.len()..];
        let expected = match types[family].as_str() {
            "counter" => "_total",
            "gauge" => "",
            "info" => "_info",
            other => panic!("an unexpected type {other}"),
        };
        assert_eq!(suffix, expected, "{line}");
        assert!(
            samples.insert(series.to_owned(), value).is_none(),
            "twice: {line}"
        );
    }
    let at = |series: &str| {
        *samples
            .get(series)
            .unwrap_or_else(|| panic!("no {series} in {samples:#?}"))
    };
    assert_eq!(at(r#"sexton_build_info{version="0.1.0"}"#), 1.0);
    assert_eq!(
        (at("sexton_lock_owners"), at("sexton_lock_contenders")),
        (1.0, 1.0)
    );
    assert_eq!(at(r#"sexton_actor_restarts_total{actor="lock"}"#), 0.0);
    assert!(at("sexton_journal_written_bytes_total") > 0.0);
    assert_eq!(at(r#"sexton_journal_room{room="ample"}"#), 1.0);
    assert_eq!(at(r#"sexton_http_requests_total{result="refused"}"#), 1.0);
    assert!(at("sexton_start_time_seconds") > 1.6e9);
}

#[test]
fn what_is_not_served_is_refused_as_a_problem() {
    let opened = Opened::new();
    for path in [
        "/",
        "/v1",
        "/v1/status/",
        "//v1/status",
        "/v1/../healthz",
        "/healthz/..%2f",
        "/V1/STATUS",
        "/v1/status;x",
        "/%00",
        "/../../etc/passwd",
    ] {
        opened.get(path, "").problem(404);
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
        let answer = opened
            .ask(format!("{method} /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        answer.problem(405);
        assert_eq!(answer.header("allow"), Some("GET, HEAD"), "{method}");
    }
    assert_eq!(
        opened.get("/healthz?verbose=1", "").status,
        200,
        "a query is no other path"
    );
}

#[test]
fn a_foreign_host_or_origin_is_refused_on_tcp() {
    let opened = Opened::with(|http| http.names = vec!["Ledger.Example".to_owned()]);
    let with =
        |headers: &str| opened.ask(format!("GET /v1/status HTTP/1.1\r\n{headers}\r\n").as_bytes());
    with("").problem(400);
    with("Host: localhost\r\nHost: localhost\r\n").problem(400);
    let detail = with("Host: evil.example\r\n").problem(421);
    assert!(
        !detail.contains("evil"),
        "a refusal repeats nothing of the request"
    );
    with("Host: 10.1.2.3\r\n").problem(421);
    with("Host: localhost\r\nOrigin: https://evil.example\r\n").problem(403);
    with("Host: localhost\r\nOrigin: null\r\n").problem(403);
    let port = opened.address().port();
    assert_eq!(with(&format!("Host: 127.0.0.1:{port}\r\n")).status, 200);
    assert_eq!(with("Host: ledger.example\r\n").status, 200);
    assert_eq!(
        with(&format!(
            "Host: localhost:{port}\r\nOrigin: http://localhost:{port}\r\n"
        ))
        .status,
        200
    );
    opened
        .ask(b"GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .problem(421);
    assert_eq!(
        opened
            .ask(b"GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .status,
        200
    );
    opened.ask(b"GET /healthz HTTP/1.0\r\n\r\n").problem(400);
    assert_eq!(
        opened.get_over_socket("/healthz").status,
        200,
        "the socket asks for no name"
    );
}

#[test]
fn a_token_is_asked_for_on_tcp_and_read_again() {
    let opened = Opened::with_token();
    let with =
        |token: &str| opened.get("/v1/status", &format!("Authorization: Bearer {token}\r\n"));
    for refused in [
        opened.get("/v1/status", ""),
        opened.get("/healthz", ""),
        opened.get("/absent", ""),
        with("correct-horse-battery-stapl"),
        with("wrong"),
    ] {
        refused.problem(401);
        assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    }
    assert_eq!(with(TOKEN).status, 200);
    assert_eq!(
        opened.get_over_socket("/v1/status").status,
        200,
        "our own user needs none"
    );

    let (handle, file) = (opened.handle(), opened.directory.path().join("token"));
    let door = handle.http().expect("it is open");
    assert!(
        !door.reload_token().expect("it can be read"),
        "nothing changed"
    );
    write_private(&file, "short");
    let error = door
        .reload_token()
        .expect_err("it is too short")
        .to_string();
    assert!(
        !error.contains("short"),
        "an error shows nothing of the token: {error}"
    );
    assert_eq!(with(TOKEN).status, 200, "the old one stays in force");
    write_private(&file, "another-token-of-the-right-length\n");
    assert!(door.reload_token().expect("it can be read"), "it changed");
    with(TOKEN).problem(401);
    assert_eq!(with("another-token-of-the-right-length").status, 200);
}

#[test]
fn a_token_stands_in_no_answer() {
    let opened = Opened::with_token();
    let authorized = format!("Authorization: Bearer {TOKEN}\r\n");
    for path in ["/v1/status", "/metrics", "/healthz", "/absent"] {
        let answer = opened.get(path, &authorized);
        assert!(!format!("{answer:?}").contains("staple"), "{path}");
    }
    let garbage = opened.exchange(format!("GET / HTTP/9\r\n{authorized}\r\n").as_bytes());
    assert!(
        garbage.starts_with("HTTP/1.1 400") && !garbage.contains("staple"),
        "{garbage}"
    );
}

#[test]
fn a_token_file_that_others_may_use_or_that_is_no_token_stops_the_start() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let file = directory.path().join("token");
    let open = || {
        let http = HttpConfig {
            tcp: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            token_file: Some(file.clone()),
            ..HttpConfig::default()
        };
        let config = Config {
            http: Some(http),
            ..Config::in_memory()
        };
        Node::open(config)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let missing = open().expect_err("there is none");
    assert!(missing.contains("No such file"), "{missing}");
    write_private(&file, TOKEN);
    open().expect("it is a good one");
    for mode in [0o640, 0o604, 0o620, 0o644] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("it is ours");
        let exposed = open().expect_err("others may use it");
        assert!(
            exposed.contains(&format!("{mode:04o}")) && !exposed.contains("staple"),
            "{exposed}"
        );
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    for wrong in [
        "",
        "\n",
        "fifteen-letters",
        "two lines of it\nare no token\n",
        "blanks are not allowed here",
    ] {
        write_private(&file, wrong);
        assert!(open().is_err(), "{wrong:?}");
    }
}

#[test]
fn hostile_bytes_get_a_problem_and_the_end() {
    let opened = Opened::new();
    let large = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "x".repeat(17 * 1024)
    );
    let endless = format!("GET /{}", "x".repeat(200 * 1024));
    let many = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
        "a: b\r\n".repeat(200)
    );
    let cases: [(&[u8], u16); 11] = [
        (b"GET /healthz\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"\0\0\0\0", 400),
        (b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (large.as_bytes(), 431),
        (endless.as_bytes(), 431),
        (many.as_bytes(), 431),
        (b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 501),
    ];
    for (bytes, status) in cases {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let text = opened.exchange(bytes);
        let found = answers(&text);
        assert_eq!(found.len(), 1, "{shown:?}: {text}");
        assert_eq!(found[0].status, status, "{shown:?}");
        found[0].problem(status);
        assert_eq!(found[0].header("connection"), Some("close"), "{shown:?}");
    }
    assert_eq!(
        opened.get("/healthz", "").status,
        200,
        "others do not notice"
    );
}

#[test]
fn a_body_is_bounded() {
    let opened = Opened::new();
    let post = |headers: &str, body: &str| {
        opened.ask(
            format!("POST /healthz HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n{body}").as_bytes(),
        )
    };
    post("Content-Length: 3\r\n", "abc").problem(405);
    post("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n").problem(405);
    post("Content-Length: 1000000\r\n", "").problem(413);
    let chunks = format!(
        "{}0\r\n\r\n",
        format!("1000\r\n{}\r\n", "x".repeat(0x1000)).repeat(5)
    );
    post("Transfer-Encoding: chunked\r\n", &chunks).problem(413);
    let text = opened.exchange(b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc");
    let found: Vec<u16> = answers(&text).iter().map(|answer| answer.status).collect();
    assert_eq!(found, [100, 405]);
}

#[test]
fn a_head_that_comes_too_slowly_is_given_up() {
    let opened = Opened::new();
    let mut stream = opened.connect();
    // The second request of a connection is under the same bound as the first.
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /heal")
        .expect("it is read");
    let text = read_all(&mut stream);
    let found = answers(&text);
    assert_eq!(found.len(), 2, "{text}");
    assert_eq!(found[0].status, 200);
    found[1].problem(408);
}

#[test]
fn requests_are_answered_in_order_on_one_connection() {
    let opened = Opened::new();
    let paths = ["/healthz", "/absent", "/v1/status", "/metrics", "/healthz"];
    let requests: String = (0..200)
        .map(|number| {
            format!(
                "GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n",
                paths[number % paths.len()]
            )
        })
        .collect();
    // Split anywhere, a request is the same.
    let mut stream = opened.connect();
    let mut reading = stream.try_clone().expect("it is open");
    let writing = std::thread::Builder::new().spawn(move || {
        for bytes in requests.as_bytes().chunks(7) {
            stream.write_all(bytes).expect("it is read");
        }
        stream
            .shutdown(std::net::Shutdown::Write)
            .expect("it is open");
    });
    let found = answers(&read_all(&mut reading));
    writing.expect("a thread").join().expect("it ends well");
    let statuses: Vec<u16> = found.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 404, 200, 200, 200].repeat(40));
    assert!(found[3].body.ends_with("# EOF\n") && found[4].body == "ok\n");
    let closed = opened.get("/healthz", "Connection: close\r\n");
    assert_eq!(closed.header("connection"), Some("close"));
}

#[test]
fn connections_are_bounded_and_the_socket_has_places_of_its_own() {
    let opened = Opened::new();
    let taken: Vec<TcpStream> = (0..256)
        .map(|_| {
            let mut stream = opened.connect();
            // One answered request each shows that each has its place.
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .expect("it is read");
            let mut first = [0; 12];
            stream.read_exact(&mut first).expect("it answers");
            assert_eq!(&first, b"HTTP/1.1 200");
            stream
        })
        .collect();
    let mut one_more = opened.connect();
    let text = read_all(&mut one_more);
    answers(&text)[0].problem(503);
    assert_eq!(opened.get_over_socket("/healthz").status, 200);
    drop(taken);
    let stats = || opened.handle().http().expect("it is open").stats();
    while stats().active > 0 {
        std::thread::yield_now();
    }
    assert_eq!(
        opened.get("/healthz", "").status,
        200,
        "places are given back"
    );
    assert_eq!(stats().rejected_busy, 1);
}

#[test]
fn the_socket_is_private_replaces_a_stale_one_and_goes_at_a_clean_stop() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let socket = directory.path().join("s");
    drop(UnixListener::bind(&socket).expect("it can be bound"));
    assert!(UnixStream::connect(&socket).is_err(), "it is stale");
    let mut opened = Opened::with(|http| http.socket = Some(socket.clone()));
    let metadata = std::fs::symlink_metadata(&socket).expect("it is there");
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o600);
    assert_eq!(opened.get_over_socket("/healthz").status, 200);
    opened.stop();
    assert!(!socket.exists(), "a clean stop leaves nothing behind");
}

#[test]
fn a_socket_is_not_put_over_a_file_or_over_a_live_one_or_at_a_long_path() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let open = |socket: &Path| {
        let http = HttpConfig {
            socket: Some(socket.to_owned()),
            ..HttpConfig::default()
        };
        let config = Config {
            http: Some(http),
            ..Config::in_memory()
        };
        match Node::open(config) {
            Err(error @ NodeError::Door { .. }) => error.to_string(),
            Err(error) => panic!("another error: {error}"),
            Ok(_) => panic!("it opened"),
        }
    };
    let file = directory.path().join("file");
    write_private(&file, "precious");
    assert!(open(&file).contains("no socket"));
    assert_eq!(
        std::fs::read_to_string(&file).expect("it is there"),
        "precious"
    );
    let live = directory.path().join("live");
    let listener = UnixListener::bind(&live).expect("it can be bound");
    assert!(open(&live).to_lowercase().contains("in use"));
    assert!(live.exists());
    drop(listener);
    let long = open(&directory.path().join("x".repeat(108)));
    assert!(long.contains("107") && long.contains("shorter"), "{long}");
}

#[test]
fn closing_does_not_wait_for_those_who_are_silent() {
    let mut opened = Opened::new();
    let mut idle = opened.connect();
    let mut half = opened.connect();
    half.write_all(b"GET /healthz HT").expect("it is read");
    let mut over_socket = UnixStream::connect(opened.socket()).expect("it listens");
    assert_eq!(opened.get("/healthz", "").status, 200);
    let address = opened.address();
    opened.stop();
    assert!(
        TcpStream::connect(address).is_err(),
        "nobody listens any more"
    );
    let mut rest = Vec::new();
    assert_eq!(idle.read_to_end(&mut rest).expect("it ended"), 0);
    assert_eq!(over_socket.read_to_end(&mut rest).expect("it ended"), 0);
    // Cut off with or without a word: it ended.
    drop(half.read_to_end(&mut rest));
}

#[test]
fn a_halted_node_is_not_healthy() {
    let opened = Opened::configured(|config| config.supervisor.restarts_max = 0);
    let handle = opened.handle();
    handle.sabotage_locks(Box::new(|stage, _| {
        assert_ne!(stage, Stage::Decide, "planted");
    }));
    assert!(run(handle.locks(vec![request(b"a", b"one")])).is_err());
    let halt = run(handle.halted()).to_string();
    assert_eq!(opened.get("/healthz", "").problem(503), halt);
    opened.get("/v1/status", "").problem(503);
    opened.get("/metrics", "").problem(503);
}
