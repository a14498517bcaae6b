//! `sexton kill`: stops or signals processes. `sexton wait`: waits until a process has ended.

use crate::client::{Where, fields};
use crate::process::page::{self, standing};
use crate::process::pid_file_command;
use crate::process::request::{ClientOptions, WaitExtent, is_over};
use crate::process::run::outcome;
use crate::report::Failure;
use crate::span::{SPAN, milliseconds, seconds};
use crate::text::words;
use clap::Args;
use serde_json::Value;
use sexton::clock::{Clock as _, SystemClock, Timestamp};
use std::path::PathBuf;

/// Names of common signals, with their numbers on Linux.
const SIGNALS: [(&str, u8); 16] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ABRT", 6),
    ("KILL", 9),
    ("USR1", 10),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("WINCH", 28),
    ("SYS", 31),
];

/// Parses the name or number of a signal, and returns the number, or a message about what is wrong.
pub(crate) fn signal(text: &str) -> Result<u8, String> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let named = SIGNALS.iter().find(|(known, _)| *known == name);
    let number = || text.parse().ok().filter(|number| (1..=64).contains(number));
    named.map(|(_, number)| *number).or_else(number).ok_or_else(|| {
        format!("{text:?} is not a signal: expected a name, such as TERM, or a number from 1 to 64")
    })
}

/// Stop processes: SIGTERM, then SIGKILL after a grace period; or only send a signal
///
/// A process is found by its record, and signalled through a descriptor of that very process: if another process has its PID by
/// now, that one is never touched.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton kill 0192f5e0 --wait        SIGTERM, SIGKILL after the grace period, and wait for its end
  sexton kill 0192f5e0 --tree        also everything it started
  sexton kill 0192f5e0 --now         SIGKILL immediately
  sexton kill 0192f5e0 --signal HUP  only send a signal
  sexton kill --pid-file DIR/process.pid   a process of another program, if it still has that PID

Exit status: 0 success; 1 there is no such process, it has ended, or another has its PID; 2 wrong flags; 3 no coordinator runs there.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate flag")]
pub(crate) struct Kill {
    /// Process ids, or at least their first eight digits
    #[arg(value_name = "ID", required_unless_present = "pid_file")]
    ids: Vec<String>,

    /// The process of a PID file written by another program. It is signalled only if it started when the file was written, and
    /// runs the program in `cmd.sh` beside the file. No coordinator is needed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ids", "tree", "group"])]
    pid_file: Option<PathBuf>,

    /// Send this signal instead of stopping the process
    #[arg(long, short, value_name = "SIGNAL", value_parser = signal, conflicts_with_all = ["tree", "grace", "now", "wait"])]
    signal: Option<u8>,

    /// With --signal, signal the whole process group
    #[arg(long, requires = "signal")]
    group: bool,

    /// Also stop everything that the process started, directly or through sexton; with --wait, wait for all of it
    #[arg(long)]
    tree: bool,

    /// How long the process may take to end before SIGKILL [default: that of its launch; with --pid-file, 10s]
    #[arg(long, value_name = SPAN, value_parser = milliseconds)]
    grace: Option<u64>,

    /// Send SIGKILL immediately, without a grace period
    #[arg(long, conflicts_with = "grace")]
    now: bool,

    /// Wait until the process has ended
    #[arg(long)]
    wait: bool,

    #[command(flatten)]
    at: Where,

    /// Print the records as JSON
    #[arg(long)]
    json: bool,
}

impl Kill {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let grace = if self.now { Some(0) } else { self.grace };
        if let Some(file) = &self.pid_file {
            return pid_file_command::kill(file, self.signal, grace, self.json);
        }
        let options = ClientOptions::at(&self.at, self.json)?;
        for id in &self.ids {
            let id = Value::from(id.as_str());
            let mut record = match self.signal {
                Some(signal) => options.act(
                    "signal",
                    fields([("id", id), ("signal", signal.into()), ("group", self.group.into())]),
                )?,
                None => options.act(
                    "stop",
                    fields([("id", id), ("grace_ms", grace.into()), ("tree", self.tree.into())]),
                )?,
            };
            if self.wait {
                record = options.wait(&words(&record, "/id"), None, WaitExtent::Tree)?;
            }
            options.tell(&record, |record| {
                format!("{}  {}\n", words(record, "/id"), standing(record))
            })?;
        }
        Ok(())
    }
}

/// Wait until a process has ended, and exit with its status
///
/// The wait continues across restarts of the coordinator.
#[derive(Args)]
#[command(
    name = "wait",
    after_help = "\
Examples:
  sexton wait 0192f5e0                wait, and exit with its status
  sexton wait 0192f5e0 --timeout 30s  wait at most half a minute

Exit status: that of the process, or 128 plus the signal that ended it; 124 it has not ended in time; 125 it is unknown how \
it ended, or it was never started. Of sexton itself: 1 there is no such process; 2 wrong flags; 3 no coordinator runs there."
)]
pub(crate) struct WaitFor {
    /// Process id, or at least its first eight digits
    id: String,

    /// How long to wait: whole seconds, or a form such as 90s or 5m [default: no limit]
    #[arg(long, value_name = SPAN, value_parser = seconds(0, 31_536_000))]
    timeout: Option<u64>,

    #[command(flatten)]
    at: Where,

    /// Print the record as JSON
    #[arg(long)]
    json: bool,
}

impl WaitFor {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let options = ClientOptions::at(&self.at, self.json)?;
        let record = options.wait(&self.id, self.timeout, WaitExtent::Tree)?;
        if self.json {
            let now = SystemClock::starting_at(Timestamp(0)).wall().0;
            options.tell(&record, |record| page::whole(record, now))?;
        }
        if is_over(&record) {
            return outcome(&record, &page::command(&record));
        }
        Err(Failure::of_command(124, "timed out waiting: the process has not ended")
            .help(format!("wait longer, or stop it: `sexton kill --wait {}`", self.id)))
    }
}
