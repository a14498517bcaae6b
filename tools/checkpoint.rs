//! `sexton checkpoint`: has a running coordinator take a snapshot now.

use crate::client::{self, Target, Where};
use crate::report::{Failure, print};
use crate::text;
use clap::Args;
use serde_json::Value;
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
    #[command(flatten)]
    at: Where,

    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

impl Checkpoint {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let taken = take(&self.at.target()?)?;
        let shown = |path: &str| text::words(&taken, path);
        if self.json {
            return print(&format!("{taken}\n"));
        }
        print(&format!(
            "snapshot {}: everything up to sequence number {}, {} pages, {} on disk, in {} ms\n",
            shown("/slot"),
            shown("/upto"),
            shown("/pages"),
            text::bytes(text::number(&taken, "/file_bytes")),
            shown("/ms"),
        ))
    }
}

/// Asks this coordinator for a snapshot, and waits until it is sealed; what was taken.
pub(crate) fn take(target: &Target) -> Result<Value, Failure> {
    let answer = client::post(target, "/v1/checkpoint", PATIENCE)?;
    let taken = answer.said()?;
    if answer.status == 200 {
        Ok(taken)
    } else {
        Err(Failure::refused(&taken, &[]))
    }
}
