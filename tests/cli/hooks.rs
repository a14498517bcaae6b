//! The lines that a hook prints about its work become records, even if the coordinator is killed before it reads them.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::daemon::text;
use crate::patience::until;
use crate::tree::Tree;
use serde_json::{Value, json};

const PRINTED: &str = r#"words for people
{"type":"Process","cmd":["wget","-q","https://example.org"],"pwd":"/srv","pid":4711,"exit_code":8,"started_at":"2026-01-31T12:00:00Z"}
{"type":"Snapshot","url":"https://example.org"}
{"type":"Process","cmd":["curl"]}
{"type":"Broken"
{"cmd":["without a type"]}
"#;

fn hook(tree: &Tree, script: &str) -> String {
    let words = ["run", "--detach", "--records", "--type", "hook", "--", "sh", "-c", script];
    tree.well(&words).trim_end().to_owned()
}

fn read(tree: &Tree, id: &str) -> Value {
    until("its output is read", || Some(tree.record(id)).filter(|record| !record["hook"].is_null()))
}

fn children(tree: &Tree, id: &str) -> Vec<Value> {
    let printed = tree.well(&["ps", "--all", "--parent", id, "--json"]);
    let mut said: Value = serde_json::from_str(&printed).expect("valid JSON");
    let Value::Array(mut records) = said["processes"].take() else {
        panic!("no list: {said}");
    };
    // Sort by number, since the ids of records from the same millisecond are in no order.
    records.sort_by_key(|it| it["number"].as_u64());
    records
}

#[test]
fn processes_of_a_hook_are_its_children_and_other_records_are_kept_with_it() {
    let tree = Tree::start();
    let file = tree.data.join("printed");
    std::fs::write(&file, PRINTED).expect("a writable file");
    let id = hook(&tree, &format!("cat {}; exit 3", text(&file)));
    let record = read(&tree, &id);
    assert_eq!((&record["code"], &record["type"]), (&json!(3), &json!("hook")));
    let found = &record["hook"];
    assert_eq!((&found["processes"], &found["records_count"]), (&json!(2), &json!(1)));
    assert_eq!(found["records"], json!([{"type": "Snapshot", "url": "https://example.org"}]));
    let lines: Vec<&Value> =
        found["warnings"].as_array().expect("a list").iter().map(|it| &it["line"]).collect();
    assert_eq!(lines, [&json!(5), &json!(6)]);
    let children = children(&tree, &id);
    assert_eq!(children.len(), 2, "{children:?}");
    let first = &children[0];
    assert_eq!(first["command"], json!(["wget", "-q", "https://example.org"]));
    let shown = [&first["type"], &first["status"], &first["dir"], &first["launched"]];
    assert_eq!(shown, [&json!("binary"), &json!("exited"), &json!("/srv"), &json!(false)]);
    assert_eq!((&first["code"], &first["pid"]), (&json!(8), &json!(4711)));
    assert_eq!(first["started_at"], 1_769_860_800_000_u64);
    // How the other process ended is unknown.
    assert_eq!((&children[1]["code"], &children[1]["lost"]), (&Value::Null, &json!("not-ours")));
    let page = tree.well(&["ps", &id]);
    assert!(page.contains("processes: 2, other records: 1"), "{page}");
    assert!(page.contains("line 5 of its output: it is not JSON"), "{page}");
    // Without the flag, the lines are ordinary output.
    let id = tree.detach(&format!("cat {}", text(&file)));
    until("it has ended", || (tree.record(&id)["status"] == "exited").then_some(()));
    assert!(tree.record(&id)["hook"].is_null());
}

#[test]
fn a_hook_that_prints_too_much_is_cut_short_before_it_is_journaled() {
    let tree = Tree::start();
    // Each line is longer than what is accepted, so none of them becomes a record, and the record does not claim any.
    let long = "head -c 900000 /dev/zero | tr '\\0' x";
    let line = format!(r#"printf '{{"type":"Process","cmd":["'; {long}; printf '"]}}\n'"#);
    let id = hook(&tree, &format!("for i in 1 2 3 4 5 6 7 8; do {line}; done"));
    let found = read(&tree, &id)["hook"].clone();
    assert_eq!((&found["processes"], &found["broken"]), (&json!(0), &json!(8)));
    assert!(children(&tree, &id).is_empty());
    // Each of these lines is accepted, but together they are too long.
    let long = "head -c 50000 /dev/zero | tr '\\0' x";
    let line = format!(r#"printf '{{"type":"Process","cmd":["'; {long}; printf '"]}}\n'"#);
    let id = hook(&tree, &format!("for i in $(seq 60); do {line}; done"));
    let found = read(&tree, &id)["hook"].clone();
    let recorded = children(&tree, &id).len();
    assert_eq!(found["processes"], json!(recorded), "{found}");
    assert_eq!(found["broken"], json!(1), "{found}");
    assert!((1..60).contains(&recorded), "{found}");
    let journal: u64 = std::fs::read_dir(tree.data.join("journal"))
        .expect("the directory exists")
        .flatten()
        .filter_map(|file| std::fs::read(file.path()).ok())
        .map(|bytes| bytes.split(|byte| *byte == b'x').count() as u64 - 1)
        .sum();
    assert!(journal < 4 << 20, "{journal} bytes of the lines are journaled");
}

#[test]
fn the_dates_of_a_process_are_those_that_its_hook_printed() {
    let tree = Tree::start();
    let line = r#"{"type": "Process", "cmd": ["/usr/bin/wget", "-p", "https://example.com"], "pid": 12345, "exit_code": 0, "started_at": "2024-01-15T10:30:00Z", "ended_at": "2024-01-15T10:30:05Z"}"#;
    let id = hook(&tree, &format!("echo '{line}'"));
    read(&tree, &id);
    let children = children(&tree, &id);
    let dates = (&children[0]["started_at"], &children[0]["ended_at"]);
    let begin = 1_705_314_600_000_u64;
    assert_eq!(dates, (&json!(begin), &json!(begin + 5000)));
    // It was recorded just now, so its retention has just begun, and the next start does not remove it.
    let mut tree = tree;
    tree.again(|| {});
    assert_eq!(crate::hooks::children(&tree, &id).len(), 1);
}

#[test]
fn what_a_hook_printed_is_read_once_whoever_was_killed_in_between() {
    let mut tree = Tree::start();
    let go = tree.data.join("go");
    let line = r#"{"type":"Process","cmd":["true"],"exit_code":0}"#;
    let script = format!(
        "until test -e {}; do sleep 0.05; done; for i in 1 2 3; do echo '{line}'; done",
        text(&go)
    );
    let id = hook(&tree, &script);
    // Let the hook end while no coordinator runs.
    let over = tree.data.join("over");
    let watch = tree.detach(&format!("until test -e {}; do sleep 0.05; done", text(&over)));
    tree.again(|| std::fs::write(&go, "").expect("a writable file"));
    let record = read(&tree, &id);
    assert_eq!(record["hook"]["processes"], 3);
    assert_eq!(children(&tree, &id).len(), 3);
    // The next startup does not read the lines again.
    tree.again(|| {});
    assert_eq!(children(&tree, &id).len(), 3);
    std::fs::write(&over, "").expect("a writable file");
    until("it has ended", || (tree.record(&watch)["status"] == "exited").then_some(()));
}
