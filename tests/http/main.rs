//! The HTTP listener of a node in this process, over real sockets.

#[path = "../support/daemon.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod daemon;
#[path = "../support/left_out.rs"]
mod left_out;
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
mod done_once;
mod event;
mod event_rights;
mod every_status;
mod gate;
mod hostile;
mod keyed;
mod lease;
mod lease_status;
mod list;
mod listener;
mod lock;
mod lock_refused;
mod once;
mod opened;
mod page;
mod page_live;
mod page_lock;
mod page_now;
mod page_process;
mod page_queue;
mod page_then;
mod process_status;
mod queue;
mod queue_any;
mod queue_config;
mod queue_exchange;
mod queue_failed;
mod queue_refused;
mod queue_result;
mod queue_status;
mod queue_unique;
mod repetition;
mod revoked;
mod rights;
mod route;
mod socket;
mod strangers;
mod task_status;
mod texts;
mod tls;
mod tricks;
mod trouble;
mod turns;
mod verbs;
