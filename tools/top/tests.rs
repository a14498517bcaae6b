//! Recorded screens of a coordinator in various states, drawn at several sizes. `UPDATE=1 cargo test --bin sexton top` records them
//! again; review the change before committing it.

use crate::lease::samples::{lease, pass as running};
use crate::top::command::text;
use crate::top::processes_tests;
use crate::top::sample::{Contact, NoAnswer, Rate, Watched};
use crate::top::screen::{Abilities, Key, Pane, Screen, ScreenRequest};
use crate::top::view;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;
use serde_json::{Value, json};
use sexton::clock::Timestamp;
use std::path::Path;
use std::time::Duration;

/// Noon of some day, in milliseconds since 1970.
pub(super) const NOON: u64 = 1_795_262_400_000;

pub(super) const FULL: Abilities = Abilities { unicode: true, colours: true };

/// Returns the status after `second` seconds. The load rises for a minute, pauses for half a minute, and starts over.
pub(super) fn status(second: u64) -> Value {
    let busy = |until: u64| (0..until).map(|at| if at % 90 < 60 { 100 + at % 60 * 200 } else { 0 });
    let requests: u64 = busy(second).sum();
    let done = 2 * requests;
    let held = if second % 90 < 60 { second % 60 * 1000 } else { 1234 };
    json!({
        "version": "0.1.0", "pid": 4242, "data": "/var/lib/sexton", "fsync": "always",
        "listeners": {"lockserver": "127.0.0.1:11340", "beanstalk": "127.0.0.1:11300", "http": "127.0.0.1:11380", "socket": "/var/lib/sexton/sexton.sock"},
        "uptime_ms": 7_980_000 + second * 1000, "now": NOON + second * 1000, "wall_offset_ms": 0,
        "recovered": {"records": 1_204_001, "clean": true, "ms": 912, "cut": null, "snapshot": ["a", 1_000_000], "mended": []},
        "draining": false, "lock_owners": held, "lock_contenders": held / 40, "open_commands": held / 500,
        "queues": {"jobs": {"urgent": held / 50, "ready": held / 5, "delayed": 1200, "claimed": held / 80, "buried": 3, "abandoned": 1},
            "bytes": held * 300, "added": 500_000 + requests / 2, "timeouts": second * 2, "queues": 12, "waiting": 40, "draining": false},
        "journal": {"released": 2_000_000 + done, "bytes": 90_000_000 + done * 96, "writes": done / 40,
            "syncs": done / 50, "sync_us": 812, "room": "ample"},
        "snapshots": {"taken": 3, "failed": 0, "running": false, "last": {"slot": "a", "upto": 2_000_000, "pages": 900,
            "bytes": 40_000_000, "file_bytes": 50_545_050, "at": NOON - 41_000, "ms": 812, "segments_dropped": 2},
            "last_failure": null, "slots": [2_000_000, 1_800_000]},
        "actors": [{"name": "lock", "last": 2_000_000 + done, "digest": "d3c1", "quarantined": [], "restarts": 0,
            "rebuilds": 0, "causes": []}, {"name": "queue", "last": 900_000 + requests / 2, "digest": "77ab", "quarantined": [],
            "restarts": 0, "rebuilds": 0, "causes": []}],
        "lockserver": {"uptime": 7980 + second, "requests": requests, "owner_lookups": requests / 100,
            "contender_lookups": requests / 1000, "renewals": requests / 7, "releases": requests, "release_alls": second / 4,
            "dumps": 3, "statistics": second, "accepted": 1200, "rejected_hosts": 0, "rejected_busy": 0,
            "owners": held, "contenders": held / 40, "active": 812},
        "beanstalk": {"accepted": 900, "rejected_hosts": 0, "rejected_busy": 0, "active": 96,
            "commands": {"delete": requests / 10, "put": requests / 8, "reserve": requests / 8, "stats": second, "touch": 0}},
        "busiest": {"queues": queues(held, requests), "next": null, "locks_all": held.min(2), "locks": locks(held),
            "leases": if held > 0 { leases(second) } else { json!([]) }, "leases_more": false,
            "tasks": if held > 0 { tasks(second) } else { json!([]) }, "tasks_more": true},
        "http": {"accepted": 7990 + second, "rejected_busy": 0, "answered": 7990 + second, "refused": 0, "failed": 0, "active": 2},
        "host": {"load": [3.5, 1.25, 0.8], "processors": 8, "memory_bytes": 33_500_000_000_u64, "memory_available_bytes": 21_000_000_000_u64, "uptime_ms": 3_000_000_000_u64},
        "process": {"memory_bytes": 91_000_000, "memory_peak_bytes": 140_000_000, "descriptors": 950, "descriptors_max": 20_480},
        "halted": null
    })
}

/// Two leases: one with a running and an upcoming pass, and one that is due later.
fn leases(second: u64) -> Value {
    let now = NOON + second * 1000;
    let pass =
        json!({"command": ["./sync", "--all"], "since_at": now - 95_000, "until_at": now - 35_000});
    let next = json!({"place": 2, "command": ["./sync", "\u{1b}[2J"], "process": null, "pid": 4242, "until_at": 0, "live": true});
    json!([
        lease(
            &json!({"name": "sync", "now": now, "owed": true, "current": running(&pass), "next": next})
        ),
        lease(&json!({"name": "nightly", "now": now, "due_at": now + 40_000_000})),
    ])
}

/// Three tasks: a running one, one that waits until a later time, and one that may not start and has control characters in its name.
fn tasks(second: u64) -> Value {
    let now = NOON + second * 1000;
    json!([
        {"id": 4711, "name": "", "command": ["./import", "--all"], "group": "imports", "status": "processing", "now": now,
            "attempt": {"server": "web-1", "claimed_at": now - 12_000}},
        {"id": 4712, "name": "export", "group": "exports", "status": "waiting", "now": now, "wake_at": now + 60_000},
        {"id": 4713, "name": "mail\u{1b}[2J", "group": "mails", "status": "not-started", "now": now,
            "why": "group mails is full: 3 of 3"},
    ])
}

/// A queue under load, a paused one, and one whose long name contains control characters.
fn queues(held: u64, requests: u64) -> Value {
    let queue = |name: &str, jobs: [u64; 6], done: [u64; 2]| {
        let [ready, claimed, delayed, retrying, buried, abandoned] = jobs;
        json!({"queue": name, "ready": ready, "claimed": claimed, "delayed": delayed, "retrying": retrying, "buried": buried,
            "abandoned": abandoned, "total": done[0], "deletes": done[1], "paused_ms": null, "oldest_ms": (ready > 0).then_some(held * 7)})
    };
    let mut paused = queue("reports:weekly", [40, 0, 1200, 2, 3, 1], [2000, 754]);
    paused["paused_ms"] = json!(60_000);
    let long = "t/".to_owned() + &"\u{1b}[2J-thumbnails".repeat(12);
    json!([
        queue("mails", [held / 5, held / 80, 0, 17, 0, 0], [requests / 2, requests / 3]),
        paused,
        queue(&long, [0; 6], [9, 9]),
    ])
}

fn locks(held: u64) -> Value {
    if held == 0 {
        return json!([]);
    }
    json!([
        {"key": "acct", "index": "42", "owner": "billing-worker-7.example.org", "waiting": held / 50, "remaining_ms": 12_345},
        {"key_b64": "/wA=", "index": "", "owner": "alice", "waiting": 1, "remaining_ms": 3_600_000},
    ])
}

fn panics(mut status: Value) -> Value {
    let report = |seq: u64, stage: &str, item: Value, cause: &str| json!({"actor": "lock", "stage": stage, "seq": seq, "at": NOON - seq, "cause": cause, "item": item});
    let long = "assertion failed: a notification to a holder that has no waiters\u{1b}[2J, in a message that takes several lines: "
        .repeat(3);
    status["actors"][0]["restarts"] = json!(12);
    status["actors"][0]["rebuilds"] = json!(1);
    status["actors"][0]["causes"] = json!([
        report(
            700_000,
            "commit",
            Value::Null,
            "index out of bounds: the len is 3 but the index is 7"
        ),
        report(9_000, "decide", Value::Null, &long),
        report(812, "tick", json!(77), "a deadline in the past"),
    ]);
    status["actors"][0]["quarantined"] =
        json!([report(812, "tick", json!(77), "a deadline in the past")]);
    status["troubles"] = json!([
        {"kind": "actor-quarantined", "level": "bad", "title": "Quarantined", "words": "Timers of 1 item of the lock actor caused panics, and no longer run."},
    ]);
    status
}

pub(super) fn screen(
    abilities: Abilities,
    answers: impl IntoIterator<Item = (u64, Result<Value, NoAnswer>)>,
) -> Screen {
    let mut screen = Screen::new("/var/lib/sexton".to_owned(), Duration::from_secs(1), abilities);
    for (second, answer) in answers {
        screen.watched.take(Timestamp(NOON + second * 1000), answer);
    }
    screen
}

fn busy(abilities: Abilities) -> Screen {
    screen(abilities, (0..=146).map(|second| (second, Ok(status(second)))))
}

fn ended() -> NoAnswer {
    NoAnswer {
        is_there: false,
        why: "no coordinator runs on /var/lib/sexton: nothing listens on /var/lib/sexton/sexton.sock, which a killed coordinator left behind".to_owned(),
    }
}

/// A coordinator with several problems.
fn troubled() -> Value {
    let mut troubled = panics(status(147));
    troubled["draining"] = json!(true);
    troubled["journal"]["room"] = json!("low");
    troubled["snapshots"]["running"] = json!(true);
    troubled["snapshots"]["failed"] = json!(2);
    troubled["snapshots"]["last_failure"] = json!("write snapshots/b/db: No space left on device");
    troubled["troubles"] = json!([
        {"kind": "disk-filling", "level": "bad", "title": "Disk is filling up", "words": "Disk space for the journal is low: requests that add something are refused until space is freed."},
        {"kind": "snapshots-failing", "level": "bad", "title": "No snapshots", "words": "The last checkpoint failed: write snapshots/b/db: No space left on device. The journal grows until one succeeds."},
        {"kind": "draining", "level": "warn", "title": "Draining", "words": "New locks, jobs are refused until the coordinator restarts. It stops once nothing is held."},
    ]);
    troubled["lockserver"]["rejected_busy"] = json!(1500);
    troubled["beanstalk"]["rejected_hosts"] = json!(7);
    troubled
}

/// A coordinator that keeps no files, has only the HTTP listener, and does not answer `/v1/busiest`.
fn memory(second: u64) -> (u64, Result<Value, NoAnswer>) {
    let mut memory = status(second);
    for part in ["data", "journal", "snapshots", "lockserver", "beanstalk", "busiest"] {
        memory[part] = Value::Null;
    }
    for listener in ["lockserver", "beanstalk"] {
        memory["listeners"][listener] = Value::Null;
    }
    memory["fsync"] = json!("memory");
    (second, Ok(memory))
}

/// Returns every recorded state with its name.
fn states() -> Vec<(&'static str, Screen)> {
    let plain = Abilities { unicode: false, colours: false };
    let after = |second: u64, status: Value| {
        let mut screen = busy(FULL);
        screen.watched.take(Timestamp(NOON + second * 1000), Ok(status));
        screen
    };
    let mut again = status(0);
    again["pid"] = json!(5151);
    again["uptime_ms"] = json!(1200);
    again["recovered"]["clean"] = json!(false);
    again["recovered"]["cut"] = json!("journal/00000007.seg at offset 1234: 96 bytes");
    again["troubles"] = json!([
        {"kind": "journal-was-cut", "level": "warn", "title": "Journal was cut", "words": "Incomplete data at the end of the journal was cut off at startup: journal/00000007.seg at offset 1234: 96 bytes"},
    ]);
    let silent = |is_there| NoAnswer {
        is_there,
        why: "the coordinator does not answer: the actors are busy, try again later".to_owned(),
    };
    let mut lost = busy(FULL);
    for second in 147..160 {
        lost.watched.take(Timestamp(NOON + second * 1000), Err(ended()));
    }
    let mut returned = lost.clone();
    returned.watched.take(Timestamp(NOON + 160_000), Ok(again));
    let mut internals = after(147, panics(status(147)));
    assert_eq!(internals.key(Key::NextPane), ScreenRequest::Draw);
    assert_eq!(internals.key(Key::NextPane), ScreenRequest::Draw);
    let mut idle = status(0);
    idle["busiest"]["queues"] = json!([]);
    let mut paused = busy(FULL);
    assert_eq!(paused.key(Key::Pause), ScreenRequest::Draw);
    paused.watched.take(Timestamp(NOON + 147_000), Err(ended()));
    let mut overdue = busy(FULL);
    overdue.overdue = Some(Duration::from_secs(7));
    vec![
        ("busy", busy(FULL)),
        ("busy-ascii", busy(plain)),
        ("first", screen(FULL, [(0, Ok(status(0)))])),
        ("asking", screen(FULL, [])),
        ("never", screen(FULL, [(0, Err(ended())), (1, Err(ended()))])),
        ("lost", lost),
        ("returned", returned),
        ("not-serving", screen(FULL, [(0, Ok(status(0))), (1, Err(silent(true)))])),
        ("troubled", after(147, troubled())),
        ("memory", screen(FULL, (0..=146).map(memory))),
        ("idle", screen(FULL, [(0, Ok(idle))])),
        ("internals", internals),
        ("paused", paused),
        ("overdue", overdue),
    ]
}

pub(super) fn drawn(screen: &mut Screen, (width, height): (u16, u16)) -> Buffer {
    let mut terminal =
        Terminal::new(TestBackend::new(width, height)).expect("drawing to memory cannot fail");
    let drawn = terminal.draw(|frame| view::draw(frame, screen));
    drawn.expect("drawing to memory cannot fail").buffer.clone()
}

#[test]
fn every_state_is_drawn_as_recorded() {
    let update = std::env::var_os("UPDATE").is_some_and(|value| value == "1");
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tools/top/screens");
    let mut pictures: Vec<(String, String)> = Vec::new();
    for (name, mut screen) in states().into_iter().chain(processes_tests::states()) {
        pictures.push((format!("{name}-80x24"), text(&drawn(&mut screen, (80, 24)))));
        if ["busy", "troubled", "processes"].contains(&name) {
            for size in [(160, 40), (60, 16), (40, 12), (20, 5)] {
                let picture = text(&drawn(&mut screen, size));
                pictures.push((format!("{name}-{}x{}", size.0, size.1), picture));
            }
        }
    }
    let mut differences = String::new();
    for (name, picture) in &pictures {
        let path = folder.join(format!("{name}.txt"));
        let picture = format!("{}\n", picture.trim_end());
        if update {
            std::fs::write(&path, picture).expect("a picture can be written");
        } else if std::fs::read_to_string(&path).ok().as_ref() != Some(&picture) {
            differences.extend([name, " is now\n", &picture, "\n"]);
        }
    }
    assert!(
        differences.is_empty(),
        "screens have changed (UPDATE=1 records them again)\n\n{differences}"
    );
    let recorded = std::fs::read_dir(folder).expect("the pictures exist");
    assert_eq!(
        recorded.count(),
        pictures.len(),
        "each recorded picture must be one of those drawn"
    );
}

#[test]
fn every_size_is_drawn_and_says_how_it_stands() {
    for (name, mut screen) in states().into_iter().chain(processes_tests::states()) {
        for width in (1..=90).step_by(3) {
            for height in 1..=30 {
                for _ in 0..3 {
                    let picture = text(&drawn(&mut screen, (width, height)));
                    let is_readable = width >= 20 && height >= 2;
                    let words = [
                        "serving",
                        "connecting",
                        "NO ANSWER",
                        "NOT REACHABLE",
                        "NOT SERVING",
                        "DRAINING",
                    ];
                    let told = words.iter().any(|word| picture.starts_with(word));
                    assert!(told || !is_readable, "{name} {width}x{height}:\n{picture}");
                    assert_eq!(screen.key(Key::NextPane), ScreenRequest::Draw);
                }
            }
        }
    }
}

#[test]
fn a_screen_without_colours_or_beyond_ascii_has_none() {
    let plain = Abilities { unicode: false, colours: false };
    let is_coloured = |buffer: &Buffer| buffer.content.iter().any(|cell| cell.fg != Color::Reset);
    for (name, mut screen) in states().into_iter().chain(processes_tests::states()) {
        screen.abilities = FULL;
        assert!(is_coloured(&drawn(&mut screen, (80, 24))), "{name}");
        screen.abilities = plain;
        screen.data = "/höhle".to_owned();
        let buffer = drawn(&mut screen, (80, 24));
        assert!(!is_coloured(&buffer), "{name}");
        assert!(text(&buffer).is_ascii(), "{name}");
    }
}

#[test]
fn rates_are_over_the_coordinators_own_time() {
    let mut watched = Watched::new();
    let mut late = status(1);
    late["uptime_ms"] = json!(7_982_000);
    late["queues"]["timeouts"] = json!(3);
    // The LockServer protocol's counts wrap at 2^32.
    let mut first = status(0);
    first["lockserver"]["dumps"] = json!(u32::MAX - 1);
    watched.take(Timestamp(NOON), Ok(first));
    assert_eq!(watched.rates(), None);
    watched.take(Timestamp(NOON + 100), Ok(late));
    let rates = watched.rates().expect("two answers give a rate");
    assert_eq!(rates.over_ms, 2000);
    assert_eq!(rates.commands[0], Some(Rate(50_000)), "requests");
    assert_eq!(rates.commands[6], Some(Rate(2_500)), "listings");
    assert_eq!(rates.bytes, Some(Rate(200 * 96 * 1000 / 2)));
    let line = watched.line();
    assert_eq!(line["per_second"]["commands_by_kind"]["requests"], json!(50.0));
    assert_eq!(line["per_second"]["jobs_added"], json!(25.0));
    assert_eq!(line["per_second"]["job_timeouts"], json!(1.5));
    assert_eq!(line["status"]["pid"], json!(4242));
    assert_eq!(line["at"], json!("2026-11-21T12:00:00.100Z"));
}

/// A coordinator of another version may not report all that this program shows.
#[test]
fn what_a_coordinator_does_not_report_is_not_zero() {
    let absent = [
        "/journal/bytes",
        "/queues/added",
        "/queues/timeouts",
        "/lockserver/renewals",
        "/beanstalk/commands/put",
        "/http/failed",
        "/busiest/locks_all",
    ];
    let answer = |second: u64| {
        let mut status = status(second);
        for path in absent.iter().filter(|path| second == 1 || **path != "/queues/added") {
            *status.pointer_mut(path).expect("a number") = Value::Null;
        }
        (second, Ok(status))
    };
    let mut screen = screen(FULL, [0, 1].map(answer));
    let line = screen.watched.line();
    let rates = &line["per_second"];
    let unknown = [
        "beanstalk_commands",
        "commands",
        "http_requests",
        "job_timeouts",
        "jobs_added",
        "journal_bytes",
    ];
    for name in unknown {
        assert_eq!(rates[name], Value::Null, "{name}");
    }
    assert_eq!(rates["commands_by_kind"]["renewals"], Value::Null);
    assert_eq!(rates["commands_by_kind"]["requests"], json!(100.0));
    assert_eq!(rates["journal_syncs"], json!(4.0));
    screen.pane = Pane::Whole;
    let shown = text(&drawn(&mut screen, (120, 200)));
    for words in ["ran out/s -", "renew -", "put -", "- locks waited for"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

#[test]
fn a_gap_is_no_rate_and_is_not_filled() {
    let mut watched = Watched::new();
    for second in 0..3 {
        watched.take(Timestamp(NOON + second * 1000), Ok(status(second)));
    }
    assert!(watched.rates().is_some());
    watched.take(Timestamp(NOON + 3000), Err(ended()));
    watched.take(Timestamp(NOON + 4000), Err(ended()));
    let since = Timestamp(NOON + 3000);
    assert_eq!(watched.contact, Contact::Lost { since, no_answer: ended() });
    let line = watched.line();
    assert_eq!(line["status"], Value::Null, "an old status must not be shown as current");
    assert_eq!(line["lost"]["since"], json!("2026-11-21T12:00:03.000Z"));
    // The same process answers again, which gives no rate for the time without answers.
    watched.take(Timestamp(NOON + 5000), Ok(status(5)));
    assert_eq!((watched.rates(), &watched.succession), (None, &None));
    watched.take(Timestamp(NOON + 6000), Ok(status(6)));
    assert!(watched.rates().is_some());
    // A lower uptime means another process, even with the same PID.
    let mut again = status(6);
    again["uptime_ms"] = json!(500);
    watched.take(Timestamp(NOON + 7000), Ok(again));
    assert!(watched.rates().is_none());
    assert!(watched.succession.is_some());
}

#[test]
fn what_is_kept_is_bounded_and_a_pause_holds_the_picture_only() {
    let mut screen = busy(FULL);
    let before = text(&drawn(&mut screen, (80, 22)));
    assert_eq!(screen.key(Key::Pause), ScreenRequest::Draw);
    for second in 147..1000 {
        screen.watched.take(Timestamp(NOON + second * 1000), Ok(status(second)));
    }
    let without_keys = |text: &str| text.rsplit_once('\n').expect("there are lines").0.to_owned();
    let paused = text(&drawn(&mut screen, (80, 22)));
    assert_eq!(without_keys(&paused), without_keys(&before));
    assert_eq!(screen.key(Key::Pause), ScreenRequest::Draw);
    assert_ne!(without_keys(&text(&drawn(&mut screen, (80, 22)))), without_keys(&before));
    assert_eq!(screen.watched.points.len(), 600);
}

#[test]
fn keys_change_the_pace_within_bounds_and_scroll_within_the_pane() {
    let mut screen = screen(FULL, [(0, Ok(panics(status(0))))]);
    assert_eq!(screen.key(Key::Slower), ScreenRequest::Draw);
    assert_eq!(screen.question().every, Duration::from_secs(2));
    for _ in 0..20 {
        screen.key(Key::Slower);
    }
    assert_eq!(
        (screen.every, screen.key(Key::Slower)),
        (Duration::from_mins(1), ScreenRequest::Draw)
    );
    for _ in 0..20 {
        screen.key(Key::Faster);
    }
    assert_eq!(screen.every, Duration::from_millis(100));
    screen.every = Duration::from_hours(1);
    assert_eq!(screen.key(Key::Slower), ScreenRequest::Draw);
    assert_eq!(screen.every, Duration::from_hours(1));
    assert_eq!(screen.key(Key::Faster), ScreenRequest::Draw);
    assert_eq!(screen.every, Duration::from_mins(1));

    screen.key(Key::NextPane);
    assert_eq!(screen.pane, Pane::Processes);
    screen.key(Key::NextPane);
    assert_eq!(screen.pane, Pane::Internals);
    let top = text(&drawn(&mut screen, (80, 12)));
    for _ in 0..20 {
        screen.key(Key::PageDown);
    }
    let bottom = text(&drawn(&mut screen, (80, 12)));
    assert!(bottom.contains("index is 7") && !top.contains("index is 7"), "{bottom}");
    screen.key(Key::Up);
    assert_ne!(text(&drawn(&mut screen, (80, 12))), bottom, "the key scrolls by one line");
    assert_eq!(
        (screen.key(Key::Quit), screen.key(Key::Suspend)),
        (ScreenRequest::Quit, ScreenRequest::Suspend)
    );
}

/// Returns an answer of `/v1/busiest` with these queues: name, ready jobs, added jobs, ended jobs.
fn share(after: Option<&str>, next: Option<&str>, queues: &[(&str, u64, u64, u64)]) -> Value {
    let queue = |(name, ready, total, deletes): &(&str, u64, u64, u64)| json!({"queue": name, "ready": ready, "total": total, "deletes": deletes});
    let queues: Vec<Value> = queues.iter().map(queue).collect();
    json!({"after": after, "next": next, "queues": queues, "locks": [], "locks_all": 0})
}

#[test]
fn queues_of_many_shares_are_put_together_each_with_rates_of_its_own() {
    let mut watched = Watched::new();
    let mut take = |second: u64, busiest: Value| {
        let mut status = status(second);
        status["busiest"] = busiest;
        watched.take(Timestamp(NOON + second * 1000), Ok(status));
        let queues = watched.line()["queues"].clone();
        let row = |queue: &Value| {
            let name = queue["queue"].as_str().expect("each queue has a name").to_owned();
            let rate = |of: &str| queue[of].as_f64();
            (name, rate("in_per_second"), rate("out_per_second"))
        };
        let queues = queues.as_array().expect("a list");
        queues.iter().map(row).collect::<Vec<_>>()
    };
    let name = |name: &str, added: Option<f64>, gone| (name.to_owned(), added, gone);
    let rows = take(0, share(None, Some("8192"), &[("a", 5, 10, 4)]));
    assert_eq!(rows, [name("a", None, None)]);
    let rows = take(1, share(Some("8192"), None, &[("b", 9, 9, 0), ("c", 1, 1, 0)]));
    let unknown = |of: &str| name(of, None, None);
    assert_eq!(rows, ["b", "a", "c"].map(unknown), "the queues of all shares, busiest first");
    // Two seconds later, by the coordinator's own uptime.
    let rows = take(2, share(None, Some("8192"), &[("a", 7, 16, 8), ("new", 1, 1, 0)]));
    assert_eq!(rows[1], name("a", Some(3.0), Some(2.0)));
    assert!(rows.contains(&unknown("new")), "{rows:?}");
    // The queue `a` was created again, so its rates are unknown, and the second share no longer exists.
    let rows = take(4, share(None, None, &[("a", 1, 1, 0)]));
    assert_eq!(rows, [unknown("a")]);
    let rows = take(5, Value::Null);
    assert!(rows.is_empty(), "old queues must not be shown as current");
}
