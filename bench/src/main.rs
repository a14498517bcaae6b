//! `sexton-bench`: measures sexton, compared with other servers where they are installed. It starts its own servers in its own
//! directories, and never touches a coordinator (`sexton serve`) that is already running. Some figures are printed with a limit and marked
//! if they miss it; the exit status does not depend on any figure.
//!
//! Each subcommand has a module of its name, and some have further ones: `embed_jobs` for `embed`, `rebuild` for `recovery`, `restarts` and
//! `ending` for `processes`, `passing` for `bindings`, `workers` and `fair` for `work`, `modes`, `bed` and `failing` for `dispatch`, and
//! `pages` for `page`. `course` and `site` define the flags that several subcommands share; `row`, `table` and `limits` describe and
//! format the tables.
//! `codec`, `gateway` and `job` implement each server's protocol; `load` drives connections, with the clients in `cycle`, `contend`, `held`
//! and `job`; `peer` and `coordinator` start servers; `question`, `event` and `pulse` receive what servers and processes report;
//! `fdatasync` measures a sync; `figures` turns measurements into what `output` prints; `interrupt` handles Ctrl-C; `chance` generates
//! random numbers; `failure` is the error type.

mod backlog;
mod bed;
mod bindings;
mod chance;
mod churn;
mod codec;
mod contend;
mod coordinator;
mod course;
mod cycle;
mod dispatch;
mod embed;
mod embed_jobs;
mod ending;
mod event;
mod failing;
mod failure;
mod fair;
mod fdatasync;
mod figures;
mod gateway;
mod held;
mod http;
mod interrupt;
mod job;
mod limits;
mod load;
mod locks;
mod modes;
mod output;
mod page;
mod pages;
mod passing;
mod peer;
mod processes;
mod pulse;
mod question;
mod queue;
mod rebuild;
mod recovery;
mod replay;
mod restarts;
mod row;
mod site;
mod table;
mod work;
mod workers;

use clap::Parser;
use failure::Failure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The same allocator as in the program `sexton`, for the nodes that this program embeds and measures.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure how fast sexton is on this machine, compared with Redis, beanstalkd and etcd where they are installed.
///
/// Each measurement starts its own servers on loopback, with data directories that are removed afterwards. Figures vary between runs with
/// other work on the machine, so compare the ratios within one run.
#[derive(Parser)]
#[command(name = "sexton-bench", version, max_term_width = 100)]
#[command(after_help = "Examples:
  cargo run --release -p sexton-bench -- locks   every row, five rounds, about four minutes
  sexton-bench locks --rows memory:1x1,fsync:50x1 --rounds 9
  sexton-bench locks --dir /var/tmp --json       data on that file system; figures as JSON
  sexton-bench locks --sexton target/dist/sexton another build of the program
  sexton-bench recovery                          a million locks: memory, restarts, checkpoints
  sexton-bench churn                             ten million changes: disk and memory
  sexton-bench embed                             a node inside the program
  sexton-bench http                              locks over HTTP, compared with etcd
  sexton-bench queue                             jobs over TCP, compared with beanstalkd and Redis
  sexton-bench backlog                           a million waiting jobs: memory, cycles, restarts
  sexton-bench processes                         services, compared with supervisord and runit; launches, ends
  sexton-bench bindings                          locks that end with processes, and `lock run`
  sexton-bench dispatch                          tasks: recovery from each failure mode, and their cost
  sexton-bench work                              jobs under `sexton work`, compared with RQ and greenstalk
  sexton-bench page                              past moments of a long journal, open pages, delay of other clients
  sexton-bench replay --entries 1000000          how fast the log is read at startup

See docs/benchmarks.md for what each row does and how to read the results.")]
enum Measure {
    Backlog(backlog::Backlog),
    Bindings(bindings::Bindings),
    Churn(churn::Churn),
    Dispatch(dispatch::Dispatch),
    Embed(embed::Embed),
    /// The process that `processes` launches.
    #[command(hide = true)]
    Ending(ending::Ending),
    /// The command that the tasks of `dispatch` run.
    #[command(hide = true)]
    Failing(failing::Failing),
    Http(http::Http),
    Locks(locks::Locks),
    Page(page::Page),
    Processes(processes::Processes),
    Queue(queue::Queue),
    Recovery(recovery::Recovery),
    Replay(replay::Replay),
    Work(work::Work),
}

fn main() -> Result<(), Failure> {
    let measure = Measure::parse();
    if let Measure::Ending(ending) = measure {
        return ending.run();
    }
    if let Measure::Failing(failing) = measure {
        return failing.run();
    }
    raise_descriptor_limit()?;
    interrupt::watched(move |stop| match measure {
        Measure::Backlog(backlog) => backlog.run(stop),
        Measure::Bindings(bindings) => bindings.run(stop),
        Measure::Churn(churn) => churn.run(stop),
        Measure::Embed(embed) => embed.run(stop),
        Measure::Dispatch(dispatch) => dispatch.run(stop),
        Measure::Ending(ending) => ending.run(),
        Measure::Failing(failing) => failing.run(),
        Measure::Http(http) => http.run(stop),
        Measure::Locks(locks) => locks.run(stop),
        Measure::Page(page) => page.run(stop),
        Measure::Processes(processes) => processes.run(stop),
        Measure::Queue(queue) => queue.run(stop),
        Measure::Recovery(recovery) => recovery.run(stop),
        Measure::Replay(replay) => replay.run(stop),
        Measure::Work(work) => work.run(stop),
    })
}

/// Raises the soft limit on file descriptors to the hard limit: a measurement opens thousands of connections.
fn raise_descriptor_limit() -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).map_err(Failure::to("raise the limit on file descriptors"))
}
