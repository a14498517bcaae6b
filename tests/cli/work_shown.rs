//! How far `sexton work` is, on a terminal.

use crate::tree::Tree;
use crate::work::push;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;

#[test]
fn a_terminal_shows_how_far_a_run_is() {
    let tree = Tree::start();
    for body in ["a", "b", "c"] {
        push(&tree, "mails", body);
    }
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
    let ours = ours.expect("a terminal");
    grantpt(&ours).expect("it is ours");
    unlockpt(&ours).expect("it is ours");
    let name = ptsname(&ours, Vec::new()).expect("it has a name");
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(&name, flags, Mode::empty()).expect("it can be opened");
    let mut command = tree.command(&["work", "mails", "--", "sleep", "1"]);
    command.stdout(Stdio::null()).stderr(theirs);
    let mut running = command.spawn().expect("it runs");
    drop(command);
    let mut ours = File::from(ours);
    let (mut seen, mut bytes) = (Vec::new(), [0; 1024]);
    // The end of the last who has it open is an error.
    while let Ok(read @ 1..) = ours.read(&mut bytes) {
        seen.extend_from_slice(bytes.get(..read).unwrap_or_default());
    }
    assert!(running.wait().expect("it is ours").success());
    let seen = String::from_utf8_lossy(&seen);
    for words in [
        "1 done, 0 failed, 1 running, ",
        "/s, ",
        " ready, ",
        " left\x1b[K\r",
    ] {
        assert!(seen.contains(words), "{words}: {seen:?}");
    }
    assert!(
        seen.contains("3 jobs done, 0 failed: none-ready"),
        "{seen:?}"
    );
}
