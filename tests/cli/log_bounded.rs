//! What clients may write to the log of the server.

use crate::daemon::Daemon;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

/// The number of passes that fail: more than could be logged in ten minutes.
const PASSES: usize = 300;

/// Sends a request on a connection that stays open. Returns the answer.
fn post(stream: &mut BufReader<TcpStream>, path: &str, body: &Value) -> Value {
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.get_mut().write_all((head + &body).as_bytes()).expect("connected");
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).expect("an answer");
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(bytes) = line.strip_prefix("content-length:") {
            length = bytes.trim().parse().expect("a number");
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("an answer");
    serde_json::from_slice(&body).expect("JSON")
}

#[test]
fn passes_that_any_client_may_claim_do_not_fill_the_log() {
    let daemon = Daemon::serve(&["--memory", "--http", "127.0.0.1:0"]);
    let stream = TcpStream::connect(daemon.http()).expect("it listens");
    let mut stream = BufReader::new(stream);
    for number in 0..PASSES {
        let name = format!("lease-{number}");
        let claimed = post(&mut stream, "/v1/leases/claim", &json!({"name": name}));
        let token = claimed.get("token").expect("a token");
        let over = json!({"name": name, "token": token, "code": 1});
        let finished = post(&mut stream, "/v1/leases/finish", &over);
        assert_eq!(finished.pointer("/current/code"), Some(&json!(1)), "{finished}");
    }
    daemon.signal(Signal::TERM);
    let (status, log) = daemon.end();
    assert_eq!(status.code(), Some(0), "{log}");
    let lines = log.lines().filter(|line| line.contains("a pass failed")).count();
    assert!((1..PASSES / 3).contains(&lines), "{lines} lines");
}
