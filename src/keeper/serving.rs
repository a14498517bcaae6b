//! Client connections of a keeper: accepting them, answering requests, closing them.

use crate::keeper::client::{Client, Feed, Role};
use crate::keeper::core::{Keeper, now};
use crate::keeper::parcels::{STAYS, until};
use crate::keeper::poll::Source;
use crate::keeper::protocol::{Inheritance, PARCEL_SECONDS, Parcel, Report, Request, VERSION};
use crate::kernel::host;
use crate::kernel::socket::Peers;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The maximum number of open connections.
const CLIENTS_MAX: usize = 128;
/// The maximum number of bytes allocated for the unfinished requests of all clients that have not introduced themselves.
const UNKNOWN_BYTES_MAX: usize = 16 << 20;
/// The number of children that have not executed their programs yet at which the coordinator's requests have to wait.
const STARTING_MAX: usize = 256;
/// How long after connecting a client may take to introduce itself, or to receive its refusal, in milliseconds.
const INTRODUCTION_MS: u64 = 10_000;
/// The pause after a failure to accept a connection, in milliseconds.
const PAUSE_MS: u64 = 1000;
/// How long a keeper waits before it exits when idle, in milliseconds; it waits longer for its first coordinator.
const IDLE_MS: u64 = 1000;

impl Keeper {
    /// Accepts all waiting connections.
    pub(super) fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            let socket = match accept_with(&self.files.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    // Without a pause, running out of descriptors would cause a busy loop.
                    self.accepts_at = Some(now() + PAUSE_MS);
                    self.update_listening();
                    return;
                }
            };
            let Some((socket, _)) = Peers::Own.admit(socket) else {
                continue;
            };
            let mut client = Client::new(socket, now());
            if self.clients.len() >= CLIENTS_MAX {
                client.refuse(format!("{CLIENTS_MAX} connections are open, which is the limit"));
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

    /// Resumes accepting connections when the pause after a failure is over.
    pub(super) fn accept_again(&mut self, now: u64) {
        if self.accepts_at.is_some_and(|at| now >= at) {
            self.accepts_at = None;
            self.update_listening();
        }
    }

    fn update_listening(&self) {
        let interest = (self.accepts_at.is_none(), false);
        self.poll.set(&self.files.listener, Source::Listener, interest);
    }

    /// Handles the requests of a client and sends the answers, until no whole request is left, or the client must wait (see
    /// [`Client::is_output_full`] and `waits_for_starts`). Then closes the connection if [`Client::is_over`] returns `true`.
    pub(super) fn serve(&mut self, number: u32) {
        let Some(mut client) = self.clients.remove(&number) else {
            return;
        };
        loop {
            client.send(&self.attempts);
            if client.is_over() || client.is_output_full() || self.waits_for_starts(number) {
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
            client.refuse("unfinished requests take up too much memory");
            client.send(&self.attempts);
        }
        if client.is_over() {
            self.disconnect(number, &client);
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
        let interest = (reads && !self.waits_for_starts(number), writes);
        self.poll.set(client, Source::Client(number), interest);
    }

    /// Returns whether requests of this client must wait because [`STARTING_MAX`] children have not executed their programs yet. Only the
    /// coordinator may be kept waiting, because no other client is served again after each round of events.
    fn waits_for_starts(&self, number: u32) -> bool {
        self.coordinator == Some(number) && self.starting.len() >= STARTING_MAX
    }

    /// Closes connections that have exceeded their time limit. The coordinator has no limit, nor has a client whose parcel waits until its
    /// connection closes.
    pub(super) fn close_expired(&mut self, now: u64) {
        let is_late = |client: &Client| {
            let most = match client.role {
                Role::ParcelOwner { stays: true, .. } => return false,
                Role::ParcelOwner { stays: false, .. } => PARCEL_SECONDS * 1000,
                Role::Unknown | Role::Coordinator(_) | Role::Done => INTRODUCTION_MS,
            };
            now >= client.since + most
        };
        let others = self.clients.iter().filter(|(number, _)| Some(**number) != self.coordinator);
        let late: Vec<u32> =
            others.filter(|(_, it)| is_late(it)).map(|(number, _)| *number).collect();
        for number in late {
            if let Some(client) = self.clients.remove(&number) {
                self.disconnect(number, &client);
            }
        }
    }

    fn disconnect(&mut self, number: u32, client: &Client) {
        self.poll.remove(client);
        if let Role::ParcelOwner { ticket, .. } = client.role {
            // This also closes the parcel's streams: a process at their other end may be waiting for that.
            drop(self.parcels.take(ticket));
        }
        if self.coordinator == Some(number) {
            self.coordinator = None;
        }
    }

    fn answer(&mut self, number: u32, client: &mut Client, request: Request, bytes: usize) {
        match request {
            Request::Hello { version: _ } => self.welcome(number, client),
            Request::Parcel { ticket, parcel, stays } => {
                let given = (ticket, *parcel, Inheritance::default());
                self.take_parcel(number, client, given, (stays, bytes));
            }
            Request::Inheritance { ticket, parcel, stays, inheritance } => {
                let given = (ticket, *parcel, *inheritance);
                self.take_parcel(number, client, given, (stays, bytes));
            }
            _ if self.coordinator != Some(number) => {
                client.refuse("a coordinator must send `Hello` first");
            }
            Request::Launch { attempt, launch } => {
                if let Some((step, errno)) = self.launch(attempt, &launch) {
                    client.report(&Report::Failed { attempt, step, errno });
                } else if let Some(feed) = client.feed() {
                    feed.answer(attempt);
                }
            }
            Request::Forget { attempts } => self.forget(&attempts),
            Request::Upgrade { program } => {
                let program = Path::new(std::ffi::OsStr::from_bytes(program.as_bytes()));
                if let Some(reason) = self.upgrade(program) {
                    client.report(&Report::Refused { reason });
                }
            }
            Request::Ask { attempt } => {
                if let Some(feed) = client.feed() {
                    feed.answer(attempt);
                }
            }
        }
    }

    fn take_parcel(
        &mut self,
        number: u32,
        client: &mut Client,
        given: (u128, Parcel, Inheritance),
        (stays, bytes): (bool, usize),
    ) {
        if self.coordinator == Some(number) {
            return client.refuse("a coordinator cannot hand over parcels");
        }
        let (ticket, fds) = (given.0, client.take_fds());
        let until = if stays { STAYS } else { until(now()) };
        match self.parcels.put(given, fds, bytes, until) {
            Ok(()) => {
                client.report(&Report::Taken { ticket });
                client.role = Role::ParcelOwner { ticket, stays };
            }
            Err(words) => client.refuse(words),
        }
    }

    /// Welcomes a new coordinator, which replaces any earlier one.
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
}
