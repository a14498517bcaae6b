//! Runs a command in the foreground, with the streams, the environment, the umask and the limits of this process. These are handed
//! over as one parcel to the keeper (the process that launches commands for the coordinator) and are stored nowhere. Signals to this
//! process are forwarded to the command.

pub(crate) use crate::client::drawn;
use crate::client::{self, Fields};
use crate::process::request::{ClientOptions, WaitExtent, has_ended};
use crate::report::Failure;
use crate::signals::Signals;
use crate::text::words;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Resource, getrlimit};
use serde_json::Value;
use sexton::bytes::Bytes;
use sexton::keeper::framed;
use sexton::keeper::protocol::{Parcel, Report, Request};
use sexton::kernel::socket;
use std::fmt::Display;
use std::io::{ErrorKind, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
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
    asked: Fields,
    started: impl FnOnce(&Value),
    outcome: &dyn Fn(&Value) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // Catch signals before the launch, so that no signal meant for the command is missed.
    let foreground = Foreground::listen()?;
    let handed = HeldParcel::over(options, false)?;
    let record = handed.launch(options, asked)?;
    if has_ended(&record) {
        return outcome(&record);
    }
    started(&record);
    foreground.follow(options, &words(&record, "/id"), outcome)
}

/// The signals that are caught while a command runs in the foreground.
pub(crate) struct Foreground {
    runtime: Runtime,
    signals: Signals,
}

impl Foreground {
    /// Catches signals from now on: they no longer end this process.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| failed(&error))?;
        let signals = runtime.block_on(async { Signals::listen(&FORWARDED) });
        let signals = signals.map_err(|error| failed(&error))?;
        Ok(Self { runtime, signals })
    }

    /// Waits for `end` and returns its output. If a signal arrives first, returns its number as the error.
    pub(crate) fn until<F: Future + Unpin>(&mut self, end: &mut F) -> Result<F::Output, i32> {
        self.runtime.block_on(self.signals.until(end))
    }

    /// Forwards signals to the process with this `id` until it has ended. Then returns the result of `outcome` for its final record.
    pub(crate) fn follow(
        self,
        options: &ClientOptions,
        id: &str,
        outcome: &dyn Fn(&Value) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
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
            self.runtime.block_on(self.signals.pass_on(end, |number| {
                // This cannot fail, since the receiving thread ends only when `forward` is dropped.
                let _ = forward.send(number);
            }));
            drop(forward);
            let record = waiting.join();
            let record = record.map_err(|_| failed(&"the waiting thread panicked"))??;
            outcome(&record)
        })
    }
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
    pub(crate) fn over(options: &ClientOptions, stays: bool) -> Result<Self, HandoverError> {
        let (input, output, errors) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        let streams = [input.as_fd(), output.as_fd(), errors.as_fd()];
        Self::with(options, &streams, &Own::default(), stays)
    }

    /// Like [`over`](Self::over), but with the given `streams`, and with the changes in `own`.
    fn with(
        options: &ClientOptions,
        streams: &[BorrowedFd<'_>; 3],
        own: &Own<'_>,
        stays: bool,
    ) -> Result<Self, HandoverError> {
        let (ticket, connection) = handed_over(options, (streams, own), stays)?;
        Ok(Self { ticket, connection })
    }

    /// Launches the command and returns its record.
    fn launch(self, options: &ClientOptions, mut asked: Fields) -> Result<Value, Failure> {
        let ticket = self.ticket();
        asked.insert("parcel".to_owned(), ticket.as_str().into());
        options.act_once("launch", asked, &ticket)
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
/// returns its record. If the keeper or the coordinator is unavailable, keeps trying for [`RETURN_MAX`].
pub(crate) fn launch(
    options: &ClientOptions,
    asked: Fields,
    streams: &[BorrowedFd<'_>; 3],
    own: &Own<'_>,
) -> Result<Value, Failure> {
    let began = client::instant();
    options.target.check_user()?;
    loop {
        match HeldParcel::with(options, streams, own, false) {
            Ok(handed) => return handed.launch(options, asked),
            Err(not_handed) if began.elapsed() > RETURN_MAX => return Err(not_handed.into()),
            Err(_) => client::rest(RETURN),
        }
    }
}

fn failed(error: &dyn Display) -> Failure {
    Failure::unreachable(format!(
        "failed to hand the command over to the keeper: {error}"
    ))
}

/// Hands a parcel to the current keeper. After a keeper has been killed, the coordinator returns the socket of the dead one until it has
/// started another, so this is tried again up to [`LOOKS`] times.
fn handed_over(
    options: &ClientOptions,
    given: (&[BorrowedFd<'_>; 3], &Own<'_>),
    stays: bool,
) -> Result<(u128, UnixStream), HandoverError> {
    let mut left = LOOKS;
    options.target.check_user()?;
    loop {
        let socket = options.keeper()?;
        match hand_over(&socket, given, stays) {
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

/// Sends a parcel to the keeper at `path`, which must belong to our own user or to root. Returns the ticket by which a launch names the
/// parcel, and the connection. If the
/// connection is closed before the launch, the keeper drops the parcel.
fn hand_over(
    path: &str,
    (streams, own): (&[BorrowedFd<'_>; 3], &Own<'_>),
    stays: bool,
) -> std::io::Result<(u128, UnixStream)> {
    let ticket = drawn()?;
    let request = Request::Parcel {
        ticket,
        parcel: Box::new(parcel(own)?),
        stays,
    };
    let frame = framed(&request)?;
    let mut stream = socket::connect_to_own(Path::new(path), TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !beside.push(SendAncillaryMessage::ScmRights(streams)) {
        return Err(std::io::Error::other(
            "the control message has no space for three descriptors",
        ));
    }
    let sent = sendmsg(
        &stream,
        &[IoSlice::new(&frame)],
        &mut beside,
        SendFlags::empty(),
    )?;
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
        Ok(other) => Err(std::io::Error::other(format!(
            "unexpected answer: {other:?}"
        ))),
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
        let read = || {
            parcel(&Own::default())
                .expect("the umask is readable")
                .umask
        };
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
