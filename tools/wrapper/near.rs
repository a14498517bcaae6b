//! The near end of an attempt: the process that the coordinator has for it. It reaches the machine by ssh, connects again when
//! that is cut, and tells the coordinator what became of the attempt before it ends itself.
//!
//! When nobody answers there for as long as an attempt goes on without a word, and a little longer, the attempt has ended there by
//! itself, and it is given up.

use crate::client::rest;
use crate::job::exchange;
use crate::report::Failure;
use crate::wrapper::link::{Link, Target};
use crate::wrapper::machine::{self, now};
use crate::wrapper::pipe;
use crate::wrapper::protocol::{Exit, Order, Start, Text, VERSION, Word};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::{Value, json};
use sexton::actors::dispatch::Task;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How long the far end may take to say its name.
const GREETING_MS: u64 = 30_000;
/// The longest between two tries to connect, and between two pings.
const PAUSE_MS_MAX: u64 = 2000;
const BEAT_MS_MAX: u64 = 5000;
/// How much longer than it may an attempt is waited for that must have ended by itself.
const SLACK_MS: u64 = 3000;
/// How soon the coordinator is asked again while it is not there.
const ABSENT: Duration = Duration::from_millis(100);

/// Wait for an attempt that runs on another machine
#[derive(Args)]
pub(super) struct Near {
    /// Where ssh goes
    #[arg(long, value_name = "DESTINATION")]
    to: String,
    /// The configuration file of ssh
    #[arg(long, value_name = "FILE")]
    ssh_config: Option<PathBuf>,
    /// The program sexton there
    #[arg(long, value_name = "PATH", default_value = "sexton")]
    program: String,
    /// What the attempt is known by there
    #[arg(long, value_name = "NAME")]
    attempt: String,
    /// Milliseconds without a word after which it is stopped there
    #[arg(long, value_name = "MS")]
    lost_after: u64,
    /// Milliseconds that it has to stop
    #[arg(long, value_name = "MS")]
    grace: u64,
    /// The directory that it runs in
    #[arg(long, value_name = "DIR", default_value = "")]
    dir: OsString,
    /// It was begun: ask what became of it
    #[arg(long)]
    attach: bool,
    /// Stop it there
    #[arg(long)]
    stop: bool,
    /// A variable that its environment has from this one
    #[arg(long, value_name = "NAME")]
    pass: Vec<String>,
    /// The file of which its environment has all variables
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
    /// What is run
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// Something that happens.
pub(super) enum Event {
    /// The connection of this number says something, or has ended.
    Said(u64, Option<Word>),
    /// The coordinator answers a report.
    Answered(u64, String),
    /// It is to stop.
    Stop,
}

/// How it came out.
enum Came {
    Ended(Exit),
    Unreachable,
}

struct Waiting<'a> {
    near: &'a Near,
    events: Sender<Event>,
    link: Option<Link>,
    links: u64,
    /// Whether it may have been begun there.
    begun: bool,
    stops: bool,
    /// How much of its output has come.
    from: [u64; 2],
    /// When something was said last that may have been heard; when something was heard; when it is connected again.
    said: u64,
    heard: u64,
    again: u64,
    pause: u64,
}

impl Near {
    pub(super) fn run(self) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::unreachable(format!("wrapper: {error}"));
        let (events, happening) = channel();
        // A signal to this process is for the attempt.
        let stops = events.clone();
        machine::hear_signals(&[1, 2, 15], move |_| stops.send(Event::Stop).is_ok())
            .map_err(failed)?;
        let mut waiting = Waiting {
            near: &self,
            events,
            link: None,
            links: 0,
            begun: self.attach,
            stops: self.stop,
            from: [0, 0],
            said: now(),
            heard: now(),
            again: now(),
            pause: 50,
        };
        let came = waiting.wait(&happening);
        let (report, status) = match came {
            Came::Ended(exit) => (json!({ "do": "ended", "exit": exit }), exit.status()),
            Came::Unreachable => (json!({ "do": "unreachable" }), 1),
        };
        // As soon as the coordinator has it, nobody else needs it.
        deliver(&report);
        if let Some(link) = waiting.link.take() {
            let all_is_said = link.say(&Order::Acknowledge);
            link.close(all_is_said);
        }
        if status == 0 {
            Ok(())
        } else {
            Err(Failure::of_command(status, ""))
        }
    }

    /// The variables that go along. Of its file only the names are read: the coordinator has put the values there.
    fn names(&self) -> Vec<String> {
        let file = self.env_file.as_ref().map(std::fs::read_to_string);
        let text = file.and_then(Result::ok).unwrap_or_default();
        let lines = text
            .lines()
            .filter_map(|line| line.trim_start().split_once('='));
        let own = lines.map(|(name, _)| name.trim_end().to_owned());
        own.filter(|name| !name.starts_with('#'))
            .chain(self.pass.iter().cloned())
            .collect()
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
    /// Waits until it is known what became of the attempt.
    fn wait(&mut self, happening: &Receiver<Event>) -> Came {
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

    /// Milliseconds between two pings.
    fn beat(&self) -> u64 {
        (self.near.lost_after / 10).clamp(100, BEAT_MS_MAX)
    }

    /// What time brings.
    fn look(&mut self) -> Option<Came> {
        let time = now();
        if let Some(link) = &self.link {
            let patience = if link.greeted {
                // Soon enough that there is time left to connect again.
                (3 * self.beat() + 1000).min(self.near.lost_after / 2)
            } else {
                GREETING_MS
            };
            if time > self.heard + patience {
                return self.disconnected();
            }
            if link.greeted && time >= self.said + self.beat() {
                self.say(&Order::Ping);
            }
            return None;
        }
        if self.stops && !self.begun {
            return Some(Came::Ended(Exit::Failed));
        }
        let near = self.near;
        if time > self.said + near.lost_after + near.grace + SLACK_MS {
            return Some(Came::Unreachable);
        }
        if time >= self.again {
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
        self.heard = now();
        match Link::open(&target, self.links, &self.events) {
            Ok(link) => self.link = Some(link),
            Err(error) => {
                drop(writeln!(io::stderr(), "sexton: failed to run ssh: {error}"));
                // As if the connection had been refused.
                drop(self.events.send(Event::Said(self.links, None)));
            }
        }
    }

    /// The connection is gone. What was never begun has failed; anything else goes on there.
    fn disconnected(&mut self) -> Option<Came> {
        if let Some(link) = self.link.take() {
            link.close(false);
        }
        if !self.begun {
            return Some(Came::Ended(Exit::Failed));
        }
        self.again = now() + self.pause;
        self.pause = (2 * self.pause).min(PAUSE_MS_MAX);
        None
    }

    fn take(&mut self, event: Event) -> Option<Came> {
        match event {
            Event::Stop => {
                self.stops = true;
                if self.link.as_ref().is_some_and(|it| it.greeted) {
                    self.say(&Order::Stop);
                }
                None
            }
            Event::Answered(nth, line) => {
                self.say(&Order::Answer { nth, line });
                None
            }
            Event::Said(number, _) if number != self.links => None,
            Event::Said(_, None) => self.disconnected(),
            Event::Said(_, Some(word)) => {
                self.heard = now();
                self.hear(word)
            }
        }
    }

    fn hear(&mut self, word: Word) -> Option<Came> {
        match word {
            Word::Hello { version } if version == VERSION => self.greet(),
            Word::Hello { version } => {
                let words = "is of another version of sexton, whose wrapper speaks";
                drop(writeln!(
                    io::stderr(),
                    "sexton: {} {words} {version} and not {VERSION}",
                    self.near.to
                ));
                return self.disconnected();
            }
            Word::Started { .. } => {
                self.pause = 50;
                if self.stops {
                    self.say(&Order::Stop);
                }
            }
            Word::Pong => {}
            Word::Output { stream, b64 } => self.write(stream, &b64),
            Word::Report { nth, report } => {
                let events = self.events.clone();
                pipe::begin("report", move || {
                    drop(events.send(match ask(&report, Some(nth)) {
                        Some(answer) => Event::Answered(nth, answer),
                        None => Event::Stop,
                    }));
                });
            }
            Word::Ended { exit, words } => {
                if !words.is_empty() {
                    drop(writeln!(io::stderr(), "sexton: {}: {words}", self.near.to));
                }
                return Some(Came::Ended(exit));
            }
        }
        None
    }

    /// The far end is there: what is wanted of it.
    fn greet(&mut self) {
        if let Some(link) = &mut self.link {
            link.greeted = true;
        }
        let order = if self.begun {
            Order::Attach {
                attempt: self.near.attempt.clone(),
                from: self.from,
            }
        } else {
            Order::Start(self.near.start())
        };
        // From here on it may have come there.
        self.begun = true;
        self.say(&order);
    }

    fn say(&mut self, order: &Order) {
        self.said = now();
        // A connection that takes nothing is seen by its silence.
        let _taken = self.link.as_ref().is_some_and(|it| it.say(order));
    }

    /// What the command wrote is written here.
    fn write(&mut self, stream: u8, b64: &str) {
        let Ok(bytes) = STANDARD.decode(b64) else {
            return;
        };
        // Where it goes may be full: the attempt goes on.
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

/// Asks the coordinator, until it is there; `None` if it never will be.
fn ask(report: &Value, nth: Option<u64>) -> Option<String> {
    let variable = |name| std::env::var_os(name).unwrap_or_default();
    let (address, secret) = (variable("SEXTON_TASK_REPORT"), variable(Task::SECRET));
    let secret = secret.to_string_lossy();
    let request = json!({ "secret": secret, "report": report, "nth": nth });
    let request = format!("{request}\n");
    loop {
        let asked = UnixStream::connect(&address).and_then(|stream| exchange(stream, &request));
        match asked {
            Ok(answer) if !answer.is_empty() => return Some(answer),
            // A coordinator that is not there may come again; one whose directory is gone does not.
            Ok(_) | Err(_) if !is_there(&address) => return None,
            Ok(_) | Err(_) => rest(ABSENT),
        }
    }
}

/// Whether the directory of a socket is there.
fn is_there(address: &OsStr) -> bool {
    let dir = Path::new(address).parent();
    dir.is_some_and(Path::is_dir)
}

/// Tells the coordinator what became of the attempt, until it has heard it, or does not want to hear it any more.
fn deliver(report: &Value) {
    loop {
        let Some(answer) = ask(report, None) else {
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
