//! Formats answers about locks as tables, and converts refusals to failures.

use crate::client::{self, Target};
use crate::lock::named::shown;
use crate::report::Failure;
use crate::table::Column;
use crate::text::{or_dash, span, time};
use serde_json::Value;
use sexton_api::lock::{Holder, List, Lock};
use sexton_api::refusal::Reason;

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

/// Converts a refusal to a failure that names the holder, if the lock is held.
pub(crate) fn refused(said: &Value) -> Failure {
    let mut body = said.clone();
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
    lock: &Holder,
    (body, has_waited): (&Value, bool),
) -> Failure {
    let is_held = body.pointer("/reason") == Some(&Reason::Held.word().into());
    let named = shown(body, "owner");
    let mut failure = refused(body);
    if !is_held {
        return failure;
    }
    if has_waited {
        failure = failure.help(HELD_ON);
    }
    match holder(target, lock).filter(|it| it.names.owner.to_text() == named) {
        None => failure,
        Some(it) => {
            failure.explained(&format!(", granted or last renewed at {}", time(it.since_at)))
        }
    }
}

/// The maximum width of the line about a wait, in characters: the width of a narrow terminal, less one column for the cursor.
const COLUMNS_MAX: usize = 79;

/// Formats a line about a wait for a lock: who holds the lock, and since when, cut to [`COLUMNS_MAX`]. Returns `None` if nobody holds the
/// lock or the coordinator does not answer.
pub(super) fn wait_line(target: &Target, lock: &Holder) -> Option<String> {
    let holder = holder(target, lock)?;
    // A line that wraps could not be rewritten in place.
    let (owner, since) = (holder.names.owner.to_text(), time(holder.since_at));
    let line = format!("waiting: held by {owner} since {since}");
    Some(line.chars().take(COLUMNS_MAX).collect())
}

/// Returns the entry that holds a lock. Returns `None` if nobody holds the lock or the coordinator does not answer.
fn holder(target: &Target, lock: &Holder) -> Option<Lock> {
    let Holder { key, index } = lock.clone();
    let asked = List { key: Some(key), index: Some(index), ..List::default() };
    let listed = client::ask(target, &asked).ok()?.success(refused).ok()?;
    listed.value.locks.into_iter().find(|it| it.standing.place == 1)
}

/// Formats lock entries as a table.
pub(super) fn table(entries: &[Lock]) -> String {
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
        let or = |text: String, blank: &str| if text.is_empty() { blank.to_owned() } else { text };
        [
            or(entry.names.key.to_text(), "\"\""),
            or(entry.names.index.to_text(), "-"),
            place(entry),
            entry.names.owner.to_text(),
            entry.priority.to_string(),
            left(entry),
            or_dash(entry.standing.token.map(|token| token.to_string())),
            or_dash(entry.process.clone()),
        ]
    });
    crate::table::table(heads, rows)
}

/// Formats the position of an entry in line, and whether its client is away.
fn place(entry: &Lock) -> String {
    let place = entry.standing.place;
    if entry.away { format!("{place} away") } else { place.to_string() }
}

/// Formats the time that is left until an entry expires. Returns `fencing` if the lock has expired and its process is being killed, and
/// `-` if the entry does not expire.
fn left(entry: &Lock) -> String {
    if entry.fencing {
        return "fencing".to_owned();
    }
    or_dash(entry.remaining_ms.map(span))
}
