//! Commands in the foreground on a terminal, and what they take over from their caller.

use crate::coordinator::done;
use crate::daemon::{Gathered, PROGRAM};
use crate::left_out::left_out;
use crate::patience::until;
use crate::terminal;
use crate::tree::Tree;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::termios::{OutputModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// A program on a terminal, as the leader of the terminal's session.
struct Session {
    ours: File,
    theirs: File,
    process: Child,
    seen: Gathered,
}

impl Session {
    /// Starts a program on a new terminal. Reports a skipped test and returns `None` if `setsid` or `bash` is missing.
    fn start(tree: &Tree, words: &[&str]) -> Option<Self> {
        let (ours, theirs, process) = on_terminal(tree, words)?;
        Some(Self {
            seen: Gathered::from(ours.try_clone().expect("descriptors are left")),
            process,
            ours,
            theirs,
        })
    }

    /// Starts `sexton run` with a shell script on a new terminal.
    fn run(tree: &Tree, script: &str) -> Option<Self> {
        Self::start(tree, &[PROGRAM, "run", "--", "sh", "-c", script])
    }

    fn until_seen(&self, words: &str) -> String {
        until(&format!("{words:?} on the terminal"), || {
            let seen = self.seen.so_far();
            seen.contains(words).then_some(seen)
        })
    }

    fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).expect("connected");
    }

    fn ends(&mut self) -> Option<i32> {
        let ended = || self.process.try_wait().expect("our child");
        until("the end of the session", ended).code()
    }

    fn is_raw(&self) -> bool {
        is_raw(&self.theirs)
    }
}

/// Returns whether a terminal is in raw mode.
fn is_raw(terminal: &File) -> bool {
    let modes = tcgetattr(terminal).expect("it is a terminal");
    // A shell that edits its line changes other modes.
    !modes.output_modes.contains(OutputModes::OPOST)
}

/// Starts a program on a new terminal of 80 by 24 characters. Returns our end, the program's and the program, or `None` as above.
fn on_terminal(tree: &Tree, words: &[&str]) -> Option<(File, File, Child)> {
    let exists = |program: &str| {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !exists("setsid") || !exists("bash") {
        left_out("commands on a terminal: there is no setsid or no bash");
        return None;
    }
    let (ours, theirs) = terminal::pair();
    resize(&ours, (24, 80));
    let end = || Stdio::from(theirs.try_clone().expect("descriptors are left"));
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait"]).args(words);
    command.env("SEXTON_DATA", &tree.data).env("SEXTON", PROGRAM);
    let process = command.stdin(end()).stdout(end()).stderr(end()).spawn();
    Some((ours, theirs, process.expect("the command runs")))
}

fn resize(terminal: &File, (rows, columns): (u16, u16)) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("it has a size");
}

/// Returns the PID that a script printed as `pid NUMBER.`.
fn pid_in(seen: &str) -> Pid {
    let (_, rest) = seen.split_once("pid ").expect("it is printed");
    let (pid, _) = rest.split_once('.').expect("a point follows");
    let pid = pid.parse().ok().and_then(Pid::from_raw);
    pid.expect("a PID")
}

fn state_of(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn a_command_has_a_terminal_of_its_own_and_the_callers_is_restored() {
    let tree = Tree::start();
    let script = "stty size; tty -s && echo it is one; echo password? > /dev/tty; read word < /dev/tty; echo \"<$word>\"; exit 7";
    let Some(mut session) = Session::run(&tree, script) else {
        return;
    };
    session.until_seen("password?");
    session.press("hush\n");
    assert_eq!(session.ends(), Some(7));
    for words in ["24 80", "it is one", "<hush>"] {
        session.until_seen(words);
    }
    assert!(!session.is_raw(), "the modes are restored");
}

#[test]
fn a_command_learns_of_a_new_size_and_of_the_interrupt_key() {
    let tree = Tree::start();
    let script = "trap 'stty size' WINCH; trap 'echo interrupted; exit 3' INT; echo up; while :; do sleep 0.05; done";
    let Some(mut session) = Session::run(&tree, script) else {
        return;
    };
    session.until_seen("up");
    until("the keys are passed on", || session.is_raw().then_some(()));
    resize(&session.ours, (31, 101));
    session.until_seen("31 101");
    session.press("\u{3}");
    session.until_seen("interrupted");
    assert_eq!(session.ends(), Some(3));
}

#[test]
fn a_command_is_suspended_with_its_client_and_continues_with_it() {
    let tree = Tree::start();
    let script = "\"$SEXTON\" run -- sh -c 'echo pid $$.; while :; do sleep 0.05; done'; echo \"status $?\"; read line; echo foreground; fg; echo over";
    let words = ["bash", "--norc", "-c", &format!("set -m; {script}")];
    let Some(mut session) = Session::start(&tree, &words) else {
        return;
    };
    let command = pid_in(&session.until_seen("."));
    until("the keys are passed on", || session.is_raw().then_some(()));
    session.press("\u{1a}");
    session.until_seen("status ");
    assert_eq!(state_of(command), Some('T'));
    assert!(!session.is_raw(), "the modes are the shell's");
    session.press("\n");
    session.until_seen("foreground");
    until("it continues", || state_of(command).filter(|state| *state != 'T'));
    until("the keys are passed on", || session.is_raw().then_some(()));
    session.press("\u{3}");
    session.until_seen("over");
    session.ends();
}

#[test]
fn a_command_in_the_background_takes_no_input() {
    let tree = Tree::start();
    let script = "set -m; \"$SEXTON\" lock run k -- sh -c 'echo pid $$.; exec cat' & read line; echo \"the shell read $line\"; kill %1; wait";
    let Some(mut session) = Session::start(&tree, &["bash", "--norc", "-c", script]) else {
        return;
    };
    session.until_seen(".");
    session.press("hello\n");
    session.until_seen("the shell read hello");
    session.ends();
}

#[test]
fn a_command_that_is_moved_to_the_foreground_takes_input() {
    let tree = Tree::start();
    // An interactive shell reads with modes of its own, which the command must not take over.
    let Some(mut session) = Session::start(&tree, &["bash", "--norc", "-i"]) else {
        return;
    };
    session.press(
        "\"$SEXTON\" run -- sh -c 'echo \"pid $$.\"; read line; echo \"it read <$line>\"' &\n",
    );
    until("it runs", || {
        let seen = session.seen.so_far();
        let mut shown = seen.split("pid ").skip(1);
        shown.any(|rest| rest.starts_with(|next: char| next.is_ascii_digit())).then_some(())
    });
    session.press("fg\n");
    until("the keys are passed on", || session.is_raw().then_some(()));
    session.press("hello\r");
    session.until_seen("it read <hello>");
    until("the terminal is the shell's", || (!session.is_raw()).then_some(()));
    session.press("exit\n");
    session.ends();
}

#[test]
fn keys_and_output_survive_closed_streams_and_a_quick_end() {
    let tree = Tree::start();
    for number in 0..20 {
        let Some(mut session) = Session::run(&tree, &format!("echo quick {number}")) else {
            return;
        };
        assert_eq!(session.ends(), Some(0));
        session.until_seen(&format!("quick {number}"));
    }
    let script = "trap 'exit 4' INT; echo up; exec < /dev/null > /dev/null 2>&1; while :; do sleep 0.05; done";
    let Some(mut session) = Session::run(&tree, script) else {
        return;
    };
    session.until_seen("up");
    until("the keys are passed on", || session.is_raw().then_some(()));
    session.press("\u{3}");
    assert_eq!(session.ends(), Some(4));
}

#[test]
fn a_command_is_hung_up_with_its_terminal_even_without_a_coordinator() {
    let mut tree = Tree::start();
    let file = tree.data.join("pid");
    let script = format!("echo pid $$. > {}; exec sleep 1000", file.display());
    let words = [PROGRAM, "run", "--", "sh", "-c", &script];
    let Some((ours, theirs, mut process)) = on_terminal(&tree, &words) else {
        return;
    };
    let command = until("it runs", || {
        let words = std::fs::read_to_string(&file).ok()?;
        words.contains('.').then(|| pid_in(&words))
    });
    until("the keys are passed on", || is_raw(&theirs).then_some(()));
    tree.again(|| {
        drop((ours, theirs));
        until("it has ended", || {
            let state = state_of(command);
            state.is_none_or(|state| state == 'Z').then_some(())
        });
    });
    process.wait().expect("our child");
}

#[test]
fn a_signal_that_the_caller_ignores_is_not_for_the_command() {
    let tree = Tree::start();
    let script = "trap '' HUP; \"$SEXTON\" run -- sh -c 'echo up; read line; exit 6'";
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{script}; exit $?")]);
    command.env("SEXTON_DATA", &tree.data).env("SEXTON", PROGRAM);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.process_group(0).spawn().expect("it runs");
    let seen = Gathered::from(process.stdout.take().expect("it is piped"));
    until("it runs", || seen.so_far().contains("up").then_some(()));
    let group = Pid::from_child(&process);
    kill_process_group(group, Signal::HUP).expect("it exists");
    drop(process.stdin.take());
    assert_eq!(process.wait().expect("our child").code(), Some(6));
}

#[test]
fn a_shell_has_job_control() {
    let tree = Tree::start();
    let words = [PROGRAM, "run", "--", "bash", "--norc", "-i"];
    let Some(mut session) = Session::start(&tree, &words) else {
        return;
    };
    until("the keys are passed on", || session.is_raw().then_some(()));
    session.press("sleep 1000\n");
    until("it runs", || {
        let all = std::fs::read_dir("/proc").expect("it exists").flatten();
        let shell = tree.all().first()?["pid"].as_i64()?;
        let is_child = |path: std::path::PathBuf| {
            let stat = std::fs::read_to_string(path.join("stat")).unwrap_or_default();
            stat.contains("(sleep) ") && stat.contains(&format!(" {shell} "))
        };
        all.map(|it| it.path()).any(is_child).then_some(())
    });
    session.press("\u{1a}");
    session.until_seen("Stopped");
    session.press("kill -9 %1\nexit 5\n");
    // The shell asks again if it has jobs that it has not reaped.
    until("the end of the session", || {
        drop(session.ours.write_all(b"exit 5\n"));
        session.process.try_wait().expect("our child")
    });
    let seen = session.seen.so_far();
    assert!(!seen.contains("no job control"), "{seen}");
}

#[test]
fn a_command_takes_over_descriptors_priorities_and_processors() {
    let tree = Tree::start();
    let shell = |script: &str| {
        let mut command = Command::new("bash");
        command.args(["--norc", "-c", script]).stdin(Stdio::null());
        command.env("SEXTON_DATA", &tree.data).env("SEXTON", PROGRAM);
        done(command.output().expect("bash runs"))
    };
    for (with, without) in [
        ("\"$SEXTON\" run -- cat <(echo one) <(echo two)", "cat <(echo one) <(echo two)"),
        (
            "exec 5> >(cat); \"$SEXTON\" run -- sh -c 'echo five >&5; ls /proc/self/fd | wc -l'",
            "exec 5> >(cat); sh -c 'echo five >&5; ls /proc/self/fd | wc -l'",
        ),
        ("nice -n 3 \"$SEXTON\" run -- nice", "nice -n 3 nice"),
        ("ionice -c 3 \"$SEXTON\" run -- ionice", "ionice -c 3 ionice"),
        (
            "taskset -c 0 \"$SEXTON\" run -- grep Cpus_allowed: /proc/self/status",
            "taskset -c 0 grep Cpus_allowed: /proc/self/status",
        ),
    ] {
        let (own, expected) = (shell(with), shell(without));
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(own.status, expected.status, "{with}: {own:?}");
        assert_eq!(sorted(&own.out), sorted(&expected.out), "{with}: {own:?}");
    }
}

#[test]
fn a_suspended_process_handles_a_stop_without_waiting_for_the_end_of_its_grace() {
    let tree = Tree::start();
    let script = "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done";
    for flags in [&[][..], &["--tree"]] {
        let words = ["run", "--grace", "1h", "--detach", "--", "sh", "-c", script];
        let id = tree.well(&words);
        let id = id.trim_end();
        let pid = until("it is ready", || {
            let logs = tree.run(&["logs", id]);
            let pid = tree.record(id)["pid"].as_i64();
            pid.filter(|_| logs.out.contains("up"))
        });
        let pid = Pid::from_raw(i32::try_from(pid).expect("a PID")).expect("a PID");
        kill_process(pid, Signal::STOP).expect("a live process");
        tree.well(&[&["kill", id, "--wait"][..], flags].concat());
        assert_eq!(tree.record(id)["code"], 7);
    }
}
