//! Draws the screen. Rows that do not fit are dropped by rank, so that a small terminal still shows the most important ones.

use crate::text::{grouped, number, span, words};
use crate::top::chart::{INTERNALS, Series, WORK, Window, rate_words};
use crate::top::sample::{Contact, Rate, Watched};
use crate::top::screen::{Pane, Screen};
use crate::top::{details, processes, tables};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use serde_json::Value;
use sexton::clock::Timestamp;

/// The width of a chart's name.
const NAME: usize = 13;
/// The width of a chart's current value, and of its peak.
const FIGURE: usize = 11;

/// The minimum width at which charts have a peak and bars.
const WIDE: usize = 60;

/// The minimum rank of each line after the first, in a part that takes several lines.
pub(crate) const FURTHER: u8 = 15;

/// The maximum number of lines of services and processes in printed output.
const PROCESSES_PRINTED: usize = 30;

/// The rank of blank lines between parts, which are dropped first.
const BLANK: u8 = 255;

/// A line and its rank. The line with the highest rank is dropped first; among lines of the same rank, the one furthest down.
pub(crate) struct Row {
    pub(crate) rank: u8,
    pub(crate) line: Line<'static>,
}

impl Row {
    pub(crate) fn new(rank: u8, line: impl Into<Line<'static>>) -> Self {
        let line = line.into();
        Self { rank, line }
    }

    fn blank() -> Self {
        Self::new(BLANK, "")
    }
}

/// Draws the screen, limits the scroll position to the end of the pane, and records which processes are in view.
pub(crate) fn draw(frame: &mut Frame<'_>, screen: &mut Screen) {
    let area = frame.area();
    let height = usize::from(area.height.saturating_sub(1));
    let width = usize::from(area.width);
    let mut rows = top(screen, width);
    let lines = match screen.pane {
        Pane::Work => {
            rows.extend(work(screen.shown(), width, screen.abilities.unicode));
            fit(rows, height)
        }
        Pane::Whole => {
            rows.extend(work(screen.shown(), width, screen.abilities.unicode));
            rows.push(Row::blank());
            let mut shown = process_rows(screen, width);
            shown.truncate(PROCESSES_PRINTED);
            screen.in_view = shown.iter().filter_map(|row| row.id.clone()).collect();
            let shown = shown.into_iter().enumerate();
            rows.extend(shown.map(|(place, row)| Row::new(rank_of_process(place), row.line)));
            rows.push(Row::blank());
            rows.extend(internals(screen.shown(), width, screen.abilities.unicode));
            rows.push(Row::blank());
            rows.extend(details::table(screen.shown()));
            fit(rows, height)
        }
        Pane::Processes => {
            let mut lines = fit(rows, height.div_ceil(3));
            let all = process_rows(screen, width);
            let room = height - lines.len();
            screen.scroll = screen.scroll.min(all.len().saturating_sub(room));
            let in_view = all.into_iter().skip(screen.scroll).take(room);
            screen.in_view.clear();
            for row in in_view {
                screen.in_view.extend(row.id);
                lines.push(row.line);
            }
            lines
        }
        Pane::Internals => {
            let mut lines = fit(rows, height.div_ceil(2));
            let all = internals(screen.shown(), width, screen.abilities.unicode);
            let mut all: Vec<_> = all.into_iter().map(|row| row.line).collect();
            all.push(Line::default());
            all.extend(details::actors(screen.shown(), width));
            let room = height - lines.len();
            screen.scroll = screen.scroll.min(all.len().saturating_sub(room));
            lines.extend(all.into_iter().skip(screen.scroll).take(room));
            lines
        }
    };
    let body = Rect { height: area.height.saturating_sub(1), ..area };
    frame.render_widget(Paragraph::new(lines), body);
    let foot = Rect { y: area.bottom().saturating_sub(1), height: area.height.min(1), ..area };
    frame.render_widget(Paragraph::new(keys(screen)), foot);
    reduce(frame.buffer_mut(), screen);
}

/// Formats services and processes.
fn process_rows(screen: &Screen, width: usize) -> Vec<processes::Row> {
    match &screen.shown().status {
        None => Vec::new(),
        Some((at, _)) => {
            let family = &screen.shown().family;
            processes::rows(family, at.0, width, screen.abilities.unicode)
        }
    }
}

/// Returns the rank of the line at `place` among services and processes: lines further down are dropped first.
fn rank_of_process(place: usize) -> u8 {
    u8::try_from(20 + place).unwrap_or(u8::MAX).min(250)
}

/// Formats the part that is always shown: the state, the coordinator's identity, and notes.
fn top(screen: &Screen, width: usize) -> Vec<Row> {
    let watched = screen.shown();
    let mut first = vec![state(screen)];
    if let Contact::Lost { since, .. } = &watched.contact {
        let since = moment(*since);
        first.push(format!(" since {since}, retrying every {:?}", screen.every).into());
    } else if let Some(overdue) = screen.overdue {
        first.push(format!(" for {} s", overdue.as_secs()).into());
    }
    if let Some((at, status)) = &watched.status {
        if watched.contact == Contact::Answering {
            let at = moment(*at);
            let clock = at.rsplit(' ').next().unwrap_or("-").to_owned();
            first.push(format!("  {}  {clock}", identity(status)).into());
        } else {
            first.push("; last status:".into());
        }
    }
    let mut rows = vec![Row::new(0, Line::from(first))];
    let newest = watched.status.as_ref().map(|(_, status)| status);
    let place =
        newest.map_or_else(|| vec![screen.data.clone()], |status| details::place(status, width));
    let ranks = std::iter::once(7).chain(std::iter::repeat(FURTHER));
    let place = place.into_iter().zip(ranks);
    rows.extend(place.map(|(line, rank)| Row::new(rank, line.dim())));
    for note in details::notes(watched) {
        let colour = if note.urgent { Color::Red } else { Color::Yellow };
        for line in details::folded(&note.words, width).into_iter().take(3) {
            rows.push(Row::new(note.rank, Span::from(line).fg(colour)));
        }
    }
    rows.push(Row::blank());
    rows
}

/// Describes the state of the coordinator, or of the connection to it, in one or two words.
fn state(screen: &Screen) -> Span<'static> {
    let watched = screen.shown();
    let status = watched.status.as_ref().map(|(_, status)| status);
    let is_draining =
        status.is_some_and(|status| status.pointer("/draining") == Some(&Value::Bool(true)));
    match &watched.contact {
        Contact::Lost { no_answer, .. } if no_answer.is_there => "NOT SERVING".red().bold(),
        Contact::Lost { .. } => "NOT REACHABLE".red().bold(),
        Contact::Asking | Contact::Answering if screen.overdue.is_some() => {
            "NO ANSWER".red().bold()
        }
        Contact::Asking => "connecting".yellow(),
        Contact::Answering if is_draining => "DRAINING".yellow().bold(),
        Contact::Answering => "serving".green().bold(),
    }
}

fn identity(status: &Value) -> String {
    let at = |path: &str| words(status, path);
    let up = span(number(status, "/uptime_ms"));
    format!("sexton {}, process {}, up {up}, fsync {}", at("/version"), at("/pid"), at("/fsync"))
}

/// Formats the load: charts, jobs, queues, locks, leases, tasks, requests and the host.
fn work(watched: &Watched, width: usize, unicode: bool) -> Vec<Row> {
    let Some((_, status)) = &watched.status else {
        return Vec::new();
    };
    let mut rows = charts(&WORK, watched, width, unicode);
    rows.extend(details::jobs(watched, status, width));
    rows.push(Row::blank());
    rows.extend(tables::queues(&watched.work, status, width));
    rows.push(Row::blank());
    rows.extend(tables::locks(&watched.work, width));
    rows.push(Row::blank());
    let leases = tables::leases(&watched.work, width);
    if !leases.is_empty() {
        rows.extend(leases);
        rows.push(Row::blank());
    }
    let tasks = tables::tasks(&watched.work, width);
    if !tasks.is_empty() {
        rows.extend(tasks);
        rows.push(Row::blank());
    }
    rows.extend(details::listeners(watched, status, width));
    rows
}

/// Formats the coordinator's internals: charts, journal, checkpoints and recovery.
fn internals(watched: &Watched, width: usize, unicode: bool) -> Vec<Row> {
    let Some((_, status)) = &watched.status else {
        return Vec::new();
    };
    let mut rows = charts(&INTERNALS, watched, width, unicode);
    rows.extend(details::internals(watched, status, width));
    rows
}

/// Formats a chart for each figure: its current value and, if there is room, its peak and bars.
fn charts(all: &[Series], watched: &Watched, width: usize, unicode: bool) -> Vec<Row> {
    let newest = watched.status.as_ref().map(|(_, status)| status);
    let wide = width >= WIDE;
    let room = width.saturating_sub(NAME + 2 * FIGURE + 2);
    let room = if wide { room } else { 0 };
    let window = Window::new(watched.points.iter(), watched.taken, room);
    let mut head = format!("{:NAME$}{:>FIGURE$}", "", "now");
    if wide {
        let last = span(window.ms());
        head = format!("{head}{:>FIGURE$}  last {last}", "peak");
    }
    let mut rows = vec![Row::new(8, head.dim())];
    let is_there = |series: &&Series| {
        let part = newest.and_then(|status| status.pointer(series.of));
        part.is_some_and(Value::is_object)
    };
    for series in all.iter().filter(is_there) {
        let shown = |value: Option<u64>| value.map_or("-".to_owned(), series.words);
        let now = shown(watched.points.back().and_then(series.value));
        let mut line =
            vec![format!("{:NAME$}", series.name).into(), format!("{now:>FIGURE$}").bold()];
        if wide {
            let peak = shown(window.peak(series));
            line.push(format!("{peak:>FIGURE$}  ").dim());
            line.push(window.bars(series, unicode).cyan());
        }
        rows.push(Row::new(series.rank, Line::from(line)));
    }
    rows
}

/// Formats the key hints.
fn keys(screen: &Screen) -> Line<'static> {
    let (pane, scroll) = match screen.pane {
        Pane::Work | Pane::Whole => ("processes", ""),
        Pane::Processes => ("internals", "  up/down"),
        Pane::Internals => ("work", "  up/down"),
    };
    let mut line: Vec<Span<'static>> = Vec::new();
    if let Some(frozen) = &screen.frozen {
        let at = frozen.points.back().map_or(Timestamp(0), |point| point.at);
        line.push(format!("PAUSED at {}", moment(at)).yellow().bold());
        line.push("  ".into());
    }
    let pause = if screen.frozen.is_some() { "resume" } else { "pause" };
    for (key, what) in [
        ("q", "quit".to_owned()),
        ("p", pause.to_owned()),
        ("tab", pane.to_owned()),
        ("+ -", format!("every {:?}", screen.every)),
    ] {
        line.push(key.bold());
        line.push(format!(" {what}  ").dim());
    }
    line.push(scroll.trim_start().bold());
    if !scroll.is_empty() {
        line.push(" scroll".dim());
    }
    Line::from(line)
}

/// Returns the lines of the rows, at most `height`: drops the row with the highest rank until the others fit.
fn fit(mut rows: Vec<Row>, height: usize) -> Vec<Line<'static>> {
    while rows.len() > height {
        let last = rows.iter().enumerate().max_by_key(|(_, row)| row.rank);
        let Some((place, _)) = last else { break };
        rows.remove(place);
    }
    rows.into_iter().map(|row| row.line).collect()
}

/// Replaces characters that the terminal cannot show, and removes colours if it has none or its user does not want them.
fn reduce(buffer: &mut Buffer, screen: &Screen) {
    let abilities = screen.abilities;
    for cell in &mut buffer.content {
        if !abilities.unicode && !cell.symbol().is_ascii() {
            cell.set_symbol("?");
        }
        if !abilities.colours {
            let style = Style::new().fg(Color::Reset).bg(Color::Reset);
            cell.set_style(style);
        }
    }
}

/// Formats a wall-clock time in UTC, without fractions of a second.
pub(crate) fn moment(at: Timestamp) -> String {
    let text = crate::text::time(at);
    match text.split_once('T') {
        Some((day, time)) => {
            let time = time.split('.').next().unwrap_or(time);
            format!("{day} {time}Z")
        }
        None => text,
    }
}

/// Formats a rate, preceded by its name; `-` if it is unknown.
pub(crate) fn named((name, rate): (&str, Option<Rate>)) -> String {
    format!("{name} {}", rate.map_or_else(|| "-".to_owned(), rate_words))
}

/// Formats the count at `path` of the status, preceded by its name.
pub(crate) fn counted(name: &str, status: &Value, path: &str) -> String {
    format!("{name} {}", grouped(number(status, path)))
}
