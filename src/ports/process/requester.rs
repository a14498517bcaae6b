//! The process that makes a request, and its ancestors as the kernel reports them.

use crate::actors::process::{Identity, Parentage, Registering, Tags};
use crate::clock::{Clock as _, Date, SystemClock, Timestamp};
use crate::ids::ProcessId;
use crate::kernel::identity::identify_with_parent;
use crate::kernel::peer::{self, Peer};
use crate::kernel::proc;
use crate::ports::process::environment::ID;
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::AsFd;

/// A process that makes a request, or that a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// The PID: of the process that connected, or the one named in the request.
    pub pid: u32,
    /// The inode of the pidfd. It distinguishes the process from a later one with the same PID; 0 if the kernel does not report it.
    pub inode: u64,
}

impl Requester {
    /// Identifies the process that connected to this Unix socket and whose PID is `pid`; `None` if it has exited.
    pub fn of(socket: impl AsFd, pid: u32) -> Option<Self> {
        match peer::of(socket) {
            Peer::Inode(inode) => Some(Self { pid, inode }),
            Peer::Gone => None,
            Peer::Unavailable => Some(pid.into()),
        }
    }
}

impl From<u32> for Requester {
    /// Refers to whichever process has this PID when it is looked up.
    fn from(pid: u32) -> Self {
        Self { pid, inode: 0 }
    }
}

/// Returns a process followed by its ancestors, starting with its parent, up to the first that is PID 1 or not visible, but at most
/// [`Parentage::LINE_MAX`] processes. Empty if the process has exited.
pub(crate) fn line(process: Requester) -> Vec<Identity> {
    let mut line = Vec::new();
    let mut next = process.pid;
    while next > 1 && line.len() < Parentage::LINE_MAX {
        let Ok(Some((identity, parent))) = identify_with_parent(next) else {
            break;
        };
        let is_other = line.is_empty() && process.inode != 0 && identity.inode != process.inode;
        if is_other {
            break;
        }
        line.push(identity);
        next = parent;
    }
    line
}

/// Collects the information for registering a process; `None` if the process does not exist.
pub(crate) fn describe(
    process: Requester,
    tags: Tags,
    named: Option<ProcessId>,
) -> Option<Registering> {
    let mut line = line(process).into_iter();
    let identity = line.next()?;
    let pid = identity.pid;
    let argv = proc::cmdline(pid).ok().flatten().unwrap_or_default();
    let dir = proc::cwd(pid).ok().flatten().unwrap_or_default();
    Some(Registering {
        identity,
        argv,
        dir,
        started: started(identity.ticks),
        tags,
        parentage: Parentage { named, line: line.collect(), bound: false },
    })
}

/// Returns the id of the record of this process, if its environment names one. The record may be of another coordinator.
pub(crate) fn own_record() -> Option<ProcessId> {
    let mut all = std::env::vars_os();
    let (_, id) = all.find(|(name, _)| name == ID)?;
    id.to_str()?.parse().ok()
}

/// Converts a start time, in clock ticks since boot, to a date according to the current wall clock. It is accurate to one tick.
fn started(ticks: u64) -> Date {
    let up = clock_gettime(ClockId::Boottime);
    let up = up.tv_sec.unsigned_abs() * 1000 + up.tv_nsec.unsigned_abs() / 1_000_000;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let wall = SystemClock::starting_at(Timestamp(0)).wall();
    let age = up.saturating_sub(ticks.saturating_mul(1000) / per_second);
    Date(wall.0.saturating_sub(age))
}

#[cfg(test)]
mod tests {
    use super::{Requester, describe, line};
    use crate::actors::process::Tags;

    #[test]
    fn whoever_has_the_pid_of_one_that_asked_is_not_taken_for_it() {
        let asked = Requester::from(std::process::id());
        let own = line(asked);
        let inode = own.first().expect("this process is alive").inode;
        assert_eq!(line(Requester { inode, ..asked }), own);
        if inode != 0 {
            let before = Requester { inode: inode ^ 1, ..asked };
            assert!(line(before).is_empty());
            assert!(describe(before, Tags::default(), None).is_none());
        }
        assert!(describe(asked, Tags::default(), None).is_some());
    }
}
