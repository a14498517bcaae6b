//! The library as a program uses it, mostly with a clock that the test moves. No cargo feature is required.

mod doubt;
mod examples;
mod failing;
mod full_mailbox;
#[cfg(feature = "jobs")]
mod jobs;
mod leases;
mod locks;
mod open_stop;
mod processes;
mod program;
mod quarantine;
mod queues;

#[path = "../support/directory.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod directory;
#[path = "../support/node.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod node;
#[path = "../support/patience.rs"]
mod patience;
