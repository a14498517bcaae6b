//! `sexton status` and the HTTP side of `sexton serve`, with the real program.

use crate::coordinator::Coordinator;
use crate::daemon::{self, Daemon, ended, sexton};
use rustix::process::Signal;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output};

const TOKEN: &str = "correct-horse-battery-staple";

/// Starts a coordinator with an HTTP listener on this directory.
fn start(data: &Path, flags: &[&str]) -> Daemon {
    Daemon::start(serve(data, flags))
}

fn serve(data: &Path, flags: &[&str]) -> Command {
    let http = ["--http", "127.0.0.1:0"];
    let http = if flags.contains(&"--http") { &[][..] } else { &http };
    daemon::serve(&[&["--data", daemon::text(data)], http, flags].concat())
}

/// Returns the answer to a request for the coordinator's status with these headers.
fn get(coordinator: &Daemon, headers: &str) -> String {
    let mut stream = TcpStream::connect(coordinator.http()).expect("it listens");
    let request =
        format!("GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("connected");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Ends the coordinator with this signal. Returns its log.
fn end(coordinator: Daemon, signal: Signal) -> String {
    coordinator.signal(signal);
    coordinator.end().1
}

fn status(data: &Path, flags: &[&str]) -> Output {
    sexton().arg("status").arg("--data").arg(data).args(flags).output().expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn write_private(file: &Path, text: &str) {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut opened = options.open(file).expect("a writable file");
    opened.write_all(text.as_bytes()).expect("a writable file");
}

#[test]
fn a_person_and_a_program_read_the_status() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = directory.path().join("data");
    let coordinator = start(&data, &[]);
    let shown = status(&data, &[]);
    let [page, error] = ended(shown, 0);
    assert_eq!(error, "");
    let number = coordinator.pid().as_raw_nonzero().get();
    let (pid, http) = (format!("process {number}"), coordinator.http().to_string());
    for expected in [
        pid.as_str(),
        "fsync always",
        http.as_str(),
        "sexton.sock",
        "recovered   nothing: the data directory is new",
        "room ample",
        "slot a not sealed, slot b not sealed",
        "0 owners, 0 contenders",
        "host        load ",
        " available, up ",
        "process     memory ",
        "following   ",
        ", descriptors ",
    ] {
        assert!(page.contains(expected), "no {expected:?} in:\n{page}");
    }
    let actors: Vec<&str> = page.lines().skip_while(|line| !line.starts_with("ACTOR")).collect();
    let names = actors.iter().skip(1).map(|line| line.split(' ').next());
    let names: Vec<&str> = names.flatten().collect();
    assert_eq!(names, sexton::actors::names(), "{page}");
    assert!(page.lines().all(|line| line == line.trim_end()), "no blanks at the end of lines");

    let checkpoint = sexton().args(["checkpoint", "--data"]).arg(&data).output();
    ended(checkpoint.expect("the command runs"), 0);
    let page = text(&status(&data, &[]).stdout);
    let snapshots = page.lines().find(|line| line.starts_with("snapshots"));
    let snapshots = snapshots.unwrap_or_else(|| panic!("no snapshots in:\n{page}"));
    // The entries so far are the reservation of numbers, the startup, and the rules of each actor.
    let upto = 2 + sexton::actors::names().len();
    let sealed = format!("slot a up to seq {upto}, slot b not sealed");
    assert!(snapshots.contains(&sealed), "{snapshots}");
    assert!(snapshots.contains("on disk"), "{snapshots}");

    let json: serde_json::Value =
        serde_json::from_slice(&status(&data, &["--json"]).stdout).expect("valid JSON");
    assert_eq!(json["pid"], number);
    assert_eq!(json["listeners"]["http"], http);
    let following = &json["following"];
    let kernel = sexton::kernel::host::abilities();
    assert_eq!(following["tier"], kernel.tier().name(), "{following}");
    assert_eq!(following["exits"], kernel.exits, "{following}");
    assert_eq!(following["unknown"], 0, "{following}");
    let shown = format!("following   {kernel}");
    assert!(page.contains(&shown), "no {shown:?} in:\n{page}");

    assert_eq!(json["recovered"]["new"], true);

    end(coordinator, Signal::TERM);
    assert!(!data.join("sexton.sock").exists(), "a clean stop removes its socket");
    let coordinator = start(&data, &[]);
    let page = text(&status(&data, &[]).stdout);
    assert!(page.contains("after a clean stop"), "{page}");
    end(coordinator, Signal::TERM);
}

#[test]
fn without_a_coordinator_the_status_says_what_was_tried() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let refused = |data: &Path, expected: &str| {
        let refused = status(data, &[]);
        let [page, error] = ended(refused, 3);
        assert_eq!(page, "");
        assert!(error.contains("no coordinator runs"), "{error}");
        assert!(error.replace(['\n', ' '], "").contains(&expected.replace(' ', "")), "{error}");
        assert!(error.contains("sexton serve"), "it says how to start one: {error}");
    };
    refused(&directory.path().join("absent"), "there is no such directory");
    refused(directory.path(), "there is no socket");

    let data = directory.path().join("data");
    end(start(&data, &[]), Signal::KILL);
    refused(&data, "which a killed coordinator left behind");
    let again = start(&data, &[]);
    let page = text(&status(&data, &[]).stdout);
    assert!(page.contains("after an unclean end"), "{page}");
    end(again, Signal::INT);
}

#[test]
fn a_token_is_read_again_at_hup_and_never_told() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (data, file) = (directory.path().join("data"), directory.path().join("token"));
    write_private(&file, TOKEN);
    let flags = ["--token-file", file.to_str().expect("UTF-8"), "--log", "trace", "-d"];
    let coordinator = start(&data, &flags);
    let with = |token: &str| get(&coordinator, &format!("Authorization: Bearer {token}\r\n"));
    assert!(get(&coordinator, "").starts_with("HTTP/1.1 401"));
    assert!(with(TOKEN).starts_with("HTTP/1.1 200"));
    let mut told = with(TOKEN);

    coordinator.signal(Signal::HUP);
    coordinator.until_logged("the token file is unchanged");
    write_private(&file, "brief");
    coordinator.signal(Signal::HUP);
    coordinator.until_logged("the old token file stays in force");
    assert!(with(TOKEN).starts_with("HTTP/1.1 200"));
    write_private(&file, "another-staple-of-the-right-length\n");
    coordinator.signal(Signal::HUP);
    coordinator.until_logged("the token file changed");
    assert!(with(TOKEN).starts_with("HTTP/1.1 401"));
    assert!(with("another-staple-of-the-right-length").starts_with("HTTP/1.1 200"));

    let shown = status(&data, &["--json"]);
    told += &text(&shown.stdout);
    told += &end(coordinator, Signal::TERM);
    assert!(!told.contains("staple") && !told.contains("brief"), "{told}");
}

#[test]
fn settings_of_the_http_listener_that_cannot_be_are_told_before_anything_opens() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (data, file) = (directory.path().join("data"), directory.path().join("token"));
    let refused = |data: &Path, flags: &[&str], status: i32, expected: &[&str]| {
        let output = serve(data, flags).output().expect("the command runs");
        let [page, error] = ended(output, status);
        assert_eq!(page, "");
        let joined = error.replace(['\n', ' '], "");
        for words in expected {
            assert!(joined.contains(&words.replace(' ', "")), "no {words:?} in {error}");
        }
        assert!(!error.contains("staple"), "{error}");
    };
    let token = file.to_str().expect("UTF-8");
    refused(&data, &["--http", "0.0.0.0:0"], 2, &["needs a token file"]);
    refused(&data, &["--token-file", token], 3, &["token", "No such file"]);
    write_private(&file, TOKEN);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("our own file");
    refused(&data, &["--token-file", token], 3, &["0644", "chmod 600"]);
    let long = directory.path().join("x".repeat(120));
    refused(&long, &[], 3, &["107", "shorter data directory"]);
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = directory.path().join("data");
    let _coordinator = start(&data, &[]);
    for words in
        [&["status"][..], &["status", "--json"], &["checkpoint"], &["checkpoint", "--json"]]
    {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = sexton();
        command.args(words).arg("--data").arg(&data).stdout(writer);
        let output = command.output().expect("the command runs");
        let [_, error] = ended(output, 0);
        assert_eq!(error, "", "{words:?}");
    }
}

/// The same list as over HTTP: an abandoned job is one problem, which goes when the job is discarded.
#[test]
fn the_status_ends_with_what_is_wrong() {
    let coordinator = Coordinator::start(&["queue"]);
    let status = |flags: &[&str]| status(&coordinator.data, flags);
    let all_is_well: serde_json::Value =
        serde_json::from_slice(&status(&["--json"]).stdout).expect("valid JSON");
    assert_eq!(all_is_well["troubles"], serde_json::json!([]));
    assert!(!text(&status(&[]).stdout).contains("PROBLEM"));
    let pushed = coordinator.well(&["push", "mail", "x"]);
    let id = pushed.split_whitespace().next().expect("an id");
    coordinator.well(&["cancel", id]);
    let page = text(&status(&[]).stdout);
    let expected =
        "\nPROBLEM     Jobs failed: 1 job failed permanently, and can be retried or discarded.\n";
    assert!(page.contains(expected), "{page}");
    let json: serde_json::Value =
        serde_json::from_slice(&status(&["--json"]).stdout).expect("valid JSON");
    assert_eq!(json["troubles"][0]["kind"], "jobs-abandoned", "{json}");
    coordinator.well(&["delete", id]);
    assert!(!text(&status(&[]).stdout).contains("PROBLEM"));
}
