//! The flags of `sexton work`.

use crate::client::{self, Reply, Target, Where, fields, instant, rest};
use crate::numbers::between;
use crate::process::{ClientOptions, PARENT, here, plain};
use crate::report::{Failure, print, tell};
use crate::settings::rate_of;
use crate::size::{SIZE, bytes};
use crate::span::{SPAN, milliseconds};
use crate::text::words;
use crate::work::attempt::{Attempts, Bounds};
use crate::work::claim::{Jobs, PAUSE, RETURN_MAX, Source, retry_until_answered};
use crate::work::progress_display;
use crate::work::report::Reports;
use crate::work::runner::{Limits, Runner};
use crate::work::streams::Outlet;
use crate::work::tally::{LogForm, Reached, Tally};
use crate::work::watch::Watched;
use clap::{Args, ValueEnum};
use serde_json::Value;
use sexton::actors::queue::{Message, QueueName};
use sexton::refusal::Reason;
use std::borrow::Cow;
use std::ffi::OsString;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Run a command for each job of some queues
///
/// Claims a job, runs the command with the job's body on standard input, and reports the result: with exit status 0 the job is done, once
/// everything that the command started has also ended; 75 (`EX_TEMPFAIL`) gives the job back to be tried later, which does not count as a
/// try; any other status fails it, with the end of the command's standard error as its error. Exits when no job is ready, unless --wait is
/// given.
///
/// A command may run twice for one job, but never twice at the same time. If this process is killed, its commands keep running: one that
/// ends with exit status 0 then completes its job, and the jobs of the others are given out again. After TERM or INT, this process claims no more jobs, and exits once the commands have
/// ended.
///
/// The environment of the command contains `SEXTON_JOB_ID`, `SEXTON_JOB_QUEUE`, `SEXTON_JOB_TYPE`, `SEXTON_JOB_TENANT`,
/// `SEXTON_JOB_ATTEMPT`, and `SEXTON_JOB_FENCE`, the token of the claim. It can use `sexton job` to report progress, to make the
/// job fail, or to put it back for later.
#[expect(clippy::struct_excessive_bools, reason = "each is a separate flag")]
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton work mails -- ./send                    until no job is ready
  sexton work mails purges --wait --procs 4 -- ./work
  sexton work mails thumbs --any-ready --procs 8 -- ./work
  sexton work mails --any-ready --wait --throttle 2 -- ./send
                                                 of all tenants, at most two jobs per second
  sexton work mails --tenant t1 --max-jobs 100 --max-time 5m --result json -- ./send
  sexton work thumbs --wait --lines --timeout 1m --memory 512MiB -- ./worker.py
  sexton work reports --keep-result 1h -- ./report
                                                 `sexton queue result ID` shows the output of each, for an hour

Exit status: 0 even if jobs failed; 125, 126, 127 the command could not be launched, as for `sexton run`, and its job is given \
back; 3 no coordinator runs there.")]
pub(crate) struct Work {
    /// Types of the jobs to work on; each is the name of a queue, TYPE or TENANT:TYPE
    #[arg(required = true, value_name = "TYPE", value_parser = queue_name)]
    queues: Vec<QueueName>,

    /// Tenant of the queues that are named without one [default: the default tenant]
    #[arg(long)]
    tenant: Option<String>,

    /// Work on jobs of these types of all tenants, taking turns by their weights (`[tenants.NAME]`), regardless of how many jobs
    /// each tenant has
    #[arg(long, conflicts_with = "tenant")]
    any_ready: bool,

    /// Maximum number of commands that run at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = between(1_u16, 1000))]
    procs: u16,

    /// Begin at most this many jobs per second, such as 2 or 0.5, no matter how many run at a time. Unlike the throttle of a type,
    /// this applies to this run alone
    #[arg(long, value_name = "RATE", value_parser = rate_of, default_value = "0", hide_default_value = true)]
    throttle: u32,

    /// Exit after this many jobs
    #[arg(long, value_name = "N", value_parser = between(1, u64::MAX))]
    max_jobs: Option<u64>,

    /// Claim no more jobs after this long; at least one is run
    #[arg(long, value_name = SPAN, value_parser = milliseconds)]
    max_time: Option<u64>,

    /// Wait for jobs instead of exiting when there are none
    #[arg(long)]
    wait: bool,

    /// Claim no more jobs once this process uses 95 % of this much memory; at least one is run
    #[arg(long, value_name = SIZE, value_parser = bytes, default_value = "150M")]
    memory_limit: u64,

    /// Keep each command running for one job after another: it reads jobs and writes answers as lines of JSON on descriptor 3;
    /// see docs/protocols/work.md
    #[arg(long)]
    lines: bool,

    /// How long a command may work on a job before it is stopped with everything it started, and the job fails. `sexton job touch`
    /// and `progress` restart that time
    #[arg(long, value_name = SPAN, value_parser = milliseconds)]
    timeout: Option<u64>,

    /// How long a command may take to exit when it is stopped, before it is killed
    #[arg(long, value_name = SPAN, value_parser = milliseconds, default_value = "10s")]
    grace: u64,

    /// How long running commands may take to exit after a signal before they are killed and their jobs given back [default: no limit]
    #[arg(long, value_name = SPAN, value_parser = milliseconds)]
    finish_within: Option<u64>,

    /// The maximum memory of a command with everything it started, where control groups count it; also the maximum data size of
    /// each of its processes
    #[arg(long, value_name = SIZE, value_parser = bytes)]
    memory: Option<u64>,

    /// The maximum amount of output that a command may write for a job, standard output and standard error together
    #[arg(long, value_name = SIZE, value_parser = bytes)]
    output_max: Option<u64>,

    /// How long to keep the result of each job, at most 30 days; `sexton queue result` shows its exit status and the last 16 KiB
    /// of its standard output
    #[arg(long, value_name = SPAN, value_parser = keep_ms)]
    keep_result: Option<u64>,

    /// Write a line for each job to standard error
    #[arg(long, value_enum, value_name = "FORM")]
    log: Option<LogForm>,

    /// Print a summary, as MediaWiki's runJobs.php does; the output of commands then goes to standard error
    #[arg(long, value_enum, value_name = "FORM")]
    result: Option<Form>,

    /// The id of the parent process
    #[arg(long, value_name = "ID", env = PARENT)]
    parent: Option<String>,

    /// Run the command even if its arguments seem to contain a secret; they are stored unchanged, but masked when shown
    #[arg(long)]
    allow_secrets: bool,

    #[command(flatten)]
    at: Where,

    /// The command and its arguments
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// The format of the summary.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A JSON object
    Json,
}

/// Parses the name of a queue. The error is a message for the user.
fn queue_name(text: &str) -> Result<QueueName, String> {
    QueueName::parse(text.as_bytes()).ok_or_else(|| {
        "a type, and a tenant before it with a colon, is 1 to 200 letters, digits and -+/;.$_(), and does not begin with -"
            .to_owned()
    })
}

/// Returns the queues to claim from: those that are named without a tenant are those of `tenant`. The error is a message for the user.
fn of_tenant(queues: &[QueueName], tenant: Option<&str>) -> Result<Vec<QueueName>, String> {
    let Some(tenant) = tenant else {
        return Ok(queues.to_vec());
    };
    let each = queues.iter().map(|queue| match queue.tenant() {
        b"" => QueueName::of(tenant.as_bytes(), queue.kind())
            .ok_or_else(|| format!("`{tenant}` is not the name of a tenant")),
        own if own == tenant.as_bytes() => Ok(queue.clone()),
        _ => Err(format!(
            "the queue {} is not one of the tenant `{tenant}` that --tenant names: leave one of the two out",
            queue.as_str()
        )),
    });
    each.collect()
}

/// Parses how long to keep a result, and returns it in milliseconds. The error is a message for the user.
fn keep_ms(text: &str) -> Result<u64, String> {
    let ms = milliseconds(text)?;
    if (1..=Message::RESULT_MS_MAX).contains(&ms) {
        Ok(ms)
    } else {
        Err("a result can be kept for 1 ms to 30 days".to_owned())
    }
}

impl Work {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let options = ClientOptions::at(&self.at, false);
        let options = options.or_else(|failure| self.never_began(failure))?;
        if !options.target.is_socket() {
            let words = "`sexton work` runs only on the coordinator's machine: the coordinator must be able to see its processes";
            return Err(
                Failure::usage(words).help("elsewhere, use `sexton queue pop`, `ack` and `fail`")
            );
        }
        let command = plain(&self.command, self.allow_secrets, &here()?)?;
        let source = self.source()?;
        let answer = self.register(&options.target);
        let answer = answer.or_else(|failure| self.never_began(failure))?;
        if answer.is_refused_as(Reason::DiskFull) {
            let mut tally = Tally::new(self.result.is_some());
            tally.reach(Reached::ReadOnly);
            return self.print(&tally);
        }
        let registered = answer.success(|said| Failure::refused(said, &[]))?.value;
        let name = self.command.first().map(|it| it.to_string_lossy().into_owned());
        let attempts = Attempts {
            reports: Reports::listen(&options.target)?,
            jobs: Jobs {
                target: options.target.clone(),
                types: self.types(),
                source,
                own: words(&registered, "/id"),
            },
            options,
            command,
            name: name.unwrap_or_default(),
            idle: self.lines.then(Mutex::default),
            bounds: self.bounds(),
            log: self.log,
            keep_ms: self.keep_result,
            watched: Watched::default(),
            is_halted: AtomicBool::new(false),
        };
        let limits = Limits {
            jobs: self.max_jobs,
            time: self.max_time.map(Duration::from_millis),
            memory: self.memory_limit,
            throttle: self.throttle,
            waits: self.wait,
            finish: self.finish_within.map(Duration::from_millis),
        };
        let tally = Tally::new(self.result.is_some());
        let runner = Runner::new(attempts, limits, tally);
        let shown = progress_display::start(&runner);
        let (mut tally, failure) = runner.run(self.procs)?;
        drop(shown);
        // Treat the types as known if the coordinator can no longer be reached.
        if tally.is_empty() && !runner.attempts.jobs.are_known().unwrap_or(true) {
            tally.is_impossible();
        }
        if self.result.is_some() {
            tally.close(runner.attempts.jobs.backoffs());
        }
        self.print(&tally)?;
        failure.map_or(Ok(()), Err)
    }

    /// Registers this process with the coordinator, and returns the answer, which may be a refusal.
    fn register(&self, target: &Target) -> Result<Reply<Value>, Failure> {
        let asked =
            fields([("type", "orchestrator".into()), ("parent", self.parent.clone().into())]);
        // Workers from the configuration start together with the coordinator, which may not be listening yet.
        let patience = if self.wait { RETURN_MAX } else { Duration::ZERO };
        let register = || client::post(target, "/v1/processes/register", asked.clone());
        let began = instant();
        let mut answer = retry_until_answered(register, Some(patience))?;
        let is_early = || {
            let most = self.max_time.map(Duration::from_millis);
            most.is_none_or(|most| began.elapsed() < most)
        };
        // With --wait, wait until the disk has space, just as for a coordinator that is unavailable.
        if self.wait && answer.is_refused_as(Reason::DiskFull) {
            tell("the coordinator accepts no changes, because its disk is full; waiting for space");
            while answer.is_refused_as(Reason::DiskFull) && is_early() {
                rest(PAUSE);
                answer = retry_until_answered(register, Some(patience))?;
            }
        }
        Ok(answer)
    }

    /// Returns the error of a run that could not begin, after printing the results as JSON if that is requested.
    fn never_began<T>(&self, failure: Failure) -> Result<T, Failure> {
        if self.result.is_some() {
            let mut tally = Tally::new(true);
            tally.reach(Reached::Exception);
            self.print(&tally)?;
        }
        Err(failure)
    }

    fn print(&self, tally: &Tally) -> Result<(), Failure> {
        match self.result {
            Some(Form::Json) => print(&tally.json()),
            None => {
                tell(&tally.line(&self.types()));
                Ok(())
            }
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            time: self.timeout.map(Duration::from_millis),
            grace: Duration::from_millis(self.grace),
            memory: self.memory,
            output: Outlet {
                is_quiet: self.result.is_some(),
                bytes_max: self.output_max,
                // With --lines, the output to keep is part of the command's answers.
                is_kept: self.keep_result.is_some() && !self.lines,
            },
        }
    }

    fn source(&self) -> Result<Source, Failure> {
        if !self.any_ready {
            let queues = of_tenant(&self.queues, self.tenant.as_deref());
            return Ok(Source::Queues(queues.map_err(Failure::usage)?));
        }
        match self.queues.iter().find(|queue| !queue.tenant().is_empty()) {
            Some(queue) => Err(Failure::usage(format!(
                "--any-ready is for the jobs of all tenants, and the queue {} is one of a tenant: leave one of the two out",
                queue.as_str()
            ))),
            None => Ok(Source::AnyTenant),
        }
    }

    /// Returns the types of the jobs to work on.
    fn types(&self) -> Vec<String> {
        let kinds = self.queues.iter().map(|queue| String::from_utf8_lossy(queue.kind()));
        kinds.map(Cow::into_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{of_tenant, queue_name};

    #[test]
    fn a_queue_may_name_its_tenant_but_not_another_than_the_flag() {
        let named = |names: &[&str], tenant| {
            let queues = names.iter().map(|name| queue_name(name).expect("it is valid"));
            let queues = of_tenant(&queues.collect::<Vec<_>>(), tenant)?;
            Ok::<_, String>(queues.iter().map(|it| it.as_str().to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(named(&["a", "t1:b"], None), Ok(vec!["a".to_owned(), "t1:b".to_owned()]));
        let both = Ok(vec!["t1:a".to_owned(), "t1:b".to_owned()]);
        assert_eq!(named(&["a", "t1:b"], Some("t1")), both);
        assert_eq!(named(&["a"], Some("")), Ok(vec!["a".to_owned()]));
        for tenant in ["t2", "", "a b"] {
            assert!(named(&["a", "t1:b"], Some(tenant)).is_err(), "{tenant}");
        }
        assert!(queue_name("a:b:c").is_err());
    }
}
