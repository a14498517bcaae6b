//! What lives of an attempt: all that descends from the process that keeps it, which inherits orphans; or, if that is gone, what
//! has the name of the attempt in its environment, and what descends from that.

use rustix::process::Signal;
use sexton::kernel::pidfd::Pidfd;
use sexton::kernel::proc::{self, Stat};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The variable that names the attempt to what it started.
pub(super) const NAME: &str = "SEXTON_WRAPPER_ATTEMPT";

/// Sends a signal to each of these that is still the one that was seen.
fn signal(pids: &BTreeSet<u32>, seen: &BTreeMap<u32, Stat>, signal: Signal) -> io::Result<()> {
    let number = u8::try_from(signal.as_raw()).unwrap_or_default();
    for pid in pids {
        // The descriptor is of who has the PID now: is it the one that was seen?
        if let Some(process) = Pidfd::open(*pid)?
            && let Some(now) = proc::stat(*pid)?
            && seen.get(pid).map(|it| it.start_ticks) == Some(now.start_ticks)
        {
            process.signal(number)?;
        }
    }
    Ok(())
}

/// Sends a signal to all that descends from this process.
pub(super) fn signal_own(with: Signal) -> io::Result<()> {
    let living = proc::living()?;
    let own = std::process::id();
    let mut pids = BTreeSet::from([own]);
    proc::add_descendants(&mut pids, &living);
    pids.remove(&own);
    signal(&pids, &living, with)
}

/// Kills what is left of an attempt that nobody keeps; how many that were. Where that cannot be found out, nothing is proved.
pub(super) fn kill_left(attempt: &str) -> io::Result<usize> {
    let living = proc::living()?;
    let wanted = format!("{NAME}={attempt}");
    let is_named = |pid: &u32| {
        // What may not be read is another user's.
        let environment = proc::environ(*pid).ok().flatten().unwrap_or_default();
        environment
            .iter()
            .any(|it| it.as_bytes() == wanted.as_bytes())
    };
    let mut pids: BTreeSet<u32> = living.keys().copied().filter(is_named).collect();
    proc::add_descendants(&mut pids, &living);
    signal(&pids, &living, Signal::KILL)?;
    Ok(pids.len())
}
