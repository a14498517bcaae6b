//! A new process that waits for permission before it executes its program, so that the caller can record the identity of the process while
//! it is certain to exist. For single-threaded programs only: the new process runs on a copy of all memory.

#![expect(unsafe_code, reason = "there are no safe calls for clone3 and execve")]

use crate::kernel::child;
use crate::kernel::pidfd::Pidfd;
use crate::kernel::plan::{Plan, Step};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsString};
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::ptr;

/// The child's descriptors are first duplicated to this number or above, or above the highest of their final numbers if that is higher. The
/// child then moves them to their final numbers.
const FIRST_OF_OURS: RawFd = 16;

/// The settings of a new process in addition to its plan.
#[derive(Clone, Copy, Default)]
pub struct SpawnOptions<'a> {
    /// A descriptor of the control group to start in. If that fails, the process starts outside it.
    pub group: Option<BorrowedFd<'a>>,
    /// The PID to use, which requires a capability. For tests of PID reuse.
    pub pid: Option<i32>,
    /// Further descriptors that the process gets, each with its number, which is above 2.
    pub further: &'a [(OwnedFd, RawFd)],
}

/// A process that waits for permission to run. If this value is dropped or our own process exits, the waiting process exits without having
/// executed its program.
pub struct Spawned {
    /// Its PID, which is also the id of its process group.
    pub pid: u32,
    /// Its pidfd, if the kernel has pidfds.
    pub pidfd: Option<Pidfd>,
    /// Whether it is in the requested control group.
    pub contained: bool,
    gate: PipeWriter,
    outcome: Outcome,
}

impl Spawned {
    /// Allows the process to execute its program.
    ///
    /// # Errors
    /// Returns an error if the process was killed meanwhile.
    pub fn release(mut self) -> io::Result<Outcome> {
        self.gate.write_all(b"!")?;
        Ok(self.outcome)
    }
}

/// The pipe on which a child reports that it could not execute its program. Reading never blocks.
pub struct Outcome(PipeReader);

impl Outcome {
    /// Returns `Some(Err)` with the step and its `errno` if a step failed, and `Some(Ok)` if the program was executed or the process was
    /// killed before that. Returns `None` if the outcome is not known yet.
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
            // The pipe was closed by `execve`, or because the process was killed before that, which is detected elsewhere.
            Ok(_) | Err(_) => Some(Ok(())),
        }
    }

    /// Wraps the pipe that was inherited from the previous version of this program.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(PipeReader::from(fd))
    }
}

impl AsFd for Outcome {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Creates a new process with these three streams. Until the process executes its program, it only makes system calls and takes no locks: a
/// lock held by another thread of the parent would stay locked in its copy of the memory.
///
/// # Errors
/// Returns the error of the system call that failed, such as `clone3` or `pipe2`.
pub fn spawn(
    plan: &Plan,
    streams: [BorrowedFd<'_>; 3],
    birth: SpawnOptions<'_>,
) -> io::Result<Spawned> {
    let (gate_end, gate) = io::pipe()?;
    let (outcome, outcome_end) = io::pipe()?;
    rustix::io::ioctl_fionbio(&outcome, true)?;
    let [input, output, errors] = streams;
    let streams = [(input, 0), (output, 1), (errors, 2)];
    let further = birth.further.iter().map(|(fd, number)| (fd.as_fd(), *number));
    let placed: Vec<(BorrowedFd<'_>, RawFd)> = streams.into_iter().chain(further).collect();
    let highest = placed.iter().map(|(_, number)| *number).max();
    let first = highest.map_or(FIRST_OF_OURS, |it| FIRST_OF_OURS.max(it + 1));
    let away = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, first);
    let fds: Vec<(OwnedFd, RawFd)> = placed
        .into_iter()
        .map(|(fd, number)| Ok((away(fd)?, number)))
        .collect::<Result<_, Errno>>()?;
    let (gate_end, outcome_end) = (away(gate_end.as_fd())?, away(outcome_end.as_fd())?);
    let moves: Vec<(RawFd, RawFd)> =
        fds.iter().map(|(fd, number)| (fd.as_raw_fd(), *number)).collect();
    let (gate_fd, outcome_fd) = (gate_end.as_raw_fd(), outcome_end.as_raw_fd());
    let numbers = moves.iter().map(|(_, number)| *number);
    let mut kept: Vec<RawFd> = numbers.chain([gate_fd, outcome_fd]).collect();
    kept.sort_unstable();
    let strings = child::Strings::of(plan);
    let life = child::PreparedPlan {
        plan,
        strings: &strings,
        moves: &moves,
        kept: &kept,
        gate: gate_fd,
        outcome: outcome_fd,
    };
    let made = match clone(birth, birth.group) {
        // If the process cannot be created in the group, it is created outside the group.
        Err(error) if birth.group.is_some() && !is_shortage(&error) => clone(birth, None),
        other => other,
    };
    match made? {
        Clone::Child => life.run(),
        Clone::Parent { pid, pidfd, contained } => {
            Ok(Spawned { pid, pidfd, contained, gate, outcome: Outcome(outcome) })
        }
    }
}

enum Clone {
    Child,
    Parent { pid: u32, pidfd: Option<Pidfd>, contained: bool },
}

/// Returns whether the error is a shortage of processes, memory or descriptors, which would also have occurred without a group.
fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE))
}

/// Calls `clone3`. If that is not available or not permitted, calls `fork`, unless a PID or a group is requested.
fn clone(birth: SpawnOptions<'_>, group: Option<BorrowedFd<'_>>) -> io::Result<Clone> {
    let mut pidfd: libc::c_int = -1;
    let tid = birth.pid.unwrap_or(0);
    let mut flags = u64::try_from(libc::CLONE_PIDFD).unwrap_or_default();
    if group.is_some() {
        flags |= 0x2_0000_0000; // CLONE_INTO_CGROUP
    }
    // SAFETY: all zeroes is a valid value of this plain C struct.
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
    // SAFETY: all pointers in the request are valid until the call returns. The child gets a copy of our memory; since we have only one
    // thread, no lock in that copy is held by a thread that does not exist in the child.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const request, length) };
    match u32::try_from(pid) {
        Ok(0) => Ok(Clone::Child),
        Ok(pid) => {
            // SAFETY: the kernel has just returned this descriptor, so it is open and nothing else owns it.
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
    // SAFETY: for the same reasons as in `clone`, the child can use its copy of our memory.
    let pid = unsafe { libc::fork() };
    match u32::try_from(pid) {
        Ok(0) => Ok(Clone::Child),
        Ok(pid) => {
            Ok(Clone::Parent { pid, pidfd: Pidfd::open(pid).ok().flatten(), contained: false })
        }
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Executes `program` in place of this one, with `name` as its `argv[0]`, the same environment and all inheritable descriptors.
/// Returns only on failure, in which case nothing has changed.
pub fn replace(program: &Path, name: &CStr, arguments: &[OsString]) -> io::Error {
    let string = |text: &[u8]| CString::new(text).map_err(io::Error::from);
    let list = |texts: Vec<Vec<u8>>| -> io::Result<Vec<CString>> {
        texts.iter().map(|text| string(text)).collect()
    };
    let own = std::env::vars_os().map(|(name, value)| {
        let parts = [name.into_vec(), b"=".to_vec(), value.into_vec()];
        parts.concat()
    });
    let prepared = string(program.as_os_str().as_bytes()).and_then(|program| {
        let mut argv = vec![name.to_owned()];
        let given = arguments.iter().map(|word| word.as_bytes().to_vec());
        argv.extend(list(given.collect())?);
        Ok((program, argv, list(own.collect())?))
    });
    let (program, argv, env) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return error,
    };
    let (argv, env) = (child::pointers(&argv), child::pointers(&env));
    // SAFETY: all strings are NUL-terminated, both arrays end with a null pointer, and all of them outlive the call.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Returns whether this process is single-threaded.
///
/// # Errors
/// Returns an error if `/proc` cannot be read.
pub fn is_single_threaded() -> io::Result<bool> {
    Ok(std::fs::read_dir("/proc/self/task")?.count() == 1)
}

/// Closes all inherited descriptors except the standard streams. Otherwise, this long-lived process would keep pipes open that other
/// processes wait to see closed. Must be called before anything is opened.
pub fn close_inherited() {
    // SAFETY: the call takes only integers; this program has opened nothing yet, so nothing owns the closed descriptors.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
    }
}

/// Sets whether a descriptor stays open when another program is executed.
///
/// # Errors
/// Returns the error of `fcntl`.
pub fn inherit(fd: BorrowedFd<'_>, stays: bool) -> Result<(), Errno> {
    use rustix::io::{FdFlags, fcntl_setfd};
    let flags = if stays { FdFlags::empty() } else { FdFlags::CLOEXEC };
    fcntl_setfd(fd, flags)
}

/// Takes over a descriptor that the previous program left open under this number.
///
/// # Errors
/// Returns an error if `number` is a standard stream or is not open.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: the call takes only integers, and fails if the descriptor is not open.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and its number is known only from the saved state, which is read once, so nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    inherit(fd.as_fd(), false)?;
    Ok(fd)
}
