//! Data on disk: the journal, snapshots with the real store, and directories of every earlier format.

mod golden;
mod journal;
mod snapshots;
mod timeline;

#[path = "../support/chance.rs"]
mod chance;
#[path = "../support/daemon.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod daemon;
#[path = "../support/directory.rs"]
mod directory;
#[path = "../support/kept.rs"]
mod kept;
#[path = "../support/lockserver.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod lockserver;
#[path = "../support/node.rs"]
mod node;
#[path = "../support/past.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod past;
#[path = "../support/patience.rs"]
mod patience;
#[path = "../support/space.rs"]
mod space;
