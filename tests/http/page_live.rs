//! The stream of updates with which a page stays current.

use crate::opened::Opened;
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

fn listen(opened: &Opened) -> TcpStream {
    let mut stream = opened.connect();
    let request = "GET /page/changes HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("connected");
    let head = received(&mut stream, ":\n\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let head = head.to_lowercase();
    for header in [
        "content-type: text/event-stream\r\n",
        "cache-control: no-store\r\n",
        "content-security-policy: ",
    ] {
        assert!(head.contains(header), "{head}");
    }
    stream
}

/// Reads until the received text ends with `end`, not counting the framing of chunks.
fn received(stream: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("it exists");
        bytes.extend(byte);
        if bytes.ends_with(end.as_bytes()) {
            return String::from_utf8(bytes).expect("UTF-8");
        }
    }
}

#[test]
fn a_stream_reports_that_something_happened_and_not_what() {
    let mut opened = Opened::new();
    let mut streams = [listen(&opened), listen(&opened)];
    for round in 0..2 {
        for owner in ["one", "two", "six"] {
            let fields = json!({"key": format!("secret-{round}-{owner}"), "owner": owner});
            opened.post("/v1/locks/acquire", &fields).json();
        }
        for stream in &mut streams {
            let told = received(stream, "event: changed\ndata: \n\n");
            assert!(!told.contains("secret") && !told.contains("one"), "{told}");
        }
    }
    opened.stop();
    for mut stream in streams {
        let mut rest = String::new();
        stream.read_to_string(&mut rest).expect("the end");
        assert!(rest.ends_with("0\r\n\r\n"), "{rest:?}");
    }
}

#[test]
fn a_stream_has_a_place_among_those_who_wait() {
    let opened = Opened::with(|http| http.waits_max = 1);
    let kept = listen(&opened);
    let refused = opened.get("/page/changes", "");
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("content-type"), Some("text/html; charset=utf-8"));
    drop(kept);
    let head = opened.exchange(b"HEAD /page/changes HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
}
