//! `sexton top` with the real program, a real coordinator, and a pseudo-terminal.

use crate::beanstalk::Client;
use crate::daemon::{Daemon, Gathered, ended, sexton};
use crate::patience::until;
use crate::terminal;
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Returns `sexton top` on this directory, with ten samples a second.
fn top(data: &Path) -> Command {
    let mut command = sexton();
    for name in ["LC_ALL", "LC_CTYPE"] {
        command.env_remove(name);
    }
    command.env("LANG", "C.UTF-8");
    command.args(["top", "--every", "0.1", "--data"]).arg(data);
    command
}

fn serve(data: &Path) -> Daemon {
    Daemon::serve(&["--data", data.to_str().expect("UTF-8")])
}

fn output(mut command: Command) -> Output {
    command.output().expect("the command runs")
}

#[test]
fn where_nobody_looks_one_frame_is_printed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let coordinator = serve(directory.path());
    let [page, _] = ended(output(top(directory.path())), 0);
    let pid = coordinator.pid().as_raw_nonzero().to_string();
    let version = env!("CARGO_PKG_VERSION");
    let first = format!("serving  sexton {version}, process {pid}, up 0 s, fsync always");
    let begin = page.lines().next().unwrap_or("");
    // On a slow machine the coordinator may have been up for longer.
    let (before, _) = first.split_once("up").expect("the message has this part");
    assert!(begin.starts_with(before), "{page}");
    for words in [
        "lockserver/s",
        "no lock has waiters",
        "no queues; each appears here",
        "journal/s",
        "owners",
        "connections",
        "checkpoints",
        "lock ",
    ] {
        assert!(page.contains(words), "no {words:?} in:\n{page}");
    }
    assert!(!page.contains('\u{1b}'), "it is plain: {page:?}");
    assert!(!page.contains("quit"), "no keys without a terminal: {page}");
    assert!(page.lines().all(|line| line == line.trim_end() && line.chars().count() <= 80));

    let mut once = top(directory.path());
    once.args(["--once", "--json"]);
    let [line, _] = ended(output(once), 0);
    let line: Value = serde_json::from_str(&line).expect("valid JSON");
    assert_eq!(line["status"]["pid"].to_string(), pid);
    assert!(line["over_ms"].as_u64().is_some_and(|ms| ms >= 100), "{line}");
    // The query of `sexton top` is itself an HTTP request.
    let asked = line["per_second"]["http_requests"].as_f64();
    assert!(asked.is_some_and(|rate| rate > 0.0), "{line}");
}

#[test]
fn jobs_and_the_beanstalkd_listener_are_shown() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = directory.path().to_str().expect("UTF-8");
    let listener = ["--beanstalk", "127.0.0.1:0", "--beanstalk-connections", "2"];
    let coordinator = Daemon::serve(&[&["--data", data], &listener[..]].concat());
    let connect = || Client::connect(coordinator.beanstalk()).expect("it listens");
    let mut client = connect();
    let mut ask = |command: &str| client.ask(command).expect("an answer").line;
    for (id, delay) in [0, 0, 0, 0, 1000].into_iter().enumerate() {
        let put = ask(&format!("put 0 {delay} 600 4\r\nwork"));
        assert_eq!(put, format!("INSERTED {}", id + 1));
    }
    assert_eq!(ask("reserve"), "RESERVED 1 4");
    assert_eq!(ask("reserve"), "RESERVED 2 4");
    assert_eq!(ask("bury 1 0"), "BURIED");
    let mut waiting = connect();
    for (command, reply) in [("watch empty", "WATCHING 2"), ("ignore default", "WATCHING 1")] {
        assert_eq!(waiting.ask(command).expect("an answer").line, reply);
    }
    waiting.send(b"reserve\r\n").expect("the receiver exists");
    // The next connection is refused, because the limit is reached.
    assert!(connect().receive().is_err());
    let line = until("a status with a waiting client", || {
        let mut once = top(directory.path());
        once.args(["--once", "--json"]);
        let line: Value = serde_json::from_slice(&output(once).stdout).expect("valid JSON");
        (line["status"]["queues"]["waiting"] == 1).then_some(line)
    });
    assert_eq!(line["per_second"]["jobs_added"], 0.0);
    assert_eq!(line["per_second"]["job_timeouts"], 0.0);
    let mut beanstalk = line["status"]["beanstalk"].clone();
    let commands = beanstalk["commands"].take();
    let expected = serde_json::json!(
        {"accepted": 2, "rejected_hosts": 0, "rejected_busy": 1, "active": 2, "commands": null}
    );
    assert_eq!(beanstalk, expected);
    assert_eq!((&commands["put"], &commands["reserve"]), (&5.into(), &3.into()));
    let queues = line["queues"].as_array().expect("a list");
    let default = queues.iter().find(|queue| queue["queue"] == "default");
    let default = default.expect("the tube that has jobs is among them");
    assert_eq!((&default["ready"], &default["claimed"]), (&2.into(), &1.into()));
    assert_eq!(default["in_per_second"], 0.0);

    let [page, _] = ended(output(top(directory.path())), 0);
    let address = format!("beanstalk {}", coordinator.beanstalk());
    for words in [
        &*address,
        "jobs added/s 0 0",
        "jobs ready 2 2",
        "2 queues ready claimed delayed",
        "jobs claimed 1 waiting 1 ran out/s 0 delayed 1 retrying 0 buried 1 abandoned 0 quarantined 0 20 B queues 2",
        "beanstalk 2, 1 beyond the limit",
        "queue ",
    ] {
        assert!(words_of(&page).contains(words), "no {words:?} in:\n{page}");
    }
}

/// Returns the words of a page, each separated by one space.
fn words_of(page: &str) -> String {
    page.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn without_a_coordinator_one_frame_is_an_error_that_helps() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for flags in [&["--once"][..], &["--once", "--json"]] {
        let mut command = top(directory.path());
        command.args(flags);
        let [page, error] = ended(output(command), 3);
        assert_eq!(page, "");
        assert!(error.contains("no coordinator runs") && error.contains("sexton serve"), "{error}");
    }
    for every in ["0", "0.01", "inf", "NaN", "-1", "soon"] {
        let mut command = sexton();
        command.arg("top").arg(format!("--every={every}"));
        ended(output(command), 2);
    }
}

#[test]
fn lines_go_on_while_the_coordinator_is_gone_and_comes_back() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let coordinator = serve(directory.path());
    let before = coordinator.pid().as_raw_nonzero().to_string();
    let mut command = top(directory.path());
    let mut watching =
        command.arg("--json").stdout(Stdio::piped()).spawn().expect("the command starts");
    let mut lines = BufReader::new(watching.stdout.take().expect("a pipe")).lines();
    let mut line_with = |wanted: &dyn Fn(&Value) -> bool| loop {
        let line = lines.next().expect("another item follows").expect("UTF-8");
        let line: Value = serde_json::from_str(&line).expect("each line is JSON");
        if wanted(&line) {
            return line;
        }
    };
    let line = line_with(&|_| true);
    assert_eq!(line["status"]["pid"].to_string(), before);
    assert!(line["per_second"].is_object(), "the first line has rates: {line}");
    coordinator.kill();
    let line = line_with(&|line| line["lost"].is_object());
    assert_eq!(line["status"], Value::Null);
    let coordinator = serve(directory.path());
    let line = line_with(&|line| line["status"].is_object());
    assert_eq!(line["status"]["pid"].to_string(), coordinator.pid().as_raw_nonzero().to_string());
    assert_eq!(line["per_second"], Value::Null, "no rate across two processes: {line}");
    line_with(&|line| line["per_second"].is_object());
    watching.kill().expect("a live process");
    watching.wait().expect("our child");
}

/// `sexton top` on a terminal of 80 by 24 characters.
struct Terminal {
    ours: File,
    theirs: File,
    process: Child,
    /// The modes of the terminal before `sexton top` was started.
    before: String,
    seen: Gathered,
}

impl Terminal {
    fn open(mut command: Command) -> Self {
        let (ours, theirs) = terminal::pair();
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&theirs, size).expect("it has a size");
        let before = modes(&theirs);
        let end = || Stdio::from(theirs.try_clone().expect("descriptors are left"));
        command.env("TERM", "xterm-256color");
        let process = command.stdin(end()).stdout(end()).stderr(end()).spawn();
        let process = process.expect("the command runs");
        let seen = Gathered::from(ours.try_clone().expect("descriptors are left"));
        Self { ours, theirs, process, before, seen }
    }

    /// Waits until this text is on the screen.
    fn until_shown(&self, words: &str) {
        until(&format!("{words:?} on the screen"), || {
            let lines = picture(&self.seen.so_far());
            lines.iter().any(|line| line.contains(words)).then_some(())
        });
    }

    fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).expect("connected");
    }

    /// Waits for the end of `sexton top`, which must succeed, and for the ordinary screen.
    fn ends(&mut self) {
        let status = until("the end of top", || self.process.try_wait().expect("our child"));
        assert!(status.success(), "{status}: {}", self.seen.so_far());
        until("the ordinary screen", || self.seen.so_far().contains("\u{1b}[?1049l").then_some(()));
        until("the cursor", || self.seen.so_far().contains("\u{1b}[?25h").then_some(()));
    }
}

/// Returns the modes of a terminal that a program must restore.
fn modes(terminal: &File) -> String {
    let modes = tcgetattr(terminal).expect("it is a terminal");
    format!(
        "{:?} {:?} {:?} {:?}",
        modes.input_modes, modes.output_modes, modes.control_modes, modes.local_modes
    )
}

/// Returns the screen of a terminal of 80 by 24 characters after these bytes. Supports the sequences that `sexton top`
/// uses: characters, positions and clearing.
fn picture(seen: &str) -> Vec<String> {
    let mut cells = vec![vec![' '; 80]; 24];
    let (mut row, mut column) = (0, 0);
    let mut letters = seen.chars();
    while let Some(letter) = letters.next() {
        if letter != '\u{1b}' {
            if let Some(cell) = cells.get_mut(row).and_then(|line| line.get_mut(column)) {
                *cell = letter;
            }
            column += 1;
            continue;
        }
        let mut words = String::new();
        let end = letters.find(|letter| {
            words.push(*letter);
            letter.is_ascii_alphabetic()
        });
        let words = words.trim_start_matches('[');
        match end {
            Some('H') => {
                let (down, right) =
                    words.trim_end_matches('H').split_once(';').unwrap_or(("1", "1"));
                let place = |text: &str| text.parse::<usize>().expect("a place is a number") - 1;
                (row, column) = (place(down), place(right));
            }
            Some('J') => cells.fill(vec![' '; 80]),
            _ => {}
        }
    }
    cells.into_iter().map(String::from_iter).collect()
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The process may already have ended.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[test]
fn keys_and_signals_end_it_and_the_terminal_is_as_it_was() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let coordinator = serve(directory.path());
    for end in ["q", "\u{3}", "\u{1b}", "SIGTERM"] {
        let mut command = top(directory.path());
        command.env("NO_COLOR", "");
        let mut terminal = Terminal::open(command);
        terminal.until_shown("serving");
        assert_ne!(modes(&terminal.theirs), terminal.before, "it reads single keys");
        if end == "SIGTERM" {
            kill_process(Pid::from_child(&terminal.process), Signal::TERM).expect("a live process");
        } else {
            terminal.press(end);
        }
        terminal.ends();
        assert_eq!(modes(&terminal.theirs), terminal.before, "after {end:?}");
    }
    // A signal must restore the terminal at any time after it was changed.
    for _ in 0..8 {
        let mut terminal = Terminal::open(top(directory.path()));
        until("the other screen", || {
            terminal.seen.so_far().contains("\u{1b}[?1049h").then_some(())
        });
        kill_process(Pid::from_child(&terminal.process), Signal::TERM).expect("a live process");
        terminal.ends();
        assert_eq!(modes(&terminal.theirs), terminal.before);
    }
    drop(coordinator);
}

#[test]
fn it_stays_through_a_restart_and_a_coordinator_that_is_stopped() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let coordinator = serve(directory.path());
    let mut terminal = Terminal::open(top(directory.path()));
    terminal.until_shown("serving");
    coordinator.kill();
    terminal.until_shown("NOT REACHABLE");
    let coordinator = serve(directory.path());
    terminal.until_shown("was replaced at");
    coordinator.signal(Signal::STOP);
    terminal.until_shown("NO ANSWER");
    // Keys still work.
    terminal.press("\t");
    terminal.until_shown("reading processes");
    terminal.press("\t");
    terminal.until_shown("no panic since startup");
    coordinator.signal(Signal::CONT);
    terminal.until_shown("serving");
    terminal.press("q");
    terminal.ends();
}
