//! Startup of a keeper: its lock, socket and log. Also the function with which a program that embeds a node becomes a keeper.

use crate::keeper::attempts::Attempts;
use crate::keeper::core::{Files, Keeper, LOCK};
use crate::keeper::log::{self, Log, LogError};
use crate::keeper::protocol::Started;
use crate::keeper::upgrade::{Carried, NAME, Resumption};
use crate::kernel::pidfd::Pidfd;
use crate::kernel::signals::{self, Signals};
use crate::kernel::spawn::{close_inherited, is_single_threaded};
use crate::kernel::wait;
use crate::kernel::{cgroup, file, host, memory, proc, socket};
use rustix::event::{Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The name of the keeper's socket in the data directory.
pub const SOCKET: &str = "keeper.sock";
/// The maximum number of connections waiting to be accepted.
const BACKLOG: i32 = 128;
/// The pause between two attempts to lock the directory while a keeper that accepts no connections still holds the lock.
const LEAVING_LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// The maximum number of such pauses.
const LEAVING_LOOKS: u32 = 200;

/// Why a keeper cannot run.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// Another keeper has locked the directory.
    #[error("{} already has a keeper: {} is locked", data.display(), LOCK)]
    Kept {
        /// The data directory.
        data: PathBuf,
    },
    /// A system call failed.
    #[error("failed to {what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// The underlying error.
        source: io::Error,
    },
    /// This program already has several threads. A new process would inherit their locks, which would stay locked forever.
    #[error(
        "a keeper must have one thread, but this program has already started others: call run_if_asked first in main"
    )]
    Threads,
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> KeeperError {
    let what = what.into();
    move |source| KeeperError::Io { what, source }
}

/// Returns the arguments with which our program, or one that calls [`run_if_asked`], becomes the keeper of a directory.
pub fn arguments(data: &Path) -> Vec<OsString> {
    vec!["keeper".into(), "--data".into(), data.into()]
}

/// Runs a keeper if this program was started with the arguments that [`arguments`] returns, and returns the code with which the program
/// should exit when the keeper has ended. Returns `None` if it was started with other arguments. Must be called first in `main`, before any
/// thread is started.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     if let Some(code) = sexton::keeper::run_if_asked() {
///         return code;
///     }
///     // the program itself
///     std::process::ExitCode::SUCCESS
/// }
/// ```
pub fn run_if_asked() -> Option<ExitCode> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (data, resumption) = match words.as_slice() {
        [keeper, flag, data] if keeper == "keeper" && flag == "--data" => (data, None),
        [keeper, flag, data, second, numbers]
            if keeper == "keeper" && flag == "--data" && second == "--resume" =>
        {
            (data, Some(Resumption::parse(numbers.to_str()?)?))
        }
        _ => return None,
    };
    Some(match run(Path::new(data), resumption) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be closed, but there is no other way to report this.
            drop(writeln!(io::stderr(), "keeper: {error}"));
            ExitCode::FAILURE
        }
    })
}

/// Runs the keeper of this data directory until it is terminated by a signal or has been idle: for ten seconds if no coordinator has
/// connected yet, otherwise for one second. If this program replaces an older one in the same process, `resumption` has the descriptors
/// that the older program left open. Otherwise, the standard streams are redirected to `/dev/null` as soon as the keeper listens, so that
/// the process that started it can wait for their end of file.
///
/// # Errors
/// Returns an error if another keeper has locked the directory, this program has several threads, the log cannot be used, or a system call
/// that the keeper needs fails.
pub fn run(data: &Path, resumption: Option<Resumption>) -> Result<(), KeeperError> {
    if !is_single_threaded().map_err(failed("list the threads of this program"))? {
        return Err(KeeperError::Threads);
    }
    let data = fs::canonicalize(data).map_err(failed(format!("find {}", data.display())))?;
    if resumption.is_none() {
        close_inherited();
    }
    let watched = [signals::CHILD, signals::TERMINATE, signals::INTERRUPT];
    let signals = Signals::of(&watched).map_err(failed("watch for signals"))?;
    signals::ignore(signals::HANG_UP);
    signals::ignore(signals::PIPE);
    signals::allow_huge_pages();
    signals::name_process(NAME);
    signals::hide();
    signals::adopt_orphans().map_err(failed("become the parent of orphans"))?;
    let mut keeper = match resumption {
        None => begin(&data, signals)?,
        Some(resumption) => resume(&data, resumption, signals)?,
    };
    keeper.run().map_err(failed("wait for events"))?;
    Ok(())
}

fn begin(data: &Path, signals: Signals) -> Result<Keeper, KeeperError> {
    let lock = lock(data)?;
    // This fails if we lead a process group. We then either have a session of our own already, or were started from a terminal.
    let _of_a_leader = rustix::process::setsid();
    std::env::set_current_dir("/").map_err(failed("leave the current directory"))?;
    let (attempts, log) = restore(data)?;
    let listener = listen(&data.join(SOCKET)).map_err(failed(format!("listen on {SOCKET}")))?;
    detach().map_err(failed("open /dev/null"))?;
    let groups = groups(data);
    let files = Files { data: data.to_owned(), socket: data.join(SOCKET), groups, lock, listener };
    let keeper = Keeper::new(files, signals, attempts, log);
    keeper.map_err(failed("create an epoll instance"))
}

fn resume(data: &Path, resumption: Resumption, signals: Signals) -> Result<Keeper, KeeperError> {
    let inherited = |number| {
        let fd = crate::kernel::spawn::inherited(number);
        fd.map_err(failed(format!("take over descriptor {number}")))
    };
    let files = Files {
        data: data.to_owned(),
        socket: data.join(SOCKET),
        groups: groups(data),
        lock: inherited(resumption.lock)?,
        listener: inherited(resumption.listener)?,
    };
    let (attempts, log) = restore(data)?;
    let keeper = Keeper::new(files, signals, attempts, log);
    let mut keeper = keeper.map_err(failed("create an epoll instance"))?;
    // If this fails, the keeper continues without the state that is not in the log: parcels, and the outcomes of launches in progress.
    if let Ok(state) = inherited(resumption.state)
        && let Ok(carried) = Carried::read(state)
    {
        keeper.unpack(carried);
    }
    Ok(keeper)
}

/// Restores the attempts from the log, and replaces the log with one that describes only them. If it cannot be replaced, it stays in use.
fn restore(data: &Path) -> Result<(Attempts, Log), KeeperError> {
    let contents = log::read(data, host::boot())?;
    if contents.damaged > 0 {
        let words = "skipped damaged records of the log";
        drop(writeln!(io::stderr(), "keeper: {words}: {}", contents.damaged));
    }
    let attempts = Attempts::restored(&contents.records, is_ours);
    // A full disk must not prevent the keeper from continuing with the existing log.
    let log = match Log::begin(data, host::boot(), attempts.records()) {
        Err(LogError::Io { path, source }) => match contents.places {
            Some(places) => Log::resume(data, host::boot(), places)?,
            None => return Err(LogError::Io { path, source }.into()),
        },
        other => other?,
    };
    Ok((attempts, log))
}

/// Returns whether a started process is our child. Its PID may have been reused by an adopted orphan, which is also a child of ours, so its
/// start time and inode are compared too.
fn is_ours(started: &Started) -> bool {
    if started.namespace != host::namespace() || !wait::is_child(started.pid) {
        return false;
    }
    let stat = proc::stat(started.pid).ok().flatten();
    let inode = || Pidfd::open(started.pid).ok().flatten()?.inode().ok();
    stat.is_some_and(|stat| stat.start_ticks == started.ticks)
        && (started.inode == 0 || inode() == Some(started.inode))
}

fn lock(data: &Path) -> Result<OwnedFd, KeeperError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW;
    let opened = file::regular(&data.join(LOCK), flags);
    let what = || failed(format!("lock {LOCK}"));
    let file = OwnedFd::from(opened.map_err(what())?);
    let mut looks = 0;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            // A keeper that is exiting or was killed holds the lock for a moment longer than its socket.
            Err(Errno::WOULDBLOCK) if looks < LEAVING_LOOKS && !listens(&data.join(SOCKET)) => {
                looks += 1;
                let _nothing = poll(&mut [], Some(&LEAVING_LOOK));
            }
            Err(Errno::WOULDBLOCK) => {
                let data = data.to_owned();
                return Err(KeeperError::Kept { data });
            }
            Err(error) => return Err(what()(error.into())),
        }
    }
    let pid = format!("{}\n", std::process::id());
    // The PID is only for people to read, so a full disk is not a reason to fail.
    let _written =
        rustix::fs::ftruncate(&file, 0).and_then(|()| rustix::io::pwrite(&file, pid.as_bytes(), 0));
    Ok(file)
}

/// Returns whether a keeper accepts connections on this socket.
fn listens(path: &Path) -> bool {
    // A keeper that is stopped may have a full queue of connections, but it does listen.
    match socket::connect(path, Duration::ZERO) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::TimedOut,
    }
}

/// Listens on the socket, after removing a socket left by a dead keeper, which is safe because we hold the lock. The umask excludes other
/// users from the moment the socket is created.
fn listen(path: &Path) -> io::Result<OwnedFd> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = rustix::net::bind(&socket, &SocketAddrUnix::new(path)?);
    rustix::process::umask(before);
    bound?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Detaches from the standard streams of the process that started us.
fn detach() -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(null.as_fd())?;
    Ok(())
}

/// Creates the control group that contains the groups of attempts. Returns `None` if this process cannot create control groups.
fn groups(data: &Path) -> Option<PathBuf> {
    let base = cgroup::writable()?;
    let digest = xxhash_rust::xxh3::xxh3_64(data.as_os_str().as_bytes());
    memory::create_with_memory(&base, &format!("sexton-{digest:016x}")).ok()
}
