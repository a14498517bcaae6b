//! Applies journal records and lines of exported logs, in order, to the actors that they belong to. On request, compares the recorded
//! outcomes with the decisions of the current rules.

use crate::actors::{Actors, Rules, each};
use crate::clock::{Offset, Timestamp};
use crate::ids::{ActorId, Digest, Seq};
use crate::persist::PersistError;
use crate::persist::format;
use crate::persist::journal::Record;
use crate::persist::mark::{Mark, Marked, Watermark};
use crate::persist::snapshots::{Seal, SlotId, Slots};
use crate::replay::history::FollowedItem;
use crate::replay::line::{Kind, Line, LineError, NODE};
use crate::replay::replayed::{DecodedEntry, Replayed};
use crate::spine::machine::{Actor, Moment, Now, Stamp, Start};
use crate::spine::recovery::{self, Recovering, RecoveryError, Replica, decode_mark};
use serde_json::Value;

/// A replay in progress.
pub struct Replay {
    pub(super) actors: Vec<Box<dyn Replayed>>,
    pub(super) last: Seq,
    pub(super) at: Timestamp,
    /// The accumulated effect of the marks (the node's own records) so far.
    pub(super) marked: Marked,
    verify: bool,
    /// Whether records are only read, because there is no state to apply them to.
    reads_only: bool,
    mismatches: Vec<Mismatch>,
    noted: CheckpointDigests,
    pub(super) followed: Option<FollowedItem>,
}

/// An entry that the current rules decide differently.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Mismatch {
    /// The sequence number of the entry.
    pub seq: Seq,
    /// The actor's name.
    pub actor: &'static str,
    /// The recorded outcome.
    pub recorded: Value,
    /// The outcome under the current rules, or the error text if they could not decide the message.
    pub decided: Value,
}

/// The digests that checkpoints recorded, and the results of comparing them with the replayed states.
#[derive(Default)]
struct CheckpointDigests {
    /// The recorded digests of states that the replay has not reached yet, by sequence number.
    states: Vec<Watermark>,
    /// The number of digests compared so far.
    compared: u64,
    differing: Vec<Differing>,
}

/// A state whose digest differs from the digest that a checkpoint recorded.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Differing {
    /// The actor's name.
    pub actor: &'static str,
    /// The last entry included in the state.
    pub upto: Seq,
    /// The recorded digest.
    pub noted: Digest,
    /// The digest of the replayed state.
    pub replayed: Digest,
}

/// Why a replay cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A record cannot be read or decoded, belongs to an unknown actor, or panicked when it was committed.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// A line cannot be read.
    #[error(transparent)]
    Line(#[from] LineError),
    /// A line cannot be applied.
    #[error("replay line {line}: {cause}")]
    Impossible {
        /// The line number, counted from 1.
        line: usize,
        /// The reason.
        cause: String,
    },
}

impl Default for Replay {
    fn default() -> Self {
        let replicas = Actors::empty(&Rules::default());
        Self {
            actors: each!(replica in replicas => Box::new(replica) as Box<dyn Replayed>).into(),
            ..Self::new()
        }
    }
}

impl Replay {
    /// Creates a replay with no actors. Add every actor whose entries the log may contain, using [`with_actor`](Self::with_actor): an entry
    /// of an unknown actor is an error.
    pub fn new() -> Self {
        Self {
            actors: Vec::new(),
            last: Seq(0),
            at: Timestamp(0),
            marked: Marked::default(),
            verify: false,
            reads_only: false,
            mismatches: Vec::new(),
            noted: CheckpointDigests::default(),
            followed: None,
        }
    }

    /// Adds an empty actor that decides by `rules` until the log records other rules.
    #[must_use]
    pub fn with_actor<M: Actor>(mut self, rules: M::Rules) -> Self {
        self.actors.push(Box::new(Replica::<M>::new(rules)));
        self
    }

    /// Makes the replay decide every recorded entry again and collect the differences.
    #[must_use]
    pub fn verifying(mut self) -> Self {
        self.verify = true;
        self
    }

    /// Sets the item to follow: from now on, every line includes its effects on `item`.
    pub fn follow(&mut self, item: FollowedItem) {
        self.followed = Some(item);
    }

    /// Makes the replay read later records without applying them. This is for a log that lacks the state at its beginning.
    pub fn read_only(&mut self) {
        self.reads_only = true;
    }

    /// Returns the entries that the current rules decide differently; empty unless the replay is [`verifying`](Self::verifying).
    pub fn mismatches(&self) -> &[Mismatch] {
        &self.mismatches
    }

    /// Starts from a snapshot instead of from the first record. Records that the snapshot already covers are not applied again. If the
    /// snapshot cannot be read, returns an error and leaves the replay unchanged.
    pub fn load(
        &mut self,
        slots: &Slots,
        (slot, seal): (SlotId, &Seal),
    ) -> Result<(), PersistError> {
        let mut actors: Vec<&mut dyn Recovering> = Vec::with_capacity(self.actors.len());
        for actor in &mut self.actors {
            actors.push(actor.as_mut());
        }
        recovery::load(slots, slot, seal, &mut actors, false)?;
        let manifest = &seal.manifest;
        self.begin_at((manifest.begun, manifest.at), manifest.marked.clone());
        Ok(())
    }

    /// Makes the replay continue after entry `last`. The actors must already hold the state at that point.
    pub(super) fn begin_at(&mut self, (last, at): (Seq, Timestamp), marked: Marked) {
        (self.last, self.at, self.marked) = (last, at, marked);
        for (actor, rules) in self.marked.rules.clone() {
            self.set_rules(actor, &rules);
        }
    }

    /// Collects the digests in a checkpoint's mark, so that each is compared when the replay reaches its state. Ignores other marks.
    pub fn note(&mut self, mark: &Mark) {
        if let Mark::Checkpoint { states, .. } = mark {
            self.noted.states.extend(states.iter().cloned());
            self.noted.states.sort_by_key(|state| state.upto);
        }
    }

    /// Compares the digests recorded for the states reached so far. Returns the total number of digests compared, and those that differ.
    pub fn compared(&mut self) -> (u64, &[Differing]) {
        self.compare_noted(Seq(self.last.0.saturating_add(1)));
        (self.noted.compared, &self.noted.differing)
    }

    /// Compares the digests recorded for states before entry `before`. The replay must have reached all of these states.
    fn compare_noted(&mut self, before: Seq) {
        let reached = self.noted.states.partition_point(|state| state.upto < before);
        for state in self.noted.states.drain(..reached) {
            let actor = self.actors.iter().find(|actor| actor.actor() == state.actor);
            // If the replay began with a snapshot, digests of older states cannot be compared.
            let Some(actor) = actor.filter(|actor| actor.last() <= state.upto) else {
                continue;
            };
            self.noted.compared += 1;
            if !actor.has_state_digest(state.digest) {
                let replayed = actor.state_digest();
                self.noted.differing.push(Differing {
                    actor: actor.name(),
                    upto: state.upto,
                    noted: state.digest,
                    replayed,
                });
            }
        }
    }

    /// Returns the last sequence number replayed.
    pub fn last(&self) -> Seq {
        self.last
    }

    /// Returns the name, digest and state of every actor, at the current point of the replay.
    pub fn states(&self) -> impl Iterator<Item = (&'static str, Digest, Value)> + '_ {
        self.actors.iter().map(|actor| (actor.name(), actor.state_digest(), actor.view()))
    }

    /// Replays a journal record and returns it as a line.
    pub fn record(&mut self, record: &Record<'_>) -> Result<Line, ReplayError> {
        let mut line = Line::new(Kind::Mark, NODE);
        line.seq = Some(record.seq);
        line.at = Some(record.at);
        let stamp = Stamp { seq: record.seq, at: record.at };
        self.compare_noted(record.seq);
        match record.kind {
            format::Kind::Mark | format::Kind::End => {
                let mark = decode_mark(record)?;
                self.mark(stamp, &mark);
                line.mark = Some(mark);
            }
            format::Kind::Entry => {
                let (verify, reads_only) = (self.verify, self.reads_only);
                let followed = self.followed.clone();
                let actor = self.of_record(record)?;
                let told = actor.entry(record, followed.as_ref())?;
                line.actor = actor.name().to_owned();
                line.kind = Kind::Entry;
                // Records that the snapshot already covers are shown, but not applied again.
                if record.seq > actor.last() && !reads_only {
                    if verify {
                        self.compare(
                            &self.moment(record.actor, stamp),
                            &line.actor,
                            &told.message,
                            &told.outcome,
                        );
                    }
                    let actor = self.of_record(record)?;
                    actor.apply(record)?;
                    if let (Some(item), Some(before)) = (&followed, told.before) {
                        line.events = actor.after(item, before);
                    }
                    line.about = told.about;
                } else if let Some(item) = followed.filter(|item| item.concerns(&line.actor)) {
                    line.events = item.unknown(&told.message);
                }
                line.message = Some(told.message);
                line.outcome = Some(told.outcome);
                line.key = told.key;
            }
            format::Kind::Poisoned => {
                let actor = self.of_record(record)?;
                let poisoned = actor.poisoned(record)?;
                line.actor = actor.name().to_owned();
                line.kind = Kind::Poisoned;
                let item = self.followed.as_ref();
                let item = item.filter(|item| item.concerns(&line.actor));
                line.events = item.map_or_else(Vec::new, |item| item.panicked(&poisoned));
                line.message = Some(poisoned.message);
                line.stage = Some(poisoned.stage);
                line.cause = Some(poisoned.cause);
            }
        }
        self.last = record.seq;
        self.at = record.at;
        Ok(line)
    }

    /// Replays a line of a log; `number` is its line number, for errors. Returns the entries that became due before it, then the line
    /// itself with its sequence number, time and outcome. A line of kind `time` is not returned.
    pub fn line(&mut self, line: Line, number: usize) -> Result<Vec<Line>, ReplayError> {
        let impossible = |cause: String| ReplayError::Impossible { line: number, cause };
        let at = line.at.unwrap_or(self.at);
        if at < self.at {
            return Err(impossible(format!("time goes back from {} to {at}", self.at)));
        }
        let mut done = Vec::new();
        let passes =
            line.kind == Kind::Time || (line.kind == Kind::Entry && line.outcome.is_none());
        if passes && !self.reads_only {
            self.pass(at, &mut done).map_err(impossible)?;
        }
        self.at = at;
        if line.kind == Kind::Time {
            return Ok(done);
        }
        let seq = line.seq.map_or_else(|| following(self.last), Ok).map_err(impossible)?;
        if seq <= self.last {
            let last = self.last;
            return Err(impossible(format!(
                "sequence number {seq} is not greater than the previous one, {last}"
            )));
        }
        let stamp = Stamp { seq, at };
        let mut whole = Line { seq: Some(seq), at: Some(at), ..line };
        if self.reads_only {
            self.last = seq;
            return only_read(whole, self.followed.as_ref()).map_err(impossible);
        }
        self.compare_noted(seq);
        match whole.kind {
            Kind::Mark => {
                let mark = whole.mark.as_ref().ok_or_else(|| {
                    impossible("a line of kind `mark` needs the field `mark`".into())
                })?;
                self.mark(stamp, mark);
            }
            Kind::Entry => {
                let (told, decided) = self.entry(stamp, &whole).map_err(impossible)?;
                let Some(told) = told else {
                    // Nothing changed: a journal would not record this entry either, so it does not use up a sequence number.
                    done.push(Line { seq: None, outcome: decided, ..whole });
                    return Ok(done);
                };
                whole.outcome = Some(told.outcome);
                whole.about = told.about;
                whole.events = told.events;
            }
            Kind::Poisoned | Kind::Time => {}
        }
        self.last = seq;
        done.push(whole);
        Ok(done)
    }

    /// Commits the entry of a line. The result is the entry and `None`; or, if the entry changes nothing, `None` and its decision.
    fn entry(
        &mut self,
        stamp: Stamp,
        line: &Line,
    ) -> Result<(Option<DecodedEntry>, Option<Value>), String> {
        let message = line.message.as_ref().ok_or("an entry needs the field `message`")?;
        let actor = self.named(&line.actor)?.actor();
        let moment = self.moment(actor, stamp);
        if let (true, Some(outcome)) = (self.verify, &line.outcome) {
            self.compare(&moment, &line.actor, message, outcome);
        }
        let followed = self.followed.clone();
        let actor = self.named(&line.actor)?;
        let outcome = line.outcome.as_ref();
        match actor.commit(&moment, (message, outcome), line.key, followed.as_ref())? {
            Some(told) => Ok((Some(told), None)),
            None => Ok((None, Some(actor.decide(&moment, message)?))),
        }
    }

    /// Replays a whole log of JSON lines. Returns the lines that were applied, including entries that became due in between.
    ///
    /// ```
    /// use sexton::replay::Replay;
    /// let log = r#"
    ///     {"at": 1000, "actor": "lock", "message": {"request": {"key": "k", "index": "1", "owner": "ann", "ttl": 2, "ttw": 9, "priority": 0}}}
    ///     {"at": 1000, "actor": "lock", "message": {"request": {"key": "k", "index": "1", "owner": "bob", "ttl": 60, "ttw": 9, "priority": 0}}}
    ///     {"at": 3000, "kind": "time"}
    /// "#;
    /// let mut replay = Replay::default();
    /// let lines = replay.log(log)?;
    /// assert_eq!(lines.len(), 3, "the expiry of ann's lock is a separate entry");
    /// let mut states = replay.states();
    /// let (_, _, locks) = states.find(|(actor, ..)| *actor == "lock").expect("there should be a lock actor");
    /// assert_eq!(locks["entries"][0]["owner"], "bob");
    /// # Ok::<(), sexton::replay::ReplayError>(())
    /// ```
    pub fn log(&mut self, text: &str) -> Result<Vec<Line>, ReplayError> {
        let mut done = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            if let Some(line) = Line::parse(line, number)? {
                done.extend(self.line(line, number)?);
            }
        }
        Ok(done)
    }

    /// Handles all items of every actor that are due at `at`, as a host would, and adds their entries to `done`.
    fn pass(&mut self, at: Timestamp, done: &mut Vec<Line>) -> Result<(), String> {
        for actor in &mut self.actors {
            let offset = Offset(self.marked.offset_ms);
            let held = self.marked.believed.is_some();
            while let Some(message) = actor.due(Now { at, offset }, held) {
                let seq = following(self.last)?;
                let moment = moment(&self.marked, actor.actor(), Stamp { seq, at });
                let followed = self.followed.as_ref();
                let Some(told) = actor.commit(&moment, (&message, None), None, followed)? else {
                    return Err(format!("{message} is due, but changes nothing"));
                };
                self.last = seq;
                done.push(Line {
                    seq: Some(seq),
                    at: Some(at),
                    message: Some(told.message),
                    outcome: Some(told.outcome),
                    about: told.about,
                    events: told.events,
                    ..Line::new(Kind::Entry, actor.name())
                });
            }
        }
        Ok(())
    }

    pub(super) fn mark(&mut self, stamp: Stamp, mark: &Mark) {
        self.marked.apply(mark);
        match mark {
            Mark::Rules { actor, rules } => self.set_rules(*actor, rules),
            Mark::Start { skipped, .. } if !self.reads_only => {
                for actor in &mut self.actors {
                    if stamp.seq > actor.last() {
                        let skipped = *skipped;
                        actor.start(Start { stamp, skipped });
                    }
                }
            }
            Mark::Start { .. }
            | Mark::Stop
            | Mark::Clock { .. }
            | Mark::Reserve { .. }
            | Mark::Drain { .. }
            | Mark::Checkpoint { .. } => {}
        }
    }

    /// Uses recorded rules for later decisions of `actor`. Rules that cannot be decoded were written by another version, and are ignored:
    /// the decisions of that version may differ anyway.
    fn set_rules(&mut self, actor: ActorId, rules: &[u8]) {
        if let Some(actor) = self.actors.iter_mut().find(|one| one.actor() == actor) {
            actor.set_rules(rules);
        }
    }

    fn moment(&self, actor: ActorId, stamp: Stamp) -> Moment {
        moment(&self.marked, actor, stamp)
    }

    fn compare(&mut self, moment: &Moment, name: &str, message: &Value, recorded: &Value) {
        let Some(actor) = self.actors.iter().find(|actor| actor.name() == name) else {
            return;
        };
        let decided = match actor.decide(moment, message) {
            Ok(decided) => decided,
            Err(cause) => Value::String(cause),
        };
        if decided != *recorded {
            let actor = actor.name();
            let recorded = recorded.clone();
            self.mismatches.push(Mismatch { seq: moment.seq, actor, recorded, decided });
        }
    }

    fn named(&mut self, name: &str) -> Result<&mut dyn Replayed, String> {
        let known: Vec<_> = self.actors.iter().map(|actor| actor.name()).collect();
        match self.actors.iter_mut().find(|actor| actor.name() == name) {
            Some(actor) => Ok(actor.as_mut()),
            None if name == NODE => {
                Err(format!("an entry needs an actor: one of {}", known.join(", ")))
            }
            None => Err(format!("there is no actor {name:?}: use one of {}", known.join(", "))),
        }
    }

    fn of_record(&mut self, record: &Record<'_>) -> Result<&mut dyn Replayed, RecoveryError> {
        actor_of(&mut self.actors, record)
    }
}

/// Returns the actor that the record belongs to, or an error if the replay does not have this actor.
pub(super) fn actor_of<'a>(
    actors: &'a mut [Box<dyn Replayed>],
    record: &Record<'_>,
) -> Result<&'a mut dyn Replayed, RecoveryError> {
    let (seq, actor) = (record.seq, record.actor);
    match actors.iter_mut().find(|replayed| replayed.actor() == actor) {
        Some(replayed) => Ok(replayed.as_mut()),
        None => Err(RecoveryError::UnknownActor { seq, actor }),
    }
}

fn following(last: Seq) -> Result<Seq, String> {
    let seq = last.0.checked_add(1).ok_or("all sequence numbers are used up")?;
    Ok(Seq(seq))
}

/// Returns a line that is not applied, because there is no state to apply it to. If its message names the followed item, adds an event that
/// says so. Returns an error for an entry without an outcome.
fn only_read(mut line: Line, followed: Option<&FollowedItem>) -> Result<Vec<Line>, String> {
    let item = followed.filter(|item| item.concerns(&line.actor));
    if let Some((item, message)) = item.zip(line.message.as_ref()) {
        line.events = item.unknown(message);
    }
    if line.kind == Kind::Entry && line.outcome.is_none() {
        return Err("it has no outcome, and cannot be decided because there is no state".into());
    }
    Ok(vec![line])
}

/// Returns the inputs of a decision other than the message, the rules and the state, as recorded in the log.
fn moment(marked: &Marked, actor: ActorId, Stamp { seq, at }: Stamp) -> Moment {
    Moment {
        seq,
        now: Now { at, offset: Offset(marked.offset_ms) },
        chance: marked.chance,
        draining: marked.draining(actor),
    }
}
