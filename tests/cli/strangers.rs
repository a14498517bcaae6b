//! What another user of the machine can do with the sockets and files of a coordinator: nothing. A second user requires root; without it,
//! the tests are reported as skipped.

use crate::coordinator::done;
use crate::daemon::{self, Daemon, sexton, text};
use crate::left_out::left_out;
use crate::patience::until;
use crate::tree::Tree;
use crate::work::{begin, job, push, until_lines};
use rustix::process::{Signal, kill_process};
use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The program itself.
const SEXTON: &str = env!("CARGO_BIN_EXE_sexton");

/// A user without any right.
const STRANGER: u32 = 65_534;

/// Opens 150 connections to each socket that it is given, without a word, and reports that. When its input ends, it expects that each of
/// them was closed, with a refusal at most.
const SILENT: &str = r"
import socket, sys
opened = []
for name in sys.argv[1:]:
    address = '\0' + name[1:] if name[0] == '@' else name
    for _ in range(150):
        it = socket.socket(socket.AF_UNIX)
        it.connect(address)
        opened.append((name, it))
print('open', flush=True)
sys.stdin.read()
for name, it in opened:
    it.settimeout(60)
    answer = b''
    try:
        while piece := it.recv(4096):
            answer += piece
    except ConnectionResetError:
        pass
    assert answer == b'' or b' 403 ' in answer, (name, answer)
print('closed', flush=True)
";

/// Returns whether this test can act as another user, and reports that it is skipped if not.
fn can_be_another(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        left_out(format!("{what}: only root can become another user"));
    }
    is_root
}

/// Starts a program as the user [`STRANGER`].
fn as_stranger(mut command: Command) -> Child {
    command.uid(STRANGER).gid(STRANGER).current_dir("/");
    command.spawn().expect("the program starts")
}

/// Returns the names of the Unix stream sockets on which these processes listen: the path, or `@` and the abstract name.
fn listening(processes: &[u32]) -> BTreeSet<String> {
    let mut inodes = BTreeSet::new();
    for process in processes {
        let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).expect("it is alive");
        for descriptor in descriptors.flatten() {
            let target = std::fs::read_link(descriptor.path()).unwrap_or_default();
            let inode = text(&target).strip_prefix("socket:[").map(str::to_owned);
            inodes.extend(inode.map(|it| it.trim_end_matches(']').to_owned()));
        }
    }
    let table = std::fs::read_to_string("/proc/net/unix").expect("it can be read");
    let listens = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, flags, kind, _, inode, name] = words.as_slice() else {
            return None;
        };
        // `__SO_ACCEPTCON`, and `SOCK_STREAM`.
        let is_it = (*flags, *kind) == ("00010000", "0001") && inodes.contains(*inode);
        is_it.then(|| (*name).to_owned())
    });
    listens.collect()
}

/// Every socket on which a process of ours listens. A new one fails this test until it is listed here.
#[test]
fn no_socket_has_a_place_for_a_stranger() {
    if !can_be_another("silent connections of another user") {
        return;
    }
    let tree = Tree::start();
    let id = push(&tree, "mails", "a");
    let (log, gate) = (tree.data.join("log"), tree.data.join("gate"));
    let script = format!(
        "echo begin >> {}; while [ ! -e {} ]; do sleep 0.02; done; {SEXTON} job snooze 1h later; exit 0",
        text(&log),
        text(&gate)
    );
    let worker = begin(&tree, &["mails"], &script);
    until_lines(&log, 1);
    // The modes of files and directories are not all that keeps others out.
    let parent = tree.data.parent().expect("it has a parent");
    for (path, mode) in [(parent, 0o711), (tree.data.as_path(), 0o711)] {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("our own file");
    }
    let keeper = tree.keeper().expect("it has launched the command");
    let keeper = keeper.as_raw_nonzero().get().unsigned_abs();
    let coordinator = tree.get("/v1/status")["pid"].as_u64().expect("a number");
    let coordinator = u32::try_from(coordinator).expect("it is a PID");
    let sockets = listening(&[coordinator, keeper, worker.id()]);
    let known = ["keeper.sock", "report.sock", "sexton.sock"];
    let mut expected = known.map(|name| text(&tree.data.join(name)).to_owned()).to_vec();
    let (named, of_files) = sockets.iter().partition::<Vec<_>, _>(|it| it.starts_with('@'));
    expected.sort();
    assert_eq!(of_files, expected.iter().collect::<Vec<_>>());
    assert!(named.len() == 1 && named[0].starts_with("@sexton-work-"), "{named:?}");
    for path in &expected {
        std::fs::set_permissions(path, Permissions::from_mode(0o666)).expect("our own file");
    }
    let mut silent = Command::new("python3");
    silent.args(["-c", SILENT]).args(&sockets);
    silent.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut silent = as_stranger(silent);
    let mut lines = BufReader::new(silent.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("open"));
    // Everything goes on meanwhile.
    tree.well(&["status"]);
    tree.well(&["run", "--", "true"]);
    let mut report = UnixStream::connect(tree.data.join("report.sock")).expect("it listens");
    report.write_all(b"{}\n").expect("connected");
    let mut answer = String::new();
    report.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains("malformed"), "{answer}");
    std::fs::write(&gate, "").expect("a writable file");
    let done = done(worker.wait_with_output().expect("our child"));
    assert_eq!(done.status, 0, "{done:?}");
    let shown = job(&tree, &id);
    assert_eq!((&shown["error"], &shown["attempts"]), (&"later".into(), &0.into()), "{shown}");
    drop(silent.stdin.take());
    assert_eq!(lines.next().and_then(Result::ok).as_deref(), Some("closed"));
    assert!(silent.wait().expect("our child").success());
}

/// Environment and streams are handed to a coordinator of the own user or of root only.
#[test]
fn a_coordinator_of_another_user_is_handed_nothing() {
    if !can_be_another("a coordinator of another user") {
        return;
    }
    let tree = Tree::of_user(STRANGER);
    for command in [
        &["run", "--", "true"][..],
        &["lock", "run", "l", "--", "true"],
        &["lease", "run", "l", "--", "true"],
    ] {
        let refused = tree.run(command);
        assert_eq!(refused.status, 3, "{command:?}: {refused:?}");
        let words = format!("runs as user {STRANGER}");
        assert!(refused.err.contains(&words), "{command:?}: {refused:?}");
    }
    // What is not secret is up to the caller.
    tree.well(&["status"]);
    let id = tree.detach("exit 3");
    assert_eq!(tree.run(&["wait", &id]).status, 3);
}

/// Runs `sexton serve` on a directory, and returns why it did not start.
fn refusal(data: &Path) -> String {
    let output = daemon::serve(&["--data", text(data)]).output();
    let refused = done(output.expect("the program runs"));
    assert_eq!(refused.status, 3, "{refused:?}");
    refused.err
}

#[test]
fn a_directory_of_another_user_is_not_used() {
    if !can_be_another("a data directory of another user") {
        return;
    }
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    std::fs::create_dir(&data).expect("a new directory");
    chown(&data, Some(STRANGER), None).expect("root may do this");
    let words = format!("belongs to user {STRANGER}");
    let refused = refusal(&data);
    assert!(refused.contains(&words) && refused.contains("chown"), "{refused}");
    assert_eq!(std::fs::read_dir(&data).expect("it exists").count(), 0);
    // The directory is ours, but not what is in it.
    chown(&data, Some(0), None).expect("root may do this");
    for name in ["keeper.sock", "sexton.sock", "notify.sock", "report.key", "journal", "lock"] {
        let path = data.join(name);
        match name {
            "journal" => std::fs::create_dir(&path).expect("a new directory"),
            "report.key" | "lock" => std::fs::write(&path, [7; 32]).expect("a writable file"),
            _ => drop(UnixListener::bind(&path).expect("a socket")),
        }
        chown(&path, Some(STRANGER), None).expect("root may do this");
        let refused = refusal(&data);
        assert!(refused.contains(&words) && refused.contains(name), "{name}: {refused}");
        if name == "journal" {
            std::fs::remove_dir(&path).expect("it is empty");
        } else {
            std::fs::remove_file(&path).expect("it exists");
        }
    }
}

#[test]
fn a_pipe_in_place_of_a_file_does_not_hold_a_start_up() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    std::fs::create_dir(&data).expect("a new directory");
    for name in ["keeper.lock", "keeper.log", "lock", "report.key"] {
        let path = data.join(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        let refused = refusal(&data);
        assert!(refused.contains("it is not a file") && refused.contains(name), "{refused}");
        std::fs::remove_file(&path).expect("it exists");
    }
}

/// A keeper that is stopped, with a full queue of connections, holds nothing else up.
#[test]
fn a_keeper_that_is_stopped_is_not_waited_for_without_limit() {
    let mut tree = Tree::start();
    let id = tree.detach("sleep 1000");
    let pid = until("it runs", || {
        let record = tree.record(&id);
        record["pid"].as_u64().filter(|_| record["status"] == "running")
    });
    let keeper = tree.keeper().expect("a keeper runs");
    tree.again(|| {
        kill_process(keeper, Signal::STOP).expect("a live process");
    });
    let path = tree.data.join("keeper.sock");
    let mut waiting = Vec::new();
    let full = loop {
        match sexton::kernel::socket::connect(&path, std::time::Duration::ZERO) {
            Ok(stream) => waiting.push(stream),
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), std::io::ErrorKind::TimedOut);
    let refused = tree.run(&["run", "--", "true"]);
    assert!(matches!(refused.status, 3 | 125), "{refused:?}");
    assert!(refused.err.contains("stopped"), "{refused:?}");
    tree.well(&["kill", "--now", &id]);
    until("the process is killed", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    });
    drop(waiting);
    kill_process(keeper, Signal::CONT).expect("a live process");
    until("the keeper is back", || (tree.run(&["run", "--", "true"]).status == 0).then_some(()));
    assert_eq!(tree.run(&["wait", &id]).status, 128 + 9);
}

#[test]
fn a_secret_file_of_another_user_is_refused() {
    if !can_be_another("a token file of another user") {
        return;
    }
    let files = tempfile::tempdir().expect("a temporary directory");
    let token = files.path().join("token");
    std::fs::write(&token, "0123456789abcdef run\n").expect("a writable file");
    std::fs::set_permissions(&token, Permissions::from_mode(0o600)).expect("our own file");
    chown(&token, Some(STRANGER), None).expect("root may do this");
    let flags = ["--memory", "--http", "127.0.0.1:0", "--token-file", text(&token)];
    let refused = done(daemon::serve(&flags).output().expect("the program runs"));
    assert_eq!(refused.status, 3, "{refused:?}");
    let words = format!("belongs to user {STRANGER}");
    assert!(refused.err.contains(&words), "{refused:?}");
}

#[test]
fn a_start_below_a_directory_that_others_may_write_to_is_warned_of() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let parent = files.path().join("parent");
    std::fs::create_dir(&parent).expect("a new directory");
    let data = parent.join("data");
    let set = |mode| {
        let mode = Permissions::from_mode(mode);
        std::fs::set_permissions(&parent, mode).expect("our own directory");
    };
    let words = "other users can put another directory in the place of";
    for (mode, is_warned_of) in [(0o755, false), (0o777, true), (0o775, true), (0o1777, false)] {
        set(mode);
        let daemon = Daemon::serve(&["--data", text(&data), "--http", "127.0.0.1:0"]);
        daemon.signal(Signal::TERM);
        let (status, log) = daemon.end();
        assert!(status.success(), "{log}");
        assert_eq!(log.contains(words), is_warned_of, "{mode:o}: {log}");
    }
}

/// Nothing is sent to a user who may have put their own directory in the place of the one that was named.
#[test]
fn one_who_may_have_replaced_the_data_directory_is_not_asked() {
    if !can_be_another("a data directory in the place of another") {
        return;
    }
    let files = tempfile::tempdir().expect("a temporary directory");
    let passable = Permissions::from_mode(0o711);
    std::fs::set_permissions(files.path(), passable).expect("our own directory");
    let parent = files.path().join("parent");
    let data = parent.join("data");
    std::fs::create_dir_all(&data).expect("a new directory");
    chown(&data, Some(STRANGER), None).expect("root may do this");
    let socket = data.join("sexton.sock");
    let listen = || {
        use rustix::process::Uid;
        // This changes only the user of the thread.
        rustix::thread::set_thread_uid(Uid::from_raw(STRANGER)).expect("root may do this");
        UnixListener::bind(&socket).expect("the directory is theirs")
    };
    let listener = std::thread::scope(|scope| scope.spawn(listen).join().expect("it listens"));
    let ask = |flag: &str, value: &str| {
        let mut command = sexton();
        command.args(["lock", "list", flag, value]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the program starts");
        let (mut asked, _) = listener.accept().expect("it connects");
        let mut first = [0; 1];
        let count = asked.read(&mut first).expect("it is connected");
        drop(asked);
        (count, child)
    };
    for owner in [0, STRANGER] {
        chown(&parent, Some(owner), None).expect("root may do this");
        let (count, child) = ask("--data", text(&data));
        assert_eq!(count, 1, "only they and root can replace their directory");
        child.wait_with_output().expect("it ends");
    }
    for (owner, mode, words) in
        [(0, 0o777, "has mode 0777"), (STRANGER - 1, 0o755, "belongs to user 65533")]
    {
        chown(&parent, Some(owner), None).expect("root may do this");
        let mode = Permissions::from_mode(mode);
        std::fs::set_permissions(&parent, mode).expect("root may do this");
        let (count, child) = ask("--data", text(&data));
        assert_eq!(count, 0, "nothing is sent");
        let refused = done(child.wait_with_output().expect("it ends"));
        assert_eq!(refused.status, 3, "{refused:?}");
        assert!(
            refused.err.contains("user 65534 listens there") && refused.err.contains(words),
            "{refused:?}"
        );
        let (count, child) = ask("--url", &format!("unix:{}", text(&socket)));
        assert_eq!(count, 1, "this socket is meant");
        child.wait_with_output().expect("it ends");
    }
}

/// The environments of all commands pass through server and keeper. A command can be looked into as before.
#[test]
fn server_and_keeper_hide_from_their_own_user() {
    let own = rustix::process::geteuid();
    let user = if own.is_root() { STRANGER } else { own.as_raw() };
    let tree = Tree::of_user(user);
    let id = tree.detach("exec sleep 1000");
    let command = until("it runs", || {
        let record = tree.record(&id);
        let is_running = record["status"] == "running";
        record["pid"].as_u64().filter(|_| is_running)
    });
    let reads = |pid: u64| {
        let mut reader = Command::new("cat");
        reader.arg(format!("/proc/{pid}/environ"));
        reader.stdout(Stdio::null()).stderr(Stdio::null());
        if own.is_root() {
            reader.uid(user).gid(user);
        }
        reader.status().expect("the program runs").success()
    };
    let keeper = tree.keeper().expect("a keeper runs").as_raw_nonzero();
    let keeper = u64::from(keeper.get().unsigned_abs());
    let coordinator = tree.get("/v1/status")["pid"].as_u64().expect("a number");
    assert!(reads(command), "its own user can read it");
    assert!(!reads(keeper) && !reads(coordinator));
}

/// The user of a service may put a link to any file in place of one of their own that the service names.
#[test]
fn a_service_is_not_given_a_file_of_ours_to_which_its_user_made_a_link() {
    if !can_be_another("a service of another user") {
        return;
    }
    let files = tempfile::tempdir().expect("a temporary directory");
    let files = files.path().canonicalize().expect("it exists");
    std::fs::set_permissions(&files, Permissions::from_mode(0o755)).expect("our own directory");
    let home = files.join("home");
    std::fs::create_dir(&home).expect("a new directory");
    chown(&home, Some(STRANGER), Some(STRANGER)).expect("root may do this");
    let (secret, named) = (files.join("secret"), home.join("env"));
    std::fs::write(&secret, "PASSWORD=ours\n").expect("a writable file");
    std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("our own file");
    let application = Tree::configured(&format!(
        "[services.app]\ncommand = [\"sh\", \"-c\", \"echo got $PASSWORD; exec sleep 1000\"]\n\
         dir = \"/\"\nuser = \"{STRANGER}\"\nenv_file = \"{}\"\nbackoff = {{ first = \"20ms\", max = \"20ms\" }}\n\
         intensity = false\n",
        text(&named)
    ));
    let output = application.data.join("services/app/stdout.log");
    let printed = || std::fs::read_to_string(&output).unwrap_or_default();
    let failure = || {
        let shown = application.run(&["service", "status", "app", "--json"]);
        (shown.out + &shown.err).contains("a symbolic link leads to it")
    };
    std::os::unix::fs::symlink(&secret, &named).expect("a link");
    until("the launch fails", || failure().then_some(()));
    assert_eq!(printed(), "");
    // A file of their own, and one of ours that is named itself, are read.
    std::fs::remove_file(&named).expect("it exists");
    std::fs::write(&named, "PASSWORD=theirs\n").expect("a writable file");
    chown(&named, Some(STRANGER), None).expect("root may do this");
    until("it runs", || printed().contains("got theirs").then_some(()));
    chown(&named, Some(0), None).expect("root may do this");
    std::fs::write(&named, "PASSWORD=named\n").expect("a writable file");
    application.well(&["service", "restart", "app"]);
    until("it runs", || printed().contains("got named").then_some(()));
    application.well(&["service", "stop", "app"]);
}

/// In a directory that a launch names, somebody else may have put files while they could.
#[test]
fn output_is_not_written_to_a_file_of_another_user() {
    if !can_be_another("an output file of another user") {
        return;
    }
    let tree = Tree::start();
    let files = tempfile::tempdir().expect("a temporary directory");
    let dir = files.path().join("run");
    std::fs::create_dir(&dir).expect("a new directory");
    for name in ["stdout.log", "stderr.log"] {
        let planted = dir.join(name);
        std::fs::write(&planted, "").expect("a writable file");
        std::fs::set_permissions(&planted, Permissions::from_mode(0o666)).expect("our own file");
        chown(&planted, Some(STRANGER), None).expect("root may do this");
        let words = ["run", "--detach", "--run-dir", text(&dir), "--"];
        let refused = tree.run(&[&words[..], &["echo", "secret"]].concat());
        assert_eq!(refused.status, 125, "{name}: {refused:?}");
        assert_eq!(std::fs::read(&planted).expect("it exists"), b"");
        std::fs::remove_file(&planted).expect("it exists");
    }
    // Without them, the files are ours, and nobody else can read them.
    let dir_text = text(&dir);
    let words = ["run", "--detach", "--run-dir", dir_text, "--", "echo", "secret"];
    let id = tree.well(&words).trim().to_owned();
    assert_eq!(tree.run(&["wait", &id]).status, 0);
    let made = std::fs::metadata(dir.join("stdout.log")).expect("it exists");
    assert_eq!(made.permissions().mode() & 0o777, 0o600);
    // What takes the place of the output later is not shown as its output.
    std::fs::remove_file(dir.join("stdout.log")).expect("it exists");
    std::fs::write(dir.join("stdout.log"), "forged").expect("a writable file");
    chown(dir.join("stdout.log"), Some(STRANGER), None).expect("root may do this");
    assert!(!tree.record(&id).to_string().contains("forged"));
}

/// A link in a home directory that leads to the files of a service of ours.
#[test]
fn a_run_directory_of_another_user_is_refused() {
    if !can_be_another("a run directory of another user") {
        return;
    }
    let tree = Tree::start();
    let files = tempfile::tempdir().expect("a temporary directory");
    let (home, ours) = (files.path().join("home"), tree.data.join("services/app"));
    std::fs::create_dir(&home).expect("a new directory");
    std::fs::create_dir_all(&ours).expect("a new directory");
    std::fs::write(ours.join("stdout.log"), "ours").expect("a writable file");
    std::fs::create_dir(home.join("theirs")).expect("a new directory");
    std::os::unix::fs::symlink(&ours, home.join("link")).expect("a link");
    for path in [home.join("theirs"), home.clone()] {
        chown(path, Some(STRANGER), Some(STRANGER)).expect("root may do this");
    }
    std::os::unix::fs::lchown(home.join("link"), Some(STRANGER), None).expect("root may do this");
    for name in ["link", "theirs"] {
        let dir = home.join(name);
        let words = ["run", "--detach", "--run-dir", text(&dir), "--", "echo", "secret"];
        let refused = tree.run(&words);
        assert_eq!(refused.status, 125, "{name}: {refused:?}");
        let words = format!("home belongs to user {STRANGER}");
        assert!(refused.err.contains(&words), "{name}: {refused:?}");
    }
    let kept = std::fs::read_to_string(ours.join("stdout.log"));
    assert_eq!(kept.expect("it is still there"), "ours");
}

/// Nobody can tell a port of ours from one of theirs, as long as we do not listen on it.
#[test]
fn a_port_that_somebody_else_has_taken_keeps_the_coordinator_from_starting() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it listens").to_string();
    for listener in ["--lockserver", "--beanstalk", "--http"] {
        let data = files.path().join(listener);
        let flags = ["--data", text(&data), listener, &address];
        let output = daemon::serve(&flags).output();
        let refused = done(output.expect("the program runs"));
        assert_eq!(refused.status, 3, "{refused:?}");
        assert!(refused.err.contains(&address), "{refused:?}");
    }
}
