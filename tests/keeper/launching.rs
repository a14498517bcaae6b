//! The environment in which the keeper starts a child, and how it reports the child's end.

use crate::patience::until;
use crate::wire::{Kept, attempt, bytes, path_bytes, until_reaped};
use sexton::keeper::protocol::{Launch, Report, Request, step};
use sexton::kernel::identity::{Lookup, find, identify};
use sexton::kernel::proc;
use std::os::unix::fs::{PermissionsExt as _, symlink};

#[test]
fn codes_and_signals_are_told_as_they_were() {
    let kept = Kept::new();
    let (mut peer, told) = kept.hello();
    assert!(matches!(told.as_slice(), [Report::Welcome { pid, .. }] if *pid == kept.pid()));
    for code in [0, 1, 7, 126, 127, 255] {
        let status = peer.run_through(attempt(code), kept.shell(&format!("exit {code}")));
        assert_eq!(u64::from(status), code << 8);
    }
    for signal in [1, 2, 9, 13, 15] {
        let script = format!("kill -{signal} $$");
        let status = peer.run_through(attempt(1000 + signal), kept.shell(&script));
        assert_eq!(u64::from(status), signal);
    }
}

#[test]
fn what_is_told_of_a_child_is_its_identity() {
    let kept = Kept::new();
    let (mut peer, _) = kept.hello();
    let started = peer.run(attempt(1), kept.launch(&["sleep", "1000"]));
    let (pidfd, identity) = identify(started.pid).expect("it can be").expect("a live process");
    assert_eq!((identity.inode, identity.ticks), (started.inode, started.ticks));
    assert_eq!(identity.namespace, started.namespace);
    assert!(matches!(find(&identity), Lookup::Alive(_)));
    let stat = proc::stat(started.pid).expect("a live process").expect("a live process");
    assert_eq!(stat.group, started.pid, "it leads a group");
    assert_eq!(stat.parent, kept.pid());
    assert_eq!(peer.ask(attempt(1)), Report::Started(started));
    pidfd.signal(9).expect("a permitted signal");
    let exited = peer.exit(attempt(1));
    assert_eq!((exited.started, exited.status), (started, 9));
    assert!(exited.at >= started.at && exited.memory_max > 0);
    until_reaped(started.pid);
}

#[test]
fn an_attempt_is_spawned_once_however_often_it_is_asked_for() {
    let kept = Kept::new();
    let (mut peer, _) = kept.hello();
    let launch = Launch { appends: true, ..kept.writing("echo once; cat fifo", "log") };
    kept.make_fifo();
    let started = peer.run(attempt(1), launch.clone());
    for _ in 0..3 {
        assert_eq!(peer.run(attempt(1), launch.clone()), started);
    }
    std::fs::write(kept.path("fifo"), "end\n").expect("a writable file");
    let exited = peer.exit(attempt(1));
    for _ in 0..3 {
        peer.launch(attempt(1), launch.clone());
        assert_eq!(peer.next(), Report::Exited(exited));
    }
    assert_eq!(kept.read("log"), "once\nend\n");
    let attempts = vec![attempt(1)];
    peer.send(&Request::Forget { attempts });
    let absent = Report::Absent { attempt: attempt(1) };
    assert_eq!(peer.ask(attempt(1)), absent);
}

#[test]
fn what_lives_is_not_forgotten() {
    let kept = Kept::new();
    let (mut peer, _) = kept.hello();
    let started = peer.run(attempt(1), kept.launch(&["sleep", "1000"]));
    let attempts = vec![attempt(1), attempt(2)];
    peer.send(&Request::Forget { attempts });
    assert_eq!(peer.ask(attempt(1)), Report::Started(started));
}

#[test]
fn a_child_has_its_directory_environment_and_limits_and_nothing_of_the_keeper() {
    let kept = Kept::new();
    let (mut peer, _) = kept.hello();
    let _another = kept.connect();
    peer.run(attempt(1), kept.launch(&["sleep", "1000"]));
    let script = "pwd; echo $GREETING; ulimit -n; cat; ls /proc/self/fd; cat /proc/self/status";
    let mut launch = kept.writing(script, "log");
    launch.env.push(bytes("GREETING=hello"));
    launch.limits.push((7, 100, 200)); // RLIMIT_NOFILE
    assert_eq!(peer.run_through(attempt(2), launch), 0);
    let log = kept.read("log");
    let data = kept.path("").canonicalize().expect("the path exists");
    let mut lines = log.lines();
    assert_eq!(lines.next(), data.to_str(), "{log}");
    assert_eq!(lines.next(), Some("hello"));
    assert_eq!(lines.next(), Some("100"));
    let is_number = |line: &&str| line.parse::<u32>().is_ok();
    let (fds, status): (Vec<&str>, Vec<&str>) = lines.partition(is_number);
    assert_eq!(fds, ["0", "1", "2", "3"], "three streams, and the directory that ls reads: {log}");
    for set in ["SigBlk", "SigIgn", "SigCgt"] {
        let wanted = format!("{set}:\t0000000000000000");
        assert!(status.contains(&wanted.as_str()), "{wanted}: {log}");
    }
    if let Some(pages) = status.iter().find(|line| line.starts_with("THP")) {
        assert_eq!(*pages, "THP_enabled:\t1");
    }
}

#[test]
fn output_is_begun_anew_or_appended_to_and_is_the_owners_alone() {
    let kept = Kept::new();
    let (mut peer, _) = kept.hello();
    let both = |appends| Launch {
        output: Some((path_bytes(&kept.path("out")), path_bytes(&kept.path("err")))),
        appends,
        ..kept.shell("echo out; echo err >&2")
    };
    peer.run_through(attempt(1), both(false));
    peer.run_through(attempt(2), both(true));
    assert_eq!(kept.read("out"), "out\nout\n");
    assert_eq!(kept.read("err"), "err\nerr\n");
    peer.run_through(attempt(3), both(false));
    assert_eq!(kept.read("out"), "out\n");
    let mode = std::fs::metadata(kept.path("out")).expect("the file exists").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    // One file for both streams keeps their order, and the target of a link is not touched.
    peer.run_through(attempt(4), kept.writing("echo a; echo b >&2; echo c", "one"));
    assert_eq!(kept.read("one"), "a\nb\nc\n");
    symlink(kept.path("out"), kept.path("link")).expect("the disk has space");
    peer.launch(attempt(5), kept.writing("echo x", "link"));
    let mut reports = std::iter::from_fn(|| peer.try_next());
    let failed = reports.find_map(|report| match report {
        Report::Failed { step, .. } => Some(step),
        _ => None,
    });
    assert_eq!(failed, Some(step::OUTPUT));
    assert_eq!(kept.read("out"), "out\n");
}

#[test]
fn what_is_left_behind_becomes_the_keepers_and_is_reaped() {
    let kept = Kept::new();
    let (mut peer, _) = kept.hello();
    kept.make_fifo();
    let script = "(sh -c 'echo $$ > orphan.next; mv orphan.next orphan; cat fifo' &) ; exit 3";
    assert_eq!(peer.run_through(attempt(1), kept.shell(script)), 0x300);
    let orphan: u32 =
        until("the orphan writes its PID", || kept.read("orphan").trim().parse().ok());
    until("the keeper is its parent", || {
        let stat = proc::stat(orphan).expect("a live process").expect("a live process");
        (stat.parent == kept.pid()).then_some(())
    });
    std::fs::write(kept.path("fifo"), "").expect("a writable file");
    until_reaped(orphan);
    assert!(matches!(peer.ask(attempt(1)), Report::Exited(_)));
}
