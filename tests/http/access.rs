//! Which requests the HTTP listener accepts: the headers `Host` and `Origin`, and tokens and their file.

use crate::opened::{Opened, TOKEN, answers, read_all, write_private};
use crate::patience::until;
use crate::process_status::{ended, launches};
use serde_json::json;
use sexton::config::{Config, HttpConfig};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn a_foreign_host_or_origin_is_refused_on_tcp() {
    let opened = Opened::with(|http| http.names = vec!["Ledger.Example".to_owned()]);
    let with =
        |headers: &str| opened.ask(format!("GET /v1/status HTTP/1.1\r\n{headers}\r\n").as_bytes());
    with("").problem(400);
    with("Host: localhost\r\nHost: localhost\r\n").problem(400);
    let detail = with("Host: evil.example\r\n").problem(421);
    assert!(!detail.contains("evil"), "a refusal shows nothing of the request");
    with("Host: 10.1.2.3\r\n").problem(421);
    with("Host: localhost\r\nOrigin: https://evil.example\r\n").problem(403);
    with("Host: localhost\r\nOrigin: null\r\n").problem(403);
    // Browsers send no `Origin` with an image, a script or a link.
    let site = "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n";
    with(site).problem(403);
    let link = "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";
    assert_eq!(with(&format!("{site}{link}")).status, 200);
    let port = opened.address().port();
    assert_eq!(with(&format!("Host: 127.0.0.1:{port}\r\n")).status, 200);
    assert_eq!(with("Host: ledger.example\r\n").status, 200);
    assert_eq!(
        with(&format!("Host: localhost:{port}\r\nOrigin: http://localhost:{port}\r\n")).status,
        200
    );
    opened.ask(b"GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").problem(421);
    assert_eq!(
        opened.ask(b"GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").status,
        200
    );
    opened.ask(b"GET /healthz HTTP/1.0\r\n\r\n").problem(400);
    assert_eq!(opened.get_over_socket("/healthz").status, 200, "the socket requires no name");
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
        "the server's own user needs none"
    );

    let (listener, file) = (opened.listener(), opened.directory.path().join("token"));
    assert!(
        listener.reload_token().expect("the token file is readable") == Some(false),
        "nothing changed"
    );
    write_private(&file, "short");
    let error = listener.reload_token().expect_err("it is too short").to_string();
    assert!(!error.contains("short"), "an error shows nothing of the token: {error}");
    assert_eq!(with(TOKEN).status, 200, "the old token stays in force");
    write_private(&file, "another-token-of-the-right-length\n");
    assert_eq!(
        listener.reload_token().expect("the token file is readable"),
        Some(true),
        "it changed"
    );
    with(TOKEN).problem(401);
    assert_eq!(with("another-token-of-the-right-length").status, 200);
}

/// A token with the scope `run`, which permits the launch of processes.
const RUN_TOKEN: &str = "correct-horse-that-runs";

/// Opens a node that launches processes, with a token that has the scope `run` and one that does not.
fn with_both_tokens() -> Opened {
    Opened::configured(|config| {
        launches(config);
        let http = config.http.as_mut().expect("HTTP is configured");
        let socket = http.socket.as_ref().expect("a socket");
        let data = socket.parent().expect("it is below");
        let file = data.with_file_name("token");
        write_private(&file, &format!("{TOKEN}\n{RUN_TOKEN} run\n"));
        http.token_file = Some(file);
    })
}

fn with(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn what_a_task_printed_is_for_those_who_may_run_commands() {
    let opened = with_both_tokens();
    let task = json!({"launch": {"command": ["sh", "-c", "echo secret"], "dir": "/"}});
    let mut adding = opened.begin_with("/v1/tasks/add", &with(RUN_TOKEN), &task);
    let added = answers(&read_all(&mut adding)).pop().expect("an answer");
    let id = added.json()["id"].clone();
    let path = format!("/v1/tasks/transcript?id={id}");
    let told = until("it is over", || {
        let told = opened.get(&path, &with(RUN_TOKEN)).json();
        (told["status"] == "complete").then_some(told)
    });
    assert_eq!(told["stories"][0]["stdout"]["head"], "secret\n", "{told}");
    let told = opened.get(&path, &with(TOKEN));
    assert!(!told.body.contains("secret"), "{told:?}");
    assert_eq!(told.json()["stories"][0]["outcome"], "ended");
}

#[test]
fn wrong_tokens_lock_nobody_out() {
    let opened = Opened::with_token();
    let with =
        |token: &str| opened.get("/v1/status", &format!("Authorization: Bearer {token}\r\n"));
    // No right token has come from this address yet.
    for _ in 0..20 {
        with("wrong-horse-battery-staple").problem(401);
    }
    with("wrong-horse-battery-staple").problem(429);
    assert_eq!(with(TOKEN).status, 200);
    with("wrong-horse-battery-staple").problem(429);
    assert_eq!(with(TOKEN).status, 200);
}

#[test]
fn a_token_of_the_scope_run_starts_processes() {
    const LAUNCH: &str = "/v1/processes/launch";
    let opened = with_both_tokens();
    let command = json!({"command": ["sleep", "60"]});
    // The scope is not part of the token that a client sends.
    let both = with(&format!("{RUN_TOKEN} run"));
    opened.post_with(LAUNCH, &both, &command).problem(401);
    let plain = with(TOKEN);
    assert_eq!(opened.get("/v1/status", &plain).status, 200);
    for path in ["/v1/processes", "/v1/processes/count", "/v1/services"] {
        let refused = opened.get(path, &plain).because(403, "out-of-scope");
        let detail = refused["detail"].as_str().expect("the refusal has a detail");
        assert!(
            detail.contains("a token with the scope run") && detail.contains("--token-file"),
            "{detail}"
        );
    }
    opened.post_with(LAUNCH, &plain, &command).because(403, "out-of-scope");
    let runs = with(RUN_TOKEN);
    assert_eq!(opened.get("/v1/status", &runs).status, 200);
    let mut launching = opened.begin_with(LAUNCH, &runs, &command);
    let answer = answers(&read_all(&mut launching)).pop();
    let record = answer.expect("an answer").json();
    let id = record["id"].as_str().expect("a string").to_owned();
    assert_eq!(record["status"], "running");
    assert_eq!(opened.get("/v1/processes/count", &runs).json(), json!({"count": 1}));
    // Binding a right to a process requires permission to view processes.
    let bound = json!({"key": "k", "owner": "me", "process": id});
    let acquire = "/v1/locks/acquire";
    opened.post_with(acquire, &plain, &bound).because(403, "out-of-scope");
    opened.post_with(acquire, &runs, &bound).json();
    // Over TCP the node does not know the client's process, so it cannot register it.
    let detail = opened.post_with("/v1/processes/register", &runs, &json!({}));
    assert!(detail.problem(400).contains("pid"), "{detail:?}");
    ended(&opened.socket(), &id);
}

#[test]
fn without_tokens_nobody_starts_processes_over_tcp() {
    let opened = Opened::configured(launches);
    opened.get("/v1/processes", "").because(403, "out-of-scope");
    assert_eq!(opened.get_over_socket("/v1/processes").status, 200);
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
    assert!(garbage.starts_with("HTTP/1.1 400") && !garbage.contains("staple"), "{garbage}");
}

#[test]
fn a_token_file_that_others_may_use_or_that_is_no_token_stops_the_start() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("token");
    let open = || {
        let http = HttpConfig {
            tcp: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            token_file: Some(file.clone()),
            ..HttpConfig::default()
        };
        let config = Config { http: Some(http), ..Config::in_memory() };
        sexton_http::open(config).map(drop).map_err(|error| error.to_string())
    };
    let missing = open().expect_err("there is none");
    assert!(missing.contains("No such file"), "{missing}");
    write_private(&file, TOKEN);
    open().expect("it is a good one");
    for mode in [0o640, 0o604, 0o620, 0o644] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode))
            .expect("our own file");
        let exposed = open().expect_err("other users may use it");
        assert!(
            exposed.contains(&format!("{mode:04o}")) && !exposed.contains("staple"),
            "{exposed}"
        );
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("our own file");
    for wrong in [
        "",
        "\n",
        "fifteen-letters",
        "two lines of it\nare no token\n",
        "blanks are not allowed here",
        "correct-horse-battery-staple use",
        "correct-horse-battery-staple\n\n",
    ] {
        write_private(&file, wrong);
        assert!(open().is_err(), "{wrong:?}");
    }
}
