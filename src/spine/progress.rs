//! The progress of a recovery, for observers. Nothing here slows the recovery down or affects its result.

use crate::ids::{ActorId, Digest, Seq};
use crate::persist::mark::Watermark;
use crate::persist::snapshots::Page;
use crate::spine::machine::{Gauge, Stamp, Start};
use crate::spine::parallel::Coming;
use crate::spine::recovery::{ReadEntry, Recovering, RecoveryError};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The progress of a recovery. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    pages: AtomicU64,
    records: AtomicU64,
    upto: AtomicU64,
}

/// The current step of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Comparing snapshots with their seals, and reading one.
    Reading,
    /// Building state from the pages of a snapshot.
    Building {
        /// The number of pages so far.
        pages: u64,
    },
    /// Replaying the journal after the snapshot.
    Replaying {
        /// The number of entries so far.
        records: u64,
        /// The newest entry replayed so far.
        upto: Seq,
    },
}

impl Progress {
    /// Returns the current step.
    pub fn get(&self) -> Step {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        match (of(&self.0.pages), of(&self.0.records)) {
            (0, 0) => Step::Reading,
            (pages, 0) => Step::Building { pages },
            (_, records) => Step::Replaying { records, upto: Seq(of(&self.0.upto)) },
        }
    }
}

/// A replica that reports its progress.
pub struct Watched<'r> {
    replica: &'r mut dyn Recovering,
    progress: Progress,
}

impl<'r> Watched<'r> {
    /// Creates a replica that passes everything on to `replica`, and counts pages and entries in `progress`.
    pub fn new(replica: &'r mut dyn Recovering, progress: Progress) -> Self {
        Self { replica, progress }
    }
}

impl Recovering for Watched<'_> {
    fn actor(&self) -> ActorId {
        self.replica.actor()
    }

    fn reader(&self) -> ReadEntry {
        self.replica.reader()
    }

    fn replay(&mut self, stamp: Stamp, entry: Box<dyn Any>) -> Result<(), RecoveryError> {
        let counts = &self.progress.0;
        counts.upto.store(stamp.seq.0, Ordering::Relaxed);
        counts.records.fetch_add(1, Ordering::Relaxed);
        self.replica.replay(stamp, entry)
    }

    fn start(&mut self, start: Start) {
        self.replica.start(start);
    }

    fn digest(&self) -> Digest {
        self.replica.digest()
    }

    fn has_digest(&self, recorded: Digest) -> bool {
        self.replica.has_digest(recorded)
    }

    fn last(&self) -> Seq {
        self.replica.last()
    }

    fn name(&self) -> &'static str {
        self.replica.name()
    }

    fn gauges(&self) -> Vec<Gauge> {
        self.replica.gauges()
    }

    fn load(
        &self,
        pages: Coming<'_, Page>,
        state: Option<&Watermark>,
    ) -> Result<Box<dyn Any>, String> {
        let counts = &self.progress.0;
        let mut counted = pages.inspect(|_| {
            counts.pages.fetch_add(1, Ordering::Relaxed);
        });
        self.replica.load(&mut counted, state)
    }

    fn replace(&mut self, loaded: Box<dyn Any>) {
        self.replica.replace(loaded);
    }
}
