//! `sexton backup`: a copy of a running coordinator's directory, from which another can be started.

use crate::checkpoint;
use crate::inspect;
use crate::progress::Progress;
use crate::report::{self, Failure};
use crate::settings::data_directory;
use crate::text;
use clap::Args;
use serde_json::json;
use sexton::ids::Seq;
use sexton::persist::PersistError;
use sexton::persist::backup::{self, Copied};
use sexton::persist::disk::{DirLock, Disk as _, RealDisk};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often it is tried to copy a directory that changes meanwhile.
const ATTEMPTS_MAX: u32 = 10;

/// Copy a running coordinator's directory, consistently, while it goes on.
///
/// It has the coordinator take a snapshot, copies that and the journal behind it to a new or empty directory, and then
/// looks at the copy as `sexton inspect` does. Everything that was acknowledged before the backup began is in it. To
/// restore, start `sexton serve --data` on the copy, or on a copy of that.
#[derive(Args)]
#[command(
    after_help = "Exit status: 0 the copy is whole and on disk; 2 wrong flags; \
3 no coordinator runs there, or it cannot be copied; 4 it has halted."
)]
pub(crate) struct Backup {
    /// A new or an empty directory
    #[arg(value_name = "DIR")]
    into: PathBuf,

    /// Where the coordinator keeps its data [default: as for `sexton serve`]
    #[arg(long, value_name = "DIR", env = "SEXTON_DATA")]
    data: Option<PathBuf>,

    /// Print what was copied as JSON
    #[arg(long)]
    json: bool,
}

impl Backup {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let data = data_directory(self.data.as_deref())?;
        check_apart(&data, &self.into)?;
        let disk = RealDisk::new(&self.into);
        let (made, held) = prepare(&disk)?;
        let copied = copy_and_check(&data, &disk);
        if copied.is_err() {
            remove(&disk, made);
        }
        if let Err(error) = std::fs::remove_file(self.into.join("lock"))
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tell(&format!("could not remove the copy's lock: {error}"));
        }
        drop(held);
        let copied = copied?;
        let (slot, upto, last) = (copied.slot, copied.seal.manifest.begun, copied.upto());
        let into = self.into.display();
        let said = if self.json {
            json!({
                "into": self.into,
                "slot": slot.to_string(),
                "upto": upto,
                "last": last,
                "records": copied.tail.records,
                "bytes": copied.bytes,
            })
            .to_string()
        } else {
            format!(
                "{into}: everything up to sequence number {last}: snapshot {slot} up to {upto}, and {} records behind it, {}",
                text::grouped(copied.tail.records),
                text::bytes(copied.bytes)
            )
        };
        report::written(writeln!(std::io::stdout(), "{said}"))
    }
}

/// Refuses a place within the data: what stands there is the coordinator's, and may go with the next snapshot.
fn check_apart(data: &Path, into: &Path) -> Result<(), Failure> {
    let into = std::path::absolute(into).unwrap_or_else(|_| into.to_owned());
    let there = into.ancestors().find_map(|above| above.canonicalize().ok());
    let data = data.canonicalize().ok();
    let within = data
        .zip(there)
        .filter(|(data, there)| there.starts_with(data));
    match within {
        None => Ok(()),
        Some((data, _)) => Err(Failure::unreachable(format!(
            "failed to copy to {}: it is within {}, which is to be copied",
            into.display(),
            data.display()
        ))
        .help("a backup in the coordinator's own directory would not last")),
    }
}

/// Makes the directory, and keeps others from it; whether it was not there before.
fn prepare(disk: &RealDisk) -> Result<(bool, DirLock), Failure> {
    let shown = disk.root().display();
    let made = !disk.root().exists();
    disk.create_folder("")
        .map_err(|error| Failure::unreachable(format!("failed to create {shown}: {error}")))?;
    check_empty(disk)?;
    let held = disk.lock()?;
    // Whoever had it until now may have copied something to it.
    check_empty(disk)?;
    Ok((made, held))
}

/// Refuses a directory with anything in it but the file that says who has it.
fn check_empty(disk: &RealDisk) -> Result<(), Failure> {
    let shown = disk.root().display();
    let unreadable = |error| Failure::unreachable(format!("failed to read {shown}: {error}"));
    for entry in std::fs::read_dir(disk.root()).map_err(unreadable)? {
        if entry.map_err(unreadable)?.file_name() != "lock" {
            return Err(Failure::unreachable(format!(
                "failed to copy to {shown}: it is not empty"
            ))
            .help("a backup never replaces anything: give a directory that is new or empty"));
        }
    }
    Ok(())
}

/// Takes away what was copied in vain.
fn remove(disk: &RealDisk, made: bool) {
    let removed = ["snapshots", "journal"]
        .into_iter()
        .try_for_each(|folder| disk.remove_tree(folder))
        .and_then(|()| if made { disk.remove_tree("") } else { Ok(()) });
    if let Err(error) = removed {
        tell(&format!("could not remove what was copied: {error}"));
    }
}

fn copy_and_check(data: &Path, disk: &RealDisk) -> Result<Copied, Failure> {
    let bytes = Arc::new(AtomicU64::new(0));
    let shown = Arc::clone(&bytes);
    let words = move || match shown.load(Ordering::Relaxed) {
        0 => Some("waiting for a snapshot".to_owned()),
        bytes => Some(format!("copied {}", text::bytes(bytes))),
    };
    let _progress = Progress::start(words, tell);
    let taken = checkpoint::take(data)?;
    let upto = Seq(text::number(&taken, "/upto"));
    let copied = copy(data, disk, &bytes)?;
    if copied.seal.manifest.begun < upto {
        let begun = copied.seal.manifest.begun;
        return Err(Failure::unreachable(format!(
            "failed to copy {}: its newest snapshot goes to {begun}, and one that goes to {upto} was just taken",
            data.display()
        )));
    }
    check(disk)?;
    Ok(copied)
}

/// Copies until nothing has changed meanwhile.
fn copy(data: &Path, into: &RealDisk, bytes: &AtomicU64) -> Result<Copied, Failure> {
    let from = RealDisk::new(data);
    let mut attempts = 1;
    loop {
        bytes.store(0, Ordering::Relaxed);
        let error = match backup::copy(&from, into, &mut |more| {
            bytes.fetch_add(more, Ordering::Relaxed);
        }) {
            Ok(copied) => return Ok(copied),
            Err(error) => error,
        };
        if attempts == ATTEMPTS_MAX || !may_pass(&error) {
            return Err(error.into());
        }
        attempts += 1;
        for folder in ["snapshots", "journal"] {
            into.remove_tree(folder)
                .map_err(PersistError::io("remove", folder))?;
        }
    }
}

/// Whether the coordinator may have changed what was being copied.
fn may_pass(error: &PersistError) -> bool {
    match error {
        PersistError::Io { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        PersistError::Store { .. }
        | PersistError::Corrupt { .. }
        | PersistError::Gone { .. }
        | PersistError::Short { .. } => true,
        PersistError::VersionTooNew { .. } | PersistError::Held { .. } => false,
    }
}

/// Whether a coordinator could be started on the copy, with the snapshot that was meant.
fn check(disk: &RealDisk) -> Result<(), Failure> {
    let findings = inspect::look(disk.root(), None)?;
    let wrong = match &findings.start.refused {
        Some(refused) => refused.clone(),
        None if findings.is_whole() && findings.start.snapshot.is_some() => return Ok(()),
        None => findings.damage.join("; "),
    };
    Err(Failure::unreachable(format!(
        "failed to copy to {}: the copy is not whole: {wrong}",
        disk.root().display()
    )))
}

#[expect(clippy::print_stderr, reason = "a remark beside the output")]
fn tell(words: &str) {
    eprintln!("sexton: {words}");
}
