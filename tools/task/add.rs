//! `sexton task add`: adds a task, a command that runs in bursts.

use crate::client::fields;
use crate::lock::{name, put};
use crate::process::{here, plain, variables};
use crate::report::Failure;
use crate::span::{SPAN, milliseconds, seconds};
use crate::task::inject::Injection;
use crate::task::request::{ClientOptions, WAIT_MAX};
use crate::text::required;
use crate::words;
use clap::{Args, ValueEnum};
use sexton_api::fields::of as written;
use sexton_api::name::Name;
use sexton_api::process::Launch;
use sexton_api::value::Number;
use std::ffi::OsString;

/// Add a task: a command that the coordinator runs when its turn comes
///
/// The task runs on a server with a free thread. At most one task with the same work id runs at a time, and no more tasks of a
/// group than its limit. A task runs in bursts: a command that exits with 0 has completed its task; one that calls `sexton
/// task wait 10m` before it exits is run again after that time, and continues from what it saved.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton task add -- ./import customers.csv
  sexton task add --group mails --priority high -- ./send-newsletter
  sexton task add --work site-7 -- ./deploy site-7    one at a time for site-7
  sexton task add --wait 10m -- ./report              wait until it has ended
  sexton task add --inject within-task:segv -- ./report
                                                      the first attempt dies

The command has these variables in its environment: SEXTON_TASK_ID, SEXTON_TASK_NAME, SEXTON_TASK_GROUP, SEXTON_TASK_WORK, \
SEXTON_TASK_REVISION, SEXTON_TASK_BURST_MS; SEXTON_FENCE, its fencing token; and SEXTON_TASK_ATTEMPT, the number of the attempt, from 1. \
SEXTON_TASK_TERMINATING is 1 in the last burst of a task that is being terminated. The command reports with `sexton task save`, \
`saved`, `heartbeat`, `done`, `wait` and `fail`.

Points of --inject, where the first attempt fails:
  before-parent (1)      the process cannot be created; with :kill, the keeper
                         is killed
  within-parent (1)      the process is created, but cannot execute its program
  before-child (1)       the program of the command does not exist
  within-child           the process dies before the command begins
  before-task            the same, after the coordinator has answered one report
  within-task            the command is killed as soon as it runs
  after-task             the command has ended, but its result is not reported
  after-child            the command has ended, and its result is reported
  before-cleanup (1)     the program of --cleanup does not exist
  within-cleanup         the cleanup dies before it begins
  after-cleanup          the cleanup has ended, but its status is lost
  before-thread-cleanup (1)
                         the coordinator's actor for tasks panics before it
                         handles the end
  within-thread-cleanup (1)
                         the same actor panics while it frees the thread
  after-thread-cleanup (1)
                         the lock actor panics when the execute lock is released
  after-parent (1)       the keeper is killed when it has reported the exit
  drop-signal (1)        the keeper's report of the exit is dropped
Points with (1) are in the coordinator, which refuses them unless its configuration has `[tasks] allow_fault_injection = true`. At \
the others, KIND is how the process fails: exit (status 1), exit0 (status 0), abort, segv, kill (the default), loop, stop (SIGSTOP), \
memory (it allocates more than allowed). `sexton task show` shows the result.

Prints the id of the task. Exit status: 0 success; with --wait, 1 if the task failed, was terminated, or has not ended.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate flag")]
pub(super) struct Add {
    /// A name for the task
    #[arg(long, value_parser = name)]
    name: Option<Name>,

    /// The group of the task [default: default]
    #[arg(long, value_parser = name)]
    group: Option<Name>,

    /// What the task works on; at most one task with the same work id is in progress at a time
    #[arg(long, value_name = "ID", value_parser = name)]
    work: Option<Name>,

    /// The priority of the task
    #[arg(long, value_enum, default_value_t = Priority::Medium)]
    priority: Priority,

    /// How long a burst should take; the command is told this time, but not stopped at its end [default: as configured, or 30s]
    #[arg(long, value_name = SPAN, value_parser = milliseconds)]
    burst: Option<u64>,

    /// How long an attempt may take, counted from the claim of its thread, shortly before the command starts, until it is stopped
    /// with everything it started, and the task fails [default: as configured, or 5m]
    #[arg(long, value_name = SPAN, value_parser = milliseconds)]
    fail_after: Option<u64>,

    /// The maximum time between two heartbeats, from the first one on [default: as configured, or 1s]
    #[arg(long, value_name = SPAN, value_parser = milliseconds)]
    progress: Option<u64>,

    /// If the command dies before it has saved anything, run it again instead of failing the task. With `false`, the task fails,
    /// even if it is configured otherwise
    #[arg(long, value_name = "WHETHER", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    retry: Option<bool>,

    /// End a burst only by a report; the exit status of the command does not count
    #[arg(long)]
    report_required: bool,

    /// A command to run after each attempt, as a process of its own; it is split into words as by a shell
    #[arg(long, value_name = "COMMAND")]
    cleanup: Option<String>,

    /// Do not start the task until `sexton task ready`
    #[arg(long)]
    not_ready: bool,

    /// Add the task in a paused state
    #[arg(long)]
    paused: bool,

    /// The command's working directory [default: the current directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<String>,

    /// Variables to set for the command, as NAME=VALUE
    #[arg(long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// A file of NAME=VALUE lines, for secrets; it is read at each launch
    #[arg(long, value_name = "FILE")]
    env_file: Option<String>,

    /// Add the task even if its arguments seem to contain a secret; they are stored unchanged, but masked when shown
    #[arg(long)]
    allow_secrets: bool,

    /// Make the first attempt fail at this point, to see how the task recovers; the points are listed below
    #[arg(long, value_name = "POINT[:KIND]")]
    inject: Option<Injection>,

    /// Wait until the task has ended, for at most this time, a whole number of seconds
    #[arg(long, value_name = SPAN, value_parser = seconds(1, WAIT_MAX))]
    wait: Option<u64>,

    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// The priority of a task.
#[derive(Clone, Copy, ValueEnum)]
enum Priority {
    Critical,
    High,
    Medium,
    Low,
}

impl Priority {
    const fn word(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

impl Add {
    pub(super) fn run(self, options: &ClientOptions) -> Result<(), Failure> {
        let mut asked = fields([
            ("launch", written(&self.launch(&self.command()?)?).into()),
            ("cleanup", self.cleanup()?.as_ref().map(written).into()),
            ("priority", self.priority.word().into()),
            ("burst_ms", self.burst.into()),
            ("fail_after_ms", self.fail_after.into()),
            ("progress_ms", self.progress.into()),
            ("abort_on_failure", self.retry.map(|it| !it).into()),
            ("report_required", self.report_required.then_some(true).into()),
            ("not_ready", self.not_ready.into()),
            ("paused", self.paused.into()),
        ]);
        let names = [("name", &self.name), ("group", &self.group), ("work", &self.work)];
        if let Some(fault) = self.inject.and_then(Injection::asked) {
            asked.insert("inject".to_owned(), fault.into());
        }
        for (field, name) in names {
            if let Some(name) = name {
                put(&mut asked, field, name);
            }
        }
        let task = options.act("tasks/add", asked)?;
        let id = required(&task, "/id")?;
        match self.wait {
            Some(wait) => options.ended(&options.over(id, wait)?),
            None => options.tell(&task, |_| format!("{id}\n")),
        }
    }

    /// Returns the command to launch, wrapped if it is to cause the fault of `--inject`. Fails if the fault concerns the cleanup, but
    /// the task has no cleanup.
    fn command(&self) -> Result<Vec<OsString>, Failure> {
        let Some(injection) = self.inject else {
            return Ok(self.command.clone());
        };
        injection.check(self.cleanup.is_some())?;
        injection.of_command(&self.command)
    }

    fn launch(&self, command: &[OsString]) -> Result<Launch, Failure> {
        let dir = match &self.dir {
            Some(dir) => here()?.join(dir),
            None => here()?,
        };
        Ok(Launch {
            env: variables(&self.env)?,
            env_file: self.env_file()?,
            grace_ms: Number(2000),
            r#type: Some("task".to_owned()),
            ..plain(command, self.allow_secrets, &dir)?
        })
    }

    /// Returns the path of `--env-file`, if it was given, as an absolute path, since the coordinator has another working directory.
    /// Fails if the path is not UTF-8.
    fn env_file(&self) -> Result<Option<String>, Failure> {
        let Some(file) = &self.env_file else {
            return Ok(None);
        };
        let file = here()?.join(file);
        let file = file.to_str().map(str::to_owned);
        file.map(Some).ok_or_else(|| Failure::usage("the path of --env-file must be UTF-8"))
    }

    fn cleanup(&self) -> Result<Option<Launch>, Failure> {
        let Some(cleanup) = &self.cleanup else {
            return Ok(None);
        };
        let words = words::command(cleanup);
        let words = words.map_err(|error| Failure::usage(format!("--cleanup: {error}")))?;
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let words = match self.inject {
            Some(injection) => injection.of_cleanup(&words)?,
            None => words,
        };
        self.launch(&words).map(Some)
    }
}
