//! What the guide shows is run as it stands there, and prints what it shows.

use crate::daemon::PROGRAM;
use crate::left_out::left_out;
use crate::tree::Tree;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

const GUIDE: &str = include_str!("../../docs/coming-from-flock-cron-and-pid-files.md");

/// What its examples run: their name, and what they do.
const PROGRAMS: [(&str, &str); 2] = [("backup", "echo backed up"), ("web", "exec sleep 1000")];

/// Stands between what commands print.
const BETWEEN: &str = "--- next ---";

/// A command, and the lines that it prints: `...` in one stands for anything.
#[derive(Debug)]
struct Step {
    command: String,
    printed: Vec<String>,
}

/// The blocks of the guide.
fn blocks() -> Vec<Vec<Step>> {
    let mut blocks = Vec::new();
    let mut within = false;
    for line in GUIDE.lines() {
        match (within, line) {
            (false, "```console") => {
                within = true;
                blocks.push(Vec::new());
            }
            (true, "```") => within = false,
            (true, _) => note(blocks.last_mut().expect("a block was begun"), line),
            (false, _) => {}
        }
    }
    blocks
}

fn note(block: &mut Vec<Step>, line: &str) {
    match (line.strip_prefix("$ "), block.last_mut()) {
        (Some(command), _) => block.push(Step {
            command: command.to_owned(),
            printed: Vec::new(),
        }),
        (None, Some(step)) => step.printed.push(line.to_owned()),
        (None, None) => panic!("nothing prints {line:?}"),
    }
}

/// Runs a block in one shell; what each command printed.
fn run(block: &[Step], tree: &Tree, place: &Path) -> Vec<String> {
    let mut script = String::from("exec 2>&1\n");
    for step in block {
        for line in [&step.command, "\necho '", BETWEEN, "'\n"] {
            script.push_str(line);
        }
    }
    let programs = Path::new(PROGRAM).parent().expect("it is in a directory");
    let path = std::env::var_os("PATH").expect("there are programs");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]);
    let paths = std::iter::once(programs.to_owned()).chain(std::env::split_paths(&path));
    shell.env(
        "PATH",
        std::env::join_paths(paths).expect("none has a colon"),
    );
    // What tells these tests where clients are is no setting, which commands would say.
    shell.env_remove("SEXTON_JACKD").env_remove("SEXTON_PYTHON");
    shell.env("SEXTON_DATA", &tree.data).current_dir(place);
    let output = shell.stdin(Stdio::null()).output().expect("it runs");
    let printed = String::from_utf8(output.stdout).expect("it is text");
    let between = format!("{BETWEEN}\n");
    let mut parts: Vec<String> = printed.split(&between).map(str::to_owned).collect();
    // After the last there is nothing.
    assert_eq!(parts.pop().as_deref(), Some(""), "{printed}");
    parts
}

/// Whether a line is as the guide has it.
fn is_like(line: &str, shown: &str) -> bool {
    let mut parts = shown.split("...");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.is_empty() || shown.ends_with("...")
}

#[test]
fn what_the_guide_shows_is_what_happens() {
    let has_flock = Command::new("flock").arg("--version").output().is_ok();
    let blocks = blocks();
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
            std::fs::write(&file, format!("#!/bin/sh\n{does}\n")).expect("it can be written");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&file, mode).expect("it is ours");
        }
        let printed = run(&block, &tree, files.path());
        assert_eq!(printed.len(), block.len(), "{printed:?}");
        for (step, printed) in block.iter().zip(&printed) {
            let lines: Vec<&str> = printed.lines().collect();
            let is_so = lines.len() == step.printed.len()
                && lines
                    .iter()
                    .zip(&step.printed)
                    .all(|(line, shown)| is_like(line, shown));
            assert!(is_so, "{step:?} printed {printed:?}");
        }
    }
}

#[test]
fn dots_stand_for_anything() {
    for (line, shown, is_so) in [
        ("a held b", "a ... b", true),
        ("a held b", "a ...", true),
        ("a held b", "a held b", true),
        ("a held b", "a held", false),
        ("a held b", "... c", false),
        ("a held b", "b ...", false),
    ] {
        assert_eq!(is_like(line, shown), is_so, "{line} {shown}");
    }
}
