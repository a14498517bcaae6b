//! The services and live processes as of the last answer. The processes form trees, in which each process is below its parent.
//!
//! Resource usage is known only for the processes whose lines were on the screen when it was requested.

use crate::figure::Figure;
use crate::text::number;
use crate::top::sample::list;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A process's position in the tree: for each of its ancestors except the root, and for itself, whether more siblings follow. Empty for a
/// root.
pub(crate) type Way = Vec<bool>;

/// Services and live processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Family {
    pub(crate) services: Vec<Value>,
    /// Live processes, each after its parent, with their positions in the tree.
    pub(crate) members: Vec<(Way, Value)>,
    /// Whether there are more live processes than `members`.
    pub(crate) has_more: bool,
    /// Whether processes are known.
    pub(crate) standing: Standing,
    usage: BTreeMap<String, Usage>,
}

/// Whether processes are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Not requested yet.
    #[default]
    NotRequested,
    /// They are known.
    Known,
    /// The request failed, for this reason.
    Refused(String),
}

/// The resource usage of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    /// The coordinator's uptime when this usage was read.
    uptime_ms: u64,
    pub(crate) cpu_ms: Figure,
    pub(crate) memory_bytes: Figure,
    /// CPU use since the previous reading, in thousandths of one processor; `None` if there is no such reading or it cannot be compared.
    pub(crate) share: Option<u64>,
}

impl Family {
    /// Applies an answer about processes. `uptime_ms` is the coordinator's uptime when it answered. If `answer` is not an object,
    /// processes were not requested, and everything is cleared.
    pub(crate) fn take(&mut self, answer: &mut Value, uptime_ms: u64) {
        if !answer.is_object() {
            *self = Self::default();
            return;
        }
        if let Some(why) = answer.pointer("/refused").and_then(Value::as_str) {
            *self = Self { standing: Standing::Refused(why.to_owned()), ..Self::default() };
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
            let over_ms = uptime_ms.checked_sub(before.uptime_ms).filter(|ms| *ms > 0)?;
            let used_ms = cpu_ms.known()?.checked_sub(before.cpu_ms.known()?)?;
            Some(used_ms.saturating_mul(1000) / over_ms)
        });
        Self { uptime_ms, cpu_ms, memory_bytes: number(answer, "/memory_bytes"), share }
    }
}

/// Returns the id of a process's record; empty if it has none.
pub(crate) fn id(record: &Value) -> &str {
    record.get("id").and_then(Value::as_str).unwrap_or_default()
}

/// Sorts records into tree order: each is followed by its descendants. A record whose parent is missing is a root. Not recursive,
/// since a tree may be a thousand levels deep.
fn tree(records: Vec<Value>) -> Vec<(Way, Value)> {
    let parent = |record: &Value| {
        let parent = record.get("parent").and_then(Value::as_str);
        parent.unwrap_or_default().to_owned()
    };
    let there: BTreeSet<String> = records.iter().map(|it| id(it).to_owned()).collect();
    let mut below: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for record in records {
        // A record that names itself as its parent becomes a root, since it would never be reached otherwise. Longer cycles are not
        // expected: a process is recorded after its parent.
        let parent = Some(parent(&record)).filter(|it| there.contains(it) && it != id(&record));
        below.entry(parent.unwrap_or_default()).or_default().push(record);
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
