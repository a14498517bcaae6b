//! The contents of a data directory, and any damage to them. Reads and copies files, but never writes to the directory.

use crate::inspect::actors::{ActorFigures, ItemState};
use crate::isolated::Copies;
use crate::report::Failure;
use serde::Serialize;
use sexton::actors::{Actors, Rules};
use sexton::clock::Timestamp;
use sexton::ids::Seq;
use sexton::node::cut_words;
use sexton::persist::PersistError;
use sexton::persist::disk::RealDisk;
use sexton::persist::journal::{Surveyed, survey};
use sexton::persist::mark::Watermark;
use sexton::persist::snapshots::{FileCheck, SlotDetails, SlotId, SlotStatus, Slots};
use sexton::replay::FollowedItem;
use sexton::spine::recovery::{
    JOURNAL_TOO_SHORT, Past, RecoveryError, Scope, reaches_back, recover,
};
use std::path::{Path, PathBuf};

/// The result of an inspection.
#[derive(Debug, Serialize)]
pub(crate) struct Findings {
    pub(crate) data: PathBuf,
    /// The process id of the coordinator that uses the directory; `None` if none runs, or if that cannot be determined.
    pub(crate) running: Option<u32>,
    pub(crate) snapshots: Vec<SnapshotFindings>,
    pub(crate) journal: JournalFindings,
    pub(crate) start: StartForecast,
    /// The state of each actor; empty if startup would be refused.
    pub(crate) actors: Vec<ActorFigures>,
    /// The requested item; `None` if none was requested, or if startup would be refused.
    #[serde(flatten)]
    pub(crate) item: Option<ItemState>,
    /// All damage to the snapshots and the journal, including damage that does not prevent startup.
    pub(crate) damage: Vec<String>,
}

/// The state of one of the two snapshot slots.
#[derive(Debug, Serialize)]
pub(crate) struct SnapshotFindings {
    pub(crate) slot: String,
    pub(crate) state: SlotState,
    /// The damage, if any.
    pub(crate) wrong: Option<String>,
    /// The contents of the snapshot's seal, if the seal is readable.
    pub(crate) sealed: Option<Sealed>,
    pub(crate) files: Vec<FileCheck>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SlotState {
    Absent,
    Unsealed,
    Sealed,
    Damaged,
    TooNew,
}

/// The contents of a seal, the file that is written when a snapshot is complete.
#[derive(Debug, Serialize)]
pub(crate) struct Sealed {
    /// The last sequence number included in the snapshot.
    pub(crate) upto: Seq,
    pub(crate) at: Timestamp,
    pub(crate) reserved: Seq,
    /// The sequence number of the record that marks the snapshot in the journal. The journal must contain that record.
    pub(crate) mark: Seq,
    pub(crate) states: Vec<Watermark>,
    pub(crate) pages: u64,
    pub(crate) bytes: u64,
    pub(crate) file_bytes: u64,
}

/// The state of the journal.
#[derive(Debug, Serialize)]
pub(crate) struct JournalFindings {
    pub(crate) segments: Vec<Surveyed>,
    /// The other files in the journal's directory.
    pub(crate) others: Vec<String>,
    /// Why the journal cannot be read to its end, or the first damage that could be skipped; `None` if the journal is intact.
    pub(crate) damaged: Option<String>,
}

/// What startup would do with the directory.
#[derive(Debug, Default, Serialize)]
pub(crate) struct StartForecast {
    /// Why startup would be refused; `None` if it would succeed.
    pub(crate) refused: Option<String>,
    /// What to do about the refusal; `None` if there is no advice.
    #[serde(skip)]
    pub(crate) help: Option<String>,
    /// The snapshot that startup would load, and the last sequence number included in it; `None` if it would load none.
    pub(crate) snapshot: Option<(String, Seq)>,
    /// The number of records that startup would replay.
    pub(crate) records: u64,
    /// The sequence number of the last record.
    pub(crate) last: Seq,
    /// The time of the last record.
    pub(crate) at: Timestamp,
    /// The first sequence number that the coordinator would assign.
    pub(crate) next: Seq,
    /// Whether the last run of a coordinator ended with a clean stop; `None` if the directory has no records.
    pub(crate) clean: Option<bool>,
    /// The incomplete end of the journal that startup would cut off, if there is one.
    pub(crate) cut: Option<String>,
    /// The number of jobs that startup would remove, because they are kept in memory only.
    pub(crate) memory_jobs: u64,
}

/// Inspects a directory, and an item if one was requested.
pub(crate) fn look(data: &Path, item: Option<&FollowedItem>) -> Result<Findings, Failure> {
    let disk = RealDisk::new(data);
    let running = disk.holder().unwrap_or_else(|error| {
        tracing::debug!(%error, "failed to determine whether a coordinator runs");
        None
    });
    let copies = Copies::of(data)?;
    let slots = copies.slots();
    let mut snapshots = Vec::new();
    for slot in SlotId::ALL {
        snapshots.push(SnapshotFindings::look(slots, slot)?);
    }
    let surveyed = survey(&disk)?;
    let journal = JournalFindings {
        segments: surveyed.segments,
        others: surveyed.others,
        damaged: surveyed.read.and_then(|read| match read {
            Ok(tail) => tail.passed.first().map(ToString::to_string),
            Err(error) => Some(format!("failed to {error}")),
        }),
    };
    let mut actors = Actors::empty(&Rules::default());
    let recovered = recover(&disk, Some(slots), &mut actors.recovering(), Scope::default());
    if let Ok(past) = &recovered {
        for (slot, found) in SlotId::ALL.into_iter().zip(&mut snapshots) {
            found.judge(past.sealed[slot].is_some(), &disk);
        }
    }
    let mut start = StartForecast::of(recovered);
    if let Err(error) = disk.check() {
        start.refused = Some(format!("failed to {error}"));
    }
    let started = start.refused.is_none();
    let mut findings = Findings {
        data: data.to_owned(),
        running,
        snapshots,
        journal,
        start,
        actors: Vec::new(),
        item: None,
        damage: Vec::new(),
    };
    if started {
        findings.start.memory_jobs = actors.queue.machine().memory_jobs();
        let found = actors.recovering().into_iter();
        findings.actors = found.map(|actor| ActorFigures::of(actor)).collect();
        findings.item = item.and_then(|item| {
            let (locks, queues) = (actors.lock.machine(), actors.queue.machine());
            ItemState::of(item, (locks, queues, actors.dispatch.machine()))
        });
    }
    findings.damage = findings.wrong();
    Ok(findings)
}

impl Findings {
    /// Returns whether everything is undamaged, including parts that startup does not need.
    pub(crate) fn is_whole(&self) -> bool {
        self.start.refused.is_none() && self.damage.is_empty()
    }

    /// Describes all damage to the snapshots and the journal.
    fn wrong(&self) -> Vec<String> {
        let is_wrong = |slot: &&SnapshotFindings| match slot.state {
            SlotState::Absent | SlotState::Sealed => slot.wrong.is_some(),
            // If a coordinator is running, it is writing this snapshot.
            SlotState::Unsealed => self.running.is_none(),
            SlotState::Damaged | SlotState::TooNew => true,
        };
        let slots = self.snapshots.iter().filter(is_wrong).map(|slot| {
            let how = slot.wrong.as_deref().unwrap_or("it is not sealed");
            format!("snapshot {}: {how}", slot.slot)
        });
        let journal = self.journal.damaged.iter();
        let journal = journal.map(|how| format!("the journal: {how}"));
        slots.chain(journal).collect()
    }
}

impl SnapshotFindings {
    fn look(slots: &Slots, slot: SlotId) -> Result<Self, Failure> {
        let name = slot.to_string();
        let SlotDetails { found, seal, files } = match slots.check_details(slot) {
            Ok(look) => look,
            Err(error @ PersistError::VersionTooNew { .. }) => {
                return Ok(Self {
                    slot: name,
                    state: SlotState::TooNew,
                    wrong: Some(error.to_string()),
                    sealed: None,
                    files: Vec::new(),
                });
            }
            Err(error) => return Err(error.into()),
        };
        let (mut state, mut wrong) = match found {
            SlotStatus::Absent => (SlotState::Absent, None),
            SlotStatus::Unsealed => (SlotState::Unsealed, None),
            SlotStatus::Sealed(_) => (SlotState::Sealed, None),
            SlotStatus::Damaged(how) => (SlotState::Damaged, Some(how)),
        };
        if let Some(seal) = seal.as_ref().filter(|_| state == SlotState::Sealed)
            && let Err(error) = slots.read(slot, seal, &mut |_| Ok(()))
        {
            state = SlotState::Damaged;
            wrong = Some(format!("it matches its seal, but cannot be read: {error}"));
        }
        let sealed = seal.map(|seal| Sealed {
            upto: seal.manifest.begun,
            at: seal.manifest.at,
            reserved: seal.manifest.reserved,
            mark: seal.mark,
            pages: seal.pages,
            bytes: seal.bytes,
            file_bytes: seal.file_bytes(),
            states: seal.manifest.states,
        });
        Ok(Self { slot: name, state, wrong, sealed, files })
    }
}

impl SnapshotFindings {
    /// Marks a sealed snapshot as damaged if startup would not rely on it.
    fn judge(&mut self, relied_on: bool, disk: &RealDisk) {
        if self.state == SlotState::Sealed && !relied_on {
            self.state = SlotState::Damaged;
            let upto = self.sealed.as_ref().map(|sealed| sealed.upto);
            let why = match upto.filter(|upto| !reaches_back(disk, *upto)) {
                Some(_) => JOURNAL_TOO_SHORT,
                None => "it belongs to another log",
            };
            self.wrong = Some(format!("it matches its seal, but {why}"));
        }
    }
}

impl StartForecast {
    fn of(recovered: Result<Past, RecoveryError>) -> Self {
        match recovered {
            Ok(past) => Self {
                refused: None,
                help: None,
                snapshot: past.snapshot.map(|(slot, seal)| (slot.to_string(), seal.manifest.begun)),
                records: past.tail.records,
                last: past.tail.last,
                at: past.tail.last_at,
                next: past.tail.next(),
                clean: (past.tail.last > Seq(0)).then_some(past.tail.clean),
                cut: past.tail.cut.as_ref().map(cut_words),
                memory_jobs: 0,
            },
            Err(error) => {
                let failure = Failure::from(error);
                Self {
                    refused: Some(failure.words().to_owned()),
                    help: failure.advice().map(str::to_owned),
                    ..Self::default()
                }
            }
        }
    }
}
