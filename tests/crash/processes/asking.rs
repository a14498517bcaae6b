//! Requests on the coordinator's Unix socket. Any of them may fail when the coordinator is killed.

use serde_json::Value;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// An answer: status and body.
pub(crate) type Answer = (u16, Value);

/// Sends a request on a connection of its own, and returns the answer.
pub(crate) fn ask(socket: &Path, head: &str, body: &str) -> io::Result<Answer> {
    ask_on(UnixStream::connect(socket)?, head, body)
}

/// Sends a request on this connection, and returns the answer.
pub(crate) fn ask_on(mut stream: impl Read + Write, head: &str, body: &str) -> io::Result<Answer> {
    let length = body.len();
    let request = format!(
        "{head}\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    parse(&String::from_utf8_lossy(&answer)).ok_or(io::ErrorKind::UnexpectedEof.into())
}

/// Parses an answer; `None` if it is incomplete.
fn parse(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let head = head.to_ascii_lowercase();
    let body =
        if head.contains("transfer-encoding: chunked") { joined(body)? } else { body.to_owned() };
    Some((status, serde_json::from_str(&body).ok()?))
}

fn joined(mut chunks: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (length, rest) = chunks.split_once("\r\n")?;
        let length = usize::from_str_radix(length, 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        body.push_str(rest.get(..length)?);
        chunks = rest.get(length + 2..)?;
    }
}

/// Sends a request with an idempotency key, so that it is carried out once even if it is repeated.
pub(crate) fn post(socket: &Path, path: &str, key: &str, body: &Value) -> io::Result<Answer> {
    let head = format!("POST {path} HTTP/1.1\r\nIdempotency-Key: {key}");
    ask(socket, &head, &body.to_string())
}

/// Returns the number of records in this phase.
pub(crate) fn count(socket: &Path, phase: &str) -> io::Result<u64> {
    let head = format!("GET /v1/processes/count?status={phase} HTTP/1.1");
    let (status, answer) = ask(socket, &head, "")?;
    assert_eq!(status, 200, "{answer}");
    Ok(answer.get("count").and_then(Value::as_u64).unwrap_or(0))
}

/// Returns all records, read page by page.
pub(crate) fn records(socket: &Path) -> io::Result<Vec<Value>> {
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let head = format!("GET /v1/processes?limit=1000{after} HTTP/1.1");
        let (status, mut page) = ask(socket, &head, "")?;
        assert_eq!(status, 200, "{page}");
        if let Some(Value::Array(records)) = page.get_mut("processes").map(Value::take) {
            all.extend(records);
        }
        match page.get("next").and_then(Value::as_str) {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(all),
        }
    }
}
