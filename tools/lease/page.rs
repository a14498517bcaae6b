//! Formats leases for a terminal, and as Fossil prints them.

use crate::process::{command_line, shown_command_line};
use crate::table::{Column, table};
use crate::text::{count, or_dash, plain, span, time};
use sexton::actors::lease::fossil::{FossilLease, last_run};
use sexton_api::ids::Timestamp;
use sexton_api::lease::{Lease, Next, Pass};
use std::fmt::Write as _;

/// Formats a lease as `fossil test-backoffice-lease` does: each number is padded as by `%-20lld`, and followed by Fossil's remark.
pub(super) fn fossil(lease: &Lease) -> String {
    let four = FossilLease::read(&lease.text);
    let FossilLease([current, until, next, until_next]) = four;
    let now = lease.now.0 / 1000;
    let exists = |id: u64, lives: bool| match (id, lives) {
        (0, _) | (_, false) => " (done)",
        (_, true) => " (exists)",
    };
    let left = |at: u64| match at {
        0 => String::new(),
        _ => format!(" (now{:+})", i128::from(at) - i128::from(now)),
    };
    let is_running = running(lease).is_some();
    let is_live = lease.next.as_ref().is_some_and(|it| it.live);
    let lines = [
        ("now:", now.to_string()),
        ("lease:", format!("\"{four}\"")),
        ("idCurrent:", format!("{current:<20}{}", exists(current, is_running))),
        ("tmCurrent:", format!("{until:<20}{}", left(until))),
        ("idNext:", format!("{next:<20}{}", exists(next, is_live))),
        ("tmNext:", format!("{until_next:<20}{}", left(until_next))),
    ];
    let mut page = String::new();
    for (label, value) in lines {
        writeln!(page, "{label:<12}{value}").expect("writing to memory should not fail");
    }
    page
}

/// Returns the running pass.
fn running(lease: &Lease) -> Option<&Pass> {
    lease.current.as_ref().filter(|it| it.running)
}

/// Formats all details of a lease, followed by the lines that Fossil prints for it.
pub(super) fn whole(lease: &Lease) -> String {
    let mut page = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() && value != "-" {
            writeln!(page, "{name:<11} {value}").expect("writing to memory should not fail");
        }
    };
    line("name", &lease.name.name.to_text());
    line("state", state(lease));
    line("period", &exact(lease.period_ms));
    line("last run", &last(lease));
    line("passes", &passes(lease));
    line("current", &current(lease));
    line("overrun", &overrun(lease));
    line("next", &next(lease));
    if lease.no_delay {
        line("no-delay", "requests never wait");
    }
    if lease.max_run_ms > 0 {
        line("max-run", &exact(lease.max_run_ms));
    }
    line("logfile", &log_file(lease));
    line("command", &shown_command_line(lease.command.as_deref().unwrap_or_default()));
    line("schedule", &schedule(lease));
    line("due", &date(lease.due_at));
    line("missed", &missed(lease));
    page.push('\n');
    page.push_str(&fossil(lease));
    page
}

/// Formats the path of the log file; `-` if there is none.
pub(super) fn log_file(lease: &Lease) -> String {
    lease.logfile.as_deref().map_or_else(|| "-".to_owned(), plain)
}

/// Formats the schedule of a lease; `-` if it has none.
pub(super) fn schedule(lease: &Lease) -> String {
    let catches_up = if lease.catch_up { ", catches up" } else { "" };
    let zone = lease.zone.as_deref().unwrap_or("-");
    let schedule = lease.schedule.as_deref();
    or_dash(schedule.map(|it| plain(&format!("{it} ({zone}{catches_up})"))))
}

fn state(lease: &Lease) -> &'static str {
    match (lease.disabled, running(lease).is_some()) {
        (true, true) => "disabled, a pass is still running",
        (true, false) => "disabled",
        (false, true) => "a pass runs",
        (false, false) if lease.owed => "a pass follows",
        (false, false) => "idle",
    }
}

/// Formats a time span without rounding.
pub(super) fn exact(ms: u64) -> String {
    match (ms % 60_000, ms % 1000) {
        (0, _) if ms > 0 => span(ms),
        (_, 0) => format!("{} s", ms / 1000),
        _ => format!("{ms} ms"),
    }
}

/// Formats a date; `-` if there is none.
pub(super) fn date(at: Option<Timestamp>) -> String {
    or_dash(at.map(time))
}

/// Returns the milliseconds from one moment to another; 0 if that is not later.
const fn between(from: Timestamp, to: Timestamp) -> u64 {
    to.0.saturating_sub(from.0)
}

fn last(lease: &Lease) -> String {
    match lease.current.as_ref().map(|it| it.since_at) {
        None => last_run(&FossilLease([0; 4]), 0, |_| String::new()),
        Some(since) => format!("{}, {} ago", time(since), span(between(since, lease.now))),
    }
}

/// Formats by how much the running pass overruns its period; empty if it does not.
fn overrun(lease: &Lease) -> String {
    let over = |it: &Pass| between(it.until_at, lease.now);
    let Some(pass) = running(lease).filter(|it| over(it) > 0) else {
        return String::new();
    };
    let period = "the pass runs longer than its period, which was over";
    let over = span(over(pass));
    match pass.warnings {
        0 => format!("{period} {over} ago"),
        warnings => format!("{period} {over} ago; {}", count(u64::from(warnings), "warning")),
    }
}

/// Formats the dates that were missed last; empty if there were none.
fn missed(lease: &Lease) -> String {
    let Some(missed) = &lease.missed else {
        return String::new();
    };
    let why = match &*missed.cause {
        "down" => "the coordinator was down",
        _ => "the clock was set forward, or the machine was suspended",
    };
    let (first, noticed) = (time(missed.first_at), time(missed.noticed_at));
    format!("dates from {first} until {noticed}: {why}")
}

fn passes(lease: &Lease) -> String {
    format!("{} begun, the last complete one is number {}", lease.begun, lease.whole)
}

/// Describes the running pass, or else the last one; `-` if there was none.
fn current(lease: &Lease) -> String {
    let Some(pass) = &lease.current else {
        return "-".to_owned();
    };
    let who = holder(pass);
    let stands = match (pass.running, pass.stopping) {
        (true, true) => "is being stopped".to_owned(),
        (true, false) => "runs".to_owned(),
        (false, _) => ended(pass),
    };
    let id = pass.process.as_ref().map_or_else(String::new, |id| format!(", {id}"));
    format!("{who}: {stands}, token {}{id}", pass.token)
}

/// Describes the holder of a pass.
fn holder(pass: &Pass) -> String {
    match &*pass.holder {
        "launched" => command_line(pass.command.as_deref().unwrap_or_default()),
        "process" => format!("process {}", pass.pid),
        "client" => "a client".to_owned(),
        _ => "imported".to_owned(),
    }
}

/// Describes how a pass ended, in a few words; `-` if it is running.
fn end(pass: &Pass) -> String {
    match (pass.code, pass.signal, pass.exit.as_deref()) {
        _ if pass.running => "-".to_owned(),
        (Some(code), ..) => format!("exit {code}"),
        (None, Some(signal), _) => format!("signal {signal}"),
        (None, None, Some("failed")) => "failed to start".to_owned(),
        (None, None, Some("lost")) => "lost".to_owned(),
        (None, None, _) => "ended".to_owned(),
    }
}

fn ended(pass: &Pass) -> String {
    let how = end(pass);
    if let Some(failure) = &pass.failure {
        return format!("{how}: {}", plain(&failure.words));
    }
    let part = if pass.whole == Some(true) { "" } else { ", incomplete" };
    let took = or_dash(pass.ended_at.map(|end| exact(between(pass.since_at, end))));
    format!("{how}{part} after {took}")
}

fn next(lease: &Lease) -> String {
    let Some(next) = &lease.next else {
        return "-".to_owned();
    };
    let who = waiting(next);
    match lease.current.as_ref().map(|it| it.until_at) {
        Some(until) if until >= lease.now => {
            format!("{who}: begins in {}", exact(between(lease.now, until) + 1))
        }
        _ => format!("{who}: begins when the pass has ended"),
    }
}

/// Describes whose pass is next.
fn waiting(next: &Next) -> String {
    let command = next.command.as_deref().map(command_line);
    command.unwrap_or_else(|| format!("process {}", next.pid))
}

/// Formats a lease with a running or upcoming pass as columns: its name, the holder of the running pass, how long that pass has run,
/// and the next pass.
pub(crate) fn active_row(lease: &Lease) -> [String; 4] {
    let running = running(lease);
    let who = or_dash(running.map(holder));
    let since = or_dash(running.map(|it| span(between(it.since_at, lease.now))));
    let due = lease.due_at.map(|at| format!("due in {}", span(between(lease.now, at))));
    let next = match &lease.next {
        None if lease.owed && running.is_none() => Some("a missed pass is due".to_owned()),
        None => None,
        Some(_) => Some(next(lease)),
    };
    let next = [next, due].into_iter().flatten().collect::<Vec<_>>();
    let next = Some(next.join("; ")).filter(|it| !it.is_empty());
    [lease.name.name.to_text(), who, since, or_dash(next)]
}

/// Formats leases with a running or upcoming pass as a table.
pub(crate) fn active_table(leases: &[Lease]) -> String {
    let heads = [
        ("LEASE", Column::Words),
        ("RUNS", Column::Words),
        ("SINCE", Column::Number),
        ("NEXT", Column::Words),
    ];
    table(heads, leases.iter().map(active_row))
}

/// Formats a list of leases as a table.
pub(super) fn list(leases: &[Lease]) -> String {
    if leases.is_empty() {
        return "no leases; `sexton lease run NAME -- COMMAND` creates one\n".to_owned();
    }
    let heads = [
        ("NAME", Column::Words),
        ("STATE", Column::Words),
        ("PERIOD", Column::Number),
        ("PASSES", Column::Number),
        ("LAST RUN", Column::Words),
        ("LAST", Column::Words),
        ("NEXT", Column::Words),
        ("SCHEDULE", Column::Words),
    ];
    let rows = leases.iter().map(|lease| {
        [
            lease.name.name.to_text(),
            state(lease).to_owned(),
            exact(lease.period_ms),
            lease.begun.to_string(),
            date(lease.current.as_ref().map(|it| it.since_at)),
            // Only the latest pass is known, so that nothing is shown while it runs.
            or_dash(lease.current.as_ref().map(end)),
            next(lease),
            or_dash(lease.schedule.as_deref().map(plain)),
        ]
    });
    table(heads, rows)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::fossil;
    use serde_json::{Value, json};
    use sexton_api::lease::Lease;

    /// Returns a lease with these fields, and no more than a lease needs.
    pub(crate) fn lease(fields: &Value) -> Value {
        let mut lease = json!({
            "name": "sync", "period_ms": 60_000, "no_delay": false, "disabled": false, "max_run_ms": 0, "command": null,
            "schedule": null, "zone": null, "catch_up": false, "logfile": null, "due_at": null, "missed": null, "begun": 0,
            "whole": 0, "owed": false, "wanted": true, "current": null, "next": null, "text": "0 0 0 0", "now": 0,
        });
        with(&mut lease, fields);
        lease
    }

    /// Returns a pass with these fields, and no more than a pass needs.
    pub(crate) fn pass(fields: &Value) -> Value {
        let mut pass = json!({
            "token": 1, "place": 1, "holder": "launched", "pid": 17, "process": null, "command": null, "status": null, "since_at": 0,
            "until_at": 0, "running": true, "stopping": false, "warnings": 0, "max_run_ms": null, "ended_at": null, "code": null,
            "signal": null, "exit": null, "failure": null, "whole": null,
        });
        with(&mut pass, fields);
        pass
    }

    fn with(object: &mut Value, fields: &Value) {
        let fields = fields.as_object().expect("it should be an object").clone();
        object.as_object_mut().expect("it should be an object").extend(fields);
    }

    fn of(text: &str, running: bool, live: bool) -> Lease {
        let next = json!({"place": 1, "command": null, "process": null, "pid": 1, "until_at": 0, "live": live});
        let fields = json!({
            "text": text,
            "now": 1_795_217_117_999_u64,
            "current": pass(&json!({"running": running})),
            "next": next,
        });
        serde_json::from_value(lease(&fields)).expect("it should be a lease")
    }

    /// The expected lines are recorded from a real run of Fossil.
    #[test]
    fn a_lease_is_printed_as_fossil_prints_it() {
        let seen = "\
now:        1795217117
lease:      \"17294 1795217173 17388 1795217233\"
idCurrent:  17294                (done)
tmCurrent:  1795217173           (now+56)
idNext:     17388                (exists)
tmNext:     1795217233           (now+116)
";
        let lease = of("17294 1795217173 17388 1795217233", false, true);
        assert_eq!(fossil(&lease), seen);
        let fresh = "\
now:        1795217117
lease:      \"0 0 0 0\"
idCurrent:  0                    (done)
tmCurrent:  0                   \nidNext:     0                    (done)
tmNext:     0                   \n";
        assert_eq!(fossil(&of("0 0 0 0", false, false)), fresh);
        let past = fossil(&of("1 1795217017 0 0", true, false));
        assert!(past.contains("(exists)\ntmCurrent:  1795217017           (now-100)\n"));
    }
}
