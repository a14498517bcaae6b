//! What lives of an attempt: all that descends from the process that keeps it, which inherits orphans; or, if that is gone, what
//! has the name of the attempt in its environment, and what descends from that.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The variable that names the attempt to what it started.
pub(super) const NAME: &str = "SEXTON_WRAPPER_ATTEMPT";

/// A process: its parent, and when it started.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    parent: i32,
    started: u64,
}

fn look(pid: i32) -> Option<Seen> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may have anything in it; it ends with the last parenthesis.
    let (_, rest) = stat.rsplit_once(')')?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let state = words.first()?;
    if matches!(*state, "Z" | "X") {
        return None;
    }
    Some(Seen {
        parent: words.get(1)?.parse().ok()?,
        started: words.get(19)?.parse().ok()?,
    })
}

fn all() -> BTreeMap<i32, Seen> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, look(pid)?))).collect()
}

/// Of these processes, those that descend from a root, roots left out.
fn below(all: &BTreeMap<i32, Seen>, roots: &BTreeSet<i32>) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    loop {
        let is_new = |(pid, seen): &(&i32, &Seen)| {
            let parent = seen.parent;
            let descends = roots.contains(&parent) || found.contains(&parent);
            descends && !found.contains(*pid) && !roots.contains(*pid)
        };
        let more: Vec<i32> = all.iter().filter(is_new).map(|(pid, _)| *pid).collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

fn signal(pids: &BTreeSet<i32>, all: &BTreeMap<i32, Seen>, signal: Signal) {
    for pid in pids {
        let Some(its) = Pid::from_raw(*pid) else {
            continue;
        };
        // The descriptor is of who has the PID now: is it the one that was seen?
        let Ok(pidfd) = pidfd_open(its, PidfdFlags::empty()) else {
            continue;
        };
        if look(*pid).map(|it| it.started) == all.get(pid).map(|it| it.started) {
            // It may have ended meanwhile.
            let _gone = pidfd_send_signal(&pidfd, signal);
        }
    }
}

/// Sends a signal to all that descends from this process; how many that were.
pub(super) fn signal_own(with: Signal) -> usize {
    let all = all();
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let pids = below(&all, &BTreeSet::from([own]));
    signal(&pids, &all, with);
    pids.len()
}

/// Kills what is left of an attempt that nobody keeps; how many that were.
pub(super) fn kill_left(attempt: &str) -> usize {
    let all = all();
    let wanted = format!("{NAME}={attempt}");
    let is_named = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|it| it == wanted.as_bytes())
    };
    let mut pids: BTreeSet<i32> = all.keys().copied().filter(is_named).collect();
    pids.extend(below(&all, &pids));
    signal(&pids, &all, Signal::KILL);
    pids.len()
}
