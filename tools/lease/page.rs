//! Formats leases for a terminal, and as Fossil prints them.

use crate::figure::Figure;
use crate::lock::shown;
use crate::process::{command, failure, shown_command};
use crate::table::{Column, table};
use crate::text::{count, number, span, time, words};
use serde_json::Value;
use sexton::actors::lease::fossil::{FossilLease, last_run};
use sexton::clock::Timestamp;
use std::fmt::Write as _;

fn at(lease: &Value, path: &str) -> Option<u64> {
    lease.pointer(path).and_then(Value::as_u64)
}

fn is(lease: &Value, path: &str) -> bool {
    lease.pointer(path) == Some(&true.into())
}

/// Formats a lease as `fossil test-backoffice-lease` does: each number is padded as by `%-20lld`, and followed by Fossil's remark.
pub(super) fn fossil(lease: &Value) -> String {
    let four =
        FossilLease::read(lease.pointer("/text").and_then(Value::as_str).unwrap_or_default());
    let FossilLease([current, until, next, until_next]) = four;
    let now = number(lease, "/now").known().map(|now| now / 1000);
    let exists = |id: u64, lives: bool| match (id, lives) {
        (0, _) | (_, false) => " (done)",
        (_, true) => " (exists)",
    };
    let left = |at: u64| match now {
        Some(now) if at > 0 => format!(" (now{:+})", i128::from(at) - i128::from(now)),
        Some(_) | None => String::new(),
    };
    let lines = [
        ("now:", now.map_or_else(|| "-".to_owned(), |now| now.to_string())),
        ("lease:", format!("\"{four}\"")),
        ("idCurrent:", format!("{current:<20}{}", exists(current, is(lease, "/current/running")))),
        ("tmCurrent:", format!("{until:<20}{}", left(until))),
        ("idNext:", format!("{next:<20}{}", exists(next, is(lease, "/next/live")))),
        ("tmNext:", format!("{until_next:<20}{}", left(until_next))),
    ];
    let mut page = String::new();
    for (label, value) in lines {
        writeln!(page, "{label:<12}{value}").expect("writing to memory should not fail");
    }
    page
}

/// Formats all details of a lease, followed by the lines that Fossil prints for it.
pub(super) fn whole(lease: &Value) -> String {
    let mut page = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() && value != "-" {
            writeln!(page, "{name:<11} {value}").expect("writing to memory should not fail");
        }
    };
    line("name", &shown(lease, "name"));
    line("state", &state(lease));
    line("period", &exact(number(lease, "/period_ms")));
    line("last run", &last(lease));
    line("passes", &passes(lease));
    line("current", &current(lease));
    line("overrun", &overrun(lease));
    line("next", &next(lease));
    if is(lease, "/no_delay") {
        line("no-delay", "requests never wait");
    }
    if number(lease, "/max_run_ms") > 0 {
        line("max-run", &exact(number(lease, "/max_run_ms")));
    }
    line("logfile", &words(lease, "/logfile"));
    line("command", &shown_command(lease));
    line("schedule", &schedule(lease));
    line("due", &date(lease, "/due_at"));
    line("missed", &missed(lease));
    page.push('\n');
    page.push_str(&fossil(lease));
    page
}

/// Formats the schedule of a lease; `-` if it has none.
pub(super) fn schedule(lease: &Value) -> String {
    let catches_up = if is(lease, "/catch_up") { ", catches up" } else { "" };
    match words(lease, "/schedule").as_str() {
        "-" => "-".to_owned(),
        schedule => format!("{schedule} ({}{catches_up})", words(lease, "/zone")),
    }
}

fn state(lease: &Value) -> String {
    let word = match (is(lease, "/disabled"), is(lease, "/current/running")) {
        (true, true) => "disabled, a pass is still running",
        (true, false) => "disabled",
        (false, true) => "a pass runs",
        (false, false) if is(lease, "/owed") => "a pass follows",
        (false, false) => "idle",
    };
    word.to_owned()
}

/// Formats a time span without rounding.
pub(super) fn exact(ms: impl Into<Figure>) -> String {
    ms.into().shown(|ms| match (ms % 60_000, ms % 1000) {
        (0, _) if ms > 0 => span(ms),
        (_, 0) => format!("{} s", ms / 1000),
        _ => format!("{ms} ms"),
    })
}

pub(super) fn date(lease: &Value, path: &str) -> String {
    at(lease, path).map_or_else(|| "-".to_owned(), |at| time(Timestamp(at)))
}

fn last(lease: &Value) -> String {
    match at(lease, "/current/since_at") {
        None => last_run(&FossilLease([0; 4]), 0, |_| String::new()),
        Some(since) => {
            let ago = number(lease, "/now").minus(since);
            format!("{}, {} ago", time(Timestamp(since)), span(ago))
        }
    }
}

/// Formats by how much the running pass overruns its period; empty if it does not.
fn overrun(lease: &Value) -> String {
    let over = number(lease, "/now").minus(number(lease, "/current/until_at"));
    if !is(lease, "/current/running") || over.or_zero() == 0 {
        return String::new();
    }
    let period = "the pass runs longer than its period, which was over";
    match number(lease, "/current/warnings").or_zero() {
        0 => format!("{period} {} ago", span(over)),
        warnings => format!("{period} {} ago; {}", span(over), count(warnings, "warning")),
    }
}

/// Formats the dates that were missed last; empty if there were none.
fn missed(lease: &Value) -> String {
    if at(lease, "/missed/first_at").is_none() {
        return String::new();
    }
    let why = match words(lease, "/missed/cause").as_str() {
        "down" => "the coordinator was down",
        _ => "the clock was set forward, or the machine was suspended",
    };
    let (first, noticed) = (date(lease, "/missed/first_at"), date(lease, "/missed/noticed_at"));
    format!("dates from {first} until {noticed}: {why}")
}

fn passes(lease: &Value) -> String {
    let (begun, whole) = (number(lease, "/begun"), number(lease, "/whole"));
    format!("{begun} begun, the last complete one is number {whole}")
}

/// Describes the running pass, or else the last one; `-` if there was none.
fn current(lease: &Value) -> String {
    let Some(pass) = lease.pointer("/current").filter(|it| !it.is_null()) else {
        return "-".to_owned();
    };
    let token = number(pass, "/token");
    let who = holder(pass);
    let stands = match (is(pass, "/running"), is(pass, "/stopping")) {
        (true, true) => "is being stopped".to_owned(),
        (true, false) => "runs".to_owned(),
        (false, _) => ended(pass),
    };
    let id = match words(pass, "/process").as_str() {
        "-" => String::new(),
        id => format!(", {id}"),
    };
    format!("{who}: {stands}, token {token}{id}")
}

/// Describes the holder of a pass.
fn holder(pass: &Value) -> String {
    match words(pass, "/holder").as_str() {
        "launched" => command(pass),
        "process" => format!("process {}", number(pass, "/pid")),
        "client" => "a client".to_owned(),
        _ => "imported".to_owned(),
    }
}

/// Describes how a pass ended, in a few words; `-` if it is running.
fn end(pass: &Value) -> String {
    if is(pass, "/running") {
        return "-".to_owned();
    }
    match (at(pass, "/code"), at(pass, "/signal"), words(pass, "/exit").as_str()) {
        (Some(code), ..) => format!("exit {code}"),
        (None, Some(signal), _) => format!("signal {signal}"),
        (None, None, "failed") => "failed to start".to_owned(),
        (None, None, "lost") => "lost".to_owned(),
        (None, None, _) => "ended".to_owned(),
    }
}

/// Describes how the last pass of a lease ended; `-` if none has ended yet, or while the next one is running, since only the latest pass
/// is known.
fn last_end(lease: &Value) -> String {
    let pass = lease.pointer("/current").filter(|it| !it.is_null());
    pass.map_or_else(|| "-".to_owned(), end)
}

fn ended(pass: &Value) -> String {
    let took = number(pass, "/ended_at").minus(number(pass, "/since_at"));
    let how = end(pass);
    if let Some(found) = pass.pointer("/failure").filter(|it| !it.is_null()) {
        return format!("{how}: {}", failure(found));
    }
    let part = if is(pass, "/whole") { "" } else { ", incomplete" };
    format!("{how}{part} after {}", exact(took))
}

fn next(lease: &Value) -> String {
    let Some(place) = lease.pointer("/next").filter(|it| !it.is_null()) else {
        return "-".to_owned();
    };
    let who = match command(place).as_str() {
        "" => format!("process {}", number(place, "/pid")),
        command => command.to_owned(),
    };
    match (at(lease, "/current/until_at"), at(lease, "/now")) {
        (Some(until), Some(now)) if until >= now => {
            let left = exact(until - now + 1);
            format!("{who}: begins in {left}")
        }
        _ => format!("{who}: begins when the pass has ended"),
    }
}

/// Formats a lease with a running or upcoming pass as columns: its name, the holder of the running pass, how long that pass has run,
/// and the next pass.
pub(crate) fn active_row(lease: &Value) -> [String; 4] {
    let now = number(lease, "/now");
    let (who, since) = match lease.pointer("/current") {
        Some(pass) if is(pass, "/running") => {
            let ran = span(now.minus(number(pass, "/since_at")));
            (holder(pass), ran)
        }
        _ => ("-".to_owned(), "-".to_owned()),
    };
    let due =
        at(lease, "/due_at").map(|at| format!("due in {}", span(Figure::from(at).minus(now))));
    let next = match next(lease).as_str() {
        "-" if is(lease, "/owed") && who == "-" => Some("a missed pass is due".to_owned()),
        "-" => None,
        next => Some(next.to_owned()),
    };
    let next = [next, due].into_iter().flatten().collect::<Vec<_>>();
    let next = if next.is_empty() { "-".to_owned() } else { next.join("; ") };
    [shown(lease, "name"), who, since, next]
}

/// Formats leases with a running or upcoming pass as a table.
pub(crate) fn active_table(leases: &[Value]) -> String {
    let heads = [
        ("LEASE", Column::Words),
        ("RUNS", Column::Words),
        ("SINCE", Column::Number),
        ("NEXT", Column::Words),
    ];
    table(heads, leases.iter().map(active_row))
}

/// Formats a list of leases as a table.
pub(super) fn list(leases: &[Value]) -> String {
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
            shown(lease, "name"),
            state(lease),
            exact(number(lease, "/period_ms")),
            words(lease, "/begun"),
            date(lease, "/current/since_at"),
            last_end(lease),
            next(lease),
            words(lease, "/schedule"),
        ]
    });
    table(heads, rows)
}

#[cfg(test)]
mod tests {
    use super::fossil;
    use serde_json::{Value, json};

    fn of(text: &str, running: bool, live: bool) -> Value {
        json!({
            "text": text,
            "now": 1_795_217_117_999_u64,
            "current": { "running": running },
            "next": { "live": live },
        })
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
        let mut unknown = lease;
        unknown["now"] = Value::Null;
        let seen = seen.replace("1795217117\n", "-\n").replace(" (now+56)", "");
        assert_eq!(fossil(&unknown), seen.replace(" (now+116)", ""));
        let past = fossil(&of("1 1795217017 0 0", true, false));
        assert!(past.contains("(exists)\ntmCurrent:  1795217017           (now-100)\n"));
    }
}
