//! Where the keeper creates the control groups of attempts.

use crate::left_out::left_out;
use crate::wire::{Kept, PROGRAM, attempt};
use rustix::fs::{XattrFlags, setxattr};
use sexton::keeper::protocol::Report;
use sexton::kernel::cgroup;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::Command;

/// A delegated group, and one below it for processes, as systemd creates them with `DelegateSubgroup=`.
struct Delegated(PathBuf);

impl Delegated {
    /// Creates the groups; `None` where this user is not permitted to create or mark them.
    fn make() -> Option<Self> {
        let base = cgroup::writable()?;
        let name = format!("sexton-delegated-{}", std::process::id());
        let unit = Self(cgroup::create(&base, &name).ok()?);
        cgroup::create(&unit.0, "main").ok()?;
        setxattr(&unit.0, "user.delegate", b"1", XattrFlags::empty()).ok()?;
        Some(unit)
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        // A killed process may still be exiting.
        for _ in 0..1000 {
            if cgroup::remove(&self.0).is_ok() {
                break;
            }
            std::thread::yield_now();
        }
    }
}

#[test]
fn groups_stand_beside_ours_where_the_one_above_is_delegated() {
    let Some(unit) = Delegated::make() else {
        left_out("a group that is delegated: this user cannot make one");
        return;
    };
    let mut kept = Kept::unkept();
    let mut command = Command::new("sh");
    let script = "echo $$ > \"$0\"/cgroup.procs; exec \"$@\"";
    command.args(["-c", script]).arg(unit.0.join("main")).arg(PROGRAM);
    kept.start_by(command);
    let (mut peer, told) = kept.hello();
    let Some(Report::Welcome { groups: Some(groups), .. }) = told.first() else {
        panic!("groups are available: {told:?}");
    };
    let above = format!("{}/sexton-", unit.0.display());
    assert!(groups.as_bytes().starts_with(above.as_bytes()), "{told:?}");
    let started = peer.run(attempt(1), kept.launch(&["sleep", "1000"]));
    assert!(started.contained);
    let group = cgroup::of(started.pid).expect("it is in one");
    assert!(group.as_os_str().as_bytes().starts_with(groups.as_bytes()));
    drop(kept);
}
