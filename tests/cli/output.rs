//! The output of processes: it goes to files without passing through the coordinator, other programs may rotate the
//! files, and a process that keeps the output open is named in the record.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::patience::until;
use crate::services::Application;
use crate::tree::Tree;
use flate2::read::MultiGzDecoder;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The maximum number of bytes that the coordinator may read and write while a process writes much output.
const LITTLE_BYTES: u64 = 64 << 20;

fn rotated(log: &Path, nth: u32) -> PathBuf {
    PathBuf::from(format!("{}.{nth}.gz", log.display()))
}

/// Returns the content of the rotated files that still exist and of the current file, in order.
fn whole(log: &Path) -> String {
    let mut all = String::new();
    for nth in (1..100).rev() {
        if let Ok(file) = File::open(rotated(log, nth)) {
            let read = MultiGzDecoder::new(file).read_to_string(&mut all);
            read.expect("it is intact");
        }
    }
    all + &std::fs::read_to_string(log).expect("the file exists")
}

fn run_dir(tree: &Tree, id: &str) -> PathBuf {
    tree.data.join("run").join(id)
}

fn ended(tree: &Tree, id: &str) {
    until("it has ended", || (!tree.record(id)["ended_at"].is_null()).then_some(()));
}

#[test]
fn a_gibibyte_of_output_passes_the_coordinator_by() {
    let tree = Tree::start();
    let pid = tree.daemon.as_ref().expect("a server").pid();
    let moved = || -> u64 {
        let path = format!("/proc/{}/io", pid.as_raw_nonzero());
        let counts = std::fs::read_to_string(path).expect("our child");
        let of =
            |line: &str| line.split_once(": ").and_then(|(_, count)| count.parse::<u64>().ok());
        counts.lines().take(2).filter_map(of).sum()
    };
    let before = moved();
    let id = tree.detach("head -c 1073741824 /dev/zero");
    ended(&tree, &id);
    let record = tree.record(&id);
    assert_eq!(record["stdout"]["bytes"], 1_073_741_824, "{record}");
    let moved = moved() - before;
    assert!(moved < LITTLE_BYTES, "{moved} bytes went through it");
}

#[test]
fn output_that_is_too_long_is_rotated_while_it_is_written_and_afterwards() {
    let tree = Tree::start();
    let gate = tree.data.join("go-on");
    let script = format!(
        "seq 1 50000; until test -e {gate}; do sleep 0.05; done; seq 50001 100000",
        gate = gate.display()
    );
    let words = ["run", "--detach", "--output-max", "64KiB", "--output-keep", "50"];
    let id = tree.well(&[&words, &["--", "sh", "-c", &script][..]].concat());
    let id = id.trim_end();
    let log = run_dir(&tree, id).join("stdout.log");
    until("it is rotated", || rotated(&log, 1).exists().then_some(()));
    std::fs::write(&gate, "").expect("a writable file");
    ended(&tree, id);
    until("it is rotated again", || rotated(&log, 2).exists().then_some(()));
    until("the last rotation is over", || {
        let length = std::fs::metadata(&log).expect("the file exists").len();
        (length <= 64 << 10).then_some(())
    });
    let mut expected = String::new();
    for number in 1..=100_000 {
        writeln!(expected, "{number}").expect("the file is in memory");
    }
    assert!(whole(&log) == expected, "every line is there once, in order");
}

#[test]
fn output_that_is_written_as_fast_as_possible_stays_bounded() {
    let tree = Tree::start();
    let words = ["run", "--detach", "--output-max", "1MiB", "--output-keep", "2"];
    let script = "head -c 2147483648 /dev/zero | tr '\\0' x";
    let id = tree.well(&[&words, &["--", "sh", "-c", script][..]].concat());
    let id = id.trim_end();
    ended(&tree, id);
    let log = run_dir(&tree, id).join("stdout.log");
    // The last rotation takes place when the process has ended.
    until("the last rotation is over", || {
        let length = std::fs::metadata(&log).expect("the file exists").len();
        (length <= 1 << 20).then_some(())
    });
    assert!(!rotated(&log, 3).exists());
}

#[test]
fn whoever_follows_output_gets_every_line_once_while_it_is_rotated() {
    let tree = Tree::start();
    let gate = tree.data.join("go-on");
    // The second part begins when the first line has been shown.
    let script = format!(
        "echo 1; until test -e {}; do sleep 0.05; done; seq 2 50000; sleep 0.3; seq 50001 100000",
        gate.display()
    );
    let words = ["--output-max", "64KiB", "--output-keep", "50"];
    let words = [&["run", "--detach"], &words[..], &["--", "sh", "-c", &script]].concat();
    let id = tree.well(&words);
    let id = id.trim_end();
    let log = run_dir(&tree, id).join("stdout.log");
    until("the first line is written", || {
        std::fs::metadata(&log).is_ok_and(|it| it.len() > 0).then_some(())
    });
    let mut follows = tree.command(&["logs", id, "--follow"]);
    let mut follows = follows.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut shown = BufReader::new(follows.stdout.take().expect("a pipe"));
    let mut all = String::new();
    shown.read_line(&mut all).expect("the first line");
    std::fs::write(&gate, "").expect("a writable file");
    shown.read_to_string(&mut all).expect("the rest");
    assert!(follows.wait().expect("it has ended").success());
    assert!(rotated(&log, 1).exists());
    let mut expected = String::new();
    for number in 1..=100_000 {
        writeln!(expected, "{number}").expect("the file is in memory");
    }
    let lines = (all.lines().count(), expected.lines().count());
    assert!(all == expected, "shown and expected lines: {lines:?}");
}

#[test]
fn an_output_file_with_another_name_is_not_written() {
    let tree = Tree::start();
    let dir = tree.data.join("own");
    std::fs::create_dir(&dir).expect("a new directory");
    let important = tree.data.join("important");
    std::fs::write(&important, "important").expect("a writable file");
    std::fs::hard_link(&important, dir.join("stdout.log")).expect("the same file system");
    let dir_text = dir.to_str().expect("UTF-8");
    let words = ["run", "--detach", "--run-dir", dir_text, "--", "echo"];
    let failed = tree.run(&words);
    assert_eq!(failed.status, 125, "{failed:?}");
    assert!(failed.err.contains("Too many links"), "{failed:?}");
    assert_eq!(std::fs::read_to_string(&important).expect("the file exists"), "important");
}

#[test]
fn output_of_a_service_is_bounded() {
    let application = Application::start(
        "[services.talks]\ncommand = [\"sh\", \"-c\", \"yes | head -c 300000; sleep 0.1\"]\n\
         output = { max = \"64KiB\", keep = 2 }\nintensity = false\nbackoff = { first = \"300ms\", max = \"300ms\" }\n",
    );
    let log = application.data().join("services/talks/stdout.log");
    until("two are kept", || rotated(&log, 2).exists().then_some(()));
    assert!(!rotated(&log, 3).exists());
}

#[test]
fn whoever_keeps_the_output_open_is_named() {
    let tree = Tree::start();
    let id = tree.detach("setsid sleep 1000 & exit 3");
    ended(&tree, &id);
    let record = tree.record(&id);
    assert_eq!(record["code"], 3, "{record}");
    // The name of the program that the process executed when its parent ended.
    let name = record["output_held_by"][0]["name"].as_str().expect("a string");
    let pid = record["output_held_by"][0]["pid"].as_u64().expect("a number");
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    let page = tree.well(&["ps", &id]);
    assert!(page.contains(&format!("its output was still open in {name} ({pid})")), "{page}");
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.expect("a PID");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("a permitted signal");
    // The coordinator, which limits the size of the output, is not named.
    let words = ["run", "--detach", "--output-max", "64KiB"];
    let id = tree.well(&[&words[..], &["--", "sh", "-c", "echo; sleep 0.3"]].concat());
    ended(&tree, id.trim_end());
    let record = tree.record(id.trim_end());
    assert!(record["output_held_by"].is_null(), "{record}");
    // A process that has closed its output is not named.
    let closed = tree.data.join("closed");
    let id = tree.detach(&format!(
        "(exec > /dev/null 2>&1; : > {closed}; sleep 1) & until test -e {closed}; do sleep 0.05; done",
        closed = closed.display()
    ));
    ended(&tree, &id);
    let record = tree.record(&id);
    assert!(record["output_held_by"].is_null(), "{record}");
}
