//! Formats processes for a terminal.

use crate::figure::Figure;
use crate::report::shows_whole;
use crate::table::{Column, table};
use crate::text::{bytes, excerpt, grouped, number, plain, span, time, words};
use serde_json::Value;
use sexton::clock::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The maximum number of words of a command that a list shows.
const WORDS: usize = 3;
/// The maximum number of characters of a command that a list shows.
const LETTERS: usize = 50;

/// The number of characters of an id.
const ID: usize = 36;

fn text<'a>(record: &'a Value, path: &str) -> Option<&'a str> {
    record.pointer(path).and_then(Value::as_str)
}

fn at(record: &Value, path: &str) -> Option<u64> {
    record.pointer(path).and_then(Value::as_u64)
}

/// Returns the command of a process or service, shortened to at most [`WORDS`] words and [`LETTERS`] characters.
pub(crate) fn command(record: &Value) -> String {
    command_line(&words_of(record))
}

fn words_of(record: &Value) -> Vec<String> {
    let all = record.pointer("/command").and_then(Value::as_array);
    all.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns a command, shortened to at most [`WORDS`] words and [`LETTERS`] characters.
pub(crate) fn command_line(all: &[String]) -> String {
    let shown = all.get(..WORDS).unwrap_or(all);
    let shown = plain(&shown.join(" "));
    if all.len() > WORDS || shown.chars().count() > LETTERS {
        let cut: String = shown.chars().take(LETTERS - 3).collect();
        return cut + "...";
    }
    shown
}

/// Returns the command of a process or service for output: shortened as [`command`] does on a terminal, and otherwise whole.
pub(crate) fn shown_command(record: &Value) -> String {
    shown_command_line(&words_of(record))
}

/// Returns a command for output: shortened as [`command_line`] does on a terminal, and otherwise whole.
pub(crate) fn shown_command_line(all: &[String]) -> String {
    if shows_whole() { plain(&all.join(" ")) } else { command_line(all) }
}

/// Describes the state of a process.
pub(crate) fn standing(record: &Value) -> String {
    match text(record, "/status") {
        Some("exited") => ending(record),
        Some("stopping") if number(record, "/unkillable") > 0 => "stopping, unkillable".to_owned(),
        Some("stopping") if number(record, "/unknown") > 0 => "stopping, unknown".to_owned(),
        // The command has ended, but its status stays `stopping` until nothing that it started is alive.
        Some("stopping") if has_end(record) => {
            let named = left(record);
            let more = named.len().saturating_sub(1);
            let named = named.first().map(|first| format!(": {first}"));
            let named = named.unwrap_or_default();
            let more = Some(more).filter(|more| *more > 0);
            let more = more.map_or_else(String::new, |more| format!(", and {more} more"));
            // Nothing is known to be alive, but neither that nothing is.
            let in_doubt = named.is_empty() && number(record, "/alive") == 0;
            let live = if in_doubt { "may live" } else { "live" };
            format!("{}, children {live}{named}{more}", ending(record))
        }
        Some(status) if record.pointer("/deferred") == Some(&true.into()) => {
            format!("{status}, deferred")
        }
        Some(status) => status.to_owned(),
        None => "-".to_owned(),
    }
}

/// Returns PID and command of each of the processes that are alive although the process itself has ended.
pub(crate) fn left(record: &Value) -> Vec<String> {
    let all = record.pointer("/left").and_then(Value::as_array);
    let each = all.into_iter().flatten().map(|it| {
        let (pid, command) = (number(it, "/pid"), plain(&words(it, "/command")));
        let command: String = command.chars().take(LETTERS).collect();
        format!("{pid} {command}")
    });
    each.collect()
}

/// Returns whether the process itself has ended.
fn has_end(record: &Value) -> bool {
    let ends = ["/code", "/signal", "/lost"];
    ends.iter().any(|it| record.pointer(it).is_some_and(|end| !end.is_null()))
}

/// Describes how a process ended.
pub(crate) fn ending(record: &Value) -> String {
    let timeout = if text(record, "/stopped_by") == Some("timeout") { ", timed out" } else { "" };
    if let Some(found) = record.pointer("/failure").filter(|it| !it.is_null()) {
        if text(found, "/step") == Some("cancelled") {
            return "cancelled".to_owned();
        }
        return format!("not started: {}", failure(found));
    }
    if let Some(lost) = text(record, "/lost") {
        let why = match lost {
            "rebooted" => "the machine was rebooted",
            "keeper-gone" => "its keeper was killed",
            "another-machine" => {
                "it ran on another machine, from which the data directory was moved"
            }
            "not-ours" => "it was not a child of the keeper, and did not report its exit",
            _ => "no keeper knows it",
        };
        return format!("lost: {why}");
    }
    match (at(record, "/signal"), at(record, "/code")) {
        (Some(signal), _) => format!("signal {signal}{timeout}"),
        (None, Some(code)) => format!("exit {code}{timeout}"),
        (None, None) => "exited".to_owned(),
    }
}

/// Describes why a process could not be started.
pub(crate) fn failure(found: &Value) -> String {
    words(found, "/words")
}

fn duration(record: &Value, now: u64) -> String {
    let Some(started) = at(record, "/started_at") else {
        return "-".to_owned();
    };
    let end = at(record, "/ended_at").unwrap_or(now);
    span(end.saturating_sub(started))
}

fn since(record: &Value, path: &str) -> String {
    at(record, path).map_or_else(|| "-".to_owned(), |at| time(Timestamp(at)))
}

/// Formats a list of processes, one per line.
pub(super) fn list(records: &[Value], now: u64) -> String {
    if records.is_empty() {
        return "no processes; `sexton ps --all` shows those that have ended, `sexton run -- COMMAND` starts one\n".to_owned();
    }
    let heads = [
        ("ID", Column::Words),
        ("TYPE", Column::Words),
        ("COMMAND", Column::Words),
        ("STATUS", Column::Words),
        ("PID", Column::Number),
        ("PARENT", Column::Words),
        ("STARTED", Column::Words),
        ("DURATION", Column::Number),
    ];
    let rows = records.iter().map(|record| {
        [
            words(record, "/id"),
            plain(&words(record, "/type")),
            shown_command(record),
            plain(&standing(record)),
            at(record, "/pid").map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            text(record, "/parent").unwrap_or("-").to_owned(),
            since(record, "/started_at"),
            duration(record, now),
        ]
    });
    table(heads, rows)
}

/// Formats process trees, each process below its parent. Marks the process with the id `current`.
pub(crate) fn trees(records: &[Value], current: Option<&str>, now: u64) -> String {
    if records.is_empty() {
        return list(records, now);
    }
    let there: BTreeSet<&str> = records.iter().filter_map(|record| text(record, "/id")).collect();
    let mut below: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    let mut roots = Vec::new();
    for record in records {
        match text(record, "/parent").filter(|parent| there.contains(parent)) {
            Some(parent) => below.entry(parent).or_default().push(record),
            None => roots.push(record),
        }
    }
    let mut page = String::new();
    // No recursion: a tree may be a thousand levels deep.
    let mut stack: Vec<(&Value, String, String)> = Vec::new();
    for root in roots.into_iter().rev() {
        stack.push((root, String::new(), String::new()));
    }
    while let Some((record, lead, indent)) = stack.pop() {
        let id = text(record, "/id").unwrap_or_default();
        let mark = if Some(id) == current { "  [CURRENT]" } else { "" };
        let kind = plain(&words(record, "/type"));
        let (command, standing) = (command(record), plain(&standing(record)));
        let line = format!(
            "{id:ID$}  {lead}{command}  ({kind}, {standing}, {}){mark}",
            duration(record, now)
        );
        page.push_str(&line);
        page.push('\n');
        let children = below.get(id).map(Vec::as_slice).unwrap_or_default();
        for (place, child) in children.iter().enumerate().rev() {
            let is_last = place + 1 == children.len();
            let (branch, more) =
                if is_last { ("└── ", "    ") } else { ("├── ", "│   ") };
            stack.push((child, format!("{indent}{branch}"), format!("{indent}{more}")));
        }
    }
    page
}

/// Formats what a hook (a process whose output contains records) has reported: the number of records, and warnings about invalid lines.
fn hook(record: &Value) -> Vec<(&'static str, String)> {
    let Some(hook) = record.pointer("/hook").filter(|it| !it.is_null()) else {
        return Vec::new();
    };
    let counts = [("/processes", "processes"), ("/records_count", "other records")];
    let counts = counts.map(|(path, words)| format!("{words}: {}", number(hook, path)));
    let mut lines = vec![("printed", counts.join(", "))];
    let warnings = hook.pointer("/warnings").and_then(Value::as_array);
    let warnings = warnings.map(Vec::as_slice).unwrap_or_default();
    lines.extend(warnings.iter().map(|it| {
        let wrong = words(it, "/words");
        let shown = match number(it, "/line") {
            none if none == 0 => wrong,
            place => format!("line {place} of its output: {wrong}"),
        };
        ("warning", shown)
    }));
    let more = number(hook, "/broken").minus(warnings.len() as u64);
    if more > 0 {
        lines.push(("warning", format!("more invalid lines: {more}")));
    }
    lines
}

/// Returns a line with the processes that still had the output of a process open when it ended; `None` if there were none.
fn leak(record: &Value) -> Option<(&'static str, String)> {
    let holders = record.pointer("/output_held_by").and_then(Value::as_array)?;
    let each = holders.iter().map(|it| format!("{} ({})", words(it, "/name"), number(it, "/pid")));
    let each: Vec<String> = each.collect();
    let who = if each.is_empty() { "another process".to_owned() } else { each.join(", ") };
    Some(("leak", format!("its output was still open in {who}")))
}

/// Formats the peak memory of a process, and its memory limit.
fn memory(record: &Value) -> Vec<(&'static str, String)> {
    let had = at(record, "/memory_max").filter(|most| *most > 0);
    let had = had.map(|most| ("memory", format!("{} at most", bytes(most))));
    let limit = at(record, "/memory_limit/bytes").map(|limit| {
        let is_reached = record.pointer("/memory_limit/reached") == Some(&true.into());
        let reached = if is_reached { " (reached)" } else { "" };
        let words = format!("{} for the process and everything it started", bytes(limit));
        ("limit", format!("{words}{reached}"))
    });
    had.into_iter().chain(limit).collect()
}

/// Describes what a running process uses, and the processes below it that the operating system shows.
fn used(record: &Value) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(cpu) = at(record, "/usage/cpu_ms") {
        let percent = record.pointer("/usage/cpu_percent").and_then(Value::as_f64);
        let percent = percent.map_or_else(|| "-".to_owned(), |percent| percent.to_string());
        let cpu = format!("{}, {percent} % since its start", span(cpu));
        let size = bytes(number(record, "/usage/memory_bytes"));
        let size = match at(record, "/usage/virtual_bytes") {
            Some(virtually) => format!("{size}, {} virtual", bytes(virtually)),
            None => size,
        };
        lines.extend([("cpu", cpu), ("memory", size)]);
    }
    let children = record.pointer("/children").and_then(Value::as_array);
    for child in children.into_iter().flatten() {
        let pid = number(child, "/pid");
        lines.push(("child", format!("{pid} {}", words(child, "/command"))));
    }
    lines
}

/// Formats all details of a process.
pub(super) fn whole(record: &Value, now: u64) -> String {
    let mut page = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() && value != "-" {
            writeln!(page, "{name:<10} {}", plain(value))
                .expect("writing to memory should not fail");
        }
    };
    let all = record.pointer("/command").and_then(Value::as_array);
    let all: Vec<&str> = all.into_iter().flatten().filter_map(Value::as_str).collect();
    line("id", &words(record, "/id"));
    line("command", &all.join(" "));
    line("status", &standing(record));
    line("type", &format!("{} {}", words(record, "/type"), number(record, "/number")));
    line("pid", &at(record, "/pid").map(|pid| pid.to_string()).unwrap_or_default());
    line("directory", &words(record, "/dir"));
    line("files", &words(record, "/run_dir"));
    line("parent", text(record, "/parent").unwrap_or_default());
    line("url", text(record, "/url").unwrap_or_default());
    line("started", &since(record, "/started_at"));
    line("ended", &since(record, "/ended_at"));
    line("duration", &duration(record, now));
    line("error", text(record, "/error").unwrap_or_default());
    if let Some(cpu) = at(record, "/cpu_ms") {
        line("cpu", &span(cpu));
    }
    for (name, text) in used(record).into_iter().chain(memory(record)) {
        line(name, &text);
    }
    if number(record, "/alive") > 0 {
        line(
            "left",
            &format!(
                "processes that it started and that are still alive: {}",
                number(record, "/alive")
            ),
        );
    }
    for (name, text) in hook(record).into_iter().chain(leak(record)) {
        line(name, &text);
    }
    for name in ["stdout", "stderr"] {
        let stream = record.pointer(&format!("/{name}"));
        if let Some(stream) = stream.filter(|stream| number(stream, "/bytes") > 0) {
            let size = bytes(number(stream, "/bytes"));
            let shown = excerpt(stream);
            if let [only] = shown.as_slice() {
                line(name, &format!("{size}: {only}"));
                continue;
            }
            line(name, &format!("{size}:"));
            for printed in shown {
                line("", &printed);
            }
        }
    }
    page
}

/// Formats the result of `sexton ps reconcile`.
pub(super) fn reconciled(body: &Value) -> String {
    let at = |name: &str| number(body, name);
    let mut page = format!("looked for {}: {} changed\n", counted(at("/asked")), at("/changed"));
    let all = body.pointer("/processes").and_then(Value::as_array);
    for id in all.into_iter().flatten().filter_map(Value::as_str) {
        writeln!(page, "{}", plain(id)).expect("writing to memory should not fail");
    }
    if at("/open") > 0 {
        let words = "gone; the keeper is being asked for the outcome";
        writeln!(page, "{} {words}", at("/open")).expect("writing to memory should not fail");
    }
    page
}

fn counted(number: Figure) -> String {
    if number == 1 { "1 process".to_owned() } else { format!("{} processes", grouped(number)) }
}
