//! Asks a running coordinator over the Unix socket of its data directory: one request, bounded in time and bytes.

use crate::report::Failure;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long the coordinator may be silent when it is asked for what it knows.
const PATIENCE: Duration = Duration::from_secs(15);

/// The longest answer.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// What a coordinator answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Gets a path from the coordinator of this data directory.
pub(crate) fn get(data: &Path, path: &str) -> Result<Answer, Failure> {
    ask(data, ("GET", path, ""), PATIENCE)
}

/// Posts to a path, without a body, and waits so long for the answer.
pub(crate) fn post(data: &Path, path: &str, patience: Duration) -> Result<Answer, Failure> {
    ask(data, ("POST", path, ""), patience)
}

/// Posts these fields to a path. Waits for the answer for longer than a request itself may `wait`.
pub(crate) fn send(
    data: &Path,
    path: &str,
    fields: &serde_json::Value,
    wait: Duration,
) -> Result<Answer, Failure> {
    ask(data, ("POST", path, &fields.to_string()), wait + PATIENCE)
}

fn ask(data: &Path, request: (&str, &str, &str), patience: Duration) -> Result<Answer, Failure> {
    let socket = data.join("sexton.sock");
    let shown = socket.display();
    let stream =
        UnixStream::connect(&socket).map_err(|error| unreachable_because(&error, data, &socket))?;
    let answer = exchange(stream, request, patience)
        .map_err(|error| Failure::unreachable(format!("failed to ask over {shown}: {error}")))?;
    parse(&answer).ok_or_else(|| {
        Failure::unreachable(format!(
            "failed to ask over {shown}: the answer is cut off, or is not HTTP"
        ))
    })
}

fn unreachable_because(error: &io::Error, data: &Path, socket: &Path) -> Failure {
    let tried = socket.display();
    let start = format!(
        "`sexton serve --data {}` starts one; --data DIR or SEXTON_DATA names another directory",
        data.display()
    );
    let kind = error.kind();
    let found = if kind == io::ErrorKind::NotFound && data.exists() {
        format!("there is no socket {tried}")
    } else if kind == io::ErrorKind::NotFound {
        "there is no such directory".to_owned()
    } else if kind == io::ErrorKind::ConnectionRefused {
        format!("nobody listens on {tried}, which a killed one left behind")
    } else {
        let failure = Failure::unreachable(format!("failed to connect to {tried}: {error}"));
        return if kind == io::ErrorKind::PermissionDenied {
            failure.help("the socket answers the user of the coordinator: ask as that user")
        } else {
            failure
        };
    };
    Failure::unreachable(format!(
        "no coordinator runs on {}: {found}",
        data.display()
    ))
    .help(start)
}

fn exchange(
    mut stream: UnixStream,
    (method, path, body): (&str, &str, &str),
    patience: Duration,
) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let content = match (method, body.len()) {
        ("POST", 0) => "Content-Length: 0\r\n".to_owned(),
        (_, 0) => String::new(),
        (_, length) => {
            format!("Content-Type: application/json\r\nContent-Length: {length}\r\n")
        }
    };
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{content}");
    let request = format!("{head}\r\n{body}");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    match stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer) {
        Ok(_) => Ok(answer),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let words = format!(
                "the coordinator did not answer within {} s",
                patience.as_secs()
            );
            Err(io::Error::new(io::ErrorKind::TimedOut, words))
        }
        Err(error) => Err(error),
    }
}

/// An answer whose body is as long as it says.
fn parse(answer: &[u8]) -> Option<Answer> {
    let (head, body) = std::str::from_utf8(answer).ok()?.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let (version, status) = lines.next()?.split_once(' ')?;
    let status = status.get(..3)?.parse().ok()?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<usize>().ok())?
    })?;
    let whole = version.starts_with("HTTP/1.") && body.len() == length;
    whole.then(|| Answer {
        status,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::{Answer, parse};

    #[test]
    fn an_answer_is_taken_whole_or_not_at_all() {
        let whole = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\nx: y\r\n\r\nab\n";
        let expected = Answer {
            status: 503,
            body: "ab\n".to_owned(),
        };
        assert_eq!(parse(whole.as_bytes()), Some(expected));
        for end in 0..whole.len() {
            assert_eq!(parse(&whole.as_bytes()[..end]), None, "cut at {end}");
        }
        for wrong in [
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 abc\r\ncontent-length: 0\r\n\r\n",
        ] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong:?}");
        }
    }
}
