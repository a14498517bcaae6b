//! Formats tasks, groups and servers for a terminal.

use crate::figure::Figure;
use crate::lock::shown;
use crate::process::{command, shown_command};
use crate::table::{Column, table};
use crate::task::held::Held;
use crate::text::{brief, count, number, plain, span, time, words};
use serde_json::Value;
use sexton::clock::Timestamp;
use std::fmt::Write as _;

fn at(value: &Value, path: &str) -> Option<u64> {
    value.pointer(path).and_then(Value::as_u64)
}

fn is(value: &Value, path: &str) -> bool {
    value.pointer(path) == Some(&true.into())
}

fn date(value: &Value, path: &str) -> String {
    at(value, path).map_or_else(|| "-".to_owned(), |at| time(Timestamp(at)))
}

/// Returns the items of the list at `path` in an answer; none if there is no list.
pub(super) fn items<'v>(value: &'v Value, path: &str) -> &'v [Value] {
    let all = value.pointer(path).and_then(Value::as_array);
    all.map(Vec::as_slice).unwrap_or_default()
}

/// Describes the state of a task.
fn state(task: &Value) -> String {
    let status = words(task, "/status");
    match status.as_str() {
        "complete" => words(task, "/exit"),
        "processing" => format!("processing on {}", words(task, "/attempt/server")),
        _ => status,
    }
}

/// Describes why a task does not run, or how it ended; `-` if there is nothing to describe.
fn why(task: &Value) -> String {
    if let Some(wake) = at(task, "/wake_at") {
        let left = Figure::from(wake).minus(number(task, "/now"));
        let left = format!("its next burst is in {}", span(left));
        // If the last attempt was reset, name the cause.
        let newest = items(task, "/past").last();
        let newest = newest.filter(|it| words(it, "/outcome") == "reset");
        return match newest {
            Some(newest) => format!("{}: {left}", words(newest, "/cause")),
            None => left,
        };
    }
    let message = task.pointer("/message").and_then(Value::as_str);
    let message = message.filter(|it| !it.is_empty());
    let why = task.pointer("/why").and_then(Value::as_str);
    plain(why.or(message).unwrap_or("-"))
}

/// Formats a task in one line.
pub(super) fn line(task: &Value) -> String {
    let message = task.pointer("/message").and_then(Value::as_str);
    let message = message.filter(|it| !it.is_empty());
    let message = message.map_or_else(String::new, |it| format!(": {}", plain(it)));
    format!("{} {}{message}\n", number(task, "/id"), state(task))
}

/// Formats a task after an action on it: its new state, and what its next burst waits for.
pub(super) fn acted(task: &Value) -> String {
    let mut line = format!("task {}: {}", number(task, "/id"), state(task));
    if is(task, "/terminating") {
        line.push_str(", and its next burst is its last");
    }
    match why(task).as_str() {
        "-" => {}
        why => line = format!("{line}; {why}"),
    }
    line.push('\n');
    line
}

/// Describes a pause that was set for a group, or for all tasks.
pub(super) fn paused(group: Option<&str>, pause: &str) -> String {
    let whose = group.map_or("all tasks".to_owned(), |group| format!("group {group}"));
    let what = match pause {
        "soft" => "paused: no task is started, but those under way continue",
        "hard" => "paused: no burst is started",
        _ => "resumed",
    };
    format!("{} {what}\n", plain(&whose))
}

/// Describes the limit that was set for a group.
pub(super) fn limited(group: &str, max: u64) -> String {
    let group = plain(group);
    match max {
        0 => format!("group {group}: no task is started\n"),
        max => format!("group {group}: at most {} in progress\n", count(max, "task")),
    }
}

/// Formats tasks, one per line.
pub(super) fn list(tasks: &[Value]) -> String {
    if tasks.is_empty() {
        return "no tasks; `sexton task add -- COMMAND` adds one\n".to_owned();
    }
    let heads = [
        ("ID", Column::Number),
        ("STATE", Column::Words),
        ("GROUP", Column::Words),
        ("WORK", Column::Words),
        ("TRIES", Column::Number),
        ("WHY", Column::Words),
        ("COMMAND", Column::Words),
    ];
    let rows = tasks.iter().map(|task| {
        let name = shown(task, "name");
        let name = if matches!(name.as_str(), "" | "-") { shown_command(task) } else { name };
        [
            words(task, "/id"),
            state(task),
            shown(task, "group"),
            shown(task, "work"),
            words(task, "/attempts"),
            why(task),
            name,
        ]
    });
    table(heads, rows)
}

/// Formats a task as a row of an overview: id and name, state, group, and how long it has been running or why it does not run.
pub(crate) fn overview_row(task: &Value) -> [String; 4] {
    let name = shown(task, "name");
    let named = !matches!(name.as_str(), "" | "-");
    let name = if named { name } else { command(task) };
    let since = at(task, "/attempt/claimed_at");
    let since = since.map(|at| span(number(task, "/now").minus(at)));
    [
        format!("{} {name}", words(task, "/id")),
        state(task),
        shown(task, "group"),
        since.unwrap_or_else(|| why(task)),
    ]
}

/// Formats a task with its attempts and the resources of the attempt in progress.
pub(super) fn whole(task: &Value, held: &Held) -> String {
    let mut page = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() && value != "-" {
            writeln!(page, "{name:<11} {value}").expect("writing to memory should not fail");
        }
    };
    line("task", &words(task, "/id"));
    line("name", &shown(task, "name"));
    line("state", &state(task));
    line("why", &why(task));
    line("group", &shown(task, "group"));
    line("work", &shown(task, "work"));
    line("priority", &words(task, "/priority"));
    line("command", &shown_command(task));
    line("created", &date(task, "/created_at"));
    line("started", &date(task, "/started_at"));
    line("ended", &date(task, "/ended_at"));
    if is(task, "/paused") {
        line("paused", "yes");
    }
    if is(task, "/terminating") {
        line("terminating", "its next burst is its last");
    }
    let saved = match number(task, "/revision") {
        none if none == 0 => "nothing".to_owned(),
        revision => {
            format!("revision {revision}, {} bytes", number(task, "/saved_bytes"))
        }
    };
    line("saved", &saved);
    let abort = if is(task, "/abort_on_failure") {
        "fails if its command dies before it has saved anything"
    } else {
        "runs again if its command dies"
    };
    let fails = span(number(task, "/fail_after_ms"));
    line("terms", &format!("{abort}; fails if an attempt takes longer than {fails}"));
    if let Some(attempt) = task.pointer("/attempt").filter(|it| !it.is_null()) {
        line("attempt", &live(attempt, number(task, "/now")));
    }
    for (name, value) in held.lines() {
        line(name, &value);
    }
    page.push_str(&held.processes);
    let past = items(task, "/past");
    if !past.is_empty() {
        page.push('\n');
        page.push_str(&attempts(past));
    }
    page
}

fn live(attempt: &Value, now: Figure) -> String {
    let mut live = format!(
        "{} on {}, {} since {}",
        words(attempt, "/token"),
        words(attempt, "/server"),
        words(attempt, "/stage"),
        span(now.minus(number(attempt, "/claimed_at"))),
    );
    for (path, word) in [("/process", "process"), ("/said", "said"), ("/stopping", "stopping:")] {
        match words(attempt, path).as_str() {
            "-" => {}
            value => write!(live, ", {word} {value}").expect("writing to memory should not fail"),
        }
    }
    live
}

/// Formats attempts that have ended, one per line.
fn attempts(past: &[Value]) -> String {
    let heads = [
        ("ATTEMPT", Column::Number),
        ("SERVER", Column::Words),
        ("CLAIMED", Column::Words),
        ("TOOK", Column::Number),
        ("OUTCOME", Column::Words),
        ("EXIT", Column::Words),
        ("SAVED", Column::Words),
        ("PROCESS", Column::Words),
    ];
    let rows = past.iter().map(|it| {
        let took = number(it, "/ended_at").minus(number(it, "/claimed_at"));
        let outcome = match words(it, "/cause").as_str() {
            "-" => words(it, "/outcome"),
            cause => format!("{}: {cause}", words(it, "/outcome")),
        };
        let exit = match (at(it, "/code"), at(it, "/signal")) {
            (Some(code), _) => format!("status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => words(it, "/failure"),
        };
        [
            words(it, "/token"),
            words(it, "/server"),
            date(it, "/claimed_at"),
            brief(took),
            outcome,
            exit,
            if is(it, "/saved") { "yes" } else { "-" }.to_owned(),
            words(it, "/process"),
        ]
    });
    table(heads, rows)
}

/// Formats groups, one per line.
pub(super) fn groups(body: &Value) -> String {
    let heads = [
        ("GROUP", Column::Words),
        ("UNDER WAY", Column::Number),
        ("LIMIT", Column::Number),
        ("READY", Column::Number),
        ("PAUSE", Column::Words),
    ];
    let rows = items(body, "/groups").iter().map(|it| {
        [
            shown(it, "group"),
            words(it, "/used"),
            words(it, "/max"),
            words(it, "/ready"),
            words(it, "/pause"),
        ]
    });
    let mut page = table(heads, rows);
    if body.pointer("/pause") != Some(&"off".into()) {
        writeln!(page, "all tasks are paused: {}", words(body, "/pause"))
            .expect("writing to memory should not fail");
    }
    page
}

/// Formats servers, one per line.
pub(super) fn servers(body: &Value) -> String {
    let all = items(body, "/servers");
    if all.is_empty() {
        return "no servers; `sexton server add NAME --threads N` adds one\n".to_owned();
    }
    let heads = [
        ("SERVER", Column::Words),
        ("USED", Column::Number),
        ("THREADS", Column::Number),
        ("ADDRESS", Column::Words),
        ("STATE", Column::Words),
    ];
    let rows = all.iter().map(|it| {
        let state = match (is(it, "/leaves"), is(it, "/enabled")) {
            (true, _) => "leaving".to_owned(),
            (false, true) => outage(it).unwrap_or_else(|| "enabled".to_owned()),
            (false, false) => "disabled".to_owned(),
        };
        let address = it.pointer("/ssh/to").and_then(Value::as_str);
        [
            shown(it, "server"),
            words(it, "/used"),
            words(it, "/threads"),
            address.unwrap_or("this machine").to_owned(),
            state,
        ]
    });
    table(heads, rows)
}

/// Formats why a server cannot be reached, and when it is tried again; `None` if it can be reached.
fn outage(server: &Value) -> Option<String> {
    server.pointer("/outage")?;
    let at = |path: &str| number(server, path).shown(|at| time(Timestamp(at)));
    let failures = match number(server, "/outage/failures") {
        one if one == 1 => "once".to_owned(),
        failures => format!("{failures} times"),
    };
    let reason = match server.pointer("/outage/reason").and_then(Value::as_str) {
        Some(reason) => reason.to_owned(),
        None => format!("see `sexton logs {}`", words(server, "/outage/process")),
    };
    Some(format!(
        "not reached {failures} since {}, next try after {}: {reason}",
        at("/outage/since_at"),
        at("/outage/retry_at")
    ))
}
