//! Formats services for a terminal.

use crate::figure::Figure;
use crate::process::page::{failure, shown_command};
use crate::table::{Column, table};
use crate::text::{count, number, plain, span, words};
use serde_json::Value;

/// The number of characters to which a text in the last column is cut, without the `...` that marks the cut.
const MAX_LETTERS: usize = 60;

fn at(value: &Value, path: &str) -> Option<u64> {
    value.pointer(path).and_then(Value::as_u64)
}

fn instances(service: &Value) -> &[Value] {
    let all = service.pointer("/instances").and_then(Value::as_array);
    all.map(Vec::as_slice).unwrap_or_default()
}

/// Formats a table with a line for each instance of each service. Cuts texts in the last column to [`MAX_LETTERS`], unless `whole` is true.
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
                shown_command(service),
                detail(service, instance, now, whole),
            ]
        })
    });
    table(heads, rows)
}

/// Returns the detail shown next to an instance's state: what it waits for, when it restarts, how it last ended, or the status that its
/// process reported; `-` if there is none. Cuts texts that may be long to [`MAX_LETTERS`].
pub(crate) fn about(service: &Value, instance: &Value, now: u64) -> String {
    detail(service, instance, now, false)
}

/// Returns the same as [`about`], but cut only if `whole` is false.
pub(super) fn detail(service: &Value, instance: &Value, now: u64, whole: bool) -> String {
    let shown = |text: String| if whole { text } else { cut(&text) };
    match words(instance, "/status").as_str() {
        "waiting" => shown(format!("for {}", awaited(service))),
        "backoff" => {
            let next = at(instance, "/next_at").unwrap_or(now);
            let left = span(next.saturating_sub(now));
            shown(format!("again in {left}; {}", last(instance)))
        }
        "failed" => match gave_up(service) {
            Some(words) => format!("{}; {words}", shown(last(instance))),
            None => shown(last(instance)),
        },
        "finished" => shown(last(instance)),
        "running" | "starting" | "stopping" => match words(instance, "/said").as_str() {
            "" | "-" => "-".to_owned(),
            body => shown(plain(body)),
        },
        _ => "-".to_owned(),
    }
}

fn cut(text: &str) -> String {
    let mut letters = text.chars();
    let short: String = letters.by_ref().take(MAX_LETTERS).collect();
    if letters.next().is_some() {
        return short + "...";
    }
    short
}

/// Returns the names of the services that a service waits for.
pub(super) fn awaited(service: &Value) -> String {
    let all = service.pointer("/waits_for").and_then(Value::as_array);
    let names = all.into_iter().flatten().filter_map(Value::as_str);
    plain(&names.collect::<Vec<_>>().join(", "))
}

/// Formats a period in the largest unit of which it is a multiple.
fn period(ms: Figure) -> String {
    ms.shown(|ms| match (ms % 3_600_000, ms % 60_000, ms % 1000) {
        (0, _, _) => format!("{} h", ms / 3_600_000),
        (_, 0, _) => format!("{} min", ms / 60_000),
        (_, _, 0) => format!("{} s", ms / 1000),
        _ => format!("{ms} ms"),
    })
}

/// Describes the limit on restarts that a failed service has reached, and how to start it again. Returns `None` if it failed although it is
/// never restarted.
fn gave_up(service: &Value) -> Option<String> {
    let intensity = service.pointer("/intensity").filter(|it| it.is_object())?;
    if words(service, "/restart") == "never" {
        return None;
    }
    let restarts = count(number(intensity, "/restarts_max"), "restart");
    let period = period(number(intensity, "/period_ms"));
    let name = plain(&words(service, "/name"));
    Some(format!("gave up after {restarts} in {period}: sexton service start {name}"))
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

#[cfg(test)]
mod tests {
    use super::detail;
    use serde_json::json;

    #[test]
    fn one_that_was_given_up_shows_how_to_start_it_however_long_its_last_end_is() {
        let words = "deep/".repeat(20);
        let instance = json!({"status": "failed", "last": {"failure": {"words": words}}});
        let mut service = json!({
            "name": "web", "restart": "always",
            "intensity": {"restarts_max": 1, "period_ms": 3000},
        });
        let advice = "gave up after 1 restart in 3 s: sexton service start web";
        let shown = detail(&service, &instance, 0, false);
        assert!(shown.ends_with(&format!("...; {advice}")), "{shown}");
        let whole = detail(&service, &instance, 0, true);
        assert_eq!(whole, format!("not started: {words}; {advice}"));
        service["restart"] = json!("never");
        let never = detail(&service, &instance, 0, false);
        assert!(never.ends_with("deep/de..."), "{never}");
    }
}
