//! The subcommands of `sexton queue`.

use crate::client::Where;
use crate::numbers;
use crate::numbers::between;
use crate::queue::answer::ClientOptions;
use crate::queue::bulk::{Discard, Retry};
use crate::queue::config::Configured;
use crate::queue::job::{BoundTo, ClaimSelector, Popped, Pushed, Release, Span, change};
use crate::queue::list::{NextQueue, QueueStatistics, ShowQueues};
use crate::queue::result::ShowResult;
use crate::report::{Failure, tell};
use crate::text::count;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use sexton_api::ids::Token;
use sexton_api::job::{Ack, Bury, Defer, Fail, Report};
use sexton_api::queue::{self, Cancel, Cancelled, Flush, Kick, KickJob, Pause, QueueName, Repush};
use sexton_api::request::Request;
use sexton_api::value::Number;

/// Add jobs to queues, claim and finish them, and show their state
///
/// A queue is named TYPE, or TENANT:TYPE; to a beanstalkd client, it is a tube of the same name. Connects to `DATA/sexton.sock` or,
/// with --url, to the coordinator at that address.
#[derive(Args)]
#[command(after_help = "\
Examples:
  sexton queue push mails 'to: ann'    add a job
  sexton queue pop mails --wait 60     claim one; wait for it if necessary
  sexton queue ack 17 4711             finish it: its id, the token of the claim
  sexton queue stats                   every queue, and the states of its jobs
  sexton queue next && ...             whether any queue has a ready job
  sexton queue config                  the configuration of every job type

Exit status: 0 success; 1 refused: nothing to claim, absent, stale; 2 usage; 3 no coordinator runs there; 4 it has \
halted.")]
pub(crate) struct Queue {
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
    Push(Pushed),
    Pop(Popped),
    /// Finish a claimed job: its work is done
    #[command(after_help = "Example: sexton queue ack 17 4711")]
    Ack(ClaimSelector),
    /// Report that a claimed job failed; it is tried again, or abandoned after its last try
    #[command(after_help = "\
Examples:
  sexton queue fail 17 4711                      try again as configured, or when its claim would have ended
  sexton queue fail 17 4711 --retry-after 30     try again in half a minute
  sexton queue fail 17 4711 --error \"$(tail -n 5 log)\"
                                                 with an error that `peek` and `show --list` show
  sexton queue kick --id 17                      try again now")]
    Fail {
        #[command(flatten)]
        done: ClaimSelector,
        /// Seconds until the job is tried again [default: the back-off of its type, or the time left on its claim]
        #[arg(long, value_name = "SPAN")]
        retry_after: Option<Span>,
        /// What went wrong, shown with the job; of more than 1,000 bytes, the beginning and the end are kept
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        error: Option<String>,
    },
    /// Report that a claimed job cannot be tried now; it is tried later, and this try does not count
    ///
    /// Without --retry-after, each deferral is longer than the last. A job that is a day old fails instead.
    #[command(after_help = "\
Examples:
  sexton queue defer 17 4711 --error 'the server is down'
  sexton queue defer 17 4711 --retry-after 600")]
    Defer {
        #[command(flatten)]
        done: ClaimSelector,
        /// Seconds until the job is tried again [default: longer each time it is deferred]
        #[arg(long, value_name = "SPAN")]
        retry_after: Option<Span>,
        /// The reason, shown with the job; of more than 1,000 bytes, the beginning and the end are kept
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        error: Option<String>,
    },
    /// Report the progress of a claimed job; it is shown until the job is claimed again
    #[command(after_help = "Example: sexton queue report 17 4711 40 'page 2 of 5'")]
    Report {
        #[command(flatten)]
        done: ClaimSelector,
        /// How much is done, in percent
        #[arg(value_parser = clap::value_parser!(u8).range(..=100))]
        percent: u8,
        /// A description of the current step; of more than 1,000 bytes, the beginning and the end are kept
        text: Option<String>,
    },
    /// Renew a claim, or bind it to a process
    #[command(after_help = "\
Examples:
  sexton queue touch 17 4711
  sexton queue touch 17 4711 --process 0199a1b2  from now on it ends with that process")]
    Touch {
        #[command(flatten)]
        done: ClaimSelector,
        #[command(flatten)]
        bound: BoundTo,
    },
    Release(Release),
    /// Bury a claimed job until it is kicked
    #[command(after_help = "Example: sexton queue bury 17 4711")]
    Bury {
        #[command(flatten)]
        done: ClaimSelector,
        /// The new priority; 0 is the most urgent [default: unchanged]
        #[arg(long, value_parser = between(0, u32::MAX))]
        priority: Option<u32>,
    },
    /// Delete a job that is not claimed
    #[command(after_help = "Example: sexton queue delete 17")]
    Delete {
        /// The job's id
        #[arg(value_parser = numbers::job)]
        id: u64,
    },
    /// Make buried and abandoned jobs ready or, if there are none, delayed and failed ones
    ///
    /// Kicks the oldest buried jobs first, then the oldest abandoned ones. If there are neither, kicks the delayed jobs that are due
    /// soonest, then failed jobs that wait to be tried again. Each job starts over as if it had never been tried.
    #[command(after_help = "\
Examples:
  sexton queue kick mails --count 100
  sexton queue kick --id 17                      one job: buried, abandoned, delayed, or retrying")]
    #[command(group(ArgGroup::new("which").args(["queue", "id"]).required(true)))]
    Kick {
        /// The queue
        #[arg(value_parser = name)]
        queue: Option<QueueName>,
        /// The maximum number of jobs to make ready
        #[arg(long, default_value_t = 1, conflicts_with = "id", value_parser = clap::value_parser!(u32).range(1..=100_000))]
        count: u32,
        /// Kick only the job with this id
        #[arg(long, value_parser = numbers::job)]
        id: Option<u64>,
    },
    /// Manage a whole queue: delete all its jobs, or retry the abandoned ones
    #[command(after_help = "\
Examples:
  sexton queue manage mails delete               all its jobs, including claimed ones
  sexton queue manage mails repush-abandoned     as if they had never been tried")]
    Manage {
        /// The queue
        #[arg(value_parser = name)]
        queue: QueueName,
        /// What to do with its jobs
        action: Managed,
    },
    Retry(Retry),
    Discard(Discard),
    /// Cancel a job: stop the command that works on it, and abandon the job
    ///
    /// A command run by `sexton work` is stopped with everything it started. Any other worker only loses its claim.
    #[command(after_help = "\
Examples:
  sexton queue cancel 17
  sexton queue cancel 17 --reason 'wrong file'")]
    Cancel {
        /// The job's id
        #[arg(value_parser = numbers::job)]
        id: u64,
        /// The reason, shown with the job; of more than 1,000 bytes, the beginning and the end are kept
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        reason: Option<String>,
    },
    /// Pause a queue: nothing is claimed from it for a while; 0 ends the pause
    #[command(after_help = "\
Examples:
  sexton queue pause mails 600
  sexton queue pause mails 0                     end the pause")]
    Pause {
        /// The queue
        #[arg(value_parser = name)]
        queue: QueueName,
        /// How long to pause the queue
        seconds: Span,
    },
    /// Delete all jobs of a queue, including claimed ones
    #[command(after_help = "Example: sexton queue flush mails")]
    Flush {
        /// The queue
        #[arg(value_parser = name)]
        queue: QueueName,
    },
    /// Show a job and its body
    #[command(after_help = "Example: sexton queue peek 17")]
    Peek {
        /// The job's id
        #[arg(value_parser = numbers::job)]
        id: u64,
    },
    Result(ShowResult),
    Show(ShowQueues),
    Stats(QueueStatistics),
    Next(NextQueue),
    Config(Configured),
}

/// An action on all jobs of a queue.
#[derive(Clone, Copy, ValueEnum)]
enum Managed {
    /// Delete all jobs, including claimed ones
    Delete,
    /// Make jobs that were abandoned, because they were tried too often, ready again
    RepushAbandoned,
}

/// Parses the name of a queue. The error is a message for the user.
pub(super) fn name(text: &str) -> Result<QueueName, String> {
    QueueName::try_from(text).map_err(|error| error.to_string())
}

impl Queue {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let options = ClientOptions { target: self.at.target()?, json: self.json };
        self.action.run(&options)
    }
}

impl Action {
    fn run(self, options: &ClientOptions) -> Result<(), Failure> {
        match self {
            Self::Push(pushed) => pushed.run(options),
            Self::Pop(popped) => popped.run(options),
            Self::Ack(ClaimSelector { id, token }) => {
                options.act(&Ack { id, token: Token(token) }, |_| "done\n".to_owned())
            }
            Self::Fail { done: ClaimSelector { id, token }, retry_after, error } => {
                let (token, retry_after_ms) = (Token(token), retry_after.map(Span::number));
                change(options, &Fail { id, token, retry_after_ms, error, crashed: false })
            }
            Self::Defer { done: ClaimSelector { id, token }, retry_after, error } => {
                let (token, retry_after_ms) = (Token(token), retry_after.map(Span::number));
                change(options, &Defer { id, token, error, retry_after_ms, interrupted: false })
            }
            Self::Report { done: ClaimSelector { id, token }, percent, text } => {
                let percent = Some(Number(percent.into()));
                change(options, &Report { id, token: Token(token), percent, text })
            }
            Self::Touch { done, bound } => change(options, &bound.touch(&done)),
            Self::Release(given) => given.run(options),
            Self::Bury { done: ClaimSelector { id, token }, priority } => {
                change(options, &Bury { id, token: Token(token), priority })
            }
            Self::Delete { id } => options.act(&queue::Delete { id }, |_| "deleted\n".to_owned()),
            Self::Kick { id: Some(id), .. } => options.act(&KickJob { id }, |it| match it.kicked {
                0 => "already ready\n".to_owned(),
                _ => changed("kicked", it.kicked),
            }),
            Self::Kick { queue, count, .. } => {
                let queue = queue.expect("a queue should be required without an id");
                let asked = Kick { queue: queue.clone(), count: Number(count) };
                options.in_queue(&queue, &asked, |it| changed("kicked", it.kicked))
            }
            Self::Manage { queue, action: Managed::RepushAbandoned } => {
                let asked = Repush { queue: queue.clone() };
                options.in_queue(&queue, &asked, |it| changed("repushed", it.repushed))
            }
            Self::Manage { queue, action: Managed::Delete } | Self::Flush { queue } => {
                let asked = Flush { queue: queue.clone() };
                options.in_queue(&queue, &asked, |it| changed("flushed", it.flushed))
            }
            Self::Cancel { id, reason } => {
                let error = reason.map(|it| format!("cancelled: {it}"));
                options.act(&Cancel { id, error }, cancelled)
            }
            Self::Retry(retry) => retry.run(options),
            Self::Discard(discard) => discard.run(options),
            Self::Pause { queue, seconds } => {
                options.act(&Pause { queue, ms: seconds.number() }, |it| match it.paused_ms {
                    0 => "resumed\n".to_owned(),
                    _ => format!("paused for {seconds}\n"),
                })
            }
            Self::Peek { id } => crate::queue::list::peek(options, id),
            Self::Result(ended) => ended.run(options),
            Self::Show(shown) => shown.run(options),
            Self::Stats(listed) => listed.run(options),
            Self::Next(chosen) => chosen.run(options),
            Self::Config(configured) => configured.run(options),
        }
    }
}

/// Describes the cancellation of a job.
fn cancelled(it: &Cancelled) -> String {
    if it.cancelled == 0 {
        return "already abandoned or cancelled\n".to_owned();
    }
    let done = changed("cancelled", it.cancelled);
    let Some(process) = &it.process else {
        return done;
    };
    let done = done.trim_end();
    if it.stopping {
        return format!("{done}; process {process} is being stopped\n");
    }
    format!(
        "{done}, but what process {process} started still works on it: `sexton kill --tree {process}` stops it\n"
    )
}

impl ClientOptions {
    /// Sends a request about the jobs of a queue, and prints how many were changed. Prints a note if there is no such queue.
    fn in_queue<R: Request>(
        &self,
        queue: &QueueName,
        asked: &R,
        page: impl FnOnce(&R::Answer) -> String,
    ) -> Result<(), Failure> {
        let is_absent = self.queue(queue)?.is_none();
        self.act(asked, page)?;
        if is_absent {
            tell(&format!("there is no queue {queue}"));
        }
        Ok(())
    }
}

/// Formats the number of jobs that were changed.
fn changed(what: &str, jobs: u32) -> String {
    format!("{what} {}\n", count(u64::from(jobs), "job"))
}
