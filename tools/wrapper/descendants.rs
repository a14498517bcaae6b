//! The live processes of an attempt: the descendants of the process that supervises it (`sexton wrapper keep`), which inherits orphans.
//! Once that process has exited, they are the processes with the attempt's name in their environment, and the descendants of these.

use rustix::process::Signal;
use sexton::kernel::pidfd::Pidfd;
use sexton::kernel::proc::{self, Stat};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The environment variable with the attempt's name, which every process of the attempt has.
pub(super) const NAME: &str = "SEXTON_WRAPPER_ATTEMPT";

/// Sends signals, in this order, to each of these processes, except those whose PID has been reused since `seen` was read.
fn signal(pids: &BTreeSet<u32>, seen: &BTreeMap<u32, Stat>, signals: &[Signal]) -> io::Result<()> {
    for pid in pids {
        // The descriptor refers to the process that has the PID now: check that it is still the same one.
        if let Some(process) = Pidfd::open(*pid)?
            && let Some(now) = proc::stat(*pid)?
            && seen.get(pid).map(|it| it.start_ticks) == Some(now.start_ticks)
        {
            for signal in signals {
                process.signal(u8::try_from(signal.as_raw()).unwrap_or_default())?;
            }
        }
    }
    Ok(())
}

/// Sends signals, in this order, to all descendants of this process.
pub(super) fn signal_own(with: &[Signal]) -> io::Result<()> {
    let living = proc::living()?;
    let own = std::process::id();
    let mut pids = BTreeSet::from([own]);
    proc::add_descendants(&mut pids, &living);
    pids.remove(&own);
    signal(&pids, &living, with)
}

/// Kills the processes of an attempt whose supervising process has exited, and returns how many it found. After an error, some may still be
/// alive.
pub(super) fn kill_left(attempt: &str) -> io::Result<usize> {
    let living = proc::living()?;
    let own = rustix::process::geteuid().as_raw();
    let is_named = |pid: &u32| {
        // If the environment cannot be read, the process has exited. Processes of other users are not asked: root can read their environments,
        // but they can put any name into these, so none of them is part of the attempt.
        if proc::user(*pid).ok().flatten() != Some(own) {
            return false;
        }
        let named = proc::variable(*pid, NAME).ok().flatten();
        named.is_some_and(|it| it.value.as_bytes() == attempt.as_bytes() && it.is_of(own))
    };
    let mut pids: BTreeSet<u32> = living.keys().copied().filter(is_named).collect();
    proc::add_descendants(&mut pids, &living);
    signal(&pids, &living, &[Signal::KILL])?;
    Ok(pids.len())
}
