//! The two workers of `examples/resize/` do the same jobs: one uses greenstalk, and the other is a plain script that
//! `sexton work` runs.

use crate::client_programs::greenstalk;
use crate::daemon::{Daemon, text};
use crate::left_out::left_out;
use crate::shown::fenced;
use crate::tree::Tree;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const GUIDE: &str = include_str!("../../docs/coming-from-beanstalkd-celery-rq-and-sidekiq.md");
const WORKER: &str = include_str!("../../examples/resize/worker.py");
const RESIZE: &str = include_str!("../../examples/resize/resize");

/// Starts a coordinator with jobs, in a directory with pictures. The jobs shrink the pictures, and the last is for a file
/// that is not a picture.
fn jobs() -> (Tree, tempfile::TempDir) {
    let (mut tree, _) = Tree::to_come();
    let flags = ["--data", text(&tree.data), "--beanstalk", "127.0.0.1:0"];
    tree.daemon = Some(Daemon::serve(&flags));
    let files = tempfile::tempdir().expect("a temporary directory");
    let pixels: Vec<u8> = (0..4 * 4 * 3).collect();
    let picture = [b"P6\n4 4\n255\n".as_slice(), &pixels].concat();
    std::fs::write(files.path().join("cat.ppm"), picture).expect("a writable file");
    std::fs::write(files.path().join("notes.ppm"), "eggs").expect("a writable file");
    for order in ["cat.ppm 2", "cat.ppm 1", "notes.ppm 2"] {
        tree.well(&["queue", "push", "resize", order]);
    }
    (tree, files)
}

fn example(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("examples/resize").join(name)
}

/// Checks the output, the small pictures, and that one job is left.
fn assert_shrunk(tree: &Tree, files: &Path, output: &Output) {
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed} {errors}");
    assert_eq!(printed, "cat.2.ppm\ncat.1.ppm\n", "{errors}");
    assert!(errors.contains("notes.ppm: not a portable pixmap"), "{errors}");
    let small = |name: &str| std::fs::read(files.join(name)).expect("it was made");
    // The pixels in the corners of the four quarters of a picture of four by four bytes.
    let two = [[0, 1, 2, 6, 7, 8], [24, 25, 26, 30, 31, 32]].concat();
    assert_eq!(small("cat.2.ppm"), [b"P6\n2 2\n255\n", &two[..]].concat());
    assert_eq!(small("cat.1.ppm"), b"P6\n1 1\n255\n\x00\x01\x02");
    let said = tree.get("/v1/queues/jobs?queue=resize");
    let jobs = said.pointer("/jobs").and_then(Value::as_array);
    assert_eq!(jobs.map(Vec::len), Some(1), "{said}");
}

#[test]
fn the_worker_with_greenstalk_does_its_jobs() {
    let Some(python) = greenstalk("examples/resize/worker.py") else {
        return;
    };
    let (tree, files) = jobs();
    let address = tree.daemon.as_ref().expect("a server").beanstalk();
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let mut worker = Command::new(python);
    worker.arg(example("worker.py")).args([&host, &port]);
    let output = worker.current_dir(files.path()).output().expect("the command runs");
    assert_shrunk(&tree, files.path(), &output);
    let left = &tree.get("/v1/queues/jobs?queue=resize")["jobs"][0];
    assert_eq!(left["phase"], "delayed", "it was released: {left}");
    assert_eq!(left["error"], Value::Null, "the reason is not stored: {left}");
}

#[test]
fn the_script_under_work_does_the_same_jobs() {
    if Command::new("python3").arg("--version").output().is_err() {
        left_out("examples/resize/resize: there is no python3");
        return;
    }
    let (tree, files) = jobs();
    let script = example("resize");
    let mut work = tree.command(&["work", "resize", "--", text(&script)]);
    let output = work.current_dir(files.path()).output().expect("the command runs");
    assert_shrunk(&tree, files.path(), &output);
    let left = &tree.get("/v1/queues/jobs?queue=resize")["jobs"][0];
    let error = left["error"].as_str().unwrap_or_default();
    assert!(
        error.ends_with("ValueError: notes.ppm: not a portable pixmap"),
        "the job has the reason: {left}"
    );
}

#[test]
fn the_guide_shows_the_pair_as_it_is() {
    let shown = fenced(GUIDE, "python");
    let text = |lines: &Vec<&str>| lines.join("\n") + "\n";
    let shown: Vec<String> = shown.iter().map(text).collect();
    assert_eq!(shown, [WORKER, RESIZE]);
}
