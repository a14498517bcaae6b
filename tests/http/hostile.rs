//! Input that is not HTTP, and requests that are too large, too slow or too many.

use crate::opened::{Opened, answers, read_all};
use crate::queue::{PUSH, push};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

#[test]
fn hostile_bytes_get_a_problem_and_the_end() {
    let opened = Opened::new();
    let large =
        format!("GET /v1 HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(17 * 1024));
    let endless = format!("GET /{}", "x".repeat(200 * 1024));
    let many = format!("GET /v1 HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "a: b\r\n".repeat(200));
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
    assert_eq!(opened.get("/healthz", "").status, 200, "other clients notice nothing");
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
    let chunks = format!("{}0\r\n\r\n", format!("1000\r\n{}\r\n", "x".repeat(0x1000)).repeat(17));
    post("Transfer-Encoding: chunked\r\n", &chunks).problem(413);
    let text = opened.exchange(b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc");
    let found: Vec<u16> = answers(&text).iter().map(|answer| answer.status).collect();
    assert_eq!(found, [100, 405]);
}

#[test]
fn a_job_may_be_as_long_as_the_configuration_says() {
    let opened = Opened::configured(|config| config.rules.queue.body_bytes_max = 1 << 20);
    push(&opened, "q", &"x".repeat(1 << 20));
    let long = json!({"queue": "q", "body": "x".repeat((1 << 20) + 1)});
    opened.post(PUSH, &long).because(413, "too-big");
}

#[test]
fn bodies_on_their_way_are_held_up_to_a_bound() {
    let opened = Opened::configured(|config| config.rules.queue.body_bytes_max = 16 << 20);
    let head =
        "POST /v1/queues/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 22000000\r\n\r\n";
    let part = vec![b' '; 128 << 10];
    let refused = |stream: &TcpStream| {
        stream.set_nonblocking(true).expect("the option can be set");
        let answered = stream.peek(&mut [0]).is_ok();
        stream.set_nonblocking(false).expect("the option can be set");
        answered
    };
    let mut halves = Vec::new();
    // Each connection holds at least 16 MiB, and all connections of the listener together may hold 256 MiB.
    let mut last = loop {
        let mut stream = opened.connect();
        stream.write_all(head.as_bytes()).expect("connected");
        let mut parts = 0;
        while parts < 136 && !refused(&stream) {
            // The connection may be refused and closed between the check and the write.
            if stream.write_all(&part).is_err() {
                break;
            }
            parts += 1;
        }
        if parts < 136 {
            break stream;
        }
        halves.push(stream);
        assert!(halves.len() < 40, "all are held");
    };
    answers(&read_all(&mut last))[0].because(503, "crowded");
    drop(halves);
    let body = r#"{"queue":"q","body":"work"}"#;
    let request = format!(
        "POST /v1/queues/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nContent-Type: application/json\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(opened.ask(request.as_bytes()).status, 200);
}

#[test]
fn a_head_that_comes_too_slowly_is_given_up() {
    let opened = Opened::new();
    let mut stream = opened.connect();
    // The limit applies to the second request on a connection as well as to the first.
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /heal")
        .expect("connected");
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
    let one = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let requests = paths.map(one).concat().repeat(40);
    // A request is understood wherever it is split into parts.
    let mut stream = opened.connect();
    let mut reading = stream.try_clone().expect("connected");
    let writing = std::thread::Builder::new().spawn(move || {
        for bytes in requests.as_bytes().chunks(7) {
            stream.write_all(bytes).expect("connected");
        }
        stream.shutdown(std::net::Shutdown::Write).expect("connected");
    });
    let found = answers(&read_all(&mut reading));
    writing.expect("a thread").join().expect("no panic");
    let statuses: Vec<u16> = found.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 404, 200, 200, 200].repeat(40));
    assert!(found[3].body.ends_with("# EOF\n") && found[4].body == "ok\n");
    let closed = opened.get("/healthz", "Connection: close\r\n");
    assert_eq!(closed.header("connection"), Some("close"));
}

#[test]
fn connections_are_bounded_and_the_socket_has_places_of_its_own() {
    crate::resources::raise_descriptor_limit();
    let opened = Opened::with(|http| http.connections_max = 256);
    let taken: Vec<TcpStream> = (0..256)
        .map(|_| {
            let mut stream = opened.connect();
            // A connection whose request is answered has been accepted.
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .expect("connected");
            let mut first = [0; 12];
            stream.read_exact(&mut first).expect("an answer");
            assert_eq!(&first, b"HTTP/1.1 200");
            stream
        })
        .collect();
    let mut one_more = opened.connect();
    let text = read_all(&mut one_more);
    answers(&text)[0].problem(503);
    assert_eq!(opened.get_over_socket("/healthz").status, 200);
    drop(taken);
    let stats = || opened.listener().stats();
    while stats().active > 0 {
        std::thread::yield_now();
    }
    assert_eq!(opened.get("/healthz", "").status, 200, "connections are free again");
    assert_eq!(stats().rejected_busy, 1);
}

#[test]
fn a_client_that_never_reads_holds_up_nobody() {
    let opened = Opened::new();
    let mut greedy = opened.connect();
    let patience = std::time::Duration::from_secs(1);
    greedy.set_write_timeout(Some(patience)).expect("the option can be set");
    let requests = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
    // The server stops reading while its answers are not read, long before it has read all requests.
    let mut sent = 0;
    while sent < 64 << 20 && greedy.write_all(&requests).is_ok() {
        sent += requests.len();
    }
    assert!(sent < 64 << 20, "the server does not stop reading");
    assert_eq!(opened.get("/v1/status", "").status, 200);
}
