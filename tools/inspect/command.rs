//! The subcommand: its flags, its retries while a coordinator uses the directory, and its exit statuses.

use crate::directory;
use crate::inspect::findings::{Findings, look};
use crate::inspect::page;
use crate::replay::{Item, print_history};
use crate::report::{self, Failure};
use crate::settings::data_directory;
use clap::Args;
use sexton::replay::FollowedItem;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The maximum number of attempts to inspect a directory while a running coordinator keeps changing it.
const LOOKS_MAX: u32 = 5;
/// The pause between retries.
const PAUSE: Duration = Duration::from_millis(200);

/// Show what a data directory holds, whether it is intact, and what startup would do with it
///
/// Never writes to the directory, can be used while a coordinator is running, and shows as much as possible of a damaged
/// directory. Snapshots are copied to TMPDIR to be read.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton inspect                             snapshots, journal, what startup would do
  sexton inspect /var/lib/sexton             the same of another directory
  sexton inspect DATA --actor lock           the number of locks
  sexton inspect DATA --key acct             the holders and waiters of a key, and its history
  sexton inspect DATA --job 17               the state of a job, and its history

Exit status: 0 intact; 1 damage without loss: startup would not need the damaged parts; 2 wrong flags; \
3 startup would be refused, or nothing can be read.")]
pub(crate) struct Inspect {
    /// The data directory [default: as for `sexton serve`]
    #[arg(value_name = "DATA")]
    data: Option<PathBuf>,

    /// Show only this actor, such as lock
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
        let data = data_directory(self.data.as_deref())?;
        directory::check("inspect", &data, &["journal", "snapshots", "lock"])?;
        let followed = self.item.followed();
        let mut findings = look_until_settled(&data, followed.as_ref())?;
        if let Some(name) = &self.actor {
            findings.actors.retain(|actor| actor.name == name);
        }
        let shown = if self.json {
            let json =
                serde_json::to_string(&findings).expect("findings should have only string keys");
            json + "\n"
        } else if self.actor.is_some() || followed.is_some() {
            page::actors(&findings)
        } else {
            page::all(&findings)
        };
        report::print(&shown)?;
        if followed.is_some() && !self.json {
            // An error in the journal ends the history, and is reported below with the other findings.
            drop(print_history(&data, self.item));
        }
        if let Some(refused) = findings.start.refused {
            let help = findings.start.help.unwrap_or_default();
            return Err(
                Failure::unreachable(format!("startup would be refused: {refused}")).help(help)
            );
        }
        if findings.damage.is_empty() {
            return Ok(());
        }
        let words = findings.damage.join("; ");
        Err(Failure::found(format!("damaged, but nothing is lost: {words}")).help(
            "startup does not need the damaged parts; later checkpoints replace damaged snapshots",
        ))
    }
}

/// Inspects the directory. If something is wrong while a coordinator is running, inspects it again, up to [`LOOKS_MAX`] times in all,
/// since the coordinator may just have changed a file.
#[expect(
    clippy::disallowed_methods,
    reason = "no event signals that another process has finished changing its files"
)]
fn look_until_settled(data: &Path, item: Option<&FollowedItem>) -> Result<Findings, Failure> {
    let mut looks = 1;
    loop {
        let findings = look(data, item);
        let settled = match &findings {
            Ok(findings) => findings.running.is_none() || findings.is_whole(),
            // Files may have disappeared during the check.
            Err(_) => !is_running(data),
        };
        if settled || looks == LOOKS_MAX {
            return findings;
        }
        looks += 1;
        std::thread::sleep(PAUSE);
    }
}

fn is_running(data: &Path) -> bool {
    let holder = sexton::persist::disk::RealDisk::new(data).holder();
    holder.is_ok_and(|holder| holder.is_some())
}
