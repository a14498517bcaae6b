//! Pseudo-terminals.

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;

/// Opens a pseudo-terminal. Returns the test's end, and the end for a process.
pub(crate) fn pair() -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
    let ours = ours.expect("a terminal");
    grantpt(&ours).expect("the terminal belongs to this process");
    unlockpt(&ours).expect("the terminal belongs to this process");
    let name = ptsname(&ours, Vec::new()).expect("it has a name");
    // It must not become the controlling terminal of this test.
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(&name, flags, Mode::empty()).expect("it can be opened");
    (File::from(ours), File::from(theirs))
}
