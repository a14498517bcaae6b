//! Runs a command in the foreground, with the streams, the environment, the umask, the limits, the descriptors and the priorities of this process. These are
//! handed over as one parcel to the keeper (the process that launches commands for the coordinator) and are stored nowhere. Signals to this
//! process are forwarded to the command, which is suspended and continued together with it.

use crate::client;
pub(crate) use crate::client::drawn;
use crate::process::inheritance;
use crate::process::request::{ClientOptions, WaitExtent, has_ended};
use crate::process::terminal::{Relay, Terminal, is_hung_up};
use crate::report::Failure;
use crate::signals::Signals;
use crate::text::words;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Resource, Signal, getpid, getrlimit, kill_process};
use rustix::termios::isatty;
use serde_json::Value;
use sexton::bytes::Bytes;
use sexton::keeper::framed;
use sexton::keeper::protocol::{Inheritance, Parcel, Report, Request};
use sexton::kernel::socket;
use sexton::refusal::Reason;
use sexton_api::process::Launch;
use std::fmt::Display;
use std::io::{ErrorKind, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long the keeper may take to accept a parcel.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The pause before the next attempt to hand over a parcel, if the keeper has exited.
const LOOK: Duration = Duration::from_millis(10);
/// The maximum number of further attempts to hand over a parcel.
const LOOKS: u32 = 500;

/// How long [`launch`] keeps trying if the keeper or the coordinator is unavailable.
const RETURN_MAX: Duration = Duration::from_mins(1);
/// The pause before [`launch`] tries again.
const RETURN: Duration = Duration::from_millis(100);

/// Signals that are forwarded to the command: HUP, INT, QUIT, USR1, USR2, TERM.
const FORWARDED: [i32; 6] = [1, 2, 3, 10, 12, 15];
const HUP: i32 = 1;
const CONT: i32 = 18;
const STOP: i32 = 19;
const TSTP: i32 = 20;
const WINCH: i32 = 28;

/// How long the coordinator may take to suspend or to continue the command.
const SUSPENSION: Duration = Duration::from_secs(2);

/// How long a command that handles SIGTSTP, as editors do, has before it is suspended.
const NOTICE: Duration = Duration::from_millis(50);

/// The resource limits of this process that a command gets.
const LIMITS: [Resource; 10] = [
    Resource::Cpu,
    Resource::Fsize,
    Resource::Data,
    Resource::Stack,
    Resource::Core,
    Resource::Nproc,
    Resource::Nofile,
    Resource::Memlock,
    Resource::As,
    Resource::Nice,
];

/// Runs a command, waits until it has exited, and returns the result of `outcome` for its final record. Calls `started` with its record
/// once it runs, unless it has already exited by then.
pub(crate) fn run(
    options: &ClientOptions,
    asked: Launch,
    started: impl FnOnce(&Value),
    outcome: &dyn Fn(&Value) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // Catch signals before the launch, so that no signal meant for the command is missed.
    let foreground = Foreground::listen()?;
    let handed = HeldParcel::over(options, &foreground, false)?;
    let record = handed.launch(options, asked)?;
    if !has_ended(&record) {
        started(&record);
    }
    // Also if it has ended: its last output may still be on its terminal.
    foreground.follow(options, &words(&record, "/id"), outcome)
}

/// The signals that are caught while a command runs in the foreground, and the command's terminal, if this process has one.
pub(crate) struct Foreground {
    runtime: Runtime,
    signals: Signals,
    terminal: Option<Terminal>,
}

impl Foreground {
    /// Catches signals from now on: they no longer end this process.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(&error))?;
        // Signals that this process ignores, as below `nohup`, are not for the command either.
        let mut caught = [&FORWARDED[..], &[CONT, TSTP, WINCH]].concat();
        caught.retain(|number| !inheritance::ignores(getpid(), *number));
        let signals = runtime.block_on(async { Signals::listen(&caught) });
        let signals = signals.map_err(|error| failed(&error))?;
        let terminal = Terminal::open();
        let terminal = terminal.map_err(|error| {
            Failure::unreachable(format!("failed to open a terminal for the command: {error}"))
        })?;
        Ok(Self { runtime, signals, terminal })
    }

    /// Waits for `end` and returns its output. If a signal that is meant for the command arrives first, returns its number as the error.
    pub(crate) fn until<F: Future + Unpin>(&mut self, end: &mut F) -> Result<F::Output, i32> {
        loop {
            match self.runtime.block_on(self.signals.until(end)) {
                Err(TSTP) => suspend(),
                Err(CONT | WINCH) => {}
                other => return other,
            }
        }
    }

    /// Forwards signals to the process with this `id` until it has ended. Then returns the result of `outcome` for its final record.
    pub(crate) fn follow(
        self,
        options: &ClientOptions,
        id: &str,
        outcome: &dyn Fn(&Value) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let relay = self.terminal.map(Terminal::relay).transpose();
        let mut relay = relay.map_err(|error| failed(&error))?;
        let (ended, end) = tokio::sync::oneshot::channel();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || {
                let record = options.wait(id, None, WaitExtent::Leader);
                // The receiver is still there unless the main thread has panicked.
                let _ = ended.send(());
                record
            });
            let (forward, forwarded) = mpsc::channel::<i32>();
            scope.spawn(move || {
                for number in forwarded {
                    // This fails if the process has ended meanwhile, which its record will show.
                    drop(options.send(id, number));
                }
            });
            self.runtime.block_on(self.signals.pass_on(end, |number| match number {
                TSTP => suspend_with(options, id, relay.as_ref()),
                CONT => go_on(options, id, relay.as_mut()),
                WINCH if relay.is_some() => relay.iter().for_each(Relay::resize),
                number => {
                    // If the caller's terminal is gone, so is the command's, whether or not the coordinator is there to send a signal.
                    relay.take_if(|_| number == HUP && is_hung_up());
                    // This cannot fail, since the receiving thread ends only when `forward` is dropped.
                    let _ = forward.send(number);
                }
            }));
            drop(forward);
            // From here on, messages go to the caller's terminal as it was.
            drop(relay);
            let record = waiting.join();
            let record = record.map_err(|_| failed(&"the waiting thread panicked"))??;
            outcome(&record)
        })
    }
}

/// Suspends this process, as the caller's shell expects. Returns when it is continued.
fn suspend() {
    // The signal cannot be caught, so this does not fail.
    let _ = kill_process(getpid(), Signal::STOP);
}

/// Suspends the command, then this process. The SIGCONT that continues this process continues the command, too.
fn suspend_with(options: &ClientOptions, id: &str, relay: Option<&Relay>) {
    // A command that handles SIGTSTP, as an editor does to restore the terminal, is notified first. The kernel does not suspend a command at
    // SIGTSTP, because no process of its own session could continue it.
    options.send_soon(id, TSTP, SUSPENSION);
    client::rest(NOTICE);
    options.send_soon(id, STOP, SUSPENSION);
    if let Some(relay) = relay {
        relay.leave();
    }
    suspend();
}

/// Continues the command after this process was continued.
fn go_on(options: &ClientOptions, id: &str, relay: Option<&mut Relay>) {
    if let Some(relay) = relay {
        relay.enter();
    }
    options.send_soon(id, CONT, SUSPENSION);
}

/// A parcel held by the keeper until a launch names its ticket. If this value is dropped before that, the keeper drops the parcel.
pub(crate) struct HeldParcel {
    ticket: u128,
    #[expect(dead_code, reason = "held for as long as a launch may need the parcel")]
    connection: UnixStream,
}

impl HeldParcel {
    /// Hands this process's streams, environment, umask and limits over to the keeper, for a command. Unless `stays` is true, the keeper
    /// drops them if the command is not launched within a minute.
    pub(crate) fn over(
        options: &ClientOptions,
        foreground: &Foreground,
        stays: bool,
    ) -> Result<Self, HandoverError> {
        let (input, output, errors) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        let mut streams = [input.as_fd(), output.as_fd(), errors.as_fd()];
        let mut inheritance = inheritance::own();
        if let Some(terminal) = &foreground.terminal {
            for stream in &mut streams {
                if isatty(*stream) {
                    *stream = terminal.theirs();
                }
            }
            inheritance.terminal = true;
        }
        let inherited = inheritance::inherited();
        let (further, numbers) =
            inherited.map_err(|error| HandoverError::Failed(failed(&error)))?;
        inheritance.descriptors = numbers;
        let further = further.iter().map(AsFd::as_fd);
        let descriptors: Vec<BorrowedFd<'_>> = streams.into_iter().chain(further).collect();
        Self::with(options, &descriptors, (&Own::default(), &inheritance), stays)
    }

    /// Like [`over`](Self::over), but with the given descriptors, which begin with the streams, with the changes in `own`, and with the given
    /// inheritance.
    fn with(
        options: &ClientOptions,
        descriptors: &[BorrowedFd<'_>],
        given: (&Own<'_>, &Inheritance),
        stays: bool,
    ) -> Result<Self, HandoverError> {
        let (ticket, connection) = handed_over(options, descriptors, given, stays)?;
        Ok(Self { ticket, connection })
    }

    /// Launches the command and returns its record.
    fn launch(self, options: &ClientOptions, asked: Launch) -> Result<Value, Failure> {
        let ticket = self.ticket();
        let asked = Launch { parcel: Some(ticket.clone()), ..asked };
        options.act_once("launch", sexton_api::fields::of(&asked), &ticket)
    }

    /// Returns the ticket by which a launch names the parcel.
    pub(crate) fn ticket(&self) -> String {
        format!("{:x}", self.ticket)
    }
}

/// The reason why a parcel was not handed over.
pub(crate) enum HandoverError {
    /// The keeper refused it, for this reason.
    Refused(String),
    /// There is no keeper, or it cannot be reached.
    Failed(Failure),
}

impl From<Failure> for HandoverError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<HandoverError> for Failure {
    fn from(not_handed: HandoverError) -> Self {
        match not_handed {
            HandoverError::Refused(reason) => failed(&reason),
            HandoverError::Failed(failure) => failure,
        }
    }
}

/// Changes to the environment and limits that a command gets from this process. They are not stored in the record.
#[derive(Default)]
pub(crate) struct Own<'a> {
    /// Additional environment variables.
    pub(crate) env: &'a [(&'a str, &'a str)],
    /// Variables of this process that the command does not get.
    pub(crate) without: &'a [&'a str],
    /// The maximum size of the data segment of each process of the command, in bytes. Where control groups for memory are available, also
    /// the maximum memory of all these processes together.
    pub(crate) memory_max: Option<u64>,
}

/// Launches a command with the given streams and with the environment, the umask and the limits of this process, adjusted by `own`, and
/// returns its record. If the keeper or the coordinator is unavailable, keeps trying for [`RETURN_MAX`]; while too many requests are waiting,
/// without limit.
pub(crate) fn launch(
    options: &ClientOptions,
    asked: &Launch,
    streams: &[BorrowedFd<'_>; 3],
    own: &Own<'_>,
) -> Result<Value, Failure> {
    let began = client::instant();
    options.target.check_user()?;
    let inheritance = inheritance::own();
    loop {
        match HeldParcel::with(options, streams, (own, &inheritance), false) {
            Ok(handed) => match handed.launch(options, asked.clone()) {
                // Nothing was launched, and what waits for the command, such as a job that was claimed for it, can wait longer.
                Err(failure) if failure.is_refused_as(Reason::Waits) => client::rest(RETURN),
                launched => return launched,
            },
            Err(not_handed) if began.elapsed() > RETURN_MAX => return Err(not_handed.into()),
            Err(_) => client::rest(RETURN),
        }
    }
}

fn failed(error: &dyn Display) -> Failure {
    Failure::unreachable(format!("failed to hand the command over to the keeper: {error}"))
}

/// Hands a parcel to the current keeper. After a keeper has been killed, the coordinator returns the socket of the dead one until it has
/// started another, so this is tried again up to [`LOOKS`] times.
fn handed_over(
    options: &ClientOptions,
    descriptors: &[BorrowedFd<'_>],
    (own, inheritance): (&Own<'_>, &Inheritance),
    stays: bool,
) -> Result<(u128, UnixStream), HandoverError> {
    let mut left = LOOKS;
    options.target.check_user()?;
    let parcel = parcel(own).map_err(|error| HandoverError::Failed(failed(&error)))?;
    let parcel = Box::new(parcel);
    loop {
        // A new ticket each time: the keeper may have taken the last parcel although its answer was lost.
        let ticket = drawn().map_err(|error| HandoverError::Failed(failed(&error)))?;
        let request = Request::Inheritance {
            ticket,
            parcel: parcel.clone(),
            stays,
            inheritance: Box::new(inheritance.clone()),
        };
        let socket = options.keeper()?;
        let mut handed = hand_over(&socket, (ticket, &request), descriptors);
        if is_refusal(&handed)
            && let Some(streams) = descriptors.get(..3)
        {
            // A keeper of an older version does not know this request.
            let parcel = parcel.clone();
            let request = Request::Parcel { ticket, parcel, stays };
            handed = hand_over(&socket, (ticket, &request), streams);
        }
        match handed {
            Ok(handed) => return Ok(handed),
            Err(error) if left > 0 && is_of_a_dead_keeper(error.kind()) => {
                left -= 1;
                client::rest(LOOK);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let seconds = TIMEOUT.as_secs();
                return Err(
                    failed(&format!("the keeper did not answer within {seconds} s: its process is stopped or overloaded")).into(),
                );
            }
            Err(error) if error.kind() == ErrorKind::QuotaExceeded => {
                return Err(HandoverError::Refused(error.to_string()));
            }
            Err(error) => {
                let failure = failed(&error).help("a command can run in the foreground only on the coordinator's machine, as its user; otherwise use --detach");
                return Err(failure.into());
            }
        }
    }
}

/// Returns whether this kind of error means that the keeper exited or was killed before answering. The parcel is then lost, but
/// nothing was launched, since the launch is requested only after the answer.
const fn is_of_a_dead_keeper(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof
    )
}

/// Returns whether a keeper answered that it does not accept a parcel.
fn is_refusal<T>(handed: &std::io::Result<T>) -> bool {
    let error = handed.as_ref().err();
    error.is_some_and(|error| error.kind() == ErrorKind::QuotaExceeded)
}

/// Sends a request with a parcel to the keeper at `path`, which must belong to our own user or to root. Returns the ticket by which a launch
/// names the parcel, and the connection. If the connection is closed before the launch, the keeper drops the parcel.
fn hand_over(
    path: &str,
    (ticket, request): (u128, &Request),
    descriptors: &[BorrowedFd<'_>],
) -> std::io::Result<(u128, UnixStream)> {
    let frame = framed(request)?;
    let mut stream = socket::connect_to_own(Path::new(path), TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut space =
        [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3 + Inheritance::DESCRIPTORS_MAX))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(std::io::Error::other("the control message has no space for the descriptors"));
    }
    let sent = sendmsg(&stream, &[IoSlice::new(&frame)], &mut beside, SendFlags::empty())?;
    stream.write_all(frame.get(sent..).unwrap_or_default())?;

    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length).min(1 << 16);
    let mut answer = vec![0; length as usize];
    stream.read_exact(&mut answer)?;
    match rmp_serde::from_slice(&answer) {
        Ok(Report::Taken { ticket: taken }) if taken == ticket => Ok((ticket, stream)),
        Ok(Report::Refused { reason }) => {
            Err(std::io::Error::new(ErrorKind::QuotaExceeded, reason))
        }
        Ok(other) => Err(std::io::Error::other(format!("unexpected answer: {other:?}"))),
        Err(error) => Err(std::io::Error::other(error)),
    }
}

fn parcel(own: &Own<'_>) -> std::io::Result<Parcel> {
    let inherited = std::env::vars_os().filter(|(name, _)| {
        let is_own = own.env.iter().any(|(it, _)| name == it);
        !is_own && own.without.iter().all(|it| name != it)
    });
    let env = inherited.map(|(name, value)| {
        let mut variable = name.into_vec();
        variable.push(b'=');
        variable.extend(value.into_vec());
        Bytes::new(variable)
    });
    let more = own.env.iter();
    let more = more.map(|(name, value)| Bytes::new(format!("{name}={value}").into_bytes()));
    let limits = LIMITS.iter().map(|which| {
        let limit = getrlimit(*which);
        let of = |value: Option<u64>| value.unwrap_or(u64::MAX);
        let own = own.memory_max.filter(|_| *which == Resource::Data);
        let most = own.unwrap_or(u64::MAX);
        let (soft, hard) = (of(limit.current), of(limit.maximum));
        (*which as u32, soft.min(most), hard.min(most))
    });
    Ok(Parcel {
        env: env.chain(more).collect(),
        umask: umask()?,
        limits: limits.collect(),
        memory_max: own.memory_max,
    })
}

/// Returns the umask of this process. The call of that name returns it only by setting another one, which all threads would have until it
/// is set back: a second thread would read that one, and a file created meanwhile would be open to all users.
fn umask() -> std::io::Result<u32> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let mut lines = status.lines();
    let mask =
        lines.find_map(|line| u32::from_str_radix(line.strip_prefix("Umask:")?.trim(), 8).ok());
    mask.ok_or_else(|| std::io::Error::other("/proc/self/status does not show the umask"))
}

#[cfg(test)]
mod tests {
    use super::{Own, parcel};
    use std::thread;

    #[test]
    fn many_threads_read_one_umask() {
        let read = || parcel(&Own::default()).expect("the umask is readable").umask;
        let first = read();
        assert_ne!(first, 0, "tests do not run with a umask of 0");
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        assert_eq!(read(), first);
                    }
                });
            }
        });
    }
}
