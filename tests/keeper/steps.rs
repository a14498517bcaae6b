//! Launches that fail, at each step that can fail. The report has the step and the kernel's error number, and is the same when the launch
//! is repeated.

use crate::left_out::left_out;
use crate::wire::{Kept, attempt, bytes, path_bytes};
use rustix::io::Errno;
use sexton::keeper::protocol::{Launch, Report, Request, step};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

fn fails(kept: &Kept, number: u64, launch: Launch) -> (u8, i32) {
    let (mut peer, _) = kept.hello();
    let mut outcome = |launch| {
        peer.launch(attempt(number), launch);
        loop {
            match peer.next() {
                Report::Failed { attempt: of, step, errno } if of == attempt(number) => {
                    return (step, errno);
                }
                Report::Started(started) if started.attempt == attempt(number) => {
                    panic!("it runs")
                }
                _ => {}
            }
        }
    };
    let first = outcome(launch);
    assert_eq!(outcome(kept.shell("true")), first, "it is the outcome of that attempt");
    first
}

fn with_mode(kept: &Kept, name: &str, content: &str, mode: u32) {
    fs::write(kept.path(name), content).expect("the disk has space");
    let mode = fs::Permissions::from_mode(mode);
    fs::set_permissions(kept.path(name), mode).expect("our own file");
}

fn errno(errno: Errno) -> i32 {
    errno.raw_os_error()
}

#[test]
fn programs_that_cannot_be_executed() {
    let kept = Kept::new();
    with_mode(&kept, "plain", "#!/bin/sh\n", 0o644);
    with_mode(&kept, "strange", "#!/no/such/interpreter\n", 0o755);
    with_mode(&kept, "garbage", "\u{1}\u{2}\u{3}", 0o755);
    let run = |number, argv: &[&str]| fails(&kept, number, kept.launch(argv));
    let exec = |reason| (step::EXEC, errno(reason));
    assert_eq!(run(1, &["no-such-program"]), exec(Errno::NOENT));
    assert_eq!(run(2, &["/no/such/program"]), exec(Errno::NOENT));
    assert_eq!(run(3, &["./plain"]), exec(Errno::ACCESS));
    assert_eq!(run(4, &["./strange"]), exec(Errno::NOENT));
    assert_eq!(run(5, &["./garbage"]), exec(Errno::NOEXEC));
    assert_eq!(run(6, &["/"]), exec(Errno::ACCESS));
    assert_eq!(run(7, &[]), exec(Errno::INVAL));
    assert_eq!(run(8, &[""]), exec(Errno::NOENT));
    assert_eq!(run(9, &["sh", "a\0b"]), exec(Errno::INVAL));
    let long = "x".repeat(200 << 10);
    assert_eq!(run(10, &["true", &long]), exec(Errno::TOOBIG));
    let mut found_where_it_may_not_be_run = kept.launch(&["plain"]);
    let path = format!("PATH={}:/nowhere", kept.path("").display());
    found_where_it_may_not_be_run.env = vec![bytes(path)];
    let failed = fails(&kept, 11, found_where_it_may_not_be_run);
    assert_eq!(failed, exec(Errno::ACCESS), "like a shell");
}

#[test]
fn directories_outputs_limits_and_users() {
    let kept = Kept::new();
    let missing = Launch { dir: path_bytes(&kept.path("missing")), ..kept.shell("true") };
    let failed = fails(&kept, 1, missing);
    assert_eq!(failed, (step::DIRECTORY, errno(Errno::NOENT)));
    let file = kept.writing("true", "missing/log");
    assert_eq!(fails(&kept, 2, file), (step::OUTPUT, errno(Errno::NOENT)));
    kept.make_fifo();
    let unread = kept.writing("true", "fifo");
    assert_eq!(fails(&kept, 3, unread), (step::OUTPUT, errno(Errno::INVAL)));
    let mut wrong = kept.shell("true");
    wrong.limits.push((7, 2, 1));
    assert_eq!(fails(&kept, 4, wrong), (step::LIMITS, errno(Errno::INVAL)));
    let unknown = Launch { parcel: Some(42), ..kept.shell("true") };
    assert_eq!(fails(&kept, 5, unknown), (step::PARCEL, 0));
    if !rustix::process::geteuid().is_root() {
        let other = Launch { user: Some((0, 0, vec![])), ..kept.shell("true") };
        assert_eq!(fails(&kept, 6, other), (step::USER, errno(Errno::PERM)));
    }
}

#[test]
fn a_child_is_the_user_that_was_asked_for() {
    if !rustix::process::geteuid().is_root() {
        // The test above covers the failure that users other than root get.
        return left_out("a child that is another user: only root may ask for one");
    }
    let kept = Kept::new();
    let (mut peer, _) = kept.hello();
    let launch = Launch {
        user: Some((65534, 65533, vec![65532])),
        dir: bytes("/"),
        ..kept.writing("id -u; id -g; id -G", "log")
    };
    assert_eq!(peer.run_through(attempt(1), launch), 0);
    assert_eq!(kept.read("log"), "65534\n65533\n65533 65532\n");
    // The child changes its user before it enters its directory, which that user may not enter.
    let mode = fs::Permissions::from_mode(0o700);
    fs::set_permissions(kept.path(""), mode).expect("our own file");
    let launch = Launch { user: Some((65534, 65533, vec![])), ..kept.shell("true") };
    let failed = fails(&kept, 2, launch);
    assert_eq!(failed, (step::DIRECTORY, errno(Errno::ACCESS)));
}

#[test]
fn what_failed_leaves_no_control_group() {
    let kept = Kept::new();
    let (mut peer, told) = kept.hello();
    let Some(Report::Welcome { groups, .. }) = told.first() else {
        panic!("an unknown user is accepted: {told:?}");
    };
    let Some(groups) = groups else {
        assert!(!rustix::process::geteuid().is_root(), "root can make them");
        return left_out("control groups: none can be made here");
    };
    let groups = Path::new(OsStr::from_bytes(groups.as_bytes()));
    let group = |number| groups.join(attempt(number).to_string());
    peer.launch(attempt(1), kept.launch(&["no-such-program"]));
    while !matches!(peer.next(), Report::Failed { .. }) {}
    peer.run(attempt(2), kept.launch(&["sleep", "1000"]));
    assert!(group(1).exists() && group(2).exists());
    let attempts = vec![attempt(1), attempt(2)];
    peer.send(&Request::Forget { attempts });
    // Requests are processed in order, so when this one is answered, the attempts are forgotten.
    peer.ask(attempt(1));
    assert!(!group(1).exists(), "it is empty");
    assert!(group(2).exists(), "a process is in it");
}
