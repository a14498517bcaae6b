//! The busiest queues, locks, leases and tasks. A coordinator with very many queues returns only a share of them in each answer, one
//! share after the other; the last answer for each share is kept here.

use crate::figure::Figure;
use crate::text::number;
use crate::top::sample::{Rate, list};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The maximum number of queues shown.
const QUEUES_MAX: usize = 100;

/// The busiest items of a coordinator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    /// Shares of the queues, by their starting position.
    shares: BTreeMap<u64, Share>,
    pub(crate) locks: Vec<Value>,
    /// The number of all locks with waiters.
    pub(crate) locks_all: Figure,
    /// Leases with a running or upcoming pass.
    pub(crate) leases: Vec<Value>,
    /// Whether there are more such leases than those in `leases`.
    pub(crate) leases_more: bool,
    /// Tasks that have not ended.
    pub(crate) tasks: Vec<Value>,
    /// Whether there are more such tasks than those in `tasks`.
    pub(crate) tasks_more: bool,
    /// Whether the coordinator lists the busiest items.
    pub(crate) is_known: bool,
}

/// A share of the queues.
#[derive(Clone, Debug, Default)]
struct Share {
    /// The coordinator's uptime when it returned this share.
    uptime_ms: u64,
    queues: Vec<QueueRow>,
}

/// A queue, with the jobs added and ended per second since the previous answer for its share, if these rates are known.
#[derive(Clone, Debug)]
pub(crate) struct QueueRow {
    pub(crate) queue: Value,
    pub(crate) rates: Option<(Rate, Rate)>,
}

impl Work {
    /// Applies an answer of `/v1/busiest`, which must come from the same process as the previous answers; `uptime_ms` is its uptime when
    /// it answered. If `answer` is not an object, everything is cleared.
    pub(crate) fn take(&mut self, answer: &Value, uptime_ms: u64) {
        if !answer.is_object() {
            *self = Self::default();
            return;
        }
        let after = text_number(answer, "/after").unwrap_or(0);
        let before = self.shares.remove(&after).unwrap_or_default();
        let over_ms = uptime_ms.checked_sub(before.uptime_ms);
        let queues = list(answer, "/queues").iter().map(|queue| QueueRow {
            queue: queue.clone(),
            rates: over_ms.and_then(|over_ms| before.rates(queue, over_ms)),
        });
        let share = Share { uptime_ms, queues: queues.collect() };
        self.shares.insert(after, share);
        // If this is the last share, any later ones date from a time with more queues.
        if text_number(answer, "/next").is_none() {
            drop(self.shares.split_off(&(after + 1)));
        }
        self.locks = list(answer, "/locks").to_vec();
        self.locks_all = number(answer, "/locks_all");
        self.leases = list(answer, "/leases").to_vec();
        self.leases_more = answer.pointer("/leases_more") == Some(&true.into());
        self.tasks = list(answer, "/tasks").to_vec();
        self.tasks_more = answer.pointer("/tasks_more") == Some(&true.into());
        self.is_known = true;
    }

    /// Returns the queues as JSON, each with its rates.
    pub(crate) fn line(&self) -> Vec<Value> {
        let rows = self.queues().into_iter().map(|row| {
            let mut queue = row.queue.clone();
            if let Some(members) = queue.as_object_mut() {
                let (added, gone) = row.rates.unzip();
                members.insert("in_per_second".to_owned(), json!(added.map(Rate::line)));
                members.insert("out_per_second".to_owned(), json!(gone.map(Rate::line)));
            }
            queue
        });
        rows.collect()
    }

    /// Returns the busiest queues of all shares, at most `QUEUES_MAX`, busiest first.
    pub(crate) fn queues(&self) -> Vec<&QueueRow> {
        let shares = self.shares.values();
        let mut rows: Vec<_> = shares.flat_map(|share| &share.queues).collect();
        if self.shares.len() > 1 {
            rows.sort_by_cached_key(|row| std::cmp::Reverse(jobs(&row.queue)));
        }
        rows.truncate(QUEUES_MAX);
        rows
    }
}

impl Share {
    /// Computes the rates of a queue since this share was read; `None` if the queue was created or recreated since then, or if no
    /// time has passed.
    fn rates(&self, queue: &Value, over_ms: u64) -> Option<(Rate, Rate)> {
        let is_it = |row: &&QueueRow| row.queue.get("queue") == queue.get("queue");
        let before = &self.queues.iter().find(is_it)?.queue;
        let rate = |path| {
            let (now, before) = (number(queue, path).known()?, number(before, path).known()?);
            let more = now.checked_sub(before)?;
            Some(Rate::new(more, over_ms)).filter(|_| over_ms > 0)
        };
        Some((rate("/total")?, rate("/deletes")?))
    }
}

/// Returns the number of jobs of a queue, in all phases.
fn jobs(queue: &Value) -> u64 {
    let phases = ["ready", "claimed", "delayed", "retrying", "buried", "abandoned", "quarantined"];
    let counts = phases.iter().filter_map(|phase| queue.get(phase)?.as_u64());
    counts.sum()
}

fn text_number(value: &Value, path: &str) -> Option<u64> {
    value.pointer(path)?.as_str()?.parse().ok()
}
