//! What a coordinator answers about locks: for people, as JSON, and as an exit status.

use crate::client::Answer;
use crate::lock::named::shown;
use crate::report::Failure;
use crate::table::Column;
use crate::text::{span, words};
use serde_json::Value;
use sexton::refusal::Reason;

/// What to do about a refusal.
const HELPS: &[(Reason, &str)] = &[
    (
        Reason::Held,
        "`--wait 10m` waits for it; `sexton lock list KEY` shows who else does",
    ),
    (
        Reason::Stale,
        "stop what the lock guards: somebody else may hold it by now",
    ),
    (
        Reason::Absent,
        "a holder is known by its token, or by its owner as a waiter is; `sexton lock list` shows them all",
    ),
    (
        Reason::Draining,
        "renewals and releases go on; a start ends the drain",
    ),
];

/// What an answer says, if it is as asked.
pub(super) fn well(answer: &Answer) -> Result<Value, Failure> {
    let said = answer.said()?;
    if answer.status == 200 {
        Ok(said)
    } else {
        Err(refused(said))
    }
}

/// A refusal, as an exit status and in words.
pub(crate) fn refused(mut said: Value) -> Failure {
    if said.pointer("/reason") == Some(&Reason::Held.word().into()) {
        let words = match shown(&said, "owner").as_str() {
            "-" => "somebody held the lock, and has just given it back".to_owned(),
            holder => format!("{holder} holds the lock"),
        };
        if let Value::Object(members) = &mut said {
            members.insert("detail".to_owned(), words.into());
        }
    }
    Failure::refused(&said, HELPS)
}

/// Entries as a table.
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
            words(entry, "/place"),
            shown(entry, "owner"),
            words(entry, "/priority"),
            left(entry),
            words(entry, "/token"),
            words(entry, "/process"),
        ]
    });
    crate::table::table(heads, rows)
}

/// How long an entry lasts, if nobody renews it.
fn left(entry: &Value) -> String {
    if entry.pointer("/fencing") == Some(&true.into()) {
        return "fencing".to_owned();
    }
    let left = entry.pointer("/remaining_ms").and_then(Value::as_u64);
    left.map_or_else(|| "-".to_owned(), span)
}

fn blank_as_dash(text: String) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}
