//! The I/O of `sexton top`: terminal, keys, signals, and requests to the coordinator. Each has its own thread, so a coordinator that
//! is slow to answer never delays a key.
//!
//! The terminal is restored no matter how the program ends, even after a panic or SIGTERM. Only one request is open at a time.

use crate::client::{self, Target, fields};
use crate::report::Failure;
use crate::status;
use crate::top::sample::NoAnswer;
use crate::top::screen::{Abilities, Key, Question, Screen, ScreenRequest};
use crate::top::view;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};
use sexton::clock::Timestamp;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime};
use tokio::signal::unix::{SignalKind, signal};

/// The delay after which an answer is shown as overdue.
const LATE: Duration = Duration::from_secs(2);

/// The maximum number of processes to request.
const PROCESSES_MAX: usize = 512;

/// The maximum number of processes whose resource usage to request.
const USAGE_MAX: usize = 256;

/// How often the screen is drawn if nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// An event of the main loop.
pub(crate) enum LoopEvent {
    Answer(Timestamp, Result<Value, Failure>),
    Key(Key),
    Resized,
    /// A signal that ends the program.
    Stop,
    /// The thread of this name has ended unexpectedly.
    Gone(&'static str),
}

/// A handle to the thread that polls the coordinator, with the queue of events for the main loop.
pub(crate) struct Poller {
    events: Receiver<LoopEvent>,
    sender: Sender<LoopEvent>,
    asked: Sender<Question>,
}

impl Poller {
    pub(crate) fn start(target: &Target, mut question: Question) -> Result<Self, Failure> {
        let (sender, events) = mpsc::channel();
        let (asked, questions) = mpsc::channel();
        let target = target.clone();
        thread("sexton-ask", &sender, move |out| {
            let mut after = None;
            loop {
                let answer = ask(&target, &mut after, question.processes.as_deref());
                if out.send(LoopEvent::Answer(now(), answer)).is_err() {
                    return;
                }
                if !wait(&questions, &mut question) {
                    return;
                }
            }
        })?;
        Ok(Self { events, sender, asked })
    }

    /// Sets what to request from now on.
    pub(crate) fn ask(&self, question: Question) {
        // Sending fails only if the thread has ended, and its end is reported as an event.
        drop(self.asked.send(question));
    }

    /// Waits for the next answer, ignoring all other events. Fails if a thread has ended.
    pub(crate) fn answer(&self) -> Result<(Timestamp, Result<Value, Failure>), Failure> {
        loop {
            match self.events.recv() {
                Ok(LoopEvent::Answer(at, answer)) => return Ok((at, answer)),
                Ok(LoopEvent::Gone(name)) => return Err(gone(name)),
                Ok(LoopEvent::Key(_) | LoopEvent::Resized | LoopEvent::Stop) => {}
                Err(_) => return Err(gone("sexton-ask")),
            }
        }
    }
}

/// Waits until the next request is due. Returns whether to send one: `false` if the [`Poller`] was dropped. The next request is due at once
/// if the interval has changed, or if processes begin or cease to be requested. A change to the set of processes in view takes effect when
/// the next request is due.
fn wait(questions: &Receiver<Question>, question: &mut Question) -> bool {
    let until = instant() + question.every;
    loop {
        match questions.recv_timeout(until.saturating_duration_since(instant())) {
            Ok(next) => {
                let looks = |it: &Question| it.processes.is_some();
                let at_once = next.every != question.every || looks(&next) != looks(question);
                *question = next;
                if at_once {
                    return true;
                }
            }
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

/// Requests the status, and adds the problems and the busiest items to it; if `processes` is given, also the services, the live processes, and the resource
/// usage of the processes with these ids. If there are very many queues, an answer covers only a share of them; `after` is the end of the
/// previous share. Succeeds even if what is added cannot be read.
fn ask(
    target: &Target,
    after: &mut Option<String>,
    processes: Option<&[String]>,
) -> Result<Value, Failure> {
    let mut status = status::ask(target)?;
    let path = match &*after {
        Some(after) => format!("/v1/busiest?limit=100&after={after}"),
        None => "/v1/busiest?limit=100".to_owned(),
    };
    let answer = client::get(target, &path).ok();
    let answer = answer.filter(|answer| answer.status == 200);
    if let Some(mut busiest) = answer.and_then(|answer| answer.json().ok()) {
        let next = busiest.pointer("/next").and_then(Value::as_str);
        let next = next.map(str::to_owned);
        let after = std::mem::replace(after, next);
        put(&mut busiest, "after", after.into());
        put(&mut status, "busiest", busiest);
    }
    if let Some(troubles) = status::troubles(target) {
        put(&mut status, "troubles", troubles);
    }
    if let Some(ids) = processes {
        let found = family(target, ids);
        let found = found.unwrap_or_else(|failure| json!({"refused": failure.words()}));
        put(&mut status, "processes", found);
    }
    Ok(status)
}

/// Requests the services, at most `PROCESSES_MAX` live processes, and the resource usage of the first `USAGE_MAX` of `ids`.
fn family(target: &Target, ids: &[String]) -> Result<Value, Failure> {
    let services = client::get(target, "/v1/services")?.success(&[])?;
    let mut processes = Vec::new();
    let mut next = None;
    while processes.len() < PROCESSES_MAX {
        let limit = (PROCESSES_MAX - processes.len()).to_string();
        let mut query =
            fields([("status", "queued,running,stopping".into()), ("limit", limit.into())]);
        if let Some(after) = next.take() {
            query.insert("after".to_owned(), after);
        }
        let path = client::with_query("/v1/processes", &query);
        let mut body = client::get(target, &path)?.success(&[])?;
        if let Some(Value::Array(some)) = body.pointer_mut("/processes").map(Value::take) {
            processes.extend(some);
        }
        next = body.get("next").filter(|next| next.is_string()).cloned();
        if next.is_none() {
            break;
        }
    }
    let mut usage = Value::Null;
    if !ids.is_empty() {
        let ids: Vec<&String> = ids.iter().take(USAGE_MAX).collect();
        let asked = fields([("ids", json!(ids))]);
        let mut body = client::send(target, "/v1/processes/usage", asked, 0)?.success(&[])?;
        usage = body.pointer_mut("/usage").map(Value::take).unwrap_or_default();
    }
    Ok(json!({
        "services": services.get("services"),
        "processes": processes,
        "more": next.is_some(),
        "usage": usage,
    }))
}

fn put(object: &mut Value, name: &str, value: Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}

/// Shows the screen until the user quits or a signal ends the program.
pub(crate) fn watch(mut screen: Screen, asker: &Poller) -> Result<(), Failure> {
    forward_signals(&asker.sender)?;
    let mut shown = RawTerminal::open()?;
    thread("sexton-keys", &asker.sender, keys)?;
    let mut heard = instant();
    let mut asked = screen.question();
    loop {
        let overdue = heard.elapsed().saturating_sub(screen.every);
        screen.overdue = (overdue >= LATE).then_some(overdue);
        shown.draw(&mut screen)?;
        let question = screen.question();
        if question != asked {
            asker.ask(question.clone());
            asked = question;
        }
        match asker.events.recv_timeout(TICK) {
            Ok(LoopEvent::Answer(at, answer)) => {
                heard = instant();
                let answer = answer.map_err(|failure| no_answer(&failure));
                screen.watched.take(at, answer);
            }
            Ok(LoopEvent::Key(key)) => match screen.key(key) {
                ScreenRequest::Draw => {}
                ScreenRequest::Quit => return Ok(()),
                ScreenRequest::Suspend => shown.suspend()?,
            },
            Ok(LoopEvent::Stop) => return Ok(()),
            Ok(LoopEvent::Gone(name)) => return Err(gone(name)),
            Ok(LoopEvent::Resized) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(gone("sexton-ask")),
        }
    }
}

/// The terminal in raw mode. Restored on drop.
struct RawTerminal(DefaultTerminal);

impl RawTerminal {
    /// Takes over the terminal. From then on, a panic restores it before printing its message.
    fn open() -> Result<Self, Failure> {
        let terminal = ratatui::try_init().map_err(|error| {
            drop(ratatui::try_restore());
            Failure::unreachable(format!("failed to use the terminal: {error}"))
                .help("`sexton top --once` prints one frame and needs no terminal")
        })?;
        Ok(Self(terminal))
    }

    fn draw(&mut self, screen: &mut Screen) -> Result<(), Failure> {
        let drawn = self.0.draw(|frame| view::draw(frame, screen));
        drawn.map(|_| ()).map_err(|error| broken(&error))
    }

    /// Restores the terminal, suspends this process until it is continued, and takes over the terminal again.
    fn suspend(&mut self) -> Result<(), Failure> {
        ratatui::try_restore().map_err(|error| broken(&error))?;
        let stopped = kill_process(getpid(), Signal::TSTP);
        self.0 = ratatui::try_init().map_err(|error| broken(&error))?;
        stopped.map_err(|error| broken(&error.into()))?;
        self.0.clear().map_err(|error| broken(&error))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // Restoring a closed terminal fails, which is harmless.
        drop(self.0.show_cursor());
        drop(ratatui::try_restore());
    }
}

/// A guard that, when dropped, reports that its thread has ended, even by a panic.
struct ThreadGuard {
    name: &'static str,
    out: Sender<LoopEvent>,
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        drop(self.out.send(LoopEvent::Gone(self.name)));
    }
}

fn thread(
    name: &'static str,
    out: &Sender<LoopEvent>,
    run: impl FnOnce(&Sender<LoopEvent>) + Send + 'static,
) -> Result<(), Failure> {
    let out = out.clone();
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let last = ThreadGuard { name, out };
        run(&last.out);
    });
    started
        .map(drop)
        .map_err(|error| Failure::unreachable(format!("failed to start a thread: {error}")))
}

/// Reads keys until the terminal is closed.
fn keys(out: &Sender<LoopEvent>) {
    while let Ok(event) = event::read() {
        let happening = match event {
            Event::Key(key) => key_of(key).map(LoopEvent::Key),
            Event::Resize(_, _) => Some(LoopEvent::Resized),
            Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_) => None,
        };
        if happening.is_some_and(|happening| out.send(happening).is_err()) {
            return;
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "most keys have no meaning here")]
fn key_of(key: KeyEvent) -> Option<Key> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Key::Quit),
            KeyCode::Char('z') => Some(Key::Suspend),
            _ => None,
        };
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Char('p' | ' ') => Some(Key::Pause),
        KeyCode::Tab | KeyCode::BackTab | KeyCode::Left | KeyCode::Right => Some(Key::NextPane),
        KeyCode::Up | KeyCode::Char('k') => Some(Key::Up),
        KeyCode::Down | KeyCode::Char('j') => Some(Key::Down),
        KeyCode::PageUp => Some(Key::PageUp),
        KeyCode::PageDown => Some(Key::PageDown),
        KeyCode::Char('+' | '=') => Some(Key::Slower),
        KeyCode::Char('-') => Some(Key::Faster),
        _ => None,
    }
}

/// Starts a thread that reports the signals that end the program. Their handlers are installed before this returns, so that the
/// terminal, which is taken over afterwards, is always restored.
fn forward_signals(out: &Sender<LoopEvent>) -> Result<(), Failure> {
    let deaf = |error| Failure::unreachable(format!("failed to wait for signals: {error}"));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(deaf)?;
    let listen = |kind| {
        let _entered = runtime.enter();
        signal(kind).map_err(deaf)
    };
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    thread("sexton-signals", out, move |out| {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                    _ = interrupt.recv() => {}
                }
                if out.send(LoopEvent::Stop).is_err() {
                    return;
                }
            }
        });
    })
}

/// Returns the abilities of this terminal: Unicode if the locale uses UTF-8, and colours unless `NO_COLOR` is set.
pub(crate) fn abilities() -> Abilities {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    let locale = locale.map(|locale| locale.to_string_lossy().to_ascii_lowercase());
    Abilities {
        unicode: locale.is_some_and(|it| it.contains("utf-8") || it.contains("utf8")),
        colours: set("NO_COLOR").is_none(),
    }
}

#[expect(clippy::disallowed_methods, reason = "the times shown to the user are wall-clock times")]
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let ms = since.map_or(0, |since| since.as_millis());
    Timestamp(u64::try_from(ms).unwrap_or(u64::MAX))
}

#[expect(clippy::disallowed_methods, reason = "requests are paced, and delays shown, in real time")]
fn instant() -> Instant {
    Instant::now()
}

/// Returns the reason why there is no status, from the failure of its request.
pub(crate) fn no_answer(failure: &Failure) -> NoAnswer {
    NoAnswer { is_there: failure.is_halt(), why: failure.words().to_owned() }
}

fn broken(error: &io::Error) -> Failure {
    Failure::unreachable(format!("failed to draw on the terminal: {error}"))
}

fn gone(name: &str) -> Failure {
    Failure::unreachable(format!("failed to continue: the thread {name} has ended"))
}
