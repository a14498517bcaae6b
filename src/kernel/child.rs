//! What a new process does before it executes its program. It runs on a copy of its parent's memory and allocates nothing: it only makes
//! system calls.

#![expect(unsafe_code, reason = "between clone and exec, only system calls are allowed")]

use crate::kernel::inheritance::IO_OF_PROCESS;
use crate::kernel::plan::{Plan, Step};
use std::ffi::{CString, c_char, c_int};
use std::os::fd::RawFd;
use std::ptr;

/// The exit code of a child that could not execute its program.
const NEVER_RAN: c_int = 127;
/// The highest signal number.
const SIGNAL_MAX: c_int = 64;
/// The size of the kernel's signal set in bytes.
const SIGNALS_BYTES: usize = 8;

/// The argument and environment arrays for `execve`.
pub(in crate::kernel) struct Strings {
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
}

impl Strings {
    /// Builds the arrays from a plan. They are valid only while the plan exists.
    pub(in crate::kernel) fn of(plan: &Plan) -> Self {
        Self { argv: pointers(&plan.argv), env: pointers(&plan.env) }
    }
}

/// Returns pointers to these strings, terminated by a null pointer.
pub(in crate::kernel) fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    let all = strings.iter().map(|string| string.as_ptr());
    all.chain([ptr::null()]).collect()
}

/// The plan of a child, with the arrays and descriptors that the child needs to run it.
pub(in crate::kernel) struct PreparedPlan<'a> {
    pub(in crate::kernel) plan: &'a Plan,
    pub(in crate::kernel) strings: &'a Strings,
    /// The descriptors of the program, each with its final number. All current numbers are above all final ones, so that moving one
    /// descriptor does not overwrite another.
    pub(in crate::kernel) moves: &'a [(RawFd, RawFd)],
    /// The final numbers, [`Self::gate`] and [`Self::outcome`], in ascending order. All other descriptors are closed.
    pub(in crate::kernel) kept: &'a [RawFd],
    /// The pipe on which to wait for permission to continue. Like `outcome`, it closes on `exec`.
    pub(in crate::kernel) gate: RawFd,
    /// The pipe on which to report a failure.
    pub(in crate::kernel) outcome: RawFd,
}

impl PreparedPlan<'_> {
    /// Runs the plan: executes the program, or reports the failure and exits.
    pub(in crate::kernel) fn run(&self) -> ! {
        let failed = self.try_run();
        let (step, errno) = failed;
        let [a, b, c, d] = errno.to_le_bytes();
        let words = [step as u8, a, b, c, d];
        // SAFETY: the first call reads five bytes of a live array; the second ends this process without running exit handlers that its
        // parent registered.
        unsafe {
            libc::write(self.outcome, words.as_ptr().cast(), words.len());
            libc::_exit(NEVER_RAN)
        }
    }

    /// Performs all steps, the last of which executes the program. Returns only if a step fails, with that step and the error number.
    fn try_run(&self) -> (Step, c_int) {
        if let Err(errno) = self.place_descriptors() {
            return (Step::Streams, errno);
        }
        self.lead();
        wait_for_leave(self.gate);
        forget_signals();
        if let Some(umask) = self.plan.umask {
            // SAFETY: the call takes only integers.
            unsafe { libc::umask(umask & 0o777) };
        }
        if let Err(errno) = self.set_limits() {
            return (Step::Limits, errno);
        }
        self.take_priorities();
        if let Err(errno) = self.become_user() {
            return (Step::User, errno);
        }
        if !self.plan.dir.is_empty() {
            // SAFETY: the string is NUL-terminated.
            if unsafe { libc::chdir(self.plan.dir.as_ptr()) } != 0 {
                return (Step::Directory, errno());
            }
        }
        (Step::Exec, self.execute())
    }

    /// Moves the streams and pipes to their final numbers and closes all other descriptors, in particular those of the keeper's lock file
    /// and sockets. Returns the error number if a descriptor cannot be moved.
    fn place_descriptors(&self) -> Result<(), c_int> {
        for (fd, place) in self.moves {
            // SAFETY: the call takes only integers.
            if unsafe { libc::dup2(*fd, *place) } < 0 {
                return Err(errno());
            }
        }
        let mut first = 0;
        for kept in self.kept {
            close_all(first, kept - 1);
            first = kept + 1;
        }
        close_all(first, RawFd::MAX);
        Ok(())
    }

    /// Makes this process the leader of its process group or, if it gets a terminal, of a session with that controlling terminal. That the
    /// terminal cannot be had is not an error: the program then has it as a stream. A process of another user has a session of its own,
    /// too: whoever is in our session may continue (SIGCONT) all others in it, and join their process groups.
    fn lead(&self) {
        // SAFETY: the calls take only integers.
        unsafe {
            if self.plan.terminal || self.plan.user.is_some() {
                libc::setsid();
            } else {
                // Here the session is kept, because the kernel suspends (SIGTSTP) only what a process of its session could continue.
                libc::setpgid(0, 0);
            }
            if self.plan.terminal {
                libc::ioctl(0, libc::TIOCSCTTY, 0);
            }
        }
    }

    /// Takes over the caller's priorities and processors, as far as this process is permitted to.
    fn take_priorities(&self) {
        let priorities = &self.plan.priorities;
        // SAFETY: the calls take only integers, and a live array with its length.
        unsafe {
            if let Some(nice) = priorities.nice {
                libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, nice);
            }
            if let Some(priority) = priorities.io_priority {
                libc::syscall(libc::SYS_ioprio_set, IO_OF_PROCESS, 0, priority);
            }
            if !priorities.cpus.is_empty() {
                let (length, cpus) = (priorities.cpus.len(), priorities.cpus.as_ptr());
                libc::syscall(libc::SYS_sched_setaffinity, 0, length, cpus);
            }
        }
    }

    fn set_limits(&self) -> Result<(), c_int> {
        for (which, soft, hard) in &self.plan.limits {
            let limit = libc::rlimit64 { rlim_cur: *soft, rlim_max: *hard };
            let which = c_int::try_from(*which).unwrap_or(c_int::MAX);
            let old = ptr::null_mut::<libc::rlimit64>();
            // SAFETY: the new limit is a live value, and the old one is not requested.
            if unsafe { libc::syscall(libc::SYS_prlimit64, 0, which, &raw const limit, old) } != 0 {
                return Err(errno());
            }
        }
        Ok(())
    }

    fn become_user(&self) -> Result<(), c_int> {
        let Some(user) = &self.plan.user else {
            return Ok(());
        };
        let (count, list) = (user.groups.len(), user.groups.as_ptr());
        let (uid, gid) = (user.user, user.group);
        // SAFETY: `list` has `count` elements; all other arguments are integers. Direct system calls, which affect one thread only, are
        // sufficient because this is the only thread.
        let done = unsafe {
            libc::syscall(libc::SYS_setgroups, count, list) == 0
                && libc::syscall(libc::SYS_setresgid, gid, gid, gid) == 0
                && libc::syscall(libc::SYS_setresuid, uid, uid, uid) == 0
        };
        if done { Ok(()) } else { Err(errno()) }
    }

    /// Tries to execute the program at each of its paths in order. Returns only on failure, with the error number. As in shells, `EACCES`
    /// for one path takes precedence over the errors for other paths that do not exist.
    fn execute(&self) -> c_int {
        let mut refused = None;
        let mut last = libc::ENOENT;
        for program in &self.plan.programs {
            let (argv, env) = (self.strings.argv.as_ptr(), self.strings.env.as_ptr());
            // SAFETY: all strings are NUL-terminated, and both arrays end with a null pointer.
            unsafe { libc::execve(program.as_ptr(), argv, env) };
            last = errno();
            match last {
                libc::EACCES => refused = Some(last),
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
                _ => return last,
            }
        }
        refused.unwrap_or(last)
    }
}

/// Closes the descriptors from `first` to `last`, which are copies that this process does not use.
fn close_all(first: RawFd, last: RawFd) {
    if first > last {
        return;
    }
    // SAFETY: the calls take only integers.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, last, 0) != 0 {
            for fd in first..=last.min(4096) {
                libc::close(fd);
            }
        }
    }
}

/// Waits for one byte on the pipe `gate`. If the pipe is closed instead, the parent has exited or abandoned this process, which therefore
/// kills itself.
fn wait_for_leave(gate: RawFd) {
    let mut byte = 0_u8;
    loop {
        // SAFETY: the call reads at most one byte into a live variable.
        let count = unsafe { libc::read(gate, ptr::from_mut(&mut byte).cast(), 1) };
        if count == 1 {
            return;
        }
        if count == 0 || errno() != libc::EINTR {
            // SAFETY: the calls take only integers, and end this process without running exit handlers that its parent registered. A signal
            // is used so that the status cannot be mistaken for an exit code of the program.
            unsafe {
                libc::kill(libc::getpid(), libc::SIGKILL);
                libc::_exit(NEVER_RAN)
            };
        }
    }
}

/// Resets every signal to its default action and unblocks all of them. Uses direct system calls, because the C library refuses to change
/// two signals that it reserves for itself, and the keeper may have inherited them as ignored.
fn forget_signals() {
    // Longer than any kernel's `struct sigaction`; all zeroes mean the default action and an empty set.
    let zero = [0_u64; 8];
    let (place, none) = (zero.as_ptr(), ptr::null_mut::<u64>());
    // SAFETY: `place` has at least as many zeroes as the kernel reads, and a null pointer tells it not to return the old value. The kernel
    // rejects numbers that are not signals, and signals whose action cannot be changed.
    unsafe {
        for signal in 1..=SIGNAL_MAX {
            libc::syscall(libc::SYS_rt_sigaction, signal, place, none, SIGNALS_BYTES);
        }
        let how = libc::SIG_SETMASK;
        libc::syscall(libc::SYS_rt_sigprocmask, how, place, none, SIGNALS_BYTES);
    }
}

fn errno() -> c_int {
    // SAFETY: the function returns the address of this thread's `errno`, which is always valid.
    unsafe { *libc::__errno_location() }
}
