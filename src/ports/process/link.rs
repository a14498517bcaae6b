//! The connection to the keeper. A keeper is started if none is running.

use crate::actors::process::{Failure, Step};
use crate::keeper::protocol::{FRAME_BYTES_MAX, Report, Request, VERSION};
use crate::keeper::{self, framed};
use crate::kernel::{descriptors, proc, socket};
use crate::ports::process::files;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::Pid;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long a new keeper may take to start listening.
const START: Duration = Duration::from_secs(10);

/// The interval at which it is checked whether a new keeper is listening.
const LOOK: Duration = Duration::from_millis(2);

/// How long a keeper may take to read a request.
const TIMEOUT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// The program that is started as the keeper. `examples/commands.rs` is a program that is its own keeper.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeeperProgram {
    /// No program: launches are refused.
    #[default]
    None,
    /// This program, whose `main` first calls [`keeper::run_if_asked`](crate::keeper::run_if_asked). A program that does not call it would
    /// run a second time instead of becoming the keeper, and launches would fail.
    Own,
    /// Another program whose `main` first calls that function, such as `sexton` itself.
    At(PathBuf),
}

/// A connection to a keeper.
#[derive(Debug)]
pub(super) struct Link {
    stream: UnixStream,
    unread: Vec<u8>,
}

impl Link {
    /// Connects to the keeper of this data directory and greets it. Returns `None` if no keeper is listening. Does not wait for a keeper
    /// whose queue of connections is full. Returns an error if the process that listens belongs to another user: it would be sent the
    /// environments of all processes.
    pub(super) fn connect(data: &Path) -> io::Result<Option<Self>> {
        let path = data.join(keeper::SOCKET);
        let stream = match socket::connect_to_own(&path, Duration::ZERO) {
            Ok(stream) => stream,
            Err(error) => {
                let absent = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
                return if absent.contains(&error.kind()) { Ok(None) } else { Err(error) };
            }
        };
        let mut link = Self { stream, unread: Vec::new() };
        link.ask(&Request::Hello { version: VERSION })?;
        Ok(Some(link))
    }

    pub(super) const fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends a request to the keeper.
    pub(super) fn ask(&mut self, request: &Request) -> io::Result<()> {
        self.send(&framed(request)?)
    }

    /// Sends all bytes. A keeper may stop reading requests until its answers are read, so answers are received while this waits.
    fn send(&mut self, mut rest: &[u8]) -> io::Result<()> {
        while !rest.is_empty() {
            match rustix::net::send(&self.stream, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let both = PollFlags::IN | PollFlags::OUT;
                    let ready = poll(&mut [PollFd::new(&self.stream, both)], Some(&TIMEOUT));
                    match ready {
                        Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                        Ok(_) => self.receive()?,
                        Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Appends the bytes that have arrived, if any, to `unread`. Returns an error if the keeper has closed the connection.
    fn receive(&mut self) -> io::Result<()> {
        let mut chunk = [0; 16 << 10];
        match rustix::net::recv(&self.stream, &mut chunk[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((length, _)) => {
                let came = chunk.get(..length).unwrap_or(&[]);
                self.unread.extend_from_slice(came);
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether a whole frame has been received and can be read without waiting.
    pub(super) fn has_unread(&self) -> bool {
        let unread = self.unread.split_first_chunk::<4>();
        unread.is_some_and(|(length, after)| after.len() >= u32::from_le_bytes(*length) as usize)
    }

    /// Shuts the connection down; the next read reports its end.
    pub(super) fn end(&self) {
        // The stream may already be closed.
        drop(self.stream.shutdown(std::net::Shutdown::Both));
    }

    /// Reads the reports that have arrived. Returns an error if the keeper has closed the connection or sent an invalid frame.
    pub(super) fn read(&mut self, reports: &mut Vec<Report>) -> io::Result<()> {
        let received = self.receive();
        let mut rest = self.unread.as_slice();
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            if length > FRAME_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the frame is too long"));
            }
            let Some((frame, after)) = after.split_at_checked(length) else {
                break;
            };
            reports.push(rmp_serde::from_slice(frame).map_err(io::Error::other)?);
            rest = after;
        }
        self.unread = rest.to_vec();
        received
    }
}

/// Returns the program that a keeper should execute in place of its own: the one that would be started as a keeper now. Returns `None` if
/// the keeper already executes that file, or if either program cannot be inspected.
pub(super) fn successor(program: &KeeperProgram, keeper: u32) -> Option<PathBuf> {
    let path = match program {
        KeeperProgram::None => return None,
        KeeperProgram::Own => {
            let path = proc::program().ok()?;
            // The file may have been replaced since this coordinator was started.
            let is_ours = proc::executes(std::process::id(), &path);
            is_ours.unwrap_or(false).then_some(path)?
        }
        KeeperProgram::At(path) => std::path::absolute(path).ok()?,
    };
    // If the keeper is in another PID namespace, its PID may belong to an unrelated process here.
    let words = proc::cmdline(keeper).ok()??;
    let is_keeper = words.get(1).is_some_and(|it| it.as_bytes() == b"keeper");
    // Only root can find out what a keeper executes. Otherwise the keeper is asked, and does nothing if it executes that program already.
    let is_older = match proc::executes(keeper, &path) {
        Ok(same) => !same,
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    };
    (is_keeper && is_older).then_some(path)
}

/// Starts a keeper and waits until it is listening.
pub(super) fn start(program: &KeeperProgram, data: &Path) -> Result<(Link, Child), Failure> {
    let path = match program {
        KeeperProgram::None => return Err(none()),
        KeeperProgram::Own => PathBuf::from("/proc/self/exe"),
        KeeperProgram::At(path) => path.clone(),
    };
    let failed = |error: &io::Error| files::failure(Step::Keeper, error, &path);
    // No `pre_exec`, user or group here: they would make `Command` fork, which copies the memory of this process.
    let mut command = Command::new(&path);
    // Process lists show this name instead of the path.
    command.arg0(OsStr::from_bytes(keeper::NAME.to_bytes()));
    command.arg("keeper").arg("--data").arg(data);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    // The commands that the keeper launches inherit its limits. It launches none before we have connected.
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
        && let Err(error) = descriptors::restore(pid)
    {
        tracing::warn!(%error, "failed to restore the descriptor limit for the keeper");
    }
    let mut waited = Duration::ZERO;
    loop {
        match Link::connect(data) {
            Ok(Some(link)) => return Ok((link, child)),
            Ok(None) => {}
            Err(error) => return Err(failed(&error)),
        }
        let ended = child.try_wait().map_err(|error| failed(&error))?;
        let why = match ended {
            Some(status) => {
                format!("{}: the keeper exited during startup: {status}", path.display())
            }
            None if waited > START => {
                format!("{}: the keeper did not start listening in time", path.display())
            }
            None => {
                rest();
                waited += LOOK;
                continue;
            }
        };
        // A keeper that failed to start must not be left running.
        drop(child.kill());
        drop(child.wait());
        return Err(Failure { step: Step::Keeper, errno: 0, about: Some(why) });
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "no event reports that another process has started to listen"
)]
fn rest() {
    std::thread::sleep(LOOK);
}

/// Returns the failure with which launches are refused if there is no keeper program.
pub(super) fn none() -> Failure {
    Failure {
        step: Step::Keeper,
        errno: 0,
        about: Some("this coordinator has none: it runs without a data directory (--memory), or its program does not provide one".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::Link;
    use crate::ids::ProcessId;
    use crate::keeper::protocol::{Report, Request};
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_keeper_that_reads_only_when_it_is_read_is_asked_all_the_same() {
        let (stream, mut keeper) = UnixStream::pair().expect("a socket pair can be created");
        let mut link = Link { stream, unread: Vec::new() };
        let requests = 10_000;
        let told = std::thread::Builder::new().spawn(move || {
            let report = Report::Absent { attempt: ProcessId(7) };
            let mut frame = vec![0; 4];
            rmp_serde::encode::write(&mut frame, &report).expect("the report can be encoded");
            frame[0] = u8::try_from(frame.len() - 4).expect("the frame is short");
            let reports = frame.repeat(50_000);
            keeper.write_all(&reports).expect("the reports can be written");
            let mut rest = Vec::new();
            keeper.read_to_end(&mut rest).expect("the requests can be read");
            rest.len()
        });
        let told = told.expect("a thread can be started");
        let attempts = vec![ProcessId(u128::MAX); 64];
        for _ in 0..requests {
            let attempts = attempts.clone();
            link.ask(&Request::Forget { attempts }).expect("the request can be sent");
        }
        link.stream.shutdown(std::net::Shutdown::Write).expect("the connection is open");
        let mut reports = Vec::new();
        while reports.len() < 50_000 && link.read(&mut reports).is_ok() {}
        assert_eq!(reports.len(), 50_000);
        assert!(told.join().expect("the thread does not panic") > requests * 64 * 16);
    }
}
