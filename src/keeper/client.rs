//! A connection: received bytes that are not yet parsed, and output that is not yet sent.
//!
//! Reports themselves are not queued, only the attempts they concern. A report is derived from the current state when there is room for it.
//! So a slow reader costs a bounded amount of memory and never receives stale reports.

use crate::ids::ProcessId;
use crate::keeper::attempts::Attempts;
use crate::keeper::frame::{self, Front};
use crate::keeper::protocol::{Inheritance, Report, Request};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The maximum number of bytes read at once. Most requests are shorter. A larger buffer would slow down launches: each launch forks the
/// keeper, and every page of the buffer written after that has to be copied or faulted in again.
const READ: usize = 8 << 10;
/// The amount of waiting output, in bytes, at which no more reports are derived.
const OUTPUT_MAX: usize = 64 << 10;
/// The number of waiting answers at which no more requests are read.
const ANSWERS_MAX: usize = 1024;
/// The maximum number of waiting changes; beyond that, all attempts are reported instead.
const CHANGES_MAX: usize = 4096;
/// The maximum number of received descriptors that wait on a connection: those of a parcel (see `parcels.rs`), and one more so that an
/// excess is noticed.
const FDS_MAX: usize = 3 + Inheritance::DESCRIPTORS_MAX + 1;

/// The role of the peer of a connection.
#[derive(Debug)]
pub(crate) enum Role {
    /// The client has not introduced itself.
    Unknown,
    Coordinator(Box<Feed>),
    /// A client that handed over the parcel with this ticket; if it disconnects before the launch, the parcel is dropped.
    ParcelOwner {
        /// The ticket of the parcel.
        ticket: u128,
        /// Whether the parcel waits until the connection closes, rather than for a minute.
        stays: bool,
    },
    /// A client whose final answer is in the output; the connection closes once that answer has been sent.
    Done,
}

/// The progress of a report on all attempts.
#[derive(Debug, Default)]
enum Walk {
    /// No report is in progress.
    #[default]
    Over,
    /// The report starts with the first attempt.
    First,
    /// The report continues after this attempt.
    After(ProcessId),
}

/// The reports due to a coordinator.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    walk: Walk,
    /// Whether [`Report::Told`] is sent when the report of all attempts is complete.
    reports_end: bool,
    /// Attempts that a request asked about or launched. If one is not held, it is reported as absent.
    answers: VecDeque<ProcessId>,
    /// Attempts that have changed since they were last reported.
    changes: VecDeque<ProcessId>,
}

impl Feed {
    /// Creates the feed of a coordinator that has just connected.
    pub(crate) fn new() -> Self {
        Self { walk: Walk::First, reports_end: true, ..Self::default() }
    }

    /// Queues a report on an attempt as the answer to a request.
    pub(crate) fn answer(&mut self, attempt: ProcessId) {
        self.answers.push_back(attempt);
    }

    /// Queues a report on an attempt that has changed. If [`CHANGES_MAX`] changes are already waiting, all attempts are reported instead.
    pub(crate) fn change(&mut self, attempt: ProcessId) {
        if self.changes.len() < CHANGES_MAX {
            self.changes.push_back(attempt);
        } else {
            self.changes.clear();
            self.walk = Walk::First;
        }
    }

    /// Returns the next report, if any.
    fn next(&mut self, attempts: &Attempts) -> Option<Report> {
        loop {
            let after = match self.walk {
                Walk::Over => break,
                Walk::First => None,
                Walk::After(attempt) => Some(attempt),
            };
            let Some(attempt) = attempts.after(after) else {
                self.walk = Walk::Over;
                if std::mem::take(&mut self.reports_end) {
                    return Some(Report::Told);
                }
                break;
            };
            self.walk = Walk::After(attempt);
            if let Some(report) = attempts.report(attempt) {
                return Some(report);
            }
        }
        while let Some(attempt) = self.answers.pop_front() {
            match attempts.report(attempt) {
                Some(report) => return Some(report),
                None if attempts.get(attempt).is_none() => return Some(Report::Absent { attempt }),
                // The attempt is being started; the outcome will be reported as a change.
                None => {}
            }
        }
        while let Some(attempt) = self.changes.pop_front() {
            if let Some(report) = attempts.report(attempt) {
                return Some(report);
            }
        }
        None
    }
}

/// A connection to a keeper.
pub(crate) struct Client {
    socket: OwnedFd,
    pub(crate) role: Role,
    input: Vec<u8>,
    output: Vec<u8>,
    fds: Vec<OwnedFd>,
    /// When it was accepted, in milliseconds since boot.
    pub(crate) since: u64,
    has_ended: bool,
}

impl Client {
    /// Wraps a non-blocking connection that was just accepted.
    pub(crate) const fn new(socket: OwnedFd, since: u64) -> Self {
        Self {
            socket,
            role: Role::Unknown,
            input: Vec::new(),
            output: Vec::new(),
            fds: Vec::new(),
            since,
            has_ended: false,
        }
    }

    /// Returns the feed of reports if the client is a coordinator.
    pub(crate) const fn feed(&mut self) -> Option<&mut Feed> {
        match &mut self.role {
            Role::Coordinator(feed) => Some(feed),
            Role::Unknown | Role::ParcelOwner { .. } | Role::Done => None,
        }
    }

    /// Returns how many bytes are allocated for unfinished requests.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.input.capacity()
    }

    /// Returns whether the connection can be closed: the peer closed it, it failed, or its final answer has been sent.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended || (matches!(self.role, Role::Done) && self.output.is_empty())
    }

    /// Returns whether [`OUTPUT_MAX`] bytes of output or [`ANSWERS_MAX`] answers are waiting, so that no more requests should be read.
    pub(crate) fn is_output_full(&self) -> bool {
        let answers = match &self.role {
            Role::Coordinator(feed) => feed.answers.len(),
            Role::Unknown | Role::ParcelOwner { .. } | Role::Done => 0,
        };
        self.output.len() >= OUTPUT_MAX || answers >= ANSWERS_MAX
    }

    /// Returns whether to wait until the socket is readable, and whether to wait until it is writable.
    pub(crate) fn interest(&self) -> (bool, bool) {
        let reads = !self.is_output_full() && !matches!(self.role, Role::Done);
        (reads, !self.output.is_empty())
    }

    /// Reads once if there is data; otherwise, marks the connection as ended if the peer has closed it.
    pub(crate) fn receive_if(&mut self, reads: bool, is_closed: bool) {
        if reads {
            self.receive();
        } else {
            self.has_ended |= is_closed;
        }
    }

    fn receive(&mut self) {
        let at = self.input.len();
        self.input.resize(at + READ, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let place = self.input.get_mut(at..).unwrap_or_default();
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(&self.socket, &mut [IoSliceMut::new(place)], &mut control, flags);
        let count = match received {
            Ok(message) => {
                self.has_ended |= message.bytes == 0;
                message.bytes
            }
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(_) => {
                self.has_ended = true;
                0
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        self.fds.truncate(FDS_MAX);
        self.input.truncate(at + count);
        if self.input.is_empty() {
            self.input = Vec::new();
        }
    }

    /// Takes the next request, with its length in bytes; `None` if it has not arrived completely. Returns a description of the problem if
    /// the request is invalid.
    pub(crate) fn take(&mut self) -> Result<Option<(Request, usize)>, String> {
        match frame::front(&self.input) {
            Front::Whole(request, length) => {
                self.input.drain(..length);
                if self.input.is_empty() {
                    self.input = Vec::new();
                }
                Ok(Some((request, length)))
            }
            Front::Part(length) => {
                let missing = length.saturating_sub(self.input.len());
                // At most `READ` bytes are reserved at a time, so that a client cannot make us allocate an announced length without sending
                // that much.
                self.input.reserve_exact(missing.min(READ));
                Ok(None)
            }
            Front::Broken(words) => Err(words),
        }
    }

    /// Takes the descriptors that have arrived.
    pub(crate) fn take_fds(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.fds)
    }

    /// Appends a report to the output, ahead of the reports on queued attempts.
    pub(crate) fn report(&mut self, report: &Report) {
        frame::put(report, &mut self.output);
    }

    /// Refuses a request: reports the reason, after which the connection closes.
    pub(crate) fn refuse(&mut self, reason: impl Into<String>) {
        let reason = reason.into();
        self.report(&Report::Refused { reason });
        self.role = Role::Done;
        self.input = Vec::new();
    }

    /// Derives reports while there is room, and sends as much as the socket accepts.
    pub(crate) fn send(&mut self, attempts: &Attempts) {
        loop {
            if let Role::Coordinator(feed) = &mut self.role {
                while self.output.len() < OUTPUT_MAX
                    && let Some(report) = feed.next(attempts)
                {
                    frame::put(&report, &mut self.output);
                }
            }
            if self.output.is_empty() {
                self.output = Vec::new();
                return;
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.socket, &self.output, flags) {
                Ok(count) => {
                    self.output.drain(..count);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.has_ended = true;
                    return;
                }
            }
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::{CHANGES_MAX, Feed};
    use crate::ids::ProcessId;
    use crate::keeper::attempts::Attempts;
    use crate::keeper::protocol::Report;

    fn drained(feed: &mut Feed, attempts: &Attempts) -> Vec<Report> {
        std::iter::from_fn(|| feed.next(attempts)).collect()
    }

    #[test]
    fn all_is_told_first_and_an_overflow_tells_it_again() {
        let mut attempts = Attempts::default();
        attempts.fail(ProcessId(1), 9, 2);
        let mut feed = Feed::new();
        feed.answer(ProcessId(2));
        feed.change(ProcessId(3));
        let failed = Report::Failed { attempt: ProcessId(1), step: 9, errno: 2 };
        let absent = Report::Absent { attempt: ProcessId(2) };
        let wanted = [failed.clone(), Report::Told, absent];
        assert_eq!(drained(&mut feed, &attempts), wanted);
        for _ in 0..=CHANGES_MAX {
            feed.change(ProcessId(3));
        }
        assert!(feed.changes.is_empty(), "an overflow drops the changes");
        assert_eq!(drained(&mut feed, &attempts), [failed]);
    }
}
