//! sexton with beanstalkd's command line: flags, signals, exit statuses, and what it stores.

use crate::patience::until;
use crate::unserved;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// Makes a link to the program that has the name `beanstalkd`.
fn link() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let link = directory.path().join("beanstalkd");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sexton"), &link).expect("a link");
    (directory, link)
}

fn output(program: &Path, words: &[&str]) -> Output {
    Command::new(program).args(words).output().expect("the command runs")
}

/// A running server on a port. Killed when dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(program: &Path, words: &[&str]) -> Self {
        let port = unserved::port(0).expect("one is free");
        let child = Command::new(program)
            .args(["-l127.0.0.1", "-p", &port.to_string()])
            .args(words)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let server = Self { child, port };
        until("it listens", || TcpStream::connect(("127.0.0.1", port)).ok());
        server
    }

    fn ask(&self, words: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        ask(&mut stream, words)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a live process");
    }

    /// Waits until it ends. Returns the exit status and the output.
    fn end(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().expect("our child");
        let mut said = String::new();
        let mut errors = self.child.stderr.take().expect("a pipe");
        errors.read_to_string(&mut said).expect("UTF-8");
        (status.code(), said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may already have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sends one command. Returns the first line of the reply.
fn ask(stream: &mut (impl std::io::Read + std::io::Write), words: &str) -> String {
    stream.write_all(format!("{words}\r\n").as_bytes()).expect("the process reads its input");
    let mut line = String::new();
    let read = BufReader::new(stream).read_line(&mut line);
    read.expect("it answers");
    line.trim_end().to_owned()
}

#[test]
fn what_it_says_and_how_it_ends_are_beanstalkds() {
    let (_directory, program) = link();
    let version = output(&program, &["-v"]);
    let said = String::from_utf8_lossy(&version.stdout).into_owned();
    assert!(said.starts_with("beanstalkd 1.13"), "{said}");
    assert_eq!(version.status.code(), Some(0));
    let help = output(&program, &["-Vh"]);
    let said = String::from_utf8_lossy(&help.stderr).into_owned();
    for flag in "bfFlpsuzVvh".chars() {
        assert!(said.contains(&format!("-{flag} ")), "{flag} in {said}");
    }
    assert_eq!(help.status.code(), Some(0));
    for wrong in [&["-x"][..], &["-p"], &["-z", "much"], &["11300"], &["--help"]] {
        assert_eq!(output(&program, wrong).status.code(), Some(5), "{wrong:?}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = taken.local_addr().expect("an address").port().to_string();
    for words in [&["-l", "127.0.0.1", "-p", &port][..], &["-p", "many"]] {
        assert_eq!(output(&program, words).status.code(), Some(111), "{words:?}");
    }
    let user = output(&program, &["-l127.0.0.1", "-p0", "-unobody-of-this-name"]);
    assert_eq!(user.status.code(), Some(33));
    // The flags have the same effect with the program's own name.
    let own = Path::new(env!("CARGO_BIN_EXE_sexton"));
    assert_eq!(output(own, &["beanstalkd", "-v"]).stdout, version.stdout);
    assert_eq!(output(own, &["beanstalkd", "-x"]).status.code(), Some(5));
}

#[test]
fn signals_drain_and_end_it() {
    let (_directory, program) = link();
    let server = Server::start(&program, &["-Vcn"]);
    assert_eq!(server.ask("put 0 0 60 1\r\nx"), "INSERTED 1");
    server.signal(Signal::USR1);
    until("it drains", || (server.ask("put 0 0 60 1\r\nx") == "DRAINING").then_some(()));
    // All other commands are accepted, and the server does not exit. Use one connection, since a command on another one
    // might be executed before the job is released.
    let mut worker = TcpStream::connect(("127.0.0.1", server.port)).expect("it listens");
    let commands = b"reserve-job 1\r\ndelete 1\r\nquit\r\n";
    worker.write_all(commands).expect("connected");
    let mut said = String::new();
    worker.read_to_string(&mut said).expect("an answer");
    assert_eq!(said, "RESERVED 1 1\r\nx\r\nDELETED\r\n");
    assert_eq!(server.ask("put 0 0 60 1\r\nx"), "DRAINING");
    server.signal(Signal::TERM);
    let (status, said) = server.end();
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("-c is ignored"), "{said}");
}

#[test]
fn jobs_are_kept_in_a_directory_and_only_there() {
    let (directory, program) = link();
    let data = directory.path().join("data");
    let data = data.to_str().expect("UTF-8");
    for words in [&["-f0", "-b", data][..], &[]] {
        let is_kept = !words.is_empty();
        let mut server = Server::start(&program, words);
        assert_eq!(server.ask("put 7 0 60 1\r\nx"), "INSERTED 1");
        server.child.kill().expect("a live process");
        drop(server);
        let server = Server::start(&program, words);
        let expected = if is_kept { "FOUND 1 1" } else { "NOT_FOUND" };
        assert_eq!(server.ask("peek 1"), expected);
        let inserted = server.ask("put 7 0 60 1\r\nx");
        assert_eq!(inserted != "INSERTED 1", is_kept, "{inserted}");
    }
}

#[test]
fn whoever_asks_its_directory_is_told_that_it_runs_there() {
    let (directory, program) = link();
    let data = directory.path().join("data");
    let data = data.to_str().expect("UTF-8");
    let server = Server::start(&program, &["-b", data]);
    let sexton = Path::new(env!("CARGO_BIN_EXE_sexton"));
    // At the first start, the listener is bound before the directory is created.
    let (refused, said) = until("the directory is in use", || {
        let refused = output(sexton, &["status", "--data", data]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        (!said.contains("there is no such directory")).then_some((refused, said))
    });
    assert_eq!(refused.status.code(), Some(3), "{said}");
    let process = format!("process {} uses {data}", server.child.id());
    assert!(said.contains(&process), "{said}");
    assert!(!said.contains("starts one"), "{said}");
}

#[test]
fn a_unix_socket_is_replaced_if_nobody_listens_on_it() {
    let (directory, program) = link();
    let path = directory.path().join("socket");
    let word = format!("unix:{}", path.display());
    // Leave a socket behind, as a server that was killed does.
    unserved::left_behind(&path).expect("a socket");
    let mut child =
        Command::new(&program).args(["-l", &word, "-z", "10"]).spawn().expect("the command starts");
    let mut stream = until("it listens", || UnixStream::connect(&path).ok());
    assert_eq!(ask(&mut stream, "put 0 0 60 11\r\nelevenbytes"), "JOB_TOO_BIG");
    assert_eq!(ask(&mut stream, "put 0 0 60 10\r\n10 bytes: "), "INSERTED 1");
    let second = output(&program, &["-l", &word]);
    assert_eq!(second.status.code(), Some(111), "{second:?}");
    assert_eq!(ask(&mut stream, "delete 1"), "DELETED");
    child.kill().expect("a live process");
    child.wait().expect("our child");
    let file = directory.path().join("file");
    std::fs::write(&file, "precious").expect("it is writable");
    let word = format!("unix:{}", file.display());
    assert_eq!(output(&program, &["-l", &word]).status.code(), Some(111));
    assert_eq!(std::fs::read(&file).expect("the file exists"), b"precious");
}
