//! The secrets of attempts, on this and on another machine, are in no file, in no log and on no command line.

use crate::daemon::text;
use crate::far::Far;
use crate::remote::{add, assert_settled, let_go, lines, over, show, waits};
use crate::tree::Tree;
use std::path::{Path, PathBuf};

/// A secret value that is given to a task.
const PLANTED: &str = "hush-hush-4711";

/// Returns the regular files in a directory, at any depth.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        // Files that have been removed in the meantime contain nothing.
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => dirs.push(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                Ok(_) | Err(_) => {}
            }
        }
    }
    found
}

fn holds(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|it| it == word.as_bytes())
}

/// Asserts that no file in this directory contains any of these words.
fn assert_none_in_files(dir: &Path, words: &[String]) {
    let files = files_below(dir);
    assert!(!files.is_empty(), "there are files");
    for file in files {
        let bytes = std::fs::read(&file).unwrap_or_default();
        for word in words {
            assert!(!holds(&bytes, word), "{word} in {}", file.display());
        }
    }
}

/// Asserts that no process has any of these words in its command line.
fn assert_none_in_command_lines(words: &[String]) {
    let processes = std::fs::read_dir("/proc").expect("the directory exists").flatten();
    for process in processes {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        for word in words {
            let shown = String::from_utf8_lossy(&line);
            assert!(!holds(&line, word), "{word} in {shown}");
        }
    }
}

/// Returns an environment variable of a process.
fn variable(pid: &str, name: &str) -> String {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).expect("our own file");
    let environ = String::from_utf8_lossy(&environ).into_owned();
    let mut values = environ.split('\0').filter_map(|it| it.split_once('='));
    let found = values.find_map(|(its, value)| (its == name).then(|| value.to_owned()));
    found.unwrap_or_else(|| panic!("{name} in the environment of {pid}"))
}

#[test]
fn no_secret_of_an_attempt_stands_in_a_file_a_log_or_a_command_line() {
    let Some(far) = Far::start() else { return };
    let tree = Tree::configured("log = \"debug\"\n");
    far.add_to(&tree, 4);
    let file = far.path("env");
    std::fs::write(&file, format!("API_TOKEN={PLANTED}\n")).expect("a writable file");
    let flags = ["--env-file", text(&file), "--progress", "5m"];
    let script = format!("\"$0\" task save half; {}", waits(&far, ""));
    let there = add(&tree, &flags, &script);
    let begun = lines(&far.path("log"), 1);
    let command = begun[0].rsplit(' ').next().expect("its PID").to_owned();

    let process = show(&tree, there)["attempt"]["process"].clone();
    let process = process.as_str().expect("a string");
    let near = tree.record(process)["pid"].to_string();
    let line = std::fs::read(format!("/proc/{near}/cmdline")).expect("our own file");
    assert!(holds(&line, "near"), "it waits for the attempt");
    // The command is no secret: it is on the command line of the local process.
    assert!(holds(&line, "task save half"));
    // The planted value has arrived at the command. Each of the two machines has its own secret for reports.
    assert_eq!(variable(&command, "API_TOKEN"), PLANTED);
    let code = |secret: String| secret.rsplit('.').next().unwrap_or_default().to_owned();
    let words = [
        PLANTED.to_owned(),
        code(variable(&near, "SEXTON_TASK_SECRET")),
        code(variable(&command, "SEXTON_TASK_SECRET")),
    ];
    assert!(words.iter().all(|it| it.len() > 8), "{words:?}");

    assert_none_in_command_lines(&words);
    tree.well(&["checkpoint"]);
    assert_none_in_files(&tree.data, &words);
    assert_none_in_files(&far.path("state"), &words);
    let_go(&far);
    over(&tree, there);
    assert_settled(&far, &tree);

    // The same for an attempt on this machine.
    tree.well(&["server", "remove", "web"]);
    tree.well(&["server", "add", "local", "--threads", "1"]);
    std::fs::remove_file(far.path("go")).expect("the file exists");
    let here = add(&tree, &flags, &script);
    let begun = lines(&far.path("log"), 3);
    let command = begun[2].rsplit(' ').next().expect("its PID").to_owned();
    assert_eq!(variable(&command, "API_TOKEN"), PLANTED);
    let mut words = words.to_vec();
    words.push(code(variable(&command, "SEXTON_TASK_SECRET")));
    assert_none_in_command_lines(&words);
    let_go(&far);
    over(&tree, here);
    tree.well(&["checkpoint"]);
    assert_none_in_files(&tree.data, &words);
    let log = tree.daemon.as_ref().expect("a server").log();
    assert!(!log.is_empty(), "the log is not empty");
    for word in &words {
        assert!(!log.contains(word), "{word} in the log: {log}");
    }
}
