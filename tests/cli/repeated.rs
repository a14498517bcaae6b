//! Commands whose first answer is lost because the connection breaks, or whose first requests are refused because too many are waiting: each
//! has its effect once, and reports it.

use crate::coordinator::{CommandOutput, done};
use crate::daemon::{sexton, text};
use crate::tree::Tree;
use serde_json::Value;
use std::io::{BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The paths of requests that wait.
const WAITS: [&str; 5] = [
    "/v1/leases/run",
    "/v1/leases/wait",
    "/v1/processes/launch",
    "/v1/processes/wait",
    "/v1/tasks/wait",
];

/// The refusal of a request that would wait.
const REFUSAL: &str = r#"{"title":"Service Unavailable","status":503,"detail":"too many requests are waiting: try again later, or without waiting","reason":"waits"}"#;

/// A socket in front of a coordinator's, which loses the answer to the first POST after [`Proxy::losing`], and refuses some requests after
/// [`Proxy::refusing`].
struct Proxy {
    path: PathBuf,
    faults: Arc<Faults>,
}

#[derive(Default)]
struct Faults {
    loses: AtomicBool,
    /// How often each of [`WAITS`] is still refused.
    refuses: [AtomicU32; WAITS.len()],
}

impl Faults {
    /// Returns whether a request is refused instead of being passed on.
    fn refuses(&self, request: &[u8]) -> bool {
        let is_of = |path: &str| request.starts_with(format!("POST {path} ").as_bytes());
        let found = WAITS.iter().zip(&self.refuses).find(|(path, _)| is_of(path));
        found.is_some_and(|(_, left)| {
            let order = Ordering::AcqRel;
            left.fetch_update(order, Ordering::Acquire, |it| it.checked_sub(1)).is_ok()
        })
    }
}

impl Proxy {
    fn before(tree: &Tree) -> Self {
        let path = tree.data.with_file_name("proxy.sock");
        let listener = UnixListener::bind(&path).expect("a new socket");
        let faults = Arc::<Faults>::default();
        let (behind, of_all) = (tree.data.join("sexton.sock"), Arc::clone(&faults));
        let accept = move || {
            for stream in listener.incoming() {
                let (stream, behind) = (stream.expect("a connection"), behind.clone());
                let faults = Arc::clone(&of_all);
                let passing = std::thread::Builder::new();
                let started = passing.spawn(move || pass_on(&stream, &behind, &faults));
                drop(started.expect("a new thread"));
            }
        };
        let started = std::thread::Builder::new().spawn(accept);
        drop(started.expect("a new thread"));
        Self { path, faults }
    }

    /// Runs a command whose first POST is carried out, and whose answer is lost.
    fn losing(&self, words: &[&str]) -> CommandOutput {
        self.faults.loses.store(true, Ordering::Release);
        let done = self.run(words);
        assert!(!self.faults.loses.load(Ordering::Acquire), "{words:?}: {done:?}");
        done
    }

    /// Runs a command whose first two requests of each kind that waits are refused.
    fn refusing(&self, words: &[&str]) -> CommandOutput {
        for left in &self.faults.refuses {
            left.store(2, Ordering::Release);
        }
        self.run(words)
    }

    fn run(&self, words: &[&str]) -> CommandOutput {
        let mut command = sexton();
        command.args(words).stdin(Stdio::null());
        command.env("SEXTON_URL", format!("unix:{}", text(&self.path)));
        done(command.output().expect("the command runs"))
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

fn pass_on(front: &UnixStream, behind: &Path, faults: &Faults) -> Option<()> {
    let back = UnixStream::connect(behind).ok()?;
    let (mut requests, mut answers) = (BufReader::new(front), BufReader::new(&back));
    let (mut front, mut to) = (front, &back);
    loop {
        let request = message(&mut requests)?;
        if faults.refuses(&request) {
            let head =
                "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n";
            let length = REFUSAL.len();
            let answer = format!("{head}Content-Length: {length}\r\n\r\n{REFUSAL}");
            front.write_all(answer.as_bytes()).ok()?;
            continue;
        }
        to.write_all(&request).ok()?;
        let answer = message(&mut answers)?;
        if request.starts_with(b"POST") && faults.loses.swap(false, Ordering::AcqRel) {
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
fn what_is_refused_for_the_lack_of_a_wait_is_tried_again_and_reported_as_it_ended() {
    let tree = Tree::start();
    let proxy = Proxy::before(&tree);
    let ran = tree.data.with_file_name("ran");
    for (words, status) in
        [(&["run"][..], 7), (&["lease", "run", "l"], 7), (&["task", "add", "--wait", "10m"], 0)]
    {
        let script = format!("echo ran >> {}; exit {status}", text(&ran));
        let words = [words, &["--", "sh", "-c", &script]].concat();
        let done = proxy.refusing(&words);
        assert_eq!(done.status, status, "{words:?}: {done:?}");
        assert!(
            done.err.contains("too many requests are waiting with the coordinator; trying again"),
            "{done:?}"
        );
        assert!(!done.err.contains("not done"), "{done:?}");
    }
    let runs = std::fs::read_to_string(&ran).expect("the commands wrote it");
    assert_eq!(runs.lines().count(), 3);
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
