//! Services that report readiness and send watchdog messages, and the users as which services run.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::coordinator::done;
use crate::daemon::{PROGRAM, text};
use crate::left_out::left_out;
use crate::patience::until;
use crate::services::Application;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// A service that uses the protocol of `sd_notify`: another coordinator, with its own directory.
const NOTIFIER: &str = "\"serve\", \"--data\", \"inner\", \"--lockserver\", \"off\", \"--beanstalk\", \"off\", \"--http\", \"off\"";

fn notifier(name: &str) -> String {
    format!("[services.{name}]\ncommand = [\"{PROGRAM}\", {NOTIFIER}]\nready = \"notify\"\n")
}

const WEB: &str = "[services.web]\ncommand = [\"sleep\", \"1000\"]\nafter = [\"db\"]\n";

fn process(pid: i32) -> Pid {
    Pid::from_raw(pid).expect("a PID")
}

fn pid_of(application: &Application, name: &str) -> Option<i32> {
    let view = application.view(name);
    i32::try_from(view["instances"][0]["pid"].as_i64()?).ok()
}

fn output(application: &Application, name: &str) -> String {
    let path = application.data().join("services").join(name).join("stdout.log");
    std::fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn a_line_of_output_makes_a_service_ready_also_under_another_coordinator() {
    let script = "echo up once; until test -e go; do sleep 0.05; done; printf 'now rea'; sleep 0.1; echo dy; exec sleep 1000";
    let mut application = Application::start(&format!(
        "[services.db]\ncommand = [\"sh\", \"-c\", \"{script}\"]\nready = \"line:now ready\"\n{WEB}"
    ));
    let said = |application: &Application| {
        until("it reports its status", || output(application, "db").contains("up").then_some(()));
    };
    said(&application);
    let db = until("it runs", || pid_of(&application, "db"));
    assert_eq!(application.status("db"), "starting");
    assert_eq!(application.status("web"), "waiting");
    application.kill();
    application.serve();
    assert_eq!(application.status("db"), "starting");
    std::fs::write(application.files.path().join("go"), "").expect("a writable file");
    assert_eq!(application.until_running("db"), db);
    application.until_running("web");
    // A report of the previous process does not count for the next one, which must send its own.
    std::fs::remove_file(application.files.path().join("go")).expect("the file exists");
    kill_process(process(db), Signal::KILL).expect("a live process");
    until("it is back", || pid_of(&application, "db").filter(|pid| *pid != db));
    until("it reports its status again", || {
        (output(&application, "db").matches("up once").count() == 2).then_some(())
    });
    assert_eq!(application.status("db"), "starting");
    std::fs::write(application.files.path().join("go"), "").expect("a writable file");
    application.until_running("db");
}

#[test]
fn a_notice_makes_a_service_ready_and_its_words_are_shown() {
    let config = format!("{}{WEB}", notifier("db"));
    let application = Application::start(&config);
    application.until_running("db");
    application.until_running("web");
    // The service sends other messages before it reports readiness.
    until("its status is shown", || {
        let view = application.view("db");
        (view["instances"][0]["said"] == "all listeners are open").then_some(())
    });
    let listed = application.well(&[]);
    assert!(listed.contains("all listeners are open"), "{listed}");
}

#[test]
fn a_notice_of_a_stranger_is_none() {
    let application = Application::start(&format!(
        "[services.db]\ncommand = [\"sleep\", \"1000\"]\nready = \"notify\"\n{WEB}\
         [services.other]\ncommand = [\"sleep\", \"1000\"]\n"
    ));
    let pid = until("it runs", || pid_of(&application, "db"));
    application.until_running("other");
    let environment = std::fs::read(format!("/proc/{pid}/environ")).expect("our own file");
    let mut variables = environment.split(|byte| *byte == 0);
    let socket = variables.find_map(|it| it.strip_prefix(b"NOTIFY_SOCKET="));
    let socket =
        String::from_utf8(socket.expect("the client is notified").to_vec()).expect("UTF-8");
    let own = Path::new(&socket);
    assert_eq!(own.parent(), Some(application.data().join("notify").as_path()));
    let mode = std::fs::metadata(own).expect("it exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Another user cannot send to the socket, and the one that services of earlier versions share is not that of this service.
    if geteuid().is_root() {
        for path in
            [application.files.path(), &application.data(), own.parent().expect("it has one")]
        {
            let open = std::fs::Permissions::from_mode(0o711);
            std::fs::set_permissions(path, open).expect("our own file");
        }
        let script = "import socket,sys; socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM).sendto(b'READY=1',sys.argv[1])";
        let mut sends = Command::new("python3");
        sends.args(["-c", script, &socket]).uid(65_534).gid(65_534).current_dir("/");
        let refused = done(sends.output().expect("python3 runs"));
        assert!(refused.err.contains("PermissionError"), "{refused:?}");
    } else {
        left_out("a notice of another user: only root can become one");
    }
    let sender = UnixDatagram::unbound().expect("a socket");
    let shared = application.data().join("notify.sock");
    for _ in 0..10 {
        sender.send_to(b"READY=1", &shared).expect("it is sent");
    }
    // The messages above have been handled once a later message, that of another service, has been.
    application.well(&["restart", "other"]);
    application.until_running("other");
    assert_eq!(application.status("db"), "starting");
    assert_eq!(application.status("web"), "waiting");
}

/// The sender of a notice is often a short-lived program. It does not matter how late its notice is read.
#[test]
fn a_notice_counts_though_its_sender_has_exited() {
    let script = "until test -e go; do sleep 0.05; done; \
        python3 -c \"import os,socket; socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM).sendto(b'READY=1',os.environ['NOTIFY_SOCKET'])\"; \
        touch sent; exec sleep 1000";
    let application = Application::start(&format!(
        "[services.db]\ncommand = [\"sh\", \"-c\", '''{script}''']\nready = \"notify\"\n"
    ));
    let db = until("it runs", || pid_of(&application, "db"));
    let coordinator = application.daemon.as_ref().expect("a server").pid();
    kill_process(coordinator, Signal::STOP).expect("a live process");
    let file = |name: &str| application.files.path().join(name);
    std::fs::write(file("go"), "").expect("a writable file");
    until("the sender has exited", || file("sent").exists().then_some(()));
    kill_process(coordinator, Signal::CONT).expect("a live process");
    assert_eq!(application.until_running("db"), db);
}

/// The socket of a process stays its own while the coordinator is down.
#[test]
fn a_notice_counts_after_a_restart() {
    let script = "until test -e go; do sleep 0.05; done; \
        python3 -c \"import os,socket; socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM).sendto(b'READY=1',os.environ['NOTIFY_SOCKET'])\"; \
        exec sleep 1000";
    let mut application = Application::start(&format!(
        "[services.db]\ncommand = [\"sh\", \"-c\", '''{script}''']\nready = \"notify\"\n"
    ));
    let db = until("it runs", || pid_of(&application, "db"));
    application.kill();
    application.serve();
    assert_eq!(application.status("db"), "starting");
    std::fs::write(application.files.path().join("go"), "").expect("a writable file");
    assert_eq!(application.until_running("db"), db);
    // Nothing is left of it when it has ended.
    application.well(&["stop", "db"]);
    let left = std::fs::read_dir(application.data().join("notify")).expect("it exists");
    assert_eq!(left.count(), 0);
}

#[test]
fn one_that_is_not_ready_in_time_is_stopped_and_has_failed() {
    let application = Application::start(
        "[services.db]\ncommand = [\"sh\", \"-c\", \"trap 'exit 0' TERM; while :; do sleep 0.05; done\"]\n\
         ready = \"notify\"\nready_timeout = \"300ms\"\nrestart = \"never\"\n",
    );
    application.until_status("db", "failed");
    let view = application.view("db");
    assert_eq!(view["instances"][0]["last"]["stopped_by"], "not-ready");
    let listed = application.well(&[]);
    assert!(listed.contains("not ready in time"), "{listed}");
}

#[test]
fn one_that_gives_no_sign_of_life_is_replaced() {
    let config = format!("{}watchdog = \"1s\"\ngrace = \"100ms\"\n", notifier("db"));
    let application = Application::start(&config);
    let db = application.until_running("db");
    // The service sends watchdog messages, so the same process still runs after some of them were due.
    until("its status is shown", || {
        application.view("db")["instances"][0]["said"].as_str().map(drop)
    });
    kill_process(process(db), Signal::STOP).expect("a live process");
    until("it is back", || application.running("db").filter(|pid| *pid != db));
    let view = application.view("db");
    assert_eq!(view["instances"][0]["last"]["stopped_by"], "watchdog");
}

#[test]
fn a_service_runs_as_its_user_with_its_limits_or_not_at_all() {
    if !geteuid().is_root() {
        return left_out("services of other users: only root starts them");
    }
    let script = "id -u; id -g; ulimit -n; echo $USER; exec sleep 1000";
    let application = Application::start(&format!(
        "[services.one]\ncommand = [\"sh\", \"-c\", \"{script}\"]\nuser = \"nobody\"\nready = \"line:nobody\"\n\
         limits = {{ nofile = [77, 100] }}\ndir = \"/\"\n\
         [services.two]\ncommand = [\"sh\", \"-c\", \"{script}\"]\nuser = \"no-such-user\"\nrestart = \"never\"\n\
         [services.three]\ncommand = [\"sh\", \"-c\", \"{script}\"]\ngroup = \"no-such-group\"\nrestart = \"never\"\n"
    ));
    application.until_running("one");
    let said = output(&application, "one");
    let lines: Vec<&str> = said.lines().collect();
    let nobody = std::fs::read_to_string("/etc/passwd").expect("the file exists");
    let nobody = nobody.lines().find(|line| line.starts_with("nobody:"));
    let fields: Vec<&str> = nobody.expect("the user exists").split(':').collect();
    assert_eq!(lines, [fields[2], fields[3], "77", "nobody"]);
    for (name, words) in [("two", "no user no-such-user"), ("three", "no group no-such-group")] {
        application.until_status(name, "failed");
        let view = application.view(name);
        let failure = &view["instances"][0]["last"]["failure"];
        assert_eq!(failure["step"], "user", "{view}");
        let found = failure["words"].as_str().expect("the refusal has a detail");
        assert!(found.contains(words), "{found}");
        assert_eq!(output(&application, name), "");
    }
}

#[test]
fn another_user_can_say_that_it_is_ready_without_a_way_into_the_data_directory() {
    if !geteuid().is_root() {
        return left_out("notices of other users: only root starts their services");
    }
    // The inner coordinator has a directory that its user may write to. Only root may read the outer data directory.
    let inner = tempfile::tempdir().expect("a temporary directory");
    rustix::fs::chown(
        inner.path(),
        Some(rustix::fs::Uid::from_raw(65534)),
        Some(rustix::fs::Gid::from_raw(65534)),
    )
    .expect("root may do this");
    let application = Application::start(&format!(
        "{}user = \"65534\"\ngroup = \"65534\"\ndir = \"{}\"\n",
        notifier("db"),
        text(inner.path())
    ));
    application.until_running("db");
}
