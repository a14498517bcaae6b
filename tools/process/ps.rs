//! `sexton ps`: lists processes, running and ended, or shows one; also prunes and checks their records.

use crate::client::{Fields, Where, fields};
use crate::figure::number;
use crate::process::page;
use crate::process::pid_file_command;
use crate::process::request::ClientOptions;
use crate::process::run::PARENT;
use crate::report::{Failure, print, tell};
use crate::span::{SPAN, milliseconds};
use crate::text::{count, grouped, words};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sexton::clock::{Clock as _, SystemClock, Timestamp};
use std::path::PathBuf;

/// The maximum number of records per request.
const PAGE: u64 = 1000;

/// Show processes: those that have not ended or, with --all, every one that has a record
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  sexton ps                          running processes
  sexton ps --all --search import    also ended ones, only with this text
  sexton ps --tree                   each process under its parent
  sexton ps 0192f5e0                 details of one process, by the beginning of its id
  sexton ps --status exited --count  the number of ended processes
  sexton ps prune --older-than 7d    forget processes that ended more than a week ago
  sexton ps reconcile                check all processes recorded as running
  sexton ps --pid-files snapshots    check the PID files below a directory

Exit status: 0 success; 1 there is no such process; 2 wrong flags; 3 no coordinator runs there."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate flag")]
pub(crate) struct Ps {
    #[command(subcommand)]
    action: Option<Action>,

    /// Show only this process, given by its id or at least the first eight digits of it
    #[arg(value_name = "ID")]
    id: Option<String>,

    /// Also show processes that have ended
    #[arg(long, short)]
    all: bool,

    /// Show each process under its parent; with an ID, that process, marked, with its ancestors and its descendants
    #[arg(long)]
    tree: bool,

    /// Only processes of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,

    /// Only processes in these states, separated by commas: queued, running, stopping or exited
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    status: Vec<String>,

    /// Only children of this process
    #[arg(long, value_name = "ID")]
    parent: Option<String>,

    /// Only processes with this text in their command, URL, labels or type, or in the first or last bytes of their output
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,

    /// Only processes that have this PID; with --all, also those that had it. Unlike `register --pid`, this creates no record
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,

    /// Only processes of this machine: `this` for the coordinator's, or the value of `machine` in the JSON of a record. A data
    /// directory that was moved to another machine still has records of the old one
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,

    /// Only processes with this label: NAME, or NAME=VALUE
    #[arg(long)]
    label: Option<String>,

    /// List the PID files below a directory, and whether the PID in each still belongs to the process that it was written for. This
    /// needs no coordinator
    #[arg(long, value_name = "DIR", conflicts_with_all = ["id", "all", "tree", "kind", "status", "parent", "search", "pid", "machine", "label", "count"])]
    pid_files: Option<PathBuf>,

    /// The id of the process to mark in a tree [default: the caller's own record]
    #[arg(long, env = PARENT, hide = true)]
    current: Option<String>,

    /// Print only the number of processes
    #[arg(long)]
    count: bool,

    /// The maximum number of processes to show; if there are more, only the newest are shown
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: u64,

    #[command(flatten)]
    at: Where,

    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Remove the records of processes that have ended
    #[command(after_help = "Example: sexton ps prune --older-than 30d --keep 1000")]
    Prune {
        /// Only processes that ended at least this long ago
        #[arg(long, value_name = SPAN, value_parser = milliseconds, default_value = "0")]
        older_than: u64,
        /// How many of the most recently ended processes to keep, regardless of age
        #[arg(long, value_name = "N", default_value_t = 0)]
        keep: u32,
    },
    /// Check every process recorded as running, and print how many records changed
    ///
    /// The coordinator notices by itself when a process ends, so this is only a cross-check.
    #[command(after_help = "Example: sexton ps reconcile --json")]
    Reconcile,
    /// Declare that nothing of a process's tree is alive, if the coordinator cannot tell
    ///
    /// For a process whose status stays `stopping, unknown` after `sexton kill --tree --now`: a process that cannot be attributed
    /// may belong to its tree. The coordinator then takes your word that it does not, or has ended: whatever waits for the tree,
    /// such as the next holder of a lock, goes on.
    #[command(after_help = "Example: sexton ps settle 0192f5e0")]
    Settle {
        /// Process id, or at least its first eight digits
        #[arg(value_name = "ID")]
        id: String,
    },
}

impl Ps {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if let Some(directory) = &self.pid_files {
            return pid_file_command::list(directory, self.json);
        }
        let options = ClientOptions::at(&self.at, self.json)?;
        let now = SystemClock::starting_at(Timestamp(0)).wall().0;
        if let Some(Action::Reconcile) = self.action {
            let body = options.act("reconcile", fields([]))?;
            return options.tell(&body, page::reconciled);
        }
        if let Some(Action::Settle { id }) = &self.action {
            let record = options.act("settle", fields([("id", id.as_str().into())]))?;
            return options.tell(&record, |record| {
                format!("{}  {}\n", words(record, "/id"), page::standing(record))
            });
        }
        if let Some(Action::Prune { older_than, keep }) = self.action {
            let asked = fields([("older_than_ms", older_than.into()), ("keep", keep.into())]);
            let body = options.act("prune", asked)?;
            return options.tell(&body, |body| {
                let pruned = number(body, "/pruned").shown(|pruned| count(pruned, "record"));
                format!("forgot {pruned}\n")
            });
        }
        if let Some(id) = &self.id {
            let query = fields([("id", id.as_str().into())]);
            let record = options.look("/process", &query)?;
            if !self.tree {
                return options.tell(&record, |record| page::whole(record, now));
            }
            let own = words(&record, "/id");
            let mut body = options.look("/ancestors", &query)?;
            let above = body.pointer_mut("/processes").map(Value::take);
            let above = above.as_ref().and_then(Value::as_array);
            let mut records: Vec<Value> = above.into_iter().flatten().rev().cloned().collect();
            records.push(record);
            records.extend(all(&options, "/descendants", query, u64::MAX)?.0);
            return show(&options, &records, &|records| page::trees(records, Some(&own), now));
        }
        if self.count {
            let body = options.look("/count", &self.query())?;
            return options.tell(&body, |body| {
                format!("{}\n", body.pointer("/count").unwrap_or(&Value::Null))
            });
        }
        let mut query = self.query();
        query.insert("newest_first".to_owned(), "true".into());
        let (mut records, are_more) = all(&options, "", query, self.limit)?;
        if are_more {
            let most = grouped(self.limit);
            tell(&format!("only the newest {most} are shown; use --limit to show more"));
        }
        records.reverse();
        show(&options, &records, &|records| {
            if self.tree {
                page::trees(records, self.current.as_deref(), now)
            } else {
                page::list(records, now)
            }
        })
    }

    fn query(&self) -> Fields {
        let status = match (self.status.as_slice(), self.all) {
            ([], false) => Some("queued,running,stopping".to_owned()),
            ([], true) => None,
            (statuses, _) => Some(statuses.join(",")),
        };
        fields([
            ("type", self.kind.clone().into()),
            ("status", status.into()),
            ("parent", self.parent.clone().into()),
            ("search", self.search.clone().into()),
            ("pid", self.pid.map(|pid| pid.to_string()).into()),
            ("machine", self.machine.clone().into()),
            ("label", self.label.clone().into()),
        ])
    }
}

/// Reads up to `most` records of the list at `what`, page by page. Also returns whether the list has more.
fn all(
    options: &ClientOptions,
    what: &str,
    mut query: Fields,
    most: u64,
) -> Result<(Vec<Value>, bool), Failure> {
    let mut records = Vec::new();
    loop {
        let left = most - records.len() as u64;
        query.insert("limit".to_owned(), left.clamp(1, PAGE).to_string().into());
        let mut body = options.look(what, &query)?;
        if let Some(Value::Array(some)) = body.pointer_mut("/processes").map(Value::take) {
            records.extend(some);
        }
        match body.pointer("/next").and_then(Value::as_str) {
            Some(next) if (records.len() as u64) < most => {
                query.insert("after".to_owned(), next.into());
            }
            next => return Ok((records, next.is_some())),
        }
    }
}

fn show(
    options: &ClientOptions,
    records: &[Value],
    page: &dyn Fn(&[Value]) -> String,
) -> Result<(), Failure> {
    if options.json {
        print(&format!("{}\n", json!({ "processes": records })))
    } else {
        print(&page(records))
    }
}
