//! Runs every command in the documentation as it is shown. Commands that are not run are listed with the reason.
//!
//! Separate tests, in `readme.rs` and `guide.rs`, run the pages that consist of one session. `site_blocks.rs` lists the
//! blocks of all other pages.

use crate::left_out::left_out;
use crate::shown::{Reader, Step, as_a_reader, is_as_shown};
use crate::site_blocks::{BLOCKS, Block, NOT_RUN, Output, SESSIONS};
use std::path::Path;
use std::process::Command;

/// Returns the paths of all pages of the repository, relative to its root.
fn pages() -> Vec<String> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut pages = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("it can be listed") {
            let path = entry.expect("the directory is readable").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_foreign = name.starts_with('.') || name == "target";
            if path.is_dir() && !is_foreign {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                let path = path.strip_prefix(root).expect("it is below the root");
                pages.push(path.to_string_lossy().into_owned());
            }
        }
    }
    pages
}

/// Returns the commands of a fenced block, each with the output shown below it. A whole script is one command.
fn steps(language: &str, lines: &[&str]) -> Vec<Step> {
    let step = |command: &str| Step { command: command.to_owned(), printed: Vec::new() };
    match language {
        "sh" | "bash" => vec![step(&lines.join("\n"))],
        "" | "console" => {
            let mut steps: Vec<Step> = Vec::new();
            for line in lines {
                let command = line.strip_prefix("$ ").or(line.strip_prefix("# "));
                match (command, steps.last_mut()) {
                    (Some(command), _) => steps.push(step(command)),
                    (None, Some(last)) if last.command.ends_with('\\') => {
                        last.command = format!("{}\n{line}", last.command);
                    }
                    (None, Some(last)) => last.printed.push((*line).to_owned()),
                    // A block that does not begin with a command has no steps.
                    (None, None) => return Vec::new(),
                }
            }
            steps
        }
        _ => Vec::new(),
    }
}

/// Returns the blocks of a page that contain commands.
fn blocks(page: &str) -> Vec<Vec<Step>> {
    let mut blocks = Vec::new();
    let mut within: Option<(&str, Vec<&str>)> = None;
    for line in page.lines() {
        match (within.take(), line.strip_prefix("```")) {
            (None, Some(language)) => within = Some((language, Vec::new())),
            (None, None) => {}
            (Some((language, lines)), Some("")) => blocks.push(steps(language, &lines)),
            (Some((language, mut lines)), _) => {
                lines.push(line);
                within = Some((language, lines));
            }
        }
    }
    blocks.retain(|block| !block.is_empty());
    blocks
}

fn read(page: &str) -> String {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(page);
    std::fs::read_to_string(path).expect("UTF-8")
}

fn is_listed(page: &str, step: &Step) -> bool {
    let mut listed = NOT_RUN.iter();
    listed.any(|(on, begin, _)| *on == page && step.command.starts_with(begin))
}

/// Returns the steps of the block whose first command begins with `block.begins`. A block whose first command is equal to
/// it has precedence.
fn found(block: &Block) -> Vec<Step> {
    let blocks = blocks(&read(block.page));
    let exact = blocks.iter().position(|it| first(it) == block.begins);
    let begins = |it: &Vec<Step>| first(it).starts_with(block.begins);
    let at = exact.or_else(|| blocks.iter().position(begins));
    let steps = at.and_then(|at| blocks.into_iter().nth(at));
    steps.unwrap_or_else(|| panic!("{}: no block begins with {}", block.page, block.begins))
}

/// Returns the first command of a block. Blocks are never empty.
fn first(block: &[Step]) -> &str {
    let [first, ..] = block else {
        panic!("the block is empty");
    };
    &first.command
}

fn replaced(text: &str, pairs: &[(&str, &str)]) -> String {
    let mut text = text.to_owned();
    for (from, to) in pairs {
        text = text.replace(from, to);
    }
    text
}

/// Returns the text with every number replaced with `0`.
fn without_numbers(text: &str) -> String {
    let mut plain = String::new();
    let mut within = false;
    for character in text.chars() {
        match (character.is_ascii_digit(), within) {
            (true, true) => {}
            (true, false) => plain.push('0'),
            (false, _) => plain.push(character),
        }
        within = character.is_ascii_digit();
    }
    plain
}

/// Runs a block in one shell, after the commands that prepare it. Compares its output with the page.
fn follow(block: &Block) {
    let steps = found(block);
    let shown: Vec<&Step> = steps.iter().filter(|step| !is_listed(block.page, step)).collect();
    let reader = Reader::new();
    let page = read(block.page);
    if let Some(at) = block.tables {
        let tables = crate::shown::fenced(&page, "toml");
        let table = tables.get(at).expect("the page has enough tables");
        reader.file("app.toml", &table.join("\n"));
    }
    for (name, text) in block.files {
        reader.file(name, text);
    }
    let mut commands: Vec<String> = block.before.iter().map(|it| (*it).to_owned()).collect();
    let begin = commands.len();
    if let Some(file) = block.as_file {
        reader.file(file, first(&steps));
    } else {
        let replaced = |step: &&Step| replaced(&step.command, block.instead);
        commands.extend(shown.iter().map(replaced));
    }
    let end = commands.len();
    commands.extend(block.after.iter().map(|it| (*it).to_owned()));
    let ran = reader.run(commands.iter().cloned());
    let errors = reader.read("errors");
    assert_eq!(ran.len(), commands.len(), "{ran:?}\n{errors}");
    for (command, ran) in commands.iter().zip(&ran) {
        assert_eq!(ran.status, 0, "{command}: {ran:?}\n{errors}");
    }
    let (like, numbers): (_, fn(&str) -> String) = match block.output {
        Output::Any => return,
        Output::AsShown(like) => (like, str::to_owned),
        Output::ButNumbers(like) => (like, without_numbers),
    };
    for (step, ran) in shown.iter().zip(ran.get(begin..end).unwrap_or_default()) {
        let lines = step.printed.iter();
        let expected = |line: &String| numbers(&reader.replaced(&replaced(line, like)));
        let expected: Vec<String> = lines.map(expected).collect();
        assert!(
            expected.is_empty() || is_as_shown(&numbers(&ran.printed), &expected),
            "{}: {step:?}, as {expected:?}, printed {ran:?}\n{errors}",
            block.page
        );
    }
}

/// Runs the blocks of a page that are listed.
fn run(page: &str) {
    for block in BLOCKS.iter().filter(|block| block.page == page) {
        for program in block.needs {
            if Command::new(program).arg("--version").output().is_err() {
                left_out(format!("{page}, {}: there is no {program}", block.begins));
                return;
            }
        }
        follow(block);
    }
}

#[test]
fn the_blocks_of_the_page_on_tools_run() {
    run("docs/tools.md");
}

#[test]
fn the_blocks_of_the_page_on_operations_run() {
    run("docs/operations.md");
}

#[test]
fn the_blocks_of_the_page_on_services_run() {
    run("docs/services.md");
}

#[test]
fn the_blocks_of_the_page_on_tasks_run() {
    run("docs/tasks.md");
}

#[test]
fn the_blocks_of_the_page_on_leases_run() {
    run("docs/leases.md");
}

#[test]
fn the_blocks_of_the_page_on_supervisord_run() {
    run("docs/coming-from-supervisord.md");
}

#[test]
fn the_blocks_of_the_page_on_http_run() {
    run("docs/protocols/http.md");
}

#[test]
fn the_blocks_of_the_page_on_workers_run() {
    run("docs/protocols/work.md");
}

#[test]
fn the_blocks_of_the_page_on_lockserver_run() {
    run("docs/protocols/lockserver.md");
}

/// Blocks that a separate test in this file runs: the page, and the beginning of the block's first command.
const OF_THEIR_OWN: &[(&str, &str)] = &[("docs/tools.md", "sexton job progress")];

/// Each line of the block is used as the last line of a script that works on a job.
#[test]
fn reports_on_a_job_are_as_the_page_of_tools_shows_them() {
    let (page, begins) = OF_THEIR_OWN[0];
    let blocks = blocks(&read(page));
    let block = blocks.iter().find(|it| it[0].command.starts_with(begins));
    let block = block.expect("the page has it");
    let reader = Reader::new();
    let mut commands = vec!["sexton serve &".to_owned()];
    for (at, step) in block.iter().enumerate() {
        let script = format!("step-{at}");
        reader.file(&script, &format!("#!/bin/sh\n{}\n", step.command));
        commands.push(format!("sexton queue push {script} x"));
        commands.push(format!("sexton work {script} --result json -- ./{script}"));
    }
    let ran = reader.run(commands);
    let results: Vec<&str> = ran.iter().skip(2).step_by(2).map(|it| it.printed.as_str()).collect();
    let errors = reader.read("errors");
    for (at, word) in ["\"ok\"", "\"ok\"", "the server is down", "no such user"].iter().enumerate()
    {
        assert!(results[at].contains(word), "{at}: {results:?}\n{errors}");
    }
    assert_eq!(results.len(), 4, "{results:?}");
}

#[test]
fn every_command_of_every_page_is_run_or_listed_with_the_reason() {
    let mut count = 0;
    let mut missing = Vec::new();
    let mut used = vec![false; NOT_RUN.len()];
    for page in pages() {
        let is_session = SESSIONS.iter().any(|(session, _)| *session == page);
        for block in blocks(&read(&page)) {
            let first = block[0].command.as_str();
            let mut ours =
                BLOCKS.iter().map(|it| (it.page, it.begins)).chain(OF_THEIR_OWN.iter().copied());
            let is_run = ours.any(|(on, begins)| on == page && first.starts_with(begins));
            for step in &block {
                count += 1;
                for (used, (on, begin, _)) in used.iter_mut().zip(NOT_RUN) {
                    *used |= *on == page && step.command.starts_with(begin);
                }
                if !is_session && !is_run && !is_listed(&page, step) {
                    missing.push(format!("{page}: {}", step.command));
                }
            }
        }
    }
    assert!(count > 120, "{count} commands were found");
    assert!(missing.is_empty(), "\n{}\n", missing.join("\n"));
    for (used, (page, command, reason)) in used.iter().zip(NOT_RUN) {
        assert!(!reason.is_empty());
        assert!(used, "{page} does not contain {command}");
    }
    let tests = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/cli");
    for (page, test) in SESSIONS {
        let test = std::fs::read_to_string(tests.join(test)).expect("the test exists");
        assert!(test.contains(page), "the test does not run {page}");
    }
}

#[test]
fn scripts_that_are_not_run_are_scripts() {
    for (page, begin, _) in NOT_RUN {
        for block in blocks(&read(page)) {
            if !block[0].command.starts_with(begin) {
                continue;
            }
            let mut bash = Command::new("bash");
            as_a_reader(&mut bash);
            let output = bash.args(["-n", "-c", &block[0].command]).output();
            let Ok(output) = output else {
                return left_out("the syntax of scripts that are not run: there is no bash");
            };
            assert!(output.status.success(), "{page}: {output:?}");
        }
    }
}

#[test]
fn commands_are_found_in_blocks() {
    let page =
        "```\n$ a \\\n  b\nc\n# d\n```\n```\nno\n$ e\n```\n```sh\nf\ng\n```\n```toml\n$ h\n```\n";
    let blocks = blocks(page);
    let commands: Vec<Vec<&str>> = blocks
        .iter()
        .map(|block| block.iter().map(|step| step.command.as_str()).collect())
        .collect();
    assert_eq!(commands, [vec!["a \\\n  b", "d"], vec!["f\ng"]]);
    assert_eq!(blocks[0][0].printed, ["c"]);
}
