//! What Linux offers for processes, as safe functions: which process is meant, signals that reach no other, control
//! groups, and new processes. The only folder with `unsafe`.
//!
//! | file | holds |
//! |---|---|
//! | `host.rs` | the machine, the boot, the PID namespace, and what this kernel can do |
//! | `pidfs.rs` | what only the kernel's own numbers name: file handles, inodes and exits of descriptors of processes |
//! | `pidfd.rs` | a process by descriptor: signals, end, exit status |
//! | `identity.rs` | from a PID to an identity, and from an identity back to a process |
//! | `peer.rs` | which process connected a Unix socket |
//! | `lease.rs` | whether a file is open for writing |
//! | `proc.rs` | what `/proc` has about processes |
//! | `cgroup.rs` | control groups of version 2 |
//! | `memory.rs` | memory that all in a control group may have together |
//! | `plan.rs` | what a new process is to run |
//! | `spawn.rs` | a new process that waits for leave to go on |
//! | `child.rs` | what the new process does before it executes its program |
//! | `credentials.rs` | datagrams with who sent them |
//! | `signals.rs` | signals as a descriptor |
//! | `wait.rs` | children that ended |
//!
//! Never here: a decision. It imports nothing but identifiers and bytes.

pub mod cgroup;
mod child;
pub mod credentials;
pub mod host;
pub mod identity;
pub mod lease;
pub mod memory;
pub mod peer;
pub mod pidfd;
mod pidfs;
pub mod plan;
pub mod proc;
pub mod signals;
pub mod spawn;
pub mod wait;
