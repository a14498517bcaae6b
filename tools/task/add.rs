//! `sexton task add`: a command that is to be run, in bursts.

use crate::client::{Fields, fields};
use crate::lock::{name, put};
use crate::process::{here, plain, variables};
use crate::report::Failure;
use crate::span::{SPAN, milliseconds, seconds};
use crate::task::asking::{Asking, WAIT_MAX};
use crate::task::inject::Injection;
use crate::text::number;
use crate::words;
use clap::{Args, ValueEnum};
use sexton::actors::lock::Name;
use std::ffi::OsString;

/// Add a task: a command that the coordinator runs when its turn comes
///
/// It runs on a server with a free thread, one task of a work id at a time, and no more of a group than its limit lets. It
/// runs in bursts: a command that ends with 0 has completed its task; one that says `sexton task wait 10m` before it ends is
/// run again then, and goes on from what it saved.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton task add -- ./import customers.csv
  sexton task add --group mails --priority high -- ./send-newsletter
  sexton task add --work site-7 -- ./deploy site-7     never two tasks of site-7 at a time
  sexton task add --wait 10m -- ./report               and wait until it is over
  sexton task add --inject within-task:segv -- ./report     the first attempt dies; does the task recover?

The command finds SEXTON_TASK_ID, SEXTON_TASK_NAME, SEXTON_TASK_GROUP, SEXTON_TASK_WORK, SEXTON_TASK_REVISION, SEXTON_TASK_BURST_MS and
SEXTON_FENCE, its fencing token, in its environment, and SEXTON_TASK_ATTEMPT, which attempt it is, counted from 1. SEXTON_TASK_TERMINATING is 1 in the last burst of a task that is terminated.
`sexton task save`, `saved`, `heartbeat`, `done`, `wait` and `fail` report from within.

Points of --inject, where the first attempt fails:
  before-parent          the process cannot be made; `before-parent:kill`: the keeper is killed instead   (1)
  within-parent          the process is made, and cannot execute its program                              (1)
  before-child           the program of the command does not exist                                        (1)
  within-child           the process dies before the command begins
  before-task            the same, when the coordinator has answered it once
  within-task            the command is killed as soon as it runs
  after-task             the command has ended, and nobody has said how
  after-child            the command has ended, and what that means is said
  before-cleanup         the program of --cleanup does not exist                                          (1)
  within-cleanup         what cleans up dies before it begins
  after-cleanup          what cleans up has ended, and its status is lost
  before-thread-cleanup  the coordinator's actor panics before it decides about the end                   (1)
  within-thread-cleanup  it panics while it gives the thread back                                         (1)
  after-thread-cleanup   the actor of locks panics when it is given the execute lock back                 (1)
  after-parent           the keeper is killed when it has reported the exit                               (1)
  drop-signal            the keeper's report of the exit is dropped                                       (1)
Points with (1) are the coordinator's: it refuses them unless its configuration has `[tasks] allow_fault_injection = true`.
At the others KIND says how the process fails: exit (status 1), exit0 (status 0), abort, segv, kill (the default), loop, stop
(SIGSTOP), memory (it allocates more than it may). `sexton task show` says what came of it.

Prints the number of the task. Exit status: 0 success, and of --wait: 1 if the task failed, was terminated, or is not over.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(super) struct Add {
    /// What people call it
    #[arg(long, value_parser = name)]
    name: Option<Name>,

    /// Its group [default: default]
    #[arg(long, value_parser = name)]
    group: Option<Name>,

    /// What it works on: no two tasks of one work id are under way at a time
    #[arg(long, value_name = "ID", value_parser = name)]
    work: Option<Name>,

    /// How urgent it is
    #[arg(long, value_enum, default_value_t = Priority::Medium)]
    priority: Priority,

    /// How long a burst is to take: the command is told, and not held to it [default: that of the configuration, else 30s]
    #[arg(long, value_name = SPAN, value_parser = milliseconds)]
    burst: Option<u64>,

    /// How long an attempt may take before it is stopped, with all that it started, and the task has failed [default: that
    /// of the configuration, else 5m]
    #[arg(long, value_name = SPAN, value_parser = milliseconds)]
    fail_after: Option<u64>,

    /// How long it may be between two heartbeats, once there has been one [default: that of the configuration, else 1s]
    #[arg(long, value_name = SPAN, value_parser = milliseconds)]
    progress: Option<u64>,

    /// Run it again if its command dies before it has saved anything, instead of failing it; false fails it, whatever the
    /// configuration says
    #[arg(long, value_name = "WHETHER", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    retry: Option<bool>,

    /// A burst has ended only if the command says so: its exit status means nothing
    #[arg(long)]
    report_required: bool,

    /// A command to run after each attempt, apart from it, with blanks between its words
    #[arg(long, value_name = "COMMAND")]
    cleanup: Option<String>,

    /// Do not start it before `sexton task ready`
    #[arg(long)]
    not_ready: bool,

    /// Pause it from the beginning
    #[arg(long)]
    paused: bool,

    /// The directory that it runs in [default: this one]
    #[arg(long, value_name = "DIR")]
    dir: Option<String>,

    /// Variables to set for it, as NAME=VALUE
    #[arg(long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// A file of NAME=VALUE lines, read at each launch: for secrets
    #[arg(long, value_name = "FILE")]
    env_file: Option<String>,

    /// Add it although its arguments look like they hold a secret; they are stored, and shown masked
    #[arg(long)]
    allow_secrets: bool,

    /// Have its first attempt fail at a point, to see how it recovers: see below
    #[arg(long, value_name = "POINT[:KIND]")]
    inject: Option<Injection>,

    /// Wait until it is over, in whole seconds at most
    #[arg(long, value_name = SPAN, value_parser = seconds(1, WAIT_MAX))]
    wait: Option<u64>,

    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// How urgent a task is.
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
    pub(super) fn run(self, asking: &Asking) -> Result<(), Failure> {
        let mut asked = fields([
            ("launch", self.launch(&self.command()?)?.into()),
            ("cleanup", self.cleanup()?.into()),
            ("priority", self.priority.word().into()),
            ("burst_ms", self.burst.into()),
            ("fail_after_ms", self.fail_after.into()),
            ("progress_ms", self.progress.into()),
            ("abort_on_failure", self.retry.map(|it| !it).into()),
            (
                "report_required",
                self.report_required.then_some(true).into(),
            ),
            ("not_ready", self.not_ready.into()),
            ("paused", self.paused.into()),
        ]);
        let names = [
            ("name", &self.name),
            ("group", &self.group),
            ("work", &self.work),
        ];
        if let Some(fault) = self.inject.and_then(Injection::asked) {
            asked.insert("inject".to_owned(), fault.into());
        }
        for (field, name) in names {
            if let Some(name) = name {
                put(&mut asked, field, name);
            }
        }
        let task = asking.act("tasks/add", asked, 0)?;
        let id = number(&task, "/id");
        match self.wait {
            Some(wait) => asking.ended(&asking.over(id, wait)?),
            None => asking.tell(&task, |_| format!("{id}\n")),
        }
    }

    /// The command, so that it fails if it is to.
    fn command(&self) -> Result<Vec<OsString>, Failure> {
        let Some(injection) = self.inject else {
            return Ok(self.command.clone());
        };
        injection.check(self.cleanup.is_some())?;
        injection.of_command(&self.command)
    }

    fn launch(&self, command: &[OsString]) -> Result<Fields, Failure> {
        let dir = match &self.dir {
            Some(dir) => here()?.join(dir),
            None => here()?,
        };
        let mut launch = plain(command, self.allow_secrets, &dir)?;
        launch.extend(fields([
            ("env", variables(&self.env)?.into()),
            ("env_file", self.env_file()?.into()),
            ("grace_ms", 2000.into()),
            ("type", "task".into()),
        ]));
        Ok(launch)
    }

    /// The file of variables, from the root on: the coordinator has another directory.
    fn env_file(&self) -> Result<Option<String>, Failure> {
        let Some(file) = &self.env_file else {
            return Ok(None);
        };
        let file = here()?.join(file);
        let file = file.to_str().map(str::to_owned);
        file.map(Some)
            .ok_or_else(|| Failure::usage("the path of --env-file must be UTF-8"))
    }

    fn cleanup(&self) -> Result<Option<Fields>, Failure> {
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
