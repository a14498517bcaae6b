//! The real program as a child process, which is started, signalled and killed, and never outlives its test.

use crate::patience::until;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_sexton");

/// Flags for tests that configure no listeners. They keep the default addresses free, which another test may use.
const LISTENERS: [(&str, &str); 3] =
    [("--beanstalk", "off"), ("--lockserver", "127.0.0.1:0"), ("--http", "off")];

/// A running `sexton serve`. Killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    ready: String,
    log: Gathered,
}

/// The output of a process, which a separate thread collects as it arrives.
pub(crate) struct Gathered {
    words: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

/// Returns the program, without the environment variables that would configure it.
pub(crate) fn sexton() -> Command {
    let mut command = Command::new(PROGRAM);
    forget_environment(&mut command);
    command
}

/// Removes the variables that would configure the program.
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

/// Returns `sexton serve` with these flags. Of the listeners that the flags do not configure, only LockServer's is open,
/// on a free port.
pub(crate) fn serve(flags: &[&str]) -> Command {
    let mut command = sexton();
    command.arg("serve").args(flags);
    for (listener, address) in LISTENERS {
        if !flags.contains(&listener) {
            command.args([listener, address]);
        }
    }
    command
}

/// Returns the command of [`serve`], started by another program that gets this command after its own flags.
pub(crate) fn serve_by(mut starter: Command, flags: &[&str]) -> Command {
    forget_environment(&mut starter);
    starter.arg(PROGRAM).args(serve(flags).get_args());
    starter
}

/// Returns a path as text, for a flag.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Returns standard output and standard error of a program, which must have exited with this status.
pub(crate) fn ended(output: Output, status: i32) -> [String; 2] {
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("UTF-8"))
}

impl Daemon {
    /// Starts the command of [`serve`] and waits until it is ready.
    pub(crate) fn serve(flags: &[&str]) -> Self {
        Self::start(serve(flags))
    }

    /// Starts any command and waits for its ready line. Fails the test if it exits before.
    pub(crate) fn start(command: Command) -> Self {
        let mut daemon = Self::begin(command);
        let out = daemon.child.stdout.take().expect("standard output is piped");
        let read = BufReader::new(out).read_line(&mut daemon.ready);
        if read.is_err() || !daemon.ready.starts_with("ready ") {
            drop(daemon.child.kill());
            let words = daemon.log.whole();
            panic!("not ready: {:?}\n{words}", daemon.ready);
        }
        daemon
    }

    /// Starts any command without waiting.
    pub(crate) fn begin(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let errors = child.stderr.take().expect("standard error is piped");
        Self { child, ready: String::new(), log: Gathered::from(errors) }
    }

    /// Returns its ready line.
    pub(crate) fn ready(&self) -> &str {
        &self.ready
    }

    /// Returns the address of its LockServer listener.
    pub(crate) fn lockserver(&self) -> SocketAddr {
        self.listener("lockserver=")
    }

    /// Returns the address of its HTTP listener.
    pub(crate) fn http(&self) -> SocketAddr {
        self.listener("http=")
    }

    /// Returns the address of its beanstalkd listener, if that is a TCP port.
    pub(crate) fn beanstalk(&self) -> SocketAddr {
        self.listener("beanstalk=")
    }

    fn listener(&self, name: &str) -> SocketAddr {
        let mut words = self.ready.split_whitespace();
        let address = words.find_map(|word| word.strip_prefix(name));
        address
            .and_then(|address| address.parse().ok())
            .unwrap_or_else(|| panic!("no {name} in {:?}", self.ready))
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a live process");
    }

    /// Limits the size of its files to this number of bytes.
    pub(crate) fn limit_files(&self, bytes: Option<u64>) {
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(self.pid()), Resource::Fsize, limit)
            .expect("limits of our own child may be set");
    }

    /// Returns what it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.so_far()
    }

    /// Waits until its log contains these words.
    pub(crate) fn until_logged(&self, words: &str) {
        until(&format!("{words:?} in the log"), || self.log().contains(words).then_some(()));
    }

    /// Returns whether it is still running.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its exit. Returns its status and its whole log.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let status = until("the process ends", || self.child.try_wait().expect("our child"));
        (status, self.log.whole())
    }

    /// Kills it without a clean stop, as in a crash.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a live process");
        self.child.wait().expect("our child");
    }
}

impl Gathered {
    /// Starts to collect the output.
    pub(crate) fn from(mut source: impl Read + Send + 'static) -> Self {
        let words = Arc::new(Mutex::new(String::new()));
        let theirs = Arc::clone(&words);
        let read = move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = source.read(&mut bytes) {
                let words = String::from_utf8_lossy(bytes.get(..count).unwrap_or(&[])).into_owned();
                theirs.lock().unwrap_or_else(PoisonError::into_inner).push_str(&words);
            }
        };
        let reader = std::thread::Builder::new()
            .name("gathering".to_owned())
            .spawn(read)
            .expect("a new thread");
        Self { words, reader: Some(reader) }
    }

    /// Returns the output so far.
    pub(crate) fn so_far(&self) -> String {
        self.words.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the whole output, once every process has closed it.
    fn whole(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("no panic");
        }
        self.so_far()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The process may already have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
