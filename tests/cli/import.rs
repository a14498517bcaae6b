//! `sexton import supervisord`: the converted configuration, the remarks about what is not converted, and a server that
//! runs the result.

use crate::coordinator;
use crate::daemon::{self, Daemon, ended, sexton, text};
use crate::left_out::left_out;
use crate::patience::until;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Creates these files, by name, in a new directory.
pub(crate) fn files(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (name, content) in files {
        let path = directory.path().join(name);
        let folder = path.parent().expect("it is below");
        std::fs::create_dir_all(folder).expect("a new directory");
        std::fs::write(path, content).expect("a writable file");
    }
    directory
}

pub(crate) fn import(file: &Path) -> Command {
    let mut command = sexton();
    command.args(["import", "supervisord", text(file)]);
    command
}

fn output(command: &mut Command) -> Output {
    command.output().expect("the program runs")
}

/// Imports a file. Returns the path of the new file, its services as `sexton config` prints them, and the remarks.
fn imported(main: &Path) -> (PathBuf, Value, String) {
    let new = main.with_extension("toml");
    let [printed, told] = ended(output(import(main).args(["-o", text(&new)])), 0);
    assert_eq!(printed, "");
    let mut config = sexton();
    config.args(["config", "--json", "--config", text(&new)]);
    let [shown, errors] = ended(output(&mut config), 0);
    assert_eq!(errors, "", "the result is valid");
    let mut shown: Value = serde_json::from_str(&shown).expect("valid JSON");
    let services = shown.get_mut("services").expect("it has services").take();
    (new, services, told)
}

const MAIN: &str = "\
; what Debian ships, and more
[unix_http_server]
file=/var/run/supervisor.sock   ; (the path to the socket file)

[supervisord]
logfile=/var/log/supervisord.log
environment=ROOT=\"/srv\"

[supervisorctl]
serverurl=unix:///var/run/supervisor.sock

[program:web]
command=/bin/sh -c \"echo 'a b' %(ENV_ROOT)s 100%%\" ; serve
directory=%(here)s
environment=A=\"x, y\",
  B='1;2',C=/bin:/usr/bin
autorestart=true
startretries=5
priority=10
stopsignal=INT
stopwaitsecs=30
exitcodes=0,2

[program:worker]
command=/bin/sleep 100%(process_num)d
process_name=%(program_name)s_%(process_num)02d
numprocs=3
numprocs_start=7

[program:pool]
command=/bin/sleep 1000
process_name=%(program_name)s_%(process_num)02d
numprocs=4
autorestart=false
startretries=999999

[group:all]
programs=web,worker
priority=5

[include]
files = conf.d/*.conf nothing/*.conf
";

const INCLUDED: &str = "\
[program:sweep]
command=%(here)s/sweep %(group_name)s
autostart=no
[eventlistener:memory]
command=memmon
events=TICK_60
";

fn of_services<'a>(services: &'a Value, field: &str) -> Vec<(&'a str, &'a Value)> {
    let all = services.as_object().expect("services by name");
    let each = all.iter().map(|(name, it)| (name.as_str(), it.get(field)));
    each.map(|(name, it)| (name, it.expect("a field"))).collect()
}

#[test]
fn programs_become_services() {
    let files = files(&[("s.conf", MAIN), ("conf.d/sweep.conf", INCLUDED)]);
    let main = files.path().join("s.conf");
    let (new, services, _) = imported(&main);
    let here = text(files.path());
    let below = format!("{here}/conf.d/sweep");
    assert_eq!(
        of_services(&services, "command"),
        [
            ("pool", &json!(["/bin/sleep", "1000"])),
            ("sweep", &json!([below, "sweep"])),
            ("web", &json!(["/bin/sh", "-c", "echo 'a b' /srv 100%"])),
            ("worker_07", &json!(["/bin/sleep", "1007"])),
            ("worker_08", &json!(["/bin/sleep", "1008"])),
            ("worker_09", &json!(["/bin/sleep", "1009"])),
        ]
    );
    let web = services.get("web").expect("it exists");
    let expected = json!({
        "dir": here, "autostart": true, "restart": "always", "success": [2], "stop_signal": 2,
        "grace_ms": 30_000, "instances": 1, "intensity": 10,
    });
    for (key, value) in expected.as_object().expect("an object") {
        assert_eq!(web.get(key), Some(value), "{key}");
    }
    let pool = services.get("pool").expect("it exists");
    let shown = ["restart", "instances", "intensity"].map(|key| pool.get(key));
    assert_eq!(shown, [&json!("never"), &json!(4), &Value::Null].map(Some));
    let sweep = services.get("sweep").expect("it exists");
    let shown = ["restart", "autostart"].map(|key| sweep.get(key));
    assert_eq!(shown, [&json!("on-failure"), &json!(false)].map(Some));

    let written = std::fs::read_to_string(&new).expect("the file exists");
    let env = r#"env = { ROOT = "/srv", A = "x, y", B = "1;2", C = "/bin:/usr/bin" }"#;
    assert!(written.contains(env), "{written}");
    // Without `-o`, the same text is written to standard output.
    let [printed, _] = ended(output(&mut import(&main)), 0);
    assert_eq!(printed, written);
}

#[test]
fn what_is_not_carried_over_is_named_with_its_line() {
    let files = files(&[("s.conf", MAIN), ("conf.d/sweep.conf", INCLUDED)]);
    let main = files.path().join("s.conf");
    let (_, _, told) = imported(&main);
    let expected = [
        ("s.conf:2", "[unix_http_server]"),
        ("s.conf:6", "[supervisord] logfile"),
        ("s.conf:9", "[supervisorctl]"),
        ("s.conf:18", "[program:web] startretries"),
        ("s.conf:19", "[program:web] priority"),
        ("s.conf:27", "[program:worker] numprocs"),
        ("s.conf:32", "[program:pool] process_name"),
        ("s.conf:38", "[group:all] programs"),
        ("s.conf:39", "[group:all] priority"),
        ("s.conf:42", "[include] files"),
        ("conf.d/sweep.conf:4", "[eventlistener:memory]"),
    ];
    let mut lines = told.lines();
    for ((place, key), line) in expected.into_iter().zip(&mut lines) {
        let begin = format!("sexton: {}/{place}: {key}: ", files.path().display());
        assert!(line.starts_with(&begin), "{begin} in {line}");
    }
    let rest: Vec<&str> = lines.collect();
    let last = "sexton: 6 services, 0 of them with autostart = false; 11 remarks about what is not carried over";
    assert_eq!(rest, [last], "{told}");
}

#[test]
fn nothing_is_overwritten() {
    let files = files(&[("s.conf", "[program:a]\ncommand=true\n"), ("new.toml", "mine")]);
    let new = files.path().join("new.toml");
    let main = files.path().join("s.conf");
    let [_, told] = ended(output(import(&main).args(["-o", text(&new)])), 3);
    assert!(told.contains("nothing is overwritten"), "{told}");
    assert_eq!(std::fs::read_to_string(new).expect("the file exists"), "mine");
}

#[test]
fn secrets_are_never_written_down() {
    let config = "[supervisord]\nenvironment=API_TOKEN=\"planted-1\"\n\
                  [program:a]\ncommand=run --with %(ENV_DB_PASSWORD)s\nenvironment=A_KEY='planted-2',B=plain\n\
                  [program:b]\ncommand=run\nenvironment=URL=\"http://%(ENV_NOWHERE)s/\"\n";
    let files = files(&[("s.conf", config)]);
    let main = files.path().join("s.conf");
    let mut command = import(&main);
    command.env("DB_PASSWORD", "planted-3").env_remove("NOWHERE");
    let [printed, told] = ended(output(&mut command), 0);
    assert!(!printed.contains("planted") && !told.contains("planted"), "{printed}{told}");
    for expected in [
        "env_file = \"a.env\"",
        "secrets = [\"API_TOKEN\", \"A_KEY\"]",
        "env = { B = \"plain\" }",
        "command = [\"run\", \"--with\", \"__ENV_DB_PASSWORD__\"]",
        "env = { URL = \"http://__ENV_NOWHERE__/\" }",
    ] {
        assert!(printed.contains(expected), "{expected} in {printed}");
    }
    assert!(
        told.contains("[program:b] environment: %(ENV_NOWHERE)s: it is not in the environment"),
        "{told}"
    );
    // A service that could not be converted completely is not started automatically.
    assert_eq!(printed.matches("autostart = false").count(), 2, "{printed}");
    assert!(told.contains("2 of them with autostart = false"), "{told}");
    let (_, services, _) = imported(&main);
    assert_eq!(services.as_object().map(serde_json::Map::len), Some(2));
}

/// A server with imported services. They end when it is dropped.
struct Served {
    daemon: Option<Daemon>,
    data: PathBuf,
}

impl Served {
    fn service(&self, words: &[&str]) -> coordinator::CommandOutput {
        let words = [&["service"], words].concat();
        let mut command = coordinator::command(&self.data, &words);
        coordinator::done(command.output().expect("the command runs"))
    }

    fn status(&self, name: &str) -> String {
        let done = self.service(&["status", name, "--json"]);
        let said: Value = serde_json::from_str(&done.out).expect("valid JSON");
        said.pointer("/services/0/status").and_then(Value::as_str).expect("a word").to_owned()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.signal(Signal::TERM);
            drop(daemon.end());
        }
    }
}

/// Returns programs, each of which creates a file with the program's name.
fn touching(here: &str, users: &[(&str, &str)]) -> String {
    let program = |(name, user): &(&str, &str)| {
        format!(
            "[program:{name}]\ncommand=/usr/bin/touch {here}/{name}\nuser={user}\numask=077\nautorestart=false\n"
        )
    };
    users.iter().map(program).collect()
}

/// Makes a directory writable for everyone, as /tmp is: each may remove only their own files.
fn open_to_all(files: &TempDir) -> &str {
    let mode = std::fs::Permissions::from_mode(0o1777);
    std::fs::set_permissions(files.path(), mode).expect("our own file");
    text(files.path())
}

#[test]
fn a_program_with_a_user_is_run_as_that_user_by_root() {
    if !rustix::process::geteuid().is_root() {
        return left_out("services of other users: only root launches them");
    }
    let files = files(&[]);
    let here = open_to_all(&files);
    let users = [("named", "daemon"), ("numbered", "1"), ("ours", "root")];
    let main = files.path().join("s.conf");
    std::fs::write(&main, touching(here, &users)).expect("a writable file");
    let (new, services, told) = imported(&main);
    for (name, starts) in of_services(&services, "autostart") {
        assert_eq!(starts, true, "{name}");
    }
    assert_eq!(told.matches("] user: carried over").count(), 3, "{told}");
    let data = files.path().join("data");
    let daemon = Daemon::serve(&["--data", text(&data), "--config", text(&new)]);
    let served = Served { daemon: Some(daemon), data };
    for (name, owner) in [("named", 1), ("numbered", 1), ("ours", 0)] {
        until(&format!("{name} has ended"), || (served.status(name) == "finished").then_some(()));
        let made = std::fs::metadata(files.path().join(name)).expect("the file exists");
        let found = (made.uid(), made.mode() & 0o777);
        assert_eq!(found, (owner, 0o600), "{name}");
    }
}

#[test]
fn a_program_of_another_user_never_runs_as_ours() {
    // Run both programs as a user other than root.
    let own = match rustix::process::geteuid().as_raw() {
        0 => 65_534,
        own => own,
    };
    let become_them = |mut command: Command| {
        if rustix::process::geteuid().is_root() {
            command.uid(own).gid(own);
        }
        command
    };
    let files = files(&[]);
    let here = open_to_all(&files);
    let number = own.to_string();
    let users = [("named", "daemon"), ("numbered", "0"), ("ours", &number)];
    let (main, new) = (files.path().join("s.conf"), files.path().join("s.toml"));
    std::fs::write(&main, touching(here, &users)).expect("a writable file");
    let mut command = become_them(import(&main));
    let [_, told] = ended(output(command.args(["-o", text(&new)])), 0);
    assert!(told.contains("2 of them with autostart = false"), "{told}");
    let data = files.path().join("data");
    let flags = ["--data", text(&data), "--config", text(&new)];
    let served = Served { daemon: Some(Daemon::start(become_them(daemon::serve(&flags)))), data };
    until("our server has ended", || (served.status("ours") == "finished").then_some(()));
    for name in ["named", "numbered"] {
        assert_eq!(served.status(name), "stopped");
        served.service(&["start", name]);
        until(&format!("{name} is given up"), || (served.status(name) == "failed").then_some(()));
    }
    let has = |name: &str| files.path().join(name).exists();
    assert_eq!(["named", "numbered", "ours"].map(has), [false, false, true]);
}

#[test]
fn output_is_rotated_as_the_program_says() {
    let config = "[program:a]\ncommand=true\nstdout_logfile_maxbytes=50MB\nstdout_logfile_backups=3\n\
                  [program:b]\ncommand=true\nstdout_logfile=/dev/stdout\nstdout_logfile_maxbytes=0\n\
                  [program:c]\ncommand=true\nredirect_stderr=true\nstdout_logfile_maxbytes=0\nstderr_logfile_maxbytes=1MB\n";
    let files = files(&[("s.conf", config)]);
    let main = files.path().join("s.conf");
    let (_, services, told) = imported(&main);
    assert_eq!(
        of_services(&services, "output"),
        [
            ("a", &json!({"bytes_max": 50 << 20, "kept": 3})),
            ("b", &json!({"bytes_max": 64 << 20, "kept": 5})),
            ("c", &json!({"bytes_max": 0, "kept": 5})),
        ]
    );
    let words = "[program:b] stdout_logfile_maxbytes: the output goes to a file, which is rotated";
    assert!(told.contains(words), "{told}");
    std::fs::write(&main, "[program:a]\ncommand=true\nstderr_logfile_maxbytes=1TB\n")
        .expect("a writable file");
    let [_, told] = ended(output(&mut import(&main)), 2);
    let words = ":3: [program:a] stderr_logfile_maxbytes: expected a number of bytes";
    assert!(told.contains(words), "{told}");
}

/// A Python program that prints the programs of a configuration as supervisord's own code reads them.
const REFERENCE: &str = "
import json, shlex, sys
from supervisor.options import ServerOptions
options = ServerOptions()
options.realize(['-n', '-c', sys.argv[1]])
programs = {}
for group in options.configroot.supervisord.process_group_configs:
    for it in group.process_configs:
        programs[it.name] = {'command': shlex.split(it.command), 'env': it.environment, 'dir': it.directory}
print(json.dumps(programs))
";

/// A configuration with unusual syntax. No value in it is a secret.
const CORNERS: &str = "\
[supervisord]
environment = ROOT=/srv,LATE=\"of all\"
[DEFAULT]
directory = %(here)s
# a comment
[program:a] and more
Command : sh -c 'x \"y\"' \"a\\\"b\\\\c\\d\" e\\ f \"\" ;comment
environment=A=\"x;y\",  B='it is',C=u\"v\",LATE=mine
[program:b]
command = run
   --one ; first

   --two # second
 ;third
   --three=a;b#c
directory=/
environment=D=\"%(ENV_LATE)s\",E=\"100%%\"
[program:c]
command=c%(process_num)03d%(process_num)-3d. %(ENV_D)s %(program_name)8s %(numprocs)d
environment=D=\"own\"
process_name=%(group_name)s-%(process_num)d
numprocs=2
numprocs_start=9
";

#[test]
fn the_dialect_is_read_as_supervisord_reads_it() {
    let files = files(&[("s.conf", CORNERS)]);
    let main = files.path().join("s.conf");
    let mut python = Command::new("/usr/bin/python3");
    let reference = output(python.args(["-c", REFERENCE, text(&main)]));
    if !reference.status.success() {
        let error = String::from_utf8_lossy(&reference.stderr).into_owned();
        if error.contains("No module named 'supervisor'") {
            left_out("the comparison with supervisord: it is not installed");
            return;
        }
        panic!("{error}");
    }
    let reference: Value = serde_json::from_slice(&reference.stdout).expect("valid JSON");
    let (new, services, _) = imported(&main);
    let written = std::fs::read_to_string(new).expect("the file exists");
    let programs = reference.as_object().expect("programs by name");
    assert_eq!(programs.len(), 4);
    for (name, program) in programs {
        let service = services.get(name).unwrap_or_else(|| panic!("{name} in {written}"));
        assert_eq!(service.get("command"), program.get("command"), "{name}");
        assert_eq!(service.get("dir"), program.get("dir"), "{name}");
        let (_, table) = written.split_once(&format!("[services.{name}]")).expect("a table");
        let env = table.lines().find(|line| line.starts_with("env = ")).expect("a line");
        for (key, value) in program.get("env").and_then(Value::as_object).expect("variables") {
            let value = value.as_str().expect("a text");
            assert!(env.contains(&format!("{key} = {value:?}")), "{key} {value} in {env}");
        }
        let count = program.get("env").and_then(Value::as_object).map(serde_json::Map::len);
        assert_eq!(Some(env.matches(" = ").count() - 1), count, "{env}");
    }
}
