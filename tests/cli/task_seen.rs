//! How a task is shown: what it holds while it runs, its row in the list of the busiest, and its history.

use crate::patience::until;
use crate::task::{add, assert_no_thread_is_taken, over, show};
use crate::tree::Tree;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

/// Starts a task that launches a process and runs until the file `go` exists. Returns the id of the task and of that
/// process.
fn begin(tree: &Tree) -> (u64, String) {
    let script = r#"
"$0" task save half
"$0" run --detach -- sleep 1000 > "$SEXTON_DATA/child.new" && mv "$SEXTON_DATA/child.new" "$SEXTON_DATA/child"
while [ ! -e "$SEXTON_DATA/go" ]; do sleep 0.02; done
"$0" kill --now --wait $(cat "$SEXTON_DATA/child")
exit 3
"#;
    let id = add(tree, &["--name", "letters"], script);
    let child = until("its command runs", || std::fs::read_to_string(tree.data.join("child")).ok());
    (id, child.trim().to_owned())
}

fn let_go(tree: &Tree, id: u64) -> Value {
    std::fs::write(tree.data.join("go"), "").expect("a writable file");
    over(tree, id)
}

#[test]
fn a_task_that_runs_shows_its_locks_its_thread_and_its_processes() {
    let tree = Tree::start();
    let (id, child) = begin(&tree);
    let task = show(&tree, id);
    let token = &task["attempt"]["token"];
    let process = task["attempt"]["process"].as_str().expect("a string");

    // The list of locks contains the same keys.
    let locks = tree.get("/v1/locks");
    let locks = locks["locks"].as_array().expect("a list");
    let mut keys: Vec<&str> = locks.iter().filter_map(|it| it["key"].as_str()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["wip-pool-lock-execute", "wip-pool-lock-update"]);
    let listed = tree.well(&["lock", "list"]);
    for lock in locks {
        assert_eq!(lock["index"], id.to_string(), "{lock}");
        assert_eq!(lock["owner"], format!("attempt-{token}"), "{lock}");
        let key = lock["key"].as_str().expect("a key");
        let line = listed.lines().find(|line| line.contains(key));
        let line = line.unwrap_or_else(|| panic!("{key} in {listed}"));
        assert!(line.contains(&id.to_string()), "{line}");
    }

    let held = [
        format!("wip-pool-lock-execute {id}, with token "),
        format!("wip-pool-lock-update {id}, with token "),
        "on local, where 1 of 4 threads are taken".to_owned(),
        "└── sleep 1000".to_owned(),
        process.to_owned(),
        child,
    ];
    let id = id.to_string();
    let shown = tree.well(&["task", "show", &id]);
    let told = tree.well(&["task", "transcript", &id, "--dispatch"]);
    for words in &held {
        assert!(shown.contains(words), "{words} in {shown}");
        assert!(told.contains(words), "{words} in {told}");
    }
    let without = tree.well(&["task", "transcript", &id]);
    assert!(!without.contains("wip-pool-lock"), "{without}");

    let_go(&tree, id.parse().expect("a number"));
    for words in [&["task", "show", &id][..], &["task", "transcript", &id, "--dispatch"]] {
        let over = tree.well(words);
        assert!(!over.contains("wip-pool-lock"), "{over}");
    }
    assert_no_thread_is_taken(&tree);
}

#[test]
fn a_task_that_runs_is_among_what_is_busiest() {
    let tree = Tree::start();
    let (id, _) = begin(&tree);
    let waits = add(&tree, &["--paused"], "exit 0");
    let busiest = tree.get("/v1/busiest");
    let tasks = busiest["tasks"].as_array().expect("a list");
    assert_eq!(tasks[0]["id"], id, "{busiest}");
    assert_eq!(tasks[0]["status"], "processing", "{busiest}");
    assert_eq!(tasks[0]["attempt"]["server"], "local", "{busiest}");
    let is_it = |it: &&Value| it["id"] == waits;
    assert_eq!(tasks.iter().filter(is_it).count(), 0, "it could not begin");
    let frame = tree.well(&["top", "--once"]);
    let line = frame.lines().find(|line| line.contains("letters"));
    let line = line.unwrap_or_else(|| panic!("the task in {frame}"));
    assert!(line.contains(&format!("{id} letters")), "{line}");
    assert!(line.contains("processing on loc"), "{line}");
    let_go(&tree, id);
    let frame = tree.well(&["top", "--once"]);
    assert!(!frame.contains("letters"), "{frame}");
}

/// Reads this number of events of a command. Returns each as its kind and its task.
fn read(lines: &mut impl Iterator<Item = std::io::Result<String>>, count: usize) -> Vec<Value> {
    let lines = lines.take(count);
    let told = lines.map(|line| serde_json::from_str(&line.expect("UTF-8")));
    told.map(|it| it.expect("valid JSON")).collect()
}

fn kinds(told: &[Value]) -> Vec<&str> {
    let kinds = told.iter().map(|it| it["kind"].as_str());
    kinds.map(|it| it.expect("a kind")).collect()
}

#[test]
fn what_becomes_of_a_task_is_told_as_it_happens_and_from_the_journal() {
    let mut tree = Tree::start();
    // Of two tasks that run at once, only one is watched.
    let watch = |words: &[&str]| {
        let words = [&["events", "--json"], words].concat();
        let mut child =
            tree.command(&words).stdout(Stdio::piped()).spawn().expect("the command starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        (child, out.lines())
    };
    let (mut all, mut lines) = watch(&["--actor", "dispatch", "--after", "999999999999"]);
    // The first event reports that the position does not exist yet, and shows that the command has subscribed.
    read(&mut lines, 1);
    let other = add(&tree, &["--paused"], "exit 0");
    let (id, _) = begin(&tree);
    tree.well(&["task", "resume", &other.to_string()]);
    over(&tree, other);
    let_go(&tree, id);

    let story = ["added", "claimed", "locked", "launched", "saved", "failed"];
    let first = read(&mut lines, 1);
    let position = first[0]["position"].as_str().expect("a position").to_owned();
    let id = id.to_string();
    let (mut its, mut lines) = watch(&["--task", &id, "--after", &position]);
    let told = read(&mut lines, story.len());
    assert_eq!(kinds(&told), story, "{told:?}");
    for event in &told {
        assert_eq!(event["actor"], "dispatch", "{event}");
        assert_eq!(event["task"].to_string(), id, "{event}");
    }
    let (claimed, failed) = (&told[1], &told[5]);
    assert_eq!(claimed["server"], "local", "{claimed}");
    assert_eq!(failed["attempt"], claimed["attempt"], "{failed}");
    assert_eq!((&failed["exit"], &failed["code"]), (&"user-error".into(), &3.into()), "{failed}");
    for child in [&mut all, &mut its] {
        child.kill().expect("a live process");
        child.wait().expect("our child");
    }

    tree.daemon.take().expect("a server").kill();
    let data = tree.data.to_str().expect("UTF-8").to_owned();
    let replayed = tree.well(&["replay", &data, "--task", &id]);
    let words = replayed.lines().map(|line| line.split_whitespace().nth(3));
    let words: Vec<&str> = words.map(|it| it.expect("a kind")).collect();
    assert_eq!(words, story, "{replayed}");
    let none = tree.run(&["replay", &data, "--task", "4711000"]);
    assert!(none.err.contains("nothing about task 4711000"), "{none:?}");
    let inspected = tree.well(&["inspect", &data, "--task", &id]);
    assert!(inspected.contains("user-error"), "{inspected}");
    tree.serve();
}
