//! What a keeper does when something happens: a request, the end of a child, time. One thread, one epoll, nothing that blocks.

use crate::ids::ProcessId;
use crate::keeper::attempts::Attempts;
use crate::keeper::client::{Client, Feed, Role, is_allowed};
use crate::keeper::launch::{self, Failed, step_of};
use crate::keeper::log::Log;
use crate::keeper::parcels::{Parcels, Waiting};
use crate::keeper::poll::{Happening, Poll, Source};
use crate::keeper::protocol::{ATTEMPTS_MAX, Launch, Report, Request, VERSION, step};
use crate::keeper::record::Record;
use crate::keeper::upgrade::{self, Carried, CarriedParcel};
use crate::kernel::signals::{self, Signals};
use crate::kernel::spawn::{Outcome, inherited};
use crate::kernel::wait::{self, Children, Ended};
use crate::kernel::{cgroup, host};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The most connections.
const CLIENTS_MAX: usize = 128;
/// How long a connection may take to say what it is.
const INTRODUCTION_MS: u64 = 10_000;
/// The most bytes of unfinished requests of those that have not.
const UNKNOWN_BYTES_MAX: usize = 16 << 20;
/// The most children on the way to their programs, before no more are launched.
const STARTING_MAX: usize = 256;
/// The most children reaped before others have their turn.
const REAPED_MAX: usize = 1024;
/// How long a keeper stays that holds nothing, and at first, when whoever started it has yet to come.
const IDLE_MS: u64 = 1000;
const FIRST_IDLE_MS: u64 = 10_000;

/// What a keeper has of its directory and of the system.
pub(crate) struct Files {
    pub(crate) data: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) groups: Option<PathBuf>,
    /// Locked as long as it is open.
    pub(crate) lock: OwnedFd,
    pub(crate) listener: OwnedFd,
}

/// A keeper.
pub(crate) struct Keeper {
    files: Files,
    signals: Signals,
    poll: Poll,
    attempts: Attempts,
    log: Log,
    parcels: Parcels,
    clients: BTreeMap<u32, Client>,
    clients_seen: u32,
    coordinator: Option<u32>,
    /// Children on the way to their programs.
    starting: BTreeMap<u32, Outcome>,
    /// Whether connections are accepted: not for a moment after that failed.
    accepts: bool,
    /// Whether there may be children that have ended.
    reaps: bool,
    /// Since when it holds nothing, and how long it then stays.
    idle_since: Option<u64>,
    idle_ms: u64,
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
            accepts: true,
            // One may have ended while another program was in our place.
            reaps: true,
            idle_since: None,
            idle_ms: FIRST_IDLE_MS,
            is_over: false,
        })
    }

    /// Takes over what is in no log.
    pub(crate) fn unpack(&mut self, carried: Carried) {
        for parcel in carried.parcels {
            let [input, output, errors] = parcel.streams.map(inherited);
            if let (Ok(input), Ok(output), Ok(errors)) = (input, output, errors) {
                self.parcels.push(Waiting {
                    ticket: parcel.ticket,
                    parcel: parcel.parcel,
                    streams: [input, output, errors],
                    bytes: parcel.bytes,
                    until: parcel.until,
                });
            }
        }
        for (pid, outcome) in carried.starting {
            if let (Some(attempt), Ok(fd)) = (self.attempts.of_child(pid), inherited(outcome)) {
                self.attempts.restart(attempt);
                self.follow(pid, Outcome::from_fd(fd));
            }
        }
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
        drop(std::fs::remove_file(&self.files.socket));
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
            || !self.accepts
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

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            let socket = match accept_with(&self.files.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    // Without descriptors it would be tried again at once, and for ever.
                    self.accepts = false;
                    self.listen_or_not();
                    return;
                }
            };
            // Who may not ask is not answered.
            if !is_allowed(&socket).unwrap_or(false) {
                continue;
            }
            let mut client = Client::new(socket, now());
            if self.clients.len() >= CLIENTS_MAX {
                client.refuse(format!("{CLIENTS_MAX} connections are open"));
                client.send(&self.attempts);
                continue;
            }
            self.clients_seen = self.clients_seen.wrapping_add(1);
            let number = self.clients_seen;
            if self.poll.add(&client, Source::Client(number)).is_ok() {
                self.clients.insert(number, client);
            }
        }
    }

    fn listen_or_not(&self) {
        let interest = (self.accepts, false);
        self.poll
            .set(&self.files.listener, Source::Listener, interest);
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

    /// Lets a client have all that it has asked for, as far as it takes the answers.
    fn serve(&mut self, number: u32) {
        let Some(mut client) = self.clients.remove(&number) else {
            return;
        };
        loop {
            client.send(&self.attempts);
            let is_busy = self.starting.len() >= STARTING_MAX;
            if client.is_over() || client.is_choked() || is_busy {
                break;
            }
            match client.take() {
                Ok(Some((request, bytes))) => self.answer(number, &mut client, request, bytes),
                Ok(None) => break,
                Err(words) => client.refuse(words),
            }
        }
        let unknown = self.unknown_bytes();
        if matches!(client.role, Role::Unknown) && unknown + client.held_bytes() > UNKNOWN_BYTES_MAX
        {
            client.refuse("too many requests are unfinished");
            client.send(&self.attempts);
        }
        if client.is_over() {
            self.part(number, &client);
        } else {
            self.watch(number, &client);
            self.clients.insert(number, client);
        }
    }

    fn unknown_bytes(&self) -> usize {
        let clients = self.clients.values();
        let unknown = clients.filter(|client| matches!(client.role, Role::Unknown));
        unknown.map(Client::held_bytes).sum()
    }

    fn watch(&self, number: u32, client: &Client) {
        let (reads, writes) = client.interest();
        let interest = (reads && self.starting.len() < STARTING_MAX, writes);
        self.poll.set(client, Source::Client(number), interest);
    }

    fn part(&mut self, number: u32, client: &Client) {
        self.poll.remove(client);
        if self.coordinator == Some(number) {
            self.coordinator = None;
        }
    }

    fn answer(&mut self, number: u32, client: &mut Client, request: Request, bytes: usize) {
        match request {
            Request::Hello { version: _ } => self.welcome(number, client),
            Request::Parcel { ticket, parcel } => {
                if self.coordinator == Some(number) {
                    return client.refuse("a coordinator hands over no parcels");
                }
                let fds = client.take_fds();
                match self.parcels.put((ticket, *parcel), fds, bytes, now()) {
                    Ok(()) => {
                        client.report(&Report::Taken { ticket });
                        client.role = Role::Done;
                    }
                    Err(words) => client.refuse(words),
                }
            }
            _ if self.coordinator != Some(number) => {
                client.refuse("a coordinator says hello first");
            }
            Request::Launch { attempt, launch } => {
                if let Some((step, errno)) = self.launch(attempt, &launch) {
                    client.report(&Report::Failed {
                        attempt,
                        step,
                        errno,
                    });
                } else if let Some(feed) = client.feed() {
                    feed.answer(attempt);
                }
            }
            Request::Forget { attempts } => self.forget(&attempts),
            Request::Upgrade { program } => {
                let program = Path::new(std::ffi::OsStr::from_bytes(program.as_bytes()));
                let reason = self.upgrade(program);
                client.report(&Report::Refused { reason });
            }
            Request::Ask { attempt } => {
                if let Some(feed) = client.feed() {
                    feed.answer(attempt);
                }
            }
        }
    }

    /// The newest coordinator is the one.
    fn welcome(&mut self, number: u32, client: &mut Client) {
        if let Some(before) = self.coordinator.replace(number)
            && let Some(other) = self.clients.remove(&before)
        {
            self.poll.remove(&other);
        }
        client.report(&Report::Welcome {
            version: VERSION,
            pid: std::process::id(),
            boot: host::boot(),
            groups: self.files.groups.as_ref().map(|path| {
                let bytes = path.as_os_str().as_bytes();
                crate::bytes::Bytes::new(bytes)
            }),
        });
        client.role = Role::Coordinator(Box::new(Feed::new()));
        self.idle_ms = IDLE_MS;
    }

    /// Launches an attempt that is not held. What is returned is no outcome of the attempt: it may be asked for again.
    fn launch(&mut self, attempt: ProcessId, launch: &Launch) -> Option<Failed> {
        if self.attempts.get(attempt).is_some() {
            return None;
        }
        if self.attempts.len() >= ATTEMPTS_MAX {
            return Some((step::FULL, 0));
        }
        let intent = Record::Intent(attempt);
        if let Err(error) = self.log.intend(intent, self.attempts.len()) {
            return Some((step::LOG, error.raw_os_error().unwrap_or(0)));
        }
        let failed = match self.try_launch(attempt, launch) {
            Ok(()) => return None,
            Err((step::LOG, errno)) => return Some((step::LOG, errno)),
            Err(failed) => failed,
        };
        self.fail(attempt, failed);
        None
    }

    fn try_launch(&mut self, attempt: ProcessId, launch: &Launch) -> Result<(), Failed> {
        let parcel = match launch.parcel {
            Some(ticket) => Some(self.parcels.take(ticket).ok_or((step::PARCEL, 0))?),
            None => None,
        };
        let ready = launch::prepare(launch, parcel)?;
        let groups = self.files.groups.as_deref();
        let (spawned, started) = launch::start(attempt, &ready, groups, wall())?;
        if let Err(error) = self.log.append(Record::Started(started)) {
            // It is dropped without leave, and ends without having run.
            return Err((step::LOG, error.raw_os_error().unwrap_or(0)));
        }
        self.attempts.start(started);
        // Whoever was killed meanwhile has an end of its own to report.
        if let Ok(outcome) = spawned.release() {
            self.follow(started.pid, outcome);
        } else {
            self.attempts.run(attempt);
        }
        Ok(())
    }

    fn fail(&mut self, attempt: ProcessId, (step, errno): Failed) {
        let record = Record::Failed {
            attempt,
            step,
            errno,
        };
        // If it cannot be written, the log is behind, and is written anew when there is room.
        drop(self.log.append(record));
        self.attempts.fail(attempt, step, errno);
    }

    /// Waits for a child to come as far as its program.
    fn follow(&mut self, pid: u32, outcome: Outcome) {
        // Without that, its end would still tell.
        drop(self.poll.add(&outcome, Source::Starting(pid)));
        self.starting.insert(pid, outcome);
        self.hear_of_start(pid);
    }

    fn hear_of_start(&mut self, pid: u32) {
        let Some(outcome) = self.starting.get_mut(&pid) else {
            return;
        };
        if let Some(read) = outcome.read() {
            self.started(pid, read);
        }
    }

    fn started(&mut self, pid: u32, outcome: Result<(), (crate::kernel::spawn::Step, i32)>) {
        if let Some(outcome) = self.starting.remove(&pid) {
            self.poll.remove(&outcome);
        }
        let Some(attempt) = self.attempts.of_child(pid) else {
            return;
        };
        match outcome {
            Ok(()) => self.attempts.run(attempt),
            Err((step, errno)) => self.fail(attempt, (step_of(step), errno)),
        }
        self.change(attempt);
    }

    /// Reaps who has ended, also those that were left behind below us.
    fn reap(&mut self) -> io::Result<Children> {
        for _ in 0..REAPED_MAX {
            match wait::reap()? {
                Children::Ended(ended) => self.end(&ended),
                rest @ (Children::Alive | Children::None) => {
                    self.reaps = false;
                    return Ok(rest);
                }
            }
        }
        self.reaps = true;
        Ok(Children::Alive)
    }

    fn end(&mut self, ended: &Ended) {
        if let Some(outcome) = self.starting.get_mut(&ended.pid) {
            // It said what failed before it ended.
            let outcome = outcome.read().unwrap_or(Ok(()));
            self.started(ended.pid, outcome);
        }
        if let Some(exited) = self.attempts.end(ended, wall()) {
            // If it cannot be written, the log is behind, and is written anew when there is room.
            drop(self.log.append(Record::of_end(&exited)));
            self.change(exited.started.attempt);
        }
    }

    fn change(&mut self, attempt: ProcessId) {
        let client = self
            .coordinator
            .and_then(|number| self.clients.get_mut(&number));
        if let Some(feed) = client.and_then(Client::feed) {
            feed.change(attempt);
        }
    }

    fn forget(&mut self, attempts: &[ProcessId]) {
        let mut forgotten = Vec::new();
        for attempt in attempts {
            let Some(held) = self.attempts.forget(*attempt) else {
                continue;
            };
            forgotten.push(*attempt);
            if let (Some(started), Some(groups)) = (held.started(), &self.files.groups)
                && started.contained
            {
                // One in which something lives stays; it goes with the keeper.
                drop(cgroup::remove(&groups.join(attempt.to_string())));
            }
        }
        self.log.forget(&forgotten);
        if self.log.is_mostly_past(self.attempts.len()) {
            // The old one is as good, only longer.
            drop(self.log.compact(self.attempts.records()));
        }
    }

    /// Executes this program in our place; if that returns, why not.
    fn upgrade(&mut self, program: &Path) -> String {
        if self.log.is_behind()
            && let Err(error) = self.log.compact(self.attempts.records())
        {
            return format!("the log has not all that is held: {error}");
        }
        let carried = Carried {
            parcels: self.parcels.iter().map(carried).collect(),
            starting: self
                .starting
                .iter()
                .map(|(pid, outcome)| (*pid, outcome.as_fd().as_raw_fd()))
                .collect(),
        };
        let streams = self.parcels.iter().flat_map(|waiting| &waiting.streams);
        let mut open: Vec<BorrowedFd<'_>> = streams.map(OwnedFd::as_fd).collect();
        open.extend(self.starting.values().map(Outcome::as_fd));
        let arguments = vec![
            "keeper".into(),
            "--data".into(),
            self.files.data.clone().into(),
        ];
        let files = (self.files.lock.as_fd(), self.files.listener.as_fd());
        let error = upgrade::become_program(program, arguments, files, (&carried, &open));
        format!("failed to execute {}: {error}", program.display())
    }

    /// What follows from all that has happened, and from time.
    fn settle(&mut self) {
        let now = now();
        if let Some(number) = self.coordinator {
            self.serve(number);
        }
        self.parcels.expire(now);
        let late: Vec<u32> = self
            .clients
            .iter()
            .filter(|(number, client)| {
                Some(**number) != self.coordinator && now >= client.since + INTRODUCTION_MS
            })
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            if let Some(client) = self.clients.remove(&number) {
                self.part(number, &client);
            }
        }
        if !self.accepts {
            self.accepts = true;
            self.listen_or_not();
        }
        if self.log.is_behind() {
            drop(self.log.compact(self.attempts.records()));
        }
        self.leave_if_idle(now);
    }

    fn leave_if_idle(&mut self, now: u64) {
        let is_idle = self.attempts.is_empty()
            && self.parcels.is_empty()
            && self.clients.is_empty()
            && matches!(self.reap(), Ok(Children::None));
        if !is_idle {
            self.idle_since = None;
            return;
        }
        let since = *self.idle_since.get_or_insert(now);
        self.is_over |= now >= since + self.idle_ms;
    }
}

fn carried(waiting: &Waiting) -> CarriedParcel {
    CarriedParcel {
        ticket: waiting.ticket,
        parcel: waiting.parcel.clone(),
        streams: waiting.streams.each_ref().map(AsRawFd::as_raw_fd),
        bytes: waiting.bytes,
        until: waiting.until,
    }
}

/// Milliseconds since the boot.
fn now() -> u64 {
    milliseconds(ClockId::Monotonic)
}

/// Milliseconds since 1970.
fn wall() -> u64 {
    milliseconds(ClockId::Realtime)
}

fn milliseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let part = u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000;
    seconds.saturating_mul(1000).saturating_add(part)
}
