//! A new process that waits for leave before it executes its program, so that who starts it can write down which it is
//! while it is sure to be there. For programs of one thread only: the new process goes on with a copy of all memory.

#![expect(unsafe_code, reason = "clone3 and execve have no safe calls")]

use crate::kernel::child;
use crate::kernel::pidfd::Pidfd;
use crate::kernel::plan::{Plan, Step};
use rustix::io::Errno;
use std::ffi::{CString, OsString};
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::ptr;

/// Descriptors below this number are the child's own: streams, and the two pipes to whoever started it.
const FIRST_OF_OURS: RawFd = 16;

/// What a new process is given beside its plan.
#[derive(Clone, Copy, Default)]
pub struct Birth<'a> {
    /// The control group to be born in: a descriptor of it. If that fails, it is born without.
    pub group: Option<BorrowedFd<'a>>,
    /// The PID to have, which takes a capability: for tests of what a reused PID does.
    pub pid: Option<i32>,
}

/// A process that waits for leave. When this is dropped, or the process that has it ends, it exits.
pub struct Spawned {
    /// Its PID, and that of its process group.
    pub pid: u32,
    /// A descriptor of it, where the kernel has such.
    pub pidfd: Option<Pidfd>,
    /// Whether it is in the group that was asked for.
    pub contained: bool,
    gate: PipeWriter,
    outcome: Outcome,
}

impl Spawned {
    /// Lets it go on to its program.
    ///
    /// # Errors
    /// If it was killed meanwhile.
    pub fn release(mut self) -> io::Result<Outcome> {
        self.gate.write_all(b"!")?;
        Ok(self.outcome)
    }
}

/// Says whether a process has come as far as its program. Never blocks.
pub struct Outcome(PipeReader);

impl Outcome {
    /// `None` if nothing is known yet; else whether the program is executed, or where that failed.
    pub fn read(&mut self) -> Option<Result<(), (Step, i32)>> {
        let mut bytes = [0; 5];
        match self.0.read(&mut bytes) {
            Ok(5) => {
                let [step, errno @ ..] = bytes;
                let step = Step::ALL.into_iter().find(|known| *known as u8 == step);
                let step = step.unwrap_or(Step::Exec);
                Some(Err((step, i32::from_le_bytes(errno))))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            // Its end was closed by the execution, or by a death before it, which is seen as such.
            Ok(_) | Err(_) => Some(Ok(())),
        }
    }

    /// The one that a program before us had.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(PipeReader::from(fd))
    }
}

impl AsFd for Outcome {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes a new process with these three streams. It does nothing but calls of the kernel until it executes its program: where
/// there are other threads, it finds their locks taken for ever, and takes none.
///
/// # Errors
/// Those of `clone3` and `pipe2`.
pub fn spawn(plan: &Plan, streams: [BorrowedFd<'_>; 3], birth: Birth<'_>) -> io::Result<Spawned> {
    let (gate_end, gate) = io::pipe()?;
    let (outcome, outcome_end) = io::pipe()?;
    rustix::io::ioctl_fionbio(&outcome, true)?;
    let [input, output, errors] = streams;
    let away = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, FIRST_OF_OURS);
    let fds = [
        away(input)?,
        away(output)?,
        away(errors)?,
        away(gate_end.as_fd())?,
        away(outcome_end.as_fd())?,
    ];
    let strings = child::Strings::of(plan);
    let life = child::Life {
        plan,
        strings: &strings,
        fds: fds.each_ref().map(AsRawFd::as_raw_fd),
    };
    let made = match clone(birth, birth.group) {
        // A group that cannot take it is no reason not to start it.
        Err(error) if birth.group.is_some() && !is_shortage(&error) => clone(birth, None),
        other => other,
    };
    match made? {
        Clone::Child => life.live(),
        Clone::Parent {
            pid,
            pidfd,
            contained,
        } => Ok(Spawned {
            pid,
            pidfd,
            contained,
            gate,
            outcome: Outcome(outcome),
        }),
    }
}

enum Clone {
    Child,
    Parent {
        pid: u32,
        pidfd: Option<Pidfd>,
        contained: bool,
    },
}

/// What would fail without a group just so.
fn is_shortage(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE)
    )
}

/// `clone3`, or `fork` where that is not known or not allowed.
fn clone(birth: Birth<'_>, group: Option<BorrowedFd<'_>>) -> io::Result<Clone> {
    let mut pidfd: libc::c_int = -1;
    let tid = birth.pid.unwrap_or(0);
    let mut flags = u64::try_from(libc::CLONE_PIDFD).unwrap_or_default();
    if group.is_some() {
        flags |= 0x2_0000_0000; // CLONE_INTO_CGROUP
    }
    // SAFETY: plain numbers, of which zero is one.
    let mut request: libc::clone_args = unsafe { std::mem::zeroed() };
    request.flags = flags;
    request.pidfd = ptr::from_mut(&mut pidfd) as u64;
    request.exit_signal = u64::try_from(libc::SIGCHLD).unwrap_or_default();
    if birth.pid.is_some() {
        request.set_tid = ptr::from_ref(&tid) as u64;
        request.set_tid_size = 1;
    }
    let group = group.map_or(0, |group| group.as_raw_fd());
    request.cgroup = u64::try_from(group).unwrap_or_default();
    let length = size_of::<libc::clone_args>();
    // SAFETY: the request points at what lives until the call is over. No memory is shared with the child, which has
    // one thread, as we do: so every lock that there is, is as free there as it is here.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const request, length) };
    match u32::try_from(pid) {
        Ok(0) => Ok(Clone::Child),
        Ok(pid) => {
            // SAFETY: the kernel has just given it, so it is open and nobody else's.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Clone::Parent {
                pid,
                pidfd: Some(Pidfd::from_fd(pidfd)),
                contained: flags & 0x2_0000_0000 != 0,
            })
        }
        Err(_) => {
            let error = io::Error::last_os_error();
            let unknown = matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM));
            if unknown && birth.pid.is_none() && request.cgroup == 0 {
                return fork();
            }
            Err(error)
        }
    }
}

fn fork() -> io::Result<Clone> {
    // SAFETY: as above.
    let pid = unsafe { libc::fork() };
    match u32::try_from(pid) {
        Ok(0) => Ok(Clone::Child),
        Ok(pid) => Ok(Clone::Parent {
            pid,
            pidfd: Pidfd::open(pid).ok().flatten(),
            contained: false,
        }),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Executes a program in place of this one, with this environment and every descriptor that stays open. Returns only if
/// that fails, and then nothing has changed.
pub fn replace(program: &Path, arguments: &[OsString]) -> io::Error {
    let string = |text: &[u8]| CString::new(text).map_err(io::Error::from);
    let list = |texts: Vec<Vec<u8>>| -> io::Result<Vec<CString>> {
        texts.iter().map(|text| string(text)).collect()
    };
    let own = std::env::vars_os().map(|(name, value)| {
        let parts = [name.into_vec(), b"=".to_vec(), value.into_vec()];
        parts.concat()
    });
    let prepared = string(program.as_os_str().as_bytes()).and_then(|program| {
        let mut argv = vec![program.clone()];
        let given = arguments.iter().map(|word| word.as_bytes().to_vec());
        argv.extend(list(given.collect())?);
        Ok((program, argv, list(own.collect())?))
    });
    let (program, argv, env) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return error,
    };
    let (argv, env) = (child::pointers(&argv), child::pointers(&env));
    // SAFETY: strings that end with NUL, in arrays that end with a null pointer, all of which live until the call is over.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Whether this process has one thread.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn is_alone() -> io::Result<bool> {
    Ok(std::fs::read_dir("/proc/self/task")?.count() == 1)
}

/// Closes what this program was started with beside its standard streams: a process that stays keeps nothing open for those that
/// wait for its end. To be called before anything is opened.
pub fn close_inherited() {
    // SAFETY: numbers alone; nothing of this program is open yet, so nobody owns what is closed.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
    }
}

/// Lets a descriptor stay open when another program is executed, or not.
///
/// # Errors
/// Those of `fcntl`.
pub fn inherit(fd: BorrowedFd<'_>, stays: bool) -> Result<(), Errno> {
    use rustix::io::{FdFlags, fcntl_setfd};
    let flags = if stays {
        FdFlags::empty()
    } else {
        FdFlags::CLOEXEC
    };
    fcntl_setfd(fd, flags)
}

/// Takes over a descriptor that the program before us left open under this number.
///
/// # Errors
/// If there is none.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: a number in, flags out: whether the descriptor is open.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and only the state that names it, which is read once, knows of it.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    inherit(fd.as_fd(), false)?;
    Ok(fd)
}
