//! The program under a service manager: its notifications, the listeners that the manager passes, its unit files, and the
//! program as process 1.

use crate::daemon::{Daemon, PROGRAM, forget_environment, serve, serve_by, sexton, text};
use crate::left_out::left_out;
use crate::lockserver::{Client, request};
use crate::patience::{self, until};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

fn files() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// The service manager's socket for notifications.
struct NotifySocket(UnixDatagram);

impl NotifySocket {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).expect("a socket");
        socket.set_read_timeout(Some(patience::PATIENCE)).expect("a nonzero timeout");
        Self(socket)
    }

    fn receive(&self) -> String {
        let mut told = [0; 512];
        let len = self.0.recv(&mut told).expect("the client receives a line");
        let told = told.get(..len).expect("it is as long as it says");
        String::from_utf8_lossy(told).into_owned()
    }

    /// Returns all notifications up to and including one that has this line.
    fn until(&self, line: &str) -> Vec<String> {
        let mut heard = vec![self.receive()];
        while !heard.last().is_some_and(|last| has(last, line)) {
            heard.push(self.receive());
        }
        heard
    }

    /// Returns the notifications that have arrived and were not read.
    fn rest(&self) -> Vec<String> {
        self.0.set_nonblocking(true).expect("it is a socket");
        let mut told = [0; 512];
        let mut heard = Vec::new();
        while let Ok(len) = self.0.recv(&mut told) {
            let told = told.get(..len).expect("it is as long as it says");
            heard.push(String::from_utf8_lossy(told).into_owned());
        }
        heard
    }
}

fn has(notice: &str, line: &str) -> bool {
    notice.lines().any(|found| found == line)
}

#[test]
fn a_service_manager_is_told_of_start_and_stop() {
    let files = files();
    let path = files.path().join("notify");
    let ear = NotifySocket::at(&path);
    let data = files.path().join("data");
    let mut command = serve(&["--data", text(&data)]);
    command.env("NOTIFY_SOCKET", &path);
    let daemon = Daemon::start(command);
    let started = ear.until("READY=1");
    let first = started.first().expect("something was printed");
    assert!(first.starts_with("STATUS="), "{first}");
    assert!(has(first, "EXTEND_TIMEOUT_USEC=60000000"), "{first}");
    let ready = started.iter().filter(|notice| has(notice, "READY=1"));
    assert_eq!(ready.count(), 1, "{started:?}");
    let mut client = Client::connect(daemon.lockserver()).expect("the listener is open");
    let lock = request("k", "i", "alice", (600, 60, 0));
    assert_eq!(client.number(&lock).expect("an answer"), 1);

    daemon.signal(Signal::USR2);
    ear.until("STATUS=draining");
    daemon.signal(Signal::TERM);
    ear.until("STOPPING=1");
    ear.until("EXTEND_TIMEOUT_USEC=60000000");
    let (status, log) = daemon.end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert_eq!(ear.rest(), Vec::<String>::new(), "no watchdog messages were requested");
}

#[test]
fn an_abstract_socket_will_do_and_a_missing_one_is_no_end() {
    use std::os::linux::net::SocketAddrExt as _;
    let name = format!("sexton-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name)
        .expect("the name is short enough");
    let ear = NotifySocket(UnixDatagram::bind_addr(&address).expect("a socket"));
    ear.0.set_read_timeout(Some(patience::PATIENCE)).expect("a nonzero timeout");
    let mut command = serve(&["--memory"]);
    command.env("NOTIFY_SOCKET", format!("@{name}"));
    let daemon = Daemon::start(command);
    ear.until("READY=1");
    daemon.kill();

    let files = files();
    let mut command = serve(&["--memory"]);
    command.env("NOTIFY_SOCKET", files.path().join("absent"));
    let daemon = Daemon::start(command);
    daemon.until_logged("failed to notify the service manager");
    assert!(Client::connect(daemon.lockserver()).is_ok());
}

#[test]
fn a_watchdog_hears_signs_of_life_if_it_watches_this_process() {
    let files = files();
    let path = files.path().join("notify");
    let ear = NotifySocket::at(&path);
    let mut command = serve(&["--memory"]);
    command.env("NOTIFY_SOCKET", &path);
    command.env("WATCHDOG_USEC", "20000");
    let daemon = Daemon::start(command);
    ear.until("READY=1");
    for _ in 0..3 {
        ear.until("WATCHDOG=1");
    }
    daemon.kill();

    let path = files.path().join("other");
    let ear = NotifySocket::at(&path);
    let mut command = serve(&["--memory"]);
    command.env("NOTIFY_SOCKET", &path);
    command.env("WATCHDOG_USEC", "1").env("WATCHDOG_PID", "1");
    let daemon = Daemon::start(command);
    ear.until("READY=1");
    // Each of these signals is handled in a turn of the loop that would also send a watchdog message.
    for _ in 0..3 {
        daemon.signal(Signal::USR1);
        daemon.until_logged("SIGUSR1 ignored");
    }
    daemon.signal(Signal::TERM);
    let (status, log) = daemon.end();
    assert_eq!(status.code(), Some(0), "{log}");
    let heard = ear.rest();
    assert!(!heard.iter().any(|notice| has(notice, "WATCHDOG=1")), "{heard:?}");
}

/// The descriptors that a service manager passes, from 3 on, and their names.
struct Passed {
    names: &'static str,
    descriptors: [Option<OwnedFd>; 2],
}

/// Returns `serve` with passed listeners. A shell moves them to the right numbers, and sets the variable with its own
/// process id.
fn passed(passed: Passed, flags: &[&str]) -> Command {
    let Passed { names, descriptors } = passed;
    let count = descriptors.iter().flatten().count();
    let script = format!(
        "exec 3<&0 4<&1 </dev/null >/dev/null; \
         export LISTEN_PID=$$ LISTEN_FDS={count} LISTEN_FDNAMES={names}; exec \"$0\" \"$@\""
    );
    let mut command = Command::new("sh");
    forget_environment(&mut command);
    command.args(["-c", &script, PROGRAM, "serve"]).args(flags);
    let [first, second] = descriptors.map(|passed| passed.map_or(Stdio::null(), Stdio::from));
    command.stdin(first).stdout(second);
    command
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

fn refused(mut command: Command) -> String {
    let output = command
        .stderr(Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    errors
}

fn healthy(mut stream: impl std::io::Read + std::io::Write) -> bool {
    let asked = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(asked.as_bytes()).expect("connected");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.starts_with("HTTP/1.1 200")
}

#[test]
fn passed_listeners_become_listeners() {
    let files = files();
    let notify = files.path().join("notify");
    let ear = NotifySocket::at(&notify);
    let (lockserver, lockserver_at) = listener();
    let (http, http_at) = listener();
    // A client that connects before the coordinator runs is served once it runs.
    let early = TcpStream::connect(lockserver_at).expect("the server is already listening");
    let descriptors = Passed {
        names: "lockserver:http",
        descriptors: [Some(lockserver.into()), Some(http.into())],
    };
    let mut command = passed(descriptors, &["--memory", "--beanstalk", "off"]);
    command.env("NOTIFY_SOCKET", &notify);
    let mut child = command.spawn().expect("the command starts");
    ear.until("READY=1");
    let mut greeting = [0];
    (&early).read_exact(&mut greeting).expect("the server sends its greeting");
    assert_eq!(greeting, [1]);
    let mut client = Client::connect(lockserver_at).expect("connected");
    let lock = request("k", "i", "alice", (600, 60, 0));
    assert_eq!(client.number(&lock).expect("an answer"), 1);
    assert!(healthy(TcpStream::connect(http_at).expect("it listens")));
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::TERM).expect("a live process");
    assert!(child.wait().expect("our child").success());

    let path = files.path().join("passed.sock");
    let socket = UnixListener::bind(&path).expect("a socket");
    let descriptors = Passed { names: "socket", descriptors: [Some(socket.into()), None] };
    let data = files.path().join("data");
    let flags = [
        "--data",
        text(&data),
        "--beanstalk",
        "off",
        "--lockserver",
        "off",
        "--http",
        "off",
        "--socket-mode",
        "0660",
    ];
    let mut command = passed(descriptors, &flags);
    command.env("NOTIFY_SOCKET", &notify);
    let mut child = command.spawn().expect("the command starts");
    ear.until("READY=1");
    assert!(healthy(UnixStream::connect(&path).expect("it listens")));
    let mode = path.metadata().expect("the file exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o660, "a passed listener has the requested address, too");
    assert!(!data.join("sexton.sock").exists(), "one socket is enough");
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::TERM).expect("a live process");
    assert!(child.wait().expect("our child").success());
    assert!(path.exists(), "the file is the manager's");
}

#[test]
fn passed_listeners_that_are_not_understood_are_refused() {
    let listening = || Some(OwnedFd::from(listener().0));
    let refuse = |names, first, second, flags: &[&str]| {
        let descriptors = [first, second];
        refused(passed(Passed { names, descriptors }, flags))
    };
    let memory = &["--memory", "--beanstalk", "off", "--lockserver", "127.0.0.1:0"][..];
    let said = refuse("sexton.socket", listening(), None, memory);
    assert!(said.contains("descriptor 0 (sexton.socket): no listener has this name"), "{said}");
    assert!(said.contains("FileDescriptorName="), "{said}");
    let said = refuse("", listening(), None, memory);
    assert!(said.contains("(unnamed)"), "{said}");
    let said = refuse("http:http", listening(), listening(), memory);
    assert!(
        said.contains("descriptor 1 (http): another descriptor already has this name"),
        "{said}"
    );
    let said = refuse(
        "lockserver",
        listening(),
        None,
        &["--memory", "--beanstalk", "off", "--lockserver", "off"],
    );
    assert!(said.contains("lockserver: this listener is off"), "{said}");
    let (listener, at) = listener();
    let connected = TcpStream::connect(at).expect("it listens");
    let said = refuse("lockserver", Some(connected.into()), None, memory);
    assert!(said.contains("it is not a listening socket"), "{said}");
    drop(listener);
    let file = std::fs::File::open("/dev/null").expect("the file exists");
    let said = refuse("http", Some(file.into()), None, memory);
    assert!(said.contains("not a socket"), "{said}");
    // An address beyond loopback needs a token, even if its listener is passed.
    let open = TcpListener::bind("0.0.0.0:0").expect("a free port");
    let said = refuse("http", Some(open.into()), None, memory);
    assert!(
        said.contains("not a loopback address") && said.contains("--token-file FILE"),
        "{said}"
    );
}

#[test]
fn what_was_passed_to_another_process_is_left_alone() {
    let mut command = serve(&["--memory"]);
    command.env("LISTEN_PID", "1").env("LISTEN_FDS", "1");
    command.env("LISTEN_FDNAMES", "lockserver");
    let daemon = Daemon::start(command);
    assert!(Client::connect(daemon.lockserver()).is_ok());
}

#[test]
fn the_units_are_well_formed() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("packaging");
    let files = files();
    let mut units = Vec::new();
    for name in [
        "sexton.service",
        "sexton-lockserver.socket",
        "sexton-beanstalk.socket",
        "sexton-http.socket",
        "sexton-socket.socket",
    ] {
        let unit = std::fs::read_to_string(root.join(name)).expect("the file exists");
        // Use the program of this build in the unit.
        let unit = unit.replace("/usr/local/bin/sexton", PROGRAM);
        let path = files.path().join(name);
        std::fs::write(&path, unit).expect("a writable file");
        units.push(path);
    }
    let verified =
        Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&units).output();
    match verified {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        // systemd is not installed everywhere, not even in CI. The lines of the units are checked below in any case.
        Err(error) => println!("skipped: `systemd-analyze verify` of the units, {error}"),
    }
    // Every variable that the unit sets is a setting.
    let unit = std::fs::read_to_string(&units[0]).expect("the file exists");
    assert!(unit.contains("Type=notify") && unit.contains("WatchdogSec="));
    for line in unit.lines().filter_map(|line| line.strip_prefix("Environment=")) {
        let (name, value) = line.split_once('=').expect("a variable");
        let shown = sexton().arg("config").env(name, value).output();
        let shown = shown.expect("the program runs");
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.contains(name), "{shown}");
    }
}

/// Returns whether this process may create PID namespaces.
fn namespaces() -> bool {
    let tried = Command::new("unshare").args(["--pid", "--fork", "true"]).output();
    let may = tried.is_ok_and(|output| output.status.success());
    assert!(may || !geteuid().is_root(), "root may make namespaces");
    may
}

/// Returns the child that `unshare` has started.
fn child_of(unshare: u32) -> Pid {
    let children = format!("/proc/{unshare}/task/{unshare}/children");
    let child = until("its child", || {
        let children = std::fs::read_to_string(&children).ok()?;
        children.split_whitespace().next()?.parse::<i32>().ok()
    });
    Pid::from_raw(child).expect("a process")
}

/// beanstalkd does not handle SIGTERM, and the kernel does not end process 1 by an unhandled signal. So a program in its
/// place handles it, and exits with the status that a shell reports for a process that the signal ended.
#[test]
fn in_beanstalkds_place_process_1_ends_by_term_with_143() {
    if !namespaces() {
        return left_out("as process 1: no namespace may be made here");
    }
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 0), (Signal::HUP, 0)] {
        let files = files();
        let socket = files.path().join("socket");
        let mut unshare = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child"])
            .args([env!("CARGO_BIN_EXE_sexton"), "beanstalkd", "-l"])
            .arg(format!("unix:{}", socket.display()))
            .spawn()
            .expect("the command starts");
        // The program listens before it handles signals. Wait until it serves, because an unhandled signal does not end
        // process 1.
        let mut client = until("it listens", || UnixStream::connect(&socket).ok());
        client.write_all(b"list-tube-used\r\n").expect("connected");
        client.read_exact(&mut [0]).expect("the request is answered");
        kill_process(child_of(unshare.id()), signal).expect("a live process");
        let ended = unshare.wait().expect("the process ends");
        assert_eq!(ended.code(), Some(status), "{signal:?}");
    }
}

#[test]
fn as_process_1_it_stops_in_good_order() {
    if !namespaces() {
        return left_out("as process 1: no namespace may be made here");
    }
    for signal in [Signal::TERM, Signal::INT] {
        let files = files();
        let data = files.path().join("data");
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--kill-child"]);
        let daemon = Daemon::start(serve_by(unshare, &["--data", text(&data)]));
        let mut client = Client::connect(daemon.lockserver()).expect("connected");
        let lock = request("k", "i", "alice", (600, 60, 0));
        assert_eq!(client.number(&lock).expect("an answer"), 1);
        let mut status = sexton();
        status.args(["status", "--json", "--data", text(&data)]);
        let status = status.output().expect("the program runs");
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("valid JSON");
        assert_eq!(status["pid"], 1);

        let unshare = daemon.pid().as_raw_nonzero().get().cast_unsigned();
        kill_process(child_of(unshare), signal).expect("a live process");
        let (status, log) = daemon.end();
        assert_eq!(status.code(), Some(0), "{signal:?}: {log}");

        let again = Daemon::serve(&["--data", text(&data)]);
        again.until_logged("clean=true");
        let mut client = Client::connect(again.lockserver()).expect("connected");
        assert_eq!(client.owner("k", "i").expect("an answer"), b"alice");
    }
}
