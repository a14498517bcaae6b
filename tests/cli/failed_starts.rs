//! Starts of `sexton serve` that fail for a listener or its files: they launch nothing, and leave a directory as it was.

use crate::daemon::{Daemon, text};
use crate::lockserver::{Client, request};
use crate::patience::until;
use crate::serve::{files, first_segment, refused, refused_at, says};
use std::net::TcpListener;

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let found = refused(&["--memory", "--lockserver", &address]);
    says(found, 3, &[&address, "lockserver", "in use", "another address, or port 0"]);
}

#[test]
fn a_lockserver_that_admits_no_other_host_is_warned_of() {
    let daemon = Daemon::serve(&["--memory", "--lockserver", "0.0.0.0:0"]);
    daemon.until_logged("refuses every other host: --hosts names a file");
}

#[test]
fn a_start_that_fails_for_its_address_leaves_no_directory() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let files = files();
    let data = files.path().join("below/data");
    for listener in ["--lockserver", "--beanstalk", "--http"] {
        let found = refused(&["--data", text(&data), listener, &address]);
        says(found, 3, &[&address, "in use"]);
        let left = files.path().read_dir().expect("the directory exists").count();
        assert_eq!(left, 0, "{listener}");
    }
}

#[test]
fn a_start_that_fails_for_its_token_or_certificate_leaves_no_directory() {
    let files = files();
    let data = files.path().join("below/data");
    let absent = files.path().join("absent");
    let token: &[&str] = &["--token-file", text(&absent)];
    let tls: &[&str] = &["--tls-cert", text(&absent), "--tls-key", text(&absent)];
    for words in [token, tls] {
        let serve: &[&str] = &["--data", text(&data), "--http", "127.0.0.1:0"];
        says(refused(&[serve, words].concat()), 3, &["absent"]);
        let left = files.path().read_dir().expect("it is there").count();
        assert_eq!(left, 0, "{words:?}");
    }
}

#[test]
fn a_start_that_fails_for_a_listener_or_its_files_launches_nothing() {
    let files = files();
    let (data, config) = (files.path().join("data"), files.path().join("sexton.toml"));
    Daemon::serve(&["--data", text(&data)]).kill();
    let service = "[services.web]\ncommand = [\"true\"]\n";
    std::fs::write(&config, service).expect("a writable file");
    let absent = files.path().join("absent");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().expect("an address").to_string();
    let unix = format!("unix:{}", text(&absent.join("socket")));
    let cases: [(&[&str], &str); 5] = [
        (&["--token-file", text(&absent)], "absent"),
        (&["--tls-cert", text(&absent), "--tls-key", text(&absent)], "absent"),
        (&["--lockserver", &taken], "in use"),
        (&["--beanstalk", &taken], "in use"),
        (&["--beanstalk", &unix], "absent"),
    ];
    let launches_nothing = |words: &[&str], named| {
        let serve: &[&str] = &["--data", text(&data), "--config", text(&config)];
        let http: &[&str] = &["--http", "127.0.0.1:0"];
        says(refused(&[serve, http, words].concat()), 3, &[named]);
        assert!(!data.join("services").exists(), "{words:?}");
        assert!(!data.join("keeper.sock").exists(), "{words:?}");
    };
    for (words, named) in cases {
        launches_nothing(words, named);
    }
    let socket = data.join("sexton.sock");
    std::fs::remove_file(&socket).expect("the killed server has left it");
    std::fs::write(&socket, "").expect("a writable file");
    launches_nothing(&[], "sexton.sock");
    std::fs::remove_file(&socket).expect("the file exists");
    // With all listeners, the service is launched.
    let daemon = Daemon::serve(&["--data", text(&data), "--config", text(&config)]);
    until("it is launched", || data.join("services").exists().then_some(()));
    daemon.signal(rustix::process::Signal::TERM);
    daemon.end();
}

#[test]
fn a_start_that_fails_for_a_listener_changes_nothing() {
    let files = files();
    let first = Daemon::serve(&["--data", text(files.path())]);
    let mut client = Client::connect(first.lockserver()).expect("connected");
    let lock = request("k", "i", "alice", (60, 60, 0));
    assert_eq!(client.number(&lock).expect("an answer"), 1);
    first.kill();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let segment = first_segment(&files);
    let before = std::fs::read(&segment).expect("a readable file");
    let found = refused_at(files.path(), &["--http", &address]);
    assert!(!found.1.contains("panicked"), "{}", found.1);
    says(found, 3, &["http", "in use"]);
    let after = std::fs::read(&segment).expect("a readable file");
    assert_eq!(before, after);
    let last = Daemon::serve(&["--data", text(files.path())]);
    let mut client = Client::connect(last.lockserver()).expect("connected");
    assert!(client.number(&lock).expect("an answer") > 0, "alice still holds it");
}
