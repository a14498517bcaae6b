//! Formats answers about locks as tables, and converts refusals to failures.

use crate::client::{self, Answer, Fields, Target};
use crate::lock::named::shown;
use crate::report::Failure;
use crate::table::Column;
use crate::text::{number, span, time, words};
use serde_json::Value;
use sexton::clock::Timestamp;
use sexton::refusal::Reason;

/// The advice on a refusal, by its reason.
pub(crate) const HELPS: &[(Reason, &str)] = &[
    (Reason::Held, "wait for it with `--wait 10m`; `sexton lock list KEY` shows who else waits"),
    (Reason::Stale, "stop what the lock guards: another owner may hold it by now"),
    (
        Reason::Absent,
        "name a holder by its token or owner, and a waiter by its owner; `sexton lock list` shows all of them",
    ),
    (Reason::Draining, "renewals and releases still work; a restart ends the drain"),
];

/// The advice if the lock did not become free before the wait ended.
pub(super) const HELD_ON: &str =
    "a longer --wait may help; `sexton lock list KEY` shows who else waits";

/// Returns the answer's body if the status is 200. Otherwise, fails with the refusal.
pub(super) fn success(answer: &Answer) -> Result<Value, Failure> {
    let body = answer.json()?;
    if answer.status == 200 { Ok(body) } else { Err(refused(body)) }
}

/// Converts a refusal to a failure that names the holder, if the lock is held.
pub(crate) fn refused(mut body: Value) -> Failure {
    if body.pointer("/reason") == Some(&Reason::Held.word().into()) {
        let words = match shown(&body, "owner").as_str() {
            "-" => "another owner held the lock and has just released it".to_owned(),
            holder => format!("{holder} holds the lock"),
        };
        if let Value::Object(members) = &mut body {
            members.insert("detail".to_owned(), words.into());
        }
    }
    Failure::refused(&body, HELPS)
}

/// Converts a refusal as [`refused`] does. If the lock is held, the message also has the time at which the holder was granted the lock
/// or last renewed it; if the command has waited, the advice is to wait longer.
pub(super) fn refused_by_holder(
    target: &Target,
    lock: &Fields,
    (body, has_waited): (Value, bool),
) -> Failure {
    let is_held = body.pointer("/reason") == Some(&Reason::Held.word().into());
    let since = is_held.then(|| holder_since(target, lock, &body)).flatten();
    let mut failure = refused(body);
    if is_held && has_waited {
        failure = failure.help(HELD_ON);
    }
    match since {
        None => failure,
        Some(at) => failure.explained(&format!(", granted or last renewed at {}", time(at))),
    }
}

/// The maximum width of the line about a wait, in characters: the width of a narrow terminal, less one column for the cursor.
const COLUMNS_MAX: usize = 79;

/// Formats a line about a wait for a lock: who holds the lock, and since when, cut to [`COLUMNS_MAX`]. Returns `None` if nobody holds the
/// lock or the coordinator does not answer.
pub(super) fn wait_line(target: &Target, lock: &Fields) -> Option<String> {
    let (holder, since) = holder(target, lock)?;
    let since = since.map_or_else(String::new, |at| format!(" since {}", time(at)));
    // A line that wraps could not be rewritten in place.
    let line = format!("waiting: held by {holder}{since}");
    Some(line.chars().take(COLUMNS_MAX).collect())
}

/// Returns the time at which the holder named in a refusal was granted the lock or last renewed it. Returns `None` if it no longer holds
/// the lock, or if the coordinator does not answer.
fn holder_since(target: &Target, lock: &Fields, body: &Value) -> Option<Timestamp> {
    let (holder, since) = holder(target, lock)?;
    since.filter(|_| holder == shown(body, "owner"))
}

/// Returns the holder of a lock, and the time at which it was granted the lock or last renewed it. Returns `None` if nobody holds the
/// lock or the coordinator does not answer.
fn holder(target: &Target, lock: &Fields) -> Option<(String, Option<Timestamp>)> {
    let mut query = lock.clone();
    query.retain(|field, _| !field.starts_with("owner"));
    // Without an index in the query, all indexes of the key would be listed.
    if !query.contains_key("index_b64") {
        query.entry("index").or_insert_with(|| "".into());
    }
    let path = client::with_query("/v1/locks", &query);
    let listed = client::get(target, &path).ok()?.json().ok()?;
    let entries = listed.pointer("/locks").and_then(Value::as_array)?;
    let holder = entries.iter().find(|entry| number(entry, "/place") == 1)?;
    let since = holder.pointer("/since_at").and_then(Value::as_u64);
    Some((shown(holder, "owner"), since.map(Timestamp)))
}

/// Formats lock entries as a table.
pub(super) fn table(entries: &[Value]) -> String {
    let heads = [
        ("KEY", Column::Words),
        ("INDEX", Column::Words),
        ("PLACE", Column::Number),
        ("OWNER", Column::Words),
        ("PRIORITY", Column::Number),
        ("REMAINING", Column::Number),
        ("TOKEN", Column::Number),
        ("PROCESS", Column::Words),
    ];
    let rows = entries.iter().map(|entry| {
        [
            Some(shown(entry, "key"))
                .filter(|key| !key.is_empty())
                .unwrap_or_else(|| "\"\"".to_owned()),
            blank_as_dash(shown(entry, "index")),
            place(entry),
            shown(entry, "owner"),
            words(entry, "/priority"),
            left(entry),
            words(entry, "/token"),
            words(entry, "/process"),
        ]
    });
    crate::table::table(heads, rows)
}

/// Formats the position of an entry in line, and whether its client is away.
fn place(entry: &Value) -> String {
    let place = words(entry, "/place");
    if entry.pointer("/away") == Some(&true.into()) { format!("{place} away") } else { place }
}

/// Formats the time that is left until an entry expires. Returns `fencing` if the lock has expired and its process is being killed, and
/// `-` if the entry does not expire.
fn left(entry: &Value) -> String {
    if entry.pointer("/fencing") == Some(&true.into()) {
        return "fencing".to_owned();
    }
    let left = entry.pointer("/remaining_ms").and_then(Value::as_u64);
    left.map_or_else(|| "-".to_owned(), span)
}

fn blank_as_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}
