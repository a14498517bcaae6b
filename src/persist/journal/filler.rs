//! Prepares the next segment. Filling 64 MiB with zeros takes a while, so a coordinator does it on a separate thread. The simulation does
//! it on the writer's thread, and so notices a full disk immediately.

use crate::persist::disk::Disk;
use crate::persist::error::PersistError;
use crate::persist::journal::segment::{self, Prepared, Sizes};
use crate::thread::{self, JoinHandle};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::sync::Arc;
use std::time::Duration;

/// The pause between a failed attempt and the next one. Most attempts that fail do so because the disk is full.
const RETRY: Duration = Duration::from_millis(500);

/// The result of preparing a segment.
pub type Filled = Result<Prepared, PersistError>;

/// Prepares one segment at a time, and keeps trying until it succeeds.
pub trait Filler: Send {
    /// Requests a segment. No other request may be pending.
    fn ask(&mut self, ordinal: u64, sizes: Sizes);
    /// Returns the result of an attempt that has ended since the last call, or `None` if there is none. More attempts follow after an
    /// error.
    fn poll(&mut self) -> Option<Filled>;
    /// Waits for the next attempt to end, and returns its result.
    fn wait(&mut self) -> Filled;
}

/// Prepares segments when polled, on the caller's thread. The salt of these segments is always zero, because this filler is for tests,
/// which must be repeatable.
pub struct InlineFiller {
    disk: Arc<dyn Disk>,
    asked: Option<(u64, Sizes)>,
}

impl InlineFiller {
    /// Creates a filler for this disk.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, asked: None }
    }
}

impl Filler for InlineFiller {
    fn ask(&mut self, ordinal: u64, sizes: Sizes) {
        self.asked = Some((ordinal, sizes));
    }

    fn poll(&mut self) -> Option<Filled> {
        let (ordinal, sizes) = self.asked?;
        let filled = segment::prepare(self.disk.as_ref(), ordinal, sizes, 0);
        if filled.is_ok() {
            self.asked = None;
        }
        Some(filled)
    }

    fn wait(&mut self) -> Filled {
        self.poll().expect("the writer should wait only for a segment that it requested")
    }
}

/// Prepares segments on its own thread.
///
/// Dropping it waits until the thread has finished its current segment and exited. After that, no thread writes to the directory, and the
/// directory's lock may be released.
pub struct ThreadFiller {
    asks: Sender<(u64, Sizes)>,
    filled: Receiver<Filled>,
    thread: Option<JoinHandle<()>>,
}

impl ThreadFiller {
    /// Starts the thread. `salt` is the secret that seeds the checksums in its segments.
    pub fn start(disk: Arc<dyn Disk>, salt: u32) -> Result<Self, PersistError> {
        let (asks, asked) = bounded(1);
        let (done, filled) = bounded(1);
        let thread = thread::start(
            "sexton-filler",
            move || fill(disk.as_ref(), salt, &asked, &done),
            // `fill` catches the panics of the disk. Any other is noticed by the writer, which finds the channels closed.
            drop,
        )
        .map_err(PersistError::io("start a thread to prepare segments in", segment::FOLDER))?;
        Ok(Self { asks, filled, thread: Some(thread) })
    }
}

impl Drop for ThreadFiller {
    fn drop(&mut self) {
        // Closing its channels makes the thread exit after the segment that it is working on.
        self.asks = bounded(1).0;
        self.filled = bounded(1).1;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that prepares journal segments panicked");
        }
    }
}

impl Filler for ThreadFiller {
    fn ask(&mut self, ordinal: u64, sizes: Sizes) {
        self.asks
            .send((ordinal, sizes))
            .expect("the thread should run until the filler is dropped");
    }

    fn poll(&mut self) -> Option<Filled> {
        self.filled.try_recv().ok()
    }

    fn wait(&mut self) -> Filled {
        self.filled.recv().expect("the thread should run until the filler is dropped")
    }
}

fn fill(disk: &dyn Disk, salt: u32, asked: &Receiver<(u64, Sizes)>, done: &Sender<Filled>) {
    while let Ok((ordinal, sizes)) = asked.recv() {
        loop {
            let filled = thread::guard(|| segment::prepare(disk, ordinal, sizes, salt));
            let filled = filled.unwrap_or_else(|cause| {
                Err(PersistError::Panicked {
                    action: "prepare a segment in",
                    file: segment::FOLDER,
                    cause,
                })
            });
            let failed = filled.is_err();
            if done.send(filled).is_err() {
                return;
            }
            if !failed {
                break;
            }
            // No other request arrives before this one is done, so the wait is cut short only if the filler is dropped.
            match asked.recv_timeout(RETRY) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(_) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Filler as _, Sizes, ThreadFiller};
    use crate::persist::disk::{Disk as _, RealDisk};
    use crate::persist::journal::segment;
    use std::sync::Arc;

    #[test]
    fn nothing_is_written_after_its_drop() {
        let files = tempfile::tempdir().unwrap();
        let disk = Arc::new(RealDisk::new(files.path()));
        disk.create_folder(segment::FOLDER).unwrap();
        let mut filler = ThreadFiller::start(Arc::clone(&disk) as Arc<_>, 7).unwrap();
        let sizes = Sizes { first_bytes: 8 << 20, max_bytes: 8 << 20 };
        filler.ask(1, sizes);
        drop(filler);
        let left = disk.list(segment::FOLDER).unwrap();
        assert_eq!(
            left,
            [("00000001.seg".to_owned(), 8 << 20)],
            "the requested segment exists, and none is half prepared"
        );
    }
}
