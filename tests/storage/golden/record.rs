//! The record next to a golden directory: the directory's content when it was made.

use serde_json::{Value, json};
use sexton::actors::{self, Actors, Rules};
use sexton::ids::Digest;
use sexton::persist::disk::{Disk, RealDisk};
use sexton::persist::format::FORMAT_VERSION;
use sexton::persist::snapshots::{CopiedStores, SledStores, SlotId, SlotStatus, Slots};
use sexton::spine::recovery::{Recovering, Scope, recover};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Snapshots by slot: the entry up to which they have the state, the number of their pages, and the digest of each actor.
type Snapshots = BTreeMap<String, (u64, u64, BTreeMap<String, String>)>;

/// The content of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The number of the format in which it was written.
    pub(crate) format: u32,
    /// Whether that format can no longer change.
    pub(crate) frozen: bool,
    /// The version of the program that wrote it, which its journal contains.
    pub(crate) program: String,
    /// The last sequence number.
    pub(crate) last: u64,
    /// Snapshots by slot: the entry up to which they have the state, the number of their pages, and the digest of each
    /// actor.
    pub(crate) snapshots: Snapshots,
    /// The actors that have any state, by name. An actor may be missing because it was added after the directory was
    /// made.
    pub(crate) actors: BTreeMap<String, ActorRecord>,
}

/// The final state of an actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ActorRecord {
    pub(crate) digest: String,
    pub(crate) entries: u64,
}

impl ActorRecord {
    fn of(actor: &dyn Recovering) -> Self {
        // Queues and bytes are not entries: a queue exists only while it has jobs, and the bytes are those of the jobs'
        // bodies.
        let gauges = actor.gauges().into_iter();
        let items = gauges.filter(|gauge| !["queues", "bytes"].contains(&gauge.name));
        Self { digest: actor.digest().to_string(), entries: items.map(|gauge| gauge.value).sum() }
    }
}

/// Reads each sealed snapshot.
fn snapshots(slots: &Slots) -> Result<Snapshots, String> {
    let mut snapshots = Snapshots::new();
    for slot in SlotId::ALL {
        let seal = match slots.look(slot).map_err(|error| error.to_string())? {
            SlotStatus::Absent => continue,
            SlotStatus::Sealed(seal) => seal,
            found @ (SlotStatus::Unsealed | SlotStatus::Damaged(_)) => {
                return Err(format!("snapshot {slot}: {found:?}"));
            }
        };
        slots.read(slot, &seal, &mut |_| Ok(())).map_err(|error| error.to_string())?;
        let states = seal.manifest.states.iter();
        let digests = states.map(|state| {
            let name = actors::name_of(state.actor).unwrap_or("nobody");
            (name.to_owned(), state.digest.to_string())
        });
        snapshots.insert(slot.to_string(), (seal.manifest.begun.0, seal.pages, digests.collect()));
    }
    Ok(snapshots)
}

impl Record {
    /// Reads a directory as startup does, and also each of its snapshots. Changes nothing in it.
    pub(crate) fn of(data: &Path) -> Result<Self, String> {
        let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(data));
        let copies = CopiedStores::new(
            Arc::clone(&disk),
            Arc::new(RealDisk::new(scratch.path())),
            Arc::new(SledStores::new(scratch.path())),
        );
        let slots = Slots::new(Arc::clone(&disk), Arc::new(copies));
        let snapshots = snapshots(&slots)?;
        let mut replicas = Actors::empty(&Rules::default());
        let past = recover(
            disk.as_ref(),
            Some(&slots),
            &mut replicas.recovering(),
            Scope { partial: true, ..Scope::default() },
        )
        .map_err(|error| error.to_string())?;
        if !past.mended.is_empty() || past.tail.cut.is_some() {
            return Err(format!("it is not whole: {past:?}"));
        }
        let actors = replicas.recovering().into_iter();
        let actors = actors.filter(|actor| actor.digest() != Digest::default());
        let actors = actors.map(|actor| (actor.name().to_owned(), ActorRecord::of(actor)));
        Ok(Self {
            format: FORMAT_VERSION,
            frozen: false,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            last: past.tail.last.0,
            snapshots,
            actors: actors.collect(),
        })
    }

    /// Reads the record next to a golden directory.
    pub(crate) fn load(golden: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(golden.join("record.json"))
            .map_err(|error| error.to_string())?;
        let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let read = || {
            let mut record = Self {
                format: u32::try_from(value.get("format")?.as_u64()?).ok()?,
                frozen: value.get("frozen")?.as_bool()?,
                program: value.get("program")?.as_str()?.to_owned(),
                last: value.get("last")?.as_u64()?,
                snapshots: BTreeMap::new(),
                actors: BTreeMap::new(),
            };
            for (slot, about) in value.get("snapshots")?.as_object()? {
                let upto = about.get("upto")?.as_u64()?;
                let pages = about.get("pages")?.as_u64()?;
                let mut digests = BTreeMap::new();
                for (name, digest) in about.get("digests")?.as_object()? {
                    digests.insert(name.clone(), digest.as_str()?.to_owned());
                }
                let about = (upto, pages, digests);
                record.snapshots.insert(slot.clone(), about);
            }
            for (name, about) in value.get("actors")?.as_object()? {
                let digest = about.get("digest")?.as_str()?.to_owned();
                let entries = about.get("entries")?.as_u64()?;
                record.actors.insert(name.clone(), ActorRecord { digest, entries });
            }
            Some(record)
        };
        read().ok_or_else(|| format!("not a record: {text}"))
    }

    /// Writes the record next to a golden directory.
    pub(crate) fn save(&self, golden: &Path) {
        let snapshots = self.snapshots.iter().map(|(slot, (upto, pages, digests))| {
            let about = json!({ "upto": upto, "pages": pages, "digests": digests });
            (slot.clone(), about)
        });
        let actors = self.actors.iter().map(|(name, actor)| {
            let about = json!({ "digest": actor.digest, "entries": actor.entries });
            (name.clone(), about)
        });
        let value = json!({
            "format": self.format,
            "frozen": self.frozen,
            "program": self.program,
            "last": self.last,
            "snapshots": snapshots.collect::<serde_json::Map<_, _>>(),
            "actors": actors.collect::<serde_json::Map<_, _>>(),
        });
        let text = serde_json::to_string_pretty(&value).expect("the value serializes");
        std::fs::write(golden.join("record.json"), text + "\n").expect("a writable file");
    }
}
