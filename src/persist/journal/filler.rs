//! Who prepares the next segment. Filling 64 MiB with zeros takes a while, so a coordinator has a thread for it;
//! the simulation does it in place, where a full disk shows at once.

use crate::persist::disk::{Disk, DiskFile};
use crate::persist::error::PersistError;
use crate::persist::journal::segment;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::sync::Arc;
use std::time::Duration;

/// How long a full disk is left alone before it is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// What preparing a segment came to.
pub type Filled = Result<Box<dyn DiskFile>, PersistError>;

/// Prepares one segment at a time, and goes on trying until it has it.
pub trait Filler: Send {
    /// Asks for a segment. Nothing else may be outstanding.
    fn ask(&mut self, ordinal: u64, size: u64);
    /// What has come of it since the last look, if anything. After an error the trying goes on.
    fn poll(&mut self) -> Option<Filled>;
    /// Waits for the next attempt to end.
    fn wait(&mut self) -> Filled;
}

/// Prepares when polled, on the caller's thread. Its segments have no salt: it is for tests, which repeat themselves.
pub struct InlineFiller {
    disk: Arc<dyn Disk>,
    asked: Option<(u64, u64)>,
}

impl InlineFiller {
    /// A filler on this disk.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, asked: None }
    }
}

impl Filler for InlineFiller {
    fn ask(&mut self, ordinal: u64, size: u64) {
        self.asked = Some((ordinal, size));
    }

    fn poll(&mut self) -> Option<Filled> {
        let (ordinal, size) = self.asked?;
        let filled = segment::prepare(self.disk.as_ref(), ordinal, size, 0);
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

/// Prepares on a thread of its own; ends when dropped.
pub struct ThreadFiller {
    asks: Sender<(u64, u64)>,
    filled: Receiver<Filled>,
}

impl ThreadFiller {
    /// Starts the thread. `salt` is what the checksums in its segments begin with, and nobody outside knows.
    pub fn start(disk: Arc<dyn Disk>, salt: u32) -> Result<Self, PersistError> {
        let (asks, asked) = bounded(1);
        let (done, filled) = bounded(1);
        std::thread::Builder::new()
            .name("sexton-filler".to_owned())
            .spawn(move || fill(disk.as_ref(), salt, &asked, &done))
            .map_err(PersistError::io("start a thread to fill", segment::FOLDER))?;
        Ok(Self { asks, filled })
    }
}

impl Filler for ThreadFiller {
    fn ask(&mut self, ordinal: u64, size: u64) {
        self.asks
            .send((ordinal, size))
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

fn fill(disk: &dyn Disk, salt: u32, asked: &Receiver<(u64, u64)>, done: &Sender<Filled>) {
    while let Ok((ordinal, size)) = asked.recv() {
        loop {
            let filled = segment::prepare(disk, ordinal, size, salt);
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
