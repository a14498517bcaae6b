//! The subcommand `sexton recover`: its flags, refusals and exit statuses.

use crate::directory;
use crate::isolated::Copies;
use crate::recover::{carry, page, plan};
use crate::report::{self, Failure};
use clap::Args;
use serde_json::json;
use sexton::actors::{Actors, Rules};
use sexton::ids::Seq;
use sexton::persist::disk::RealDisk;
use sexton::spine::recovery::{RecoveryError, Scope, recover};
use std::path::{Path, PathBuf};

/// Repair a damaged data directory by dropping the parts that cannot be read
///
/// Reports what is lost, with sequence numbers, times and contents as far as they are known. Keeps everything before the damage: the
/// newest readable snapshot, and the records of the journal between that snapshot and the damage. Replaced files are kept in
/// DATA/damaged-TIME. New sequence numbers are above all that may have been used, so no token is issued twice. A directory on which
/// startup is not refused is left alone.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton recover DATA --dry-run              show what would be lost; change nothing
  sexton recover DATA                        keep everything before the damage
  sexton recover DATA --skip 812             drop only record 812, and keep the records after it

Records depend on earlier ones: after a skip, jobs and locks may be in a different state than before. If a later record cannot be \
applied, recovery stops there again and reports it.

Exit status: 0 recovered, or nothing to do; 1 --dry-run found that records would be lost; 2 wrong flags; \
3 the directory cannot be read, or a coordinator is using it.")]
pub(crate) struct Recover {
    /// A data directory that no coordinator is using. Has no default, because its files are changed
    data: PathBuf,

    /// Show what would be lost, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Skip the record with this sequence number, at which recovery would otherwise stop; repeatable
    #[arg(long, value_name = "SEQ", value_parser = crate::numbers::sequence)]
    skip: Vec<u64>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

impl Recover {
    pub(crate) fn run(self) -> Result<(), Failure> {
        directory::check("recover", &self.data, &["journal", "snapshots"])?;
        let disk = RealDisk::new(&self.data);
        // The lock is held until recovery is done; a dry run writes nothing, not even a lock file.
        let lock = match disk.holder() {
            Ok(Some(process)) => {
                let words = format!(
                    "failed to recover {}: process {process} is using it",
                    self.data.display()
                );
                return Err(Failure::unreachable(words).help("stop that coordinator first"));
            }
            _ if self.dry_run => None,
            _ => Some(disk.lock()?),
        };
        let Some(refused) = refusal(&self.data)? else {
            return self.nothing_to_do();
        };
        let skips = self.skip.iter().copied().map(Seq).collect();
        let plan = plan::make(&self.data, &skips)?;
        let aside = if self.dry_run {
            None
        } else {
            let aside = carry::apply(&disk, &plan)?;
            if let Some(refused) = refusal(&self.data)? {
                let words = format!("failed to recover: startup is still refused: {refused}");
                let help = format!("the replaced files are in {}", self.data.join(aside).display());
                return Err(Failure::unreachable(words).help(help));
            }
            Some(aside)
        };
        drop(lock);
        report::print(&if self.json {
            page::json(&self.data, &refused, &plan, aside.as_deref())
        } else {
            page::text(&self.data, &refused, &plan, aside.as_deref())
        })?;
        if self.dry_run && plan.loses() {
            let words = "records would be lost; nothing was changed";
            return Err(
                Failure::found(words).help("run the same command without --dry-run to recover")
            );
        }
        Ok(())
    }

    fn nothing_to_do(&self) -> Result<(), Failure> {
        if !self.skip.is_empty() {
            let words = "--skip has no effect: startup on this directory is not refused";
            return Err(Failure::usage(words));
        }
        let data = self.data.display();
        report::print(&if self.json {
            json!({ "data": self.data, "refused": null }).to_string() + "\n"
        } else {
            format!("nothing to recover: startup on {data} is not refused\n")
        })
    }
}

/// Returns why startup would be refused, or `None` if it would not be. Fails if a newer version wrote the directory.
fn refusal(data: &Path) -> Result<Option<String>, Failure> {
    let copies = Copies::of(data)?;
    let mut actors = Actors::empty(&Rules::default());
    let recovered = recover(
        &RealDisk::new(data),
        Some(copies.slots()),
        &mut actors.recovering(),
        Scope::default(),
    );
    match recovered {
        Ok(_) => Ok(None),
        Err(error) if is_newer(&error) => Err(error.into()),
        Err(error) => Ok(Some(format!("failed to {error}"))),
    }
}

/// Returns whether the error means that a newer version wrote the directory, so that there is nothing to repair.
fn is_newer(error: &RecoveryError) -> bool {
    use sexton::persist::PersistError::VersionTooNew;
    matches!(
        error,
        RecoveryError::Persist(VersionTooNew { .. })
            | RecoveryError::Lost { error: VersionTooNew { .. }, .. }
    )
}
