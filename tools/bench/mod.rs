//! `sexton bench`: measures sexton, beside what people use today where that is installed. It prints figures and
//! asserts none; it starts its own servers in directories of its own, and never touches a running coordinator.
//!
//! `locks` measures locks over TCP beside Redis, `queue` jobs beside beanstalkd and Redis, `backlog` very many jobs that wait, `http` locks over HTTP beside
//! etcd, `embed` inside the program, `recovery` a large table of them and how it comes back, `churn` what many changes
//! leave on disk and in memory, `replay` how fast a start reads the log. `row` and `recovery_row` say what is measured,
//! `course` how often and how long, `codec` and `gateway` speak to each server, `load` drives connections, `cycle`,
//! `contend`, `held` and `job` are what a client does, `peer` starts servers, `question` asks them beside the load,
//! `figures` turns measurements into what is printed, `interrupt` ends it all in good order.

mod backlog;
mod churn;
mod codec;
mod contend;
mod course;
mod cycle;
mod embed;
mod embed_jobs;
mod figures;
mod gateway;
mod held;
mod http;
mod interrupt;
mod job;
mod load;
mod locks;
mod peer;
mod question;
mod queue;
mod rebuild;
mod recovery;
mod recovery_row;
mod replay;
mod row;

use crate::report::Failure;
use clap::{Args, Subcommand};

/// Measure how fast sexton is on this machine, beside Redis, beanstalkd and etcd where they are installed.
///
/// Each measurement starts servers of its own on loopback, with data directories that are removed afterwards. Figures
/// of different runs differ with the machine's other work: compare the ratios within one run.
#[derive(Args)]
#[command(after_help = "Examples:
  sexton bench locks                          every row, five rounds, about four minutes
  sexton bench locks --rows memory:1x1,fsync:50x1 --rounds 9
  sexton bench locks --dir /var/tmp --json    data on that file system; figures for programs
  sexton bench recovery                       a million locks: memory, restarts, checkpoints
  sexton bench churn                          ten million changes: disk and memory
  sexton bench embed                          a node inside the program
  sexton bench http                           locks over HTTP, beside etcd
  sexton bench queue                          jobs over TCP, beside beanstalkd and Redis
  sexton bench backlog                        a million waiting jobs: memory, cycles, restarts
  sexton bench replay --entries 1000000       how fast a start reads the log

docs/benchmarks.md says what each row does and how to read it.")]
pub(crate) struct Bench {
    #[command(subcommand)]
    measure: Measure,
}

#[derive(Subcommand)]
enum Measure {
    Backlog(backlog::Backlog),
    Churn(churn::Churn),
    Embed(embed::Embed),
    Http(http::Http),
    Locks(locks::Locks),
    Queue(queue::Queue),
    Recovery(recovery::Recovery),
    Replay(replay::Replay),
}

impl Bench {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.measure {
            Measure::Backlog(backlog) => interrupt::watched(move |stop| backlog.run(stop)),
            Measure::Churn(churn) => interrupt::watched(move |stop| churn.run(stop)),
            Measure::Embed(embed) => interrupt::watched(move |stop| embed.run(stop)),
            Measure::Http(http) => interrupt::watched(move |stop| http.run(stop)),
            Measure::Queue(queue) => interrupt::watched(move |stop| queue.run(stop)),
            Measure::Locks(locks) => interrupt::watched(move |stop| locks.run(stop)),
            Measure::Recovery(recovery) => interrupt::watched(move |stop| recovery.run(stop)),
            Measure::Replay(replay) => interrupt::watched(move |stop| replay.run(stop)),
        }
    }
}
