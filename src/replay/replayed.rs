//! The JSON interface to a machine of any type: messages and outcomes are passed as JSON values.

use crate::decode;
use crate::ids::{Digest, RequestKey, Seq};
use crate::persist::journal::Record;
use crate::persist::snapshots::Page;
use crate::replay::history::{Before, FollowedItem, HistoryEvent};
use crate::replay::masked::mask;
use crate::spine::guard::panic_words;
use crate::spine::ledger::{Entry, Poisoned};
use crate::spine::machine::{About, Actor, Durability, Moment, Now, Stamp};
use crate::spine::record::{RecoveryError, decode_record};
use crate::spine::recovery::{EntryOf, Recovering, Replica};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An actor to which a log can be replayed, with JSON values in place of the actor's own types.
pub trait Replayed: Recovering {
    /// Decodes a journal record that has not been applied yet. The result describes the items in the slots that the record refers to
    /// and, if an item is followed, contains its state before the record; `events` is still empty.
    fn entry(
        &self,
        record: &Record<'_>,
        followed: Option<&FollowedItem>,
    ) -> Result<DecodedEntry, RecoveryError>;
    /// Returns the state of an item before a record is applied, and the effects that the record will have.
    fn before(&self, record: &Record<'_>, followed: &FollowedItem)
    -> Result<Before, RecoveryError>;
    /// Returns a record's effects on the followed item. Must be called after the record is applied, with the `before` taken for it.
    fn after(&self, followed: &FollowedItem, before: Before) -> Vec<HistoryEvent>;
    /// Decodes the journal record of a poisoned message (one that panicked), and returns the message as JSON.
    fn poisoned(&self, record: &Record<'_>) -> Result<Poisoned<Value>, RecoveryError>;
    /// Returns what the current rules decide about a message, or an error text if it cannot be decoded or the decision panics.
    fn decide(&self, moment: &Moment, message: &Value) -> Result<Value, String>;
    /// Commits the message in `said` with the outcome in it; if there is no outcome, decides the message first. Returns the entry, or
    /// `None` if the outcome changes nothing and is therefore not committed. Fails if `said` cannot be decoded, or if the commit panics.
    fn commit(
        &mut self,
        moment: &Moment,
        said: (&Value, Option<&Value>),
        key: Option<RequestKey>,
        followed: Option<&FollowedItem>,
    ) -> Result<Option<DecodedEntry>, String>;
    /// Uses `rules`, as encoded in the log, for later decisions. Rules that cannot be decoded are ignored.
    fn set_rules(&mut self, rules: &[u8]);
    /// Returns the tick of the first item that is due, or `None` if no item is due. If `held` is true, because the wall clock is in doubt,
    /// removals on a date are not due.
    fn due(&mut self, now: Now, held: bool) -> Option<Value>;
    /// Returns the debug format of the reply that the sender of `message` receives for `outcome`, or an error text if either cannot be
    /// decoded.
    fn reply(&self, seq: Seq, message: &Value, outcome: &Value) -> Result<String, String>;
    /// Returns the digest of the state.
    fn state_digest(&self) -> Digest;
    /// Returns whether a recorded digest is that of the state, as this or an earlier version of the program computes it.
    fn has_state_digest(&self, recorded: Digest) -> bool;
    /// Returns the state as JSON.
    fn view(&self) -> Value;
    /// Returns the state as JSON, with only the first `most` items of each kind.
    fn sample(&self, most: usize) -> Value;
    /// Returns the pages that changed after the entry `since`, with their current content.
    fn pages_since(&mut self, since: Seq) -> Vec<Page>;
}

/// Converts a view to JSON, with secrets in commands masked.
fn shown(view: &impl serde::Serialize) -> Value {
    let mut value = to_json(view);
    mask(&mut value);
    value
}

/// A journal entry whose message and outcome are decoded to JSON.
#[derive(Debug)]
pub struct DecodedEntry {
    /// The request.
    pub message: Value,
    /// The decision.
    pub outcome: Value,
    /// The idempotency key of the message, if it has one.
    pub key: Option<RequestKey>,
    /// The items in the slots that the outcome refers to.
    pub about: Vec<About>,
    /// The effects on the followed item; empty until the entry is committed.
    pub events: Vec<HistoryEvent>,
    /// The state of the followed item before the entry; `None` if no item is followed.
    pub(super) before: Option<Before>,
}

impl<M: Actor> Replayed for Replica<M> {
    fn entry(
        &self,
        record: &Record<'_>,
        followed: Option<&FollowedItem>,
    ) -> Result<DecodedEntry, RecoveryError> {
        Ok(self.decoded(stamp_of(record), &Self::decode(record)?, followed))
    }

    fn before(
        &self,
        record: &Record<'_>,
        followed: &FollowedItem,
    ) -> Result<Before, RecoveryError> {
        let (stamp, entry) = (stamp_of(record), Self::decode(record)?);
        Ok(followed.before(self.machine(), stamp, (&entry.message, &entry.outcome)))
    }

    fn after(&self, followed: &FollowedItem, before: Before) -> Vec<HistoryEvent> {
        followed.after(self.machine(), before)
    }

    fn poisoned(&self, record: &Record<'_>) -> Result<Poisoned<Value>, RecoveryError> {
        let poisoned: Poisoned<M::Message> = decode_record(record, M::NAME)?;
        let message = to_json(&poisoned.message);
        Ok(Poisoned { stage: poisoned.stage, cause: poisoned.cause, message })
    }

    fn decide(&self, moment: &Moment, message: &Value) -> Result<Value, String> {
        let message: M::Message = from_json(message)?;
        // The current rules may panic even if the rules in force when the entry was recorded did not.
        let decide = || self.machine().decide(moment, &message);
        catch_unwind(AssertUnwindSafe(decide))
            .map(|outcome| to_json(&outcome))
            .map_err(|payload| format!("panicked: {}", panic_words(payload.as_ref())))
    }

    fn commit(
        &mut self,
        moment: &Moment,
        (message, outcome): (&Value, Option<&Value>),
        key: Option<RequestKey>,
        followed: Option<&FollowedItem>,
    ) -> Result<Option<DecodedEntry>, String> {
        let message: M::Message = from_json(message)?;
        let outcome: M::Outcome = match outcome {
            Some(outcome) => from_json(outcome)?,
            None => self.machine().decide(moment, &message),
        };
        if self.machine().durability(&message, &outcome) == Durability::Nothing {
            return Ok(None);
        }
        let entry = Entry { message, outcome, key };
        let mut told = self.decoded(moment.stamp(), &entry, followed);
        Self::commit(self, moment.stamp(), &entry).map_err(|error| match error {
            RecoveryError::Panicked { cause, .. } => {
                format!("it does not follow from the lines before it ({cause})")
            }
            error @ (RecoveryError::Persist(_)
            | RecoveryError::Lost { .. }
            | RecoveryError::OtherLog { .. }
            | RecoveryError::UnknownActor { .. }
            | RecoveryError::Undecodable { .. }) => error.to_string(),
        })?;
        if let (Some(item), Some(before)) = (followed, told.before.take()) {
            told.events = item.after(self.machine(), before);
        }
        Ok(Some(told))
    }

    fn set_rules(&mut self, rules: &[u8]) {
        if let Ok(rules) = decode::from_slice(rules) {
            self.set_rules(rules);
        }
    }

    fn due(&mut self, now: Now, held: bool) -> Option<Value> {
        self.machine_mut().hold_removals(held);
        let item = self.machine_mut().due(now)?;
        Some(to_json(&self.machine().tick(item)))
    }

    fn reply(&self, seq: Seq, message: &Value, outcome: &Value) -> Result<String, String> {
        Ok(format!("{:?}", self.machine().reply(seq, &from_json(message)?, &from_json(outcome)?)))
    }

    fn state_digest(&self) -> Digest {
        self.digest()
    }

    fn has_state_digest(&self, recorded: Digest) -> bool {
        self.has_digest(recorded)
    }

    fn view(&self) -> Value {
        shown(&self.machine().view())
    }

    fn sample(&self, most: usize) -> Value {
        shown(&self.machine().sample(most))
    }

    fn pages_since(&mut self, since: Seq) -> Vec<Page> {
        Self::pages_since(self, since)
    }
}

impl<M: Actor> Replica<M> {
    /// Converts an entry that has not been committed yet. Its effects are known only after the commit, so `events` is empty.
    fn decoded(
        &self,
        stamp: Stamp,
        entry: &EntryOf<M>,
        followed: Option<&FollowedItem>,
    ) -> DecodedEntry {
        let said = (&entry.message, &entry.outcome);
        DecodedEntry {
            before: followed.map(|item| item.before(self.machine(), stamp, said)),
            events: Vec::new(),
            message: to_json(&entry.message),
            outcome: to_json(&entry.outcome),
            key: entry.key,
            about: self.machine().about(&entry.outcome),
        }
    }
}

fn stamp_of(record: &Record<'_>) -> Stamp {
    Stamp { seq: record.seq, at: record.at }
}

fn to_json(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).expect("messages, outcomes and views should have only string keys")
}

fn from_json<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| error.to_string())
}
