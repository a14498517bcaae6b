//! Read-only commands: they show queues, jobs and their states, and name a queue with a ready job.

use crate::client::{self, Answered, Item, Part, unreadable, written};
use crate::queue::answer::{ClientOptions, refused, success};
use crate::queue::command::name;
use crate::queue::job::{print_body, until};
use crate::report::{Failure, print, shows_whole, tell};
use crate::table::{Column, table};
use crate::text::{grouped, last_line, number, or_dash, plain, span};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use sexton_api::list::After;
use sexton_api::queue::{
    GetJob, Job, JobWithBody, Jobs, List, ListJobs, Next, Phase, Queue, QueueName, Queues,
};
use sexton_api::refusal::Reason;

/// The maximum number of characters that a list on a terminal shows of a job's progress, and of the last line of its error. `peek` shows the
/// whole texts.
const ERROR_SHOWN: usize = 60;

/// Show how many jobs are ready, or list queues or jobs
///
/// Modelled on MediaWiki's showJobs.php: prints the number of jobs that can be claimed; with --group, a line for each queue that
/// has jobs; with --list, a line for each job. In that list, SINCE is how long ago the job was claimed, and PROCESS is the process
/// that its claim is bound to.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton queue show                              how many jobs are ready
  sexton queue show --group                      mails: 3 queued; 2 claimed; 0 delayed; 1 abandoned
  sexton queue show --list --status abandoned
  sexton queue show --list --error 'timed out'   jobs that failed with this error
  sexton queue show --list --type mails --limit 20")]
pub(super) struct ShowQueues {
    /// Only these queues
    #[arg(value_parser = name)]
    queues: Vec<QueueName>,
    /// Print one line per queue
    #[arg(long, conflicts_with = "list")]
    group: bool,
    /// Print one line per job
    #[arg(long)]
    list: bool,
    /// Only jobs of this type, in every tenant
    #[arg(long)]
    r#type: Option<String>,
    /// Only jobs in this state
    #[arg(long, requires = "list")]
    status: Option<Status>,
    /// Only jobs whose last error contains this text
    #[arg(long, requires = "list", value_name = "TEXT", allow_hyphen_values = true)]
    error: Option<String>,
    /// The maximum number of jobs to show
    #[arg(long, default_value_t = 1000, requires = "list", value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
}

/// The state of a job.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Status {
    /// Can be claimed
    #[value(alias = "unclaimed")]
    Ready,
    /// Will be ready later
    Delayed,
    /// Being worked on
    Claimed,
    /// Failed, and will be tried again
    Retrying,
    /// Buried by a client
    Buried,
    /// Tried too often
    Abandoned,
    /// Set aside because it crashed too often
    Quarantined,
}

impl Status {
    pub(super) const fn phase(self) -> Phase {
        match self {
            Self::Ready => Phase::Ready,
            Self::Delayed => Phase::Delayed,
            Self::Claimed => Phase::Claimed,
            Self::Retrying => Phase::Retrying,
            Self::Buried => Phase::Buried,
            Self::Abandoned => Phase::Abandoned,
            Self::Quarantined => Phase::Quarantined,
        }
    }
}

/// Show every queue, and how many of its jobs are in each state
///
/// DONE is the number of jobs completed or deleted since the coordinator was started or, if that was later, since the queue was created.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton queue stats
  sexton queue stats --tenant t1 --json | jq '.queues[].ready'")]
pub(super) struct QueueStatistics {
    /// Only these queues
    #[arg(value_parser = name, conflicts_with_all = ["tenant", "type"])]
    queues: Vec<QueueName>,
    /// Only queues of this tenant; empty for the default one
    #[arg(long)]
    tenant: Option<String>,
    /// Only queues of this type
    #[arg(long)]
    r#type: Option<String>,
    /// The maximum number of queues to show
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
}

/// Name a queue, chosen at random, from which a job can be claimed
///
/// Prints the queue's name as other commands take it; if no queue is ready, prints nothing and exits with 1. Paused queues are never
/// ready.
#[derive(Args)]
#[command(after_help = "\
Examples:
  queue=$(sexton queue next) && sexton queue pop \"$queue\"
  sexton queue next --types mails,purges")]
pub(super) struct NextQueue {
    /// Consider only queues of these types, separated by commas [default: all types]
    #[arg(long, value_delimiter = ',')]
    types: Vec<String>,
}

impl ClientOptions {
    /// Reads up to `most` queues.
    fn queues(&self, asked: &List, most: u64) -> Result<Part<Item<Queue>, After>, Failure> {
        client::all(most, |limit, after| {
            let reply = client::ask(&self.target, &List { limit, after, ..asked.clone() })?;
            let page = reply.read_as::<Queues<Value>>().success(refused)?.value;
            Ok((page.queues, page.next))
        })
    }

    /// Reads up to `most` jobs.
    fn jobs(&self, asked: &ListJobs, most: u64) -> Result<Part<Item<Job>, After>, Failure> {
        client::all(most, |limit, after| {
            let reply = client::ask(&self.target, &ListJobs { limit, after, ..asked.clone() })?;
            let page = reply.read_as::<Jobs<Value>>().success(refused)?.value;
            Ok((page.jobs, page.next))
        })
    }

    /// Reads all queues of a type, or all queues.
    pub(super) fn of_type(&self, kind: Option<&str>) -> Result<Vec<Item<Queue>>, Failure> {
        let asked = List { r#type: kind.map(str::to_owned), ..List::default() };
        Ok(self.queues(&asked, u64::MAX)?.0)
    }

    /// Reads queues by name. A queue that does not exist has no jobs, and is left out.
    pub(super) fn named(&self, queues: &[QueueName]) -> Result<Vec<Item<Queue>>, Failure> {
        let mut found = Vec::new();
        for queue in queues {
            if let Some(Answered { value, body }) = self.queue(queue)? {
                let written = serde_json::from_str(&body).map_err(|error| unreadable(&error))?;
                found.push(Item { it: value, written });
            }
        }
        Ok(found)
    }
}

impl ShowQueues {
    pub(super) fn run(self, options: &ClientOptions) -> Result<(), Failure> {
        if self.list {
            return self.jobs(options);
        }
        let mut queues = if self.queues.is_empty() {
            options.of_type(self.r#type.as_deref())?
        } else {
            let named = options.named(&self.queues)?;
            let is_asked = |queue: &Item<Queue>| {
                let wanted = self.r#type.as_deref();
                wanted.is_none_or(|wanted| queue.it.r#type == wanted)
            };
            named.into_iter().filter(is_asked).collect()
        };
        queues.sort_by_cached_key(|queue| queue.it.queue.clone());
        let ready = total(&queues, |it| it.ready);
        if options.json {
            return print(&format!("{}\n", json!({ "ready": ready, "queues": written(&queues) })));
        }
        if self.group {
            let lines: String = queues.iter().filter_map(|queue| group(&queue.it)).collect();
            print(&lines)?;
        } else {
            print(&format!("{ready}\n"))?;
            if ready == 0 {
                tell_later(&queues);
            }
        }
        self.note_absent(options)
    }

    /// Prints on standard error which of the named queues do not exist.
    fn note_absent(&self, options: &ClientOptions) -> Result<(), Failure> {
        for queue in &self.queues {
            if options.named(std::slice::from_ref(queue))?.is_empty() {
                tell(&format!(
                    "there is no queue {queue}; a queue exists while it has jobs, and `sexton queue stats` shows all queues"
                ));
            }
        }
        Ok(())
    }

    fn jobs(&self, options: &ClientOptions) -> Result<(), Failure> {
        let asked = ListJobs {
            r#type: self.r#type.clone(),
            phase: self.status.map(Status::phase),
            error: self.error.clone(),
            ..ListJobs::default()
        };
        let (mut jobs, mut is_all) = (Vec::new(), true);
        if self.queues.is_empty() {
            let next;
            (jobs, next) = options.jobs(&asked, self.limit)?;
            is_all = next.is_none();
        }
        for queue in &self.queues {
            let left = self.limit - jobs.len() as u64;
            if left == 0 {
                // The remaining queues are not read, so there may be more jobs.
                is_all = false;
                break;
            }
            let asked = ListJobs { queue: Some(queue.clone()), ..asked.clone() };
            let (some, next) = options.jobs(&asked, left)?;
            jobs.extend(some);
            is_all = next.is_none();
        }
        jobs.sort_by_key(|job| job.it.id);
        if options.json {
            return print(&format!("{}\n", json!({ "jobs": written(&jobs), "all": is_all })));
        }
        if jobs.is_empty() {
            print("no jobs\n")?;
            return self.note_absent(options);
        }
        print(&job_table(&jobs))?;
        more(is_all, self.limit)
    }
}

/// Returns the sum of a count over these queues.
pub(super) fn total(queues: &[Item<Queue>], count: impl Fn(&Queue) -> u32) -> u64 {
    queues.iter().map(|queue| u64::from(count(&queue.it))).sum()
}

/// Prints how many jobs will be ready later, on standard error, so that a script still reads a single number from standard output.
fn tell_later(queues: &[Item<Queue>]) {
    let retrying = (total(queues, |it| it.retrying), "retrying");
    let later = [retrying, (total(queues, |it| it.delayed), "delayed")].into_iter();
    let later = later.filter(|(count, _)| *count > 0);
    let later: Vec<String> =
        later.map(|(count, phase)| format!("{} {phase}", grouped(count))).collect();
    if !later.is_empty() {
        let later = later.join(", ");
        tell(&format!("no job is ready; {later}: `sexton queue show --list` shows them"));
    }
}

/// Formats the numbers of a queue's jobs on one line; `None` if it has no jobs. Unlike in MediaWiki, jobs that were tried too often do not
/// count as claimed.
fn group(of: &Queue) -> Option<String> {
    let Queue { queue, ready, claimed, delayed, retrying, buried, abandoned, quarantined, .. } = of;
    let others = [
        (retrying, "retrying"),
        (buried, "buried"),
        (abandoned, "abandoned"),
        (quarantined, "quarantined"),
    ];
    let others = others.iter().filter(|(count, _)| **count > 0);
    let others = others.map(|(count, phase)| format!("; {count} {phase}"));
    let others = others.collect::<Vec<_>>().concat();
    if ready + claimed + delayed == 0 && others.is_empty() {
        return None;
    }
    Some(format!("{queue}: {ready} queued; {claimed} claimed; {delayed} delayed{others}\n"))
}

/// Describes the state of a job.
fn phase(job: &Job) -> &'static str {
    if job.fencing {
        return "fencing";
    }
    if job.cancelled { "cancelled" } else { job.phase.word() }
}

/// Returns the last line of the last error of a job, cut as [`shown`] does.
fn last_error(job: &Job) -> String {
    let line = job.error.as_deref().map(last_line).unwrap_or_default();
    shown(&line)
}

/// Returns the text, on a terminal cut to [`ERROR_SHOWN`].
fn shown(text: &str) -> String {
    if shows_whole() {
        return text.to_owned();
    }
    text.chars().take(ERROR_SHOWN).collect()
}

/// Returns the last error of a job, on one line; `None` if it has none.
fn error(job: &Job) -> Option<String> {
    let lines: Vec<String> = job.error.as_deref()?.lines().map(plain).collect();
    Some(lines.join(" / "))
}

/// Formats the progress of a job, as reported by its worker.
fn progress(job: &Job) -> String {
    let percent = job.percent.map(|percent| format!("{percent} %"));
    let report = job.report.as_deref().map(plain);
    let parts: Vec<String> = percent.into_iter().chain(report).collect();
    parts.join(" ")
}

fn job_table(jobs: &[Item<Job>]) -> String {
    let heads = [
        ("ID", Column::Number),
        ("QUEUE", Column::Words),
        ("STATUS", Column::Words),
        ("PRIORITY", Column::Number),
        ("TRIES", Column::Number),
        ("AGE", Column::Number),
        ("SINCE", Column::Number),
        ("REMAINING", Column::Number),
        ("BYTES", Column::Number),
        ("PROCESS", Column::Words),
        ("DONE", Column::Words),
        ("LAST ERROR", Column::Words),
    ];
    let rows = jobs.iter().map(|Item { it: job, .. }| {
        [
            job.id.to_string(),
            job.queue.to_string(),
            phase(job).to_owned(),
            job.priority.to_string(),
            job.attempts.to_string(),
            span(job.age_ms),
            or_dash(job.claimed_ms.map(span)),
            or_dash(job.remaining_ms.map(span)),
            job.bytes.to_string(),
            or_dash(job.process.clone()),
            shown(&progress(job)),
            last_error(job),
        ]
    });
    table(heads, rows)
}

impl QueueStatistics {
    pub(super) fn run(self, options: &ClientOptions) -> Result<(), Failure> {
        let (mut queues, next) = if self.queues.is_empty() {
            let (tenant, kind) = (self.tenant.clone(), self.r#type.clone());
            options.queues(&List { tenant, r#type: kind, ..List::default() }, self.limit)?
        } else {
            (options.named(&self.queues)?, None)
        };
        let is_all = next.is_none();
        // Each page is sorted, but the list as a whole is not.
        queues.sort_by_cached_key(|queue| queue.it.queue.clone());
        if options.json {
            let queues = written(&queues);
            return print(&format!("{}\n", json!({ "queues": queues, "all": is_all })));
        }
        if queues.is_empty() {
            print("no queues\n")?;
            return self.ended(options);
        }
        let heads = [
            ("QUEUE", Column::Words),
            ("READY", Column::Number),
            ("DELAYED", Column::Number),
            ("CLAIMED", Column::Number),
            ("RETRYING", Column::Number),
            ("BURIED", Column::Number),
            ("ABANDONED", Column::Number),
            ("QUARANTINED", Column::Number),
            ("WAITING", Column::Number),
            ("DONE", Column::Number),
            ("PAUSED", Column::Number),
        ];
        let rows = queues.iter().map(|Item { it, .. }| {
            let count = |count: u32| grouped(u64::from(count));
            [
                it.queue.to_string(),
                count(it.ready),
                count(it.delayed),
                count(it.claimed),
                count(it.retrying),
                count(it.buried),
                count(it.abandoned),
                count(it.quarantined),
                count(it.waiting),
                grouped(it.deletes),
                or_dash(it.paused_ms.map(span)),
            ]
        });
        print(&table(heads, rows))?;
        more(is_all, self.limit)?;
        print(
            "DONE counts jobs completed or deleted since startup, or since the queue was created\n",
        )?;
        self.ended(options)
    }

    /// Prints how many jobs of all queues were done, including those of removed queues, whose own counts are lost. Prints nothing if only
    /// some queues were requested, or if no job was done.
    fn ended(&self, options: &ClientOptions) -> Result<(), Failure> {
        let is_all = self.queues.is_empty() && self.tenant.is_none() && self.r#type.is_none();
        if !is_all {
            return Ok(());
        }
        let answer = client::get(&options.target, "/v1/status")?;
        let ended = number(&success(&answer)?, "/queues/deletes");
        if ended == 0 {
            return Ok(());
        }
        let ended = grouped(ended);
        print(&format!("{ended} done since startup, including those of removed queues\n"))
    }
}

fn more(is_all: bool, limit: u64) -> Result<(), Failure> {
    if is_all {
        return Ok(());
    }
    print(&format!("there are more: --limit is {limit}\n"))
}

impl NextQueue {
    pub(super) fn run(self, options: &ClientOptions) -> Result<(), Failure> {
        let types = self.types.join(",");
        let reply = client::ask(&options.target, &Next { types })?;
        if reply.is_refused_as(Reason::Absent) {
            // Prints nothing: the exit status is the answer.
            return Err(Failure::found(""));
        }
        options.tell(reply, |it| format!("{}\n", it.queue)).map(drop)
    }
}

/// Prints a job and its body.
pub(super) fn peek(options: &ClientOptions, id: u64) -> Result<(), Failure> {
    let reply = client::ask(&options.target, &GetJob { id })?;
    let said = options.tell(reply, |JobWithBody { job, .. }| {
        let token = job.token.map_or_else(String::new, |token| format!(", token {token}"));
        let process = job.process.as_ref();
        let process = process.map_or_else(String::new, |process| format!(", process {process}"));
        let error = error(job).map_or(String::new(), |text| format!("last error: {text}\n"));
        let done = Some(progress(job)).filter(|it| !it.is_empty());
        let done = done.map_or(String::new(), |text| format!("done: {text}\n"));
        format!(
            "{} {}  {}{}{token}{process}, priority {}, tries {}, {} old\n{done}{error}",
            job.id,
            job.queue,
            phase(job),
            until(job.remaining_ms),
            job.priority,
            job.attempts,
            span(job.age_ms),
        )
    })?;
    if options.json {
        return Ok(());
    }
    print_body(&said.text)
}
