//! The generated completions and man pages, which must contain every command.

use crate::daemon::sexton;
use std::process::Command;

fn said(command: &mut Command) -> String {
    let output = command.output().expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Returns the commands that `--help` lists.
fn commands() -> Vec<String> {
    let help = said(sexton().arg("--help"));
    let (_, list) = help.split_once("Commands:\n").expect("there are commands");
    let (list, _) = list.split_once("\n\n").expect("and options behind them");
    let names = list.lines().filter(|line| {
        let deep = line.len() - line.trim_start().len();
        deep == 2
    });
    let names = names.filter_map(|line| line.split_whitespace().next());
    let names: Vec<String> = names.filter(|name| *name != "help").map(str::to_owned).collect();
    for name in ["serve", "status", "config", "completions", "man", "replay"] {
        assert!(names.iter().any(|found| found == name), "{name} in {help}");
    }
    names
}

#[test]
fn completions_name_every_command_and_flag() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = said(sexton().args(["completions", shell]));
        for name in commands() {
            assert!(script.contains(&name), "{name} for {shell}");
        }
        for flag in ["lock-entries", "config", "fsync"] {
            assert!(script.contains(flag), "{flag} for {shell}");
        }
    }
    // Check the syntax of the script with bash, where it is installed.
    let script = said(sexton().args(["completions", "bash"]));
    let files = tempfile::tempdir().expect("a temporary directory");
    let file = files.path().join("sexton");
    // The script is too long for an argument.
    std::fs::write(&file, script).expect("a writable file");
    match Command::new("bash").arg("-n").arg(&file).output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => println!("skipped: bash reading its completions, {error}"),
    }
    let output = sexton().args(["completions", "tcsh"]).output();
    assert_eq!(output.expect("the command runs").status.code(), Some(2));
}

#[test]
fn there_is_a_man_page_for_every_command() {
    let page = said(sexton().arg("man"));
    assert!(page.contains(".TH sexton 1"), "{page}");
    let files = tempfile::tempdir().expect("a temporary directory");
    let pages = files.path().join("man1");
    assert_eq!(said(sexton().arg("man").arg(&pages)), "");
    for name in commands() {
        assert!(page.contains(&name.replace('-', "\\-")), "{name} in {page}");
        let path = pages.join(format!("sexton-{name}.1"));
        let own = std::fs::read_to_string(&path).expect("the page exists");
        assert!(own.contains(".SH SYNOPSIS") && own.contains(&name), "{own}");
    }
    let main = std::fs::read_to_string(pages.join("sexton.1")).expect("the page exists");
    assert_eq!(main, page, "the same page either way");
    let serve = std::fs::read_to_string(pages.join("sexton-serve.1")).expect("the page exists");
    for words in ["lock\\-entries", "SEXTON_LOCK_ENTRIES", "Exit status"] {
        assert!(serve.contains(words), "{words} in {serve}");
    }
    // The error names a directory that cannot be created.
    let file = files.path().join("file");
    std::fs::write(&file, "").expect("a writable file");
    let output = sexton().arg("man").arg(file.join("man1")).output();
    let output = output.expect("the command runs");
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("man1"));
}
