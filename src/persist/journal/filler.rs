//! Who prepares the next segment. Filling 64 MiB with zeros takes a while, so a coordinator has a thread for it;
//! the simulation does it in place, where a full disk shows at once.

use crate::persist::disk::Disk;
use crate::persist::error::PersistError;
use crate::persist::journal::segment::{self, Prepared, Sizes};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a full disk is left alone before it is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// What preparing a segment came to.
pub type Filled = Result<Prepared, PersistError>;

/// Prepares one segment at a time, and goes on trying until it has it.
pub trait Filler: Send {
    /// Asks for a segment. Nothing else may be outstanding.
    fn ask(&mut self, ordinal: u64, sizes: Sizes);
    /// What has come of it since the last look, if anything. After an error the trying goes on.
    fn poll(&mut self) -> Option<Filled>;
    /// Waits for the next attempt to end.
    fn wait(&mut self) -> Filled;
}

/// Prepares when polled, on the caller's thread. Its segments have no salt: it is for tests, which repeat themselves.
pub struct InlineFiller {
    disk: Arc<dyn Disk>,
    asked: Option<(u64, Sizes)>,
}

impl InlineFiller {
    /// A filler on this disk.
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
        self.poll()
            .expect("the writer waits only for a segment it asked for")
    }
}

/// Prepares on a thread of its own.
///
/// Dropping it waits until that thread has ended, and with it what it was asked for: once it is dropped, nothing of it
/// writes to the directory any more, and the directory's lock may be released.
pub struct ThreadFiller {
    asks: Sender<(u64, Sizes)>,
    filled: Receiver<Filled>,
    thread: Option<JoinHandle<()>>,
}

impl ThreadFiller {
    /// Starts the thread. `salt` is what the checksums in its segments begin with, and nobody outside knows.
    pub fn start(disk: Arc<dyn Disk>, salt: u32) -> Result<Self, PersistError> {
        let (asks, asked) = bounded(1);
        let (done, filled) = bounded(1);
        let thread = std::thread::Builder::new()
            .name("sexton-filler".to_owned())
            .spawn(move || fill(disk.as_ref(), salt, &asked, &done))
            .map_err(PersistError::io("start a thread to fill", segment::FOLDER))?;
        Ok(Self {
            asks,
            filled,
            thread: Some(thread),
        })
    }
}

impl Drop for ThreadFiller {
    fn drop(&mut self) {
        // Without its channels the thread ends after what it is at.
        self.asks = bounded(1).0;
        self.filled = bounded(1).1;
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            tracing::error!("the thread that prepares journal segments panicked");
        }
    }
}

impl Filler for ThreadFiller {
    fn ask(&mut self, ordinal: u64, sizes: Sizes) {
        self.asks
            .send((ordinal, sizes))
            .expect("the filler lives as long as its writer");
    }

    fn poll(&mut self) -> Option<Filled> {
        self.filled.try_recv().ok()
    }

    fn wait(&mut self) -> Filled {
        self.filled
            .recv()
            .expect("the filler lives as long as its writer")
    }
}

fn fill(disk: &dyn Disk, salt: u32, asked: &Receiver<(u64, Sizes)>, done: &Sender<Filled>) {
    while let Ok((ordinal, sizes)) = asked.recv() {
        loop {
            let filled = segment::prepare(disk, ordinal, sizes, salt);
            let failed = filled.is_err();
            if done.send(filled).is_err() {
                return;
            }
            if !failed {
                break;
            }
            // Nothing else is asked before this is done: what ends the wait early is the writer's end.
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
        let sizes = Sizes {
            first_bytes: 8 << 20,
            max_bytes: 8 << 20,
        };
        filler.ask(1, sizes);
        drop(filler);
        let left = disk.list(segment::FOLDER).unwrap();
        assert_eq!(
            left,
            [("00000001.seg".to_owned(), 8 << 20)],
            "what was asked for is there, and nothing is half prepared"
        );
    }
}
