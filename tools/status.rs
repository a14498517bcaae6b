//! `sexton status`: prints the state of a running coordinator, as text or as JSON.

use crate::client::{self, Answered, Target, Where};
use crate::lease::active_table;
use crate::report::{Failure, print};
use crate::system;
use crate::text::{self, bytes, grouped, number, span, words};
use clap::Args;
use serde::Deserialize as _;
use serde_json::Value;
use sexton::actors::process::Status as ServiceStatus;
use sexton::clock::Timestamp;
use sexton_api::lease::Lease;
use sexton_api::trouble::{Level, ListTroubles, Trouble, Troubles};
use std::fmt::Write as _;
use std::time::Duration;

/// How long the coordinator may take to list its problems.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Show the state of a running coordinator, and everything that is wrong with it.
///
/// Connects to `DATA/sexton.sock`, or to the coordinator of --url. With --json, prints the answer of `GET /v1/status`, with the `troubles`
/// of `GET /v1/trouble`.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton status                      the coordinator of this user
  sexton status --json | jq .queues  as JSON, for programs
  sexton status --json | jq -e '.troubles == []'
                                     whether all is well
  sexton status > /dev/null          only whether it runs, by exit status

Exit status: 0 it runs; 2 wrong flags; 3 no coordinator runs there, or it cannot be reached; 4 it has halted.")]
pub(crate) struct Status {
    #[command(flatten)]
    at: Where,

    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let target = self.at.target()?;
        let mut status = ask(&target)?;
        if self.json {
            if let (Some(status), Some(troubles)) = (status.as_object_mut(), troubles(&target)) {
                status.insert("troubles".to_owned(), troubles);
            }
            print(&format!("{status}\n"))
        } else {
            let troubles = ask_troubles(&target).map(|answer| answer.value.troubles);
            let troubles = troubles.unwrap_or_default();
            print(&[page(&status), shown(&troubles), leases(&target)].concat())
        }
    }
}

/// Requests the list of problems. Returns `None` if the coordinator does not provide it, as before version 0.2.
fn ask_troubles(target: &Target) -> Option<Answered<Troubles>> {
    client::request(target, &ListTroubles {}, TIMEOUT, &[]).ok()
}

/// The same, as it is part of `--json`.
pub(crate) fn troubles(target: &Target) -> Option<Value> {
    let answer = ask_troubles(target)?;
    let mut body: Value = serde_json::from_str(&answer.body).ok()?;
    body.pointer_mut("/troubles").map(Value::take)
}

/// Returns the problems of such a list; none if it has another form.
pub(crate) fn listed(troubles: &Value) -> Vec<Trouble> {
    Vec::deserialize(troubles).unwrap_or_default()
}

/// Formats the list of problems, one to a line; empty if there are none.
fn shown(troubles: &[Trouble]) -> String {
    let lines: Vec<String> = troubles.iter().map(trouble).collect();
    if lines.is_empty() {
        return String::new();
    }
    format!("\n{}\n", lines.join("\n"))
}

fn trouble(trouble: &Trouble) -> String {
    let level = match trouble.level {
        Level::Bad => "PROBLEM",
        Level::Warn => "warning",
    };
    format!("{level:<10}  {}", described(trouble))
}

/// Formats the title and the description of a problem.
pub(crate) fn described(trouble: &Trouble) -> String {
    format!("{}: {}", text::plain(&trouble.title), text::plain(&trouble.words))
}

/// Requests the coordinator's status.
pub(crate) fn ask(target: &Target) -> Result<Value, Failure> {
    let answer = client::get(target, "/v1/status")?;
    let status = answer.json()?;
    if answer.status == 200 { Ok(status) } else { Err(Failure::refused(&status, &[])) }
}

/// Formats the leases with a running or requested pass, running ones first. Returns an empty string if there are none, or if the
/// coordinator does not list them.
fn leases(target: &Target) -> String {
    let answer = client::get(target, &format!("/v1/busiest?limit={LEASES_MAX}")).ok();
    let body = answer.and_then(|answer| answer.success(&[]).ok());
    let leases = body.as_ref().and_then(|body| body.pointer("/leases")).cloned();
    let leases: Vec<Lease> =
        leases.and_then(|it| serde_json::from_value(it).ok()).unwrap_or_default();
    if leases.is_empty() {
        return String::new();
    }
    let more = body.as_ref().and_then(|body| body.pointer("/leases_more"));
    let more = if more == Some(&true.into()) {
        "there are more: `sexton lease list` shows all\n"
    } else {
        ""
    };
    format!("\n{}{more}", active_table(&leases))
}

/// The maximum number of leases shown.
const LEASES_MAX: u32 = 20;

/// The phases of jobs, in the order in which they are printed.
const PHASES: [&str; 7] =
    ["ready", "delayed", "claimed", "retrying", "buried", "abandoned", "quarantined"];

/// Formats the status for a terminal.
fn page(status: &Value) -> String {
    let at = |path: &str| words(status, path);
    let is = |path: &str| status.pointer(path).is_some_and(|value| !value.is_null());
    let up = span(number(status, "/uptime_ms"));
    let many = |path: &str, one: &str| text::count(number(status, path), one);
    let mut lines = vec![
        ("sexton", format!("{}, process {}, up {up}", at("/version"), at("/pid"))),
        ("data", format!("{}, fsync {}", at("/data"), at("/fsync"))),
        ("lockserver", at("/listeners/lockserver")),
        ("beanstalk", at("/listeners/beanstalk")),
        ("http", at("/listeners/http")),
        ("socket", at("/listeners/socket")),
        ("recovered", recovered(status)),
    ];
    if is("/journal") {
        let written = bytes(number(status, "/journal/bytes"));
        let writes = many("/journal/writes", "write");
        let syncs = many("/journal/syncs", "sync");
        let (released, room) = (at("/journal/released"), at("/journal/room"));
        let did = format!("{written} in {writes} and {syncs}");
        lines.push(("journal", format!("{did}, released up to seq {released}, room {room}")));
    }
    if is("/snapshots") {
        lines.push(("snapshots", snapshots(status)));
    }
    lines.extend(held(status));
    lines.extend(services(status).map(|words| ("services", words)));
    let (host, process) = (system::host(status), system::process(status));
    lines.push(("host", host.join(", ")));
    lines.push(("process", process.join(", ")));
    lines.extend(following(status).map(|words| ("following", words)));
    lines.extend(limits(status).map(|words| ("limits", words)));
    let none = Vec::new();
    let actors = status.pointer("/actors").and_then(Value::as_array);
    let actors = actors.unwrap_or(&none);
    let lines = lines.iter().map(|(name, text)| format!("{name:<10}  {text}\n"));
    lines.chain(["\n".to_owned(), table(actors)]).chain(actors.iter().map(quarantined)).collect()
}

/// Describes what the startup replayed, and how the coordinator's previous run ended.
fn recovered(status: &Value) -> String {
    let is = |path: &str| status.pointer(path) == Some(&Value::Bool(true));
    if is("/recovered/new") {
        return match status.pointer("/data") {
            Some(Value::String(_)) => "nothing: the data directory is new".to_owned(),
            Some(_) | None => "nothing: no files are kept".to_owned(),
        };
    }
    let before = if is("/recovered/clean") { "a clean stop" } else { "an unclean end" };
    let records = text::count(number(status, "/recovered/records"), "record");
    let took = grouped(number(status, "/recovered/ms"));
    format!("{records} in {took} ms, after {before}")
}

/// Formats the lines about locks, jobs, leases and tasks.
fn held(status: &Value) -> [(&'static str, String); 4] {
    let count = |path: &str| grouped(number(status, path));
    let many = |path: &str, one: &str| text::count(number(status, path), one);
    let locks = format!(
        "{}, {}; {} open",
        many("/lock_owners", "owner"),
        many("/lock_contenders", "contender"),
        many("/open_commands", "command")
    );
    let jobs = PHASES.map(|phase| format!("{} {phase}", count(&format!("/queues/jobs/{phase}"))));
    let (running, next) = (count("/leases/running"), count("/leases/waiting"));
    [
        ("locks", locks),
        ("jobs", jobs.join(", ")),
        ("passes", format!("{running} running, {next} next")),
        ("tasks", tasks(status)),
    ]
}

/// Formats the number of tasks in each state, how many failed, and whether tasks are paused. Counts that the coordinator does not report
/// are shown as 0.
fn tasks(status: &Value) -> String {
    let counts = [
        ("processing", "running"),
        ("waiting", "between bursts"),
        ("fresh", "not begun"),
        ("complete", "over"),
    ];
    let counts = counts.map(|(count, shown)| {
        let count = grouped(number(status, &format!("/tasks/{count}")));
        format!("{count} {shown}")
    });
    let pause = match status.pointer("/tasks/pause").and_then(Value::as_str) {
        Some(pause @ ("soft" | "hard")) => format!("; PAUSED ({pause})"),
        Some(_) | None => String::new(),
    };
    let failed = grouped(number(status, "/tasks/failed"));
    format!("{}, {failed} of them failed{pause}", counts.join(", "))
}

/// Formats the number of services, and how many have each status that any of them has. Returns `None` if the coordinator does not report
/// them.
fn services(status: &Value) -> Option<String> {
    let actors = status.pointer("/actors")?.as_array()?;
    let process = actors.iter().find(|it| words(it, "/name") == "process")?;
    let gauges = process.pointer("/gauges")?.as_array()?;
    let gauge = |name: &str| {
        let gauge = gauges.iter().find(|it| words(it, "/name") == name)?;
        Some(number(gauge, "/value"))
    };
    let all = grouped(gauge("services")?);
    let counts = ServiceStatus::ALL.iter().filter_map(|status| {
        let status = status.name();
        let many = gauge(&format!("services_{status}")).filter(|many| *many > 0)?;
        Some(format!("{} {status}", grouped(many)))
    });
    let counts: Vec<String> = counts.collect();
    let parts = [&[all], counts.as_slice()].concat();
    Some(parts.join(", "))
}

/// Describes how processes are followed, if the coordinator is new enough to report it.
fn following(status: &Value) -> Option<String> {
    let mut parts = vec![text::plain(status.pointer("/following/words")?.as_str()?)];
    let groups = status.pointer("/following/control_groups");
    parts.extend(
        match groups.and_then(Value::as_bool) {
            Some(true) => Some("a control group for each launch"),
            Some(false) => Some("no control groups"),
            None => None,
        }
        .map(str::to_owned),
    );
    Some(parts.join("; "))
}

/// Describes what the memory limit of a command applies to. Returns `None` until the coordinator has launched a process, because this is
/// not known before.
fn limits(status: &Value) -> Option<String> {
    let words = match status.pointer("/memory_limits")?.as_str()? {
        "tree" => "the memory of a command and all its descendants together (memory.max)",
        _ => "the data memory of each process of a command (RLIMIT_DATA)",
    };
    Some(words.to_owned())
}

/// Describes the snapshots and the last checkpoint.
fn snapshots(status: &Value) -> String {
    let at = |path: &str| words(status, &format!("/snapshots/{path}"));
    let upto = |slot: &str| match at(&format!("slots/{slot}")).as_str() {
        "-" => "not sealed".to_owned(),
        upto => format!("up to seq {upto}"),
    };
    let mut parts = vec![format!("slot a {}, slot b {}", upto("0"), upto("1"))];
    if at("last") != "-" {
        let size = bytes(number(status, "/snapshots/last/file_bytes"));
        let took = at("last/ms");
        parts.push(format!("the last checkpoint took {took} ms, {size} on disk"));
    }
    if let Some(since) = status.pointer("/snapshots/history/since").and_then(Value::as_u64) {
        let history = bytes(number(status, "/snapshots/history/bytes"));
        let since = text::time(Timestamp(since));
        parts.push(format!(
            "the journal begins at {since}, with {history} that only show what happened"
        ));
    }
    parts.join("; ")
}

/// Formats a table of the actors.
fn table(actors: &[Value]) -> String {
    let mut rows = vec![
        ["ACTOR", "LAST", "RESTARTS", "REBUILDS", "QUARANTINED", "LAST CAUSE"].map(str::to_owned),
    ];
    for actor in actors {
        let length = |path| actor.pointer(path).and_then(Value::as_array).map_or(0, Vec::len);
        let cause = match length("/causes") {
            0 => "-".to_owned(),
            causes => cause(actor, &format!("/causes/{}", causes - 1)),
        };
        rows.push([
            words(actor, "/name"),
            words(actor, "/last"),
            words(actor, "/restarts"),
            words(actor, "/rebuilds"),
            length("/quarantined").to_string(),
            cause,
        ]);
    }
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            // Words are aligned left, numbers right.
            let padded = if (1..5).contains(&column) {
                format!("{cell:>width$}  ")
            } else {
                format!("{cell:<width$}  ")
            };
            line.push_str(&padded);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Formats one line for each quarantined item of an actor, that is, each item whose deadlines no longer take effect.
fn quarantined(actor: &Value) -> String {
    let none = Vec::new();
    let items = actor.pointer("/quarantined").and_then(Value::as_array).unwrap_or(&none);
    let mut text = String::new();
    for item in items {
        let (name, number) = (words(actor, "/name"), words(item, "/item"));
        writeln!(text, "quarantined: item {number} of {name}, {}", cause(item, ""))
            .expect("writing to memory should not fail");
    }
    text
}

fn cause(value: &Value, path: &str) -> String {
    let at = |field: &str| words(value, &format!("{path}/{field}"));
    format!("{} at seq {}: {}", at("stage"), at("seq"), at("cause"))
}
