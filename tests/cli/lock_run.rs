//! `sexton lock run`: no other client gets the lock while any process of the command is alive, whatever is killed.

use crate::coordinator::{CommandOutput, done};
use crate::daemon::{Daemon, sexton, text};
use crate::patience::until;
use crate::terminal;
use crate::tree::Tree;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::Read as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::Builder;

/// A script that writes its PID to a file, creates a directory that must not exist, and runs until another file exists.
const HOLDS: &str = r#"
echo $$ > "$1.pid"
mkdir "$1" || { echo beside another >> "$1.wrong"; exit 99; }
while [ ! -e "$1.end" ]; do sleep 0.02; done
rmdir "$1"
"#;

/// What is killed while the command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    Run,
    Command,
    Coordinator,
    Keeper,
}

/// A `sexton lock run` that holds the lock, and the directory that exists while its command runs.
struct Holder {
    run: Child,
    place: PathBuf,
}

impl Holder {
    fn start(tree: &Tree, script: &str) -> Self {
        let place = tree.data.join("held");
        let mut command = tree.command(&["lock", "run", "k", "--", "sh", "-c", script, "sh"]);
        command.arg(&place).stdout(Stdio::null()).stderr(Stdio::null());
        let run = command.spawn().expect("the command starts");
        let holder = Self { run, place };
        until("it holds the lock", || holder.place.exists().then_some(()));
        holder
    }

    fn beside(&self, what: &str) -> PathBuf {
        let mut name = self.place.clone().into_os_string();
        name.push(what);
        name.into()
    }

    fn command(&self) -> Pid {
        let pid = std::fs::read_to_string(self.beside(".pid")).expect("a PID");
        Pid::from_raw(pid.trim().parse().expect("a number")).expect("a PID")
    }

    fn end(&mut self) -> Option<i32> {
        std::fs::write(self.beside(".end"), "").expect("a writable file");
        self.run.wait().expect("our child").code()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Let the holder end even if the test has failed.
        drop(std::fs::write(self.beside(".end"), ""));
        drop(self.run.kill());
        drop(self.run.wait());
    }
}

fn locks(tree: &Tree) -> Vec<Value> {
    let printed = tree.well(&["lock", "list", "--json"]);
    let said: Value = serde_json::from_str(&printed).expect("valid JSON");
    said.pointer("/locks").and_then(Value::as_array).expect("a list").clone()
}

fn conflict(tree: &Tree) -> CommandOutput {
    tree.run(&["lock", "run", "--no-wait", "k", "--", "true"])
}

#[test]
fn it_ends_as_its_command_and_gives_the_lock_back() {
    let tree = Tree::start();
    let said = tree.run(&["lock", "run", "k", "--", "sh", "-c", "echo $SEXTON_FENCE; exit 7"]);
    assert_eq!(said.status, 7, "{said:?}");
    let token: u64 = said.out.trim().parse().expect("the token of the lock");
    assert!(token > 0 && locks(&tree).is_empty());
    let said = tree.run(&["lock", "run", "k", "--", "/nowhere/to/be/found"]);
    assert_eq!(said.status, 127, "{said:?}");
    assert!(locks(&tree).is_empty());
}

#[test]
fn who_does_not_wait_ends_with_the_status_that_it_asks_for() {
    let tree = Tree::start();
    let mut holder = Holder::start(&tree, HOLDS);
    let said = conflict(&tree);
    assert_eq!(said.status, 1, "{said:?}");
    let owner = locks(&tree)[0]["owner"].as_str().expect("a string").to_owned();
    let line = format!("{owner} holds the lock, granted or last renewed at 20");
    assert!(said.err.contains(&line), "{said:?}");
    assert!(said.err.contains("--wait"), "{said:?}");
    let words = ["lock", "run", "--wait", "1", "--conflict-exit", "42", "k", "--", "true"];
    assert_eq!(tree.run(&words).status, 42);
    until("no client is in line any more", || (locks(&tree).len() == 1).then_some(()));
    assert_eq!(holder.end(), Some(0));
    assert_eq!(conflict(&tree).status, 0);
}

/// Kills these processes, and asserts that the next holder starts when the command has ended, and not before.
fn killed(whom: &[Killed]) {
    let mut tree = Tree::start();
    let mut holder = Holder::start(&tree, HOLDS);
    let command = holder.command();
    let next = tree.data.join("next");
    let script = format!(
        "test ! -d {0} || echo beside > {0}.wrong; touch {1}",
        text(&holder.place),
        text(&next)
    );
    let mut waiting = tree.command(&["lock", "run", "k", "--", "sh", "-c", &script]);
    let mut waiting =
        waiting.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command starts");
    until("the next waits", || (locks(&tree).len() == 2).then_some(()));
    for whom in whom {
        match whom {
            Killed::Run => holder.run.kill().expect("a live process"),
            Killed::Command => kill_process(command, Signal::KILL).expect("a live process"),
            Killed::Keeper => tree.kill_keeper(),
            Killed::Coordinator => tree.daemon.take().expect("a server").kill(),
        }
    }
    if tree.daemon.is_none() {
        tree.serve();
    }
    if whom.contains(&Killed::Command) {
        // A command that was killed cannot remove its directory, so look for its process instead.
        std::fs::remove_dir(&holder.place).expect("the directory exists");
    } else {
        let alive = Path::new("/proc").join(command.as_raw_nonzero().to_string());
        assert!(alive.exists() && !next.exists(), "no other client has the lock");
        let listed = locks(&tree);
        assert_eq!(listed.len(), 2, "{listed:?}");
        std::fs::write(holder.beside(".end"), "").expect("a writable file");
    }
    until("the next runs", || next.exists().then_some(()));
    assert!(waiting.wait().expect("our child").success());
    assert!(!holder.beside(".wrong").exists(), "two held the lock at the same time");
    until("the lock is free", || locks(&tree).is_empty().then_some(()));
}

#[test]
fn a_kill_of_lock_run_leaves_the_lock_with_its_command() {
    killed(&[Killed::Run]);
}

#[test]
fn a_kill_of_the_command_gives_the_lock_back() {
    killed(&[Killed::Command]);
}

#[test]
fn a_kill_of_the_coordinator_changes_nothing() {
    killed(&[Killed::Coordinator]);
}

#[test]
fn a_terminal_shows_who_holds_the_lock_that_is_waited_for() {
    let tree = Tree::start();
    let mut holder = Holder::start(&tree, HOLDS);
    let owner = locks(&tree)[0]["owner"].as_str().expect("it has an owner").to_owned();
    let (mut ours, theirs) = terminal::pair();
    let mut command = tree.command(&["lock", "run", "k", "--", "true"]);
    let mut waiting = command.stderr(theirs).spawn().expect("it runs");
    drop(command);
    let (mut seen, mut bytes) = (String::new(), [0; 1024]);
    let line = format!("waiting: held by {owner} since ");
    let line: String = line.chars().take(79).collect();
    // A read fails once the last process has closed the terminal.
    while let Ok(read @ 1..) = ours.read(&mut bytes) {
        seen += &String::from_utf8_lossy(&bytes[..read]);
        if seen.contains(&line) {
            holder.end();
        }
    }
    assert!(waiting.wait().expect("it is ours").success(), "{seen:?}");
    assert!(seen.contains(&line), "{line}: {seen:?}");
    let widths = seen.split('\r').map(|it| it.trim_end_matches("\x1b[K").chars().count());
    assert!(widths.max() <= Some(79), "{seen:?}");
    assert!(seen.ends_with("\x1b[K"), "it is cleared: {seen:?}");
}

#[test]
fn a_coordinator_that_comes_back_is_noted_once() {
    let mut tree = Tree::start();
    let place = tree.data.join("held");
    let mut command = tree.command(&["lock", "run", "k", "--", "sh", "-c", HOLDS, "sh"]);
    command.arg(&place).stdout(Stdio::null());
    let run = command.stderr(Stdio::piped()).spawn().expect("the command starts");
    until("it holds the lock", || place.exists().then_some(()));
    // The command and the lock each have a waiting request.
    until("both wait beside this request", || {
        let status = tree.get("/v1/status");
        (status["http"]["active"].as_u64() >= Some(3)).then_some(())
    });
    tree.again(|| {});
    std::fs::write(tree.data.join("held.end"), "").expect("a writable file");
    let said = done(run.wait_with_output().expect("our child"));
    assert_eq!(said.status, 0, "{said:?}");
    assert_eq!(said.err.matches("the coordinator stopped").count(), 1, "{said:?}");
}

#[test]
fn a_kill_of_the_keeper_changes_nothing() {
    killed(&[Killed::Keeper]);
}

#[test]
fn kills_in_pairs_never_give_two_the_lock() {
    use Killed::{Command, Coordinator, Keeper, Run};
    for pair in [
        [Run, Command],
        [Run, Coordinator],
        [Run, Keeper],
        [Command, Coordinator],
        [Command, Keeper],
        [Coordinator, Keeper],
    ] {
        killed(&pair);
    }
}

#[test]
fn what_a_command_leaves_holds_the_lock_on() {
    let tree = Tree::start();
    let place = tree.data.join("left");
    let script = format!(
        "setsid sh -c 'touch {0}; while [ ! -e {0}.end ]; do sleep 0.02; done' >/dev/null 2>&1 & while [ ! -e {0} ]; do sleep 0.02; done; exit 5",
        text(&place)
    );
    let said = tree.run(&["lock", "run", "k", "--", "sh", "-c", &script]);
    assert_eq!(said.status, 5, "{said:?}");
    assert!(said.err.contains("still running"), "{said:?}");
    assert_eq!(conflict(&tree).status, 1, "the process that it left is still running");
    std::fs::write(format!("{}.end", text(&place)), "").expect("a writable file");
    let said = tree.run(&["lock", "run", "--wait", "20", "k", "--", "true"]);
    assert_eq!(said.status, 0, "{said:?}");
}

#[test]
fn one_that_stops_renewing_is_killed_before_the_next_has_the_lock() {
    let tree = Tree::start();
    let place = tree.data.join("held");
    let mut command =
        tree.command(&["lock", "run", "--ttl", "1", "k", "--", "sh", "-c", HOLDS, "sh"]);
    let run = command.arg(&place).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut holder = Holder { run: run.expect("the command runs"), place };
    until("it holds the lock", || holder.place.exists().then_some(()));
    let bound = || {
        locks(&tree)
            .first()
            .is_some_and(|it| it.pointer("/kill_before_grant") == Some(&true.into()))
    };
    until("it is bound to the command", || bound().then_some(()));
    let own = Pid::from_child(&holder.run);
    kill_process(own, Signal::STOP).expect("a live process");
    let said = tree.run(&[
        "lock",
        "run",
        "--wait",
        "30",
        "k",
        "--",
        "sh",
        "-c",
        "kill -0 $0 2>/dev/null && exit 9; exit 0",
        &holder.command().as_raw_nonzero().to_string(),
    ]);
    kill_process(own, Signal::CONT).expect("a live process");
    assert_eq!(said.status, 0, "the command ends first: {said:?}");
    assert_eq!(holder.run.wait().expect("our child").code(), Some(75));
}

/// With a TTL, the lock is bound to the command and ends with it, which is no loss.
#[test]
fn a_command_that_ends_by_itself_within_the_ttl_has_lost_nothing() {
    let tree = Tree::start();
    for (seconds, status) in [("0", 0), ("0.3", 7), ("0.5", 0), ("1.2", 7)] {
        let script = format!("sleep {seconds}; exit {status}");
        let said = tree.run(&["lock", "run", "--ttl", "2", "k", "--", "sh", "-c", &script]);
        assert_eq!(said.status, status, "{seconds}: {said:?}");
        assert!(!said.err.contains("lost"), "{seconds}: {said:?}");
    }
}

#[test]
fn a_lock_that_is_taken_away_takes_the_command_along() {
    let tree = Tree::start();
    let mut holder = Holder::start(&tree, HOLDS);
    assert_eq!(tree.run(&["lock", "release", "--force", "k"]).status, 0);
    assert_eq!(holder.run.wait().expect("our child").code(), Some(75));
    let gone = Path::new("/proc").join(holder.command().as_raw_nonzero().to_string());
    until("the command is gone", || (!gone.exists()).then_some(()));
    assert_eq!(tree.run(&["lock", "release", "--force", "k"]).status, 1, "the lock is free");
}

/// Returns a command that connects over TCP.
fn by_url(daemon: &Daemon, words: &[&str]) -> Command {
    let mut command = sexton();
    let url = format!("http://{}", daemon.http());
    command.args(["lock", "run", "--url", &url]).args(words);
    command.stdin(Stdio::null());
    command
}

#[test]
fn over_tcp_a_ttl_is_renewed_while_the_command_runs() {
    let daemon = Daemon::serve(&["--memory", "--http", "127.0.0.1:0"]);
    let words = ["--ttl", "1", "k", "--", "sh", "-c", "sleep 2.5; echo $SEXTON_FENCE; exit 3"];
    let said = done(by_url(&daemon, &words).output().expect("the command runs"));
    assert_eq!(said.status, 3, "{said:?}");
    assert!(said.out.trim().parse::<u64>().is_ok(), "{said:?}");
    let said = done(
        by_url(&daemon, &["k", "--", "/nowhere/to/be/found"]).output().expect("the command runs"),
    );
    assert_eq!(said.status, 127, "{said:?}");
}

#[test]
fn over_tcp_a_lock_that_is_lost_stops_the_command_or_says_so() {
    let daemon = Daemon::serve(&["--memory", "--http", "127.0.0.1:0"]);
    for (how, status, words) in [("stop", 75, "was stopped"), ("warn", 0, "keeps running")] {
        let flags = ["--ttl", "1", "--on-lost", how, "k", "--", "sh", "-c"];
        let mut command = by_url(&daemon, &flags);
        let taken = format!(
            "'{}' lock release --force k --url http://{}; sleep 3",
            env!("CARGO_BIN_EXE_sexton"),
            daemon.http()
        );
        let said = done(command.arg(taken).output().expect("the command runs"));
        assert_eq!(said.status, status, "{said:?}");
        assert!(said.err.contains(words), "{said:?}");
    }
}

/// A coordinator that is killed while it has a request.
#[test]
fn a_coordinator_that_ends_before_it_answers_is_named_with_what_to_do() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let socket = files.path().join("sexton.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let data = text(files.path());
    let ends = Builder::new().name("ends".to_owned());
    let ends = ends.spawn(move || {
        for wait in [false, true].into_iter().cycle().take(8) {
            let (mut stream, _) = listener.accept().expect("a connection");
            if wait {
                // The end of a connection that was read is no reset.
                let _read = stream.read(&mut [0; 4096]);
            }
        }
    });
    for words in
        [&["lock", "list"][..], &["queue", "peek", "1"], &["work", "mails", "--", "true"], &["ps"]]
    {
        for _ in 0..2 {
            let mut command = sexton();
            let done =
                done(command.args(words).env("SEXTON_DATA", data).output().expect("it runs"));
            let help = format!("`sexton serve --data {data}` starts it");
            assert_eq!(done.status, 3, "{words:?}: {done:?}");
            assert!(done.err.contains("the request to"), "{words:?}: {done:?}");
            assert!(done.err.contains(&help), "{words:?}: {done:?}");
        }
    }
    let ends = ends.expect("a new thread");
    ends.join().expect("every command connected once");
}

#[test]
fn a_wait_that_was_too_short_is_to_be_longer() {
    let tree = Tree::start();
    let mut holder = Holder::start(&tree, HOLDS);
    for words in [
        &["lock", "run", "--wait", "1", "k", "--", "true"][..],
        &["lock", "acquire", "k", "--wait", "1"],
    ] {
        let done = tree.run(words);
        assert_eq!(done.status, 1, "{done:?}");
        assert!(done.err.contains("holds the lock"), "{done:?}");
        assert!(done.err.contains("help: a longer --wait"), "{done:?}");
    }
    let conflict = conflict(&tree).err;
    assert!(conflict.contains("--wait 10m"), "{conflict}");
    holder.end();
}

#[test]
fn a_command_line_that_is_almost_right_is_answered_with_what_is_missing() {
    for (words, said) in [
        (&["k", "./backup"][..], "`--` comes before the command: "),
        (&["k", "./backup", "x"], "`--` comes before the command: "),
        (&["k", "./backup", "--full"], "`--` comes before the command: "),
        (&["--wiat", "5", "k", "--", "true"], "'--wait'"),
        (&["--wait", "300ms", "k", "--", "true"], "try 1s"),
        (&["--wait", "soon", "k", "--", "true"], "such as 90s, 5m"),
        (&["--priority", "high", "k", "--", "true"], "expected a number from 0 to 255"),
    ] {
        let mut command = sexton();
        let done = done(command.args(["lock", "run"]).args(words).output().expect("it runs"));
        assert_eq!(done.status, 2, "{done:?}");
        assert!(done.err.contains(said), "{said}: {done:?}");
    }
}

/// A `sexton lock run` that waits in line, and writes its owner to a file when it has the lock.
struct Waiter(Child);

impl Waiter {
    fn start(tree: &Tree, owner: &str) -> Self {
        let got = format!("echo {owner} >> {}", text(&tree.data.join("got")));
        let mut command = tree.command(&["lock", "run", "--owner", owner, "k", "--", "sh", "-c"]);
        let run = command.arg(got).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let waiter = Self(run.expect("the command starts"));
        let is_its = |it: &Value| it.pointer("/owner") == Some(&owner.into());
        until("it waits", || locks(tree).iter().any(is_its).then_some(()));
        waiter
    }

    fn ends_well(&mut self) {
        let status = until("it ends", || self.0.try_wait().expect("our child"));
        assert!(status.success());
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The place of the first waiter is bound to its process, which stays alive: nothing but the restart shows that it cannot take the lock.
#[test]
fn a_waiter_that_is_not_back_after_a_restart_is_passed_over_and_gets_the_lock_next() {
    let mut tree = Tree::start();
    let mut holder = Holder::start(&tree, HOLDS);
    let mut first = Waiter::start(&tree, "first");
    let mut second = Waiter::start(&tree, "second");
    let stopped = Pid::from_child(&first.0);
    kill_process(stopped, Signal::STOP).expect("a live process");
    tree.daemon.take().expect("a server").kill();
    tree.serve();
    let are_away = || locks(&tree).iter().map(|it| it["away"] == true).collect::<Vec<_>>();
    until("the second is back", || (are_away() == [false, true, false]).then_some(()));
    assert!(tree.well(&["lock", "list", "k"]).contains(" 2 away "));
    let place = tree.well(&["lock", "place", "k", "--owner", "first"]);
    assert_eq!(place, "place 2: it waits, and its client is away\n");
    assert_eq!(holder.end(), Some(0));
    second.ends_well();
    kill_process(stopped, Signal::CONT).expect("a live process");
    first.ends_well();
    let got = std::fs::read_to_string(tree.data.join("got")).expect("both had the lock");
    assert_eq!(got, "second\nfirst\n");
}
