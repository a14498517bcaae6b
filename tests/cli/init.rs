//! `sexton serve` as PID 1 of a PID namespace, as in a container. It reaps orphans, still records how the processes that
//! it follows ended, and lets processes finish when it stops.

use crate::coordinator::{CommandOutput, done};
use crate::daemon::{Daemon, PROGRAM, forget_environment, serve_by, text};
use crate::groups;
use crate::left_out::left_out;
use crate::patience::until;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A coordinator that is PID 1 of a namespace, and ends with the whole namespace.
struct Container {
    daemon: Option<Daemon>,
    init: Pid,
    data: PathBuf,
    files: TempDir,
}

impl Container {
    /// Starts a container. Reports a skipped test and returns `None` if this user may not create namespaces.
    fn start(config: &str) -> Option<Self> {
        if !geteuid().is_root() {
            left_out("PID 1: namespaces are root's to make");
            return None;
        }
        let files = tempfile::tempdir().expect("a temporary directory");
        let config_file = files.path().join("sexton.toml");
        std::fs::write(&config_file, config).expect("a writable file");
        let data = files.path().join("data");
        let daemon = serve(&data, &config_file);
        Some(Self { init: init_of(&daemon), daemon: Some(daemon), data, files })
    }

    /// Starts another coordinator on the same directory, in another namespace.
    fn again(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            // The directory is in use until the whole namespace of the killed coordinator has ended.
            daemon.end();
        }
        let daemon = serve(&self.data, &self.files.path().join("sexton.toml"));
        self.init = init_of(&daemon);
        self.daemon = Some(daemon);
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("a server")
    }

    /// Runs a command in the container's namespaces.
    fn inside(&self, words: &[&str]) -> CommandOutput {
        let mut command = Command::new("nsenter");
        forget_environment(&mut command);
        let init = self.init.as_raw_nonzero().to_string();
        command.args(["--target", &init, "--pid", "--mount", "--"]);
        command.args(words).env("SEXTON_DATA", &self.data);
        done(command.stdin(Stdio::null()).output().expect("the command runs"))
    }

    fn well(&self, words: &[&str]) -> String {
        let done = self.inside(words);
        assert_eq!((done.status, done.err.as_str()), (0, ""), "{done:?}");
        done.out.trim_end().to_owned()
    }

    fn sexton(&self, words: &[&str]) -> String {
        self.well(&[&[PROGRAM], words].concat())
    }

    fn detach(&self, script: &str) -> String {
        self.sexton(&["run", "--detach", "--grace", "20s", "--", "sh", "-c", script])
    }

    fn record(&self, id: &str) -> Value {
        let printed = self.sexton(&["ps", id, "--json"]);
        serde_json::from_str(&printed).expect("valid JSON")
    }

    /// Stops it cleanly, as a container is stopped. Returns its log.
    fn stop(&mut self) -> String {
        kill_process(self.init, Signal::TERM).expect("a live process");
        let (status, log) = self.daemon.take().expect("a server").end();
        assert!(status.success(), "{log}");
        log
    }

    fn kill_keeper(&self) {
        let held = self.data.join("keeper.lock");
        let pid = std::fs::read_to_string(held).expect("there is a keeper");
        self.well(&["sh", "-c", &format!("kill -KILL {}", pid.trim())]);
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        drop(self.daemon.take());
        groups::remove(&self.data);
    }
}

fn serve(data: &Path, config: &Path) -> Daemon {
    let mut starter = Command::new("unshare");
    starter.args(["--pid", "--fork", "--mount-proc", "--kill-child=KILL", "--"]);
    let flags = ["--data", text(data), "--config", text(config)];
    Daemon::start(serve_by(starter, &flags))
}

/// Returns the PID, outside the namespace, of the process that is PID 1 in it.
fn init_of(daemon: &Daemon) -> Pid {
    let starter = u32::try_from(daemon.pid().as_raw_nonzero().get()).expect("a PID");
    let children = children_of(starter);
    let [init] = children[..] else {
        panic!("not one child: {children:?}");
    };
    Pid::from_raw(init.cast_signed()).expect("a PID")
}

fn children_of(pid: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("the directory exists").flatten() {
        let name = entry.file_name();
        let Some(child) = name.to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        if stat(child).is_some_and(|(_, parent)| parent == pid) {
            children.push(child);
        }
    }
    children
}

/// Returns the state and the parent of a process, or `None` if there is no such process.
pub(crate) fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_whitespace();
    let state = words.next()?.chars().next()?;
    Some((state, words.next()?.parse().ok()?))
}

fn zombies_of(pid: Pid) -> Vec<u32> {
    let pid = u32::try_from(pid.as_raw_nonzero().get()).expect("a PID");
    let mut children = children_of(pid);
    children.retain(|child| stat(*child).is_some_and(|(state, _)| state == 'Z'));
    children
}

#[test]
fn what_pid_1_inherits_is_reaped() {
    let Some(container) = Container::start("") else {
        return;
    };
    // The parent of the orphan was started from outside the namespace, and ends before the orphan.
    let orphan = |name: &str| format!("(sleep 0.2; echo done > {}) &", text(&container.file(name)));
    let names: Vec<String> = (0..20).map(|number| format!("orphan-{number}")).collect();
    for name in &names {
        container.well(&["sh", "-c", &orphan(name)]);
    }
    until("all orphans have ended", || {
        names.iter().all(|name| container.file(name).exists()).then_some(())
    });
    until("they are reaped", || zombies_of(container.init).is_empty().then_some(()));
}

#[test]
fn how_it_ended_is_known_of_what_a_killed_keeper_left_to_pid_1() {
    let Some(container) = Container::start("") else {
        return;
    };
    let gate = container.file("gate");
    let wait = format!("until test -e {}; do sleep 0.05; done; ", text(&gate));
    let coded = container.detach(&format!("{wait} exit 7"));
    let killed = container.detach(&format!("{wait} kill -TERM $$"));
    for id in [&coded, &killed] {
        until("it runs", || (container.record(id)["status"] == "running").then_some(()));
    }
    container.kill_keeper();
    // An unrelated process also ends.
    container.well(&["sh", "-c", "(sleep 0.1) &"]);
    std::fs::write(&gate, "").expect("a writable file");
    for id in [&coded, &killed] {
        until("it has ended", || (container.record(id)["status"] == "exited").then_some(()));
    }
    let exit = |id: &str| {
        let record = container.record(id);
        (record["code"].as_u64(), record["signal"].as_u64())
    };
    assert_eq!(exit(&coded), (Some(7), None), "{}", container.record(&coded));
    assert_eq!(exit(&killed), (Some(143), Some(15)));
    until("all are reaped", || zombies_of(container.init).is_empty().then_some(()));
}

#[test]
fn a_stop_of_pid_1_lets_services_and_jobs_come_to_their_ends() {
    let slow = |file: &Path| {
        let file = text(file);
        format!(
            "trap 'sleep 1; echo whole > {file}; exit 3' TERM; echo up; while :; do sleep 0.05; done"
        )
    };
    let files = tempfile::tempdir().expect("a temporary directory");
    let service = files.path().join("service");
    let config = format!(
        "[services.slow]\ncommand = [\"sh\", \"-c\", \"{}\"]\ngrace = \"20s\"\n",
        slow(&service)
    );
    let Some(mut container) = Container::start(&config) else {
        return;
    };
    let job = container.file("job");
    let id = container.detach(&slow(&job));
    let up = |path: PathBuf| {
        until("it is running", || {
            let said = std::fs::read_to_string(&path).ok()?;
            said.contains("up").then_some(())
        });
    };
    up(container.data.join("run").join(&id).join("stdout.log"));
    up(container.data.join("services/slow/stdout.log"));
    let log = container.stop();
    for file in [&service, &job] {
        let whole = std::fs::read_to_string(file);
        assert_eq!(whole.ok().as_deref(), Some("whole\n"), "{log}");
    }
    container.again();
    assert_eq!(container.record(&id)["code"], 3);
}

#[test]
fn what_was_killed_with_pid_1_is_not_said_to_run_by_the_next() {
    let Some(mut container) = Container::start("") else {
        return;
    };
    let id = container.detach("exec sleep 1000");
    until("it runs", || (container.record(&id)["status"] == "running").then_some(()));
    kill_process(container.init, Signal::KILL).expect("a live process");
    container.again();
    until("it is known to be gone", || (container.record(&id)["status"] == "exited").then_some(()));
    let record = container.record(&id);
    assert!(record["code"].is_null(), "{record}");
    drop(container.daemon().log());
}
