//! Processes from a shell: run, looked at, waited for, stopped, and found again after kills of coordinator and keeper.

#![expect(
    clippy::indexing_slicing,
    reason = "an answer that lacks a part fails the test"
)]

use crate::coordinator::{Coordinator, Done, command, done};
use crate::daemon::{Daemon, text};
use crate::patience::until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A coordinator whose children and keeper do not outlast the test.
struct Tree {
    daemon: Option<Daemon>,
    data: PathBuf,
    _files: TempDir,
}

impl Tree {
    fn start() -> Self {
        let Coordinator {
            daemon,
            data,
            files,
            ..
        } = Coordinator::start(&[]);
        Self {
            daemon: Some(daemon),
            data,
            _files: files,
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = command(&self.data, &[]);
        let mut asked = Command::new(command.get_program());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => asked.env(name, value),
                None => asked.env_remove(name),
            };
        }
        asked.env("SEXTON_DATA", &self.data);
        asked.args(words).stdin(Stdio::null());
        std::mem::swap(&mut command, &mut asked);
        command
    }

    fn run(&self, words: &[&str]) -> Done {
        done(self.command(words).output().expect("it runs"))
    }

    fn well(&self, words: &[&str]) -> String {
        let done = self.run(words);
        assert_eq!((done.status, done.err.as_str()), (0, ""), "{done:?}");
        done.out
    }

    /// Launches a shell script in the background; its id.
    fn detach(&self, script: &str) -> String {
        let id = self.well(&["run", "--detach", "--", "sh", "-c", script]);
        id.trim_end().to_owned()
    }

    fn record(&self, id: &str) -> Value {
        let printed = self.well(&["ps", id, "--json"]);
        serde_json::from_str(&printed).expect("it is JSON")
    }

    fn all(&self) -> Vec<Value> {
        let printed = self.well(&["ps", "--all", "--json"]);
        let mut said: Value = serde_json::from_str(&printed).expect("it is JSON");
        let Value::Array(records) = said["processes"].take() else {
            panic!("no list: {said}");
        };
        records
    }

    /// The PID of its keeper.
    fn keeper(&self) -> Option<Pid> {
        let held = std::fs::read_to_string(self.data.join("keeper.lock")).ok()?;
        Pid::from_raw(held.trim().parse().ok()?)
    }

    fn kill_keeper(&self) {
        let keeper = self.keeper().expect("a keeper runs");
        kill_process(keeper, Signal::KILL).expect("it is there");
    }

    /// Kills the coordinator, and starts another on the same directory.
    fn again(&mut self, between: impl FnOnce()) {
        self.daemon.take().expect("one runs").kill();
        between();
        self.daemon = Some(Daemon::serve(&["--data", text(&self.data)]));
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let listed = self.command(&["ps", "--json"]).output();
        let said = listed
            .ok()
            .and_then(|it| serde_json::from_slice(&it.stdout).ok());
        let said: Value = said.unwrap_or_default();
        for id in said["processes"].as_array().into_iter().flatten() {
            let id = id["id"].as_str().unwrap_or_default();
            drop(
                self.command(&["kill", "--tree", "--now", "--wait", id])
                    .output(),
            );
        }
        if let Some(keeper) = self.keeper() {
            // It may have ended by itself.
            let _ = kill_process(keeper, Signal::KILL);
        }
    }
}

fn lives(pid: &Value) -> bool {
    let pid = pid.as_u64().expect("it has one");
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_command_in_the_foreground_ends_as_it_would_in_a_shell() {
    let tree = Tree::start();
    let directory = tree.data.join("journal");
    let directory = text(&directory);
    for (script, status) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
    ] {
        let done = tree.run(&["run", "--", "sh", "-c", script]);
        assert_eq!((done.status, done.err.as_str()), (status, ""), "{script}");
    }
    for (program, status, words) in [
        (
            "no-such-program",
            127,
            "No such file or directory (os error 2)",
        ),
        (
            "/no/such/program",
            127,
            "No such file or directory (os error 2)",
        ),
        ("/etc/passwd", 126, "Permission denied (os error 13)"),
        (directory, 126, "Permission denied (os error 13)"),
    ] {
        let done = tree.run(&["run", "--", program]);
        let expected = format!("sexton: {program}: {words}\n");
        assert_eq!(
            (done.status, done.err.as_str()),
            (status, expected.as_str())
        );
    }
    let missing = tree.run(&["run", "--dir", "/no/such/directory", "--", "true"]);
    assert_eq!(missing.status, 125, "{missing:?}");
    assert!(missing.err.contains("/no/such/directory"), "{missing:?}");
    let records = tree.all();
    assert_eq!(records.len(), 9);
    let failures = records.iter().filter(|it| it["failure"] != Value::Null);
    assert_eq!(failures.clone().count(), 5);
    for failed in failures {
        assert_eq!(
            (&failed["status"], &failed["code"]),
            (&json!("exited"), &Value::Null)
        );
        assert!(failed["failure"]["errno"].as_i64().expect("a number") > 0);
    }
}

#[test]
fn streams_environment_and_directory_are_those_of_the_shell() {
    let tree = Tree::start();
    let here = tempfile::tempdir().expect("a temporary directory");
    let script = "umask; pwd; printenv PLANTED; cat; echo beside >&2";
    let mut command = tree.command(&["run", "--", "sh", "-c", script]);
    command.current_dir(here.path()).env("PLANTED", "as it was");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut input = child.stdin.take().expect("it is piped");
    let typed = vec![b'x'; 300_000];
    let writing = std::thread::Builder::new()
        .name("typing".to_owned())
        .spawn(move || input.write_all(&typed))
        .expect("a thread starts");
    let done = done(child.wait_with_output().expect("it ends"));
    writing.join().expect("no panic").expect("it was read");
    let mut lines = done.out.splitn(4, '\n');
    assert!(lines.next().is_some_and(|umask| umask.starts_with('0')));
    let directory = here.path().canonicalize().expect("it is there");
    assert_eq!(lines.next(), directory.to_str());
    assert_eq!(lines.next(), Some("as it was"));
    assert_eq!(lines.next().map(str::len), Some(300_000));
    assert_eq!((done.status, done.err.as_str()), (0, "beside\n"));
}

#[test]
fn a_signal_to_the_command_reaches_what_it_runs() {
    let tree = Tree::start();
    let script = "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let mut command = tree.command(&["run", "--", "sh", "-c", script]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("it runs");
    let mut out = child.stdout.take().expect("it is piped");
    let mut ready = [0; 6];
    out.read_exact(&mut ready).expect("it says so");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it is there");
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("it is text");
    assert_eq!(rest, "caught\n");
    assert_eq!(child.wait().expect("it ends").code(), Some(5));
}

#[test]
fn one_in_the_background_is_shown_read_waited_for_and_stopped() {
    let tree = Tree::start();
    assert!(tree.well(&["ps"]).starts_with("no processes; "));
    let id = tree.detach("echo out; echo err >&2; exec sleep 1000");
    let first = id.get(..13).expect("it is long");
    for (flags, words) in [
        (&["logs", first][..], "out\n"),
        (&["logs", first, "--stderr"], "err\n"),
    ] {
        until("it has written", || {
            (tree.run(flags).out == words).then_some(())
        });
    }
    let listed = tree.well(&["ps", "--type", "binary", "--search", "sleep 1000"]);
    assert!(listed.lines().any(|line| line.starts_with(&id)), "{listed}");
    assert_eq!(tree.well(&["ps", "--count"]), "1\n");
    let record = tree.record(first);
    assert_eq!(record["status"], "running");
    assert!(lives(&record["pid"]));
    let timed = tree.run(&["wait", first, "--timeout", "1s"]);
    assert_eq!(timed.status, 124, "{timed:?}");
    assert_eq!(tree.run(&["kill", first, "--wait"]).status, 0);
    let record = tree.record(&id);
    assert_eq!(
        (&record["status"], &record["code"]),
        (&json!("exited"), &json!(143))
    );
    assert_eq!(
        (&record["signal"], &record["stopped_by"]),
        (&json!(15), &json!("request"))
    );
    assert_eq!(
        (&record["stdout"]["head"], &record["stderr"]["head"]),
        (&json!("out\n"), &json!("err\n"))
    );
    assert!(!lives(&record["pid"]));
    assert_eq!(tree.run(&["wait", &id]).status, 143);
    let again = tree.run(&["kill", &id]);
    assert_eq!(again.status, 1);
    assert!(again.err.contains("has ended"), "{again:?}");
    assert_eq!(tree.well(&["ps", "prune"]), "forgot 1 record\n");
    assert_eq!(tree.run(&["ps", &id]).status, 1);
}

#[test]
fn a_stop_of_a_tree_ends_what_escaped_and_what_ignores_it() {
    let tree = Tree::start();
    let mark = format!("{}", 1_000_000 + std::process::id());
    let script = format!(
        "setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' & (setsid sleep {mark} &); trap '' TERM; while :; do sleep 0.1; done"
    );
    let id = tree.detach(&script);
    let escaped = || {
        let processes = std::fs::read_dir("/proc").expect("it is mounted").flatten();
        let lines = processes.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
        let sleeping = lines.filter(|line| line.starts_with(format!("sleep\0{mark}\0").as_bytes()));
        sleeping.count()
    };
    until("it has escaped", || (escaped() == 1).then_some(()));
    let stopped = tree.run(&["kill", "--tree", "--grace", "200ms", "--wait", &id]);
    assert_eq!(stopped.status, 0, "{stopped:?}");
    let record = tree.record(&id);
    assert_eq!(
        (&record["status"], &record["signal"]),
        (&json!("exited"), &json!(9))
    );
    assert_eq!((escaped(), &record["alive"]), (0, &json!(0)));
}

#[test]
fn what_takes_too_long_is_stopped_with_its_tree_and_says_so() {
    let tree = Tree::start();
    let done = tree.run(&[
        "run",
        "--timeout",
        "200ms",
        "--grace",
        "5s",
        "--",
        "sleep",
        "1000",
    ]);
    assert_eq!(
        (done.status, done.err.as_str()),
        (124, "sexton: sleep: its time was over\n")
    );
    assert_eq!(tree.all()[0]["stopped_by"], "timeout");
}

#[test]
fn exits_are_true_whoever_was_killed_in_between() {
    let mut tree = Tree::start();
    let go = tree.data.join("go");
    let waits = |code: u8| {
        let go = text(&go);
        format!("while ! [ -e {go} ]; do sleep 0.02; done; exit {code}")
    };
    let of_coordinator = tree.detach(&waits(3));
    tree.again(|| std::fs::write(&go, "").expect("it can be written"));
    assert_eq!(tree.run(&["wait", &of_coordinator]).status, 3);

    std::fs::remove_file(&go).expect("it is there");
    let of_keeper = tree.detach(&waits(4));
    tree.kill_keeper();
    let next = tree.run(&["run", "--", "sh", "-c", "exit 6"]);
    assert_eq!(next.status, 6, "another keeper runs: {next:?}");
    std::fs::write(&go, "").expect("it can be written");
    let record = || Some(tree.record(&of_keeper)).filter(|it| it["status"] == "exited");
    let record = until("it has ended", record);
    // Nobody who waited for it lives; the newest kernels say how it ended all the same.
    if record["lost"].is_null() {
        assert_eq!(record["code"], 4);
    } else {
        assert_eq!(
            (&record["lost"], &record["code"]),
            (&json!("keeper-gone"), &Value::Null)
        );
    }

    std::fs::remove_file(&go).expect("it is there");
    let of_both = tree.detach(&waits(5));
    tree.kill_keeper();
    tree.again(|| std::fs::write(&go, "").expect("it can be written"));
    let record = || Some(tree.record(&of_both)).filter(|it| it["status"] == "exited");
    let record = until("it has ended", record);
    assert!(record["code"].is_null() || record["code"] == 5, "{record}");
    assert_ne!(
        record["code"].is_null(),
        record["lost"].is_null(),
        "{record}"
    );
}

#[test]
fn a_script_registers_itself_and_what_it_runs_stands_below() {
    let tree = Tree::start();
    let script = format!(
        "export SEXTON_PROCESS_ID=$({0} register --type worker --label queue=mails)
         {0} run -- true
         sh -c '{0} run -- true; :'
         {0} register --finish 3 --error 'no such host' > /dev/null
         echo $SEXTON_PROCESS_ID",
        env!("CARGO_BIN_EXE_sexton")
    );
    let mut shell = tree.command(&[]);
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::null());
    for (name, value) in shell.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    std::mem::swap(&mut shell, &mut command);
    let done = done(shell.output().expect("it runs"));
    let id = done.out.trim_end();
    assert_eq!((done.status, done.err.as_str()), (0, ""), "{done:?}");
    let record = tree.record(id);
    assert_eq!(
        (&record["type"], &record["launched"]),
        (&json!("worker"), &json!(false))
    );
    assert_eq!(
        (&record["code"], &record["error"]),
        (&json!(3), &json!("no such host"))
    );
    assert_eq!(record["labels"], json!({"queue": "mails"}));
    let below: Vec<Value> = tree
        .all()
        .into_iter()
        .filter(|it| it["parent"] == id)
        .collect();
    assert_eq!(below.len(), 2);
    assert!(
        below
            .iter()
            .all(|it| it["root"] == id && it["depth"] == 1 && it["code"] == 0)
    );
    let drawn = tree.well(&["ps", "--all", "--tree"]);
    let lines: Vec<&str> = drawn.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with(id), "{drawn}");
    assert!(
        lines[1].contains("├── true") && lines[2].contains("└── true"),
        "{drawn}"
    );
}

#[test]
fn a_secret_is_in_no_file_record_or_log() {
    const SECRET: &str = "hunter2-planted-and-looked-for";
    let mut tree = Tree::start();
    let script = "test \"$API_TOKEN\" = hunter2-planted-and-looked-for";
    let mut command = tree.command(&["run", "--", "sh", "-c", "test -n \"$API_TOKEN\""]);
    assert_eq!(
        done(command.env("API_TOKEN", SECRET).output().expect("it runs")).status,
        0
    );
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), format!("API_TOKEN={SECRET}\n")).expect("it can be written");
    let path = text(file.path());
    // What compares with it has it in its arguments, so that alone is not looked for.
    let asked = tree.run(&[
        "run",
        "--env-file",
        path,
        "--detach",
        "--",
        "sh",
        "-c",
        "test -n \"$API_TOKEN\"",
    ]);
    assert_eq!(asked.status, 0, "{asked:?}");
    assert_eq!(tree.run(&["wait", asked.out.trim_end()]).status, 0);
    assert!(script.contains(SECRET));
    for words in [
        vec![
            "run",
            "--",
            "tool",
            "--password=hunter2-planted-and-looked-for",
        ],
        vec![
            "run",
            "--env",
            "API_TOKEN=hunter2-planted-and-looked-for",
            "--",
            "true",
        ],
    ] {
        let refused = tree.run(&words);
        assert_eq!(refused.status, 2, "{refused:?}");
        assert!(!refused.err.contains(SECRET), "{refused:?}");
    }
    let shown = [
        tree.well(&["ps", "--all", "--json"]),
        tree.well(&["ps", "--all"]),
        tree.well(&["checkpoint"]),
    ];
    assert!(shown.iter().all(|it| !it.contains(SECRET)));
    let log = tree.daemon.as_ref().expect("it runs").log();
    assert!(!log.contains(SECRET));
    tree.again(|| {});
    let mut looked_at = 0;
    let mut folders = vec![tree.data.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("it is there").flatten() {
            let kind = entry.file_type().expect("it is there");
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let bytes = std::fs::read(entry.path()).expect("it can be read");
                let found = bytes
                    .windows(SECRET.len())
                    .any(|it| it == SECRET.as_bytes());
                assert!(!found, "{}", entry.path().display());
                looked_at += 1;
            }
        }
    }
    assert!(looked_at > 5, "files were looked at");
}

#[test]
fn wrong_words_are_refused_and_change_nothing() {
    let tree = Tree::start();
    for (words, status, says) in [
        (vec!["run"], 2, "required"),
        (vec!["run", "--timeout", "soon", "--", "true"], 2, "soon"),
        (
            vec!["run", "--env", "novalue", "--", "true"],
            2,
            "NAME=VALUE",
        ),
        (
            vec!["run", "--parent", "nonsense", "--", "true"],
            2,
            "parent",
        ),
        (vec!["ps", "01a2"], 1, "no process"),
        (vec!["ps", "00000000"], 1, "no process"),
        (vec!["ps", "--status", "dead"], 2, "status"),
        (vec!["kill", "00000000"], 1, "no process"),
        (vec!["kill", "--signal", "NOSUCH", "00000000"], 2, "NOSUCH"),
        (vec!["wait", "00000000"], 1, "no process"),
        (vec!["logs", "00000000"], 1, "no process"),
    ] {
        let done = tree.run(&words);
        assert_eq!(done.status, status, "{words:?}: {done:?}");
        assert!(done.err.contains(says), "{words:?}: {done:?}");
    }
    assert_eq!(tree.all(), Vec::<Value>::new());
}
