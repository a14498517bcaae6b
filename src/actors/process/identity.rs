//! Identities of processes, made of values that the kernel gives to only one process. See `docs/decisions/0036-identity.md`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The identity of a process, unique across time and machines.
///
/// PIDs are reused, and start times have a resolution of only 10 ms, so two processes can have the same PID and start time. Two identities
/// from the same machine and boot are therefore compared by pidfs inode if both have one (Linux 6.9 and later: unique within a boot,
/// unchanged by exec), and otherwise by namespace, PID and start time.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Identity {
    /// A digest of the machine id.
    #[serde(with = "crate::ids::wide")]
    pub machine: u128,
    /// The boot id from `/proc/sys/kernel/random/boot_id`.
    #[serde(with = "crate::ids::wide")]
    pub boot: u128,
    /// The inode of the PID namespace in which the PID is valid.
    pub namespace: u64,
    /// The PID in that namespace.
    pub pid: u32,
    /// The inode of its pidfd; 0 if unknown, or if this kernel's pidfd inodes are not unique.
    pub inode: u64,
    /// The start time in clock ticks since boot.
    pub ticks: u64,
}

impl Identity {
    /// Returns whether both identify the same process.
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
