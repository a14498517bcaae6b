//! System resources of a process: its descriptors, which limit its connections, and its memory.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fmt::Display;

/// Raises this process' limit of descriptors to its maximum, and returns the new limit.
pub(crate) fn raise_descriptor_limit() -> usize {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit { current: maximum, maximum };
    setrlimit(Resource::Nofile, raised).expect("the soft limit may be raised to the hard one");
    maximum.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX))
}

/// Returns how many of the `wanted` connections this process can have once its limit is raised.
#[expect(clippy::print_stdout, reason = "skipped parts are reported")]
pub(crate) fn connections(wanted: usize) -> usize {
    let allowed = raise_descriptor_limit();
    let count = allowed.saturating_sub(500).min(wanted);
    if count < wanted {
        println!("only {count} connections: the hard limit of descriptors is {allowed}");
    }
    count
}

/// Returns the resident memory of a process in KiB. The process is given by its PID, or as `self`.
pub(crate) fn resident(process: impl Display) -> u64 {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(path).expect("a live process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).expect("the kernel reports how much")
}
