//! `sexton drain`: has a running coordinator take nothing new on, and end when nothing is held any more.

use crate::client::{self, Where};
use crate::lock::refused;
use crate::report::{Failure, written};
use crate::span::{SPAN, seconds};
use crate::text::{count, number};
use clap::{Args, ValueEnum};
use std::io::Write as _;
use std::time::Duration;

/// The longest wait, in seconds.
const WAIT_MAX: u64 = 3600;

/// Have a running coordinator take nothing new on, and end when no lock and no claim of a job is left.
///
/// Renewals and releases of locks go on, and those who wait for one are still granted it; claimed jobs may be touched, and come to
/// their end. Jobs that wait stay on disk. What SIGUSR2 does, by name; the next start ends the drain.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton drain                 take on no new locks, jobs or claims, and say how many are left
  sexton drain --wait 60       and wait for the last of them
  sexton drain queues          locks go on; it ends when no lock and no claim is left, all the same

Exit status: 0 it drains, and with --wait nothing is left; 1 some are left when the wait is over; 3 no coordinator runs
there; 4 it has halted.")]
pub(crate) struct Drain {
    /// What is taken on no more
    #[arg(value_enum, default_value_t = What::All)]
    what: What,

    /// How long to wait until no lock and no claim is left, in whole seconds
    #[arg(long, value_name = SPAN, value_parser = seconds(1, WAIT_MAX))]
    wait: Option<u64>,

    #[command(flatten)]
    at: Where,

    /// Print the answer as it is, in JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// New locks
    Locks,
    /// New jobs, and new claims of jobs
    Queues,
    /// Both
    All,
}

impl Drain {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let target = self.at.target()?;
        let wait = self.wait.unwrap_or(0);
        let patience = Duration::from_secs(wait + 15);
        let (what, new) = match self.what {
            What::Locks => ("locks", "locks"),
            What::Queues => ("queues", "jobs or claims"),
            What::All => ("all", "locks, jobs or claims"),
        };
        let path = format!("/v1/drain?what={what}&wait={wait}");
        let answer = client::post(&target, &path, patience)?;
        let said = answer.said()?;
        if answer.status != 200 {
            return Err(refused(said));
        }
        let (locks, claims) = (number(&said, "/locks"), number(&said, "/claims"));
        let is_left = locks + claims > 0;
        let words = if is_left {
            let (locks, claims) = (count(locks, "lock"), count(claims, "claim"));
            format!(
                "draining: no new {new}; the coordinator ends when {locks}, held or waited for, and {claims} are gone\n"
            )
        } else {
            "drained: no lock and no claim is left, the coordinator ends\n".to_owned()
        };
        let text = if self.json { &answer.body } else { &words };
        written(std::io::stdout().lock().write_all(text.as_bytes()))?;
        if self.wait.is_some() && is_left {
            return Err(Failure::found(
                "some locks or claims are left, and the wait is over",
            ));
        }
        Ok(())
    }
}
