//! The real program as a process of its own: started, spoken to by signals, killed, and never left behind.

use crate::patience::until;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A running `sexton serve`. Killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    ready: String,
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

/// The program with nothing of this test's environment that it would listen to.
pub(crate) fn sexton() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sexton"));
    forget_environment(&mut command);
    command
}

/// Takes away what the program would listen to.
pub(crate) fn forget_environment(command: &mut Command) {
    let is_ours = |name: &std::ffi::OsString| {
        let name = name.to_string_lossy();
        let ours = ["SEXTON_", "LISTEN_", "WATCHDOG_"];
        ours.iter().any(|begin| name.starts_with(begin))
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(name)) {
        command.env_remove(name);
    }
    for name in ["NOTIFY_SOCKET", "NO_COLOR"] {
        command.env_remove(name);
    }
}

impl Daemon {
    /// `sexton serve` with these flags and a LockServer door on a free port, once it is ready.
    pub(crate) fn serve(flags: &[&str]) -> Self {
        let mut command = sexton();
        command.args([
            "serve",
            "--beanstalk",
            "off",
            "--lockserver",
            "127.0.0.1:0",
            "--http",
            "off",
        ]);
        command.args(flags);
        Self::start(command)
    }

    /// Whatever this command starts, once it has printed its line; fails if it ends before.
    pub(crate) fn start(command: Command) -> Self {
        let mut daemon = Self::begin(command);
        let out = daemon
            .child
            .stdout
            .take()
            .expect("standard output is piped");
        let read = BufReader::new(out).read_line(&mut daemon.ready);
        if read.is_err() || !daemon.ready.starts_with("ready ") {
            drop(daemon.child.kill());
            let words = daemon.last_words();
            panic!("not ready: {:?}\n{words}", daemon.ready);
        }
        daemon
    }

    /// The same without waiting for anything.
    pub(crate) fn begin(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut errors = child.stderr.take().expect("standard error is piped");
        let log = Arc::new(Mutex::new(String::new()));
        let theirs = Arc::clone(&log);
        let read = move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = errors.read(&mut bytes) {
                let words = String::from_utf8_lossy(bytes.get(..count).unwrap_or(&[])).into_owned();
                theirs
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push_str(&words);
            }
        };
        let reader = std::thread::Builder::new()
            .name("daemon-log".to_owned())
            .spawn(read)
            .expect("a thread starts");
        Self {
            child,
            ready: String::new(),
            log,
            reader: Some(reader),
        }
    }

    /// The line it printed.
    pub(crate) fn ready(&self) -> &str {
        &self.ready
    }

    /// Where its LockServer door is.
    pub(crate) fn lockserver(&self) -> SocketAddr {
        let address = self
            .ready
            .split_whitespace()
            .find_map(|word| word.strip_prefix("lockserver="));
        address
            .and_then(|address| address.parse().ok())
            .expect("the ready line names the LockServer door")
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the process is there");
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits for a line of its log.
    pub(crate) fn until_logged(&self, words: &str) {
        until(&format!("{words:?} in the log"), || {
            self.log().contains(words).then_some(())
        });
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end, and gives everything it logged.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let status = until("the process ends", || {
            self.child.try_wait().expect("it is our child")
        });
        (status, self.last_words())
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the process is there");
        self.child.wait().expect("it is our child");
    }

    /// The whole log, when the process closes it.
    fn last_words(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("reading a log does not panic");
        }
        self.log()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
