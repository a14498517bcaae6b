//! The far end of an attempt: runs its command, forwards its reports and output, and keeps its result until the coordinator has received
//! it. It survives a cut connection. If it receives no message from the near end for `lost_after_ms`, it stops the attempt, because the
//! near end will then report the attempt as unreachable.

use crate::report::Failure;
use crate::wrapper::descendants::{self, NAME};
use crate::wrapper::machine::{self, now};
use crate::wrapper::pipe::{self, Writer};
use crate::wrapper::place::{End, KEPT, Place};
use crate::wrapper::protocol::{Exit, FarMessage, OUTPUT_BYTES_MAX, Order, Start, Text};
use crate::wrapper::reports::{self, Pending};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use rustix::process::{Pid, Signal, WaitOptions, setsid};
use sexton::actors::dispatch::Task;
use sexton::kernel::socket;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The interval at which to check for output and timeouts.
const LOOK: Duration = Duration::from_millis(50);

/// How long this process waits for a connection after the attempt has ended, in milliseconds. Then it exits, and a later connection
/// reads the result from the directory.
const END_MS: u64 = 60_000;

/// The interval at which a result that could not be stored is stored again, in milliseconds.
const STORE_MS: u64 = 1000;

/// Run the command of an attempt, and keep its result
#[derive(Args)]
pub(super) struct Keep {
    /// The directory of all attempts
    #[arg(long, value_name = "DIR")]
    base: PathBuf,
}

/// An event of the main loop.
pub(super) enum Event {
    /// A connection was opened.
    Connected(UnixStream),
    /// The peer with this number has sent an order, or has disconnected (`None`).
    Received(u64, Option<Order>),
    /// The command sent a report.
    Report(Pending),
    /// A child has ended.
    Reaped(Pid, Exit),
    /// No child is left.
    Empty,
    /// The machine is shutting down.
    Terminate,
}

/// The connected near end.
struct Peer {
    number: u64,
    writer: Writer,
    /// The number of bytes of each stream that it has received or that are queued for it.
    from: [u64; 2],
    /// Whether it has sent `attach`, with the number of bytes received.
    attached: bool,
    /// Whether the oldest unanswered report was sent to it.
    is_report_sent: bool,
    /// Whether the end of the attempt was sent to it.
    is_end_sent: bool,
}

/// The state of an attempt.
struct Keeping {
    place: Place,
    outputs: [File; 2],
    grace_ms: u64,
    lost_after_ms: u64,
    leader: Option<Pid>,
    exit: Option<Exit>,
    /// Whether no process of the attempt is left.
    empty: bool,
    /// Why the attempt was stopped or could not be launched; empty otherwise.
    words: String,
    end: Option<End>,
    /// If the end could not be stored, when to try again, in milliseconds since boot. Until then, only this process knows it.
    stores_at: Option<u64>,
    /// When the attempt ended, in milliseconds since boot.
    ended_at: u64,
    /// When the near end last sent anything, in milliseconds since boot.
    received_at: u64,
    /// When stopping the attempt began, in milliseconds since boot.
    stopping: Option<u64>,
    peer: Option<Peer>,
    /// The number of connections so far.
    peers: u64,
    /// Reports that are not answered yet, the oldest first.
    reports: VecDeque<Pending>,
    /// The sequence number of the oldest report in `reports`.
    nth: u64,
    events: Sender<Event>,
}

impl Keep {
    pub(super) fn run(self) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::unreachable(format!("wrapper: {error}"));
        let mut input = BufReader::new(io::stdin());
        let Some(Order::Start(start)) = pipe::next::<Order>(&mut input) else {
            return Err(Failure::usage("wrapper: expected an attempt on standard input"));
        };
        // Leave the session of the parent, which ends with the connection. This fails only for the leader of a process group.
        let _leader = setsid();
        // As a subreaper, this process inherits the command's orphans, so the attempt has ended when this process has no child left.
        let own = Some(rustix::process::getpid());
        rustix::process::set_child_subreaper(own).map_err(|error| failed(error.into()))?;
        keep(&self.base, &start).map_err(failed)
    }
}

fn keep(base: &std::path::Path, start: &Start) -> io::Result<()> {
    let place = Place::of(base, &start.attempt)?;
    let draft = place.draft()?;
    let begun = (|| {
        let lock = draft.lock()?.ok_or(io::ErrorKind::WouldBlock)?;
        let control = UnixListener::bind(draft.dir.join("control"))?;
        let reports = UnixListener::bind(draft.dir.join("report"))?;
        let output = |name| {
            let mut options = OpenOptions::new();
            options.read(true).append(true).create_new(true).mode(0o600);
            options.open(draft.dir.join(name))
        };
        Ok((lock, control, reports, [output("out")?, output("err")?]))
    })();
    let (_lock, control, reports, outputs) = begun.inspect_err(|_: &io::Error| draft.remove())?;
    if !place.become_of(&draft)? {
        return Ok(());
    }
    let (events, happening) = channel();
    let secret = secret()?;
    accept(control, events.clone());
    reports::receive(reports, secret.clone(), events.clone());
    let ends = events.clone();
    machine::forward_signals(&[1, 2, 15], move |number| {
        // SIGHUP, sent when a terminal or session ends, is ignored; the others mean that the machine is shutting down.
        number == 1 || ends.send(Event::Terminate).is_ok()
    })?;
    let mut keeping = Keeping {
        place,
        outputs,
        grace_ms: start.grace_ms,
        lost_after_ms: start.lost_after_ms,
        leader: None,
        exit: None,
        empty: false,
        words: String::new(),
        end: None,
        stores_at: None,
        ended_at: 0,
        received_at: now(),
        stopping: None,
        peer: None,
        peers: 0,
        reports: VecDeque::new(),
        nth: 1,
        events,
    };
    keeping.launch(start, &secret);
    keeping.serve(&happening)
}

/// Creates a secret for this attempt. It never leaves this machine.
fn secret() -> io::Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(digits.concat())
}

fn accept(listener: UnixListener, events: Sender<Event>) {
    pipe::begin("control", move || {
        for stream in socket::incoming(&listener) {
            if events.send(Event::Connected(stream)).is_err() {
                return;
            }
        }
    });
}

impl Keeping {
    /// Launches the command.
    fn launch(&mut self, start: &Start, secret: &str) {
        match self.command(start, secret).and_then(|mut command| command.spawn()) {
            Ok(child) => {
                self.leader = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                wait(self.events.clone());
            }
            Err(error) => {
                (self.exit, self.empty) = (Some(Exit::Failed), true);
                self.words = format!("failed to launch its command: {error}");
            }
        }
    }

    fn command(&self, start: &Start, secret: &str) -> io::Result<Command> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let words: Option<Vec<OsString>> = start.command.iter().map(Text::to_os).collect();
        let words = words.ok_or_else(invalid)?;
        let (program, arguments) = words.split_first().ok_or_else(invalid)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        for (name, value) in &start.env {
            command.env(name, value.to_os().ok_or_else(invalid)?);
        }
        command.env(NAME, &start.attempt);
        command.env("SEXTON_TASK_REPORT", self.place.dir.join("report"));
        command.env(Task::SECRET, secret);
        let dir = PathBuf::from(start.dir.to_os().ok_or_else(invalid)?);
        if !dir.as_os_str().is_empty() {
            // Checked first, so that the error names the directory and not the program.
            fs::metadata(&dir).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", dir.display()))
            })?;
            command.current_dir(dir);
        }
        let [out, err] = &self.outputs;
        command.stdout(out.try_clone()?).stderr(err.try_clone()?);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(command)
    }

    /// Handles events until the end of the attempt is acknowledged. If there is no connection, stops [`END_MS`] after that end.
    fn serve(&mut self, happening: &Receiver<Event>) -> io::Result<()> {
        loop {
            match happening.recv_timeout(LOOK) {
                Ok(event) => {
                    if self.take(event) {
                        self.place.remove();
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            self.look();
            let waits_ms = match self.stores_at {
                Some(_) => u64::try_from(KEPT.as_millis()).unwrap_or(u64::MAX),
                None => END_MS,
            };
            if self.end.is_some() && self.peer.is_none() && now() > self.ended_at + waits_ms {
                return Ok(());
            }
        }
    }

    /// Handles an event; returns whether it acknowledged the end.
    fn take(&mut self, event: Event) -> bool {
        match event {
            Event::Connected(stream) => self.connect(stream),
            Event::Received(number, said) => {
                let is_current = self.peer.as_ref().is_some_and(|it| it.number == number);
                match said {
                    Some(order) if is_current => {
                        self.received_at = now();
                        return self.obey(order);
                    }
                    None if is_current => self.peer = None,
                    Some(_) | None => {}
                }
            }
            Event::Report(pending) => self.reports.push_back(pending),
            Event::Reaped(pid, exit) if Some(pid) == self.leader => {
                // An attempt that was cut short stays lost, no matter how its command reacted.
                self.exit.get_or_insert(exit);
            }
            Event::Reaped(..) => {}
            Event::Empty => self.empty = true,
            Event::Terminate => self.cut_short("its machine is shutting down"),
        }
        false
    }

    /// Accepts a connection, which replaces the current one, if any.
    fn connect(&mut self, stream: UnixStream) {
        let Ok(reader) = stream.try_clone() else {
            return;
        };
        self.peers += 1;
        let number = self.peers;
        let (heard, gone) = (self.events.clone(), self.events.clone());
        pipe::read(reader, move |order| heard.send(Event::Received(number, order)).is_ok());
        let writer = Writer::to(stream, move || {
            drop(gone.send(Event::Received(number, None)));
        });
        self.peer = Some(Peer {
            number,
            writer,
            from: [0, 0],
            attached: false,
            is_report_sent: false,
            is_end_sent: false,
        });
    }

    /// Carries out an order; returns whether it acknowledged the end.
    fn obey(&mut self, order: Order) -> bool {
        match order {
            Order::Attach { from, .. } => {
                let pid = self.leader.map_or(0, |it| it.as_raw_nonzero().get());
                self.send(&FarMessage::Started { pid: u32::try_from(pid).unwrap_or_default() });
                if let Some(peer) = &mut self.peer {
                    (peer.from, peer.attached) = (from, true);
                }
            }
            Order::Ping => self.send(&FarMessage::Pong),
            Order::Stop => {
                self.stop("it was stopped");
            }
            Order::Answer { nth, line } if nth == self.nth => {
                if let Some(pending) = self.reports.pop_front() {
                    // The reporting process may have exited.
                    drop(pending.answer.try_send(line));
                    self.nth += 1;
                    if let Some(peer) = &mut self.peer {
                        peer.is_report_sent = false;
                    }
                }
            }
            Order::Acknowledge => return self.end.is_some(),
            Order::Start(_) | Order::Answer { .. } => {}
        }
        false
    }

    /// Sends a message to the peer; drops a peer that does not read it.
    fn send(&mut self, word: &FarMessage) {
        if self.peer.as_ref().is_some_and(|it| !it.writer.send(word)) {
            self.peer = None;
        }
    }

    /// Begins to stop the attempt. Returns `false` if it is already being stopped or has ended.
    fn stop(&mut self, words: &str) -> bool {
        if self.stopping.is_some() || self.empty {
            return false;
        }
        self.stopping = Some(now());
        words.clone_into(&mut self.words);
        // A suspended process handles SIGTERM only once it continues. Processes that do not get it are killed after the grace period.
        drop(descendants::signal_own(&[Signal::TERM, Signal::CONT]));
        true
    }

    /// Stops the attempt without a request from the coordinator. A command that handles SIGTERM may exit with any status, which shows
    /// nothing about its work, so the attempt counts as lost unless the command has already exited.
    fn cut_short(&mut self, words: &str) {
        if self.stop(words) {
            self.exit.get_or_insert(Exit::Lost);
        }
    }

    /// Handles timeouts, records the end of the attempt when no process is left, and sends everything new to the peer.
    fn look(&mut self) {
        if now() > self.received_at.saturating_add(self.lost_after_ms) {
            self.cut_short("no coordinator connected for too long");
        }
        if self.stopping.is_some_and(|since| now() >= since.saturating_add(self.grace_ms))
            && !self.empty
        {
            // If this fails, the next check repeats it.
            drop(descendants::signal_own(&[Signal::KILL]));
        }
        if self.empty && self.end.is_none() {
            self.end_with(End { exit: self.exit.unwrap_or(Exit::Lost), words: self.words.clone() });
        }
        if let Some(end) = &self.end
            && self.stores_at.is_some_and(|at| now() >= at)
        {
            let is_stored = self.place.set_end(end).is_ok();
            self.stores_at = (!is_stored).then(|| now() + STORE_MS);
        }
        self.pass_on();
    }

    /// Records the end of the attempt. An end that cannot be stored, for example because the disk is full, is still known: it is sent to the
    /// near end, with the reason, and this process keeps it meanwhile.
    fn end_with(&mut self, mut end: End) {
        if let Err(error) = self.place.set_end(&end) {
            let separator = if end.words.is_empty() { "" } else { "; " };
            let told = format!("{separator}its result could not be stored there: {error}");
            end.words.push_str(&told);
            self.stores_at = Some(now() + STORE_MS);
        }
        (self.end, self.ended_at) = (Some(end), now());
    }

    /// Sends new output, reports and the end to the peer.
    fn pass_on(&mut self) {
        let Some(peer) = self.peer.as_mut().filter(|it| it.attached) else {
            return;
        };
        for (at, (file, stream)) in self.outputs.iter().zip([1, 2]).enumerate() {
            loop {
                let mut bytes = vec![0; OUTPUT_BYTES_MAX];
                let from = peer.from.get(at).copied().unwrap_or_default();
                // Output that cannot be read is lost; how the attempt ends is not.
                let count = file.read_at(&mut bytes, from).unwrap_or(0);
                let b64 = STANDARD.encode(bytes.get(..count).unwrap_or_default());
                // Output that does not fit is sent at the next check.
                if count == 0 || !peer.writer.send(&FarMessage::Output { stream, b64 }) {
                    if count > 0 {
                        return;
                    }
                    break;
                }
                if let Some(place) = peer.from.get_mut(at) {
                    *place += count as u64;
                }
            }
        }
        let next = self.reports.front().filter(|_| !peer.is_report_sent);
        if let Some(pending) = next {
            let (nth, report) = (self.nth, pending.report.clone());
            peer.is_report_sent = peer.writer.send(&FarMessage::Report { nth, report });
        }
        // All reports are answered before the end is sent.
        if let Some(end) = self.end.clone().filter(|_| !peer.is_end_sent && self.reports.is_empty())
        {
            peer.is_end_sent =
                peer.writer.send(&FarMessage::Ended { exit: end.exit, words: end.words });
        }
    }
}

/// Starts a thread that waits for all children, including inherited ones, until none is left.
fn wait(events: Sender<Event>) {
    pipe::begin("children", move || {
        loop {
            let event = match rustix::process::wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) => {
                    let code = status.exit_status().and_then(|it| u8::try_from(it).ok());
                    let signal = status.terminating_signal().and_then(|it| u8::try_from(it).ok());
                    let exit = code.map(Exit::Code).or(signal.map(Exit::Signal));
                    Event::Reaped(pid, exit.unwrap_or(Exit::Lost))
                }
                Ok(None) | Err(rustix::io::Errno::INTR) => continue,
                Err(_) => Event::Empty,
            };
            let is_last = matches!(event, Event::Empty);
            if events.send(event).is_err() || is_last {
                return;
            }
        }
    });
}
