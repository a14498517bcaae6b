//! `sexton audit`: checks whether the state of a running coordinator is consistent and agrees with the machine's processes.

use crate::client::{self, Where};
use crate::report::{Failure, print_answer};
use crate::text::{count, grouped, number, words};
use clap::Args;
use serde_json::Value;
use sexton::refusal::Reason;
use std::fmt::Write as _;
use std::time::Duration;

/// The maximum time for an audit with --fix, which rechecks disagreements for several seconds before and after the repair.
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
        let body = self.ask().map_err(|failure| {
            let unseen = Failure::of_command(UNSEEN, failure.words());
            match failure.advice() {
                Some(advice) => unseen.help(advice),
                None => unseen,
            }
        })?;
        print_answer(self.json, &body, |body| page(body, self.fix))?;
        if number(&body, "/left") == 0 {
            Ok(())
        } else {
            // The page printed above describes every disagreement, so the failure needs no message.
            Err(Failure::found(""))
        }
    }

    fn ask(&self) -> Result<Value, Failure> {
        let target = self.at.target()?;
        if self.fix {
            client::post(&target, "/v1/audit/fix", TIMEOUT)?.success(HELPS)
        } else {
            client::get(&target, "/v1/audit")?.success(HELPS)
        }
    }
}

/// Formats one line per disagreement and a summary line. `tried` is whether fixes were attempted.
fn page(body: &Value, tried: bool) -> String {
    let mut page = String::new();
    let found = body.pointer("/found").and_then(Value::as_array);
    for it in found.into_iter().flatten() {
        let fix = match it.pointer("/fix").and_then(Value::as_str) {
            Some(fix) if it.pointer("/fixed") == Some(&true.into()) => format!("done: {fix}"),
            Some(fix) if tried => format!("tried, but the disagreement remains: {fix}"),
            Some(fix) => format!("--fix: {fix}"),
            None => "--fix does nothing about it".to_owned(),
        };
        let (kind, words) = (words(it, "/kind"), words(it, "/words"));
        writeln!(page, "{kind}: {words}; {fix}").expect("writing to memory does not fail");
    }
    let tasks = count(number(body, "/tasks"), "task");
    let processes = grouped(number(body, "/processes"));
    let left = match number(body, "/left") {
        none if none == 0 => "consistent".to_owned(),
        left => count(left, "disagreement"),
    };
    writeln!(page, "{left}: {tasks} under way; processes alive: {processes}")
        .expect("writing to memory does not fail");
    page
}
