//! Signals delivered through a descriptor that can be polled, for single-threaded programs, and attributes of this process.

#![expect(unsafe_code, reason = "there are no safe calls for signalfd and signal dispositions")]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `SIGCHLD`: a child has ended.
pub const CHILD: u32 = 17;
/// `SIGTERM`: a request to terminate.
pub const TERMINATE: u32 = 15;
/// `SIGINT`: an interrupt from the terminal.
pub const INTERRUPT: u32 = 2;
/// `SIGHUP`: the terminal has gone away.
pub const HANG_UP: u32 = 1;
/// `SIGPIPE`: a pipe has no reader.
pub const PIPE: u32 = 13;

const _: () =
    assert!(CHILD == libc::SIGCHLD.unsigned_abs() && PIPE == libc::SIGPIPE.unsigned_abs());

/// A signalfd: a descriptor from which signals are read.
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks these signals, so that they are no longer delivered but can be read with [`Self::next`].
    ///
    /// # Errors
    /// Returns the error of `signalfd`.
    pub fn of(signals: &[u32]) -> io::Result<Self> {
        // SAFETY: the set is initialized before it is used; all other arguments are integers, or null where no result is requested.
        let fd = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, number(*signal));
            }
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor, so it is open and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Returns the next pending signal, if any.
    ///
    /// # Errors
    /// Returns the error of `read`.
    pub fn next(&self) -> io::Result<Option<u32>> {
        const LENGTH: usize = size_of::<libc::signalfd_siginfo>();
        let mut bytes = [0; LENGTH];
        match rustix::io::read(&self.0, &mut bytes) {
            Ok(_) => {
                let number = bytes.first_chunk::<4>();
                Ok(number.map(|bytes| u32::from_ne_bytes(*bytes)))
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Ignores this signal from now on. Programs executed later inherit that.
pub fn ignore(signal: u32) {
    // SAFETY: the call takes only integers, and `SIG_IGN` does not install a handler.
    unsafe { libc::signal(number(signal), libc::SIG_IGN) };
}

/// The handlers of the standard library for `SIGSEGV` and `SIGBUS`.
static HANDLERS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Makes `SIGSEGV` and `SIGBUS` end this process when another process sends them. The standard library's handlers, which report an
/// overflow of the stack, take such a signal for a fault that will occur again, and so swallow the first one. They still get every fault.
pub fn obey_sent_faults() {
    for (signal, handler) in [libc::SIGSEGV, libc::SIGBUS].into_iter().zip(&HANDLERS) {
        // SAFETY: the actions are initialized before they are used, and `on_fault` is a handler of the kind that the flags announce.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let read = libc::sigaction(signal, ptr::null(), &raw mut action);
            let is_handled = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
            if read == 0 && is_handled && action.sa_flags & libc::SA_SIGINFO != 0 {
                handler.store(action.sa_sigaction, Ordering::Relaxed);
                action.sa_sigaction = on_fault as *const () as usize;
                libc::sigaction(signal, &raw const action, ptr::null_mut());
            }
        }
    }
}

/// Ends the process if the signal was sent by a process, and otherwise calls the standard library's handler.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes valid arguments, the calls are safe in a handler, and the address is that of the handler that was replaced.
    unsafe {
        if (*info).si_code <= 0 {
            // The signal is blocked here. It is delivered again, and ends the process, when the handler returns.
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
            return;
        }
        let [of_segments, of_buses] = &HANDLERS;
        let handler = if signal == libc::SIGSEGV { of_segments } else { of_buses };
        let handler = handler.load(Ordering::Relaxed);
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
            std::mem::transmute(handler);
        handler(signal, info, context);
    }
}

/// Restores the system's setting for transparent huge pages. If our parent disabled them for itself, we have inherited that, and our
/// children would inherit it too.
pub fn allow_huge_pages() {
    // SAFETY: the call takes only integers.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 0, 0, 0, 0) };
}

/// Sets the name under which `ps` and `top` list this process: at most 15 bytes are kept. Without this, a process that executed
/// `/proc/self/exe` would be named `exe`.
pub fn name_process(name: &std::ffi::CStr) {
    // SAFETY: the kernel reads at most 16 bytes, up to the terminating zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

/// Keeps other processes of the same user from reading the memory, the environment and the descriptors of this process, which contain the
/// secrets of all commands, and from tracing it. It then leaves no core dump. A program that it executes, or that a child of it executes,
/// is not affected.
pub fn hide() {
    // SAFETY: the call takes only integers.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
}

/// Makes this process the parent of orphaned descendants.
///
/// # Errors
/// Returns the error of `prctl`.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: the call takes only integers.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn number(signal: u32) -> c_int {
    c_int::try_from(signal).unwrap_or(c_int::MAX)
}
