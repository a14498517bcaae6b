//! Watches the control groups of trees that are being cleared. The kernel reports when a group becomes empty, so this is noticed without
//! waiting for the next periodic check. Where the kernel cannot report it, the periodic check notices it.

use crate::ids::ProcessId;
use crate::kernel::cgroup;
use rustix::event::epoll;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The maximum number of groups watched at a time; limited because each takes a descriptor. Any further groups are only checked
/// periodically.
const WATCHED_MAX: usize = 1000;

/// The groups being watched.
#[derive(Debug, Default)]
pub(super) struct Emptying {
    /// By epoll token: the process whose group is watched, and the descriptor that epoll polls. Closing the descriptor also removes it from
    /// epoll.
    groups: BTreeMap<u64, (ProcessId, OwnedFd)>,
    tokens: BTreeMap<ProcessId, u64>,
}

impl Emptying {
    /// Registers the control group of a process with epoll under this token. Does nothing if it is already watched or if [`WATCHED_MAX`]
    /// groups are. Epoll reports the token when the group becomes empty, and once after registration, since the group may already be empty.
    pub(super) fn watch(&mut self, epoll: &OwnedFd, token: u64, (id, group): (ProcessId, &Path)) {
        if self.tokens.contains_key(&id) || self.groups.len() >= WATCHED_MAX {
            return;
        }
        // The group may no longer exist, or no descriptor may be available.
        let Ok(events) = cgroup::events(group) else {
            return;
        };
        // The file is never read: with edge triggering, epoll reports each change even so.
        let flags = epoll::EventFlags::PRI | epoll::EventFlags::ET;
        if epoll::add(epoll, &events, epoll::EventData::new_u64(token), flags).is_ok() {
            self.groups.insert(token, (id, events));
            self.tokens.insert(id, token);
        }
    }

    /// Returns the process whose group has this token, if any.
    pub(super) fn of(&self, token: u64) -> Option<ProcessId> {
        self.groups.get(&token).map(|(id, _)| *id)
    }

    /// Stops watching the group of a process.
    pub(super) fn forget(&mut self, id: ProcessId) {
        if let Some(token) = self.tokens.remove(&id) {
            drop(self.groups.remove(&token));
        }
    }
}
