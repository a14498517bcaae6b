//! `sexton queue result`: shows how a job ended, as long as its result is kept.

use crate::client::{self, Reply, instant, rest};
use crate::numbers;
use crate::queue::answer::ClientOptions;
use crate::report::{Failure, print, print_bytes, tell};
use crate::span::{SPAN, seconds};
use crate::text::{brief, last_line, plain, span};
use clap::Args;
use sexton_api::job::{Ending, GetResult, JobResult};
use sexton_api::refusal::Reason;
use sexton_api::value::Number;
use std::time::Duration;

/// The maximum value of `--wait`, in seconds.
const WAIT_MAX: u64 = 86_400;

/// The maximum time that one request waits, in seconds. The client's timeout for an answer is longer.
const TURN: u64 = 10;

/// The pause before a request is repeated because the coordinator could not be reached.
const PAUSE: Duration = Duration::from_millis(500);

/// The advice if there is neither a result nor a job with this id.
const HELPS: &[(Reason, &str)] = &[(
    Reason::Absent,
    "results are kept only of jobs that `sexton work --keep-result` runs, and for that long",
)];

/// Show how a job ended, and what it printed
///
/// Works for jobs run by `sexton work --keep-result`, and for jobs whose workers stored a result in another way, as long as the
/// result is kept. Prints the last 16 KiB of the command's standard output unchanged, and how the job ended to standard error.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton queue result 17
  sexton queue result 17 --wait 1m               wait until it has ended
  sum=$(sexton queue result $(sexton queue push sums '1 2') --wait 10)

Exit status: 0 the job is done; 1 it failed, has not ended, or is unknown.")]
pub(super) struct ShowResult {
    /// The job's id
    #[arg(value_parser = numbers::job)]
    id: u64,
    /// How long to wait for the job to end: whole seconds, or a form such as 90s or 5m
    #[arg(long, value_name = SPAN, default_value = "0", value_parser = seconds(0, WAIT_MAX))]
    wait: u64,
}

impl ShowResult {
    pub(super) fn run(self, options: &ClientOptions) -> Result<(), Failure> {
        let reply = self.ask(options)?;
        if options.json {
            print(reply.body())?;
        }
        let said = reply.success(|said| Failure::refused(said, HELPS))?.value;
        if said.status == Ending::Open {
            let words = format!("job {} has not ended", self.id);
            return Err(Failure::found(words).help("`--wait 1m` waits for its end"));
        }
        if !options.json {
            print_bytes(said.text.output.as_bytes())?;
        }
        if said.status != Ending::Done {
            return Err(failed(&said));
        }
        if !options.json {
            tell(&head(&said));
        }
        Ok(())
    }

    /// Repeats the request until the job has ended or the time to wait is over. Once the coordinator has answered, also repeats it while
    /// the coordinator cannot be reached.
    fn ask(&self, options: &ClientOptions) -> Result<Reply<JobResult>, Failure> {
        let (began, mut was_there) = (instant(), false);
        loop {
            let left = self.wait.saturating_sub(began.elapsed().as_secs());
            let turn = left.min(TURN);
            match client::ask(&options.target, &GetResult { id: self.id, wait: Number(turn) }) {
                Ok(reply) if turn == 0 || !is_open(&reply) => return Ok(reply),
                Ok(_) => was_there = true,
                Err(failure) if turn == 0 || !was_there => return Err(failure),
                Err(_) => rest(PAUSE),
            }
        }
    }
}

/// Returns whether the job has not ended.
fn is_open(reply: &Reply<JobResult>) -> bool {
    reply.is_success() && reply.value().is_ok_and(|it| it.status == Ending::Open)
}

/// Returns the failure to print for a job that failed. The message has the last line of the job's error; if the error has several lines,
/// all of them are listed below.
fn failed(said: &JobResult) -> Failure {
    let error = said.error.as_deref().unwrap_or_default();
    let head = head(said);
    let failure = match last_line(error).as_str() {
        "" => Failure::found(head),
        last => Failure::found(format!("{head}: {last}")),
    };
    let lines: Vec<String> = error.trim_end().lines().map(plain).collect();
    if lines.len() > 1 { failure.listing(lines) } else { failure }
}

/// Describes how the job ended, in one line.
fn head(said: &JobResult) -> String {
    let exit = said.exit.map_or_else(String::new, |exit| format!(", exit {exit}"));
    let took = said.took_ms.map_or_else(String::new, |ms| format!(", took {}", brief(ms)));
    let left = said.remaining_ms;
    let left = left.map_or_else(String::new, |ms| format!(", kept for {} more", span(ms)));
    let status = match said.status {
        Ending::Open => "open",
        Ending::Done => "done",
        Ending::Failed => "failed",
    };
    let JobResult { id, queue, attempts, .. } = said;
    format!("job {id} of {queue}: {status}, try {attempts}{exit}{took}{left}")
}
