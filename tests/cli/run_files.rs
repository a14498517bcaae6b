//! The run directory of a launched process: a script that runs its command again, and its PID file.

use crate::coordinator::done;
use crate::daemon::text;
use crate::patience::until;
use crate::tree::Tree;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

fn run_dir(record: &Value) -> PathBuf {
    record["run_dir"].as_str().expect("it was launched").into()
}

#[test]
fn its_script_runs_it_again_word_for_word() {
    let tree = Tree::start();
    let hard = [
        "two  blanks",
        "a 'single' and a \"double\" quote",
        "$HOME `id` $(id) \\",
        "a\nnew line\n",
        "",
        "*",
        "~",
        "#",
        "ü",
    ];
    let mut words = vec!["run", "--detach", "--", "printf", "[%s]\n"];
    words.extend(hard);
    let id = tree.well(&words);
    let id = id.trim_end();
    assert_eq!(tree.run(&["wait", id]).status, 0);
    let dir = run_dir(&tree.record(id));
    let first = std::fs::read_to_string(dir.join("stdout.log")).expect("it has written");
    let expected = format!("[{}]\n", hard.join("]\n["));
    assert_eq!(first, expected);
    let again = done(Command::new(dir.join("cmd.sh")).output().expect("it is executable"));
    assert_eq!((again.status, again.out), (0, expected));
}

/// Writes a file, and returns when that was by the clock of files, which may be behind others.
fn modified_now(path: &Path) -> SystemTime {
    std::fs::write(path, "x").expect("it can be written");
    std::fs::metadata(path).and_then(|it| it.modified()).expect("it exists")
}

#[test]
fn its_pid_file_is_there_as_long_as_it_is_and_as_old() {
    let tree = Tree::start();
    let before = modified_now(&tree.data.join("before"));
    let id = tree.well(&["run", "--detach", "--", "sleep", "1000"]);
    let id = id.trim_end();
    let record = tree.record(id);
    let path = run_dir(&record).join("process.pid");
    let written = until("it is written", || std::fs::read_to_string(&path).ok());
    let after = modified_now(&tree.data.join("after"));
    let pid = record["pid"].as_u64().expect("it has started").to_string();
    assert_eq!(written.trim(), pid);
    let modified = std::fs::metadata(&path).and_then(|it| it.modified()).expect("it exists");
    assert!((before..=after).contains(&modified), "{before:?} {modified:?} {after:?}");
    let below = tree.data.join("run");
    let shown = || tree.run(&["ps", "--pid-files", text(&below)]).out;
    let page = shown();
    let line = page.lines().find(|line| line.contains(&pid));
    assert!(line.is_some_and(|line| line.contains("running")), "{page}");
    assert_eq!(tree.run(&["kill", "--now", "--wait", id]).status, 0);
    until("it is removed", || (!path.exists()).then_some(()));
    let page = shown();
    assert!(!page.contains(&pid), "{page}");
}

#[test]
fn a_missing_directory_is_made_if_that_is_asked_for() {
    let tree = Tree::start();
    let new = tree.data.join("work/of/today");
    let words = ["run", "--dir", text(&new), "--", "pwd"];
    assert_eq!(tree.run(&words).status, 125);
    assert!(!new.exists());
    let words = ["run", "--mkdir", "--dir", text(&new), "--", "pwd"];
    let printed = tree.well(&words);
    let real = new.canonicalize().expect("it is made");
    assert_eq!(printed, format!("{}\n", text(&real)));
}
