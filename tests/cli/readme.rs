//! Runs the commands of the README unchanged, from top to bottom. Commands that are not run are listed with the reason.

use crate::client_programs::greenstalk;
use crate::left_out::left_out;
use crate::patience::until;
use crate::shown::{Reader, Step, blocks, fenced, languages};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::Command;

const README: &str = include_str!("../../README.md");

/// The heading below which a separate session begins.
const OPERATOR: &str = "## If you run it";

/// Commands in blocks that are not run here, each with the reason.
const NOT_RUN: &[(&str, &str)] = &[(
    "cargo install --locked --path tools",
    "it builds the program, which cargo has built for the tests",
)];

/// Commands within sentences that are not run here, each with the reason.
const INLINE_NOT_RUN: &[(&str, &str)] = &[
    ("pip install greenstalk", ".ci/run installs it"),
    ("cargo run --release -- serve", "it builds the program; `sexton serve` is run"),
    ("cargo test", "this is run by it"),
    ("cargo doc --open", ".ci/run builds it"),
    ("cargo run --example service", "tests/embed/examples.rs runs it"),
    ("cargo run --example recorded_log", "tests/embed/examples.rs runs it"),
    (
        "sexton serve --config app.toml",
        "run with the file that the README shows, by the test of services below",
    ),
    ("sexton serve", "it stands in blocks, which are run"),
    ("sexton run", "the guide that the row links to is run"),
    ("sexton kill", "the guide that the row links to is run"),
    ("sexton lock run", "it stands in a block, which is run"),
    ("sexton work", "it stands in a block, which is run"),
    ("sexton top", "tests/cli/top.rs has it on a terminal"),
    ("sexton recover", "tests/cli/recover.rs runs it"),
    ("sexton import supervisord", "tests/cli/import.rs runs it"),
];

fn is_run(step: &Step) -> bool {
    let command = step.command.split(" #").next().unwrap_or_default().trim_end();
    !NOT_RUN.iter().any(|(named, _)| *named == command)
}

fn session(page: &str) -> Vec<Step> {
    let steps: Vec<Step> = blocks(page).into_iter().flatten().collect();
    steps.into_iter().filter(is_run).collect()
}

fn halves() -> (&'static str, &'static str) {
    let at = README.find(OPERATOR).expect("the page has this heading");
    README.split_at(at)
}

fn newcomer() -> Reader {
    let reader = Reader::new();
    reader.file("backup", "#!/bin/sh\nexit 0\n");
    let scripts = fenced(README, "sh");
    let thumb = scripts.first().expect("it shows a script");
    reader.file("thumb", &(thumb.join("\n") + "\n"));
    reader
}

#[test]
fn what_a_newcomer_is_shown_runs() {
    let steps = session(halves().0);
    assert!(steps.len() >= 2, "{steps:?}");
    let works = |step: &Step| step.command.starts_with("sexton work ");
    assert!(steps.iter().any(works), "a job is worked on: {steps:?}");
    newcomer().follow(&steps);
}

#[test]
fn what_operators_and_investigators_are_shown_runs() {
    let steps = session(halves().1);
    assert!(steps.len() >= 12, "{steps:?}");
    if Command::new("curl").arg("--version").output().is_err() {
        left_out("what the README shows to operators: curl is not installed");
        return;
    }
    Reader::new().follow(&steps);
}

/// The README's five lines of Python, with a kill of the coordinator after the line that adds the job.
#[test]
fn the_queue_in_five_lines_survives_a_kill() {
    let python = fenced(README, "python");
    let lines = &python[0];
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert!(lines[2].contains("queue.put("), "{lines:?}");
    let Some(program) = greenstalk("the five lines of Python of the README") else {
        return;
    };
    let reader = newcomer();
    let begin = &lines[..2];
    let [adds, takes] = [&lines[2..3], &lines[3..]].map(|part| [begin, part].concat().join("\n"));
    for (name, text) in [("all.py", &lines.join("\n")), ("adds.py", &adds), ("takes.py", &takes)] {
        reader.file(name, &reader.replaced(text));
    }
    let commands = [
        "sexton serve &".to_owned(),
        format!("'{program}' all.py"),
        format!("'{program}' adds.py"),
        "kill -9 $!".to_owned(),
        "sexton serve &".to_owned(),
        format!("'{program}' takes.py"),
        "sexton queue stats mails --json".to_owned(),
    ];
    let ran = reader.run(commands);
    let errors = reader.read("errors");
    for at in [1, 5] {
        assert_eq!(ran[at].printed, "to: ann\n", "{ran:?}\n{errors}");
    }
    for (at, ran) in ran.iter().enumerate() {
        assert_eq!(ran.status, 0, "{at}: {ran:?}\n{errors}");
    }
}

#[test]
fn the_service_that_is_shown_comes_back() {
    let reader = Reader::new();
    let tables = fenced(README, "toml");
    reader.file("app.toml", &tables[0].join("\n"));
    reader.file("web", "#!/bin/sh\nexec sleep 1000\n");
    let started = reader.run(["sexton serve --config app.toml &".to_owned()]);
    assert_eq!(started[0].status, 0, "{started:?}");
    let pid = || {
        let listed = reader.run(["sexton service --json".to_owned()]);
        let listed: Value = serde_json::from_str(&listed[0].printed).expect("valid JSON");
        let pid = listed.to_string();
        let (_, pid) = pid.split_once("\"pid\":")?;
        let digits: String = pid.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<i32>().ok()
    };
    let first = until("the service runs", pid);
    let process = Pid::from_raw(first).expect("a PID");
    kill_process(process, Signal::KILL).expect("a live process");
    until("it runs again", || pid().filter(|now| *now != first));
}

/// The screenshot exists, is as wide as a readable page, and is small enough to load quickly.
#[test]
fn the_picture_that_is_shown_is_one() {
    let (_, link) = README.split_once("![").expect("the page has a picture");
    let (_, path) = link.split_once("](").expect("the link has a target");
    let (path, _) = path.split_once(')').expect("the text has this end");
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let picture = std::fs::read(root.join(path)).expect("the file exists");
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n"));
    // The first chunk of a PNG file begins with the width and the height.
    assert_eq!(picture[16..20], 1280_u32.to_be_bytes());
    assert!(picture.len() < 150_000, "{} bytes", picture.len());
}

#[test]
fn every_command_is_run_or_named_with_the_reason() {
    let known = ["console", "python", "sh", "toml", "text", "rust,no_run"];
    for language in languages(README) {
        assert!(known.contains(&language), "nothing runs {language:?}");
    }
    let all: Vec<Step> = blocks(README).into_iter().flatten().collect();
    for (named, reason) in NOT_RUN {
        assert!(!reason.is_empty());
        assert!(
            all.iter().any(|step| step.command.starts_with(named)),
            "{named} is named, and not in the README"
        );
    }
    // Every second part between fences is text.
    let prose: Vec<&str> = README.split("```").step_by(2).collect();
    let prose = prose.join(" ");
    let spans: Vec<&str> = prose.split('`').skip(1).step_by(2).collect();
    let begins = ["sexton ", "cargo ", "pip "];
    let is_command = |span: &&&str| begins.iter().any(|begin| span.starts_with(begin));
    let commands: Vec<&&str> = spans.iter().filter(is_command).collect();
    assert!(commands.len() > 5, "{commands:?}");
    for command in &commands {
        assert!(
            INLINE_NOT_RUN.iter().any(|(named, _)| *named == **command),
            "`{command}` is neither run nor named"
        );
    }
    for (named, reason) in INLINE_NOT_RUN {
        assert!(!reason.is_empty());
        assert!(
            commands.iter().any(|command| **command == *named),
            "{named} is named, and not in the README"
        );
    }
}
