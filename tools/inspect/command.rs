//! The subcommand: flags, trying again on a directory in use, exit statuses.

use crate::directory;
use crate::inspect::findings::{Findings, look};
use crate::inspect::page;
use crate::replay::{Item, tell_story};
use crate::report::{self, Failure};
use clap::Args;
use sexton::replay::Followed;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a directory is looked at again whose coordinator changes it meanwhile.
const LOOKS_MAX: u32 = 5;
/// How long it is left alone in between.
const PAUSE: Duration = Duration::from_millis(200);

/// Show what a data directory holds, whether it is whole, and what a start would do with it.
///
/// It never writes into the directory, also beside a running coordinator, and shows as much as it can of a damaged one.
/// Snapshots are copied to TMPDIR to be read.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton inspect /var/lib/sexton             snapshots, journal, what a start would do
  sexton inspect DATA --actor lock           how many locks there are
  sexton inspect DATA --key acct             who owns what under a key, who waits, and what happened there
  sexton inspect DATA --job 17               the state of a job, and what happened to it

Exit status: 0 whole; 1 damage that costs nothing: a start would do without what is damaged; 2 wrong flags; \
3 a start would be refused, or there is nothing that can be read.")]
pub(crate) struct Inspect {
    /// A data directory
    data: PathBuf,

    /// Show this actor alone, such as lock
    #[arg(long, value_name = "NAME", value_parser = sexton::actors::names(), conflicts_with = "item")]
    actor: Option<String>,

    #[command(flatten)]
    item: Item,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(crate) fn run(self) -> Result<(), Failure> {
        directory::check("inspect", &self.data, &["journal", "snapshots", "lock"])?;
        let followed = self.item.followed();
        let mut findings = self.look(followed.as_ref())?;
        if let Some(name) = &self.actor {
            findings.actors.retain(|actor| actor.name == name);
        }
        let shown = if self.json {
            let json = serde_json::to_string(&findings).expect("findings have only string keys");
            json + "\n"
        } else if self.actor.is_some() || followed.is_some() {
            page::actors(&findings)
        } else {
            page::all(&findings)
        };
        report::print(&shown)?;
        if followed.is_some() && !self.json {
            // Where the journal does not read, the story ends, and what was found says so below.
            drop(tell_story(&self.data, self.item));
        }
        if let Some(refused) = findings.start.refused {
            let help = findings.start.help.unwrap_or_default();
            return Err(
                Failure::unreachable(format!("a start would be refused: {refused}")).help(help),
            );
        }
        if findings.damage.is_empty() {
            return Ok(());
        }
        let words = findings.damage.join("; ");
        Err(Failure::found(format!("damaged, without a loss: {words}"))
            .help("a start does without it; damaged snapshots are written anew"))
    }

    /// Looks until nothing is wrong, if a coordinator changes things meanwhile.
    #[expect(
        clippy::disallowed_methods,
        reason = "what another process does to its files can only be looked at again"
    )]
    fn look(&self, item: Option<&Followed>) -> Result<Findings, Failure> {
        let mut looks = 1;
        loop {
            let findings = look(&self.data, item);
            let settled = match &findings {
                Ok(findings) => findings.running.is_none() || findings.is_whole(),
                // Files may have gone while they were looked at.
                Err(_) => !is_running(&self.data),
            };
            if settled || looks == LOOKS_MAX {
                return findings;
            }
            looks += 1;
            std::thread::sleep(PAUSE);
        }
    }
}

fn is_running(data: &Path) -> bool {
    let holder = sexton::persist::disk::RealDisk::new(data).holder();
    holder.is_ok_and(|holder| holder.is_some())
}
