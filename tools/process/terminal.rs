//! A pseudo-terminal between the caller's terminal and a command, which thereby has a terminal of its own as from a shell: `/dev/tty`, job
//! control and password prompts work, and the command does not take input while this process is in the background.
//!
//! While a command runs, the caller's terminal is in raw mode, so that all keys reach the command's terminal, which turns them into signals.
//! The caller's terminal is restored when this process is suspended, and when it ends in any way but SIGKILL.

use crate::process::inheritance;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgrp, getpid, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcgetpgrp, tcgetsid,
    tcgetwinsize, tcsetattr, tcsetwinsize,
};
use std::io::{self, PipeReader, PipeWriter, Write as _, stdin, stdout};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// How many bytes are passed on at a time.
const BYTES: usize = 4096;

/// After the command has ended, how long its terminal must be silent before the rest of its output counts as passed on, if a process that it
/// left behind still has the terminal open. In nanoseconds.
const SILENCE_NS: i64 = 50_000_000;

/// How many bytes of output are passed on at most after the command has ended: more than a terminal holds. A process that it left behind may
/// write for ever.
const LEFT_MAX: usize = 256 << 10;

/// How often a process in the background checks whether it is in the foreground by now: a shell's `fg` does not notify a job that runs. In
/// nanoseconds.
const CHECK_NS: i64 = 200_000_000;

/// The command's end of a pseudo-terminal, and ours.
pub(super) struct Terminal {
    ours: OwnedFd,
    theirs: OwnedFd,
}

impl Terminal {
    /// Opens a pseudo-terminal with the size of the caller's terminal, and in the foreground with its modes. Returns `None` unless both standard input and standard output
    /// are terminals: if another program has one of them, as in a pipeline, that program may use the terminal too.
    pub(super) fn open() -> io::Result<Option<Self>> {
        if !isatty(stdin()) || !isatty(stdout()) {
            return Ok(None);
        }
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = rustix::fs::open(&ptsname(&ours, Vec::new())?, flags, Mode::empty())?;
        // In the background, the modes are those with which the shell reads its own input.
        if is_in_front() {
            tcsetattr(&theirs, OptionalActions::Now, &tcgetattr(stdin())?)?;
        }
        tcsetwinsize(&ours, tcgetwinsize(stdin())?)?;
        Ok(Some(Self { ours, theirs }))
    }

    /// Returns the command's end of the terminal.
    pub(super) fn theirs(&self) -> BorrowedFd<'_> {
        self.theirs.as_fd()
    }

    /// Starts to pass on keys and output.
    pub(super) fn relay(self) -> io::Result<Relay> {
        let (wakes, wake) = io::pipe()?;
        let shared = Arc::new(Shared {
            ours: self.ours,
            front: Mutex::new(None),
            ends: AtomicBool::new(false),
        });
        shared.enter();
        let relayed = Arc::clone(&shared);
        let theirs = self.theirs;
        let relaying = move || relayed.pass_on(&wakes, theirs);
        let thread = Builder::new().name("terminal".to_owned()).spawn(relaying)?;
        Ok(Relay { shared, wake, thread: Some(thread) })
    }
}

/// A pseudo-terminal in use. When dropped, passes on the rest of the output, and restores the caller's terminal.
pub(super) struct Relay {
    shared: Arc<Shared>,
    wake: PipeWriter,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    ours: OwnedFd,
    /// While this process is in the foreground and passes on keys: the modes that the caller's terminal had before.
    front: Mutex<Option<Termios>>,
    /// Whether the command has ended.
    ends: AtomicBool,
}

impl Relay {
    /// Gives the terminal back to the caller, before this process is suspended.
    pub(super) fn leave(&self) {
        self.shared.leave();
    }

    /// Takes the terminal again if this process is in the foreground, after it was suspended or moved there.
    pub(super) fn enter(&mut self) {
        self.shared.enter();
        self.resize();
        self.wake();
    }

    /// Gives the command's terminal the size of the caller's, of which the kernel informs the command.
    pub(super) fn resize(&self) {
        // Without the size, the command only draws for the old one.
        if let Ok(size) = tcgetwinsize(stdin()) {
            let _ = tcsetwinsize(&self.shared.ours, size);
        }
    }

    fn wake(&mut self) {
        // A full pipe wakes the thread as well.
        drop(self.wake.write_all(b"!"));
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
        self.shared.leave();
    }
}

impl Shared {
    fn front(&self) -> MutexGuard<'_, Option<Termios>> {
        self.front.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the caller's terminal into raw mode if this process is in the foreground.
    fn enter(&self) {
        let mut front = self.front();
        let modes = front.take();
        if !is_in_front() {
            return;
        }
        // If the modes cannot be read, the terminal is gone.
        let Some(modes) = modes.or_else(|| tcgetattr(stdin()).ok()) else {
            return;
        };
        let mut raw = modes.clone();
        raw.make_raw();
        // In other modes, some keys do not reach the command, but nothing else changes.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &raw);
        *front = Some(modes);
    }

    fn leave(&self) {
        if let Some(modes) = self.front().take() {
            let _ = tcsetattr(stdin(), OptionalActions::Now, &modes);
        }
    }

    fn is_in_front(&self) -> bool {
        self.front().is_some()
    }

    /// Passes on keys and output until the command has ended and its output has been passed on. The command's end of the terminal stays open
    /// here until then, so that keys still make signals if the command has closed its streams.
    fn pass_on(&self, wakes: &PipeReader, theirs: OwnedFd) {
        let input = stdin();
        let mut theirs = Some(theirs);
        let mut has_input = true;
        let mut keys = Vec::new();
        let mut left = LEFT_MAX;
        while left > 0 {
            let ends = self.ends.load(Ordering::Acquire);
            let reads = self.is_in_front();
            if ends {
                drop(theirs.take());
            }
            let mut wanted = PollFlags::IN;
            wanted.set(PollFlags::OUT, !keys.is_empty());
            let mut polled =
                vec![PollFd::new(&self.ours, wanted), PollFd::new(wakes, PollFlags::IN)];
            // Further keys wait until the command's terminal has room for those that were read.
            if reads && has_input && !ends && keys.is_empty() {
                polled.push(PollFd::new(&input, PollFlags::IN));
            }
            let patience = match (ends, reads) {
                (true, _) => Some(nanoseconds(SILENCE_NS)),
                (false, true) => None,
                (false, false) => Some(nanoseconds(CHECK_NS)),
            };
            match poll(&mut polled, patience.as_ref()) {
                Ok(0) if ends => return,
                Ok(0) => self.enter(),
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            let ready: Vec<bool> = polled.iter().map(|it| !it.revents().is_empty()).collect();
            let is_ready = |place: usize| ready.get(place).copied().unwrap_or(false);
            if is_ready(1) {
                let _woken = rustix::io::read(wakes, &mut [0; 64]);
            }
            if is_ready(0) {
                keys = self.type_keys(&keys);
                let Some(count) = self.pass_output() else {
                    return;
                };
                left -= if ends { left.min(count) } else { 0 };
            }
            if is_ready(2) && self.is_in_front() {
                match self.take_keys(input.as_fd()) {
                    Some(taken) => keys = self.type_keys(&taken),
                    None => has_input = false,
                }
            }
        }
    }

    /// Passes on output of the command. Returns its size, or `None` if no process has the terminal open any more.
    fn pass_output(&self) -> Option<usize> {
        let mut bytes = [0; BYTES];
        match rustix::io::read(&self.ours, &mut bytes) {
            Ok(0) => None,
            Ok(count) => {
                let mut out = stdout().lock();
                let written = out.write_all(bytes.get(..count).unwrap_or_default());
                // If the caller's terminal is gone, there is nobody to see the output; the command is hung up like this process.
                drop(written.and_then(|()| out.flush()));
                Some(count)
            }
            Err(error) => matches!(error, Errno::INTR | Errno::AGAIN).then_some(0),
        }
    }

    /// Returns the keys that were pressed, without those that suspend the command and this process. Returns `None` if the caller's terminal is
    /// gone.
    fn take_keys(&self, input: BorrowedFd<'_>) -> Option<Vec<u8>> {
        let mut bytes = [0; BYTES];
        let count = match rustix::io::read(input, &mut bytes) {
            Ok(0) => return None,
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN) => 0,
            Err(_) => return None,
        };
        let mut keys = bytes.get(..count).unwrap_or_default().to_vec();
        if let Some(suspends) = self.suspending_key()
            && keys.contains(&suspends)
        {
            keys.retain(|key| *key != suspends);
            // The handler of this signal suspends the command and this process.
            let _ = kill_process(getpid(), Signal::TSTP);
        }
        Some(keys)
    }

    /// Types keys on the command's terminal. Returns those for which it has no room.
    fn type_keys(&self, mut keys: &[u8]) -> Vec<u8> {
        while !keys.is_empty() {
            match rustix::io::write(&self.ours, keys) {
                Ok(0) | Err(Errno::AGAIN) => return keys.to_vec(),
                Ok(count) => keys = keys.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                // The command's terminal is closed.
                Err(_) => break,
            }
        }
        Vec::new()
    }

    /// Returns the key with which the command itself is to be suspended. The kernel does not do that for us: it ignores the key for a process
    /// whose parent is in another session, since nobody there could continue it. If the command uses the key otherwise, or has a job of its
    /// own in the foreground, as a shell does, the key is for the command.
    fn suspending_key(&self) -> Option<u8> {
        let modes = tcgetattr(&self.ours).ok()?;
        let leader = tcgetsid(&self.ours).ok()?;
        let is_for_us = modes.local_modes.contains(LocalModes::ISIG)
            && tcgetpgrp(&self.ours).ok()? == leader
            && !ignores_suspension(leader);
        let key = modes.special_codes[SpecialCodeIndex::VSUSP];
        Some(key).filter(|key| is_for_us && *key != 0)
    }
}

/// Returns whether the caller's terminal is gone.
pub(super) fn is_hung_up() -> bool {
    tcgetattr(stdin()).is_err()
}

/// Returns whether this process is in the foreground of its terminal.
fn is_in_front() -> bool {
    tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
}

/// Returns whether a process ignores SIGTSTP, as interactive shells do.
fn ignores_suspension(process: Pid) -> bool {
    inheritance::ignores(process, Signal::TSTP.as_raw())
}

const fn nanoseconds(count: i64) -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: count }
}
