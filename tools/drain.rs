//! `sexton drain`: has a running coordinator take no new locks, and end when none is left.

use crate::client;
use crate::lock::refused;
use crate::report::{Failure, written};
use crate::settings::data_directory;
use crate::text::{grouped, number};
use clap::Args;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// The longest wait, in seconds.
const WAIT_MAX: u64 = 3600;

/// Have a running coordinator take no new locks, and end when none is left.
///
/// Renewals and releases go on. What SIGUSR2 does, by name; the next start ends the drain.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton drain                 begin, and say how many locks are left
  sexton drain --wait 60       and wait for the last of them

Exit status: 0 it drains, and with --wait none is left; 1 some are left when the wait is over; 3 no coordinator runs
there; 4 it has halted.")]
pub(crate) struct Drain {
    /// Seconds to wait until no lock is left
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=WAIT_MAX))]
    wait: Option<u64>,

    /// Where the coordinator keeps its data [default: as for `sexton serve`]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Print the answer as it is, in JSON
    #[arg(long)]
    json: bool,
}

impl Drain {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let data = data_directory(self.data.as_deref())?;
        let wait = self.wait.unwrap_or(0);
        let patience = Duration::from_secs(wait + 15);
        let answer = client::post(&data, &format!("/v1/drain?wait={wait}"), patience)?;
        let said = answer.said()?;
        if answer.status != 200 {
            return Err(refused(said));
        }
        let left = number(&said, "/locks");
        let words = match left {
            0 => "drained: no lock is left, the coordinator ends\n".to_owned(),
            left => format!(
                "draining: no new locks; the coordinator ends when the {} held or waited for are gone\n",
                grouped(left)
            ),
        };
        let text = if self.json { &answer.body } else { &words };
        written(std::io::stdout().lock().write_all(text.as_bytes()))?;
        if self.wait.is_some() && left > 0 {
            return Err(Failure::found("some locks are left, and the wait is over"));
        }
        Ok(())
    }
}
