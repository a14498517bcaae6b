//! The story of an item: everything that happened to it, according to a log. An item is a job, a queue, a lock, all locks under a key, a
//! lease, a process or a task.

use crate::actors::lock::Name;
use crate::actors::queue::QueueName;
use crate::ids::ProcessId;
use crate::spine::event::{EventBody, Field};
use crate::spine::ledger::Poisoned;
use crate::spine::machine::{Actor, Stamp};
use crate::text::escaped;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// An item, or a group of items, to follow through a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowedItem {
    /// The job with this id.
    Job(u64),
    /// The queue with this name, and every job in it.
    Queue(QueueName),
    /// Every lock under this key.
    Key(Name),
    /// The lock with this key and index.
    Lock(Name, Name),
    /// The lease with this name.
    Lease(Name),
    /// The process with this id.
    Process(ProcessId),
    /// The task with this number.
    Task(u64),
    /// Every item of every actor.
    Everything,
}

/// An effect of an entry on an item, in the terms that users see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryEvent {
    /// The kind of effect, such as `claimed`.
    pub kind: String,
    /// Further fields, in order; unprintable bytes of names are written as `\xNN`.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

impl FollowedItem {
    /// Returns whether entries of `actor` may affect the item.
    pub fn concerns(&self, actor: &str) -> bool {
        match self {
            Self::Job(_) | Self::Queue(_) => actor == "queue",
            Self::Key(_) | Self::Lock(..) => actor == "lock",
            Self::Lease(_) => actor == "lease",
            Self::Process(_) => actor == "process",
            Self::Task(_) => actor == "dispatch",
            Self::Everything => true,
        }
    }

    /// Returns whether an event is about this item.
    pub(super) fn is_of(&self, told: &EventBody) -> bool {
        let has = |wanted: &str, value: &dyn Fn(&Field) -> bool| {
            let mut fields = told.fields.iter();
            fields.any(|(field, found)| *field == wanted && value(found))
        };
        let is_name =
            |name: &[u8], found: &Field| matches!(found, Field::Name(it) if **it == *name);
        match self {
            Self::Job(id) => has("job", &|found| *found == Field::Number(*id)),
            Self::Queue(queue) => has("queue", &|found| is_name(queue.as_bytes(), found)),
            Self::Key(key) => has("key", &|found| is_name(key.as_bytes(), found)),
            Self::Lock(key, index) => {
                has("key", &|found| is_name(key.as_bytes(), found))
                    && has("index", &|found| is_name(index.as_bytes(), found))
            }
            Self::Lease(lease) => has("lease", &|found| is_name(lease.as_bytes(), found)),
            Self::Process(id) => {
                let id = id.to_string();
                has("process", &|found| is_name(id.as_bytes(), found))
            }
            Self::Task(id) => has("task", &|found| *found == Field::Number(*id)),
            Self::Everything => true,
        }
    }

    /// Returns whether a message names this item.
    pub(super) fn is_named_in(&self, message: &Value) -> bool {
        let is_it = |member: &str, value: &Value| match self {
            Self::Job(id) => member == "id" && value.as_u64() == Some(*id),
            Self::Queue(queue) => member == "queue" && value.as_str() == Some(&*queue.to_string()),
            Self::Key(key) | Self::Lock(key, _) => {
                member == "key" && value.as_str() == Some(&*key.to_text())
            }
            Self::Lease(name) => member == "name" && value.as_str() == Some(&*name.to_text()),
            Self::Process(id) => member == "id" && value.as_str() == Some(&*id.to_string()),
            Self::Task(id) => member == "task" && value.as_u64() == Some(*id),
            Self::Everything => true,
        };
        match message {
            Value::Object(members) => members
                .iter()
                .any(|(member, value)| is_it(member, value) || self.is_named_in(value)),
            Value::Array(items) => items.iter().any(|item| self.is_named_in(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }

    /// Returns the id of the item if entries may change it without naming it; `None` for other items.
    pub(super) const fn number(&self) -> Option<u64> {
        match self {
            Self::Job(id) => Some(*id),
            Self::Queue(_)
            | Self::Key(_)
            | Self::Lock(..)
            | Self::Lease(_)
            | Self::Process(_)
            | Self::Task(_)
            | Self::Everything => None,
        }
    }
}

/// What is known about the followed item before an entry is committed: its state, and the effects that the entry will have.
#[derive(Debug)]
pub struct Before {
    /// Effects that name the item.
    its: Vec<HistoryEvent>,
    /// Effects that name no job. They are used if the item changes although no effect names it.
    all: Vec<HistoryEvent>,
    /// A fingerprint of the item's state, used to notice a change; `None` if there is no such item, or if entries always name it.
    fingerprint: Option<String>,
}

impl FollowedItem {
    fn fingerprint<M: Actor>(&self, machine: &M) -> Option<String> {
        let number = self.number().filter(|_| self.concerns(M::NAME));
        number.and_then(|number| machine.fingerprint(number))
    }

    /// Captures the state of the item before an entry is committed, and the effects that the entry will have.
    pub(super) fn before<M: Actor>(
        &self,
        machine: &M,
        stamp: Stamp,
        (message, outcome): (&M::Message, &M::Outcome),
    ) -> Before {
        let (mut its, mut all) = (Vec::new(), Vec::new());
        let mut publish = |what: EventBody| {
            if self.is_of(&what) {
                its.push(HistoryEvent::from(&what));
            } else if what.fields.iter().all(|(field, _)| *field != "job") {
                all.push(HistoryEvent::from(&what));
            }
        };
        if self.concerns(M::NAME) {
            machine.history(stamp, message, outcome, &mut publish);
        }
        let fingerprint = self.fingerprint(machine);
        Before { its, all, fingerprint }
    }

    /// Returns an entry's effects on the item, after the entry is committed: those that name the item. If there are none but the item's
    /// state has changed, returns those that name no job or, if there are none of these either, an event of kind `changed`.
    pub(super) fn after<M: Actor>(&self, machine: &M, before: Before) -> Vec<HistoryEvent> {
        if !before.its.is_empty() || self.fingerprint(machine) == before.fingerprint {
            before.its
        } else if before.all.is_empty() {
            vec![HistoryEvent::new("changed")]
        } else {
            before.all
        }
    }

    /// Returns a `panicked` event if this poisoned message names the item; otherwise an empty list.
    pub(super) fn panicked(&self, poisoned: &Poisoned<Value>) -> Vec<HistoryEvent> {
        let panicked = || HistoryEvent::new("panicked").with("cause", poisoned.cause.as_str());
        let is_named = self.is_named_in(&poisoned.message);
        is_named.then(panicked).into_iter().collect()
    }

    /// Returns an event for a message that is not applied, with the message's kind and the names in it; an empty list if the message does
    /// not name the item.
    pub(super) fn unknown(&self, message: &Value) -> Vec<HistoryEvent> {
        let word = match message {
            Value::Object(members) => members.keys().next().map_or("-", String::as_str),
            Value::String(word) => word.as_str(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => "-",
        };
        if !self.is_named_in(message) {
            return Vec::new();
        }
        let mut event = HistoryEvent::new(word);
        let inner = message.get(word).and_then(Value::as_object);
        for (member, value) in inner.into_iter().flatten() {
            if ["id", "index", "key", "owner", "queue", "task"].contains(&member.as_str()) {
                let name = if member == "id" { "job" } else { member };
                event = event.with(name, value.clone());
            }
        }
        vec![event]
    }
}

impl fmt::Display for FollowedItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(id) => write!(f, "job {id}"),
            Self::Queue(queue) => write!(f, "queue {queue}"),
            Self::Key(key) => write!(f, "key {}", key.to_text()),
            Self::Lock(key, index) => {
                write!(f, "lock {} {}", key.to_text(), index.to_text())
            }
            Self::Lease(name) => write!(f, "lease {}", name.to_text()),
            Self::Process(id) => write!(f, "process {id}"),
            Self::Task(id) => write!(f, "task {id}"),
            Self::Everything => f.write_str("everything"),
        }
    }
}

impl HistoryEvent {
    /// Creates an event with no fields.
    pub(super) fn new(kind: &str) -> Self {
        Self { kind: kind.to_owned(), fields: Map::new() }
    }

    /// Adds a field.
    #[must_use]
    pub(super) fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(field.to_owned(), value.into());
        self
    }
}

impl From<&EventBody> for HistoryEvent {
    fn from(told: &EventBody) -> Self {
        let value = |field: &Field| match field {
            Field::Name(name) => Value::from(escaped(name)),
            Field::Number(number) => (*number).into(),
            Field::Text(text) => text.as_str().into(),
        };
        let fields = told.fields.iter();
        Self {
            kind: told.kind.to_owned(),
            fields: fields.map(|(field, found)| ((*field).to_owned(), value(found))).collect(),
        }
    }
}
