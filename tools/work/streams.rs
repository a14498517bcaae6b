//! The streams of a command that works on jobs: what it writes goes on to the streams of this process, which keeps the end of
//! its standard error, and of its standard output if that is to be known, and counts all of it if there is to be a limit.

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

/// How much of the end is kept: as much as is kept of an error with a job.
const TAIL_BYTES_MAX: usize = 1000;

/// How long the rest of standard error may take to come when nothing of the command lives. Only what has left its tree may have
/// it open longer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where commands write, and how much of it there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlet {
    /// Whether standard output is for something else than what commands write.
    pub(super) is_quiet: bool,
    /// The most bytes of one job.
    pub(super) bytes_max: Option<u64>,
    /// Whether the end of standard output is kept.
    pub(super) is_kept: bool,
}

/// What a command writes to.
pub(super) struct Written {
    pub(super) output: OwnedFd,
    pub(super) errors: OwnedFd,
}

/// What a command wrote.
pub(super) struct Tail {
    shared: Arc<Shared>,
    is_whole: Receiver<()>,
}

struct Shared {
    /// The end of standard error.
    errors: Mutex<Vec<u8>>,
    /// The end of standard output, if that is kept.
    output: Mutex<Vec<u8>>,
    /// Bytes of both streams.
    count: AtomicU64,
    bytes_max: u64,
}

/// One of the streams that are read here.
#[derive(Clone, Copy)]
enum Stream {
    Errors,
    /// Whether it goes to standard output; else to standard error.
    Output(bool),
}

/// A job's body, as the file that a command reads it from.
pub(super) fn body(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("job", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

impl Outlet {
    /// Streams for a command.
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
    /// Passes a stream on, and keeps its end; until then it has `whole`.
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
        Builder::new()
            .name("output".to_owned())
            .spawn(passing)
            .map(drop)
    }

    /// Until the end of the stream, or until there was too much: the stream is closed then, and who writes on to it gets SIGPIPE.
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
            // If nobody reads it, it is kept all the same.
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
    /// The end of standard error, once nothing of the command lives.
    pub(super) fn text(&self) -> String {
        match self.is_whole.recv_timeout(PATIENCE) {
            // What there is by then is what counts.
            Ok(()) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                let kept = self.shared.errors.lock();
                let kept = kept.unwrap_or_else(PoisonError::into_inner);
                String::from_utf8_lossy(&kept).trim().to_owned()
            }
        }
    }

    /// The end of standard output so far, if that is kept.
    pub(super) fn output(&self) -> Vec<u8> {
        let kept = self.shared.output.lock();
        kept.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins anew, for another job.
    pub(super) fn clear(&self) {
        for kept in [&self.shared.errors, &self.shared.output] {
            kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        self.shared.count.store(0, Ordering::Relaxed);
    }

    /// Whether more was written than may be.
    pub(super) fn is_too_long(&self) -> bool {
        self.shared.count.load(Ordering::Relaxed) > self.shared.bytes_max
    }
}
