//! Commands on all jobs that match a filter.

use crate::progress::Progress;
use crate::queue::answer::ClientOptions;
use crate::queue::command::name;
use crate::queue::list::{Status, total};
use crate::report::{Failure, print, tell};
use crate::text::count;
use clap::{ArgGroup, Args};
use serde_json::json;
use sexton_api::queue::{self, BulkSelection, QueueName};
use sexton_api::value::Number;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Make abandoned, quarantined and buried jobs ready again
///
/// A job is abandoned when it has been tried too often, and quarantined when it has crashed too often. The jobs start over as if they had never been tried. With --status, jobs in
/// that state are made ready instead. For a single job, use `sexton queue kick --id ID`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton queue retry mails                       all that are abandoned, quarantined or buried
  sexton queue retry mails --error 'timed out'   jobs that failed with this error
  sexton queue retry --type mails --status retrying
                                                 in all tenants, without waiting for the next try")]
pub(super) struct Retry {
    #[command(flatten)]
    which: JobSelector,
}

/// Delete abandoned, quarantined and buried jobs
///
/// A job is abandoned when it has been tried too often, and quarantined when it has crashed too often. With --status, deletes jobs in that state instead. Claimed jobs are left alone.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton queue discard mails                     all that are abandoned, quarantined or buried
  sexton queue discard mails --error 'no such user'
  sexton queue discard mails --status ready      all unclaimed jobs")]
pub(super) struct Discard {
    #[command(flatten)]
    which: JobSelector,
}

#[derive(Args)]
#[command(group(ArgGroup::new("where").args(["queue", "type", "all"]).required(true)))]
struct JobSelector {
    /// Only jobs of this queue
    #[arg(value_parser = name)]
    queue: Option<QueueName>,
    /// Only jobs of this type, in every tenant
    #[arg(long)]
    r#type: Option<String>,
    /// Jobs of every queue
    #[arg(long)]
    all: bool,
    /// Only jobs in this state [default: abandoned, quarantined and buried jobs]
    #[arg(long)]
    status: Option<Status>,
    /// Only jobs whose last error contains this text
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    error: Option<String>,
    /// The maximum number of jobs to change [default: no limit]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

/// The maximum number of jobs per request.
const SHARE: u32 = 1000;

impl Retry {
    pub(super) fn run(self, options: &ClientOptions) -> Result<(), Failure> {
        self.which.each(options, ("retry", "retried"), |which| {
            let done = options.ask(&queue::Retry(which))?.value;
            Ok((done.retried, done.next))
        })
    }
}

impl Discard {
    pub(super) fn run(self, options: &ClientOptions) -> Result<(), Failure> {
        self.which.each(options, ("discard", "discarded"), |which| {
            let done = options.ask(&queue::Discard(which))?.value;
            Ok((done.discarded, done.next))
        })
    }
}

impl JobSelector {
    fn selection(&self) -> BulkSelection {
        BulkSelection {
            queue: self.queue.clone(),
            r#type: self.r#type.clone(),
            phase: self.status.map(Status::phase),
            error: self.error.clone(),
            ..BulkSelection::default()
        }
    }

    /// Sends requests by `change`, which returns how many jobs one changed and where to continue, until no matching job is left or the limit
    /// is reached, and prints how many jobs were changed.
    fn each(
        &self,
        options: &ClientOptions,
        (what, done): (&str, &'static str),
        change: impl Fn(BulkSelection) -> Result<(u32, Option<u32>), Failure>,
    ) -> Result<(), Failure> {
        let so_far = Arc::new(AtomicU64::new(0));
        let shown = Arc::clone(&so_far);
        let words = move || Some(format!("{done} {}", count(shown.load(Ordering::Relaxed), "job")));
        let progress = Progress::start(words, tell);
        let mut which = self.selection();
        loop {
            let most = self.limit.map_or(u64::MAX, |most| most - so_far.load(Ordering::Relaxed));
            if most == 0 {
                break;
            }
            which.limit = Number(u32::try_from(most).unwrap_or(SHARE).min(SHARE));
            let (some, next) = change(which.clone())?;
            so_far.fetch_add(some.into(), Ordering::Relaxed);
            which.after = next.map(Number);
            if next.is_none() {
                break;
            }
        }
        drop(progress);
        let all = so_far.load(Ordering::Relaxed);
        if let Some(queue) = self.queue.as_ref().filter(|_| all == 0) {
            note_if_absent(options, queue)?;
        }
        if options.json {
            return print(&format!("{}\n", json!({ done: all })));
        }
        print(&format!("{done} {}\n", count(all, "job")))?;
        if all == 0 && self.status.is_none() && self.error.is_none() {
            self.hint(options, what)?;
        }
        Ok(())
    }

    /// Prints how many jobs are retrying or, if none are, how many are delayed, and how to select them: without `--status`, only
    /// abandoned, quarantined and buried jobs are changed. Prints nothing if no job is retrying or delayed.
    fn hint(&self, options: &ClientOptions, what: &str) -> Result<(), Failure> {
        let queues = match &self.queue {
            Some(queue) => options.named(std::slice::from_ref(queue))?,
            None => options.of_type(self.r#type.as_deref())?,
        };
        let found = match (total(&queues, |it| it.retrying), total(&queues, |it| it.delayed)) {
            (0, 0) => return Ok(()),
            (0, delayed) => (delayed, "delayed", "delayed"),
            (retrying, _) => (retrying, "retrying", "waiting to be retried"),
        };
        let (count_of, phase, words) = found;
        let (verb, them) = if count_of == 1 { ("is", "it") } else { ("are", "them") };
        let selected = match (&self.queue, &self.r#type) {
            (Some(queue), _) => format!("{queue} "),
            (None, Some(kind)) => format!("--type {kind} "),
            (None, None) => "--all ".to_owned(),
        };
        let one = if what == "retry" {
            "; `sexton queue kick --id ID` makes one ready"
        } else {
            "; `sexton queue delete ID` deletes one"
        };
        tell(&format!(
            "{} {verb} {words}: `sexton queue {what} {selected}--status {phase}` selects {them}{one}",
            count(count_of, "job"),
        ));
        Ok(())
    }
}

/// Prints a note if the queue does not exist, since its name may be misspelt. If the name is a number, which is probably a job id, fails
/// instead.
fn note_if_absent(options: &ClientOptions, queue: &QueueName) -> Result<(), Failure> {
    if options.queue(queue)?.is_some() {
        return Ok(());
    }
    let words = format!("there is no queue {queue}");
    if queue.as_str().bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Failure::found(words).help(format!(
            "`sexton queue kick --id {queue}` makes job {queue} ready, and `sexton queue delete {queue}` deletes it"
        )));
    }
    tell(&format!(
        "{words}; a queue exists while it has jobs, and `sexton queue stats` shows all queues"
    ));
    Ok(())
}
