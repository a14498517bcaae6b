//! Who asks: a process that has a PID now, and those above it, as the kernel has them.

use crate::actors::process::{Identity, Parentage, Registering, Tags};
use crate::clock::{Clock as _, Date, SystemClock, Timestamp};
use crate::ids::ProcessId;
use crate::kernel::identity::identify_with_parent;
use crate::kernel::proc;
use rustix::time::{ClockId, clock_gettime};

/// A process, its parent, and so on upwards, as far as they can be seen.
pub(crate) fn line(pid: u32) -> Vec<Identity> {
    let mut line = Vec::new();
    let mut next = pid;
    while next > 1 && line.len() < Parentage::LINE_MAX {
        let Ok(Some((identity, parent))) = identify_with_parent(next) else {
            break;
        };
        line.push(identity);
        next = parent;
    }
    line
}

/// What is known of a process that is to have a record; `None` if there is none.
pub(crate) fn describe(pid: u32, tags: Tags, named: Option<ProcessId>) -> Option<Registering> {
    let mut line = line(pid).into_iter();
    let identity = line.next()?;
    let argv = proc::cmdline(pid).ok().flatten().unwrap_or_default();
    let dir = proc::cwd(pid).ok().flatten().unwrap_or_default();
    Some(Registering {
        identity,
        argv,
        dir,
        started: started(identity.ticks),
        tags,
        parentage: Parentage {
            named,
            line: line.collect(),
            bound: false,
        },
    })
}

/// When a process started, by the wall clock of now: to the tick.
fn started(ticks: u64) -> Date {
    let up = clock_gettime(ClockId::Boottime);
    let up = up.tv_sec.unsigned_abs() * 1000 + up.tv_nsec.unsigned_abs() / 1_000_000;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let wall = SystemClock::starting_at(Timestamp(0)).wall();
    let age = up.saturating_sub(ticks.saturating_mul(1000) / per_second);
    Date(wall.0.saturating_sub(age))
}
