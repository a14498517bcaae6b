//! `sexton backup`: copies a running coordinator's data directory, so that a coordinator can be started on the copy.

use crate::checkpoint;
use crate::client;
use crate::inspect;
use crate::progress::Progress;
use crate::report::{self, Failure, tell};
use crate::scratch::Scratch;
use crate::settings::data_directory;
use crate::text;
use clap::Args;
use serde_json::json;
use sexton::ids::Seq;
use sexton::kernel::path::{self, Exposed};
use sexton::kernel::socket;
use sexton::persist::PersistError;
use sexton::persist::backup::{self, Copied};
use sexton::persist::disk::{Disk as _, RealDisk};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The maximum number of attempts to copy a directory that changes during the copy.
const ATTEMPTS_MAX: u32 = 10;

/// Copy a running coordinator's directory consistently, without stopping it.
///
/// Takes a snapshot, copies it and the journal after it, checks the copy as `sexton inspect` does, and only then renames it to
/// DIR: an interrupted backup leaves no DIR. The copy contains everything that was acknowledged before the backup began. To
/// restore, copy the backup and start `sexton serve --data` on that copy.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton backup /backup/sexton-$(date +%F)
  cp -a /backup/sexton-2026-01-31 /var/lib/sexton && sexton serve --data /var/lib/sexton

Exit status: 0 the copy is complete and on disk; 2 wrong flags; \
3 no coordinator runs there, or the copy failed; 4 the coordinator has halted.")]
pub(crate) struct Backup {
    /// Where to put the copy: a new or empty directory
    #[arg(value_name = "DIR")]
    into: PathBuf,

    /// Where the coordinator keeps its data [default: as for `sexton serve`]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Print what was copied as JSON
    #[arg(long)]
    json: bool,
}

impl Backup {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let data = data_directory(self.data.as_deref())?;
        let target = Target::check(&self.into, &data)?;
        let copied = copy_to(&target, &data)?;
        let (slot, upto, last) = (copied.slot, copied.seal.manifest.begun, copied.upto());
        let into = self.into.display();
        let body = if self.json {
            json!({
                "into": self.into,
                "slot": slot.to_string(),
                "upto": upto,
                "last": last,
                "records": copied.tail.records,
                "file_bytes": copied.bytes,
            })
            .to_string()
        } else {
            format!(
                "copied to {into}: everything up to seq {last}, as snapshot {slot} up to seq {upto} and {} after it; {}",
                text::count(copied.tail.records, "record"),
                text::bytes(copied.bytes)
            )
        };
        report::print(&format!("{body}\n"))
    }
}

/// The destination of a copy: a path that does not exist or is an empty directory.
struct Target {
    path: PathBuf,
    parent: PathBuf,
    name: String,
}

impl Target {
    /// Checks that `into` can receive a copy of `data`.
    fn check(into: &Path, data: &Path) -> Result<Self, Failure> {
        let refused = |why: &str| {
            Failure::unreachable(format!("failed to copy to {}: {why}", into.display()))
                .help("a backup never replaces anything: give a directory that is new or empty")
        };
        // A user who may replace a directory on the way may exchange the copy while it is made, or have it put elsewhere.
        if let Some(why) = path::exposure(into, &socket::is_own) {
            let failure = refused(&Exposed { why }.to_string());
            return Err(failure);
        }
        let path = resolved(into).map_err(|error| refused(&error.to_string()))?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(refused("its path has no last component"));
        };
        if let Ok(data) = resolved(data)
            && path.starts_with(&data)
        {
            let data = data.display();
            return Err(refused(&format!("it is within {data}, the directory to copy")));
        }
        match std::fs::read_dir(&path).map(|mut entries| entries.next().is_none()) {
            Ok(false) => return Err(refused("it is not empty")),
            Ok(true) if is_mounted(&path, parent) => {
                return Err(refused(
                    "it is a mount point, so the copy cannot be renamed to it; give a directory below it",
                ));
            }
            Ok(true) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                return Err(refused("it is a file, not a directory"));
            }
            Err(error) => return Err(refused(&error.to_string())),
        }
        Ok(Self { parent: parent.to_owned(), name: name.to_string_lossy().into_owned(), path })
    }
}

/// Makes `path` absolute, and resolves symbolic links in the part of it that exists.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let found = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(rest))
    });
    Ok(found.unwrap_or(path).components().collect())
}

fn is_mounted(path: &Path, parent: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|about| about.dev()).ok();
    device(path) != device(parent)
}

/// Has the coordinator take a snapshot, then copies its directory to a temporary one next to the target and renames that when the copy is
/// complete, so an interrupted copy never has the target's name.
fn copy_to(target: &Target, data: &Path) -> Result<Copied, Failure> {
    let shown = target.path.display();
    let failed = |error: io::Error| {
        Failure::unreachable(format!("failed to copy to {shown}: {error}"))
            .help("the copy is first made under another name in the same parent directory, and renamed once it is complete")
    };
    let taken = || -> Result<Seq, Failure> {
        let _progress = Progress::start(|| Some("waiting for a snapshot".to_owned()), tell);
        let taken = checkpoint::take(&client::Target::of(data))?;
        Ok(taken.value.upto)
    };
    let upto = taken()?;
    let parent = RealDisk::new(&target.parent);
    parent.create_folder("").map_err(failed)?;
    let scratch = Scratch::make(&target.parent, format!("{}.partial-", target.name));
    let scratch = scratch.map_err(failed)?;
    let copied = copy_and_check(data, &RealDisk::new(scratch.path()), upto)?;
    std::fs::rename(scratch.path(), &target.path).map_err(failed)?;
    parent.sync_folder("").map_err(failed)?;
    Ok(copied)
}

fn copy_and_check(data: &Path, disk: &RealDisk, upto: Seq) -> Result<Copied, Failure> {
    let bytes = Arc::new(AtomicU64::new(0));
    let shown = Arc::clone(&bytes);
    let words = move || Some(format!("copied {}", text::bytes(shown.load(Ordering::Relaxed))));
    let _progress = Progress::start(words, tell);
    let copied = copy(data, disk, &bytes)?;
    if copied.seal.manifest.begun < upto {
        let begun = copied.seal.manifest.begun;
        return Err(Failure::unreachable(format!(
            "failed to copy {}: its newest snapshot ends at {begun}, but the one just taken ends at {upto}",
            data.display()
        )));
    }
    check(disk)?;
    Ok(copied)
}

/// Copies the directory. If that fails with an error that a change by the coordinator during the copy can explain, starts over, and gives
/// up after [`ATTEMPTS_MAX`] attempts.
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
            into.remove_tree(folder).map_err(PersistError::io("remove", folder))?;
        }
    }
}

/// Returns whether a change by the coordinator during the copy can explain `error`.
fn may_pass(error: &PersistError) -> bool {
    match error {
        PersistError::Io { source, .. } => source.kind() == ErrorKind::NotFound,
        PersistError::Store { .. }
        | PersistError::Corrupt { .. }
        | PersistError::Missing { .. }
        | PersistError::Gone { .. }
        | PersistError::Short { .. } => true,
        PersistError::VersionTooNew { .. }
        | PersistError::Held { .. }
        | PersistError::Panicked { .. } => false,
    }
}

/// Checks that the copy is undamaged, and that a coordinator could be started on it from a snapshot.
fn check(disk: &RealDisk) -> Result<(), Failure> {
    let findings = inspect::look(disk.root(), None)?;
    let wrong = match &findings.start.refused {
        Some(refused) => refused.clone(),
        None if findings.is_whole() && findings.start.snapshot.is_some() => return Ok(()),
        None => findings.damage.join("; "),
    };
    Err(Failure::unreachable(format!("failed to copy: the copy is damaged or incomplete: {wrong}")))
}
