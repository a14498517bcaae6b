//! `sexton audit`: whether what a running coordinator holds agrees, and with what the machine shows.

use crate::client::{self, Where};
use crate::report::{Failure, print_said};
use crate::text::{count, grouped, number, words};
use clap::Args;
use serde_json::Value;
use sexton::refusal::Reason;
use std::fmt::Write as _;
use std::time::Duration;

/// How long an audit may take: what does not agree is looked at again for some of them, twice with --fix.
const PATIENCE: Duration = Duration::from_mins(1);

/// What to do about a refusal.
const HELPS: &[(Reason, &str)] = &[(
    Reason::OutOfScope,
    "run it as the user that the coordinator runs as, on its machine, or over TCP with a token of the scope run",
)];

/// It could not be looked: neither that all agrees, nor that something does not.
const UNSEEN: u8 = 2;

/// Compare what a coordinator holds: tasks, processes, locks, servers and claims with each other, and with the machine.
///
/// Everything is put right by events as they come, so all should agree at any time, and nothing found is the usual case. What
/// does not agree at a first look is looked at again for up to four seconds, and reported if it differs each time.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton audit && echo all agrees
  sexton audit --fix                 and do what an event would have done that was lost
  sexton audit --json | jq '.found[].words'

Exit status: 0 all agrees, or does after --fix; 1 something does not; 2 it could not be looked, or wrong flags.")]
pub(crate) struct Audit {
    /// Report an end to an actor again, release a lock, stop a process that no record names: what stands with each line
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
        let said = self.ask().map_err(|failure| {
            let unseen = Failure::of_command(UNSEEN, failure.words());
            match failure.advice() {
                Some(advice) => unseen.help(advice),
                None => unseen,
            }
        })?;
        print_said(self.json, &said, page)?;
        if number(&said, "/left") == 0 {
            Ok(())
        } else {
            // The lines above say it.
            Err(Failure::found(""))
        }
    }

    fn ask(&self) -> Result<Value, Failure> {
        let target = self.at.target()?;
        if self.fix {
            client::post(&target, "/v1/audit/fix", PATIENCE)?.well(HELPS)
        } else {
            client::get(&target, "/v1/audit")?.well(HELPS)
        }
    }
}

/// A line for each disagreement, and one for all.
fn page(said: &Value) -> String {
    let mut page = String::new();
    let found = said.pointer("/found").and_then(Value::as_array);
    for it in found.into_iter().flatten() {
        let mend = match it.pointer("/fix").and_then(Value::as_str) {
            Some(mend) if it.pointer("/fixed") == Some(&true.into()) => format!("done: {mend}"),
            Some(mend) => format!("--fix: {mend}"),
            None => "--fix does nothing about it".to_owned(),
        };
        let (kind, words) = (words(it, "/kind"), words(it, "/words"));
        writeln!(page, "{kind}: {words}; {mend}").expect("a string takes all");
    }
    let tasks = count(number(said, "/tasks"), "task");
    let processes = grouped(number(said, "/processes"));
    let left = match number(said, "/left") {
        0 => "all agrees".to_owned(),
        left => count(left, "disagreement"),
    };
    writeln!(
        page,
        "{left}: {tasks} under way; processes alive: {processes}"
    )
    .expect("a string takes all");
    page
}
