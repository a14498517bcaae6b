//! `sexton worker`: the workers of a running coordinator, defined by `[workers.NAME]` in its configuration.

use crate::client::{Where, fields};
use crate::process::{ClientOptions, last};
use crate::report::{Failure, print};
use crate::span::{SPAN, seconds};
use crate::table::{Column, table};
use crate::text::{plain, span, words};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sexton::clock::{Clock as _, SystemClock, Timestamp};

/// The prefix of the names of workers' services.
const PREFIX: &str = "worker.";

/// Returns the name of the service of `worker`.
pub(crate) fn service_of(worker: &str) -> String {
    format!("{PREFIX}{worker}")
}

/// Returns the name of the worker that `service` runs, if it is a worker's service.
pub(crate) fn name_of(service: &str) -> Option<&str> {
    service.strip_prefix(PREFIX)
}

/// Show, pause and resume the workers of the configuration.
///
/// A worker is defined by a table [workers.NAME] in the file of `sexton serve --config`: job types, and a command that works on them.
/// It runs as the service worker.NAME, whose command is `sexton work`; `sexton service logs worker.NAME` shows its output.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  sexton worker list                 the status and job counts of all workers
  sexton worker pause mails          claim no more jobs, and finish the claimed ones
  sexton worker resume mails

Exit status: 0 success; 1 there is no such worker, or it is not in the requested state in time; 2 wrong flags; 3 no \
coordinator runs there."
)]
pub(crate) struct Worker {
    #[command(subcommand)]
    action: Option<Action>,

    #[command(flatten)]
    at: Where,

    /// Print the answer as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Show the status of workers
    List,
    /// Pause workers; they claim no more jobs until they are resumed, even if the coordinator restarts
    ///
    /// Running jobs may finish within the worker's grace period (default 60 s). Commands that still run after it are killed, and
    /// their jobs are given out again.
    Pause(WorkerSelector),
    /// Resume workers
    Resume(WorkerSelector),
}

#[derive(Args)]
struct WorkerSelector {
    /// Names of the workers
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    /// How long to wait for the requested state; 0 to not wait
    #[arg(long, value_name = SPAN, value_parser = seconds(0, 3600), default_value = "60")]
    wait: u64,
}

impl Worker {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let options = ClientOptions::at(&self.at, self.json)?;
        match self.action {
            None | Some(Action::List) => show(&options, &all(&options.services(None)?)),
            Some(Action::Pause(chosen)) => chosen.carry_out(&options, "stop", "stopped"),
            Some(Action::Resume(chosen)) => chosen.carry_out(&options, "start", "running"),
        }
    }
}

/// Returns the services that are workers.
fn all(body: &Value) -> Vec<Value> {
    let services = body.pointer("/services").and_then(Value::as_array);
    let is_worker = |it: &&Value| name(it).is_some();
    services.into_iter().flatten().filter(is_worker).cloned().collect()
}

/// Returns the name of the worker that `service` runs, if it is a worker's service.
fn name(service: &Value) -> Option<&str> {
    name_of(service.pointer("/name").and_then(Value::as_str)?)
}

impl WorkerSelector {
    fn carry_out(&self, options: &ClientOptions, what: &str, status: &str) -> Result<(), Failure> {
        let known = all(&options.services(None)?);
        let is_known = |chosen: &&String| known.iter().any(|it| name(it) == Some(chosen.as_str()));
        if let Some(unknown) = self.names.iter().find(|it| !is_known(it)) {
            let failure = Failure::found(format!("there is no worker {}", plain(unknown)));
            return Err(failure.help(
                "`sexton worker list` shows the workers; [workers.NAME] in the configuration defines one",
            ));
        }
        let mut found = Vec::new();
        // Request every change first, then wait for each.
        for wait in [0, self.wait].into_iter().skip(usize::from(self.wait == 0)) {
            found.clear();
            for name in &self.names {
                let asked = fields([("name", service_of(name).into())]);
                found.extend(all(&options.serve(what, asked, wait)?));
            }
        }
        show(options, &found)?;
        let is_so = |it: &&Value| words(it, "/status") == status;
        match found.iter().find(|it| !is_so(it)) {
            Some(other) if self.wait > 0 => {
                let (name, status) = (name(other).unwrap_or_default(), words(other, "/status"));
                Err(Failure::found(format!("{name} is {status}")))
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn show(options: &ClientOptions, workers: &[Value]) -> Result<(), Failure> {
    if options.json {
        return print(&format!("{}\n", json!({ "workers": workers })));
    }
    if workers.is_empty() {
        return print(
            "no workers; [workers.NAME] in the file of `sexton serve --config` defines one\n",
        );
    }
    let heads = [
        ("WORKER", Column::Words),
        ("STATUS", Column::Words),
        ("PROCESS", Column::Words),
        ("JOBS", Column::Words),
        ("LAST END", Column::Words),
        ("WORK", Column::Words),
    ];
    let now = SystemClock::starting_at(Timestamp(0)).wall().0;
    let rows = workers.iter().map(|worker| {
        [
            plain(name(worker).unwrap_or_default()),
            status(worker),
            words(worker, "/instances/0/process"),
            words(worker, "/instances/0/said"),
            last_end(worker, now),
            work(worker),
        ]
    });
    print(&table(heads, rows))
}

/// Describes how and when the previous process of a worker ended. The exit statuses 125 to 127 of `sexton work` mean that it could not
/// launch the worker's command.
fn last_end(worker: &Value, now: u64) -> String {
    let Some(instance) = worker.pointer("/instances/0") else {
        return "-".to_owned();
    };
    let ended = instance.pointer("/last/ended_at").and_then(Value::as_u64);
    let Some(ended) = ended else {
        return "-".to_owned();
    };
    let code = instance.pointer("/last/code").and_then(Value::as_u64);
    let why = match code {
        Some(125) => ", command not launched",
        Some(126) => ", command not executable",
        Some(127) => ", command not found",
        Some(_) | None => "",
    };
    let last = last(instance);
    format!("{last}{why}, {} ago", span(now.saturating_sub(ended)))
}

/// Returns a worker's status: `paused` or `pausing` if it is stopped or stopping because it was paused.
fn status(worker: &Value) -> String {
    let status = words(worker, "/status");
    match (status.as_str(), worker.pointer("/wanted")) {
        ("stopped", Some(Value::Bool(false))) => "paused".to_owned(),
        ("stopping", Some(Value::Bool(false))) => "pausing".to_owned(),
        _ => status,
    }
}

/// Returns the types, flags and command of a worker, without the words that are the same for every worker.
fn work(worker: &Value) -> String {
    let command = worker.pointer("/command").and_then(Value::as_array);
    let words = command.into_iter().flatten().filter_map(Value::as_str);
    let is_own = |word: &&str| !["--wait", "--log=logfmt"].contains(word);
    let words: Vec<&str> = words.skip(2).filter(is_own).collect();
    plain(&words.join(" "))
}
