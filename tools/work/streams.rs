//! The streams of a command that works on a job: the body of the job is its standard input, and what it writes to standard error
//! goes on to that of this process, which keeps the end of it.

use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _, Seek as _, Write as _};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// How much of the end is kept: as much as is kept of an error with a job.
const TAIL_BYTES_MAX: usize = 1000;

/// How long the rest of standard error may take to come when nothing of the command lives. Only what has left its tree may have
/// it open longer.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a command reads from, and what it says that goes wrong.
pub(super) struct Streams {
    pub(super) body: File,
    pub(super) errors: PipeWriter,
}

/// The end of what a command wrote to standard error.
pub(super) struct Tail {
    kept: Arc<Mutex<Vec<u8>>>,
    is_whole: Receiver<()>,
}

/// Streams for a command that works on this.
pub(super) fn streams(body: &[u8]) -> io::Result<(Streams, Tail)> {
    let mut file = File::from(memfd_create("job", MemfdFlags::CLOEXEC)?);
    file.write_all(body)?;
    file.rewind()?;
    let (reader, writer) = io::pipe()?;
    let kept = Arc::<Mutex<Vec<u8>>>::default();
    let (whole, is_whole) = channel();
    let into = Arc::clone(&kept);
    let reading = move || pass_on(reader, &into, &whole);
    Builder::new().name("errors".to_owned()).spawn(reading)?;
    let streams = Streams {
        body: file,
        errors: writer,
    };
    Ok((streams, Tail { kept, is_whole }))
}

fn pass_on(mut reader: PipeReader, into: &Mutex<Vec<u8>>, whole: &Sender<()>) {
    let mut bytes = [0; 8192];
    loop {
        let read = match reader.read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(read) => bytes.get(..read).unwrap_or_default(),
        };
        // If nobody reads it, it is kept all the same.
        drop(io::stderr().lock().write_all(read));
        let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(read);
        let old = kept.len().saturating_sub(TAIL_BYTES_MAX);
        kept.drain(..old);
    }
    // Nobody may wait for it any more.
    let _ = whole.send(());
}

impl Tail {
    /// The end of it, once nothing of the command lives.
    pub(super) fn text(&self) -> String {
        // What there is by then is what counts.
        let _ = self.is_whole.recv_timeout(PATIENCE);
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).trim().to_owned()
    }
}
