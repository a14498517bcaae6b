//! The stored form of a record. It is part of the on-disk format: see the change rule in `persist/format.rs`.

use crate::actors::binding::Until;
use crate::actors::process::identity::Identity;
use crate::actors::process::message::{End, Failure, HookOutput, Remains};
use crate::actors::process::record::{
    Announced, Deferral, Phase, RareFields, Record, Sending, Sent, Stop, Stuck,
};
use crate::clock::{Date, Timestamp};
use crate::ids::{ActorId, ProcessId, Seq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The fields of a record in the order in which they are stored; [`Record`] and [`RareFields`] describe them.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Record")]
struct Stored<'a> {
    id: ProcessId,
    made: Seq,
    parent: Option<ProcessId>,
    root: ProcessId,
    depth: u16,
    number: u64,
    launched: bool,
    phase: Phase,
    identity: Option<Identity>,
    contained: bool,
    queued: Date,
    started: Option<Date>,
    ended: Option<Date>,
    expires: Option<Timestamp>,
    stop: Option<Stop>,
    end: Option<End>,
    empty: bool,
    failure: Option<Cow<'a, Failure>>,
    error: Option<Cow<'a, str>>,
    remains: Option<Cow<'a, Remains>>,
    stuck: Option<Stuck>,
    signals: Cow<'a, [Sending]>,
    sent: Option<Sent>,
    #[serde(default)]
    watchers: Cow<'a, BTreeSet<(ActorId, Until)>>,
    #[serde(default)]
    announced: Announced,
    #[serde(default)]
    ready_by: Option<Timestamp>,
    #[serde(default)]
    said: Option<Cow<'a, str>>,
    #[serde(default)]
    found: Option<Cow<'a, HookOutput>>,
    #[serde(default)]
    awaited: Option<ActorId>,
    // Fields are stored by their order, so none is left out before one that is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    handled: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deferred: Option<Deferral>,
}

impl<'a> From<&'a Record> for Stored<'a> {
    fn from(record: &'a Record) -> Self {
        let rare: &RareFields = &record.rare;
        let has_refused = rare.refused > 0 || rare.deferred.is_some();
        let has_handled = rare.handled > 0 || has_refused;
        Self {
            id: record.id,
            made: record.made,
            parent: record.parent,
            root: record.root,
            depth: record.depth,
            number: record.number,
            launched: record.launched,
            phase: record.phase,
            identity: record.identity,
            contained: record.contained,
            queued: record.queued,
            started: record.started,
            ended: record.ended,
            expires: record.expires,
            stop: rare.stop,
            end: record.end,
            empty: record.empty,
            failure: rare.failure.as_ref().map(Cow::Borrowed),
            error: rare.error.as_deref().map(Cow::Borrowed),
            remains: record.remains.as_deref().map(Cow::Borrowed),
            stuck: rare.stuck,
            signals: Cow::Borrowed(&rare.signals),
            sent: rare.sent,
            watchers: Cow::Borrowed(&record.watchers),
            announced: record.announced,
            ready_by: rare.ready_by,
            said: rare.said.as_deref().map(Cow::Borrowed),
            found: rare.found.as_deref().map(Cow::Borrowed),
            awaited: record.awaited,
            handled: has_handled.then_some(rare.handled),
            refused: has_refused.then_some(rare.refused),
            deferred: rare.deferred,
        }
    }
}

impl From<Stored<'_>> for Record {
    fn from(stored: Stored<'_>) -> Self {
        let rare = RareFields {
            stop: stored.stop,
            failure: stored.failure.map(Cow::into_owned),
            error: stored.error.map(Cow::into_owned),
            stuck: stored.stuck,
            signals: stored.signals.into_owned(),
            sent: stored.sent,
            ready_by: stored.ready_by,
            said: stored.said.map(Cow::into_owned),
            found: stored.found.map(|it| Box::new(it.into_owned())),
            handled: stored.handled.unwrap_or_default(),
            refused: stored.refused.unwrap_or_default(),
            deferred: stored.deferred,
        };
        Self {
            id: stored.id,
            made: stored.made,
            parent: stored.parent,
            root: stored.root,
            depth: stored.depth,
            number: stored.number,
            launched: stored.launched,
            phase: stored.phase,
            identity: stored.identity,
            contained: stored.contained,
            queued: stored.queued,
            started: stored.started,
            ended: stored.ended,
            expires: stored.expires,
            end: stored.end,
            empty: stored.empty,
            remains: stored.remains.map(|it| Arc::new(it.into_owned())),
            watchers: stored.watchers.into_owned(),
            announced: stored.announced,
            awaited: stored.awaited,
            rare: rare.into(),
            // The profile is stored on a separate page, and the count of live children is volatile: `state.rs` sets both.
            profile: Arc::default(),
            held: 0,
        }
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Stored::from(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Stored::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use crate::actors::binding::Until;
    use crate::actors::process::failure::{Failure, Step};
    use crate::actors::process::message::{HookOutput, Remains};
    use crate::actors::process::output::Output;
    use crate::actors::process::record::{
        Cause, Deferral, RareFields, Record, Sending, Sent, Stop, Stuck,
    };
    use crate::bytes::Bytes;
    use crate::clock::Timestamp;
    use crate::decode;
    use crate::ids::{ActorId, ProcessId, Seq};
    use std::sync::Arc;

    /// Returns a record with every rare field set.
    fn rare() -> Record {
        let stop = Stop {
            cause: Cause::Timeout,
            signal: 15,
            tree: true,
            since: Timestamp(7),
            grace_ms: 100,
            killed: false,
            asked: Seq(8),
            errno: Some(3),
        };
        let failure = Failure { step: Step::Exec, errno: 2, about: Some("/bin/none".to_owned()) };
        let fields = RareFields {
            stop: Some(stop),
            failure: Some(failure),
            error: Some("an error".to_owned()),
            stuck: Stuck::new(1, 2),
            signals: vec![Sending { asked: Seq(9), signal: 10, group: true }],
            sent: Some(Sent { asked: Seq(6), errno: None }),
            ready_by: Some(Timestamp(11)),
            said: Some("a status".to_owned()),
            found: Some(Box::new(HookOutput {
                records: 3,
                kept: vec![Bytes::new(*b"{}")],
                ..HookOutput::default()
            })),
            handled: 4,
            refused: 2,
            deferred: Some(Deferral { bound: true }),
        };
        let remains = Remains {
            alive: 1,
            stdout: Output::new(500, b"the head", b"the tail"),
            ..Remains::default()
        };
        Record {
            id: ProcessId(1),
            root: ProcessId(1),
            remains: Some(Arc::new(remains)),
            watchers: [(ActorId::LEASE, Until::Tree)].into(),
            awaited: Some(ActorId::DISPATCH),
            rare: fields.into(),
            ..Record::default()
        }
    }

    /// Returns a record whose launch is deferred, and that has no other rare field.
    fn deferred() -> Record {
        let mut record = Record::default();
        record.rare.deferred = Some(Deferral { bound: false });
        record
    }

    #[test]
    fn a_record_is_restored_as_it_was_stored() {
        for record in [Record::default(), rare(), deferred()] {
            let stored = rmp_serde::to_vec(&record).expect("a record is encoded");
            let restored: Record = decode::from_slice(&stored).expect("a stored record decodes");
            assert_eq!(restored, record);
        }
    }

    #[cfg(feature = "replay")]
    #[test]
    fn a_record_is_restored_from_json() {
        for record in [Record::default(), rare(), deferred()] {
            let shown = serde_json::to_string(&record).expect("a record is encoded");
            let restored: Record = serde_json::from_str(&shown).expect("a stored record decodes");
            assert_eq!(restored, record);
        }
    }

    #[cfg(feature = "replay")]
    #[test]
    fn a_record_is_stored_field_by_field_in_this_order() {
        let shown = serde_json::to_value(rare()).expect("a record is encoded");
        let names: Vec<&String> = shown.as_object().expect("an object").keys().collect();
        let order = "id made parent root depth number launched phase identity contained queued started ended \
             expires stop end empty failure error remains stuck signals sent watchers announced ready_by said found awaited handled refused deferred";
        assert_eq!(names, order.split_whitespace().collect::<Vec<_>>());
        let stdout = shown.pointer("/remains/stdout").expect("it has output");
        let wanted = serde_json::json!({ "bytes": 500, "head": "the head", "tail": "the tail" });
        assert_eq!(*stdout, wanted);
        // In a snapshot, the fields of the record are stored as an array, and so are those of an output.
        let stored = rmp_serde::to_vec(&rare()).expect("a record is encoded");
        assert_eq!(stored.get(..3), Some([0xdc, 0, 32].as_slice()));
        // A field without a value takes no room at the end of the array, so that records are stored as by earlier versions.
        let stored = rmp_serde::to_vec(&Record::default()).expect("a record is encoded");
        assert_eq!(stored.get(..3), Some([0xdc, 0, 29].as_slice()));
    }

    /// `docs/benchmarks.md` allows 1,024 bytes for a record with output: the record, its `Remains`, two outputs and the index entries.
    #[cfg(target_pointer_width = "64")]
    #[test]
    fn a_record_without_rare_fields_is_small() {
        assert!(size_of::<Option<Record>>() <= 288, "{}", size_of::<Record>());
        // With the two reference counts of an `Arc`, this fills a size class of common allocators: 128 bytes.
        assert!(size_of::<Remains>() <= 112, "{}", size_of::<Remains>());
        let mut record = Record::default();
        record.rare.said = Some(String::new());
        record.rare.said = None;
        record.rare.settle();
        assert!(record.rare.get_mut().is_none(), "nothing is allocated");
    }
}
