//! Checks that every command `sexton …` that the sources tell users to run exists.

use crate::daemon::sexton;
use std::collections::BTreeMap;
use std::path::Path;

/// Text that may precede a command: quotes in Markdown and Rust, a line of an example, and shell syntax.
const BEFORE: [&str; 7] = ["`", "\"", "\n", "\\n", "$(", "&&", "Example:"];

/// Quoted texts that begin with the program's name but are not commands.
const OTHER: [&str; 1] = ["login until"];

/// Returns the commands in a text: the words after `sexton` that may be subcommands.
fn commands(text: &str) -> Vec<String> {
    let is_word = |word: &&str| {
        let letters = word.strip_prefix(|first: char| first.is_ascii_lowercase());
        letters.is_some_and(|rest| rest.bytes().all(|it| it.is_ascii_lowercase() || it == b'-'))
    };
    let mut found = Vec::new();
    for (at, name) in text.match_indices("sexton ") {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        let before = before.trim_end_matches(' ');
        let end = after.find(|it: char| !(it.is_ascii_alphanumeric() || " -_".contains(it)));
        let words = after[..end.unwrap_or(after.len())].split(' ');
        let words: Vec<&str> = words.take_while(is_word).collect();
        let words = words.join(" ");
        let begins = BEFORE.iter().any(|begin| before.ends_with(begin));
        if begins && !words.is_empty() && !OTHER.contains(&words.as_str()) {
            found.push(words);
        }
    }
    found
}

/// Collects the commands in the Rust files of a directory tree, each with the files that contain it.
fn gather(folder: &Path, found: &mut BTreeMap<String, Vec<String>>) {
    for entry in std::fs::read_dir(folder).expect("the directory is readable") {
        let path = entry.expect("the directory is readable").path();
        if path.is_dir() {
            gather(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = std::fs::read_to_string(&path).expect("UTF-8");
            for command in commands(&text) {
                let files = found.entry(command).or_default();
                files.push(path.display().to_string());
            }
        }
    }
}

/// Returns whether a command exists: its `--help` succeeds, or is refused only because it follows a value that may begin
/// with a hyphen.
fn is_there(command: &str) -> bool {
    let words = command.split(' ').chain(["--help"]);
    let output = sexton().args(words).output().expect("the command runs");
    let refusal = String::from_utf8_lossy(&output.stderr);
    output.status.success() || refusal.contains("--help must come before the value")
}

#[test]
fn every_command_that_the_sources_name_is_there() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut found = BTreeMap::new();
    for folder in ["src", "tools"] {
        gather(&root.join(folder), &mut found);
    }
    for known in ["serve", "task add", "lock release-all", "confirm-clock"] {
        assert!(found.keys().any(|it| it.starts_with(known)), "{known} is named somewhere");
    }
    found.retain(|command, _| !is_there(command));
    assert!(found.is_empty(), "named, but do not exist: {found:#?}");
}

#[test]
fn commands_are_found_where_they_are_quoted_and_not_in_sentences() {
    let text = "run `sexton ps prune --all` or code { \"sexton status\" }; sexton keeps locks\nsexton work mails\n  id=$(sexton run -- x)";
    assert_eq!(commands(text), ["ps prune", "status", "work mails", "run"]);
    assert!(!is_there("clock confirm") && !is_there("queue absent"));
    assert!(is_there("ps prune") && is_there("work mails"));
}
