//! `sexton serve` as a person uses it: its output, what it refuses, and its exit statuses.

use crate::daemon::{Daemon, serve, sexton, text};
use crate::lockserver::{self, Client, request};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Runs a command to its end. Returns its exit status, its output, and its errors on one line.
fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let errors = text(&output.stderr);
    let line = errors.split_whitespace().collect::<Vec<_>>().join(" ");
    (output.status.code(), text(&output.stdout), line)
}

/// Runs `serve` with these flags, with which it must fail to start. Returns the exit status and the message.
pub(crate) fn refused(flags: &[&str]) -> (Option<i32>, String) {
    let (status, output, errors) = run(&mut serve(flags));
    assert_eq!(output, "", "no ready line");
    (status, errors)
}

/// Returns the same as `refused`, with a data directory.
pub(crate) fn refused_at(data: &Path, more: &[&str]) -> (Option<i32>, String) {
    refused(&[&["--data", text(data)], more].concat())
}

pub(crate) fn says((status, errors): (Option<i32>, String), expected: i32, words: &[&str]) {
    // Long lines in messages are folded, and continued after a bar. So compare without blanks and bars.
    let dense: String = errors.split([' ', '|', '│']).collect();
    for word in words {
        let wanted: String = word.split_whitespace().collect();
        assert!(dense.contains(&wanted), "{word:?} in {errors}");
    }
    assert_eq!(status, Some(expected), "{errors}");
}

pub(crate) fn files() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Returns a directory in which this number of locks were requested, after a clean stop.
fn used(locks: u32) -> TempDir {
    let files = files();
    let daemon = Daemon::serve(&["--data", text(files.path())]);
    let mut client = Client::connect(daemon.lockserver()).expect("connected");
    for number in 0..locks {
        let lock = request("k", &number.to_string(), "alice", (600, 60, 0));
        assert_eq!(client.number(&lock).expect("an answer"), 1);
    }
    daemon.signal(rustix::process::Signal::TERM);
    let (status, log) = daemon.end();
    assert_eq!(status.code(), Some(0), "{log}");
    files
}

pub(crate) fn first_segment(files: &TempDir) -> PathBuf {
    files.path().join("journal/00000001.seg")
}

#[test]
fn help_teaches() {
    let (status, help, _) = run(sexton().arg("--help"));
    assert_eq!(status, Some(0));
    for line in
        ["Locks, job queues, services and scheduled work", "Usage: sexton <COMMAND>", "serve"]
    {
        assert!(help.contains(line), "{line:?} in {help}");
    }
    let (status, help, _) = run(sexton().args(["serve", "--help"]));
    assert_eq!(status, Some(0));
    let lines = [
        "Run the coordinator until a signal stops it",
        "one line that begins with `ready`",
        "Signals: INT, TERM and TSTP stop it cleanly",
        "--data <DIR>",
        "env: SEXTON_DATA",
        "--memory",
        "--fsync <WHEN>",
        "always (before the answer), interval:MS, or never",
        "--lockserver <ADDR>",
        "127.0.0.1:11340",
        "--http <ADDR>",
        "127.0.0.1:11380",
        "--hosts <FILE>",
        "--lockserver-connections <N>",
        "--lockserver-idle <SPAN>",
        "--lockserver-priority <WHICH>",
        "--lockserver-long <BYTES>",
        "Examples:",
        "sexton serve --memory",
        "Exit status: 0 stopped cleanly; 2 wrong flags",
    ];
    for line in lines {
        assert!(help.contains(line), "{line:?} in {help}");
    }
    assert!(help.lines().all(|line| line.len() <= 110), "{help}");
    let (status, version, _) = run(sexton().arg("--version"));
    assert_eq!(
        (status, version.as_str()),
        (Some(0), concat!("sexton ", env!("CARGO_PKG_VERSION"), "\n"))
    );
}

#[test]
fn wrong_flags_are_usage_errors_that_help() {
    let cases: [(&[&str], &[&str]); 13] = [
        (
            &["--nonsense"],
            &[
                "sexton: unexpected argument '--nonsense' found",
                "help: usage: sexton serve [OPTIONS]",
            ],
        ),
        (&["--dat", "x"], &["unexpected argument", "help: a similar argument exists: '--data'"]),
        (&["--fsync", "sometimes"], &["--fsync", "expected always, interval:MS or never"]),
        (&["--fsync", "interval:0"], &["0 ms is out of range: expected 1 ms to 60000 ms"]),
        (&["--fsync", "interval:soon"], &["\"soon\" is not a number of milliseconds"]),
        (
            &["--lockserver", "nowhere"],
            &["--lockserver", "an address and port such as 127.0.0.1:11340, or off"],
        ),
        (&["--http", "127.0.0.1"], &["--http", "an address and port"]),
        (&["--lockserver-idle", "0"], &["expected 1 to 31536000 seconds"]),
        (&["--lockserver-long", "5"], &["--lockserver-long", "4, 8"]),
        (&["--lockserver-priority", "most"], &["--lockserver-priority", "high, low"]),
        (&["--memory", "--data", "x"], &["cannot be used with"]),
        (
            &["--memory", "--lockserver-connections", "0"],
            &["--lockserver-connections: 0 is out of range: expected 1 to 1048576"],
        ),
        (
            &["--memory", "--lock-entries", "0", "--http", "0.0.0.0:0"],
            &["--lock-entries: 0", "needs a token file"],
        ),
    ];
    for (flags, words) in cases {
        says(refused(flags), 2, words);
    }
    let (status, _, errors) = run(&mut sexton());
    assert_eq!(status, Some(2), "{errors}");
    assert!(errors.contains("Usage: sexton <COMMAND>"), "{errors}");
}

#[test]
fn localhost_is_an_address_and_a_variable_that_is_none_of_ours_is_named() {
    let flags = ["--memory", "--lockserver", "localhost:0", "--http", "off"];
    let daemon = Daemon::serve(&[&flags[..], &["--beanstalk", "localhost:0"]].concat());
    assert!(daemon.lockserver().ip().is_loopback());
    assert!(daemon.beanstalk().ip().is_loopback());
    let refused = refused(&["--memory", "--lockserver", "localhost:many"]);
    says(refused, 2, &["expected an address and port"]);
    let files = tempfile::tempdir().expect("a temporary directory");
    let mut status = sexton();
    status.args(["status", "--data", text(files.path())]);
    let (_, _, quiet) = run(&mut status);
    let (exit, _, misspelt) = run(status.env("SEXTON_DTA", "x"));
    let words = ["SEXTON_DTA in the environment is not a setting"];
    assert!(!quiet.contains(words[0]), "{quiet}");
    says((exit, misspelt), 3, &words);
}

#[test]
fn what_looks_like_a_negative_number_is_not_taken_for_a_value() {
    let (status, _, error) = run(sexton().args(["lock", "acquire", "a", "--ttl", "-1"]));
    assert_eq!(status, Some(2));
    assert!(!error.contains("-- -1"), "{error}");
    assert!(error.contains("help: usage: sexton lock acquire"), "{error}");
}

#[test]
fn a_directory_that_is_none_is_said_to_be_a_file() {
    let files = files();
    let file = files.path().join("notes");
    std::fs::write(&file, "x").expect("a writable file");
    let found = refused(&["--data", text(&file)]);
    says(found, 3, &[text(&file), "it is a file, not a directory"]);
}

#[test]
fn a_hosts_list_that_does_not_read_names_file_and_line() {
    let files = files();
    let data = files.path().join("data");
    let hosts = files.path().join("hosts");
    says(refused_at(&data, &["--hosts", text(&hosts)]), 3, &[text(&hosts), "No such file"]);
    std::fs::write(&hosts, "127.0.0.1\n\nlocalhost # no names\n").expect("a writable file");
    let words = [text(&hosts), "line 3", "localhost", "neither an address nor a prefix"];
    says(refused_at(&data, &["--hosts", text(&hosts)]), 3, &words);
    std::fs::write(&hosts, b"127.0.0.1\n\xff\xfe\n").expect("a writable file");
    says(refused_at(&data, &["--hosts", text(&hosts)]), 3, &[text(&hosts)]);
    assert!(!data.join("journal").exists(), "nothing was created");
}

#[test]
fn a_second_coordinator_is_told_who_holds_the_directory() {
    let files = files();
    let first = Daemon::serve(&["--data", text(files.path())]);
    let holder = format!("process {}", first.pid().as_raw_nonzero());
    let found = refused_at(files.path(), &[]);
    says(
        found,
        3,
        &[text(files.path()), "another coordinator holds it", &holder, "--data directory"],
    );
    std::fs::remove_file(files.path().join("lock")).expect("any user with this right may do so");
    let found = refused_at(files.path(), &[]);
    says(found, 3, &["another coordinator holds it", "is not recorded yet"]);
    let mut client = Client::connect(first.lockserver()).expect("connected");
    let lock = request("k", "i", "alice", (60, 60, 0));
    assert_eq!(client.number(&lock).expect("an answer"), 1, "the first one continues");
    first.kill();
    let second = Daemon::serve(&["--data", text(files.path())]);
    let mut client = Client::connect(second.lockserver()).expect("connected");
    assert_eq!(client.owner("k", "i").expect("an answer"), b"alice");
}

#[test]
fn a_newer_journal_is_left_alone() {
    let files = used(3);
    let segment = first_segment(&files);
    let file = std::fs::OpenOptions::new().write(true).open(&segment).expect("the file exists");
    let mut header = std::fs::read(&segment).expect("the file is readable");
    header[8..12].copy_from_slice(&3_u32.to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..32]);
    header[12..16].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&header[..32], 0).expect("it takes the version");
    let before = std::fs::read(&segment).expect("the file is readable");
    let words = ["journal/00000001.seg", "format 3 is newer than 2", "a newer one"];
    says(refused_at(files.path(), &[]), 3, &words);
    assert!(
        std::fs::read(&segment).expect("the file is readable") == before,
        "nothing was changed"
    );
}

#[test]
fn a_damaged_journal_names_file_offset_and_number() {
    let files = used(20);
    // A damaged record that a snapshot covers would be skipped, so remove the snapshots.
    std::fs::remove_dir_all(files.path().join("snapshots")).expect("there are some");
    let segment = first_segment(&files);
    let bytes = std::fs::read(&segment).expect("the file is readable");
    let used = bytes.iter().rposition(|byte| *byte != 0).expect("it is not empty");
    let file = std::fs::OpenOptions::new().write(true).open(&segment).expect("the file exists");
    for place in [40, used / 3, used / 2] {
        file.write_all_at(&[bytes[place] ^ 0x10], place as u64).expect("a writable file");
        let before = std::fs::read(&segment).expect("the file is readable");
        let (status, errors) = refused_at(files.path(), &[]);
        let words = [
            "journal/00000001.seg",
            "damaged at offset",
            "after sequence number",
            "sexton inspect",
        ];
        says((status, errors.clone()), 3, &words);
        let offset = errors.split("offset ").nth(1).and_then(|rest| rest.split(',').next());
        let offset: usize = offset.and_then(|text| text.parse().ok()).expect("an offset");
        assert!(offset <= place && place < offset + 200, "byte {place}, said {offset}");
        assert!(
            std::fs::read(&segment).expect("the file is readable") == before,
            "nothing was changed"
        );
        file.write_all_at(&bytes[place..=place], place as u64).expect("connected");
    }
    // After the damage is undone, the journal opens again. A flipped bit in the zeros after the records does no harm.
    file.write_all_at(&[0x10], used as u64 + 5000).expect("a writable file");
    let daemon = Daemon::serve(&["--data", text(files.path())]);
    let mut client = Client::connect(daemon.lockserver()).expect("connected");
    assert_eq!(client.list("k").expect("an answer").len(), 20);
    assert!(daemon.log().contains("cut the unfinished end"), "{}", daemon.log());
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let files = files();
    let file = files.path().join("file");
    std::fs::write(&file, "no directory").expect("a writable file");
    says(refused_at(&file.join("data"), &[]), 3, &["create", text(&file), "Not a directory"]);
    let locked = files.path().join("locked");
    std::fs::create_dir(&locked).expect("a new directory");
    let nobody_writes = std::fs::Permissions::from_mode(0o500);
    std::fs::set_permissions(&locked, nobody_writes).expect("our own file");
    if rustix::process::geteuid().is_root() {
        println!("skipped: a directory without permission, as root has every permission");
    } else {
        says(refused_at(&locked.join("data"), &[]), 3, &[text(&locked), "Permission denied"]);
    }
}

#[test]
fn the_ready_line_names_every_listener() {
    let daemon = Daemon::serve(&["--memory"]);
    let address = daemon.lockserver();
    assert_eq!(
        daemon.ready(),
        format!("ready lockserver={address} beanstalk=off http=off socket=off\n")
    );
    assert!(address.port() != 0 && address.ip().is_loopback());

    let files = files();
    let daemon = Daemon::serve(&["--data", text(files.path())]);
    let address = daemon.lockserver();
    let socket = files.path().join("sexton.sock");
    let shown = if socket.exists() { text(&socket) } else { "off" };
    let line = format!("ready lockserver={address} beanstalk=off http=off socket={shown}\n");
    assert_eq!(daemon.ready(), line);
}

#[test]
fn the_data_directory_comes_from_flag_environment_or_home() {
    let files = files();
    let places = ["flag", "named", "state", "home"].map(|name| files.path().join(name));
    let [flag, named, state, home] = &places;
    let begun = |wanted: &Path, set: &dyn Fn(&mut Command)| {
        let mut command = serve(&[]);
        command.env("XDG_STATE_HOME", state).env("HOME", home);
        set(&mut command);
        let daemon = Daemon::start(command);
        assert!(wanted.join("journal/00000001.seg").is_file(), "{}", wanted.display());
        let mode = std::fs::metadata(wanted).expect("the file exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "no other user has access");
        daemon.kill();
    };
    begun(flag, &|command| {
        command.env("SEXTON_DATA", named).args(["--data", text(flag)]);
    });
    assert!(!named.exists());
    begun(named, &|command| {
        command.env("SEXTON_DATA", named);
    });
    begun(&state.join("sexton"), &|_| {});
    begun(&home.join(".local/state/sexton"), &|command| {
        command.env_remove("XDG_STATE_HOME");
    });
}

#[test]
fn debug_prints_each_command_with_its_answer() {
    let daemon = Daemon::serve(&["--memory", "-d", "--log", "error"]);
    let mut client = Client::connect(daemon.lockserver()).expect("connected");
    let mut asked = request("acct", "42", "alice", (60, 30, 5));
    asked.extend(lockserver::find_owner("acct", "42"));
    asked.extend(lockserver::find_contender("acct", "42", "bob"));
    asked.extend(lockserver::renew("acct", "42", "a\nb"));
    asked.extend(lockserver::list("acct"));
    asked.extend(lockserver::release("acct", "*", "alice"));
    asked.extend(lockserver::release_all("alice"));
    asked.push(9);
    client.send(&asked).expect("connected");
    client.receive_all().expect("answers, and the end");
    daemon.until_logged("expected 01 to 08");
    daemon.until_logged(r#"release all "alice" -> 0 ended"#);
    let log = daemon.log();
    let lines = [
        r#"127.0.0.1 request "acct" "42" "alice" ttl=60 ttw=30 priority=5 -> location 1"#,
        r#"find owner "acct" "42" -> "alice""#,
        r#"find contender "acct" "42" "bob" -> location 0"#,
        r#"renew "acct" "42" "a\nb" -> not there"#,
        r#"list "acct" -> 1 entries"#,
        r#"release "acct" "*" "alice" -> 1 ended"#,
        r#"release all "alice" -> 0 ended"#,
    ];
    for line in lines {
        assert!(log.contains(line), "{line} in {log}");
    }
    assert!(!log.contains('\x1b'), "no colours without a terminal");
}

#[test]
fn a_flag_goes_before_the_environment() {
    let files = files();
    let mut command = serve(&["--memory"]);
    command.env("SEXTON_DATA", files.path().join("unused"));
    let daemon = Daemon::start(command);
    assert!(daemon.ready().ends_with("socket=off\n"), "{:?}", daemon.ready());
    assert!(!files.path().join("unused").exists());
}
