//! The near end of an attempt: the process that represents it on the coordinator's machine. It connects by ssh, reconnects when
//! the connection is cut, and reports the end of the attempt to the coordinator before it exits.
//!
//! The far end stops an attempt after `--lost-after` milliseconds without contact. If it cannot be reached for somewhat longer, the attempt is
//! reported as unreachable; `timing.rs` has the rules. The other machine is not trusted: it can neither prolong an attempt that must stop,
//! nor make this process hold more than a few messages.

use crate::client::rest;
use crate::job::exchange;
use crate::report::{Failure, tell};
use crate::wrapper::link::{Link, Target};
use crate::wrapper::machine::{self, now};
use crate::wrapper::pipe;
use crate::wrapper::protocol::{Exit, FarMessage, Order, Start, Text, VERSION};
use crate::wrapper::timing::Timing;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::{Value, json};
use sexton::actors::dispatch::Task;
use sexton::kernel::{file, socket};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// The maximum number of messages that are received and not handled yet. A sender that is faster has to wait.
const EVENTS_MAX: usize = 8;
/// The reports that a command may send. Those about the attempt as a whole are sent by this process alone.
const OF_COMMANDS: [&str; 6] = ["save", "saved", "heartbeat", "done", "wait", "fail"];
/// The maximum number of bytes of an environment file that are read. The coordinator refuses a larger one.
const ENV_FILE_MAX: u64 = 1 << 20;
/// The pause before a request is repeated while the coordinator cannot be reached.
const ABSENT: Duration = Duration::from_millis(100);

/// Wait for an attempt that runs on another machine
#[derive(Args)]
pub(super) struct Near {
    /// The destination for ssh
    #[arg(long, value_name = "DESTINATION")]
    to: String,
    /// The configuration file for ssh
    #[arg(long, value_name = "FILE")]
    ssh_config: Option<PathBuf>,
    /// The path of sexton on the other machine
    #[arg(long, value_name = "PATH", default_value = "sexton")]
    program: String,
    /// The name of the attempt on the other machine
    #[arg(long, value_name = "NAME")]
    attempt: String,
    /// Milliseconds without contact after which the far end stops the attempt
    #[arg(long, value_name = "MS")]
    lost_after: u64,
    /// Milliseconds between SIGTERM and SIGKILL
    #[arg(long, value_name = "MS")]
    grace: u64,
    /// The command's working directory
    #[arg(long, value_name = "DIR", default_value = "")]
    dir: OsString,
    /// Do not begin the attempt, which has begun before: only find out how it ends
    #[arg(long)]
    attach: bool,
    /// Stop the attempt, and find out how it ends
    #[arg(long)]
    stop: bool,
    /// Name of an environment variable of this process to pass on
    #[arg(long, value_name = "NAME")]
    pass: Vec<String>,
    /// File of NAME=VALUE lines: the variables it names are passed on, with their values from this environment
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
    /// The command
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// An event of the main loop.
pub(super) enum Event {
    /// The connection with this number has received a message, or was closed (`None`).
    Received(u64, Option<FarMessage>),
    /// The coordinator answered the report with this number.
    Answered(u64, String),
}

/// The outcome of the wait.
enum Outcome {
    /// The attempt has ended, or can no longer begin.
    Ended(Exit),
    /// The far end was never reached, so the attempt has not begun.
    NotReached,
    /// The far end could not be reached for so long that it must have stopped the attempt.
    Unreachable,
}

/// The state of a wait for an attempt.
struct Waiting<'a> {
    near: &'a Near,
    /// The names of the variables to pass on.
    names: Vec<String>,
    events: SyncSender<Event>,
    link: Option<Link>,
    /// The number of connections so far; also the number of the current one.
    links: u64,
    /// Whether the attempt may have begun on the other machine.
    begun: bool,
    /// Whether the attempt must stop: set by a signal to this process, or when the coordinator's directory was removed.
    is_stopped: Arc<AtomicBool>,
    /// Whether it was noticed that the attempt must stop.
    stops: bool,
    /// Whether the attempt did not stop in time, so that the connection was closed for good.
    gave_up: bool,
    /// The number of the report that the coordinator has not answered yet.
    report: Option<u64>,
    /// The number of bytes received of each output stream.
    from: [u64; 2],
    timing: Timing,
}

impl Near {
    pub(super) fn run(self) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::unreachable(format!("wrapper: {error}"));
        let names = match self.names() {
            // An attempt that has begun has its variables.
            Err(_) if self.attach || self.stop => Vec::new(),
            names => names.map_err(failed)?,
        };
        let (events, happening) = sync_channel(EVENTS_MAX);
        // A signal to this process is a request to stop the attempt. It is no event, which would wait in line with what the far end sends.
        let is_stopped = Arc::new(AtomicBool::new(self.stop));
        let stops = Arc::clone(&is_stopped);
        machine::forward_signals(&[1, 2, 15], move |_| {
            stops.store(true, Ordering::Release);
            true
        })
        .map_err(failed)?;
        let mut waiting = Waiting {
            near: &self,
            names,
            events,
            link: None,
            links: 0,
            begun: self.attach,
            is_stopped,
            stops: false,
            gave_up: false,
            report: None,
            from: [0, 0],
            timing: Timing::new(self.lost_after, self.grace, now()),
        };
        let came = waiting.wait(&happening);
        let (report, status) = match came {
            Outcome::Ended(exit) => (json!({ "do": "ended", "exit": exit }), exit.status()),
            Outcome::NotReached => (json!({ "do": "not_reached" }), Exit::Failed.status()),
            Outcome::Unreachable => (json!({ "do": "unreachable" }), 1),
        };
        // What is still received has no effect.
        drop(happening);
        // Once the coordinator has the result, the far end may forget it.
        deliver(&report);
        if let Some(link) = waiting.link.take() {
            let all_is_said = link.send(&Order::Acknowledge);
            link.close(all_is_said);
        }
        if status == 0 { Ok(()) } else { Err(Failure::of_command(status, "")) }
    }

    /// Returns the names of the variables to pass on. Only names are read from the file: the coordinator has put their values into this
    /// process's environment.
    fn names(&self) -> io::Result<Vec<String>> {
        let named = self.env_file.as_ref().map_or(Ok(Vec::new()), |file| {
            named_in(file).map_err(|error| {
                let words =
                    format!("failed to read the environment file {}: {error}", file.display());
                io::Error::new(error.kind(), words)
            })
        });
        Ok(named?.into_iter().chain(self.pass.iter().cloned()).collect())
    }

    fn start(&self, names: &[String]) -> Start {
        let value = |name: &String| Some((name.clone(), Text::of(&std::env::var_os(name)?)));
        Start {
            attempt: self.attempt.clone(),
            command: self.command.iter().map(Text::of).collect(),
            env: names.iter().filter_map(value).collect(),
            dir: Text::of(&self.dir),
            grace_ms: self.grace,
            lost_after_ms: self.lost_after,
        }
    }
}

/// Returns the names of the variables in an environment file, which the coordinator has found to be well-formed. Somebody else may have put
/// something else in its place since.
fn named_in(path: &Path) -> io::Result<Vec<String>> {
    let file = file::of_user(path, rustix::process::geteuid().as_raw())?;
    let mut text = Vec::new();
    file.take(ENV_FILE_MAX).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter_map(|line| line.trim().split_once('='));
    let names = lines.map(|(name, _)| match name.strip_prefix("export") {
        Some(rest) if rest.starts_with(|it: char| it.is_ascii_whitespace()) => rest.trim(),
        Some(_) | None => name.trim_end(),
    });
    Ok(names.filter(|name| !name.starts_with('#')).map(str::to_owned).collect())
}

impl Waiting<'_> {
    /// Waits until the outcome of the attempt is known.
    fn wait(&mut self, happening: &Receiver<Event>) -> Outcome {
        loop {
            if let Some(came) = self.look() {
                return came;
            }
            match happening.recv_timeout(Duration::from_millis(self.timing.beat().min(50))) {
                Ok(event) => {
                    if let Some(came) = self.take(event) {
                        return came;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    /// Sends pings, reconnects, and handles timeouts. Returns the outcome if it is known.
    fn look(&mut self) -> Option<Outcome> {
        let time = now();
        if !self.stops && self.is_stopped.load(Ordering::Acquire) {
            self.stops = true;
            self.send_stop();
        }
        if self.timing.is_stop_overdue(time) {
            self.give_up();
        }
        if self.link.is_some() {
            if self.timing.is_silent(time) {
                return self.disconnected();
            }
            if self.timing.is_ping_due(time) {
                self.send(&Order::Ping);
            }
            return None;
        }
        if self.stops && !self.begun {
            return Some(Outcome::Ended(Exit::Failed));
        }
        if self.timing.is_unreachable(time) {
            return Some(Outcome::Unreachable);
        }
        if !self.gave_up && self.timing.is_reconnect_due(time) {
            return self.connect();
        }
        None
    }

    fn connect(&mut self) -> Option<Outcome> {
        self.links += 1;
        let target = Target {
            to: &self.near.to,
            config: self.near.ssh_config.as_deref(),
            program: &self.near.program,
        };
        self.timing.opened(now());
        let checked = target.check();
        match checked.and_then(|()| Link::open(&target, self.links, &self.events)) {
            Ok(link) => {
                self.link = Some(link);
                None
            }
            Err(error) => {
                tell(&format!("failed to run ssh: {error}"));
                // Treated like a refused connection.
                self.disconnected()
            }
        }
    }

    /// Handles the loss of the connection. If the attempt cannot have begun, the outcome is that the machine was not reached. Otherwise it may still run,
    /// so there is no outcome yet, and the connection is opened again after a pause.
    fn disconnected(&mut self) -> Option<Outcome> {
        if let Some(link) = self.link.take() {
            link.close(false);
        }
        if !self.begun {
            return Some(Outcome::NotReached);
        }
        self.timing.closed(now());
        None
    }

    /// Closes the connection for good, since the attempt was to stop and has not ended in time. Without contact, its machine stops it by
    /// itself; then it is reported as unreachable.
    fn give_up(&mut self) {
        if self.gave_up {
            return;
        }
        self.gave_up = true;
        if let Some(link) = self.link.take() {
            link.close(false);
        }
        let words = "has not stopped the attempt in time: closed the connection to it";
        tell(&format!("{} {words}", self.near.to));
    }

    fn take(&mut self, event: Event) -> Option<Outcome> {
        match event {
            Event::Answered(nth, line) => {
                self.report = None;
                // Otherwise the far end sends the report again, and it is answered then.
                if self.is_greeted() {
                    self.send(&Order::Answer { nth, line });
                }
                None
            }
            Event::Received(number, _) if number != self.links || self.link.is_none() => None,
            Event::Received(_, None) => self.disconnected(),
            Event::Received(_, Some(word)) => {
                self.timing.received(now());
                self.receive(word)
            }
        }
    }

    fn receive(&mut self, word: FarMessage) -> Option<Outcome> {
        match word {
            FarMessage::Hello { .. } if self.is_greeted() => return self.disconnected(),
            FarMessage::Hello { version } if version == VERSION => self.greet(),
            FarMessage::Hello { version } => {
                let words = "has another version of sexton, whose wrapper uses protocol version";
                tell(&format!("{} {words} {version} and not {VERSION}", self.near.to));
                return self.disconnected();
            }
            FarMessage::Started { .. } | FarMessage::Pong => {}
            FarMessage::Output { stream, b64 } => self.write(stream, &b64),
            FarMessage::Report { nth, report } => return self.pass_on(nth, report),
            FarMessage::Ended { exit, words } => {
                if !words.is_empty() {
                    tell(&format!("{}: {words}", self.near.to));
                }
                return Some(Outcome::Ended(exit));
            }
        }
        None
    }

    /// Asks the coordinator to carry out a report of the command, on a thread of its own. Only one report is outstanding at a time: the same
    /// one may be sent again on another connection, and any other closes the connection.
    fn pass_on(&mut self, nth: u64, report: Value) -> Option<Outcome> {
        let kind = report.get("do").and_then(Value::as_str).unwrap_or_default();
        if !OF_COMMANDS.contains(&kind) {
            // The end of the attempt, above all, is not for the command to report.
            let refused = json!({ "ok": false, "reason": "malformed", "error": "a command has no such report" });
            self.send(&Order::Answer { nth, line: format!("{refused}\n") });
            return None;
        }
        match self.report {
            Some(outstanding) if outstanding == nth => return None,
            Some(_) => return self.disconnected(),
            None => self.report = Some(nth),
        }
        let (events, is_stopped) = (self.events.clone(), Arc::clone(&self.is_stopped));
        pipe::begin("report", move || match request_line(&report, Some(nth)) {
            Some(answer) => drop(events.send(Event::Answered(nth, answer))),
            None => is_stopped.store(true, Ordering::Release),
        });
        None
    }

    /// Sends the first order, once the far end has identified itself.
    fn greet(&mut self) {
        self.timing.greeted(now());
        let order = if self.begun {
            Order::Attach { attempt: self.near.attempt.clone(), from: self.from }
        } else {
            Order::Start(self.near.start(&self.names))
        };
        if !self.near.attach {
            // The coordinator assigns further tasks to a machine that could not be reached as soon as it knows that it can be again.
            pipe::begin("reached", || {
                let _answer = request_line(&json!({ "do": "reached" }), None);
            });
        }
        // The order may arrive even if sending it fails.
        self.begun = true;
        self.send(&order);
        if self.stops {
            self.send_stop();
        }
    }

    /// Returns whether the far end of the current connection has identified itself.
    const fn is_greeted(&self) -> bool {
        self.link.is_some() && self.timing.is_greeted()
    }

    /// Orders the far end to stop the attempt, if it has identified itself. Otherwise it is ordered to once it has.
    fn send_stop(&mut self) {
        if self.is_greeted() {
            self.send(&Order::Stop);
            self.timing.stop_sent(now());
        }
    }

    fn send(&mut self, order: &Order) {
        self.timing.sent(now());
        // If the order cannot be queued, the far end no longer reads, and a timeout will close the connection.
        let _taken = self.link.as_ref().is_some_and(|it| it.send(order));
    }

    /// Writes output of the command to the same stream of this process.
    fn write(&mut self, stream: u8, b64: &str) {
        let Ok(bytes) = STANDARD.decode(b64) else {
            return;
        };
        // An error of the stream, which may be closed, does not affect the attempt.
        let (at, _written) = if stream == 2 {
            (1, io::stderr().write_all(&bytes))
        } else {
            let mut output = io::stdout();
            (0, output.write_all(&bytes).and_then(|()| output.flush()))
        };
        if let Some(from) = self.from.get_mut(at) {
            *from += bytes.len() as u64;
        }
    }
}

/// Sends a report to the coordinator, again and again until it is answered, and returns the answer; `None` if the coordinator's directory
/// was removed.
fn request_line(report: &Value, nth: Option<u64>) -> Option<String> {
    let variable = |name| std::env::var_os(name).unwrap_or_default();
    let (address, secret) = (variable("SEXTON_TASK_REPORT"), variable(Task::SECRET));
    let secret = secret.to_string_lossy();
    let request = json!({ "secret": secret, "report": report, "nth": nth });
    let request = format!("{request}\n");
    loop {
        let asked = socket::connect_to_own(Path::new(&address), ABSENT)
            .and_then(|stream| exchange(stream, &request));
        match asked {
            Ok(answer) if !answer.is_empty() => return Some(answer),
            // A coordinator that cannot be reached may be restarted, unless its directory was removed.
            Ok(_) | Err(_) if !is_there(&address) => return None,
            Ok(_) | Err(_) => rest(ABSENT),
        }
    }
}

/// Returns whether the directory of a socket exists.
fn is_there(address: &OsStr) -> bool {
    let dir = Path::new(address).parent();
    dir.is_some_and(Path::is_dir)
}

/// Reports the end of the attempt until the coordinator has received it or refuses it permanently, or the coordinator's directory was
/// removed.
fn deliver(report: &Value) {
    loop {
        let Some(answer) = request_line(report, None) else {
            return;
        };
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        let reason = answer.pointer("/reason").and_then(Value::as_str);
        let is_over = matches!(reason, Some("stale" | "unauthorized" | "malformed"));
        if answer.pointer("/ok") == Some(&true.into()) || is_over {
            return;
        }
        rest(ABSENT);
    }
}

#[cfg(test)]
mod tests {
    use super::named_in;
    use std::fs;

    #[test]
    fn names_are_read_of_a_file_that_nobody_else_has_put_there() {
        let files = tempfile::tempdir().expect("a directory can be created");
        let file = files.path().join("env");
        fs::write(&file, "# A=1\n\nB=2\n  export C='3 4'\n").expect("it can be written");
        assert_eq!(named_in(&file).expect("it is ours"), ["B", "C"]);
        let pipe = files.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).expect("the file can be created");
        let error = named_in(&pipe).expect_err("it is a pipe");
        assert_eq!(error.to_string(), "it is not a regular file");
        assert!(named_in(&files.path().join("none")).is_err());
    }
}
