//! Which processes belong to a tree: those whose main thread has ended, that moved to another control group or were left by
//! an ended process do; those of other users that carry its id do not.

use crate::daemon::text;
use crate::left_out::left_out;
use crate::patience::until;
use crate::tree::Tree;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::{Value, json};
use sexton::kernel::{cgroup, proc};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// The user of processes that are none of the coordinator's.
const OTHER: u32 = 65_534;

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Returns a number of seconds to sleep that no other test uses.
fn mark(nth: u32) -> String {
    format!("{}", 3_000_000 + std::process::id() * 10 + nth)
}

/// Returns the live processes that run `sleep` with this number.
fn sleepers(mark: &str) -> Vec<u32> {
    let line = format!("sleep\0{mark}\0");
    let pids = proc::pids().expect("it is mounted").into_iter();
    pids.filter(|pid| {
        let read = std::fs::read(format!("/proc/{pid}/cmdline"));
        read.is_ok_and(|it| it == line.as_bytes())
    })
    .collect()
}

fn lives(pid: u32) -> bool {
    let stat = proc::stat(pid).expect("it is readable");
    stat.is_some_and(|stat| !stat.is_zombie())
}

/// Returns the coordinators to test with: with control groups, if any can be made, and without.
fn coordinators() -> Vec<Tree> {
    [Some(Tree::start()), Tree::without_groups()].into_iter().flatten().collect()
}

/// Launches a command whose main thread ends while another one lives. Returns its id and the PID of what is left.
fn headless(tree: &Tree, then: &str) -> Option<(String, u32)> {
    let program = "import ctypes, os, sys, threading, time\n\
        threading.Thread(target=time.sleep, args=(1000,)).start()\n\
        open(sys.argv[1] + '.new', 'w').write(str(os.getpid()))\n\
        os.rename(sys.argv[1] + '.new', sys.argv[1])\n\
        ctypes.CDLL(None).pthread_exit(None)\n";
    let has_python = Command::new("python3").args(["-c", "import ctypes"]).status();
    if !has_python.is_ok_and(|status| status.success()) {
        left_out("processes without a main thread: there is no python3 with ctypes");
        return None;
    }
    let (file, told) = (tree.data.join("headless.py"), tree.data.join("headless.pid"));
    std::fs::write(&file, program).expect("a writable file");
    let (file, of) = (text(&file), text(&told));
    let id = tree
        .detach(&format!("python3 {file} {of} & until [ -e {of} ]; do sleep 0.02; done; {then}"));
    let pid = until("it runs", || std::fs::read_to_string(&told).ok()?.parse::<u32>().ok());
    until("its main thread has ended", || {
        let stat = proc::stat(pid).ok()??;
        (stat.state == b'Z').then_some(())
    });
    assert!(lives(pid), "another thread of {pid} lives");
    Some((id, pid))
}

#[test]
fn a_process_is_stopped_with_its_tree_although_its_main_thread_has_ended() {
    for tree in coordinators() {
        let Some((id, pid)) = headless(&tree, "exec sleep 1000") else {
            return;
        };
        let stopped = tree.run(&["kill", "--tree", "--grace", "200ms", "--wait", &id]);
        assert_eq!(stopped.status, 0, "{stopped:?}");
        assert!(!lives(pid), "{pid} is alive: {}", tree.record(&id));
    }
}

#[test]
fn a_lock_is_kept_for_a_process_without_a_main_thread() {
    for tree in coordinators() {
        let Some((id, pid)) = headless(&tree, "exec sleep 1000") else {
            return;
        };
        let bound =
            format!(r#"{{"key": "k", "owner": "holder", "process": "{id}", "release": "tree"}}"#);
        let held = tree.post("/v1/locks/acquire", &bound);
        assert_eq!(held.get("place"), Some(&json!(1)), "{held}");
        tree.well(&["kill", "--now", &id]);
        until("the process itself has ended", || {
            (!tree.record(&id)["ended_at"].is_null()).then_some(())
        });
        let taken = tree.run(&["lock", "acquire", "k", "--wait", "1s", "--owner", "other"]);
        assert_ne!(taken.status, 0, "{pid} still works: {taken:?}");
        tree.well(&["kill", "--tree", "--now", "--wait", &id]);
        assert!(!lives(pid));
        tree.well(&["lock", "acquire", "k", "--wait", "60s", "--owner", "other"]);
    }
}

#[test]
fn a_process_that_left_the_control_group_belongs_to_its_tree() {
    let tree = Tree::start();
    // The group of this test contains processes, so that another one may be moved there.
    let own = cgroup::of(std::process::id()).filter(|_| cgroup::writable().is_some());
    let Some(own) = own else {
        return left_out("a process that leaves its control group: none can be made here");
    };
    let (mark, procs) = (mark(1), own.join("cgroup.procs"));
    let leave = format!("sh -c 'echo $$ > {}; exec setsid sleep {mark}'", text(&procs));
    let id = tree.detach(&format!("{leave} & exec sleep 1000"));
    let pid = until("it has left", || sleepers(&mark).first().copied());
    assert_eq!(cgroup::of(pid), Some(own), "it is outside");
    // The process itself ends. What it left is in no group that could be asked about.
    tree.well(&["kill", "--now", &id]);
    let record = until("only the other is left", || {
        Some(tree.record(&id)).filter(|it| !it["ended_at"].is_null())
    });
    assert_eq!(record["status"], "stopping", "{record}");
    assert_eq!(record["left"][0]["pid"], pid, "{record}");
    assert!(lives(pid));
    let stopped = tree.run(&["kill", "--tree", "--grace", "200ms", "--wait", &id]);
    assert_eq!(stopped.status, 0, "{stopped:?}");
    assert!(!lives(pid));
}

/// Anyone may read the ids of processes, and put one into the environment of a process of their own.
#[test]
fn a_process_of_another_user_with_the_id_of_a_tree_is_a_stranger() {
    if !geteuid().is_root() {
        return left_out("processes of another user: only root can start them");
    }
    for mut tree in coordinators() {
        let id = tree.detach("exec sleep 1000");
        let mut stranger = Command::new("sleep");
        stranger.arg("1000").env("SEXTON_PROCESS_ID", &id);
        stranger.uid(OTHER).gid(OTHER).stdin(Stdio::null());
        let mut stranger = Killed(stranger.spawn().expect("root may do this"));
        // The keeper that launched the tree is gone, so the orphans of the tree would have other parents, too.
        let before = tree.keeper();
        tree.kill_keeper();
        until("another keeper runs", || {
            drop(tree.run(&["run", "--", "true"]));
            (tree.keeper() != before).then_some(())
        });
        let stopped = tree.run(&["kill", "--tree", "--grace", "200ms", "--wait", &id]);
        assert_eq!(stopped.status, 0, "{stopped:?}");
        let ended = stranger.0.try_wait().expect("it is our child");
        assert_eq!(ended, None, "the stranger was signalled");
        tree.again(|| {});
    }
}

/// Who is in a session may continue every process in it, and join their process groups.
#[test]
fn a_process_of_another_user_has_a_session_of_its_own() {
    if !geteuid().is_root() {
        return left_out("a service of another user: only root can start it");
    }
    let tree = Tree::configured(&format!(
        "[services.app]\ncommand = [\"sh\", \"-c\", \"kill -CONT $PPID && echo allowed || echo refused; exec sleep 1000\"]\n\
         dir = \"/\"\nuser = \"{OTHER}\"\n"
    ));
    let output = tree.data.join("services/app/stdout.log");
    let printed = until("it has tried to signal the keeper", || {
        let printed = std::fs::read_to_string(&output).unwrap_or_default();
        (!printed.is_empty()).then_some(printed)
    });
    assert_eq!(printed, "refused\n");
    tree.well(&["service", "stop", "app"]);
}

#[test]
fn what_an_ended_process_left_is_listed_and_can_be_stopped() {
    for (nth, tree) in (2..).zip(coordinators()) {
        let mark = mark(nth);
        let id = tree.detach(&format!("setsid sleep {mark} & exit 0"));
        let pid = until("it has left a process", || {
            let is_over = !tree.record(&id)["ended_at"].is_null();
            sleepers(&mark).first().copied().filter(|_| is_over)
        });
        // Waiting for the process itself does not last until what it left has ended.
        assert_eq!(tree.run(&["wait", &id]).status, 0);
        let record = tree.record(&id);
        assert_eq!(record["left"][0]["pid"], pid, "{record}");
        let listed = tree.well(&["ps"]);
        let words = format!("exit 0, children live: {pid} sleep {mark}");
        assert!(listed.contains(&words), "{listed}");
        let stopped = tree.run(&["kill", "--tree", "--wait", &id]);
        assert_eq!(stopped.status, 0, "{stopped:?}");
        assert!(!lives(pid));
        assert_eq!(tree.record(&id)["status"], "exited");
    }
}

#[test]
fn a_service_that_puts_itself_into_the_background_runs_once() {
    let mark = mark(9);
    let service = format!(
        "[services.d]\ncommand = [\"sh\", \"-c\", \"setsid sleep {mark} & exit 0\"]\n\
         backoff = {{ first = \"10ms\", max = \"20ms\" }}\n"
    );
    let tree = Tree::configured(&service);
    let launched = || {
        let all = tree.all();
        let its = |it: &&Value| it["labels"]["service"] == "d";
        all.iter().filter(its).count()
    };
    until("it has been launched several times", || (launched() >= 4).then_some(()));
    assert!(sleepers(&mark).len() <= 1, "{:?}", sleepers(&mark));
    tree.well(&["service", "stop", "d"]);
    until("nothing of it is left", || sleepers(&mark).is_empty().then_some(()));
}

#[test]
fn a_lock_names_the_processes_that_keep_it() {
    for (nth, tree) in (5..).zip(coordinators()) {
        let mark = mark(nth);
        let script = format!("setsid sleep {mark} >/dev/null 2>&1 & exit 0");
        tree.run(&["lock", "run", "kept", "--", "sh", "-c", &script]);
        let pid = until("it has left a process", || sleepers(&mark).first().copied());
        let words = format!("what it started keeps the lock: {pid} sleep {mark}\n");
        until("the lock names it", || {
            let listed = tree.well(&["lock", "list"]);
            listed.contains(&words).then_some(())
        });
    }
}

/// Returns what an attempt of another client to get a lock says; it waits for a second.
fn cannot_take(tree: &Tree, key: &str, why: &str) {
    let taken = tree.run(&["lock", "acquire", key, "--wait", "1s", "--owner", "other"]);
    assert_ne!(taken.status, 0, "{why}: {taken:?}");
}

/// Binds a lock to the tree of a process.
fn bind(tree: &Tree, key: &str, id: &str) {
    let bound =
        format!(r#"{{"key": "{key}", "owner": "holder", "process": "{id}", "release": "tree"}}"#);
    let held = tree.post("/v1/locks/acquire", &bound);
    assert_eq!(held.get("place"), Some(&json!(1)), "{held}");
}

/// Each process of a chain starts the next one and ends, so a search for them may find none.
#[test]
fn a_chain_of_processes_keeps_the_lock_of_its_tree() {
    for tree in coordinators() {
        let [link, begin, goes_on] =
            ["link.sh", "begin", "goes-on"].map(|name| tree.data.join(name));
        let next = "[ -e \"$1\" ] || exit 0\nsh \"$0\" \"$1\" &\n";
        std::fs::write(&link, next).expect("a writable file");
        std::fs::write(&goes_on, "").expect("a writable file");
        let id = tree.detach(&format!(
            "until [ -e {} ]; do sleep 0.02; done; exec sh {} {}",
            text(&begin),
            text(&link),
            text(&goes_on)
        ));
        bind(&tree, "k", &id);
        std::fs::write(&begin, "").expect("a writable file");
        until("the process itself has ended", || {
            (!tree.record(&id)["ended_at"].is_null()).then_some(())
        });
        for _ in 0..3 {
            cannot_take(&tree, "k", "the chain goes on");
            let record = tree.record(&id);
            assert_eq!(record["status"], "stopping", "{record}");
        }
        std::fs::remove_file(&goes_on).expect("it is there");
        tree.well(&["lock", "acquire", "k", "--wait", "60s", "--owner", "other"]);
        assert_eq!(tree.record(&id)["status"], "exited");
    }
}

/// Without control groups, nothing tells the tree of an orphan that names a record which never was.
#[test]
fn an_orphan_that_names_no_record_keeps_the_lock_until_its_tree_is_settled() {
    let Some(tree) = Tree::without_groups() else {
        return;
    };
    let nobody = "00000000-0000-7000-8000-000000000001";
    let orphan = |mark: &str| {
        let begin = tree.data.join(mark);
        let id = tree.detach(&format!(
            "until [ -e {} ]; do sleep 0.02; done; SEXTON_PROCESS_ID={nobody} setsid sleep {mark} & wait; exit 0",
            text(&begin)
        ));
        (id, begin)
    };
    let (ended, settled) = (mark(11), mark(12));
    // The orphan of the first is older than the second process, and thus in no doubt for its tree.
    for (mark, is_settled) in [(&ended, false), (&settled, true)] {
        let (id, begin) = orphan(mark);
        bind(&tree, mark, &id);
        std::fs::write(&begin, "").expect("a writable file");
        let pid = until("it has started", || sleepers(mark).first().copied());
        tree.well(&["kill", "--now", &id]);
        until("only the orphan is left, which cannot be attributed", || {
            (!tree.record(&id)["ended_at"].is_null()).then_some(())
        });
        cannot_take(&tree, mark, "it is unknown");
        let early = tree.run(&["ps", "settle", &id]);
        assert_eq!(early.status, 1, "nobody has killed the tree: {early:?}");
        if is_settled {
            tree.well(&["kill", "--tree", "--now", &id]);
            until("it is shown", || {
                let shown = tree.well(&["ps", &id]);
                shown.contains("stopping, unknown").then_some(())
            });
            cannot_take(&tree, mark, "nobody has said anything");
            assert!(lives(pid), "what cannot be attributed is not killed");
            tree.well(&["ps", "settle", &id]);
            tree.well(&["lock", "acquire", mark, "--wait", "60s", "--owner", "other"]);
            assert!(lives(pid), "the user's word counted");
        } else {
            let listed = tree.well(&["lock", "list"]);
            assert!(listed.contains("it is unknown whether"), "{listed}");
            let listed = tree.well(&["ps"]);
            assert!(listed.contains("children may live"), "{listed}");
        }
        let orphan = Pid::from_raw(i32::try_from(pid).expect("a PID")).expect("a PID");
        kill_process(orphan, Signal::KILL).expect("it is alive");
        if !is_settled {
            tree.well(&["lock", "acquire", mark, "--wait", "60s", "--owner", "other"]);
        }
        assert_eq!(tree.record(&id)["status"], "exited");
    }
}

/// Nothing more is done about an orphan that may or may not belong to a service.
#[test]
fn a_stop_does_not_wait_for_an_orphan_that_may_belong_to_a_service() {
    let mark = mark(13);
    let nobody = "00000000-0000-7000-8000-000000000001";
    let orphan = format!("(SEXTON_PROCESS_ID={nobody} setsid sleep {mark} &); exec sleep 1000");
    let config =
        format!("[services.doubted]\ncommand = [\"sh\", \"-c\", \"{orphan}\"]\ngrace = \"1s\"\n");
    let Some(mut tree) = Tree::configured_without_groups(&config) else {
        return;
    };
    let pid = until("it has started", || sleepers(&mark).first().copied());
    let daemon = tree.daemon.take().expect("a server");
    daemon.signal(Signal::TERM);
    let (status, log) = daemon.end();
    assert!(status.success(), "{log}");
    assert!(log.contains("that may or may not belong to it"), "{log}");
    assert!(log.contains("name=doubted"), "{log}");
    assert!(!log.contains("timed out waiting"), "{log}");
    assert!(lives(pid), "what cannot be attributed is not killed");
    let pid = Pid::from_raw(pid.try_into().expect("a PID")).expect("a PID");
    kill_process(pid, Signal::KILL).expect("a live process");
}
