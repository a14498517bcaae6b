//! Runs pages of the documentation as programs: the commands in a page's blocks are run, and their output must match the
//! page.
//!
//! A line `$ COMMAND` is a command, and the lines below it are its output. `...` within a line matches any text, and a
//! line `...` matches any number of lines. Runs of spaces count as one space.

use crate::daemon::{PROGRAM, forget_environment};
use crate::tree::Tree;
use rustix::process::{Pid, Signal, kill_process};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

/// Printed after each command's output, with the exit status of the command.
const BETWEEN: &str = "--- next ---";

/// A command, and the output that the page shows for it.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) command: String,
    pub(crate) printed: Vec<String>,
}

/// The output of a command, and its exit status.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) printed: String,
    pub(crate) status: i32,
}

/// Returns the lines of the page's fenced blocks in this language, block by block.
pub(crate) fn fenced<'a>(page: &'a str, language: &str) -> Vec<Vec<&'a str>> {
    let mut blocks = Vec::new();
    let mut within = None;
    for line in page.lines() {
        match (&mut within, line.strip_prefix("```")) {
            (None, Some(begun)) => within = Some((begun == language, Vec::new())),
            (None, None) => {}
            (Some(_), Some("")) => {
                let block = within.take();
                blocks.extend(block.and_then(|(ours, lines)| ours.then_some(lines)));
            }
            (Some((_, lines)), _) => lines.push(line),
        }
    }
    blocks
}

/// Returns the languages of all fenced blocks of a page.
pub(crate) fn languages(page: &str) -> Vec<&str> {
    let fences = page.lines().filter_map(|line| line.strip_prefix("```"));
    fences.step_by(2).collect()
}

/// Returns the blocks of commands of a page.
pub(crate) fn blocks(page: &str) -> Vec<Vec<Step>> {
    let blocks = fenced(page, "console");
    blocks.into_iter().map(|lines| steps(&lines)).collect()
}

fn steps(lines: &[&str]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in lines {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => {
                steps.push(Step { command: command.to_owned(), printed: Vec::new() });
            }
            (None, Some(step)) => step.printed.push((*line).to_owned()),
            (None, None) => panic!("nothing prints {line:?}"),
        }
    }
    steps
}

/// Puts the program first on the path of a shell that runs a page, and removes variables that would configure the
/// program.
pub(crate) fn as_a_reader(shell: &mut Command) {
    let programs = Path::new(PROGRAM).parent().expect("it is in a directory");
    let path = std::env::var_os("PATH").expect("there are programs");
    let paths = std::iter::once(programs.to_owned()).chain(std::env::split_paths(&path));
    let paths = std::env::join_paths(paths).expect("none has a colon");
    forget_environment(shell);
    shell.env("PATH", paths).stdin(Stdio::null());
}

/// Combines commands into one script. Each is followed by a mark with its exit status.
pub(crate) fn script(commands: impl IntoIterator<Item = String>) -> String {
    let marked = |command: String| format!("{command}\necho \"{BETWEEN} $?\"\n");
    commands.into_iter().map(marked).collect()
}

/// Returns the output of each command of such a script.
pub(crate) fn parts(printed: &str) -> Vec<Ran> {
    let mut ran = Vec::new();
    let mut part = String::new();
    for line in printed.lines() {
        match line.split_once(BETWEEN) {
            // Output without a final line end is followed by the mark on the same line.
            Some((rest, status)) => {
                part.push_str(rest);
                ran.push(Ran {
                    printed: std::mem::take(&mut part),
                    status: status.trim().parse().expect("an exit status"),
                });
            }
            None => {
                part.push_str(line);
                part.push('\n');
            }
        }
    }
    assert_eq!(part, "", "there is nothing after the last mark");
    ran
}

/// Returns whether the output of a command matches the page.
pub(crate) fn is_as_shown(printed: &str, shown: &[String]) -> bool {
    let plain = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let printed: Vec<String> = printed.lines().map(plain).collect();
    let shown: Vec<String> = shown.iter().map(|line| plain(line)).collect();
    are_like(&printed, &shown)
}

fn are_like(printed: &[String], shown: &[String]) -> bool {
    match (printed, shown) {
        (_, []) => printed.is_empty(),
        (_, [dots, rest @ ..]) if dots == "..." => {
            (0..=printed.len()).any(|at| are_like(printed.get(at..).unwrap_or(&[]), rest))
        }
        ([], _) => false,
        ([line, lines @ ..], [like, rest @ ..]) => is_like(line, like) && are_like(lines, rest),
    }
}

/// Returns whether a line of output matches a line of the page.
fn is_like(line: &str, shown: &str) -> bool {
    let Some((first, rest)) = shown.split_once("...") else {
        return line == shown;
    };
    let (between, last) = rest.rsplit_once("...").unwrap_or(("", rest));
    let Some(mut line) = line.strip_prefix(first) else {
        return false;
    };
    for part in between.split("...") {
        match line.find(part) {
            Some(at) => line = line.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    line.ends_with(last)
}

/// A reader of a page: a shell in its own directory, whose coordinators use free ports.
pub(crate) struct Reader {
    tree: Tree,
    files: PathBuf,
    ports: [u16; 3],
}

/// The ports on the pages, in the order of [`Reader::ports`], and their replacements.
const PORTS: [(&str, &str); 3] =
    [("11340", "SEXTON_LOCKSERVER"), ("11300", "SEXTON_BEANSTALK"), ("11380", "SEXTON_HTTP")];

impl Reader {
    pub(crate) fn new() -> Self {
        let (tree, files) = Tree::to_come();
        Self { tree, files, ports: free_ports() }
    }

    /// Creates a file in the reader's directory.
    pub(crate) fn file(&self, name: &str, text: &str) {
        let file = self.files.join(name);
        std::fs::write(&file, text).expect("a writable file");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&file, mode).expect("our own file");
    }

    /// Returns the content of a file in the reader's directory.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.files.join(name)).expect("the file exists")
    }

    /// Replaces the paths and ports of a page with those of this reader.
    pub(crate) fn replaced(&self, text: &str) -> String {
        let (demo, backup) = (&self.tree.data, self.files.join("backup"));
        let mut text = text
            .replace("$HOME/sexton-demo", &demo.to_string_lossy())
            .replace("~/sexton-demo", &demo.to_string_lossy())
            .replace("~/sexton-backup", &backup.to_string_lossy())
            // A killed coordinator keeps its ports for a moment, which a person would not notice, so wait for its end.
            .replace("kill -9 $!", &ended_by("-9"))
            .replace("kill -9 '%?serve'", &ended_by("-9"))
            .replace("kill '%?serve'", &ended_by("-TERM"));
        for ((port, _), ours) in PORTS.iter().zip(self.ports) {
            text = text.replace(port, &ours.to_string());
        }
        text
    }

    /// Runs commands in one shell. Returns the output of each. After a command that starts a coordinator, the next one
    /// waits until it is ready.
    pub(crate) fn run(&self, commands: impl IntoIterator<Item = String>) -> Vec<Ran> {
        let command = |command: String| {
            let command = self.replaced(&command);
            let serves =
                command.contains("sexton serve") && without_remark(&command).ends_with('&');
            if serves { format!("{command}\n{AND_IS_READY}") } else { command }
        };
        let script = script(commands.into_iter().map(command));
        let mut shell = Command::new("sh");
        as_a_reader(&mut shell);
        // Write to files, since a coordinator in the background would keep a pipe open.
        let to_files = format!("exec >>out 2>>errors\n{script}");
        shell.args(["-c", &to_files]).current_dir(&self.files);
        shell.env("XDG_STATE_HOME", &self.files);
        for ((_, name), port) in PORTS.iter().zip(self.ports) {
            shell.env(name, format!("127.0.0.1:{port}"));
        }
        for name in ["out", "starts"] {
            self.file(name, "");
        }
        let status = shell.status().expect("a shell runs");
        let errors = self.read("errors");
        assert!(status.success(), "{status}: {}\n{errors}", self.read("out"));
        parts(&self.read("out"))
    }

    /// Runs the steps of a page. Each must succeed and print the output that the page shows.
    pub(crate) fn follow(&self, steps: &[Step]) {
        let ran = self.run(steps.iter().map(|step| step.command.clone()));
        assert_eq!(ran.len(), steps.len(), "{ran:?}");
        for (step, ran) in steps.iter().zip(&ran) {
            let shown: Vec<String> = step.printed.iter().map(|it| self.replaced(it)).collect();
            assert!(
                ran.status == 0 && is_as_shown(&ran.printed, &shown),
                "{step:?}: {ran:?}\n{}",
                self.read("errors")
            );
        }
    }
}

/// Shell commands that wait for the ready line of a coordinator, for at most a minute.
const AND_IS_READY: &str = "server=$!; echo $server > server; echo >> starts
tries=0
until [ \"$(grep -c '^ready ' out)\" -ge \"$(wc -l < starts)\" ]; do
    tries=$((tries + 1)); [ $tries -lt 1200 ] || exit 9; sleep 0.05
done
true";

/// Returns shell commands that send the coordinator this signal, and wait for its end.
fn ended_by(signal: &str) -> String {
    format!("{{ kill {signal} \"$(cat server)\"; wait \"$(cat server)\" || true; }}")
}

fn without_remark(command: &str) -> &str {
    let command = command.split_once(" #").map_or(command, |(it, _)| it);
    command.trim_end()
}

/// The next port that no reader of this process has used.
static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

/// Returns free ports below those that the system assigns to clients. Each reader gets different ones, even if the
/// coordinator of an earlier reader does not listen yet.
fn free_ports() -> [u16; 3] {
    let begin = 20_000 + u16::try_from(std::process::id() % 400).expect("a small number") * 30;
    std::array::from_fn(|_| {
        let mut ports =
            std::iter::repeat_with(|| begin + NEXT_PORT.fetch_add(1, Ordering::Relaxed));
        let free = ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
        free.expect("the search ends only when one is found")
    })
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.tree.end_processes();
        let server = std::fs::read_to_string(self.files.join("server")).unwrap_or_default();
        if let Some(server) = server.trim().parse().ok().and_then(Pid::from_raw) {
            // The process may have ended already.
            let _ = kill_process(server, Signal::KILL);
        }
    }
}

#[test]
fn no_two_readers_have_the_same_ports() {
    let mut ports = [free_ports(), free_ports(), free_ports()].concat();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 9);
}

#[test]
fn dots_stand_for_anything() {
    for (line, shown, is_so) in [
        ("a held b", "a ... b", true),
        ("a held b", "a ...", true),
        ("a held b", "a held b", true),
        ("a  held b", "a held   b", true),
        ("a held b", "a held", false),
        ("a held b", "... c", false),
        ("a held b", "b ...", false),
        ("{a {b} c}", "{a ...}", true),
        ("{a {b} c", "{a ...}", false),
        ("a\nb\nc", "a\n...", true),
        ("a\nb\nc", "...\nc", true),
        ("a", "...\na", true),
        ("a\nb\nc", "...\nd", false),
        ("a\nb", "a", false),
    ] {
        let shown: Vec<String> = shown.lines().map(str::to_owned).collect();
        assert_eq!(is_as_shown(line, &shown), is_so, "{line} {shown:?}");
    }
}

#[test]
fn blocks_are_found_by_their_language() {
    let page = "a\n```console\n$ x\ny\n$ z\n```\n```python\nq\n```\n";
    assert_eq!(fenced(page, "python"), [["q"]]);
    assert_eq!(languages(page), ["console", "python"]);
    let blocks = blocks(page);
    let commands: Vec<&str> = blocks.iter().flatten().map(|it| it.command.as_str()).collect();
    assert_eq!(commands, ["x", "z"]);
    assert_eq!(blocks[0][0].printed, ["y"]);
    let ran = parts("a\n--- next --- 0\nb--- next --- 3\n");
    assert_eq!((ran[0].printed.as_str(), ran[0].status), ("a\n", 0));
    assert_eq!((ran[1].printed.as_str(), ran[1].status), ("b", 3));
}
