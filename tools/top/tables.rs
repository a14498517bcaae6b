//! Tables: a row for each queue, each lock with waiters, each lease with a running or upcoming pass (run of its command), and each task
//! that has not ended.

use crate::lease;
use crate::lock::shown;
use crate::task;
use crate::text::{self, grouped, number, plain, span};
use crate::top::chart::rate_words;
use crate::top::sample::Rate;
use crate::top::view::Row;
use crate::top::work::{QueueRow, Work};
use ratatui::style::Stylize as _;
use serde::Deserialize as _;
use serde_json::Value;
use sexton_api::lease::Lease;

/// The minimum width of a queue's name if there is more than one other column.
const NAME_MIN: usize = 14;

/// A column of queues. If there is no room, the column with the highest rank is dropped first.
struct Column {
    head: &'static str,
    width: usize,
    rank: u8,
    cell: fn(&QueueRow) -> Option<String>,
}

const COLUMNS: [Column; 9] = [
    phase("ready", 0, |row| count(row, "ready")),
    phase("claimed", 3, |row| count(row, "claimed")),
    phase("delayed", 6, |row| count(row, "delayed")),
    phase("retrying", 2, |row| count(row, "retrying")),
    phase("buried", 7, |row| count(row, "buried")),
    Column { head: "abandoned", width: 11, rank: 8, cell: |row| count(row, "abandoned") },
    Column {
        head: "oldest",
        width: 12,
        rank: 1,
        cell: |row| Some(row.queue.get("oldest_ms")?.as_u64().map_or("-".into(), span)),
    },
    phase("in/s", 4, |row| Some(rate(row, |(added, _)| added))),
    phase("out/s", 5, |row| Some(rate(row, |(_, gone)| gone))),
];

const fn phase(head: &'static str, rank: u8, cell: fn(&QueueRow) -> Option<String>) -> Column {
    Column { head, width: 9, rank, cell }
}

fn count(row: &QueueRow, phase: &str) -> Option<String> {
    row.queue.get(phase)?.as_u64().map(grouped)
}

fn rate(row: &QueueRow, which: fn((Rate, Rate)) -> Rate) -> String {
    let words = row.rates.map(|rates| rate_words(which(rates)));
    words.unwrap_or_else(|| "-".to_owned())
}

/// Formats a line for each queue, busiest first; a placeholder if there are no queues or they are unknown.
pub(crate) fn queues(work: &Work, status: &Value, width: usize) -> Vec<Row> {
    let rows = work.queues();
    if rows.is_empty() {
        let words = if work.is_known {
            "no queues; each appears here with its jobs, oldest job, and rates in and out"
        } else {
            "the queues are unknown: this coordinator does not report them"
        };
        return vec![Row::new(3, cut(words, width).dim())];
    }
    // Leave out columns for which the coordinator reports no values.
    let is_known = |column: &&Column| rows.iter().any(|row| (column.cell)(row).is_some());
    let mut columns: Vec<&Column> = COLUMNS.iter().filter(is_known).collect();
    let taken = |columns: &[&Column]| columns.iter().map(|column| column.width).sum::<usize>();
    while columns.len() > 1 && taken(&columns) + NAME_MIN > width {
        let ranks = columns.iter().map(|column| column.rank);
        let highest = ranks.max().unwrap_or_default();
        columns.retain(|column| column.rank < highest);
    }
    let room = width.saturating_sub(taken(&columns)).max(1);
    let all = text::count(number(status, "/queues/queues"), "queue");
    let heads = columns.iter().map(|it| format!("{:>1$}", it.head, it.width));
    let head = format!("{:room$}{}", cut(&all, room), heads.collect::<String>());
    let mut lines = vec![Row::new(3, head.dim())];
    for (place, row) in rows.into_iter().enumerate() {
        let cells = columns.iter().map(|Column { width, cell, .. }| {
            let cell = cell(row).unwrap_or_else(|| "-".to_owned());
            format!("{cell:>width$}")
        });
        let cells: String = cells.collect();
        let line = format!("{:room$}{cells}", cut(&name(&row.queue), room));
        lines.push(Row::new(rank(place, 2), line));
    }
    lines
}

fn name(queue: &Value) -> String {
    let name = queue.get("queue").and_then(Value::as_str);
    let name = plain(name.unwrap_or("-"));
    let is_paused = queue.get("paused_ms").is_some_and(Value::is_u64);
    if is_paused { format!("PAUSED {name}") } else { name }
}

/// Formats a line for each lock with waiters, most waiters first; a placeholder if there are none, and nothing if they are unknown.
pub(crate) fn locks(work: &Work, width: usize) -> Vec<Row> {
    if !work.is_known {
        return Vec::new();
    }
    if work.locks.is_empty() {
        let words = "no lock has waiters; locks with waiters appear here with their holders";
        return vec![Row::new(4, cut(words, width).dim())];
    }
    let (count, ends) = (9, 14);
    let room = width.saturating_sub(count + ends);
    let (key, owner) = (room.div_ceil(2), room / 2);
    let line = |cells: [&str; 4]| {
        let [lock, waiting, holder, left] = cells;
        let holder = cut(holder, owner.saturating_sub(2));
        let lock = cut(lock, key);
        format!("{lock:key$}{waiting:>count$}  {holder:<0$}{left:>ends$}", owner.saturating_sub(2))
    };
    let all = format!("{} waited for", text::count(work.locks_all, "lock"));
    let head = line([&all, "waiting", "held by", "ends in"]);
    let mut lines = vec![Row::new(4, head.dim())];
    for (place, lock) in work.locks.iter().enumerate() {
        let name = match shown(lock, "index").as_str() {
            "" => shown(lock, "key"),
            index => format!("{} {index}", shown(lock, "key")),
        };
        let waiting = grouped(number(lock, "/waiting"));
        let left = lock.pointer("/remaining_ms").and_then(Value::as_u64);
        let left = left.map_or("-".to_owned(), span);
        let cells = [name.as_str(), &waiting, &shown(lock, "owner"), &left];
        lines.push(Row::new(rank(place, 3), line(cells)));
    }
    lines
}

/// Formats a line for each lease with a running or upcoming pass, running ones first; empty if there are none.
pub(crate) fn leases(work: &Work, width: usize) -> Vec<Row> {
    if work.leases.is_empty() {
        return Vec::new();
    }
    let (runs, since) = (width / 4, 12);
    let room = width.saturating_sub(runs + since);
    let (name, next) = (room / 2, room.div_ceil(2));
    let line = |cells: [&str; 4]| {
        let [lease, who, since_when, what] = cells;
        let who = cut(who, runs.saturating_sub(2));
        let (lease, what) = (cut(lease, name.saturating_sub(2)), cut(what, next.saturating_sub(2)));
        let (name, runs) = (name.saturating_sub(2), runs.saturating_sub(2));
        format!("{lease:name$}  {who:runs$}{since_when:>since$}  {what}")
    };
    let more = if work.leases_more { "+" } else { "" };
    let all = format!("{}{more}", text::count(work.leases.len() as u64, "lease"));
    let head = line([&all, "runs", "since", "next"]);
    let mut lines = vec![Row::new(4, head.dim())];
    let known = work.leases.iter().filter_map(|it| Lease::deserialize(it).ok());
    for (place, lease) in known.enumerate() {
        let [name, who, since, next] = lease::active_row(&lease);
        lines.push(Row::new(rank(place, 3), line([&name, &who, &since, &next])));
    }
    lines
}

/// Formats a line for each task that has not ended, running ones first; empty if there are none.
pub(crate) fn tasks(work: &Work, width: usize) -> Vec<Row> {
    if work.tasks.is_empty() {
        return Vec::new();
    }
    let (state, group) = (width / 4, width / 8);
    let room = width.saturating_sub(state + group);
    let (name, why) = (room / 2, room.div_ceil(2));
    let line = |cells: [&str; 4]| {
        let [task, how, of, because] = cells;
        let fit = |text: &str, width: usize| {
            let width = width.saturating_sub(2);
            format!("{:width$}", cut(text, width))
        };
        let cells = [fit(task, name), fit(how, state), fit(of, group)];
        format!("{}  {}", cells.join("  "), cut(because, why))
    };
    let more = if work.tasks_more { "+" } else { "" };
    let all = format!("{}{more}", text::count(work.tasks.len() as u64, "task"));
    let head = line([&all, "is", "group", "since, or why not"]);
    let mut lines = vec![Row::new(4, head.dim())];
    for (place, task) in work.tasks.iter().enumerate() {
        let [name, how, group, why] = task::overview_row(task);
        lines.push(Row::new(rank(place, 3), line([&name, &how, &group, &why])));
    }
    lines
}

/// Returns the rank of the row at `place` in a table, which is `step` higher for each row: rows further down are dropped first.
fn rank(place: usize, step: usize) -> u8 {
    u8::try_from(4 + place * step).unwrap_or(u8::MAX).min(250)
}

/// Cuts a text to at most `width` characters; if anything was cut off, the last character is `~`.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(std::iter::once('~')).take(width).collect()
}
