//! The pane of processes: a line for each process of a service, and the tree of live processes.

use crate::process::{about, command, last, standing};
use crate::text::{self, bytes, number, plain, span, words};
use crate::top::family::{Family, Standing, Usage, Way, id};
use crate::top::sample::list;
use crate::top::tables::cut;
use ratatui::style::Stylize as _;
use ratatui::text::Line;
use serde_json::Value;

/// The minimum width of the name if there is more than one other column.
const NAME_MIN: usize = 24;

/// A line of the pane.
pub(crate) struct Row {
    pub(crate) line: Line<'static>,
    /// The id of the live process that the line shows; `None` for other lines.
    pub(crate) id: Option<String>,
}

impl Row {
    fn new(line: impl Into<Line<'static>>) -> Self {
        let line = line.into();
        Self { line, id: None }
    }
}

/// A column. If there is no room, the column with the highest rank is dropped first.
struct Column<T> {
    head: &'static str,
    width: usize,
    rank: u8,
    cell: fn(&T) -> String,
}

/// The record of a process of a service, and the wall-clock time in milliseconds since 1970.
struct Instance<'a> {
    stands: &'a Value,
    now: u64,
}

/// A live process, its resource usage if that is known, and the wall-clock time in milliseconds since 1970.
struct Member<'a> {
    record: &'a Value,
    usage: Option<&'a Usage>,
    now: u64,
}

/// Formats all lines of the pane: services, then processes; a message if they are not known.
pub(crate) fn rows(family: &Family, now: u64, width: usize, unicode: bool) -> Vec<Row> {
    let words = match &family.standing {
        Standing::NotRequested => Some("reading processes".to_owned()),
        Standing::Refused(why) => Some(format!("processes are not known: {}", plain(why))),
        Standing::Known => None,
    };
    if let Some(words) = words {
        let lines = crate::top::details::folded(&words, width);
        return lines.into_iter().map(|line| Row::new(line.dim())).collect();
    }
    let mut rows = services(family, now, width);
    rows.push(Row::new(""));
    rows.extend(processes(family, now, width, unicode));
    rows
}

fn services(family: &Family, now: u64, width: usize) -> Vec<Row> {
    let columns: [Column<Instance<'_>>; 5] = [
        column("status", 10, 0, |it| words(it.stands, "/status")),
        column("restarts", 10, 1, |it| number(it.stands, "/restarts").to_string()),
        column("last end", 14, 2, |it| cut(&last(it.stands), 12)),
        column("up", 13, 3, |it| up(it.stands, it.now)),
        column("pid", 10, 4, |it| words(it.stands, "/pid")),
    ];
    let (columns, room) = fitting(columns.into(), width);
    if family.services.is_empty() {
        let words = "no services; each appears here with its restarts and last end";
        return vec![Row::new(cut(words, width).dim())];
    }
    let all = text::count(family.services.len() as u64, "service");
    let mut rows = vec![head(&all, &columns, room)];
    for service in &family.services {
        let instances = list(service, "/instances");
        for instance in instances {
            let mut name = plain(&words(service, "/name"));
            if instances.len() > 1 {
                name = format!("{name} {}", number(instance, "/number"));
            }
            let about = about(service, instance, now);
            if !["-".to_owned(), last(instance)].contains(&about) {
                name = format!("{name}  {about}");
            }
            let it = Instance { stands: instance, now };
            let line = line(&name, &it, &columns, room);
            rows.push(match words(it.stands, "/status").as_str() {
                "failed" => Row::new(line.red()),
                "backoff" => Row::new(line.yellow()),
                _ => Row::new(line),
            });
        }
        if instances.is_empty() {
            rows.push(Row::new(cut(&plain(&words(service, "/name")), width)));
        }
    }
    rows
}

fn processes(family: &Family, now: u64, width: usize, unicode: bool) -> Vec<Row> {
    let columns: [Column<Member<'_>>; 6] = [
        column("cpu", 8, 0, |it| share(it.usage)),
        column("memory", 11, 1, |it| used(it.usage, |usage| bytes(usage.memory_bytes))),
        column("pid", 9, 3, |it| words(it.record, "/pid")),
        column("status", 10, 4, |it| cut(&standing(it.record), 9)),
        column("cpu time", 13, 5, |it| used(it.usage, |usage| span(usage.cpu_ms))),
        column("up", 13, 2, |it| up(it.record, it.now)),
    ];
    let (columns, room) = fitting(columns.into(), width);
    if family.members.is_empty() {
        let words = "no processes; each appears here below its parent; `sexton run` starts one";
        return vec![Row::new(cut(words, width).dim())];
    }
    let all = match family.members.len() {
        count if family.has_more => format!("more than {count} processes"),
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    };
    let mut rows = vec![head(&all, &columns, room)];
    for (way, record) in &family.members {
        let name = format!("{}{}", lead(way, room / 2, unicode), named(record));
        let member = Member { record, usage: family.usage(record), now };
        rows.push(Row {
            id: Some(id(record).to_owned()),
            ..Row::new(line(&name, &member, &columns, room))
        });
    }
    rows
}

/// Returns the name of a process: its command, preceded by its service, by the job that it works on, or else by its type. If the type is
/// `binary`, the command stands alone.
fn named(record: &Value) -> String {
    let command = command(record);
    let kind = words(record, "/type");
    let label = |name: &str| {
        let labels = record.pointer("/labels")?;
        labels.get(name)?.as_str().map(plain)
    };
    let of_service = label("service").filter(|_| kind == "service");
    match of_service.or_else(|| working_on(&kind, label)) {
        Some(what) => format!("{what}: {command}"),
        None if kind == "binary" => command,
        None => format!("{kind}: {command}"),
    }
}

/// Returns the job that a command of `sexton work` was started for, from its labels; `None` for other processes.
fn working_on(kind: &str, label: impl Fn(&str) -> Option<String>) -> Option<String> {
    let (queue, job) = (label("queue")?, label("job")?);
    let attempt = label("attempt").map_or_else(String::new, |nth| format!(", try {nth}"));
    (kind == "worker").then(|| format!("{queue} job {job}{attempt}"))
}

/// Returns the lines of the tree that are drawn before the name of a process. If it is too deep for the screen, only those of its
/// nearest ancestors are drawn.
fn lead(way: &Way, room: usize, unicode: bool) -> String {
    let (more, none, branch, end) = if unicode {
        ("\u{2502} ", "  ", "\u{251c} ", "\u{2514} ")
    } else {
        ("| ", "  ", "|-", "`-")
    };
    let Some((own, above)) = way.split_last() else {
        return String::new();
    };
    let fits = (room / 2).max(1) - 1;
    let hidden = above.len().saturating_sub(fits);
    let mut lead = String::new();
    for follows in above.iter().skip(hidden) {
        lead.push_str(if *follows { more } else { none });
    }
    lead.push_str(if *own { branch } else { end });
    lead
}

fn up(value: &Value, now: u64) -> String {
    let started = value.get("started_at").and_then(Value::as_u64);
    started.map_or_else(|| "-".to_owned(), |at| span(now.saturating_sub(at)))
}

fn share(usage: Option<&Usage>) -> String {
    let share = usage.and_then(|usage| usage.share);
    share.map_or_else(|| "-".to_owned(), |share| format!("{}.{}%", share / 10, share % 10))
}

fn used(usage: Option<&Usage>, words: fn(&Usage) -> String) -> String {
    usage.map_or_else(|| "-".to_owned(), words)
}

const fn column<T>(
    head: &'static str,
    width: usize,
    rank: u8,
    cell: fn(&T) -> String,
) -> Column<T> {
    Column { head, width, rank, cell }
}

/// Returns the columns that fit beside a name of the minimum width, and the width left for the name.
fn fitting<T>(mut columns: Vec<Column<T>>, width: usize) -> (Vec<Column<T>>, usize) {
    let taken = |columns: &[Column<T>]| columns.iter().map(|it| it.width).sum::<usize>();
    while columns.len() > 1 && taken(&columns) + NAME_MIN > width {
        let highest = columns.iter().map(|it| it.rank).max().unwrap_or_default();
        columns.retain(|it| it.rank < highest);
    }
    let room = width.saturating_sub(taken(&columns)).max(1);
    (columns, room)
}

fn head<T>(all: &str, columns: &[Column<T>], room: usize) -> Row {
    let heads = columns.iter().map(|it| format!("{:>1$}", it.head, it.width));
    let line = format!("{:room$}{}", cut(all, room), heads.collect::<String>());
    Row::new(line.dim())
}

fn line<T>(name: &str, of: &T, columns: &[Column<T>], room: usize) -> String {
    let cells = columns.iter().map(|Column { width, cell, .. }| {
        let cell = cell(of);
        format!("{cell:>width$}")
    });
    format!("{:room$}{}", cut(name, room), cells.collect::<String>())
}
