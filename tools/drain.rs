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

/// Have a running coordinator take nothing new on, and end when no lock, no claim of a job, no pass of a lease and no attempt of
/// a task is left.
///
/// Renewals and releases of locks go on, and those who wait for one are still granted it; claimed jobs may be touched, and come to
/// their end, as passes and bursts of tasks do that run. Jobs and tasks that wait, and requests for passes, stay on disk. What SIGUSR2 does, by name; the next start ends the drain.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton drain                 take on no new locks, jobs, claims, passes or tasks, and say how many are left
  sexton drain --wait 60       and wait for the last of them
  sexton drain queues          locks go on; it ends when no lock, claim, pass and attempt is left, all the same

Exit status: 0 it drains, and with --wait nothing is left; 1 some are left when the wait is over; 3 no coordinator runs
there; 4 it has halted.")]
pub(crate) struct Drain {
    /// What is taken on no more
    #[arg(value_enum, default_value_t = What::All)]
    what: What,

    /// How long to wait until no lock, no claim, no pass and no attempt of a task is left, in whole seconds
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
    /// New passes of leases
    Leases,
    /// New tasks, and new bursts of tasks
    Tasks,
    /// All of these
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
            What::Leases => ("leases", "passes"),
            What::Tasks => ("tasks", "tasks or bursts"),
            What::All => ("all", "locks, jobs, claims, passes or tasks"),
        };
        let path = format!("/v1/drain?what={what}&wait={wait}");
        let answer = client::post(&target, &path, patience)?;
        let said = answer.said()?;
        if answer.status != 200 {
            return Err(refused(said));
        }
        let left = [
            ("/locks", "lock"),
            ("/claims", "claim"),
            ("/passes", "pass"),
            ("/tasks", "attempt"),
        ];
        let left = left.map(|(path, one)| (number(&said, path), one));
        let is_left = left.iter().any(|(number, _)| *number > 0);
        let words = if is_left {
            let [locks, claims, passes, attempts] = left.map(|(number, one)| counted(number, one));
            format!(
                "draining: no new {new}; the coordinator ends when {locks}, held or waited for, {claims}, {passes} and {attempts} of a task are gone\n"
            )
        } else {
            "drained: no lock, no claim, no pass and no attempt of a task is left, the coordinator ends\n".to_owned()
        };
        let text = if self.json { &answer.body } else { &words };
        written(std::io::stdout().lock().write_all(text.as_bytes()))?;
        if self.wait.is_some() && is_left {
            return Err(Failure::found(
                "some locks, claims, passes or attempts are left, and the wait is over",
            )
            .help("the drain goes on: wait longer; `sexton status` shows what is left"));
        }
        Ok(())
    }
}

/// How many of something, in words.
fn counted(number: u64, one: &str) -> String {
    match (number, one) {
        (1, _) | (_, "lock" | "claim" | "attempt") => count(number, one),
        (_, one) => format!("{number} {one}es"),
    }
}
