//! The Unix socket of the HTTP listener, and what is left after a stop.

use crate::opened::{Opened, write_private};
use crate::unserved;
use sexton::config::{Config, HttpConfig};
use sexton::node::NodeError;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

#[test]
fn the_socket_is_private_replaces_a_stale_one_and_goes_at_a_clean_stop() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("s");
    unserved::left_behind(&socket).expect("the socket can be bound");
    assert!(UnixStream::connect(&socket).is_err(), "it is stale");
    let mut opened = Opened::with(|http| http.socket = Some(socket.clone()));
    let metadata = std::fs::symlink_metadata(&socket).expect("the file exists");
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o600);
    assert_eq!(opened.get_over_socket("/healthz").status, 200);
    opened.stop();
    assert!(!socket.exists(), "a clean stop leaves nothing behind");
}

#[test]
fn a_socket_is_not_put_over_a_file_or_over_a_live_one_or_at_a_long_path() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let open = |socket: &Path| {
        let http = HttpConfig { socket: Some(socket.to_owned()), ..HttpConfig::default() };
        let config = Config { http: Some(http), ..Config::in_memory() };
        match sexton_http::open(config) {
            Err(error @ NodeError::Listener { .. }) => error.to_string(),
            Err(error) => panic!("another error: {error}"),
            Ok(_) => panic!("it opened"),
        }
    };
    let file = directory.path().join("file");
    write_private(&file, "precious");
    assert!(open(&file).contains("not a socket"));
    assert_eq!(std::fs::read_to_string(&file).expect("the file exists"), "precious");
    let live = directory.path().join("live");
    let listener = UnixListener::bind(&live).expect("the socket can be bound");
    assert!(open(&live).to_lowercase().contains("in use"));
    assert!(live.exists());
    drop(listener);
    let long = open(&directory.path().join("x".repeat(108)));
    assert!(long.contains("107") && long.contains("shorter"), "{long}");
}

#[test]
fn closing_does_not_wait_for_those_who_are_silent() {
    let mut opened = Opened::new();
    let mut idle = opened.connect();
    let mut half = opened.connect();
    half.write_all(b"GET /healthz HT").expect("connected");
    let mut over_socket = UnixStream::connect(opened.socket()).expect("it listens");
    assert_eq!(opened.get("/healthz", "").status, 200);
    let address = opened.address();
    opened.stop();
    assert!(TcpStream::connect(address).is_err(), "no process listens any more");
    let mut rest = Vec::new();
    assert_eq!(idle.read_to_end(&mut rest).expect("it ended"), 0);
    assert_eq!(over_socket.read_to_end(&mut rest).expect("it ended"), 0);
    // The read may fail or not, depending on how the connection was closed.
    drop(half.read_to_end(&mut rest));
}
