//! The near end of an attempt: the process that represents it on the coordinator's machine. It connects by ssh, reconnects when
//! the connection is cut, and reports the end of the attempt to the coordinator before it exits.
//!
//! The far end stops an attempt after `--lost-after` milliseconds without contact. If the far end cannot be reached for that long, plus the
//! grace period and [`SLACK_MS`], the attempt is reported as unreachable.

use crate::client::rest;
use crate::job::exchange;
use crate::report::Failure;
use crate::wrapper::link::{Link, Target};
use crate::wrapper::machine::{self, now};
use crate::wrapper::pipe;
use crate::wrapper::protocol::{Exit, FarMessage, Order, Start, Text, VERSION};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::{Value, json};
use sexton::actors::dispatch::Task;
use sexton::kernel::socket;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How long the far end may take to identify itself, in milliseconds.
const GREETING_MS: u64 = 30_000;
/// The maximum pause before reconnecting, in milliseconds.
const PAUSE_MS_MAX: u64 = 2000;
/// The maximum interval between two pings, in milliseconds.
const BEAT_MS_MAX: u64 = 5000;
/// How much longer than the far end's own limit to wait for contact before the attempt is reported as unreachable, in milliseconds.
const SLACK_MS: u64 = 3000;
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
    /// The attempt must stop.
    Stop,
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
    events: Sender<Event>,
    link: Option<Link>,
    /// The number of connections so far; also the number of the current one.
    links: u64,
    /// Whether the attempt may have begun on the other machine.
    begun: bool,
    /// Whether the attempt must stop.
    stops: bool,
    /// The number of bytes received of each output stream.
    from: [u64; 2],
    /// When the last message was sent, in milliseconds since boot.
    sent_at: u64,
    /// When the last message was received, or the connection was opened, in milliseconds since boot.
    received_at: u64,
    /// When to reconnect, in milliseconds since boot.
    reconnect_at: u64,
    /// The pause after the next loss of the connection, in milliseconds.
    pause: u64,
}

impl Near {
    pub(super) fn run(self) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::unreachable(format!("wrapper: {error}"));
        let (events, happening) = channel();
        // A signal to this process is a request to stop the attempt.
        let stops = events.clone();
        machine::forward_signals(&[1, 2, 15], move |_| stops.send(Event::Stop).is_ok())
            .map_err(failed)?;
        let mut waiting = Waiting {
            near: &self,
            events,
            link: None,
            links: 0,
            begun: self.attach,
            stops: self.stop,
            from: [0, 0],
            sent_at: now(),
            received_at: now(),
            reconnect_at: now(),
            pause: 50,
        };
        let came = waiting.wait(&happening);
        let (report, status) = match came {
            Outcome::Ended(exit) => (json!({ "do": "ended", "exit": exit }), exit.status()),
            Outcome::NotReached => (json!({ "do": "not_reached" }), Exit::Failed.status()),
            Outcome::Unreachable => (json!({ "do": "unreachable" }), 1),
        };
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
    fn names(&self) -> Vec<String> {
        let file = self.env_file.as_ref().map(std::fs::read_to_string);
        let text = file.and_then(Result::ok).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.trim_start().split_once('='));
        let own = lines.map(|(name, _)| name.trim_end().to_owned());
        own.filter(|name| !name.starts_with('#')).chain(self.pass.iter().cloned()).collect()
    }

    fn start(&self) -> Start {
        let value = |name: &String| Some((name.clone(), Text::of(&std::env::var_os(name)?)));
        Start {
            attempt: self.attempt.clone(),
            command: self.command.iter().map(Text::of).collect(),
            env: self.names().iter().filter_map(value).collect(),
            dir: Text::of(&self.dir),
            grace_ms: self.grace,
            lost_after_ms: self.lost_after,
        }
    }
}

impl Waiting<'_> {
    /// Waits until the outcome of the attempt is known.
    fn wait(&mut self, happening: &Receiver<Event>) -> Outcome {
        loop {
            if let Some(came) = self.look() {
                return came;
            }
            match happening.recv_timeout(Duration::from_millis(self.beat().min(50))) {
                Ok(event) => {
                    if let Some(came) = self.take(event) {
                        return came;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    /// Returns the interval between two pings, in milliseconds.
    fn beat(&self) -> u64 {
        (self.near.lost_after / 10).clamp(100, BEAT_MS_MAX)
    }

    /// Sends pings, reconnects, and handles timeouts. Returns the outcome if it is known.
    fn look(&mut self) -> Option<Outcome> {
        let time = now();
        if let Some(link) = &self.link {
            let patience = if link.greeted {
                // A lost connection must be detected early enough to reconnect in time.
                (3 * self.beat() + 1000).min(self.near.lost_after / 2)
            } else {
                GREETING_MS
            };
            if time > self.received_at + patience {
                return self.disconnected();
            }
            if link.greeted && time >= self.sent_at + self.beat() {
                self.send(&Order::Ping);
            }
            return None;
        }
        if self.stops && !self.begun {
            return Some(Outcome::Ended(Exit::Failed));
        }
        let near = self.near;
        if time > self.sent_at + near.lost_after + near.grace + SLACK_MS {
            return Some(Outcome::Unreachable);
        }
        if time >= self.reconnect_at {
            self.connect();
        }
        None
    }

    fn connect(&mut self) {
        self.links += 1;
        let target = Target {
            to: &self.near.to,
            config: self.near.ssh_config.as_deref(),
            program: &self.near.program,
        };
        self.received_at = now();
        let checked = target.check();
        match checked.and_then(|()| Link::open(&target, self.links, &self.events)) {
            Ok(link) => self.link = Some(link),
            Err(error) => {
                drop(writeln!(io::stderr(), "sexton: failed to run ssh: {error}"));
                // Treated like a refused connection.
                drop(self.events.send(Event::Received(self.links, None)));
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
        self.reconnect_at = now() + self.pause;
        self.pause = (2 * self.pause).min(PAUSE_MS_MAX);
        None
    }

    fn take(&mut self, event: Event) -> Option<Outcome> {
        match event {
            Event::Stop => {
                self.stops = true;
                if self.link.as_ref().is_some_and(|it| it.greeted) {
                    self.send(&Order::Stop);
                }
                None
            }
            Event::Answered(nth, line) => {
                self.send(&Order::Answer { nth, line });
                None
            }
            Event::Received(number, _) if number != self.links => None,
            Event::Received(_, None) => self.disconnected(),
            Event::Received(_, Some(word)) => {
                self.received_at = now();
                self.receive(word)
            }
        }
    }

    fn receive(&mut self, word: FarMessage) -> Option<Outcome> {
        match word {
            FarMessage::Hello { version } if version == VERSION => self.greet(),
            FarMessage::Hello { version } => {
                let words = "has another version of sexton, whose wrapper uses protocol version";
                drop(writeln!(
                    io::stderr(),
                    "sexton: {} {words} {version} and not {VERSION}",
                    self.near.to
                ));
                return self.disconnected();
            }
            FarMessage::Started { .. } => {
                self.pause = 50;
                if self.stops {
                    self.send(&Order::Stop);
                }
            }
            FarMessage::Pong => {}
            FarMessage::Output { stream, b64 } => self.write(stream, &b64),
            FarMessage::Report { nth, report } => {
                let events = self.events.clone();
                pipe::begin("report", move || {
                    drop(events.send(match request_line(&report, Some(nth)) {
                        Some(answer) => Event::Answered(nth, answer),
                        None => Event::Stop,
                    }));
                });
            }
            FarMessage::Ended { exit, words } => {
                if !words.is_empty() {
                    drop(writeln!(io::stderr(), "sexton: {}: {words}", self.near.to));
                }
                return Some(Outcome::Ended(exit));
            }
        }
        None
    }

    /// Sends the first order, once the far end has identified itself.
    fn greet(&mut self) {
        if let Some(link) = &mut self.link {
            link.greeted = true;
        }
        let order = if self.begun {
            Order::Attach { attempt: self.near.attempt.clone(), from: self.from }
        } else {
            Order::Start(self.near.start())
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
    }

    fn send(&mut self, order: &Order) {
        self.sent_at = now();
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
