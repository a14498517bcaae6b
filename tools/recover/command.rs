//! The subcommand.

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

/// Repair a damaged data directory, dropping what cannot be read.
///
/// Reports what is lost, by number, time and content as far as that can be known, and keeps everything before it: the
/// snapshot that reads, and what the journal has after it up to the damage. Whatever it replaces stays in
/// DATA/damaged-TIME. Numbering continues above every number that may have been used, so that no token is given twice. A
/// directory that starts is left alone.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton recover DATA --dry-run              what would be lost; nothing is changed
  sexton recover DATA                        keep what is before the damage
  sexton recover DATA --skip 812             drop record 812 alone, and keep what follows

Records depend on those before them: after a skip, jobs and locks may be in another state than they were. If a later one cannot be applied,
recovery stops there again and reports it.

Exit status: 0 recovered, or nothing to do; 1 --dry-run found that something would be lost; 2 wrong flags; \
3 it cannot be read, or a coordinator runs on it.")]
pub(crate) struct Recover {
    /// A data directory on which no coordinator runs
    data: PathBuf,

    /// Say what would be lost, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Pass over what stops recovery at this sequence number; may be repeated
    #[arg(long, value_name = "SEQ")]
    skip: Vec<u64>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

impl Recover {
    pub(crate) fn run(self) -> Result<(), Failure> {
        directory::check("recover", &self.data, &["journal", "snapshots"])?;
        let disk = RealDisk::new(&self.data);
        // Held until it is done; a dry run does not even write down who looks.
        let lock = match disk.holder() {
            Ok(Some(process)) => {
                let words = format!(
                    "failed to recover {}: process {process} runs on it",
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
            let aside = carry::out(&disk, &plan)?;
            if let Some(refused) = refusal(&self.data)? {
                let words = format!("failed to recover: a start is still refused: {refused}");
                let help = format!(
                    "what was replaced is in {}",
                    self.data.join(aside).display()
                );
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
            let words = "something would be lost; nothing was changed";
            return Err(Failure::found(words).help("without --dry-run, it is done"));
        }
        Ok(())
    }

    fn nothing_to_do(&self) -> Result<(), Failure> {
        if !self.skip.is_empty() {
            let words = "--skip: nothing stops a start on this directory";
            return Err(Failure::usage(words));
        }
        let data = self.data.display();
        report::print(&if self.json {
            json!({ "data": self.data, "refused": null }).to_string() + "\n"
        } else {
            format!("nothing to recover: a start on {data} is not refused\n")
        })
    }
}

/// Why a start would be refused, if it would.
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

/// Whether it is whole, and this program is too old for it.
fn is_newer(error: &RecoveryError) -> bool {
    use sexton::persist::PersistError::VersionTooNew;
    matches!(
        error,
        RecoveryError::Persist(VersionTooNew { .. })
            | RecoveryError::Lost {
                error: VersionTooNew { .. },
                ..
            }
    )
}
