//! The machine, boot and PID namespace within which identities are valid, and the features of this kernel. Each is read once.

use crate::kernel::pidfs;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;
use xxhash_rust::xxh3::xxh3_128;

/// Returns a digest of the id in `/etc/machine-id`; 0 if the file is empty or cannot be read.
pub fn machine() -> u128 {
    static MACHINE: OnceLock<u128> = OnceLock::new();
    *MACHINE.get_or_init(|| {
        let text = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        match text.trim() {
            "" => 0,
            id => xxh3_128(id.as_bytes()),
        }
    })
}

/// Returns the boot id from `/proc/sys/kernel/random/boot_id`; 0 if it cannot be read.
pub fn boot() -> u128 {
    static BOOT: OnceLock<u128> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        parse_uuid(&text)
    })
}

/// Returns the inode of this process's PID namespace; 0 if it cannot be read.
pub fn namespace() -> u64 {
    static NAMESPACE: OnceLock<u64> = OnceLock::new();
    *NAMESPACE.get_or_init(|| fs::metadata("/proc/self/ns/pid").map_or(0, |status| status.ino()))
}

/// Returns the features of this kernel, which are probed on the first call.
pub fn abilities() -> &'static Abilities {
    static ABILITIES: OnceLock<Abilities> = OnceLock::new();
    ABILITIES.get_or_init(Abilities::probe)
}

/// How well the kernel supports following processes, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Processes can be reopened by inode, and the exit status of any process is available.
    A,
    /// Processes have descriptors, and are found again by inode, or else by PID and start time. Only the exit statuses of children are
    /// available.
    B,
    /// Only PIDs and start times are available.
    C,
}

/// The kernel features found by the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Whether the kernel has pidfds (Linux 5.3).
    pub pidfds: bool,
    /// Whether the inode of a pidfd is unique to its process (Linux 6.9).
    pub inodes: bool,
    /// The type of the file handles by which processes can be opened from their inodes (Linux 6.14); `None` if they cannot.
    pub handles: Option<i32>,
    /// Whether a pidfd provides the exit status after the parent has reaped the process (Linux 6.15).
    pub exits: bool,
}

impl Tier {
    /// Returns the letter of the tier.
    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
        }
    }
}

impl Abilities {
    /// Returns the tier to which these features correspond.
    pub const fn tier(&self) -> Tier {
        if self.inodes && self.handles.is_some() && self.exits {
            Tier::A
        } else if self.pidfds {
            Tier::B
        } else {
            Tier::C
        }
    }

    fn probe() -> Self {
        let Ok(own) = pidfd_open(getpid(), PidfdFlags::empty()) else {
            return Self { pidfds: false, inodes: false, handles: None, exits: false };
        };
        let inodes = pidfs::is_pidfs(&own);
        Self {
            pidfds: true,
            inodes,
            handles: inodes.then(|| pidfs::handle_type(&own)).flatten(),
            exits: inodes && pidfs::is_supported(&own) && release() >= (6, 15),
        }
    }
}

/// Formats a line for `sexton status`, such as `A: found again by inode, exit status of any process`.
impl fmt::Display for Abilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.tier() {
            Tier::A => return f.write_str("A: found again by inode, exit status of any process"),
            Tier::B if self.handles.is_some() => "B: found again by inode",
            Tier::B => "B: found again by PID and start time",
            Tier::C => "C: PID and start time, no descriptors of processes",
        };
        write!(f, "{by}, exit status of children only")
    }
}

/// Returns the major and minor version of the kernel, which is the only way to detect support for exit statuses: older kernels ignore a
/// request for one instead of refusing it.
fn release() -> (u32, u32) {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    parse_release(&text)
}

fn parse_release(text: &str) -> (u32, u32) {
    let mut numbers = text.split(|byte: char| !byte.is_ascii_digit());
    let mut next = || numbers.next().and_then(|digits| digits.parse().ok());
    (next().unwrap_or(0), next().unwrap_or(0))
}

fn parse_uuid(text: &str) -> u128 {
    let digits = text.trim().replace('-', "");
    u128::from_str_radix(&digits, 16).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{abilities, boot, namespace, parse_release, parse_uuid};

    #[test]
    fn versions_and_boots_are_read() {
        assert_eq!(parse_release("6.18.44-fc-v657\n"), (6, 18));
        assert_eq!(parse_release("5.4\n"), (5, 4));
        assert_eq!(parse_release(""), (0, 0));
        let text = "00000000-0000-4000-8000-0000000000ff\n";
        assert_eq!(parse_uuid(text), 0x4000_8000_0000_0000_00ff);
        assert_eq!(parse_uuid("none"), 0);
    }

    #[test]
    fn this_machine_has_a_boot_and_a_namespace() {
        assert!(boot() != 0 && namespace() != 0);
        assert!(abilities().to_string().starts_with(['A', 'B', 'C']));
    }
}
