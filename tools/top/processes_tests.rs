//! Tests of the pane of processes: its recorded screens, and which processes are requested while it is shown. See `tests.rs` for how
//! screens are recorded.

use crate::top::command::text;
use crate::top::family::{Family, Standing};
use crate::top::screen::{Abilities, Key, Pane, Screen, ScreenRequest};
use crate::top::tests::{FULL, NOON, drawn, screen, status};
use serde_json::{Value, json};
use sexton::clock::Timestamp;

/// Returns the `processes` of an answer: services, some with problems, and trees of processes, one of which has control characters in its
/// command.
fn family(second: u64) -> Value {
    let id = |number: u64| format!("0192f5e0-0000-7000-8000-{number:012}");
    let record = |number: u64, parent: Option<u64>, kind: &str, command: &[&str], labels: Value| {
        json!({"id": id(number), "parent": parent.map(id), "type": kind, "status": "running", "pid": 4000 + number,
            "command": command, "labels": labels, "started_at": NOON - number * 61_000})
    };
    let none = || json!({});
    let mut stopping = record(6, Some(5), "binary", &["chrome", "--headless"], none());
    stopping["status"] = json!("stopping");
    stopping["unkillable"] = json!(1);
    let instance = |number: u64, status: &str, restarts: u64, last: Value| {
        json!({"number": number, "status": status, "pid": (status == "running").then_some(4000 + number), "process": id(number),
            "started_at": (status == "running").then_some(NOON - 61_000), "restarts": restarts, "next_at": NOON + second * 1000 + 12_000, "last": last})
    };
    let code = |code: u64| json!({"process": id(99), "ended_at": NOON, "code": code, "signal": null, "lost": null, "failure": null});
    let killed = json!({"process": id(99), "ended_at": NOON, "code": 137, "signal": 9, "lost": null, "failure": null});
    let service = |name: &str, instances: Value| json!({"name": name, "instances": instances, "waits_for": ["web"], "command": ["x"]});
    let usage = |number: u64, share: u64, memory: u64| json!({"id": id(number), "cpu_ms": 90_000 + second * share, "memory_bytes": memory, "of": "process"});
    json!({
        "services": [
            service("web", json!([instance(1, "running", 3, killed)])),
            service("worker", json!([instance(2, "running", 0, Value::Null), instance(3, "backoff", 7, code(1))])),
            service("mails", json!([instance(7, "waiting", 0, Value::Null)])),
            service("migrate", json!([instance(8, "failed", 0, code(2))])),
        ],
        "processes": [
            record(1, None, "service", &["./web", "--port", "8000"], json!({"service": "web", "instance": "1"})),
            record(2, None, "service", &["./worker"], json!({"service": "worker", "instance": "1"})),
            record(3, Some(2), "worker", &["crawl", "\u{1b}[2Jhttps://a.example/with/a/long/path"],
                json!({"job": "17", "queue": "t1:crawls", "attempt": "2"})),
            record(4, Some(2), "binary", &["wget", "-q"], none()),
            record(5, Some(3), "binary", &["sh", "-c", "chrome"], none()),
            stopping,
            record(9, Some(77), "cli", &["import.sh"], none()),
        ],
        "more": false,
        "usage": [usage(1, 1005, 91_000_000), usage(2, 0, 5_000_000), usage(3, 33, 1_500)],
    })
}

/// Returns a screen that shows the pane of processes, after three answers.
fn of_processes(abilities: Abilities) -> Screen {
    let mut screen = screen(abilities, []);
    assert_eq!(screen.key(Key::NextPane), ScreenRequest::Draw);
    for second in 0..3 {
        let mut status = status(second);
        status["processes"] = family(second);
        screen.watched.take(Timestamp(NOON + second * 1000), Ok(status));
    }
    screen
}

/// Returns every recorded state with its name.
pub(super) fn states() -> Vec<(&'static str, Screen)> {
    let plain = Abilities { unicode: false, colours: false };
    let mut out_of_scope = of_processes(FULL);
    let mut refused = status(3);
    refused["processes"] = json!({"refused": "the coordinator refused: this needs the scope run, and so the Unix socket"});
    out_of_scope.watched.take(Timestamp(NOON + 3000), Ok(refused));
    let mut no_processes = of_processes(FULL);
    let mut empty = status(3);
    empty["processes"] = json!({"services": [], "processes": [], "more": false, "usage": []});
    no_processes.watched.take(Timestamp(NOON + 3000), Ok(empty));
    vec![
        ("processes", of_processes(FULL)),
        ("processes-ascii", of_processes(plain)),
        ("processes-none", no_processes),
        ("processes-refused", out_of_scope),
    ]
}

#[test]
fn processes_are_asked_for_while_they_are_shown_and_usage_of_those_in_view() {
    let ids = |screen: &Screen| screen.question().processes;
    let mut screen = of_processes(FULL);
    drawn(&mut screen, (80, 40));
    assert_eq!(ids(&screen).map(|ids| ids.len()), Some(7), "all lines fit on the screen");
    drawn(&mut screen, (80, 16));
    let some = ids(&screen).expect("processes are shown");
    assert!(!some.is_empty() && some.len() < 7, "{some:?}");
    let first = some.first().cloned();
    assert_eq!(first.as_deref(), Some("0192f5e0-0000-7000-8000-000000000001"));
    for _ in 0..5 {
        screen.key(Key::PageDown);
    }
    let picture = text(&drawn(&mut screen, (80, 10)));
    assert!(picture.contains("import.sh"), "{picture}");
    let last = ids(&screen).expect("processes are shown");
    assert!(!last.contains(&first.expect("a process is in view")), "{last:?}");
    for pane in [Pane::Internals, Pane::Work] {
        screen.key(Key::NextPane);
        assert_eq!((screen.pane, ids(&screen)), (pane, None), "the pane of processes is not shown");
    }
}

#[test]
fn what_a_process_uses_is_over_the_coordinators_own_time() {
    let mut family = Family::default();
    let mut take = |uptime_ms: u64, cpu_ms: u64| {
        let record = json!({"id": "a", "status": "running"});
        let usage = json!([{"id": "a", "cpu_ms": cpu_ms, "memory_bytes": 7}]);
        let mut answer = json!({"services": [], "processes": [record], "usage": usage});
        family.take(&mut answer, uptime_ms);
        let usage = family.usage(&record_of("a")).expect("the usage was read");
        (usage.share, usage.cpu_ms.or_zero(), usage.memory_bytes.or_zero())
    };
    assert_eq!(take(1000, 50), (None, 50, 7), "one reading gives no share");
    assert_eq!(take(3000, 1050), (Some(500), 1050, 7), "half a processor");
    assert_eq!(take(3000, 1051), (None, 1051, 7), "no time has passed, so there is no share");
    assert_eq!(take(4000, 2), (None, 2, 7), "the count decreased, so there is no share");
    // Usage outside the view is unknown; an old value is not shown as current.
    family.take(&mut json!({"services": [], "processes": [record_of("a")], "usage": []}), 5000);
    assert_eq!(family.usage(&record_of("a")), None);
    family.take(&mut json!({"refused": "no"}), 6000);
    assert_eq!(family.standing, Standing::Refused("no".to_owned()));
    assert!(family.members.is_empty());
}

fn record_of(id: &str) -> Value {
    json!({"id": id})
}

#[test]
fn every_record_has_a_line_under_its_parent_however_deep() {
    let parents = [("b", "a"), ("c", "b"), ("d", "a"), ("x", "nobody"), ("s", "s")];
    let mut records = vec![record_of("a")];
    records.extend(parents.map(|(id, parent)| json!({"id": id, "parent": parent})));
    records.extend((0..1000).map(|depth| {
        let parent = if depth == 0 { "d".to_owned() } else { (depth - 1).to_string() };
        json!({"id": depth.to_string(), "parent": parent})
    }));
    let mut family = Family::default();
    family.take(&mut json!({"processes": records}), 1);
    let order: Vec<(usize, &str)> = family
        .members
        .iter()
        .map(|(way, record)| (way.len(), record["id"].as_str().expect("an id")))
        .collect();
    let expected = [(0, "a"), (1, "b"), (2, "c"), (1, "d"), (2, "0"), (3, "1")];
    assert_eq!(order.get(..6), Some(&expected[..]));
    assert_eq!(order.len(), 1006);
    assert_eq!(order.last(), Some(&(0, "s")), "s, its own parent, is a root");
    let mut screen = of_processes(FULL);
    let mut status = status(3);
    status["processes"] = json!({"services": [], "processes": records, "more": true});
    screen.watched.take(Timestamp(NOON + 3000), Ok(status));
    let picture = text(&drawn(&mut screen, (80, 30)));
    assert!(picture.contains("more than 1006 processes"), "{picture}");
}
