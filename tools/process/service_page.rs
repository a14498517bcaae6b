//! Formats services for a terminal.

use crate::process::page::{command, failure};
use crate::table::{Column, table};
use crate::text::{number, plain, span, words};
use serde_json::Value;

/// The number of characters to which the last column is cut, without the `...` that marks the cut.
const MAX_LETTERS: usize = 60;

fn at(value: &Value, path: &str) -> Option<u64> {
    value.pointer(path).and_then(Value::as_u64)
}

fn instances(service: &Value) -> &[Value] {
    let all = service.pointer("/instances").and_then(Value::as_array);
    all.map(Vec::as_slice).unwrap_or_default()
}

/// Formats a table with a line for each instance of each service. Cuts the last column to [`MAX_LETTERS`], unless `whole` is true.
pub(super) fn list(services: &[Value], now: u64, whole: bool) -> String {
    if services.is_empty() {
        return "no services; [services.NAME] in the file of `sexton serve --config` defines one\n"
            .to_owned();
    }
    let heads = [
        ("SERVICE", Column::Words),
        ("STATUS", Column::Words),
        ("PID", Column::Number),
        ("UP", Column::Number),
        ("RESTARTS", Column::Number),
        ("COMMAND", Column::Words),
        ("ABOUT", Column::Words),
    ];
    let rows = services.iter().flat_map(|service| {
        let all = instances(service);
        all.iter().map(move |instance| {
            let name = plain(&words(service, "/name"));
            let name = match all.len() {
                1 => name,
                _ => format!("{name} {}", number(instance, "/number")),
            };
            let up = at(instance, "/started_at");
            [
                name,
                words(instance, "/status"),
                at(instance, "/pid").map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
                up.map_or_else(|| "-".to_owned(), |at| span(now.saturating_sub(at))),
                number(instance, "/restarts").to_string(),
                command(service),
                if whole {
                    all_about(service, instance, now)
                } else {
                    about(service, instance, now)
                },
            ]
        })
    });
    table(heads, rows)
}

/// Returns the detail shown next to an instance's state, as [`all_about`] does, but cut to [`MAX_LETTERS`].
pub(crate) fn about(service: &Value, instance: &Value, now: u64) -> String {
    let body = all_about(service, instance, now);
    let mut letters = body.chars();
    let short: String = letters.by_ref().take(MAX_LETTERS).collect();
    if letters.next().is_some() {
        return short + "...";
    }
    short
}

/// Returns the detail shown next to an instance's state: what it waits for, when it restarts, how it last ended, or the status that its
/// process reported; `-` if there is none.
fn all_about(service: &Value, instance: &Value, now: u64) -> String {
    let names = || {
        let all = service.pointer("/waits_for").and_then(Value::as_array);
        let names = all.into_iter().flatten().filter_map(Value::as_str);
        plain(&names.collect::<Vec<_>>().join(", "))
    };
    match words(instance, "/status").as_str() {
        "waiting" => format!("for {}", names()),
        "backoff" => {
            let next = at(instance, "/next_at").unwrap_or(now);
            format!(
                "again in {}; {}",
                span(next.saturating_sub(now)),
                last(instance)
            )
        }
        "failed" | "finished" => last(instance),
        "running" | "starting" | "stopping" => match words(instance, "/said").as_str() {
            "" | "-" => "-".to_owned(),
            body => plain(body),
        },
        _ => "-".to_owned(),
    }
}

/// Describes how the previous process of an instance ended; `-` if there was none.
pub(crate) fn last(instance: &Value) -> String {
    let Some(last) = instance.pointer("/last").filter(|it| !it.is_null()) else {
        return "-".to_owned();
    };
    if let Some(found) = last.pointer("/failure").filter(|it| !it.is_null()) {
        return format!("not started: {}", plain(&failure(found)));
    }
    match last.pointer("/stopped_by").and_then(Value::as_str) {
        Some("not-ready") => return "not ready in time".to_owned(),
        Some("watchdog") => return "no watchdog message in time".to_owned(),
        Some("timeout") => return "ran too long".to_owned(),
        _ => {}
    }
    match (at(last, "/signal"), at(last, "/code")) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("exit {code}"),
        (None, None) => format!("lost: {}", words(last, "/lost")),
    }
}
