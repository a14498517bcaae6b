//! What a coordinator answers about locks: for people, as JSON, and as an exit status.

use crate::client::Answer;
use crate::lock::named::shown;
use crate::report::Failure;
use crate::table::Column;
use crate::text::{number, span, words};
use serde_json::Value;

/// What an answer says, if it is as asked.
pub(super) fn well(answer: &Answer) -> Result<Value, Failure> {
    let said = answer.said()?;
    if answer.status == 200 {
        Ok(said)
    } else {
        Err(refused(answer.status, &said))
    }
}

/// A refusal, as an exit status and in words.
pub(crate) fn refused(status: u16, said: &Value) -> Failure {
    let detail = words(said, "/detail");
    let reason = said.pointer("/reason").and_then(Value::as_str);
    match (status, reason) {
        (409, Some("held")) => {
            let holder = shown(said, "owner");
            let place = number(said, "/place");
            Failure::found(format!(
                "not acquired: {holder} holds the lock, and this owner stood at place {place}"
            ))
            .help("`--wait SECONDS` waits for it; `sexton lock list KEY` shows who else does")
        }
        (409, Some("stale")) => Failure::found(format!("not done: {detail}"))
            .help("stop what the lock guards: somebody else may hold it by now"),
        (404, Some("absent")) => Failure::found(format!("not done: {detail}")).help(
            "an entry is known by key, index and owner together; `sexton lock list` shows them all",
        ),
        (503, Some("draining")) => Failure::found(format!("not done: {detail}"))
            .help("renewals and releases go on; a start ends the drain"),
        (403, Some("reserved")) | (503, Some("full" | "waits")) => {
            Failure::found(format!("not done: {detail}"))
        }
        (507, _) => Failure::found(format!("not done: {detail}"))
            .help("free space on the coordinator's disk; it goes on by itself"),
        (400, _) => Failure::usage(format!("the coordinator did not understand: {detail}")),
        (503, _) => Failure::halted(format!("the coordinator does not answer: {detail}")),
        _ => Failure::unreachable(format!("the coordinator refuses to answer: {detail}")),
    }
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
    ];
    let rows = entries.iter().map(|entry| {
        [
            blank_as_dash(shown(entry, "key")),
            blank_as_dash(shown(entry, "index")),
            words(entry, "/place"),
            shown(entry, "owner"),
            words(entry, "/priority"),
            span(number(entry, "/remaining_ms")),
            words(entry, "/token"),
        ]
    });
    crate::table::table(heads, rows)
}

fn blank_as_dash(text: String) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}
