//! Each of LockServer's signals, sent to the real program.

use crate::daemon::{Daemon, text};
use crate::lockserver::{self, Client, request};
use crate::patience::until;
use rustix::process::Signal;
use tempfile::TempDir;

fn serve(files: &TempDir, more: &[&str]) -> Daemon {
    let data = files.path().join("data");
    let mut flags = vec!["--data", text(&data)];
    flags.extend(more);
    Daemon::serve(&flags)
}

fn files() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn number(client: &mut Client, command: &[u8]) -> u16 {
    client.number(command).expect("an answer")
}

#[test]
fn int_term_and_tstp_save_and_end_well() {
    for signal in [Signal::INT, Signal::TERM, Signal::TSTP] {
        let files = files();
        let daemon = serve(&files, &[]);
        let mut client = Client::connect(daemon.lockserver()).expect("connected");
        assert_eq!(number(&mut client, &request("k", "i", "alice", (600, 60, 7))), 1);
        assert_eq!(number(&mut client, &request("k", "i", "bob", (600, 60, 3))), 2);
        daemon.signal(signal);
        let (status, log) = daemon.end();
        assert_eq!(status.code(), Some(0), "{signal:?}: {log}");
        assert_eq!(client.receive_all().unwrap_or_default(), b"", "the connection ends too");

        let again = serve(&files, &[]);
        again.until_logged("clean=true");
        let mut client = Client::connect(again.lockserver()).expect("connected");
        assert_eq!(client.owner("k", "i").expect("an answer"), b"alice");
        let place = lockserver::find_contender("k", "i", "bob");
        assert_eq!(number(&mut client, &place), 2, "{signal:?}");
    }
}

#[test]
fn hup_reads_the_hosts_again_and_keeps_the_old_where_the_new_are_broken() {
    let files = files();
    let hosts = files.path().join("hosts");
    std::fs::write(&hosts, "10.0.0.0/8\n").expect("a writable file");
    let daemon = serve(&files, &["--hosts", text(&hosts)]);
    let greeting = || {
        let mut client = Client::dial(daemon.lockserver()).expect("it listens");
        client.receive(1).expect("the server sends a greeting")
    };
    assert_eq!(greeting(), [0], "only the lab");

    std::fs::write(&hosts, "10.0.0.0/8\n127.0.0.0/8\n").expect("a writable file");
    daemon.signal(Signal::HUP);
    daemon.until_logged("the hosts list changed and is in force");
    assert_eq!(greeting(), [1], "and this machine");

    std::fs::write(&hosts, "10.0.0.0/8\n\nlocalhost\n").expect("a writable file");
    daemon.signal(Signal::HUP);
    daemon.until_logged("the old hosts list stays in force");
    let log = daemon.log();
    let said = log.lines().find(|line| line.contains("stays in force")).expect("it exists");
    assert!(
        said.contains(text(&hosts)) && said.contains("line 3") && said.contains("ERROR"),
        "{said}"
    );
    assert_eq!(greeting(), [1], "the old list");

    std::fs::remove_file(&hosts).expect("our own file");
    daemon.signal(Signal::HUP);
    until("the second error is logged", || {
        (daemon.log().matches("stays in force").count() == 2).then_some(())
    });
    assert_eq!(greeting(), [1], "the old list");

    std::fs::write(&hosts, "# nobody\n").expect("a writable file");
    daemon.signal(Signal::HUP);
    until("no client is accepted", || (greeting() == [0]).then_some(()));
}

#[test]
fn hup_reads_the_configuration_and_says_what_waits_for_a_restart() {
    let files = files();
    let config = files.path().join("sexton.toml");
    let write = |text: &str| std::fs::write(&config, text).expect("a writable file");
    write("lock-entries = 100\n");
    let daemon = serve(&files, &["--config", text(&config)]);
    daemon.signal(Signal::HUP);
    daemon.until_logged("settings reloaded");

    let place = config.display();
    write("lock-entries = 200\nlog = \"debug\"\n[queues.mails]\nmax_tries = 3\n");
    daemon.signal(Signal::HUP);
    daemon.until_logged("log changed and is in force");
    daemon.until_logged(&format!(
        "these settings changed and need a restart: lock-entries ({place}:1), the tables of [queues]"
    ));

    write("lock-entries = 0\n");
    daemon.signal(Signal::HUP);
    daemon.until_logged("failed to reload; the old settings stay in force");
    let mut client = Client::connect(daemon.lockserver()).expect("connected");
    assert_eq!(number(&mut client, &request("k", "i", "alice", (600, 60, 7))), 1);
}

#[test]
fn usr1_takes_a_checkpoint() {
    let files = files();
    let daemon = serve(&files, &[]);
    let mut client = Client::connect(daemon.lockserver()).expect("connected");
    assert_eq!(number(&mut client, &request("k", "i", "alice", (600, 60, 7))), 1);
    daemon.signal(Signal::USR1);
    daemon.until_logged("took the checkpoint requested by SIGUSR1");
    let slots = files.path().join("data/snapshots");
    assert!(slots.read_dir().expect("the directory exists").next().is_some());
}

#[test]
fn usr1_writes_statistics_and_locks() {
    let files = files();
    let daemon = serve(&files, &[]);
    let mut client = Client::connect(daemon.lockserver()).expect("connected");
    assert_eq!(number(&mut client, &request("k", "i", "alice", (600, 60, 7))), 1);
    assert_eq!(number(&mut client, &request("k", "i", "bob", (500, 50, 3))), 2);
    assert_eq!(number(&mut client, &request("a b", "", "bob\n", (1, 2, 0))), 1);
    let data = files.path().join("data");
    let (statistics, locks) = (data.join("lockserver.stats"), data.join("lockserver.locks"));
    // The file is replaced as a whole, so a reader that has the old file open continues to read it.
    std::fs::write(&statistics, "old").expect("a writable file");
    let old = std::fs::File::open(&statistics).expect("the file exists");
    daemon.signal(Signal::USR1);
    daemon.until_logged("wrote lockserver.stats and lockserver.locks");

    let written = std::fs::read_to_string(&statistics).expect("the statistics exist");
    let lines: Vec<(&str, u64)> = written
        .lines()
        .map(|line| {
            let (name, value) = line.split_once(' ').expect("a name and a value");
            (name, value.parse().expect("a number"))
        })
        .collect();
    assert_eq!(lines.len(), 15, "{written}");
    for line in [("requests", 3), ("accepted", 1), ("owners", 2), ("contenders", 1), ("active", 1)]
    {
        assert!(lines.contains(&line), "{line:?} in {written}");
    }
    let before = std::io::read_to_string(old).expect("the old file reads");
    assert_eq!(before, "old", "replaced by rename");
    let written = std::fs::read_to_string(&locks).expect("the locks exist");
    let lines: Vec<&str> = written.lines().skip(1).collect();
    let bobs = r#""a b" "" "bob\n" 1 0 1 2"#;
    let [first, ..] = lines.as_slice() else { panic!("no locks in {written}") };
    // An entry whose last second has passed is not written any more.
    let lines = if *first == bobs { &lines[1..] } else { &lines };
    assert_eq!(lines, [r#""k" "i" "alice" 1 7 600 60"#, r#""k" "i" "bob" 2 3 500 50"#]);
    let left: Vec<_> = std::fs::read_dir(&data)
        .expect("the directory exists")
        .map(|entry| entry.expect("the directory is readable").file_name())
        .filter(|name| name.to_string_lossy().ends_with(".tmp"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn usr1_without_files_says_so_and_goes_on() {
    let daemon = Daemon::serve(&["--memory"]);
    daemon.signal(Signal::USR1);
    daemon.until_logged("SIGUSR1 ignored");
    let mut client = Client::connect(daemon.lockserver()).expect("connected");
    assert_eq!(number(&mut client, &request("k", "i", "alice", (600, 60, 7))), 1);
}

#[test]
fn sys_and_usr2_drain() {
    for signal in [Signal::SYS, Signal::USR2] {
        let files = files();
        let mut daemon = serve(&files, &[]);
        let mut client = Client::connect(daemon.lockserver()).expect("connected");
        assert_eq!(number(&mut client, &request("k", "i", "alice", (600, 60, 7))), 1);
        assert_eq!(number(&mut client, &request("k", "i", "bob", (600, 600, 3))), 2);
        daemon.signal(signal);
        until("new connections are refused", || {
            let newcomer = request("probe", "", "p", (0, 0, 0));
            (number(&mut client, &newcomer) == 0).then_some(())
        });
        assert_eq!(number(&mut client, &request("k", "i", "erin", (60, 30, 5))), 0);
        assert_eq!(number(&mut client, &request("k", "i", "alice", (60, 30, 5))), 1, "a renewal");
        assert!(client.renew("k", "i", "bob").expect("an answer"));
        assert_eq!(number(&mut client, &lockserver::release("k", "i", "alice")), 1);
        assert_eq!(
            client.owner("k", "i").expect("an answer"),
            b"bob",
            "a waiting client still gets the lock"
        );
        assert!(Client::connect(daemon.lockserver()).is_ok(), "connections are accepted");
        assert!(daemon.is_running(), "as long as a lock is held");
        assert_eq!(number(&mut client, &lockserver::release_all("bob")), 1);
        let (status, log) = daemon.end();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(log.contains("drained"), "{log}");

        let again = serve(&files, &[]);
        let mut client = Client::connect(again.lockserver()).expect("connected");
        let newcomer = request("k", "i", "erin", (60, 30, 5));
        assert_eq!(number(&mut client, &newcomer), 1, "a drain ends with the process");
    }
}

#[test]
fn a_drain_with_nothing_held_ends_at_once() {
    for signal in [Signal::SYS, Signal::USR2] {
        for flags in [vec!["--memory"], vec![]] {
            let files = files();
            let daemon = if flags.is_empty() { serve(&files, &[]) } else { Daemon::serve(&flags) };
            daemon.signal(signal);
            let (status, log) = daemon.end();
            assert_eq!(status.code(), Some(0), "{log}");
        }
    }
}

#[test]
fn a_drain_ends_when_the_last_time_to_live_is_over() {
    let daemon = Daemon::serve(&["--memory"]);
    let mut client = Client::connect(daemon.lockserver()).expect("connected");
    assert_eq!(number(&mut client, &request("k", "i", "alice", (1, 0, 0))), 1);
    daemon.signal(Signal::USR2);
    let (status, log) = daemon.end();
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn a_drain_can_still_be_stopped() {
    let files = files();
    let daemon = serve(&files, &[]);
    let mut client = Client::connect(daemon.lockserver()).expect("connected");
    assert_eq!(number(&mut client, &request("k", "i", "alice", (600, 0, 0))), 1);
    daemon.signal(Signal::USR2);
    daemon.until_logged("draining");
    daemon.signal(Signal::TERM);
    let (status, log) = daemon.end();
    assert_eq!(status.code(), Some(0), "{log}");
    let again = serve(&files, &[]);
    let mut client = Client::connect(again.lockserver()).expect("connected");
    assert_eq!(client.owner("k", "i").expect("an answer"), b"alice");
}

#[test]
fn a_fault_that_another_process_sends_ends_the_program_at_once() {
    use std::os::unix::process::ExitStatusExt as _;
    for signal in [Signal::SEGV, Signal::BUS] {
        let files = files();
        let daemon = serve(&files, &[]);
        daemon.signal(signal);
        let (status, log) = daemon.end();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{log}");
    }
}
