//! What a keeper does when something happens: a request, the end of a child, time. One thread, one epoll, nothing that blocks.
//! Connections are in `serving.rs`, children in `children.rs`.

use crate::keeper::attempts::Attempts;
use crate::keeper::client::Client;
use crate::keeper::log::Log;
use crate::keeper::parcels::Parcels;
use crate::keeper::poll::{Happening, Poll, Source};
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

/// The name of its lock in the data directory, which says its PID.
pub(super) const LOCK: &str = "keeper.lock";
/// How long a keeper stays at first, when whoever started it has yet to come.
const FIRST_IDLE_MS: u64 = 10_000;
/// How soon what could not be written is written again, in milliseconds.
const WRITE_AGAIN_MS: u64 = 1000;

/// What a keeper has of its directory and of the system.
pub(crate) struct Files {
    pub(crate) data: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) groups: Option<PathBuf>,
    /// Locked as long as it is open.
    pub(crate) lock: OwnedFd,
    pub(crate) listener: OwnedFd,
}

impl Files {
    /// Whether its lock is still where others look for it: without it nobody finds this keeper any more.
    fn are_there(&self) -> bool {
        let own = rustix::fs::fstat(&self.lock);
        let there = rustix::fs::lstat(self.data.join(LOCK));
        match (own, there) {
            (Ok(own), Ok(there)) => (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino),
            (_, Err(Errno::NOENT | Errno::NOTDIR)) => false,
            (_, Err(_)) | (Err(_), _) => true,
        }
    }
}

/// A keeper.
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
    /// Children on the way to their programs.
    pub(super) starting: BTreeMap<u32, Outcome>,
    /// When connections are accepted again, after that failed.
    pub(super) accepts_at: Option<u64>,
    /// When the log is written anew, if it is behind.
    writes_at: u64,
    /// Whether there may be children that have ended.
    pub(super) reaps: bool,
    /// Since when it holds nothing, and how long it then stays.
    idle_since: Option<u64>,
    pub(super) idle_ms: u64,
    is_over: bool,
}

impl Keeper {
    /// With what a log told.
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
            // One may have ended while another program was in our place.
            reaps: true,
            idle_since: None,
            idle_ms: FIRST_IDLE_MS,
            is_over: false,
        })
    }

    /// Keeps until there is nothing left to keep.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        while !self.is_over {
            for happening in self.poll.wait(self.patience())? {
                self.happen(happening)?;
            }
            if self.reaps {
                self.reap()?;
            }
            self.settle();
        }
        let are_there = self.files.are_there();
        if are_there {
            drop(std::fs::remove_file(&self.files.socket));
        } else if self.files.data.exists() {
            // What is there now may be of another keeper.
            return Ok(());
        }
        if let Some(groups) = &self.files.groups {
            drop(cgroup::remove(groups));
        }
        Ok(())
    }

    /// For how many seconds nothing but what happens matters.
    fn patience(&self) -> Option<i64> {
        let has_coordinator_alone = self.coordinator.is_some() && self.clients.len() == 1;
        let waits = !has_coordinator_alone
            || !self.parcels.is_empty()
            || self.accepts_at.is_some()
            || self.log.is_behind();
        match (self.reaps, waits) {
            (true, _) => Some(0),
            (false, true) => Some(1),
            (false, false) => None,
        }
    }

    fn happen(&mut self, happening: Happening) -> io::Result<()> {
        match happening.source {
            Source::Listener => self.accept(),
            Source::Signals => self.hear()?,
            Source::Client(number) => {
                if let Some(client) = self.clients.get_mut(&number) {
                    client.receive_if(happening.reads, happening.is_closed);
                    self.serve(number);
                }
            }
            Source::Starting(pid) => self.hear_of_start(pid),
        }
        Ok(())
    }

    /// A signal: children have ended, or somebody asks for an end, which has to wait for those that live.
    fn hear(&mut self) -> io::Result<()> {
        while let Some(signal) = self.signals.next()? {
            self.reaps = true;
            if signal != signals::CHILD && self.attempts.alive() == 0 {
                self.is_over = true;
            }
        }
        Ok(())
    }

    /// What follows from all that has happened, and from time.
    fn settle(&mut self) {
        let now = now();
        if let Some(number) = self.coordinator {
            self.serve(number);
        }
        self.parcels.expire(now);
        self.part_with_the_silent(now);
        self.accept_again(now);
        if self.log.is_behind() && now >= self.writes_at {
            // It stays behind, and is written another time.
            drop(self.log.compact(self.attempts.records()));
            self.writes_at = now + WRITE_AGAIN_MS;
        }
        self.leave_if_idle(now);
    }

    fn leave_if_idle(&mut self, now: u64) {
        let is_idle = self.parcels.is_empty()
            && self.clients.is_empty()
            && (self.attempts.is_empty() || self.is_forsaken())
            && matches!(self.reap(), Ok(Children::None));
        if !is_idle {
            self.idle_since = None;
            return;
        }
        let since = *self.idle_since.get_or_insert(now);
        self.is_over |= now >= since + self.idle_ms;
    }

    /// Whether nobody can come for what it holds: nothing of that lives, and its directory was removed.
    fn is_forsaken(&self) -> bool {
        self.attempts.alive() == 0 && !self.files.are_there()
    }
}

/// Milliseconds since the boot.
pub(super) fn now() -> u64 {
    milliseconds(ClockId::Monotonic)
}

/// Milliseconds since 1970.
pub(super) fn wall() -> u64 {
    milliseconds(ClockId::Realtime)
}

fn milliseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let part = u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000;
    seconds.saturating_mul(1000).saturating_add(part)
}
