//! The textual parts of the screen: notes, figures without a history, and the actors.

use crate::status::{described, listed};
use crate::system;
use crate::text::{bytes, grouped, number, span, words};
use crate::top::sample::{COMMANDS, Contact, Watched, actors as actors_of, list};
use crate::top::view::{FURTHER, Row, counted, moment, named};
use ratatui::style::Stylize as _;
use ratatui::text::{Line, Span};
use serde_json::Value;
use sexton_api::trouble::Level;

/// The width of the headings, in characters.
const NAME: usize = 13;

/// A note on an unusual condition.
pub(crate) struct Note {
    pub(crate) rank: u8,
    pub(crate) urgent: bool,
    pub(crate) words: String,
}

/// Lists the data directory and the listeners, in lines of at most `width` characters where possible.
pub(crate) fn place(status: &Value, width: usize) -> Vec<String> {
    let at = |path: &str, otherwise: &str| match words(status, path).as_str() {
        "-" => otherwise.to_owned(),
        place => place.to_owned(),
    };
    let listener = |name: &str| format!("{name} {}", at(&format!("/listeners/{name}"), "off"));
    let mut parts = vec![at("/data", "no files")];
    parts.extend(["lockserver", "beanstalk", "http"].map(listener));
    flowed(&parts, "  ", width)
}

/// The maximum number of problems shown.
const TROUBLES_MAX: usize = 10;

/// Returns the notes: why there is no answer, the problems, and whether the coordinator's process was replaced.
pub(crate) fn notes(watched: &Watched) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut note = |rank: u8, urgent: bool, words: String| {
        notes.push(Note { rank, urgent, words });
    };
    if let Contact::Lost { no_answer, .. } = &watched.contact {
        note(1, true, no_answer.why.clone());
    }
    let Some((_, status)) = &watched.status else {
        return notes;
    };
    let troubles = status.get("troubles").map(listed).unwrap_or_default();
    for trouble in troubles.iter().take(TROUBLES_MAX) {
        let is_bad = trouble.level == Level::Bad;
        note(if is_bad { 2 } else { 9 }, is_bad, described(trouble));
    }
    let more = troubles.len().saturating_sub(TROUBLES_MAX);
    if more > 0 {
        let words = format!("{more} more problems: `sexton status` lists them");
        note(9, false, words);
    }
    if let Some(succession) = &watched.succession {
        let (at, before) = (moment(succession.at), succession.before);
        note(9, false, format!("process {before} was replaced at {at}"));
    }
    notes
}

/// Formats a heading and the parts after it, on as many lines as needed.
fn part(rank: u8, name: &str, parts: &[String], width: usize) -> Vec<Row> {
    let lines = flowed(parts, "   ", width.saturating_sub(NAME));
    let row = |(place, line): (usize, String)| {
        let (name, rank) = if place == 0 { (name, rank) } else { ("", rank.max(FURTHER)) };
        let line = vec![format!("{name:NAME$}").dim(), line.into()];
        Row::new(rank, Line::from(line))
    };
    lines.into_iter().enumerate().map(row).collect()
}

fn is_there(status: &Value, path: &str) -> bool {
    status.pointer(path).is_some_and(|value| !value.is_null())
}

/// Formats the totals over all queues; returns no rows if the status does not have them.
pub(crate) fn jobs(watched: &Watched, status: &Value, width: usize) -> Vec<Row> {
    if !is_there(status, "/queues") {
        return Vec::new();
    }
    part(5, "jobs", &phases(watched, status), width)
}

/// Formats the connections and request rates of each listener, and the usage of the host and of the coordinator's process.
pub(crate) fn listeners(watched: &Watched, status: &Value, width: usize) -> Vec<Row> {
    let mut rows = part(10, "connections", &connections(status), width);
    let rates = watched.rates();
    if let Some(rates) = rates.filter(|_| is_there(status, "/lockserver")) {
        let kinds = COMMANDS.iter().map(|(_, name)| *name);
        let kinds: Vec<String> = kinds.zip(rates.commands).map(named).collect();
        rows.extend(part(17, "lockserver/s", &kinds, width));
    }
    if let Some(rates) = rates.filter(|_| is_there(status, "/beanstalk")) {
        let asked = rates.beanstalk.iter().filter(|(_, rate)| rate.is_none_or(|it| it.0 > 0));
        let mut kinds: Vec<String> =
            asked.map(|(name, rate)| named((name.as_str(), *rate))).collect();
        if kinds.is_empty() {
            kinds.push("no requests".to_owned());
        }
        rows.extend(part(17, "beanstalk/s", &kinds, width));
    }
    if is_there(status, "/host") {
        rows.extend(part(16, "host", &system::host(status), width));
        rows.extend(part(16, "process", &system::process(status), width));
    }
    rows
}

/// Formats the state of the journal and the checkpoints, and the recovery at startup.
pub(crate) fn internals(watched: &Watched, status: &Value, width: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    if is_there(status, "/journal") {
        let mut parts = vec![
            counted("up to", status, "/journal/released"),
            format!("sync {} us", grouped(number(status, "/journal/sync_us"))),
            format!("room {}", words(status, "/journal/room")),
        ];
        if let Some(rates) = watched.rates() {
            parts.push(named(("writes/s", rates.writes)));
        }
        rows.extend(part(12, "journal", &parts, width));
    }
    if is_there(status, "/snapshots") {
        rows.extend(part(12, "checkpoints", &checkpoints(status), width));
    }
    let is = |path: &str| status.pointer(path) == Some(&Value::Bool(true));
    let before = if is("/recovered/new") {
        "with an empty state"
    } else if is("/recovered/clean") {
        "after a clean stop"
    } else {
        "after an unclean end"
    };
    let took = grouped(number(status, "/recovered/ms"));
    let started = [
        before.to_owned(),
        format!("{} records in {took} ms", grouped(number(status, "/recovered/records"))),
    ];
    rows.extend(part(16, "start", &started, width));
    rows
}

/// Formats the figures on jobs for which there is no chart, beginning with those that show whether jobs are being processed.
fn phases(watched: &Watched, status: &Value) -> Vec<String> {
    let phase = |name: &str| counted(name, status, &format!("/queues/jobs/{name}"));
    let mut parts = vec![phase("claimed"), counted("waiting", status, "/queues/waiting")];
    if let Some(rates) = watched.rates() {
        parts.push(named(("ran out/s", rates.timeouts)));
    }
    let others = ["delayed", "retrying", "buried", "abandoned", "quarantined"].into_iter();
    let others = others.filter(|name| is_there(status, &format!("/queues/jobs/{name}")));
    parts.extend(others.map(phase));
    parts.push(bytes(number(status, "/queues/bytes")));
    parts.push(counted("queues", status, "/queues/queues"));
    parts
}

fn connections(status: &Value) -> Vec<String> {
    let count = |path: &str| number(status, path);
    let mut parts = Vec::new();
    for listener in ["lockserver", "beanstalk", "http"] {
        let path = |name: &str| format!("/{listener}{name}");
        if status.pointer(&path("")).is_none_or(Value::is_null) {
            continue;
        }
        let mut words = counted(listener, status, &path("/active"));
        // The HTTP listener has no list of hosts, so its status has no `rejected_hosts`.
        let (hosts, busy) = (count(&path("/rejected_hosts")), count(&path("/rejected_busy")));
        if hosts > 0 {
            words = format!("{words}, {} hosts refused", grouped(hosts));
        }
        if busy > 0 {
            words = format!("{words}, {} beyond the limit", grouped(busy));
        }
        parts.push(words);
    }
    parts
}

fn checkpoints(status: &Value) -> Vec<String> {
    let count = |path: &str| number(status, &format!("/snapshots/{path}"));
    let is = |path: &str| is_there(status, &format!("/snapshots/{path}"));
    let mut parts = Vec::new();
    if status.pointer("/snapshots/running") == Some(&Value::Bool(true)) {
        parts.push("TAKING ONE NOW".to_owned());
    }
    if is("last") {
        if is("last/at") {
            let age = number(status, "/now").minus(count("last/at"));
            parts.push(format!("last {} ago", span(age)));
        }
        let took = grouped(count("last/ms"));
        parts.push(format!("{took} ms, {}", bytes(count("last/file_bytes"))));
    } else {
        parts.push("none since startup".to_owned());
    }
    parts.push(format!("taken {}", grouped(count("taken"))));
    if count("failed") > 0 {
        parts.push(format!("failed {}", grouped(count("failed"))));
    }
    for (place, slot) in ["a", "b"].into_iter().enumerate() {
        if is(&format!("slots/{place}")) {
            parts.push(format!("{slot} up to {}", grouped(count(&format!("slots/{place}")))));
        }
    }
    parts
}

/// Formats the table of actors: a heading, and one line per actor.
pub(crate) fn table(watched: &Watched) -> Vec<Row> {
    let Some((_, status)) = &watched.status else {
        return Vec::new();
    };
    let head = format!(
        "{:<8}{:>9}{:>9}{:>12}{:>13}  last cause",
        "actor", "restarts", "rebuilds", "quarantined", "last entry"
    );
    let mut rows = vec![Row::new(14, head.dim())];
    for actor in actors_of(status) {
        let cause = list(actor, "/causes").last();
        let cause = cause.map_or("-".to_owned(), |it| happened(it, status));
        let figures = format!(
            "{:<8}{:>9}{:>9}{:>12}{:>13}  ",
            words(actor, "/name"),
            grouped(number(actor, "/restarts")),
            grouped(number(actor, "/rebuilds")),
            list(actor, "/quarantined").len(),
            grouped(number(actor, "/last")),
        );
        let line = Line::from(vec![figures.into(), cause.into()]);
        let panics = number(actor, "/restarts") + number(actor, "/rebuilds");
        let line = if panics > 0 { line.yellow() } else { line };
        rows.push(Row::new(14, line));
    }
    rows
}

/// Formats the actors in detail: their quarantined items, and their panics, most recent first.
pub(crate) fn actors(watched: &Watched, width: usize) -> Vec<Line<'static>> {
    let Some((_, status)) = &watched.status else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for actor in actors_of(status) {
        let figures = [
            counted("last entry", actor, "/last"),
            counted("restarts", actor, "/restarts"),
            counted("rebuilds", actor, "/rebuilds"),
        ];
        let name = format!("{}  ", words(actor, "/name"));
        let figures: Span<'_> = figures.join("  ").into();
        lines.push(Line::from(vec![name.bold(), figures]));
        let quarantined = list(actor, "/quarantined").iter().map(|item| {
            let number = words(item, "/item");
            format!("quarantined item {number}, {}", happened(item, status))
        });
        let causes = list(actor, "/causes").iter().rev();
        let mut all: Vec<String> = quarantined.collect();
        all.extend(causes.map(|it| happened(it, status)));
        if all.is_empty() {
            all.push("no panic since startup".to_owned());
        }
        for words in all {
            for (place, line) in folded(&words, width.saturating_sub(4)).iter().enumerate() {
                let indent = if place == 0 { "  " } else { "    " };
                lines.push(Line::from(format!("{indent}{line}")));
            }
        }
        lines.push(Line::default());
    }
    lines
}

fn happened(report: &Value, status: &Value) -> String {
    let at = |path: &str| words(report, path);
    let age = number(status, "/now").minus(number(report, "/at"));
    let (stage, seq, cause) = (at("/stage"), at("/seq"), at("/cause"));
    format!("{} ago, {stage} at {seq}: {cause}", span(age))
}

/// Joins parts into lines of at most `width` characters, separated by `between`. A longer part has a line of its own.
fn flowed(parts: &[String], between: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        let length = part.chars().count();
        match lines.last_mut() {
            Some(line) if line.chars().count() + between.len() + length <= width => {
                line.push_str(between);
                line.push_str(part);
            }
            _ => lines.push(part.clone()),
        }
    }
    lines
}

/// Folds a text into lines of at most `width` characters, breaking between words where possible.
pub(crate) fn folded(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            lines.push(String::new());
            used = 0;
        }
        for letter in (used > 0).then_some(' ').into_iter().chain(word.chars()) {
            if used == width {
                lines.push(String::new());
                used = 0;
            }
            if let Some(line) = lines.last_mut() {
                line.push(letter);
            }
            used += 1;
        }
    }
    lines
}
