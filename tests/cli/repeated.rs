//! Commands whose first answer is lost because the connection breaks: each has its effect once, and reports it.

use crate::coordinator::{CommandOutput, done};
use crate::daemon::{sexton, text};
use crate::tree::Tree;
use serde_json::Value;
use std::io::{BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A socket in front of a coordinator's, which loses the answer to the first POST after [`Proxy::lose_one`].
struct Proxy {
    path: PathBuf,
    loses: Arc<AtomicBool>,
}

impl Proxy {
    fn before(tree: &Tree) -> Self {
        let path = tree.data.with_file_name("proxy.sock");
        let listener = UnixListener::bind(&path).expect("a new socket");
        let loses = Arc::new(AtomicBool::new(false));
        let (behind, losing) = (tree.data.join("sexton.sock"), Arc::clone(&loses));
        let accept = move || {
            for stream in listener.incoming() {
                let (stream, behind) = (stream.expect("a connection"), behind.clone());
                let losing = Arc::clone(&losing);
                let passing = std::thread::Builder::new();
                let started = passing.spawn(move || pass_on(&stream, &behind, &losing));
                drop(started.expect("a new thread"));
            }
        };
        let started = std::thread::Builder::new().spawn(accept);
        drop(started.expect("a new thread"));
        Self { path, loses }
    }

    /// Runs a command whose first POST is carried out, and whose answer is lost.
    fn losing(&self, words: &[&str]) -> CommandOutput {
        self.loses.store(true, Ordering::Release);
        let mut command = sexton();
        command.args(words).stdin(Stdio::null());
        command.env("SEXTON_URL", format!("unix:{}", text(&self.path)));
        let done = done(command.output().expect("the command runs"));
        assert!(!self.loses.load(Ordering::Acquire), "{words:?}: {done:?}");
        done
    }
}

/// Reads a request or an answer; `None` at the end of the connection.
fn message(reader: &mut impl std::io::BufRead) -> Option<Vec<u8>> {
    let (mut message, mut length) = (Vec::new(), 0);
    loop {
        let mut line = Vec::new();
        if reader.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        let words = String::from_utf8_lossy(&line).to_ascii_lowercase();
        if let Some(value) = words.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        message.extend_from_slice(&line);
        if words.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    message.extend(body);
    Some(message)
}

fn pass_on(front: &UnixStream, behind: &Path, loses: &AtomicBool) -> Option<()> {
    let back = UnixStream::connect(behind).ok()?;
    let (mut requests, mut answers) = (BufReader::new(front), BufReader::new(&back));
    let (mut front, mut to) = (front, &back);
    loop {
        let request = message(&mut requests)?;
        to.write_all(&request).ok()?;
        let answer = message(&mut answers)?;
        if request.starts_with(b"POST") && loses.swap(false, Ordering::AcqRel) {
            return None;
        }
        front.write_all(&answer).ok()?;
    }
}

#[test]
fn what_a_command_reports_is_done_once() {
    let tree = Tree::start();
    let proxy = Proxy::before(&tree);
    let good = |words: &[&str]| {
        let done = proxy.losing(words);
        assert_eq!(done.status, 0, "{words:?}: {done:?}");
        assert!(done.err.contains("waiting for it to come back"), "{done:?}");
        done.out.trim_end().to_owned()
    };
    let id = good(&["run", "--detach", "--", "true"]);
    tree.well(&["wait", &id]);
    assert_eq!(tree.all().len(), 1);

    let first = good(&["queue", "push", "q", "body"]);
    let job: Value =
        serde_json::from_str(&tree.well(&["queue", "peek", &first, "--json"])).expect("valid JSON");
    assert_eq!(job["queue"], "q");
    assert_eq!(tree.well(&["queue", "show", "q"]), "1\n");
    good(&["queue", "pop", "q"]);
    assert_eq!(tree.well(&["queue", "show", "q"]), "0\n");

    good(&["lock", "acquire", "k", "--owner", "me"]);
    good(&["lock", "release", "k", "--owner", "me"]);
    good(&["lease", "set", "nightly", "command", "--", "true"]);
    good(&["lease", "run", "other", "--detach", "--", "true"]);
    good(&["task", "add", "--", "true"]);
    let tasks: Value =
        serde_json::from_str(&tree.well(&["task", "list", "--json"])).expect("valid JSON");
    assert_eq!(tasks["tasks"].as_array().map(Vec::len), Some(1), "{tasks}");
}

#[test]
fn a_coordinator_that_is_not_there_is_not_waited_for() {
    let tree = Tree::start();
    let mut command = sexton();
    command.args(["run", "--detach", "--", "true"]);
    let gone = tree.data.with_file_name("gone.sock");
    command.env("SEXTON_URL", format!("unix:{}", text(&gone)));
    let done = done(command.output().expect("the command runs"));
    assert_eq!(done.status, 3, "{done:?}");
}
