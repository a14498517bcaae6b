//! `sexton audit`: checks whether the state of a running coordinator is consistent and agrees with the machine's processes.

use crate::client::{self, Answered, Where};
use crate::report::{Failure, print};
use crate::text::{count, grouped, plain};
use clap::Args;
use sexton::refusal::Reason;
use sexton_api::audit::{self as api, Fix, Look};
use std::fmt::Write as _;
use std::time::Duration;

/// The maximum time for an audit, which rechecks disagreements for several seconds, with --fix before and after the repair.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The advice on a refusal, by its reason.
const HELPS: &[(Reason, &str)] = &[(
    Reason::OutOfScope,
    "run this command on the coordinator's machine as the user that it runs as, or over TCP with a token that has the scope run",
)];

/// The exit status when the audit could not be carried out, so that its result is unknown.
const UNSEEN: u8 = 2;

/// Check a coordinator's tasks, processes, locks, servers and claims against each other and against the machine.
///
/// The coordinator keeps all of this consistent as it handles events, so an audit normally finds nothing. A disagreement is
/// checked again for up to four seconds, and reported only if it persists.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton audit && echo consistent
  sexton audit --fix                 also repair what a lost event left undone
  sexton audit --json | jq '.found[].words'

Exit status: 0 consistent, or made so by --fix; 1 something disagrees; 2 wrong flags, or the audit could not be carried out.")]
pub(crate) struct Audit {
    /// Carry out the repair that each line names, such as releasing a lock or stopping a process that has no record
    #[arg(long)]
    fix: bool,

    #[command(flatten)]
    at: Where,

    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

impl Audit {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Answered { value: audit, body } = self.ask().map_err(|failure| {
            let unseen = Failure::of_command(UNSEEN, failure.words());
            match failure.advice() {
                Some(advice) => unseen.help(advice),
                None => unseen,
            }
        })?;
        print(&if self.json { body } else { page(&audit, self.fix) })?;
        if audit.left == 0 {
            Ok(())
        } else {
            // The page printed above describes every disagreement, so the failure needs no message.
            Err(Failure::found(""))
        }
    }

    fn ask(&self) -> Result<Answered<api::Audit>, Failure> {
        let target = self.at.target()?;
        if self.fix {
            client::request(&target, &Fix {}, TIMEOUT, HELPS)
        } else {
            client::request(&target, &Look {}, TIMEOUT, HELPS)
        }
    }
}

/// Formats one line per disagreement and a summary line. `tried` is whether fixes were attempted.
fn page(audit: &api::Audit, tried: bool) -> String {
    let mut page = String::new();
    for it in &audit.found {
        let fix = match it.fix.as_deref().map(plain) {
            Some(fix) if it.fixed => format!("done: {fix}"),
            Some(fix) if tried => format!("tried, but the disagreement remains: {fix}"),
            Some(fix) => format!("--fix: {fix}"),
            None => "--fix does nothing about it".to_owned(),
        };
        let (kind, words) = (plain(&it.kind), plain(&it.words));
        writeln!(page, "{kind}: {words}; {fix}").expect("writing to memory should not fail");
    }
    let (tasks, processes) = (count(audit.tasks, "task"), grouped(audit.processes));
    let left = match audit.left {
        0 => "consistent".to_owned(),
        left => count(left, "disagreement"),
    };
    writeln!(page, "{left}: {tasks} under way; processes alive: {processes}")
        .expect("writing to memory should not fail");
    page
}
