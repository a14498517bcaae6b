//! Commands on single jobs: add, claim, finish, release. Spans on the command line are in seconds unless they have a unit, and may be
//! fractional.

use crate::client;
use crate::numbers;
use crate::numbers::between;
use crate::queue::answer::{ClientOptions, JOB_BYTES};
use crate::queue::batch;
use crate::queue::command::name;
use crate::report::{Failure, print, print_bytes, tell};
use crate::span::{SPAN, milliseconds, seconds};
use crate::text::{count, span};
use clap::{ArgGroup, Args, ValueEnum};
use sexton_api::binding::Extent;
use sexton_api::bytes::Bytes;
use sexton_api::ids::Token;
use sexton_api::job::JobText;
use sexton_api::job::{self, AnyQueue, Changed, Claim, Pop, Push, RootJob, Touch};
use sexton_api::queue::{Phase, QueueName};
use sexton_api::refusal::Reason;
use sexton_api::request::Request;
use sexton_api::value::{self, List, Number};
use std::fmt;
use std::io::Read as _;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

/// The maximum value of `--wait`, in seconds.
const WAIT_MAX: u64 = 3600;

/// A span of time, as parsed from the command line and printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    ms: u64,
}

impl Span {
    pub(super) const fn ms(self) -> u64 {
        self.ms
    }

    /// Returns the span as the field of a request.
    pub(super) const fn number(self) -> value::Span {
        Number(self.ms)
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        milliseconds(text).map(|ms| Self { ms })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ms.is_multiple_of(1000) {
            f.write_str(&span(self.ms))
        } else {
            write!(f, "{} ms", self.ms)
        }
    }
}

/// Add a job, or a batch of jobs
///
/// Prints the job's id or, for a batch, one id per line. Without a body, or with `-`, the body is read from standard input; it may
/// contain any bytes.
#[derive(Args)]
#[command(group(ArgGroup::new("which").args(["queue", "batch"]).required(true).multiple(true)), after_help = "\
Examples:
  sexton queue push mails 'to: ann'
  sexton queue push t1:purges --delay 0.5 < job.json
  sexton queue push mails 'to: ann' --dedup ann  only if no such job is waiting
  sexton queue push mails 'to: ann' --dedup ann --unique-for 10m
                                                 and no other one for ten minutes, even after it is done
  sexton queue push mails --batch jobs.jsonl     the jobs of a file: one per line, such as
                                                 {\"body\": \"to: ann\", \"priority\": 5}
  sexton queue push purges page --root page-7@20261122 --is-root
                                                 makes earlier purges of page-7 superfluous")]
pub(super) struct Pushed {
    /// The queue to add to; with --batch, for the jobs that name no queue themselves
    #[arg(value_parser = name)]
    queue: Option<QueueName>,
    /// The body; `-` reads it from standard input
    #[arg(default_value = "-", allow_hyphen_values = true)]
    body: String,
    /// Add the jobs of this file; `-` for standard input. One job per line, in JSON, with the fields of `POST /v1/queues/push`. They are
    /// added in their order, in parts of at most 1,000 jobs and about 100 kB; of each part, all jobs are added or none
    #[arg(long, value_name = "FILE", conflicts_with_all = ["body", "priority", "delay", "ttr", "dedup", "unique_for", "once", "root"])]
    batch: Option<PathBuf>,
    /// With --batch, add all jobs or none; they must fit in one request
    #[arg(long, requires = "batch")]
    atomic: bool,
    /// The priority; 0 is the most urgent, and every value below 1024 counts as urgent
    #[arg(long, default_value_t = 1024, value_parser = between(0, u32::MAX))]
    priority: u32,
    /// Seconds until the job is ready
    #[arg(long, value_name = SPAN, default_value = "0")]
    delay: Span,
    /// Seconds that a claim of the job lasts [default: as configured for its type]
    #[arg(long, value_name = SPAN)]
    ttr: Option<Span>,
    /// Deduplication key: while the queue has an unclaimed job with the same key, nothing is added, and that job's id is printed
    #[arg(long, value_name = "KEY")]
    dedup: Option<String>,
    /// How long no other job is added with the same key, even after this job is done. The key is that of --dedup or, without it,
    /// derived from the body
    #[arg(long, value_name = SPAN, value_parser = remembered)]
    unique_for: Option<u64>,
    /// Run the job at most once: when its claim ends, so does the job, unless the worker gives the job back with `release` or `defer`
    #[arg(long)]
    once: bool,
    /// The root job that this job comes from: a signature that all jobs of the same origin share, and the time of the root job, as a
    /// number; larger numbers are newer
    #[arg(long, value_name = "SIGNATURE@TIME", value_parser = root)]
    root: Option<(String, u64)>,
    /// How many items of work the job counts as when its queue is throttled
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "batch")]
    items: u32,
    /// Add the root job itself: jobs of older roots with the same signature become superfluous
    #[arg(long, requires = "root")]
    is_root: bool,
}

/// Parses how long a key is remembered, and returns milliseconds, at least 1. The error is a message for the user.
fn remembered(text: &str) -> Result<u64, String> {
    match milliseconds(text)? {
        0 => Err("a key is remembered for at least 1 ms".to_owned()),
        ms => Ok(ms),
    }
}

/// Parses a root job, given as `SIGNATURE@TIME`. The signature must not be empty, and may itself contain `@`. The error is a message for
/// the user.
fn root(text: &str) -> Result<(String, u64), String> {
    let parts = text.rsplit_once('@').filter(|(name, _)| !name.is_empty());
    let root = parts.and_then(|(name, at)| Some((name.to_owned(), at.parse().ok()?)));
    root.ok_or_else(|| "expected SIGNATURE@TIME, such as page-7@20261122".to_owned())
}

impl Pushed {
    pub(super) fn run(self, options: &ClientOptions) -> Result<(), Failure> {
        if let Some(file) = &self.batch {
            return batch::push(options, file, (self.queue.as_ref(), self.atomic));
        }
        let body = if self.body == "-" {
            let mut body = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut body);
            read.map_err(|error| {
                Failure::unreachable(format!("failed to read standard input: {error}"))
            })?;
            body
        } else {
            self.body.into_bytes()
        };
        let bytes = body.len() as u64;
        let asked = Push {
            queue: self.queue.expect("a queue should be required without a batch"),
            body: Bytes::new(body),
            priority: Number(self.priority),
            delay_ms: Number(self.delay.ms()),
            ttr_ms: Number(self.ttr.map_or(0, Span::ms)),
            dedup: self.dedup,
            unique_for_ms: Number(self.unique_for.unwrap_or(0)),
            retries: !self.once,
            root: self.root.map(|(signature, at)| RootJob { signature, at }),
            is_root: self.is_root,
            items: Number(self.items),
        };
        let reply = client::ask(&options.target, &asked)?;
        if reply.is_refused_as(Reason::TooLarge) {
            // The coordinator refused the request unread, and its message is about the size of the whole request. Print the size of the
            // body instead.
            let words =
                format!("not done: the body is longer than allowed, at {}", count(bytes, "byte"));
            return Err(Failure::found(words).help(JOB_BYTES));
        }
        let page = |said: &job::Pushed| {
            let id = said.id;
            if !said.new {
                let why =
                    if self.unique_for.is_some() { "was added before" } else { "already exists" };
                tell(&format!("nothing was added: job {id} {why}"));
            }
            format!("{id}\n")
        };
        let said = options.tell(reply, page)?;
        if let Some(phase @ (Phase::Buried | Phase::Abandoned | Phase::Quarantined)) = said.phase {
            // The job counts as added, but nobody will work on it.
            let (id, phase) = (said.id, phase.word());
            let words =
                format!("nothing was added, and job {id}, which has the same key, is {phase}");
            return Err(Failure::found(words).help(format!(
                "`sexton queue kick --id {id}` tries it again; `sexton queue delete {id}` deletes it, after which another one can be added"
            )));
        }
        Ok(())
    }
}

/// Claim the most urgent job of some queues
///
/// Prints the job's id and the token of the claim, which `ack` and the other commands require, and below them the body. The client
/// that has the token holds the claim. A claim that is not renewed or ended in time expires, and the job is ready again. If this
/// command is interrupted while it waits, no job is claimed for it; if the coordinator restarts meanwhile, the wait continues.
#[derive(Args)]
#[command(group(ArgGroup::new("which").args(["queues", "any"]).required(true)), after_help = "\
Examples:
  sexton queue pop mails                         exit status 1 if no job is ready
  sexton queue pop mails purges --wait 600
  sexton queue pop --any --except mails          from queues of any other type
  sexton queue pop --any --types mails,thumbs    from the tenant whose turn it is
  sexton queue pop mails --claim 600             for work that takes longer than usual for its type
  sexton queue pop mails=3 purges                while both have jobs, three mails for each purge
  sexton queue pop mails --process 0199a1b2      released when that process and everything it started have ended
  sexton queue pop mails --json | jq -r '.jobs[0] | \"\\(.id) \\(.token)\"'")]
pub(super) struct Popped {
    /// The queues. If any has a weight after `=`, a queue is picked at random, in proportion to the weights (1 if not given), from
    /// those that have a ready job
    #[arg(num_args = 1..=1000, value_parser = weighed, value_name = "QUEUE[=WEIGHT]")]
    queues: Vec<(QueueName, Option<NonZeroU32>)>,
    /// Claim from any queue that has a job, taking turns between tenants according to their weights; types that must be named
    /// (`in_any = false`) are left out
    #[arg(long, conflicts_with = "wait")]
    any: bool,
    /// With --any: only queues of this tenant; empty for the default one
    #[arg(long, requires = "any")]
    tenant: Option<String>,
    /// With --any: no queues of these types, separated by commas
    #[arg(long, requires = "any", value_name = "TYPES", value_delimiter = ',')]
    except: Vec<String>,
    /// With --any: only queues of these types, separated by commas; types that must be named are allowed too
    #[arg(
        long,
        requires = "any",
        conflicts_with = "except",
        value_name = "TYPES",
        value_delimiter = ','
    )]
    types: Vec<String>,
    /// How long to wait for a job: whole seconds, or a form such as 90s or 5m
    #[arg(long, value_name = SPAN, default_value = "0", value_parser = seconds(0, WAIT_MAX))]
    wait: u64,
    /// Seconds that each claim lasts [default: as pushed, or as configured for the type, or 60]
    #[arg(long, value_name = SPAN)]
    claim: Option<Span>,
    #[command(flatten)]
    bound: BoundTo,
    /// The maximum number of jobs to claim; if this command has to wait for a job, it claims only one
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=100))]
    count: u8,
}

impl Popped {
    pub(super) fn run(self, options: &ClientOptions) -> Result<(), Failure> {
        let (queues, weights): (Vec<_>, Vec<_>) = self.queues.into_iter().unzip();
        let any = weights.iter().any(Option::is_some);
        let weights = weights.into_iter().map(|weight| weight.map_or(1, u32::from));
        let weights = weights.map(Number).collect();
        let types = self.types.iter().map(|kind| name(kind).map_err(Failure::usage));
        let types: Vec<QueueName> = types.collect::<Result<_, _>>()?;
        let types = (!types.is_empty()).then_some(List(types));
        let any_of = AnyQueue { tenant: self.tenant, except: self.except, types };
        let asked = self.bound.pop(Pop {
            queues: (!self.any).then_some(List(queues)),
            any: self.any.then_some(any_of),
            weights: any.then_some(List(weights)),
            count: Number(self.count.into()),
            claim_ms: Number(self.claim.map_or(0, Span::ms)),
            ..Pop::default()
        });
        let reply = if self.wait == 0 {
            client::ask(&options.target, &asked)?
        } else {
            client::wait(&options.target, &asked, self.wait)?
        };
        let said = options.tell(reply, |_| String::new())?;
        if said.jobs.is_empty() {
            return Err(Failure::found("there is no job to claim").help(
                "`--wait 10m` waits for one; `sexton queue stats` shows the states of jobs",
            ));
        }
        if options.json {
            return Ok(());
        }
        said.jobs.iter().try_for_each(print_claim)
    }
}

/// Parses the name of a queue, optionally with a weight. Names cannot contain `=`.
fn weighed(text: &str) -> Result<(QueueName, Option<NonZeroU32>), String> {
    let Some((queue, weight)) = text.split_once('=') else {
        return Ok((name(text)?, None));
    };
    let weight = weight.parse();
    let weight = weight.map_err(|_| format!("a weight must be from 1 to {}", u32::MAX))?;
    Ok((name(queue)?, Some(weight)))
}

/// Prints a claimed job: a line about the claim, then the body.
fn print_claim(job: &Claim) -> Result<(), Failure> {
    let newer = if job.duplicate { ", a duplicate" } else { "" };
    let left = job.remaining_ms.map(|ms| format!("{} left", span(ms)));
    let left = left.unwrap_or_else(|| "until its process ends".to_owned());
    let Claim { id, token, queue, attempts, .. } = job;
    print(&format!("{id} {token}  {queue}, try {attempts}, {left}{newer}\n"))?;
    print_body(&job.text)
}

/// Prints the body of a job, and a line break if it does not end with one.
pub(super) fn print_body(text: &JobText) -> Result<(), Failure> {
    let mut bytes = text.body.as_bytes().to_vec();
    if !bytes.ends_with(b"\n") {
        bytes.push(b'\n');
    }
    print_bytes(&bytes)
}

/// The flags that bind claims to a process.
#[derive(Args)]
pub(super) struct BoundTo {
    /// Bind the claim to this process, given by its id or the first digits of it: when the process ends, so does the claim. A claim
    /// bound by `pop` does not expire unless --claim is given
    #[arg(long, value_name = "ID")]
    process: Option<String>,
    /// What has to end before a bound claim ends [default: tree]
    #[arg(long, value_enum, requires = "process")]
    release: Option<ReleaseExtent>,
    /// When the claim expires, kill that process and everything it started; only then can the job be claimed again
    #[arg(long, requires = "process")]
    kill_before_grant: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum ReleaseExtent {
    /// The process itself
    Process,
    /// The process and everything it started
    Tree,
}

impl BoundTo {
    fn extent(&self) -> Extent {
        match self.release {
            Some(ReleaseExtent::Process) => Extent::Process,
            Some(ReleaseExtent::Tree) | None => Extent::Tree,
        }
    }

    /// Adds the flags to a request for jobs.
    fn pop(self, asked: Pop) -> Pop {
        let (release, kill_before_grant) = (self.extent(), self.kill_before_grant);
        Pop { process: self.process, release, kill_before_grant, ..asked }
    }

    /// Returns the request that renews a claim or binds it.
    pub(super) fn touch(self, of: &ClaimSelector) -> Touch {
        Touch {
            id: of.id,
            token: Token(of.token),
            release: self.extent(),
            process: self.process,
            kill_before_grant: self.kill_before_grant,
            command: None,
            claim_ms: Number(0),
            completes: false,
        }
    }
}

/// Selects a claim.
#[derive(Args)]
pub(super) struct ClaimSelector {
    /// The job's id
    #[arg(value_parser = numbers::job)]
    pub(super) id: u64,
    /// The token of its claim
    #[arg(value_parser = numbers::token)]
    pub(super) token: u64,
}

/// Sends a request about a claimed job, and prints the state of the job.
pub(super) fn change<R: Request<Answer = Changed>>(
    options: &ClientOptions,
    asked: &R,
) -> Result<(), Failure> {
    options.act(asked, |it| match it.phase {
        None => "ended: it runs at most once\n".to_owned(),
        Some(phase) => format!("{}{}\n", phase.word(), until(it.remaining_ms)),
    })
}

/// Formats how long a job remains in its state, to be appended to the state; empty if there is no limit.
pub(super) fn until(remaining_ms: Option<u64>) -> String {
    remaining_ms.map_or_else(String::new, |ms| format!(", {} left", span(ms)))
}

/// Release a claimed job
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton queue release 17 4711
  sexton queue release 17 4711 --delay 60")]
pub(super) struct Release {
    #[command(flatten)]
    done: ClaimSelector,
    /// Seconds until the job is ready
    #[arg(long, value_name = SPAN, default_value = "0")]
    delay: Span,
    /// The new priority; 0 is the most urgent [default: unchanged]
    #[arg(long, value_parser = between(0, u32::MAX))]
    priority: Option<u32>,
}

impl Release {
    pub(super) fn run(self, options: &ClientOptions) -> Result<(), Failure> {
        let (id, token) = (self.done.id, Token(self.done.token));
        let delay_ms = Number(self.delay.ms());
        change(options, &job::Release { id, token, delay_ms, priority: self.priority })
    }
}

#[cfg(test)]
mod tests {
    use super::Span;

    #[test]
    fn spans_are_seconds() {
        for (text, ms, shown) in [
            ("0", 0, "0 s"),
            ("90", 90_000, "1 min 30 s"),
            ("0.5", 500, "500 ms"),
            ("1.25", 1250, "1250 ms"),
        ] {
            let span: Span = text.parse().expect("the text is a span");
            assert_eq!((span.ms(), span.to_string().as_str()), (ms, shown));
        }
        for wrong in ["", "x", "-1", "1.", ".5", "1.2345", "1e3", "99999999999999999999"] {
            assert!(wrong.parse::<Span>().is_err(), "{wrong}");
        }
    }
}
