//! Named pipes in place of files. Nobody may ever write to such a pipe, so nothing must block on it.

use crate::daemon::{Daemon, sexton, text};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use std::path::Path;

const REFUSED: &str = "it is not a regular file";

fn make_pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
}

#[test]
fn hup_does_not_wait_for_a_configuration_that_became_a_pipe() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let (config, data) = (files.path().join("config"), files.path().join("data"));
    std::fs::write(&config, "lock-entries = 100\n").expect("a writable file");
    let daemon = Daemon::serve(&["--data", text(&data), "--config", text(&config)]);
    std::fs::remove_file(&config).expect("our own file");
    make_pipe(&config);
    daemon.signal(Signal::HUP);
    daemon.until_logged("the old settings stay in force");
    assert!(daemon.log().contains(REFUSED), "{}", daemon.log());
    daemon.signal(Signal::TERM);
    let (status, log) = daemon.end();
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn commands_wait_for_no_pipe_where_they_read_a_file() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let pipe = files.path().join("pipe");
    make_pipe(&pipe);
    let pipe = text(&pipe);
    for words in [
        &["config", "--config", pipe][..],
        &["status", "--url", "http://127.0.0.1:1", "--token-file", pipe],
        &["status", "--url", "https://127.0.0.1:1", "--ca-file", pipe],
    ] {
        let mut command = sexton();
        command.args(words);
        let (status, said) = Daemon::begin(command).end();
        assert_eq!(status.code(), Some(3), "{said}");
        assert!(said.contains(REFUSED) && said.contains(pipe), "{said}");
    }
}
