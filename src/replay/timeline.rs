//! The history of one journal: the state after any entry, the entries around it, and the story (all events) of an item.
//!
//! The first pass through the journal keeps intermediate states, called waypoints. After that, computing the state at any entry takes only
//! a short replay from the waypoint before it. When the waypoints exceed a number of bytes, every second one is dropped. Nothing is
//! written, and records after the end that the caller sets are not read.

use crate::clock::{Offset, Timestamp};
use crate::ids::{Digest, Seq};
use crate::persist::PersistError;
use crate::persist::disk::Disk;
use crate::persist::journal::{Begin, Reader, Record, segment};
use crate::persist::snapshots::{Seal, Slots};
use crate::replay::line::Line;
use crate::replay::run::{Replay, ReplayError};
use crate::replay::story::{Followed, StoryEvent};
use crate::replay::waypoint::{Waypoint, bytes_of};
use crate::spine::machine::Gauge;
use crate::spine::recovery::{self, RecoveryError};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;

/// The number of entries shown before the requested entry, and after it.
pub const AROUND: usize = 20;

/// How far to look back for those entries at first, in sequence numbers. This is usually enough, although numbers may have gaps.
const MARGIN: u64 = 1000;

/// The maximum number of events in a story. Older ones are dropped.
pub const STORY_MAX: usize = 100;

/// How often a replay checks whether its result is still needed: once per this number of sequence numbers.
const WATCHED: u64 = 256;

/// Limits on the memory of a timeline.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The initial number of records between two waypoints.
    pub records: u64,
    /// The maximum bytes of records between two waypoints.
    pub record_bytes: u64,
    /// The maximum bytes of one state, as pages. A larger state is refused.
    pub state_bytes: u64,
    /// The maximum bytes of all waypoints.
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

/// A function called with the progress of a replay. It returns whether the result is still needed.
pub type Watch<'w> = &'w mut dyn FnMut(Seq) -> bool;

/// Why an earlier state or a story cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// The journal cannot be read or replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The state would take too much memory.
    #[error("the state is {bytes} bytes, more than the {most} that are replayed in memory")]
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
    /// The requested sequence number, whether or not an entry has it.
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
    /// The last entries up to `seq`, oldest first.
    pub before: Vec<Line>,
    /// The first entries after it.
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

/// The maximum number of items of each kind shown of a state.
pub const SAMPLE: usize = 100;

/// The history of an item, as far back as the journal goes.
#[derive(Clone, Debug)]
pub struct Story {
    /// The last entry that was read.
    pub upto: Seq,
    /// The first entry that was read.
    pub begins: Seq,
    /// The wall clock minus node time at the end.
    pub offset: Offset,
    /// The latest events, at most [`STORY_MAX`], oldest first, with the entry and the time of each.
    pub events: VecDeque<(Seq, Timestamp, StoryEvent)>,
    /// Whether older events were dropped.
    pub more: bool,
}

/// The history of the journal on a disk.
pub struct Timeline {
    disk: Arc<dyn Disk>,
    slots: Slots,
    bounds: Bounds,
    /// The waypoints, in order. Earlier states than the first one cannot be computed.
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
        Self {
            disk,
            slots,
            bounds,
            waypoints: Vec::new(),
            spacing: bounds.records,
            since: (0, 0),
        }
    }

    /// Returns the state after entry `at`, or after the last entry before it; after `last` if `at` is `None`. A number outside the known
    /// range is replaced by the nearest one within it.
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

    /// Returns the history of an item, from the first entry that can be replayed up to entry `last`.
    pub fn story(
        &mut self,
        item: &Followed,
        last: Seq,
        watch: Watch<'_>,
    ) -> Result<Story, TimelineError> {
        let known = self.begin(last, watch)?;
        let (mut events, mut more) = (VecDeque::new(), false);
        let mut offset = Offset::default();
        self.run(Seq(0), last, watch, |this, replay, record| {
            if replay.followed.is_none() {
                replay.follow(item.clone());
            }
            let found = this.advance(replay, record)?;
            events.extend(
                found
                    .into_iter()
                    .map(|event| (record.seq, record.at, event)),
            );
            while events.len() > STORY_MAX {
                events.pop_front();
                more = true;
            }
            offset = Offset(replay.marked.offset_ms);
            Ok(true)
        })?;
        Ok(Story {
            upto: last,
            begins: Seq(known.0.saturating_add(1)),
            offset,
            events,
            more,
        })
    }

    /// Ensures that there is a first waypoint that the journal continues, and returns its entry. It becomes later when segments of the
    /// journal are removed.
    fn begin(&mut self, last: Seq, watch: Watch<'_>) -> Result<Seq, TimelineError> {
        let disk = self.disk.as_ref();
        let ordinals = segment::ordinals(disk)?;
        let is_whole = ordinals.first().is_none_or(|first| *first == 1);
        let goes_on = |it: &Waypoint| match it.seq {
            Seq(0) => is_whole,
            seq => recovery::goes_back(disk, seq),
        };
        let kept = self.waypoints.iter().position(goes_on);
        self.waypoints.drain(..kept.unwrap_or(self.waypoints.len()));
        if self.waypoints.is_empty() {
            self.since = (0, 0);
            let first = if is_whole {
                Waypoint::default()
            } else {
                self.after_snapshot(last, watch)?
            };
            self.waypoints.push(first);
        }
        Ok(self.waypoints.first().map_or(Seq(0), |first| first.seq))
    }

    /// Returns a waypoint with the state of the oldest readable snapshot that the journal continues.
    fn after_snapshot(&self, last: Seq, watch: Watch<'_>) -> Result<Waypoint, TimelineError> {
        let disk = self.disk.as_ref();
        let mut looked = recovery::look(disk, &self.slots)?;
        looked.sealed.reverse();
        for (slot, seal) in &looked.sealed {
            if !recovery::goes_back(disk, seal.manifest.begun) {
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
        let begin = Begin {
            after: manifest.begun,
            at: manifest.at,
            ..Begin::default()
        };
        let mut reader = Reader::open_after(self.disk.as_ref(), begin)?;
        while replay.last < settled.min(last) {
            let Some(record) = reader.next()? else { break };
            replay.advance(&record)?;
            watched(replay.last, watch)?;
        }
        Ok(Waypoint::take(&mut replay, &Waypoint::default()))
    }

    /// Adds waypoints up to entry `upto`, unless the latest one is close enough.
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

    /// Returns the state after `at`, with up to [`AROUND`] entries between `from` and `at`, and as many after it.
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
            replay.follow(Followed::Everything);
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

    /// Returns the sequence number before the last [`AROUND`] entries up to `at`, or before the first entry if there are fewer; `None` if
    /// there are none.
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

    /// Calls `each`, which must apply the record to the replay, for all records from the last waypoint at or before `from` up to `last`,
    /// until it returns false. Returns the replay.
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
        let waypoint = waypoint.expect("there is a first waypoint");
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

    /// Applies a record, and keeps the resulting state as a waypoint if it is far enough from the latest one. Returns the events of the
    /// followed item.
    fn advance(
        &mut self,
        replay: &mut Replay,
        record: &Record<'_>,
    ) -> Result<Vec<StoryEvent>, TimelineError> {
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

    /// Keeps the state of a replay as a waypoint. If all waypoints exceed their limit, drops every second one.
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
        self.waypoints.last().expect("there is a first waypoint")
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
    Begin {
        after: waypoint.seq,
        at: waypoint.at,
        ..Begin::default()
    }
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
