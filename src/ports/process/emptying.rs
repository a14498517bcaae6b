//! Control groups of trees that are to become empty. The kernel says when one does, so nobody waits for the next look; where it
//! cannot be asked, that look finds it.

use crate::ids::ProcessId;
use crate::kernel::cgroup;
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The most groups that are watched: each is a descriptor, and more are looked at now and then.
const WATCHED_MAX: usize = 1000;

/// The groups that are watched.
#[derive(Debug, Default)]
pub(super) struct Emptying {
    /// By what epoll says of each. A descriptor that is closed is not waited for any more.
    groups: BTreeMap<u64, (ProcessId, OwnedFd)>,
    tokens: BTreeMap<ProcessId, u64>,
}

impl Emptying {
    /// Has epoll return this token when the group has become empty, and once at first: it may have become so before.
    pub(super) fn watch(&mut self, epoll: &OwnedFd, token: u64, (id, group): (ProcessId, &Path)) {
        if self.tokens.contains_key(&id) || self.groups.len() >= WATCHED_MAX {
            return;
        }
        // It may be gone, or no descriptor be left.
        let Ok(events) = cgroup::events(group) else {
            return;
        };
        // The file is never read: each change is an edge.
        let flags = epoll::EventFlags::PRI | epoll::EventFlags::ET;
        if epoll::add(epoll, &events, epoll::EventData::new_u64(token), flags).is_ok() {
            self.groups.insert(token, (id, events));
            self.tokens.insert(id, token);
        }
    }

    /// Whose group epoll means.
    pub(super) fn of(&self, token: u64) -> Option<ProcessId> {
        self.groups.get(&token).map(|(id, _)| *id)
    }

    /// Watches it no longer.
    pub(super) fn forget(&mut self, id: ProcessId) {
        if let Some(token) = self.tokens.remove(&id) {
            drop(self.groups.remove(&token));
        }
    }
}
