//! How commands connect: over TCP and TLS with a token, and over a socket that is open to a group.

use crate::coordinator::done;
use crate::daemon::{Daemon, PROGRAM, sexton, text};
use crate::patience::until;
use rustix::process::Signal;
use serde_json::Value;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const TOKEN: &str = "correct-horse-battery-staple";

fn files() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn private(directory: &Path, name: &str, words: &str) -> PathBuf {
    let file = directory.join(name);
    std::fs::write(&file, words).expect("a writable file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("our own file");
    file
}

/// Returns a function that runs commands with these flags for the connection. It returns their status, output and errors.
fn ask_by<'f>(flags: &'f [&'f str]) -> impl Fn(&[&str]) -> (i32, String, String) + 'f {
    move |words| {
        let mut command = sexton();
        command.args(words).args(flags).stdin(Stdio::null());
        let done = done(command.output().expect("the command runs"));
        (done.status, done.out, done.err)
    }
}

/// Sends one request of each kind.
fn asks_for_all(ask: impl Fn(&[&str]) -> (i32, String, String)) {
    for (words, expected) in [
        (&["status"][..], "process"),
        (&["lock", "acquire", "a", "--owner", "one", "--ttl", "6000"], "acquired as one"),
        (&["lock", "list"], "one"),
        (&["queue", "push", "q", "x"], "1"),
        (&["queue", "pop", "q", "--wait", "5"], "x"),
        (&["top", "--once"], "serving"),
        (&["checkpoint"], "snapshot"),
        (&["drain"], "draining"),
    ] {
        let (status, out, err) = ask(words);
        assert_eq!((status, err.as_str()), (0, ""), "{words:?}");
        assert!(out.contains(expected), "{words:?}: {out}");
    }
}

#[test]
fn processes_are_run_over_tcp_with_a_token_of_the_scope_run() {
    const RUNS: &str = "correct-horse-that-runs run";
    let files = files();
    let both = private(files.path(), "both", &format!("{TOKEN}\n{RUNS}\n"));
    let plain = private(files.path(), "plain", TOKEN);
    let run = private(files.path(), "run", RUNS);
    let data = files.path().join("data");
    let flags = ["--data", text(&data), "--token-file", text(&both)];
    let daemon = Daemon::serve(&[&flags[..], &["--http", "127.0.0.1:0"]].concat());
    let ask = |token: &Path, words: &[&str]| {
        let mut command = sexton();
        command.args(words).stdin(Stdio::null());
        command
            .env("SEXTON_URL", format!("http://{}", daemon.http()))
            .env("SEXTON_TOKEN_FILE", token);
        done(command.output().expect("the command runs"))
    };
    let detached = ["run", "--detach", "--", "sh", "-c", "exit 6"];
    for words in [&detached[..], &["ps"], &["service"]] {
        let refused = ask(&plain, words);
        assert_eq!(refused.status, 3, "{refused:?}");
        assert!(refused.err.contains("scope run"), "{refused:?}");
    }
    let id = ask(&run, &detached).out;
    assert_eq!(ask(&run, &["wait", id.trim_end()]).status, 6);
    // The process runs on the coordinator's machine, which is this one.
    let foreground = ["run", "--", "sh", "-c", "exit 7"];
    assert_eq!(ask(&run, &foreground).status, 7);
}

#[test]
fn every_command_asks_over_tcp_with_a_token() {
    let files = files();
    let token = private(files.path(), "token", &format!("{TOKEN} run"));
    let data = files.path().join("data");
    let flags = ["--data", text(&data), "--token-file", text(&token)];
    let daemon = Daemon::serve(&[&flags[..], &["--http", "127.0.0.1:0"]].concat());
    let url = format!("http://{}", daemon.http());
    let asking = [url.as_str(), text(&token)];
    asks_for_all(ask_by(&["--url", asking[0], "--token-file", asking[1]]));

    // Environment variables have the same effect. A directory that is given by a flag has precedence over them.
    let by_environment = |words: &[&str]| {
        let mut command = sexton();
        command.args(words).stdin(Stdio::null());
        command.env("SEXTON_URL", &url).env("SEXTON_TOKEN_FILE", &token);
        command
    };
    let output = by_environment(&["lock", "owner", "a"]).output();
    assert_eq!(done(output.expect("the command runs")).out, "one\n");
    let absent = files.path().join("absent");
    let output = by_environment(&["status", "--data", text(&absent)]).output();
    assert_eq!(done(output.expect("the command runs")).status, 3);
    let both = by_environment(&["status", "--data", "d", "--url", &url]).output();
    assert_eq!(done(both.expect("the command runs")).status, 2);

    // A client without a token, or with a wrong one, gets a hint in the error.
    let another = private(files.path(), "another", "not-the-token-at-all");
    let empty = private(files.path(), "empty", "");
    for (flags, words) in [
        (&["--url", asking[0]][..], "--token-file"),
        (&["--url", asking[0], "--token-file", text(&another)], "--token-file"),
        (&["--url", asking[0], "--token-file", text(&empty)], "visible ASCII"),
        (&["--url", asking[0], "--token-file", text(&absent)], "absent"),
        (&["--url", "unix:/nowhere/sexton.sock"], "/nowhere/sexton.sock"),
    ] {
        let (status, out, err) = ask_by(flags)(&["lock", "list"]);
        assert_eq!((status, out.as_str()), (3, ""), "{flags:?}: {err}");
        assert!(err.contains(words) && !err.contains("staple"), "{flags:?}: {err}");
    }
    let (status, _, err) = ask_by(&["--url", "localhost:1"])(&["status"]);
    assert!(status == 2 && err.contains("http://HOST:PORT"), "{err}");

    // A stream ends without an error when the coordinator is stopped.
    let mut events = by_environment(&["events", "--json"]);
    let events = events.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let events = events.expect("the command runs");
    until("it listens", || {
        let output = by_environment(&["status", "--json"]).output().ok()?;
        let status: Value = serde_json::from_slice(&output.stdout).ok()?;
        (status["http"]["active"] == 2).then_some(())
    });
    daemon.signal(Signal::TERM);
    let ended = done(events.wait_with_output().expect("the process ends"));
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(ended.out.contains("stopping"), "{ended:?}");
}

#[test]
fn every_command_asks_over_tls() {
    let files = files();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
    let made = made.expect("a certificate");
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
    let other = other.expect("a certificate").cert.pem();
    let certificate = private(files.path(), "own.crt", &made.cert.pem());
    let key = private(files.path(), "own.key", &made.signing_key.serialize_pem());
    let other = private(files.path(), "other.crt", &other);
    let token = private(files.path(), "token", &format!("{TOKEN} run"));
    let data = files.path().join("data");
    let flags = ["--data", text(&data), "--http", "127.0.0.1:0"];
    let tokens = ["--token-file", text(&token)];
    let tls = ["--tls-cert", text(&certificate), "--tls-key", text(&key)];
    let daemon = Daemon::serve(&[&flags[..], &tls, &tokens].concat());
    let port = SocketAddr::port(&daemon.http());
    let url = format!("https://localhost:{port}");
    let own = ["--url", &url, "--ca-file", text(&certificate)];
    asks_for_all(ask_by(&[&own[..], &tokens].concat()));
    let plain = format!("http://localhost:{port}");
    for (flags, words) in [
        (&["--url", &url, "--ca-file", text(&other)][..], "--ca-file"),
        (&["--url", &url, "--ca-file", text(&key)], "no certificate"),
        (&["--url", &plain], "https://"),
    ] {
        let (status, out, err) = ask_by(flags)(&["status"]);
        assert_eq!((status, out.as_str()), (3, ""), "{flags:?}: {err}");
        assert!(err.contains(words), "{flags:?}: {err}");
    }
}

/// Runs the program as another user, with only this group. Returns `None` if this process may not do that.
fn as_stranger(group: u32, data: &Path) -> Option<(i32, String)> {
    let mut command = Command::new(PROGRAM);
    command.args(["lock", "list", "--data"]).arg(data);
    command.uid(65_534).gid(group);
    let output = command.output().ok()?;
    let done = done(output);
    Some((done.status, done.err))
}

#[test]
fn a_socket_may_be_open_to_a_group() {
    let files = files();
    let open = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(files.path(), open).expect("our own file");
    let data = files.path().join("data");
    let rights = |path: &Path| {
        let metadata = std::fs::metadata(path).expect("the file exists");
        (metadata.mode() & 0o777, metadata.gid())
    };
    let own = std::fs::metadata(files.path()).expect("the file exists").gid();
    let is_root = rustix::process::geteuid().is_root();
    let group = if is_root { 54_321 } else { own };
    let daemon = Daemon::serve(&["--data", text(&data), "--socket-group", &group.to_string()]);
    assert_eq!(rights(&data.join("sexton.sock")), (0o660, group));
    assert_eq!(rights(&data), (0o710, group), "access to the socket only");
    if let Some((status, err)) = as_stranger(group, &data).filter(|_| is_root) {
        assert_eq!(status, 0, "{err}");
        let (status, err) = as_stranger(65_534, &data).expect("it ran just now");
        assert_eq!(status, 3, "{err}");
        assert!(err.contains("--socket-group") && err.contains("--url"), "{err}");
    } else {
        println!("skipped: asking as another user, which root alone can try");
    }
    daemon.kill();
    let daemon = Daemon::serve(&["--data", text(&data)]);
    assert_eq!(rights(&data.join("sexton.sock")).0, 0o600);
    if let Some((status, err)) = as_stranger(group, &data).filter(|_| is_root) {
        assert!(status == 3 && err.contains("--socket-group"), "{err}");
    }
    daemon.kill();
    for (flag, value) in [
        ("--socket-mode", "0777"),
        ("--socket-mode", "0060"),
        ("--socket-mode", "rw"),
        ("--socket-group", "no-such-group-here"),
    ] {
        let refused = sexton().args(["serve", "--memory", flag, value]).output();
        let refused = done(refused.expect("the command runs"));
        assert!(refused.status == 2 && refused.err.contains("socket-"), "{refused:?}");
    }
}

#[test]
fn a_socket_whose_file_is_removed_is_made_again() {
    let files = files();
    let data = files.path().join("data");
    let daemon = Daemon::serve(&["--data", text(&data), "--socket-mode", "0660"]);
    let found = |name: &str| std::fs::symlink_metadata(data.join(name)).ok();
    let mode = |name: &str| found(name).map(|it| it.mode() & 0o777);
    let modes = [("sexton.sock", 0o660), ("report.sock", 0o600)];
    // Twice, since the second file is made by other code than the first.
    for _ in 0..2 {
        for (name, expected) in modes {
            assert_eq!(mode(name), Some(expected), "{name}");
            std::fs::remove_file(data.join(name)).expect("it exists");
        }
        for (name, expected) in modes {
            until("it is made again", || (mode(name) == Some(expected)).then_some(()));
            until("it listens", || UnixStream::connect(data.join(name)).ok());
        }
        let listed = sexton().args(["lock", "list", "--data", text(&data)]).output();
        let listed = done(listed.expect("the command runs"));
        assert_eq!(listed.status, 0, "{listed:?}");
    }
    let said = daemon.log();
    assert_eq!(said.matches("was removed, and was created again").count(), 4, "{said}");
    // What somebody else has put there is left alone.
    std::fs::remove_file(data.join("sexton.sock")).expect("it exists");
    std::fs::write(data.join("sexton.sock"), "x").expect("our own directory");
    std::fs::remove_file(data.join("report.sock")).expect("it exists");
    until("the other is made again", || found("report.sock"));
    daemon.kill();
    assert_eq!(std::fs::read(data.join("sexton.sock")).expect("it exists"), b"x");
}
