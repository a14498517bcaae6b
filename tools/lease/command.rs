//! The subcommands of `sexton lease`, and the requests they make.

use crate::client::{self, Where};
use crate::lease::page;
use crate::lease::request::{ClientOptions, HELPS, WAIT_MAX, refused};
use crate::lease::run::Run;
use crate::lease::set::Set;
use crate::lock::name;
use crate::report::{Failure, print, tell};
use crate::span::{SPAN, seconds};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sexton_api::lease::{self as api, Check, Get, Import, Leases, List, Reset};
use sexton_api::name::Name;
use sexton_api::value::Number;
use std::fmt::Write as _;
use std::time::Duration;

/// Run background work one pass at a time, at most once per period, without losing a request for it
///
/// A lease is a named right to run one pass. Request a pass wherever there may be new work: after a web hit, from a cron line,
/// from a hook. It runs immediately if the lease is free. If not, the first caller is next and waits for its turn, and later
/// callers are turned away, since that pass begins after their requests. The coordinator launches the commands, so nothing is
/// lost if a caller is killed.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton lease run sync -- ./sync                     now, or when its turn comes; at most one pass per minute
  sexton lease run sync --detach -- ./sync            the same, without waiting: for a request handler
  sexton lease run mails --period 5m -- ./send-mails  no two passes begin within five minutes
  sexton lease check sync && sexton lease run sync --detach -- ./sync
  sexton lease show sync                              the running pass and the next, and their times

Exit status: 0 success; 1 refused: disabled, absent, not wanted; 2 usage; 3 no coordinator runs there; 4 it has halted. `run` exits \
with the status of its command.")]
pub(crate) struct Lease {
    #[command(subcommand)]
    action: Action,

    #[command(flatten)]
    at: Where,

    /// Print the answer as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    Run(Box<Run>),
    /// Show the state of a lease
    ///
    /// The last six lines are those of `fossil test-backoffice-lease`, with PIDs and seconds since 1970: who has the current pass, and
    /// the time before which no other begins; who is next, and when that reservation expires. A next command that has no process
    /// yet is shown with the coordinator's PID.
    #[command(after_help = "\
Examples:
  sexton lease show sync
  sexton lease show sync --json | jq .current.status")]
    Show {
        #[command(flatten)]
        which: LeaseSelector,
    },
    /// List leases
    #[command(after_help = "\
Examples:
  sexton lease list                      all of them
  sexton lease list shop/                leases whose names begin with shop/
  sexton lease list --json | jq -r '.leases[].name'

LAST is how the last pass ended: its exit status, the signal that ended it, `failed to start`, or `lost` if that is not known. It is - \
if no pass has ended yet, and while the next one is running.")]
    List {
        /// Only leases whose names begin with this prefix
        #[arg(value_parser = name)]
        prefix: Option<Name>,
        /// The maximum number of leases to show
        #[arg(long, value_name = "NUMBER", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
        limit: u64,
    },
    /// Check whether a request for a pass would have an effect, that is, whether the lease is enabled and no request is queued
    ///
    /// Changes nothing, and takes the same time for any number of leases. Fossil does this check before it starts a process.
    /// For a lease that does not exist yet the answer is yes, with a note: the first request creates it.
    #[command(after_help = "\
Example: sexton lease check sync && sexton lease run sync --detach -- ./sync

Exit status: 0 a pass is wanted; 1 it is not; 3 no coordinator runs there.")]
    Check {
        #[command(flatten)]
        which: LeaseSelector,
    },
    Set(Box<Set>),
    /// Enable a lease again
    #[command(after_help = "Example: sexton lease enable sync")]
    Enable {
        #[command(flatten)]
        which: LeaseSelector,
    },
    /// Disable a lease: requests are refused and a queued one is dropped, but a running pass runs to its end
    #[command(after_help = "\
Example: sexton lease disable sync

`sexton lease run` then fails with exit status 1. A lease that does not exist yet is created, with a note in case the name is \
misspelled.")]
    Disable {
        #[command(flatten)]
        which: LeaseSelector,
    },
    /// Take over the state of a lease from Fossil
    ///
    /// The text is the value of Fossil's setting `backoffice`: who has the current pass and until when, and who is next and until
    /// when, as PIDs and seconds since 1970. Live processes with these PIDs are watched from now on; dead ones count as ended.
    #[command(after_help = "\
Example: sexton lease import repo \"$(sqlite3 repo.fossil \"SELECT value FROM config WHERE name='backoffice'\")\"")]
    Import {
        #[command(flatten)]
        which: LeaseSelector,
        /// Four numbers separated by blanks; parsing stops at the first word that is not a number, and the remaining numbers are 0
        text: String,
    },
    /// Delete a lease and its settings
    ///
    /// Refused while a pass is running. With --force the pass is stopped first; the lease is deleted once none of the pass's processes
    /// is left.
    #[command(after_help = "\
Examples:
  sexton lease reset sync
  sexton lease reset sync --force --wait 10m")]
    Reset {
        #[command(flatten)]
        which: LeaseSelector,
        /// Stop a running pass
        #[arg(long)]
        force: bool,
        /// How long to wait until none of the pass's processes is left: whole seconds, or a form such as 90s or 5m
        #[arg(long, value_name = SPAN, default_value = "60", requires = "force", value_parser = seconds(0, WAIT_MAX))]
        wait: u64,
    },
}

/// Names a lease.
#[derive(Args)]
pub(super) struct LeaseSelector {
    /// The lease's name; non-UTF-8 bytes as \xNN, a backslash as \\
    #[arg(value_parser = name)]
    pub(super) name: Name,
}

impl Lease {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let options = ClientOptions { target: self.at.target()?, json: self.json };
        match self.action {
            Action::Run(run) => run.run(&options),
            Action::Set(set) => set.run(&options),
            Action::Show { which: LeaseSelector { name } } => {
                options.tell(&options.ask(&Get { name })?, page::whole)
            }
            Action::List { prefix, limit } => options.list(prefix.unwrap_or_default(), limit),
            Action::Check { which } => options.check(&which.name),
            Action::Enable { which } => options.disable(which.name, false),
            Action::Disable { which } => options.disable(which.name, true),
            Action::Import { which: LeaseSelector { name }, text } => {
                options.tell(&options.ask(&Import { name, text })?, page::whole)
            }
            Action::Reset { which, force, wait } => options.reset(which.name, force, wait),
        }
    }
}

impl ClientOptions {
    fn check(&self, name: &Name) -> Result<(), Failure> {
        let answer = self.ask(&Check { name: name.clone() })?;
        if self.json {
            print(&answer.body)?;
        }
        if !answer.value.exists {
            let name = name.to_text();
            tell(&format!(
                "there is no lease {name} yet: the first request for a pass creates it; `sexton lease list` shows the leases"
            ));
        }
        // The exit status is the answer; in a script, a message would be in the way.
        if answer.value.wanted { Ok(()) } else { Err(Failure::of_command(1, "")) }
    }

    /// Returns whether the lease exists.
    pub(super) fn exists(&self, name: &Name) -> Result<bool, Failure> {
        self.ask(&Check { name: name.clone() }).map(|it| it.value.exists)
    }

    fn disable(&self, name: Name, disabled: bool) -> Result<(), Failure> {
        let existed = self.exists(&name)?;
        let shown = name.to_text();
        let answer = self.ask(&api::Set { disabled: Some(disabled), ..api::Set::of(name) })?;
        if !existed {
            // A lease may be disabled before its first request, but the name may also be misspelled.
            tell(&format!(
                "there was no lease {shown} until now: it has been created; `sexton lease list` shows the leases"
            ));
        }
        let words = if disabled { "disabled\n" } else { "enabled\n" };
        self.tell(&answer, |_| words.to_owned())
    }

    /// Deletes a lease. With `force`, waits for at most `wait` seconds until none of its pass's processes is left.
    fn reset(&self, name: Name, force: bool, wait: u64) -> Result<(), Failure> {
        let wait = if force { wait } else { 0 };
        // Sent only once, even if the coordinator restarts: the first request may have been carried out.
        let patience = Duration::from_secs(wait + 15);
        let asked = Reset { name, force, wait: Number(wait) };
        let answer = client::request(&self.target, &asked, patience, HELPS)?;
        if answer.value.gone {
            return self.tell(&answer, |_| "deleted\n".to_owned());
        }
        let words = "timed out waiting: the pass is being stopped, but some of its processes are still alive";
        Err(Failure::found(words))
    }

    fn list(&self, prefix: Name, limit: u64) -> Result<(), Failure> {
        let asked = List { prefix, ..List::default() };
        let (leases, next) = client::all(limit, |limit, after| {
            let reply = client::ask(&self.target, &List { limit, after, ..asked.clone() })?;
            let page = reply.read_as::<Leases<Value>>().success(refused)?.value;
            Ok((page.leases, page.next))
        })?;
        if self.json {
            let leases = client::written(&leases);
            return print(&format!("{}\n", json!({ "leases": leases, "next": next })));
        }
        let leases: Vec<api::Lease> = leases.into_iter().map(|lease| lease.it).collect();
        let mut page = page::list(&leases);
        if next.is_some() {
            writeln!(page, "there are more: --limit is {limit}")
                .expect("writing to memory should not fail");
        }
        print(&page)
    }
}
