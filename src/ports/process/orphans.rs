//! Reaps children that this process did not start. If it is PID 1, it inherits every orphan of its PID namespace and has to reap it.
//!
//! These children include processes left behind by a keeper. The status of such a process is read through its descriptor before it is
//! reaped, see `Real::status`; until then it is skipped here. Other processes are reaped, and their status is ignored.

use crate::actors::process::Message;
use crate::kernel::{proc, wait};
use crate::ports::process::follower::Follower;
use crate::ports::process::real::Real;
use crate::ports::process::world::World as _;
use std::io;

/// How long to wait before skipped children are checked again, in milliseconds.
const AGAIN_MS: u64 = 1000;

impl<R: FnMut(Message)> Follower<Real<R>> {
    /// Reaps ended children whose status is not read elsewhere.
    pub(super) fn reap(&mut self) {
        self.world.reap_keepers();
        let is_left = self.reap_strangers().unwrap_or_else(|error| {
            tracing::warn!("failed to reap ended processes: {error}");
            true
        });
        self.world.reaps_at = is_left.then(|| self.world.clock() + AGAIN_MS);
    }

    /// Reaps again if this is due.
    pub(super) fn reap_again(&mut self) {
        let now = self.world.clock();
        if self.world.reaps_at.is_some_and(|at| at <= now) {
            self.reap();
        }
    }

    /// Returns when to wake next without an event, by `World::clock`: the earliest deadline of the follower, the reaping or the notices.
    pub(super) fn next(&self) -> Option<u64> {
        let times = [self.deadline(), self.world.reaps_at, self.world.notices.next()];
        times.into_iter().flatten().min()
    }

    /// Reaps ended children, and returns whether some were skipped. The kernel reports the same ended child until it is reaped, so if that
    /// child must be skipped, all processes are searched for others.
    fn reap_strangers(&self) -> io::Result<bool> {
        while let Some(pid) = wait::ended()? {
            if self.is_awaited(pid) {
                return self.reap_among_all();
            }
            wait::reap_pid(pid)?;
        }
        Ok(false)
    }

    fn reap_among_all(&self) -> io::Result<bool> {
        let own = std::process::id();
        let mut is_left = false;
        for pid in proc::pids()? {
            let stat = proc::stat(pid)?;
            if !stat.is_some_and(|it| it.parent == own && it.is_zombie()) {
                continue;
            }
            if self.is_awaited(pid) {
                is_left = true;
            } else {
                wait::reap_pid(pid)?;
            }
        }
        Ok(is_left)
    }

    /// Returns whether the status of a child is or may be read elsewhere. While it is unknown whether an attempt was launched, any child
    /// may be its process.
    fn is_awaited(&self, pid: u32) -> bool {
        let mut attempts = self.attempts.values();
        let may_be_launched = || {
            let mut attempts = self.attempts.values();
            self.may_report_ends() && attempts.any(|it| it.is_pending() && it.asked)
        };
        self.world.is_keeper(pid)
            || attempts.any(|it| it.ended.is_none() && it.identity.is_some_and(|it| it.pid == pid))
            || may_be_launched()
    }
}
