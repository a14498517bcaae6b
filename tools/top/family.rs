//! Processes as they were last answered: which live, each under its parent, and what those in view use.
//!
//! What a process uses is known of those alone that were in view when it was asked for.

use crate::text::number;
use crate::top::sample::list;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Where a process stands below others: for each of its ancestors whether more follow, and for itself.
pub(crate) type Way = Vec<bool>;

/// Services, and processes that live.
#[derive(Clone, Debug, Default)]
pub(crate) struct Family {
    pub(crate) services: Vec<Value>,
    /// Each after its parent, with the way to it.
    pub(crate) members: Vec<(Way, Value)>,
    /// Whether more live than were asked for.
    pub(crate) has_more: bool,
    /// Whether the coordinator has answered, or why it has not.
    pub(crate) standing: Standing,
    usage: BTreeMap<String, Usage>,
}

/// What is known of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nobody has asked yet.
    #[default]
    Unasked,
    /// They are known.
    Known,
    /// They cannot be asked for.
    Refused(String),
}

/// What a process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    uptime_ms: u64,
    pub(crate) cpu_ms: u64,
    pub(crate) memory_bytes: u64,
    /// Of one processor since it was read before, in thousandths.
    pub(crate) share: Option<u64>,
}

impl Family {
    /// Takes what was answered at this uptime; nothing if nobody asked.
    pub(crate) fn take(&mut self, answer: &mut Value, uptime_ms: u64) {
        if !answer.is_object() {
            *self = Self::default();
            return;
        }
        if let Some(why) = answer.pointer("/refused").and_then(Value::as_str) {
            *self = Self {
                standing: Standing::Refused(why.to_owned()),
                ..Self::default()
            };
            return;
        }
        let before = std::mem::take(&mut self.usage);
        let usage = list(answer, "/usage").iter().filter_map(|one| {
            let id = one.get("id")?.as_str()?;
            Some((id.to_owned(), Usage::of(one, uptime_ms, before.get(id))))
        });
        self.usage = usage.collect();
        self.services = list(answer, "/services").to_vec();
        self.has_more = answer.pointer("/more") == Some(&Value::Bool(true));
        let records = answer.pointer_mut("/processes").map(Value::take);
        self.members = match records {
            Some(Value::Array(records)) => tree(records),
            _ => Vec::new(),
        };
        self.standing = Standing::Known;
    }

    pub(crate) fn usage(&self, record: &Value) -> Option<&Usage> {
        self.usage.get(id(record))
    }
}

impl Usage {
    fn of(answer: &Value, uptime_ms: u64, before: Option<&Self>) -> Self {
        let cpu_ms = number(answer, "/cpu_ms");
        let share = before.and_then(|before| {
            let over_ms = uptime_ms
                .checked_sub(before.uptime_ms)
                .filter(|ms| *ms > 0)?;
            let used_ms = cpu_ms.checked_sub(before.cpu_ms)?;
            Some(used_ms.saturating_mul(1000) / over_ms)
        });
        Self {
            uptime_ms,
            cpu_ms,
            memory_bytes: number(answer, "/memory_bytes"),
            share,
        }
    }
}

/// The id of a record.
pub(crate) fn id(record: &Value) -> &str {
    record.get("id").and_then(Value::as_str).unwrap_or_default()
}

/// Records in the order of their tree. One whose parent is not among them is a root. Without recursion: a tree may be a
/// thousand deep.
fn tree(records: Vec<Value>) -> Vec<(Way, Value)> {
    let parent = |record: &Value| {
        let parent = record.get("parent").and_then(Value::as_str);
        parent.unwrap_or_default().to_owned()
    };
    let there: BTreeSet<String> = records.iter().map(|it| id(it).to_owned()).collect();
    let mut below: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for record in records {
        // Of a circle none would be shown; its members are roots then, which cannot be among records of one machine.
        let parent = Some(parent(&record)).filter(|it| there.contains(it) && it != id(&record));
        below
            .entry(parent.unwrap_or_default())
            .or_default()
            .push(record);
    }
    let mut ordered = Vec::new();
    let mut open: Vec<(Way, Value)> = Vec::new();
    let roots = below.remove("").unwrap_or_default();
    open.extend(roots.into_iter().rev().map(|root| (Way::new(), root)));
    while let Some((way, record)) = open.pop() {
        let children = below.remove(id(&record)).unwrap_or_default();
        let last = children.len().saturating_sub(1);
        let children = children.into_iter().enumerate().rev();
        open.extend(children.map(|(place, child)| {
            let mut further = way.clone();
            further.push(place < last);
            (further, child)
        }));
        ordered.push((way, record));
    }
    ordered
}
