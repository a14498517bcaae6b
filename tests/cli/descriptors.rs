//! Connections use up all descriptors. The journal, snapshots and commands still work.

use crate::daemon::{Daemon, serve_by, sexton, text};
use crate::patience::until;
use crate::tree::Tree;
use rustix::process::Signal;
use std::net::TcpStream;
use std::process::Command;

/// The default settings allow more connections than most limits on descriptors do. This is only logged as a warning if
/// the limit is low.
#[test]
fn a_limit_that_is_usually_enough_is_no_news() {
    let start = |limit: &str| {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let mut shell = Command::new("sh");
        let script = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
        shell.args(["-c", &script]);
        let daemon = Daemon::start(serve_by(shell, &["--data", text(folder.path())]));
        daemon.signal(Signal::TERM);
        let (_, log) = daemon.end();
        log.contains("allows fewer connections than the settings")
    };
    assert!(start("256"), "that is too few");
    assert!(!start("4096"), "that is enough");
}

#[test]
fn connections_leave_descriptors_to_the_journal_and_to_the_command_line() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let data = text(folder.path());
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 256; exec \"$0\" \"$@\""]);
    let flags = ["--data", data, "--http", "127.0.0.1:0"];
    let daemon = Daemon::start(serve_by(shell, &flags));
    let connections: Vec<TcpStream> =
        (0..400).filter_map(|_| TcpStream::connect(daemon.http()).ok()).collect();
    daemon.until_logged("a connection was not accepted");
    for words in [
        &["lock", "acquire", "a", "--owner", "me"][..],
        // A checkpoint opens all files of a snapshot at once.
        &["checkpoint"],
        &["status"],
    ] {
        let said = sexton().args(words).args(["--data", data]).output().expect("the program runs");
        assert!(said.status.success(), "{words:?}: {said:?}");
    }
    let told = daemon.log().matches("a connection was not accepted").count();
    assert!((1..=10).contains(&told), "{told} lines of {}", connections.len());
    assert!(daemon.log().contains("allows fewer connections than the settings"));
}

/// Each process is followed through a descriptor, as long as it is alive.
#[test]
fn connections_leave_descriptors_to_processes() {
    let mut starter = Command::new("sh");
    starter.args(["-c", "ulimit -n 900; exec \"$@\"", "sh"]);
    let tree = Tree::started_by(starter, "");
    let daemon = tree.daemon.as_ref().expect("a server");
    let connections: Vec<TcpStream> =
        (0..750).filter_map(|_| TcpStream::connect(daemon.lockserver()).ok()).collect();
    daemon.until_logged("a connection was not accepted");
    let end = tree.data.with_file_name("end");
    let script = format!("while [ ! -e {} ]; do sleep 1; done", text(&end));
    let launch = serde_json::json!({"command": ["sh", "-c", script]}).to_string();
    for nth in 0..70 {
        let record = tree.post("/v1/processes/launch", &launch);
        assert_eq!(record.pointer("/status"), Some(&"running".into()), "{nth}: {record}");
    }
    assert_eq!(tree.run(&["checkpoint"]).status, 0);
    std::fs::write(&end, "").expect("a writable directory");
    drop(connections);
}

/// The output files of a launch, whose size is limited, are open while it is prepared.
#[test]
fn launches_that_fail_keep_no_descriptors() {
    let tree = Tree::start();
    let pid = tree.daemon.as_ref().expect("a server").pid();
    let open = || std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").count();
    let fail = || {
        let words = ["run", "--detach", "--output-max", "1MiB", "--", "/nonexistent/program"];
        assert_ne!(tree.run(&words).status, 0);
    };
    fail();
    let before = open();
    (0..20).for_each(|_| fail());
    until("they are closed", || (open() < before + 20).then_some(()));
}

#[test]
fn a_command_has_the_descriptor_limit_with_which_the_server_was_started() {
    let mut starter = Command::new("sh");
    starter.args(["-c", "ulimit -S -n 777 && exec \"$@\"", "sh"]);
    let tree = Tree::started_by(starter, "");
    let id = tree.detach("ulimit -n; ulimit -H -n");
    assert_eq!(tree.run(&["wait", &id]).status, 0);
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let hard = hard.map_or_else(|| "unlimited".to_owned(), |it| it.to_string());
    assert_eq!(tree.well(&["logs", &id]), format!("777\n{hard}\n"));
}
