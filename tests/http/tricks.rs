//! Paths and bodies that could be mistaken for others, and bodies without an end.

use crate::opened::{Opened, answers, read_all};
use serde_json::{Value, json};
use std::io::Write as _;

const ACQUIRE: &str = "/v1/locks/acquire";

#[test]
fn a_path_is_what_it_says_and_no_other() {
    let opened = Opened::new();
    let ask = |target: &[u8], host: &str| {
        let mut request = b"GET ".to_vec();
        request.extend_from_slice(target);
        request.extend_from_slice(format!(" HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        let text = opened.exchange(&request);
        let mut found = answers(&text);
        assert_eq!(found.len(), 1, "{text}");
        found.remove(0)
    };
    let port = opened.address().port();
    let own = format!("http://127.0.0.1:{port}/healthz");
    assert_eq!(ask(own.as_bytes(), "localhost").status, 200, "absolute form of this server");
    let long = format!("/{}", "a/".repeat(8000));
    let cases: [(&[u8], u16); 21] = [
        (b"/v1/../healthz", 404),
        (b"/v1/%2e%2e/healthz", 404),
        (b"/./healthz", 404),
        (b"/%2e/healthz", 404),
        (b"//healthz", 404),
        (b"/healthz/", 404),
        (b"/healthz%00", 404),
        (b"/healthz%2f", 404),
        (b"/healthz%20", 404),
        (b"/v1%2fstatus", 404),
        (b"/v1\\status", 404),
        (b"/%ff%fe", 404),
        (b"/v1/events/..", 404),
        (b"*", 404),
        (b"/health\0z", 400),
        (b"/health z", 400),
        (b"\xff\xfe", 400),
        (b"", 400),
        (b"http://evil.example/healthz", 421),
        (b"http://localhost.evil.example/v1/events", 421),
        (long.as_bytes(), 404),
    ];
    for (target, status) in cases {
        let shown = String::from_utf8_lossy(&target[..target.len().min(60)]).into_owned();
        let answer = ask(target, "localhost");
        assert_eq!(answer.status, status, "{shown:?}: {answer:?}");
        answer.problem(status);
    }
    assert_eq!(ask(b"/healthz", "localhost:99999").status, 200, "any port is accepted");
}

#[test]
fn a_body_that_is_deep_double_or_no_text_is_refused() {
    let opened = Opened::new();
    let post = |body: &[u8]| {
        let length = body.len();
        let head =
            format!("POST {ACQUIRE} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}");
        let mut request = format!("{head}\r\n\r\n").into_bytes();
        request.extend_from_slice(body);
        opened.ask(&request)
    };
    let deep = |open: &str, close: &str| {
        let inner = format!("{}{}", open.repeat(10_000), close.repeat(10_000));
        format!(r#"{{"key":{inner},"owner":"o"}}"#).into_bytes()
    };
    let cases: [&[u8]; 12] = [
        &deep("[", "]"),
        &deep(r#"{"a":"#, "}")[..],
        b"{\"key\":\"\xff\xfe\",\"owner\":\"o\"}",
        b"{\"key\":\"\\ud800\",\"owner\":\"o\"}",
        b"{\"key\":\"a\",\"owner\":\"o\"}{\"key\":\"b\",\"owner\":\"o\"}",
        b"{\"key\":\"a\",\"key\":\"a\",\"owner\":\"o\"}",
        b"{\"key\":\"a\",\"k\\u0065y\":\"b\",\"owner\":\"o\"}",
        b"{\"key\":\"a\",\"owner\":\"o\",\"ttl\":1e400}",
        b"{\"key\":\"a\",\"owner\":\"o\",\"ttl\":99999999999999999999999}",
        b"{\"key\":\"a\",\"owner\":\"o\",}",
        b"\xef\xbb\xbf{\"key\":\"a\",\"owner\":\"o\"}",
        b"{\"key\":\"a\",\"owner\":\"o\"}\0",
    ];
    for body in cases {
        let answer = post(body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        assert_eq!(answer.status, 400, "{shown}: {answer:?}");
        answer.problem(400);
    }
    for target in ["/v1/locks?key=%ff", "/v1/events?name=%c3%28", "/v1/events?kind=a&kind=b"] {
        opened.get(target, "").problem(400);
    }
    assert_eq!(opened.get("/v1/locks", "").json()["locks"], json!([]), "it had no effect");
}

#[test]
fn a_body_that_never_ends_is_given_up_and_holds_up_nobody() {
    let opened = Opened::new();
    let head = format!("POST {ACQUIRE} HTTP/1.1\r\nHost: localhost\r\n");
    let announced = format!("{head}Content-Length: 1000\r\n\r\n{{\"key\":");
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n");
    let expected = format!("{head}Expect: 100-continue\r\nContent-Length: 9\r\n\r\n");
    let slow: Vec<_> = [announced, chunked, expected]
        .iter()
        .cycle()
        .take(300)
        .map(|begun| {
            let mut stream = opened.connect();
            stream.write_all(begun.as_bytes()).expect("connected");
            stream
        })
        .collect();
    let fields = json!({"key": "a", "owner": "o"});
    assert_eq!(opened.post(ACQUIRE, &fields).json()["place"], 1);
    for mut stream in slow {
        let text = read_all(&mut stream);
        answers(&text).pop().expect("the client is notified").problem(408);
    }
    assert_ne!(opened.get("/v1/status", "").json()["http"], Value::Null);
}
