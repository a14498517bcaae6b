//! Runs the examples in `--help`. Those of each command run in one shell, with a separate coordinator.

use crate::daemon::{ended, sexton};
use crate::shown::Reader;

/// Examples that are not run, each by its beginning and with the reason.
const NOT_RUN: &[(&str, &str)] = &[
    (
        "cp -a /backup/sexton-2026-01-31 /var/lib/sexton && sexton serve",
        "it serves: tests/cli/backup.rs",
    ),
    ("sexton drain --wait", "the coordinator has ended: tests/cli/drain.rs"),
    ("sexton drain queues", "the coordinator has ended: tests/cli/drain.rs"),
    ("sexton events", "it does not end: tests/cli/events.rs"),
    ("sexton job", "it needs a job: tests/cli/work_report.rs"),
    ("sexton kill --pid-file", "it needs such a file: tests/cli/pid_files.rs"),
    ("sexton lease import", "it needs SQLite and a Fossil repository"),
    ("sexton lease run nightly", "its command is not set: tests/cli/lease.rs"),
    ("sexton lock watch", "it does not end: tests/cli/lock.rs"),
    ("sexton man | man", "it needs man(1)"),
    (
        "sexton recover",
        "a coordinator uses the directory: site.rs runs the same example of docs/tools.md",
    ),
    ("sexton run -- make", "it needs make(1)"),
    ("sexton serve", "it serves: readme.rs runs it"),
    ("sexton server add web-1", "there is no such machine: tests/cli/far.rs"),
    (
        "sexton server update --from https://inventory.example/servers.json",
        "there is no such machine: tests/cli/servers.rs",
    ),
    ("sexton status --json | jq", "it needs jq(1)"),
    ("sexton task save", "it needs a task: tests/cli/task.rs"),
    ("sexton task saved", "it needs a task: tests/cli/task.rs"),
    ("sexton task wait", "it needs a task: tests/cli/task.rs"),
    ("sexton top --data", "it needs a terminal: tests/cli/top.rs"),
    ("sexton top --json", "it does not end: tests/cli/top.rs"),
    ("sexton work mails purges --wait", "it does not end: tests/cli/work.rs"),
    ("sexton work mails --any-ready --wait", "it does not end: tests/cli/work_any.rs"),
    ("sexton work thumbs --wait", "it does not end: tests/cli/work_lines.rs"),
    ("systemctl", "it needs a running systemd"),
    ("token=$(sexton lock acquire backup --json | jq", "it needs jq(1)"),
    ("sexton lock release backup --token \"$token\"", "it needs jq(1)"),
];

/// Replacements in the examples.
const INSTEAD: &[(&str, &str)] = &[
    ("/var/lib/sexton", "sexton"),
    ("/var/log/", "$PWD/"),
    ("/etc/sexton.toml", "sexton.toml"),
    ("/etc/supervisor/", ""),
    ("/backup/", "backup-"),
    ("/usr/local/share/man/", ""),
    ("~/.local/state/", ""),
    ("~/", "./"),
    ("DATA", "sexton"),
    // Another example holds this lock, so do not wait long for it.
    ("acquire backup --wait 10m", "acquire backup --wait 1"),
    // No job is added, so do not wait long for one.
    ("pop mails purges --wait 600", "pop mails purges --wait 1"),
];

/// Files that the examples read.
const FILES: &[(&str, &str)] = &[
    ("job.json", "{}"),
    ("jobs.jsonl", "{\"body\":\"a\"}\n{\"body\":\"b\"}\n"),
    ("log", "a\nb\n"),
    ("sexton.toml", ""),
    ("servers.json", "[]"),
    ("supervisord.conf", "[program:web]\ncommand=./web\n"),
];

/// Returns the words and the help of each command, as the program prints them.
fn pages() -> Vec<(Vec<String>, String)> {
    let mut pages = Vec::new();
    let mut next = vec![Vec::new()];
    while let Some(words) = next.pop() {
        let output = sexton().args(&words).arg("--help").output();
        let [page, _] = ended(output.expect("the command runs"), 0);
        let (_, list) = page.split_once("Commands:\n").unwrap_or_default();
        let (list, _) = list.split_once("\n\n").unwrap_or((list, ""));
        let names = list.lines().filter(|line| {
            let deep = line.len() - line.trim_start().len();
            deep == 2
        });
        for name in names.filter_map(|line| line.split_whitespace().next()) {
            if name != "help" {
                next.push([words.as_slice(), &[name.to_owned()]].concat());
            }
        }
        pages.push((words, page));
    }
    pages
}

/// Returns whether a line of examples begins with a command, and not with the continuation of a description.
fn is_command(line: &str) -> bool {
    let first = line.split(' ').next().unwrap_or_default();
    ["sexton", "cp", "echo", "export", "systemctl"].contains(&first) || first.ends_with("=$(sexton")
}

/// Returns the commands of the examples of a help text. Two spaces separate a command from its description.
fn examples(page: &str) -> Vec<String> {
    let one = page.split_once("\nExample: ");
    let several = page.split_once("\nExamples");
    let Some((_, rest)) = one.or(several) else {
        return Vec::new();
    };
    let (rest, _) = rest.split_once("\n\nExit status").unwrap_or((rest, ""));
    let lines = rest.lines().map(|line| line.strip_prefix("  ").unwrap_or(line));
    let commands = lines.filter(|line| is_command(line));
    let command = |line: &str| line.split("  ").next().unwrap_or(line).to_owned();
    commands.map(command).collect()
}

/// Returns the index in `NOT_RUN` of the first entry with whose words the example begins, or `None`.
fn reason(example: &str) -> Option<usize> {
    let begins = |(begin, _): &(&str, &str)| {
        let rest = example.strip_prefix(begin);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ';']))
    };
    NOT_RUN.iter().position(begins)
}

/// Returns a reader whose directory has the files that the examples read.
fn reader(examples: &[String]) -> Reader {
    let reader = Reader::new();
    for (name, text) in FILES {
        reader.file(name, text);
    }
    for example in examples {
        for word in example.split([' ', '\'', '"']) {
            if let Some(program) = word.strip_prefix("./") {
                reader.file(program, "#!/bin/sh\necho '[]'\n");
            }
        }
    }
    reader
}

/// Examples may fail with exit status 1, since the things that they name need not exist. They must not be usage errors.
#[test]
fn every_example_of_help_runs() {
    let mut used = vec![false; NOT_RUN.len()];
    let mut count = 0;
    let mut wrong = Vec::new();
    for (words, page) in pages() {
        let mut examples = examples(&page);
        examples.retain(|example| match reason(example) {
            Some(at) => {
                used[at] = true;
                false
            }
            None => true,
        });
        if examples.is_empty() {
            continue;
        }
        let reader = reader(&examples);
        let folders = "mkdir -p .local/share/bash-completion/completions .zfunc .config/fish/completions snapshots";
        let mut commands = vec!["sexton serve &".to_owned(), folders.to_owned()];
        let first = commands.len();
        for example in &examples {
            let mut command = example.clone();
            for (from, to) in INSTEAD {
                command = command.replace(from, to);
            }
            commands.push(command);
        }
        let ran = reader.run(commands);
        assert_eq!(ran.len(), examples.len() + first, "{words:?}: {ran:?}");
        for (example, ran) in examples.iter().zip(&ran[first..]) {
            count += 1;
            if ![0, 1].contains(&ran.status) {
                let errors = reader.read("errors");
                wrong.push(format!("{words:?}: {example}: {ran:?}\n{errors}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    assert!(count > 150, "{count} examples were run");
    let listed = used.iter().zip(NOT_RUN);
    let unused = listed.filter(|(used, (_, reason))| !**used || reason.is_empty());
    let unused: Vec<_> = unused.map(|(_, listed)| listed).collect();
    assert!(unused.is_empty(), "without example or reason: {unused:?}");
}

#[test]
fn examples_are_found_in_help() {
    let page = "Usage: x\n\nExamples, of x:\n  sexton a b   does c\n  and f\n  id=$(sexton d)\n               does e\n\nIn f:\n  sexton g\n\nExit status: 0 h\n\n  sexton i";
    assert_eq!(examples(page), ["sexton a b", "id=$(sexton d)", "sexton g"]);
    assert_eq!(examples("x\n\nExample: sexton a\n"), ["sexton a"]);
    assert_eq!(examples("Usage: sexton\n"), Vec::<String>::new());
}

#[test]
fn an_example_is_listed_by_whole_words() {
    assert!(reason("sexton serve --memory").is_some());
    assert!(reason("sexton server list").is_none());
    assert!(reason("sexton service").is_none());
}

/// Examples and lists in these pages fit a terminal of 80 columns unchanged. Only paragraphs are wrapped.
#[test]
fn help_fits_a_terminal() {
    let lists = |words: &[&str], columns: &str| -> Vec<String> {
        let mut command = sexton();
        command.args(words).arg("--help").env("COLUMNS", columns);
        let [page, _] = ended(command.output().expect("the command runs"), 0);
        let (_, rest) = page.split_once("Examples:\n").expect("it has examples");
        let indented = rest.lines().filter(|line| line.starts_with("  "));
        indented.map(str::to_owned).collect()
    };
    for words in [&["queue"][..], &["task", "add"], &["run"], &["lease", "list"]] {
        assert_eq!(lists(words, "80"), lists(words, "100"), "{words:?}");
    }
    let mut queue = sexton();
    queue.args(["queue", "--help"]).env("COLUMNS", "80");
    let [page, _] = ended(queue.output().expect("the command runs"), 0);
    let (_, end) = page.split_once("Exit status: ").expect("it names them");
    assert!(end.ends_with("coordinator runs there; 4 it has halted.\n"), "{end}");
}
