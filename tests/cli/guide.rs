//! Runs the commands of the guides unchanged, and compares their output.

use crate::left_out::left_out;
use crate::shown::{Ran, Reader, Step, as_a_reader, blocks, fenced, is_as_shown, parts, script};
use crate::tree::Tree;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

const GUIDE: &str = include_str!("../../docs/coming-from-flock-cron-and-pid-files.md");

/// The programs that the guide's examples use: name and content.
const PROGRAMS: [(&str, &str); 2] = [("backup", "echo backed up"), ("web", "exec sleep 1000")];

/// Runs a block in one shell. Returns the output of each command, including standard error.
fn run(block: &[Step], tree: &Tree, place: &Path) -> Vec<Ran> {
    let script = script(block.iter().map(|step| step.command.clone()));
    let mut shell = Command::new("sh");
    as_a_reader(&mut shell);
    shell.args(["-c", &format!("exec 2>&1\n{script}")]);
    shell.env("SEXTON_DATA", &tree.data).current_dir(place);
    let output = shell.output().expect("the command runs");
    parts(&String::from_utf8(output.stdout).expect("UTF-8"))
}

#[test]
fn what_the_guide_shows_is_what_happens() {
    let has_flock = Command::new("flock").arg("--version").output().is_ok();
    let blocks = blocks(GUIDE);
    assert!(blocks.len() >= 4, "{blocks:?}");
    for block in blocks {
        if !has_flock && block.iter().any(|step| step.command.starts_with("flock")) {
            left_out("what the guide shows of flock(1): it is not installed");
            continue;
        }
        let tree = Tree::start();
        let files = tempfile::tempdir().expect("a temporary directory");
        for (name, does) in PROGRAMS {
            let file = files.path().join(name);
            std::fs::write(&file, format!("#!/bin/sh\n{does}\n")).expect("a writable file");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&file, mode).expect("our own file");
        }
        let ran = run(&block, &tree, files.path());
        assert_eq!(ran.len(), block.len(), "{ran:?}");
        for (step, ran) in block.iter().zip(&ran) {
            assert!(is_as_shown(&ran.printed, &step.printed), "{step:?} printed {ran:?}");
        }
    }
}

/// Follows a page whose blocks form one session. Starts a coordinator first, unless the page itself starts one
/// (`served`).
fn is_so(page: &str, served: bool) {
    let reader = Reader::new();
    for (name, does) in PAGES_PROGRAMS {
        reader.file(name, &format!("#!/bin/sh\n{does}\n"));
    }
    if let Some(tables) = fenced(page, "toml").first() {
        reader.file("app.toml", &tables.join("\n"));
    }
    if !served {
        reader.run(["sexton serve &".to_owned()]);
    }
    let steps: Vec<Step> = blocks(page).into_iter().flatten().collect();
    assert!(steps.len() >= 8, "{steps:?}");
    reader.follow(&steps);
}

/// The programs that the examples of these pages use: name and content.
const PAGES_PROGRAMS: [(&str, &str); 4] = [
    ("backup", "sleep 1; echo backed up"),
    ("send", "echo \"sent: $(cat)\""),
    ("web", "echo listening; exec sleep 1000"),
    ("report", "echo report written"),
];

#[test]
fn the_first_hour_is_as_it_says() {
    is_so(include_str!("../../docs/first-hour.md"), true);
}

#[test]
fn what_the_page_of_redis_locks_shows_is_what_happens() {
    if Command::new("curl").arg("--version").output().is_err() {
        left_out("what docs/coming-from-redis-locks.md shows: curl is not installed");
        return;
    }
    is_so(include_str!("../../docs/coming-from-redis-locks.md"), false);
}

const QUEUES: &str = include_str!("../../docs/coming-from-beanstalkd-celery-rq-and-sidekiq.md");

#[test]
fn what_the_page_of_beanstalkd_and_celery_shows_is_what_happens() {
    is_so(QUEUES, true);
}
