//! The HTTP listener of a node in this process, over real sockets.

#![cfg(feature = "http")]

#[cfg(feature = "cli")]
#[path = "../support/daemon.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod daemon;
#[cfg(feature = "cli")]
#[path = "../support/left_out.rs"]
mod left_out;
#[cfg(feature = "cli")]
#[path = "../support/lock_request.rs"]
mod lock_request;
#[path = "../support/patience.rs"]
mod patience;
#[path = "../support/resources.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod resources;
#[path = "../support/unserved.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod unserved;

mod access;
mod browser;
mod busiest;
mod crowd;
mod described;
#[cfg(feature = "cli")]
mod done_once;
mod event;
#[cfg(feature = "cli")]
mod every_status;
mod gate;
mod hostile;
mod keyed;
#[cfg(feature = "cli")]
mod lease;
#[cfg(feature = "cli")]
mod lease_status;
mod list;
mod listener;
mod lock;
mod lock_refused;
#[cfg(feature = "cli")]
mod once;
mod opened;
mod page;
mod page_live;
mod page_lock;
mod page_now;
#[cfg(feature = "cli")]
mod page_process;
mod page_queue;
#[cfg(feature = "cli")]
mod page_then;
#[cfg(feature = "cli")]
mod process_status;
mod queue;
mod queue_any;
mod queue_config;
mod queue_exchange;
mod queue_failed;
mod queue_refused;
mod queue_result;
#[cfg(feature = "cli")]
mod queue_status;
mod queue_unique;
mod repetition;
#[cfg(feature = "cli")]
mod rights;
mod route;
mod socket;
#[cfg(feature = "cli")]
mod strangers;
mod task_status;
mod texts;
mod tls;
mod tricks;
mod trouble;
mod turns;
