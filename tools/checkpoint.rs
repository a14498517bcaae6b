//! `sexton checkpoint`: has a running coordinator take a snapshot now.

use crate::client;
use crate::report::Failure;
use crate::settings::data_directory;
use crate::text;
use clap::Args;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a checkpoint may take: one of a large state on a slow disk takes minutes.
const PATIENCE: Duration = Duration::from_mins(10);

/// Have a running coordinator take a snapshot now.
///
/// A coordinator takes snapshots by itself, whenever a start would have much to repeat, and when it stops. One that was
/// taken just before a planned kill makes the next start as quick as can be.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton checkpoint && systemctl restart sexton   a restart that has little to repeat

Exit status: 0 it is taken and on disk; 2 wrong flags; 3 no coordinator runs there, or it could not; 4 it has halted.")]
pub(crate) struct Checkpoint {
    /// Where the coordinator keeps its data [default: as for `sexton serve`]
    #[arg(long, value_name = "DIR", env = "SEXTON_DATA", hide_env_values = true)]
    data: Option<PathBuf>,

    /// Print the answer as it is, in JSON
    #[arg(long)]
    json: bool,
}

impl Checkpoint {
    #[expect(
        clippy::print_stdout,
        reason = "what was taken is this command's output"
    )]
    pub(crate) fn run(self) -> Result<(), Failure> {
        let data = data_directory(self.data.as_deref())?;
        let taken = take(&data)?;
        let shown = |path: &str| text::words(&taken, path);
        if self.json {
            println!("{taken}");
        } else {
            println!(
                "snapshot {}: everything up to sequence number {}, {} pages, {} on disk, in {} ms",
                shown("/slot"),
                shown("/upto"),
                shown("/pages"),
                text::bytes(text::number(&taken, "/file_bytes")),
                shown("/ms"),
            );
        }
        Ok(())
    }
}

/// Asks the coordinator of this directory for a snapshot, and waits until it is sealed; what was taken.
pub(crate) fn take(data: &Path) -> Result<Value, Failure> {
    let answer = client::post(data, "/v1/checkpoint", PATIENCE)?;
    let taken = answer.said()?;
    if answer.status == 200 {
        Ok(taken)
    } else {
        Err(Failure::refused(&taken, &[]))
    }
}
