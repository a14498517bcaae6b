//! Tests that the examples of `--help` and the commands of the documentation parse as command lines of this program.

use crate::Arguments;
use clap::{Command, CommandFactory as _, Parser as _};
use std::path::{Path, PathBuf};

/// Splits a shell line into the words of its first command and the rest of the line. An expansion, `$NAME` or `$(…)`, counts as
/// one word.
fn first(line: &str) -> (Vec<String>, &str) {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut rest = line;
    while let Some(character) = rest.chars().next() {
        let after = rest.get(character.len_utf8()..).unwrap_or_default();
        let mut taken = character.len_utf8();
        match (quote, character) {
            (Some('"') | None, '$') if after.starts_with('(') => {
                taken = substitution(rest);
                let whole = rest.get(..taken).unwrap_or_default();
                word.get_or_insert_default().push_str(whole);
            }
            (Some(open), _) if open == character => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, ';' | '&' | '|' | ')') => {
                words.extend(word.take());
                return (words, after);
            }
            (None, '#') if word.is_none() => break,
            _ => word.get_or_insert_default().push(character),
        }
        rest = rest.get(taken..).unwrap_or_default();
    }
    words.extend(word);
    (words, "")
}

/// Returns the length of the `$(…)` or `(…)` at the beginning of `text`, or the length of `text` if it is not closed.
fn substitution(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' if depth == 1 => return at + 1,
            ')' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns every invocation of this program in a shell line, split into words and without redirections.
fn called(line: &str) -> Vec<Vec<String>> {
    let mut called = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let (words, after) = first(rest);
        rest = after;
        for word in &words {
            if let Some((_, inner)) = word.split_once("$(") {
                called.extend(self::called(inner.trim_end_matches(')')));
            }
        }
        // After any other word than a shell keyword or `exec`, the name is an argument of another command.
        let Some(at) = words.iter().position(|word| word == "sexton") else {
            continue;
        };
        if at > 0 && !["if", "while", "until", "do", "exec"].contains(&words[at - 1].as_str()) {
            continue;
        }
        let mut ours = Vec::new();
        let mut words = words.into_iter().skip(at);
        while let Some(word) = words.next() {
            match word.trim_start_matches(['1', '2']) {
                ">" | ">>" | "<" => drop(words.next()),
                redirects if redirects.starts_with(['>', '<']) => {}
                _ => ours.push(word),
            }
        }
        called.push(ours);
    }
    called
}

/// Returns the example commands in a help text, without the descriptions, which are separated from them by two or more spaces.
fn examples(help: &str) -> Vec<String> {
    let lines = help.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = line.strip_prefix("Example: ").unwrap_or(line);
        let begins = line.split(' ').next().unwrap_or_default();
        (["sexton", "cp", "echo"].contains(&begins) || begins.ends_with("=$(sexton"))
            .then_some(line)
    });
    let without_words = |line: &str| match line.split_once("  ") {
        Some((command, _)) => command.to_owned(),
        None => line.to_owned(),
    };
    lines.map(without_words).collect()
}

/// Adds to `found` the texts after the options in the help of a command and of all its subcommands, each with the command's name.
fn helps(command: &Command, above: &str, found: &mut Vec<(String, String)>) {
    let name = format!("{above} {}", command.get_name());
    for help in [command.get_after_help(), command.get_after_long_help()] {
        found.extend(help.map(|help| (name.clone(), help.to_string())));
    }
    for subcommand in command.get_subcommands() {
        helps(subcommand, &name, found);
    }
}

/// Replaces every shell expansion in a word with `1`, which is valid both as text and as a number.
fn filled(word: &str) -> String {
    let mut filled = String::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('$') {
        filled.push_str(before);
        filled.push('1');
        let is_name = |it: char| it == '_' || it == '$' || it.is_ascii_alphanumeric();
        rest = if after.starts_with('(') {
            after.get(substitution(after)..).unwrap_or_default()
        } else {
            after.trim_start_matches(is_name)
        };
    }
    filled + rest
}

/// Parses a command line of this program and returns the error, or `None` if the command line is valid or only prints help.
fn problem(words: &[String]) -> Option<String> {
    let mut words: Vec<String> = words.iter().map(|word| filled(word)).collect();
    // The group in an example need not exist on this machine, and parsing would look it up.
    if let Some(at) = words.iter().position(|word| word == "--socket-group") {
        words[at + 1] = "0".to_owned();
    }
    let error = Arguments::try_parse_from(words).err()?;
    error.use_stderr().then(|| error.to_string())
}

#[test]
fn every_example_of_help_is_a_command_line_of_this_program() {
    let mut all = Vec::new();
    helps(&Arguments::command(), "", &mut all);
    let mut count = 0;
    for (name, help) in all {
        for example in examples(&help) {
            let called = called(&example);
            assert!(!called.is_empty(), "{name}: {example}");
            for words in called {
                count += 1;
                assert_eq!(problem(&words), None, "{name}: {example}: {words:?}");
            }
        }
    }
    assert!(count > 150, "{count} examples were found");
}

/// Returns the Markdown files below a directory.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder).expect("it should be possible to list the directory") {
        let path = entry.expect("it should be possible to read the entry").path();
        if path.is_dir() {
            pages.extend(self::pages(&path));
        } else if path.extension().is_some_and(|it| it == "md") {
            pages.push(path);
        }
    }
    pages
}

/// Checks all commands, including those that `tests/cli/site.rs` does not run.
#[test]
fn every_command_of_every_page_is_a_command_line_of_this_program() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut count = 0;
    for path in pages(&root.join("docs")).into_iter().chain([root.join("README.md")]) {
        let page = std::fs::read_to_string(&path).expect("a page should be text");
        for block in page.split("```").skip(1).step_by(2) {
            let (language, lines) = block.split_once('\n').unwrap_or_default();
            let is_script = ["sh", "bash"].contains(&language);
            if !is_script && !["", "console"].contains(&language) {
                continue;
            }
            for line in lines.lines() {
                let command = line.strip_prefix("$ ").or(line.strip_prefix("# "));
                let Some(command) = command.or(is_script.then_some(line)) else {
                    continue;
                };
                for words in called(command.trim()) {
                    count += 1;
                    let shown = path.display();
                    assert_eq!(problem(&words), None, "{shown}: {line}: {words:?}");
                }
            }
        }
    }
    assert!(count > 100, "{count} commands were found");
}

#[test]
fn lines_are_split_as_by_a_shell() {
    let called = |line| {
        let called = called(line);
        let lines: Vec<String> = called.iter().map(|words| words.join("|")).collect();
        lines
    };
    for (line, expected) in [
        ("sexton ps 'b c' \"d $(e f)\"", vec!["sexton|ps|b c|d $(e f)"]),
        ("x; sexton ps && sexton status > c # d", vec!["sexton|ps", "sexton|status"]),
        ("if sexton ps 2>/dev/null; then", vec!["sexton|ps"]),
        (
            "sexton ps $(sexton status 'c') -- d",
            vec!["sexton|status|c", "sexton|ps|$(sexton status 'c')|--|d"],
        ),
        ("echo sexton ps", vec![]),
        ("sexton run -- sh -c 'b; c' | d", vec!["sexton|run|--|sh|-c|b; c"]),
    ] {
        assert_eq!(called(line), expected, "{line}");
    }
    assert_eq!(examples("Examples:\n  sexton ps prune   c\n  d\n"), ["sexton ps prune"]);
    assert_eq!(filled("a $(b (c)) \"$d_1\" $$"), "a 1 \"1\" 1");
    assert!(problem(&["sexton".to_owned(), "nonsense".to_owned()]).is_some());
}
