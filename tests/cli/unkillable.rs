//! A process tree that survives SIGKILL: no other client gets its lock until it has ended, `status` names it, and
//! `--force` releases the lock anyway.

use crate::patience::until;
use crate::tree::Tree;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// The processes of a frozen control group survive SIGKILL in version 1 of control groups, and not in version 2.
const FREEZERS: &str = "/sys/fs/cgroup/freezer";

/// A control group whose processes cannot be killed.
struct Frozen(PathBuf);

impl Frozen {
    /// Creates a group. Returns `None` if this user may not, or if there are no such groups.
    fn make() -> Option<Self> {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root || !Path::new(FREEZERS).join("cgroup.procs").exists() {
            return None;
        }
        let path = Path::new(FREEZERS).join(format!("sexton-test-{}", std::process::id()));
        fs::create_dir(&path).expect("root may create groups");
        Some(Self(path))
    }

    fn freeze(&self, pid: Pid) {
        let pid = pid.as_raw_nonzero().to_string();
        fs::write(self.0.join("cgroup.procs"), pid).expect("root may move processes");
        self.set("FROZEN");
    }

    fn set(&self, state: &str) {
        fs::write(self.state(), state).expect("root may freeze groups");
        until("the group is frozen", || {
            let now = fs::read_to_string(self.state()).expect("the file is readable");
            (now.trim() == state).then_some(())
        });
    }

    fn state(&self) -> PathBuf {
        self.0.join("freezer.state")
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // Let the processes run again even if the test has failed.
        drop(fs::write(self.state(), "THAWED"));
        for _ in 0..1000 {
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::yield_now();
        }
    }
}

/// A process that is killed when the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn holder(tree: &Tree) -> Option<Value> {
    let printed = tree.well(&["lock", "list", "k", "--json"]);
    let said: Value = serde_json::from_str(&printed).expect("valid JSON");
    let locks = said.pointer("/locks").and_then(Value::as_array);
    let holds = |it: &&Value| it.pointer("/place") == Some(&1.into());
    locks.expect("a list").iter().find(holds).cloned()
}

fn is(entry: Option<&Value>, path: &str, value: &Value) -> Option<()> {
    (entry?.pointer(path)? == value).then_some(())
}

#[test]
fn what_cannot_be_killed_keeps_its_lock_until_it_is_forced() {
    let Some(frozen) = Frozen::make() else {
        return;
    };
    let tree = Tree::start();
    let (pid_file, next) = (tree.data.join("pid"), tree.data.join("next"));
    let mut run = tree.command(&["lock", "run", "--ttl", "1", "k", "--", "sh", "-c"]);
    run.args(["echo $$ > $0.new; mv $0.new $0; exec sleep 1000000"]).arg(&pid_file);
    run.stdout(Stdio::null()).stderr(Stdio::null());
    let run = Killed(run.spawn().expect("the command starts"));
    let pid = until("it runs", || fs::read_to_string(&pid_file).ok());
    let pid = Pid::from_raw(pid.trim().parse().expect("a number")).expect("a PID");
    // The lock gets a TTL, after which its holder is killed.
    until("its lock has a TTL", || holder(&tree)?.pointer("/remaining_ms")?.as_u64());
    frozen.freeze(pid);
    let of_run = Pid::from_child(&run.0);
    kill_process(of_run, Signal::STOP).expect("a permitted signal");
    until("its tree is being stopped", || is(holder(&tree).as_ref(), "/fencing", &true.into()));
    let mut waits = tree.command(&["lock", "run", "k", "--", "touch"]);
    waits.arg(&next).stdout(Stdio::null()).stderr(Stdio::null());
    let mut waits = Killed(waits.spawn().expect("the command starts"));
    let status = until("it does not end, and is reported", || {
        let status = tree.well(&["status"]);
        status.contains("did not exit after SIGKILL").then_some(status)
    });
    let named = status.lines().find(|line| line.contains("SIGKILL"));
    let number = pid.as_raw_nonzero().to_string();
    assert!(named.is_some_and(|line| line.contains(&number)), "{status}");
    // The process got the signal and is still alive, so no other client has the lock.
    assert!(Path::new("/proc").join(&number).exists() && !next.exists());
    let said = tree.run(&["lock", "run", "--no-wait", "k", "--", "true"]);
    assert_eq!(said.status, 1, "{said:?}");
    tree.well(&["lock", "release", "k", "--force"]);
    assert_eq!(waits.0.wait().expect("our child").code(), Some(0));
    assert!(next.exists(), "the next had the lock");
    assert!(Path::new("/proc").join(&number).exists(), "this is the purpose of --force");
    frozen.set("THAWED");
    until("it ends by the signal that it was sent", || {
        (!Path::new("/proc").join(&number).exists()).then_some(())
    });
    until("it is no longer reported", || {
        (!tree.well(&["status"]).contains("SIGKILL")).then_some(())
    });
}
