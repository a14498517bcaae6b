//! Determines which process a notice is from: the one that the socket belongs to or, on the socket that processes of earlier versions share,
//! the one for which the sender or one of its ancestors was launched.

use crate::actors::process::{Message, Notice};
use crate::ids::ProcessId;
use crate::kernel::credentials::Sender;
use crate::kernel::{identity, proc};
use crate::ports::process::attempt::Attempt;
use crate::ports::process::follower::Follower;
use crate::ports::process::notices::DATAGRAM_BYTES_MAX;
use crate::ports::process::real::Real;
use crate::ports::process::tree;
use crate::ports::process::world::World as _;

/// The maximum number of datagrams that are read before other events are handled.
const AT_ONCE: usize = 64;

/// The maximum number of processes that are checked to find the record of a sender: the sender and its ancestors.
const ABOVE_MAX: usize = 64;

impl<R: FnMut(Message)> Follower<Real<R>> {
    /// Reads and handles notices from the socket with this epoll token, at most [`AT_ONCE`] datagrams.
    pub(super) fn notified(&mut self, token: u64) {
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        for _ in 0..AT_ONCE {
            let Some((of_socket, datagram)) = self.world.notices.receive(token, &mut buffer) else {
                return;
            };
            // On the shared socket, the sender is looked up before the next datagram is read: once its notices have been received, it may
            // exit.
            let of_sender = || {
                let id = self.record_of_sender(datagram.sender?)?;
                self.world.notices.accepts_shared(id).then_some(id)
            };
            let Some(id) = of_socket.or_else(of_sender) else {
                tracing::debug!("ignored a notice from {:?}", datagram.sender);
                continue;
            };
            let text = buffer.get(..datagram.bytes).unwrap_or_default();
            let now = self.world.clock();
            let text = String::from_utf8_lossy(text);
            let messages = self.world.notices.receive_text(id, &text, now);
            self.tell(messages);
        }
    }

    /// Searches output that has grown for the lines that announce readiness, and reports the processes that are ready.
    pub(super) fn output_grew(&mut self) {
        let now = self.world.clock();
        let messages = self.world.notices.grown(now);
        self.tell(messages);
    }

    /// If anything is due: searches output, and reports overdue watchdog notices and postponed status texts.
    pub(super) fn report_due(&mut self) {
        let now = self.world.clock();
        if self.world.notices.next().is_some_and(|at| at <= now) {
            let messages = self.world.notices.handle_due(now);
            self.tell(messages);
        }
    }

    fn tell(&mut self, messages: Vec<Message>) {
        for message in messages {
            if let Message::Notice { id, notice: Notice::Silent } = &message {
                tracing::warn!(process = %id, "no watchdog notice in time");
            }
            self.world.report(message);
        }
    }

    /// Returns the record that a sender belongs to, by its control group or by an ancestor that is the leader of a record. Without either,
    /// the sender is identified by its environment, if the record named there has no control group and the sender runs as its leader's
    /// user.
    fn record_of_sender(&self, sender: Sender) -> Option<ProcessId> {
        let contained = self.world.groups().attempt_of(sender.pid);
        if let Some(id) = contained.filter(|id| self.attempts.contains_key(id)) {
            return Some(id);
        }
        let mut next = sender.pid;
        for _ in 0..ABOVE_MAX {
            if let Some(id) = self.record_led_by(next) {
                return Some(id);
            }
            next = proc::stat(next).ok()??.parent;
            if next <= 1 {
                break;
            }
        }
        // Only a sender whose word may count is asked for its environment.
        let counts = |attempt: &Attempt<_>| {
            let leader = attempt.identity.filter(|_| attempt.ended.is_none() && !attempt.contained);
            let user = leader.and_then(|leader| proc::user(leader.pid).ok().flatten());
            user == Some(sender.user)
        };
        if !self.attempts.values().any(counts) {
            return None;
        }
        let named = tree::named(sender.pid)?;
        self.attempts.get(&named).filter(|it| counts(it)).map(|_| named)
    }

    /// Returns the record whose leader has this PID, if any.
    fn record_led_by(&self, pid: u32) -> Option<ProcessId> {
        let has_its_pid = |identity: &crate::actors::process::Identity| identity.pid == pid;
        let mut attempts = self.attempts.iter();
        let (id, attempt) = attempts
            .find(|(_, it)| it.ended.is_none() && it.identity.as_ref().is_some_and(has_its_pid))?;
        let (_, found) = identity::identify(pid).ok().flatten()?;
        attempt.identity.filter(|it| it.is(&found)).map(|_| *id)
    }
}
