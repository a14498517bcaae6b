//! LockServer's protocol over real sockets: its commands and answers, hostile clients, and panics while clients are served.

mod hostile;
mod panics;
mod served;
mod wire;

#[path = "../support/chance.rs"]
mod chance;
#[path = "../support/daemon.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod daemon;
#[path = "../support/lockserver.rs"]
mod lockserver;
#[path = "../support/node.rs"]
mod node;
#[path = "../support/past.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod past;
#[path = "../support/patience.rs"]
mod patience;
#[path = "../support/resources.rs"]
mod resources;
