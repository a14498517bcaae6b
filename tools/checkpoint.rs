//! `sexton checkpoint`: makes a running coordinator take a snapshot now.

use crate::client::{self, Target, Where};
use crate::report::{Failure, print};
use crate::text;
use clap::Args;
use serde_json::Value;
use std::time::Duration;

/// How long to wait for a checkpoint. Writing a large state to a slow disk can take minutes.
const TIMEOUT: Duration = Duration::from_mins(10);

/// Take a snapshot of a running coordinator now.
///
/// A coordinator also takes snapshots by itself: when startup would have to replay a long journal, and when it stops. A snapshot taken
/// just before a planned kill makes the restart as fast as possible.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton checkpoint && systemctl restart sexton   a restart with little to replay

Exit status: 0 the snapshot is on disk; 2 wrong flags; 3 no coordinator runs there, or it could not take one; 4 it has halted.")]
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
            "snapshot {}: includes everything up to sequence number {}; {} pages, {} on disk, taken in {} ms\n",
            shown("/slot"),
            shown("/upto"),
            shown("/pages"),
            text::bytes(text::number(&taken, "/file_bytes")),
            shown("/ms"),
        ))
    }
}

/// Requests a snapshot, waits until it is complete and on disk, and returns its description.
pub(crate) fn take(target: &Target) -> Result<Value, Failure> {
    let answer = client::post(target, "/v1/checkpoint", TIMEOUT)?;
    let taken = answer.json()?;
    if answer.status == 200 { Ok(taken) } else { Err(Failure::refused(&taken, &[])) }
}
