//! What a command takes over from this process beyond its parcel: descriptors, priorities and processors.

use crate::report::tell;
use rustix::process::{Pid, getpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity};
use sexton::keeper::protocol::Inheritance;
use sexton::kernel::inheritance::io_priority;
use std::io;
use std::os::fd::OwnedFd;

/// Returns the priorities and processors of this process, without its descriptors and its terminal.
pub(super) fn own() -> Inheritance {
    let cpus = sched_getaffinity(None).map(|cpus| bits(&cpus));
    Inheritance {
        nice: getpriority_process(None).ok(),
        io_priority: io_priority(),
        cpus: cpus.unwrap_or_default(),
        ..Inheritance::default()
    }
}

fn bits(cpus: &CpuSet) -> Vec<u8> {
    let mut bits = vec![0; CpuSet::MAX_CPU.div_ceil(8)];
    for (place, byte) in bits.iter_mut().enumerate() {
        for bit in 0..8 {
            *byte |= u8::from(cpus.is_set(place * 8 + bit)) << bit;
        }
    }
    bits
}

/// Returns copies of the descriptors above the streams that this process was started with, and their numbers. Its own descriptors are closed
/// on `exec`, and are not among them.
pub(super) fn inherited() -> io::Result<(Vec<OwnedFd>, Vec<i32>)> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse::<i32>().ok());
        numbers.extend(number.filter(|number| *number > 2));
    }
    numbers.sort_unstable();
    let mut kept = (Vec::new(), Vec::new());
    let mut left_out = 0;
    for number in numbers {
        // The descriptor of the directory listing above is closed by now.
        let Ok(copy) = sexton::kernel::inheritance::inherited(number) else {
            continue;
        };
        let Some(copy) = copy else { continue };
        if kept.0.len() == Inheritance::DESCRIPTORS_MAX || number > Inheritance::DESCRIPTOR_MAX {
            left_out += 1;
            continue;
        }
        kept.0.push(copy);
        kept.1.push(number);
    }
    if left_out > 0 {
        let (most, highest) = (Inheritance::DESCRIPTORS_MAX, Inheritance::DESCRIPTOR_MAX);
        tell(&format!(
            "the command does not get {left_out} of this process's descriptors: at most {most}, with numbers up to {highest}, are handed over"
        ));
    }
    Ok(kept)
}

/// Returns whether a process ignores a signal; `false` if that cannot be read.
pub(super) fn ignores(process: Pid, signal: i32) -> bool {
    let path = format!("/proc/{}/status", process.as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0) >> (signal - 1) & 1 == 1
}
