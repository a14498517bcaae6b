//! The streams of a command that works on jobs. This process copies the command's output to its own streams and keeps the end of standard
//! error, and also the end of standard output if the result is stored. All output is counted, to enforce the limit, if there is one.

use rustix::fs::{MemfdFlags, memfd_create};
use sexton::actors::queue::OutputTail;
use std::fs::File;
use std::io::{self, PipeReader, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// The number of bytes kept of the end of standard error: as many as the coordinator keeps of a job's error.
const TAIL_BYTES_MAX: usize = 1000;

/// How long to wait for the rest of standard error when no process of the command is left. Only a process that has left the tree
/// can keep the stream open longer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Where commands may write, and how much.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlet {
    /// Whether standard output is reserved for the summary of the run; the output of commands then goes to standard error.
    pub(super) is_quiet: bool,
    /// The maximum number of bytes of output for one job; `None` for no limit.
    pub(super) bytes_max: Option<u64>,
    /// Whether to keep the end of standard output.
    pub(super) is_kept: bool,
}

/// The pipes that a command writes to.
pub(super) struct Written {
    pub(super) output: OwnedFd,
    pub(super) errors: OwnedFd,
}

/// The parts of a command's output that are kept.
pub(super) struct Tail {
    shared: Arc<Shared>,
    /// Disconnected once all copied streams have been read to their end.
    is_whole: Receiver<()>,
}

struct Shared {
    /// The end of standard error.
    errors: Mutex<Vec<u8>>,
    /// The end of standard output, if it is kept.
    output: Mutex<Vec<u8>>,
    /// The number of bytes read from all copied streams.
    count: AtomicU64,
    bytes_max: u64,
}

/// A stream that is copied.
#[derive(Clone, Copy)]
enum Stream {
    Errors,
    /// `true` if it is copied to standard output, `false` for standard error.
    Output(bool),
}

/// Puts a job's body into a memory file for a command's standard input.
pub(super) fn body(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("job", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

impl Outlet {
    /// Opens the streams for a command. Returns the ends that the command writes to, and the tail of what it writes.
    pub(super) fn open(self) -> io::Result<(Written, Tail)> {
        let shared = Arc::new(Shared {
            errors: Mutex::default(),
            output: Mutex::default(),
            count: AtomicU64::new(0),
            bytes_max: self.bytes_max.unwrap_or(u64::MAX),
        });
        let (whole, is_whole) = channel();
        let (reader, errors) = io::pipe()?;
        shared.pass_on(reader, whole.clone(), Stream::Errors)?;
        let output = if self.bytes_max.is_some() || self.is_kept {
            let (reader, output) = io::pipe()?;
            shared.pass_on(reader, whole, Stream::Output(!self.is_quiet))?;
            output.into()
        } else if self.is_quiet {
            io::stderr().as_fd().try_clone_to_owned()?
        } else {
            io::stdout().as_fd().try_clone_to_owned()?
        };
        let errors = errors.into();
        Ok((Written { output, errors }, Tail { shared, is_whole }))
    }
}

impl Shared {
    /// Copies a stream in a thread and keeps its end; drops `whole` when done.
    fn pass_on(
        self: &Arc<Self>,
        reader: PipeReader,
        whole: Sender<()>,
        stream: Stream,
    ) -> io::Result<()> {
        let shared = Arc::clone(self);
        let passing = move || {
            shared.read(reader, stream);
            drop(whole);
        };
        Builder::new().name("output".to_owned()).spawn(passing).map(drop)
    }

    /// Copies until the end of the stream, or until more than `bytes_max` bytes were read from all streams. The stream is then closed, so
    /// its writers get SIGPIPE.
    fn read(&self, mut reader: PipeReader, stream: Stream) {
        let mut bytes = [0; 8192];
        loop {
            let read = match reader.read(&mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(read) => bytes.get(..read).unwrap_or_default(),
            };
            let before = self.count.fetch_add(read.len() as u64, Ordering::Relaxed);
            if before >= self.bytes_max {
                return;
            }
            // The end is kept even if the copy cannot be written.
            drop(match stream {
                Stream::Output(true) => io::stdout().lock().write_all(read),
                Stream::Output(false) | Stream::Errors => io::stderr().lock().write_all(read),
            });
            let (kept, most) = match stream {
                Stream::Errors => (&self.errors, TAIL_BYTES_MAX),
                Stream::Output(_) => (&self.output, OutputTail::BYTES_MAX),
            };
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(read);
            let old = kept.len().saturating_sub(most);
            kept.drain(..old);
        }
    }
}

impl Tail {
    /// Returns the end of standard error. Should be called when no process of the command is left; waits for at most [`TIMEOUT`] until
    /// everything has been read.
    pub(super) fn text(&self) -> String {
        match self.is_whole.recv_timeout(TIMEOUT) {
            // After a timeout, use what has been received by then.
            Ok(()) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                let kept = self.shared.errors.lock();
                let kept = kept.unwrap_or_else(PoisonError::into_inner);
                String::from_utf8_lossy(&kept).trim().to_owned()
            }
        }
    }

    /// Returns the end of standard output so far, if it is kept.
    pub(super) fn output(&self) -> Vec<u8> {
        let kept = self.shared.output.lock();
        kept.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Clears what is kept, for another job.
    pub(super) fn clear(&self) {
        for kept in [&self.shared.errors, &self.shared.output] {
            kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        self.shared.count.store(0, Ordering::Relaxed);
    }

    /// Returns whether the command wrote more than [`Outlet::bytes_max`].
    pub(super) fn is_too_long(&self) -> bool {
        self.shared.count.load(Ordering::Relaxed) > self.shared.bytes_max
    }
}
