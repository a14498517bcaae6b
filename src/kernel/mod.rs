//! Linux facilities for processes as safe functions: reliable identity, signals that reach only the intended process, control groups, and
//! new processes. The only folder with `unsafe`.
//!
//! | file | holds |
//! |---|---|
//! | `host.rs` | the machine, the boot, the PID namespace, and the features of this kernel |
//! | `pidfs.rs` | calls that rely on kernel constants: file handles, inodes and exit statuses of pidfds |
//! | `pidfd.rs` | a descriptor of a process: its signals, end and exit status |
//! | `identity.rs` | from a PID to an identity, and from an identity back to a process |
//! | `peer.rs` | the process that connected to a Unix socket |
//! | `socket.rs` | the user at the other end of a Unix socket; connecting within a time limit |
//! | `tcp.rs` | the user at the other end of a TCP connection within this machine |
//! | `file.rs` | opening files at paths where somebody else may have put something else |
//! | `path.rs` | who else can decide where a path leads; making directories |
//! | `lease.rs` | whether a file is open for writing |
//! | `proc.rs` | processes as `/proc` shows them |
//! | `answers.rs` | reading the memory of processes that may keep others from it, with a time limit |
//! | `cgroup.rs` | control groups, version 2 |
//! | `descriptors.rs` | the soft limit on open descriptors |
//! | `memory.rs` | a memory limit for a whole control group |
//! | `plan.rs` | what a new process runs, and as which user |
//! | `spawn.rs` | a new process that waits for permission before it executes its program |
//! | `child.rs` | what the new process does before it executes its program |
//! | `inheritance.rs` | what a command takes over from its caller |
//! | `credentials.rs` | datagrams with the credentials of their sender |
//! | `signals.rs` | signals read from a descriptor, and attributes of this process |
//! | `wait.rs` | children that have ended |
//!
//! This folder contains no policy, and imports nothing from the rest of the crate but `Bytes`, `Identity` and the starting of threads.

mod answers;
pub mod cgroup;
mod child;
pub mod credentials;
pub mod descriptors;
pub mod file;
pub mod host;
pub mod identity;
pub mod inheritance;
pub mod lease;
pub mod memory;
pub mod path;
pub mod peer;
pub mod pidfd;
mod pidfs;
pub mod plan;
pub mod proc;
pub mod signals;
pub mod socket;
pub mod spawn;
pub mod tcp;
pub mod wait;
