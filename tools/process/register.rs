//! `sexton register`: creates a record for a process that is already running, or reports how it ends.

use crate::client::{Where, fields};
use crate::process::request::{ClientOptions, pairs};
use crate::process::run::PARENT;
use crate::report::Failure;
use crate::text::words;
use clap::Args;
use serde_json::json;

/// Create a record for the calling process, or report how it ends
///
/// The caller of this command, such as the shell that runs a script, gets a record that is linked to that of its parent; another
/// call finds the same record. The coordinator notices by itself that the process has ended, but it learns the exit status only if
/// --finish reports it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  export SEXTON_PROCESS_ID=$(sexton register --type worker)
                                     gives this shell a record, with its children below
  sexton register --finish 3 --error 'no such host'
                                     reports that it is about to end with status 3

Exit status: 0 success; 1 there is no such process; 2 wrong flags; 3 no coordinator runs there.")]
pub(crate) struct Register {
    /// The PID of the process [default: the caller of this command]
    #[arg(long, value_parser = crate::numbers::pid)]
    pid: Option<u32>,

    /// The type of the process [default: derived from its command]
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,

    /// A label to find the process by; repeatable
    #[arg(long = "label", value_name = "NAME=VALUE")]
    labels: Vec<String>,

    /// A URL that the process works on
    #[arg(long)]
    about: Option<String>,

    /// The id of the parent process [default: the nearest ancestor with a record]
    #[arg(long, value_name = "ID", env = PARENT)]
    parent: Option<String>,

    /// Report that the process is about to end with this exit code
    #[arg(long, value_name = "CODE")]
    finish: Option<u8>,

    /// With --finish, what went wrong
    #[arg(long, value_name = "TEXT", requires = "finish")]
    error: Option<String>,

    #[command(flatten)]
    at: Where,

    /// Print the record as JSON
    #[arg(long)]
    json: bool,
}

impl Register {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let options = ClientOptions::at(&self.at, self.json)?;
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_pid().unsigned_abs());
        let pid = self.pid.or(parent);
        let asked = fields([
            ("pid", pid.into()),
            ("type", self.kind.clone().into()),
            ("url", self.about.clone().into()),
            ("labels", json!(pairs(&self.labels, "label")?)),
            ("parent", self.parent.clone().into()),
        ]);
        let mut record = options.act("register", asked)?;
        if let Some(code) = self.finish {
            let asked = fields([
                ("id", words(&record, "/id").into()),
                ("code", code.into()),
                ("error", self.error.into()),
            ]);
            record = options.act("finish", asked)?;
        }
        options.tell(&record, |record| words(record, "/id") + "\n")
    }
}
