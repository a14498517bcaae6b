//! The resource usage of a process. It is read on demand, and only for the requested processes.

use crate::actors::process::Identity;
use crate::kernel::identity::{Lookup, find};
use crate::kernel::proc::Stat;
use crate::kernel::{cgroup, host, proc};
use std::path::Path;

/// The resources used by a process or a control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Processor time since the process or the group was created, in milliseconds.
    pub cpu_ms: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Virtual memory of the process alone, in bytes; `None` if it cannot be read.
    pub virtual_bytes: Option<u64>,
    /// How long ago the process started, in milliseconds.
    pub age_ms: u64,
    /// Whether these are totals of the control group rather than of the process alone.
    pub is_of_group: bool,
}

/// Reads the usage of the control group if the kernel accounts for it, otherwise that of the leader alone. Returns `None` if neither can be
/// read.
pub(super) fn read(leader: &Identity, group: Option<&Path>) -> Option<Usage> {
    let counted = group.and_then(|group| cgroup::usage(group).ok().flatten());
    let own = own(leader);
    let (cpu_ms, memory_bytes) =
        counted.or_else(|| own.map(|stat| (stat.cpu_ms(), stat.memory_bytes())))?;
    Some(Usage {
        cpu_ms,
        memory_bytes,
        virtual_bytes: own.map(|stat| stat.virtual_bytes),
        age_ms: proc::age_ms(leader.ticks),
        is_of_group: counted.is_some(),
    })
}

/// Reads the status of a process, if it is alive and visible.
fn own(process: &Identity) -> Option<Stat> {
    if process.namespace != host::namespace() {
        return None;
    }
    let Lookup::Alive(pidfd) = find(process) else {
        return None;
    };
    let stat = proc::stat(process.pid).ok()??;
    // If the process still holds its PID after the read, the values are those of this process.
    let is_its_own = pidfd.is_held().unwrap_or(false) && stat.start_ticks == process.ticks;
    is_its_own.then_some(stat)
}

impl Usage {
    /// Returns the processor time used since the start, as a share of that time: 100 is one processor, all the time.
    pub fn cpu_percent(&self) -> f64 {
        let age_ms = self.age_ms.max(1);
        let tenths = (self.cpu_ms.saturating_mul(1000).saturating_add(age_ms / 2)) / age_ms;
        f64::from(u32::try_from(tenths).unwrap_or(u32::MAX)) / 10.0
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::kernel::identity::identify;
    use std::process::{Child, Command};

    struct KillOnDrop(Child);

    impl Drop for KillOnDrop {
        fn drop(&mut self) {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }

    #[test]
    fn a_living_process_is_read_and_no_other_in_its_place() {
        let own = std::process::id();
        let (_, leader) = identify(own).unwrap().expect("the process is alive");
        let usage = read(&leader, None).expect("the usage can be read");
        assert!(usage.memory_bytes > 0 && !usage.is_of_group, "{usage:?}");
        assert!(usage.virtual_bytes.is_some_and(|bytes| bytes >= usage.memory_bytes));

        let child = KillOnDrop(Command::new("sleep").arg("1000").spawn().unwrap());
        let (_, theirs) = identify(child.0.id()).unwrap().expect("the process is alive");
        assert!(read(&theirs, None).is_some());
        drop(child);
        assert_eq!(read(&theirs, None), None, "the process has exited");
        // The identity of an earlier process that had the same PID.
        let mut before = leader;
        before.inode = 0;
        before.ticks -= 1;
        assert_eq!(read(&before, None), None);
    }

    #[test]
    fn the_share_of_processor_time_counts_from_the_start() {
        let usage = |cpu_ms, age_ms| super::Usage {
            cpu_ms,
            memory_bytes: 0,
            virtual_bytes: None,
            age_ms,
            is_of_group: false,
        };
        let percent = |cpu_ms, age_ms| format!("{}", usage(cpu_ms, age_ms).cpu_percent());
        assert_eq!(percent(0, 0), "0");
        assert_eq!(percent(250, 1000), "25");
        assert_eq!(percent(1, 3000), "0");
        assert_eq!(percent(3000, 1500), "200");
        assert_eq!(percent(1, 1500), "0.1");
    }

    #[test]
    fn a_group_that_is_counted_speaks_for_all_in_it() {
        let (_, leader) = identify(std::process::id()).unwrap().expect("the process is alive");
        let group = tempfile::tempdir().unwrap();
        let of_group = || read(&leader, Some(group.path())).expect("the usage can be read");
        assert!(!of_group().is_of_group, "the group has no accounting files");
        let stat = "usage_usec 1234567\nuser_usec 1\n";
        std::fs::write(group.path().join("cpu.stat"), stat).unwrap();
        assert!(!of_group().is_of_group, "the group's memory is not accounted for");
        std::fs::write(group.path().join("memory.current"), "8192\n").unwrap();
        let usage = of_group();
        assert_eq!((usage.cpu_ms, usage.memory_bytes), (1234, 8192));
        assert!(usage.is_of_group);
    }
}
