//! `sexton-bench replay`: measures how fast the log is read at startup.

use crate::codec::name;
use crate::failure::Failure;
use crate::figures::{Spread, as_float, grouped};
use crate::interrupt::Stop;
use crate::load::now;
use crate::output::print;
use crate::peer::directory;
use clap::Args;
use sexton::actors::lock::{LockMachine, Message, Name, Reply, Rules};
use sexton::config::Config;
use sexton::node::{Handle, Node};
use sexton::persist::disk::{Disk as _, RealDisk};
use sexton::persist::journal::Fsync;
use sexton::spine::checkpoint;
use sexton::spine::delivery::Item;
use sexton::spine::recovery::{Recovering, Replica, Scope, recover};
use std::path::{Path, PathBuf};

/// The number of commands delivered at a time while the log is being written.
const BATCH: u32 = 1024;

/// Measure recovery: write a log of lock entries, then replay it as at startup.
///
/// The log consists of alternating acquisitions and releases, with the given number of locks held at any time. A node in this program
/// writes the log to a directory that is removed afterwards. The log is read from the page cache, so the speed of the disk is not measured.
#[derive(Args)]
pub(crate) struct Replay {
    /// Number of entries in the log
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    entries: u32,

    /// Number of locks held at any time
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    held: u32,

    /// Number of times that the log is replayed
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Where the temporary data directory is created [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Replay {
    pub(crate) fn run(self, stop: &Stop) -> Result<(), Failure> {
        let directory = directory(&self.dir.clone().unwrap_or_else(std::env::temp_dir))?;
        let began = now();
        let log = Log { entries: self.entries, held: self.held };
        log.write(directory.path(), stop)?;
        let writing = now() - began;
        let disk = RealDisk::new(directory.path());
        let bytes: u64 = disk
            .list("journal")
            .map_err(Failure::to("list the log"))?
            .iter()
            .map(|(_, len)| len)
            .sum();
        let mut seconds = Vec::new();
        let mut records = 0;
        for _ in 0..self.rounds {
            stop.check()?;
            let mut locks = Replica::<LockMachine>::new(Rules::default());
            let replicas: &mut [&mut dyn Recovering] = &mut [&mut locks];
            let began = now();
            let recovered = recover(&disk, None, replicas, Scope::default());
            let tail = recovered.map_err(Failure::to("replay the log"))?.tail;
            seconds.push((now() - began).as_secs_f64());
            records = tail.records;
        }
        if records < u64::from(self.entries) {
            let words = format!("wrote {} entries, but read {records} records", self.entries);
            return Err(Failure::new(words));
        }
        let rate = Spread::of(seconds.iter().map(|seconds| as_float(records) / seconds));
        let text = if self.json {
            let json = serde_json::json!({
                "sexton": env!("CARGO_PKG_VERSION"),
                "entries": self.entries,
                "held": self.held,
                "rounds": self.rounds,
                "journal_bytes": bytes,
                "write_seconds": writing.as_secs_f64(),
                "replay_seconds": Spread::of(seconds.into_iter()),
                "entries_per_second": rate,
            });
            format!("{json:#}\n")
        } else {
            let took = Spread::of(seconds.into_iter()).median;
            let Spread { median, min, max } = rate;
            format!(
                "{} entries replayed in {took:.2} s: {} entries/s ({}-{})\n",
                grouped(self.entries.into()),
                grouped(median),
                grouped(min),
                grouped(max),
            )
        };
        print(&text)
    }
}

/// A log of lock entries.
pub(crate) struct Log {
    pub(crate) entries: u32,
    /// The number of locks held at any time.
    pub(crate) held: u32,
}

impl Log {
    /// Writes the log to this data directory, with a node that never syncs.
    pub(crate) fn write(&self, data: &Path, stop: &Stop) -> Result<(), Failure> {
        let node = Node::open(Config {
            fsync: Fsync::Never,
            // The whole log will be replayed, so no checkpoint may cause a part of it to be removed.
            checkpoints: checkpoint::Rules {
                records: 1 << 40,
                bytes: 1 << 50,
                ..checkpoint::Rules::default()
            },
            ..Config::at(data)
        })?;
        let handle = node.handle();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .map_err(Failure::to("start a runtime"))?;
        let mut next = 0;
        while next < self.entries {
            stop.check()?;
            let end = next.saturating_add(BATCH).min(self.entries);
            let items = (next..end).map(|entry| self.item(entry)).collect();
            runtime.block_on(deliver(&handle, items))?;
            next = end;
        }
        Ok(node.stop()?)
    }

    /// Returns the command for an entry. Each of the first `held` entries acquires a lock; later entries alternately release the oldest
    /// lock and acquire a new one.
    fn item(&self, entry: u32) -> Item<LockMachine> {
        let beyond = entry.checked_sub(self.held);
        let (release, number) = match beyond {
            Some(beyond) if beyond % 2 == 0 => (true, beyond / 2),
            Some(beyond) => (false, self.held + beyond / 2),
            None => (false, entry),
        };
        let text = |number| Name::new(number).expect("16 bytes are within the limit of 255");
        let (key, owner) = (text(name(1, number)), text(name(2, number)));
        Item::Message(if release {
            Message::Release { key, index: Some(Name::default()), owner, token: None }
        } else {
            Message::Request { key, index: Name::default(), owner, ttl: 600, ttw: 600, priority: 0 }
        })
    }
}

pub(crate) async fn deliver(handle: &Handle, items: Vec<Item<LockMachine>>) -> Result<(), Failure> {
    let answers = handle
        .locks()
        .batch(items)
        .await
        .map_err(|stopped| Failure::new(format!("failed to write the log: {stopped}")))?;
    for answer in answers {
        match answer {
            Ok(Reply::LinePosition(_) | Reply::Ended(1)) => {}
            answer => {
                let words = format!("unexpected result of a lock request: {answer:?}");
                return Err(Failure::new(words));
            }
        }
    }
    Ok(())
}
