//! Which processes keep a lock although the process that it is bound to has ended.

use crate::client::{self, Target};
use crate::process::{command, left};
use crate::text::{number, words};
use serde_json::Value;
use sexton_api::lock::Lock;
use sexton_api::name::Name;

/// The maximum number of locks whose processes are looked up for one list.
const LOCKS_MAX: usize = 16;
/// The maximum number of processes that are named for a lock.
const NAMED_MAX: usize = 8;

/// Returns a line for each of these locks that is kept by what an ended process left, for at most [`LOCKS_MAX`] locks. A process that cannot
/// be looked up is not mentioned.
pub(super) fn lines(target: &Target, entries: &[Lock]) -> String {
    let held = entries.iter().filter(|it| it.standing.place == 1);
    let bound = held.filter_map(|it| Some((&it.names.key, it.process.as_deref()?)));
    let lines = bound.take(LOCKS_MAX).filter_map(|(key, process)| line(target, key, process));
    lines.collect()
}

fn line(target: &Target, key: &Name, id: &str) -> Option<String> {
    let of = |path: &str| {
        let answer = client::get(target, &format!("/v1/processes/{path}?id={id}"));
        answer.ok()?.json().ok()
    };
    let record = of("process").filter(has_ended)?;
    let below = of("descendants");
    let below = below.as_ref().and_then(|it| it.pointer("/processes"));
    let below = below.and_then(Value::as_array).map(Vec::as_slice);
    let live = below.unwrap_or_default().iter();
    let live = live.filter(|it| words(it, "/status") != "exited");
    let mut named = left(&record);
    let is_open = |it: &Value| words(it, "/status") != "exited";
    let mut in_doubt = is_open(&record).then(|| words(&record, "/id"));
    for it in live {
        if has_ended(it) {
            named.extend(left(it));
            in_doubt.get_or_insert_with(|| words(it, "/id"));
        } else if number(it, "/pid") > 0 {
            named.push(format!("{} {}", number(it, "/pid"), command(it)));
        }
    }
    let more = named.len().saturating_sub(NAMED_MAX);
    named.truncate(NAMED_MAX);
    if more > 0 {
        named.push(format!("{more} more"));
    }
    let (key, named) = (key.to_text(), named.join(", "));
    if !named.is_empty() {
        let why = format!("what it started keeps the lock: {named}");
        return Some(format!("{key}: the process {id} has ended; {why}\n"));
    }
    // The search for what is left may prove nothing: the lock is then kept although nothing can be named.
    let in_doubt = in_doubt?;
    let why = format!("it is unknown whether what it started is alive: `sexton ps {in_doubt}`");
    Some(format!("{key}: the process {id} has ended; {why}\n"))
}

fn has_ended(record: &Value) -> bool {
    record.pointer("/ended_at").is_some_and(|at| !at.is_null())
}
