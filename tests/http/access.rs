//! Whose requests are heard: `Host`, `Origin`, the token and its file.

use crate::opened::{Opened, TOKEN, write_private};
use sexton::config::{Config, HttpConfig};
use sexton::node::Node;
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

    let (door, file) = (opened.door(), opened.directory.path().join("token"));
    assert!(
        door.reload_token().expect("it can be read") == Some(false),
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
    assert_eq!(
        door.reload_token().expect("it can be read"),
        Some(true),
        "it changed"
    );
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
