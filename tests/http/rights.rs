//! Who may do what: every route of the description and of the page, with a request from each kind of caller. `rights.txt` records which
//! requests reach the function of the route; record it again with `UPDATE=1`. The table in `docs/operations.md` is made from the same routes.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::left_out::left_out;
use crate::opened::{Answer, Opened, TOKEN, answers, read_all, write_private};
use crate::patience::until;
use serde_json::{Value, json};
use sexton_http::{RouteScope, scopes};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

const READ_TOKEN: &str = "correct-horse-that-reads";
const RUN_TOKEN: &str = "correct-horse-that-runs";

/// A user and a group that are nobody's, for a caller that is not the coordinator's own user.
const STRANGER: u32 = 65_534;

/// A kind of caller: the word in the record, and what it stands for.
const CALLERS: [(&str, &str); 8] = [
    ("open", "on loopback, where the coordinator has no tokens"),
    ("none", "without a token, where the coordinator has tokens"),
    ("read", "with a token with ` read` after it"),
    ("plain", "with a token with nothing after it"),
    ("run", "with a token with ` run` after it, over loopback or TLS"),
    ("far", "with the same token, from another machine and without TLS"),
    ("group", "on the socket, as another user whom its mode or --socket-group admits"),
    ("own", "on the socket, as the coordinator's own user or root"),
];

/// A process that does not exist.
const ABSENT: &str = "00000000-0000-7000-8000-000000000001";

/// Nodes that are asked: one without tokens, one with tokens, and one with the same tokens that is reached by an address of this machine
/// that is not a loopback address, if the machine has one.
struct Nodes {
    open: Opened,
    guarded: Opened,
    far: Option<(Opened, IpAddr)>,
}

impl Nodes {
    fn open() -> Self {
        let guarded = |ip: IpAddr| {
            Opened::configured(|config| {
                let http = config.http.as_mut().expect("HTTP is configured");
                let socket = http.socket.as_ref().expect("a socket");
                let data = socket.parent().expect("it is below");
                let file = data.with_file_name("token");
                write_private(&file, &format!("{TOKEN}\n{RUN_TOKEN} run\n{READ_TOKEN} read\n"));
                http.token_file = Some(file);
                http.tcp = Some(SocketAddr::new(ip, 0));
                http.socket_mode = 0o660;
                http.socket_group = rustix::process::geteuid().is_root().then_some(STRANGER);
                let directory = data.parent().expect("it is below");
                let passable = std::fs::Permissions::from_mode(0o711);
                std::fs::set_permissions(directory, passable).expect("our own directory");
            })
        };
        let far = address().map(|ip| (guarded(ip), ip));
        Self { open: Opened::new(), guarded: guarded([127, 0, 0, 1].into()), far }
    }

    /// Returns the node that this kind of caller asks.
    fn of(&self, caller: &str) -> &Opened {
        match caller {
            "open" => &self.open,
            "far" => self.far.as_ref().map_or(&self.guarded, |(node, _)| node),
            _ => &self.guarded,
        }
    }

    /// Sends a request as this kind of caller. Returns `None` if there cannot be such a caller in this environment.
    fn ask(&self, caller: &str, (head, body): &(String, String)) -> Option<Answer> {
        let node = self.of(caller);
        let token = match caller {
            "read" => Some(READ_TOKEN),
            "plain" => Some(TOKEN),
            "run" => Some(RUN_TOKEN),
            "far" => self.far.as_ref().map(|_| Some(RUN_TOKEN))?,
            _ => None,
        };
        let host = match (caller, &self.far) {
            ("far", Some((_, ip))) => ip.to_string(),
            _ => "localhost".to_owned(),
        };
        let token = token.map_or(String::new(), |it| format!("Authorization: Bearer {it}\r\n"));
        let kind = if body.starts_with('{') {
            "Content-Type: application/json\r\n"
        } else {
            "Content-Type: application/x-www-form-urlencoded\r\n"
        };
        // The origin is that of a form from the coordinator's own page.
        let text = format!(
            "{head} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nConnection: close\r\n{kind}{token}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        match caller {
            "own" => {
                Some(sent(UnixStream::connect(node.socket()).expect("it listens"), &text, |it| {
                    it.shutdown(Shutdown::Write)
                }))
            }
            "group" => {
                Some(sent(as_stranger(&node.socket())?, &text, |it| it.shutdown(Shutdown::Write)))
            }
            _ => Some(sent(TcpStream::connect(node.address()).expect("it listens"), &text, |it| {
                it.shutdown(Shutdown::Write)
            })),
        }
    }
}

fn sent<S: Read + Write>(
    mut stream: S,
    text: &str,
    close: impl FnOnce(&S) -> std::io::Result<()>,
) -> Answer {
    stream.write_all(text.as_bytes()).expect("connected");
    // An answer to HEAD usually has no body, whatever length it states.
    let is_head = text.starts_with("HEAD");
    close(&stream).expect("connected");
    let said = read_all(&mut stream);
    if is_head {
        let (head, _) = said.split_once("\r\n\r\n").expect("a head");
        let status = head.get(9..12).and_then(|it| it.parse().ok());
        return Answer {
            status: status.expect("a status"),
            head: head.to_owned(),
            body: String::new(),
        };
    }
    answers(&said).pop().expect("an answer")
}

/// Returns an address of this machine that is not a loopback address, if it has one.
fn address() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    // Connecting a datagram socket sends nothing.
    socket.connect(("192.0.2.1", 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

/// Other users of a socket that is open to them may take all of its connections, and never let go. The coordinator's own user must still be
/// able to look and to stop things.
#[test]
fn the_own_user_is_let_in_when_others_have_taken_all_connections() {
    let node = Opened::with(|http| {
        http.connections_max = 2;
        http.socket_mode = 0o660;
        http.socket_group = rustix::process::geteuid().is_root().then_some(STRANGER);
    });
    let Some(first) = as_stranger(&node.socket()) else {
        return left_out("connections of another user: this needs root");
    };
    let mut held = vec![first];
    held.extend(as_stranger(&node.socket()));
    until("others have taken all connections", || {
        let status = node.get_over_socket("/v1/status").json();
        (status["http"]["active"] == 3).then_some(())
    });
    let refused = as_stranger(&node.socket()).expect("the kernel lets it connect");
    let request = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let refused = sent(refused, request, |_| Ok(()));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(node.get_over_socket("/v1/status").status, 200);
}

/// Other users of a socket that is open to them may take all of their waits. The coordinator's own user has others.
#[test]
fn the_own_user_waits_when_others_have_taken_all_their_waits() {
    let node = Opened::with(|http| {
        http.waits_max = 1;
        http.socket_mode = 0o660;
        http.socket_group = rustix::process::geteuid().is_root().then_some(STRANGER);
    });
    let wait = json!({"queues": ["nothing"], "wait": 3600}).to_string();
    let request = format!(
        "POST /v1/queues/pop HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{wait}",
        wait.len()
    );
    let Some(mut held) = as_stranger(&node.socket()) else {
        return left_out("waits of another user: this needs root");
    };
    held.write_all(request.as_bytes()).expect("connected");
    let waiting = |number: u64| {
        until("they wait", || {
            let status = node.get_over_socket("/v1/status").json();
            (status["queues"]["waiting"] == number).then_some(())
        });
    };
    waiting(1);
    let refused = as_stranger(&node.socket()).expect("the kernel lets it connect");
    sent(refused, &request, |_| Ok(())).because(503, "waits");
    let _own = node.begin_as_owner("/v1/queues/pop", &json!({"queues": ["nothing"], "wait": 3600}));
    waiting(2);
}

/// A request that waits for what it has changed is refused before it changes anything.
#[test]
fn what_is_refused_for_the_lack_of_a_wait_is_not_done() {
    let node = Opened::with(|http| http.waits_max = 0);
    let launch = json!({"command": ["true"]});
    let deferred = json!({"command": ["true"], "deferred": true});
    let deferred = node.post_as_owner("/v1/processes/launch", &deferred).json();
    let name = json!({"name": "lease", "launch": launch});
    let claim = json!({"name": "claimed", "wait": 9});
    for (path, fields) in [
        ("/v1/processes/launch", &launch),
        ("/v1/processes/start", &json!({"id": deferred["id"]})),
        ("/v1/leases/run", &name),
        ("/v1/leases/claim", &claim),
        ("/v1/drain?wait=9", &Value::Null),
        ("/v1/services/restart", &json!({"wait": 9})),
    ] {
        node.post_as_owner(path, fields).because(503, "waits");
    }
    let processes = node.get_over_socket("/v1/processes").json();
    let processes = processes["processes"].as_array().expect("a list");
    assert_eq!(processes.len(), 1, "{processes:?}");
    assert_eq!(processes.first().map(|it| &it["status"]), Some(&deferred["status"]));
    assert_eq!(node.get_over_socket("/v1/leases").json()["leases"], json!([]));
    assert_eq!(node.get_over_socket("/v1/status").json()["draining"], false);
    // What waits for nothing is done.
    let cancelled = node.post_as_owner("/v1/processes/stop", &json!({"id": deferred["id"]}));
    assert_eq!(cancelled.status, 200, "{cancelled:?}");
}

/// Connects to a socket as another user. Returns `None` if this program may not change its user.
fn as_stranger(socket: &Path) -> Option<UnixStream> {
    use rustix::process::{Gid, Uid};
    use rustix::thread::{set_thread_gid, set_thread_uid};
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let connect = || {
        // These calls change only the thread's user and group.
        set_thread_gid(Gid::from_raw(STRANGER)).expect("root may do so");
        set_thread_uid(Uid::from_raw(STRANGER)).expect("root may do so");
        UnixStream::connect(socket).expect("the group may connect")
    };
    std::thread::scope(|scope| scope.spawn(connect).join().ok())
}

/// Returns a request that does nothing even if it is permitted, because it lacks something or names something that does not exist.
fn harmless(route: &RouteScope) -> (String, String) {
    let path = route.path;
    match (route.method.as_str(), path) {
        ("GET", _) => (format!("HEAD {path}"), String::new()),
        (_, "/v1/drain") => (format!("POST {path}?wait=x"), String::new()),
        _ => (format!("POST {path}"), "{".to_owned()),
    }
}

/// A lock, a claim of a job and a pass of a lease that are bound to a process of the coordinator's own user, who has also set a lease.
pub(crate) struct Bound {
    pub(crate) job: u64,
    claim: u64,
    pass: u64,
    /// A request that waits for a job of another queue; none if there is no coordinator.
    _waiting: Option<UnixStream>,
}

impl Bound {
    /// Has the coordinator's own user take what is missing.
    pub(crate) fn to(node: &Opened) -> Self {
        let post = |path: &str, body: &Value| node.post_as_owner(path, body).json();
        let mine = json!({"pid": std::process::id()});
        let process = post("/v1/processes/register", &mine)["id"].clone();
        post("/v1/locks/acquire", &json!({"key": "bound", "owner": "owner", "process": process}));
        // Somebody waits for another queue, which therefore has a place and no number: so the place and the number of the queue with the
        // bound job are not the same by chance.
        let waiting =
            node.begin_as_owner("/v1/queues/pop", &json!({"queues": ["other"], "wait": 3600}));
        until("the request waits", || {
            let status = node.get_over_socket("/v1/status").json();
            (status["queues"]["waiting"] == 1).then_some(())
        });
        post("/v1/queues/push", &json!({"queue": "bound", "body": "x"}));
        let popped = post("/v1/queues/pop", &json!({"queues": ["bound"], "process": process}));
        let job = &popped["jobs"][0];
        let claim = json!({"name": "bound", "process": process, "period_ms": 1});
        let claimed = until("the pass has begun", || {
            let claimed = post("/v1/leases/claim", &claim);
            let runs = claimed["lease"]["current"]["running"] == true;
            runs.then_some(claimed)
        });
        let launch = json!({"command": ["true"]});
        post("/v1/leases/set", &json!({"name": "set", "launch": launch}));
        let number = |found: &Value| found.as_u64().expect("a number");
        Self {
            job: number(&job["id"]),
            claim: number(&job["token"]),
            pass: number(&claimed["lease"]["current"]["token"]),
            _waiting: Some(waiting),
        }
    }
}

/// Returns requests that meet the condition under which a route requires the scope `run`: bodies or, for a GET request, queries.
fn conditional(path: &str, bound: &Bound) -> Vec<String> {
    let claim = json!({"id": bound.job, "token": bound.claim});
    let pass = json!({"name": "bound", "token": bound.pass});
    let of_set = json!({"name": "set", "token": 1});
    let entry = json!({"key": "bound", "owner": "owner"});
    let requests = match path {
        "/v1/events" => {
            return vec!["actor=process".to_owned(), "kind=registered,exited".to_owned()];
        }
        "/page/lock/force" => return vec!["key=bound&index=".to_owned()],
        "/page/job/cancel" => return vec![format!("id={}", bound.job)],
        "/v1/locks/renew" | "/v1/locks/release" => vec![entry],
        "/v1/locks/release-all" => vec![json!({"owner": "owner"})],
        "/v1/locks/force" => vec![json!({"key": "bound"})],
        "/v1/leases/finish" => vec![pass, of_set],
        "/v1/queues/ack" | "/v1/queues/fail" | "/v1/queues/defer" | "/v1/queues/release"
        | "/v1/queues/bury" => vec![claim],
        "/v1/queues/report" => vec![json!({"id": bound.job, "token": bound.claim, "percent": 1})],
        "/v1/queues/keep-result" => {
            vec![json!({"id": bound.job, "token": bound.claim, "keep_ms": 1000, "done": true})]
        }
        "/v1/queues/cancel" => vec![json!({"id": bound.job})],
        "/v1/queues/flush" => vec![json!({"queue": "bound"})],
        "/v1/locks/acquire" => vec![
            json!({"key": "k", "owner": "me", "process": ABSENT}),
            json!({"key": "bound", "owner": "owner", "ttl": 3600}),
        ],
        "/v1/leases/claim" => {
            vec![json!({"name": "k", "process": ABSENT}), json!({"name": "set", "no_delay": true})]
        }
        "/v1/leases/renew" => {
            vec![json!({"name": "k", "token": 1, "process": ABSENT}), pass, of_set]
        }
        "/v1/leases/reset" => vec![json!({"name": "none", "force": true}), json!({"name": "set"})],
        "/v1/queues/pop" => vec![json!({"queues": ["q"], "process": ABSENT})],
        "/v1/queues/touch" => vec![
            json!({"id": 1, "token": 1, "process": ABSENT}),
            json!({"id": 1, "token": 1, "command": ABSENT}),
            claim,
        ],
        _ => panic!("{path} has a condition, but no request that meets it"),
    };
    requests.iter().map(Value::to_string).collect()
}

/// Returns the word for an answer: whether the request reached the function of its route.
fn word(answer: &Answer) -> &'static str {
    match answer.status {
        401 => "401",
        403 => "403",
        _ => "yes",
    }
}

/// Returns whether a caller with these words has a scope, as documented.
fn expected(caller: &str, scope: &str) -> &'static str {
    match (caller, scope) {
        ("none", "none") => "yes",
        ("none", _) => "401",
        ("read", "use" | "operate" | "run") | ("open" | "plain" | "far" | "group", "run") => "403",
        _ => "yes",
    }
}

/// A row of the record: the route or its condition, the scope, and a word for each kind of caller; `None` if the caller cannot exist here.
type Row = (String, &'static str, Vec<Option<&'static str>>);

fn rows() -> Vec<Row> {
    let nodes = Nodes::open();
    let row = |title: String, scope: &'static str, request: &dyn Fn(&str) -> (String, String)| {
        let asked = CALLERS.map(|(caller, _)| {
            let found = nodes.ask(caller, &request(caller)).as_ref().map(word);
            if let Some(found) = found {
                let expected = expected(caller, scope);
                assert_eq!(found, expected, "{title} ({scope}) as {caller}");
            }
            found
        });
        (title, scope, asked.to_vec())
    };
    let mut rows = Vec::new();
    for route in scopes() {
        let title = format!("{} {}", route.method, route.path);
        rows.push(row(title, route.scope, &|_| harmless(&route)));
        let Some(condition) = route.run_if else {
            continue;
        };
        let count =
            conditional(route.path, &Bound { job: 0, claim: 0, pass: 0, _waiting: None }).len();
        for nth in 0..count {
            let request = |caller: &str| {
                let bound = Bound::to(nodes.of(caller));
                let body = conditional(route.path, &bound).swap_remove(nth);
                match route.method.as_str() {
                    "GET" => (format!("HEAD {}?{body}", route.path), String::new()),
                    _ => (format!("POST {}", route.path), body),
                }
            };
            rows.push(row(format!("  if {condition}"), "run", &request));
        }
    }
    rows
}

fn record(rows: &[Row], recorded: &str) -> String {
    let mut text = String::from(
        "Which requests reach the function of their route, by the caller. Made by tests/http/rights.rs, with UPDATE=1.\n\
         yes: it is reached; 401: a token or a login is required; 403: the caller does not have the scope, or is foreign.\n\n",
    );
    for (caller, words) in CALLERS {
        writeln!(text, "{caller:5} {words}").expect("a string");
    }
    text.push('\n');
    let heads = CALLERS.map(|(caller, _)| format!("{caller:5}"));
    writeln!(text, "{:80} {:7} {}", "route", "scope", heads.join(" ").trim_end())
        .expect("a string");
    let mut old = recorded.lines().skip_while(|line| !line.starts_with("route "));
    old.next();
    for (title, scope, found) in rows {
        // A caller that cannot exist here is compared on machines where it can.
        let kept: Vec<&str> = old
            .next()
            .and_then(|line| line.get(89..))
            .map_or(Vec::new(), |line| line.split_whitespace().collect());
        let words = found.iter().enumerate().map(|(index, found)| {
            let kept = kept.get(index).copied().unwrap_or("?");
            format!("{:5}", found.unwrap_or(kept))
        });
        let words: Vec<String> = words.collect();
        writeln!(text, "{title:80} {scope:7} {}", words.join(" ").trim_end()).expect("a string");
    }
    text
}

/// Compares a file with what it should contain, or writes it with `UPDATE=1`.
pub(crate) fn compare(file: &str, expected: impl FnOnce(&str) -> String) {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(file);
    let recorded = std::fs::read_to_string(&path).unwrap_or_default();
    let expected = expected(&recorded);
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(&path, &expected).expect("our own file");
    } else {
        assert_eq!(recorded, expected, "record {file} again with UPDATE=1");
    }
}

#[test]
fn what_each_caller_may_do_is_recorded() {
    let rows = rows();
    compare("tests/http/rights.txt", |recorded| record(&rows, recorded));
}

/// Returns the part of the path by which the routes are grouped.
fn area(path: &str) -> String {
    if !path.starts_with("/v1/") {
        return if path == "/healthz" || path == "/metrics" {
            path.to_owned()
        } else {
            "the page".to_owned()
        };
    }
    path.split('/').take(3).collect::<Vec<_>>().join("/")
}

/// Returns the table of rights for people, in Markdown.
fn table() -> String {
    let mut text = String::from("| routes | scope | requests |\n|---|---|---|\n");
    let routes = scopes();
    let mut areas: Vec<String> = routes.iter().map(|it| area(it.path)).collect();
    areas.sort();
    areas.dedup();
    for area_name in areas {
        for scope in ["none", "read", "use", "operate", "run"] {
            let of = routes.iter().filter(|it| area(it.path) == area_name && it.scope == scope);
            let requests: Vec<String> = of
                .map(|it| match it.run_if {
                    None => format!("`{} {}`", it.method, it.path),
                    Some(condition) => {
                        format!("`{} {}` (`run` if {condition})", it.method, it.path)
                    }
                })
                .collect();
            if !requests.is_empty() {
                writeln!(text, "| {area_name} | `{scope}` | {} |", requests.join(", "))
                    .expect("a string");
            }
        }
    }
    text
}

#[test]
fn the_table_in_the_documentation_is_made_from_the_routes() {
    const BEGIN: &str =
        "<!-- The table of rights: made by tests/http/rights.rs, with UPDATE=1. -->\n";
    const END: &str = "<!-- The end of the table of rights. -->\n";
    compare("docs/operations.md", |page| {
        let (before, rest) = page.split_once(BEGIN).expect("the page has the table");
        let (_, after) = rest.split_once(END).expect("the table has an end");
        format!("{before}{BEGIN}\n{}\n{END}{after}", table())
    });
}
