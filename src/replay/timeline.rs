//! The history of one journal: the state after any entry, the entries around it, and the story (the latest events) of an item.
//!
//! The first pass through the journal keeps intermediate states, called waypoints. After that, computing the state at any entry takes only
//! a short replay from the waypoint before it. When the waypoints exceed [`Bounds::kept_bytes`], every second one is dropped. Nothing is
//! written, and records after the end that the caller sets are not read.

use crate::clock::{Offset, Timestamp};
use crate::ids::{Digest, Seq};
use crate::persist::PersistError;
use crate::persist::disk::Disk;
use crate::persist::journal::{Begin, Reader, Record, segment};
use crate::persist::snapshots::{Seal, Slots};
use crate::replay::history::{FollowedItem, HistoryEvent};
use crate::replay::line::Line;
use crate::replay::run::{Replay, ReplayError};
use crate::replay::waypoint::{Waypoint, bytes_of};
use crate::spine::machine::Gauge;
use crate::spine::recovery::{self, RecoveryError};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;

/// The maximum number of entries shown up to and including the requested one, and after it.
pub const AROUND: usize = 20;

/// How far back the first search for the entries before the requested one begins, in sequence numbers. It usually finds all of them, even
/// though sequence numbers may have gaps.
const MARGIN: u64 = 1000;

/// The maximum number of events in a story. Older ones are dropped.
pub const STORY_MAX: usize = 100;

/// The interval, in sequence numbers, at which a replay checks whether its result is still needed.
const WATCHED: u64 = 256;

/// Limits on the memory of a timeline.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The initial number of records between two waypoints.
    pub records: u64,
    /// The size of the records after a waypoint, in bytes, at which the next waypoint is due.
    pub record_bytes: u64,
    /// The maximum size of one state in the form of pages, in bytes. A larger state is refused.
    pub state_bytes: u64,
    /// The maximum total size of the waypoints, in bytes. If they exceed it, every second one is dropped.
    pub kept_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            records: 32 * 1024,
            record_bytes: 32 << 20,
            state_bytes: 128 << 20,
            kept_bytes: 256 << 20,
        }
    }
}

/// A function called with the sequence number that a replay has reached. It returns whether the result is still needed.
pub type Watch<'w> = &'w mut dyn FnMut(Seq) -> bool;

/// Why an earlier state or a story cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// The journal cannot be read or replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The state would take too much memory.
    #[error("the state is {bytes} bytes, more than the maximum of {most} for a replay in memory")]
    TooLarge {
        /// The size of the state, in bytes.
        bytes: u64,
        /// The maximum size, in bytes.
        most: u64,
    },
    /// The first segments of the journal were removed, and no snapshot can be read in their place.
    #[error("the beginning of the journal is gone, and no snapshot can be read: {0}")]
    NoBeginning(String),
    /// The state of a waypoint cannot be loaded.
    #[error("an intermediate state cannot be loaded: {0}")]
    Waypoint(String),
    /// The caller no longer needs the result.
    #[error("the result is no longer needed")]
    Abandoned,
}

impl From<PersistError> for TimelineError {
    fn from(error: PersistError) -> Self {
        Self::from(RecoveryError::from(error))
    }
}

impl From<RecoveryError> for TimelineError {
    fn from(error: RecoveryError) -> Self {
        Self::Replay(ReplayError::from(error))
    }
}

/// The state after an entry, and the entries around it.
#[derive(Clone, Debug)]
pub struct StateAt {
    /// The requested sequence number, or the nearest one in the known range. There may be no entry with this number.
    pub seq: Seq,
    /// The time of the last entry up to `seq`.
    pub at: Timestamp,
    /// The wall clock minus node time, at that entry.
    pub offset: Offset,
    /// The first entry that the journal still has.
    pub begins: Seq,
    /// The first sequence number at which the state is known.
    pub known: Seq,
    /// The last entry.
    pub last: Seq,
    /// The state of each actor.
    pub actors: Vec<ActorAt>,
    /// The last entries up to `seq`, at most [`AROUND`], oldest first.
    pub before: Vec<Line>,
    /// The first entries after `seq`, at most [`AROUND`].
    pub after: Vec<Line>,
}

/// The state of an actor.
#[derive(Clone, Debug)]
pub struct ActorAt {
    /// The name of the actor.
    pub name: &'static str,
    /// The digest of its state.
    pub digest: Digest,
    /// Its gauges.
    pub gauges: Vec<Gauge>,
    /// Its items: the first [`SAMPLE`] of each kind.
    pub state: Value,
}

/// The maximum number of items of each kind in [`ActorAt::state`].
pub const SAMPLE: usize = 100;

/// The history of an item, as far back as the journal goes.
#[derive(Clone, Debug)]
pub struct History {
    /// The sequence number up to which the journal was read.
    pub upto: Seq,
    /// The sequence number from which the journal was read.
    pub begins: Seq,
    /// The wall clock minus node time, at the end of the part that was read.
    pub offset: Offset,
    /// The latest events, at most [`STORY_MAX`], oldest first, with the entry and the time of each.
    pub events: VecDeque<(Seq, Timestamp, HistoryEvent)>,
    /// Whether older events were dropped.
    pub more: bool,
}

/// The history of the journal on a disk.
pub struct Timeline {
    disk: Arc<dyn Disk>,
    slots: Slots,
    bounds: Bounds,
    /// The waypoints, in order. States before the first one cannot be computed.
    waypoints: Vec<Waypoint>,
    /// The current number of records between two waypoints.
    spacing: u64,
    /// The number of records since the latest waypoint, and their size in bytes.
    since: (u64, u64),
}

impl Timeline {
    /// Creates the timeline of the journal on `disk`. If the journal's beginning was removed, the timeline begins with a snapshot from
    /// `slots`.
    pub fn new(disk: Arc<dyn Disk>, slots: Slots, bounds: Bounds) -> Self {
        Self { disk, slots, bounds, waypoints: Vec::new(), spacing: bounds.records, since: (0, 0) }
    }

    /// Returns the state after entry `at`, and the entries around it. If there is no such entry, this is the state after the last entry
    /// before `at`; if `at` is `None`, the state after `last`. A number outside the known range is replaced by the nearest one within it.
    pub fn state_at(
        &mut self,
        at: Option<Seq>,
        last: Seq,
        watch: Watch<'_>,
    ) -> Result<StateAt, TimelineError> {
        let known = self.begin(last, watch)?;
        let at = at.unwrap_or(last).clamp(known, last.max(known));
        self.extend(at, watch)?;
        let margin = Seq(at.0.saturating_sub(MARGIN));
        let found = self.look((margin, at, last), watch)?;
        if found.before.len() == AROUND {
            return Ok(found);
        }
        match self.nth_before(at)? {
            Some(from) if from < margin => self.look((from, at, last), watch),
            Some(_) | None => Ok(found),
        }
    }

    /// Returns the history of an item up to entry `last`, beginning with the first entry that can be replayed.
    pub fn history(
        &mut self,
        item: &FollowedItem,
        last: Seq,
        watch: Watch<'_>,
    ) -> Result<History, TimelineError> {
        let known = self.begin(last, watch)?;
        let (mut events, mut more) = (VecDeque::new(), false);
        let mut offset = Offset::default();
        self.run(Seq(0), last, watch, |this, replay, record| {
            if replay.followed.is_none() {
                replay.follow(item.clone());
            }
            let found = this.advance(replay, record)?;
            events.extend(found.into_iter().map(|event| (record.seq, record.at, event)));
            while events.len() > STORY_MAX {
                events.pop_front();
                more = true;
            }
            offset = Offset(replay.marked.offset_ms);
            Ok(true)
        })?;
        Ok(History { upto: last, begins: Seq(known.0.saturating_add(1)), offset, events, more })
    }

    /// Drops waypoints from which the journal can no longer be replayed because segments were removed, and creates a first one if none is
    /// left. Returns the entry of the first waypoint.
    fn begin(&mut self, last: Seq, watch: Watch<'_>) -> Result<Seq, TimelineError> {
        let disk = self.disk.as_ref();
        let ordinals = segment::ordinals(disk)?;
        let is_whole = ordinals.first().is_none_or(|first| *first == 1);
        let goes_on = |it: &Waypoint| match it.seq {
            Seq(0) => is_whole,
            seq => recovery::reaches_back(disk, seq),
        };
        let kept = self.waypoints.iter().position(goes_on);
        self.waypoints.drain(..kept.unwrap_or(self.waypoints.len()));
        if self.waypoints.is_empty() {
            self.since = (0, 0);
            let first =
                if is_whole { Waypoint::default() } else { self.after_snapshot(last, watch)? };
            self.waypoints.push(first);
        }
        Ok(self.waypoints.first().map_or(Seq(0), |first| first.seq))
    }

    /// Returns a waypoint with the state of the oldest readable snapshot from which the journal can still be replayed.
    fn after_snapshot(&self, last: Seq, watch: Watch<'_>) -> Result<Waypoint, TimelineError> {
        let disk = self.disk.as_ref();
        let mut looked = recovery::look(disk, &self.slots)?;
        looked.sealed.reverse();
        for (slot, seal) in &looked.sealed {
            if !recovery::reaches_back(disk, seal.manifest.begun) {
                continue;
            }
            self.check(seal.bytes)?;
            let mut replay = Replay::default();
            match replay.load(&self.slots, (*slot, seal)) {
                Ok(()) => return self.settled(replay, seal, last, watch),
                Err(error) => looked.wrong.push(format!("snapshot {slot}: {error}")),
            }
        }
        Err(TimelineError::NoBeginning(looked.wrong.join("; ")))
    }

    /// Returns a waypoint made from a snapshot. Actors were captured at different entries, so the journal is replayed up to the latest of
    /// these entries.
    fn settled(
        &self,
        mut replay: Replay,
        seal: &Seal,
        last: Seq,
        watch: Watch<'_>,
    ) -> Result<Waypoint, TimelineError> {
        let manifest = &seal.manifest;
        let states = manifest.states.iter().map(|state| state.upto);
        let settled = states.max().unwrap_or_default().max(manifest.begun);
        let begin = Begin { after: manifest.begun, at: manifest.at, ..Begin::default() };
        let mut reader = Reader::open_after(self.disk.as_ref(), begin)?;
        while replay.last < settled.min(last) {
            let Some(record) = reader.next()? else { break };
            replay.advance(&record)?;
            watched(replay.last, watch)?;
        }
        Ok(Waypoint::take(&mut replay, &Waypoint::default()))
    }

    /// Adds waypoints up to entry `upto`, unless the latest one is at most `spacing` sequence numbers before it.
    fn extend(&mut self, upto: Seq, watch: Watch<'_>) -> Result<(), TimelineError> {
        let newest = self.newest().seq;
        if upto.0.saturating_sub(newest.0) <= self.spacing {
            return Ok(());
        }
        self.run(newest, upto, watch, |this, replay, record| {
            this.advance(replay, record)?;
            Ok(true)
        })?;
        Ok(())
    }

    /// Returns the state after `at`, with the last entries after `from` up to `at`, and the first entries after `at` up to `last`: at most
    /// [`AROUND`] of each.
    fn look(
        &mut self,
        (from, at, last): (Seq, Seq, Seq),
        watch: Watch<'_>,
    ) -> Result<StateAt, TimelineError> {
        let (mut before, mut after) = (VecDeque::new(), Vec::new());
        let mut state = None;
        let end = self.run(from, last, watch, |this, replay, record| {
            if record.seq <= from {
                this.advance(replay, record)?;
                return Ok(true);
            }
            replay.follow(FollowedItem::Everything);
            if record.seq <= at {
                before.push_back(replay.record(record)?);
                if before.len() > AROUND {
                    before.pop_front();
                }
                return Ok(true);
            }
            if state.is_none() {
                state = Some(captured(replay));
            }
            after.push(replay.record(record)?);
            Ok(after.len() < AROUND)
        })?;
        let begins = Reader::open_present(self.disk.as_ref())?.after();
        let (time, offset, actors) = state.unwrap_or_else(|| captured(&end));
        Ok(StateAt {
            seq: at,
            at: time,
            offset,
            begins: Seq(begins.0.saturating_add(1)),
            known: self.waypoints.first().map_or(Seq(0), |it| it.seq),
            last,
            actors,
            before: before.into(),
            after,
        })
    }

    /// Finds the last [`AROUND`] entries up to `at`, or all of them if there are fewer, and returns the sequence number just before the
    /// first one found; `None` if there are none.
    fn nth_before(&self, at: Seq) -> Result<Option<Seq>, TimelineError> {
        let earlier = self.waypoints.partition_point(|it| it.seq < at);
        let mut found = None;
        for waypoint in self.waypoints.iter().take(earlier).rev() {
            let mut reader = Reader::open_after(self.disk.as_ref(), begin_at(waypoint))?;
            let mut entries = VecDeque::new();
            while entries.back().is_none_or(|last| *last < at) {
                let Some(record) = reader.next()?.filter(|record| record.seq <= at) else {
                    break;
                };
                entries.push_back(record.seq);
                if entries.len() > AROUND {
                    entries.pop_front();
                }
            }
            found = entries.front().map(|first| Seq(first.0.saturating_sub(1)));
            if entries.len() == AROUND {
                break;
            }
        }
        Ok(found)
    }

    /// Resumes a replay from the last waypoint at or before `from`, and calls `each` for the following records up to `last`, until `each`
    /// returns false. `each` must apply the record to the replay. Returns the replay.
    fn run(
        &mut self,
        from: Seq,
        last: Seq,
        watch: Watch<'_>,
        mut each: impl FnMut(&mut Self, &mut Replay, &Record<'_>) -> Result<bool, TimelineError>,
    ) -> Result<Replay, TimelineError> {
        let disk = Arc::clone(&self.disk);
        let after = self.waypoints.partition_point(|it| it.seq <= from);
        let waypoint = self.waypoints.get(after.saturating_sub(1));
        let waypoint = waypoint.expect("there should be a waypoint after `begin`");
        let mut reader = Reader::open_after(disk.as_ref(), begin_at(waypoint))?;
        let mut replay = waypoint.resume().map_err(TimelineError::Waypoint)?;
        self.since = (0, 0);
        while replay.last < last {
            let Some(record) = reader.next()?.filter(|record| record.seq <= last) else {
                break;
            };
            if !each(self, &mut replay, &record)? {
                break;
            }
            watched(record.seq, watch)?;
        }
        Ok(replay)
    }

    /// Applies a record, and keeps the resulting state as a waypoint if at least `spacing` records, or [`Bounds::record_bytes`] bytes of
    /// records, have been applied since the latest waypoint. Returns the events of the followed item.
    fn advance(
        &mut self,
        replay: &mut Replay,
        record: &Record<'_>,
    ) -> Result<Vec<HistoryEvent>, TimelineError> {
        let events = replay.advance(record)?;
        if record.seq > self.newest().seq {
            self.since.0 += 1;
            self.since.1 += record.payload.len() as u64;
            if self.since.0 >= self.spacing || self.since.1 >= self.bounds.record_bytes {
                self.keep(replay)?;
            }
        }
        Ok(events)
    }

    /// Keeps the state of a replay as a waypoint, or returns an error if it is too large. While all waypoints together exceed
    /// [`Bounds::kept_bytes`], drops every second one, until only two are left.
    fn keep(&mut self, replay: &mut Replay) -> Result<(), TimelineError> {
        let waypoint = Waypoint::take(replay, self.newest());
        self.check(waypoint.bytes())?;
        self.waypoints.push(waypoint);
        self.since = (0, 0);
        while self.waypoints.len() > 2 && bytes_of(&self.waypoints) > self.bounds.kept_bytes {
            let mut stays = false;
            self.waypoints.retain(|_| {
                stays = !stays;
                stays
            });
            self.spacing = self.spacing.saturating_mul(2);
        }
        Ok(())
    }

    fn newest(&self) -> &Waypoint {
        self.waypoints.last().expect("there should be a waypoint after `begin`")
    }

    fn check(&self, bytes: u64) -> Result<(), TimelineError> {
        let most = self.bounds.state_bytes;
        if bytes > most {
            return Err(TimelineError::TooLarge { bytes, most });
        }
        Ok(())
    }
}

fn begin_at(waypoint: &Waypoint) -> Begin {
    Begin { after: waypoint.seq, at: waypoint.at, ..Begin::default() }
}

fn watched(seq: Seq, watch: Watch<'_>) -> Result<(), TimelineError> {
    if seq.0.is_multiple_of(WATCHED) && !watch(seq) {
        return Err(TimelineError::Abandoned);
    }
    Ok(())
}

/// Returns the current time, clock offset and state of a replay.
fn captured(replay: &Replay) -> (Timestamp, Offset, Vec<ActorAt>) {
    let actors = replay.actors.iter().map(|actor| ActorAt {
        name: actor.name(),
        digest: actor.state_digest(),
        gauges: actor.gauges(),
        state: actor.sample(SAMPLE),
    });
    let offset = Offset(replay.marked.offset_ms);
    (replay.at, offset, actors.collect())
}
