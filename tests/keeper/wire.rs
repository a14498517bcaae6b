//! A separate keeper for each test, and the client that takes the place of its coordinator. No process outlives the test that started it.

use crate::groups;
use crate::patience::{PATIENCE, until};
use sexton::bytes::Bytes;
use sexton::ids::ProcessId;
use sexton::keeper::protocol::{Exited, Launch, Report, Request, Started, VERSION};
use sexton::kernel::pidfd::Pidfd;
use sexton::kernel::proc;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_sexton");

/// The environment variable by which the descendants of a keeper are recognised, also after their parents have ended.
const MARK: &str = "KEEPER_OF_TEST";

/// A data directory with a keeper. When it is dropped, the keeper and all children are killed.
pub(crate) struct Kept {
    data: TempDir,
    keeper: Option<Child>,
}

pub(crate) fn bytes(text: impl AsRef<[u8]>) -> Bytes {
    Bytes::new(text.as_ref())
}

pub(crate) fn path_bytes(path: &Path) -> Bytes {
    bytes(path.to_str().expect("UTF-8"))
}

/// Returns the attempt of this number.
pub(crate) fn attempt(number: u64) -> ProcessId {
    ProcessId::new(1_700_000_000_000, u128::from(number))
}

impl Kept {
    /// Creates a directory with a running keeper.
    pub(crate) fn new() -> Self {
        let mut kept = Self::unkept();
        kept.start();
        kept
    }

    /// Creates a directory without a keeper.
    pub(crate) fn unkept() -> Self {
        Self { data: tempfile::tempdir().expect("the disk has space"), keeper: None }
    }

    /// Returns a path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.data.path().join(name)
    }

    /// Starts a keeper, and waits until it listens.
    pub(crate) fn start(&mut self) {
        self.keeper = Some(self.try_start().expect("it listens"));
    }

    /// Like [`start`](Self::start), but runs the keeper through a command that executes its further arguments.
    pub(crate) fn start_by(&mut self, command: Command) {
        self.keeper = Some(self.try_start_by(command).expect("it listens"));
    }

    /// Starts a keeper, and waits until it listens. Returns what it printed if it ended instead.
    pub(crate) fn try_start(&self) -> Result<Child, String> {
        self.try_start_by(Command::new(PROGRAM))
    }

    fn try_start_by(&self, mut command: Command) -> Result<Child, String> {
        let command = command.args(["keeper", "--data"]).arg(self.data.path());
        let streams = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = streams.stderr(Stdio::piped()).spawn().expect("the command starts");
        let mut words = String::new();
        let mut errors = child.stderr.take().expect("a pipe");
        let mut output = child.stdout.take().expect("a pipe");
        output.read_to_string(&mut words).expect("UTF-8");
        errors.read_to_string(&mut words).expect("UTF-8");
        // The keeper closes its streams when it listens, or by ending, so the reads above return then.
        let listens = || {
            let is_it = self.read("keeper.lock").trim().parse() == Ok(child.id());
            is_it && UnixStream::connect(self.path("keeper.sock")).is_ok()
        };
        if listens() {
            return Ok(child);
        }
        child.wait().expect("our child");
        Err(words)
    }

    /// Returns the PID of the keeper.
    pub(crate) fn pid(&self) -> u32 {
        self.keeper.as_ref().expect("the keeper was started").id()
    }

    /// Kills the keeper with SIGKILL, to simulate a crash.
    pub(crate) fn kill(&mut self) {
        let mut keeper = self.keeper.take().expect("the keeper was started");
        keeper.kill().expect("a live process");
        keeper.wait().expect("our child");
    }

    /// Returns the exit status of the keeper; `None` if it is still running.
    pub(crate) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        let keeper = self.keeper.as_mut().expect("the keeper was started");
        keeper.try_wait().expect("our child")
    }

    /// Connects to the keeper.
    pub(crate) fn connect(&self) -> Peer {
        let socket = UnixStream::connect(self.path("keeper.sock")).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a nonzero timeout");
        Peer { socket }
    }

    /// Connects as a coordinator, and returns the connection, and the reports with which the keeper answers the hello.
    pub(crate) fn hello(&self) -> (Peer, Vec<Report>) {
        let mut peer = self.connect();
        let told = peer.hello();
        (peer, told)
    }

    /// Returns a launch of a program with these arguments.
    pub(crate) fn launch(&self, argv: &[&str]) -> Launch {
        let mark = format!("{MARK}={}", self.data.path().display());
        Launch {
            argv: argv.iter().map(bytes).collect(),
            dir: path_bytes(self.data.path()),
            env: vec![bytes("PATH=/usr/bin:/bin"), bytes(mark)],
            ..Launch::default()
        }
    }

    /// Returns a launch of a shell with this script.
    pub(crate) fn shell(&self, script: &str) -> Launch {
        self.launch(&["sh", "-c", script])
    }

    /// Returns a launch of a shell with this script, whose output goes to this file in the directory.
    pub(crate) fn writing(&self, script: &str, name: &str) -> Launch {
        let path = path_bytes(&self.path(name));
        Launch { output: Some((path.clone(), path)), ..self.shell(script) }
    }

    /// Creates a named pipe in the directory.
    pub(crate) fn make_fifo(&self) {
        let mode = rustix::fs::Mode::RWXU;
        let made = rustix::fs::mkfifoat(rustix::fs::CWD, self.path("fifo"), mode);
        made.expect("the disk has space");
    }

    /// Returns the content of a file in the directory; empty if the file does not exist.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn leftovers(&self) -> Vec<Pidfd> {
        let mark = format!("{MARK}={}", self.data.path().display());
        let is_marked = |pid: u32| {
            let env = proc::environ(pid).ok().flatten().unwrap_or_default();
            env.iter().any(|variable| variable.as_bytes() == mark.as_bytes())
        };
        let pids = proc::pids().unwrap_or_default();
        let opened = pids.into_iter().filter_map(|pid| {
            let pidfd = Pidfd::open(pid).ok().flatten()?;
            is_marked(pid).then_some(pidfd)
        });
        opened.collect()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            drop(keeper.kill());
            drop(keeper.wait());
        }
        // A child may create others before it is killed, so this is repeated until none is left.
        for _ in 0..100 {
            let left = self.leftovers();
            if left.is_empty() {
                break;
            }
            for pidfd in left {
                drop(pidfd.signal(9));
            }
        }
        groups::remove(self.data.path());
    }
}

/// The client's end of a connection to a keeper.
pub(crate) struct Peer {
    pub(crate) socket: UnixStream,
}

/// Formats bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to memory does not fail");
        text
    })
}

/// Encodes a request as a frame: its length, and its payload.
pub(crate) fn framed(request: &Request) -> Vec<u8> {
    let payload = rmp_serde::to_vec(request).expect("it encodes");
    let length = u32::try_from(payload.len()).expect("a small number");
    [length.to_le_bytes().as_slice(), &payload].concat()
}

impl Peer {
    pub(crate) fn send(&mut self, request: &Request) {
        self.socket.write_all(&framed(request)).expect("connected");
    }

    /// Reads the next report; `None` at the end of the connection.
    pub(crate) fn try_next(&mut self) -> Option<Report> {
        let mut length = [0; 4];
        match self.socket.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) => {
                let kind = error.kind();
                let ended =
                    [std::io::ErrorKind::UnexpectedEof, std::io::ErrorKind::ConnectionReset];
                assert!(ended.contains(&kind), "waited in vain: {error}");
                return None;
            }
        }
        let mut payload = vec![0; u32::from_le_bytes(length) as usize];
        self.socket.read_exact(&mut payload).expect("the answer is complete");
        Some(rmp_serde::from_slice(&payload).expect("it is a report"))
    }

    pub(crate) fn next(&mut self) -> Report {
        self.try_next().expect("the connection is open")
    }

    /// Sends the hello, and returns all reports before `Told`, which ends the keeper's answer.
    pub(crate) fn hello(&mut self) -> Vec<Report> {
        self.send(&Request::Hello { version: VERSION });
        let mut told = Vec::new();
        loop {
            match self.next() {
                Report::Told => return told,
                report => told.push(report),
            }
        }
    }

    pub(crate) fn launch(&mut self, attempt: ProcessId, launch: Launch) {
        let launch = Box::new(launch);
        self.send(&Request::Launch { attempt, launch });
    }

    pub(crate) fn ask(&mut self, attempt: ProcessId) -> Report {
        self.send(&Request::Ask { attempt });
        self.next()
    }

    /// Launches an attempt, and returns the report that it was started.
    pub(crate) fn run(&mut self, attempt: ProcessId, launch: Launch) -> Started {
        self.launch(attempt, launch);
        loop {
            match self.next() {
                Report::Started(started) if started.attempt == attempt => return started,
                Report::Exited(exited) if exited.started.attempt == attempt => {
                    return exited.started;
                }
                Report::Failed { step, errno, .. } => panic!("failed at {step}: {errno}"),
                _ => {}
            }
        }
    }

    /// Waits until an attempt has ended, and returns the report of its exit.
    pub(crate) fn exit(&mut self, attempt: ProcessId) -> Exited {
        loop {
            match self.next() {
                Report::Exited(exited) if exited.started.attempt == attempt => return exited,
                Report::Failed { step, errno, .. } => panic!("failed at {step}: {errno}"),
                _ => {}
            }
        }
    }

    /// Launches an attempt, waits until it has ended, and returns its wait status.
    pub(crate) fn run_through(&mut self, attempt: ProcessId, launch: Launch) -> u32 {
        self.launch(attempt, launch);
        self.exit(attempt).status
    }
}

/// Waits until no process has this PID, not even a zombie.
pub(crate) fn until_reaped(pid: u32) {
    until("the process is reaped", || {
        proc::stat(pid).expect("a live process").is_none().then_some(())
    });
}
