//! `sexton status` and the HTTP side of `sexton serve`, with the real program.

#![cfg(feature = "cli")]

use assert_cmd::assert::OutputAssertExt as _;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

const TOKEN: &str = "correct-horse-battery-staple";

/// A coordinator that runs; killed at the end, if it still does.
struct Coordinator {
    process: Child,
    http: String,
    log: BufReader<ChildStderr>,
}

impl Coordinator {
    fn start(data: &Path, flags: &[&str]) -> Self {
        let mut process = serve(data, flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut ready = String::new();
        let output = process.stdout.as_mut().expect("it is piped");
        BufReader::new(output)
            .read_line(&mut ready)
            .expect("it speaks");
        let http = ready.split(' ').find_map(|word| word.strip_prefix("http="));
        let http = http
            .unwrap_or_else(|| panic!("not ready: {ready:?}"))
            .to_owned();
        let log = BufReader::new(process.stderr.take().expect("it is piped"));
        Self { process, http, log }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, signal).expect("it runs");
    }

    /// Reads the log up to the line with these words, and gives what was read.
    fn log_until(&mut self, words: &str) -> String {
        let mut log = String::new();
        while !log.contains(words) {
            let read = self.log.read_line(&mut log).expect("it is text");
            assert!(read > 0, "the log ended without {words:?}: {log}");
        }
        log
    }

    fn get(&self, headers: &str) -> String {
        let mut stream = TcpStream::connect(&self.http).expect("it listens");
        let request = format!(
            "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).expect("it is read");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    /// Ends it by this signal, and gives the rest of its log.
    fn end(&mut self, signal: Signal) -> String {
        self.signal(signal);
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).expect("it is text");
        self.process.wait().expect("it ends");
        rest
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        // One that has ended already cannot be killed.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn serve(data: &Path, flags: &[&str]) -> Command {
    let mut command = sexton();
    command.args([
        "serve",
        "--beanstalk",
        "off",
        "--lockserver",
        "127.0.0.1:0",
        "--data",
    ]);
    command.arg(data).args(flags);
    if !flags.contains(&"--http") {
        command.args(["--http", "127.0.0.1:0"]);
    }
    command
}

fn sexton() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sexton"));
    command
        .env_remove("SEXTON_DATA")
        .env_remove("SEXTON_LOG")
        .env_remove("NOTIFY_SOCKET");
    command
}

fn status(data: &Path, flags: &[&str]) -> Output {
    sexton()
        .arg("status")
        .arg("--data")
        .arg(data)
        .args(flags)
        .output()
        .expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it is text")
}

fn write_private(file: &Path, text: &str) {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut opened = options.open(file).expect("it can be written");
    opened
        .write_all(text.as_bytes())
        .expect("it can be written");
}

#[test]
fn a_person_and_a_program_read_the_status() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let data = directory.path().join("data");
    let mut coordinator = Coordinator::start(&data, &[]);
    let shown = status(&data, &[]);
    let page = text(&shown.stdout);
    shown.assert().success().stderr("");
    let pid = format!("process {}", coordinator.process.id());
    for expected in [
        pid.as_str(),
        "fsync always",
        coordinator.http.as_str(),
        "sexton.sock",
        "after a clean stop",
        "room ample",
        "a not sealed, b not sealed",
        "0 owners, 0 contenders",
    ] {
        assert!(page.contains(expected), "no {expected:?} in:\n{page}");
    }
    let actors: Vec<&str> = page
        .lines()
        .skip_while(|line| !line.starts_with("ACTOR"))
        .collect();
    assert_eq!(actors.len(), 3, "{page}");
    assert!(actors[2].starts_with("queue"), "{page}");
    assert!(actors[1].starts_with("lock"), "{page}");
    assert!(
        page.lines().all(|line| line == line.trim_end()),
        "no blanks at the end of lines"
    );

    sexton()
        .args(["checkpoint", "--data"])
        .arg(&data)
        .assert()
        .success();
    let page = text(&status(&data, &[]).stdout);
    let snapshots = page.lines().find(|line| line.starts_with("snapshots"));
    let snapshots = snapshots.unwrap_or_else(|| panic!("no snapshots in:\n{page}"));
    assert!(snapshots.contains("a up to 2, b not sealed"), "{snapshots}");
    assert!(snapshots.contains("on disk"), "{snapshots}");

    let json: serde_json::Value =
        serde_json::from_slice(&status(&data, &["--json"]).stdout).expect("it is JSON");
    assert_eq!(json["pid"], coordinator.process.id());
    assert_eq!(json["doors"]["http"], coordinator.http);

    coordinator.end(Signal::TERM);
    assert!(
        !data.join("sexton.sock").exists(),
        "a clean stop removes its socket"
    );
}

#[test]
fn without_a_coordinator_the_status_says_what_was_tried() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let refused = |data: &Path, expected: &str| {
        let refused = status(data, &[]);
        let error = text(&refused.stderr);
        refused.assert().code(3).stdout("");
        assert!(error.contains("no coordinator runs"), "{error}");
        assert!(
            error
                .replace(['\n', ' '], "")
                .contains(&expected.replace(' ', "")),
            "{error}"
        );
        assert!(
            error.contains("sexton serve"),
            "it says how to start one: {error}"
        );
    };
    refused(
        &directory.path().join("absent"),
        "there is no such directory",
    );
    refused(directory.path(), "there is no socket");

    let data = directory.path().join("data");
    Coordinator::start(&data, &[]).end(Signal::KILL);
    refused(&data, "which a killed one left behind");
    let mut again = Coordinator::start(&data, &[]);
    let page = text(&status(&data, &[]).stdout);
    assert!(page.contains("after an unclean end"), "{page}");
    again.end(Signal::INT);
}

#[test]
fn a_token_is_read_again_at_hup_and_never_told() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let (data, file) = (
        directory.path().join("data"),
        directory.path().join("token"),
    );
    write_private(&file, TOKEN);
    let flags = [
        "--token-file",
        file.to_str().expect("it is text"),
        "--log",
        "trace",
        "-d",
    ];
    let mut coordinator = Coordinator::start(&data, &flags);
    let with = |coordinator: &Coordinator, token: &str| {
        coordinator.get(&format!("Authorization: Bearer {token}\r\n"))
    };
    assert!(coordinator.get("").starts_with("HTTP/1.1 401"));
    assert!(with(&coordinator, TOKEN).starts_with("HTTP/1.1 200"));
    let mut told = with(&coordinator, TOKEN);

    coordinator.signal(Signal::HUP);
    told += &coordinator.log_until("the token file is as it was");
    write_private(&file, "brief");
    coordinator.signal(Signal::HUP);
    told += &coordinator.log_until("the old token file stays in force");
    assert!(with(&coordinator, TOKEN).starts_with("HTTP/1.1 200"));
    write_private(&file, "another-staple-of-the-right-length\n");
    coordinator.signal(Signal::HUP);
    told += &coordinator.log_until("the token file changed");
    assert!(with(&coordinator, TOKEN).starts_with("HTTP/1.1 401"));
    assert!(with(&coordinator, "another-staple-of-the-right-length").starts_with("HTTP/1.1 200"));

    let shown = status(&data, &["--json"]);
    told += &text(&shown.stdout);
    told += &coordinator.end(Signal::TERM);
    assert!(
        !told.contains("staple") && !told.contains("brief"),
        "{told}"
    );
}

#[test]
fn settings_of_the_http_door_that_cannot_be_are_told_before_anything_opens() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let (data, file) = (
        directory.path().join("data"),
        directory.path().join("token"),
    );
    let refused = |data: &Path, flags: &[&str], status: i32, expected: &[&str]| {
        let output = serve(data, flags).output().expect("it runs");
        let error = text(&output.stderr);
        output.assert().code(status).stdout("");
        let joined = error.replace(['\n', ' '], "");
        for words in expected {
            assert!(
                joined.contains(&words.replace(' ', "")),
                "no {words:?} in {error}"
            );
        }
        assert!(!error.contains("staple"), "{error}");
    };
    let token = file.to_str().expect("it is text");
    refused(&data, &["--http", "0.0.0.0:0"], 2, &["needs a token file"]);
    refused(
        &data,
        &["--token-file", token],
        3,
        &["token", "No such file"],
    );
    write_private(&file, TOKEN);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    refused(&data, &["--token-file", token], 3, &["0644", "chmod 600"]);
    let long = directory.path().join("x".repeat(120));
    refused(&long, &[], 3, &["107", "shorter data directory"]);
}
