//! The event loop of a keeper: requests, ends of children, and timeouts. A keeper has one thread, which waits for nothing but its epoll
//! instance. Connections are handled in `serving.rs`, children in `children.rs`.

use crate::keeper::attempts::Attempts;
use crate::keeper::client::Client;
use crate::keeper::log::Log;
use crate::keeper::parcels::Parcels;
use crate::keeper::poll::{Poll, PollEvent, Source};
use crate::kernel::cgroup;
use crate::kernel::signals::{self, Signals};
use crate::kernel::spawn::Outcome;
use crate::kernel::wait::Children;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// The name of the lock file in the data directory, which contains the keeper's PID.
pub(super) const LOCK: &str = "keeper.lock";
/// How long an idle keeper waits before it exits if no coordinator has connected yet, in milliseconds.
const FIRST_IDLE_MS: u64 = 10_000;
/// The delay before a failed rewrite of the log is repeated, in milliseconds.
const WRITE_AGAIN_MS: u64 = 1000;

/// The files and sockets that a keeper uses.
pub(crate) struct Files {
    pub(crate) data: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) groups: Option<PathBuf>,
    /// The lock file; it stays locked while this descriptor is open.
    pub(crate) lock: OwnedFd,
    pub(crate) listener: OwnedFd,
}

impl Files {
    /// Returns whether the lock file still exists under its name: without it, no coordinator can find this keeper. Also returns `true` if
    /// that cannot be determined.
    fn is_lock_file_present(&self) -> bool {
        let own = rustix::fs::fstat(&self.lock);
        let there = rustix::fs::lstat(self.data.join(LOCK));
        match (own, there) {
            (Ok(own), Ok(there)) => (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino),
            (_, Err(Errno::NOENT | Errno::NOTDIR)) => false,
            (_, Err(_)) | (Err(_), _) => true,
        }
    }
}

/// A keeper: the state of its event loop.
pub(crate) struct Keeper {
    pub(super) files: Files,
    signals: Signals,
    pub(super) poll: Poll,
    pub(super) attempts: Attempts,
    pub(super) log: Log,
    pub(super) parcels: Parcels,
    pub(super) clients: BTreeMap<u32, Client>,
    pub(super) clients_seen: u32,
    pub(super) coordinator: Option<u32>,
    /// The outcome pipes of children that have not executed their programs yet, by PID.
    pub(super) starting: BTreeMap<u32, Outcome>,
    /// After `accept` has failed, when to try again, in milliseconds since boot.
    pub(super) accepts_at: Option<u64>,
    /// The earliest time at which an incomplete log is rewritten, in milliseconds since boot.
    writes_at: u64,
    /// Whether children may have ended that are not reaped yet.
    pub(super) reaps: bool,
    /// When the keeper became idle, in milliseconds since boot; `None` if it is not idle.
    idle_since: Option<u64>,
    /// How long an idle keeper waits before it exits, in milliseconds.
    pub(super) idle_ms: u64,
    is_over: bool,
}

impl Keeper {
    /// Creates a keeper with the attempts restored from a log.
    pub(crate) fn new(
        files: Files,
        signals: Signals,
        attempts: Attempts,
        log: Log,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        poll.add(&files.listener, Source::Listener)?;
        poll.add(&signals, Source::Signals)?;
        Ok(Self {
            files,
            signals,
            poll,
            attempts,
            log,
            parcels: Parcels::default(),
            clients: BTreeMap::new(),
            clients_seen: 0,
            coordinator: None,
            starting: BTreeMap::new(),
            accepts_at: None,
            writes_at: 0,
            // After an upgrade, a child may have ended while the previous program still ran in this process.
            reaps: true,
            idle_since: None,
            idle_ms: FIRST_IDLE_MS,
            is_over: false,
        })
    }

    /// Runs until the keeper has been idle for `idle_ms`, or receives a signal to terminate while no child is alive. Then removes its
    /// socket and its control group, unless they may belong to another keeper by now.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        while !self.is_over {
            for event in self.poll.wait(self.timeout())? {
                self.handle_event(event)?;
            }
            if self.reaps {
                self.reap()?;
            }
            self.settle();
        }
        let is_lock_file_present = self.files.is_lock_file_present();
        if is_lock_file_present {
            drop(std::fs::remove_file(&self.files.socket));
        } else if self.files.data.exists() {
            // The files that exist now may belong to another keeper.
            return Ok(());
        }
        if let Some(groups) = &self.files.groups {
            drop(cgroup::remove(groups));
        }
        Ok(())
    }

    /// Returns how many seconds to wait for events; `None` to wait indefinitely.
    fn timeout(&self) -> Option<i64> {
        let has_coordinator_alone = self.coordinator.is_some() && self.clients.len() == 1;
        let waits = !has_coordinator_alone
            || !self.parcels.is_empty()
            || self.accepts_at.is_some()
            || self.log.is_incomplete();
        match (self.reaps, waits) {
            (true, _) => Some(0),
            (false, true) => Some(1),
            (false, false) => None,
        }
    }

    fn handle_event(&mut self, event: PollEvent) -> io::Result<()> {
        match event.source {
            Source::Listener => self.accept(),
            Source::Signals => self.receive()?,
            Source::Client(number) => {
                if let Some(client) = self.clients.get_mut(&number) {
                    client.receive_if(event.reads, event.is_closed);
                    self.serve(number);
                }
            }
            Source::Starting(pid) => self.note_start(pid),
        }
        Ok(())
    }

    /// Handles pending signals: `SIGCHLD`, and signals to terminate, which are ignored while children are alive.
    fn receive(&mut self) -> io::Result<()> {
        while let Some(signal) = self.signals.next()? {
            self.reaps = true;
            if signal != signals::CHILD && self.attempts.alive() == 0 {
                self.is_over = true;
            }
        }
        Ok(())
    }

    /// Does the work that is due after each batch of events: serves the coordinator, enforces time limits, rewrites an incomplete log, and
    /// ends the keeper if it has been idle for too long.
    fn settle(&mut self) {
        let now = now();
        if let Some(number) = self.coordinator {
            self.serve(number);
        }
        self.parcels.expire(now);
        self.close_expired(now);
        self.accept_again(now);
        if self.log.is_incomplete() && now >= self.writes_at {
            // If this fails, the log stays incomplete and is rewritten later.
            drop(self.log.compact(self.attempts.records()));
            self.writes_at = now + WRITE_AGAIN_MS;
        }
        self.leave_if_idle(now);
    }

    fn leave_if_idle(&mut self, now: u64) {
        let is_idle = self.parcels.is_empty()
            && self.clients.is_empty()
            && (self.attempts.is_empty() || self.is_unclaimable())
            && matches!(self.reap(), Ok(Children::None));
        if !is_idle {
            self.idle_since = None;
            return;
        }
        let since = *self.idle_since.get_or_insert(now);
        self.is_over |= now >= since + self.idle_ms;
    }

    /// Returns whether the attempts held can be abandoned: no child is alive, and no coordinator can find this keeper, because its lock
    /// file was removed or replaced.
    fn is_unclaimable(&self) -> bool {
        self.attempts.alive() == 0 && !self.files.is_lock_file_present()
    }
}

/// Returns milliseconds since boot.
pub(super) fn now() -> u64 {
    milliseconds(ClockId::Monotonic)
}

/// Returns milliseconds since the Unix epoch.
pub(super) fn wall() -> u64 {
    milliseconds(ClockId::Realtime)
}

fn milliseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let part = u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000;
    seconds.saturating_mul(1000).saturating_add(part)
}
