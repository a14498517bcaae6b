//! Which process is meant: what the kernel gives it and gives to no other, see `docs/decisions/0036-identity.md`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A process, as no other is or will be.
///
/// A PID alone is reused, and start times have steps of 10 ms, within which a forced reuse fits. So the inode of pidfs
/// decides where the kernel has one (6.9 and later: unique in a boot, unchanged by exec), and the others only where it
/// has none.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Identity {
    /// The machine: of its id, a digest.
    #[serde(with = "crate::ids::wide")]
    pub machine: u128,
    /// The boot, as `/proc/sys/kernel/random/boot_id` has it.
    #[serde(with = "crate::ids::wide")]
    pub boot: u128,
    /// The PID namespace in which the PID holds: its inode.
    pub namespace: u64,
    /// The PID there.
    pub pid: u32,
    /// The inode of its pidfd; 0 where the kernel gives none that means anything.
    pub inode: u64,
    /// When it started, in ticks of the kernel since the boot.
    pub ticks: u64,
}

impl Identity {
    /// Whether both are the same process.
    pub fn is(&self, other: &Self) -> bool {
        let one_boot = self.machine == other.machine && self.boot == other.boot;
        one_boot
            && if self.inode != 0 && other.inode != 0 {
                self.inode == other.inode
            } else {
                (self.namespace, self.pid, self.ticks) == (other.namespace, other.pid, other.ticks)
            }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PID {}", self.pid)
    }
}
