//! `sexton drain`: makes a running coordinator refuse new work, and exit once no lock, claim, pass of a lease or attempt of a task
//! is left.

use crate::client::{self, Where};
use crate::lock::HELPS;
use crate::report::{Failure, print};
use crate::span::{SPAN, seconds};
use crate::text::count;
use clap::{Args, ValueEnum};
use sexton_api::operate::{DrainWhat, Draining, StartDrain};
use sexton_api::value::Number;
use std::time::Duration;

/// The maximum value of `--wait`, in seconds.
const WAIT_MAX: u64 = 3600;

/// Drain a running coordinator: it accepts no new work, and exits once no lock, claim, pass of a lease or attempt of a task is
/// left.
///
/// Holders can still renew and release locks, and clients already in line for a lock are still granted it. Claimed jobs can be
/// touched and finished, and running passes and bursts run to their end. Waiting jobs, tasks and requested passes stay on disk.
/// SIGUSR2 does the same. A restart ends the drain.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton drain                 accept no new locks, jobs, claims, passes or tasks, and print how many are left
  sexton drain --wait 60       the same, and wait until none is left
  sexton drain queues          no new jobs or claims; it still exits only when nothing is left

Exit status: 0 draining, and with --wait nothing is left; 1 some are left when --wait times out; 3 no coordinator runs \
there; 4 it has halted.")]
pub(crate) struct Drain {
    /// The kind of work to refuse from now on
    #[arg(value_enum, default_value_t = Part::All)]
    what: Part,

    /// How long to wait until no lock, claim, pass or attempt of a task is left: whole seconds, or a form such as 90s or 5m
    #[arg(long, value_name = SPAN, value_parser = seconds(1, WAIT_MAX))]
    wait: Option<u64>,

    #[command(flatten)]
    at: Where,

    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
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
            Part::Locks => (DrainWhat::Locks, "locks"),
            Part::Queues => (DrainWhat::Queues, "jobs or claims"),
            Part::Leases => (DrainWhat::Leases, "passes"),
            Part::Tasks => (DrainWhat::Tasks, "tasks or bursts"),
            Part::All => (DrainWhat::All, "locks, jobs, claims, passes or tasks"),
        };
        let asked = StartDrain { what, wait: Number(wait) };
        let answer = client::request(&target, &asked, patience, HELPS)?;
        let Draining { locks, claims, passes, tasks, .. } = answer.value;
        let left = [(locks, "lock"), (claims, "claim"), (passes, "pass"), (tasks, "attempt")];
        let is_left = left.iter().any(|(number, _)| *number > 0);
        let words = if is_left {
            let [locks, claims, passes, attempts] = left.map(|(number, one)| count(number, one));
            format!(
                "draining: no new {new}; still left: {locks} (held or waited for), {claims}, {passes} and {attempts} of a task; the \
                 coordinator exits when none is left\n"
            )
        } else {
            "drained: no lock, claim, pass or attempt of a task is left; the coordinator exits\n"
                .to_owned()
        };
        let text = if self.json { &answer.body } else { &words };
        print(text)?;
        if self.wait.is_some() && is_left {
            return Err(Failure::found(
                "timed out waiting: some locks, claims, passes or attempts are left",
            )
            .help("the drain continues; `sexton status` shows what is left, and --wait sets a longer wait"));
        }
        Ok(())
    }
}
