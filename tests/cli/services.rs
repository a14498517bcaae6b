//! Services with the real program: they are defined in its configuration, restarted when they end, and stopped with it.

use crate::coordinator::{CommandOutput, command, done};
use crate::daemon::{Daemon, sexton, text};
use crate::patience::until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;

/// A coordinator with services. Its services and its keeper end with the test.
pub(crate) struct Application {
    pub(crate) daemon: Option<Daemon>,
    pub(crate) files: TempDir,
    flags: Vec<&'static str>,
}

/// A command that runs until it is stopped.
const LONG: &str = "command = [\"sleep\", \"1000\"]\n";

impl Application {
    pub(crate) fn start(config: &str) -> Self {
        Self::with(config, &[])
    }

    fn with(config: &str, flags: &[&'static str]) -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let mut application = Self { daemon: None, files, flags: flags.to_vec() };
        application.write(config);
        application.serve();
        application
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.files.path().join("data")
    }

    fn write(&self, config: &str) {
        let file = self.files.path().join("sexton.toml");
        std::fs::write(file, config).expect("a writable file");
    }

    pub(crate) fn serve(&mut self) {
        let (data, file) = (self.data(), self.files.path().join("sexton.toml"));
        let mut flags = vec!["--data", text(&data), "--config", text(&file)];
        flags.extend(&self.flags);
        self.daemon = Some(Daemon::serve(&flags));
    }

    pub(crate) fn kill(&mut self) {
        self.daemon.take().expect("a server").kill();
    }

    /// Stops it cleanly. Returns its log.
    fn stop(&mut self) -> String {
        let daemon = self.daemon.take().expect("a server");
        daemon.signal(Signal::TERM);
        let (status, log) = daemon.end();
        assert!(status.success(), "{log}");
        log
    }

    pub(crate) fn run(&self, words: &[&str]) -> CommandOutput {
        let words = [&["service"], words].concat();
        let mut command = command(&self.data(), &words);
        let output = command.stdin(Stdio::null()).output();
        done(output.expect("the command runs"))
    }

    pub(crate) fn well(&self, words: &[&str]) -> String {
        let done = self.run(words);
        assert_eq!((done.status, done.err.as_str()), (0, ""), "{done:?}");
        done.out
    }

    pub(crate) fn view(&self, name: &str) -> Value {
        let printed = self.well(&["status", name, "--json"]);
        let mut said: Value = serde_json::from_str(&printed).expect("valid JSON");
        let view = said.pointer_mut("/services/0").map(Value::take);
        view.expect("it exists")
    }

    pub(crate) fn status(&self, name: &str) -> String {
        let view = self.view(name);
        let status = view.pointer("/status").and_then(Value::as_str);
        status.expect("it has a status").to_owned()
    }

    /// Returns the PID of a service's first process, or `None` if it is not running.
    pub(crate) fn running(&self, name: &str) -> Option<i32> {
        let view = self.view(name);
        let runs = view.pointer("/status")? == "running";
        let pid = view.pointer("/instances/0/pid").filter(|_| runs)?;
        i32::try_from(pid.as_i64()?).ok()
    }

    /// Waits until the service is running. Returns its PID.
    pub(crate) fn until_running(&self, name: &str) -> i32 {
        until(&format!("{name} runs"), || self.running(name))
    }

    pub(crate) fn until_status(&self, name: &str, status: &str) {
        until(&format!("{name} is {status}"), || (self.status(name) == status).then_some(()));
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        // Let a coordinator stop the services, because the end of the keeper does not.
        if self.daemon.is_none() {
            self.serve();
        }
        drop(self.run(&["stop", "--all"]));
        let held = std::fs::read_to_string(self.data().join("keeper.lock"));
        let keeper = held.ok().and_then(|pid| Pid::from_raw(pid.trim().parse().ok()?));
        if let Some(keeper) = keeper {
            // The process may have ended already.
            let _ = kill_process(keeper, Signal::KILL);
        }
    }
}

fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    // A zombie has ended.
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

pub(crate) fn kill(pid: i32) {
    let pid = Pid::from_raw(pid).expect("a PID");
    kill_process(pid, Signal::KILL).expect("a live process");
}

#[test]
fn what_cannot_be_together_is_refused() {
    for (lines, words) in [
        ("watchdog = \"1s\"", "a watchdog needs ready"),
        ("ready = \"line:\"", "the text to wait for must have 1 to"),
        ("limits = { core = [2, 1] }", "there can be at most 16"),
        ("user = \"\"", "the name or number of a user or group"),
    ] {
        let found = refused(&format!("[services.a]\ncommand = [\"true\"]\n{lines}\n"));
        let words = format!("services.a: {words}");
        assert!(found.contains(&words), "{lines}\n{found}");
    }
}

#[test]
fn a_service_that_is_killed_is_back_as_another_process() {
    let application = Application::start(&format!("[services.web]\n{LONG}"));
    let mut last = application.until_running("web");
    for restarts in 1..=3 {
        kill(last);
        last = until("it is back", || application.running("web").filter(|pid| *pid != last));
        let view = application.view("web");
        assert_eq!(view["instances"][0]["restarts"], restarts);
        assert_eq!(view["instances"][0]["last"]["signal"], 9);
    }
}

#[test]
fn one_that_ends_too_often_is_given_up_and_can_be_started_again() {
    let application = Application::start(
        "[services.bad]\ncommand = [\"sh\", \"-c\", \"test -e go || exit 3; exec sleep 1000\"]\n\
         intensity = 2\nperiod = \"1h\"\nbackoff = { first = \"10ms\", max = \"20ms\" }\n",
    );
    application.until_status("bad", "failed");
    let daemon = application.daemon.as_ref().expect("a server");
    daemon.until_logged("service-failed service=bad");
    let listed = application.well(&[]);
    assert!(
        listed.contains("failed")
            && listed.contains("exit 3; gave up after 2 restarts in 1 h: sexton service start bad"),
        "{listed}"
    );
    let view = application.view("bad");
    let restarts = &view["instances"][0]["restarts"];
    assert_eq!((restarts.as_u64(), view["instances"][0]["pid"].as_u64()), (Some(2), None));
    std::fs::write(application.files.path().join("go"), "").expect("a writable file");
    application.well(&["start", "bad"]);
    assert!(application.running("bad").is_some());
}

#[test]
fn a_wait_before_a_restart_is_shown_and_a_start_ends_it() {
    let application = Application::start(
        "[services.slow]\ncommand = [\"sh\", \"-c\", \"test -e go || exit 3; exec sleep 1000\"]\n\
         backoff = { first = \"1h\", max = \"1h\" }\n",
    );
    application.until_status("slow", "backoff");
    let listed = application.well(&[]);
    assert!(listed.contains("again in"), "{listed}");
    std::fs::write(application.files.path().join("go"), "").expect("a writable file");
    application.well(&["start", "slow"]);
    assert!(application.running("slow").is_some());
}

#[test]
fn services_start_after_those_that_they_come_after() {
    let application = Application::start(&format!(
        "[services.a-web]\n{LONG}after = [\"migrate\"]\n\
         [services.migrate]\ncommand = [\"/nowhere/migrate\"]\nrestart = \"never\"\n"
    ));
    application.until_status("migrate", "failed");
    assert_eq!(application.status("a-web"), "waiting");
    // The service cannot start yet, and the request does not wait for that.
    let started = application.run(&["start", "a-web"]);
    assert_eq!(started.status, 1, "{started:?}");
    assert!(started.err.contains("a-web is waiting"), "{started:?}");
    let listed = application.well(&[]);
    assert!(listed.contains("for migrate"), "{listed}");
    let mended = format!(
        "[services.a-web]\n{LONG}after = [\"migrate\"]\n\
         [services.migrate]\ncommand = [\"true\"]\nrestart = \"never\"\n"
    );
    application.write(&mended);
    application.well(&["reload"]);
    application.until_running("a-web");
    application.until_status("migrate", "finished");
}

#[test]
fn a_stop_outlives_the_kill_of_the_coordinator_and_nothing_else_is_touched_by_that() {
    let mut application =
        Application::start(&format!("[services.web]\n{LONG}[services.worker]\n{LONG}"));
    let (web, worker) = (application.until_running("web"), application.until_running("worker"));
    let stopped = application.well(&["stop", "web"]);
    assert!(stopped.contains("stopped"), "{stopped}");
    assert!(!lives(web));
    application.kill();
    application.serve();
    assert_eq!(application.status("web"), "stopped");
    assert_eq!(application.until_running("worker"), worker);
    application.well(&["start", "web"]);
    assert!(application.running("web").is_some_and(|pid| pid != web));
}

#[test]
fn one_that_ends_while_nobody_looks_is_launched_by_the_next_start() {
    let mut application = Application::start(&format!("[services.web]\n{LONG}"));
    let web = application.until_running("web");
    application.kill();
    kill(web);
    until("it has ended", || (!lives(web)).then_some(()));
    application.serve();
    let again = until("it is back", || application.running("web").filter(|pid| *pid != web));
    assert_eq!(application.view("web")["instances"][0]["last"]["signal"], 9);
    assert!(lives(again));
}

#[test]
fn a_reload_touches_only_what_changed() {
    let with = |more: &str| format!("[services.same]\n{LONG}[services.changed]\n{LONG}{more}");
    let gone = format!("[services.gone]\n{LONG}");
    let application = Application::start(&with(&gone));
    let same = application.until_running("same");
    let changed = application.until_running("changed");
    let gone = application.until_running("gone");
    application.write(&with(&format!("env = {{ COLOUR = \"red\" }}\n[services.new]\n{LONG}")));
    application.well(&["reload"]);
    application.until_running("new");
    until("it was replaced", || application.running("changed").filter(|pid| *pid != changed));
    until("it is gone", || (application.run(&["status", "gone"]).status == 1).then_some(()));
    assert!(!lives(gone) && !lives(changed));
    assert_eq!(application.running("same"), Some(same));
    // A wrong configuration changes nothing, and its problem is shown in the status.
    application.write("[services.same]\ncommand = [\"true\"]\nafter = [\"none\"]\n");
    assert_eq!(application.run(&["reload"]).status, 1);
    let daemon = application.daemon.as_ref().expect("a server");
    daemon.until_logged("there is no service none");
    assert_eq!(application.running("same"), Some(same));
}

#[test]
fn a_reload_of_what_cannot_be_says_so_and_changes_nothing() {
    let application = Application::start(&format!("[services.one]\n{LONG}"));
    let pid = application.until_running("one");
    application.write("[services.one]\ncommand = [\n");
    let done = application.run(&["reload"]);
    assert_eq!(done.status, 1, "{done:?}");
    assert!(done.err.contains("sexton.toml:2"), "{done:?}");
    let status = done_of(&application, &["status"]);
    assert!(
        status.contains("warning     Configuration: The last reload could not apply a setting: "),
        "{status}"
    );
    assert_eq!(application.running("one"), Some(pid));
    // Once the configuration is correct, the problem is no longer shown.
    application.write(&format!("[services.one]\n{LONG}"));
    application.well(&["reload"]);
    let status = done_of(&application, &["status"]);
    assert!(!status.contains("Configuration"), "{status}");
    assert_eq!(application.running("one"), Some(pid));
}

/// Runs a command that connects to the coordinator. Returns its output.
fn done_of(application: &Application, words: &[&str]) -> String {
    let mut command = command(&application.data(), words);
    done(command.output().expect("the command runs")).out
}

#[test]
fn a_restart_replaces_every_process() {
    let application = Application::start(&format!("[services.web]\n{LONG}instances = 2\n"));
    application.until_running("web");
    let pids = || {
        let view = application.view("web");
        let all = view["instances"].as_array().cloned().unwrap_or_default();
        all.iter().map(|it| it["pid"].as_i64()).collect::<Vec<_>>()
    };
    let before = pids();
    application.well(&["restart", "web"]);
    let after = pids();
    assert_eq!((before.len(), after.len()), (2, 2));
    assert!(after.iter().all(|pid| pid.is_some() && !before.contains(pid)));
}

#[test]
fn a_stop_in_good_order_ends_services_and_the_next_start_brings_them_back() {
    let mut application = Application::start(&format!(
        "[services.db]\n{LONG}[services.web]\n{LONG}after = [\"db\"]\n"
    ));
    let (db, web) = (application.until_running("db"), application.until_running("web"));
    let log = application.stop();
    assert!(log.contains("services stopped"), "{log}");
    assert!(!lives(db) && !lives(web));
    application.serve();
    assert_ne!(application.until_running("web"), web);
    assert_ne!(application.until_running("db"), db);
}

#[test]
fn services_that_are_left_run_on_and_are_found_again() {
    let config = format!("[services.web]\n{LONG}");
    let mut application = Application::with(&config, &["--on-stop", "leave"]);
    let web = application.until_running("web");
    application.stop();
    assert!(lives(web));
    application.serve();
    assert_eq!(application.until_running("web"), web);
}

#[test]
fn output_is_kept_over_restarts() {
    let application = Application::start(
        "[services.web]\n\
         command = [\"sh\", \"-c\", \"echo $SEXTON_SERVICE $SEXTON_INSTANCE; echo oops >&2; exec sleep 1000\"]\n",
    );
    application.until_running("web");
    until("it wrote", || (application.run(&["logs", "web"]).out == "web 1\n").then_some(()));
    application.well(&["restart", "web"]);
    until("it wrote again", || {
        (application.run(&["logs", "web"]).out == "web 1\nweb 1\n").then_some(())
    });
    assert_eq!(application.well(&["logs", "web", "--stderr", "--tail", "1"]), "oops\n");
    let file = application.data().join("services/web/stdout.log");
    assert_eq!(std::fs::read_to_string(file).expect("the file exists"), "web 1\nweb 1\n");
}

#[test]
fn paths_count_from_the_configuration_and_secrets_come_from_a_file() {
    let application = Application::start(
        "[services.web]\n\
         command = [\"sh\", \"-c\", \"pwd; echo $API_TOKEN; exec sleep 1000\"]\n\
         secrets = [\"API_TOKEN\"]\nenv_file = \"secrets.env\"\n",
    );
    // The service is not started while its secret is missing.
    until("the reason is shown", || {
        let view = application.view("web");
        let failure = view["instances"][0]["last"]["failure"]["step"].clone();
        (failure == "environment").then_some(())
    });
    let file = application.files.path().join("secrets.env");
    std::fs::write(file, "API_TOKEN=tell-nobody\n").expect("a writable file");
    application.well(&["start", "web"]);
    let wrote = until("it wrote", || {
        Some(application.run(&["logs", "web"]).out).filter(|it| it.lines().count() == 2)
    });
    let dir = application.files.path().canonicalize().expect("the path exists");
    assert_eq!(wrote, format!("{}\ntell-nobody\n", dir.display()));
    let listed = application.well(&["status", "--json"]);
    assert!(!listed.contains("tell-nobody"), "{listed}");
}

/// Returns the errors of `sexton config` and `sexton serve` about a configuration, without the path of the file.
fn refused(config: &str) -> String {
    let files = tempfile::tempdir().expect("a temporary directory");
    let file = files.path().join("sexton.toml");
    let data = files.path().join("data");
    std::fs::write(&file, config).expect("a writable file");
    let found = |words: &[&str]| {
        let mut command = sexton();
        command.args(words).args(["--config", text(&file)]);
        command.args(["--data", text(&data)]);
        let output = command.output().expect("the command runs");
        assert_eq!(output.status.code(), Some(2), "{config}: {output:?}");
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    let words = found(&["config"]);
    assert_eq!(found(&["serve"]), words);
    assert!(!data.exists(), "nothing was opened");
    words.replace(text(&file), "FILE")
}

#[test]
fn a_table_that_cannot_be_is_refused_before_anything_starts() {
    for (line, words) in [
        ("command = \"true\"", "command: expected a list of strings"),
        ("colour = 1", "colour: unknown key; expected one of"),
        ("comand = 1", "comand: unknown key; did you mean command?"),
        ("user = []", "user: expected a string"),
        ("limits = { handles = 1 }", "limits: unknown limit handles"),
        ("limits = { nofile = [1] }", "limits: nofile: expected a number"),
        ("ready = \"soon\"", "ready: \"soon\": expected running, notify or line:TEXT"),
        ("restart = \"often\"", "restart: \"often\": expected always"),
        ("stop_signal = \"NONE\"", "stop_signal: \"NONE\" is not a signal"),
        ("grace = \"2h\"", "grace: expected at most an hour"),
        ("period = \"soon\"", "period: expected a number of seconds"),
        ("intensity = true", "intensity: expected a number of restarts"),
        ("instances = 0", "instances: expected 1 to 100"),
        ("backoff = { least = 1 }", "backoff: least: unknown key"),
        ("autostart = 1", "autostart: expected true or false"),
        ("env = { API_TOKEN = \"x\" }", "env: API_TOKEN looks like the name of a secret"),
    ] {
        let found = refused(&format!("[services.a]\n{line}\n"));
        let words = format!("FILE:2: services.a: {words}");
        assert!(found.contains(&words), "{line}\n{found}");
    }
    let all = refused("[services.a]\ncolour = 1\n[services.b]\nrestart = 2\n");
    let both = ["services.a: colour", "services.b: restart"];
    assert!(both.iter().all(|words| all.contains(words)), "{all}");
    let none = refused("services = 1\n");
    assert!(none.contains("services: expected tables"), "{none}");
}

#[test]
fn services_that_do_not_go_together_are_refused_before_anything_starts() {
    let one = |name: &str, more: &str| format!("[services.{name}]\n{LONG}{more}\n");
    let circle = [one("a", "after = [\"b\"]"), one("b", "after = [\"a\"]")];
    for (config, words) in [
        (one("a", "after = [\"b\"]"), "services.a: after: there is no service b"),
        (circle.concat(), "services.a: after: the service depends on itself: a after b after a"),
        (one("\"a/b\"", ""), "services.a/b: a service name must have"),
        ("[services.a]\n".to_owned(), "services.a: a command must have"),
        (one("a", "backoff = { first = 2, max = 1 }"), "services.a: backoff: the maximum delay"),
    ] {
        let found = refused(&config);
        let words = format!("FILE:1: {words}");
        assert!(found.contains(&words), "{config}\n{found}");
    }
}

#[test]
fn services_need_a_directory() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let file = files.path().join("sexton.toml");
    std::fs::write(&file, format!("memory = true\n[services.a]\n{LONG}")).expect("a writable file");
    let mut command = sexton();
    command.args(["serve", "--config", text(&file)]);
    let output = command.output().expect("the command runs");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let words = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(words.contains("need a data directory"), "{words}");
}

#[test]
fn the_configuration_shows_services() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let file = files.path().join("sexton.toml");
    let config =
        format!("[services.web]\n{LONG}stop_signal = \"INT\"\ngrace = \"5s\"\nintensity = false\n");
    std::fs::write(&file, config).expect("a writable file");
    let shown = |words: &[&str]| {
        let mut command = sexton();
        command.args(["config", "--config", text(&file)]).args(words);
        let output = command.env("HOME", "/nowhere").output().expect("the command runs");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    assert!(shown(&[]).contains("sleep 1000"));
    let said: Value = serde_json::from_str(&shown(&["--json"])).expect("valid JSON");
    let web = &said["services"]["web"];
    assert_eq!(web["stop_signal"], 2);
    assert_eq!(web["grace_ms"], 5000);
    assert_eq!(web["intensity"], Value::Null);
    assert_eq!(web["restart"], "always");
}

#[test]
fn metrics_count_processes_and_services() {
    let application = Application::with(
        &format!(
            "[services.web]\n{LONG}[services.bad]\ncommand = [\"/no/such/program\"]\nrestart = \"never\"\n"
        ),
        &["--http", "127.0.0.1:0"],
    );
    let web = application.until_running("web");
    application.until_status("bad", "failed");
    kill(web);
    until("it is back", || application.running("web").filter(|pid| *pid != web));
    let daemon = application.daemon.as_ref().expect("a server");
    let mut stream = std::net::TcpStream::connect(daemon.http()).expect("it listens");
    let asked = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(asked.as_bytes()).expect("connected");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("UTF-8");
    for line in [
        // The service, the server and who started it.
        "sexton_processes{status=\"running\"} 3",
        "sexton_services{status=\"running\"} 1",
        "sexton_services{status=\"failed\"} 1",
        "sexton_services{status=\"waiting\"} 0",
        "sexton_processes_launched_total 3",
        "sexton_processes_failed_total 1",
        "sexton_service_restarts_total 1",
    ] {
        assert!(page.lines().any(|it| it == line), "{line}\n{page}");
    }
}
