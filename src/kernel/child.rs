//! What a new process does before it executes its program. It has a copy of the memory of who made it, and allocates
//! nothing: only calls of the kernel.

#![expect(
    unsafe_code,
    reason = "between clone and exec there is nothing but calls of the kernel"
)]

use crate::kernel::plan::{Plan, Step};
use std::ffi::{CString, c_char, c_int};
use std::os::fd::RawFd;
use std::ptr;

/// Where the child has the pipe on which it waits for leave.
const GATE: RawFd = 3;
/// Where it has the pipe on which it says what failed.
const OUTCOME: RawFd = 4;
/// The first descriptor that is none of its own.
const REST: RawFd = 5;
/// The end of a child that did not come as far as its program.
const NEVER_RAN: c_int = 127;
/// The largest number of a signal.
const SIGNAL_MAX: c_int = 64;
/// How many bytes the kernel has for a set of them.
const SIGNALS_BYTES: usize = 8;

/// The arrays that `execve` wants.
pub(in crate::kernel) struct Strings {
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
}

impl Strings {
    /// Of a plan, as long as that lives.
    pub(in crate::kernel) fn of(plan: &Plan) -> Self {
        Self {
            argv: pointers(&plan.argv),
            env: pointers(&plan.env),
        }
    }
}

/// An array of strings that ends with a null pointer.
pub(in crate::kernel) fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    let all = strings.iter().map(|string| string.as_ptr());
    all.chain([ptr::null()]).collect()
}

/// What a child is to do.
pub(in crate::kernel) struct Life<'a> {
    pub(in crate::kernel) plan: &'a Plan,
    pub(in crate::kernel) strings: &'a Strings,
    /// Three streams, where leave comes from, where failures go; none of them below 5.
    pub(in crate::kernel) fds: [RawFd; 5],
}

impl Life<'_> {
    /// Does it.
    pub(in crate::kernel) fn live(&self) -> ! {
        let failed = self.try_to_live();
        let (step, errno) = failed;
        let [a, b, c, d] = errno.to_le_bytes();
        let words = [step as u8, a, b, c, d];
        // SAFETY: five bytes that are there; then the end of this process, without anything that others registered for it.
        unsafe {
            libc::write(OUTCOME, words.as_ptr().cast(), words.len());
            libc::_exit(NEVER_RAN)
        }
    }

    /// Goes on to the program; returns only if something failed.
    fn try_to_live(&self) -> (Step, c_int) {
        if let Err(errno) = self.place_descriptors() {
            return (Step::Streams, errno);
        }
        // SAFETY: numbers alone.
        unsafe { libc::setpgid(0, 0) };
        wait_for_leave();
        forget_signals();
        if let Some(umask) = self.plan.umask {
            // SAFETY: numbers alone.
            unsafe { libc::umask(umask & 0o777) };
        }
        if let Err(errno) = self.set_limits() {
            return (Step::Limits, errno);
        }
        if let Err(errno) = self.become_user() {
            return (Step::User, errno);
        }
        if !self.plan.dir.is_empty() {
            // SAFETY: a string that ends with NUL.
            if unsafe { libc::chdir(self.plan.dir.as_ptr()) } != 0 {
                return (Step::Directory, errno());
            }
        }
        (Step::Exec, self.execute())
    }

    /// Streams and pipes in their places, and nothing else: above all no copy of what makes the keeper the keeper.
    fn place_descriptors(&self) -> Result<(), c_int> {
        for (fd, place) in self.fds.into_iter().zip(0..) {
            // SAFETY: numbers alone.
            if unsafe { libc::dup2(fd, place) } < 0 {
                return Err(errno());
            }
        }
        // SAFETY: numbers alone; whatever is closed is a copy, which nobody uses in this process any more.
        unsafe {
            if libc::syscall(libc::SYS_close_range, REST, libc::c_uint::MAX, 0) != 0 {
                for fd in REST..4096 {
                    libc::close(fd);
                }
            }
            for fd in [GATE, OUTCOME] {
                libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
        Ok(())
    }

    fn set_limits(&self) -> Result<(), c_int> {
        for (which, soft, hard) in &self.plan.limits {
            let limit = libc::rlimit64 {
                rlim_cur: *soft,
                rlim_max: *hard,
            };
            let which = c_int::try_from(*which).unwrap_or(c_int::MAX);
            let old = ptr::null_mut::<libc::rlimit64>();
            // SAFETY: the new limit is there, and the old one is not asked for.
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
        // SAFETY: a list with as many numbers as are named, and numbers. By the calls of the kernel, since there is only
        // this thread.
        let done = unsafe {
            libc::syscall(libc::SYS_setgroups, count, list) == 0
                && libc::syscall(libc::SYS_setresgid, gid, gid, gid) == 0
                && libc::syscall(libc::SYS_setresuid, uid, uid, uid) == 0
        };
        if done { Ok(()) } else { Err(errno()) }
    }

    /// Tries one place after the other. What may not be executed is remembered in case nothing better follows, as
    /// shells do.
    fn execute(&self) -> c_int {
        let mut refused = None;
        let mut last = libc::ENOENT;
        for program in &self.plan.programs {
            let (argv, env) = (self.strings.argv.as_ptr(), self.strings.env.as_ptr());
            // SAFETY: strings that end with NUL, in arrays that end with a null pointer.
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

/// Reads one byte. At the end of the pipe, whoever made this process is no more, and it must not run.
fn wait_for_leave() {
    let mut byte = 0_u8;
    loop {
        // SAFETY: one byte, which is there.
        let count = unsafe { libc::read(GATE, ptr::from_mut(&mut byte).cast(), 1) };
        if count == 1 {
            return;
        }
        if count == 0 || errno() != libc::EINTR {
            // SAFETY: ends this process, without anything that others registered for it. By a signal, so that nobody takes
            // its status for an answer of the program.
            unsafe {
                libc::kill(libc::getpid(), libc::SIGKILL);
                libc::_exit(NEVER_RAN)
            };
        }
    }
}

/// Every signal does again what it does by default, and none is blocked. By calls of the kernel, since the C library keeps
/// two signals for itself, and those may be ignored by whoever started us, too.
fn forget_signals() {
    // Longer than `struct sigaction` of any kernel; all zero, it is the default disposition, and an empty set.
    let zero = [0_u64; 8];
    let (place, none) = (zero.as_ptr(), ptr::null_mut::<u64>());
    // SAFETY: as many zeroes as the kernel reads, and null where it is not to write; numbers that are no signals, or may
    // not be changed, are refused.
    unsafe {
        for signal in 1..=SIGNAL_MAX {
            libc::syscall(libc::SYS_rt_sigaction, signal, place, none, SIGNALS_BYTES);
        }
        let how = libc::SIG_SETMASK;
        libc::syscall(libc::SYS_rt_sigprocmask, how, place, none, SIGNALS_BYTES);
    }
}

fn errno() -> c_int {
    // SAFETY: the place of this thread's error number.
    unsafe { *libc::__errno_location() }
}
