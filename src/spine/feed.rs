//! The newest events of a node, for any number of readers. All readers share one ring of events, and each has a position in it.
//!
//! Guarantees: an event is not shown before the entry that it describes is durable; a reader that requests events no longer kept, or falls
//! behind, is notified of the gap before it gets anything else; events are no longer gathered when the last reader has been gone for ten
//! minutes. The feed never waits for a reader: a slow reader costs only the memory for its position.

use crate::clock::Timestamp;
use crate::ids::Seq;
use crate::spine::event::{Event, EventBody, Position};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::watch;

/// The maximum number of events that are kept. Their total size is limited as well; see [`EVENT_BYTES_MAX`].
pub const EVENTS_MAX: usize = 65_536;
/// The maximum total size of the events that are kept, in bytes.
pub const EVENT_BYTES_MAX: usize = 64 << 20;

/// How long events are still gathered after the last reader has left, in milliseconds, in case a reader returns.
const LINGER_MS: u64 = 600_000;

/// The number of positions reserved for each millisecond since 1970 on a node that keeps no files: more than the number of entries that a
/// node can make in a millisecond.
const POSITIONS_PER_MS: u64 = 1 << 20;

/// The newest events of a node, and the state of their readers. Only the core thread adds events; any thread may read them.
#[derive(Debug)]
pub struct Feed {
    /// Whether events are gathered. While this is false, publishers of events check nothing else.
    open: AtomicBool,
    ring: Mutex<Ring>,
    /// The position of the newest event that may be shown, and whether the feed has ended.
    shown: watch::Sender<Visible>,
    /// What is added to the sequence number of an entry in the positions of its events; 0 unless the node keeps no files.
    base: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Visible {
    upto: Position,
    ended: bool,
}

#[derive(Debug, Default)]
struct Ring {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// The position after which every event is in the ring.
    floor: Position,
    /// The newest entry at the time when gathering began.
    begun: Seq,
    newest: Position,
    readers: u32,
    /// The time of the first event gathered since the last reader left, if there is one.
    idle_since: Option<Timestamp>,
}

impl Default for Feed {
    fn default() -> Self {
        Self {
            open: AtomicBool::new(false),
            ring: Mutex::default(),
            shown: watch::Sender::default(),
            base: 0,
        }
    }
}

impl Feed {
    /// Creates the feed of a node that keeps no files and was started at `at`. The entries of such a node are numbered from 1 in every run,
    /// so the positions in its feed are offset beyond every position that an earlier run can have reached.
    pub fn beginning_at(at: Timestamp) -> Self {
        Self { base: at.0.saturating_mul(POSITIONS_PER_MS), ..Self::default() }
    }

    fn based(&self, seq: Seq) -> Seq {
        Seq(seq.0.saturating_add(self.base))
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether events are gathered: whether there are readers, or were until recently.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Adds a reader of the events after `after`, or of the events from now on if `after` is `None`. Must be called on the core thread.
    /// `last` is the newest entry of the node.
    pub fn listen(self: &Arc<Self>, last: Seq, after: Option<Position>) -> Reader {
        let last = self.based(last);
        let mut ring = self.ring();
        if !self.is_open() {
            ring.open(last.into());
            self.shown.send_modify(|shown| shown.upto = last.into());
            self.open.store(true, Ordering::Relaxed);
        }
        ring.readers += 1;
        ring.idle_since = None;
        drop(ring);
        let shown = self.shown.subscribe();
        let upto = shown.borrow().upto;
        Reader {
            feed: Arc::clone(self),
            at: after.unwrap_or(upto),
            // A position that the feed has not reached comes from another log, or is invalid.
            is_ahead: after.is_some_and(|after| after > upto.max(last.into())),
            shown,
            hidden: Vec::new(),
        }
    }

    /// Buffers an event that belongs to the entry `seq`. Readers see it once the entry is durable.
    pub fn put(&self, seq: Seq, at: Timestamp, actor: &'static str, what: EventBody) {
        let seq = self.based(seq);
        self.append(at, actor, what, |ring| ring.next(seq));
    }

    /// Buffers an event that belongs to no entry; its position follows that of the newest event.
    pub fn put_without_entry(&self, at: Timestamp, actor: &'static str, what: EventBody) {
        self.append(at, actor, what, |ring| ring.next(ring.newest.seq));
    }

    fn append(
        &self,
        at: Timestamp,
        actor: &'static str,
        what: EventBody,
        place: impl FnOnce(&Ring) -> Position,
    ) {
        let mut ring = self.ring();
        if ring.readers == 0 {
            let since = *ring.idle_since.get_or_insert(at);
            if at.since(since) > std::time::Duration::from_millis(LINGER_MS) {
                self.open.store(false, Ordering::Relaxed);
                *ring = Ring::default();
                return;
            }
        }
        let position = place(&ring);
        ring.push(Event { position, at, actor, what, written: OnceLock::new() });
    }

    /// Discards the events of an entry that was not applied after all; they have not been shown yet.
    pub fn retract(&self, seq: Seq) {
        let seq = self.based(seq);
        self.ring().truncate(|event| event.position.seq != seq);
    }

    /// Shows every event whose entry is `durable` or earlier.
    pub fn show(&self, durable: Seq) {
        if !self.is_open() {
            return;
        }
        let durable = self.based(durable);
        let ring = self.ring();
        // Events before the first gathered entry have no entry themselves, so they are shown at once.
        let upto = ring.newest_upto(durable.max(ring.begun));
        self.shown.send_if_modified(|shown| {
            let more = upto.is_some_and(|upto| upto > shown.upto);
            shown.upto = upto.unwrap_or_default().max(shown.upto);
            more
        });
    }

    /// Returns the newest entry of a gathered event: once this entry is durable, every gathered event is shown. Returns zero if no gathered
    /// event has an entry.
    pub fn newest(&self) -> Seq {
        let ring = self.ring();
        if ring.newest.seq == ring.begun {
            Seq(0)
        } else {
            Seq(ring.newest.seq.0.saturating_sub(self.base))
        }
    }

    /// Ends the feed because the node has stopped or halted. Events that have not been shown yet never will be.
    pub fn end(&self) {
        self.shown.send_modify(|shown| shown.ended = true);
    }
}

impl Ring {
    fn open(&mut self, at: Position) {
        *self = Self { floor: at, begun: at.seq, newest: at, ..Self::default() };
    }

    fn next(&self, seq: Seq) -> Position {
        assert!(self.newest.seq <= seq, "events are gathered in the order of their entries");
        if self.newest.seq == seq {
            let place = self.newest.place + 1;
            Position { seq, place }
        } else {
            seq.into()
        }
    }

    fn push(&mut self, event: Event) {
        self.newest = event.position;
        self.bytes += event.bytes();
        self.events.push_back(Arc::new(event));
        while self.events.len() > EVENTS_MAX || self.bytes > EVENT_BYTES_MAX {
            let Some(oldest) = self.events.pop_front() else {
                return;
            };
            self.bytes -= oldest.bytes();
            self.floor = oldest.position;
        }
    }

    /// Drops the newest events until one is reached for which `stays` is true.
    fn truncate(&mut self, stays: impl Fn(&Event) -> bool) {
        while let Some(gone) = self.events.pop_back_if(|newest| !stays(newest)) {
            self.bytes -= gone.bytes();
        }
        self.newest = self.events.back().map_or(self.floor, |event| event.position);
    }

    fn newest_upto(&self, durable: Seq) -> Option<Position> {
        let many = self.events.partition_point(|event| event.position.seq <= durable);
        let newest = self.events.get(many.checked_sub(1)?)?;
        Some(newest.position)
    }
}

/// An event, or a notification about a gap, as a reader receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notification {
    Event(Arc<Event>),
    /// The events after `after` and up to `upto` are no longer kept.
    Lost {
        /// The reader's former position.
        after: Position,
        /// The reader's new position.
        upto: Position,
    },
    /// The reader requested events after `after`, a position that the feed has not reached: it is from another log, or invalid. The reader
    /// gets every event after `upto` instead.
    Ahead {
        /// The requested position.
        after: Position,
        /// The reader's new position.
        upto: Position,
    },
}

/// A reader of events, with its position in the ring.
#[derive(Debug)]
pub struct Reader {
    feed: Arc<Feed>,
    at: Position,
    /// Whether the reader requested a position that this node has not reached, and has not been notified of that yet.
    is_ahead: bool,
    shown: watch::Receiver<Visible>,
    /// The actors whose events the reader does not get.
    hidden: Vec<&'static str>,
}

impl Reader {
    /// Hides the events of these actors from the reader.
    #[must_use]
    pub fn without(mut self, hidden: Vec<&'static str>) -> Self {
        self.hidden = hidden;
        self
    }

    fn shows(&self, event: &Event) -> bool {
        !self.hidden.contains(&event.actor)
    }

    /// Takes at most `most` of the events that are available now, preceded by a notification if there is a gap before them. Returns an
    /// empty list if there is nothing to take.
    pub fn take(&mut self, most: usize) -> Vec<Notification> {
        let upto = self.shown.borrow_and_update().upto;
        let ring = self.feed.ring();
        let mut heard = Vec::new();
        // A gap in events that cannot be shown yet is not reported yet, either.
        let gone = self.at < ring.floor && ring.floor <= upto;
        if std::mem::take(&mut self.is_ahead) {
            let after = std::mem::replace(&mut self.at, upto);
            heard.push(Notification::Ahead { after, upto });
        } else if gone {
            let after = std::mem::replace(&mut self.at, ring.floor);
            heard.push(Notification::Lost { after, upto: ring.floor });
        } else if self.at < ring.floor {
            return heard;
        }
        let from = ring.events.partition_point(|event| event.position <= self.at);
        let events = ring.events.range(from..);
        let (mut at, most) = (self.at, most.saturating_add(heard.len()));
        for event in events.take_while(|event| event.position <= upto) {
            if heard.len() == most {
                break;
            }
            at = event.position;
            if self.shows(event) {
                heard.push(Notification::Event(Arc::clone(event)));
            }
        }
        drop(ring);
        self.at = at;
        heard
    }

    /// Returns the newest events that may be shown, at most `most` of them, newest first. If `before` is given, only events before that
    /// position are considered. Does not move the reader.
    pub fn before(&self, before: Option<Position>, most: usize) -> Vec<Arc<Event>> {
        let upto = self.shown.borrow().upto;
        let ring = self.feed.ring();
        let end = ring.events.partition_point(|event| {
            event.position <= upto && before.is_none_or(|before| event.position < before)
        });
        let events = ring.events.range(..end).rev().filter(|event| self.shows(event));
        events.take(most).map(Arc::clone).collect()
    }

    /// Returns the events of an entry that are still kept and may be shown.
    pub fn of(&self, seq: Seq) -> Vec<Arc<Event>> {
        let seq = self.feed.based(seq);
        let upto = self.shown.borrow().upto;
        let ring = self.feed.ring();
        let first = ring.events.partition_point(|event| event.position.seq < seq);
        let events = ring.events.range(first..);
        let events = events.take_while(|it| it.position.seq == seq && it.position <= upto);
        events.filter(|event| self.shows(event)).map(Arc::clone).collect()
    }

    /// Waits until there may be something to take. Returns false once the feed has ended.
    pub async fn more(&mut self) -> bool {
        if self.shown.borrow().ended {
            return false;
        }
        self.shown.changed().await.is_ok() && !self.shown.borrow().ended
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.feed.ring().readers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{EVENT_BYTES_MAX, EVENTS_MAX, Feed, LINGER_MS, Notification, Reader};
    use crate::clock::Timestamp;
    use crate::ids::Seq;
    use crate::spine::event::{Event, EventBody, Position};
    use std::sync::Arc;

    const AT: Timestamp = Timestamp(1000);

    fn put(feed: &Feed, seq: u64) {
        feed.put(Seq(seq), AT, "lock", EventBody::new("granted"));
    }

    /// Takes what is available, as text: an event as its position, lost events as `after..upto`, and a position ahead of the feed as
    /// `after>upto`.
    fn received(reader: &mut Reader) -> Vec<String> {
        let text = |heard| match heard {
            Notification::Event(event) => event.position.to_string(),
            Notification::Lost { after, upto } => format!("{after}..{upto}"),
            Notification::Ahead { after, upto } => format!("{after}>{upto}"),
        };
        reader.take(usize::MAX).into_iter().map(text).collect()
    }

    #[test]
    fn an_event_is_shown_once_it_is_durable_and_in_its_place() {
        let feed = Arc::new(Feed::default());
        assert!(!feed.is_open(), "there are no readers");
        let mut early = feed.listen(Seq(9), None);
        for seq in [10, 10, 12] {
            put(&feed, seq);
        }
        assert!(received(&mut early).is_empty(), "nothing is durable");
        feed.show(Seq(11));
        assert_eq!(received(&mut early), ["10", "10.1"]);
        let mut late = feed.listen(Seq(12), None);
        let mut back = feed.listen(Seq(12), Some(Seq(10).into()));
        feed.show(Seq(u64::MAX));
        assert_eq!(received(&mut early), ["12"]);
        assert_eq!(received(&mut late), ["12"], "a new reader begins at the newest entry");
        assert_eq!(
            received(&mut back),
            ["10.1", "12"],
            "a returning reader begins after its position"
        );
        put(&feed, 12);
        feed.show(Seq(u64::MAX));
        assert_eq!(received(&mut early), ["12.1"]);
        assert!(received(&mut early).is_empty(), "no event is received twice");
    }

    #[test]
    fn a_reader_looks_back_at_what_is_kept_and_shown() {
        let feed = Arc::new(Feed::beginning_at(AT));
        let mut reader = feed.listen(Seq(9), None);
        for seq in [10, 10, 11, 12] {
            put(&feed, seq);
        }
        feed.show(Seq(11));
        let seqs = |events: Vec<Arc<Event>>| -> Vec<(u64, u32)> {
            let events = events.iter().map(|it| it.position);
            events.map(|it| (it.seq.0 - feed.base, it.place)).collect()
        };
        assert_eq!(seqs(reader.before(None, 9)), [(11, 0), (10, 1), (10, 0)]);
        assert_eq!(seqs(reader.before(None, 1)), [(11, 0)]);
        let newest = reader.before(None, 1).remove(0).position;
        assert_eq!(seqs(reader.before(Some(newest), 1)), [(10, 1)]);
        assert_eq!(seqs(reader.of(Seq(10))), [(10, 0), (10, 1)]);
        assert_eq!(seqs(reader.of(Seq(9))), []);
        assert_eq!(seqs(reader.of(Seq(12))), [], "the events of entry 12 are not shown yet");
        assert_eq!(reader.take(9).len(), 3, "looking back did not move the reader");
    }

    #[test]
    fn what_is_no_entry_stands_behind_the_newest_event() {
        let feed = Arc::new(Feed::default());
        let mut reader = feed.listen(Seq(9), None);
        let behind = || feed.put_without_entry(AT, "node", EventBody::new("checkpoint"));
        behind();
        feed.show(Seq(3));
        assert_eq!(
            received(&mut reader),
            ["9.1"],
            "an event without an entry does not wait for one"
        );
        put(&feed, 12);
        behind();
        feed.show(Seq(11));
        assert!(received(&mut reader).is_empty());
        feed.show(Seq(12));
        assert_eq!(received(&mut reader), ["12", "12.1"]);
    }

    #[test]
    fn what_came_to_nothing_is_never_shown() {
        let feed = Arc::new(Feed::default());
        let mut reader = feed.listen(Seq(0), None);
        put(&feed, 1);
        put(&feed, 2);
        put(&feed, 2);
        feed.retract(Seq(2));
        put(&feed, 3);
        feed.show(Seq(3));
        assert_eq!(received(&mut reader), ["1", "3"]);
    }

    #[test]
    fn whoever_asks_for_what_is_gone_is_told_so_once() {
        let feed = Arc::new(Feed::default());
        let mut before = feed.listen(Seq(9), Some(Seq(4).into()));
        let mut exact = feed.listen(Seq(9), Some(Seq(9).into()));
        let mut is_ahead = feed.listen(Seq(9), Some(Seq(10).into()));
        put(&feed, 10);
        feed.show(Seq(10));
        assert_eq!(received(&mut before), ["4..9", "10"]);
        assert_eq!(received(&mut exact), ["10"], "there is no gap after 9");
        assert_eq!(received(&mut is_ahead), ["10>10"], "10 is a position that was not reached yet");
        put(&feed, 11);
        feed.show(Seq(11));
        assert_eq!(received(&mut before), ["11"]);
        assert_eq!(received(&mut is_ahead), ["11"]);
    }

    #[test]
    fn the_ring_is_bounded_in_events_and_bytes() {
        let feed = Arc::new(Feed::default());
        let mut slow = feed.listen(Seq(0), None);
        let many = EVENTS_MAX as u64 + 5;
        (1..=many).for_each(|seq| put(&feed, seq));
        assert!(
            received(&mut slow).is_empty(),
            "a gap in events that are not durable yet is not reported"
        );
        feed.show(Seq(many));
        let told = received(&mut slow);
        assert_eq!(told.first().map(String::as_str), Some("0..5"));
        assert_eq!(told.len(), EVENTS_MAX + 1);
        for seq in many + 1..many + 100 {
            let cause = "x".repeat(1 << 20);
            let what = EventBody::new("restarted").text("cause", cause);
            feed.put(Seq(seq), AT, "lock", what);
        }
        assert!(feed.ring().bytes <= EVENT_BYTES_MAX);
        assert!(
            feed.ring().events.len() >= 8,
            "no more events are dropped than the limit requires"
        );
        let bytes: usize = feed.ring().events.iter().map(|event| event.bytes()).sum();
        assert_eq!(feed.ring().bytes, bytes);
    }

    #[test]
    fn a_position_of_a_life_before_is_lost_and_not_met_again() {
        let before = Arc::new(Feed::beginning_at(Timestamp(1)));
        let mut reader = before.listen(Seq(0), None);
        put(&before, 1);
        put(&before, 2);
        before.show(Seq(u64::MAX));
        let told = received(&mut reader);
        let again = Arc::new(Feed::beginning_at(Timestamp(2)));
        let mut first = again.listen(Seq(0), None);
        (1..=5).for_each(|seq| put(&again, seq));
        again.show(Seq(u64::MAX));
        let anew = received(&mut first);
        assert!(told.iter().all(|position| !anew.contains(position)));
        let back = told[0].parse().unwrap();
        let back = received(&mut again.listen(Seq(5), Some(back)));
        assert!(back[0].starts_with(&format!("{}..", told[0])), "{back:?}");
        assert_eq!(back[1..], anew, "every event of this run follows");
    }

    #[test]
    fn nothing_is_gathered_long_after_the_last_reader_left() {
        let feed = Arc::new(Feed::default());
        drop(feed.listen(Seq(0), None));
        let at =
            |seq: u64, ms| feed.put(Seq(seq), Timestamp(ms), "lock", EventBody::new("granted"));
        at(1, 5);
        at(2, 5 + LINGER_MS);
        feed.show(Seq(2));
        let mut again = feed.listen(Seq(2), Some(Position::default()));
        assert_eq!(
            received(&mut again),
            ["1", "2"],
            "events are kept for a reader that returns in time"
        );
        drop(again);
        at(3, 6 + LINGER_MS);
        at(4, 7 + 2 * LINGER_MS);
        assert!(!feed.is_open() && feed.ring().events.is_empty());
        let mut new = feed.listen(Seq(4), Some(Seq(2).into()));
        assert_eq!(received(&mut new), ["2..4"]);
    }
}
