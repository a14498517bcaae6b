//! A connection: what has come on it and waits to be understood, and what waits to leave.
//!
//! Reports are not kept: what waits is the attempts that they are about, and they are derived from what is held when
//! there is room for them. So a reader that is slow costs a bounded amount, and never sees what is no longer so.

use crate::ids::ProcessId;
use crate::keeper::attempts::Attempts;
use crate::keeper::frame::{self, Front};
use crate::keeper::protocol::{Report, Request};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How much is read at once: more than most requests have. Each page of it that is touched between two launches is copied or
/// faulted in again, since each launch shares all memory with a new process for a moment.
const READ: usize = 8 << 10;
/// How much may wait to leave before nothing more is derived.
const OUTPUT_MAX: usize = 64 << 10;
/// How many answers may wait before nothing more is read.
const ANSWERS_MAX: usize = 1024;
/// How many changes may wait before all that is held is reported instead.
const CHANGES_MAX: usize = 4096;
/// The most descriptors that come with a parcel, and one more, so that too many are noticed.
const FDS_MAX: usize = 4;

/// Who is at the other end.
#[derive(Debug)]
pub(crate) enum Role {
    /// It has not said.
    Unknown,
    /// The coordinator.
    Coordinator(Box<Feed>),
    /// It handed over the parcel of this ticket, and wants it back if it goes before the launch.
    Giver {
        /// The ticket.
        ticket: u128,
        /// Whether it may wait for the launch for as long as it likes.
        stays: bool,
    },
    /// It has been answered for good, and the connection ends when the answer has left.
    Done,
}

/// Whether all that is held is being reported.
#[derive(Debug, Default)]
enum Walk {
    /// It has been.
    #[default]
    Over,
    /// It begins.
    First,
    /// It goes on after this attempt.
    After(ProcessId),
}

/// What is to be reported to a coordinator.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    walk: Walk,
    /// Whether `Told` follows that.
    tells: bool,
    /// What was asked for: these are reported in any case.
    answers: VecDeque<ProcessId>,
    /// What has changed.
    changes: VecDeque<ProcessId>,
}

impl Feed {
    /// One for a coordinator that has just come.
    pub(crate) fn new() -> Self {
        Self {
            walk: Walk::First,
            tells: true,
            ..Self::default()
        }
    }

    /// An attempt was asked about.
    pub(crate) fn answer(&mut self, attempt: ProcessId) {
        self.answers.push_back(attempt);
    }

    /// Something has changed about an attempt.
    pub(crate) fn change(&mut self, attempt: ProcessId) {
        if self.changes.len() < CHANGES_MAX {
            self.changes.push_back(attempt);
        } else {
            self.changes.clear();
            self.walk = Walk::First;
        }
    }

    /// The next report, if there is any.
    fn next(&mut self, attempts: &Attempts) -> Option<Report> {
        loop {
            let after = match self.walk {
                Walk::Over => break,
                Walk::First => None,
                Walk::After(attempt) => Some(attempt),
            };
            let Some(attempt) = attempts.after(after) else {
                self.walk = Walk::Over;
                if std::mem::take(&mut self.tells) {
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
                // It is being started: what comes of it is a change.
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

/// A connection.
pub(crate) struct Client {
    socket: OwnedFd,
    pub(crate) role: Role,
    input: Vec<u8>,
    output: Vec<u8>,
    fds: Vec<OwnedFd>,
    /// Since when it is there, in milliseconds since the boot.
    pub(crate) since: u64,
    has_ended: bool,
}

impl Client {
    /// A connection that was accepted; it never blocks.
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

    /// The coordinator's reports, if it is one.
    pub(crate) const fn feed(&mut self) -> Option<&mut Feed> {
        match &mut self.role {
            Role::Coordinator(feed) => Some(feed),
            Role::Unknown | Role::Giver { .. } | Role::Done => None,
        }
    }

    /// How many bytes of unfinished requests it holds.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.input.capacity()
    }

    /// Whether nothing more will come of it.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended || (matches!(self.role, Role::Done) && self.output.is_empty())
    }

    /// Whether what waits is enough for now.
    pub(crate) fn is_choked(&self) -> bool {
        let answers = match &self.role {
            Role::Coordinator(feed) => feed.answers.len(),
            Role::Unknown | Role::Giver { .. } | Role::Done => 0,
        };
        self.output.len() >= OUTPUT_MAX || answers >= ANSWERS_MAX
    }

    /// Whether it is to be read from, and written to.
    pub(crate) fn interest(&self) -> (bool, bool) {
        let reads = !self.is_choked() && !matches!(self.role, Role::Done);
        (reads, !self.output.is_empty())
    }

    /// Reads once, if there is something; one that is closed ends when nothing more is to be read of it.
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
        let received = recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(place)],
            &mut control,
            flags,
        );
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

    /// The next request, if a whole one is there.
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
                // The place that is announced is not made before its bytes come.
                self.input.reserve_exact(missing.min(READ));
                Ok(None)
            }
            Front::Broken(words) => Err(words),
        }
    }

    /// The descriptors that have come.
    pub(crate) fn take_fds(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.fds)
    }

    /// Reports now, in front of all that waits.
    pub(crate) fn report(&mut self, report: &Report) {
        frame::put(report, &mut self.output);
    }

    /// Says why, and ends.
    pub(crate) fn refuse(&mut self, reason: impl Into<String>) {
        let reason = reason.into();
        self.report(&Report::Refused { reason });
        self.role = Role::Done;
        self.input = Vec::new();
    }

    /// Derives reports as there is room, and sends as much as the socket takes.
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

/// Whether whoever connected is us or root.
pub(crate) fn is_allowed(socket: &OwnedFd) -> io::Result<bool> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?;
    Ok(peer.uid.is_root() || peer.uid == rustix::process::geteuid())
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
        let failed = Report::Failed {
            attempt: ProcessId(1),
            step: 9,
            errno: 2,
        };
        let absent = Report::Absent {
            attempt: ProcessId(2),
        };
        let wanted = [failed.clone(), Report::Told, absent];
        assert_eq!(drained(&mut feed, &attempts), wanted);
        for _ in 0..=CHANGES_MAX {
            feed.change(ProcessId(3));
        }
        assert!(feed.changes.is_empty(), "they are not kept");
        assert_eq!(drained(&mut feed, &attempts), [failed]);
    }
}
