//! `sexton confirm-clock`: makes a running coordinator accept a wall clock that is far ahead.

use crate::client::{self, Where};
use crate::report::{self, Failure};
use clap::Args;
use sexton_api::operate::ConfirmClock;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(15);

/// Confirm that a wall clock that is far ahead is right.
///
/// A wall clock that is more than a day ahead of the expected time is in doubt: it may have been set wrong, or the machine may have
/// been off for a long time. Abandoned jobs and root jobs are then kept until the clock has not stepped for an hour, or until this
/// command confirms it. `sexton status` shows whether the clock is in doubt.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton status | grep clock        whether the clock is in doubt
  sexton confirm-clock              the clock is right: prune again

Exit status: 0 confirmed, or not in doubt; 2 wrong flags; 3 no coordinator runs there; 4 it has halted.")]
pub(crate) struct Confirm {
    #[command(flatten)]
    at: Where,

    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

impl Confirm {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let answer = client::request(&self.at.target()?, &ConfirmClock {}, TIMEOUT, &[])?;
        report::print(match answer.value.doubted {
            _ if self.json => &answer.body,
            true => "the wall clock is confirmed: expired items are pruned again\n",
            false => "the wall clock was not in doubt\n",
        })
    }
}
