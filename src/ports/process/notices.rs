//! Notices that processes send about themselves: that they are ready (by a line of output or by the `sd_notify` protocol), their status,
//! and that they are still alive.
//!
//! `inbox.rs` has the sockets; `sender.rs` determines which process a notice is from.

use crate::actors::process::{Expectation, Failure, Message, Notice, Ready, Spec, Step};
use crate::ids::ProcessId;
use crate::kernel::credentials::{Datagram, Receiver};
use crate::ports::process::files;
use crate::ports::process::inbox::Inboxes;
use crate::ports::process::line::{Line, Lines};
use crate::ports::process::place::Place;
use crate::ports::process::unread::Unread;
use rustix::event::epoll;
use rustix::net::SocketAddrUnix;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The name, in the data directory, of the socket that all processes launched by earlier versions share.
const SHARED: &str = "notify.sock";

/// The epoll token of that socket.
pub(super) const NOTICES: u64 = 2;
/// The epoll token of notifications that output files have grown.
pub(super) const LINES: u64 = 4;

/// The maximum length of a notice's datagram, in bytes.
pub(super) const DATAGRAM_BYTES_MAX: usize = 4096;

/// The minimum interval between two reports of a status text, in milliseconds.
const WORDS_MS: u64 = 1000;

/// The minimum interval between two reports of whether a process is ready or stopping, in milliseconds. The first is reported at once.
const STATE_MS: u64 = 100;

/// The notices expected from one process.
#[derive(Debug)]
struct Expected {
    ready: Ready,
    watchdog_ms: u64,
    /// When the next watchdog notice is due.
    beats_by: Option<u64>,
    /// Whether it is ready or stopping.
    state: Paced,
    /// Its status text.
    words: Paced,
    /// Whether it is to be stopped by its watchdog, which is reported once.
    silence: Paced,
}

/// What a process says about one thing. Only the latest is reported, only if it is new, and at a limited rate: a process may say the same,
/// or the opposite, as often and as fast as it likes, so neither the work for the actor nor the memory may grow with it.
#[derive(Debug, Default)]
struct Paced {
    /// The minimum interval between two reports, in milliseconds.
    interval_ms: u64,
    reported: Option<Notice>,
    next: Option<Notice>,
    not_before: u64,
}

/// The notices expected from all processes.
#[derive(Debug, Default)]
pub(super) struct Notices {
    inboxes: Inboxes,
    shared: Option<Receiver>,
    lines: Lines,
    expected: BTreeMap<ProcessId, Expected>,
    unread: Unread,
}

impl Notices {
    /// Prepares for notices of the processes of a data directory. Its sockets are registered with `epoll`.
    pub(super) fn open(place: &Place, epoll: &OwnedFd) -> Self {
        let data = place.data.as_deref();
        let shared = data.and_then(|data| {
            let receiver = shared(data).and_then(|it| waited(it, epoll, NOTICES));
            receiver
                .inspect_err(|error| {
                    tracing::warn!(%error, "failed to open the socket for notices from processes of earlier versions");
                })
                .ok()
        });
        Self {
            inboxes: Inboxes::new(data, place.reporting.clone(), epoll),
            shared,
            lines: Lines::open(epoll, LINES),
            unread: place.unread.clone(),
            ..Self::default()
        }
    }

    /// Prepares for the notices of a process that is about to be launched, as this user and group if they are not our own. Returns the
    /// environment variables that the process needs to send them.
    pub(super) fn launch(
        &mut self,
        id: ProcessId,
        spec: &Spec,
        dir: &Path,
        user: Option<(u32, u32)>,
    ) -> Result<Vec<(&'static str, Vec<u8>)>, Failure> {
        let Some(expectation) = spec.expectation(false) else {
            return Ok(Vec::new());
        };
        if let Ready::Line(_) = &expectation.ready {
            let begun = Line::begin(dir, spec.appends);
            let path = dir.join(files::STDOUT);
            begun.map_err(|error| files::failure(Step::Output, &error, &path))?;
        }
        self.expect(id, &expectation, dir);
        let mut own = Vec::new();
        if expectation.ready == Ready::Notify {
            let address = self.inboxes.create(id, user).map_err(|error| Failure {
                step: Step::Environment,
                errno: error.raw_os_error().unwrap_or(0),
                about: Some(format!(
                    "there is no socket on which the process could report that it is ready: {error}"
                )),
            })?;
            own.push(("NOTIFY_SOCKET", address));
        }
        if spec.watchdog_ms > 0 {
            let span = u64::from(spec.watchdog_ms) * 1000;
            own.push(("WATCHDOG_USEC", span.to_string().into_bytes()));
        }
        Ok(own)
    }

    /// Expects these notices from a process from now on, unless notices are already expected from it.
    pub(super) fn expect(&mut self, id: ProcessId, expectation: &Expectation, dir: &Path) {
        if self.expected.contains_key(&id) {
            return;
        }
        let Expectation { ready, is_ready, watchdog_ms, output: _ } = expectation;
        if *ready == Ready::Notify {
            self.inboxes.reopen(id);
        }
        if let (Ready::Line(text), false) = (ready, is_ready) {
            self.lines.follow(id, Line::of(dir, text));
        }
        let expected = Expected {
            ready: ready.clone(),
            watchdog_ms: (*watchdog_ms).into(),
            beats_by: None,
            state: Paced::every(STATE_MS),
            words: Paced::every(WORDS_MS),
            silence: Paced::default(),
        };
        self.expected.insert(id, expected);
    }

    /// Handles the start of a process: its watchdog notices are due from now on.
    pub(super) fn start(&mut self, id: ProcessId, now: u64) {
        if let Some(expected) = self.expected.get_mut(&id)
            && expected.watchdog_ms > 0
        {
            expected.beats_by.get_or_insert(now + expected.watchdog_ms);
        }
    }

    /// Expects no more notices from a process.
    pub(super) fn forget(&mut self, id: ProcessId) {
        self.expected.remove(&id);
        self.lines.forget(id);
        self.inboxes.remove(id);
    }

    /// Returns whether notices of a process are accepted on the socket that processes share: it has none of its own.
    pub(super) fn accepts_shared(&self, id: ProcessId) -> bool {
        let expected = self.expected.get(&id);
        expected.is_some_and(|it| it.ready == Ready::Notify) && !self.inboxes.has(id)
    }

    /// Receives the next datagram from the socket with this token, if one has arrived, and the process that the socket belongs to. `None` for
    /// the process means that the socket is shared.
    pub(super) fn receive(
        &self,
        token: u64,
        buffer: &mut [u8],
    ) -> Option<(Option<ProcessId>, Datagram)> {
        let received = if token == NOTICES {
            let received = self.shared.as_ref()?.receive(buffer);
            received.map(|it| it.map(|datagram| (None, datagram)))
        } else {
            let received = self.inboxes.receive(token, buffer);
            received.map(|it| it.map(|(id, datagram)| (Some(id), datagram)))
        };
        received.unwrap_or_else(|error| {
            tracing::warn!("failed to read notices from processes: {error}");
            None
        })
    }

    /// Handles a datagram that a process sent by the `sd_notify` protocol. Returns the messages for the actor, at most one of each kind; none
    /// while too many wait for the actor.
    pub(super) fn receive_text(&mut self, id: ProcessId, text: &str, now: u64) -> Vec<Message> {
        let room = self.unread.room();
        let Some(expected) = self.expected.get_mut(&id) else {
            return Vec::new();
        };
        for line in text.lines() {
            match line.split_once('=') {
                Some(("READY", "1")) => expected.state.next = Some(Notice::Ready),
                Some(("STOPPING", "1")) => expected.state.next = Some(Notice::Leaving),
                Some(("STATUS", words)) => {
                    expected.words.next = Some(Notice::Words(shortened(words)));
                }
                Some(("WATCHDOG", "1")) if expected.watchdog_ms > 0 => {
                    expected.beats_by = Some(now + expected.watchdog_ms);
                }
                Some(("WATCHDOG", "trigger")) => expected.silence.next = Some(Notice::Silent),
                _ => {}
            }
        }
        let due = expected.due(now, room).into_iter();
        due.map(|notice| Message::Notice { id, notice }).collect()
    }

    /// Searches output that has grown. Returns a message for each process that is ready.
    pub(super) fn grown(&mut self, now: u64) -> Vec<Message> {
        let ready = self.lines.grown(now);
        let each = ready.into_iter().map(|id| Message::Notice { id, notice: Notice::Ready });
        each.collect()
    }

    /// Returns when `handle_due` must be called next; `None` if it need not be called.
    pub(super) fn next(&self) -> Option<u64> {
        let each = self.expected.values();
        let times = each.flat_map(|it| {
            let [state, words, silence] = [&it.state, &it.words, &it.silence].map(Paced::next_at);
            [it.beats_by, state, words, silence]
        });
        times.flatten().chain(self.lines.next()).min()
    }

    /// Searches output that is due for a check, and looks for overdue watchdog notices and postponed reports. Returns the messages for
    /// the actor.
    pub(super) fn handle_due(&mut self, now: u64) -> Vec<Message> {
        let mut messages = Vec::new();
        if self.lines.next().is_some_and(|at| at <= now) {
            messages = self.grown(now);
        }
        let room = self.unread.room();
        for (id, expected) in &mut self.expected {
            let id = *id;
            if expected.beats_by.is_some_and(|at| at <= now) {
                // Reported only once, since the process is stopped as a result.
                expected.beats_by = None;
                expected.silence.next = Some(Notice::Silent);
            }
            let due = expected.due(now, room.saturating_sub(messages.len()));
            messages.extend(due.into_iter().map(|notice| Message::Notice { id, notice }));
        }
        messages
    }
}

impl Expected {
    /// Returns the notices to report now, at most `room` of them. Others are postponed.
    fn due(&mut self, now: u64, room: usize) -> Vec<Notice> {
        let mut due = Vec::new();
        for it in [&mut self.state, &mut self.words, &mut self.silence] {
            if due.len() < room {
                due.extend(it.due(now));
            } else if it.next_at().is_some_and(|at| at <= now) {
                it.not_before = now + STATE_MS;
            }
        }
        due
    }
}

impl Paced {
    fn every(interval_ms: u64) -> Self {
        Self { interval_ms, ..Self::default() }
    }

    /// Returns the notice to report now, if any.
    fn due(&mut self, now: u64) -> Option<Notice> {
        if now < self.not_before {
            return None;
        }
        let notice = self.next.take()?;
        if self.reported.as_ref() == Some(&notice) {
            return None;
        }
        self.not_before = now + self.interval_ms;
        self.reported = Some(notice.clone());
        Some(notice)
    }

    fn next_at(&self) -> Option<u64> {
        self.next.as_ref().map(|_| self.not_before)
    }
}

/// Truncates a text to at most [`Notice::WORDS_BYTES_MAX`] bytes.
fn shortened(words: &str) -> String {
    let mut end = words.len().min(Notice::WORDS_BYTES_MAX);
    while !words.is_char_boundary(end) {
        end -= 1;
    }
    words.get(..end).unwrap_or_default().to_owned()
}

fn shared(data: &Path) -> io::Result<Receiver> {
    let path = data.join(SHARED);
    let address = SocketAddrUnix::new(&path)?;
    match rustix::fs::unlink(&path) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    Receiver::bind(&address)
}

fn waited(receiver: Receiver, epoll: &OwnedFd, token: u64) -> io::Result<Receiver> {
    let flags = epoll::EventFlags::IN;
    epoll::add(epoll, &receiver, epoll::EventData::new_u64(token), flags)?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::{DATAGRAM_BYTES_MAX, Notices, STATE_MS, Unread, WORDS_MS, shortened};
    use crate::actors::process::{Expectation, Message, Notice, Ready};
    use crate::ids::ProcessId;
    use std::path::Path;

    const ID: ProcessId = ProcessId(7);

    fn expecting(watchdog_ms: u32) -> Notices {
        let mut notices = Notices::default();
        let expectation =
            Expectation { ready: Ready::Notify, is_ready: false, watchdog_ms, output: (0, 0) };
        notices.expect(ID, &expectation, Path::new("/nowhere"));
        notices
    }

    fn words(messages: Vec<Message>) -> Vec<Notice> {
        let each = messages.into_iter().map(|message| {
            let Message::Notice { id: ID, notice } = message else {
                panic!("{message:?}");
            };
            notice
        });
        each.collect()
    }

    #[test]
    fn what_is_said_is_reported_and_what_is_unknown_is_not() {
        let mut notices = expecting(0);
        let latest = notices.receive_text(ID, "READY=1\nMAINPID=7\nSTATUS=up\nFOO\n", 5000);
        let expected = [Notice::Ready, Notice::Words("up".to_owned())];
        assert_eq!(words(latest), expected);
        let latest = notices.receive_text(ID, "STOPPING=1\nWATCHDOG=trigger", 6000);
        assert_eq!(words(latest), [Notice::Leaving, Notice::Silent]);
        assert_eq!(notices.receive_text(ProcessId(8), "READY=1", 5000), []);
    }

    #[test]
    fn a_flood_of_notices_becomes_few_messages_and_the_last_state_is_known() {
        let mut notices = expecting(60_000);
        let flood = |lines: &str| lines.repeat(DATAGRAM_BYTES_MAX / lines.len());
        // The same as often as a process likes is reported once.
        let same = flood("READY=1\nSTATUS=x\nWATCHDOG=trigger\n");
        let mut all = Vec::new();
        for now in 5000..9000 {
            all.extend(words(notices.receive_text(ID, &same, now)));
            all.extend(words(notices.handle_due(now)));
        }
        let expected = [Notice::Ready, Notice::Words("x".to_owned()), Notice::Silent];
        assert_eq!(all, expected);
        // What changes all the time is reported at its pace.
        let (one, other) = (flood("READY=1\nSTOPPING=1\n"), flood("STOPPING=1\nREADY=1\n"));
        let mut changes = 0;
        for now in (10_000..20_000_u64).step_by(2) {
            changes += notices.receive_text(ID, &one, now).len();
            changes += notices.receive_text(ID, &other, now + 1).len();
            changes += notices.handle_due(now + 1).len();
        }
        assert!((1..=10_000 / STATE_MS + 1).contains(&(changes as u64)), "{changes}");
        // At the end, the last of them is known.
        drop(notices.handle_due(21_000));
        drop(notices.receive_text(ID, "STOPPING=1", 22_000));
        let before = notices.receive_text(ID, "READY=1", 22_000 + STATE_MS - 1);
        assert_eq!(before, []);
        assert_eq!(notices.next(), Some(22_000 + STATE_MS));
        let last = notices.handle_due(22_000 + STATE_MS);
        assert_eq!(words(last), [Notice::Ready]);
    }

    #[test]
    fn no_more_notices_are_sent_than_the_actor_has_room_for() {
        let mut notices = expecting(60_000);
        let said = "READY=1\nSTATUS=one\nWATCHDOG=trigger";
        let mut on_their_way: Vec<_> = (2..Unread::MAX).map(|_| notices.unread.one()).collect();
        // The actor has room for two.
        let first = words(notices.receive_text(ID, said, 5000));
        assert_eq!(first, [Notice::Ready, Notice::Words("one".to_owned())]);
        on_their_way.extend([notices.unread.one(), notices.unread.one()]);
        let mut now = 5000;
        for word in ["two", "three"] {
            let said = format!("STOPPING=1\nSTATUS={word}");
            for _ in 0..20 {
                now += WORDS_MS / 10;
                assert_eq!(notices.receive_text(ID, &said, now), []);
                assert_eq!(notices.handle_due(now), []);
            }
        }
        // They are looked at again after a while, and not all the time.
        let next = notices.next().expect("some are postponed");
        assert!((now + 1..=now + STATE_MS).contains(&next), "{next}, {now}");
        // When the actor has caught up, the latest of each kind is sent.
        on_their_way.clear();
        let last = words(notices.handle_due(now + STATE_MS));
        let three = Notice::Words("three".to_owned());
        assert_eq!(last, [Notice::Leaving, three, Notice::Silent]);
        assert_eq!(notices.handle_due(now + 10 * WORDS_MS), []);
    }

    #[test]
    fn words_are_reported_at_their_pace_and_the_last_of_them_in_the_end() {
        let mut notices = expecting(0);
        let first = notices.receive_text(ID, "STATUS=one", 5000);
        assert_eq!(words(first), [Notice::Words("one".to_owned())]);
        assert_eq!(notices.receive_text(ID, "STATUS=two", 5001), []);
        assert_eq!(notices.receive_text(ID, "STATUS=three", 5002), []);
        assert_eq!(notices.next(), Some(5000 + WORDS_MS));
        assert_eq!(notices.handle_due(5000 + WORDS_MS - 1), []);
        let last = notices.handle_due(5000 + WORDS_MS);
        assert_eq!(words(last), [Notice::Words("three".to_owned())]);
        assert_eq!(notices.next(), None);
    }

    #[test]
    fn a_missing_sign_of_life_is_reported_once() {
        let mut notices = expecting(100);
        assert_eq!(notices.next(), None);
        notices.start(ID, 1000);
        assert_eq!(notices.receive_text(ID, "WATCHDOG=1", 1050), []);
        assert_eq!(notices.next(), Some(1150));
        assert_eq!(notices.handle_due(1149), []);
        assert_eq!(words(notices.handle_due(1150)), [Notice::Silent]);
        assert_eq!((notices.next(), notices.handle_due(9999)), (None, vec![]));
    }

    #[test]
    fn words_are_cut_between_letters() {
        assert_eq!(shortened("a"), "a");
        let long = "\u{e9}".repeat(Notice::WORDS_BYTES_MAX);
        assert_eq!(shortened(&long).len(), Notice::WORDS_BYTES_MAX);
        let odd = format!("a{long}");
        assert_eq!(shortened(&odd).len(), Notice::WORDS_BYTES_MAX - 1);
    }
}
