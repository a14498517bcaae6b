//! `sexton-bench churn`: measures the disk space and memory that many changes leave behind.

use crate::codec::Protocol;
use crate::failure::Failure;
use crate::figures::{as_float, grouped};
use crate::held::Churner;
use crate::interrupt::Stop;
use crate::load::Load;
use crate::output::{document, heading, print, show};
use crate::peer::{self, Peer};
use crate::site::Site;
use clap::Args;
use serde_json::json;
use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// The number of connections, each with a share of the locks.
const CONNECTIONS: u32 = 16;

/// How often disk and memory are sampled.
const LOOK: Duration = Duration::from_millis(100);

/// Measure the disk space and memory that many changes leave behind.
///
/// Random locks with keys and owners of 16 bytes are acquired if free and released if held, so that about half of them are held at any
/// time. Everything is on disk before the answer, in sexton and in Redis, which rewrites its append-only file whenever that has doubled.
/// Disk space and memory are sampled every 100 ms, and the largest and the last sample of each are reported.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton-bench churn                        ten million changes of a hundred thousand locks, about a minute
  sexton-bench churn --changes 1000000 --locks 1000 --json

See docs/benchmarks.md for how to read the results.")]
pub(crate) struct Churn {
    /// Total number of changes: acquires and releases
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    changes: u64,

    /// Number of locks
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(16..=3_900_000))]
    locks: u32,

    #[command(flatten)]
    site: Site,
}

/// The largest and the last sample, in bytes.
#[derive(Clone, Copy, Default, serde::Serialize)]
struct Bytes {
    largest: u64,
    last: u64,
}

impl Bytes {
    fn note(&mut self, bytes: u64) {
        self.largest = self.largest.max(bytes);
        self.last = bytes;
    }
}

/// The result for one server.
#[derive(serde::Serialize)]
struct ChurnResult {
    server: &'static str,
    changes_per_second: f64,
    disk: Bytes,
    resident: Bytes,
}

impl Churn {
    pub(crate) fn run(self, stop: &Stop) -> Result<(), Failure> {
        let site = &self.site;
        let (own, version) = (site.version()?, peer::redis_version());
        let mut found = vec![self.measure("sexton", &Peer::sexton(true, site)?, stop)?];
        if version.is_ok() {
            found.push(self.measure("redis", &Peer::redis(true, site)?, stop)?);
        }
        show("");
        if site.json {
            return document(&json!({
                "sexton": own,
                "redis": version.ok(),
                "changes": self.changes,
                "locks": self.locks,
                "servers": found,
            }));
        }
        let notes = site.remarks([&version])?;
        let mut text = heading(&own, &[("Redis", version.as_deref().ok())], &notes);
        for ChurnResult { server, changes_per_second, disk, resident } in found {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            text = format!(
                "{text}{server:<7} {:>11} changes/s   disk {} MiB at most, {} at the end   memory {} MiB at most, {} at the end\n",
                grouped(changes_per_second),
                mib(disk.largest),
                mib(disk.last),
                mib(resident.largest),
                mib(resident.last),
            );
        }
        print(&text)
    }

    fn measure(
        &self,
        server: &'static str,
        peer: &Peer,
        stop: &Stop,
    ) -> Result<ChurnResult, Failure> {
        show(&format!("{server}: {} changes", grouped(as_float(self.changes))));
        let protocol: Rc<Protocol> = Rc::new(peer.protocol.clone());
        let left = Rc::new(Cell::new(self.changes));
        let share = self.locks / CONNECTIONS;
        let clients = (0..CONNECTIONS).map(|at| {
            let locks = share * at..share * (at + 1);
            Churner::new(Rc::clone(&protocol), locks, Rc::clone(&left))
        });
        let (mut disk, mut resident) = (Bytes::default(), Bytes::default());
        let mut failed = None;
        let mut next = Duration::ZERO;
        let load = Load::connect(peer.address, protocol.greeting(), clients)?;
        let measured = load.measure_while(Duration::ZERO, stop, |counted| {
            if counted >= next {
                next = counted + LOOK;
                disk.note(size(peer.data()).unwrap_or(0));
                match peer.resident() {
                    Ok(bytes) => resident.note(bytes),
                    Err(error) => failed = Some(error),
                }
            }
            left.get() > 0 && failed.is_none()
        })?;
        match failed {
            Some(error) => Err(error),
            None => Ok(ChurnResult {
                server,
                changes_per_second: as_float(measured.done.iter().sum())
                    / measured.span.as_secs_f64(),
                disk,
                resident,
            }),
        }
    }
}

/// Returns the disk space used by the files in a folder and its subfolders, in bytes. Files that disappear meanwhile are not counted.
fn size(folder: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        sum += match entry.metadata() {
            Ok(it) if it.is_dir() => size(&entry.path()).unwrap_or(0),
            Ok(it) => it.blocks() * 512,
            Err(_) => 0,
        };
    }
    Ok(sum)
}
