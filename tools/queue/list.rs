//! Read-only commands: they show queues, jobs and their states, and name a queue with a ready job.

use crate::client;
use crate::client::{Fields, fields};
use crate::queue::answer::{ClientOptions, success};
use crate::queue::command::name;
use crate::queue::job::{print_body, until};
use crate::report::{Failure, print, shows_whole, tell};
use crate::table::{Column, table};
use crate::text::{grouped, last_line, number, plain, required, span, words};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use sexton::actors::queue::QueueName;

/// The maximum number of items per request.
const PAGE: u64 = 1000;

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
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Delayed => "delayed",
            Self::Claimed => "claimed",
            Self::Retrying => "retrying",
            Self::Buried => "buried",
            Self::Abandoned => "abandoned",
            Self::Quarantined => "quarantined",
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
    /// Reads up to `limit` items of a list, page by page. Also returns where the list continues, or null at its end.
    fn all(
        &self,
        (path, member): (&str, &str),
        query: &Fields,
        limit: u64,
    ) -> Result<(Vec<Value>, Value), Failure> {
        let mut found: Vec<Value> = Vec::new();
        let mut next = Value::Null;
        loop {
            let left = limit - found.len() as u64;
            let mut query = query.clone();
            query.insert("limit".to_owned(), left.min(PAGE).to_string().into());
            if !next.is_null() {
                query.insert("after".to_owned(), next);
            }
            let mut body = success(&self.get(path, &query)?)?;
            next = body.get_mut("next").map_or(Value::Null, Value::take);
            if let Some(Value::Array(some)) = body.get_mut(member).map(Value::take) {
                found.extend(some);
            }
            if next.is_null() || found.len() as u64 >= limit {
                return Ok((found, next));
            }
        }
    }

    /// Reads all queues of a type, or all queues.
    pub(super) fn of_type(&self, kind: Option<&str>) -> Result<Vec<Value>, Failure> {
        let query = fields([("type", json!(kind))]);
        Ok(self.all(("", "queues"), &query, u64::MAX)?.0)
    }

    /// Reads queues by name. A queue that does not exist has no jobs, and is left out.
    pub(super) fn named(&self, queues: &[QueueName]) -> Result<Vec<Value>, Failure> {
        let mut found = Vec::new();
        for queue in queues {
            let answer = self.get("/queue", &fields([("queue", json!(queue))]))?;
            if answer.status != 404 {
                found.push(success(&answer)?);
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
            let is_asked = |queue: &Value| {
                let wanted = self.r#type.as_deref();
                wanted.is_none_or(|wanted| words(queue, "/type") == wanted)
            };
            named.into_iter().filter(is_asked).collect()
        };
        queues.sort_by_cached_key(|queue| words(queue, "/queue"));
        let ready = total(&queues, "ready")?;
        if options.json {
            return print(&format!("{}\n", json!({ "ready": ready, "queues": queues })));
        }
        if self.group {
            let lines: String = queues.iter().filter_map(group).collect();
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
        let status = self.status.map(Status::word);
        let query = fields([
            ("type", json!(self.r#type)),
            ("phase", json!(status)),
            ("error", json!(self.error)),
        ]);
        let path = ("/jobs", "jobs");
        let (mut jobs, mut next) = (Vec::new(), Value::Null);
        if self.queues.is_empty() {
            (jobs, next) = options.all(path, &query, self.limit)?;
        }
        for queue in &self.queues {
            let left = self.limit - jobs.len() as u64;
            if left == 0 {
                // The remaining queues are not read, so there may be more jobs. Any value of `next` but null indicates that.
                next = json!("0");
                break;
            }
            let mut query = query.clone();
            query.insert("queue".to_owned(), json!(queue));
            let (some, more) = options.all(path, &query, left)?;
            jobs.extend(some);
            next = more;
        }
        jobs.sort_by_key(|job| number(job, "/id"));
        if options.json {
            let is_all = next.is_null();
            return print(&format!("{}\n", json!({ "jobs": jobs, "all": is_all })));
        }
        if jobs.is_empty() {
            print("no jobs\n")?;
            return self.note_absent(options);
        }
        print(&job_table(&jobs))?;
        more(&next, self.limit)
    }
}

/// Returns the number of jobs of these queues that are in a phase; an error if the coordinator did not send it for each.
pub(super) fn total(queues: &[Value], phase: &str) -> Result<u64, Failure> {
    let path = format!("/{phase}");
    queues.iter().map(|queue| required(queue, &path)).sum()
}

/// Prints how many jobs will be ready later, on standard error, so that a script still reads a single number from standard output.
fn tell_later(queues: &[Value]) {
    let later = ["retrying", "delayed"].into_iter();
    let later = later.filter_map(|phase| Some((total(queues, phase).ok()?, phase)));
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
fn group(queue: &Value) -> Option<String> {
    let of = |phase: &str| number(queue, &format!("/{phase}"));
    let [ready, claimed, delayed] = ["ready", "claimed", "delayed"].map(of);
    let others = ["retrying", "buried", "abandoned", "quarantined"].map(|phase| (phase, of(phase)));
    let others = others.iter().filter(|(_, count)| *count > 0);
    let others = others.map(|(phase, count)| format!("; {count} {phase}"));
    let others = others.collect::<Vec<_>>().concat();
    if ready + claimed + delayed == 0 && others.is_empty() {
        return None;
    }
    let queue = words(queue, "/queue");
    Some(format!("{queue}: {ready} queued; {claimed} claimed; {delayed} delayed{others}\n"))
}

/// Describes the state of a job.
fn phase(job: &Value) -> String {
    if job.pointer("/fencing") == Some(&Value::Bool(true)) {
        return "fencing".to_owned();
    }
    if job.pointer("/cancelled") == Some(&Value::Bool(true)) {
        return "cancelled".to_owned();
    }
    words(job, "/phase")
}

/// Returns the last line of the last error of a job, cut as [`shown`] does.
fn last_error(job: &Value) -> String {
    let text = job.pointer("/error").and_then(Value::as_str);
    let line = text.map(last_line).unwrap_or_default();
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
fn error(job: &Value) -> Option<String> {
    let text = job.pointer("/error").and_then(Value::as_str)?;
    let lines: Vec<String> = text.lines().map(plain).collect();
    Some(lines.join(" / "))
}

/// Formats the progress of a job, as reported by its worker.
fn progress(job: &Value) -> String {
    let percent = job.pointer("/percent").and_then(Value::as_u64);
    let percent = percent.map(|percent| format!("{percent} %"));
    let report = job.pointer("/report").and_then(Value::as_str).map(plain);
    let parts: Vec<String> = percent.into_iter().chain(report).collect();
    parts.join(" ")
}

fn job_table(jobs: &[Value]) -> String {
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
    let rows = jobs.iter().map(|job| {
        [
            words(job, "/id"),
            words(job, "/queue"),
            phase(job),
            words(job, "/priority"),
            words(job, "/attempts"),
            span(number(job, "/age_ms")),
            left(job, "/claimed_ms"),
            left(job, "/remaining_ms"),
            words(job, "/bytes"),
            words(job, "/process"),
            shown(&progress(job)),
            last_error(job),
        ]
    });
    table(heads, rows)
}

impl QueueStatistics {
    pub(super) fn run(self, options: &ClientOptions) -> Result<(), Failure> {
        let (mut queues, mut next) = (Vec::new(), Value::Null);
        if self.queues.is_empty() {
            let query = fields([("tenant", json!(self.tenant)), ("type", json!(self.r#type))]);
            (queues, next) = options.all(("", "queues"), &query, self.limit)?;
        } else {
            queues.extend(options.named(&self.queues)?);
        }
        // Each page is sorted, but the list as a whole is not.
        queues.sort_by_cached_key(|queue| words(queue, "/queue"));
        if options.json {
            let is_all = next.is_null();
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
        let rows = queues.iter().map(|queue| {
            let count = |field: &str| grouped(number(queue, field));
            [
                words(queue, "/queue"),
                count("/ready"),
                count("/delayed"),
                count("/claimed"),
                count("/retrying"),
                count("/buried"),
                count("/abandoned"),
                count("/quarantined"),
                count("/waiting"),
                count("/deletes"),
                left(queue, "/paused_ms"),
            ]
        });
        print(&table(heads, rows))?;
        more(&next, self.limit)?;
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

/// Formats the number of milliseconds at `path` as a time span; `-` if there is none.
fn left(value: &Value, path: &str) -> String {
    let ms = value.pointer(path).and_then(Value::as_u64);
    ms.map_or("-".to_owned(), span)
}

fn more(next: &Value, limit: u64) -> Result<(), Failure> {
    if next.is_null() {
        return Ok(());
    }
    print(&format!("there are more: --limit is {limit}\n"))
}

impl NextQueue {
    pub(super) fn run(self, options: &ClientOptions) -> Result<(), Failure> {
        let types = self.types.join(",");
        let answer = options.get("/next", &fields([("types", json!(types))]))?;
        if answer.status == 404 {
            // Prints nothing: the exit status is the answer.
            return Err(Failure::found(""));
        }
        let page = |body: &Value| format!("{}\n", words(body, "/queue"));
        options.tell(&answer, page).map(drop)
    }
}

/// Prints a job and its body.
pub(super) fn peek(options: &ClientOptions, id: u64) -> Result<(), Failure> {
    let answer = options.get("/job", &fields([("id", json!(id.to_string()))]))?;
    let body = options.tell(&answer, |body| {
        let token = match body.pointer("/token") {
            None | Some(Value::Null) => String::new(),
            Some(token) => format!(", token {token}"),
        };
        let token = match body.pointer("/process").and_then(Value::as_str) {
            None => token,
            Some(process) => format!("{token}, process {process}"),
        };
        let error = error(body).map_or(String::new(), |text| format!("last error: {text}\n"));
        let done = Some(progress(body)).filter(|it| !it.is_empty());
        let done = done.map_or(String::new(), |text| format!("done: {text}\n"));
        format!(
            "{} {}  {}{}{token}, priority {}, tries {}, {} old\n{done}{error}",
            number(body, "/id"),
            words(body, "/queue"),
            phase(body),
            until(body),
            number(body, "/priority"),
            number(body, "/attempts"),
            span(number(body, "/age_ms")),
        )
    })?;
    if options.json {
        return Ok(());
    }
    print_body(&body)
}
