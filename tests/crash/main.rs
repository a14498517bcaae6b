//! The real program, killed with SIGKILL under load and started again: everything that it acknowledged still exists, and nothing happens
//! twice.

mod acting;
mod clients;
#[cfg(target_os = "linux")]
mod exclusion;
#[cfg(target_os = "linux")]
mod leases;
mod locks;
#[cfg(target_os = "linux")]
mod processes;
mod queues;
#[cfg(target_os = "linux")]
mod story;
#[cfg(target_os = "linux")]
mod tasks;
#[cfg(target_os = "linux")]
mod work;

#[path = "../support/beanstalk.rs"]
mod beanstalk;
#[path = "../support/chance.rs"]
mod chance;
#[path = "../support/client_programs.rs"]
mod client_programs;
#[path = "../support/counter.rs"]
mod counter;
#[path = "../support/daemon.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod daemon;
#[cfg(target_os = "linux")]
#[path = "../support/groups.rs"]
mod groups;
#[path = "../support/kept.rs"]
mod kept;
#[path = "../support/left_out.rs"]
mod left_out;
#[path = "../support/lives.rs"]
mod lives;
#[path = "../support/lockserver.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod lockserver;
#[path = "../support/node.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod node;
#[path = "../support/past.rs"]
mod past;
#[path = "../support/patience.rs"]
mod patience;
#[path = "../support/space.rs"]
mod space;
