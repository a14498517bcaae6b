//! `sexton checkpoint`: makes a running coordinator take a snapshot now.

use crate::client::{self, Answered, Target, Where};
use crate::report::{Failure, print};
use crate::text;
use clap::Args;
use sexton_api::operate::{self, TakeCheckpoint};
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
        let Answered { value: taken, body } = take(&self.at.target()?)?;
        if self.json {
            return print(&body);
        }
        print(&format!(
            "snapshot {}: includes everything up to sequence number {}; {} pages, {} on disk, taken in {} ms\n",
            taken.slot,
            taken.upto,
            taken.pages,
            text::bytes(taken.file_bytes),
            taken.ms,
        ))
    }
}

/// Requests a snapshot, waits until it is complete and on disk, and returns its description.
pub(crate) fn take(target: &Target) -> Result<Answered<operate::Checkpoint>, Failure> {
    client::request(target, &TakeCheckpoint {}, TIMEOUT, &[])
}
